"""Indexing against autograd, bit by bit, and ``np.take``, which autograd has no rule for."""

import pickle
import types

import autograd
import autograd.numpy as anp
import numpy as np
import pytest
from autograd.core import make_vjp

from daskgrad.backends.autograd import trace
from daskgrad.backends.autograd.rules import indexing


def bits(value):
    array = np.asarray(value)
    return array.shape, str(array.dtype), array.tobytes()


def cotangent_by_tape(fun, x, g):
    outputs, tape = trace(lambda a: [fun(a)], [x])
    return outputs[0], tape.pull([g])[0]


# ------------------------------------------------------------------------------ a[index]


MASK = np.array([[1, 0, 0, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 0, 1], [0, 1, 0, 0, 0]], dtype=bool)

INDICES = {  # of an array of shape (4, 5)
    "int": 2,
    "negative int": -1,
    "np.int64": np.int64(3),
    "0-d integer array": np.array(1),
    "ints": (1, -2),
    "np.int64 and int": (np.int64(1), 2),
    "slice": slice(1, 3),
    "whole": slice(None),
    "open slice": slice(2, None),
    "step": slice(None, None, 2),
    "negative step": slice(None, None, -1),
    "negative step from inside": slice(3, 0, -2),
    "empty slice": slice(3, 3),
    "slice beyond the end": slice(2, 100),
    "slices": (slice(1, None), slice(None, -1)),
    "slices with steps": (slice(None, None, -1), slice(1, None, 3)),
    "Ellipsis": Ellipsis,
    "empty tuple": (),
    "Ellipsis and int": (Ellipsis, 1),
    "int and Ellipsis": (1, Ellipsis),
    "Ellipsis and slice": (Ellipsis, slice(1, 3)),
    "None": None,
    "None and slice": (None, slice(1, 3)),
    "slice, None, int": (slice(None), None, 2),
    "ints and None": (1, None, 2),
    "integer array": np.array([2, 0, 3]),
    "integer array with repeats": np.array([1, 1, 3, 1]),
    "negative integers": np.array([-1, 3, -4]),
    "integer matrix": np.array([[0, 1], [1, 3]]),
    "int32 array": np.array([2, 2], dtype=np.int32),
    "uint8 array": np.array([2, 2], dtype=np.uint8),
    "empty integer array": np.array([], dtype=int),
    "list": [0, 2],
    "list with repeats": [2, 2, 2, 0],
    "nested list": [[0, 1], [1, 0]],
    "empty list": [],
    "list of np.int64": [np.int64(1), np.int64(1)],
    "tuple of lists": ([0, 1, 1], [4, 2, 2]),
    "tuple of arrays": (np.array([0, 1, 1]), np.array([4, 2, 2])),
    "arrays that broadcast": (np.array([[0], [3]]), np.array([1, 1, 4])),
    "np.ix_": np.ix_([0, 0, 3], [1, 4]),
    "array and slice": (np.array([3, 3, 0]), slice(1, 4)),
    "slice and array": (slice(None, None, 2), np.array([0, 0, 4])),
    "array and int": (np.array([3, 3, 0]), 2),
    "int and array": (2, np.array([0, 0, 4])),
    "array, None, slice": (np.array([1, 1]), None, slice(2)),
    "Ellipsis and array": (Ellipsis, np.array([0, 0, 2])),
    "list in a tuple": (slice(None), [1, 1]),
    "mask": MASK,
    "mask of nothing": np.zeros((4, 5), dtype=bool),
    "mask of rows": np.array([True, False, True, True]),
    "mask and slice": (np.array([True, False, True, True]), slice(1, None)),
    "slice and mask": (slice(1, None), np.array([True, False, True, True, False])),
    "mask and int": (np.array([True, False, True, True]), 3),
    "mask and array": (np.array([True, False, True, False]), np.array([2, 2])),
    "two masks": (
        np.array([True, True, False, False]),
        np.array([False, True, True, False, False]),
    ),
    "np.nonzero of a mask": np.nonzero(MASK),
    "True": True,
    "False": False,
    "None and mask": (None, MASK),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128])
@pytest.mark.parametrize("name", INDICES)
def test_every_form_of_index_has_autograds_bits(name, dtype, random):
    index = INDICES[name]
    x = random.standard_normal((4, 5)).astype(dtype)

    def fun(a):
        return anp.sin(a)[index]

    pullback, value = make_vjp(fun, x)
    g = random.standard_normal(np.shape(value)).astype(dtype)[()]
    found, cotangent = cotangent_by_tape(fun, x, g)
    assert bits(found) == bits(value)
    assert bits(cotangent) == bits(pullback(g))


