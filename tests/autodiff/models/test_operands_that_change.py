"""A call sees its operands as they were when it was called, whatever the model writes afterwards.

Each case is a model that writes into a plain array between two uses, and the model that gives each
use a copy of its own: value and derivatives are the same numbers, in every way of running.
"""

import operator
import types

import autograd
import autograd.numpy as anp
import dask
import numpy as np
import pytest
import scipy.sparse

import daskgrad as dg

X = np.array([0.5, 1.2, 2.0])
START = np.array([1.5, 0.7, 1.1])
NEW = np.array([0.3, 2.5, 1.9])


def by_view(write):
    """Writes through a view that was there before the first use."""
    return lambda array: (lambda view: lambda: write(view))(array[:])


def set_real(array):
    array.real = NEW


def set_flat(array):
    array.flat = NEW


def set_part(array):
    head, _ = array[:1], array[1:]
    head[:] = 4.0


def by_memory(array):
    memoryview(array)[1] = 7.0


def by_iterator(array):
    with np.nditer(array, op_flags=["readwrite"]) as entries:
        for entry in entries:
            entry[...] = 2.0 * entry


def by_rows(array):
    for row in array.reshape(3, 1):
        row += 1.0


WRITES = {
    "a[:] =": lambda a: operator.setitem(a, slice(None), NEW),
    "a[...] = number": lambda a: operator.setitem(a, ..., 0.3),
    "a[1] =": lambda a: operator.setitem(a, 1, 9.0),
    "a[mask] =": lambda a: operator.setitem(a, a > 1.0, 0.2),
    "a[list] =": lambda a: operator.setitem(a, [0, 2], [8.0, 9.0]),
    "a += b": lambda a: operator.iadd(a, NEW),
    "a *= 2": lambda a: operator.imul(a, 2.0),
    "a -= b": lambda a: operator.isub(a, NEW),
    "a /= 2": lambda a: operator.itruediv(a, 2.0),
    "a **= 2": lambda a: operator.ipow(a, 2.0),
    "a %= 1": lambda a: operator.imod(a, 1.0),
    "a //= 1": lambda a: operator.ifloordiv(a, 0.4),
    "out= by name": lambda a: np.multiply(NEW, 2.0, out=a),
    "out= by place": lambda a: np.exp(NEW, a),
    "out= of cumsum": lambda a: np.cumsum(NEW, out=a),
    "out= of dot": lambda a: np.dot(np.diag(NEW), NEW, out=a),
    "out= of take": lambda a: np.take(NEW, [2, 0, 1], out=a),
    "out= of clip": lambda a: np.clip(a, 0.0, 1.0, out=a),
    "sort": lambda a: a.sort(),
    "partition": lambda a: a.partition(1),
    "fill": lambda a: a.fill(3.0),
    "put": lambda a: a.put([1], 5.0),
    "np.put": lambda a: np.put(a, [0, 1], [5.0, 6.0]),
    "copyto": lambda a: np.copyto(a, NEW),
    "place": lambda a: np.place(a, a > 1.0, [9.0]),
    "putmask": lambda a: np.putmask(a, a > 1.0, NEW),
    "put_along_axis": lambda a: np.put_along_axis(a, np.array([2]), 5.0, 0),
    "np.add.at": lambda a: np.add.at(a, [0, 0], 1.0),
    "nan_to_num": lambda a: np.nan_to_num(np.divide(a, 0.0, out=a), copy=False, posinf=2.0),
    "shuffle": lambda a: np.random.default_rng(3).shuffle(a),
    "random out=": lambda a: np.random.default_rng(3).standard_normal(out=a),
    "fill_diagonal": lambda a: np.fill_diagonal(np.broadcast_to(a, (1, 3)).T[:1].base, 0.0),
    "a.T[:] =": lambda a: operator.setitem(a.T, slice(None), NEW),
    "a[::-1] =": lambda a: operator.setitem(a[::-1], slice(None), NEW),
    "reshaped": lambda a: operator.setitem(a.reshape(3, 1), 0, 5.0),
    "ravelled": lambda a: operator.setitem(a.ravel(), 0, 5.0),
    "seen as integers": lambda a: operator.setitem(a.view(np.int64), 0, 4611686018427387904),
    "a.real =": set_real,
    "a.flat =": set_flat,
    "a.flat[1] =": lambda a: operator.setitem(a.flat, 1, 6.0),
    "a part": set_part,
    "memoryview": by_memory,
    "nditer": by_iterator,
    "rows": by_rows,
    "byteswap": lambda a: a.byteswap(inplace=True).byteswap(inplace=True).fill(2.0),
    "np.frombuffer": lambda a: operator.setitem(np.frombuffer(a), 0, 6.0),
    "asarray": lambda a: operator.setitem(np.asarray(a), slice(1), 6.0),
    "as_strided": lambda a: operator.setitem(np.lib.stride_tricks.as_strided(a, (2,)), 0, 6.0),
    "setfield": lambda a: a.setfield(6.0, np.float64),
    "ctypes": lambda a: a.ctypes.data_as(ctypes_pointer()).__setitem__(0, 6.0),
}


