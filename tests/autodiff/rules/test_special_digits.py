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
