"""Attached: arrays with a row for each placed item, which stay where the items are."""

import contextlib
import uuid
from typing import Any

import numpy as np

from daskgrad.autodiff.values.descriptions import describe
from daskgrad.autodiff.values.elsewhere import AttachedElsewhere, CotangentElsewhere
from daskgrad.autodiff.values.memory import canonical_leaf, require_room
from daskgrad.placed.attachment import Attachment, Gradient
from daskgrad.placed.updates import Added, Scaled


class Attached(AttachedElsewhere):
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
        return Attached(self.attachment, self.shape, self.dtype)

    def fill(self, array: np.ndarray) -> None:
        with self.attachment.rewriting() as arrays:
            arrays[self.name] = np.array(array, self.dtype, order="C")


class AttachedGradient(CotangentElsewhere):
    """The gradient of an attached array, which stays with the items, too; for ``dg.optim``.

    ``np.asarray`` fetches it. It is lost with its worker if the array has changed since.
    """

    def __init__(self, attached: Attached, kept: Gradient | np.ndarray):
        self.attached = attached
        self.kept = kept
        self.shape, self.dtype = attached.shape, attached.dtype
        if isinstance(kept, Gradient):
            attached.attachment.gradients[id(self)] = self

    def fetch(self) -> np.ndarray:
        if isinstance(self.kept, Gradient):
            return self.attached.attachment.gradient(self.kept, self.attached.name)
        return self.kept.copy()

    def leave(self) -> None:
        """Comes to this process, for good; stays as it is if it was lost."""
        with contextlib.suppress(RuntimeError):
            self.kept = self.fetch()

    def scaled(self, factor: Any) -> "AttachedGradient":
        found = self.kept
        assert isinstance(found, Gradient)  # arrays become gradients at the very end
        scaled = found._replace(expression=Scaled(found.expression, factor))
        return AttachedGradient(self.attached, scaled)

    def plus(self, other: CotangentElsewhere) -> Any:
        assert isinstance(other, AttachedGradient)
        first, second = self.kept, other.kept
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
