"""Reversal: carries out schedules: runs steps forward, and pulls cotangents back along them."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from daskgrad.autodiff.models.determinism import require_agreement
from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.addition import add_anew
from daskgrad.autodiff.values.cotangents import Leaves, as_summand
from daskgrad.autodiff.values.fingerprints import Fingerprint, fingerprint
from daskgrad.autodiff.values.trees import flatten, map_leaves
from daskgrad.loops.schedules import Schedule
from daskgrad.loops.steps import Steps, stack

Kept = dict[int, Any]  # states, by the number of the step that takes them in


# ------------------------------------------------------------------------------------- forward


class StepOutputs:
    """The outputs of consecutive steps: their sum, in the steps' order, or a row for each."""

    def __init__(self, kind: str | None, total: Any = None):
        self._kind = kind
        self._total = total
        self._rows: list[Any] = []

    def add(self, output: Any) -> None:
        if self._kind == "stack":
            self._rows.append(output)
        elif self._kind == "sum":
            first = self._total is None
            self._total = map_leaves(as_summand, output) if first else add_anew(self._total, output)

    @property
    def value(self) -> Any:
        return stack(self._rows) if self._kind == "stack" else self._total


def sweep(steps: Steps, schedule: Schedule, state: Any, total: Any = None) -> tuple[Any, Any, Kept]:
    """Runs a loop forward: the last state, the outputs, and the kept states.

    ``total``: the sum of the outputs so far.
    """
    outputs = StepOutputs(steps.loop.outputs, total)
    firsts, kept = set(schedule.firsts), {}
    for number in range(schedule.start, schedule.stop):
        if number in firsts:
            kept[number] = state
        state, output = steps.advance(number, state)
        outputs.add(output)
    return state, outputs.value, kept


# ------------------------------------------------------------------------------------ backward


class Pulled:
    """The cotangents of a loop's inputs while it is pulled back, from its last step to its first.

    ``state``: of the state after the steps that are still to come. ``outputs``: of the loop's
    outputs. ``totals``: of the shared inputs, added up from the loop's last step on. ``rows``: of
    each step's row of ``xs``, the last step's first.
    """

    def __init__(
        self,
        steps: Steps,
        widths: Sequence[int],
        state: Leaves,
        outputs: Leaves,
        totals: Leaves | None,
        expected: dict[int, Fingerprint],
    ):
        self._steps = steps
        self._ends = [0, *accumulate(widths)]
        self._outputs = outputs
        self._expected = expected  # of states, by the number of the step that takes them in
        self._is_owned = False
        self.state = state
        self.totals = totals
        self.rows: list[Leaves] = []

    def pull(self, number: int, state: Any) -> None:
        """Pulls one step back."""
        loop, ends = self._steps.loop, self._ends
        after, _, pullback = self._steps.trace(number, state)
        expected = self._expected.pop(number + 1, None)
        if expected is not None:
            subject = f"the step {self._steps.model.name!r} of a loop"
            require_agreement(expected, fingerprint(flatten(after)[0]), subject)
        outputs = self._outputs
        if loop.outputs == "stack":
            outputs = tuple([None if leaf is None else leaf[number] for leaf in outputs])
        pulled = pullback((*self.state, *outputs))
        self.state = pulled[: ends[1]]
        if loop.has_active_xs:
            self.rows.append(pulled[ends[1] : ends[2]])
        shared = pulled[ends[1 + loop.has_active_xs] :]
        before = self.totals or (None,) * len(shared)
        self.totals = cotangents.add(before, shared, self._is_owned)
        self._is_owned = True

    def forget(self, number: int, state: Any) -> None:
        """Keeps the fingerprint of a dropped state, to compare the step before it."""
        self._expected[number] = fingerprint(flatten(state)[0])


def pull_back(steps: Steps, schedule: Schedule, kept: Kept, pulled: Pulled) -> None:
    """Runs a loop backward from its kept states, which it uses up."""

    for start, stop, is_kept in schedule.backward():
        state = kept[start]
        for number in range(start, stop):
            state, _ = steps.advance(number, state)
        if is_kept:
            kept[stop] = state
            continue
        pulled.pull(stop, state)
        if stop == start:
            pulled.forget(start, kept.pop(start))
