"""``daskgrad.scipy.integrate.quad``: SciPy's values; derivatives by args, closures and limits."""

import math

import numpy as np
import pytest
import scipy.integrate
from autograd import grad
from functions_checked import check_error, checking, counted
from lengths import in_short
from numpy.testing import assert_allclose
from tables import rows_of

import daskgrad as dg
from daskgrad.scipy import integrate, quadrature

check = checking(integrate, scipy.integrate)
P = np.array([1.3, 0.7])
TIGHT = {"epsabs": 1e-11, "epsrel": 1e-11}


def wave(x, p, q):
    return np.exp(-p * x) * np.cos(q * x**2)


def bell(x, p, q):
    return np.exp(-p * (x - q) ** 2)


PROGRAMS = {
    "args": lambda m, p: m.quad(wave, -0.3, 2.0, args=(p[0], p[1]))[0],
    "a tuple in a closure": lambda m, p: m.quad(
        lambda x, given={"rates": [p[0], (p[1],)]}: wave(x, given["rates"][0], *given["rates"][1]),
        -0.3,
        2.0,
    )[0],
    "one argument": lambda m, p: m.quad(lambda x, q: np.exp(q * x), 0.0, 1.0, args=p[0])[0] * p[1],
    "a closure": lambda m, p: m.quad(lambda x: wave(x, p[0], p[1]), -0.3, 2.0)[0],
    "many intervals": lambda m, p: m.quad(lambda x: np.cos(60.0 * p[0] * x) * p[1], 0.0, 1.5)[0],
    "limits": lambda m, p: m.quad(lambda x: np.exp(x) * np.sin(x), p[0], p[1] ** 2)[0],
    "limits and args": lambda m, p: m.quad(wave, p[1], p[0], args=(p[0], p[1]))[0],
    "limits in reverse": lambda m, p: m.quad(wave, 3.0, p[1], args=(p[0], p[1]))[0],
    "no length": lambda m, p: m.quad(wave, p[1] + 0.6, p[0], args=(p[0], p[1]))[0],
    "to infinity": lambda m, p: m.quad(lambda x: bell(x, *p), p[1], np.inf)[0],
    "from infinity": lambda m, p: m.quad(lambda x: bell(x, *p), -np.inf, p[0])[0],
    "between infinities": lambda m, p: m.quad(lambda x: x**2 * bell(x, *p), -np.inf, np.inf)[0],
    "from infinity to infinity": lambda m, p: m.quad(lambda x: bell(x, *p), np.inf, -np.inf)[0],
    "points": lambda m, p: m.quad(
        lambda x: np.abs(x - 0.4) * np.exp(p[0] * x * p[1]), 0.0, 1.0, points=[0.4]
    )[0],
    "zero": lambda m, p: m.quad(lambda x: p[0] * np.sin(p[1] * x), -1.0, 1.0)[0],
    "singular at an end": lambda m, p: m.quad(
        lambda x: np.exp(p[0] * x) / np.sqrt(x), 0.0, p[0], **TIGHT
    )[0],
    "singular at the other end": lambda m, p: m.quad(
        lambda x: np.exp(p[0] * x) / np.sqrt(1.0 - x), p[1], 1.0
    )[0],
    "singular at a point": lambda m, p: m.quad(
        lambda x: np.exp(p[0] * x) * np.abs(x - 0.4) ** -0.5, 0.0, p[1], points=[0.4]
    )[0],
    "singular at infinity": lambda m, p: m.quad(
        lambda x: np.cos(p[1] / x) * x**-1.5, p[0], np.inf, **TIGHT
    )[0],
    "singular by an exponent": lambda m, p: m.quad(
        lambda x: x ** (-0.5 * p[1]), 0.0, p[0], **TIGHT
    )[0],
    "a logarithm": lambda m, p: m.quad(lambda x: np.log(x) * np.cos(p[0] * x), 0.0, p[1])[0],
    "a complex function": lambda m, p: np.real(
        m.quad(lambda x: np.exp(1j * p[0] * x), 0.0, p[1], complex_func=True)[0] * (1.0 + 2.0j)
    ),
    "of an integral": lambda m, p: m.quad(
        lambda x: m.quad(lambda y: np.exp(-p[0] * x * y), 0.0, p[1] * x)[0], 0.0, 1.0
    )[0],
}
SHORT = ("args", "limits and args")


