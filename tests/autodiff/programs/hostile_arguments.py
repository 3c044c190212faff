"""Hostile models, continued: errors, kinds of results, and kinds of arguments."""

import enum
import math
import types
import warnings
from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np
from hostile_models import LATE, PROGRAM, TABLE, TAPE, Hostile, error_if, late, rows


def factor(x, matrix):
    try:
        root = np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        root = np.linalg.cholesky(matrix + 5.0 * np.eye(2))
    return np.sum(x) * np.sum(root)


def has_entry(x, number):
    try:
        x[number]
    except IndexError:
        return np.sum(x)
    return 2.0 * np.sum(x)


def has_inverse(x, number):
    try:
        1.0 / number
    except ZeroDivisionError:
        return np.sum(x)
    return 2.0 * np.sum(x)


def strict(x, data):
    try:
        with np.errstate(all="raise"):
            return np.sum(x) * np.sum(1.0 / data)
    except FloatingPointError:
        return np.sum(x)


def counted_errors(x, data):
    seen = []
    with np.errstate(all="call", call=lambda *args: seen.append(args)):
        y = 1.0 / data
    return np.sum(x) * (np.sum(y) if not seen else 1.0)


def strict_warnings(x, data):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return np.sum(x) * np.sum(np.log(data))
    except RuntimeWarning:
        return np.sum(x)


def recorded_warnings(x, data):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        y = np.log(data)
    return np.sum(x) * (np.sum(y) if not seen else 1.0)


def silent(x, data):
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.sum(np.where(data > 0.0, x[:3] * np.log(data), x[:3]))


def zero_late(scale=1.0):
    return late(scale * np.ones(3), np.zeros(3))


