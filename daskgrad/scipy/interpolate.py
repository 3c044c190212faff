"""Interpolation, as in ``scipy.interpolate``: cubic splines, and linear ones on grids.

Differentiated in the values, in the knots, and in where an interpolant is evaluated.
"""

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from daskgrad.backends.autograd import value
from daskgrad.scipy.grids import RegularGridInterpolator as RegularGridInterpolator
from daskgrad.scipy.grids import interpn as interpn
from daskgrad.scipy.linalg import solve_banded
from daskgrad.scipy.piecewise import Extrapolation, along_first, floating
from daskgrad.scipy.piecewise import PPoly as PPoly

KINDS = ("not-a-knot", "periodic", "clamped", "natural")


class CubicHermiteSpline(PPoly):
    """The piecewise cubic with values ``y`` and derivatives ``dydx`` at the knots ``x``."""

    def __init__(
        self, x: Any, y: Any, dydx: Any, axis: int = 0, extrapolate: Extrapolation = None
    ) -> None:
        x, y, axis = knots(x, y, axis)
        slopes = np.moveaxis(floating(dydx), axis, 0)
        if np.shape(slopes) != np.shape(y):
            raise ValueError(
                f"dydx has the shape {np.shape(dydx)}; it must be that of y, with {len(x)} along "
                f"the axis {axis}"
            )
        PPoly.__init__(self, hermite(x, y, slopes), x, extrapolate, axis)


class CubicSpline(CubicHermiteSpline):
    """The cubic spline with values ``y`` at the knots ``x``, with SciPy's ``bc_type``.

    Derivatives given in ``bc_type`` are differentiated, too. The derivative of a periodic spline is
    right along directions in which the first and the last value stay equal.
    """

    def __init__(
        self,
        x: Any,
        y: Any,
        axis: int = 0,
        bc_type: Any = "not-a-knot",
        extrapolate: Extrapolation = None,
    ) -> None:
        x, y, axis = knots(x, y, axis)
        ends = conditions(bc_type, y, axis)
        if extrapolate is None and ends[0] == "periodic":
            extrapolate = "periodic"
        slopes = derivatives(x, y, ends)
        PPoly.__init__(self, hermite(x, y, slopes), x, extrapolate, axis)


def knots(x: Any, y: Any, axis: int) -> tuple[Any, Any, int]:
    """The arguments, with the axis of the knots in front."""
    x, y = floating(x), floating(y)
    if np.ndim(x) != 1 or np.shape(x)[0] < 2:
        raise ValueError(f"x has the shape {np.shape(x)}; it must be a vector of at least two")
    axis = normalize_axis_index(axis, np.ndim(y))
    if np.shape(y)[axis] != np.shape(x)[0]:
        raise ValueError(
            f"y has the shape {np.shape(y)}; along the axis {axis} it must have {len(x)}, as x has"
        )
    if not (np.all(np.isfinite(value(x))) and np.all(np.isfinite(value(y)))):
        raise ValueError("x and y must be finite; leave out what is not")
    if not np.all(np.diff(value(x)) > 0.0):
        raise ValueError("x must increase strictly; sort the knots, and merge equal ones")
    return x, np.moveaxis(y, axis, 0), axis


def conditions(bc_type: Any, y: Any, axis: int) -> list[Any]:
    """The condition at each end: 'not-a-knot', 'periodic', or an order and a derivative."""
    if isinstance(bc_type, str):
        bc_type = (bc_type, bc_type)
    if len(bc_type) != 2:
        raise ValueError(f"bc_type is {bc_type!r}; it must be one name, or a pair for both ends")
    is_periodic = [isinstance(each, str) and each == "periodic" for each in bc_type]
    if any(is_periodic) and not all(is_periodic):
        raise ValueError("bc_type='periodic' holds for both ends, and goes with no other one")
    if all(is_periodic) and not np.allclose(value(y[0]), value(y[-1]), rtol=1e-15, atol=1e-15):
        raise ValueError(
            f"the first and the last y along the axis {axis} must be equal for bc_type='periodic'"
        )
    return [condition(each, np.shape(y)[1:]) for each in bc_type]


def condition(bc: Any, shape: tuple) -> Any:
    if isinstance(bc, str):
        if bc not in KINDS:
            raise ValueError(f"bc_type is {bc!r}; it must be one of {', '.join(KINDS)}")
        named = {"clamped": (1, np.zeros(shape)), "natural": (2, np.zeros(shape))}
        return named.get(bc, bc)
    order, derivative = bc
    derivative = floating(derivative)
    if order not in (1, 2) or np.shape(derivative) != shape:
        raise ValueError(
            f"a condition of bc_type has the order {order} and the shape {np.shape(derivative)}; "
            f"they must be 1 or 2, and {shape}"
        )
    return order, derivative