BREAKS = {
    "a point that jumps": lambda m, p: m.quad(
        lambda x: np.where(x > p[1], p[0] * np.exp(x), np.cos(p[1] * x)),
        -0.3, 2.0, points=[p[1]], **TIGHT,
    )[0],
    "points in reverse": lambda m, p: m.quad(
        lambda x: np.abs(x - p[1]) * np.exp(-p[0] * x) + (x > p[1] ** 2),
        2.0, p[1] - 0.7, points=[p[1], 0.1, p[1] ** 2], **TIGHT,
    )[0],
    "an array of points": lambda m, p: m.quad(
        lambda x: np.maximum(x, p[0]) * np.where(x < p[1], x, p[0]), 0.0, 2.0, points=p, **TIGHT
    )[0],
    "points outside": lambda m, p: m.quad(
        lambda x: np.abs(x - p[1]) * np.exp(x), 1.0, p[0], points=[p[1], p[0], p[0] + 2.0], **TIGHT
    )[0],
    "split at a jump": lambda m, p: sum(
        m.quad(lambda x: np.where(x > p[1], p[0] * np.exp(x), x), *ends, **TIGHT)[0]
        for ends in ((-0.3, p[1]), (p[1], 2.0))
    ),
    "split at a kink": lambda m, p: sum(
        m.quad(lambda x: np.maximum(np.exp(-x) - p[0], 0.0) * bell(x, *p), *ends, **TIGHT)[0]
        for ends in ((-3.0, -np.log(p[0])), (-np.log(p[0]), np.inf))
    ),
    "a jump and a kink that stay": lambda m, p: m.quad(
        lambda x: wave(x, *p) * (x > 0.37) * np.abs(x - 1.1), -0.3, p[0], **TIGHT
    )[0],
    "a curve with a kink": lambda m, p: m.quad(
        lambda x: np.abs(x - p[1]) ** 3 * np.exp(p[0] * x), -0.3, 2.0, **TIGHT
    )[0],
}  # fmt: skip


@in_short("name", BREAKS, "a point that jumps")
def test_breaks_that_move_are_differentiated_where_they_are_told(name):
    check(BREAKS[name], P, slopes=1e-6)


KINKS = {
    "within": lambda x, p: np.abs(x - p) * np.exp(x),
    "where intervals meet": lambda x, p: np.maximum(x - 0.5 - (p - 0.37), 0.0) * np.exp(x),
    "by an exponent": lambda x, p: np.exp(-np.abs(x - p)),
    "by the other derivative": lambda x, p: np.abs(x - 0.37) * (x - p),
    "next to a jump that stays": lambda x, p: np.abs(x - p) + (x > 0.36),
}


@pytest.mark.parametrize("given", [{}, pytest.param({"points": [0.37]}, marks=pytest.mark.long)])
@in_short("name", KINKS, "within", "by the other derivative")
def test_second_derivatives_are_refused_where_a_kink_moves(name, given):
    """A plain point does not tell how the kink moves."""

    program = quad(KINKS[name], 0.0, 1.0, **given)

    def plain(p):
        return scipy.integrate.quad(KINKS[name], 0.0, 1.0, args=(p,), epsabs=1e-12, limit=200)[0]

    slope = (plain(0.37 + 1e-4) - plain(0.37 - 1e-4)) / 2e-4
    assert_allclose(dg.grad(program)(0.37), slope, rtol=1e-6)
    if name == "by the other derivative":
        assert_allclose(dg.hessian(program)(0.37), 0.0, atol=1e-12)
        return
    with pytest.raises(RuntimeError, match="has no second derivative here: func has a kink at 0"):
        dg.hessian(program)(0.37)


def quad(fun, *args, **kwargs):
    """A model: the integral of a function of x and p."""
    return dg.delayed(lambda p: integrate.quad(lambda x: fun(x, p), *args, **kwargs)[0])


def test_derivatives_come_to_the_tolerances_where_the_integrand_is_singular():
    """By its derivative, the first or the second, and it itself is none."""
    for power in (0.0, 0.5, 1.0):
        value, slope = dg.value_and_grad(quad(lambda x, p: x**p, 0.0, 1.0))(power)
        right = [1.0 / (1.0 + power), -1.0 / (1.0 + power) ** 2]
        assert_allclose([value, slope], right, rtol=1e-10)
    within = quad(lambda x, p: np.abs(x - 0.37) ** p, 0.0, 1.0)  # which halves intervals
    right = 0.37 * np.log(0.37) + 0.63 * np.log(0.63) - 1.0
    assert_allclose(dg.grad(within)(0.0), right, rtol=1e-7)
    kinked = quad(lambda x, p: np.abs(x - p) ** 1.5, 0.0, 1.0, points=[0.37], **TIGHT)
    right = 1.5 * (np.sqrt(0.37) + np.sqrt(0.63))
    assert_allclose(dg.hessian(kinked)(0.37), right, rtol=1e-8)


def test_derivatives_by_a_limit():
    def area(b):
        return integrate.quad(np.exp, 0.0, b)[0]

    assert_allclose(grad(grad(grad(area)))(1.2), np.exp(1.2), rtol=1e-9)
    step = dg.delayed(lambda p: integrate.quad(lambda x: 1.0 + (x > 0.5), 0, p, points=[0.5])[0])
    assert_allclose(dg.grad(step)(0.8), 2.0)


@in_short("name", PROGRAMS, *SHORT)
def test_values_and_derivatives(name):
    check(PROGRAMS[name], P, slopes=1e-6)


def test_functions_of_plain_numbers_may_be_anything():
    """``func`` is called with Python's floats, as by SciPy."""
    value, slope = dg.value_and_grad(quad(lambda x, p: p * math.exp(x), 0.0, 1.0))(2.0)
    assert_allclose([value, slope], [2.0 * (np.e - 1.0), np.e - 1.0])


