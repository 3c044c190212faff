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


def test_values_are_joined_in_order_and_the_jacobian_has_a_row_a_value(adapted):
    residuals, x0, unravel = adapted
    assert_allclose(residuals(x0), [0.3 - 2.0, 0.6 - 2.0, 0.15 - 2.0, 0.09 + 0.3 - 2.0])
    assert unravel(x0)["n"] == 2
    matrix, operator = residuals.jacobian(x0), residuals.operator(x0)
    expected = np.zeros((4, 4))
    expected[:3, 0], expected[3, 0] = TREE["b"], 1.6
    expected[range(3), range(1, 4)] = 0.3
    assert_allclose(matrix, expected)
    sparse = residuals.sparse_jacobian(x0)
    assert sparse.nnz == 7
    assert_allclose(sparse.toarray(), matrix, rtol=0.0)
    assert isinstance(operator, scipy.sparse.linalg.LinearOperator)
    assert_allclose(operator @ np.eye(4), matrix)
    assert_allclose(operator.T @ np.eye(4), matrix.T)


SOLVERS = {
    "least squares": lambda f, x: scipy.optimize.least_squares(f, x, jac=f.jacobian),
    "least squares, sparse": lambda f, x: scipy.optimize.least_squares(f, x, f.sparse_jacobian),
    "least squares, products": lambda f, x: scipy.optimize.least_squares(f, x, jac=f.operator),
    "a root": lambda f, x: scipy.optimize.root(f, x, jac=f.jacobian, method="hybr"),
    "a root by least squares": lambda f, x: scipy.optimize.root(f, x, jac=f.jacobian, method="lm"),
}


@pytest.mark.parametrize("solver", SOLVERS)
def test_scipys_solvers_find_the_solution(adapted, solver):
    residuals, x0, unravel = adapted
    solution = unravel(SOLVERS[solver](residuals, x0).x)
    assert_allclose(solution["a"], 1.0, rtol=1e-6)
    assert_allclose(solution["b"], 2.0, rtol=1e-6)


def test_more_values_than_parameters(synchronous):
    data = np.linspace(0.0, 1.0, 50)

    def errors(p):
        return dg.delayed(lambda p: p["c"] * np.exp(p["r"] * data) - 2.0 * np.exp(-data))(p)

    residuals, x0, unravel = dg.adapters.flat_residuals(errors, {"c": 1.0, "r": 0.0})
    fit = scipy.optimize.least_squares(residuals, x0, jac=residuals.jacobian)
    assert_allclose([unravel(fit.x)[key] for key in "cr"], [2.0, -1.0], rtol=1e-6)
