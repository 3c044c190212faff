"""Polynomials: functions of plain NumPy of their coefficients, and of powers."""

from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.extend import primitive
from autograd.numpy import linalg

from daskgrad.autodiff.rules.declaration import (
    Refusal,
    adjoint_of,
    declare,
    each_of,
    equivalent,
    plain,
    shape_of,
)
from daskgrad.autodiff.rules.linalg_matrices import least_squares
from daskgrad.autodiff.rules.twins import TWINS, as_array, by_position, composed, recorded


@adjoint_of(anp.vander, keywords="N increasing")
def vander_adjoint(argnums, ans, args, kwargs):
    """The slope of each power from the one below it."""
    increasing = kwargs.get("increasing", args[2] if len(args) > 2 else False)
    rising = slice(None, None, 1 if increasing else -1)
    count = shape_of(ans)[1]

    def vander_pullback(g):
        slopes = ans[:, rising][:, : count - 1] * np.arange(1.0, count)
        return (anp.sum(g[:, rising][:, 1:] * slopes, axis=1),)

    return vander_pullback


TWINS[np.vander] = by_position(np.vander, anp.vander, 1)


def by_coefficients(g, p, x):
    sums, term = [], g
    for _ in range(len(plain(p))):
        sums.append(anp.sum(term))
        term = term * x
    return anp.stack(sums[::-1])


def by_place(g, p, x):
    return g * anp.polyval(polyder(p), x) if len(plain(p)) > 1 else 0.0 * g * x


declare(anp.polyval, adjoint=each_of(by_coefficients, by_place))
TWINS[np.polyval] = by_position(np.polyval, anp.polyval, 2)


def without_leading_zeros(p):
    p = anp.atleast_1d(as_array(p))
    nonzero = np.flatnonzero(plain(p))
    return p[nonzero[0] :] if len(nonzero) else p[-1:]


@composed(np.polymul)
def polymul(a1, a2):
    return anp.convolve(without_leading_zeros(a1), without_leading_zeros(a2))


@composed(np.polydiv)
def polydiv(u, v):
    """Long division; the remainder begins where NumPy's does."""
    u, v = anp.atleast_1d(as_array(u)) + 0.0, anp.atleast_1d(as_array(v)) + 0.0
    numpys = np.polydiv(plain(u), plain(v))
    remainder, digits, scale = u, [], 1.0 / v[0]
    long = len(plain(v))
    for _ in range(max(len(plain(u)) - long + 1, 1)):
        if len(plain(remainder)) < long:
            digits.append(0.0 * remainder[0])
            break
        digits.append(scale * remainder[0])
        remainder = anp.concatenate([remainder[1:long] - digits[-1] * v[1:], remainder[long:]])
    count = len(numpys[1])
    remainder = (
        anp.concatenate([0.0 * u, remainder]) if count > len(plain(remainder)) else remainder
    )
    return anp.stack(digits), remainder[len(plain(remainder)) - count :]


@composed(np.polyder)
def polyder(p, m=1):
    p = as_array(p)
    for _ in range(m):
        p = p[:-1] * np.arange(len(plain(p)) - 1, 0, -1)
    return p


@composed(np.polyint)
def polyint(p, m=1, k=None):
    p, k = as_array(p), anp.atleast_1d(as_array(0.0 if k is None else k))
    constants = k * np.ones(m) if len(plain(k)) == 1 else k
    for place in range(m):
        scaled = p / np.arange(len(plain(p)), 0, -1)
        p = anp.concatenate([scaled, constants[place : place + 1]])
    return p


@recorded(np.geomspace, arrays=2, keywords="num endpoint dtype axis")
def geomspace(start, stop, num=50, endpoint=True, dtype=None, axis=0):
    shape = np.broadcast_shapes(shape_of(start), shape_of(stop))
    shares = np.linspace(0.0, 1.0, num, endpoint).reshape((num,) + (1,) * len(shape))
    return anp.moveaxis(start * anp.exp(shares * anp.log(stop / start)), 0, axis)


# -------------------------------------------------------------------------------------------------
# Roots of polynomials, and polynomials that are found: by their roots, or by points; windows.
#
# All are recorded as a whole, so that their values are NumPy's.

# ------------------------------------------------------------------------------------- roots

CLOSE = 1e-10  # roots that rounding moves farther, relative to their size, are several at one place


def falling_powers(x, count):
    """Powers of each number from ``count - 1`` down to zero, by products: of zero, too."""
    powers = [x * 0.0 + 1.0]
    for _ in range(count - 1):
        powers.append(powers[-1] * x)
    return anp.stack(powers[::-1], axis=-1)


