"""Graphs of models of several backends: every derivative is that of the program in autograd."""

import autograd
import autograd.numpy as np
import dask
import pytest
from libraries import arrays_of
from numpy.testing import assert_allclose

import daskgrad as dg

pytestmark = pytest.mark.optional

jnp, torch = arrays_of("jax"), arrays_of("torch")

X = np.linspace(0.2, 1.1, 4)
V = np.array([0.3, -1.0, 0.5, 2.0])
ROWS = np.random.default_rng(0).normal(size=(7, 4))


def squash(x):
    return np.tanh(x) * np.sum(x)


def stretch_in_jax(x, scale):
    return {"y": jnp.sin(x) * scale * jnp.sum(x), "n": 3}


def turn_in_torch(x):
    return torch.cos(x) * x[0]


def term_in_jax(row, x):
    return jnp.log(1.0 + jnp.dot(row, x) ** 2)


def term_in_torch(row, x):
    return torch.log(1.0 + torch.dot(row, x) ** 2)


squash_ = dg.delayed(squash)
stretch_ = dg.delayed(stretch_in_jax, backend="jax")
turn_ = dg.delayed(turn_in_torch, backend="torch")
TERMS = {
    "jax": dg.delayed(term_in_jax, backend="jax"),
    "torch": dg.delayed(term_in_torch, backend="torch"),
}


def chain(x):
    return turn_(stretch_(squash_(x), 2.0)["y"])


def plain_chain(x):
    y = squash(x)
    y = np.sin(y) * 2.0 * np.sum(y)
    return np.cos(y) * y[0]


def objective(x, rows=ROWS):
    y = chain(x)
    halves = dg.map_sum(TERMS["torch"], rows, y, grainsize=2)
    return dg.map_sum(TERMS["jax"], rows, y) + 0.5 * halves


def plain_objective(x):
    return 1.5 * np.sum(np.log(1.0 + (ROWS @ plain_chain(x)) ** 2))


@pytest.fixture(params=["sync", "threads", "cluster"])
def scheduled(request):
    if request.param == "cluster":
        yield request.getfixturevalue("client")
    else:
        with dask.config.set(scheduler=request.param):
            yield request.param


def test_gradients_and_hessian_vector_products(scheduled):
    value, gradient = dg.value_and_grad(objective)(X)
    assert_allclose(value, plain_objective(X), rtol=1e-13)
    assert_allclose(gradient, autograd.grad(plain_objective)(X), rtol=1e-12)
    (again,), (product,) = dg.hvp(objective, (X,), (V,))
    assert_allclose(again, gradient, rtol=1e-12)
    assert_allclose(product, autograd.hessian(plain_objective)(X) @ V, rtol=1e-11)


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_tangents_and_jacobians(scheduled, mode):
    jacobian = autograd.jacobian(plain_chain)(X)
    assert_allclose(dg.jvp(chain, (X,), (V,))[1], jacobian @ V, rtol=1e-12)
    assert_allclose(dg.jacobian(chain, mode=mode)(X), jacobian, rtol=1e-12)


def test_the_hessian():
    with dask.config.set(scheduler="sync"):
        found = dg.hessian(objective)(X)
    assert_allclose(found, autograd.hessian(plain_objective)(X), rtol=1e-11)


@pytest.mark.parametrize("backend", TERMS)
def test_hessian_vector_products_over_placed_items(client, backend):
    shards = dg.place(ROWS)
    fun = lambda x: dg.map_sum(TERMS[backend], shards, x)  # noqa: E731
    plain = lambda x: np.sum(np.log(1.0 + (ROWS @ x) ** 2))  # noqa: E731
    _, (product,) = dg.hvp(fun, (X,), (V,))
    assert_allclose(product, autograd.hessian(plain)(X) @ V, rtol=1e-11)


