"""SciPy's gamma, beta and zeta functions and exponential integrals: their slopes.

The derivatives of incomplete gamma and beta functions by their parameters are integrals, which
Gauss and Legendre's rule takes with ``NODES`` values for each entry.
"""

import math
from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.scipy import special as autograds
from scipy.special import bernoulli

from daskgrad.backends.autograd.rules.declaration import Refusal, equivalent, plain
from daskgrad.backends.autograd.rules.slopes import (
    Row,
    choose,
    enter,
    inverse,
    polynomial,
    special,
)

# ------------------------------------------------------------ integrals over a half line, graded

NODES, WEIGHTS = np.polynomial.legendre.leggauss(96)
NODES, WEIGHTS = 0.5 * (NODES + 1.0), 0.5 * WEIGHTS
CUT = 45.0  # exp(-45) of the integrand is left away


def graded(end: Any, near: Any) -> tuple[Any, Any]:
    """Nodes v and weights on (0, end), denser where v is below ``near``, the distance to the
    nearest singularity beyond zero: v = near · expm1(y), y in equal measure."""
    length = np.log1p(end / near)[..., None]
    y = length * NODES
    return near[..., None] * np.expm1(y), near[..., None] * np.exp(y) * length * WEIGHTS


def reach(slope: Any, curvature: Any) -> Any:
    """Where an exponent that is above slope · v and curvature · v² / (2 + 2v) gets to CUT."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        q = CUT / np.maximum(curvature, 1e-300)
        curved = q + np.sqrt(q * q + 2.0 * q)
        straight = CUT / np.maximum(slope, 1e-300)
    return np.minimum(np.minimum(straight, curved), 1e8)


def total(values: Any, weights: Any) -> Any:
    return anp.sum(values * weights, axis=-1)


def column(x: Any) -> Any:
    """With an axis more for the nodes."""
    return anp.reshape(x, (*anp.shape(x), 1))


def spread(*args: Any) -> list[Any]:
    """Arguments in double precision and one shape."""
    shape = np.broadcast_shapes(*[np.shape(plain(arg)) for arg in args])
    return [arg * 1.0 + np.zeros(shape) for arg in args]


# ------------------------------------------------------------------------------ incomplete gamma


def gamma_density(a: Any, x: Any) -> Any:
    """d/dx P(a, x); by logarithms where autograd's quotient overflows."""
    if np.all(np.abs(plain(a)) <= 100.0) and np.all(np.abs(plain(x)) <= 500.0):
        return anp.exp(-x) * anp.power(x, a - 1) / special.gamma(a)
    return anp.exp(special.xlogy(a - 1.0, x) - x - special.gammaln(a))


TERMS = np.arange(20.0)


def series_by_a(a: Any, x: Any) -> Any:
    """∂P/∂a for x up to 1, of P = exp(-x) Σ x^(a + n) / Γ(a + n + 1) (DLMF 8.7.1)."""
    powers = column(a) + TERMS
    log = column(anp.log(x))
    terms = anp.exp(powers * log - special.gammaln(powers + 1.0))
    return anp.exp(-x) * anp.sum(terms * (log - special.psi(powers + 1.0)), axis=-1)


def prefix(a: Any, x: Any) -> Any:
    return anp.exp(a * anp.log(x) - x - special.gammaln(a))


def lower_by_a(a: Any, x: Any) -> Any:
    """∂P/∂a for 1 ≤ x ≤ a: the integral to x, with t = x exp(-v)."""
    end = reach(plain(a) - plain(x), plain(x))
    v, weights = graded(end, end)
    values = anp.exp(column(x) * -np.expm1(-v) - column(a) * v)
    return prefix(a, x) * total(values * (column(anp.log(x) - special.psi(a)) - v), weights)


def upper_by_a(a: Any, x: Any) -> Any:
    """-∂Q/∂a for x ≥ a, 1: the integral from x on, with t = x (1 + s)."""
    end = reach(plain(x) - np.maximum(plain(a) - 1.0, 0.0), plain(a) - 1.0)
    s, weights = graded(end, np.ones_like(end))
    log = np.log1p(s)
    values = anp.exp(column(a - 1.0) * log - column(x) * s)
    return -prefix(a, x) * total(values * (column(anp.log(x) - special.psi(a)) + log), weights)


def gamma_by_a(a: Any, x: Any) -> Any:
    """∂P/∂a, in both tails; relative errors: 1e-13 for a below 100, 3e-11 for a up to 1e4."""
    a, x = spread(a, x)
    series = plain(x) <= 1.0
    lower = ~series & (plain(x) <= plain(a))
    upper = ~series & ~lower
    inside = plain(x) > 0.0
    parts = [
        (series & inside, series_by_a, 1.0, 0.5),
        (lower, lower_by_a, 3.0, 2.0),
        (upper, upper_by_a, 2.0, 3.0),
    ]
    found: Any = 0.0
    for there, integral, some_a, some_x in parts:
        if np.any(there):
            part = integral(anp.where(there, a, some_a), anp.where(there, x, some_x))
            found = found + anp.where(there, part, 0.0)
    return found


