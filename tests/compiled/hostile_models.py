"""Hostile models: what a list of calls cannot repeat, or not always; each is a row of a table.

These are functions of their arguments; ``hostile_states`` has those that are not.
"""

import cmath
import copy
import math
import operator
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import autograd
import autograd.numpy as anp
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


def bisect(x):
    low, high = 0.0, 4.0
    for _ in range(3):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.sum(x**2) > middle else (low, middle)
    return (low + 0.1) * np.sum(x) + high


def halved(x, depth=0):
    return halved(0.5 * x, depth + 1) if depth < 6 and np.sum(x**2) > 0.3 else np.sum(x) * depth


def many_ways(x):
    return np.sum(np.stack([each if each > 0 else each**2 for each in x]))


def matched(x):
    match x[0] > 0.0:
        case True:
            return np.sum(x)
    return np.sum(x**2)


BRANCHES = {
    "if": Hostile(lambda x: np.sum(x) if x[0] > 0.0 else np.sum(x**2)),
    "if of two": Hostile(lambda x: x[0] * x[1] if x[0] > 0 and x[1] > 0 else np.sum(np.sin(x))),
    "and, or": Hostile(lambda x: ((x[0] > 0.0 and x[1]) or x[2]) * np.sum(x)),
    "a chain of comparisons": Hostile(lambda x: x[0] if -1.0 < x[0] < 1.0 else np.sum(x)),
    "while": Hostile(newton),
    "bisection": Hostile(bisect),
    "recursion": Hostile(halved),
    "more ways than are compiled": Hostile(many_ways),
    "match": Hostile(matched),
    "max of boxes": Hostile(lambda x: max(x[0], x[1], 0.2) * np.sum(x)),
    "sorted boxes": Hostile(lambda x: sorted([x[0], x[1], x[2]])[1] ** 2),
    "np.any": Hostile(lambda x: np.sum(x) if np.any(x > 0.8) else np.sum(x**3)),
    "a box in a list": Hostile(lambda x: np.sum(x) * (2.0 if x[0] in [x[1], x[0]] else 1.0)),
    "all of boxes": Hostile(lambda x: np.sum(x) if all(x > -1.0) else np.sum(np.tanh(x))),
    "abs of a box": Hostile(lambda x: abs(x[0]) * np.sum(abs(x))),
}


def caught(x):
    try:
        return float(x[0]) * np.sum(x)
    except Exception:
        return np.sum(x) ** 2


def swallowed(x):
    try:
        return math.exp(x[0]) * np.sum(x)
    except (TypeError, ValueError, AttributeError, Warning):
        return np.sum(x**2)


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
    "float of a constant": Hostile(lambda x: np.sum(x * float(TABLE[0, 0]))),
    "float of data": Hostile(lambda x, a: np.sum(x) * float(a), TAPE, late(2.0, 3.0)),
    "int of data": Hostile(lambda x, a: np.sum(x[: int(a)]), TAPE, late(2.0, 3.0)),
    "complex of data": Hostile(lambda x, a: np.sum(x) * complex(a).real, TAPE, late(2.0, 3.0)),
    "round": Hostile(lambda x, a: np.sum(x) * round(a), TAPE, late(2.2, 3.3)),
    "math": Hostile(lambda x, a: np.sum(x) * math.exp(a), TAPE, late(2.2, 3.3)),
    "cmath": Hostile(lambda x, a: np.sum(x) * abs(cmath.exp(a)), TAPE, late(2.2, 3.3)),
    "an index": Hostile(lambda x, a: np.sum(x) * [0.0, 0.0, 1.0, 2.0][a], TAPE, places),
    "a range": Hostile(lambda x, a: sum([x[0] * n for n in range(a)]), TAPE, places),
    "a slice up to data": Hostile(lambda x, a: np.sum(x[:a]), TAPE, places),
    "the size of zeros": Hostile(lambda x, a: np.sum(x) * len(np.zeros(a)), TAPE, places),
    "item": Hostile(lambda x, a: np.sum(x) * a[0].item(), TAPE, rows),
    "tolist": Hostile(lambda x, a: np.sum(x) * a.tolist()[0], TAPE, rows),
    "text": Hostile(lambda x: np.sum(x) * len(f"{x[0]}") if str(x) else 0.0, TAPE),
    "a dict": Hostile(lambda x, a: np.sum(x) * KNOWN.get(a, 1.0), TAPE, late(1.5, 4.0)),
    "a set": Hostile(lambda x, a: np.sum(x) * len({a, 4.0}), TAPE, late(1.5, 4.0)),
    "pickle": Hostile(lambda x, a: np.sum(x) * pickle.loads(pickle.dumps(a))[0], TAPE, rows),
    "deepcopy": Hostile(lambda x, a: np.sum(x) * copy.deepcopy(a)[0], TAPE, rows),
    "bytes": Hostile(lambda x, a: np.sum(x) * a.tobytes()[7], TAPE, rows),
    "fromiter": Hostile(lambda x, a: np.sum(x) * np.fromiter(a, float)[0], TAPE, rows),
    "getval": Hostile(lambda x: np.sum(x) * np.sum(getval(x) ** 2), TAPE),
    "dg.value": Hostile(lambda x: np.sum(x) * np.sum(dg.value(x) ** 2), PROGRAM),
    "stop_gradient": Hostile(lambda x: np.sum(x * dg.stop_gradient(x) ** 2), PROGRAM),
    "_value": Hostile(lambda x: np.sum(x) * (x._value[0] if hasattr(x, "_value") else 1.0), TAPE),
    "a rare path": Hostile(rare, TAPE),
    "an exception is caught": Hostile(caught, TAPE),
    "exceptions are caught": Hostile(swallowed, TAPE),
    "unique": Hostile(lambda x: np.sum(np.unique(np.round(getval(x), 1))) * np.sum(x), TAPE),
    "searchsorted": Hostile(
        lambda x: np.sum(x) * np.searchsorted(np.linspace(-1, 1, 9), getval(x)[0]), TAPE
    ),
}


