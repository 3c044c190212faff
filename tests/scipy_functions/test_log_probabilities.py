"""``logcdf`` and ``logsf`` of ``daskgrad.scipy.stats`` to relative precision, in both tails."""

import mpmath as mp
import numpy as np
import pytest
import scipy.stats
from lengths import in_short
from mpmath import mpf
from numpy.testing import assert_allclose
from test_stats import ALL, SHAPES, has

import daskgrad as dg
from daskgrad.scipy import stats
from daskgrad.scipy.distributions import Discrete

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
SMALL = 1e-13  # a probability whose digits one minus it does not have


def regular(a, low, high):
    return mp.gammainc(a, low, high, regularized=True)


def normal(y):
    return mp.erfc(-y / mp.sqrt(2)) / 2


def student(y, df):
    tail = mp.betainc(df / 2, mpf(1) / 2, 0, df / (df + y * y), regularized=True) / 2
    return tail if y < 0 else 1 - tail


def skewed(y, a):
    return mp.quad(lambda x: 2 * mp.npdf(x) * normal(a * x), [-mp.inf, -20, -5, 0, y])


def inverse_gauss(y, mu):
    root = mp.sqrt(y)
    return normal((y / mu - 1) / root) + mp.exp(2 / mu) * normal(-(y / mu + 1) / root)


def truncated(y, a, b):
    return (normal(y) - normal(a)) / (normal(b) - normal(a))


def summed(mass):
    return lambda k, *shapes: mp.fsum([mass(mpf(n), *shapes) for n in range(int(k) + 1)])


CDF = {  # in mpmath's functions, of its numbers
    "norm": normal,
    "cauchy": lambda y: mp.atan(y) / mp.pi + mpf(1) / 2,
    "laplace": lambda y: mp.exp(y) / 2 if y < 0 else 1 - mp.exp(-y) / 2,
    "logistic": lambda y: 1 / (1 + mp.exp(-y)),
    "gumbel_r": lambda y: mp.exp(-mp.exp(-y)),
    "gumbel_l": lambda y: -mp.expm1(-mp.exp(y)),
    "t": student,
    "skewnorm": skewed,
    "loggamma": lambda y, c: regular(c, 0, mp.exp(y)),
    "expon": lambda y: -mp.expm1(-y),
    "gamma": lambda y, a: regular(a, 0, y),
    "chi2": lambda y, df: regular(df / 2, 0, y / 2),
    "invgamma": lambda y, a: regular(a, 1 / y, mp.inf),
    "f": lambda y, n, d: mp.betainc(n / 2, d / 2, 0, n * y / (n * y + d), regularized=True),
    "lognorm": lambda y, s: normal(mp.log(y) / s),
    "weibull_min": lambda y, c: -mp.expm1(-(y**c)),
    "fisk": lambda y, c: 1 / (1 + y**-c),
    "halfnorm": lambda y: mp.erf(y / mp.sqrt(2)),
    "halfcauchy": lambda y: 2 * mp.atan(y) / mp.pi,
    "rayleigh": lambda y: -mp.expm1(-y * y / 2),
    "maxwell": lambda y: regular(mpf(3) / 2, 0, y * y / 2),
    "nakagami": lambda y, nu: regular(nu, 0, nu * y * y),
    "invgauss": inverse_gauss,
    "uniform": lambda y: y,
    "beta": lambda y, a, b: mp.betainc(a, b, 0, y, regularized=True),
    "powerlaw": lambda y, a: y**a,
    "pareto": lambda y, b: 1 - y**-b,
    "truncnorm": truncated,
    "bernoulli": lambda k, p: 1 - p if k < 1 else mpf(1),
    "binom": summed(lambda k, n, p: mp.binomial(n, k) * p**k * (1 - p) ** (n - k)),
    "poisson": summed(lambda k, mu: mp.exp(-mu) * mu**k / mp.factorial(k)),
    "nbinom": summed(lambda k, n, p: mp.binomial(k + n - 1, k) * p**n * (1 - p) ** k),
    "geom": lambda k, p: 1 - (1 - p) ** k,
    "betabinom": summed(
        lambda k, n, a, b: mp.binomial(n, k) * mp.beta(k + a, n - k + b) / mp.beta(a, b)
    ),
}
EXTREME = {  # shapes with which integers have a small probability, or nearly one
    "bernoulli": [(SMALL,), (1.0 - SMALL,)],
    "binom": [(20.0, 0.2), (20.0, 0.8), (3.0, 1e-14)],
    "poisson": [(2.6,), (40.0,), (1e-14,)],
    "nbinom": [(3.2, 0.4), (30.2, 0.3), (0.1, 0.05)],
    "geom": [(0.6,), (1e-14,)],
    "betabinom": [(20.0, 2.1, 40.0), (20.0, 40.0, 2.1)],
}


