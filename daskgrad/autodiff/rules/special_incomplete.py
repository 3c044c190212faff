"""SciPy's incomplete gamma and beta functions: their slopes, by all arguments.

The derivatives by the parameters are integrals, which Gauss and Legendre's rule takes with 96
values for each entry.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import autograd.numpy as anp
import numpy as np
from autograd.tracer import isbox

from daskgrad.autodiff.rules.declaration import kernel, plain, shape_of
from daskgrad.autodiff.rules.special import Row, enter, inverse, special

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