PLAIN = {  # plain NumPy and SciPy
    "np.dot": Hostile(lambda x: np.dot(x, x) * np.dot(TABLE, x[:3])[0]),
    "median": Hostile(lambda x: np.median(x) * np.sum(x**2)),
    "expm": Hostile(lambda x: np.sum(scipy.linalg.expm(np.outer(x, x))), TAPE),
    "r_": Hostile(lambda x: np.sum(np.r_[x, 1.0, x] ** 2), TAPE),
    "an array of objects": Hostile(lambda x: np.sum(np.array([x[0], x[1]], dtype=object)), TAPE),
    "a traced index of a constant": Hostile(lambda x, a: np.sum(x) * TABLE[a, 0], TAPE, places),
    "take from a constant": Hostile(lambda x, a: np.sum(x) * np.take(TABLE, a), TAPE, places),
    "vectorize": Hostile(lambda x: np.sum(np.vectorize(lambda t: t**2)(x)), TAPE),
    "apply_along_axis": Hostile(lambda x: np.sum(np.apply_along_axis(np.sum, 0, x)), PROGRAM),
    "frompyfunc": Hostile(lambda x: np.sum(np.frompyfunc(lambda t: t * 2.0, 1, 1)(x)), TAPE),
    "reduceat": Hostile(lambda x: np.sum(np.add.reduceat(x, [0, 2])), TAPE),
    "accumulate": Hostile(lambda x: np.sum(np.add.accumulate(x))),
    "accumulated data": Hostile(lambda x, a: np.sum(x) * np.add.accumulate(a)[-1], PROGRAM, rows),
    "outer": Hostile(lambda x: np.sum(np.multiply.outer(x, x))),
    "add.at": Hostile(lambda x: np.add.at(np.zeros(5), [0, 0], x[:2]) or np.sum(x), TAPE),
    "out=": Hostile(lambda x: np.sum(np.add(x, 1.0, out=np.zeros(5))), TAPE),
    "where=": Hostile(
        lambda x, a: np.sum(x) * np.sum(a, where=[True, False, True]),
        PROGRAM,
        rows,
    ),
    "interp": Hostile(lambda x: np.sum(np.interp(x, np.linspace(-1, 1, 9), np.arange(9.0)))),
    "histogram": Hostile(lambda x, a: np.sum(x * np.histogram(a, 5)[0]), PROGRAM, rows),
    "boxes in an array": Hostile(lambda x: np.sum(np.array([x[0], x[1] * x[2], 1.0]) ** 2), TAPE),
    "boxes in a list": Hostile(lambda x: np.sum(np.stack([x, x**2]) * 0.5)),
    "concatenate": Hostile(lambda x: np.sum(np.concatenate([x[1:], x[:1], [1.0]]) ** 2)),
    "copied": Hostile(lambda x: np.sum(np.copy(x) * np.array(x)), TAPE),
    "iterated": Hostile(lambda x: sum([each**2 for each in x])),
    "a generator": Hostile(lambda x: sum(each * n for n, each in enumerate(x))),
    "map and zip": Hostile(
        lambda x: sum(map(operator.mul, *zip(*[(a, a) for a in x], strict=True)))
    ),
    "a derivative": Hostile(
        lambda x: np.sum(autograd.grad(lambda t: np.sum(t**3))(x) * x), PROGRAM
    ),
    "a jacobian": Hostile(
        lambda x: np.sum(autograd.jacobian(lambda t: anp.sin(t) * t)(x)), PROGRAM
    ),
    "custom": Hostile(lambda x: np.sum(square(x) * x), TAPE),
    "cholesky": Hostile(
        lambda x: np.sum(np.linalg.cholesky(np.outer(x, x) + 9.0 * np.eye(5)) ** 2)
    ),
    "slogdet": Hostile(lambda x: np.linalg.slogdet(np.outer(x, x) + 9.0 * np.eye(5))[1] * x[0]),
    "eigh": Hostile(
        lambda x: np.sum(np.linalg.eigh(np.outer(x, x) + np.diag(np.arange(5.0)))[0] ** 2)
    ),
    "einsum": Hostile(lambda x: np.einsum("i,ij,j->", x[:4], TABLE, x[:3])),
    "rows of a table": Hostile(lambda x: np.sum(TABLE[[0, 2]] * x[:3]) + TABLE[1, 2] * x[0]),
    "a deep loop": Hostile(lambda x: deep(x)),
    "tiny steps": Hostile(lambda x: np.sum(np.cumsum(np.diff(x)) * np.clip(x[1:], -0.5, 0.5))),
}


