"""Interpolation, as in ``scipy.interpolate``: cubic splines, and linear ones on grids.

Differentiated in the values, in the knots, and in the points of evaluation.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from daskgrad.autodiff.rules.twins import operand
from daskgrad.autodiff.tape import value
from daskgrad.scipy.dispatch import Recordable, dispatched
from daskgrad.scipy.linalg import solve_banded

# -------------------------------------------------------------------------------------------------
# Piecewise polynomials, as in ``scipy.interpolate``, of traced coefficients and breakpoints.

Extrapolation = bool | str | None


class PPoly(Recordable):
    """A polynomial ``sum(c[m, i] * (at - x[i]) ** (k - m))`` on each interval from x[i] to x[i+1].

    ``c`` has the shape (k + 1, intervals, ...), ``x`` increases. Differentiated in c, in x, and in
    the points of evaluation; at a breakpoint the derivative is the right piece's. Roots (``solve``,
    ``roots``) and ``extend`` are missing.
    """

    makers = ("derivative", "antiderivative")

    def __init__(self, c: Any, x: Any, extrapolate: Extrapolation = None, axis: int = 0):
        self.c, self.x = floating(c), floating(x)
        if np.ndim(self.c) < 2 or np.shape(self.x) != (np.shape(self.c)[1] + 1,):
            raise ValueError(
                f"c has the shape {np.shape(self.c)}, x {np.shape(self.x)}; they must be "
                f"(k + 1, m, ...) and (m + 1,)"
            )
        if not np.all(np.diff(value(self.x)) > 0.0):
            raise ValueError("the breakpoints x must increase; sort them")
        self.extrapolate = True if extrapolate is None else extrapolate
        self.axis = axis

    @dispatched
    def __call__(self, x: Any, nu: int = 0, extrapolate: Extrapolation = None) -> Any:
        """The value at ``x``, or the derivative of order ``nu``."""
        if nu < 0:
            raise ValueError(f"the order nu of a derivative is {nu}; it must not be negative")
        if nu:
            return self.derivative(nu)(x, extrapolate=extrapolate)
        at, breaks = floating(x), self.x
        mode = self.extrapolate if extrapolate is None else extrapolate
        require_known(mode)
        if mode == "periodic":
            at = breaks[0] + (at - breaks[0]) % (breaks[-1] - breaks[0])
        result = self._at(np.reshape(at, (-1,)))
        result = np.reshape(result, np.shape(at) + np.shape(self.c)[2:])
        if not mode:
            numbers, ends = value(at), value(breaks)
            is_inside = (numbers >= ends[0]) & (numbers <= ends[-1])
            shape = np.shape(at) + (1,) * (np.ndim(self.c) - 2)
            result = np.where(np.reshape(is_inside, shape), result, np.nan)
        first = range(np.ndim(at))
        return np.moveaxis(result, tuple(first), tuple([self.axis + n for n in first]))

    def unboxed(self) -> "PPoly":
        """The interpolant with plain numbers, as ``dg.value`` returns it."""
        return PPoly(value(self.c), value(self.x), self.extrapolate, self.axis)

    def _at(self, at: Any) -> Any:
        """The values at a vector, each by the polynomial of its interval, or of the last one."""
        numbers = value(self.x)
        place = np.searchsorted(numbers, value(at), side="right") - 1
        place = np.clip(place, 0, len(numbers) - 2)
        ahead = np.reshape(at - self.x[place], (-1,) + (1,) * (np.ndim(self.c) - 2))
        pieces = self.c[:, place]
        result = pieces[0]
        for power in range(1, np.shape(self.c)[0]):
            result = result * ahead + pieces[power]
        return result

    def derivative(self, nu: int = 1) -> "PPoly":
        """The derivative of order ``nu``; with a negative one the antiderivative."""
        if nu < 0:
            return self.antiderivative(-nu)
        degrees = range(np.shape(self.c)[0] - 1, nu - 1, -1)
        if not degrees:
            c = 0.0 * self.c[:1]
        else:
            factors = [float(math.perm(degree, nu)) for degree in degrees]
            c = self.c[: len(degrees)] * along_first(np.array(factors), np.ndim(self.c))
        return PPoly(c, self.x, self.extrapolate, self.axis)

    def antiderivative(self, nu: int = 1) -> "PPoly":
        """The antiderivative of order ``nu``, zero at the first breakpoint."""
        if nu <= 0:
            return self.derivative(-nu)
        order, ndim = np.shape(self.c)[0], np.ndim(self.c)
        c = self.c / along_first(np.arange(order, 0.0, -1.0), ndim)
        widths = along_first(np.diff(self.x), ndim - 1)
        steps = c[0] * widths
        for power in range(1, order):
            steps = (steps + c[power]) * widths
        starts = np.concatenate([0.0 * steps[:1], np.cumsum(steps, axis=0)[:-1]])
        c = np.concatenate([c, starts[np.newaxis]])
        mode = False if self.extrapolate == "periodic" else self.extrapolate
        return PPoly(c, self.x, mode, self.axis).antiderivative(nu - 1)

    @dispatched
    def integrate(self, a: Any, b: Any, extrapolate: Extrapolation = None) -> Any:
        """The integral from ``a`` to ``b``."""
        mode = self.extrapolate if extrapolate is None else extrapolate
        require_known(mode)
        if value(b) < value(a):
            return -self.integrate(b, a, mode)
        whole = self.antiderivative()

        def between(low: Any, high: Any) -> Any:
            return whole(high, extrapolate=True) - whole(low, extrapolate=True)

        first, last = self.x[0], self.x[-1]
        if mode != "periodic":
            is_inside = value(first) <= value(a) and value(b) <= value(last)
            return between(a, b) * (1.0 if mode or is_inside else np.nan)
        period = last - first
        count = np.floor(value((b - a) / period))
        begin = first + (a - first) % period
        end = begin + (b - a - count * period)
        total = count * between(first, last)
        if value(end) <= value(last):
            return total + between(begin, end)
        return total + between(begin, last) + between(first, end - period)


def require_known(extrapolate: Extrapolation) -> None:
    if isinstance(extrapolate, str) and extrapolate != "periodic":
        raise ValueError(f"extrapolate is {extrapolate!r}; it must be True, False or 'periodic'")


def floating(numbers: Any) -> Any:
    """A list or an array as one of floating numbers, in double precision."""
    array = operand(numbers)
    kind = complex if np.iscomplexobj(array) else float
    return array if array.dtype == kind else array.astype(kind)


def along_first(vector: Any, ndim: int) -> Any:
    return np.reshape(vector, (-1,) + (1,) * (ndim - 1))


# -------------------------------------------------------------------------------------------------
# Interpolation on rectilinear grids, as in ``scipy.interpolate``.

METHODS = ("linear", "nearest")
OTHERS = ("slinear", "cubic", "quintic", "pchip", "splinef2d")


def require_method(method: str) -> None:
    if method in OTHERS:
        raise NotImplementedError(
            f"RegularGridInterpolator has no derivative for method={method!r}; use 'linear' or "
            f"'nearest', or a CubicSpline along each axis"
        )
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; it must be 'linear' or 'nearest'")


class RegularGridInterpolator(Recordable):
    """Interpolates ``values`` on the grid of ``points``, by method ``linear`` or ``nearest``.

    The nearest value is constant in ``xi``. Other methods are refused. A line of the grid increases
    or decreases. The result has the shape of ``xi`` without its last axis, and then the further
    axes of the values.
    """

    def __init__(
        self,
        points: Sequence[Any],
        values: Any,
        method: str = "linear",
        bounds_error: bool = True,
        fill_value: Any = np.nan,
    ):
        require_method(method)
        self.method, self.bounds_error, self.fill_value = method, bounds_error, fill_value
        self.values, lines = floating(values), [floating(line) for line in points]
        if len(lines) > np.ndim(self.values):
            raise ValueError(f"there are {len(lines)} lines of points, and {np.ndim(values)} axes")
        for axis, line in enumerate(lines):
            if np.shape(line) != np.shape(self.values)[axis : axis + 1]:
                raise ValueError(
                    f"the points along the axis {axis} have the shape {np.shape(line)}, the values "
                    f"{np.shape(self.values)}"
                )
            steps = np.diff(value(line))
            if len(steps) and np.all(steps < 0.0):
                lines[axis] = line[::-1]
                self.values = np.flip(self.values, axis)
            elif not np.all(steps > 0.0):
                raise ValueError(f"the points along the axis {axis} must increase or decrease")
        self.grid = tuple(lines)

    @dispatched
    def __call__(self, xi: Any, method: str | None = None) -> Any:
        """The values at ``xi``, an array (..., axes) or a tuple of one array for each axis."""
        method = self.method if method is None else method
        require_method(method)
        count = len(self.grid)
        xi = coordinates(xi, count)
        if np.shape(xi)[-1] != count:
            raise ValueError(f"xi has the shape {np.shape(xi)}; its last axis must have {count}")
        columns = [np.reshape(xi[..., n], (-1,)) for n in range(count)]
        outside = self._outside([value(column) for column in columns])
        places = [place(line, column) for line, column in zip(self.grid, columns, strict=True)]
        result = self._nearest(places) if method == "nearest" else self._linear(places)
        if not self.bounds_error and self.fill_value is not None:
            result = np.where(self._rows(outside), self.fill_value, result)
        is_nan = np.any([np.isnan(value(column)) for column in columns], axis=0)
        result = np.where(self._rows(is_nan), np.nan, result) if np.any(is_nan) else result
        return np.reshape(result, np.shape(xi)[:-1] + np.shape(self.values)[count:])

    def unboxed(self) -> "RegularGridInterpolator":
        """The interpolant with plain numbers, as ``dg.value`` returns it."""
        options = self.method, self.bounds_error, value(self.fill_value)
        return RegularGridInterpolator(list(map(value, self.grid)), value(self.values), *options)

    def _outside(self, columns: list[Any]) -> Any:
        """Which points are outside of the grid; ValueError if none may be."""
        outside = np.zeros(np.shape(columns[0]), bool)
        for axis, (line, column) in enumerate(zip(self.grid, columns, strict=True)):
            ends = value(line)
            is_outside = (column < ends[0]) | (column > ends[-1])
            if self.bounds_error and not np.all((ends[0] <= column) & (column <= ends[-1])):
                raise ValueError(
                    f"xi is out of the bounds {ends[0]} and {ends[-1]} of the axis {axis}; clip "
                    f"it, or say bounds_error=False"
                )
            outside = outside | is_outside
        return outside

    def _rows(self, vector: Any) -> Any:
        """A vector over the points, with an axis for each further axis of the values."""
        return np.reshape(vector, (-1,) + (1,) * (np.ndim(self.values) - len(self.grid)))

    def _linear(self, places: list[tuple]) -> Any:
        total: Any = 0.0
        for corner in itertools.product((0, 1), repeat=len(places)):
            weight: Any = 1.0
            for is_upper, (_, _, share) in zip(corner, places, strict=True):
                weight = weight * (share if is_upper else 1.0 - share)
            index = tuple([place[end] for end, place in zip(corner, places, strict=True)])
            total = total + self.values[index] * self._rows(weight)
        return total

    def _nearest(self, places: list[tuple]) -> Any:
        ends = [np.where(value(share) <= 0.5, low, high) for low, high, share in places]
        return self.values[tuple(ends)]


def place(line: Any, column: Any) -> tuple[Any, Any, Any]:
    """The points before and after each number, and its share of the way between them."""
    numbers = value(line)
    low = np.searchsorted(numbers, value(column), side="right") - 1
    low = np.clip(low, 0, max(len(numbers) - 2, 0))
    if len(numbers) == 1:
        return low, low, 0.0 * column
    return low, low + 1, (column - line[low]) / (line[low + 1] - line[low])


def coordinates(xi: Any, count: int) -> Any:
    if isinstance(xi, tuple) and len(xi) == 1:
        xi = xi[0]
    if isinstance(xi, tuple):
        parts = [floating(coordinate) for coordinate in xi]
        shape = np.broadcast_shapes(*map(np.shape, parts))
        return np.stack([np.broadcast_to(part, shape) for part in parts], axis=-1)
    xi = operand(xi)
    return np.reshape(xi, (-1, count)) if np.ndim(xi) == 1 else xi


@dispatched
def interpn(
    points: Sequence[Any],
    values: Any,
    xi: Any,
    method: str = "linear",
    bounds_error: bool = True,
    fill_value: Any = np.nan,
) -> Any:
    """As ``RegularGridInterpolator``, in one call."""
    return RegularGridInterpolator(points, values, method, bounds_error, fill_value)(xi)


# ----------------------------------------------------------------------------------- interpolation

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

    Derivatives in ``bc_type`` are differentiated, too. The derivative of a periodic spline is right
    along directions in which the first and the last value stay equal.
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
    is_periodic = [isinstance(end, str) and end == "periodic" for end in bc_type]
    if any(is_periodic) and not all(is_periodic):
        raise ValueError("bc_type='periodic' holds for both ends, and goes with no other one")
    if all(is_periodic) and not np.allclose(value(y[0]), value(y[-1]), rtol=1e-15, atol=1e-15):
        raise ValueError(
            f"the first and the last y along the axis {axis} must be equal for bc_type='periodic'"
        )
    return [condition(end, np.shape(y)[1:]) for end in bc_type]


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
    """The slopes that make the second derivative continuous.

    The equations are in SciPy's documentation; C. de Boor, A practical guide to splines (1978),
    chapter IV.
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
    """The equation at the first knot: its diagonal entry, the next entry, the right side."""
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
    """The slopes of a cyclic system, which is tridiagonal, and linear in its last unknown."""
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
    solution = solve_banded((1, 1), bands, np.reshape(right, (np.shape(right)[0], -1)))
    return np.reshape(solution, np.shape(right))


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