def test_single_precision_stays_single():
    with dask.config.set(scheduler="sync"):
        value, tangent = dg.jvp(chain, (X.astype(np.float32),), (V,))
        rows = ROWS.astype(np.float32)  # PyTorch multiplies arrays of one dtype alone
        _, (product,) = dg.hvp(lambda x: objective(x, rows), (X.astype(np.float32),), (V,))
    assert value.dtype == tangent.dtype == product.dtype == np.float32


@pytest.mark.parametrize("backend", TERMS)
def test_cuts_within_models(backend):
    arrays = {"jax": jnp, "torch": torch}[backend]

    def model(x):
        return arrays.sum(x * dg.stop_gradient(arrays.sin(x)))

    model = dg.delayed(model, backend=backend)
    with dask.config.set(scheduler="sync"):
        assert_allclose(dg.grad(lambda x: model(x))(X), np.sin(X), rtol=1e-14)
        (_,), (product,) = dg.hvp(lambda x: model(x), (X,), (V,))
        _, tangent = dg.jvp(lambda x: model(x), (X,), (V,))
    assert_allclose(product, np.zeros(4))
    assert_allclose(tangent, np.sin(X) @ V, rtol=1e-14)


def test_plain_numbers_within_models():
    def in_torch(x):
        assert type(dg.value(x)) is np.ndarray
        return x[int(np.argmax(dg.value(x)))] ** 2

    def in_jax(x):
        return x[dg.value(jnp.argmax(x))] ** 2

    with dask.config.set(scheduler="sync"):
        model = dg.delayed(in_torch, backend="torch")
        assert_allclose(dg.hvp(lambda x: model(x), (X,), (V,))[1][0], [0, 0, 0, 4.0])
        model = dg.delayed(in_jax, backend="jax")
        with pytest.raises(
            TypeError, match=r"dg.value cannot be used within a model of the JAX backend"
        ):
            dg.grad(lambda x: model(x))(X)


def test_a_pytorch_model_runs_once_for_any_number_of_tangents():
    runs = []

    def model(x):
        runs.append(1)
        with torch.no_grad():
            weight = torch.sum(x)
        return torch.sin(x) * weight

    fun = lambda x: dg.delayed(model, backend="torch")(x)  # noqa: E731
    with dask.config.set(scheduler="sync"):
        _, tangent = dg.jvp(fun, (X,), (V,))
        assert len(runs) == 1
        _, pullback = dg.vjp(fun, X)
    assert_allclose(tangent, np.cos(X) * np.sum(X) * V, rtol=1e-13)
    assert_allclose(pullback(np.ones(4))[0], np.cos(X) * np.sum(X), rtol=1e-13)


@pytest.mark.parametrize("backend", TERMS)
def test_terms_that_are_plain_numbers(backend):
    arrays = {"jax": jnp, "torch": torch}[backend]
    term = dg.delayed(lambda i, x: 0.0 if i < 2 else arrays.sum(x**2), backend=backend)
    fun = lambda x: dg.map_sum(term, [1, 2, 3], x)  # noqa: E731
    with dask.config.set(scheduler="sync"):
        assert_allclose(dg.jvp(fun, (X,), (V,))[1], 4 * X @ V, rtol=1e-13)
        assert_allclose(dg.hvp(fun, (X,), (V,))[1][0], 4 * V, rtol=1e-13)


def test_random_numbers_in_pytorch_models_are_drawn_once_a_run():
    def model(pair, x):
        item, generator = pair
        return torch.sum(x**2) * generator.normal() * item

    items = dg.zip([1.0, 2.0], dg.random.generators(3, 2))
    fun = lambda x: dg.map_sum(dg.delayed(model, backend="torch"), items, x)  # noqa: E731
    with dask.config.set(scheduler="sync"):
        assert_allclose(dg.jvp(fun, (X,), (V,))[1], dg.grad(fun)(X) @ V, rtol=1e-13)
        assert_allclose(dg.hvp(fun, (X,), (V,))[0][0], dg.grad(fun)(X), rtol=1e-13)
