"""Attached: arrays with a row for each placed item, which stay where the items are."""

import contextlib
import uuid
from typing import Any

import numpy as np

from daskgrad.autodiff.values.descriptions import describe
from daskgrad.autodiff.values.elsewhere import AttachedElsewhere, CotangentElsewhere
from daskgrad.autodiff.values.memory import canonical_leaf, require_room
from daskgrad.placed.attachment import Attachment, RemoteGradient
from daskgrad.placed.updates import Added, Scaled


class Attached(AttachedElsewhere):
    """An array with a row for each placed item; made by ``Shards.attach``.

    ``np.asarray`` fetches it. ``attachment`` has it under ``name``, beside optimisers' arrays.
    """

    def __init__(self, attachment: Attachment, shape: tuple[int, ...], dtype: np.dtype):
        self.attachment = attachment
        self.name = uuid.uuid4().hex
        self.shape, self.dtype = shape, dtype
        attachment.users[self.name] = self

    def fetch(self) -> np.ndarray:
        array = self.attachment.rows(self.name, slice(None))
        return np.zeros(self.shape, self.dtype) if array is None else array

    def rows(self, indices: np.ndarray) -> np.ndarray:
        rows = self.attachment.rows(self.name, indices)
        return np.zeros((len(indices), *self.shape[1:]), self.dtype) if rows is None else rows

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

    def __init__(self, attached: Attached, kept: RemoteGradient | np.ndarray):
        self.attached = attached
        self.kept = kept
        self.shape, self.dtype = attached.shape, attached.dtype
        if isinstance(kept, RemoteGradient):
            attached.attachment.gradients[id(self)] = self

    def fetch(self) -> np.ndarray:
        if isinstance(self.kept, RemoteGradient):
            return self.attached.attachment.gradient(self.kept, self.attached.name)
        return self.kept.copy()

    def leave(self) -> None:
        """Fetches the gradient into this process; it stays remote if a worker lost it."""
        with contextlib.suppress(RuntimeError):
            self.kept = self.fetch()

    def scaled(self, factor: Any) -> "AttachedGradient":
        kept = self.kept
        assert isinstance(kept, RemoteGradient)  # arrays become gradients at the very end
        expression = Scaled(kept.expression, factor)
        return AttachedGradient(self.attached, kept._replace(expression=expression))

    def plus(self, other: CotangentElsewhere) -> Any:
        assert isinstance(other, AttachedGradient)
        first, second = self.kept, other.kept
        if (
            isinstance(first, RemoteGradient)
            and isinstance(second, RemoteGradient)
            and other.attached is self.attached
        ):
            expression = Added(first.expression, second.expression)
            recipes, holds = first.recipes | second.recipes, (*first.holds, *second.holds)
            return AttachedGradient(self.attached, RemoteGradient(expression, recipes, holds))
        return self.fetch() + other.fetch()


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
    attached = Attached(attachment, array.shape, canonical_leaf(array[:0]).dtype)
    attached.fill(array)
    return attached
