"""Cotangents that are kept as rows have the bits of arrays, in every sum and on every scheduler."""

import itertools

import autograd.numpy as np
import dask
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from policies import moving
from probes import peak_bytes
from samples import decades

import daskgrad as dg
from daskgrad.autodiff.tape import trace
from daskgrad.autodiff.values import rows
from daskgrad.autodiff.values.addition import pairwise
from daskgrad.autodiff.values.cotangents import add, scale
from daskgrad.autodiff.values.rows import Rows, dense_leaf

pytestmark = pytest.mark.usefixtures("synchronous")

SHAPE = (40, 3)
COUNT = 13


def bits(*arrays):
    return [numpy.asarray(array).tobytes() for array in arrays]


@pytest.fixture
def always(monkeypatch):
    monkeypatch.setattr(rows, "SMALL", 0)


def pieces_of(fun, x):
    """The cotangents of a real function, as rows where they can be, and as an array."""
    _, tape = trace(lambda a: [fun(a)], [x])
    return tape.pull_rows([numpy.float64(1.0)], is_term=True)[0], tape.pull([numpy.float64(1.0)])[0]


# ------------------------------------------------------------------------------- what is kept


MASK = numpy.arange(40) % 13 == 0
SOME = numpy.array([3, 1, 3, -1])
KEPT = {
    "integers": lambda a: a[SOME],
    "an integer": lambda a: a[-2],
    "nothing": lambda a: a[numpy.array([], int)],
    "a slice backwards": lambda a: a[8:3:-1],
    "a mask": lambda a: a[MASK],
    "integers and a mask": lambda a: a[SOME[:2], numpy.array([True, False, True])],
    "np.ix_": lambda a: a[numpy.ix_([1, 1, 5], [0, 2])],
    "a slice and integers": lambda a: a[2:4, [0, 0]],
    "np.take, flat": lambda a: np.take(a, [1, 5, 5]),
    "twice": lambda a: np.concatenate([a[SOME] * 3.0, a[SOME[::-1]] - a[5]]),
}

MADE_DENSE = {
    "many": lambda a: a[numpy.arange(30)],
    "a column": lambda a: a[:, 1],
    "None": lambda a: a[None],
    "beside an array": lambda a: a[SOME] + np.sum(a, 0),
    "an array, then rows": lambda a: np.sum(a * a) * a[SOME],
    "derived": lambda a: (a * 2.0)[SOME],
}


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("dtype", [numpy.float64, numpy.float32])
@pytest.mark.parametrize("name", [*KEPT, *MADE_DENSE])
def test_rows_have_the_bits_of_arrays(name, dtype):
    fun = {**KEPT, **MADE_DENSE}[name]
    x = decades(*SHAPE).astype(dtype)
    found, expected = pieces_of(lambda a: np.sum(np.sin(fun(a))), x)
    assert isinstance(found, Rows) == (name in KEPT)
    assert bits(dense_leaf(found)) == bits(expected)
    assert dense_leaf(found).dtype == expected.dtype
    if isinstance(found, Rows):
        assert numpy.all(numpy.diff(found.indices) > 0)


@pytest.mark.usefixtures("always")
def test_an_index_may_be_of_a_dtype_that_holds_no_number_of_rows():
    for dtype in ("int8", "uint8", "int16", "uint16", "uint64"):
        indices = numpy.array([5, 0, 5, -1 if dtype.startswith("i") else 7], dtype)
        for index in (indices, indices[3]):
            kept, expected = pieces_of(
                lambda a, at=index: np.sum(a[at] ** 3) + np.sum(a[SOME]), decades(70000, 1)
            )
            assert isinstance(kept, Rows)
            assert bits(kept.to_dense()) == bits(expected)


@pytest.mark.usefixtures("always")
def test_vectors_have_rows_and_no_boolean_is_the_number_of_one():
    for index, x, is_kept in (
        (SOME, decades(40), True),
        (False, decades(*SHAPE), False),
        (True, decades(*SHAPE), False),
    ):
        piece, expected = pieces_of(lambda a, at=index: np.sum(a[at] ** 3), x)
        assert isinstance(piece, Rows) == is_kept
        assert bits(dense_leaf(piece)) == bits(expected)


def test_small_arrays_are_not_worth_it():
    assert not isinstance(pieces_of(lambda a: np.sum(a[SOME]), decades(*SHAPE))[0], Rows)


