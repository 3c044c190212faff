"""What users call, on graphs of every kind: against plain autograd, and by the laws."""

import dataclasses
import functools
import operator

import autograd
import autograd.numpy as np
import dask
import optree
import pytest
from inputs import energy
from numpy.testing import assert_allclose, assert_array_equal

import daskgrad as dg

X = np.linspace(0.2, 1.3, 4)


pytestmark = pytest.mark.usefixtures("synchronous")

# ------------------------------------------------------------------------------- the models


@dg.delayed
def squash(x):
    return np.tanh(x) + 0.1 * x


@dg.delayed
def mix(a, b):
    return np.sin(a) * np.cos(b)


@dg.delayed
def parts(x):
    return {"wave": np.sin(x), "size": len(x), "both": (np.sum(x), [x**2])}


@dg.delayed
def weighted(tree, *, weight=1.0, bias):
    return weight * np.sum(tree["a"][0] * tree["a"][1]) + np.sum(tree["b"] * bias)


def plain(model):
    return model.__wrapped__


# ------------------------------------------------------------------------------- the graphs


def chain(x, call):
    for _ in range(5):
        x = call(squash, x)
    return call(energy, x)


def tree_output(x, call):
    t = call(parts, x)
    return call(energy, t["wave"]) * t["both"][0] + call(energy, t["both"][1][0]) / t["size"]


def nodes_in_containers(x, call):
    y = call(squash, x)
    return call(weighted, {"a": [x, (y * 2.0)], "b": y}, weight=x[0], bias=call(squash, y))


def operators(x, call):
    y = 2.0 * x - x / (3.0 + x**2) + (1.0 - x) * x + 2.0**x - (-x)
    return y @ (np.ones(4) * x) + y[0] * y[1:3][0] + 1.0 / y[-1]


GRAPHS = [chain, tree_output, nodes_in_containers, operators]


def on_nodes(model, *args, **kwargs):
    return model(*args, **kwargs)


def on_arrays(model, *args, **kwargs):
    return plain(model)(*args, **kwargs)


@pytest.mark.parametrize("graph", GRAPHS)
def test_the_four_ways_to_ask_give_the_same_bits(graph):
    def objective(x):
        return graph(x, on_nodes)

    value, gradient = dg.value_and_grad(objective)(X)
    assert objective(dg.variable(X)).compute() == value
    assert_array_equal(dg.grad(objective)(X), gradient)
    kept, pullback = dg.vjp(objective, X)
    assert kept == value
    assert_array_equal(pullback(1.0)[0], gradient)
    x = dg.variable(X)
    lazy = dask.compute(*dg.differentiate(objective(x), x))
    assert lazy[0] == value
    assert_array_equal(lazy[1], gradient)


# ------------------------------------------------------------------------- what is a variable


def objective_of_three(x, n, p):
    return energy(x) * n + energy(p["w"]) * energy(mix(x, p["q"][1]))


P = {"w": np.arange(3.0), "n": 3, "name": "text", "none": None, "q": (np.float32(2.0), X)}


def test_an_int_gives_the_bare_gradient_and_a_tuple_a_tuple():
    bare = dg.grad(objective_of_three)(X, 2, P)
    (alone,) = dg.grad(objective_of_three, argnums=(0,))(X, 2, P)
    pair = dg.grad(objective_of_three, argnums=[2, 0])(X, 2, P)
    assert_array_equal(alone, bare)
    assert isinstance(pair, tuple)
    assert_allclose(pair[1], bare)
    assert_allclose(pair[0]["w"], dg.grad(objective_of_three, argnums=2)(X, 2, P)["w"])


def test_a_gradient_has_the_structure_shapes_and_dtypes_of_its_argument():
    gradient = dg.grad(objective_of_three, argnums=2)(X, 2, P)
    assert list(gradient) == list(P)
    assert gradient["n"] is gradient["name"] is gradient["none"] is None
    assert isinstance(gradient["q"], tuple)
    assert gradient["q"][0].dtype == np.float32
    assert gradient["q"][0] == 0.0
    assert gradient["q"][1].shape == X.shape
    right = autograd.grad(lambda w: np.sum(w**2) * np.sum(np.sin(X) ** 2 * np.cos(X) ** 2))(P["w"])
    assert_allclose(gradient["w"], right)


