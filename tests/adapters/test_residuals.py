"""Functions with many values, with SciPy's least squares and roots."""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse.linalg
from numpy.testing import assert_allclose

import daskgrad as dg

TREE = {"a": 0.3, "b": np.array([1.0, 2.0, 0.5]), "n": 2}


@dg.delayed
def product(a, b):
    return a * b - np.array([2.0, 2.0, 2.0])


@dg.delayed
def square(a):
    return a**2 + a - 2.0


def program(p):
    return {"x": product(p["a"], p["b"]), "y": [square(p["a"])]}


@pytest.fixture
def adapted():
    return dg.adapters.flat_residuals(program, TREE)


def test_values_are_joined_in_order(adapted):
    residuals, x0, unravel = adapted
    assert_allclose(residuals(x0), [0.3 - 2.0, 0.6 - 2.0, 0.15 - 2.0, 0.09 + 0.3 - 2.0])
    assert unravel(x0)["n"] == 2


def test_the_jacobian_has_a_row_a_value(adapted):
    residuals, x0, _ = adapted
    wanted = np.zeros((4, 4))
    wanted[:3, 0], wanted[3, 0] = TREE["b"], 1.6
    wanted[range(3), range(1, 4)] = 0.3
    assert_allclose(residuals.jacobian(x0), wanted)


def test_the_operator_is_the_same_matrix(adapted):
    residuals, x0, _ = adapted
    matrix, operator = residuals.jacobian(x0), residuals.operator(x0)
    assert isinstance(operator, scipy.sparse.linalg.LinearOperator)
    assert_allclose(operator @ np.eye(4), matrix)
    assert_allclose(operator.T @ np.eye(4), matrix.T)


@pytest.mark.parametrize("jacobian", ["jacobian", "operator"])
def test_least_squares_finds_the_solution(adapted, jacobian):
    residuals, x0, unravel = adapted
    found = scipy.optimize.least_squares(residuals, x0, jac=getattr(residuals, jacobian))
    solution = unravel(found.x)
    assert_allclose(solution["a"], 1.0, rtol=1e-6)
    assert_allclose(solution["b"], 2.0, rtol=1e-6)


@pytest.mark.parametrize("method", ["hybr", "lm"])
def test_root_finds_it_too(adapted, method):
    residuals, x0, unravel = adapted
    found = scipy.optimize.root(residuals, x0, jac=residuals.jacobian, method=method)
    assert_allclose(unravel(found.x)["b"], 2.0, rtol=1e-6)


def test_more_values_than_parameters(scheduler):
    data = np.linspace(0.0, 1.0, 50)

    def errors(p):
        return dg.delayed(lambda p: p["c"] * np.exp(p["r"] * data) - 2.0 * np.exp(-data))(p)

    residuals, x0, unravel = dg.adapters.flat_residuals(errors, {"c": 1.0, "r": 0.0})
    found = scipy.optimize.least_squares(residuals, x0, jac=residuals.jacobian)
    assert_allclose([unravel(found.x)[key] for key in "cr"], [2.0, -1.0], rtol=1e-6)
