"""Indices that change later, or depend on a variable, ``np.take``, and what indexing costs."""

import pickle
import types

import autograd
import autograd.numpy as anp
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from daskgrad.autodiff.rules import indexing
from daskgrad.autodiff.tape import trace


def cotangent_by_tape(fun, x, g=1.0):
    return trace(lambda a: [fun(a)], [x])[1].pull([g])[0]


def test_a_list_of_booleans_is_a_mask():
    """autograd takes it for the numbers 1 and 0 in the backward pass."""
    mask = [True, False, True, True, False]
    cotangent = cotangent_by_tape(lambda a: a[mask], np.zeros(5), np.array([1.0, 2.0, 3.0]))
    assert_array_equal(cotangent, [1.0, 0.0, 2.0, 3.0, 0.0])


NUMBERS = [  # a function of a number, and its slope at 2
    *[(lambda a, i=i: anp.sum((a * a)[i]), 4.0) for i in ((), Ellipsis, None)],
    (lambda a: anp.sum(a[None]) + a * 3.0, 4.0),
    (lambda a: a * 3.0 + anp.sum(a[anp.abs(a) > 1]), 4.0),
    (lambda a: anp.sum(anp.dot(np.zeros((0, 1)), anp.reshape(a, 1)) ** 2) + a, 1.0),
    (lambda a: anp.take(a * a, 0), 4.0),
]


@pytest.mark.parametrize(("fun", "slope"), NUMBERS)
def test_a_number_may_be_indexed_and_a_product_may_be_empty(fun, slope):
    for number in (np.float64(2.0), np.asarray(2.0)):
        assert cotangent_by_tape(fun, number) == slope


REFILLED = {  # makes an index, refills it, reads with it
    "array": (lambda: np.zeros(1, dtype=int), lambda i, n: i.fill(n), lambda a, i: a[i]),
    "take": (lambda: np.zeros(1, dtype=int), lambda i, n: i.fill(n), anp.take),
    "array in a tuple": (
        lambda: (Ellipsis, np.zeros(1, dtype=int)),
        lambda i, n: i[1].fill(n),
        lambda a, i: a[i],
    ),
    "list": (lambda: [0], lambda i, n: i.__setitem__(0, n), lambda a, i: a[i]),
    "mask": (
        lambda: np.zeros(3, bool),
        lambda i, n: np.copyto(i, np.arange(3) == n),
        lambda a, i: a[i],
    ),
}


@pytest.mark.parametrize("kind", REFILLED)
def test_a_model_may_refill_its_index(kind):
    make, refill, read = REFILLED[kind]

    def fun(a):
        index, total = make(), 0.0
        for place in range(3):
            refill(index, place)
            total = total + anp.sum(read(a, index)) * 10.0**place
        return total

    assert_array_equal(cotangent_by_tape(fun, np.ones(3)), [1.0, 10.0, 100.0])
    if kind == "array":  # a derivative within a model
        assert_array_equal(autograd.grad(fun)(np.ones(3)), [1.0, 10.0, 100.0])


INDEXED = [
    lambda a, i: a[i.astype(int)],
    lambda a, i: anp.take(a, i.astype(int)),
    lambda a, i: anp.take(np.ones(3), i.astype(int)),
]


@pytest.mark.parametrize("fun", INDEXED)
def test_an_index_that_depends_on_a_variable_is_an_error_that_says_what_to_do(fun):
    with pytest.raises(TypeError, match=r"an index has no derivative; .*dg.value\(index\)"):
        trace(lambda *args: [fun(*args)], [np.ones(3), np.array([1.0])])


@pytest.mark.parametrize(
    ("indices", "axis"), [([3], 0), ([-4], 0), ([4], 1), (12, None), (-13, None)]
)
def test_take_out_of_range_is_numpys_error(indices, axis):
    with pytest.raises(IndexError, match="out of bounds"):
        trace(lambda a: [anp.take(a, indices, axis=axis)], [np.ones((3, 4))])


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


MASK = np.arange(20).reshape(4, 5) % 3 == 0
BASIC = [2, (1, -2), slice(1, 3), (slice(None, None, -1), 2), Ellipsis, (None, slice(2)), MASK]


@pytest.mark.parametrize("index", BASIC, ids=str)
def test_slices_ints_and_masks_need_no_add_at(index, add_at_calls):
    cotangent_by_tape(lambda a: anp.sum(a[index]) + anp.sum(a[index]), np.ones((4, 5)))
    assert not add_at_calls


@pytest.mark.parametrize("index", [[0, 0], np.array([1, 2]), (MASK.any(axis=1), 2)], ids=str)
def test_indices_that_may_repeat_do_need_it(index, add_at_calls):
    cotangent_by_tape(lambda a: anp.sum(a[index]), np.ones((4, 5)))
    assert len(add_at_calls) == 1


def test_arrays_of_the_users_own_objects_are_added_with_numpys_dtype(add_at_calls):
    """Those that arrived in such an object; with another object for the dtype it is slow."""
    index, y = pickle.loads(pickle.dumps((np.array([0, 0]), np.ones(2))))
    x = pickle.loads(pickle.dumps(np.ones(3)))
    assert (y + 1.0).dtype is not np.dtype(float), "else this cannot fail"
    assert_array_equal(cotangent_by_tape(lambda a: anp.sum(y * a[index]), x), [2.0, 0.0, 0.0])
    ((array, _, g),) = add_at_calls
    assert array.dtype is g.dtype is np.dtype(float)
