"""Entries of arrays that models return: what is sent back for each, and put together."""

import math
import pickle

import autograd.numpy as np
import dask
import pytest
from dask.callbacks import Callback
from inputs import energy
from lengths import in_short
from numpy.testing import assert_allclose, assert_array_equal

import daskgrad as dg
from daskgrad import NondeterministicModelError
from daskgrad.autodiff.models.portions import Selected, add_sent_back, as_cotangent, rows_at
from daskgrad.autodiff.models.tracing import Tracer
from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.cotangents import Cotangent
from daskgrad.autodiff.values.fingerprints import fingerprint
from daskgrad.autodiff.values.rows import Rows
from daskgrad.autodiff.values.trees import flatten

X = np.linspace(0.2, 1.3, 40).reshape(10, 4)


@dg.delayed
def curve(x):
    return 1.5 * x + np.sin(x)


@dg.delayed
def minus_zero(x):
    return -0.0 * np.sum(x)


INDICES = [
    *(0, -1, np.int64(2), slice(1, 3), slice(None, None, 3), slice(3, 3)),
    *(Ellipsis, None, slice(None), (2, 1), (..., 0), (slice(None), 1), (None, 3), (1, slice(0, 2))),
    *([1, 2], np.array([3, 1, 3, 0, -1]), np.array([], int), np.arange(10) % 3 == 0),
    *(([1, 2], [0, 1]), (slice(1, 4), np.array([0, 0])), (np.array([[1], [1]]), [0, 2])),
]


WAYS = [("node", 0.0), ("node", 1000.0), ("variable", 0.0), ("variable", 1000.0)]
CASES = [(way, number) for number in range(len(INDICES)) for way in WAYS]
SHORT = [(way, number) for way, number in CASES if way in (WAYS[0], WAYS[1 + number % 3])]


@in_short(("way", "number"), CASES, *SHORT)
def test_the_bits_are_those_of_a_model_that_selects(way, number):
    (kind, seconds), index = way, INDICES[number]
    taken = dg.delayed(lambda y: y[index])

    def objective(select):
        def fun(x):
            y = x if kind == "variable" else curve(x)
            terms = [energy(select(y)), energy(y), minus_zero(select(y)), energy(select(y))]
            return dg.sum([*terms, *[energy(select(y)) for _ in range(9)]])

        return fun

    ours, expected = objective(lambda y: y[index]), objective(taken)
    with dask.config.set({"daskgrad.inline.seconds": seconds, "scheduler": "sync"}):
        pairs = [
            (dg.grad(ours)(X), dg.grad(expected)(X)),
            (dg.hvp(ours, (X,), (X,)), dg.hvp(expected, (X,), (X,))),
            (dg.jvp(ours, (X,), (X,)), dg.jvp(expected, (X,), (X,))),
            (dg.vjp(ours, X)[1](X[0]), dg.vjp(expected, X)[1](X[0])),
        ]
    for results in pairs:
        for one, two in zip(*[flatten(result)[0] for result in results], strict=True):
            if kind == "variable":  # its selections are added after all models' cotangents
                assert_allclose(one, two, rtol=1e-14)
            else:
                assert np.asarray(one).tobytes() == np.asarray(two).tobytes()


def test_an_index_that_is_computed_is_a_constant_as_in_a_model():
    which = dg.delayed(lambda x: int(np.sum(x)) % 10)
    gradient = dg.grad(lambda x: energy(curve(x)[which(dg.stop_gradient(x))]))(X)
    place = int(np.sum(X)) % 10
    assert_array_equal(gradient, dg.grad(lambda x: energy(curve(x)[place]))(X))


@pytest.mark.parametrize("index", [10, (0, 4), "a", 1.5])
def test_what_is_not_there_is_an_error_of_its_node(index):
    with pytest.raises(IndexError) as caught:
        dg.grad(lambda x: energy(curve(x)[index]))(X)
    assert "forward pass of model 'getitem'" in str(caught.value.__notes__)


def test_nothing_is_traced(monkeypatch):
    traced = []
    original = Tracer.run

    def run(tracer, inputs):
        traced.append(tracer._model.name)
        return original(tracer, inputs)

    monkeypatch.setattr(Tracer, "run", run)
    dg.grad(lambda x: energy(curve(x)[0]) + energy(curve(x)[1:3]))(X)
    assert "getitem" not in traced
    assert "energy" in traced


# ------------------------------------------------------------------------------- what it costs


def bytes_of_results(run):
    """The bytes of what tasks send back, all of them pickled."""
    sizes = []

    def add(key, result, *_):
        if str(key[0]).startswith(("backward-", "cotangent-", "tangent-")):
            sizes.append(len(pickle.dumps(result)))

    way = {"scheduler": "sync", "daskgrad.inline.seconds": 0.0}
    with dask.config.set(way), Callback(posttask=add):
        run()
    return sum(sizes)


def of_length(derivative):
    def size(count):
        def fun(x):
            y = curve(x)
            return dg.sum([energy(y[n]) for n in range(count)])

        return bytes_of_results(lambda: derivative(fun, np.ones((count, 4))))

    return size


def pulled_back(fun, x):
    value, pullback = dg.vjp(fun, x)
    return pullback(value)


def pulled_back_each(fun, x):
    return dg.vjp(fun, x)[1](np.ones(3))


DERIVATIVES = {
    "grad": lambda fun, x: dg.grad(fun)(x),
    "hvp": lambda fun, x: dg.hvp(fun, (x,), (x,)),
    "jvp": lambda fun, x: dg.jvp(fun, (x,), (x,)),
    "vjp": pulled_back,
    "many cotangents": pulled_back_each,
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_bytes_grow_with_what_is_selected(name):
    few, many = map(of_length(DERIVATIVES[name]), (50, 400))
    assert math.log(many / few, 8) < 1.1, (few, many)


# ------------------------------------------------------------------------------- adding


def sent(index, value=1.0, watched=X):
    leaves = rows_at(index, X, [np.full_like(X[index], value)])
    return Selected(leaves, ((index, fingerprint([watched[index]])),))


def test_entries_are_added_as_rows_and_made_an_array_once():
    total = add_sent_back([sent(1, 0.1), sent(1, 0.2), sent(0, 0.3)], (True,) * 3, None, "curve")
    (rows,) = total.leaves
    assert isinstance(rows, Rows)
    assert rows.values.shape == (2, 4)
    dense = add_sent_back([total, sent(1, 0.4)], (True, True), None, "curve", X)
    assert dense.seen is not None
    expected = np.zeros_like(X)
    expected[0], expected[1] = 0.3, (0.1 + 0.2) + 0.4
    assert_array_equal(dense.leaves[0], expected)


def test_entries_and_whole_arrays_are_added_in_the_order_of_their_consumers():
    whole = Cotangent((np.full_like(X, 0.1),), fingerprint([X]))
    mixed = add_sent_back([whole, sent(2, 0.2), whole], (True,) * 3, cotangents.add, "curve", X)
    assert mixed.leaves[0][2, 0] == (0.1 + 0.2) + 0.1
    assert mixed.leaves[0][3, 0] == 0.1 + 0.1


def test_an_array_that_was_another_one_is_an_error():
    other = X.copy()
    other[2] = 7.0
    total = add_sent_back([sent(1), sent(2, watched=other)], (True,) * 2, None, "curve")
    with pytest.raises(NondeterministicModelError, match="curve"):
        as_cotangent(total, X, "curve")
    assert as_cotangent(sent(2), X, "curve").leaves[0][2, 0] == 1.0
