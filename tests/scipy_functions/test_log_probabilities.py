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


def normal(y):
    return mp.erfc(-y / mp.sqrt(2)) / 2


def truncated(y, a, b):
    return (normal(y) - normal(a)) / (normal(b) - normal(a))


def summed(k, n, a, b):
    terms = [mp.binomial(n, m) * mp.beta(m + a, n - m + b) for m in range(int(k) + 1)]
    return mp.fsum(terms) / mp.beta(a, b)


CDF = {  # where SciPy's own tails lack digits; in mpmath's functions, of its numbers
    "fisk": lambda y, c: 1 / (1 + y**-c),
    "pareto": lambda y, b: 1 - y**-b,
    "truncnorm": truncated,
    "betabinom": summed,
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


def tails(name, x, shapes):
    """The probabilities up to a number and above it, each with all digits where it is small."""
    if name not in CDF:
        theirs = getattr(scipy.stats, name)
        return theirs.cdf(x, *shapes), theirs.sf(x, *shapes)
    with mp.workdps(60):
        cdf = CDF[name](mpf(x), *map(mpf, shapes))
        return float(cdf), float(1 - cdf)


WITH_CDF = [name for name, each in ALL.items() if has(each, "cdf")]
WITH_PDF = [name for name, each in ALL.items() if has(each, "pdf")]


@pytest.mark.parametrize("method", ["logcdf", "logsf"])
@in_short("name", WITH_CDF, *WITH_CDF[::3])
def test_values_in_both_tails(name, method):
    for shapes, numbers in places(name):
        for x in map(float, numbers):
            cdf, sf = tails(name, x, shapes)
            one, rest = (cdf, sf) if method == "logcdf" else (sf, cdf)
            expected = np.log(one) if one < 0.5 else np.log1p(-rest)
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
