"""Initial value problems of ordinary differential equations, as in ``scipy.integrate``.

SciPy solves with plain numbers, and so decides on the steps. These are taken again with traced
values: the discrete solution is differentiated, with the steps held fixed. Sources: E. Hairer,
S. P. Nørsett and G. Wanner, Solving Ordinary Differential Equations I, 1993, section I.14;
P. Eberhard and C. Bischof, Automatic differentiation of numerical integration algorithms,
Mathematics of Computation 68 (1999), why steps are not differentiated.
"""

import functools
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import scipy.integrate
from scipy.integrate import BDF, DOP853, LSODA, RK23, RK45, Radau

from daskgrad.autodiff.tape import value
from daskgrad.autodiff.tape.implicit import (
    PlainFunction,
    as_array,
    block_jacobians,
    corrected,
    depth_of,
    jacobian,
)
from daskgrad.scipy.dispatch import with_fields
from daskgrad.scipy.quadrature import MOVE, NEAR, are_jumps, moved, narrowed, smallest_jump

# -------------------------------------------------------------------------------------------------
# Steps of SciPy's methods for initial value problems, with traced values.
#
# A step has the value at its ``end``, the ``slope_at_end``, and the polynomial ``at`` times within
# it. Coefficients are SciPy's.

SAME = 1e-12  # by which slopes of one call and of many may differ, as part of the largest
TOGETHER = 10**5  # numbers in the Jacobians that are made at once


class System:
    """The right-hand side of an equation, in plain numbers for SciPy (``plain``), and traced."""

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
        """The right-hand side with plain numbers for the model's traced ones; y may be traced."""
        return self._vector(lambda y: self.plain.unchanged(t, y), y)

    def bound_to(self, numbers: Iterable) -> Callable:
        """The right-hand side with other numbers for the model's traced ones."""
        twin = self.plain.bound_to(numbers)
        return lambda t, y: self._vector(lambda y: twin(t, y), y)

    def find_columns(self, times: np.ndarray, ys: np.ndarray, slopes: np.ndarray) -> None:
        """Tries whether one call takes many times, with their values as columns.

        If so, traced numbers may need one more axis. ``slopes``: the results of single calls.
        """

        def with_an_axis(number: Any) -> Any:
            return number[..., np.newaxis] if np.ndim(number) else number

        for widen in (lambda number: number, with_an_axis):
            self._columns = self.plain.bound_to(map(widen, self.plain.numbers))
            try:
                with np.errstate(all="ignore"):
                    rows = value(self._rows(self._columns, times, ys))
                    gaps = np.abs(rows - slopes) if rows.shape == slopes.shape else np.inf
                self.takes_columns = bool(np.all(gaps <= SAME * np.max(np.abs(slopes), axis=0)))
            except Exception:  # the user's function got an array instead of a number
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
        columns = as_array(fun(times + 0.0, np.transpose(ys) + 0.0))  # may be changed in place
        return np.transpose(columns if np.ndim(columns) == 2 else np.reshape(columns, (1, -1)))

    def _vector(self, fun: Callable, y: Any) -> Any:
        if self._is_vectorized:
            return np.reshape(as_array(fun(np.reshape(y, (-1, 1)))), (-1,))
        slope = as_array(fun(y))
        return slope if np.ndim(slope) else slope * np.ones(np.shape(y))


def rows_of(vectors: Sequence[Any]) -> Any:
    """Vectors of one length as rows, in two operations."""
    return np.reshape(np.concatenate(vectors), (len(vectors), -1))


class SolverStep:
    """A step from one time to another; ``end`` is the value there."""

    end: Any

    def __init__(self, system: System, times: Sequence[Any], y: Any):
        self.system = system
        self.begin, self.to = times
        self.h = self.to - self.begin
        self.y = y

    def part(self, t: Any) -> Any:
        """Times as parts of the step."""
        return (t - self.begin) / self.h

    def polynomial(self, columns: Any, t: Any) -> Any:
        """The values at times, from the coefficients of their parts' powers."""
        x = self.part(t)
        powers = [x]
        for _ in range(np.shape(columns)[1] - 1):
            powers.append(powers[-1] * x)
        return np.dot(columns, rows_of(powers)) + self.y[:, np.newaxis]


