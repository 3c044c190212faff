"""Distributions, as in ``scipy.stats``: densities, probabilities and quantiles.

Location, scale and shapes are differentiated, and so is the number of a continuous distribution.
Methods: ``pdf``, ``logpdf`` (``pmf``, ``logpmf``), ``cdf``, ``sf``, ``logcdf``, ``logsf``, ``ppf``;
NotImplementedError for a method that a distribution lacks here. Formulas are from SciPy's
documentation. Logarithms of probabilities near one have all digits, too: they are ``log1p`` of the
other tail.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special as sc

from daskgrad.autodiff.rules.special_distributions import CUT
from daskgrad.autodiff.rules.special_distributions import NODES as TAIL_NODES
from daskgrad.autodiff.rules.special_distributions import WEIGHTS as TAIL_WEIGHTS
from daskgrad.autodiff.tape import value
from daskgrad.scipy.distributions import (
    ABOVE_ZERO,
    FINITE,
    POSITIVE,
    Continuous,
    Discrete,
    exact_near_one,
    is_count,
    is_probability,
    logarithm,
)
from daskgrad.scipy.distributions import dirichlet as dirichlet
from daskgrad.scipy.distributions import multinomial as multinomial
from daskgrad.scipy.distributions import multivariate_normal as multivariate_normal

LOG_2, LOG_PI = np.log(2.0), np.log(np.pi)
LOG_ROOT_2_PI = 0.5 * np.log(2.0 * np.pi)
UNIT = (0.0, 1.0)
NODES, WEIGHTS = np.polynomial.legendre.leggauss(10)
UNIT_NODES, UNIT_WEIGHTS = 0.5 * (NODES + 1.0), 0.5 * WEIGHTS


def normal_logpdf(y: Any) -> Any:
    return -0.5 * y**2 - LOG_ROOT_2_PI


# ------------------------------------------------------------------------------- of all numbers

norm = Continuous(
    "norm",
    logpdf=normal_logpdf,
    cdf=sc.ndtr,
    sf=lambda y: sc.ndtr(-y),
    logcdf=sc.log_ndtr,
    logsf=lambda y: sc.log_ndtr(-y),
    ppf=sc.ndtri,
)


def cauchy_ppf(q: Any) -> Any:
    """Keeps digits: by the tail near the ends, by the distance from one half in the middle."""
    is_above, is_middle = q > 0.5, np.abs(value(q) - 0.5) < 0.25
    tail = np.where(is_middle, 0.25, np.where(is_above, 1.0 - q, q))
    with np.errstate(divide="ignore"):  # the ends
        outer = np.where(is_above, 1.0, -1.0) / np.tan(np.pi * tail)
    return np.where(is_middle, np.tan(np.pi * (np.where(is_middle, q, 0.5) - 0.5)), outer)


def halfcauchy_ppf(q: Any) -> Any:
    is_tail = q > 0.5
    size = np.tan(0.5 * np.pi * np.where(is_tail, 1.0 - q, q))
    with np.errstate(divide="ignore"):
        return np.where(is_tail, 1.0 / np.where(is_tail, size, 1.0), size)


cauchy = Continuous(
    "cauchy",
    logpdf=lambda y: -LOG_PI - np.log1p(y**2),
    cdf=lambda y: np.arctan2(1.0, -y) / np.pi,
    sf=lambda y: np.arctan2(1.0, y) / np.pi,
    ppf=cauchy_ppf,
)


def size(y: Any) -> Any:
    """The absolute value; at zero, with its left derivative."""
    return np.where(y > 0.0, y, -y)


laplace = Continuous(
    "laplace",
    logpdf=lambda y: -np.abs(y) - LOG_2,
    cdf=lambda y: np.where(y > 0.0, 1.0 - 0.5 * np.exp(-size(y)), 0.5 * np.exp(-size(y))),
    sf=lambda y: np.where(y > 0.0, 0.5 * np.exp(-size(y)), 1.0 - 0.5 * np.exp(-size(y))),
    ppf=lambda q: np.where(q > 0.5, -np.log(2.0 * (1.0 - q)), np.log(2.0 * q)),
)
logistic = Continuous(
    "logistic",
    logpdf=lambda y: sc.log_expit(y) + sc.log_expit(-y),
    cdf=sc.expit,
    sf=lambda y: sc.expit(-y),
    logcdf=sc.log_expit,
    logsf=lambda y: sc.log_expit(-y),
    ppf=sc.logit,
)
gumbel_r = Continuous(
    "gumbel_r",
    support=FINITE,
    logpdf=lambda y: -y - np.exp(-y),
    cdf=lambda y: np.exp(-np.exp(-y)),
    sf=lambda y: -np.expm1(-np.exp(-y)),
    logcdf=lambda y: -np.exp(-y),
    ppf=lambda q: -np.log(-np.log(q)),
)
gumbel_l = Continuous(
    "gumbel_l",
    support=FINITE,
    logpdf=lambda y: y - np.exp(y),
    cdf=lambda y: -np.expm1(-np.exp(y)),
    sf=lambda y: np.exp(-np.exp(y)),
    logsf=lambda y: -np.exp(y),
    ppf=lambda q: np.log(-np.log1p(-q)),
)


t = Continuous(
    "t",
    "df",
    logpdf=lambda y, df: (
        -sc.betaln(0.5 * df, 0.5) - 0.5 * np.log(df) - 0.5 * (df + 1.0) * np.log1p(y**2 / df)
    ),
    cdf=lambda y, df: sc.stdtr(df, y),
    sf=lambda y, df: sc.stdtr(df, -y),
    ppf=lambda q, df: np.where(q > 0.0, sc.stdtrit(df, np.where(q > 0.0, q, 0.5)), -np.inf),
)


def log_short_tail(h: Any, a: Any) -> Any:
    """The logarithm of the skew normal probability below -h, for h and a above zero.

    It is the integral of φ(t) erfc(a t / √2) from h on; the part of it that vanishes is taken out,
    and Gauss and Legendre's rule has the rest.
    """
    slope = np.sqrt(1.0 + a**2)
    start = value(slope * h)
    end = 2.0 * CUT / (start + np.sqrt(start**2 + 2.0 * CUT))
    u = np.expand_dims(end, -1) * TAIL_NODES
    h, a, c = (np.expand_dims(argument, -1) for argument in (h, a, slope))
    rest = np.exp(-c * h * u - 0.5 * u**2) * sc.erfcx(a * (h + u / c) / np.sqrt(2.0))
    integral = end * np.dot(rest, TAIL_WEIGHTS)
    return normal_logpdf(slope * h[..., 0]) + np.log(integral / slope)


def is_lost(y: Any, a: Any, cdf: Any) -> Any:
    """Whether the short tail's probability is a difference without digits."""
    return np.greater(a, 0.0) & np.less(cdf, 0.1 * sc.ndtr(y))