@pytest.mark.parametrize(
    "fun",
    [
        lambda a: a[1][2],
        lambda a: a[1:][::-1][0],
        lambda a: a[:, 1][[0, 0, 1]],
        lambda a: a[np.array([0, 0])][:, 1:],
        lambda a: a[MASK][1:],
        lambda a: a[None][0, ..., None][:, :, 0],
        lambda a: anp.concatenate([row * k for k, row in enumerate(a)]),
        lambda a: sum([a[i, j] * a[j, i] for i in range(4) for j in range(4)]),
        lambda a: a[1:] * a[:-1] + a[[0, 0, 1]] - a[3],
        lambda a: a + a[::-1] + a[:, ::-1],
        lambda a: a[0] * 0.0 - a[0],
    ],
)
def test_indices_upon_indices_have_autograds_bits(fun, random):
    x = random.standard_normal((4, 5))
    pullback, value = make_vjp(fun, x)
    g = random.standard_normal(np.shape(value))[()]
    assert bits(cotangent_by_tape(fun, x, g)[1]) == bits(pullback(g))


def test_minus_zero_arrives_as_it_does_in_autograd():
    x, g = np.ones(4), np.array([-0.0, 0.0, -0.0])
    for index in (slice(1, None), np.array([0, 1, 2]), np.array([True, False, True, True])):
        for fun in (lambda a, i=index: a[i], lambda a, i=index: a[i] + a[1:]):
            expected = make_vjp(fun, x)[0](g)
            assert bits(cotangent_by_tape(fun, x, g)[1]) == bits(expected)


def test_a_list_of_booleans_is_a_mask():
    """autograd takes it for the numbers 1 and 0 in the backward pass."""
    mask = [True, False, True, True, False]
    g = np.array([1.0, 2.0, 3.0])
    cotangent = cotangent_by_tape(lambda a: a[mask], np.zeros(5), g)[1]
    np.testing.assert_array_equal(cotangent, [1.0, 0.0, 2.0, 3.0, 0.0])


def test_a_scalar_may_be_indexed():
    for index in ((), Ellipsis, None):
        g = np.full(np.shape(np.float64(1.0)[index]), 2.0)
        cotangent = cotangent_by_tape(lambda a, i=index: anp.sin(a)[i], np.float64(0.0), g)[1]
        np.testing.assert_array_equal(np.reshape(cotangent, ()), 2.0)


# -------------------------------------------------------------- an index that changes later


READS = {
    "index": lambda a, buffer: a[buffer],
    "take": lambda a, buffer: anp.take(a, buffer),
    "take along an axis": lambda a, buffer: anp.take(a, buffer, axis=0),
}


@pytest.mark.parametrize("name", READS)
def test_a_model_may_refill_its_index_buffer(name):
    def fun(a):
        buffer, total = np.zeros(1, dtype=int), 0.0
        for place in range(3):
            buffer[0] = place
            total = total + anp.sum(READS[name](a, buffer)) * 10.0**place
        return total

    cotangent = cotangent_by_tape(fun, np.ones(3), 1.0)[1]
    np.testing.assert_array_equal(cotangent, [1.0, 10.0, 100.0])


@pytest.mark.parametrize(
    "make", [lambda: (slice(None), np.zeros(1, dtype=int)), lambda: [0], lambda: np.zeros(3, bool)]
)
def test_a_model_may_refill_any_kind_of_index(make):
    """An array within a tuple, a list, and a mask."""

    def refill(index, place):
        if isinstance(index, tuple):
            index[1][0] = place
        elif isinstance(index, list):
            index[0] = place
        else:
            index[...] = np.arange(3) == place

    def fun(a):
        index, total = make(), 0.0
        for place in range(3):
            refill(index, place)
            total = total + anp.sum(a[index]) * 10.0**place
        return total

    x = np.ones((1, 3)) if isinstance(make(), tuple) else np.ones(3)
    np.testing.assert_array_equal(cotangent_by_tape(fun, x, 1.0)[1].ravel(), [1.0, 10.0, 100.0])


def test_autograd_is_wrong_when_the_index_buffer_is_refilled():
    """The day this fails, autograd copies index arrays, too."""

    def fun(a):
        buffer, total = np.zeros(1, dtype=int), 0.0
        for place in range(3):
            buffer[0] = place
            total = total + anp.sum(a[buffer]) * 10.0**place
        return total

    np.testing.assert_array_equal(autograd.grad(fun)(np.ones(3)), [0.0, 0.0, 111.0])


# ------------------------------------------------------------------------------- np.take


def dense_reference(fun, x, g):
    """The transposed Jacobian of a linear function, column by column, times ``g``."""
    cotangent = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        unit = np.zeros_like(x)
        unit[place] = 1.0
        cotangent[place] = np.sum(fun(unit) * g)
    return cotangent


