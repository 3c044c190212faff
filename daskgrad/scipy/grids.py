"""Interpolation on rectilinear grids, as in ``scipy.interpolate``."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from daskgrad.backends.autograd import value
from daskgrad.backends.autograd.rules.twins import operand
from daskgrad.scipy.piecewise import floating

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


class RegularGridInterpolator:
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
        found = self._nearest(places) if method == "nearest" else self._linear(places)
        if not self.bounds_error and self.fill_value is not None:
            found = np.where(self._rows(outside), self.fill_value, found)
        is_nan = np.any([np.isnan(value(column)) for column in columns], axis=0)
        found = np.where(self._rows(is_nan), np.nan, found) if np.any(is_nan) else found
        return np.reshape(found, np.shape(xi)[:-1] + np.shape(self.values)[count:])

    def unboxed(self) -> "RegularGridInterpolator":
        """With plain numbers, as ``dg.value`` returns it."""
        how = self.method, self.bounds_error, value(self.fill_value)
        return RegularGridInterpolator(list(map(value, self.grid)), value(self.values), *how)

    def _outside(self, columns: list[Any]) -> Any:
        """Which points are outside of the grid; ValueError if there are and must not be any."""
        found = np.zeros(np.shape(columns[0]), bool)
        for axis, (line, column) in enumerate(zip(self.grid, columns, strict=True)):
            ends = value(line)
            is_outside = (column < ends[0]) | (column > ends[-1])
            if self.bounds_error and not np.all((ends[0] <= column) & (column <= ends[-1])):
                raise ValueError(
                    f"xi is out of the bounds {ends[0]} and {ends[-1]} of the axis {axis}; clip "
                    f"it, or say bounds_error=False"
                )
            found = found | is_outside
        return found

    def _rows(self, vector: Any) -> Any:
        """A vector over the points, with an axis for each further one of the values."""
        return np.reshape(vector, (-1,) + (1,) * (np.ndim(self.values) - len(self.grid)))

    def _linear(self, places: list[tuple]) -> Any:
        total: Any = 0.0
        for corner in itertools.product((0, 1), repeat=len(places)):
            weight: Any = 1.0
            for is_upper, (_, _, share) in zip(corner, places, strict=True):
                weight = weight * (share if is_upper else 1.0 - share)
            index = tuple([each[which] for which, each in zip(corner, places, strict=True)])
            total = total + self.values[index] * self._rows(weight)
        return total

    def _nearest(self, places: list[tuple]) -> Any:
        shares = [value(share) for *_, share in places]
        return self.values[
            tuple(
                [
                    np.where(share <= 0.5, low, high)
                    for (low, high, _), share in zip(places, shares, strict=True)
                ]
            )
        ]


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
        parts = [floating(each) for each in xi]
        shape = np.broadcast_shapes(*map(np.shape, parts))
        return np.stack([np.broadcast_to(part, shape) for part in parts], axis=-1)
    xi = operand(xi)
    return np.reshape(xi, (-1, count)) if np.ndim(xi) == 1 else xi


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