def skewnorm_cdf(y: Any, a: Any) -> Any:
    cdf = sc.ndtr(y) - 2.0 * sc.owens_t(y, a)
    is_short = is_lost(value(y), value(a), value(cdf))
    if not np.any(is_short):
        return cdf
    tail = np.exp(log_short_tail(np.where(is_short, np.abs(y), 1.0), np.where(is_short, a, 1.0)))
    between = sc.erf(np.where(value(y) > 0.0, y, 0.0) / np.sqrt(2.0))
    return np.where(is_short, tail + between, cdf)


def skewnorm_logcdf(y: Any, a: Any) -> Any:
    """Far out by the logarithms of the short tail and of the normal one."""
    cdf = skewnorm_cdf(y, a)
    is_far = np.less(value(y), 0.0) & np.less(value(cdf), 1e-200)
    log = logarithm(np.where(is_far, 1.0, cdf), skewnorm_cdf(-y, -a))
    if not np.any(is_far):
        return log
    y, a = np.where(is_far, y, -40.0), np.where(is_far, a, 1.0)
    short, normal = log_short_tail(-y, np.abs(a)), sc.log_ndtr(y)
    long = normal + np.log(2.0 - np.exp(short - normal))
    return np.where(is_far, np.where(value(a) > 0.0, short, long), log)