@adjoint_of(anp.roots)
def roots_adjoint(argnums, ans, args, kwargs):
    """By the implicit function theorem: dr = -Σ rⁿ dpₙ / P'(r), for roots that are simple."""
    (p,) = args
    count = shape_of(p)[0]
    powers = falling_powers(ans, count)
    slopes = anp.dot(powers[:, 1:], p[:-1] * np.arange(count - 1, 0, -1))
    moves = np.finfo(float).eps * (np.abs(plain(powers)) @ np.abs(plain(p)))
    sizes = np.where(plain(ans) == 0.0, 1.0, np.abs(plain(ans)))
    if np.any(moves > CLOSE * sizes * np.abs(plain(slopes))):
        raise Refusal(
            "np.roots has no derivative rule for p with a double root, or two that rounding does "
            "not tell apart: they branch there; write a function of the coefficients"
        )
    is_real = not anp.iscomplexobj(p)

    def roots_pullback(g):
        cotangent = -anp.dot(g / slopes, powers)
        return (anp.real(cotangent) if is_real else cotangent,)

    return roots_pullback


TWINS[np.roots] = by_position(np.roots, anp.roots, 1)

# ----------------------------------------------------------------------- by roots, by points

LARGE = 20  # rows of a matrix from which on rounding spoils sums of traces


@recorded(np.poly, arrays=1)
def poly(seq_of_zeros):
    zeros = anp.atleast_1d(seq_of_zeros)
    coefficients = of_matrix(zeros) if np.ndim(plain(zeros)) == 2 else of_roots(zeros)
    return coefficients if np.iscomplexobj(np.poly(plain(seq_of_zeros))) else anp.real(coefficients)


def of_roots(zeros):
    coefficients: Any = np.ones(1)
    for place in range(shape_of(zeros)[0]):
        coefficients = anp.append(coefficients, 0.0) - zeros[place] * anp.append(0.0, coefficients)
    return coefficients


def of_matrix(a):
    """The characteristic polynomial by sums of traces (Faddeev and Le Verrier), which is smooth
    where eigenvalues are equal, too."""
    size = shape_of(a)[0]
    if size > LARGE:
        raise Refusal(
            f"np.poly has no derivative rule for seq_of_zeros that is a matrix of more than "
            f"{LARGE} rows; write np.poly(np.linalg.eigvals(a))"
        )
    coefficients, product = [1.0], np.eye(size)
    for n in range(1, size + 1):
        turned = anp.matmul(a, product)
        coefficients.append(-anp.trace(turned) / n)
        product = turned + coefficients[-1] * np.eye(size)
    return anp.array(coefficients)


@composed(np.polyfit)
def polyfit(x, y, deg, rcond=None, full=False, w=None, cov=False):
    x, y, w = as_array(x), as_array(y), as_array(w)

    def part(number):
        return fitted(x, y, w, deg, rcond, full, cov, number)

    if not full:
        return (part(0), part(1)) if cov else part(...)
    _, _, rank, _, rcond = np.polyfit(plain(x), plain(y), deg, rcond, full=True, w=plain(w))
    return part(0), part(1), rank, part(3), rcond


@primitive
def fitted(
    x: Any, y: Any, w: Any, deg: Any, rcond: Any, full: bool, cov: Any, number: Any
) -> np.ndarray:
    """One of the arrays that ``np.polyfit`` returns, by its number; ``...`` if it returns one."""
    result: Any = np.polyfit(x, y, deg, rcond, full, w, cov)  # type: ignore[call-overload]
    return result if number is ... else result[number]


@equivalent(fitted, arrays=3)
def fit(x, y, w, deg, rcond, full, cov, number):
    """Least squares with the scaled matrix of powers, as in NumPy."""
    powers, target = anp.vander(x + 0.0, int(deg) + 1), y + 0.0
    rows, columns = shape_of(powers)
    if w is not None:
        powers = powers * w[:, None]
        target = target * (w if np.ndim(plain(y)) == 1 else w[:, None])
    scale = anp.sqrt(anp.sum(powers * powers, axis=0))
    scaled = powers / scale
    solution, squares, _, sizes = least_squares(
        scaled,
        target,
        None,
        f"np.polyfit has no derivative rule for x with places for less than deg={deg}, as the "
        f"solution is not the only one; lower deg, or leave out equal places",
    )
    if number == 1 and not full:
        base = linalg.inv(anp.dot(anp.transpose(scaled), scaled)) / anp.outer(scale, scale)
        factor = 1.0 if cov == "unscaled" else squares / (rows - columns)
        return base * factor if np.ndim(plain(y)) == 1 else base[:, :, None] * factor
    if number in (1, 3):
        return squares if number == 1 else sizes
    return anp.transpose(anp.transpose(solution) / scale)


# ----------------------------------------------------------------------------------- windows

TURNS = np.cos((np.arange(64) + 0.5) * np.pi / 128)


@recorded(np.i0, arrays=1)
def i0(x):
    """The mean of cosh(x cos θ) (DLMF 10.32.1); the midpoint rule gives it to rounding as long as
    I₀ does not overflow."""
    return anp.mean(anp.cosh(anp.reshape(x, (*shape_of(x), 1)) * TURNS), axis=-1)


declare(anp.kaiser, program=np.kaiser, arrays=2)
