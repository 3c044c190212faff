"""Threads under stress: nested derivatives from eight threads, compared bit by bit with one thread.

The interpreter switches threads as often as it can, and the models give it reasons to. One program
is in the order in which autograd's own trace counter is wrong, whatever the threads do.
"""

import select
import threading
from concurrent.futures import ThreadPoolExecutor

import autograd
import autograd.numpy as np
import dask
import pytest
from lengths import in_short

import daskgrad as dg

pytestmark = [pytest.mark.timeout(180), pytest.mark.usefixtures("quick_switches")]

THREADS = 8
CALLS = 1_250  # in each thread: 10,000 altogether
ROUNDS = 5  # of sums of 16 models on the threaded scheduler, from each of several threads
POINTS = [0.1 + 0.001 * number for number in range(CALLS)]


def handed_over(x):
    """The number, after other threads had a turn."""
    select.select([], [], [], 0)
    return x


# --------------------------------------------------------------------------------- the models


def thrice(x):
    """Derivatives in a derivative, each of which closes over the variables around it."""

    def inner(y):
        innermost = autograd.grad(lambda z: handed_over(x) * y * z)(1.0)
        return np.sin(handed_over(x) * y) * innermost

    return handed_over(x) * autograd.grad(inner)(handed_over(x) * 0.5)


def slope_term(item, x):
    return autograd.grad(lambda y: np.cos(handed_over(x) * y) * item)(item)


def summing(x):
    total = dg.map_sum(slope_term, [0.3, 0.7], x)
    return total * autograd.grad(lambda y: dg.map_sum(slope_term, [0.2], x * y))(1.0)


def closing_over(number):
    def closure(x):
        return number * x * autograd.grad(lambda y: np.tanh(handed_over(x) * y) * number)(0.7)

    return closure


def gradients_of_models(point):
    def objective(x):
        parts = [dg.delayed(fun)(x) for fun in (thrice, summing, closing_over(point))]
        return dg.sum(parts)

    return dg.value_and_grad(objective)(point)


def sum_of_models(number):
    def term(item, x):
        return thrice(x * item) + closing_over(item)(x)

    items = [0.1 * (number + 1) + 0.05 * place for place in range(16)]
    return dg.value_and_grad(lambda x: dg.map_sum(term, items, x, grainsize=1))(0.3)


# ---------------------------------------------------------------------------------- in threads


def from_threads(fun, points):
    """What each thread gets for each point; they begin together, and each elsewhere."""
    start = threading.Barrier(THREADS)

    def run(place):
        start.wait()
        first = place * len(points) // THREADS
        results = {}
        for point in [*points[first:], *points[:first]]:
            try:
                results[point] = fun(point)
            except Exception as error:  # a wrong trace may also be one that fails
                results[point] = repr(error)
        return [results[point] for point in points]

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


def wrong(fun, points, expected):
    """The share of results that are not those of one thread, bit by bit."""
    results = from_threads(fun, points)
    flags = [
        result != right for each in results for result, right in zip(each, expected, strict=True)
    ]
    return sum(flags) / len(flags)


def one_thread(fun, points):
    return [fun(point) for point in points]


@pytest.mark.parametrize(
    ("fun", "points"),
    [
        (thrice, POINTS[::10]),
        pytest.param(thrice, POINTS[::2], marks=pytest.mark.long),
        pytest.param(gradients_of_models, POINTS[::8], marks=pytest.mark.long),
    ],
    ids=["thrice", "thrice, at length", "graphs, at length"],
)
def test_nested_derivatives_from_eight_threads_are_right(fun, points):
    derivative = autograd.grad(fun) if fun is thrice else fun
    with dask.config.set({"scheduler": "sync", "daskgrad.inline.seconds": 60}):
        expected = one_thread(derivative, points)
        assert wrong(derivative, points, expected) == 0.0


@in_short("in_line", [0.0, 60.0], 0.0, ids=["Dask's threads", "in line"])
def test_gradients_on_dasks_threads_from_eight_threads_are_right(in_line):
    numbers = list(range(ROUNDS))
    with dask.config.set(scheduler="sync"):
        expected = one_thread(sum_of_models, numbers)
    pool = ThreadPoolExecutor(THREADS)
    with (
        pool,
        dask.config.set({"scheduler": "threads", "pool": pool, "daskgrad.inline.seconds": in_line}),
    ):
        assert wrong(sum_of_models, numbers, expected) == 0.0