skewnorm = Continuous(
    "skewnorm",
    "a",
    valid=np.isfinite,
    logpdf=lambda y, a: LOG_2 + normal_logpdf(y) + sc.log_ndtr(a * y),
    cdf=skewnorm_cdf,
    sf=lambda y, a: skewnorm_cdf(-y, -a),
    logcdf=skewnorm_logcdf,
    logsf=lambda y, a: skewnorm_logcdf(-y, -a),
)
loggamma = Continuous(
    "loggamma",
    "c",
    support=FINITE,
    logpdf=lambda y, c: c * y - np.exp(y) - sc.gammaln(c),
    cdf=lambda y, c: sc.gammainc(c, np.exp(y)),
    sf=lambda y, c: sc.gammaincc(c, np.exp(y)),
    ppf=lambda q, c: np.log(sc.gammaincinv(c, q)),
)

# -------------------------------------------------------------------------- of positive numbers

expon = Continuous(
    "expon",
    support=POSITIVE,
    logpdf=lambda y: -y,
    cdf=lambda y: -np.expm1(-y),
    sf=lambda y: np.exp(-y),
    logsf=lambda y: -y,
    ppf=lambda q: -np.log1p(-q),
)
gamma = Continuous(
    "gamma",
    "a",
    support=POSITIVE,
    logpdf=lambda y, a: sc.xlogy(a - 1.0, y) - y - sc.gammaln(a),
    cdf=lambda y, a: sc.gammainc(a, y),
    sf=lambda y, a: sc.gammaincc(a, y),
    ppf=lambda q, a: sc.gammaincinv(a, q),
)
chi2 = Continuous(
    "chi2",
    "df",
    support=POSITIVE,
    logpdf=lambda y, df: (
        sc.xlogy(0.5 * df - 1.0, y) - 0.5 * y - sc.gammaln(0.5 * df) - 0.5 * df * LOG_2
    ),
    cdf=lambda y, df: sc.chdtr(df, y),
    sf=lambda y, df: sc.chdtrc(df, y),
    ppf=lambda q, df: 2.0 * sc.gammaincinv(0.5 * df, q),
)
invgamma = Continuous(
    "invgamma",
    "a",
    support=ABOVE_ZERO,
    logpdf=lambda y, a: -(a + 1.0) * np.log(y) - sc.gammaln(a) - 1.0 / y,
    cdf=lambda y, a: sc.gammaincc(a, 1.0 / y),
    sf=lambda y, a: sc.gammainc(a, 1.0 / y),
    ppf=lambda q, a: 1.0 / sc.gammainccinv(a, q),
)
f = Continuous(
    "f",
    "dfn dfd",
    support=POSITIVE,
    logpdf=lambda y, n, d: (
        0.5 * n * np.log(n / d)
        + sc.xlogy(0.5 * n - 1.0, y)
        - 0.5 * (n + d) * np.log1p(n / d * y)
        - sc.betaln(0.5 * n, 0.5 * d)
    ),
    cdf=lambda y, n, d: sc.fdtr(n, d, y),
    sf=lambda y, n, d: sc.fdtrc(n, d, y),
    ppf=lambda q, n, d: sc.fdtri(n, d, q),
)
lognorm = Continuous(
    "lognorm",
    "s",
    support=ABOVE_ZERO,
    logpdf=lambda y, s: normal_logpdf(np.log(y) / s) - np.log(s * y),
    cdf=lambda y, s: sc.ndtr(np.log(y) / s),
    sf=lambda y, s: sc.ndtr(-np.log(y) / s),
    logcdf=lambda y, s: sc.log_ndtr(np.log(y) / s),
    logsf=lambda y, s: sc.log_ndtr(-np.log(y) / s),
    ppf=lambda q, s: np.exp(s * sc.ndtri(q)),
)
weibull_min = Continuous(
    "weibull_min",
    "c",
    support=POSITIVE,
    logpdf=lambda y, c: np.log(c) + sc.xlogy(c - 1.0, y) - y**c,
    cdf=lambda y, c: -np.expm1(-(y**c)),
    sf=lambda y, c: np.exp(-(y**c)),
    logsf=lambda y, c: -(y**c),
    ppf=lambda q, c: (-np.log1p(-q)) ** (1.0 / c),
)
fisk = Continuous(
    "fisk",
    "c",
    support=ABOVE_ZERO,
    logpdf=lambda y, c: np.log(c) + (c - 1.0) * np.log(y) - 2.0 * np.log1p(y**c),
    cdf=lambda y, c: sc.expit(c * np.log(y)),
    sf=lambda y, c: sc.expit(-c * np.log(y)),
    logcdf=lambda y, c: sc.log_expit(c * np.log(y)),
    logsf=lambda y, c: sc.log_expit(-c * np.log(y)),
    ppf=lambda q, c: (q / (1.0 - q)) ** (1.0 / c),
)
halfnorm = Continuous(
    "halfnorm",
    support=POSITIVE,
    logpdf=lambda y: LOG_2 + normal_logpdf(y),
    cdf=lambda y: sc.erf(y / np.sqrt(2.0)),
    sf=lambda y: sc.erfc(y / np.sqrt(2.0)),
    logsf=lambda y: exact_near_one(LOG_2 + sc.log_ndtr(-y), sc.erf(y / np.sqrt(2.0))),
    ppf=lambda q: sc.ndtri(0.5 * (1.0 + q)),
)
halfcauchy = Continuous(
    "halfcauchy",
    support=POSITIVE,
    logpdf=lambda y: LOG_2 - LOG_PI - np.log1p(y**2),
    cdf=lambda y: 2.0 / np.pi * np.arctan(y),
    sf=lambda y: 2.0 / np.pi * np.arctan2(1.0, y),
    ppf=halfcauchy_ppf,
)
rayleigh = Continuous(
    "rayleigh",
    support=POSITIVE,
    logpdf=lambda y: np.log(y) - 0.5 * y**2,
    cdf=lambda y: -np.expm1(-0.5 * y**2),
    sf=lambda y: np.exp(-0.5 * y**2),
    logsf=lambda y: -0.5 * y**2,
    ppf=lambda q: np.sqrt(-2.0 * np.log1p(-q)),
)
maxwell = Continuous(
    "maxwell",
    support=POSITIVE,
    logpdf=lambda y: LOG_2 + normal_logpdf(y) + 2.0 * np.log(y),
    cdf=lambda y: sc.gammainc(1.5, 0.5 * y**2),
    sf=lambda y: sc.gammaincc(1.5, 0.5 * y**2),
    ppf=lambda q: np.sqrt(2.0 * sc.gammaincinv(1.5, q)),
)
nakagami = Continuous(
    "nakagami",
    "nu",
    support=POSITIVE,
    logpdf=lambda y, nu: (
        LOG_2 + sc.xlogy(nu, nu) - sc.gammaln(nu) + (2.0 * nu - 1.0) * np.log(y) - nu * y**2
    ),
    cdf=lambda y, nu: sc.gammainc(nu, nu * y**2),
    sf=lambda y, nu: sc.gammaincc(nu, nu * y**2),
    ppf=lambda q, nu: np.sqrt(sc.gammaincinv(nu, q) / nu),
)


