"""Nested: loops inside models, where nothing is recorded: one rule, with the same kept states.

In forward mode the tangents go along in a loop of duals, which is itself a rule; its pullback is
the Hessian-vector product. If a model differentiates the pullback, a plain loop is traced, and all
of its states are kept.
"""

import math
import operator
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from daskgrad.autodiff.models.custom_vjp import Rule
from daskgrad.autodiff.models.duals import Dual, can_move, or_zeros, push_forward
from daskgrad.autodiff.models.model import Call, Model, plain_function
from daskgrad.autodiff.models.tracing import Active
from daskgrad.autodiff.programs.recording import recording_models
from daskgrad.autodiff.rules.declaration import is_recorded
from daskgrad.autodiff.tape.reverse import trace
from daskgrad.autodiff.tape.rule_calls import RuleCall, holds_boxes, with_derivative
from daskgrad.autodiff.values.carriers import Structure
from daskgrad.autodiff.values.descriptions import argument_name
from daskgrad.autodiff.values.fingerprints import fingerprint
from daskgrad.autodiff.values.trees import flatten, map_leaves, substitute, unflatten
from daskgrad.loops.pieces import Piece, States
from daskgrad.loops.reversal import Pulled, StepOutputs, pull_back, sweep
from daskgrad.loops.schedules import AUTO, SMALL, Limit
from daskgrad.loops.steps import Loop, Steps, parts_of, stack_cotangents


