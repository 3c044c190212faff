"""``daskgrad.scipy.optimize``: SciPy's solutions; derivatives of the implicit functions."""

import functools
from typing import NamedTuple

import numpy as np
import pytest
import scipy.optimize
from autograd import grad
from functions_checked import check_error, checking
from numpy.testing import assert_allclose, assert_array_equal
from tables import rows_of

import daskgrad as dg
from daskgrad.scipy import optimize

check = checking(optimize, scipy.optimize)
P = np.array([1.3, 0.7])


def equations(x, p, q):
    return [x[0] ** 3 + p * x[1] - 1.0, x[1] ** 3 - q * x[0] + 1.0]


def equations_and_jacobian(x, p, q):
    slopes = np.array([[3.0 * x[0] ** 2, p], [-q, 3.0 * x[1] ** 2]])
    return np.array(equations(x, p, q)), slopes


def curve(x, p, q):
    return np.exp(x) - p - q * x**2


def curve_slope(x, p, q):
    return np.exp(x) - 2.0 * q * x


def curve_and_slope(x, p, q):
    return curve(x, p, q), curve_slope(x, p, q)


class Numbers(NamedTuple):
    p: float
    q: list

    def at(self, x):
        return curve(x, self.p, *self.q)


class Curve:
    """Holds traced values where closures are not looked for."""

    def __init__(self, p):
        self.p = p

    def at(self, x):
        return curve(x, *self.p)


def bowl(x, p):
    return np.sum(p * x**4 / 4.0 + x**2 / 2.0 - x) + 0.5 * p[0] * x[0] * x[1]


def bowl_slopes(x, p):
    return p * x**3 + x - 1.0 + 0.5 * p[0] * x[::-1]


def bowl_hessian(x, p):
    return np.diag(3.0 * p * x**2 + 1.0) + 0.5 * p[0] * np.eye(2)[::-1]


def minimum(o, p, **kwargs):
    given = {"jac": bowl_slopes, "hess": bowl_hessian, "method": "trust-exact"}
    return o.minimize(bowl, [0.5, 0.5], args=p, options={"gtol": 1e-9}, **{**given, **kwargs})


