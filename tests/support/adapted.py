"""What the adapters are tried on: a sum whose gradient is known, here and over placed items."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

import daskgrad as dg

ITEMS = [np.array([1.0, 2.0]), np.array([0.5, -1.0]), np.array([3.0, 0.0])]
A, B = 0.5, np.array([[1.0, -2.0], [0.3, 0.7]])


def term(item, a, b):
    return np.sum((b @ item - a) ** 2) + np.exp(0.1 * a)


def over(items):
    return lambda a, b: dg.map_sum(term, items, a, b)


def expected(a=A, b=B):
    errors = [b @ item - a for item in ITEMS]
    value = sum([np.sum(e**2) for e in errors]) + 3 * np.exp(0.1 * a)
    by_a = -2 * sum(map(np.sum, errors)) + 0.3 * np.exp(0.1 * a)
    return value, by_a, 2 * sum([np.outer(e, item) for e, item in zip(errors, ITEMS, strict=True)])


def in_threads(call, numbers):
    """What a function returns for some numbers, from threads that no test has started."""
    with ThreadPoolExecutor(4) as threads:
        return list(threads.map(call, numbers))
