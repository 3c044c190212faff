"""Variables that are dask Arrays: gradients are dask Arrays, and no chunk comes to the client."""

import autograd
import autograd.numpy as anp
import dask
import dask.array as da
import numpy as np
import pytest
from distributed import wait
from numpy.testing import assert_allclose, assert_array_equal
from policies import moving

import daskgrad as dg

pytestmark = pytest.mark.usefixtures("synchronous")

SHAPE, CHUNKS = (7, 5), ((3, 3, 1), (2, 3))
X = np.random.default_rng(0).normal(size=SHAPE)


def on_dask(x=X):
    return da.from_array(x, chunks=CHUNKS)


def energy(np, x):
    return np.sum(np.sin(x) * x) + np.sum(x**2)


def smooth(padded):
    return padded[1:-1, 1:-1] ** 2 + padded[2:, 1:-1] * padded[:-2, 1:-1]


def of_grid(grid):
    return dg.sum(dg.map_overlap(smooth, grid, steps=2).map(np.sum))


@pytest.mark.parametrize("dtype", [float, np.float32, complex])
def test_value_and_gradient_are_those_of_the_whole_array(dtype):
    point = X.astype(dtype)
    variable = dg.variable(on_dask(point))
    real = dg.delayed(anp.real)
    value, gradient = dg.differentiate(real(energy(np, dg.array(variable))), variable)
    assert isinstance(gradient, da.Array)
    assert (gradient.chunks, gradient.dtype) == (CHUNKS, dtype)
    value, gradient = dask.compute(value, gradient)

    def whole(x):
        return anp.real(energy(anp, x))

    assert gradient.dtype == dtype
    assert_allclose(value, whole(point), rtol=1e-6)
    assert_allclose(gradient, autograd.grad(whole)(point), rtol=1e-6, atol=1e-6)


def test_steps_of_blocks_pull_back_to_the_chunks():
    variable = dg.variable(on_dask())
    with dask.config.set(scheduler=moving):
        value, gradient = dask.compute(*dg.differentiate(of_grid(dg.grid(variable)), variable))
    wanted = dg.value_and_grad(lambda grid: of_grid(grid))(dg.grid(X, CHUNKS))
    assert value == wanted[0]
    assert_array_equal(gradient, wanted[1].to_array())


def test_other_variables_and_chunks_are_differentiated_together():
    variable, factor = dg.variable(on_dask(), "field"), dg.variable(2.0, "factor")
    output = dg.array(variable).sum() * factor
    value, gradients = dask.compute(*dg.differentiate(output, {"c": factor, "x": variable}))
    assert_allclose([value, gradients["c"]], [2.0 * X.sum(), X.sum()])
    assert_array_equal(gradients["x"], np.full(SHAPE, 2.0))


def test_one_forward_pass_serves_value_and_gradient():
    calls = []

    def counted(block):
        calls.append(None)
        return np.sum(block**2)

    variable = dg.variable(on_dask())
    output = dg.sum(dg.grid(variable).map(dg.delayed(counted, compile=False)))
    dask.persist(*dg.differentiate(output, variable))
    assert len(calls) == len(CHUNKS[0]) * len(CHUNKS[1])


def test_a_chunk_that_nothing_uses_has_zeros(recwarn):
    variable = dg.variable(on_dask(), "field")
    _, gradient = dg.differentiate(dg.array(variable)[:2, :2].sum(), variable)
    assert not recwarn
    assert_array_equal(gradient, np.pad(np.ones((2, 2)), ((0, 5), (0, 3))))
    with pytest.warns(UserWarning, match="does not depend on 'field'"):
        _, gradient = dg.differentiate(dg.delayed(np.square)(dg.variable(1.0)), variable)
    assert_array_equal(gradient, np.zeros(SHAPE))


def test_a_number_and_a_node_of_one_chunk():
    variable = dg.variable(da.from_array(np.float64(3.0)))
    (block,) = variable.blocks
    for output, wanted in ((block, 1.0), (block * 2.0, 2.0)):
        value, gradient = dask.compute(*dg.differentiate(output, variable))
        assert (value, gradient) == (3.0 * wanted, wanted)


def test_a_stopped_one_and_one_of_another_derivative_are_constants():
    variable = dg.variable(on_dask())
    (first, *_) = variable.blocks
    assert_allclose(dg.delayed(np.sum)(dg.stop_gradient(first)).compute(), X[:3, :2].sum())
    assert_allclose(dg.grad(lambda s: dg.array(variable).sum() * s)(2.0), X.sum())


def test_descent_stays_on_the_workers(client):
    """No chunk is fetched while the field changes, and where it leads is where NumPy leads."""
    field, whole = on_dask().persist(), X
    for _ in range(3):
        variable = dg.variable(field)
        value, gradient = dg.differentiate(energy(np, dg.array(variable)), variable)
        value, gradient = dask.persist(value, gradient)
        field = (field - 0.1 * gradient).persist()
        whole = whole - 0.1 * autograd.grad(lambda x: energy(anp, x))(whole)
        wait([gradient, field])
    held = client.who_has()
    assert all(held[key] for keys in gradient.__dask_keys__() for key in keys)
    assert_allclose(field, whole, rtol=1e-12)
