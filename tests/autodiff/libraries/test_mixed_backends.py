"""Graphs of models of several backends: every derivative is that of the program in autograd."""

import autograd
import autograd.numpy as np
import pytest
from libraries import OPTIONAL, arrays_of
from numpy.testing import assert_allclose

import daskgrad as dg

pytestmark = [pytest.mark.optional, pytest.mark.usefixtures("synchronous")]

X = np.linspace(0.2, 1.1, 4)
V = np.array([0.3, -1.0, 0.5, 2.0])
ROWS = np.random.default_rng(0).normal(size=(7, 4))


@pytest.fixture(autouse=True, scope="module")
def libraries():
    """They take long to import: tests are collected without them."""
    global jnp, torch
    jnp, torch = arrays_of("jax"), arrays_of("torch")


def term_of(backend):
    xp = arrays_of(backend)
    return dg.delayed(
        lambda row, x: xp.log(1.0 + xp.dot(row, x) ** 2), name="term", backend=backend
    )


def plain_sum(x):
    return np.sum(np.log(1.0 + (ROWS @ x) ** 2))


def squash(x):
    return np.tanh(x) * np.sum(x)


def chain(x):
    def stretch(x, scale):
        return {"y": jnp.sin(x) * scale * jnp.sum(x), "n": 3}

    def turn(x):
        return torch.cos(x) * x[0]

    middle = dg.delayed(stretch, backend="jax")(dg.delayed(squash)(x), 2.0)
    return dg.delayed(turn, backend="torch")(middle["y"])


def plain_chain(x):
    y = squash(x)
    y = np.sin(y) * 2.0 * np.sum(y)
    return np.cos(y) * y[0]


def objective(x, rows=ROWS):
    y = chain(x)
    halves = dg.map_sum(term_of("torch"), rows, y, grainsize=2)
    return dg.map_sum(term_of("jax"), rows, y) + 0.5 * halves


def plain_objective(x):
    return 1.5 * plain_sum(plain_chain(x))


@pytest.mark.parametrize("scheduler", ["sync", "cluster"], indirect=True)
def test_all_derivatives_of_a_graph(scheduler):
    value, gradient = dg.value_and_grad(objective)(X)
    assert_allclose(value, plain_objective(X), rtol=1e-13)
    assert_allclose(gradient, autograd.grad(plain_objective)(X), rtol=1e-12)
    hessian = autograd.hessian(plain_objective)(X)
    (again,), (product,) = dg.hvp(objective, (X,), (V,))
    assert_allclose(again, gradient, rtol=1e-12)
    assert_allclose(product, hessian @ V, rtol=1e-11)
    assert_allclose(dg.hessian(objective)(X), hessian, rtol=1e-11)
    jacobian = autograd.jacobian(plain_chain)(X)
    assert_allclose(dg.jvp(chain, (X,), (V,))[1], jacobian @ V, rtol=1e-12)
    for mode in ("forward", "reverse"):
        assert_allclose(dg.jacobian(chain, mode=mode)(X), jacobian, rtol=1e-12)


@pytest.mark.parametrize("backend", OPTIONAL)
def test_placed_items(client, backend):
    with dg.place(ROWS) as shards:
        fun = lambda x: dg.map_sum(term_of(backend), shards, x)  # noqa: E731
        (gradient,), (product,) = dg.hvp(fun, (X,), (V,))
        assert_allclose(dg.grad(fun)(X), autograd.grad(plain_sum)(X), rtol=1e-12)
    assert_allclose(gradient, autograd.grad(plain_sum)(X), rtol=1e-12)
    assert_allclose(product, autograd.hessian(plain_sum)(X) @ V, rtol=1e-11)


def test_single_precision_stays_single():
    """PyTorch multiplies arrays of one dtype alone."""
    x, rows = X.astype(np.float32), ROWS.astype(np.float32)
    value, tangent = dg.jvp(chain, (x,), (V,))
    slope, gradient = dg.value_and_grad(lambda x: objective(x, rows))(x)
    _, (product,) = dg.hvp(lambda x: objective(x, rows), (x,), (V,))
    assert {array.dtype for array in (value, tangent, gradient, product)} == {np.dtype("f4")}
    assert_allclose(gradient, autograd.grad(plain_objective)(X), rtol=1e-4)
    assert_allclose(slope, plain_objective(X), rtol=1e-4)


@pytest.mark.parametrize("backend", OPTIONAL)
def test_cuts_within_models(backend):
    xp = arrays_of(backend)
    model = dg.delayed(lambda x: xp.sum(x * dg.stop_gradient(xp.sin(x))), backend=backend)
    assert_allclose(dg.grad(lambda x: model(x))(X), np.sin(X), rtol=1e-14)
    (_,), (product,) = dg.hvp(lambda x: model(x), (X,), (V,))
    _, tangent = dg.jvp(lambda x: model(x), (X,), (V,))
    assert_allclose(product, np.zeros(4))
    assert_allclose(tangent, np.sin(X) @ V, rtol=1e-14)


def test_plain_numbers_within_models():
    def in_torch(x):
        assert type(dg.value(x)) is np.ndarray
        return x[int(np.argmax(dg.value(x)))] ** 2

    model = dg.delayed(in_torch, backend="torch")
    assert_allclose(dg.hvp(lambda x: model(x), (X,), (V,))[1][0], [0, 0, 0, 4.0])
    model = dg.delayed(lambda x: x[dg.value(jnp.argmax(x))] ** 2, backend="jax")
    with pytest.raises(TypeError, match=r"dg.value cannot be used within a model of the JAX"):
        dg.grad(lambda x: model(x))(X)


def test_a_pytorch_model_runs_once_for_any_number_of_tangents():
    runs = []

    def model(x):
        runs.append(1)
        with torch.no_grad():
            weight = torch.sum(x)
        return torch.sin(x) * weight

    fun = lambda x: dg.delayed(model, backend="torch")(x)  # noqa: E731
    _, tangent = dg.jvp(fun, (X,), (V,))
    assert len(runs) == 1
    _, pullback = dg.vjp(fun, X)
    assert_allclose(tangent, np.cos(X) * np.sum(X) * V, rtol=1e-13)
    assert_allclose(pullback(np.ones(4))[0], np.cos(X) * np.sum(X), rtol=1e-13)


@pytest.mark.parametrize("backend", OPTIONAL)
def test_terms_that_are_plain_numbers(backend):
    xp = arrays_of(backend)
    term = dg.delayed(lambda i, x: 0.0 if i < 2 else xp.sum(x**2), backend=backend)
    fun = lambda x: dg.map_sum(term, [1, 2, 3], x)  # noqa: E731
    assert_allclose(dg.jvp(fun, (X,), (V,))[1], 4 * X @ V, rtol=1e-13)
    assert_allclose(dg.hvp(fun, (X,), (V,))[1][0], 4 * V, rtol=1e-13)


def test_random_numbers_in_pytorch_models_are_drawn_once_a_run():
    def model(pair, x):
        item, generator = pair
        return torch.sum(x**2) * generator.normal() * item

    items = dg.zip([1.0, 2.0], dg.random.generators(3, 2))
    fun = lambda x: dg.map_sum(dg.delayed(model, backend="torch"), items, x)  # noqa: E731
    assert_allclose(dg.jvp(fun, (X,), (V,))[1], dg.grad(fun)(X) @ V, rtol=1e-13)
    assert_allclose(dg.hvp(fun, (X,), (V,))[0][0], dg.grad(fun)(X), rtol=1e-13)
