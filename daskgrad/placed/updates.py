"""Updates: they bring workers' copies of an array from one version to a later one.

The client sends new numbers of a replicated array. For attached arrays it sends the optimiser's
steps, which workers take on their blocks, and which the client takes again on lost ones. A block's
arrays are a dict by name: parameters, and the arrays of optimisers. All of it is plain data.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.memory import canonical
from daskgrad.autodiff.values.rows import Rows

Arrays = dict[str, np.ndarray]  # the rows of one block
KeptCotangents = Mapping[str, Mapping[int, Any]]  # by ticket and block
FindCotangent = Callable[[str], Any]  # by a ticket: None is a zero


class Copy(NamedTuple):
    """An array, or the blocks of attached arrays by number, in some version."""

    version: int
    value: Any


# -------------------------------------------------------------------------------------------------
# Each update has ``apply``, which returns the copy after it. An update that has come before, or
# that starts at a later version than the copy has, returns the copy as it was.


class WholeArray(NamedTuple):
    """A whole replicated array."""

    array: np.ndarray

    def apply(self, copy: Copy | None, version: int, kept: KeptCotangents) -> Copy | None:
        is_new = copy is None or copy.version < version
        return Copy(version, writable(self.array)) if is_new else copy


class ChangedEntries(NamedTuple):
    """The entries of a replicated array that changed after the version ``since``."""

    since: int
    axes: tuple[int, ...]
    indices: np.ndarray
    values: np.ndarray

    def apply(self, copy: Copy | None, version: int, kept: KeptCotangents) -> Copy | None:
        if copy is None or not self.since <= copy.version < version:
            return copy
        indices, values = canonical((self.indices, self.values))
        Rows(copy.value.shape, self.axes, indices, values).scatter(copy.value, values)
        return Copy(version, copy.value)


class Blocks(NamedTuple):
    """Some blocks of attached arrays, by number."""

    blocks: Mapping[int, Arrays]

    def apply(self, copy: Copy | None, version: int, kept: KeptCotangents) -> Copy | None:
        blocks = {
            number: {name: writable(array) for name, array in arrays.items()}
            for number, arrays in self.blocks.items()
        }
        if copy is None or copy.version < version:
            return Copy(version, blocks)
        if copy.version == version:
            copy.value.update(blocks)
        return copy


class LatestSteps(NamedTuple):
    """The latest steps of attached arrays."""

    steps: Sequence["VersionStep"]

    def apply(self, copy: Copy | None, version: int, kept: KeptCotangents) -> Copy | None:
        for step in self.steps:
            if copy is not None and step.version == copy.version + 1:
                copy = Copy(step.version, dict(step.take_all(copy.value, kept)))
        return copy


CopyUpdate = WholeArray | ChangedEntries | Blocks | LatestSteps


def writable(array: np.ndarray) -> np.ndarray:
    """An array that arrived, in memory that may be written into."""
    array = canonical(array)
    return array if array.flags.writeable else array.copy()


# ------------------------------------------------------------- gradients that workers keep


class KeptCotangent(NamedTuple):
    """The cotangent of a block that its worker kept in a call, under a ``ticket``."""

    ticket: str

    def of_block(self, find: FindCotangent, like: np.ndarray) -> np.ndarray:
        cotangent = find(self.ticket)
        return np.zeros_like(like) if cotangent is None else cotangent


class Scaled(NamedTuple):
    cotangent: "Expression"
    factor: Any

    def of_block(self, find: FindCotangent, like: np.ndarray) -> np.ndarray:
        return cotangents.scale((self.cotangent.of_block(find, like),), self.factor)[0]


class Added(NamedTuple):
    first: "Expression"
    second: "Expression"

    def of_block(self, find: FindCotangent, like: np.ndarray) -> np.ndarray:
        return self.first.of_block(find, like) + self.second.of_block(find, like)


Expression = KeptCotangent | Scaled | Added  # a gradient, rounded as an array is


# ------------------------------------------------------------------------------------- steps


class Change(NamedTuple):
    """The change of one array in a step: the optimiser's rule, for a gradient.

    ``steps`` counts the steps that the array has taken; ``slots`` names the optimiser's arrays.
    """

    name: str
    gradient: Expression
    optimiser: Any
    rate: float
    steps: np.ndarray
    slots: Sequence[str]

    @property
    def is_of_rows(self) -> bool:
        """Whether the rows have taken different numbers of steps."""
        return np.shape(self.steps)[:1] not in ((), (1,))

    def apply(self, arrays: Arrays, find: FindCotangent) -> None:
        """Changes a block's arrays in place."""
        array = arrays[self.name]
        gradient = self.gradient.of_block(find, array)
        slots = [arrays.setdefault(slot, np.zeros_like(array)) for slot in self.slots]
        self.optimiser.step(array, gradient, self.rate, self.steps, *slots)


class VersionStep(NamedTuple):
    """The changes that make this ``version`` of the version before."""

    version: int
    changes: Sequence[Change]

    def take(self, arrays: Arrays, find: FindCotangent) -> None:
        for change in self.changes:
            change.apply(arrays, find)

    def take_all(
        self, blocks: Mapping[int, Arrays], kept: KeptCotangents
    ) -> Iterator[tuple[int, Arrays]]:
        """The blocks after the step; drops a block that lacks a cotangent or an array."""
        for number, arrays in blocks.items():
            try:
                self.take(arrays, finder(kept, number))
            except KeyError:
                continue
            yield number, arrays


def finder(kept: KeptCotangents, number: int) -> FindCotangent:
    """Finds the cotangents of a block; KeyError if they were not kept."""
    return lambda ticket: kept[ticket][number]