# ------------------------------------------------------------------- derivatives at the knots


def hermite(x: Any, y: Any, slopes: Any) -> Any:
    """The coefficients from values and derivatives at the knots."""
    widths = along_first(np.diff(x), np.ndim(y))
    secants = np.diff(y, axis=0) / widths
    bend = (slopes[:-1] + slopes[1:] - 2.0 * secants) / widths
    return np.stack([bend / widths, (secants - slopes[:-1]) / widths - bend, slopes[:-1], y[:-1]])


def derivatives(x: Any, y: Any, ends: list[Any]) -> Any:
    """Those that make the second derivative continuous.

    The equations are those of SciPy's documentation; C. de Boor, A practical guide to splines
    (1978), chapter IV.
    """
    widths = np.diff(x)
    wide = along_first(widths, np.ndim(y))
    secants = np.diff(y, axis=0) / wide
    count = np.shape(x)[0]
    if count == 2:
        ends = [(1, secants[0]) if isinstance(end, str) else end for end in ends]
    if count == 3 and ends == ["not-a-knot", "not-a-knot"]:
        return parabola(widths, secants)
    if count == 3 and ends[0] == "periodic":
        mean = np.sum(secants / wide, axis=0) / np.sum(1.0 / wide, axis=0)
        return np.broadcast_to(mean, np.shape(y))
    if ends[0] == "periodic":
        return periodic(widths, wide, secants)
    inner = 3.0 * (wide[1:] * secants[:-1] + wide[:-1] * secants[1:])
    first = at_end(ends[0], widths, secants)
    last = at_end(mirrored(ends[1]), widths[::-1], -secants[::-1])
    diagonal = np.concatenate([first[0], 2.0 * (widths[:-1] + widths[1:]), last[0]])
    upper = np.concatenate([np.zeros(1), first[1], widths[:-1]])
    lower = np.concatenate([widths[1:], last[1], np.zeros(1)])
    right = np.concatenate([first[2][np.newaxis], inner, -last[2][np.newaxis]])
    return solved(np.stack([upper, diagonal, lower]), right)


def at_end(end: Any, widths: Any, secants: Any) -> tuple[Any, Any, Any]:
    """The equation at the first knot: its diagonal entry, the one beside it, the right side."""
    if end == "not-a-knot":
        both = widths[0] + widths[1]
        right = (widths[0] + 2.0 * both) * widths[1] * secants[0] + widths[0] ** 2 * secants[1]
        return widths[1:2], np.reshape(both, (1,)), right / both
    order, derivative = end
    if order == 1:
        return np.ones(1), np.zeros(1), derivative
    right = 3.0 * secants[0] * widths[0] - 0.5 * derivative * widths[0] ** 2
    return 2.0 * widths[:1], widths[:1], right


def mirrored(end: Any) -> Any:
    """The condition at the other end, with the knots from right to left."""
    if isinstance(end, str):
        return end
    order, derivative = end
    return order, -derivative if order == 1 else derivative


def periodic(widths: Any, wide: Any, secants: Any) -> Any:
    """Of a cyclic system: without its last unknown it is tridiagonal, and linear in that one."""
    before, wide_before = np.roll(widths, 1), np.roll(wide, 1, axis=0)
    right = 3.0 * (wide * np.roll(secants, 1, axis=0) + wide_before * secants)
    diagonal, zero = 2.0 * (before + widths), np.zeros(1)
    upper = np.concatenate([zero, before[:-2]])
    lower = np.concatenate([widths[1:-1], zero])
    bands = np.stack([upper, diagonal[:-1], lower])
    column = np.concatenate([widths[:1], np.zeros(np.shape(widths)[0] - 3), before[-2:-1]])
    fixed = solved(bands, right[:-1])
    share = along_first(solved(bands, -column), np.ndim(secants))
    last = (right[-1] - before[-1] * fixed[0] - widths[-1] * fixed[-1]) / (
        diagonal[-1] + before[-1] * share[0] + widths[-1] * share[-1]
    )
    inner = fixed + last * share
    return np.concatenate([inner, last[np.newaxis], inner[:1]])


def solved(bands: Any, right: Any) -> Any:
    """The solution of a tridiagonal system."""
    found = solve_banded((1, 1), bands, np.reshape(right, (np.shape(right)[0], -1)))
    return np.reshape(found, np.shape(right))


def parabola(widths: Any, secants: Any) -> Any:
    """The derivatives of the parabola through three points."""
    bend = (secants[1] - secants[0]) / (widths[0] + widths[1])
    return np.stack(
        [
            secants[0] - widths[0] * bend,
            secants[0] + widths[0] * bend,
            secants[1] + widths[1] * bend,
        ]
    )
