"""Steps of SciPy's methods for initial value problems, with traced values.

Each has the value at its ``end``, the ``slope_at_end``, and the polynomial ``at`` times within it.
Coefficients are those of SciPy's solvers.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from daskgrad.backends.autograd import value
from daskgrad.backends.autograd.corrections import block_jacobians, corrected
from daskgrad.backends.autograd.functions import PlainFunction, as_array

SAME = 1e-12  # by which slopes of one call and of many may differ, as part of the largest
TOGETHER = 10**5  # numbers in the Jacobians that are made at once


class System:
    """The right-hand side of an equation, ``plain`` for SciPy, and as the model has it."""

    def __init__(self, fun: Callable, args: Any, is_vectorized: bool):
        try:
            self._args = tuple(args)
        except TypeError:
            raise TypeError(
                f"integrate.solve_ivp takes args as a tuple: (args=({args!r},))"
            ) from None
        self._fun = fun
        self._is_vectorized = is_vectorized
        self.plain = PlainFunction(fun, self._args)
        self.takes_columns = False

    def __call__(self, t: Any, y: Any) -> Any:
        return self._vector(lambda y: self._fun(t, y, *self._args), y)

    def inner(self, t: Any, y: Any) -> Any:
        """With plain numbers for the model's traced ones; y may be traced."""
        return self._vector(lambda y: self.plain.unchanged(t, y), y)

    def bound_to(self, numbers: Iterable) -> Callable:
        """With other numbers for the model's traced ones."""
        twin = self.plain.bound_to(numbers)
        return lambda t, y: self._vector(lambda y: twin(t, y), y)

    def find_columns(self, times: np.ndarray, ys: np.ndarray, slopes: np.ndarray) -> None:
        """Looks whether one call takes many times, and their values as columns, as it takes one.

        Then numbers with derivatives may need an axis more. ``slopes``: what single calls returned.
        """
        for widen in (as_they_are, with_an_axis):
            self._columns = self.plain.bound_to(map(widen, self.plain.numbers))
            try:
                with np.errstate(all="ignore"):
                    found = value(self._rows(self._columns, times, ys))
                    gaps = np.abs(found - slopes) if found.shape == slopes.shape else np.inf
                self.takes_columns = bool(np.all(gaps <= SAME * np.max(np.abs(slopes), axis=0)))
            except Exception:  # the user's function met an array where it asks for a number
                self.takes_columns = False
            if self.takes_columns:
                self._traced_columns = self.plain.bound_to(map(widen, self.plain.boxes))
                return

    def slopes(self, times: Any, ys: Any) -> Any:
        """The right-hand side at times and rows of values, as rows."""
        if self.takes_columns:
            return self._rows(self._traced_columns, times, ys)
        return rows_of([self(t, y) for t, y in zip(times, ys, strict=True)])

    def inner_slopes(self, times: np.ndarray, ys: Any) -> Any:
        if self.takes_columns:
            return self._rows(self._columns, times, ys)
        return rows_of([self.inner(t, y) for t, y in zip(times, ys, strict=True)])

    def _rows(self, fun: Callable, times: Any, ys: Any) -> Any:
        found = as_array(fun(times + 0.0, np.transpose(ys) + 0.0))  # may be changed in place
        return np.transpose(found if np.ndim(found) == 2 else np.reshape(found, (1, -1)))

    def _vector(self, fun: Callable, y: Any) -> Any:
        if self._is_vectorized:
            return np.reshape(as_array(fun(np.reshape(y, (-1, 1)))), (-1,))
        found = as_array(fun(y))
        return found if np.ndim(found) else found * np.ones(np.shape(y))


def as_they_are(number: Any) -> Any:
    return number


def with_an_axis(number: Any) -> Any:
    return number[..., np.newaxis] if np.ndim(number) else number


def rows_of(vectors: Sequence[Any]) -> Any:
    """Vectors of one length as rows, in two operations."""
    return np.reshape(np.concatenate(vectors), (len(vectors), -1))


class Step:
    """A step from one time to another; ``end`` is the value there."""

    end: Any

    def __init__(self, times: Sequence[Any], y: Any):
        self.begin, self.to = times
        self.h = self.to - self.begin
        self.y = y

    def part(self, t: Any) -> Any:
        """Times as parts of the step."""
        return (t - self.begin) / self.h

    def polynomial(self, columns: Any, t: Any) -> Any:
        """The values at times, from the coefficients of the powers of their parts."""
        x = self.part(t)
        powers = [x]
        for _ in range(np.shape(columns)[1] - 1):
            powers.append(powers[-1] * x)
        return np.dot(columns, rows_of(powers)) + self.y[:, np.newaxis]


class RungeKuttaStep(Step):
    """A step of an explicit method (Hairer, Nørsett and Wanner I, section II.1).

    ``found`` is SciPy's value at its end.
    """

    def __init__(
        self,
        system: System,
        method: Any,
        times: Sequence[Any],
        y: Any,
        last: Any,
        found: np.ndarray,
        *_: Any,
    ):
        super().__init__(times, y)
        self.method, self.system = method, system
        self.slopes = [last.slope_at_end if last else system(self.begin, y)]
        for a, c in zip(method.A[1:], method.C[1:], strict=True):
            self.append_slope(a, c)
        end = y + self.h * self.combined(method.B)
        require_same(value(y), value(end), found)
        self.end = end + (found - value(end))  # SciPy's last bits, from which it went on

    @functools.cached_property
    def slope_at_end(self) -> Any:
        return self.system(self.to, self.end)

    def append_slope(self, a: np.ndarray, c: float) -> None:
        y = self.y + self.h * self.combined(a)
        self.slopes.append(self.system(self.begin + c * self.h, y))

    def combined(self, coefficients: np.ndarray) -> Any:
        """The slopes so far, weighted."""
        return np.dot(coefficients[: len(self.slopes)], rows_of(self.slopes))

    def at(self, t: Any) -> Any:
        slopes = rows_of([*self.slopes, self.slope_at_end])
        return self.polynomial(self.h * np.dot(np.transpose(slopes), self.method.P), t)