# ---------------------------------------------------------------------------------- adding


def array_of(draws):
    """A cotangent as it leaves a tape: numbers that were added to zeros."""
    array = numpy.zeros(SHAPE)
    for place, number in draws:
        array[place] += number
    return array


numbers = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e16, 1e-16, numpy.inf, -numpy.inf, numpy.nan])
terms = st.lists(
    st.tuples(st.booleans(), st.lists(st.tuples(st.integers(0, 39), numbers), max_size=4)),
    min_size=1,
    max_size=9,
)


@given(terms, st.booleans())
def test_any_mix_of_rows_and_arrays_is_added_to_the_bits_of_arrays(drawn, any_zeros):
    kept, plain = [], []
    for as_rows, draws in drawn:
        array = array_of(draws)
        if as_rows:
            there = numpy.unique([place for place, _ in draws]).astype(int)
            kept.append((Rows(SHAPE, (0,), there, array[there], False),))
        else:
            array = numpy.copysign(array, -1.0) if any_zeros else array
            kept.append((array,))
        plain.append((array.copy(),))
    before = [bits(dense_leaf(leaf)) for (leaf,) in kept]
    with numpy.errstate(invalid="ignore"):
        found, expected = pairwise(kept, add), pairwise(plain, add)
    assert_same(dense_leaf(found[0]), expected[0])
    assert before == [bits(dense_leaf(leaf)) for (leaf,) in kept], "no term is changed"


def assert_same(found, expected):
    """The same bits; of NaNs only that they are some."""
    assert numpy.array_equal(numpy.isnan(found), numpy.isnan(expected))
    assert bits(numpy.nan_to_num(found)) == bits(numpy.nan_to_num(expected))


def rows_at(indices, values=None):
    values = numpy.ones((len(indices), 3)) if values is None else values
    return Rows(SHAPE, (0,), numpy.asarray(indices), values, False)


def test_none_is_a_zero_and_rows_that_become_many_become_an_array():
    kept = rows_at([1])
    for pair in (((None,), (kept,)), ((kept,), (None,))):
        assert bits(add(*pair)[0].to_dense()) == bits(kept.to_dense())
    one, other = rows_at(range(6)), rows_at(range(6, 12))
    assert isinstance(rows.merge(one, one), Rows)
    assert isinstance(rows.merge(one, other), numpy.ndarray)


# -------------------------------------------------------------------------------- in sums

X = decades(40, 3, seed=1)
B = decades(3, seed=2)
ITEMS = [
    (decades(3, seed=n), numpy.random.default_rng(n).integers(0, 40, 1 + n % 3))
    for n in range(COUNT)
]


def scattered(item, x, b):
    weights, index = item
    return np.sum(np.sin(np.dot(x[index], weights * 1e-6))) + np.sum(b * weights)


def mixed(item, x, b):
    weights, index = item
    if len(index) == 1:
        return np.sum(x * 1e-8) + b[0]
    return np.sum(x[index] * weights) if len(index) == 2 else np.sum(b * weights)


def vectors(item, x, b):
    _, index = item
    return np.sin(x[index[:1]] * 1e-7) + b


def summed(model, items, **options):
    def of(x, b):
        total = dg.map_sum(dg.delayed(model, compile=False), items, x, b, **options)
        return total if model is not vectors else dg.delayed(np.sum)(np_square(total))

    return dg.value_and_grad(of, (0, 1))(X, B)


np_square = dg.delayed(lambda y: np.sin(y), name="square")


@pytest.mark.parametrize("summation", ["pairwise", "compensated"])
@pytest.mark.parametrize("model", [scattered, mixed, vectors])
def test_a_sum_has_the_bits_of_arrays_for_any_grain(model, summation, monkeypatch):
    monkeypatch.setattr(rows, "SMALL", numpy.inf)
    expected = summed(model, ITEMS, grainsize=COUNT, summation=summation)
    monkeypatch.setattr(rows, "SMALL", 0)
    made, init = [], Rows.__init__
    monkeypatch.setattr(Rows, "__init__", lambda *at, **by: made.append(at) or init(*at, **by))
    for config, grainsize in itertools.product(PLACES, (1, 2, 8, 16)):
        with dask.config.set(config):
            value, gradients = summed(model, ITEMS, grainsize=grainsize, summation=summation)
        assert bits(value, *gradients) == bits(expected[0], *expected[1])
        assert all(type(gradient) is numpy.ndarray for gradient in gradients)
    assert made, "else this cannot fail"