class NestedLoop(Rule):
    """A loop as a function of its state, ``xs`` if it has them, and the shared inputs."""

    def __init__(self, model: Model, steps: int, has_xs: bool, outputs: str | None, limit: Limit):
        self.model = model
        self.name = self.__name__ = model.name
        self._steps = steps
        self._has_xs = has_xs
        self._outputs = outputs
        self._limit = limit

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return NestedLoop, (self.model, self._steps, self._has_xs, self._outputs, self._limit)

    def run_again(self) -> list[Callable]:
        return [plain_function(self.model.fun)]

    def argument(self, number: int) -> str:
        names = ["the state", *["the xs"] * self._has_xs]
        known = number < len(names)
        named = names[number] if known else repr(argument_name(self.model.fun, number))
        return f"{named} of the loop {self.name!r}"

    def fun(self, *args: Any) -> Any:
        """The value, on plain arrays."""
        return self._swept("value", args)[0]

    def run(self, args: tuple, kwargs: dict) -> tuple[Any, Any]:
        if holds_boxes(args):
            return self(*args), None  # in the trace that these belong to
        value, states = self._swept("forward", args)
        return value, states

    def run_recorded(
        self, args: tuple, kwargs: dict, active: Sequence[int]
    ) -> tuple[Any, Any] | None:
        """The value, and the steps, whose tapes a program keeps if they are as small as states that
        are all kept; else, and if no list of calls can repeat a step, the loop is one call."""
        boxes = list(filter(is_recorded, flatten(args)[0]))
        recording = boxes[0]._node.recording
        is_pushed = hasattr(self.model.fun, "daskgrad_pushed")
        if self._limit != AUTO or is_pushed or recording.refusal:
            return None
        count = len(recording.calls)
        try:
            return self._recorded(args, active, boxes[0])
        except Exception:  # the loop on plain arrays has its own
            recording.forget(count)
            return None

    def pullback(self, call: RuleCall, active: Sequence[int]) -> Callable[[Any], Any]:
        def pull(cotangent: Any) -> Any:
            call.require_unchanged()
            if type(call.residuals) is RecordedSteps:
                return self._pull_recorded(call, cotangent)
            if holds_boxes((call.leaves, cotangent)):
                return self._pull_traced(call, active, cotangent)
            return self._pull(call, active, cotangent)

        return pull

    def push(self, call: RuleCall, tangents: tuple) -> Any:
        """The tangent of the value, from a loop that pushes the tangents along."""
        pairs = zip(tangents, call.args, strict=True)
        duals = [Dual(arg, (map_leaves(or_zeros, tangent, arg),)) for tangent, arg in pairs]
        model = push_forward(self.model)
        pushed = NestedLoop(model, self._steps, self._has_xs, self._outputs, self._limit)(*duals)
        if self._outputs is None:
            return tangent_of_numbers(pushed)
        return tuple(map(tangent_of_numbers, pushed))

    # ---- on plain arrays

    def _loop(self, args: tuple, active: Sequence[Active] = ()) -> Loop:
        structure = Structure(flatten(((0.0,) * len(args), {}))[1])
        holes = tuple([(number, number) for number in range(len(args))])
        call = Call((None,) * len(args), structure, holes)
        return Loop(call, self._steps, self._has_xs, self._outputs).differentiated(active)

    def _swept(self, stage: str, args: tuple) -> tuple[Any, States]:
        loop = self._loop(args)
        schedule = Piece(None, self._limit).planned(loop, args[0])
        if stage == "value":
            schedule = schedule._replace(firsts=(0,))
        steps = Steps(stage, self.model, loop, args[1:])
        last, outputs, kept = sweep(steps, schedule, args[0])
        value = last if self._outputs is None else (last, outputs)
        return value, States(list(kept.items()), None)

    def _differentiated(self, args: tuple, active: Sequence[int]) -> Loop:
        ends = list(accumulate([len(flatten(arg)[0]) for arg in args]))
        numbers = sorted({bisect_right(ends, place) for place in active})
        return self._loop(args, [Active(number, watched=False) for number in numbers])

    def _pull(self, call: RuleCall, active: Sequence[int], cotangent: Any) -> tuple:
        args = call.args
        loop = self._differentiated(args, active)
        steps = Steps("backward", self.model, loop, args[1:])
        schedule = Piece(None, self._limit).planned(loop, args[0])
        kept = call.residuals.take()
        if kept is None:
            kept = sweep(steps, schedule, args[0])[2]
        last = call.value if self._outputs is None else call.value[0]
        expected = {self._steps: fingerprint(flatten(last)[0])}
        pulled = self._arrived(args, steps, call.value, cotangent, expected)
        pull_back(steps, schedule, kept, pulled)
        return self._in_structure(args, loop, pulled, steps.widths(args[0]))

    def _arrived(
        self, args: tuple, steps: Steps, value: Any, cotangent: Any, expected: dict
    ) -> Pulled:
        last = value if self._outputs is None else value[0]
        arrived, width = tuple(flatten(cotangent)[0]), len(flatten(last)[0])
        widths = steps.widths(args[0])
        return Pulled(steps, widths, arrived[:width], arrived[width:], None, expected)

    def _in_structure(
        self, args: tuple, loop: Loop, pulled: Pulled, widths: Sequence[int]
    ) -> tuple:
        """A cotangent for each argument, None if it is not differentiated."""
        leaves: list[Any] = [None] * len(args)
        leaves[0] = list(pulled.state)
        totals, begin = list(pulled.totals or ()), 0
        for active, width in zip(loop.active[1:], widths[1:], strict=True):
            if active.number == 1 and self._has_xs:
                leaves[1] = list(stack_cotangents(pulled.rows[::-1]))
                continue
            leaves[active.number] = totals[begin : begin + width]
            begin += width
        pairs = zip(args, leaves, strict=True)
        return tuple([None if x is None else unflatten(flatten(arg)[1], x) for arg, x in pairs])

    # ---- on boxes

    def _recorded(self, args: tuple, active: Sequence[int], box: Any) -> tuple[Any, Any]:
        args = map_leaves(lambda x: box.boxed(x) if type(x) in DATA else x, args)
        loop, calls = self._differentiated(args, active), box._node.recording.calls
        steps, count = RecordedSteps("forward", self.model, loop, args[1:]), len(calls)
        state, outputs = args[0], StepOutputs(self._outputs)
        with recording_models(math.inf):
            for number in range(self._steps):
                state, output = steps.run(number, state)
                outputs.add(output)
                if number == 0 and self._steps * sum(map(nbytes_of, calls[count:])) > SMALL:
                    raise ValueError("a program would keep too much")
        return (state if self._outputs is None else (state, outputs.value)), steps

    def _pull_recorded(self, call: RuleCall, cotangent: Any) -> tuple:
        args, steps = call.args, call.residuals
        pulled = self._arrived(args, steps, call.value, cotangent, {})
        for number in reversed(range(self._steps)):
            pulled.pull(number, None)
        return self._in_structure(args, steps.loop, pulled, steps.widths(args[0]))

    def _pull_traced(self, call: RuleCall, active: Sequence[int], cotangent: Any) -> tuple:
        """The cotangents in autograd's own operations, which another trace records."""

        def loop(*boxes: Any) -> list[Any]:
            args = call.with_leaves(substitute(call.leaves, active, boxes))
            return flatten(self._plainly(*args))[0]

        outputs, tape = trace(loop, [call.leaves[place] for place in active])
        places, arrived = with_derivative(outputs), flatten(cotangent)[0]
        seeds: list[Any] = substitute([None] * len(outputs), places, [arrived[p] for p in places])
        pulled = tape.pull(seeds)
        return call.with_leaves(substitute([None] * len(call.leaves), active, pulled))

    def _plainly(self, state: Any, *inputs: Any) -> Any:
        outputs = StepOutputs(self._outputs)
        xs, *shared = inputs if self._has_xs else (None, *inputs)
        for number in range(self._steps):
            row = [map_leaves(operator.itemgetter(number), xs)] if self._has_xs else []
            value = self.model.fun(state, *row, *shared)
            state, output = parts_of(value, self._outputs, self.name)
            outputs.add(output)
        return state if self._outputs is None else (state, outputs.value)


def nbytes_of(call: Any) -> int:
    """The bytes of a recorded call; a guard has no value."""
    return max(getattr(getattr(call, "value", 0), "nbytes", 0), 8)


class RecordedSteps(Steps):
    """The steps of a loop that a program makes call by call, each with its tape."""

    def __init__(self, *parts: Any):
        super().__init__(*parts)
        self._pullbacks: list[Callable] = []

    def run(self, number: int, state: Any) -> tuple[Any, Any]:
        state, output, pullback = super().trace(number, state)
        self._pullbacks.append(pullback)
        return state, output

    def trace(self, number: int, state: Any) -> tuple[Any, Any, Callable]:
        return None, None, self._pullbacks[number]


DATA = (np.ndarray, np.float64, float)


def tangent_of_numbers(dual: Dual) -> Any:
    """The only tangent of a dual, with leaves that may be boxes; None for integers."""
    value, (tangent,) = dual.value, dual.tangents
    return map_leaves(lambda leaf, slope: slope if can_move(leaf) else None, value, tangent)