def test_the_output_may_be_the_variable_or_a_part_of_it():
    """Nothing has to be pulled back; the cotangent of the output is the gradient."""
    assert dg.value_and_grad(lambda x: x)(3.0) == (3.0, 1.0)
    assert dg.value_and_grad(lambda p: p["a"])({"a": 3.0, "b": 2.0}) == (3.0, {"a": 1.0, "b": 0.0})
    assert dg.value_and_grad(lambda x: dg.sum([x, x]))(3.0) == (6.0, 2.0)
    value, pullback = dg.vjp(lambda x: x, X)
    assert_array_equal(value, X)
    assert_array_equal(pullback(2.0 * X)[0], 2.0 * X)


def test_a_warning_points_at_the_users_line():
    def program(x, y):
        return energy(x)

    _, pullback = dg.vjp(program, X, X)
    for ask in (
        lambda: dg.value_and_grad(program, argnums=1)(X, X),
        lambda: dg.grad(program, argnums=1)(X, X),
        lambda: pullback(1.0),
        lambda: dg.differentiate(energy(dg.variable(X)), dg.variable(X)),
    ):
        with pytest.warns(UserWarning, match="does not depend on") as caught:
            ask()
        assert caught[0].filename == __file__


def test_a_constant_output_has_no_gradient():
    with pytest.warns(UserWarning, match="does not depend"):
        value, gradient = dg.value_and_grad(lambda x: energy(np.ones(3)))(X)
    assert value == 3.0
    assert_array_equal(gradient, np.zeros(4))
    with pytest.warns(UserWarning, match="does not depend"):
        assert dg.value_and_grad(lambda x: 7.0)(2.0) == (7.0, 0.0)


@pytest.mark.parametrize("order", [1, -1])
def test_a_branch_whose_derivative_is_zero_adds_nothing(order):
    """In a plain sum the seed, not yet an array, meets a cotangent that is a symbolic zero."""
    floor = dg.delayed(lambda y: np.floor(y))

    def objective(x):
        y = x * 2.0
        return dg.sum([y, floor(y)][::order])

    assert dg.value_and_grad(objective)(3.25) == (12.5, 2.0)
    _, pullback = dg.vjp(objective, X)
    assert_array_equal(pullback(np.ones(4))[0], 2.0 * np.ones(4))


# ----------------------------------------------------------------------------------- auxiliary


def test_auxiliary_output_is_computed_and_not_differentiated():
    def objective(x):
        y = squash(x)
        return energy(y), {"y": y, "x": x, "other": energy(3.0), "text": "text", "n": [1, None]}

    (value, aux), gradient = dg.value_and_grad(objective, has_aux=True)(X)
    right, expected = dg.value_and_grad(lambda x: energy(squash(x)))(X)
    assert value == right
    assert_array_equal(gradient, expected)
    assert_array_equal(aux.pop("y"), plain(squash)(X))
    assert_array_equal(aux.pop("x"), X)
    assert aux == {"other": 9.0, "text": "text", "n": [1, None]}


# ---------------------------------------------------------------------------------- pullbacks


def test_a_pullback_gives_none_for_an_argument_without_derivative():
    _, pullback = dg.vjp(lambda x, n, names: x * n, X, 2, ["a", "b"])
    gradient, *rest = pullback(np.ones(4))
    assert_array_equal(gradient, 2.0 * np.ones(4))
    assert rest == [None, [None, None]]


# -------------------------------------------------------------------------------- differentiate


def test_differentiate_gives_the_gradients_in_the_structure_of_wrt():
    x, p = dg.variable(X), dg.variable({"w": X, "s": 2.0})
    output = energy(mix(x, p["w"])) * p["s"]
    value, gradients = dg.differentiate(output, {"x": [x], "p": p})
    value, gradients = dask.compute(value, gradients)

    def right(x, p):
        return np.sum((np.sin(x) * np.cos(p["w"])) ** 2) * p["s"]

    point = (X, {"w": X, "s": 2.0})
    assert_allclose(value, right(*point))
    assert_allclose(gradients["x"][0], autograd.grad(right)(*point))
    assert_allclose(gradients["p"]["w"], autograd.grad(right, 1)(*point)["w"])
    assert_allclose(gradients["p"]["s"], autograd.grad(right, 1)(*point)["s"])


