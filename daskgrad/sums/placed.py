"""Placed: what a sum knows of items that are held elsewhere, in blocks; never where that is."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from daskgrad.graph.nodes import OnlyItems
from daskgrad.sums.cutting import Block
from daskgrad.tasks.task_graph import TaskGraph


class Placed(OnlyItems, ABC):
    """Items that were cut once and put where sums over them are evaluated.

    ``slice_size`` is how many items each slice has, where a sum runs over slices. ``array_valued``
    holds the models (``daskgrad.autodiff.models.model.identity``) whose terms turned out not to be
    numbers.
    """

    grainsize: int
    slice_size: int
    array_valued: dict[Any, None]

    @abstractmethod
    def __len__(self) -> int:
        """How many items there are."""

    @abstractmethod
    def cut_for(self, slices: bool) -> "Placed":
        """The same items as a sum needs them: these, or in slices of another size."""

    @property
    @abstractmethod
    def items(self) -> Any:
        """All of them, as they are in this process."""

    @property
    @abstractmethod
    def are_plain(self) -> bool:
        """Whether a block of them is a slice as it is."""

    @property
    @abstractmethod
    def blocks(self) -> list[Block]:
        """The items in runs, as they are in this process."""

    @property
    @abstractmethod
    def starts(self) -> tuple[int, ...]:
        """The index of the first item of each block."""

    @property
    @abstractmethod
    def is_remote(self) -> bool:
        """Whether the cluster that holds them is the one that Dask would use now."""

    @abstractmethod
    def is_on(self, client: Any) -> bool:
        """Whether they are on the cluster of a client."""

    @abstractmethod
    def references(self, tasks: TaskGraph) -> Sequence[Any]:
        """For each block a reference to its items on the cluster."""

    @abstractmethod
    def restore(self) -> None:
        """Places again what the cluster has lost."""


class Drawn(Placed):
    """Some of the items that were placed: sums over them are scaled to all of these.

    ``indices`` are theirs among all, ascending.
    """

    indices: np.ndarray

    @property
    @abstractmethod
    def population(self) -> int:
        """How many items there are to draw from."""


# ------------------------------------------------------------------------------- calls of workers


class ArrayTermsError(TypeError):
    """The terms of the sum ``number`` are arrays, whose gradients workers do not send."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


class CallOfWorkers(Protocol):
    """Sums that workers evaluate, from the moment that this is made."""

    def flush(self) -> None:
        """Waits a moment until the workers have been sent it."""

    def results(self) -> Sequence[Any]:
        """The sums with their gradients; ArrayTermsError if a gradient is none of a number."""

    def abandon(self) -> None:
        """Gives up the results, unless they are there."""


def call_workers(client: Any, sums: Sequence[tuple[Any, Any, Sequence[Any]]]) -> CallOfWorkers:
    """Calls a client's workers for sums: for each its node, its summand and its inputs.

    Who needs no cluster does not import the room that does it.
    """
    return importlib.import_module("daskgrad.placed.call").call_workers(client, sums)