class RungeKuttaStep(SolverStep):
    """A step of an explicit method (Hairer, Nørsett and Wanner I, section II.1).

    ``scipy_end``: SciPy's value at its end; ``last``: the step before, if there is one.
    """

    def __init__(
        self, method: Any, system: System, times: Any, y: Any, scipy_end: np.ndarray, last: Any
    ):
        super().__init__(system, times, y)
        self.method = method
        self.slopes = [last.slope_at_end if last else system(self.begin, y)]
        for a, c in zip(method.A[1:], method.C[1:], strict=True):
            self.append_slope(a, c)
        end = y + self.h * self.combined(method.B)
        size = np.max(np.abs(value(y))) + np.max(np.abs(scipy_end))
        if not np.max(np.abs(value(end) - scipy_end)) <= 1e-6 * size:
            raise RuntimeError(
                "integrate.solve_ivp: fun returned other values when it was called again with the "
                "same arguments; it must depend on them alone"
            )
        self.end = end + (scipy_end - value(end))  # SciPy's last bits, from which it went on

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
    """A step of DOP853; its polynomial needs three more slopes (the same book, section II.6)."""

    @functools.cached_property
    def coefficients(self) -> list[Any]:
        first, last = self.slopes[0], self.slope_at_end
        self.slopes.append(last)
        for a, c in zip(self.method.A_EXTRA, self.method.C_EXTRA, strict=True):
            self.append_slope(a, c)
        rise = self.end - self.y
        inner = self.h * np.dot(self.method.D, rows_of(self.slopes))
        bends = [self.h * first - rise, 2.0 * rise - self.h * (last + first)]
        return [rise, *bends, *[inner[n] for n in range(len(self.method.D))]]

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
    """The Jacobians at the stages of Radau's steps, many steps at once if one call takes them."""

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
            self._start, self._blocks = start, self._from(start)
        return self._blocks[n - start]

    def _from(self, start: int) -> np.ndarray:
        times, points = [], []
        for (t, y, *_), (end, _, stages, *_) in self._steps[start : start + self._together]:
            times.append(t + RADAU_NODES * (end - t))
            points.append(y + (np.zeros((3, 1)) if stages is None else stages))
        joint = np.concatenate(times)

        def slopes(rows: Any) -> Any:
            return self._system.inner_slopes(joint, rows)

        blocks = block_jacobians(slopes, np.concatenate(points))
        return np.reshape(blocks, (len(times), 3, *blocks.shape[1:]))


class RadauStep(SolverStep):
    """A step of Radau IIA of order 5 (E. Hairer and G. Wanner, Solving Ordinary Differential
    Equations II, 1996, section IV.8).

    The stages are SciPy's root of a system of equations, and are differentiated as a root.
    """

    def __init__(
        self,
        system: System,
        times: Sequence[Any],
        y: Any,
        scipy_end: np.ndarray,
        stages: Any,
        blocks: Callable[[], np.ndarray],
    ):
        super().__init__(system, times, y)
        count = len(scipy_end)
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
        self.end = end + (scipy_end - value(end))

    def at(self, t: Any) -> Any:
        return self.polynomial(np.dot(np.transpose(self.stages), RADAU_POLYNOMIAL), t)


# -------------------------------------------------------------------------------------------------
# Jumps of a right-hand side in time: solved piece by piece, with a warning if one moves.

SAMPLES = 6  # of each step, its ends included


