"""Derivatives of special functions where formulas cancel, against mpmath."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import daskgrad as dg


@pytest.fixture(autouse=True, scope="module")
def library():
    """Tests are collected without it."""
    global mp, mpmath
    mpmath = pytest.importorskip("mpmath")
    mp = mpmath.mp


def dawson(x):
    return mpmath.sqrt(mp.pi) / 2 * mpmath.exp(-x * x) * mpmath.erfi(x)


def scaled_erfc(x):
    return mpmath.exp(x * x) * mpmath.erfc(x)


def logistic(x):
    return 1 / (1 + mpmath.exp(-x))


CASES = {  # of SciPy -> the same by mpmath, and where
    "dawsn": (dawson, [-24.0, 1e-6, 0.5, 9.9, 10.1, 30.0]),
    "erfcx": (scaled_erfc, [-3.0, 0.5, 9.9, 10.1, 30.0, 1e6]),
    "expit": (logistic, [-50.0, -1.0, 0.3, 30.0, 50.0]),
    "log_expit": (lambda x: mpmath.log(logistic(x)), [-50.0, -1.0, 0.3, 30.0]),
    "log_ndtr": (lambda x: mpmath.log(mpmath.ncdf(x)), [-40.0, -3.0, 0.3, 8.0]),
    "spence": (lambda x: mpmath.polylog(2, 1 - x), [1e-3, 1.0 - 1e-9, 1.0 + 1e-4, 50.0]),
}


@pytest.mark.parametrize("name", CASES)
def test_first_and_second_derivatives_have_their_digits(name):
    exact, at = CASES[name]
    x, special = np.array(at), pytest.importorskip("scipy.special")
    fun = dg.delayed(lambda x: getattr(special, name)(x))
    total = dg.delayed(lambda x: np.sum(getattr(special, name)(x)))
    with mp.workdps(50):
        first, second = ([float(mpmath.diff(exact, each, n)) for each in at] for n in (1, 2))
    assert_allclose(dg.grad(total)(x), first, rtol=1e-10)
    assert_allclose(dg.jvp(fun, (x,), (np.ones(len(x)),))[1], first, rtol=1e-10)
    assert_allclose(np.diag(dg.hessian(total)(x)), second, rtol=1e-10)


@pytest.mark.parametrize(("name", "base"), [("logaddexp", "e"), ("logaddexp2", "2")])
@pytest.mark.parametrize("x", [(50.0, 0.0), (0.0, 50.0), (0.3, 0.3), (-1.0, 2.0), (300.0, 1.0)])
def test_the_smaller_part_of_a_sum_of_exponentials_is_not_lost(name, base, x):
    base = mpmath.e if base == "e" else mpmath.mpf(base)

    def exact(x, y):
        return mpmath.log(base ** mpmath.mpf(x) + base ** mpmath.mpf(y), base)

    with mp.workdps(300):
        found = [[float(mpmath.diff(exact, x, n)) for n in row] for row in ORDERS]
    fun = dg.delayed(lambda x: getattr(np, name)(x[0], x[1]))
    assert_allclose(dg.grad(fun)(np.array(x)), found[0], rtol=1e-10)
    assert_allclose(dg.hessian(fun)(np.array(x)), found[1:], rtol=1e-10)


ORDERS = [[(1, 0), (0, 1)], [(2, 0), (1, 1)], [(1, 1), (0, 2)]]


CLAMPED = {  # arguments for which SciPy's search ends at a bound
    "pdtrik": (0.2, 1.0),
    "bdtrik": (0.05, 8.0, 0.2),
    "nbdtrik": (0.01, 6.0, 0.5),
    "chndtrinc": (0.5, 3.0, 0.3),
    "fdtridfd": (0.5, 0.9, 0.3),
    "stdtridf": (0.99, 2.0),
}


@pytest.mark.parametrize("name", CLAMPED)
def test_inverses_have_no_slope_where_they_are_at_a_bound(name):
    fun, at = getattr(pytest.importorskip("scipy.special"), name), CLAMPED[name]
    for n in range(len(at)):
        if (name, n) == ("chndtrinc", 1):  # which is refused
            continue
        model = dg.delayed(lambda x: fun(*at[:n], x, *at[n + 1 :]))  # noqa: B023
        assert fun(*at[:n], 1.001 * at[n], *at[n + 1 :]) == fun(*at)
        assert dg.grad(model)(at[n]) == 0.0
        assert dg.jvp(model, (at[n],), (1.0,))[1] == 0.0


def legendre(m, v):
    return lambda x: mpmath.re(mpmath.legenp(v, m, x, type=2))


def ratio(above, below):
    """A quotient of gamma functions, whose arguments are functions of x."""
    return lambda x: mpmath.gammaprod([a(x) for a in above], [b(x) for b in below])


def constant(number):
    return lambda x: mpmath.mpf(number)


def plus(number):
    return lambda x: x + mpmath.mpf(number)


REGULAR = {  # functions of one number, by SciPy and by mpmath, and points near poles and ends
    "berp at 0": (lambda s, x: s.berp(x), lambda x: -(x**3) / 16, [0.0]),
    "beip at 0": (lambda s, x: s.beip(x), lambda x: x / 2, [0.0]),
    "kelvin at 0": (lambda s, x: np.imag(s.kelvin(x)[2]), lambda x: x / 2, [0.0]),
    "it2struve0": (lambda s, x: s.it2struve0(x), lambda x: -2 * x / mp.pi, [0.0]),
    "lpmv(0, 0)": (lambda s, x: s.lpmv(0, 0, x), lambda x: mpmath.mpf(1), [-1.0, 0.999, 1.0]),
    "lpmv(0, 3)": (lambda s, x: s.lpmv(0, 3, x), legendre(0, 3), [0.999, -0.99999999]),
    "lpmv(2, 3)": (lambda s, x: s.lpmv(2, 3, x), legendre(2, 3), [0.999, -0.99999999]),
    "lpmv(1, 2.5)": (lambda s, x: s.lpmv(1, 2.5, x), legendre(1, 2.5), [0.5, 0.999]),
    "lpmv at ends": (lambda s, x: s.lpmv(0, 3, x), lambda x: (5 * x**3 - 3 * x) / 2, [-1.0, 1.0]),
    "of 2": (lambda s, x: s.lpmv(2, 3, x), lambda x: 15 * x * (1 - x * x), [-1.0, 1.0]),
    "beta": (
        lambda s, x: s.beta(x, 2.0),
        ratio([plus(0), constant(2)], [plus(2)]),
        [-4.0, -1000.0, -1.0 - 1e-9, -4.0 + 1e-7, -3.5],
    ),
    "betaln": (
        lambda s, x: s.betaln(x, 2.0),
        lambda x: mpmath.log(abs(ratio([plus(0), constant(2)], [plus(2)])(x))),
        [-4.0, -1000.0, -4.0 + 1e-7, -3.5],
    ),
    "beta at a zero": (
        lambda s, x: s.beta(1.5, x),
        ratio([plus(0), constant(1.5)], [plus(1.5)]),
        [-7.5, -1.5, -2.3],
    ),
    "binom by n": (
        lambda s, x: s.binom(x, 2.0),
        lambda x: x * (x - 1) / 2,
        [-1.0 + 1e-9, -3.0 + 1e-8, 5.0, -2.5],
    ),
    "binom by k": (
        lambda s, x: s.binom(5.0, x),
        ratio([constant(6)], [plus(1), lambda x: 6 - x]),
        [-300.0, 300.0, 7.0, 2.0, 2.5],
    ),
    "poch": (
        lambda s, x: s.poch(x, 2.0),
        lambda x: x * (x + 1),
        [-4.0, -3.0 + 1e-9, -2.0, -3.3],
    ),
}


@pytest.mark.parametrize("name", REGULAR)
def test_derivatives_next_to_poles_and_at_ends_have_their_digits(name):
    fun, exact, at = REGULAR[name]
    special = pytest.importorskip("scipy.special")
    model = dg.delayed(lambda x: fun(special, x))
    with mp.workdps(60):
        step = mpmath.mpf(10) ** -20
        slopes = [float((exact(x + step) - exact(x - step)) / (2 * step)) for x in map(mp.mpf, at)]
    with np.errstate(all="ignore"):  # another part of kelvin is infinite
        found = [[dg.grad(model)(x), dg.jvp(model, (x,), (1.0,))[1]] for x in at]
    assert_allclose(found, np.transpose([slopes, slopes]), rtol=1e-7, atol=1e-15)