def test_the_error_and_further_results_are_scipys():
    (ours, one), (theirs, other) = (
        (
            m.quad(wave, 0.0, 2.0, args=(1.0, 2.0), full_output=1),
            m.quad(math.exp, 0.0, 2.0, weight="cos", wvar=3.0),
        )
        for m in (integrate, scipy.integrate)
    )
    assert ours[:2] == theirs[:2]
    assert ours[2]["neval"] == theirs[2]["neval"]
    assert one == other

    def program(p):
        value, error = integrate.quad(wave, 0.0, 2.0, args=(p, 2.0))
        assert isinstance(error, float)
        return value + error

    assert dg.value_and_grad(dg.delayed(program))(1.0)[0] == sum(theirs[:2])


def test_scipys_warnings_are_passed_on():
    with pytest.warns(scipy.integrate.IntegrationWarning, match="maximum number of subdivisions"):
        integrate.quad(lambda x: np.cos(500.0 * x), 0.0, 10.0, limit=2)


ERRORS = """
integrate.quad(np.cos, 0.0, 2.0, weight="cos", wvar=p)[0]
  -> NotImplementedError: weight='cos'; multiply func by it
integrate.quad(lambda x: p * x, 0.0, 1.0, weight="cos", wvar=3.0)[0]
  -> NotImplementedError: quad has no derivative with weight='cos'; multiply func by it
integrate.quad(lambda x: p * x, 0.0, 1.0, points=[0.5 * p, 0.45 + 0.0 * p])[0] -> RuntimeError: quad
  has no derivative where points= are the same number: they are 0.45, 0.45
integrate.quad(Line(p).at, 0.0, 1.0)[0] -> NotImplementedError: quad has no derivative by traced
  values that func takes from an object; pass them as args
integrate.quad(lambda x: np.abs(x - 0.9) ** -0.5, p, 1.0)[0] -> RuntimeError: quad has no derivative
  by a limit or point at which func is not finite: it is inf at 0.9
integrate.quad(lambda x: np.abs(x - 0.9) ** -0.5, 0.0, 1.0, points=[p])[0] -> RuntimeError: quad has
  no derivative by a limit or point at which func is not finite: it is inf at 0.9
integrate.quad(lambda x: np.where(x > 0.7 * p, np.exp(x), x), 0.0, 1.0)[0]
  -> RuntimeError: quad has no derivative here: func jumps at 0.63, ... give it among points=
integrate.quad(lambda x: p * (x > 0.7 * p), 0.0, 1.0, points=[0.63])[0]
  -> RuntimeError: quad has no derivative here: func jumps at 0.63
integrate.quad(lambda x: np.exp(x) * (x > p - 0.4), 0.0, 1.0)[0]
  -> RuntimeError: quad has no derivative here: func jumps at 0.5
integrate.quad(lambda x: np.exp(-(x**2)) * (x > p - 0.9), -np.inf, np.inf)[0]
  -> RuntimeError: quad has no derivative here: func jumps at 0
integrate.quad(lambda x: p * np.abs(x - 1.0) ** -0.9, 0.0, 1.0)[0]
  -> RuntimeError: quad has no derivative here: ...singularity
"""


class Line:
    """Holds traced values where closures are not looked for."""

    def __init__(self, slope):
        self.slope = slope

    def at(self, x):
        return self.slope * x


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("call", "error"), rows_of(ERRORS))
def test_what_has_no_derivative_is_an_error(call, error):
    check_error(call, error, globals(), 0.9)


def test_the_rule_is_exact_for_polynomials():
    powers = np.arange(32)
    found = [np.dot(quadrature.WEIGHTS, quadrature.NODES**n) for n in powers]
    assert_allclose(found, (1.0 + (-1.0) ** powers) / (powers + 1.0), atol=1e-15)


# ------------------------------------------------------------------------------- nodes in one call


def of_one_number(x, p, q):
    return math.exp(-x) * p if x < 0.3 else math.exp(-x) * p + q * (x - 0.3) ** 3


MIXING = {  # of a number they are the number, of an array something else
    "a sum": lambda x, p, q: p * x * np.exp(q * x) * (x / np.sum(x)),
    "a mean": lambda x, p, q: p * x * np.exp(q * np.mean(x)),
    "a cumulative sum": lambda x, p, q: p * np.reshape(np.cumsum(x), np.shape(x)) ** q,
    "a branch": of_one_number,
}


def test_an_integrand_of_arrays_is_called_once_with_all_nodes():
    fun, plain = counted(wave), counted(wave)
    model = dg.delayed(lambda p: integrate.quad(fun, -0.3, 2.0, args=(p[0], p[1]))[0])
    dg.grad(model)(P)
    scipy.integrate.quad(plain, -0.3, 2.0, args=tuple(P))
    assert fun.count <= plain.count + 3


@pytest.mark.parametrize("name", MIXING)
def test_an_integrand_of_single_numbers_is_right(name):
    def program(m, p):
        return m.quad(MIXING[name], 0.1, 1.0, args=(p[0], p[1]), points=[0.3])[0]

    check(program, P, slopes=1e-6)