def invgauss_cdf(y: Any, mu: Any) -> Any:
    second = np.exp(2.0 / mu + sc.log_ndtr(-(y / mu + 1.0) / np.sqrt(y)))
    return sc.ndtr((y / mu - 1.0) / np.sqrt(y)) + second


def invgauss_tail(y: Any, mu: Any) -> Any:
    """A difference of two probabilities by their logarithms, since both are small in the tail."""
    first = sc.log_ndtr(-(y / mu - 1.0) / np.sqrt(y))
    second = 2.0 / mu + sc.log_ndtr(-(y / mu + 1.0) / np.sqrt(y))
    return first + np.log1p(-np.exp(second - first))


invgauss = Continuous(
    "invgauss",
    "mu",
    support=ABOVE_ZERO,
    logpdf=lambda y, mu: -LOG_ROOT_2_PI - 1.5 * np.log(y) - 0.5 * (y - mu) ** 2 / (y * mu**2),
    cdf=invgauss_cdf,
    sf=lambda y, mu: np.exp(invgauss_tail(y, mu)),
    logsf=lambda y, mu: exact_near_one(invgauss_tail(y, mu), invgauss_cdf(y, mu)),
)

# ------------------------------------------------------------------------------ between bounds

uniform = Continuous(
    "uniform",
    support=UNIT,
    logpdf=lambda y: 0.0 * y,
    cdf=lambda y: y,
    sf=lambda y: 1.0 - y,
    ppf=lambda q: q,
)
beta = Continuous(
    "beta",
    "a b",
    support=UNIT,
    logpdf=lambda y, a, b: sc.xlogy(a - 1.0, y) + sc.xlog1py(b - 1.0, -y) - sc.betaln(a, b),
    cdf=lambda y, a, b: sc.betainc(a, b, y),
    sf=lambda y, a, b: sc.betainc(b, a, 1.0 - y),
    ppf=lambda q, a, b: sc.betaincinv(a, b, q),
)
powerlaw = Continuous(
    "powerlaw",
    "a",
    support=UNIT,
    logpdf=lambda y, a: np.log(a) + sc.xlogy(a - 1.0, y),
    cdf=lambda y, a: y**a,
    sf=lambda y, a: -np.expm1(a * np.log(y)),
    logcdf=lambda y, a: a * np.log(y),
    ppf=lambda q, a: q ** (1.0 / a),
)
pareto = Continuous(
    "pareto",
    "b",
    support=(1.0, np.inf),
    inside=2.0,
    logpdf=lambda y, b: np.log(b) - (b + 1.0) * np.log(y),
    cdf=lambda y, b: -np.expm1(-b * np.log(y)),
    sf=lambda y, b: y**-b,
    logsf=lambda y, b: -b * np.log(y),
    ppf=lambda q, b: (1.0 - q) ** (-1.0 / b),
)


