"""Placed: items in blocks that are held elsewhere, as a sum knows them; never where that is."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from daskgrad.graph.nodes import OnlyItems
from daskgrad.sums.cutting import Block
from daskgrad.tasks.task_graph import TaskGraph


class Placed(OnlyItems, ABC):
    """Items that were cut once, and put where sums over them are evaluated.

    ``slice_size``: the items in a slice, for a sum over slices. ``array_valued``: models
    (``model.identity``) that returned terms that are not numbers.
    """

    grainsize: int
    slice_size: int
    array_valued: dict[Any, None]

    def __reduce__(self) -> Any:
        raise TypeError(
            f"placed items ({type(self).__name__}) belong to one process, and cannot be sent to "
            f"another one: sum over them, and give models what these need of them, as n = "
            f"len(shards) before the model, or the list that was placed"
        )

    @abstractmethod
    def __len__(self) -> int:
        """The number of items."""

    @abstractmethod
    def cut_for(self, slices: bool) -> "Placed":
        """The items as a sum needs them: these, or slices of another size."""

    @property
    @abstractmethod
    def items(self) -> Any:
        """All items, in this process."""

    @property
    @abstractmethod
    def are_plain(self) -> bool:
        """Whether a block is a slice as it is."""

    @property
    @abstractmethod
    def blocks(self) -> list[Block]:
        """The items in runs, in this process."""

    @property
    @abstractmethod
    def starts(self) -> tuple[int, ...]:
        """The index of the first item of each block."""

    @property
    @abstractmethod
    def is_remote(self) -> bool:
        """Whether Dask would use the cluster that holds them now."""

    @abstractmethod
    def is_on(self, client: Any) -> bool:
        """Whether they are on the cluster of a client."""

    @abstractmethod
    def references(self, tasks: TaskGraph) -> Sequence[Any]:
        """For each block a reference to its items on the cluster."""

    @abstractmethod
    def restore(self) -> None:
        """Places again the items that the cluster has lost."""


class Drawn(Placed):
    """A sample of placed items: sums over it are scaled to all items.

    ``indices``: the drawn items' among all, ascending.
    """

    indices: np.ndarray

    @property
    @abstractmethod
    def population(self) -> int:
        """The number of items to draw from."""


class ArrayTermsError(TypeError):
    """The terms of the sum ``number`` are arrays; workers send gradients of numbers alone."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number