ERRORS = {
    "an error sometimes": Hostile(lambda x: error_if(x[0] > 0.4, np.sum(x))),
    "an error always": Hostile(lambda x: error_if(True, np.sum(x)), TAPE),
    "an assertion": Hostile(lambda x, a: error_if(a > 2.0, x[0]), PROGRAM, late(1.0, 3.0)),
    "an error is caught first": Hostile(factor, TAPE, late(-np.eye(2), np.eye(2))),
    "an error is caught late": Hostile(
        lambda x, a: factor(x, a), PROGRAM, late(np.eye(2), -np.eye(2))
    ),
    "an index that is not used": Hostile(has_entry, PROGRAM, late(np.int64(2), np.int64(20))),
    "a quotient that is not used": Hostile(has_inverse, PROGRAM, late(2.0, 0.0)),
    "floating-point errors": Hostile(strict, TAPE, zero_late()),
    "floating-point errors are counted": Hostile(counted_errors, TAPE, zero_late()),
    "warnings are errors": Hostile(strict_warnings, TAPE, zero_late(2.0)),
    "warnings are recorded": Hostile(recorded_warnings, TAPE, zero_late(2.0)),
    "warnings are silenced": Hostile(silent, PROGRAM, zero_late(2.0)),
    "1 / 0.0": Hostile(lambda x, a: np.sum(x) * (1.0 / a), PROGRAM, late(2.0, 0.0)),
    "1 / a NumPy zero": Hostile(
        lambda x, a: np.sum(x) * (1.0 / a), PROGRAM, late(np.float64(2.0), np.float64(0.0))
    ),
    "Python's overflow": Hostile(lambda x, a: np.sum(x) * a**9, PROGRAM, late(2.0, 1e300)),
    "a complex power": Hostile(lambda x, a: np.sum(x * np.abs(a**0.5)), PROGRAM, late(2.0, -2.0)),
    "floor of a division": Hostile(
        lambda x, a: np.sum(x) * (7.0 // a) % a, PROGRAM, late(2.0, -2.0)
    ),
    "NaN": Hostile(lambda x: np.sum(np.where(x > 0, np.sqrt(x), np.nan * x))),
    "negative zeros": Hostile(lambda x: np.sum(-0.0 * x) + np.sum(x * 0.0 - 0.0)),
    "NaN and zero, late": Hostile(
        lambda x, a: np.max(x) + np.sum(x) * a, PROGRAM, late(1.0, math.nan)
    ),
}


RESULTS = {
    "a constant": Hostile(lambda x: 3.0),
    "None": Hostile(lambda x: None),
    "an int and a bool": Hostile(lambda x: {"a": np.sum(x), "b": 3, "c": True, "d": None}),
    "its argument": Hostile(lambda x: x),
    "an array twice": Hostile(lambda x: (lambda y: [y, y, y[1:]])(np.sin(x))),
    "a view and its base": Hostile(lambda x: (lambda y: (y, y.T, y.reshape(-1)))(np.outer(x, x))),
    "its data": Hostile(lambda x, a: (np.sum(x), a, a[1:]), PROGRAM, rows),
    "other keys": Hostile(lambda x: {"a": np.sum(x)} if x[0] > 0.0 else {"b": np.sum(x)}),
    "empty": Hostile(lambda x: x[5:]),
    "a comparison": Hostile(lambda x: (np.sum(x), x > 0.0)),
    "a list of boxes": Hostile(lambda x: [each * n for n, each in enumerate(x)]),
    "boxes in an array of objects": Hostile(lambda x: np.array([x[0], x[1]], dtype=object), TAPE),
    "complex": Hostile(lambda x: np.sum(np.abs(np.fft.fft(x)) ** 2) + np.real(np.exp(1j * x[0]))),
    "a number and an array": Hostile(lambda x: np.sum(x) if x[0] > 0.0 else x),
}


class Colour(enum.Enum):
    RED = 1.0
    BLUE = 2.0


class Odd(float):
    def __mul__(self, other):
        return 3.0 * other

    __rmul__ = __mul__


class Marked(np.ndarray):
    def __rmul__(self, other):
        return other * 5.0


def alternating(*data: Any) -> Callable:
    """Arguments of which the second takes turns."""
    return lambda n, random: (random.normal(size=5), data[n % len(data)])


def of_x(change: Callable) -> Callable:
    return lambda n, random: (change(random.normal(size=(4, 5)), n),)


def of_float(x, data):
    return np.sum(x) * (2.0 if isinstance(data, float) and data > 3.0 else 1.0)


def by_type(x, data):
    return np.sum(x) * (2.0 if type(data) is float and data > 3.0 else 1.0)


def smooth(x):
    return np.sum(np.tanh(x) * x) + np.sum(np.mean(x, axis=0) ** 2)


def times(x, data):
    return np.sum(x) * np.sum(data)


def in_memmap(x, n):
    mapped = np.memmap("/dev/zero", dtype=np.float64, mode="c", shape=x.shape)
    mapped[...] = x
    return mapped


def overlapping(n, random):
    data = random.normal(size=9)
    return data[:5], data[3:]


def same_twice(n, random):
    x = random.normal(size=5)
    return (x, x) if n % 2 else (x, x.copy())


class Thing:
    def __init__(self, by, **others):
        self.by = by
        vars(self).update(others)

    def scale(self, factor):
        return np.sum(factor * self.by)


class Halved(Thing):
    def scale(self, factor):
        return 0.5 * factor * self.by


class Slotted(Thing):
    __slots__ = ("slot",)

    def __init__(self, by):
        super().__init__(by)
        self.slot = [by]

    def scale(self, factor):
        return factor * self.slot[0] * self.by


def objects(*kinds):
    """Objects of other numbers, of these kinds in turn."""
    return lambda n, r: (
        r.normal(size=5),
        Thing(kinds[n % len(kinds)](3.0 * r.normal()), other=types.SimpleNamespace(by=r.normal())),
    )


def strided(n, random):
    """Objects with vectors in memory, and from call LATE on also with every second entry."""
    numbers = np.repeat(random.normal(size=1000), 2)
    return random.normal(size=5), Thing(numbers[::2] if n > LATE and n % 2 else numbers[::2].copy())


def looped(by):
    thing = Thing(by)
    thing.itself = thing
    return thing


ARGUMENTS = {
    "vectors with gaps": Hostile(
        lambda x, a: np.sum(x) * np.linalg.norm(a.by) + np.sum(np.sinh(a.by * 1.0)),
        PROGRAM,
        strided,
    ),
    "isinstance of a float": Hostile(of_float, PROGRAM, late(2.0, 4.0)),
    "the type of a float": Hostile(by_type, PROGRAM, late(2.0, 4.0)),
    "the order of a dict": Hostile(
        lambda x, data: np.sum(x) * next(iter(data.values())),
        PROGRAM,
        late({"a": 2.0, "b": 3.0}, {"b": 3.0, "a": 2.0}),
    ),
    "True, 1 and 1.0": Hostile(
        lambda x, a: np.sum(x) * (a + a) + isinstance(a, int), PROGRAM, alternating(True, 1, 1.0)
    ),
    "strings and None": Hostile(
        lambda x, a: np.sum(x) * len(a or ""), PROGRAM, alternating("a", "bc", None)
    ),
    "dates": Hostile(
        lambda x, a: np.sum(x) * (a > np.datetime64("2020-01-01")),
        PROGRAM,
        late(np.datetime64("2019-01-01"), np.datetime64("2021-01-01")),
    ),
    "an int that counts": Hostile(
        lambda x, n: np.sum(x) * n, PROGRAM, lambda n, r: (r.normal(size=5), n // 4)
    ),
    "an integer of NumPy's that is looked at": Hostile(
        lambda x, n: sum([np.sum(x**k) for k in range(n)], 0.0 * x[0]),
        PROGRAM,
        alternating(*np.arange(1, 3)),
    ),
    "a string of NumPy's": Hostile(
        lambda x, a: np.sum(x) * {"a": 2.0, "b": 3.0}[a],
        PROGRAM,
        alternating(*np.array(["a", "b"])),
    ),
    "an enum": Hostile(lambda x, c: np.sum(x) * c.value, PROGRAM, alternating(*Colour)),
    "a subclass of float, boxed": Hostile(
        lambda x, a: (a * 2.0) * np.sum(x), PROGRAM, alternating(Odd(2.0), Odd(5.0))
    ),
    "a subclass of arrays": Hostile(
        lambda x, a: np.sum(x * a), TAPE, alternating(np.arange(5.0).view(Marked))
    ),
    "a masked array": Hostile(
        lambda x, a: np.sum(x) * np.mean(a),
        TAPE,
        alternating(np.ma.masked_greater(np.arange(5.0), 3.0)),
    ),
    "a function": Hostile(lambda x, f: np.sum(f(x)), PROGRAM, alternating(np.sin, np.cos)),
    "a module": Hostile(lambda x, xp: xp.sum(xp.sin(x)), PROGRAM, alternating(np, anp)),
    "an object": Hostile(
        lambda x, a: np.sum(x) * a.scale(2.0) * a.other.by, PROGRAM, objects(float, float)
    ),
    "an object's size": Hostile(
        lambda x, a: np.sum(x) * a.scale(2.0), PROGRAM, objects(lambda by: np.full(2, by), int)
    ),
    "objects of two classes": Hostile(
        lambda x, a: np.sum(x) * a.scale(2.0), PROGRAM, alternating(Thing(2.0), Slotted(3.0))
    ),
    "another attribute": Hostile(
        lambda x, a: np.sum(x) * (2.0 if hasattr(a, "late") else 1.0),
        PROGRAM,
        late(Thing(2.0), Thing(2.0, late=1.0)),
    ),
    "an object that holds itself": Hostile(
        lambda x, a: np.sum(x) * a.by, PROGRAM, alternating(looped(2.0), looped(3.0))
    ),
    "other shapes": Hostile(smooth, PROGRAM, of_x(lambda x, n: x[:, : 1 + n % 3])),
    "other dtypes": Hostile(
        times,
        PROGRAM,
        alternating(np.arange(3), np.arange(3.0), np.arange(3, dtype="f4"), np.arange(3) > 1),
    ),
    "numbers and arrays": Hostile(
        times, PROGRAM, alternating(2.0, np.float64(2.0), np.array(2.0), np.array([2.0]), 1j)
    ),
    "no axes": Hostile(lambda x: x * np.sin(x), PROGRAM, lambda n, r: (np.array(r.normal()),)),
    "float32": Hostile(smooth, PROGRAM, of_x(lambda x, n: x.astype(np.float32))),
    "longdouble": Hostile(smooth, PROGRAM, of_x(lambda x, n: x.astype(np.longdouble))),
    "big-endian": Hostile(smooth, PROGRAM, of_x(lambda x, n: x.astype(">f8"))),
    "single and double": Hostile(
        lambda x, a: np.sum(x * a) + np.sum(a),
        PROGRAM,
        alternating(np.float32(2.0), np.complex64(1j)),
    ),
    "orders in turn": Hostile(
        smooth, PROGRAM, of_x(lambda x, n: [x, np.asfortranarray(x), x.T, x[::-1]][n % 4])
    ),
    "every second": Hostile(
        smooth, PROGRAM, of_x(lambda x, n: x[::2, ::2] if n % 2 else x[:2, :3])
    ),
    "unaligned": Hostile(
        times,
        PROGRAM,
        lambda n, r: (
            r.normal(size=5),
            np.ones(25, "u1")[1:].view("f8") if n % 2 else r.normal(size=3),
        ),
    ),
    "a memmap": Hostile(smooth, PROGRAM, of_x(in_memmap)),
    "overlapping": Hostile(lambda x, a: np.sum(x) * a[0] + x[4] * a[1], PROGRAM, overlapping),
    "the same twice": Hostile(
        lambda x, a: np.sum(x) * np.sum(a) * (1 + (a is x)), PROGRAM, same_twice
    ),
    "hasattr": Hostile(
        lambda x, a: np.sum(x) * (2.0 if hasattr(a, "__array_interface__") else 1.0),
        TAPE,
        late(np.ones(3), np.zeros(3)),
    ),
    "strides": Hostile(lambda x, a: np.sum(x) * a.strides[0], TAPE, late(TABLE[0], TABLE[::2, 0])),
}
