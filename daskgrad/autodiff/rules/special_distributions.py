"""SciPy's distribution functions, and incomplete gamma and beta functions: slopes by all arguments.

The derivatives by the parameters are integrals, which Gauss and Legendre's rule takes with 96
values for each entry.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import autograd.numpy as anp
import numpy as np
from autograd.tracer import isbox

from daskgrad.autodiff.rules.declaration import kernel, plain, shape_of
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

# ------------------------------------------------------------ integrals over a half line, graded

NODES, WEIGHTS = np.polynomial.legendre.leggauss(96)
NODES, WEIGHTS = 0.5 * (NODES + 1.0), 0.5 * WEIGHTS
BLOCK = 128  # entries at once: their nodes fit into a cache
CUT = 45.0  # exp(-45) of the integrand is left away


def graded(end, near):
    """Nodes v and weights on (0, end), denser where v is below ``near``, the distance to the
    nearest singularity beyond zero: v = near · expm1(y), y in equal measure."""
    near = np.maximum(near, 1e-18 * end)  # closer singularities have no weight
    length = np.log1p(end / near)[..., None]
    y = length * NODES
    return near[..., None] * np.expm1(y), near[..., None] * np.exp(y) * length * WEIGHTS


def reach(slope, curvature):
    """A bound of the v at which an exponent reaches CUT, if it is above slope · v and curvature ·
    v² / (2 + 2v)."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        q = CUT / np.maximum(curvature, 1e-300)
        curved = q + np.sqrt(q * q + 2.0 * q)
        straight = CUT / np.maximum(slope, 1e-300)
    return np.minimum(straight, curved)


def total(values, weights):
    return anp.sum(values * weights, axis=-1)


def column(x):
    """With an axis more for the nodes."""
    return anp.reshape(x, (*anp.shape(x), 1))


def spread(*args):
    """Arguments in double precision and one shape."""
    shape = np.broadcast_shapes(*[shape_of(arg) for arg in args])
    return [arg * 1.0 + np.zeros(shape) for arg in args]


class Part(NamedTuple):
    """A formula, the entries for which it holds, and arguments for which it does."""

    there: np.ndarray
    formula: Callable
    some: tuple


def put_together(parts: Sequence[Part], *args: Any) -> Any:
    """The value of the formula that holds, zero where none does."""
    result: Any = 0.0
    if any(map(isbox, args)):
        for holds, formula, some in parts:
            if np.any(holds):
                safe = [anp.where(holds, arg, one) for arg, one in zip(args, some, strict=True)]
                result = result + anp.where(holds, formula(*safe), 0.0)
        return result
    result = np.zeros(np.shape(args[0]))
    for holds, formula, _ in parts:
        places = np.flatnonzero(holds)
        for block in np.split(places, range(BLOCK, len(places), BLOCK)):
            result.flat[block] = formula(*[np.ravel(arg)[block] for arg in args])
    return result[()]


# ------------------------------------------------------------------------------ incomplete gamma


def gamma_density(a, x):
    """d/dx P(a, x); by logarithms where autograd's quotient overflows."""
    if np.all(np.abs(plain(a)) <= 100.0) and np.all(np.abs(plain(x)) <= 500.0):
        return anp.exp(-x) * anp.power(x, a - 1) / special.gamma(a)
    return anp.exp(special.xlogy(a - 1.0, x) - x - special.gammaln(a))


TERMS = np.arange(20.0)


def series_by_a(a, x):
    """∂P/∂a for x up to 1, of P = exp(-x) Σ x^(a + n) / Γ(a + n + 1) (DLMF 8.7.1)."""
    powers = column(a) + TERMS
    log = column(anp.log(x))
    terms = anp.exp(powers * log - special.gammaln(powers + 1.0))
    return anp.exp(-x) * anp.sum(terms * (log - special.psi(powers + 1.0)), axis=-1)


def prefix(a, x):
    return anp.exp(a * anp.log(x) - x - special.gammaln(a))


def lower_by_a(a, x):
    """∂P/∂a for 1 ≤ x ≤ a: the integral to x, with t = x exp(-v)."""
    end = reach(plain(a) - plain(x), plain(x))
    v, weights = graded(end, end)
    values = anp.exp(column(x) * -np.expm1(-v) - column(a) * v)
    return prefix(a, x) * total(values * (column(anp.log(x) - special.psi(a)) - v), weights)


def upper_by_a(a, x):
    """-∂Q/∂a for x ≥ a, 1: the integral from x on, with t = x (1 + s)."""
    end = reach(plain(x) - np.maximum(plain(a) - 1.0, 0.0), plain(a) - 1.0)
    s, weights = graded(end, np.ones_like(end))
    log = np.log1p(s)
    values = anp.exp(column(a - 1.0) * log - column(x) * s)
    return -prefix(a, x) * total(values * (column(anp.log(x) - special.psi(a)) + log), weights)


@kernel  # zeros have another sign for boxes
def gamma_by_a(a, x):
    """∂P/∂a, in both tails; relative errors: 1e-13 for a below 100, 3e-11 for a up to 1e4."""
    a, x = spread(a, x)
    series = plain(x) <= 1.0
    lower = ~series & (plain(x) <= plain(a))
    upper = ~series & ~lower
    inside = plain(x) > 0.0
    parts = [
        Part(series & inside, series_by_a, (1.0, 0.5)),
        Part(lower, lower_by_a, (3.0, 2.0)),
        Part(upper, upper_by_a, (2.0, 3.0)),
    ]
    return put_together(parts, a, x)


GAMMA: Row = [lambda ans, a, x: gamma_by_a(a, x), lambda ans, a, x: gamma_density(a, x)]


