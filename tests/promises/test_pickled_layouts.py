"""A pickle changes nothing: objects and models that hold arrays of any layout have one set of bits.

NumPy's own pickles lose strides, memory that arrays share, and whether one may be written into.
"""

import dataclasses
import functools
import types

import autograd.numpy as np
import dask
import numpy
import pytest
from lengths import in_short
from numpy.lib.stride_tricks import as_strided, sliding_window_view
from samples import decades
from schedulers import SCHEDULERS

import daskgrad as dg
from daskgrad.autodiff.tape.pickling import dumps, loads

X = numpy.linspace(0.2, 1.3, 8)
TABLE = decades(9, 1_200, count=3)
LONG = decades(3_000, 8, seed=1, count=3)
RECORDS = numpy.zeros(150, [("flag", "i1"), ("row", "f8", 8)])
RECORDS["row"] = decades(150, 8, seed=2, count=3)
CUBE = decades(12, 8, 20, seed=3, count=3)


def read_only(array):
    array.flags.writeable = False
    return array


class Quantity(numpy.ndarray):
    unit = "m"


LAYOUTS = {
    "in C order": LONG[:150].copy(),
    "in Fortran's order": numpy.asfortranarray(LONG[:150]),
    "columns with gaps": TABLE[:8, 200:351].T,
    "rows with gaps": LONG[::20],
    "few columns of many": decades(150, 80, count=3)[:, 3:11],
    "every other column": decades(150, 16, count=3)[:, ::2],
    "one column": decades(1_200, 9, count=3)[:, 4:5] * numpy.ones(1),
    "one column of many": decades(1_200, 9, count=3)[:, 4:5],
    "backwards": LONG[150::-1, ::-1],
    "backwards with gaps": LONG[::-20, ::-1],
    "permuted": CUBE.transpose(2, 0, 1),
    "permuted with gaps": CUBE.transpose(2, 0, 1)[::3, 1::2],
    "broadcast": numpy.broadcast_to(LONG[7], (150, 8)),
    "broadcast along rows": numpy.broadcast_to(LONG[:150, :1], (150, 8)),
    "windows": sliding_window_view(LONG[:, 0].copy(), 8)[::3],
    "interleaved": as_strided(LONG[:150].copy(), (150, 2, 2), (64, 16, 24)),
    "a field of records": RECORDS["row"],
    "single precision": LONG.astype("f4")[::20],
    "complex numbers": (LONG + 0.5j * LONG[::-1])[::20].real,
    "integers": numpy.arange(24_000).reshape(3_000, 8)[::20],
    "Python's numbers": LONG[::200].T.astype(object).T,
    "a matrix": LONG[::20].view(numpy.matrix),
    "a class of one's own": LONG[::20].view(Quantity),
    "of no axes": numpy.array(2.5),
    "empty": LONG[:0, ::2],
    "read-only": read_only(LONG[::20]),
}


def numbers(a, x):
    """Sums and products, whose bits depend on the layout of ``a``."""
    a = numpy.asarray(a) if a.dtype == object else a
    if a.dtype == object or a.ndim < 2:
        return np.sum(x) * float(numpy.sum(a))
    a = numpy.asarray(a)
    whole = (
        np.sum(np.sin(x[0] * a)) + numpy.sum(a) * x[1] + np.sum(numpy.add.reduce(a, axis=0) * x[2])
    )
    square = a.T @ a if a.ndim == 2 else a
    return whole + np.sum(np.dot(a, x[: a.shape[-1]]) ** 2) + np.sum(square * x[3])


@dataclasses.dataclass
class Holder:
    array: numpy.ndarray

    def term(self, item, x):
        return numbers(self.array, x) * item


class Callable:
    __slots__ = ("arrays",)

    def __init__(self, array):
        self.arrays = {"array": array}

    def __call__(self, item, x):
        return numbers(self.arrays["array"], x) * item


def closure(array):
    return lambda item, x: numbers(array, x) * item


def defaults(array):
    return lambda item, x, array=array: numbers(array, x) * item


def with_global(array):
    """A function of a script, which refers to an array by name."""
    namespace = {"__name__": "__main__", "numbers": numbers, "array": array}
    exec("def model(item, x):\n    return numbers(array, x) * item", namespace)
    return namespace["model"]


def given(array, item, x):
    return numbers(array, x) * item


