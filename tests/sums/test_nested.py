"""Sums inside models: nothing is recorded, and derivatives flow through them."""

import pickle
import threading

import autograd
import autograd.numpy as np
import dask
import pytest
from lengths import in_short
from numpy.testing import assert_allclose, assert_array_equal
from samples import decades

import daskgrad as dg
from daskgrad.graph.nodes import Node
from daskgrad.models.model import Model, SentFunction, inside_model
from daskgrad.models.pullbacks import capture, evaluate
from daskgrad.models.tracing import Active
from daskgrad.values.summation import pairwise

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
    """Value and gradients with respect to both arguments, of a model and of a sum of it."""
    single = dg.value_and_grad(dg.delayed(model), (0, 1))(ROWS, X)
    twice = dg.value_and_grad(
        lambda rows, x: dg.map_sum(lambda c, rows, x: c * model(rows, x), [1.0, 3.0], rows, x),
        (0, 1),
    )(ROWS, X)
    return tuple([leaf.tobytes() for pair in (single, twice) for leaf in (pair[0], *pair[1])])


@in_short("name", NESTED, "trees", "slices", "a sum of sums")
def test_a_sum_inside_a_model_has_the_bits_of_plain_additions(name, every_scheduler):
    ours, plain = NESTED[name]
    expected = of_model(plain)
    results = every_scheduler(lambda: of_model(ours))
    assert set(results.values()) == {expected}
    value, gradient = dg.value_and_grad(dg.delayed(ours), 1)(ROWS, X)
    assert_allclose(value, plain(ROWS, X), rtol=1e-14)
    assert_allclose(gradient, autograd.grad(plain, 1)(ROWS, X), rtol=1e-12)
    assert dg.delayed(ours)(ROWS, dg.variable(X)).compute() == plain(ROWS, X)


def test_the_order_inside_a_model_is_that_of_every_other_sum():
    value, gradient = dg.value_and_grad(dg.delayed(NESTED["rows"][0]), 1)(ROWS, X)
    assert value == dg.map_sum(dot, ROWS, X).compute()
    assert value != sum([dot(row, X) for row in ROWS]), "else this cannot fail"
    assert_allclose(gradient, dg.grad(lambda x: dg.map_sum(dot, ROWS, x))(X), rtol=1e-11)


def test_derivatives_within_a_model_flow_through_a_sum():
    def model(x):
        inner = autograd.grad(lambda y: dg.map_sum(dot, ROWS[:3], y * x))(X)
        return np.sum(inner**2)

    def plain(x):
        return np.sum(autograd.grad(lambda y: sum([dot(r, y * x) for r in ROWS[:3]]))(X) ** 2)

    assert_allclose(dg.grad(dg.delayed(model))(X), autograd.grad(plain)(X), rtol=1e-10)


def test_placed_items_inside_a_model():
    placed = dg.place(list(ROWS), 4)
    found = dg.delayed(lambda x: dg.map_sum(dot, placed, x))(X).compute()
    assert found == dg.map_sum(dot, ROWS, X).compute()


def test_outside_of_models_a_sum_is_recorded():
    """Also while another thread runs a model, and after a model failed."""
    running, asked = threading.Event(), threading.Event()

    def waits(x):
        running.set()
        assert asked.wait(10)
        assert inside_model()
        return x

    node = dg.delayed(waits)(1.0)
    thread = threading.Thread(target=lambda: node.compute(scheduler="sync"))
    thread.start()
    assert running.wait(10)
    assert isinstance(dg.map_sum(dot, ROWS, X), Node)
    assert not inside_model()
    asked.set()
    thread.join()
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


@pytest.mark.parametrize("differentiated", [False, True])
@pytest.mark.parametrize(
    ("items", "error", "told"),
    [
        (lambda x: [], ValueError, "items is empty"),
        (lambda x: x[:0], ValueError, "items is empty"),
        (lambda x: 3.0, TypeError, "items must be a list"),
        (lambda x: {"a": x}, TypeError, "items must be a list"),
        (lambda x: dg.zip(x, [1.0]), ValueError, "the same length; found lengths 4 and 1"),
        (lambda x: dg.zip(), ValueError, "zip at least one"),
    ],
)
def test_the_errors_are_those_of_every_other_sum(items, error, told, differentiated):
    def model(x):
        return dg.map_sum(lambda a, x: np.sum(a * x), items(x), x)

    with pytest.raises(error, match=told):
        dg.grad(dg.delayed(model))(X) if differentiated else dg.delayed(model)(X).compute()


def test_terms_of_several_shapes_inside_a_model():
    with pytest.raises(ValueError, match="one structure and shape"):
        dg.grad(dg.delayed(lambda x: dg.map_sum(lambda n, x: x[:n], [1, 2], x)[0]))(X)
    with pytest.raises(ValueError, match="grainsize must be the number of items"):
        dg.grad(dg.delayed(lambda x: dg.map_sum(dot, ROWS, x, grainsize=0)))(X)


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