def negative(row: Row) -> Row:
    """The slopes of the negative function, or of one minus the function."""

    def of(slope):
        return slope if isinstance(slope, str) else lambda ans, *args: -slope(ans, *args)

    return [of(slope) for slope in row]


# ------------------------------------------------------------------------------- incomplete beta


def beta_density(a, b, x):
    """d/dx I_x(a, b); by logarithms where autograd's quotient overflows."""
    if np.all(np.abs(plain(a)) <= 50.0) and np.all(np.abs(plain(b)) <= 50.0):
        return anp.power(x, a - 1) * anp.power(1 - x, b - 1) / special.beta(a, b)
    return anp.exp(special.xlogy(a - 1.0, x) + special.xlog1py(b - 1.0, -x) - special.betaln(a, b))


def beta_integral(by_b, a, b, x):
    """∂I/∂a or ∂I/∂b for x ≤ a / (a + b), with t = x exp(-v)."""
    plain_a, plain_b, plain_x = plain(a), plain(b), plain(x)
    gap = np.maximum(plain_b - 1.0, 0.0) * plain_x / (1.0 - plain_x)
    end = reach(plain_a - gap, np.maximum(gap, 0.0))
    end = np.where(plain_a > gap, end, reach(0.0 * gap, gap))
    v, weights = graded(end, np.minimum(-np.log(plain_x), end))
    t = column(x) * np.exp(-v)
    log = special.log1p(-t)
    values = anp.exp(column(b - 1.0) * (log - column(special.log1p(-x))) - column(a) * v)
    front = anp.exp(a * anp.log(x) + (b - 1.0) * special.log1p(-x) - special.betaln(a, b))
    if by_b:
        logs = log - column(special.psi(b) - special.psi(a + b))
    else:
        logs = column(anp.log(x) - special.psi(a) + special.psi(a + b)) - v
    return front * total(values * logs, weights)


@kernel  # zeros have another sign for boxes
def beta_by(a, b, x, by_b):
    """∂I/∂a or ∂I/∂b; relative errors: 1e-13 for parameters below 100, 2e-11 up to 1e4."""
    a, b, x = spread(a, b, x)
    inside = (plain(x) > 0.0) & (plain(x) < 1.0)
    lower = plain(x) * (plain(a) + plain(b)) <= plain(a)

    def mirrored(a, b, x):
        return -beta_integral(not by_b, b, a, 1.0 - x)

    parts = [
        Part(inside & lower, functools.partial(beta_integral, by_b), (2.0, 2.0, 0.3)),
        Part(inside & ~lower, mirrored, (2.0, 2.0, 0.7)),
    ]
    return put_together(parts, a, b, x)


BETA: Row = [
    lambda ans, a, b, x: beta_by(a, b, x, False),
    lambda ans, a, b, x: beta_by(a, b, x, True),
    lambda ans, a, b, x: beta_density(a, b, x),
]

enter(
    {
        "gammainc": GAMMA,
        "gammaincc": negative(GAMMA),
        "gammaincinv": inverse(GAMMA, 1),
        "gammainccinv": inverse(negative(GAMMA), 1),
        "betainc": BETA,
        "betaincc": negative(BETA),
        "betaincinv": inverse(BETA, 2),
        "betainccinv": inverse(negative(BETA), 2),
        "btdtria": inverse(BETA, 0),
        "btdtrib": inverse(BETA, 1),
    }
)

# ------------------------------------------------------------------------- numbers of events


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
        "pdtrik": inverse(BETWEEN, 0, lambda k, m: special.gammaincc(k + 1.0, m)),
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


def binomial_between(k, n, p):
    return special.betaincc(k + 1.0, n - k, p)


def negative_between(k, n, p):
    return special.betainc(n, k + 1.0, p)


enter(
    {
        "fdtr": F,
        "fdtrc": negative(F),
        "fdtri": inverse(F, 2),
        "fdtridfd": inverse(F, 1, special.fdtr),
        "stdtr": T,
        "stdtrit": inverse(T, 1),
        "stdtridf": inverse(T, 0, special.stdtr, 1e9),
        "bdtr": BINOMIAL,
        "bdtrc": [zero, *negative(BINOMIAL)[1:]],
        "bdtri": inverse(BINOMIAL, 2),
        "bdtrik": inverse(BINOMIAL_BETWEEN, 0, binomial_between),
        "bdtrin": inverse(BINOMIAL_BETWEEN, 1, binomial_between),
        "nbdtr": NEGATIVE,
        "nbdtrc": [zero, *negative(NEGATIVE)[1:]],
        "nbdtri": inverse(NEGATIVE, 2),
        "nbdtrik": inverse(NEGATIVE_BETWEEN, 0, negative_between),
        "nbdtrin": inverse(NEGATIVE_BETWEEN, 1, negative_between),
    }
)

# ------------------------------------------------------------------------------------- noncentral


def chi_density(x, df, nc):
    """The density of the noncentral chi-squared distribution."""
    half = 0.5 * df
    front = anp.exp(special.xlogy(half - 1.0, 0.5 * x) - 0.5 * (x + nc) - special.gammaln(half))
    return 0.5 * front * special.hyp0f1(half, 0.25 * nc * x)


POINT = "the point of a noncentral distribution"
NONCENTRAL: Row = [
    lambda ans, x, df, nc: chi_density(x, df, nc),
    PARAMETER,
    lambda ans, x, df, nc: -chi_density(x, df + 2.0, nc),
]

enter(
    {
        "chndtr": NONCENTRAL,
        "chndtrix": inverse(NONCENTRAL, 0, special.chndtr, least=0.0),
        "chndtrinc": inverse(NONCENTRAL, 2, special.chndtr),
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
