"""Initial value problems of ordinary differential equations, as in ``scipy.integrate``.

SciPy solves with plain numbers, and so decides on the steps. These are taken again with traced
values: what is differentiated is the discrete solution, by what it was computed from, with the
steps held fixed. Sources: E. Hairer, S. P. Nørsett and G. Wanner, Solving Ordinary Differential
Equations I, 1993, section I.14; P. Eberhard and C. Bischof, Automatic differentiation of numerical
integration algorithms, Mathematics of Computation 68 (1999), why steps are not differentiated.
"""

import functools
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import scipy.integrate
from scipy.integrate import DOP853, RK23, RK45, Radau

from daskgrad.autodiff.tape import value
from daskgrad.autodiff.tape.implicit import (
    PlainFunction,
    as_array,
    block_jacobians,
    corrected,
    depth_of,
    jacobian,
)
from daskgrad.scipy.quadrature import MOVE, NEAR, are_jumps, moved, narrowed, smallest_jump

# -------------------------------------------------------------------------------------------------
# Steps of SciPy's methods for initial value problems, with traced values.
#
# Each has the value at its ``end``, the ``slope_at_end``, and the polynomial ``at`` times within
# it. Coefficients are those of SciPy's solvers.

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


# -------------------------------------------------------------------------------------------------
# Jumps of a right-hand side in time: solved piece by piece, or a warning where one moves.

SAMPLES = 6  # of each step, its ends included


class Pieces:
    """The solution of several problems in a row, as a function of t."""

    def __init__(self, solutions: Sequence[Callable], ends: Sequence[Any], descends: bool):
        self._solutions = solutions
        self._sign = -1.0 if descends else 1.0
        self._ends = self._sign * np.array([float(value(end)) for end in ends])

    def __call__(self, t: Any) -> Any:
        t = as_array(t)
        places = np.searchsorted(self._ends[:-1], self._sign * np.ravel(value(t)))
        if np.ndim(t) == 0:
            return self._solutions[places[0]](t)
        columns = [
            np.reshape(self._solutions[place](t[n]), (-1, 1)) for n, place in enumerate(places)
        ]
        return np.concatenate(columns, axis=1)


def solve_in_pieces(
    solve: Callable,
    t_span: Sequence[Any],
    y0: Any,
    jumps: Sequence[Any],
    t_eval: Any,
    wants_sol: bool,
) -> Any:
    """One result of ``solve(t_span, y0)`` for each piece between jumps, put together.

    A piece ends just before a jump, and the next one begins just after it, so that each has its own
    right-hand side at both ends.
    """
    begin, end = t_span
    low, high = sorted((float(value(begin)), float(value(end))))
    descends = float(value(begin)) > float(value(end))
    inner = sorted([c for c in jumps if low < float(value(c)) < high], key=value, reverse=descends)
    side = (-1.0 if descends else 1.0) * NEAR * max(abs(low), abs(high), high - low)
    results: list[Any] = []
    ends = []
    for start, stop in zip(
        [begin, *[c + side for c in inner]], [*[c - side for c in inner], end], strict=True
    ):
        results.append(solve((start, stop), y0))
        ends.append(stop)
        y0 = results[-1].y[:, -1]
        if results[-1].status != 0:  # failed, or ended by an event
            break
    found = results[-1]
    solution = Pieces([each.sol for each in results], ends, descends)
    last = found.t[-1]
    if t_eval is None:
        found.t = np.concatenate([as_array(each.t) for each in results])
        found.y = np.concatenate([each.y for each in results], axis=1)
    else:
        points = as_array(t_eval)
        is_reached = value(points) >= value(last) if descends else value(points) <= value(last)
        found.t, found.y = points[is_reached], solution(points[is_reached])
    for name in ("nfev", "njev", "nlu"):
        found[name] = sum([each[name] for each in results])
    if found.t_events is not None:
        for name in ("t_events", "y_events"):
            found[name] = [
                np.concatenate([as_array(part) for part in parts if len(part)] or [np.array([])])
                for parts in zip(*[each[name] for each in results], strict=True)
            ]
    found.sol = solution if wants_sol else None
    return found


