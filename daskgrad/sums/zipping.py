"""Zipping: what a sum runs over: one collection, or several of one length side by side.

Nothing here uses Python's own ``zip``, since the public ``zip`` has its name.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from daskgrad.graph.nodes import OnlyItems
from daskgrad.graph.variables import Variable
from daskgrad.models.failures import Partition
from daskgrad.models.model import inside_model
from daskgrad.sums.block_tasks import First
from daskgrad.sums.cutting import Grainsize, aligned_grainsize, as_items, slice_size
from daskgrad.sums.placed import Placed
from daskgrad.sums.sources import Column, NodeColumn, PlacedColumn, as_column
from daskgrad.tasks.task_graph import TaskGraph
from daskgrad.values.tuples import as_slice

ZippedBlock = tuple[First, list[Any]]  # where it begins, and what each column has in it


class Zip(OnlyItems):
    """Collections side by side; made by ``zip``."""

    def __init__(self, collections: tuple):
        self.collections = collections

    def __repr__(self) -> str:
        return f"<Zip of {len(self.collections)} collections>"


def zip(*collections: Any) -> Zip:
    """Collections of one length side by side: their items are tuples, an entry from each.

    For ``map_sum`` and ``reduce_sum``, which pass ``(a_i, b_i)`` in the place of an item, and
    ``(slice of a, slice of b)`` in that of a slice.

    Parameters
    ----------
    collections:
        whatever is summed over alone: lists, tuples, ranges, arrays, dask Arrays, lists of Delayed,
        placed items, and variables, whose items are differentiated. Bags and dataframes go with one
        another alone, with as many partitions; their items are counted when they are computed.

    Beside placed items, what is in this process travels with every evaluation, or once where it is
    large and stays the same. With several placed collections the sum is a task graph: place what
    is side by side together, ``dg.place(dg.zip(a, b))``; an item of that is a tuple.

    Raises
    ------
    ValueError
        for no collections, and where the lengths, or the numbers of partitions, differ.
    """
    if not collections:
        raise ValueError("dg.zip of nothing has no items; zip at least one collection")
    zipped = Zip(collections)
    if inside_model():
        require_one_length([len(collection) for collection in collections])
    else:
        require_columns_alike(as_columns(zipped, "an argument of dg.zip", slices=True))
    return zipped


class Items:
    """Columns cut alike: what a reduction needs to know of the items it runs over.

    ``firsts`` has for each block the index of its first item, or which partition it is; ``sizes``
    how many items it has, where that is known; ``placed`` what is placed, of all columns,
    ``placed_part`` the number of the first such column, and ``beside_placed`` the others.
    """

    def __init__(self, columns: Sequence[Column], starts: Sequence[int], slices: bool):
        self.columns = columns
        self.placed = [column.placed for column in columns if isinstance(column, PlacedColumn)]
        self.beside_placed = [each for each in columns if not isinstance(each, PlacedColumn)]
        placed_parts = [n for n, each in enumerate(columns) if isinstance(each, PlacedColumn)]
        self.placed_part = placed_parts[0] if placed_parts else None
        self.is_counted = columns[0].count is not None
        self.slices = slices
        self._starts = starts
        item = None if slices else 0
        self.firsts: list[First] = (
            [*starts] if self.is_counted else [Partition(start, item) for start in starts]
        )

    @cached_property
    def sizes(self) -> list[int]:
        return np.diff([*self._starts, self.columns[0].count]).tolist() if self.is_counted else []

    @cached_property
    def _blocks(self) -> list[list[Any]]:
        """Each column's blocks; not cut where the workers evaluate those that they hold."""
        return [column.cut(self._starts) for column in self.columns]

    def blocks(self, tasks: TaskGraph, name: str, used_twice: bool = False) -> list[ZippedBlock]:
        """For each block where it begins, and what each column has in it or a reference to that."""
        columns = [
            self._column(tasks, number, name, used_twice) for number in range(len(self.columns))
        ]
        return [
            (first, [column[row] for column in columns]) for row, first in enumerate(self.firsts)
        ]

    def placed_now(self, tasks: TaskGraph, blocks: list[ZippedBlock]) -> list[ZippedBlock]:
        """The blocks of an earlier pass; what is placed may have been lost and placed again."""
        placed = {
            number: self._column(tasks, number, "", used_twice=False)
            for number, column in enumerate(self.columns)
            if isinstance(column, PlacedColumn)
        }
        return [
            (first, [placed[n][row] if n in placed else part for n, part in enumerate(parts)])
            for row, (first, parts) in enumerate(blocks)
        ]

    def _column(self, tasks: TaskGraph, number: int, name: str, used_twice: bool) -> list[Any]:
        """What each block has of one column; a whole slice is the one item of its block."""
        data = self.columns[number].data(tasks, self._blocks[number], name, used_twice)
        return [[slice_] for slice_ in data] if self.slices else data

    def variable(self, part: int) -> Variable:
        """The variable whose items are one part of these."""
        variable = self.columns[part].variable
        assert variable is not None
        return variable

    def are_rows(self, part: int) -> bool:
        """Whether a part is an array, whose rows are the items, and not a list."""
        return isinstance(self.variable(part).primal, np.ndarray)

    def with_columns(self, columns: Sequence[Column]) -> "Items":
        """Other columns, as long as these and cut alike."""
        if list(columns) == self.columns:
            return self
        return Items(columns, self._starts, self.slices)

    @property
    def is_here(self) -> bool:
        """Whether all items are in this process, and not results of tasks or on a cluster."""
        return all(column.is_here for column in self.columns)

    def here(self, start: int, stop: int) -> list[list[Any]]:
        """What each column has in a run of blocks whose items are in this process."""
        runs = [blocks[start:stop] for blocks in self._blocks]
        return runs if self.slices else [[*chain.from_iterable(run)] for run in runs]


