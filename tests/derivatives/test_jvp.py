"""Jacobian-vector products: right on every kind of node, one run a model, and clear errors."""

import autograd
import autograd.numpy as np
import dask
import dask.array as da
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from samples import decades
from test_jacobian import squash

import daskgrad as dg
from daskgrad.graph.activity import Graph
from daskgrad.graph.tangents import Tangents

pytestmark = pytest.mark.usefixtures("synchronous")

X = np.linspace(0.2, 1.3, 4)
V = np.array([0.3, -1.0, 0.5, 2.0])
ROWS = decades(11, 4)


def mix(a, b, scale=1.0):
    return scale * a * np.cos(b)


def wave(item, x):
    return np.sin(item * x)


def expected(fun, *primals):
    """The tangent of a function of arrays in the directions given, by autograd's Jacobians."""

    def tangent(*directions):
        return sum(
            [
                np.tensordot(autograd.jacobian(fun, number)(*primals), v, np.ndim(v))
                for number, v in enumerate(directions)
            ]
        )

    return tangent


SUMS = {
    "list": lambda x: dg.map_sum(wave, list(ROWS), x),
    "array": lambda x: dg.map_sum(wave, ROWS, x, grainsize=2),
    "placed": lambda x: dg.map_sum(wave, dg.place(ROWS, 2), x),
    "dask array": lambda x: dg.map_sum(wave, da.from_array(ROWS, chunks=(3, 4)), x),
    "slices": lambda x: dg.reduce_sum(lambda s, x: np.sum(np.sin(s * x), 0), ROWS, x, grainsize=3),
    "compensated": lambda x: dg.map_sum(wave, ROWS, x, summation="compensated"),
    "zip": lambda x: dg.map_sum(lambda i, x: wave(i[0], x) + 0.0 * i[1], dg.zip(ROWS, ROWS), x),
    "nodes": lambda x: dg.sum([dg.delayed(wave)(row, x) for row in ROWS]),
    "nested": lambda x: dg.delayed(lambda x: dg.map_sum(wave, ROWS, x))(x),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums(name):
    value, tangent = dg.jvp(SUMS[name], (X,), (V,))
    assert_array_equal(value, dask.compute(SUMS[name](dg.variable(X)))[0])
    assert_allclose(tangent, np.sum(ROWS * V * np.cos(ROWS * X), axis=0), rtol=1e-12, atol=1e-3)


@pytest.mark.parametrize("as_items", [list, np.array], ids=["list", "array"])
def test_items_that_are_differentiated(as_items):
    items, directions = as_items(list(ROWS)), as_items(list(ROWS[::-1] / 1e3))
    fun = lambda items, x: dg.map_sum(wave, items, x, grainsize=4)  # noqa: E731
    _, tangent = dg.jvp(fun, (items, X), (directions, V))
    right = np.cos(ROWS * X) * (ROWS[::-1] / 1e3 * X + ROWS * V)
    assert_allclose(tangent, np.sum(right, axis=0), rtol=1e-10)


# ------------------------------------------------------------------------------- structures


def test_trees_go_in_and_come_out_with_none_in_the_place_of_integers():
    def fun(p, n):
        made = dg.delayed(lambda w, n: {"wave": np.sin(w) * n, "n": n, "name": "w"})(p["w"], n)
        return {"made": made, "b": p["b"]}

    p = {"w": X, "b": (2.0, 3), "name": "p"}
    value, tangent = dg.jvp(fun, (p, 3), ({"w": V, "b": (1.0, None), "name": None}, None))
    assert_allclose(value["made"]["wave"], 3 * np.sin(X))
    assert_allclose(tangent["made"]["wave"], 3 * np.cos(X) * V)
    assert tangent["made"]["n"] is tangent["made"]["name"] is None
    assert (tangent["b"], value["b"]) == ((1.0, None), (2.0, 3))


def test_leaves_and_arguments_without_tangent_do_not_move():
    fun = lambda p, y: dg.delayed(mix)(p["a"], p["b"]) * y  # noqa: E731
    primals = ({"a": X, "b": V}, X)
    _, tangent = dg.jvp(fun, primals, ({"a": V, "b": None}, None))
    assert_allclose(tangent, V * np.cos(V) * X)
    _, tangent = dg.jvp(fun, primals, (None, None))
    assert_array_equal(tangent, np.zeros(4))


@pytest.mark.parametrize(
    ("fun", "factor"), [(lambda x: [x], 1.0), (lambda x: [dg.sum([x, x])], 2.0)]
)
def test_an_output_may_be_the_variable(fun, factor):
    (value,), (tangent,) = dg.jvp(fun, (X,), (V,))
    assert_array_equal(value, factor * X)
    assert_array_equal(tangent, factor * V)


def test_an_output_that_depends_on_nothing_has_a_zero_tangent():
    value, tangent = dg.jvp(lambda x: dg.delayed(squash)(V), (X,), (V,))
    assert_array_equal(value, squash(V))
    assert_array_equal(tangent, np.zeros(4))


def test_dtypes_survive():
    fun = dg.delayed(lambda x: np.maximum(np.tanh(x), 0.1))
    value, tangent = dg.jvp(fun, (X.astype(np.float32),), (V,))
    assert value.dtype == tangent.dtype == np.float32
    z, w = X + 1j * V, V - 0.3j
    value, tangent = dg.jvp(dg.delayed(lambda z: z**2), (z,), (w,))
    assert_allclose(tangent, 2 * z * w)
    assert type(dg.jvp(dg.delayed(np.sin), (0.5,), (1.0,))[1]) is np.float64


# ------------------------------------------------------------------------------------- cost


def test_annotations_hold_for_the_tasks_of_tangents():
    x, v = dg.variable(X), dg.variable(V)
    with dask.annotate(priority=7):
        node = dg.delayed(squash)(x)
    for made in (
        Tangents(Graph(node, [x]), {x: (v,)}).dual(node),
        Tangents(Graph(node, [x]), {x: (v,)}).tangent(node),
    ):
        assert made.annotations == {"priority": 7}
        assert made.key[0].startswith("tangent-squash-")


# ----------------------------------------------------------------------------------- errors


def test_plain_numpy_in_a_model_is_an_error_and_no_zero():
    import numpy

    with pytest.raises(TypeError, match="array of Python objects"):
        dg.jvp(dg.delayed(lambda x: numpy.array([x[0], x[1]])), (X,), (V,))


# ---------------------------------------------------------------- what was wrong once


def test_integers_are_added_up_beside_numbers_that_move():
    fun = lambda x: dg.map_sum(lambda i, x: {"a": x * i, "n": i}, [1, 2], x)  # noqa: E731
    value, tangent = dg.jvp(fun, (X,), (V,))
    assert value["n"] == 3
    assert tangent["n"] is None
    assert_allclose(tangent["a"], 3 * V)
    some = lambda x: dg.map_sum(lambda i, x: 0 if i < 2 else np.sum(x**2), [1, 2], x)  # noqa: E731
    assert_allclose(dg.jvp(some, (X,), (V,))[1], 2 * X @ V)
    assert_allclose(dg.hvp(some, (X,), (V,))[1][0], 2 * V)
    with_constant = lambda x: dg.sum([dg.delayed(squash)(x), dg.delayed(np.arange)(4)])  # noqa: E731
    assert_allclose(dg.jvp(with_constant, (X,), (V,))[1], expected(squash, X)(V), rtol=1e-13)


def test_a_variable_with_integers_may_be_a_term_and_the_state_of_a_loop():
    point = {"x": X, "count": 3, "mask": np.array([True, False])}
    tangent = {"x": V, "count": None, "mask": None}

    def step(state):
        return {**state, "x": np.sin(state["x"]), "count": state["count"] + 1}

    def value(state):
        return np.sum(state["x"] ** 2) * state["count"]

    def summed(point):
        return dg.delayed(value)(dg.sum([point, dg.delayed(step)(point)]))

    def looped(point):
        return dg.delayed(value)(dg.scan(step, point, 2))

    plain = [
        lambda x: 7 * np.sum((x + np.sin(x)) ** 2),
        lambda x: 5 * np.sum(np.sin(np.sin(x)) ** 2),
    ]
    for program, whole in zip((summed, looped), plain, strict=True):
        _, slope = dg.jvp(program, (point,), (tangent,))
        assert_allclose(slope, np.dot(autograd.grad(whole)(X), V), rtol=1e-12)
        _, (product,) = dg.hvp(program, (point,), (tangent,))
        assert_allclose(product["x"], autograd.hessian_vector_product(whole)(X, V), rtol=1e-12)


def test_a_box_of_a_tuple_is_an_error_and_has_no_tangent():
    from autograd.builtins import tuple as boxed_tuple

    with pytest.raises(TypeError, match="box of a tuple; return a plain tuple"):
        dg.jvp(dg.delayed(lambda x: boxed_tuple((x**2, x))), (X,), (V,))


def test_the_condition_of_where_has_no_derivative():
    z = np.array([1.0, 0.0, -2.0])
    model = dg.delayed(lambda z: np.sum(np.where(z, z**2, z + 3.0)))
    assert_allclose(dg.grad(model)(z), [2.0, 1.0, -4.0])
    assert_allclose(dg.hvp(model, (z,), (np.ones(3),))[1][0], [2.0, 0.0, 2.0])
    assert_allclose(dg.jvp(model, (z,), (np.ones(3),))[1], -1.0)


def test_items_without_derivative_among_array_terms():
    _, pullback = dg.vjp(lambda p: dg.map_sum(lambda i: i**3 * np.ones(2), p), [1.0, 2, 3.0])
    assert pullback(np.ones(2)) == ([6.0, None, 54.0],)
