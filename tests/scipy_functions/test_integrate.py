"""``daskgrad.scipy.integrate``: SciPy's values; derivatives in both modes and of second order."""

import re

import numpy as np
import pytest
import scipy.integrate
from functions_checked import checking
from numpy.testing import assert_allclose

from daskgrad.scipy import integrate

check = checking(integrate, scipy.integrate)
random = np.random.default_rng(9)
Y = random.normal(size=(4, 5))
X = np.cumsum(random.uniform(0.5, 1.5, size=(4, 5)), axis=1)

# Of the module, either ours or SciPy's, and a matrix.
SAMPLES = {
    "trapezoid": lambda m, y: m.trapezoid(y, dx=0.3),
    "trapezoid of a list": lambda m, y: m.trapezoid([y[0, 0], y[1, 2] ** 2, 3.0]),
    "trapezoid at points": lambda m, y: m.trapezoid(y**2, X[:, 0], axis=0),
    "trapezoid by points": lambda m, y: m.trapezoid(Y, y),
    "trapezoid by points, in a row": lambda m, y: m.trapezoid(Y, y[0], axis=1),
    "trapezoid by dx": lambda m, y: m.trapezoid(Y, dx=y[0, 0]),
    "cumulative_trapezoid": lambda m, y: m.cumulative_trapezoid(y, dx=0.3, axis=0),
    "cumulative_trapezoid at points": lambda m, y: m.cumulative_trapezoid(y, X, initial=0),
    "cumulative_trapezoid by points": lambda m, y: m.cumulative_trapezoid(Y, y[1], initial=0),
    "simpson": lambda m, y: m.simpson(y, dx=0.3),
    "simpson, even": lambda m, y: m.simpson(y, dx=0.3, axis=0),
    "simpson at points": lambda m, y: m.simpson(y, X[0]),
    "simpson at points, even": lambda m, y: m.simpson(y**2, X.cumsum(axis=0), axis=0),
    "simpson by points": lambda m, y: m.simpson(Y, X[0] + 0.1 * y[0]),
    "simpson by points, even": lambda m, y: m.simpson(Y, X.cumsum(axis=0) + 0.1 * y, axis=0),
    "simpson of two": lambda m, y: m.simpson(y[:, :2], X[:, :2] + y[:, 2:4]),
    "simpson of one": lambda m, y: m.simpson(y[:, :1]) + y[:, 0],
    "simpson of the same points": lambda m, y: m.simpson(y, [0.0, 1.0, 1.0, 2.0, 2.0]),
    "simpson by dx": lambda m, y: m.simpson(Y, dx=y[0, 0]),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", SAMPLES)
def test_integrals_of_samples(name):
    check(SAMPLES[name], Y)


@pytest.mark.parametrize("count", range(1, 8))
def test_integrals_of_few_and_of_many_samples(count):
    y, x = Y.ravel()[:count], X[0, 0] + np.arange(count) ** 1.5
    for name in ("trapezoid", "simpson", "cumulative_trapezoid"):
        ours, theirs = getattr(integrate, name), getattr(scipy.integrate, name)
        assert_allclose(ours(y), theirs(y), rtol=1e-12, atol=1e-15)
        assert_allclose(ours(y, x=x), theirs(y, x=x), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.float64])
@pytest.mark.parametrize("count", [4, 5])
def test_integrals_of_samples_have_scipys_precision(dtype, count):
    y, x = (10.0 * Y[:, :count]).astype(dtype), X[0, :count].astype(np.float32)
    for fun in (
        lambda m: m.trapezoid(y),
        lambda m: m.trapezoid(y, x),
        lambda m: m.cumulative_trapezoid(y, x, initial=0),
        lambda m: m.simpson(y),
        lambda m: m.simpson(y, dx=3),
        lambda m: m.simpson(y, x),
    ):
        ours, theirs = fun(integrate), fun(scipy.integrate)
        assert ours.dtype == theirs.dtype
        assert_allclose(ours, theirs, rtol=10 * np.finfo(theirs.dtype).eps)


WRONG = {
    "simpson, other points": lambda m: m.simpson(Y, x=X[:, 0]),
    "simpson, points of other dimensions": lambda m: m.simpson(Y[0], x=X),
    "cumulative_trapezoid of nothing": lambda m: m.cumulative_trapezoid(np.zeros(0)),
    "cumulative_trapezoid from 1": lambda m: m.cumulative_trapezoid(Y, initial=1.0),
    "cumulative_trapezoid, other points": lambda m: m.cumulative_trapezoid(Y, X[:, 0]),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_samples_are_scipys_errors(case):
    with pytest.raises(ValueError, match=r".") as theirs:
        WRONG[case](scipy.integrate)
    with pytest.raises(ValueError, match=re.escape(str(theirs.value))):
        WRONG[case](integrate)