def warn_of_moving_jumps(
    system: Any, times: Sequence[float], ys: Sequence[np.ndarray], slopes: Sequence[np.ndarray]
) -> None:
    """A warning if the right-hand side jumps at a time that depends on what is differentiated.

    Each step is looked at in a few places between its ends; y is a straight line within it.
    """
    span = abs(times[-1] - times[0])
    steps = list(zip(times[:-1], times[1:], ys[:-1], ys[1:], strict=True))
    samples = samples_of(system, np.array(times), np.array(ys), np.nan_to_num(slopes))
    rises = np.abs(np.diff(samples, axis=0))
    is_one_step = np.max(rises, axis=0) > 0.5 * np.sum(rises, axis=0)
    is_jump = np.max(rises, axis=0) > smallest_jump(samples)
    for n in np.flatnonzero(np.any(is_one_step & is_jump, axis=1)):
        low, high, *ends = steps[n]
        line = Line(low, high, *ends)
        sample = functools.partial(line.slope, system.inner)
        place = narrowed(sample, min(low, high), max(low, high), span)
        if place is None:
            continue
        step = NEAR * max(abs(place), span)
        sides = [sample(place + k * step) for k in (-2.0, -1.0, 1.0, 2.0)]
        if np.any(are_jumps(*sides)) and line.is_moving(system, place - step, place + step):
            warnings.warn(
                f"integrate.solve_ivp: fun jumps at t = {place:.6g}, a time that depends on what "
                f"is differentiated; the derivative lacks its part. Give the time, as it is "
                f"computed, in jumps=[...], or solve up to a terminal event and go on from there",
                RuntimeWarning,
                stacklevel=3,
            )
            return