GAMMA: Row = [
    lambda ans, a, x: gamma_by_a(a, x),
    lambda ans, a, x: gamma_density(a, x),
]


def negative(row: Row) -> Row:
    """The slopes of the negative function, or of what is left to one."""

    def of(slope: Any) -> Any:
        return slope if isinstance(slope, str) else lambda ans, *args: -slope(ans, *args)

    return [of(slope) for slope in row]


# ------------------------------------------------------------------------------- incomplete beta


def beta_density(a: Any, b: Any, x: Any) -> Any:
    """d/dx I_x(a, b); by logarithms where autograd's quotient overflows."""
    if np.all(np.abs(plain(a)) <= 50.0) and np.all(np.abs(plain(b)) <= 50.0):
        return anp.power(x, a - 1) * anp.power(1 - x, b - 1) / special.beta(a, b)
    return anp.exp(special.xlogy(a - 1.0, x) + special.xlog1py(b - 1.0, -x) - special.betaln(a, b))


def beta_integral(by_b: bool, a: Any, b: Any, x: Any) -> Any:
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


def beta_by(a: Any, b: Any, x: Any, by_b: bool) -> Any:
    """∂I/∂a or ∂I/∂b; relative errors: 1e-13 for parameters below 100, 2e-11 up to 1e4."""
    a, b, x = spread(a, b, x)
    inside = (plain(x) > 0.0) & (plain(x) < 1.0)
    lower = plain(x) * (plain(a) + plain(b)) <= plain(a)
    found: Any = 0.0
    if np.any(inside & lower):
        there = inside & lower
        safe = [anp.where(there, arg, some) for arg, some in ((a, 2.0), (b, 2.0), (x, 0.3))]
        found = anp.where(there, beta_integral(by_b, *safe), 0.0)
    if np.any(inside & ~lower):
        there = inside & ~lower
        safe = [anp.where(there, arg, some) for arg, some in ((b, 2.0), (a, 2.0), (1.0 - x, 0.3))]
        found = found - anp.where(there, beta_integral(not by_b, *safe), 0.0)
    return found


BETA: Row = [
    lambda ans, a, b, x: beta_by(a, b, x, False),
    lambda ans, a, b, x: beta_by(a, b, x, True),
    lambda ans, a, b, x: beta_density(a, b, x),
]

# ------------------------------------------------------- products of gamma functions, and poles


def is_pole(x: Any) -> Any:
    """Where the gamma function is infinite, and the reciprocal one is zero."""
    x = plain(x)
    return (np.real(x) <= 0) & (np.real(x) == np.floor(np.real(x))) & (np.imag(x) == 0)


def at_poles(x: Any, near: Callable, far: Callable) -> Any:
    """``near(x)`` at the poles, elsewhere ``far(x)``."""
    return choose(is_pole(x), x, near, far, 0.0, 1.0)


def reflection_slope(x: Any) -> Any:
    """The derivative of 1 / Γ(x) = sin(πx) Γ(1 - x) / π (DLMF 5.5.3)."""
    sine = anp.sin(math.pi * x) / math.pi
    return special.gamma(1.0 - x) * (anp.cos(math.pi * x) - sine * special.psi(1.0 - x))


@equivalent(autograds.rgamma, needed=lambda x: bool(np.any(is_pole(x))))
def rgamma(x: Any) -> Any:
    """autograd's derivative is NaN at the poles of the gamma function."""
    return at_poles(
        x,
        lambda x: anp.sin(math.pi * x) * special.gamma(1.0 - x) / math.pi,
        autograds.rgamma,
    )


def poch_by_z(ans: Any, z: Any, m: Any) -> Any:
    return ans * special.psi(z + m) + at_poles(
        z,
        lambda z: special.gamma(z + m) * reflection_slope(z),
        lambda z: -ans * special.psi(z),
    )


def binom_by_n(ans: Any, n: Any, k: Any) -> Any:
    return ans * special.psi(n + 1.0) + at_poles(
        n - k + 1.0,
        lambda x: special.gamma(n + 1.0) * special.rgamma(k + 1.0) * reflection_slope(x),
        lambda x: -ans * special.psi(x),
    )


def binom_by_k(ans: Any, n: Any, k: Any) -> Any:
    def by(x: Any, other: Any) -> Any:
        return at_poles(
            x,
            lambda x: special.gamma(n + 1.0) * special.rgamma(other) * reflection_slope(x),
            lambda x: -ans * special.psi(x),
        )

    return by(k + 1.0, n - k + 1.0) - by(n - k + 1.0, k + 1.0)