class JoinedSolution:
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
    """The joint result of ``solve(t_span, y0)`` for the pieces between jumps.

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
    starts, stops = [begin, *[c + side for c in inner]], [*[c - side for c in inner], end]
    for start, stop in zip(starts, stops, strict=True):
        results.append(solve((start, stop), y0))
        ends.append(stop)
        y0 = results[-1].y[:, -1]
        if results[-1].status != 0:  # failed, or ended by an event
            break
    joint = results[-1]
    solution = JoinedSolution([result.sol for result in results], ends, descends)
    last = joint.t[-1]
    if t_eval is None:
        joint.t = np.concatenate([as_array(result.t) for result in results])
        joint.y = np.concatenate([result.y for result in results], axis=1)
    else:
        points = as_array(t_eval)
        is_reached = value(points) >= value(last) if descends else value(points) <= value(last)
        joint.t, joint.y = points[is_reached], solution(points[is_reached])
    for name in ("nfev", "njev", "nlu"):
        joint[name] = sum([result[name] for result in results])
    if joint.t_events is not None:
        for name in ("t_events", "y_events"):
            joint[name] = [
                np.concatenate([as_array(part) for part in parts if len(part)] or [np.array([])])
                for parts in zip(*[result[name] for result in results], strict=True)
            ]
    joint.sol = solution if wants_sol else None
    return joint


def warn_of_moving_jumps(
    system: Any, times: Sequence[float], ys: Sequence[np.ndarray], slopes: Sequence[np.ndarray]
) -> None:
    """A warning if the right-hand side jumps at a time that depends on traced values.

    Each step is sampled in a few places; y is a straight line within it.
    """
    span = abs(times[-1] - times[0])
    steps = list(zip(times[:-1], times[1:], ys[:-1], ys[1:], strict=True))
    samples = samples_of(system, np.array(times), np.array(ys), np.nan_to_num(slopes))
    rises = np.abs(np.diff(samples, axis=0))
    is_one_step = np.max(rises, axis=0) > 0.5 * np.sum(rises, axis=0)
    is_jump = np.max(rises, axis=0) > smallest_jump(samples)
    for n in np.flatnonzero(np.any(is_one_step & is_jump, axis=1)):
        low, high, *ends = steps[n]
        line = ChordOfStep(low, high, *ends)
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


class ChordOfStep:
    """The solution within a step, as a straight line."""

    def __init__(self, begin: float, end: float, y: np.ndarray, y_end: np.ndarray):
        self._begin, self._y = begin, y
        self._slope = (y_end - y) / (end - begin)

    def slope(self, fun: Callable, t: float, scale: float = 1.0) -> np.ndarray:
        """The right-hand side on the line."""
        with np.errstate(all="ignore"):
            slope = fun(t, scale * (self._y + (t - self._begin) * self._slope))
            return np.nan_to_num(np.ravel(value(as_array(slope))))

    def is_moving(self, system: Any, left: float, right: float) -> bool:
        """Whether a jump moves when the parameters and y are changed a little."""

        def height(move: float) -> float:
            numbers = system.plain.numbers
            twin = system.bound_to(moved(numbers, move)) if move else system.inner
            jump = self.slope(twin, right, 1.0 + move) - self.slope(twin, left, 1.0 + move)
            return float(np.max(np.abs(jump)))

        return min(height(MOVE), height(-MOVE)) < 0.5 * height(0.0)


# -------------------------------------------------------------------------- initial value problems

STEPS = {RK23: RungeKuttaStep, RK45: RungeKuttaStep, DOP853: DormandPrince8Step, Radau: RadauStep}
METHODS: dict[Any, type] = {method.__name__: method for method in (*STEPS, BDF, LSODA)}


@with_fields
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

    So are ``.sol``, with ``dense_output``, ``.t`` if it is traced, and times and values of events:
    with respect to y0, args, closures of ``fun`` and of events, ``t_span`` and ``t_eval``, in all
    orders, for the methods RK23, RK45, DOP853 and Radau. ``fun`` is called with plain numbers t
    (unless they are traced) and written in plain NumPy. Values and failures are SciPy's: see
    ``.success``; the solution until then is differentiated. ``jac`` is for SciPy. ``jumps``: times
    at which ``fun`` jumps, traced or not; the problem is solved piece by piece. A RuntimeWarning
    tells of another jump at a time that depends on traced values: the derivative lacks its part.

    All steps are traced once more, in some ten operations for a stage, and the operations of
    ``fun``. For Radau each step takes the inverse of a matrix three times as large as y, and as
    many pullbacks of ``fun`` as y has entries. One call serves many steps if ``fun`` takes vectors
    of times, columns of values, and traced arrays with one more axis, and returns the columns of
    single calls. Jumps are looked for in four places of each step.

    NotImplementedError if there is a derivative to take with other methods. LinAlgError for the
    time of an event whose function has the slope zero there.
    """
    if len(jumps):
        options |= {"dense_output": True, "events": events, "vectorized": vectorized, "args": args}
        solve_piece = functools.partial(solve_ivp, fun, method=method, **options)
        return solve_in_pieces(solve_piece, t_span, y0, jumps, t_eval, dense_output)
    arguments = () if args is None else args
    system = System(fun, arguments, vectorized)
    if callable(options.get("jac")):
        options["jac"] = PlainFunction(options["jac"], arguments)
    functions: list[Event] | None = None
    if events is not None:
        listed = (events,) if callable(events) else events
        functions = [Event(event, arguments) for event in listed]
    solver = METHODS.get(method, method)
    result, steps = solve(
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
        return result
    if solver not in STEPS:
        name = getattr(solver, "__name__", solver)
        raise NotImplementedError(
            f"integrate.solve_ivp has no derivative with method={name!r}; use method='Radau' for "
            f"stiff equations, or 'RK23', 'RK45' or 'DOP853'"
        )
    if len(steps) > 1:
        begin = float(value(t_span[0])), value(as_array(y0))
        times, ys = zip(*[step[:2] for step in (begin, *steps)], strict=True)
        slopes = [value(system.inner(*begin)), *[slope for *_, slope in steps]]
        slopes = list(map(np.atleast_1d, slopes))  # of one state it may be a number
        system.find_columns(np.array(times), np.array(ys), np.array(slopes))
        warn_of_moving_jumps(system, times, ys, slopes)
    solution = Solution(system, solver, steps, t_span, as_array(y0))
    return solution.put_into(result, t_eval, dense_output, functions)


class Event:
    """A function for SciPy to find its zeros, ``plain``, and traced."""

    def __init__(self, fun: Callable, args: Any):
        self.fun, self.args = fun, args
        self.plain: Any = PlainFunction(fun, args)
        for name in ("terminal", "direction"):  # SciPy looks at them
            if hasattr(fun, name):
                setattr(self.plain, name, getattr(fun, name))

    def time(self, zero: float, solution: Callable) -> Any:
        """The time of a zero, with its derivatives."""

        def at(vector: Any) -> Any:
            return np.reshape(as_array(self.fun(vector[0], solution(vector[0]), *self.args)), (1,))

        name = "the time of an event of integrate.solve_ivp"
        return corrected(at, np.array([zero]), lambda t: jacobian(at, t), name)[0]


def solve(fun: Callable, t_span: Any, y0: Any, method: Any, **kwargs: Any) -> tuple[Any, list[Any]]:
    """SciPy's result, and for each step its end, the value, Radau's stages, the slope."""
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
        for n, (_, y, stages, _) in enumerate(steps):
            step: Any
            taken = system, self._times[n : n + 2], self.ys[-1], y
            if method is Radau:
                step = RadauStep(*taken, stages, functools.partial(jacobians.of, n))
            else:
                step = STEPS[method](method, *taken, self.steps[-1] if self.steps else None)
            self.steps.append(step)
            self.ys.append(step.end)

    def __call__(self, t: Any) -> Any:
        """The value at t; beyond the ends by the first or last step's polynomial."""
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
        values = np.concatenate(parts, axis=1)
        return values if np.all(np.diff(order) == 1) else values[:, np.argsort(order)]

    def put_into(self, result: Any, t_eval: Any, dense_output: bool, events: Any) -> Any:
        """SciPy's result with traced values in it."""
        times, ys, last = self._times, self.ys, result.t[-1] if len(result.t) else None
        if events is not None:
            pairs = list(zip(events, result.t_events, strict=True))
            zeros = [[event.time(t, self) for t in at] for event, at in pairs]
            if result.status == 1 and t_eval is None:  # the last step has ended at an event
                end = next(t for of_event in zeros for t in of_event if value(t) == last)
                times, ys = [*times[:-1], end], [*ys[:-1], self(end)]
            result.t_events = list(map(as_array, zeros))
            result.y_events = [
                np.transpose(self(as_array(at))) if at else np.array([]) for at in zeros
            ]
        if dense_output:
            result.sol = self
        if t_eval is None:
            result.y = np.transpose(rows_of(ys))
            if any(map(depth_of, times)):
                result.t = as_array(times)
        elif len(result.t):
            points = as_array(t_eval)[: len(result.t)]
            result.y = self(points)
            result.t = points if depth_of(points) else result.t
        return result
