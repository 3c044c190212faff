"""Where a derivative is cut, the value is the same, it is zero, and nothing is built for it."""

import autograd
import autograd.numpy as np
import dask
import numpy as onp
import pytest
from autograd.tracer import isbox
from numpy.testing import assert_allclose
from policies import moving

import daskgrad as dg
from daskgrad.graph.activity import Graph
from daskgrad.graph.forward import build_forward
from daskgrad.tasks.task_graph import TaskGraph

X = np.array([0.3, -0.5, 0.9])

pytestmark = pytest.mark.usefixtures("synchronous")


@dg.delayed
def squash(x):
    return np.tanh(x)


@dg.delayed
def dot(x, y):
    return np.sum(x * y)


# ----------------------------------------------------------------------------------- in models


V = np.array([1.0, -2.0, 0.5])


@dg.delayed
def half_stopped(x):
    return np.sum(x * dg.stop_gradient(np.sin(x)))


def test_in_a_model_the_value_is_the_same_and_the_derivative_zero():
    value, gradient = dg.value_and_grad(half_stopped)(X)
    assert value == np.sum(X * np.sin(X))
    assert_allclose(gradient, np.sin(X), rtol=1e-15)
    assert_allclose(dg.jvp(half_stopped, (X,), (V,))[1], np.sum(np.sin(X) * V), rtol=1e-14)
    ((gradient,), (product,)) = dg.hvp(half_stopped, (X,), (V,))
    assert_allclose(gradient, np.sin(X), rtol=1e-14)
    assert_allclose(product, np.zeros(3), atol=1e-300)


def test_nested_derivatives_are_stopped_too():
    """d/dx of x · d/dx (x · stop(x²)) = x · stop(x²) is x², and not 3x²."""

    def inner(x):
        return x * dg.stop_gradient(x * x)

    assert dg.grad(dg.delayed(lambda x: x * autograd.grad(inner)(x)))(3.0) == 9.0


def test_a_value_is_plain_in_nested_traces_and_in_pytrees():
    seen = []

    def inner(p, x, y):
        seen.append(dg.value({"p": p, "x": x, "rest": [x * y, 2, "text"]}))
        return p["a"] * y

    # autograd boxes a dict as a whole; the box of the outer trace is within it
    model = dg.delayed(lambda y: y * autograd.grad(inner)({"a": 3.0 * y}, y, y)["a"])
    assert dg.grad(model)(2.0) == 4.0
    assert seen == [{"p": {"a": 6.0}, "x": 2.0, "rest": [4.0, 2, "text"]}]
    assert not isbox(seen[0]["p"]["a"])


def test_a_value_serves_as_index_and_in_branches():
    def model(x):
        largest = int(dg.value(np.argmax(x)))
        return x[largest] * (2.0 if dg.value(x[0]) > 0 else 3.0)

    assert dg.grad(dg.delayed(model))(X).tolist() == [0.0, 0.0, 2.0]


def test_what_is_written_into_a_value_changes_nothing():
    def model(x):
        plain, gone, square = dg.value(x), dg.stop_gradient(x), np.sum(x * x)
        plain[:] = gone[:] = 0.0
        return square

    assert dg.grad(dg.delayed(model))(X).tolist() == (2.0 * X).tolist()


def test_plain_values_are_returned_as_they_are():
    tree = {"x": X, "n": 3, "s": "text", "none": None}
    for cut in (dg.stop_gradient, dg.value):
        assert cut(tree) == tree
        assert cut(tree)["x"] is X


# ----------------------------------------------------------------------------------- in graphs


@pytest.mark.parametrize("config", [{}, {"scheduler": moving}])
def test_in_a_graph_the_value_is_the_same_and_the_derivative_zero(config):
    """The derivatives of the cut graph are those of the same graph with a constant."""
    fixed = onp.tanh(X)
    cut = lambda x: dot(squash(x), dg.stop_gradient(squash(x)))  # noqa: E731
    plain = lambda x: dot(squash(x), fixed)  # noqa: E731
    with dask.config.set(config):
        value, gradient = dg.value_and_grad(cut)(X)
        other, expected = dg.value_and_grad(plain)(X)
        assert (value, gradient.tobytes()) == (other, expected.tobytes())
        assert_allclose(gradient, fixed * (1 - fixed**2), rtol=1e-15)
        assert_allclose(dg.stop_gradient(squash(X)).compute(), fixed)
        assert_allclose(dg.jvp(cut, (X,), (V,)), dg.jvp(plain, (X,), (V,)), rtol=1e-14)
        assert_allclose(dg.hvp(cut, (X,), (V,)), dg.hvp(plain, (X,), (V,)), rtol=1e-14)