enter(
    {
        "gammainc": GAMMA,
        "gammaincc": negative(GAMMA),
        "gammaincinv": inverse(GAMMA, lambda ans, a, y: (a, ans), 1, [0, None]),
        "gammainccinv": inverse(negative(GAMMA), lambda ans, a, y: (a, ans), 1, [0, None]),
        "betainc": BETA,
        "betaincc": negative(BETA),
        "betaincinv": inverse(BETA, lambda ans, a, b, y: (a, b, ans), 2, [0, 1, None]),
        "betainccinv": inverse(negative(BETA), lambda ans, a, b, y: (a, b, ans), 2, [0, 1, None]),
        "btdtria": inverse(BETA, lambda ans, p, b, x: (ans, b, x), 0, [None, 1, 2]),
        "btdtrib": inverse(BETA, lambda ans, a, p, x: (a, ans, x), 1, [0, None, 2]),
        "loggamma": [lambda ans, z: special.psi(z)],
        "poch": [poch_by_z, lambda ans, z, m: ans * special.psi(z + m)],
        "binom": [binom_by_n, binom_by_k],
    }
)

# --------------------------------------------------------------------------- exponential integrals

LOGARITHM = [-((-1.0) ** n) / (n + 1) for n in range(24)]


def expn_slope(ans: Any, n: Any, x: Any) -> Any:
    """-E(n - 1, x); SciPy has no E of negative order."""
    some = np.where(np.asarray(n) == 0, 1, n)
    return anp.where(
        np.asarray(n) == 0, -anp.exp(-x) * (1.0 + x) / x**2, -special.expn(some - 1, x)
    )


def sinc(x: Any) -> Any:
    return anp.sin(x) / x if anp.iscomplexobj(x) else anp.sinc(x / math.pi)


def sinhc(x: Any) -> Any:
    if anp.iscomplexobj(x):
        return anp.sinh(x) / x
    return 0.5 * (special.exprel(x) + special.exprel(-x))


def spence_slope(ans: Any, z: Any) -> Any:
    return choose(
        np.abs(plain(z) - 1.0) < 0.1,
        z - 1.0,
        lambda u: polynomial(LOGARITHM, u),
        lambda u: -anp.log(1.0 + u) / u,
        0.0,
        1.0,
    )


ZETA_TERMS, BERNOULLI = 12, bernoulli(20)[2::2]


def zeta_by_s(ans: Any, s: Any, q: Any = 1.0) -> Any:
    """Of the sum formula of Euler and Maclaurin, term by term (DLMF 25.11.28)."""
    if np.any(plain(s) < -4.0):
        raise Refusal("the derivative of special.zeta by x is not implemented for x < -4")
    end = q + float(ZETA_TERMS)
    log = anp.log(end)
    found = sum([-anp.log(q + float(n)) * (q + float(n)) ** -s for n in range(ZETA_TERMS)])
    power = end ** (1.0 - s) / (s - 1.0)
    found = found - power * (log + 1.0 / (s - 1.0)) - 0.5 * log * end**-s
    factor, slope = s * end ** (-s - 1.0), end ** (-s - 1.0) * (1.0 - s * log)
    for n, number in enumerate(BERNOULLI, 1):
        found = found + float(number) / math.factorial(2 * n) * slope
        more = (s + 2.0 * n - 1.0) * (s + 2.0 * n) / end**2
        slope = slope * more + factor * (2.0 * s + 4.0 * n - 1.0) / end**2
        factor = factor * more
    return found


enter(
    {
        "exp1": [lambda ans, z: -anp.exp(-z) / z],
        "expi": [lambda ans, z: anp.exp(z) / z],
        "expn": ["the order", expn_slope],
        "sici": [lambda ans, z: (sinc(z), anp.cos(z) / z)],
        "shichi": [lambda ans, z: (sinhc(z), anp.cosh(z) / z)],
        "spence": [spence_slope],
        "_lambertw": [
            lambda ans, z, k, tol: anp.exp(-ans) / (1.0 + ans),
            "the branch",
            "the tolerance",
        ],
        "_zeta": [zeta_by_s, lambda ans, s, q: -s * special._zeta(s + 1.0, q)],
        "_riemann_zeta": [zeta_by_s],
        "zetac": [zeta_by_s],
        "fresnel": [lambda ans, z: (anp.sin(0.5 * math.pi * z**2), anp.cos(0.5 * math.pi * z**2))],
        "modfresnelp": [
            lambda ans, x: (
                -anp.exp(1j * x**2),
                -2j * x * ans[1] - np.exp(-0.25j * math.pi) / math.sqrt(math.pi),
            )
        ],
        "modfresnelm": [
            lambda ans, x: (
                -anp.exp(-1j * x**2),
                2j * x * ans[1] - np.exp(0.25j * math.pi) / math.sqrt(math.pi),
            )
        ],
        "wrightomega": [lambda ans, z: ans / (1.0 + ans)],
    }
)
