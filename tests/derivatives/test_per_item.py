"""Each item's value and gradient are those of the item alone, whatever the items are."""

import autograd
import autograd.numpy as np
import dask
import dask.array
import dask.bag
import dask.dataframe
import numpy as onp
import pytest
from comparisons import assert_same
from dask.callbacks import Callback
from numpy.testing import assert_allclose, assert_array_equal
from probes import forget_evaluations

import daskgrad as dg
from daskgrad.derivatives import per_item

X = np.array([0.5, -1.5, 2.5])
ITEMS = np.linspace(-1.0, 1.0, 37)

pytestmark = pytest.mark.usefixtures("synchronous")


def term(item, x):
    return np.sum(np.sin(item * x)) + np.tanh(item)


def pair_term(pair, x, y):
    return np.sum(np.sin(pair[0] * x)) * pair[1] + y["w"] @ x * y["n"]


def by_hand(items, x, fun=term):
    values, gradients = zip(
        *[autograd.value_and_grad(fun, 1)(item, x) for item in items], strict=True
    )
    return np.array(values), np.stack(gradients)


def test_values_norms_and_gradients_are_those_of_each_item_alone():
    values, gradients = by_hand(ITEMS, X)
    found, norms = dg.per_item(term, ITEMS)(X)
    assert_array_equal(found, values)
    assert_allclose(norms, np.linalg.norm(gradients, axis=1), rtol=1e-15)
    found, full = dg.per_item(term, ITEMS, gradient="full")(X)
    assert_array_equal(found, values)
    assert_array_equal(full, gradients)


KINDS = {
    "a list": lambda: ITEMS.tolist(),
    "a dask Array": lambda: dask.array.from_array(ITEMS, chunks=10),
    "a bag": lambda: dask.bag.from_sequence(ITEMS.tolist(), npartitions=5),
    "a bag with empty partitions": lambda: dask.bag.from_sequence(
        [-9.0, *ITEMS.tolist(), -9.0], npartitions=39
    ).filter(lambda item: item > -2.0),
    "delayed items": lambda: [dask.delayed(float)(item) for item in ITEMS],
    "placed items": lambda: dg.place(ITEMS, 4),
}


@pytest.mark.parametrize("kind", KINDS)
def test_items_are_whatever_sums_run_over(kind):
    values, gradients = by_hand(ITEMS.tolist(), X)
    for gradient, expected in (("norm", np.linalg.norm(gradients, axis=1)), ("full", gradients)):
        found, given = dg.per_item(term, KINDS[kind](), gradient=gradient)(X)
        assert_allclose(found, values, rtol=1e-15)
        assert_allclose(given, expected, rtol=1e-14)


def test_zips_and_pytrees_and_several_arguments():
    y = {"w": np.array([1.0, 2.0, 3.0]), "n": 2, "s": "text"}
    ran = []

    @dg.delayed
    def model(pair, x, y):
        ran.append(pair[1])
        return pair_term(pair, x, {**y, "s": 0})

    pairs = dg.zip(ITEMS, [*range(37)])
    values, (of_y, of_x) = dg.per_item(model, pairs, argnums=(1, 0), gradient="full")(X, y)
    assert values.shape == (37,)
    assert of_x.shape == (37, 3)
    assert of_y["w"].shape == (37, 3)
    assert (of_y["n"], of_y["s"]) == (None, None)
    assert_array_equal(of_y["w"], np.tile(2.0 * X, (37, 1)))
    expected = [autograd.grad(pair_term, 1)(p, X, y) for p in zip(ITEMS, range(37), strict=True)]
    assert_allclose(of_x, expected, rtol=1e-14)
    del ran[:]
    norms = dg.per_item(model, pairs, argnums=(0, 1))(X, y)[1]
    assert sorted(ran) == [*range(37)], "each model runs once"
    both = np.concatenate([of_x, of_y["w"]], axis=1)
    assert_allclose(norms, np.linalg.norm(both, axis=1), rtol=1e-14)


