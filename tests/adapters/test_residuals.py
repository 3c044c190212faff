"""Functions with many values, with SciPy's least squares and roots."""

import dask
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse.linalg
from fuzzers import ticking
from numpy.testing import assert_allclose, assert_array_equal
from probes import objective_of

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


def test_programs_have_the_bits_of_graphs_and_see_what_changes(monkeypatch):
    ticking(monkeypatch)
    target = np.array([1.0, 2.0, 3.0])
    model = dg.delayed(lambda a, b, target: a * np.exp(-b) - target)

    def fun(p):
        return {"x": model(p["a"], p["b"], target), "y": [p["a"] * 2.0, square(p["a"])]}

    residuals, x, _ = dg.adapters.flat_residuals(fun, TREE)
    with dask.config.set({"daskgrad.compile": False}):
        expected = residuals(x), residuals.jacobian(x), residuals.sparse_jacobian(x).toarray()
    for _ in range(30):
        results = residuals(x), residuals.jacobian(x)
        for result, first in zip(results, expected, strict=False):
            assert_array_equal(result, first, strict=True)
            result[...] = np.nan
    assert_array_equal(expected[1], expected[2])
    for programs in (residuals._value.programs(), objective_of(residuals._jacobian).programs()):
        assert programs.has_programs()
    target = np.zeros(3)
    assert_array_equal(residuals(x)[:3], TREE["a"] * np.exp(-TREE["b"]))


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


def decay(p):
    return p["c"] * 1e6 * np.exp(-p["r"] * 1e9 * TIMES)


TIMES = np.linspace(0.0, 3.0, 12)
SEEN = 2.0 * np.exp(-TIMES) + 0.2 * np.sin(9.0 * TIMES)


@pytest.fixture
def fitted():
    residuals = dg.delayed(lambda p: decay(p) - SEEN)
    flat, _, _ = dg.adapters.flat_residuals(residuals, {"c": 2e-6, "r": 1e-9})
    return flat, least_decay()[0] * [1e-6, 1e-9]


def least_decay():
    def curve(t, c, r):
        return c * np.exp(-r * t)

    options = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15}
    return scipy.optimize.curve_fit(curve, TIMES, SEEN, [2.0, 1.0], **options)


def test_the_gauss_newton_covariance_is_that_of_curve_fit_whatever_the_sizes(fitted):
    flat, x = fitted
    assert flat.names == ["c", "r"]
    expected = least_decay()[1] * np.outer([1e-6, 1e-9], [1e-6, 1e-9])
    assert_allclose(flat.covariance(x), expected, rtol=1e-5)


def test_the_observed_covariance_has_the_curvature_of_the_residuals(fitted):
    flat, x = fitted
    c, wave = 1e6 * x[0], np.exp(-1e9 * x[1] * TIMES)
    matrix = np.stack([wave, -c * TIMES * wave], 1)
    errors = c * wave - SEEN
    mixed = -np.sum(errors * TIMES * wave)
    bend = np.array([[0.0, mixed], [mixed, np.sum(errors * c * TIMES**2 * wave)]])
    variance = np.sum(errors**2) / (len(TIMES) - 2)
    expected = variance * np.linalg.inv(matrix.T @ matrix + bend)
    observed, other = flat.covariance(x, kind="observed"), flat.covariance(x)
    assert_allclose(observed, expected * np.outer([1e-6, 1e-9], [1e-6, 1e-9]), rtol=1e-9)
    assert np.all(np.abs(observed / other - 1.0) > 1e-3)


@pytest.mark.parametrize("kind", ["gauss-newton", "observed"])
def test_a_direction_of_which_the_residuals_say_nothing_is_named(kind):
    residuals = dg.delayed(lambda p: (p["a"] + p["b"]) * np.arange(1.0, 5.0) - 1.0)
    flat, x0, _ = dg.adapters.flat_residuals(residuals, {"a": 0.1, "b": 0.2})
    with pytest.raises(np.linalg.LinAlgError, match=r"least eigenvalue.*0\.71 [ab], .*0\.71 [ab]"):
        flat.covariance(x0, kind)


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_a_point_where_derivatives_are_not_finite_has_no_covariance():
    residuals = dg.delayed(lambda p: np.sqrt(p) * np.arange(3.0))
    flat, x0, _ = dg.adapters.flat_residuals(residuals, 0.0)
    with pytest.raises(np.linalg.LinAlgError, match="Jacobian has entries that are not finite"):
        flat.covariance(x0)
