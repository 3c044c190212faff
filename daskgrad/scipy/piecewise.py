"""Piecewise polynomials, as in ``scipy.interpolate``, of traced coefficients and breakpoints."""

import math
from typing import Any

import numpy as np

from daskgrad.backends.autograd import value
from daskgrad.backends.autograd.rules.twins import operand

Extrapolation = bool | str | None


class PPoly:
    """A polynomial ``sum(c[m, i] * (at - x[i]) ** (k - m))`` on each interval from x[i] to x[i+1].

    ``c`` has the shape (k + 1, intervals, ...), ``x`` increases. Differentiated in c, in x, and in
    where it is evaluated; at a breakpoint the derivative is that of the piece on its right. Roots
    (``solve``, ``roots``) and ``extend`` are not here.
    """

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

    def __call__(self, x: Any, nu: int = 0, extrapolate: Extrapolation = None) -> Any:
        """The value at ``x``, or that of the derivative of order ``nu``."""
        if nu < 0:
            raise ValueError(f"the order nu of a derivative is {nu}; it must not be negative")
        if nu:
            return self.derivative(nu)(x, extrapolate=extrapolate)
        at, breaks = floating(x), self.x
        how = self.extrapolate if extrapolate is None else extrapolate
        require_known(how)
        if how == "periodic":
            at = breaks[0] + (at - breaks[0]) % (breaks[-1] - breaks[0])
        found = self._at(np.reshape(at, (-1,)))
        found = np.reshape(found, np.shape(at) + np.shape(self.c)[2:])
        if not how:
            numbers, ends = value(at), value(breaks)
            is_inside = (numbers >= ends[0]) & (numbers <= ends[-1])
            shape = np.shape(at) + (1,) * (np.ndim(self.c) - 2)
            found = np.where(np.reshape(is_inside, shape), found, np.nan)
        first = range(np.ndim(at))
        return np.moveaxis(found, tuple(first), tuple([self.axis + n for n in first]))

    def unboxed(self) -> "PPoly":
        """With plain numbers, as ``dg.value`` returns it."""
        return PPoly(value(self.c), value(self.x), self.extrapolate, self.axis)

    def _at(self, at: Any) -> Any:
        """The values at a vector, each by the polynomial of its interval or of that at the end."""
        numbers = value(self.x)
        place = np.searchsorted(numbers, value(at), side="right") - 1
        place = np.clip(place, 0, len(numbers) - 2)
        ahead = np.reshape(at - self.x[place], (-1,) + (1,) * (np.ndim(self.c) - 2))
        pieces = self.c[:, place]
        found = pieces[0]
        for power in range(1, np.shape(self.c)[0]):
            found = found * ahead + pieces[power]
        return found

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
        how = False if self.extrapolate == "periodic" else self.extrapolate
        return PPoly(c, self.x, how, self.axis).antiderivative(nu - 1)

    def integrate(self, a: Any, b: Any, extrapolate: Extrapolation = None) -> Any:
        """The integral from ``a`` to ``b``."""
        how = self.extrapolate if extrapolate is None else extrapolate
        require_known(how)
        if value(b) < value(a):
            return -self.integrate(b, a, how)
        whole = self.antiderivative()

        def between(low: Any, high: Any) -> Any:
            return whole(high, extrapolate=True) - whole(low, extrapolate=True)

        first, last = self.x[0], self.x[-1]
        if how != "periodic":
            is_inside = value(first) <= value(a) and value(b) <= value(last)
            return between(a, b) * (1.0 if how or is_inside else np.nan)
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


def floating(given: Any) -> Any:
    """A list or an array as one of floating numbers, in double precision."""
    array = operand(given)
    kind = complex if np.iscomplexobj(array) else float
    return array if array.dtype == kind else array.astype(kind)


def along_first(vector: Any, ndim: int) -> Any:
    return np.reshape(vector, (-1,) + (1,) * (ndim - 1))