@pytest.mark.parametrize("grainsize", [1, 3, 8, 100])
def test_the_bits_do_not_depend_on_the_grainsize(grainsize):
    values, gradients = dg.per_item(term, ITEMS, gradient="full")(X)
    cut = dg.per_item(term, ITEMS, gradient="full", grainsize=grainsize)(X)
    assert cut[0].tobytes() == values.tobytes()
    assert cut[1].tobytes() == gradients.tobytes()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_item_that_is_not_a_number_is_found():
    items = np.where(np.arange(37) == 17, np.nan, ITEMS)
    values, norms = dg.per_item(term, items)(X)
    assert np.flatnonzero(np.isnan(values)).tolist() == [17]
    assert np.flatnonzero(np.isnan(norms)).tolist() == [17]
    roots = dg.per_item(lambda item, x: np.sum(np.sqrt(x) * item), ITEMS)
    assert np.all(np.isinf(roots(0.0 * X)[1][ITEMS != 0.0]))


def test_norms_neither_overflow_nor_vanish():
    values, norms = dg.per_item(lambda item, x: item * np.sum(x), [1e200, 1e-200, 0.0])(X)
    assert_allclose(norms, np.sqrt(3.0) * np.array([1e200, 1e-200, 0.0]), rtol=1e-15)
    assert values.shape == (3,)


def test_terms_may_be_of_numbers_and_not_depend_on_the_argument():
    values, slopes = dg.per_item(lambda item, x: item * x**2, ITEMS, gradient="full")(3.0)
    assert_allclose(values, 9.0 * ITEMS)
    assert_allclose(slopes, 6.0 * ITEMS)
    values, gradients = dg.per_item(
        lambda item, x: np.sum(x) if item > 0 else 2.0, [1.0, -1.0], gradient="full"
    )(X)
    assert values.tolist() == [np.sum(X), 2.0]
    assert gradients.tolist() == [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]


def test_dtypes_are_those_of_the_argument_and_complex_norms_are_real():
    x = X.astype(np.float32)
    values, gradients = dg.per_item(lambda i, x: np.sum(i * x), [1.0, 2.0], gradient="full")(x)
    assert gradients.dtype == np.float32
    norms = dg.per_item(lambda i, x: np.sum(i * x), [0.1, 0.3])(x)[1]
    exact = np.float32([0.1, 0.3]).astype(float) * np.sqrt(3.0)
    assert_allclose(norms, exact, rtol=1e-14)  # in double precision
    z = X + 1j
    norms = dg.per_item(lambda i, z: i * np.sum(np.abs(z) ** 2), [1.0, 2.0])(z)[1]
    assert norms.dtype == np.float64
    assert_allclose(norms, 2.0 * onp.linalg.norm(z) * np.array([1.0, 2.0]))
    assert values.shape == (2,)


def test_other_shared_arguments_are_data():
    collection = dask.delayed(lambda: 3.0)()
    values, _ = dg.per_item(lambda i, x, c, n: i * c * n * np.sum(x), ITEMS)(
        X, collection, dg.delayed(np.sum)(X)
    )
    assert_allclose(values, ITEMS * 3.0 * np.sum(X) ** 2)


@pytest.mark.parametrize("gradient", ["norm", "full"])
def test_terms_that_took_little_time_are_evaluated_in_the_calling_thread(gradient, monkeypatch):
    forget_evaluations(monkeypatch)
    places, by_dask = [], per_item.evaluate_blocks

    def noted(*args):
        places.append("Dask")
        return by_dask(*args)

    monkeypatch.setattr(per_item, "evaluate_blocks", noted)
    pairs = dg.zip(ITEMS, [*range(37)])
    y = {"w": X, "n": 2, "s": "text"}
    derivative = dg.per_item(pair_term, pairs, (0, 1), gradient, grainsize=5)
    with dask.config.set({"daskgrad.inline.seconds": 60, "scheduler": None}):
        first = derivative(X, y)
        assert places == ["Dask"], "blocks could run side by side"
        for _ in range(30):
            assert_same(derivative(X, y), first)
        assert places == ["Dask"]
    with dask.config.set({"daskgrad.inline.seconds": 0}):
        assert_same(derivative(X, y), first)
    assert places == ["Dask", "Dask"]


# --------------------------------------------------------------------------------------- bad input


def test_a_name_is_in_keys_and_errors():
    keys = []
    with Callback(pretask=lambda key, *_: keys.append(key[0])):
        dg.per_item(lambda item, x: item * x, [1.0, 2.0], name="influence")(3.0)
    assert any(key.startswith("backward-influence") for key in keys)
    with pytest.raises(TypeError, match="model 'influence' returned 3"):
        dg.per_item(lambda item, x: 3, [1.0], name="influence")(X)
    with pytest.raises(ValueError, match="argnums=1 of 'influence'"):
        dg.per_item(term, ITEMS, argnums=1, name="influence")(X)
