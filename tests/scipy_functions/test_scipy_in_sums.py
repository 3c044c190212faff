"""Functions of ``daskgrad.scipy`` in the terms of sums, whose tasks and tapes are pickled."""

import dask
import numpy as np
import pytest
from numpy.testing import assert_allclose
from policies import moving

import daskgrad as dg
from daskgrad.scipy import integrate, interpolate, optimize, signal, sparse

KNOTS = np.array([0.0, 0.4, 1.1, 1.5])
PLACES = (np.array([0, 1, 0]), np.array([0, 1, 1]))


def root(item, p):
    return optimize.brentq(lambda x, q: np.exp(x) - item * p[0] - q * x**2, -4.0, 3.0, args=(p[1],))


def integral(item, p):
    return integrate.quad(lambda x: np.exp(-p[0] * (x - item * p[1]) ** 2), 0.0, np.inf)[0]


def solution(item, p):
    steps = {"rtol": 1e3, "atol": 1e3, "first_step": 0.3, "max_step": 0.3}
    return np.sum(integrate.solve_ivp(lambda t, y: -p[0] * y, (0, 0.9), [item * p[1]], **steps).y)


def spline(item, p):
    values = np.concatenate([p, p**2])
    return interpolate.CubicSpline(KNOTS, values, bc_type="natural")(item) ** 2


def filtered(item, p):
    series = np.arange(4.0) * item
    return np.sum(signal.lfilter([1.0], np.concatenate([np.ones(1), p]), series) ** 2)


def solved(item, p):
    matrix = sparse.csc_array((np.concatenate([p, p[:1] * 0.3]), PLACES), shape=(2, 2))
    return np.sum(sparse.linalg.spsolve(matrix, item * np.ones(2)) ** 2)


@pytest.mark.parametrize("model", [root, integral, solution, spline, filtered, solved])
def test_in_sums(model):
    items, p = [1.0, 1.5], np.array([1.3, 0.7])
    with dask.config.set(scheduler=moving):
        value, gradient = dg.value_and_grad(lambda p: dg.map_sum(model, items, p))(p)
    terms = [dg.value_and_grad(dg.delayed(model), argnums=1)(item, p) for item in items]
    assert_allclose(value, sum([term[0] for term in terms]), rtol=1e-12)
    assert_allclose(gradient, sum([term[1] for term in terms]), rtol=1e-12)