def scaled_mass(a: Any, b: Any) -> tuple[Any, Any]:
    """The logarithm of a scale, and the normal probability between ``a`` and ``b`` over the scale.

    The scale is the probability of the smaller tail with both. If they are so near each other that
    tails would cancel, it is the density at ``a``, and the integral is a sum over nodes.
    """
    is_right, is_near = value(a) > 0.0, (value(b) - value(a)) * (1.0 + np.abs(value(a))) < 0.5
    low, high = np.where(is_right, -b, a), np.where(is_right, -a, b)
    above, below = sc.log_ndtr(high), sc.log_ndtr(low)
    start, width = np.where(is_near, a, 0.0), np.where(is_near, b - a, 0.0)
    steps = np.expand_dims(width, -1) * UNIT_NODES
    ratios = np.exp(-steps * (np.expand_dims(start, -1) + 0.5 * steps))
    return (
        np.where(is_near, normal_logpdf(start), above),
        np.where(is_near, width * np.dot(ratios, UNIT_WEIGHTS), -np.expm1(below - above)),
    )


def log_mass(a: Any, b: Any) -> Any:
    """The logarithm of the normal probability between ``a`` and ``b``."""
    scale, mass = scaled_mass(a, b)
    return scale + np.log(mass)


def part_of_mass(low: Any, high: Any, a: Any, b: Any) -> Any:
    """The probability between ``low`` and ``high``, as a part of that between ``a`` and ``b``."""
    scale, mass = scaled_mass(low, high)
    return mass * np.exp(scale - log_mass(a, b))


def truncnorm_ppf(q: Any, a: Any, b: Any) -> Any:
    """By logarithms of the probabilities in the tail near the bounds."""
    is_right = a > 0.0
    log = np.logaddexp(
        sc.log_ndtr(np.where(is_right, -b, a)),
        np.where(is_right, np.log1p(-q), np.log(q)) + log_mass(a, b),
    )
    return np.where(is_right, -1.0, 1.0) * sc.ndtri_exp(log)


truncnorm = Continuous(
    "truncnorm",
    "a b",
    support=lambda a, b: (a, b),
    valid=np.less,
    logpdf=lambda y, a, b: normal_logpdf(y) - log_mass(a, b),
    logcdf=lambda y, a, b: exact_near_one(
        log_mass(a, y) - log_mass(a, b), part_of_mass(y, b, a, b)
    ),
    logsf=lambda y, a, b: exact_near_one(log_mass(y, b) - log_mass(a, b), part_of_mass(a, y, a, b)),
    cdf=lambda y, a, b: part_of_mass(a, y, a, b),
    sf=lambda y, a, b: part_of_mass(y, b, a, b),
    ppf=truncnorm_ppf,
)

