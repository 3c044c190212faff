"""Sums inside models: nothing is recorded, and derivatives flow through them."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import autograd
import autograd.numpy as np
import dask
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from policies import moving
from samples import decades

import daskgrad as dg
from daskgrad.autodiff.models.model import Model, SentFunction, inside_model
from daskgrad.autodiff.models.pullbacks import capture, evaluate
from daskgrad.autodiff.models.tracing import Active
from daskgrad.autodiff.values.addition import pairwise
from daskgrad.graph.nodes import Node

pytestmark = pytest.mark.usefixtures("synchronous")

N = 21
X = np.linspace(0.2, 1.3, 4)
ROWS = decades(N, 4)
NUMBERS = decades(N, seed=1)


def dot(item, x):
    return np.dot(item, np.sin(x))


def product(item, x):
    return np.dot(item[0], x) * item[1]


def wave(item, x):
    return {"a": item * x, "b": (np.sum(item), np.cos(x[0]) * item[0])}


def slice_sum(items, x):
    return sum([dot(item, x) for item in items])


def in_order(terms):
    return pairwise(terms, lambda a, b, owned: a + b)


NESTED = {  # name -> (the sum inside a model, the same with plain additions in its order)
    "rows": (
        lambda rows, x: dg.map_sum(dot, rows, x),
        lambda rows, x: in_order([dot(row, x) for row in rows]),
    ),
    "a list": (
        lambda rows, x: dg.map_sum(dg.delayed(dot), [row * x for row in rows], x, grainsize=2),
        lambda rows, x: in_order([dot(row * x, x) for row in rows]),
    ),
    "a zip": (
        lambda rows, x: dg.map_sum(product, dg.zip(rows, NUMBERS), x),
        lambda rows, x: in_order([product(pair, x) for pair in zip(rows, NUMBERS, strict=True)]),
    ),
    "trees": (
        lambda rows, x: np.sum(dg.map_sum(wave, rows, x)["a"]),
        lambda rows, x: np.sum(in_order([row * x for row in rows])),
    ),
    "slices": (
        lambda rows, x: dg.reduce_sum(slice_sum, rows, x, grainsize=5),
        lambda rows, x: in_order([slice_sum(rows[n : n + 5], x) for n in range(0, N, 5)]),
    ),
    "slices of a zip": (
        lambda rows, x: dg.reduce_sum(
            lambda ab, x: np.sum(np.dot(ab[0], x) * ab[1]), dg.zip(rows, NUMBERS), x, grainsize=8
        ),
        lambda rows, x: in_order(
            [np.sum(np.dot(rows[n : n + 8], x) * NUMBERS[n : n + 8]) for n in range(0, N, 8)]
        ),
    ),
    "a sum of sums": (
        lambda rows, x: dg.map_sum(lambda row, x: dg.map_sum(dot, [row, 2.0 * row], x), rows, x),
        lambda rows, x: in_order([dot(row, x) + dot(2.0 * row, x) for row in rows]),
    ),
}


def of_model(model):
    single = dg.value_and_grad(dg.delayed(model), (0, 1))(ROWS, X)
    twice = dg.value_and_grad(
        lambda rows, x: dg.map_sum(lambda c, rows, x: c * model(rows, x), [1.0, 3.0], rows, x),
        (0, 1),
    )(ROWS, X)
    return tuple([leaf.tobytes() for pair in (single, twice) for leaf in (pair[0], *pair[1])])


@pytest.mark.parametrize("name", NESTED)
def test_a_sum_inside_a_model_has_the_bits_of_plain_additions(name):
    ours, plain = NESTED[name]
    expected = of_model(plain)
    assert of_model(ours) == expected
    with dask.config.set(scheduler=moving):
        assert of_model(ours) == expected
    value, gradient = dg.value_and_grad(dg.delayed(ours), 1)(ROWS, X)
    assert_allclose(value, plain(ROWS, X), rtol=1e-14)
    assert_allclose(gradient, autograd.grad(plain, 1)(ROWS, X), rtol=1e-12)
    assert dg.delayed(ours)(ROWS, dg.variable(X)).compute() == plain(ROWS, X)


def test_the_order_inside_a_model_is_that_of_every_other_sum():
    for items in (ROWS, dg.place(list(ROWS), 4)):
        model = dg.delayed(lambda x, items=items: dg.map_sum(dot, items, x))
        value, gradient = dg.value_and_grad(model)(X)
        assert value == dg.map_sum(dot, ROWS, X).compute()
        assert_allclose(gradient, dg.grad(lambda x: dg.map_sum(dot, ROWS, x))(X), rtol=1e-11)


def test_terms_inside_a_model_are_added_along_the_tree():
    """Exact terms, whose sum in a loop is one: another order shows on any processor."""
    terms = [1e16, 1.0, -1e16, 1.0]
    model = dg.delayed(lambda x: dg.map_sum(lambda item, x: item * x, terms, x))
    assert dg.value_and_grad(model)(1.0) == (0.0, 0.0)


def test_derivatives_within_a_model_flow_through_a_sum():
    def model(x):
        inner = autograd.grad(lambda y: dg.map_sum(dot, ROWS[:3], y * x))(X)
        return np.sum(inner**2)

    def plain(x):
        return np.sum(autograd.grad(lambda y: sum([dot(r, y * x) for r in ROWS[:3]]))(X) ** 2)

    assert_allclose(dg.grad(dg.delayed(model))(X), autograd.grad(plain)(X), rtol=1e-10)


def test_outside_of_models_a_sum_is_recorded(gate):
    """Also while another thread runs a model, and after a model failed."""

    def waits(x):
        gate.wait()
        assert inside_model()
        return x

    node = dg.delayed(waits)(1.0)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(node.compute, scheduler="sync")
        gate.wait_for()
        assert isinstance(dg.map_sum(dot, ROWS, X), Node)
        assert not inside_model()
        gate.open()
        assert running.result() == 1.0
    with pytest.raises(ZeroDivisionError):
        dg.delayed(lambda: 1 / 0)().compute(scheduler="sync")
    assert isinstance(dg.map_sum(dot, ROWS, X), Node)


def test_a_derivative_of_a_graph_inside_a_model_is_recorded():
    """A model may solve a problem of its own with daskgrad."""

    def steepest(x):
        with dask.config.set(scheduler="sync"):
            return dg.grad(lambda y: dg.map_sum(dot, ROWS, y))(x)

    expected = dg.grad(lambda y: dg.map_sum(dot, ROWS, y))(X)
    assert_array_equal(dg.delayed(steepest)(X).compute(), expected)


# --------------------------------------------------------------------------------------- errors


def test_an_error_names_the_item_of_the_inner_sum():
    def failing(item, x):
        if item == 2:
            raise ArithmeticError("no")
        return x * item

    def outer(x):
        return dg.map_sum(failing, [0, 1, 2], x)

    with pytest.raises(ArithmeticError) as caught:
        dg.grad(dg.delayed(outer))(1.0)
    notes = "\n".join(caught.value.__notes__)
    assert "in item 2 of a sum of 'failing' inside a model" in notes
    assert "in the forward pass of model 'outer'" in notes


SEEN = []


class Arrives:
    """Pickled, it becomes a function whose loading looks at where it happens."""

    def __reduce__(self):
        return look_around, ()


def look_around():
    SEEN.append(inside_model())
    return np.sin


def test_what_is_imported_while_a_model_is_loaded_is_not_inside_of_it():
    """A module that the first model of a worker imports may make variables and zips of its own."""
    call = dg.delayed(np.sin)(dg.variable(0.5)).call
    for use in (
        lambda model: evaluate(model, call, [0.5]),
        lambda model: capture(model, call, [Active(0, False)], [0.5]),
    ):
        use(Model(SentFunction(pickle.dumps(Arrives()), "autograd"), "sin"))
    assert SEEN == [False, False]
