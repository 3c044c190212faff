"""Programs from textbooks in plain NumPy and SciPy: right, with the same bits on a cluster."""

import dask
import numpy as np
from lengths import in_short
from numpy.testing import assert_allclose, assert_array_equal
from textbook import PROGRAMS

import daskgrad as dg


def objective(model, items):
    return lambda p: dg.map_sum(model, items, p)


def slopes(fun, x):
    def central(step):
        return np.array([(fun(x + e) - fun(x - e)) / (2.0 * step) for e in step * np.eye(x.size)])

    return (4.0 * central(5e-5) - central(1e-4)) / 3.0


SHORT = ("Kalman filter", "hidden Markov model", "reaction", "heat conduction", "market")


@in_short("name", PROGRAMS, *SHORT)
def test_gradients_are_differences(name):
    model, items, x = PROGRAMS[name]
    fun = objective(model, items)
    value, gradient = dg.value_and_grad(fun)(x)

    def plain(p):
        return sum([model(item, p) for item in items])

    assert_allclose(value, plain(x), rtol=1e-12)
    assert_allclose(gradient, slopes(plain, x), rtol=1e-7, atol=1e-8)
    tangent = np.cos(np.arange(x.size))
    _, (product,) = dg.hvp(fun, (x,), (tangent,))
    along = (dg.grad(fun)(x + 1e-5 * tangent) - dg.grad(fun)(x - 1e-5 * tangent)) / 2e-5
    assert_allclose(product, along, rtol=1e-5, atol=1e-6)


@in_short("name", PROGRAMS, *SHORT)
def test_on_a_cluster_they_have_the_same_bits(name, client):
    model, items, parameters = PROGRAMS[name]
    with dask.config.set(scheduler="sync"):
        expected = dg.value_and_grad(objective(model, items))(parameters)
    with dg.place(items) as shards:
        found = dg.value_and_grad(objective(model, shards))(parameters)
    for one, other in zip(found, expected, strict=True):
        assert_array_equal(one, other)