TAKES = {
    "scalar": (2, {}),
    "negative scalar": (-1, {}),
    "np.int64": (np.int64(1), {"axis": 0}),
    "flat": ([0, 5, 5, 11], {}),
    "flat, axis=None": ([0, 5, 5, 11], {"axis": None}),
    "flat, negative": ([-1, -12, 3], {}),
    "flat, 2-D indices": ([[0, 1], [1, 11]], {}),
    "flat, clip": ([-3, 5, 40], {"mode": "clip"}),
    "flat, wrap": ([-3, 5, 40, 29], {"mode": "wrap"}),
    "axis 0": ([2, 0, 2], {"axis": 0}),
    "axis 1": ([3, 3, 0], {"axis": 1}),
    "axis -1": ([3, 3, 0], {"axis": -1}),
    "axis -2": ([2, 0, 2], {"axis": -2}),
    "axis 0, scalar": (1, {"axis": 0}),
    "axis 1, scalar": (-1, {"axis": 1}),
    "axis 1, 2-D indices": ([[0, 1], [1, 3]], {"axis": 1}),
    "axis 0, negative": ([-1, 1, -3], {"axis": 0}),
    "axis 1, clip": ([-5, 1, 9], {"axis": 1, "mode": "clip"}),
    "axis 0, wrap": ([-5, 1, 9], {"axis": 0, "mode": "wrap"}),
    "axis 1, raise": ([0, 3], {"axis": 1, "mode": "raise"}),
    "mode positional": ([0, 9], {"axis": 1, "out": None, "mode": "clip"}),
    "nothing": (np.array([], dtype=int), {"axis": 1}),
    "nothing, flat": (np.array([], dtype=int), {}),
}


@pytest.mark.parametrize("name", TAKES)
def test_take_is_its_dense_reference(name, random):
    indices, options = TAKES[name]
    x = random.standard_normal((3, 4))
    expected = np.take(x, indices, **options)
    g = random.integers(-9, 9, np.shape(expected)).astype(float)[()]  # exact in any order
    value, cotangent = cotangent_by_tape(lambda a: anp.take(a, indices, **options), x, g)
    assert bits(value) == bits(expected)
    reference = dense_reference(lambda a: np.take(a, indices, **options), x, g)
    np.testing.assert_array_equal(cotangent, reference)


def test_take_with_positional_arguments_and_in_three_dimensions(random):
    x, g = random.standard_normal((2, 3, 2)), random.integers(-9, 9, (2, 4, 2)).astype(float)
    rows = np.array([0, 2, 2, 0])
    found = cotangent_by_tape(lambda a: anp.take(a, rows, 1, None, "wrap"), x, g)[1]
    np.testing.assert_array_equal(found, dense_reference(lambda a: np.take(a, rows, 1), x, g))


@pytest.mark.parametrize("scalar", [np.float64(3.0), np.array(3.0)])
def test_take_of_a_scalar(scalar):
    assert cotangent_by_tape(lambda a: anp.take(anp.sin(a), 0), scalar, 2.0)[1] == pytest.approx(
        2.0 * np.cos(3.0)
    )


@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_take_keeps_the_dtype(dtype):
    x = np.ones(3, dtype)
    assert cotangent_by_tape(lambda a: anp.take(a, [0, 0]), x, np.ones(2, dtype))[1].dtype == dtype


@pytest.mark.parametrize(
    ("indices", "axis"), [([3], 0), ([-4], 0), ([4], 1), (12, None), (-13, None)]
)
def test_take_out_of_range_is_numpys_error(indices, axis):
    with pytest.raises(IndexError, match="out of bounds"):
        trace(lambda a: [anp.take(a, indices, axis=axis)], [np.ones((3, 4))])


# ------------------------------------------------------------------------------- the cost


@pytest.fixture
def add_at_calls(monkeypatch):
    """Every call of ``np.add.at`` in the rules of indexing."""
    calls = []

    class WatchedAdd:
        def __call__(self, *args, **kwargs):
            return np.add(*args, **kwargs)

        def at(self, *args):
            calls.append(args)
            np.add.at(*args)

    class WatchedNumpy(types.ModuleType):
        add = WatchedAdd()

        def __getattr__(self, name):
            return getattr(np, name)

    monkeypatch.setattr(indexing, "np", WatchedNumpy("numpy"))
    return calls


BASIC = [2, (1, -2), slice(1, 3), (slice(None, None, -1), 2), Ellipsis, (None, slice(2)), MASK]


@pytest.mark.parametrize("index", BASIC, ids=str)
def test_slices_ints_and_masks_need_no_add_at(index, add_at_calls):
    cotangent_by_tape(lambda a: anp.sum(a[index]) + anp.sum(a[index]), np.ones((4, 5)), 1.0)
    assert not add_at_calls


@pytest.mark.parametrize("index", [[0, 0], np.array([1, 2]), (MASK.any(axis=1), 2)], ids=str)
def test_indices_that_may_repeat_do_need_it(index, add_at_calls):
    cotangent_by_tape(lambda a: anp.sum(a[index]), np.ones((4, 5)), 1.0)
    assert len(add_at_calls) == 1


def test_arrays_of_the_users_own_objects_are_added_with_numpys_dtype(add_at_calls):
    """Those that arrived in such an object; with another object for the dtype it is slow."""
    index, y = pickle.loads(pickle.dumps((np.array([0, 0]), np.ones(2))))
    x = pickle.loads(pickle.dumps(np.ones(3)))
    assert (y + 1.0).dtype is not np.dtype(float), "else this cannot fail"
    cotangent = cotangent_by_tape(lambda a: anp.sum(y * a[index]), x, 1.0)[1]
    np.testing.assert_array_equal(cotangent, [2.0, 0.0, 0.0])
    ((array, _, g),) = add_at_calls
    assert array.dtype is g.dtype is np.dtype(float)