def as_columns(items: Any, argument: str, slices: bool) -> list[Column]:
    collections = items.collections if isinstance(items, Zip) else (items,)
    return [as_column(collection, argument, slices) for collection in collections]


def cut_alike(columns: Sequence[Column], grainsize: Grainsize, slices: bool) -> Items:
    """Cuts columns into blocks: where one of them must be cut, else in runs of ``grainsize``."""
    require_columns_alike(columns)
    count = columns[0].count
    if count is None:
        require_auto(grainsize, columns[0])
        return Items(columns, range(columns[0].partitions or 0), slices)
    starts = fixed_starts(columns, grainsize)
    if starts is None and slices and grainsize == "auto":
        starts = one_cut({column.own_starts for column in columns if column.own_starts})
    if starts is None:
        starts = tuple(range(0, count, chosen_size(columns, grainsize, count, slices)))
    return Items(columns, starts, slices)


def chosen_size(columns: Sequence[Column], grainsize: Grainsize, count: int, slices: bool) -> int:
    """How many items are in a block that may be cut anywhere."""
    if not slices:
        return aligned_grainsize(grainsize, count)
    if grainsize == "auto":
        return slice_size([column.items for column in columns], count)
    return int(grainsize)


def fixed_starts(columns: Sequence[Column], grainsize: Grainsize) -> tuple[int, ...] | None:
    """Where columns must be cut since they are placed."""
    for column in columns:
        if isinstance(column, PlacedColumn):
            require_same_grainsize(grainsize, column.placed)
    return one_cut({column.starts for column in columns if column.starts is not None})


def one_cut(cuts: set) -> tuple[int, ...] | None:
    if len(cuts) > 1:
        raise ValueError(
            "the collections that are zipped are cut at other places; place them with one "
            "grainsize, rechunk them alike, or give a grainsize"
        )
    return next(iter(cuts), None)


def require_same_grainsize(grainsize: Grainsize, placed: Placed) -> None:
    sizes = ("auto", placed.grainsize, placed.slice_size)
    if grainsize not in sizes and aligned_grainsize(grainsize, 1) not in sizes:
        raise ValueError(
            f"the items were placed with grainsize {placed.slice_size}, and grainsize={grainsize} "
            f"was asked for; leave it out, or place the items again"
        )


def require_auto(grainsize: Grainsize, column: Column) -> None:
    if grainsize != "auto":
        raise ValueError(
            f"the items come in {column.partitions} partitions, which are the blocks, and "
            f"grainsize={grainsize} was asked for; leave it out, or repartition the collection"
        )


def require_columns_alike(columns: Sequence[Column]) -> None:
    counts = [column.count for column in columns]
    if None not in counts:
        require_one_length(counts)
        return
    partitions = [column.partitions for column in columns]
    if any(count is not None for count in counts):
        raise TypeError(
            "a collection whose items are not counted before they are computed (a bag, a "
            "dataframe) cannot be zipped with one in other blocks; put both into one bag with "
            "dask.bag.zip, or compute it first"
        )
    if len(set(partitions)) > 1:
        raise ValueError(
            f"collections that are zipped must have equally many partitions; found "
            f"{' and '.join(map(str, partitions))}; repartition them, or use dask.bag.zip"
        )


def require_one_length(counts: Sequence[int | None]) -> None:
    if len(set(counts)) > 1:
        raise ValueError(
            f"collections that are zipped must be of one length; found lengths "
            f"{' and '.join(map(str, counts))}"
        )


def holds_nodes(columns: Sequence[Column]) -> bool:
    return any(isinstance(column, NodeColumn) for column in columns)


def interleave(parts: Sequence[Sequence[Any]]) -> list[tuple]:
    return [tuple([part[number] for part in parts]) for number in range(len(parts[0]))]


# ------------------------------------------------------------------------------- inside a model


def nested_items(items: Any, argument: str) -> Sequence[Any]:
    """Items inside a model: values, or boxes in their places."""
    if isinstance(items, Zip):
        return interleave([nested_items(part, argument) for part in items.collections])
    return nested_part(items, argument)


def nested_part(items: Any, argument: str) -> Any:
    if isinstance(items, Placed):
        return items.items
    if not is_boxed(items):
        return as_items(items, argument)
    if not len(items):
        raise ValueError(f"{argument} is empty, and an empty sum has no shape; sum at least one")
    return items


def is_boxed(items: Any) -> bool:
    """Whether this is a sequence of which as_items knows nothing: a backend's box of an array."""
    is_plain = isinstance(items, list | tuple | range | str | bytes | dict)
    is_plain = is_plain or hasattr(items, "__array__")
    return not is_plain and hasattr(items, "__len__") and hasattr(items, "__getitem__")


def nested_slices(items: Any, argument: str, grainsize: Grainsize) -> list[Any]:
    """Runs of ``grainsize`` items inside a model."""
    is_zip = isinstance(items, Zip)
    parts = [nested_part(part, argument) for part in (items.collections if is_zip else (items,))]
    count = len(parts[0])
    size = slice_size(parts, count) if grainsize == "auto" else int(grainsize)
    runs = [
        [as_slice(part[start : start + size]) for part in parts] for start in range(0, count, size)
    ]
    return [tuple(run) if is_zip else run[0] for run in runs]