MODELS = {
    "a closure": closure,
    "a default": defaults,
    "a global": with_global,
    "a partial": lambda array: functools.partial(given, array),
    "a method": lambda array: Holder(array).term,
    "a callable": Callable,
}
HOLDERS = {
    "objects": (Holder, lambda item, x: item.term(1.0, x)),
    "callables": (Callable, lambda item, x: item(1.0, x)),
    "closures": (closure, lambda item, x: item(1.0, x)),
    "partials": (MODELS["a partial"], lambda item, x: item(1.0, x)),
    "objects in dicts": (lambda a: {"of": [Holder(a)]}, lambda item, x: item["of"][0].term(1, x)),
    "namespaces": (lambda a: types.SimpleNamespace(a=a), lambda item, x: numbers(item.a, x)),
}


def sums(make, model):
    """A sum for each layout: of items that hold it."""
    items = [[make(array), make(array)] for array in LAYOUTS.values()]
    return lambda x: [dg.map_sum(model, two, x, grainsize=1) for two in items]


def calls(make, model):
    return lambda x: [dg.delayed(model)(make(array), x) for array in LAYOUTS.values()]


def shared(make, model):
    """What is held is an argument that all items share."""
    held = [make(array) for array in LAYOUTS.values()]
    return lambda x: [dg.map_sum(lambda n, h, x: model(h, x) * n, [1.0, 2.0], h, x) for h in held]


def placed(make, model):
    items = [dg.place([make(array), make(array)]) for array in LAYOUTS.values()]
    return lambda x: [dg.map_sum(model, two, x) for two in items]


def of_model(make):
    models = [make(array) for array in LAYOUTS.values()]
    return lambda x: [dg.map_sum(model, [1.0, 2.0], x, grainsize=1) for model in models]


WAYS = {
    **{name: functools.partial(of_model, make) for name, make in MODELS.items()},
    **{name: functools.partial(sums, *pair) for name, pair in HOLDERS.items()},
    "arguments": functools.partial(calls, *HOLDERS["objects"]),
    "shared arguments": functools.partial(shared, *HOLDERS["objects"]),
    "placed objects": functools.partial(placed, *HOLDERS["objects"]),
}


def bits(way):
    values, pullback = dg.vjp(way(), X)
    (gradient,) = pullback([numpy.ones_like(value) for value in values])
    return {name: numpy.asarray(v).tobytes() for name, v in zip(LAYOUTS, values, strict=True)} | {
        "gradient": gradient.tobytes()
    }


@in_short("scheduler", SCHEDULERS, "cluster", indirect=True)
@pytest.mark.parametrize("name", WAYS)
def test_one_set_of_bits(name, scheduler):
    there = bits(WAYS[name])
    with dask.config.set(scheduler="synchronous"):
        here = bits(WAYS[name])
    assert [key for key in here if here[key] != there[key]] == []


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_a_model_holds_arrives_as_it_is(name):
    array = LAYOUTS[name]
    result = loads(dumps(array))
    assert type(result) is type(array)
    assert result.dtype == array.dtype
    for flag in ("C_CONTIGUOUS", "F_CONTIGUOUS", "ALIGNED", "WRITEABLE"):
        assert result.flags[flag] == array.flags[flag], flag
    assert result.tobytes() == array.tobytes() or array.dtype == object
    assert (result == array).all()


def test_a_small_view_does_not_take_its_memory_along():
    columns = [Holder(column) for column in decades(50_000, 20).T]
    assert len(dumps(columns[3])) < 1.1 * columns[3].array.nbytes
    assert loads(dumps(columns[3])).array.base.nbytes < 2.1 * columns[3].array.nbytes


@pytest.mark.parametrize("columns", [slice(None), slice(3, 700), slice(3, 90), slice(40, 1, -3)])
def test_an_array_and_its_transpose_share_memory(columns):
    """BLAS multiplies an array with its own transpose in another way than two arrays."""
    array = TABLE[:8, columns]
    first, second = loads(dumps([array, array.T]))
    assert numpy.shares_memory(first, second)
    assert (second @ first).tobytes() == (array.T @ array).tobytes()
    assert (first @ second).tobytes() == (array @ array.T).tobytes()


def test_a_view_shows_what_is_written_into_its_array():
    buffer = numpy.zeros((6, 4))
    held = loads(dumps([buffer, buffer[1:-1], buffer.T]))
    held[0][2, 1] = 7.0
    assert held[1][1, 1] == held[2][1, 2] == 7.0
