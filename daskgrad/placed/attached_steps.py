"""Attached steps: how an optimiser changes attached arrays, block by block, wherever they are.

The client describes a step; workers take it on the blocks that they hold, and the client takes it
again on blocks that were lost. A block's arrays are a dict by name: parameters, and what optimisers
keep of them. All of it is plain data.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.values import cotangents

Arrays = dict[str, np.ndarray]  # the rows of one block
FindCotangent = Callable[[str], Any]  # by a ticket: None is a zero


class Kept(NamedTuple):
    """The cotangent of a block that its worker kept in an evaluation, under a ``ticket``."""

    ticket: str

    def of_block(self, find: FindCotangent, like: np.ndarray) -> np.ndarray:
        found = find(self.ticket)
        return np.zeros_like(like) if found is None else found


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


Expression = Kept | Scaled | Added  # of a gradient, with the roundings of the array that it is


class Change(NamedTuple):
    """What a step does to one array: the optimiser's rule, for a gradient.

    ``rate`` is that of the step, ``steps`` how many the array has taken, ``slots`` the names of
    what the optimiser keeps of the array.
    """

    name: str
    gradient: Expression
    optimiser: Any
    rate: float
    steps: np.ndarray
    slots: Sequence[str]

    @property
    def is_of_rows(self) -> bool:
        """Whether the rows have taken steps of their own, and not all the same ones."""
        return np.shape(self.steps)[:1] not in ((), (1,))

    def apply(self, arrays: Arrays, find: FindCotangent) -> None:
        """Changes a block's arrays in place."""
        array = arrays[self.name]
        gradient = self.gradient.of_block(find, array)
        slots = [arrays.setdefault(slot, np.zeros_like(array)) for slot in self.slots]
        self.optimiser.step(array, gradient, self.rate, self.steps, *slots)


class Step(NamedTuple):
    """The changes that make this ``version`` of the version before."""

    version: int
    changes: Sequence[Change]

    def take(self, arrays: Arrays, find: FindCotangent) -> None:
        for change in self.changes:
            change.apply(arrays, find)


def finder(kept: Mapping[str, Mapping[int, Any]], number: int) -> FindCotangent:
    """Finds what was kept of a block; KeyError if nothing was."""
    return lambda ticket: kept[ticket][number]
