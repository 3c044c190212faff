"""Hessian-vector products, Hessians and Gauss-Newton products: right, and at the cost promised."""

import autograd
import autograd.numpy as np
import dask
import pytest
from lengths import in_short
from numpy.testing import assert_allclose, assert_array_equal
from samples import decades
from test_jacobian import squash

import daskgrad as dg
from daskgrad.graph.activity import Graph
from daskgrad.graph.sum_of_nodes import SumNode
from daskgrad.graph.tangents import Tangents
from daskgrad.sums.item_sum import ReductionNode

pytestmark = pytest.mark.usefixtures("synchronous")

X = np.linspace(0.2, 1.3, 4)
V = np.array([0.3, -1.0, 0.5, 2.0])
ROWS = np.array(np.random.default_rng(0).normal(size=(13, 4)))


def term(item, x):
    return np.log(1.0 + np.dot(item, np.sin(x)) ** 2)


def prior(x):
    return 0.5 * np.dot(x, x) ** 2


def wave(item, x):
    return np.sin(item * x)


def total(x):
    return sum([term(row, x) for row in ROWS])


squash_, prior_ = dg.delayed(squash), dg.delayed(prior)

OBJECTIVES = {  # with daskgrad, and plain
    "sum": (lambda x: dg.map_sum(term, ROWS, x), total),
    "slices": (
        lambda x: dg.reduce_sum(lambda s, x: np.sum(np.log(1 + (s @ np.sin(x)) ** 2)), ROWS, x),
        total,
    ),
    "sum and prior": (
        lambda x: 2.0 * dg.map_sum(term, ROWS, x) - prior_(x) / 3.0 + 1.0,
        lambda x: 2.0 * total(x) - prior(x) / 3.0 + 1.0,
    ),
    "used linearly and not": (
        lambda x: (lambda s: s + s**2 + 3.0 * s)(dg.map_sum(term, ROWS, x)),
        lambda x: total(x) + total(x) ** 2 + 3.0 * total(x),
    ),
    "square of a node": (lambda x: (lambda s: s * s)(prior_(x)), lambda x: prior(x) ** 2),
    "array terms": (
        lambda x: prior_(dg.map_sum(wave, ROWS, x)),
        lambda x: prior(sum([wave(row, x) for row in ROWS])),
    ),
    "recomputed": (
        lambda x: dg.delayed(prior, keep="recompute")(dg.delayed(squash, keep="recompute")(x)),
        lambda x: prior(squash(x)),
    ),
    "gradients kept": (lambda x: dg.delayed(prior, keep="gradient")(x), prior),
    "a derivative within": (
        lambda x: dg.delayed(lambda x: np.sum(autograd.grad(prior)(x) ** 2))(x),
        lambda x: np.sum(autograd.grad(prior)(x) ** 2),
    ),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_product_is_that_of_the_hessian_which_is_the_whole_of_it(name):
    fun, plain = OBJECTIVES[name]
    (gradient,), (product,) = dg.hvp(fun, (X,), (V,))
    assert_allclose(gradient, autograd.grad(plain)(X), rtol=1e-12, atol=1e-12)
    hessian = autograd.hessian(plain)(X)
    assert_allclose(product, hessian @ V, rtol=1e-11, atol=1e-11)
    assert_allclose(dg.hessian(fun)(X), hessian, rtol=1e-11, atol=1e-10)


def test_the_bits_do_not_depend_on_the_grainsize():
    rows = decades(37, 4)
    results = [
        dg.hvp(lambda x, g=g: dg.map_sum(wave_energy, rows, x, grainsize=g), (X,), (V,))
        for g in (1, 2, 8, 64)
    ]
    assert len({(g.tobytes(), h.tobytes()) for (g,), (h,) in results}) == 1


def wave_energy(item, x):
    return np.sum(np.sin(item * x) * x**3)


def test_trees_and_several_arguments(random):
    def model(p, y):
        return np.sum(p["w"] ** 3 * y) + p["b"] ** 2 * np.sum(y) + p["n"]

    p = {"w": X, "b": 0.7, "n": 3}
    direction = {"w": V, "b": -1.0, "n": None}
    gradients, products = dg.hvp(
        lambda p, y, k: dg.delayed(model)(p, y), (p, V, 4), (direction, X, None)
    )
    assert_allclose(gradients[0]["w"], 3 * X**2 * V)
    assert_allclose(products[0]["w"], 6 * X * V * V + 3 * X**2 * X)
    assert_allclose(products[0]["b"], 2 * -1.0 * np.sum(V) + 2 * 0.7 * np.sum(X))
    assert_allclose(products[1], 3 * X**2 * V + 2 * 0.7 * -1.0)
    assert products[0]["n"] is gradients[0]["n"] is products[2] is gradients[2] is None


def test_items_that_are_differentiated():
    def energy(item, x):
        return np.sum(item["w"] ** 2 * x) * item["k"]

    items = [{"w": row, "k": 2} for row in ROWS]
    directions = [{"w": row[::-1].copy(), "k": None} for row in ROWS]
    fun = lambda items, x: dg.map_sum(energy, items, x, grainsize=4)  # noqa: E731
    gradients, products = dg.hvp(fun, (items, X), (directions, V))
    for row, g, h in zip(ROWS, gradients[0], products[0], strict=True):
        assert_allclose(g["w"], 4.0 * row * X)
        assert_allclose(h["w"], 4.0 * row[::-1] * X + 4.0 * row * V)
    assert_allclose(products[1], 4.0 * np.sum(ROWS * ROWS[:, ::-1], axis=0), atol=1e-12)


def test_a_linear_function_has_a_zero_product_and_single_precision_stays():
    (gradient,), (product,) = dg.hvp(lambda x: dg.delayed(np.sum)(x), (X,), (V,))
    assert_array_equal(gradient, np.ones(4))
    assert_array_equal(product, np.zeros(4))
    assert dg.hvp(lambda x: x, (2.0,), (3.0,)) == ((1.0,), (0.0,))
    (gradient,), (product,) = dg.hvp(prior_, (X.astype(np.float32),), (V,))
    assert gradient.dtype == product.dtype == np.float32


def test_an_argument_that_does_not_matter_has_zeros_and_a_warning():
    with pytest.warns(UserWarning, match="does not depend on 'y'"):
        gradients, products = dg.hvp(lambda x, y: prior_(x), (X, V), (V, X))
    assert not np.any(gradients[1])
    assert not np.any(products[1])
    with pytest.warns(UserWarning, match="does not depend on 'x'"):
        assert not np.any(dg.hvp(lambda x: 3.0, (X,), (V,))[0][0])


@in_short("a_thread", [1, 3, 1000], 3)
def test_the_bits_of_a_hessian_do_not_depend_on_how_much_is_evaluated_at_once(
    a_thread, monkeypatch, client
):
    rows = np.linspace(-2.0, 2.0, 28).reshape(4, 7)
    x, shards = np.linspace(-1.0, 1.0, 7), dg.place(rows)

    def fun(x):
        return dg.map_sum(lambda row, x: np.sum(np.tanh(row * x)), shards, x) ** 2

    with dask.config.set(scheduler="sync"):
        expected = [dg.hvp(fun, (x,), (row,))[1][0] for row in np.eye(7)]
    monkeypatch.setattr("daskgrad.derivatives.evaluation.DERIVATIVES_A_THREAD", a_thread)
    assert_array_equal(dg.hessian(fun)(x), expected)


def test_the_hessian_of_trees_is_a_tree_of_trees():
    def model(p, y):
        return np.sum(p["w"] ** 3 * y) * p["b"]

    p = {"w": X, "b": 0.7, "n": 3}
    found = dg.hessian(lambda p, y: dg.delayed(model)(p, y), argnums=(0, 1))(p, V)
    assert found[0]["w"][0]["w"].shape == (4, 4)
    assert_allclose(found[0]["w"][0]["w"], np.diag(6 * X * V * 0.7))
    assert_allclose(found[0]["b"][0]["w"], 3 * X**2 * V)
    assert_allclose(found[0]["w"][1], np.diag(3 * X**2 * 0.7))
    assert found[0]["b"][0]["b"] == 0.0
    assert found[0]["n"] is found[0]["w"][0]["n"] is None


# ----------------------------------------------------------------------- Gauss-Newton products


def residuals(x):
    return {"rows": dg.delayed(lambda x: np.sin(ROWS @ x))(x), "squash": squash_(x)}


def plain_residuals(x):
    return np.concatenate([np.sin(ROWS @ x), squash(x)])


def robust(r):
    return np.sum(np.log(1.0 + r["rows"] ** 2)) + np.sum(r["squash"] ** 4)


def plain_robust(r):
    return np.sum(np.log(1.0 + r[:13] ** 2)) + np.sum(r[13:] ** 4)


def test_gauss_newton_products():
    (gradient,), (product,) = dg.gnvp(residuals, dg.delayed(robust), (X,), (V,))
    jacobian = autograd.jacobian(plain_residuals)(X)
    curvature = autograd.hessian(plain_robust)(plain_residuals(X))
    right = autograd.grad(lambda x: plain_robust(plain_residuals(x)))(X)
    assert_allclose(gradient, right, rtol=1e-12)
    assert_allclose(product, jacobian.T @ curvature @ jacobian @ V, rtol=1e-12)


def test_residuals_that_are_one_number_or_a_sum():
    loss = dg.delayed(lambda r: r**2)
    fun = lambda x: dg.map_sum(term, ROWS, x)  # noqa: E731
    (gradient,), (product,) = dg.gnvp(fun, loss, (X,), (V,))
    slope = autograd.grad(total)(X)
    assert_allclose(gradient, 2 * total(X) * slope, rtol=1e-12)
    assert_allclose(product, 2 * slope * (slope @ V), rtol=1e-12)


# ------------------------------------------------------------------------------------- cost


def test_sums_and_multiples_need_no_values():
    """So that the terms of a sum stay single numbers, which are added up with their gradients."""
    x, v = dg.variable(X), dg.variable(V)
    output = 2.0 * (dg.map_sum(term, ROWS, x) + prior_(x)) - 1.0
    made = Tangents(Graph(output, [x], output_is_scalar=True), {x: (v,)}).tangent(output)
    graph = Graph(made, [x, v], output_is_scalar=True)
    (over_rows,) = [node for node in graph.order if type(node) is ReductionNode]
    assert over_rows.is_fused(graph)
    assert not any(type(node) is SumNode for node in graph.order)


# ---------------------------------------------------------------- what was wrong once


def test_an_integer_of_a_node_may_divide_or_be_added():
    count = dg.delayed(lambda: 18)()
    for fun, factor in ((lambda y: y / count, 1 / 18), (lambda y: y * count + count, 18)):
        gradient, product = dg.hvp(lambda x, fun=fun: fun(prior_(x)), (X,), (V,))
        expected, plain = dg.hvp(prior_, (X,), (V,))
        assert_allclose(gradient[0], factor * expected[0])
        assert_allclose(product[0], factor * plain[0])
