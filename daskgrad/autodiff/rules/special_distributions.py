"""SciPy's distribution functions of statistics and their inverses: their slopes."""

import math
from typing import Any

import autograd.numpy as anp
import numpy as np

from daskgrad.autodiff.rules.declaration import plain, shape_of
from daskgrad.autodiff.rules.special import (
    COUNT,
    PARAMETER,
    Row,
    choose,
    enter,
    inverse,
    special,
    zero,
)
from daskgrad.autodiff.rules.special_incomplete import (
    beta_by,
    beta_density,
    gamma_by_a,
    gamma_density,
    negative,
)

POINT = "the point of a noncentral distribution"


def whole(k):
    """The integer that SciPy makes of a number of events: counts have the slope zero."""
    return np.floor(np.multiply(plain(k), 1.0))


# ----------------------------------------------------------------------------------- gamma family

CHI: Row = [
    lambda ans, v, x: 0.5 * gamma_by_a(0.5 * v, 0.5 * x),
    lambda ans, v, x: 0.5 * gamma_density(0.5 * v, 0.5 * x),
]
RATE: Row = [
    lambda ans, a, b, x: x * gamma_density(b, a * x),
    lambda ans, a, b, x: gamma_by_a(b, a * x),
    lambda ans, a, b, x: a * gamma_density(b, a * x),
]
POISSON: Row = [zero, lambda ans, k, m: -gamma_density(whole(k) + 1.0, m)]
BETWEEN: Row = [  # the Poisson distribution between whole numbers
    lambda ans, k, m: -gamma_by_a(k + 1.0, m),
    lambda ans, k, m: -gamma_density(k + 1.0, m),
]

enter(
    {
        "chdtr": CHI,
        "chdtrc": negative(CHI),
        "chdtri": inverse(negative(CHI), 1),
        "chdtriv": inverse(CHI, 0),
        "gdtr": RATE,
        "gdtrc": negative(RATE),
        "gdtria": inverse(RATE, 0),
        "gdtrib": inverse(RATE, 1),
        "gdtrix": inverse(RATE, 2),
        "pdtr": POISSON,
        "pdtrc": [zero, negative(POISSON)[1]],
        "pdtri": inverse(POISSON, 1),
        "pdtrik": inverse(BETWEEN, 0),
    }
)

# ------------------------------------------------------------------------------------ beta family


def f_slope(number: int) -> Any:
    def slope(ans, dfn, dfd, x):
        below = dfd + dfn * x
        w, unit = dfn * x / below, 1.0 / below**2  # the beta function's argument, its slope by odds
        a, b = 0.5 * dfn, 0.5 * dfd
        by_w = (x * dfd, -x * dfn, dfn * dfd)[number] * unit * beta_density(a, b, w)
        return by_w if number == 2 else by_w + 0.5 * beta_by(a, b, w, number == 1)

    return slope


F: Row = [f_slope(0), f_slope(1), f_slope(2)]


def t_density(ans, df, t):
    scale = special.gammaln(0.5 * (df + 1.0)) - special.gammaln(0.5 * df)
    power = -0.5 * (df + 1.0) * special.log1p(t**2 / df)
    return anp.exp(scale + power) / anp.sqrt(df * math.pi)


def t_by_df(ans, df, t):
    """From 1 - sign(t) I(df/2, 1/2; w) / 2 with w = df / (df + t²); at t = 0 from a straight line,
    which makes derivatives right up to the third."""
    at_zero = plain(t) == 0
    safe = anp.where(at_zero, 1.0, t)
    w = df / (df + safe**2)
    slope = 0.5 * beta_by(0.5 * df, 0.5, w, False)
    slope = slope + beta_density(0.5 * df, 0.5, w) * safe**2 / (df + safe**2) ** 2
    away = -0.5 * np.sign(plain(safe)) * slope
    if not np.any(at_zero):
        return away
    rate = 0.5 * (special.psi(0.5 * (df + 1.0)) - special.psi(0.5 * df) - 1.0 / df)
    return anp.where(at_zero, t * t_density(ans, df, 0.0) * rate, away)


T: Row = [t_by_df, t_density]
BINOMIAL: Row = [zero, COUNT, lambda ans, k, n, p: -beta_density(whole(k) + 1.0, n - whole(k), p)]
NEGATIVE: Row = [zero, COUNT, lambda ans, k, n, p: beta_density(1.0 * n, whole(k) + 1.0, p)]
BINOMIAL_BETWEEN: Row = [  # 1 - I(k + 1, n - k; p)
    lambda ans, k, n, p: beta_by(k + 1.0, n - k, p, True) - beta_by(k + 1.0, n - k, p, False),
    lambda ans, k, n, p: -beta_by(k + 1.0, n - k, p, True),
    lambda ans, k, n, p: -beta_density(k + 1.0, n - k, p),
]
NEGATIVE_BETWEEN: Row = [
    lambda ans, k, n, p: beta_by(n, k + 1.0, p, True),
    lambda ans, k, n, p: beta_by(n, k + 1.0, p, False),
    lambda ans, k, n, p: beta_density(n, k + 1.0, p),
]

