"""Hostile models: what a list of calls cannot repeat, or not always; each is a row of a table.

These are functions of their arguments; ``hostile_states`` has those that are not.
"""

import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from autograd.tracer import getval

import daskgrad as dg

PROGRAM = "a program is used, and every call is right"
TAPE = "left to the tape"
ERROR = "a NondeterministicModelError, after which no result is given"

CALLS = 40
LATE = 30  # the first call with data of another kind, long after the model has been compiled

TABLE = np.cos(np.arange(12.0)).reshape(4, 3)
KNOWN = {4.0: 7.0}


def vector(n: int, random: np.random.Generator) -> tuple:
    """The arguments of call ``n``: one vector, other ones than before."""
    return (random.normal(size=5),)


def late(early: Any, data: Any) -> Callable:
    """Arguments of which the second is ``data`` from call LATE on."""
    return lambda n, random: (random.normal(size=5), data if n >= LATE else early)


rows = late(TABLE[0], TABLE[1])
places = late(np.int64(2), np.int64(3))


def unchanged(n: int) -> None:
    pass


class Hostile(NamedTuple):
    model: Callable
    becomes: str = PROGRAM
    arguments: Callable[[int, np.random.Generator], tuple] = vector
    before: Callable[[int], None] = unchanged  # what changes before call n


def newton(x):
    y = 1.0 + 0.0 * x[0]
    while abs(y * y - 2.0 - x[0] ** 2) > 1e-12:
        y = y - (y * y - 2.0 - x[0] ** 2) / (2.0 * y)
    return y


def many_ways(x):
    return np.sum(np.stack([each if each > 0 else each**2 for each in x]))


BRANCHES = {
    "if": Hostile(lambda x: np.sum(x) if x[0] > 0.0 else np.sum(x**2)),
    "and, or": Hostile(lambda x: ((x[0] > 0.0 and x[1]) or x[2]) * np.sum(x)),
    "while": Hostile(newton),
    "more ways than are compiled": Hostile(many_ways),
    "max of boxes": Hostile(lambda x: max(x[0], x[1], 0.2) * np.sum(x)),
    "a box in a list": Hostile(lambda x: np.sum(x) * (2.0 if x[0] in [x[1], x[0]] else 1.0)),
}


def caught(x):
    try:
        return float(x[0]) * np.sum(x)
    except Exception:
        return np.sum(x) ** 2


def rare(x):
    return np.sum(x) * (2.0 if any(getval(x) > 1.8) else 1.0)


def error_if(condition, value):
    if condition:
        raise ValueError("the model's own")
    return value


NUMBERS = {
    "float": Hostile(lambda x: float(getval(x)[0]) * np.sum(x), TAPE),
    "float of a box": Hostile(
        lambda x: np.sum(x) * (float(x[0]) if hasattr(x[0], "__float__") else 1.0), TAPE
    ),
    "isinstance of a box": Hostile(
        lambda x: np.sum(x) * (2.0 if isinstance(x, np.ndarray) else 1.0)
    ),
    "the type of a box": Hostile(lambda x: np.sum(x) * (2.0 if type(x) is np.ndarray else 1.0)),
    "float of data": Hostile(lambda x, a: np.sum(x) * float(a), TAPE, late(2.0, 3.0)),
    "an index": Hostile(lambda x, a: np.sum(x) * [0.0, 0.0, 1.0, 2.0][a], PROGRAM, places),
    "a slice up to data": Hostile(lambda x, a: np.sum(x[:a]), PROGRAM, places),
    "item": Hostile(lambda x, a: np.sum(x) * a[0].item(), TAPE, rows),
    "text": Hostile(lambda x: np.sum(x) * len(f"{x[0]}") if str(x) else 0.0, TAPE),
    "a dict": Hostile(lambda x, a: np.sum(x) * KNOWN.get(a, 1.0), TAPE, late(1.5, 4.0)),
    "pickle": Hostile(lambda x, a: np.sum(x) * pickle.loads(pickle.dumps(a))[0], TAPE, rows),
    "fromiter": Hostile(lambda x, a: np.sum(x) * np.fromiter(a, float)[0], TAPE, rows),
    "getval": Hostile(lambda x: np.sum(x) * np.sum(getval(x) ** 2), TAPE),
    "dg.value": Hostile(lambda x: np.sum(x) * np.sum(dg.value(x) ** 2), PROGRAM),
    "_value": Hostile(lambda x: np.sum(x) * (x._value[0] if hasattr(x, "_value") else 1.0)),
    "a rare path": Hostile(rare, TAPE),
    "an exception is caught": Hostile(caught),
    "a norm that is zero for a while": Hostile(  # also when a program is compared
        lambda x: np.linalg.norm(x),
        PROGRAM,
        lambda n, r: (r.normal(size=5) * (n < 12 or n > LATE),),
    ),
    "searchsorted": Hostile(
        lambda x: np.sum(x) * np.searchsorted(np.linspace(-1, 1, 9), getval(x)[0]), TAPE
    ),
}