def samples_of(system: Any, times: np.ndarray, ys: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """The slopes at places along all steps: an axis of places, one of steps, one of numbers."""
    inner = []
    for part in np.linspace(0.0, 1.0, SAMPLES)[1:-1]:
        t = times[:-1] + part * np.diff(times)
        y = ys[:-1] + part * np.diff(ys, axis=0)
        with np.errstate(all="ignore"):
            inner.append(np.nan_to_num(value(system.inner_slopes(t, y))))
    return np.stack([slopes[:-1], *inner, slopes[1:]])


class Line:
    """The solution within a step, as a straight line."""

    def __init__(self, begin: float, end: float, y: np.ndarray, y_end: np.ndarray):
        self._begin, self._y = begin, y
        self._slope = (y_end - y) / (end - begin)

    def slope(self, fun: Callable, t: float, scale: float = 1.0) -> np.ndarray:
        """The right-hand side on the line."""
        with np.errstate(all="ignore"):
            found = fun(t, scale * (self._y + (t - self._begin) * self._slope))
            return np.nan_to_num(np.ravel(value(as_array(found))))

    def is_moving(self, system: Any, left: float, right: float) -> bool:
        """Whether a jump is elsewhere when the parameters and y are changed a little."""

        def height(move: float) -> float:
            numbers = system.plain.numbers
            twin = system.bound_to(moved(numbers, move)) if move else system.inner
            jump = self.slope(twin, right, 1.0 + move) - self.slope(twin, left, 1.0 + move)
            return float(np.max(np.abs(jump)))

        return min(height(MOVE), height(-MOVE)) < 0.5 * height(0.0)


# -------------------------------------------------------------------------- initial value problems

STEPS = {RK23: RungeKuttaStep, RK45: RungeKuttaStep, DOP853: DormandPrince8Step, Radau: RadauStep}
METHODS: dict[Any, type] = {method.__name__: method for method in STEPS}
METHODS |= {method.__name__: method for method in (scipy.integrate.BDF, scipy.integrate.LSODA)}


def solve_ivp(
    fun: Callable,
    t_span: Sequence[Any],
    y0: Any,
    method: Any = "RK45",
    t_eval: Any = None,
    dense_output: bool = False,
    events: Any = None,
    vectorized: bool = False,
    args: Any = None,
    jumps: Sequence[Any] = (),
    **options: Any,
) -> Any:
    """The solution of ``dy/dt = fun(t, y)`` with ``y(t_span[0]) = y0``; ``.y`` is differentiated.

    So are ``.sol``, with ``dense_output``, ``.t`` where it is traced, and times and values of
    events: with respect to y0, args, what ``fun`` and events close over, ``t_span`` and ``t_eval``,
    in all orders, for the methods RK23, RK45, DOP853 and Radau. ``fun`` is called with plain
    numbers t (unless they are traced) and written in plain NumPy. Values are SciPy's, and so are
    failures: see ``.success``; what was found until then is differentiated. ``jac`` is for SciPy.
    ``jumps``: times at which ``fun`` jumps, traced or not; the problem is solved piece by piece.
    A RuntimeWarning tells of a jump that is not among them and whose time depends on what is
    differentiated: the derivative lacks its part.

    Traced are all steps once more, in some ten operations for a stage beside those of ``fun``. For
    Radau each step takes the inverse of a matrix three times as large as y, and as many pullbacks
    of ``fun`` as y has entries: of one call for many steps if ``fun`` takes vectors of times and
    columns of values, and what is traced with an axis more, and returns the columns that single
    calls return. Whether there are jumps is looked for in four places of each step.

    NotImplementedError if there is a derivative to take with other methods. LinAlgError for the
    time of an event whose function has the slope zero there.
    """
    if len(jumps):

        def solve_piece(t_span: Sequence[Any], y0: Any) -> Any:
            how = {"dense_output": True, "events": events, "vectorized": vectorized, **options}
            return solve_ivp(fun, t_span, y0, method, args=args, **how)

        return solve_in_pieces(solve_piece, t_span, y0, jumps, t_eval, dense_output)
    arguments = () if args is None else args
    system = System(fun, arguments, vectorized)
    given = options.get("jac")
    if callable(given):
        options["jac"] = PlainFunction(given, arguments)
    functions = events_of(events, arguments)
    solver = METHODS.get(method, method)
    found, steps = solve(
        system.plain,
        [float(value(t)) for t in t_span],
        value(as_array(y0)),
        solver,
        t_eval=value(as_array(t_eval)) if t_eval is not None else None,
        dense_output=dense_output,
        events=functions and [function.plain for function in functions],
        vectorized=vectorized,
        **options,
    )
    plains = [system.plain, *[function.plain for function in functions or ()]]
    parts = [*t_span, as_array(y0), as_array(0.0 if t_eval is None else t_eval)]
    if not any(map(depth_of, parts)) and not any(plain.is_traced for plain in plains):
        return found
    require_derivative(solver)
    if len(steps) > 1:
        begin = float(value(t_span[0])), value(as_array(y0))
        times, ys = zip(*[step[:2] for step in (begin, *steps)], strict=True)
        slopes = [value(system.inner(*begin)), *[slope for *_, slope in steps]]
        slopes = list(map(np.atleast_1d, slopes))  # of one state it may be a number
        system.find_columns(np.array(times), np.array(ys), np.array(slopes))
        warn_of_moving_jumps(system, times, ys, slopes)
    solution = Solution(system, solver, steps, t_span, as_array(y0))
    return solution.put_into(found, t_eval, dense_output, functions)


class Event:
    """A function whose zeros SciPy finds: ``plain`` for SciPy, and as the model has it."""

    def __init__(self, fun: Callable, args: Any):
        self.fun, self.args = fun, args
        self.plain: Any = PlainFunction(fun, args)
        for name in ("terminal", "direction"):  # SciPy looks at them
            if hasattr(fun, name):
                setattr(self.plain, name, getattr(fun, name))

    def time(self, found: float, solution: Callable) -> Any:
        """The time of a zero, with its derivatives."""

        def at(vector: Any) -> Any:
            return np.reshape(as_array(self.fun(vector[0], solution(vector[0]), *self.args)), (1,))

        what = "the time of an event of integrate.solve_ivp"
        return corrected(at, np.array([found]), lambda t: jacobian(at, t), what)[0]


def events_of(events: Any, args: Any) -> list[Event] | None:
    if events is None:
        return None
    return [Event(each, args) for each in ((events,) if callable(events) else events)]


def require_derivative(method: Any) -> None:
    if method not in STEPS:
        name = getattr(method, "__name__", method)
        raise NotImplementedError(
            f"integrate.solve_ivp has no derivative with method={name!r}; use method='Radau' for "
            f"stiff equations, or 'RK23', 'RK45' or 'DOP853'"
        )


def solve(fun: Callable, t_span: Any, y0: Any, method: Any, **kwargs: Any) -> tuple[Any, list[Any]]:
    """SciPy's result, and of each step its end, the value, Radau's stages, the slope."""
    steps: list[tuple] = []
    if method not in STEPS:
        return scipy.integrate.solve_ivp(fun, t_span, y0, method, **kwargs), steps

    class Watched(method):
        def step(self) -> Any:
            message = super().step()
            if self.status != "failed":
                stages = getattr(self, "Z", None)
                steps.append((self.t, self.y.copy(), stages, np.array(self.f)))
            return message

    Watched.__name__ = method.__name__
    return scipy.integrate.solve_ivp(fun, t_span, y0, Watched, **kwargs), steps


class Solution:
    """The traced solution: a function of t, which is a number or a vector."""

    def __init__(self, system: System, method: Any, steps: list[Any], t_span: Any, y0: Any):
        begin, end = t_span
        times = [float(t) for t, *_ in steps]
        self._times = [begin, *times]
        if times and times[-1] == float(value(end)):
            self._times[-1] = end
        self.ts = np.array([value(t) for t in self._times], dtype=float)
        self.t_min, self.t_max = np.min(self.ts), np.max(self.ts)
        self._descends = float(value(end)) < float(value(begin))
        self.steps: list[Any] = []
        self.ys = [y0 if depth_of(y0) else np.asarray(y0, dtype=np.result_type(y0, float))]
        jacobians = StageJacobians(system, (self.ts[0], value(y0)), steps)
        for n, (_, found, stages, _) in enumerate(steps):
            last = self.steps[-1] if self.steps else None
            times, y = self._times[n : n + 2], self.ys[-1]
            blocks = functools.partial(jacobians.of, n)
            step = STEPS[method](system, method, times, y, last, found, stages, blocks)
            self.steps.append(step)
            self.ys.append(self.steps[-1].end)

    def __call__(self, t: Any) -> Any:
        """The value at t; beyond the ends that of the first or last step's polynomial."""
        t = as_array(t)
        if np.ndim(t) == 0:
            return self._at(np.reshape(t, (1,)))[:, 0]
        return self._at(t)

    def _at(self, t: Any) -> Any:
        plain = value(t)
        sign = -1.0 if self._descends else 1.0
        places = np.searchsorted(sign * self.ts[1:-1], sign * plain, side="left")
        order = np.argsort(places, kind="stable")
        parts = [self.steps[place].at(t[places == place]) for place in np.unique(places)]
        found = np.concatenate(parts, axis=1)
        return found if np.all(np.diff(order) == 1) else found[:, np.argsort(order)]

    def put_into(self, found: Any, t_eval: Any, dense_output: bool, events: Any) -> Any:
        """SciPy's result with traced values in it."""
        times, ys, last = self._times, self.ys, found.t[-1] if len(found.t) else None
        if events is not None:
            pairs = list(zip(events, found.t_events, strict=True))
            traced = [[event.time(t, self) for t in at] for event, at in pairs]
            if found.status == 1 and t_eval is None:  # the last step has ended at an event
                end = next(t for each in traced for t in each if value(t) == last)
                times, ys = [*times[:-1], end], [*ys[:-1], self(end)]
            found.t_events = [as_array(each) for each in traced]
            found.y_events = [
                np.transpose(self(as_array(each))) if each else np.array([]) for each in traced
            ]
        if dense_output:
            found.sol = self
        if t_eval is None:
            found.y = np.transpose(rows_of(ys))
            if any(map(depth_of, times)):
                found.t = as_array(times)
        elif len(found.t):
            points = as_array(t_eval)[: len(found.t)]
            found.y = self(points)
            found.t = points if depth_of(points) else found.t
        return found
