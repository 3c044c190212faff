"""Items of containers that models return: what is sent back to each, and put together."""

import autograd.numpy as np
import dask
import pytest
from inputs import energy
from numpy.testing import assert_allclose, assert_array_equal

import daskgrad as dg
from daskgrad import NondeterministicModelError
from daskgrad.autodiff.models.portions import Portion, as_cotangent
from daskgrad.autodiff.values.cotangents import Cotangent
from daskgrad.autodiff.values.fingerprints import fingerprint
from daskgrad.autodiff.values.trees import flatten

X = np.linspace(0.2, 1.3, 4)
VALUE = [np.ones(2), (np.zeros(3), {"b": 2.0, "a": np.ones(1)}), 5.0]


@dg.delayed
def pieces(x):
    return [1.5 * x, (2.0 * x, {"b": np.sum(x), "a": 3.0 * x, "c": 4}), np.sin(np.sum(x))]


@dg.delayed
def all_of(parts):
    return np.sum(parts[0]) * parts[2] + np.sum(parts[1][0]) + parts[1][1]["b"]


def items_alone(x):
    parts = pieces(x)
    return energy(parts[0]) + energy(parts[0]) * parts[-1] + energy(parts[1][1]["a"])


def items_and_the_whole(x):
    parts = pieces(x)
    return energy(parts[0]) + all_of(parts) + parts[1][1]["b"] * energy(parts[-3])


def one_item(x):
    return pieces(x)[2]


def items_of_a_sum(x):
    parts = dg.sum([pieces(x), pieces(2.0 * x)])
    return energy(parts[0]) * parts[2]


def items_of_an_array(x):
    y = 3.0 * x
    return energy(y[0]) + energy(y[1:]) * y[-1] + y[0]


def by_hand(fun, x):
    plain = {
        items_alone: lambda a, b, c: np.sum(a * a) * (1.0 + c) + np.sum(b[1]["a"] ** 2),
        items_and_the_whole: lambda a, b, c: (
            np.sum(a * a) * (1.0 + b[1]["b"]) + np.sum(a) * c + np.sum(b[0]) + b[1]["b"]
        ),
        one_item: lambda a, b, c: c,
    }[fun]
    return dg.grad(dg.delayed(lambda x: plain(*pieces.__wrapped__(x))))(x)


@pytest.mark.parametrize("fun", [items_alone, items_and_the_whole, one_item])
def test_gradients_of_items_are_those_of_one_model(fun):
    assert_allclose(dg.grad(fun)(X), by_hand(fun, X), rtol=1e-14)


PROGRAMS = [items_alone, items_and_the_whole, one_item, items_of_a_sum, items_of_an_array]


@pytest.mark.parametrize("fun", PROGRAMS)
def test_bits_are_the_same_in_line_and_where_results_travel(fun):
    def derivatives():
        pullback = dg.vjp(fun, X)[1]
        return [
            dg.grad(fun)(X),
            dg.hvp(fun, (X,), (X,))[1][0],
            pullback(1.0)[0],
            dg.jacobian(fun)(X),
        ]

    with dask.config.set({"daskgrad.inline.seconds": 1000.0}):
        expected = derivatives()
    for options in (
        {"daskgrad.inline.seconds": 0.0},
        {"scheduler": lambda *args, **_: dask.get(*args)},
    ):
        with dask.config.set(options):
            assert_array_equal(derivatives(), expected)


def test_an_item_that_is_not_there_is_an_error_of_its_node():
    with pytest.raises(IndexError) as caught:
        dg.grad(lambda x: energy(pieces(x)[7]))(X)
    assert "getitem" in str(caught.value.__notes__)


def sent(entry, *leaves):
    part = flatten(VALUE)[0][{0: slice(0, 1), 2: slice(4, 5)}[entry]]
    return Portion({entry: Cotangent(leaves, fingerprint(part))})


@pytest.mark.parametrize("other", [[np.ones(2), 5.0, 4.0], [np.full(2, 3.0), *VALUE[1:]], []])
def test_a_container_that_was_another_one_is_an_error(other):
    with pytest.raises(NondeterministicModelError, match="pieces"):
        as_cotangent(Portion({**sent(0, X[:2]).items, **sent(2, 1.0).items}), other, "pieces")