PLAIN = {  # plain NumPy and SciPy
    "expm": Hostile(lambda x: np.sum(scipy.linalg.expm(np.outer(x, x))), TAPE),
    "r_": Hostile(lambda x: np.sum(np.r_[x, 1.0, x] ** 2)),
    "an array of objects": Hostile(lambda x: np.sum(np.array([x[0], x[1]], dtype=object))),
    "a traced index of a constant": Hostile(lambda x, a: np.sum(x) * TABLE[a, 0], PROGRAM, places),
    "vectorize": Hostile(lambda x: np.sum(np.vectorize(lambda t: t**2)(x))),
    "apply_along_axis": Hostile(lambda x: np.sum(np.apply_along_axis(np.sum, 0, x)), PROGRAM),
    "reduceat": Hostile(lambda x: np.sum(np.add.reduceat(x, [0, 2])), TAPE),
    "accumulate": Hostile(lambda x: np.sum(np.add.accumulate(x))),
    "add.at": Hostile(lambda x: np.add.at(np.zeros(5), [0, 0], x[:2]) or np.sum(x), TAPE),
    "out=": Hostile(lambda x: np.sum(np.add(x, 1.0, out=np.zeros(5))), TAPE),
    "where=": Hostile(
        lambda x, a: np.sum(x) * np.sum(a, where=[True, False, True]),
        PROGRAM,
        rows,
    ),
    "interp": Hostile(lambda x: np.sum(np.interp(x, np.linspace(-1, 1, 9), np.arange(9.0)))),
    "histogram": Hostile(lambda x, a: np.sum(x * np.histogram(a, 5)[0]), PROGRAM, rows),
    "boxes in an array": Hostile(lambda x: np.sum(np.array([x[0], x[1] * x[2], 1.0]) ** 2)),
    "a generator": Hostile(lambda x: sum(each * n for n, each in enumerate(x))),
    "custom": Hostile(lambda x: np.sum(square(x) * x), TAPE),
    "a deep loop": Hostile(lambda x: deep(x)),
}


@dg.custom_vjp
def square(x):
    return x**2, lambda g: 2.0 * g * x


def deep(x):
    y = x
    for _ in range(60):
        y = np.sin(y) + 0.1 * x
    return np.sum(y)


def refilled(x):
    buffer, total = np.ones(5), 0.0
    for factor in range(3):
        buffer[:] = factor
        total = total + np.sum(buffer * x**2)
    return total


def refilled_index(x):
    index, total = np.array([0, 1]), 0.0
    for shift in range(3):
        index[:] = [shift, shift + 1]
        total = total + np.sum(x[index] ** 2) * (1.0 + shift)
    return total


def refilled_list(x):
    index, total = [0, 1], 0.0
    for shift in range(3):
        index[0] = shift
        total = total + np.sum(x[index] ** 2) * (1.0 + shift)
    return total


def refilled_gap(x):
    gaps, total = np.ones(10)[::2], 0.0
    for factor in range(3):
        gaps[:] = factor
        total = total + np.sum(gaps * x**2)
    return total


def changed_data(x, data):
    mine = data * 1.0
    other = mine
    mine *= data[0]
    return np.sum(x) * np.sum(other)


def written_data(x, data):
    mine = np.array(data)
    mine[0] = 3.0
    return np.sum(x) * np.sum(mine)


IN_PLACE = {
    "a refilled buffer": Hostile(refilled),
    "a refilled index": Hostile(refilled_index),
    "a refilled list": Hostile(refilled_list),
    "a refilled view with gaps": Hostile(refilled_gap),
    "data are changed": Hostile(changed_data, TAPE, rows),
    "data are copied and changed": Hostile(written_data, TAPE, rows),
}


def mean_of_some(x, data):
    return np.mean(np.concatenate([x[data[0] > 1.0].ravel(), x]))


SHAPES = {  # that depend on data
    "a mask": Hostile(lambda x: np.sum(x[x > 0.0] ** 2) + np.mean(x[x > -2.0])),
    "nonzero data": Hostile(lambda x, a: np.sum(x[np.nonzero(a > 0.0)[0]]), PROGRAM, rows),
    "compress": Hostile(lambda x, a: np.mean(np.compress(a > 0.0, x[:3])), PROGRAM, rows),
    "repeat": Hostile(
        lambda x, a: np.mean(np.repeat(x[:3], a)),
        PROGRAM,
        late(np.array([1, 2, 0]), np.array([1, 1, 3])),
    ),
    "len of a mask": Hostile(lambda x, a: np.sum(x) * len(a[a > 0.0]), PROGRAM, rows),
    "an index of one bool": Hostile(mean_of_some, PROGRAM, late(2.0 * np.ones(3), np.zeros(3))),
    "argmax": Hostile(lambda x: x[np.argmax(x)] * np.sum(x)),
}
