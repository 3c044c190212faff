"""Initial value problems of ordinary differential equations, as in ``scipy.integrate``.

SciPy solves with plain numbers, and so decides on the steps. These are taken again with traced
values: what is differentiated is the discrete solution, by what it was computed from, with the
steps held fixed. Sources: E. Hairer, S. P. Nørsett and G. Wanner, Solving Ordinary Differential
Equations I, 1993, section I.14; P. Eberhard and C. Bischof, Automatic differentiation of numerical
integration algorithms, Mathematics of Computation 68 (1999), why steps are not differentiated.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.integrate
from scipy.integrate import DOP853, RK23, RK45, Radau

from daskgrad.backends.autograd import value
from daskgrad.backends.autograd.corrections import corrected, jacobian
from daskgrad.backends.autograd.functions import PlainFunction, as_array, depth_of
from daskgrad.scipy.jumps import solve_in_pieces, warn_of_moving_jumps
from daskgrad.scipy.steps import (
    DormandPrince8Step,
    RadauStep,
    RungeKuttaStep,
    StageJacobians,
    System,
    rows_of,
)

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