@pytest.mark.parametrize("used", [(), ("b",), ("b", 0), ("b", 0, 1)], ids=str)
def test_a_part_gets_what_arrived_at_all_that_it_is_a_part_of(used):
    def at(tree, path):
        return functools.reduce(operator.getitem, path, tree)

    def cubes(tree):
        return sum([np.sum(leaf**3) for leaf in optree.tree_leaves(tree)])

    value = {"a": np.ones(2), "b": [(np.arange(2.0), np.arange(3.0)), np.arange(4.0)], "c": 2.0}
    x = dg.variable(value)
    for path in [("b",), ("b", 0), ("b", 0, 0), ("b", 0, 1), ("b", 1)]:
        node = dg.delayed(cubes)(at(x, used)) + dg.delayed(cubes)(x["b"][0][0])
        node = node + dg.delayed(cubes)(x["b"][1])
        _, (gradient, whole) = dask.compute(*dg.differentiate(node, [at(x, path), x]))
        leaves = map(optree.tree_leaves, (gradient, at(whole, path)))
        for found, expected in zip(*leaves, strict=True):
            assert_array_equal(found, expected)


def test_differentiate_takes_a_cotangent():
    x = dg.variable(X)
    value, gradient = dask.compute(*dg.differentiate(squash(x), x, cotangent=np.arange(4.0)))
    assert_array_equal(value, plain(squash)(X))
    assert_array_equal(gradient, dg.vjp(squash, X)[1](np.arange(4.0))[0])


# --------------------------------------------------------------------------------------- dtypes


def test_float32_stays_float32():
    x = X.astype(np.float32)
    for graph in GRAPHS:
        value, gradient = dg.value_and_grad(lambda x, graph=graph: graph(x, on_nodes))(x)
        assert gradient.dtype == np.float32
        assert value.dtype == np.asarray(graph(x, on_arrays)).dtype
        assert_allclose(gradient, dg.grad(lambda x, graph=graph: graph(x, on_nodes))(X), rtol=1e-5)


def test_complex_gradients_follow_autograds_convention():
    """For z = x + iy the gradient is df/dx - i df/dy."""

    def right(z, a):
        return np.sum(np.abs(np.exp(z) * a) ** 2) + np.sum(np.real(z * z))

    def objective(z, a):
        y = dg.delayed(lambda z: np.exp(z))(z)
        norm = dg.delayed(lambda y: np.sum(np.abs(y) ** 2))
        return norm(y * a) + dg.delayed(lambda z: np.sum(np.real(z)))(z * z)

    z, a = X + 1j * X[::-1], np.arange(4.0)
    value, (gz, ga) = dg.value_and_grad(objective, argnums=(0, 1))(z, a)
    assert_allclose(value, right(z, a))
    assert_allclose(gz, autograd.grad(right)(z, a))
    assert_allclose(ga, autograd.grad(right, 1)(z, a))
    assert ga.dtype == np.float64


def test_the_value_is_a_numpy_scalar_or_array_of_the_models_dtype():
    assert type(dg.value_and_grad(energy)(X)[0]) is np.float64
    assert type(dg.value_and_grad(energy)(X.astype(np.float32))[0]) is np.float32
    assert type(dg.vjp(squash, X)[0]) is np.ndarray


# -------------------------------------------------------------------------------- surroundings


@pytest.mark.parametrize("primitive", [np.sum, np.prod, np.linalg.norm])
def test_a_function_of_autograds_may_be_a_model(primitive, client):
    """cloudpickle sends a primitive by value, without its rule."""
    gradient = dg.grad(lambda x: dg.delayed(primitive)(squash(x)))(X)
    assert_allclose(gradient, autograd.grad(lambda x: primitive(plain(squash)(x)))(X))


def test_a_derivative_is_documented_as_its_function():
    def model(x):
        """What it is."""

    assert dg.value_and_grad(model).__name__ == "value_and_gradient_of_model"
    assert "What it is." in dg.grad(model).__doc__


# ---------------------------------------------------------------------------------------- errors


def test_a_plain_dataclass_is_registered_in_one_line(client):
    """As the documents and the error say; optree has it from 0.20 on."""

    @dataclasses.dataclass
    class Plain:
        slope: np.ndarray
        shift: float
        label: str = "plain"

    if not hasattr(optree.dataclasses, "register_node"):
        pytest.skip("needs optree 0.20")
    model = dg.delayed(lambda p: np.sum(p.slope**2) * p.shift)
    point = Plain(np.ones(2), 3.0)
    with pytest.raises(TypeError, match=r"optree\.dataclasses\.register_node\(its_class, namesp"):
        dg.grad(model)(point)
    optree.dataclasses.register_node(Plain, namespace="daskgrad")
    try:
        gradient = dg.grad(model)(point)
    finally:
        optree.unregister_pytree_node(Plain, namespace="daskgrad")
    assert_allclose(gradient.slope, np.full(2, 6.0))
    assert gradient.shift == 2.0
    assert gradient.label is None
