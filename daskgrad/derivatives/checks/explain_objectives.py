"""Explanations of objectives: whether a derivative is one program, its cost, and the things
in the way."""

from collections.abc import Callable
from typing import Any

import dask

from daskgrad.autodiff.programs.whole import Whole
from daskgrad.autodiff.values import clock
from daskgrad.derivatives.objectives import Objective
from daskgrad.tasks.clients import is_in_line
from daskgrad.tasks.settings import may_compile

OF_GRAD = "grad.<locals>.grad_of"  # which holds the other one
CALLS = 3  # of each way: the least time counts
FINE = {  # reasons that nobody need mend
    "have programs of their own": "one for all of them would save little more",
    "may take no time in the calling thread": "its evaluations go to Dask, as the settings say",
    "longer than it may": "NumPy's own work takes most of the time",
    "has other or many items": "its sums have programs of their own, for many items at once",
}

ADVICE = {
    "is not compiled": "dg.explain of that model tells why",
    "catches exceptions": "catch them around the derivative's call",
    "changes an argument": "change a copy",
}


def objective_of(fun: Any) -> Objective | None:
    """The objective of a function of ``dg.value_and_grad`` or ``dg.grad``; None of any other."""
    for cell in getattr(fun, "__closure__", None) or ():
        content = cell.cell_contents
        if type(content) is Objective:
            return content
        if fun.__code__.co_qualname == OF_GRAD:
            return objective_of(content)
    return None


def explained(fun: Callable, objective: Objective | None, args: tuple, kwargs: dict) -> str:
    """The state of a derivative, after calls with these arguments if there are any."""
    assert objective is not None
    seconds, replaced = 0.0, 0
    if args or kwargs:
        seconds = least_seconds(fun, args, kwargs)
        replaced = objective.programs().calls
        seconds = min(seconds, least_seconds(fun, args, kwargs))
        replaced = objective.programs().calls - replaced
    state = state_of(objective, objective.programs())
    if not seconds:
        return state
    times = f"A call takes {1e6 * seconds:,.0f} µs"
    if replaced:
        with dask.config.set({"daskgrad.compile": False}):
            times += f", and {1e6 * least_seconds(fun, args, kwargs):,.0f} µs without its program"
    elif state.startswith(f"{objective.name!r} is compiled"):
        times += ", and had no program: its arguments are of another kind, or were compared"
    return f"{state}\n{times}."


def least_seconds(fun: Callable, args: tuple, kwargs: dict) -> float:
    times = []
    for _ in range(CALLS):
        begin = clock.processor_seconds()
        fun(*args, **kwargs)
        times.append(clock.processor_seconds() - begin)
    return min(times)


def state_of(objective: Objective, programs: Whole) -> str:
    """Whether there is a program, since when, and the reason if there is none."""
    name = repr(objective.name)
    if not (objective.is_vouched or (objective.may_compile and may_compile())):
        return f"{name} is not compiled: compile=False or dask.config (daskgrad.compile) says so"
    entries = programs.entries()
    ways = [way for entry in entries for way in entry.ways]
    if ways:
        since = min([entry.since for entry in entries if entry.ways])
        steps = max([way.program.steps for way in ways])
        kinds = f", of {len(ways)} programs for its kinds and branches" if len(ways) > 1 else ""
        state = f"{name} is compiled: its {objective.kind.derivative} is one program"
        return f"{state}{kinds}, since call {since + 1}, of {steps} lines"
    if not is_in_line():
        return f"{name} is not one program: a cluster or scheduler evaluates it, with its models'"
    obstacle = programs.obstacle()
    fine = [text for reason, text in FINE.items() if reason in (obstacle or "")]
    if obstacle is None:
        count = max([entry.calls for entry in entries], default=programs.cold_calls)
        calls = f"{programs.price} calls of a kind, of which there were {count}"
        return f"{name} will be compiled after {calls} in this process"
    if fine:
        return f"{name} is not one program, and need not be: {obstacle}; {fine[0]}"
    advice = [text for reason, text in ADVICE.items() if reason in obstacle]
    return "; ".join([f"{name} is not compiled: {obstacle}", *advice])
