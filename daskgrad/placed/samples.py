"""Samples: placed items that were drawn at random; their sums are evaluated where they are."""

from collections.abc import Container, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from daskgrad.autodiff.values.descriptions import is_integer
from daskgrad.placed.messages import DrawnRun, slices_of
from daskgrad.placed.spread import BlockRun, Holdings
from daskgrad.random import require_seed
from daskgrad.sums.cutting import Block, take
from daskgrad.sums.placed import Drawn, Placed
from daskgrad.tasks.task_graph import TaskGraph


class Sample(Drawn):
    """Items drawn from placed ones, without replacement; made by ``Shards.sample``.

    ``indices`` are their numbers among all items, ascending: item ``n`` of an error is item
    ``indices[n]``. Sums over a sample are scaled, and so floats: they estimate the sum over all
    items without bias. A mean is the mean of the sample.
    """

    def __init__(self, shards: Any, indices: np.ndarray, slices: bool = False):
        self._shards = shards
        self._population = len(shards)
        self.indices = indices
        self._are_slices = slices
        self.grainsize, self.slice_size = shards.grainsize, shards.slice_size

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        return f"<Sample: {len(self)} of {self.population} placed items>"

    @property
    def population(self) -> int:
        return self._population

    @property
    def array_valued(self) -> dict[Any, None]:  # type: ignore[override]
        return self._shards.array_valued

    def cut_for(self, slices: bool) -> "Sample":
        return Sample(self._shards.cut_for(slices), self.indices, slices)

    @cached_property
    def items(self) -> Any:
        return take(self._shards.items, self.indices)

    @property
    def are_plain(self) -> bool:
        return self._shards.are_plain

    @property
    def blocks(self) -> list[Block]:
        """The slices with drawn items, each with these items alone."""
        return [
            Block(start, self.items[start:stop])
            for start, stop in slices_of(self.indices, self.slice_size)
        ]

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The number of the first drawn item in each slice."""
        return tuple([start for start, _ in slices_of(self.indices, self.slice_size)])

    @property
    def is_remote(self) -> bool:
        return self._shards.is_remote

    def is_on(self, client: Any) -> bool:
        return self._shards.is_on(client)

    @property
    def holdings(self) -> Holdings:
        """Which worker holds which blocks of all items."""
        return self._shards.holdings

    def references(self, tasks: TaskGraph) -> Sequence[Any]:
        return [tasks.constant(block.items, "sample") for block in self.blocks]

    def restore(self) -> None:
        self._shards.restore()

    @property
    def block_count(self) -> int:
        """The number of leaves in the tree of its sum."""
        return len(self.starts) if self._are_slices else len(self)

    def runs(
        self, runs: Sequence[BlockRun], block_items: int, leaves: Container[int] | None = None
    ) -> list[DrawnRun]:
        """The drawn items in runs of the blocks of all items; ``leaves``: in these alone."""
        bounds = [(run.start * block_items, run.stop * block_items) for run in runs]
        places = np.searchsorted(self.indices, np.array(bounds, np.intp).reshape(-1, 2)).tolist()
        parts = [
            (first, end, run.move)
            for run, bound in zip(runs, places, strict=True)
            for first, end in self._consecutive(bound[0], bound[1], leaves)
        ]
        slices = np.searchsorted(self.starts, [first for first, *_ in parts]).tolist()
        return [
            DrawnRun(first, number, move, self.indices[first:end])
            for (first, end, move), number in zip(parts, slices, strict=True)
        ]

    def _consecutive(
        self, start: int, stop: int, leaves: Container[int] | None
    ) -> list[tuple[int, int]]:
        """The drawn items from ``start`` to ``stop`` that are in some leaves, run by run."""
        if leaves is None:
            return [(start, stop)]
        leaf_of = self._leaf_numbers[start:stop].tolist()
        is_in = [False, *[leaf in leaves for leaf in leaf_of], False]
        edges = np.flatnonzero(np.diff(is_in)) + start
        return [(first, end) for first, end in edges.reshape(-1, 2).tolist()]

    def blocks_with(self, leaves: Iterable[int], block_items: int) -> set[int]:
        """The blocks of all items that hold the drawn items of some leaves."""
        is_in = np.isin(self._leaf_numbers, list(leaves))
        return set((self.indices[is_in] // block_items).tolist())

    @cached_property
    def _leaf_numbers(self) -> np.ndarray:
        """For each drawn item the number of its leaf."""
        ranks = np.arange(len(self))
        return np.searchsorted(self.starts, ranks, "right") - 1 if self._are_slices else ranks


def draw(shards: Placed, count: Any, seed: Any) -> Sample:
    """As ``Shards.sample`` says."""
    if not (is_integer(count) and 1 <= count <= len(shards)):
        raise ValueError(
            f"a sample of {len(shards)} placed items has between 1 and {len(shards)} of them; "
            f"found {count!r}"
        )
    if seed is not None:
        require_seed(seed, "Shards.sample")
    generator = np.random.default_rng(seed)
    return Sample(
        shards, np.sort(generator.choice(len(shards), int(count), replace=False, shuffle=False))
    )
