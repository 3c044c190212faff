"""Functions of ``daskgrad.scipy`` between models are one call of a model: the numbers that a model
gets."""

import numpy as np
import pytest
import scipy.sparse
from lengths import in_short
from numpy.testing import assert_allclose, assert_array_equal
from test_stats import ALL, CALLS, HELD, numbers_of, parameters_of

import daskgrad as dg
from daskgrad.scipy import integrate, interpolate, linalg, optimize, signal, sparse, special, stats

pytestmark = [
    pytest.mark.usefixtures("synchronous"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

X, T = np.array([0.5, 1.2, 2.3]), np.linspace(0.0, 1.0, 3)
A = np.array([[3.0, 1.0, 0.0], [1.0, 4.0, 1.0], [0.0, 1.0, 5.0]])
SPARSE, KNOTS = scipy.sparse.csc_array(A), [0.0, 1.0, 2.0]


DENSITIES = [f"{name} {method}" for name, method in CALLS if method in ("logpdf", "logpmf")]


def distance(u, a):
    return np.sum((u - a) ** 2) + np.sum(a)


def decay(t, y, a):
    return -a * y


FUNCTIONS = {
    "multivariate_normal": lambda x: stats.multivariate_normal.logpdf(x, 0.1 * x, A),
    "multivariate_normal(...)": lambda x: stats.multivariate_normal(0.1 * x, A).logpdf(T),
    "dirichlet": lambda x: stats.dirichlet.logpdf(np.array([0.2, 0.3, 0.5]), x),
    "multinomial": lambda x: stats.multinomial.logpmf(
        np.array([1.0, 2.0, 3.0]), 6.0, x / np.sum(x)
    ),
    "multinomial(...)": lambda x: stats.multinomial(6.0, x / np.sum(x)).pmf(
        np.array([1.0, 2.0, 3])
    ),
    "norm(loc=, scale=)": lambda x: stats.norm(loc=x[0], scale=x[1]).cdf(T),
    "gamma(a, scale=)": lambda x: stats.gamma(x[0], scale=x[1]).logpdf(T + 1.0),
    "logsumexp": special.logsumexp,
    "logsumexp of a list": lambda x: special.logsumexp([x[0], x[1]]),
    "softmax": lambda x: special.softmax(x)[0],
    "multigammaln": lambda x: special.multigammaln(x[2], 2),
    "solve": lambda x: linalg.solve(A * x[0], x),
    "cho_solve": lambda x: linalg.cho_solve(linalg.cho_factor(A * x[0]), x),
    "lu_solve": lambda x: linalg.lu_solve(linalg.lu_factor(A * x[0]), x),
    "solve_triangular": lambda x: linalg.solve_triangular(np.triu(A) * x[0], x),
    "solve_banded": lambda x: linalg.solve_banded((0, 0), x[None, :], T),
    "expm": lambda x: linalg.expm(0.1 * A * x[0]),
    "sqrtm": lambda x: linalg.sqrtm(A * x[0]),
    "solve_sylvester": lambda x: linalg.solve_sylvester(A * x[0], A, A),
    "block_diag": lambda x: linalg.block_diag(A * x[0], x[1:]),
    "toeplitz": lambda x: linalg.toeplitz(x) ** 2,
    "convolve": lambda x: signal.convolve(x, x) ** 2,
    "lfilter": lambda x: signal.lfilter(x, [1.0, 0.1], T),
    "trapezoid": lambda x: integrate.trapezoid(x**2, T),
    "simpson": lambda x: integrate.simpson(x**2, x=T),
    "cumulative_trapezoid": lambda x: integrate.cumulative_trapezoid(x**2, T),
    "quad": lambda x: integrate.quad(lambda u, a: np.exp(-a * u), 0.0, x[0], args=(x[1],))[0],
    "solve_ivp": lambda x: integrate.solve_ivp(decay, (0.0, 1.0), x, args=(x[0],)).y,
    "root": lambda x: optimize.root(lambda u, a: u**2 - a, np.ones(3), args=(x,)).x,
    "root_scalar": lambda x: (
        optimize.root_scalar(lambda u, a: u**2 - a, args=(x[0],), bracket=(0.0, 5.0)).root
    ),
    "brentq": lambda x: optimize.brentq(lambda u, a: u**2 - a, 0.0, 5.0, args=(x[0],)),
    "minimize, x": lambda x: optimize.minimize(distance, np.ones(3), args=(x,)).x,
    "minimize, fun": lambda x: optimize.minimize(distance, np.ones(3), args=(x,)).fun,
    "CubicSpline of x": lambda x: interpolate.CubicSpline(KNOTS, x)(0.3),
    "CubicSpline by name": lambda x: interpolate.CubicSpline(x=KNOTS, y=x)(0.3),
    "CubicSpline at x": lambda x: interpolate.CubicSpline(KNOTS, [1.0, 0.0, 2.0])(x[0]),
    "a spline's integral": lambda x: interpolate.CubicSpline(KNOTS, x).integrate(0.0, x[0]),
    "a spline's derivative": lambda x: interpolate.CubicSpline(KNOTS, x).derivative()(0.4),
    "CubicHermiteSpline": lambda x: interpolate.CubicHermiteSpline(KNOTS, x, x)(0.4),
    "RegularGridInterpolator": lambda x: interpolate.RegularGridInterpolator((KNOTS,), x)([0.3]),
    "interpn": lambda x: interpolate.interpn((KNOTS,), x, [0.3]),
    "spsolve": lambda x: sparse.linalg.spsolve(SPARSE, x),
    "splu": lambda x: sparse.linalg.splu(SPARSE).solve(x),
    "matmul of a sparse matrix": lambda x: sparse.matmul(SPARSE, x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_between_models_is_the_function_in_a_model(name):
    def objective(x):
        return np.sum(FUNCTIONS[name](x))

    double = dg.delayed(lambda x: 2.0 * x)
    of_values = dg.value_and_grad(lambda x: objective(double(x)))(0.5 * X)  # not computed yet
    value, gradient = dg.value_and_grad(dg.delayed(objective))(X)
    for other, slopes in (dg.value_and_grad(objective)(X), (of_values[0], 0.5 * of_values[1])):
        assert_array_equal(other, value)
        assert_allclose(slopes, gradient, rtol=1e-12)


@in_short("call", {" ".join(call): call for call in CALLS}, *DENSITIES)
def test_a_distribution_between_models_and_a_frozen_one_are_those_in_a_model(call):
    name, method = call.split()
    held = 1 if name in HELD else 0
    parameters, numbers = parameters_of(name), numbers_of(name, method)
    if len(parameters) == held:  # nothing to differentiate
        return

    def total(values):
        return np.sum(np.where(np.isfinite(values), values, 0.0))

    def arguments(p):
        return [*parameters[:held], *[p[n] for n in range(len(parameters) - held)]]

    def called(p):
        return total(getattr(ALL[name], method)(numbers, *arguments(p)))

    def frozen(p):
        return total(getattr(ALL[name](*arguments(p)), method)(numbers))

    value, gradient = dg.value_and_grad(dg.delayed(called))(parameters[held:])
    for other in (called, frozen, dg.delayed(frozen)):
        found, slopes = dg.value_and_grad(other)(parameters[held:])
        assert_array_equal(found, value)
        assert_allclose(slopes, gradient, rtol=1e-12, atol=1e-15)


REFUSED = {  # what cannot be recorded, and what the error says
    "quad": (lambda x: integrate.quad(lambda u: u * x[0], 0.0, 1.0)[0], r"as args=\(...\)"),
    "solve_ivp": (
        lambda x: np.sum(integrate.solve_ivp(lambda t, y: -x[0] * y, (0.0, 1.0), T).y),
        r"as args=\(...\)",
    ),
    "brentq": (lambda x: optimize.brentq(lambda u: u - x[0], 0.0, 1.0), r"as args=\(...\)"),
    "csr_array": (
        lambda x: np.sum(sparse.csr_array((x, (KNOTS, KNOTS))) @ x),
        "csr_array of <Variable x.*has no value yet.*wrap that in dg.delayed",
    ),
    "a spline's coefficients": (
        lambda x: interpolate.CubicSpline(KNOTS, x).c,
        "CubicSpline of <Variable x.* has no value yet, and no 'c'.*dg.delayed",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_recorded_says_what_to_write(name):
    objective, told = REFUSED[name]
    with pytest.raises((TypeError, AttributeError), match=told):
        dg.grad(objective)(X)


def test_a_frozen_distribution_tells_what_it_has():
    with pytest.raises(
        AttributeError, match=r"stats.norm\(...\) has no 'rvs' here; it has logpdf,"
    ):
        stats.norm(0.0, 1.0).rvs()
    with pytest.raises(TypeError, match=r"stats.norm: too many positional arguments"):
        stats.norm(0.0, 1.0, 2.0)