PLACES = ({}, {"daskgrad.inline.seconds": 60}, {"scheduler": moving})


@pytest.mark.usefixtures("always")
def test_items_own_arrays_and_single_terms_are_no_rows():
    def term(p, x):
        return np.sum(p[SOME] ** 2) + np.sum(x[SOME])

    ps = [decades(40, seed=n) for n in range(3)]
    gradients = dg.grad(lambda p, x: dg.map_sum(term, p, x), (0, 1))(ps, X)
    each = dg.per_item(term, ps, gradient="full")(X)[1]
    norms = dg.per_item(term, ps)(X)[1]
    assert [(type(g), g.shape) for g in gradients[0]] == [(numpy.ndarray, (40,))] * 3
    assert each.shape == (3, *SHAPE)
    numpy.testing.assert_allclose(norms, numpy.sqrt(numpy.sum(each**2, axis=(1, 2))))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("cotangent", [1.0, -2.0])
def test_the_pullback_of_a_sum_returns_arrays(cotangent):
    def pulled(model, grainsize):
        def of(x):
            return sine(dg.map_sum(model, ITEMS, x, B, grainsize=grainsize))

        return dg.vjp(of, X)[1](cotangent)[0]

    expected = bits(pulled(untouched, 16))
    for grainsize in (1, 4, 16):
        gradient = pulled(scattered, grainsize)
        assert type(gradient) is numpy.ndarray
        assert bits(gradient) == expected


sine = dg.delayed(lambda y: np.sin(y), name="sine")


def untouched(item, x, b):
    """The same term; what it indexes is not its input, and so its cotangent is an array."""
    return scattered(item, 1.0 * x, b)


@pytest.mark.parametrize("factor", [1.0, -2.0, numpy.nan])
def test_scaled_rows_have_zeros_with_signs(factor):
    kept = rows_at([1])
    (scaled,), (expected,) = scale((kept,), factor), scale((kept.to_dense(),), factor)
    assert bits(dense_leaf(scaled)) == bits(expected)


def test_pulling_back_costs_no_array_a_term(monkeypatch):
    """Memory for one gradient; each term's takes what its rows take."""
    W = numpy.ones((20_000, 50))  # 8 MB
    items = [(numpy.ones(50), numpy.arange(n, n + 20)) for n in range(64)]

    def term(item, W):
        weights, index = item
        return np.sum(np.dot(W[index], weights) ** 2)

    def call():
        return dg.grad(lambda W: dg.map_sum(term, items, W))(W)

    for seconds, scheduler in ((60, "sync"), (0, "sync"), (0, "threads")):
        with dask.config.set({"scheduler": scheduler, "daskgrad.inline.seconds": seconds}):
            call()
            assert peak_bytes(call) <= 1.5 * W.nbytes


@pytest.mark.parametrize("compile", [True, False])
def test_columns_of_an_array_in_fortrans_order_cost_what_they_cost(compile):
    W = numpy.asfortranarray(numpy.random.default_rng(0).normal(size=(30, 20_000)))
    S = numpy.array([7, 19_999, 3])
    model = dg.delayed(lambda W, S: np.sum(np.tanh(W[:, S]) ** 2), compile=compile)
    in_graph = dg.value_and_grad(lambda W: model(W, S), sparse=True)
    direct = dg.value_and_grad(model, sparse=True)
    results = []
    for call in (lambda: direct(W, S), lambda: in_graph(W)):
        for _ in range(10):
            call()
        assert peak_bytes(lambda call=call: results.append(call())) <= W.nbytes / 10
        assert results[-1][1].axes == (1,)
    with dask.config.set(scheduler=moving):
        results.append(in_graph(W))
    assert len({(value, *map(bytes, rows.arrays)) for value, rows in results}) == 1


def test_what_outlives_a_call_is_in_the_order_of_the_array_that_was_passed():
    W, kept = numpy.asfortranarray(numpy.random.default_rng(0).normal(size=(30, 20))), []

    def model(W):
        kept.append(W)
        return dg.delayed(lambda W: np.sum(W @ W.T))(W)

    dg.grad(model)(W)
    (held,) = kept
    assert held.primal is not W
    assert held.primal.flags.fnc
