"""Jumps of a right-hand side in time: solved piece by piece, or a warning where one moves."""

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskgrad.backends.autograd import value
from daskgrad.backends.autograd.functions import as_array
from daskgrad.scipy.breaks import MOVE, NEAR, are_jumps, moved, narrowed, smallest_jump

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
