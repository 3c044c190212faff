"""Integrals, as in ``scipy.integrate``: of samples, of functions, and of differential equations."""

from typing import Any

import numpy as np

from daskgrad.autodiff.rules.math_along_axes import along
from daskgrad.autodiff.tape import value
from daskgrad.autodiff.tape.implicit import as_array
from daskgrad.scipy.dispatch import dispatched
from daskgrad.scipy.initial_values import solve_ivp as solve_ivp
from daskgrad.scipy.interpolate import floating
from daskgrad.scipy.quadrature import quad as quad


@dispatched
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """The integral along an axis by the trapezoidal rule; at the points ``x``, or ``dx`` apart."""
    y = as_array(y)
    return np.sum(strips(y, steps_at(y, x, dx, axis), axis), axis=axis)


@dispatched
def cumulative_trapezoid(
    y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1, initial: float | None = None
) -> Any:
    """The integrals from the first point to each other one; also to itself if ``initial`` is 0."""
    y = as_array(y)
    if np.shape(y)[axis] == 0:
        raise ValueError("At least one point is required along `axis`.")
    if initial is not None and not (np.isscalar(initial) and initial == 0):
        raise ValueError("`initial` must be `None` or `0`.")
    if x is not None:
        x = as_array(x)
        require_same_points(y, x, axis)
    total = np.cumsum(strips(y, steps_at(y, x, dx, axis), axis), axis=axis)
    if initial is None:
        return total
    shape = list(np.shape(total))
    shape[axis] = 1
    return np.concatenate([np.zeros(shape, value(total).dtype), total], axis=axis)


@dispatched
def simpson(y: Any, x: Any = None, *, dx: Any = 1.0, axis: int = -1) -> Any:
    """The integral along an axis by Simpson's rule; at the points ``x``, or ``dx`` apart.

    For an even number of points the last interval is integrated by a parabola through three points,
    as in SciPy from 1.11 on. Source: K. V. Cartwright, Simpson's rule cumulative integration with
    MS Excel and irregularly-spaced data, Journal of Mathematical Sciences and Mathematics Education
    12 (2017).
    """
    y = as_array(y)
    if x is not None:
        x = as_array(x)
        require_same_points(y, x, axis)
    y = np.moveaxis(y, axis, -1)
    count = np.shape(y)[-1]
    if x is None:
        h = np.ones(count - 1, value(y).real.dtype) * (1.0 * dx)
    else:
        h = floating(np.diff(x if np.ndim(x) == 1 else np.moveaxis(x, axis, -1), axis=-1))
    if count == 2:
        return 0.5 * h[..., 0] * (y[..., 0] + y[..., 1])
    total = parabolas(y, h, count - 1 - (count % 2 == 0))
    return total if count % 2 else total + last_strip(y, h)


def parabolas(y: Any, h: Any, intervals: int) -> Any:
    """The integral of the parabolas through each three points of an even number of intervals."""
    first, middle, last = (y[..., n : intervals + (n > 1) : 2] for n in range(3))
    left, right = h[..., 0:intervals:2], h[..., 1:intervals:2]
    ratio = quotient(left, right)
    inner = first * (2.0 - quotient(1.0, ratio)) + last * (2.0 - ratio)
    both = left + right
    weight = both * quotient(both, left * right)
    return np.sum(both / 6.0 * (inner + middle * weight), axis=-1)


def last_strip(y: Any, h: Any) -> Any:
    """The integral over the last interval of the parabola through the last three points."""
    before, last = h[..., -2], h[..., -1]
    both = before + last
    alpha = quotient(2.0 * last**2 + 3.0 * before * last, 6.0 * both)
    beta = quotient(last**2 + 3.0 * before * last, 6.0 * before)
    eta = quotient(last**3, 6.0 * before * both)
    return alpha * y[..., -1] + beta * y[..., -2] - eta * y[..., -3]


def quotient(numerator: Any, denominator: Any) -> Any:
    """The quotient, or zero over zero denominators: two points of x may be the same."""
    is_zero = np.equal(value(denominator), 0.0)
    if not np.any(is_zero):
        return numerator / denominator
    return np.where(is_zero, 0.0, numerator / np.where(is_zero, 1.0, denominator))


def strips(y: Any, steps: Any, axis: int) -> Any:
    """The areas between neighbouring points along an axis."""
    before, after = (along(y, axis, part) for part in (slice(None, -1), slice(1, None)))
    return steps * (after + before) / 2.0


def steps_at(y: Any, x: Any, dx: Any, axis: int) -> Any:
    """The distances of neighbouring points, broadcastable to ``y``."""
    if x is None:
        return dx
    x = as_array(x)
    if np.ndim(x) != 1:
        return np.diff(np.broadcast_to(x, np.shape(y)), axis=axis)
    shape = [1] * np.ndim(y)
    shape[axis] = -1
    return np.reshape(np.diff(x), shape)


def require_same_points(y: Any, x: Any, axis: int) -> None:
    if np.ndim(x) not in (1, np.ndim(y)):
        raise ValueError("If given, shape of x must be 1-D or the same as y.")
    if np.shape(x)[0 if np.ndim(x) == 1 else axis] != np.shape(y)[axis]:
        raise ValueError("If given, length of x along axis must be the same as y.")
