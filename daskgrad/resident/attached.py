"""Attached: arrays with a row for each placed item, which stay where the items are."""

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.resident.attached_steps import Added, Change, Kept, Scaled
from daskgrad.resident.attachment import Attachment, Gradient
from daskgrad.values.descriptions import describe
from daskgrad.values.elsewhere import CotangentElsewhere, Elsewhere
from daskgrad.values.memory import canonical_leaf, require_room


class Attached(Elsewhere):
    """An array with a row for each placed item; made by ``Shards.attach``.

    ``np.asarray`` fetches it. ``attachment`` has it under ``name``, beside what optimisers keep.
    """

    def __init__(self, attachment: Attachment, shape: tuple[int, ...], dtype: np.dtype):
        self.attachment = attachment
        self.name = uuid.uuid4().hex
        self.shape, self.dtype = shape, dtype
        attachment.users[self.name] = self

    def fetch(self) -> np.ndarray:
        found = self.attachment.copy(self.name)
        return np.zeros(self.shape, self.dtype) if found is None else found

    def rows(self, indices: np.ndarray) -> np.ndarray:
        found = self.attachment.rows(self.name, indices)
        return np.zeros((len(indices), *self.shape[1:]), self.dtype) if found is None else found

    def reading(self) -> contextlib.AbstractContextManager[None]:
        return self.attachment.reading()

    def gradient_of(self, cotangent: np.ndarray) -> "AttachedGradient":
        return AttachedGradient(self, cotangent)

    def slot(self) -> "Attached":
        """An array of zeros of the same shape, for an optimiser to keep what it needs to."""
        return Attached(self.attachment, self.shape, self.dtype)

    def fill(self, array: np.ndarray) -> None:
        """Gives it the numbers of an array."""
        with self.attachment.rewriting() as arrays:
            arrays[self.name] = np.array(array, self.dtype, order="C")


class AttachedGradient(CotangentElsewhere):
    """The gradient of an attached array, which stays with the items, too; for ``dg.optim``.

    ``np.asarray`` fetches it. It is lost with its worker if the array has changed since.
    """

    def __init__(self, attached: Attached, found: Gradient | np.ndarray):
        self.attached = attached
        self.found = found
        self.shape, self.dtype = attached.shape, attached.dtype
        if isinstance(found, Gradient):
            attached.attachment.gradients[id(self)] = self

    def fetch(self) -> np.ndarray:
        if isinstance(self.found, Gradient):
            return self.attached.attachment.gradient(self.found, self.attached.name)
        return self.found.copy()

    def leave(self) -> None:
        """Comes to this process, for good; stays as it is if it was lost."""
        with contextlib.suppress(RuntimeError):
            self.found = self.fetch()

    def scaled(self, factor: Any) -> "AttachedGradient":
        found = self.found
        assert isinstance(found, Gradient)  # arrays become gradients at the very end
        scaled = found._replace(expression=Scaled(found.expression, factor))
        return AttachedGradient(self.attached, scaled)

    def plus(self, other: CotangentElsewhere) -> Any:
        assert isinstance(other, AttachedGradient)
        first, second = self.found, other.found
        are_kept = isinstance(first, Gradient) and isinstance(second, Gradient)
        if not are_kept or other.attached is not self.attached:
            return self.fetch() + other.fetch()
        assert isinstance(first, Gradient)
        assert isinstance(second, Gradient)
        expression = Added(first.expression, second.expression)
        evaluations = first.evaluations | second.evaluations
        gradient = Gradient(expression, evaluations, (*first.holds, *second.holds))
        return AttachedGradient(self.attached, gradient)


def attach(attachment: Attachment, count: int, array: Any) -> Attached:
    """As ``Shards.attach`` says."""
    if type(array) not in (np.ndarray, np.memmap) or array.dtype.kind != "f":
        raise TypeError(
            f"Shards.attach takes a plain array of floats, with a row for each item; found "
            f"{describe(array)}; attach the arrays of a pytree one by one"
        )
    if not array.ndim or len(array) != count:
        raise ValueError(
            f"Shards.attach takes an array with a row for each of the {count} items; found "
            f"{describe(array)}"
        )
    require_room(array)
    made = Attached(attachment, array.shape, canonical_leaf(array[:0]).dtype)
    made.fill(array)
    return made


# --------------------------------------------------------------------------------- optimisers


class AttachedChange(NamedTuple):
    """What a step of an optimiser does to an attached array (``attached_steps.Change``)."""

    array: Attached
    gradient: np.ndarray | AttachedGradient
    optimiser: Any
    rate: float
    steps: np.ndarray
    slots: Sequence[Attached]

    def of_blocks(self) -> tuple[Change, Any]:
        """What is done to each block, and the gradient."""
        names = [slot.name for slot in self.slots]
        optimiser, rate, steps = self.optimiser, self.rate, self.steps
        change = Change(self.array.name, Kept(""), optimiser, rate, steps, names)
        is_kept = isinstance(self.gradient, AttachedGradient)
        return change, self.gradient.found if is_kept else self.gradient  # type: ignore[union-attr]

    def try_out(self) -> None:
        """Takes the step here, of one row of zeros: an error of a user's rule that workers met
        would come again in every later call."""
        row = np.zeros((1, *self.array.shape[1:]), self.array.dtype)
        steps = self.steps[:1] if self.steps.ndim else self.steps
        slots = [row.copy() for _ in self.slots]
        with np.errstate(all="ignore"):
            self.optimiser.step(row, row.copy(), self.rate, steps, *slots)


def changing_attached(arrays: Sequence[Attached]) -> contextlib.AbstractContextManager:
    """No evaluation begins that uses one of the arrays; RuntimeError if one is under way."""
    return _changing(arrays) if arrays else contextlib.nullcontext()


@contextlib.contextmanager
def _changing(arrays: Sequence[Attached]) -> Iterator[None]:
    found = {id(array.attachment): array.attachment for array in arrays}
    with contextlib.ExitStack() as stack:
        for each in sorted(found.values(), key=id):  # so that threads do not wait for each other
            stack.enter_context(each.without_readers())
        yield


def step_of_attached(changes: Sequence[AttachedChange]) -> None:
    """Takes a step of all of these arrays, those of the same items at once; or of none of them, if
    a gradient cannot be had, or a rule fails."""
    by_attachment: dict[Attachment, list[tuple[Change, Any]]] = {}
    for each in changes:
        each.try_out()
        by_attachment.setdefault(each.array.attachment, []).append(each.of_blocks())
    for take in [attachment.ready(changes) for attachment, changes in by_attachment.items()]:
        take()


@contextlib.contextmanager
def here(attached: Sequence[Attached]) -> Iterator[list[np.ndarray]]:
    """Arrays of the same items, in this process, to be changed; the workers get them again."""
    with attached[0].attachment.rewriting() as arrays:
        yield [arrays.setdefault(a.name, np.zeros(a.shape, a.dtype)) for a in attached]


def attached_slot(array: Attached, found: Any) -> Attached:
    """What an optimiser keeps of an array, as it is attached; attaches an array that was loaded."""
    if isinstance(found, Attached) and found.attachment is array.attachment:
        return found
    made = array.slot()
    made.fill(np.asarray(found))
    return made


def zeros_like(array: np.ndarray | Attached) -> np.ndarray | Attached:
    return array.slot() if isinstance(array, Attached) else np.zeros_like(array)