def ctypes_pointer():
    import ctypes

    return ctypes.POINTER(ctypes.c_double)


def index_of(a):
    return np.argsort(a)


class Holder:
    pass


USES = {
    "a * x": lambda a, x: np.sum(a * x**2),
    "x * a": lambda a, x: np.sum(x**2 * a),
    "x / a": lambda a, x: np.sum(x**2 / a),
    "a / x": lambda a, x: np.sum(a / x),
    "x**a": lambda a, x: np.sum(x**a),
    "a**x": lambda a, x: np.sum(a**x),
    "x - a": lambda a, x: np.sum((x - a) ** 2),
    "a @ x": lambda a, x: a @ x,
    "x @ a": lambda a, x: x @ a,
    "dot": lambda a, x: np.dot(a, x**2),
    "matrix": lambda a, x: np.sum((np.outer(a, a) + np.eye(3)) @ x),
    "einsum": lambda a, x: np.einsum("i,i->", a, x**2),
    "einsum of three": lambda a, x: np.einsum("i,i,i->", a, x, x),
    "tensordot": lambda a, x: np.tensordot(a, x**2, 1),
    "inner": lambda a, x: np.inner(a, x**2),
    "outer": lambda a, x: np.sum(np.outer(a, x) ** 2),
    "kron": lambda a, x: np.sum(np.kron(a, x) ** 2),
    "convolve": lambda a, x: np.sum(np.convolve(a, x**2)),
    "concatenate": lambda a, x: np.sum(np.concatenate([a, x]) ** 3),
    "stack": lambda a, x: np.prod(np.stack([a, x])),
    "where's condition": lambda a, x: np.sum(np.where(a > 1.0, x, x**2)),
    "where's mask": lambda a, x: np.sum(np.where(a, x, x**2)),
    "where's choice": lambda a, x: np.sum(np.where(x > 1.0, a, x) * x),
    "maximum": lambda a, x: np.sum(np.maximum(a, x) ** 2),
    "arctan2": lambda a, x: np.sum(np.arctan2(a, x)),
    "hypot": lambda a, x: np.sum(np.hypot(a, x)),
    "clip": lambda a, x: np.sum(np.clip(x, 0.5 * a, 2.0 * a) ** 2),
    "average": lambda a, x: np.average(x**2, weights=a),
    "solve": lambda a, x: np.sum(np.linalg.solve(np.diag(a) + 1.0, x)),
    "view": lambda a, x: np.sum(a[::-1] * x**2),
    "part": lambda a, x: np.sum(a[1:] * x[1:] ** 2),
    "broadcast": lambda a, x: np.sum(np.broadcast_to(a, (2, 3)) * x**2),
    "diagonal": lambda a, x: np.sum(np.diagonal(a[:, None] * np.eye(3)) * x**2),
    "windows": lambda a, x: np.sum(np.lib.stride_tricks.sliding_window_view(a, 2) * x[:2]),
    "logaddexp": lambda a, x: np.sum(np.logaddexp(a, x)),
    "polyval": lambda a, x: np.sum(np.polyval(a, x)),
    "interp": lambda a, x: np.sum(np.interp(x, [0.0, 1.0, 4.0], a)),
    "autograd": lambda a, x: np.sum(autograd.grad(lambda y: anp.sum(a * y**3))(x)),
}


def index_uses(kind):
    return {}


def models(use, write):
    """The model, and the model in which nothing is seen twice."""

    def model(x):
        array = START.copy()
        total = use(array, x)
        write(array)
        return total + 2.0 * use(array, x)

    def plain(x):
        array = START.copy()
        total = use(array.copy(), x)
        write(array)
        return total + 2.0 * use(array.copy(), x)

    return model, plain


def results(fun):
    """Derivatives in every way of running."""
    tape = dg.delayed(fun, compile=False)
    program = dg.delayed(fun, compile=True)
    yield "tape", dg.value_and_grad(tape)(X)
    for _ in range(13):
        answer = dg.value_and_grad(program)(X)
    yield "program", answer
    yield "jvp", dg.jvp(tape, (X,), (NEW,))
    yield "hvp", dg.hvp(tape, (X,), (NEW,))[-1]


def same(one, other):
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other, strict=True))