enter(
    {
        "fdtr": F,
        "fdtrc": negative(F),
        "fdtri": inverse(F, 2),
        "fdtridfd": inverse(F, 1),
        "stdtr": T,
        "stdtrit": inverse(T, 1),
        "stdtridf": inverse(T, 0),
        "bdtr": BINOMIAL,
        "bdtrc": [zero, *negative(BINOMIAL)[1:]],
        "bdtri": inverse(BINOMIAL, 2),
        "bdtrik": inverse(BINOMIAL_BETWEEN, 0),
        "bdtrin": inverse(BINOMIAL_BETWEEN, 1),
        "nbdtr": NEGATIVE,
        "nbdtrc": [zero, *negative(NEGATIVE)[1:]],
        "nbdtri": inverse(NEGATIVE, 2),
        "nbdtrik": inverse(NEGATIVE_BETWEEN, 0),
        "nbdtrin": inverse(NEGATIVE_BETWEEN, 1),
    }
)

# ------------------------------------------------------------------------------------- noncentral


def chi_density(x, df, nc):
    """The density of the noncentral chi-squared distribution."""
    half = 0.5 * df
    front = anp.exp(special.xlogy(half - 1.0, 0.5 * x) - 0.5 * (x + nc) - special.gammaln(half))
    return 0.5 * front * special.hyp0f1(half, 0.25 * nc * x)


NONCENTRAL: Row = [
    lambda ans, x, df, nc: chi_density(x, df, nc),
    PARAMETER,
    lambda ans, x, df, nc: -chi_density(x, df + 2.0, nc),
]

enter(
    {
        "chndtr": NONCENTRAL,
        "chndtrix": inverse(NONCENTRAL, 0),
        "chndtrinc": inverse(NONCENTRAL, 2),
        "chndtridf": [POINT, PARAMETER, PARAMETER],
        "ncfdtr": [PARAMETER, PARAMETER, PARAMETER, POINT],
        "ncfdtri": [PARAMETER] * 4,
        "ncfdtridfd": [PARAMETER] * 3 + [POINT],
        "ncfdtridfn": [PARAMETER] * 3 + [POINT],
        "ncfdtrinc": [PARAMETER] * 3 + [POINT],
        "nctdtr": [PARAMETER, PARAMETER, POINT],
        "nctdtrit": [PARAMETER] * 3,
        "nctdtridf": [PARAMETER, PARAMETER, POINT],
        "nctdtrinc": [PARAMETER, PARAMETER, POINT],
    }
)

# ------------------------------------------------------------------------- Kolmogorov and Smirnov


def theta(x):
    """The slope by the series for small x (Jacobi's transformation of the other)."""
    total: Any = 0.0
    for odd in (1.0, 3.0, 5.0, 7.0):
        rate = (odd * math.pi) ** 2 / 8.0
        total = total + (1.0 / x**2 - 2.0 * rate / x**4) * anp.exp(-rate / x**2)
    return math.sqrt(2.0 * math.pi) * total


def alternating(x):
    total: Any = 0.0
    for n in range(1, 7):
        total = total - (-1.0) ** n * n**2 * anp.exp(-2.0 * n**2 * x**2)
    return -8.0 * x * total


def kolmogorov_slope(ans, x):
    slope = choose(plain(x) < 1.0, anp.where(plain(x) < 0.03, 0.5, x), theta, alternating, 0.5, 1.5)
    return anp.where(plain(x) < 0.03, 0.0, slope)


def smirnov_slope(ans, n, d):
    """From Σ C(n, v) d (d + v/n)^(v - 1) (1 - d - v/n)^(n - v), v up to n (1 - d)."""
    d = d + np.zeros(np.broadcast_shapes(shape_of(n), shape_of(d)))
    number = np.broadcast_to(np.asarray(n, float), shape_of(d))[..., None]
    d = anp.reshape(d, (*anp.shape(d), 1))
    v = np.arange(np.max(number, initial=0.0) + 1.0)
    counts = (v < number * (1.0 - plain(d))) & (plain(d) > 0.0)
    d = anp.where(counts, d, 0.5)
    v = np.where(counts, v, 0.0)
    up, down = d + v / number, 1.0 - d - v / number
    binomial = special.gammaln(number + 1.0) - special.gammaln(v + 1.0)
    binomial = binomial - special.gammaln(number - v + 1.0)
    terms = anp.exp(binomial + anp.log(d) + (v - 1.0) * anp.log(up) + (number - v) * anp.log(down))
    slopes = terms * (1.0 / d + (v - 1.0) / up - (number - v) / down)
    return anp.sum(anp.where(counts, slopes, 0.0), axis=-1)


SMIRNOV: Row = ["the number of values", smirnov_slope]

enter(
    {
        "kolmogorov": [kolmogorov_slope],
        "kolmogi": inverse([kolmogorov_slope], 0),
        "smirnov": SMIRNOV,
        "smirnovi": inverse(SMIRNOV, 1),
    }
)