@dg.custom_vjp
def square(x):
    return x**2, lambda g: 2.0 * g * x


def deep(x):
    y = x
    for _ in range(60):
        y = np.sin(y) + 0.1 * x
    return np.sum(y)


def in_place(x):
    out = np.zeros(5)
    out[:] = 2.0
    return np.sum(out * x)


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


def written_zeros(x):
    out = np.zeros_like(x)
    out[0] = 1.0
    return np.sum(out * x)


IN_PLACE = {
    "in place": Hostile(in_place),
    "a refilled buffer": Hostile(refilled, TAPE),
    "a refilled index": Hostile(refilled_index, TAPE),
    "a refilled list": Hostile(refilled_list, TAPE),
    "a refilled view with gaps": Hostile(refilled_gap, TAPE),
    "data are changed": Hostile(changed_data, TAPE, rows),
    "data are copied and changed": Hostile(written_data, TAPE, rows),
    "zeros like it": Hostile(written_zeros, TAPE),
}


def mean_of_some(x, data):
    return np.mean(np.concatenate([x[data[0] > 1.0].ravel(), x]))


SHAPES = {  # that depend on data
    "a mask": Hostile(lambda x: np.sum(x[x > 0.0] ** 2) + np.mean(x[x > -2.0])),
    "the mean of a mask": Hostile(lambda x: np.mean(x[x > 0.1]) * x[0]),
    "nonzero": Hostile(lambda x: np.sum(x[np.nonzero(TABLE[:, 0])[0]])),
    "nonzero data": Hostile(lambda x, a: np.sum(x[np.nonzero(a > 0.0)[0]]), PROGRAM, rows),
    "flatnonzero": Hostile(lambda x, a: np.sum(x[np.flatnonzero(a > 0.0)]), PROGRAM, rows),
    "compress": Hostile(lambda x, a: np.mean(np.compress(a > 0.0, x[:3])), PROGRAM, rows),
    "repeat": Hostile(
        lambda x, a: np.mean(np.repeat(x[:3], a)),
        PROGRAM,
        late(np.array([1, 2, 0]), np.array([1, 1, 3])),
    ),
    "len of a mask": Hostile(lambda x, a: np.sum(x) * len(a[a > 0.0]), PROGRAM, rows),
    "unique data": Hostile(
        lambda x, a: np.sum(x) * len(np.unique(a)), PROGRAM, late(TABLE[0], np.zeros(3))
    ),
    "an index of one bool": Hostile(mean_of_some, PROGRAM, late(2.0 * np.ones(3), np.zeros(3))),
    "argmax": Hostile(lambda x: x[np.argmax(x)] * np.sum(x)),
    "argsort": Hostile(lambda x: np.sum(x[np.argsort(x)] * np.arange(5.0))),
    "len": Hostile(lambda x: np.sum(x) / len(x) * x.shape[0] * x.ndim),
}