class DormandPrince8Step(RungeKuttaStep):
    """A step of DOP853, whose polynomial needs three more slopes (the same, section II.6)."""

    @functools.cached_property
    def coefficients(self) -> list[Any]:
        first, last = self.slopes[0], self.slope_at_end
        self.slopes.append(last)
        for a, c in zip(self.method.A_EXTRA, self.method.C_EXTRA, strict=True):
            self.append_slope(a, c)
        rise = self.end - self.y
        inner = self.h * np.dot(self.method.D, rows_of(self.slopes))
        rest = [self.h * first - rise, 2.0 * rise - self.h * (last + first)]
        return [rise, *rest, *[inner[n] for n in range(len(self.method.D))]]

    def at(self, t: Any) -> Any:
        x = self.part(t)
        total = np.zeros((np.shape(value(self.y))[0], np.shape(value(t))[0]))
        for n, column in enumerate(reversed(self.coefficients)):
            total = (total + column[:, np.newaxis]) * (x if n % 2 == 0 else 1.0 - x)
        return total + self.y[:, np.newaxis]


S6 = 6.0**0.5
RADAU = np.array(  # Hairer and Wanner II, table IV.5.6
    [
        [(88 - 7 * S6) / 360, (296 - 169 * S6) / 1800, (-2 + 3 * S6) / 225],
        [(296 + 169 * S6) / 1800, (88 + 7 * S6) / 360, (-2 - 3 * S6) / 225],
        [(16 - S6) / 36, (16 + S6) / 36, 1 / 9],
    ]
)
RADAU_NODES = np.array([(4 - S6) / 10, (4 + S6) / 10, 1])
RADAU_POLYNOMIAL = np.array(  # through zero and the three stages
    [
        [(13 + 7 * S6) / 3, (-23 - 22 * S6) / 3, (10 + 15 * S6) / 3],
        [(13 - 7 * S6) / 3, (-23 + 22 * S6) / 3, (10 - 15 * S6) / 3],
        [1 / 3, -8 / 3, 10 / 3],
    ]
)


class StageJacobians:
    """The Jacobians at the stages of Radau's steps, for as many steps at once as one call takes."""

    def __init__(self, system: System, begin: tuple, steps: Sequence[tuple]):
        self._system = system
        count = np.size(begin[1])
        self._together = max(1, TOGETHER // (3 * count * max(count, 20)))
        if not system.takes_columns:
            self._together = 1
        self._steps = list(zip([begin, *steps], steps, strict=False))
        self._start, self._blocks = -1, np.zeros(0)

    def of(self, n: int) -> np.ndarray:
        start = n - n % self._together
        if start != self._start:
            self._start, self._blocks = start, self._made(start)
        return self._blocks[n - start]

    def _made(self, start: int) -> np.ndarray:
        times, points = [], []
        for (t, y, *_), (end, _, stages, *_) in self._steps[start : start + self._together]:
            times.append(t + RADAU_NODES * (end - t))
            points.append(y + (np.zeros((3, 1)) if stages is None else stages))
        joint = np.concatenate(times)

        def slopes(rows: Any) -> Any:
            return self._system.inner_slopes(joint, rows)

        found = block_jacobians(slopes, np.concatenate(points))
        return np.reshape(found, (len(times), 3, *found.shape[1:]))


class RadauStep(Step):
    """A step of Radau IIA of order 5 (E. Hairer and G. Wanner, Solving Ordinary Differential
    Equations II, 1996, section IV.8).

    The stages are SciPy's root of a system of equations, and are differentiated as such.
    """

    def __init__(
        self,
        system: System,
        method: Any,
        times: Sequence[Any],
        y: Any,
        last: Any,
        found: np.ndarray,
        stages: Any,
        blocks: Callable[[], np.ndarray],
    ):
        super().__init__(times, y)
        count = len(found)

        times = self.begin + RADAU_NODES * self.h

        def equations(z: Any) -> Any:
            rows = np.reshape(z, (3, count))
            slopes = system.slopes(times, rows + y)
            return np.reshape(rows - self.h * np.dot(RADAU, slopes), (-1,))

        def jacobian_at(_: np.ndarray) -> np.ndarray:
            coupled = np.einsum("ij,jab->iajb", value(self.h) * RADAU, blocks())
            return np.eye(3 * count) - np.reshape(coupled, (3 * count, 3 * count))

        stages = np.zeros((3, count)) if stages is None else stages  # of no time at all
        root = corrected(equations, np.ravel(stages), jacobian_at, "integrate.solve_ivp")
        self.stages = np.reshape(root, (3, count))
        end = y + self.stages[-1]
        self.end = end + (found - value(end))

    def at(self, t: Any) -> Any:
        return self.polynomial(np.dot(np.transpose(self.stages), RADAU_POLYNOMIAL), t)


def require_same(begin: np.ndarray, end: np.ndarray, found: np.ndarray) -> None:
    """RuntimeError if a step that is taken again ends elsewhere."""
    size = np.max(np.abs(begin)) + np.max(np.abs(found))
    if not np.max(np.abs(end - found)) <= 1e-6 * size:
        raise RuntimeError(
            "integrate.solve_ivp: fun returned other values when it was called again with the same "
            "arguments; it must depend on them alone"
        )