def places(name):
    """Shapes and numbers at which probabilities are small."""
    theirs = getattr(scipy.stats, name)
    for shapes in EXTREME.get(name, [SHAPES.get(name, ())]):
        if isinstance(ALL[name], Discrete):
            low, high = max(theirs.support(*shapes)[0], 0.0), theirs.isf(SMALL, *shapes)
            found = {low, low + 1.0, high - 1.0, high}
            yield shapes, [x for x in found if theirs.support(*shapes)[0] <= x]
        else:
            small = 0.2 if name == "skewnorm" else SMALL  # on its left digits are lost
            yield shapes, [*theirs.ppf([small, 0.2], *shapes), *theirs.isf([SMALL, 0.2], *shapes)]


WITH_CDF = [name for name, each in ALL.items() if has(each, "cdf")]
WITH_PDF = [name for name, each in ALL.items() if has(each, "pdf")]


@pytest.mark.parametrize("method", ["logcdf", "logsf"])
@in_short("name", WITH_CDF, *WITH_CDF[::3])
def test_values_in_both_tails(name, method):
    for shapes, numbers in places(name):
        for x in map(float, numbers):
            with mp.workdps(60):
                cdf = CDF[name](mpf(x), *map(mpf, shapes))
                expected = float(mp.log(cdf if method == "logcdf" else 1 - cdf))
            found = getattr(ALL[name], method)(x, *shapes)
            assert_allclose(found, expected, rtol=2e-11, err_msg=f"{shapes}, {x}")


@pytest.mark.parametrize("method", ["logcdf", "logsf"])
@in_short("name", WITH_PDF, *WITH_PDF[::3])
def test_slopes_in_both_tails(name, method):
    """The hazards, which are density over probability."""
    sign = 1.0 if method == "logcdf" else -1.0
    for shapes, numbers in places(name):
        for x in map(float, numbers):
            log = getattr(ALL[name], method)
            slope = dg.grad(dg.delayed(lambda x, log=log, shapes=shapes: log(x, *shapes)))(x)
            expected = sign * np.exp(ALL[name].logpdf(x, *shapes) - log(x, *shapes))
            assert_allclose(slope, expected, rtol=2e-9, err_msg=f"{shapes}, {x}")


def test_derivatives_at_the_bounds_are_one_sided_densities():
    bounds = (-0.7, 1.9)
    for x in bounds:
        density = stats.truncnorm.pdf(x, *bounds)
        for method, sign in (("cdf", 1.0), ("sf", -1.0)):
            fun = getattr(stats.truncnorm, method)
            slope = dg.grad(dg.delayed(lambda x, fun=fun: fun(x, *bounds)))(x)
            assert_allclose(slope, sign * density)


def test_a_truncated_distribution_between_near_bounds():
    """The difference of two probabilities of which each is nearly that at the other bound."""
    a, b = 0.3, 0.3 + 1e-9
    with mp.workdps(40):
        expected = mp.npdf(mpf(a)) / (normal(mpf(b)) - normal(mpf(a)))
    assert_allclose(stats.truncnorm.pdf(a, a, b), float(expected), rtol=1e-14)