def test_a_variable_is_stopped_with_its_parts():
    def fun(p):
        fixed = dg.stop_gradient(p)
        w, b = fixed["w"], fixed["b"]
        return dot(p["w"], w) + dot(p["b"], b)

    p = {"w": X, "b": X + 1.0}
    gradient = dg.grad(fun)(p)
    assert gradient["w"].tolist() == X.tolist()
    assert gradient["b"].tolist() == (X + 1.0).tolist()


def test_pytrees_of_nodes_are_stopped_leaf_by_leaf():
    def fun(x):
        both = dg.stop_gradient({"a": squash(x), "b": 2.0})
        return dot(x, both["a"]) * both["b"]

    assert_allclose(dg.grad(fun)(X), 2.0 * np.tanh(X))


def test_what_lies_only_behind_a_cut_is_not_active():
    x = dg.variable(X)
    a = squash(x)
    b = squash(a)
    for node in (a, b):
        stopped = dg.stop_gradient(node)
        for out in (dot(a, stopped), dot(stopped, a)):
            graph, tasks = Graph(out, [x]), TaskGraph()
            assert graph.active == {x, a, out}
            build_forward(graph, tasks)
            stages = [key[0].split("-")[0] for key in tasks._tasks]
            assert stages.count("forward") == 2
        assert Graph(dot(stopped, stopped), [x]).active == set()


def test_sums_run_over_stopped_items():
    def fun(x):
        return dg.map_sum(lambda item, x: item * np.sum(x), dg.stop_gradient(x), x)

    assert_allclose(dg.grad(fun)(X), np.full(3, np.sum(X)))


def test_sums_over_placed_items_are_stopped(client):
    """They are evaluated as a whole, with derivatives and without."""

    def term(item, x):
        return item * np.sum(x**2)

    with dask.config.set({"daskgrad.inline.seconds": 10.0}), dg.place([1.0, 2.0, 3.0]) as shards:

        def fun(x):
            return dg.map_sum(term, shards, x) * dg.stop_gradient(dg.map_sum(term, shards, x))

        value, gradient = dg.value_and_grad(fun)(X)
    total = 6.0 * np.sum(X**2)
    assert_allclose(value, total**2)
    assert_allclose(gradient, 12.0 * X * total)


def test_the_value_of_a_stopped_variable_is_in_the_graph_once():
    x = dg.variable(np.zeros(1000))
    keys = list(dot(x, dg.stop_gradient(x)).__dask_graph__())
    assert len(keys) == len(set(keys)) == 2


def test_a_warning_tells_where_everything_is_stopped():
    model = dg.delayed(lambda x: np.sum(dg.stop_gradient(x) ** 2), name="model")
    for fun in (lambda x: dot(dg.stop_gradient(x), X), lambda x: model(x)):
        with pytest.warns(UserWarning, match="does not depend on 'x'"):
            assert dg.grad(fun)(X).tolist() == [0.0, 0.0, 0.0]


def test_an_inner_derivative_may_use_a_stopped_outer_variable():
    """Without the cut that is an error: the outer derivative would be wrong."""

    def outer(x):
        fixed = dg.stop_gradient(x)
        step = dg.grad(lambda y: dot(y, fixed))(X)
        return dot(x, step)

    assert_allclose(dg.grad(outer)(X), X)


@pytest.mark.parametrize("make", [lambda: squash(X), lambda: dg.variable(X), lambda: [squash(X)]])
def test_a_node_has_no_value_yet(make):
    with pytest.raises(
        TypeError, match=r"dg\.value needs the value of <.*not computed yet.*\.compute\(\)"
    ):
        dg.value(make())
