"""Elsewhere: steps of arrays that are not in this process, or of which others have copies."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from daskgrad.autodiff.values.elsewhere import (
    AttachedElsewhere,
    Changing,
    Update,
    replicated,
    replicated_of,
)
from daskgrad.autodiff.values.rows import Rows


@contextlib.contextmanager
def changing(
    changes: Iterable[tuple[np.ndarray, Any]], attached: Iterable[AttachedElsewhere]
) -> Iterator[None]:
    """Arrays may change: replicated ones, with their gradients, are writeable, and no evaluation
    that uses attached ones begins.

    The entries of a gradient are new afterwards. RuntimeError, before any array changes, if an
    evaluation uses one.
    """
    known = []
    if replicated:
        found = [(replicated_of(array), array, gradient) for array, gradient in changes]
        known = [change for change in found if change[0] is not None]
        known.sort(key=lambda change: change[0].name)  # so that threads do not wait for each other
    attachments = {id(array.attachment): array.attachment for array in attached}
    with contextlib.ExitStack() as stack:
        for copies, _, _ in known:
            stack.enter_context(copies.without_readers())
        for copies, array, gradient in known:
            rows = gradient if isinstance(gradient, Rows) else None
            stack.enter_context(copies.changing(array, rows))
        for attachment in sorted(attachments.values(), key=id):
            stack.enter_context(attachment.without_readers())
        yield


def step_elsewhere(updates: Sequence[Update]) -> None:
    """Takes a step of all of these arrays, those of the same items at once; or of none of them, if
    a gradient cannot be had, or a rule fails."""
    by_attachment: dict[Changing, list[Update]] = {}
    for update in updates:
        try_out(update)
        by_attachment.setdefault(update.array.attachment, []).append(update)
    for take in [attachment.ready(group) for attachment, group in by_attachment.items()]:
        take()


def try_out(update: Update) -> None:
    """Takes the step here, of one row of zeros: an error of a user's rule that workers met would
    come again in every later call."""
    row = np.zeros((1, *update.array.shape[1:]), update.array.dtype)
    steps = update.steps[:1] if update.steps.ndim else update.steps
    slots = [row.copy() for _ in update.slots]
    with np.errstate(all="ignore"):
        update.optimiser.step(row, row.copy(), update.rate, steps, *slots)


@contextlib.contextmanager
def here(attached: Sequence[AttachedElsewhere]) -> Iterator[list[np.ndarray]]:
    """Arrays of the same items, in this process, to be changed; the workers get them again."""
    with attached[0].attachment.rewriting() as arrays:
        yield [arrays.setdefault(a.name, np.zeros(a.shape, a.dtype)) for a in attached]


def attached_slot(array: AttachedElsewhere, slot: Any) -> AttachedElsewhere:
    """What an optimiser keeps of an array, as it is attached; attaches an array that was loaded."""
    if isinstance(slot, AttachedElsewhere) and slot.attachment is array.attachment:
        return slot
    made = array.slot()
    made.fill(np.asarray(slot))
    return made
