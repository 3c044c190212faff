"""Pieces: the tasks of a loop, each of which runs some consecutive steps, forward or backward.

A forward task keeps the states of its schedule until its backward task takes them. A piece without
states (a second cotangent is pulled back, or the states stayed in another process) runs forward
again. The cotangents of shared inputs are carried from piece to piece, and added step by step: so
their bits do not depend on the schedule.
"""

import threading
from collections.abc import Sequence
from typing import Any

from daskgrad.autodiff.models.captured import Captured
from daskgrad.autodiff.models.determinism import (
    require_same_input,
    require_same_value,
    require_value_seen,
)
from daskgrad.autodiff.models.model import Model
from daskgrad.autodiff.models.pullbacks import seed
from daskgrad.autodiff.models.tracing import seen_by
from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.carriers import carrier
from daskgrad.autodiff.values.cotangents import Cotangent
from daskgrad.autodiff.values.fingerprints import fingerprint
from daskgrad.autodiff.values.memory import takes_as_arrived
from daskgrad.autodiff.values.trees import flatten
from daskgrad.loops.reversal import Kept, Pulled, pull_back, sweep
from daskgrad.loops.schedules import Limit, Schedule, revolve
from daskgrad.loops.steps import Loop, Steps, concatenate, concatenate_cotangents, stack_cotangents

TAKING = threading.Lock()  # one for the states of all pieces


@carrier
class States:
    """The states that a piece keeps until its pullback takes them, and its outputs."""

    kept: Any  # a list of pairs (step, state), or None
    outputs: Any

    def __repr__(self) -> str:
        return f"States({[step for step, _ in self.kept or ()]})"

    def take(self) -> Kept | None:
        """The states, for the pullback to drop one by one; None if they were taken before."""
        with TAKING:
            kept, self.kept = self.kept, None
        return None if kept is None else dict(kept)


@carrier
class Piece:
    """The steps of one task; without a ``schedule`` all, with as many states as the limit lets."""

    schedule: Schedule | None
    limit: Limit

    def steps(self, loop: Loop) -> int:
        """The number of its steps."""
        return self.schedule.stop - self.schedule.start if self.schedule else loop.steps

    def planned(self, loop: Loop, state: Any) -> Schedule:
        if self.schedule is not None:
            return self.schedule
        slots = self.limit.slots(loop.steps, nbytes_of(state))
        return revolve(loop.steps, slots or 1)


def nbytes_of(state: Any) -> int:
    return cotangents.nbytes(flatten(state)[0])


def evaluate_piece(
    model: Model, loop: Loop, piece: Piece, inputs: Sequence[Any], total: Any = None
) -> tuple[Any, Any]:
    """The state after a piece and the outputs; ``inputs``: of its first step, with all ``xs``.

    ``total``: the sum of the outputs of the pieces before.
    """
    state, *others = inputs
    whole = piece.planned(loop, state)
    schedule = whole._replace(firsts=(whole.start,))  # no state needs to be kept
    last, outputs, _ = sweep(Steps("value", model, loop, others), schedule, state, total)
    return last, outputs


def capture_piece(
    model: Model, loop: Loop, piece: Piece, inputs: Sequence[Any], total: Any = None
) -> Captured:
    """The state after a piece, captured with the outputs and the kept states."""
    state, *others = inputs
    schedule = piece.planned(loop, state)
    last, outputs, kept = sweep(Steps("forward", model, loop, others), schedule, state, total)
    return Captured(last, States(list(kept.items()), outputs), seen_by(loop.active, inputs))


def pull_back_piece(
    captured: Captured,
    cotangent: Cotangent,
    outputs: Cotangent | None,
    carried: Sequence[Cotangent],
    model: Model,
    loop: Loop,
    piece: Piece,
    inputs: Sequence[Any],
    value_elsewhere: Any = None,
) -> tuple[Cotangent, ...]:
    """The cotangents of a piece's active inputs; of ``xs``, of the piece's rows.

    ``cotangent``: of the state after the piece. ``outputs``: of the loop's outputs. ``carried``: of
    the shared inputs, from the pieces after this one; empty for the last piece.
    """
    state, *others = inputs
    require_value_seen(captured, cotangent, value_elsewhere, model)
    schedule, steps = piece.planned(loop, state), Steps("backward", model, loop, others)
    kept = captured.pullback.take()
    if kept is None:
        last, _, kept = sweep(steps, schedule, state)
        require_same_value(captured, fingerprint(flatten(last)[0]), model)
    pulled = Pulled(
        steps,
        steps.widths(state),
        seed(cotangent, captured.value, model),
        () if outputs is None else outputs.leaves,
        tuple([leaf for cotangent in carried for leaf in cotangent.leaves]) or None,
        {schedule.stop: captured.fingerprint},
    )
    pull_back(steps, schedule, kept, pulled)
    return share_out(pulled, captured, carried, model)


def share_out(
    pulled: Pulled, captured: Captured, carried: Sequence[Cotangent], model: Model
) -> tuple[Cotangent, ...]:
    """A cotangent for each active input, with the fingerprint of the input in this piece."""
    (print_, _), *others = captured.seen
    result = [Cotangent(tuple(pulled.state), print_)]
    if pulled.rows:
        (print_, _), *others = others
        result.append(Cotangent(stack_cotangents(pulled.rows[::-1]), print_))
    totals = iter(pulled.totals or ())
    for number, (print_, width) in enumerate(others):
        before = carried[number].seen if carried else None
        if before is not None and print_ is not None:
            require_same_input(print_, before, model.name)
        result.append(Cotangent(tuple([next(totals) for _ in range(width)]), print_))
    return tuple(result)


# ---------------------------------------------------------------------- between pieces and nodes


@takes_as_arrived
def outputs_of(captured: Captured) -> Any:
    return captured.pullback.outputs


def with_outputs(state: Any, parts: Sequence[Any], kind: str) -> tuple[Any, Any]:
    """The value of a loop with outputs, from the outputs of its pieces."""
    return state, parts[-1] if kind == "sum" else concatenate(parts)


def capture_outputs(state: Any, parts: Sequence[Any], kind: str) -> Captured:
    """The value of a loop with outputs, kept until the backward pass compares fingerprints."""
    return Captured(with_outputs(state, parts, kind), None, ())


def pull_outputs(
    captured: Captured, cotangent: Cotangent, model: Model, value_elsewhere: Any
) -> tuple[Cotangent, Cotangent]:
    """The cotangents of the last state and of the outputs."""
    require_value_seen(captured, cotangent, value_elsewhere, model)
    state = flatten(captured.value[0])[0]
    leaves = seed(cotangent, captured.value, model)
    of_state = Cotangent(leaves[: len(state)], fingerprint(state))
    return of_state, Cotangent(leaves[len(state) :])


def cotangent_of_xs(parts: Sequence[Cotangent], counts: Sequence[int]) -> Cotangent:
    """The cotangent of ``xs``, from the cotangents of each piece's rows, ``counts`` of them."""
    leaves = concatenate_cotangents([part.leaves for part in parts], counts)
    return Cotangent(leaves, parts[0].seen)
