"""Reversal: carries out schedules. Runs steps forward, and pulls cotangents back along them."""

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any

from daskgrad.autodiff.models.determinism import require_agreement
from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.addition import add_anew
from daskgrad.autodiff.values.cotangents import Leaves, as_summand
from daskgrad.autodiff.values.fingerprints import Fingerprint, fingerprint
from daskgrad.autodiff.values.trees import flatten, map_leaves
from daskgrad.loops.schedules import Action, Advance, Drop, Keep, Pull, Restore, Schedule
from daskgrad.loops.steps import Steps, stack

Kept = dict[int, Any]  # states, by the step before which they were


def perform(
    actions: Iterable[Action],
    kept: Kept,
    state: Any,
    advance: Callable[[int, Any], Any],
    pull: Callable[[int, Any], None] | None = None,
    drop: Callable[[int, Any], None] | None = None,
) -> Any:
    """Carries out the actions of a schedule, with ``state`` in hand; returns the state in hand.

    ``advance(step, state)`` returns the state after a step, ``pull`` pulls it back, and ``drop`` is
    told of the states that are dropped.
    """
    for action in actions:
        match action:
            case Advance(start, stop):
                for step in range(start, stop):
                    state = advance(step, state)
            case Keep(step):
                kept[step] = state
            case Restore(step):
                state = kept[step]
            case Pull(step):
                pull(step, state)  # type: ignore[misc]
            case Drop(step):
                drop(step, kept.pop(step))  # type: ignore[misc]
    return state


# ------------------------------------------------------------------------------------- forward


class Outputs:
    """The outputs of a run of steps: their sum, added in the steps' order, or a row for each."""

    def __init__(self, how: str | None, total: Any = None):
        self._how = how
        self._total = total
        self._rows: list[Any] = []

    def add(self, output: Any) -> None:
        if self._how == "stack":
            self._rows.append(output)
        elif self._how == "sum":
            first = self._total is None
            self._total = map_leaves(as_summand, output) if first else add_anew(self._total, output)

    @property
    def value(self) -> Any:
        return stack(self._rows) if self._how == "stack" else self._total


def sweep(steps: Steps, schedule: Schedule, state: Any, total: Any = None) -> tuple[Any, Any, Kept]:
    """Runs a loop forward: the last state, the outputs, and the kept states.

    ``total``: the sum of the outputs so far.
    """
    outputs = Outputs(steps.loop.outputs, total)
    kept: Kept = {}

    def advance(step: int, state: Any) -> Any:
        after, output = steps.advance(step, state)
        outputs.add(output)
        return after

    last = perform(schedule.forward(), kept, state, advance)
    return last, outputs.value, kept


# ------------------------------------------------------------------------------------ backward


class Pulled:
    """The cotangents of a loop's inputs while it is pulled back, from its last step to its first.

    ``state``: of the state after the steps that are still to come. ``outputs``: of the loop's
    outputs. ``totals``: of what the steps share, added up from the last step on, with those of the
    steps after this run; ``rows``: of each step's row of ``xs``, the last step's first.
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
        self._expected = expected  # by the number of the step before which a state was
        self._is_owned = False
        self.state = state
        self.totals = totals
        self.rows: list[Leaves] = []

    def pull(self, number: int, state: Any) -> None:
        """Pulls one step back."""
        traced = self._steps.trace(number, state)
        self._compare(number + 1, traced.state)
        pulled = traced.pullback((*self.state, *self._output_of(number)))
        self.state = pulled[: self._ends[1]]
        if self._steps.loop.has_active_xs:
            self.rows.append(pulled[self._ends[1] : self._ends[2]])
            self._add(pulled[self._ends[2] :])
        else:
            self._add(pulled[self._ends[1] :])

    def forget(self, number: int, state: Any) -> None:
        """A state is dropped; it is compared with the value of the step before it."""
        self._expected[number] = fingerprint(flatten(state)[0])

    def _compare(self, number: int, state: Any) -> None:
        expected = self._expected.pop(number, None)
        if expected is not None:
            what = f"the step {self._steps.model.name!r} of a loop"
            require_agreement(expected, fingerprint(flatten(state)[0]), what)

    def _output_of(self, number: int) -> Leaves:
        if self._steps.loop.outputs != "stack":
            return self._outputs
        return tuple([None if leaf is None else leaf[number] for leaf in self._outputs])

    def _add(self, pulled: Leaves) -> None:
        before = self.totals or (None,) * len(pulled)
        self.totals = cotangents.add(before, pulled, self._is_owned)
        self._is_owned = True


def pull_back(steps: Steps, schedule: Schedule, kept: Kept, pulled: Pulled) -> None:
    """Runs a loop backward from its kept states, which it uses up."""

    def advance(step: int, state: Any) -> Any:
        return steps.advance(step, state)[0]

    perform(schedule.backward(), kept, None, advance, pulled.pull, pulled.forget)