START = np.array([0.5, 0.5])
PROGRAMS = {
    "root": lambda o, p: o.root(equations, START, args=(p[0], p[1]), tol=1e-13).x,
    "root of a closure": lambda o, p: o.root(lambda x: equations(x, *p), START, tol=1e-13).x,
    "root, Jacobian": lambda o, p: (
        o.root(equations_and_jacobian, START, args=(p[0], p[1]), jac=True, tol=1e-13).x
    ),
    "root of a matrix": lambda o, p: (
        o.root(
            lambda m: m @ m - np.array([[2.0, 0.3], [0.1, 1.0]]) * p[0],
            np.eye(2),
            method="krylov",
            options={"fatol": 1e-13},
        ).x
    ),
    "root of many": lambda o, p: (
        o.root(lambda x: x**3 + x - p[0] * np.arange(5.0), np.ones(5), tol=1e-13).x * p[1]
    ),
    "brentq": lambda o, p: o.brentq(curve, -4.0, 3.0, args=(p[0], p[1])),
    "brentq between traced ends": lambda o, p: o.brentq(curve, -p[0] - 4.0, 3.0, args=tuple(p)),
    "brentq of a default": lambda o, p: o.brentq(lambda x, p=p: curve(x, *p), -4.0, 3.0),
    "brentq of a method": lambda o, p: o.brentq(Curve(p).at, -4.0, 3.0),
    "brentq of a named tuple": lambda o, p: o.brentq(Numbers(p[0], [p[1]]).at, -4.0, 3.0),
    "brentq of a partial": lambda o, p: o.brentq(functools.partial(curve, p=p[0], q=p[1]), -4, 3),
    "brentq of brentq": lambda o, p: o.brentq(
        lambda x: x + o.brentq(lambda y: y**3 + y - x * p[0], -9.0, 9.0) - p[1], -3.0, 3.0
    ),
    "root_scalar": lambda o, p: (
        o.root_scalar(curve, args=tuple(p), x0=0.5, fprime=curve_slope, xtol=1e-14).root
    ),
    "root_scalar, slope": lambda o, p: (
        o.root_scalar(curve_and_slope, args=tuple(p), x0=0.5, fprime=True, xtol=1e-14).root
    ),
    "root_scalar in a bracket": lambda o, p: (
        o.root_scalar(curve, args=tuple(p), bracket=[-4.0, 3.0], xtol=1e-14).root
    ),
    "minimize, x": lambda o, p: minimum(o, p).x,
    "minimize, fun": lambda o, p: minimum(o, p).fun,
    "minimize within bounds": lambda o, p: (
        o.minimize(
            lambda x: np.sum((x - p) ** 2),
            START,
            jac=lambda x: 2.0 * (x - dg.value(p)),
            bounds=[(-9.0 * p[0], None), (None, 9.0)],
            tol=1e-14,
        ).x
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_derivatives(name):
    check(PROGRAMS[name], P, rtol=1e-8)


def test_a_third_derivative_is_right():
    """Of the root of x³ = p: there are as many corrections as traces."""

    def cube_root(p):
        return optimize.brentq(lambda x: x**3 - p, 0.1, 9.0)

    assert_allclose(grad(grad(grad(cube_root)))(2.0), 10.0 / 27.0 * 2.0 ** (-8.0 / 3.0))


def test_plain_results_are_scipys():
    (ours, one), (theirs, other) = (
        (
            module.root(equations, START, args=tuple(P), tol=1e-9),
            module.brentq(curve, -4.0, 3.0, args=tuple(P), full_output=True),
        )
        for module in (optimize, scipy.optimize)
    )
    assert_array_equal(ours.x, theirs.x)
    assert (ours.nfev, ours.message) == (theirs.nfev, theirs.message)
    assert one[0] == other[0] == one[1].root
    assert one[1].iterations == other[1].iterations
    assert not optimize.root(lambda x: x**2 + 3.0, [1.0]).success, "see the errors"


def away(p):
    return lambda x: np.sum((x - p) ** 2)


ERRORS = """
optimize.root(lambda x: x**2 + p, [1.0]).x[0] -> RuntimeError: optimize.root found no solution
optimize.root(lambda x: [x[0] + x[1] - p, 2.0 * (x[0] + x[1] - p)], START).x[0]
  -> np.linalg.LinAlgError: optimize.root has no derivative...singular
optimize.root_scalar(lambda x: p * x**2, x0=0.0, fprime=lambda x: 2.0).root
  -> np.linalg.LinAlgError: optimize.root_scalar has no derivative...singular
optimize.brentq(lambda x: np.sign(x - 0.3) + 0.1 * p * x, -1.0, 1.0)
  -> RuntimeError: optimize.brentq has no derivative: what was found is no root
optimize.minimize(away(p), START, constraints=[{"type": "eq", "fun": lambda x: x[0] - x[1]}]).x[0]
  -> NotImplementedError: optimize.minimize has no derivative with constraints=
optimize.minimize(away(0.3), START, constraints={"type": "eq", "fun": lambda x: x[0] - p}).x[0]
  -> NotImplementedError: optimize.minimize has no derivative with constraints=
optimize.minimize(away(p), START, bounds=[(None, 0.6), (None, 9.0)]).fun
  -> NotImplementedError: at a bound: x[0] is 0.6
optimize.root(lambda x: [x[0] - p, x[1], x[0] - 0.8], START, method="lm").x[0] -> ValueError:
  optimize.root has no derivative: it needs as many equations as x has...2; found 3
"""


@pytest.mark.parametrize(("call", "error"), rows_of(ERRORS))
def test_where_there_is_no_derivative_an_error_says_so(call, error):
    check_error(call, error, globals(), 0.9)