# --------------------------------------------------------------------------------- of integers


def log_binomial(n: Any, k: Any) -> Any:
    """The logarithm of n over k."""
    return -np.log1p(n) - sc.betaln(n - k + 1.0, k + 1.0)


bernoulli = Discrete(
    "bernoulli",
    "p",
    valid=is_probability,
    support=UNIT,
    inside=0.0,
    logpmf=lambda k, p: sc.xlogy(k, p) + sc.xlog1py(1.0 - k, -p),
    cdf=lambda k, p: np.where(k < 1.0, 1.0 - p, 1.0),
    sf=lambda k, p: np.where(k < 1.0, p, 0.0),
)
binom = Discrete(
    "binom",
    "n p",
    valid=lambda n, p: is_count(n) & is_probability(p),
    support=lambda n, p: (0.0, n),
    inside=0.0,
    logpmf=lambda k, n, p: log_binomial(n, k) + sc.xlogy(k, p) + sc.xlog1py(n - k, -p),
    cdf=lambda k, n, p: np.where(
        k < n, sc.betainc(np.where(k < n, n - k, 1.0), k + 1.0, 1.0 - p), 1.0
    ),
    sf=lambda k, n, p: np.where(k < n, sc.betainc(k + 1.0, np.where(k < n, n - k, 1.0), p), 0.0),
)
poisson = Discrete(
    "poisson",
    "mu",
    valid=lambda mu: np.greater_equal(mu, 0.0),
    support=POSITIVE,
    inside=0.0,
    logpmf=lambda k, mu: sc.xlogy(k, mu) - sc.gammaln(k + 1.0) - mu,
    cdf=lambda k, mu: sc.pdtr(k, mu),
    sf=lambda k, mu: sc.pdtrc(k, mu),
)
nbinom = Discrete(
    "nbinom",
    "n p",
    valid=lambda n, p: np.greater(n, 0.0) & np.greater(p, 0.0) & np.less_equal(p, 1.0),
    support=POSITIVE,
    inside=0.0,
    logpmf=lambda k, n, p: (
        sc.gammaln(n + k) - sc.gammaln(k + 1.0) - sc.gammaln(n) + n * np.log(p) + sc.xlog1py(k, -p)
    ),
    cdf=lambda k, n, p: sc.betainc(n, k + 1.0, p),
    sf=lambda k, n, p: sc.betainc(k + 1.0, n, 1.0 - p),
)
geom = Discrete(
    "geom",
    "p",
    valid=lambda p: np.greater(p, 0.0) & np.less_equal(p, 1.0),
    support=(1.0, np.inf),
    inside=1.0,
    logpmf=lambda k, p: sc.xlog1py(k - 1.0, -p) + np.log(p),
    cdf=lambda k, p: -np.expm1(k * np.log1p(-p)),
    sf=lambda k, p: np.exp(k * np.log1p(-p)),
    logsf=lambda k, p: k * np.log1p(-p),
)


def betabinom_logpmf(k: Any, n: Any, a: Any, b: Any) -> Any:
    return log_binomial(n, k) + sc.betaln(k + a, n - k + b) - sc.betaln(a, b)


def betabinom_sum(is_wanted: Callable) -> Callable:
    """The probability of the wanted numbers of all from zero to n."""

    def total(k: Any, n: Any, a: Any, b: Any) -> Any:
        k, n, a, b = (np.expand_dims(argument, -1) for argument in (k, n, a, b))
        number = np.arange(np.max(value(n), initial=0.0) + 1.0)
        is_term = is_wanted(number, k) & (number <= value(n))
        logs = betabinom_logpmf(np.where(is_term, number, 0.0), n, a, b)
        return np.sum(np.where(is_term, np.exp(logs), 0.0), axis=-1)

    return total


betabinom = Discrete(
    "betabinom",
    "n a b",
    valid=lambda n, a, b: is_count(n) & np.greater(a, 0.0) & np.greater(b, 0.0),
    support=lambda n, a, b: (0.0, n),
    inside=0.0,
    logpmf=betabinom_logpmf,
    cdf=betabinom_sum(np.less_equal),
    sf=betabinom_sum(np.greater),
)
