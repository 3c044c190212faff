"""Zipping: the items of a sum, from one collection or from several side by side.

The public ``zip`` hides Python's own here.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from daskgrad.autodiff.models.failures import Partition
from daskgrad.autodiff.models.model import inside_model
from daskgrad.autodiff.values.elsewhere import Elsewhere, brought_here
from daskgrad.graph.nodes import Node, OnlyItems
from daskgrad.sums.block_tasks import First
from daskgrad.sums.cutting import (
    Grainsize,
    aligned_grainsize,
    as_items,
    as_slice,
    join,
    slice_size,
)
from daskgrad.sums.placed import Drawn, Placed
from daskgrad.sums.sources import (
    ChosenSource,
    NodeSource,
    PlacedSource,
    Source,
    as_source,
    has_row_for_each,
)
from daskgrad.tasks.task_graph import TaskGraph

ZippedBlock = tuple[First, list[Any]]  # its start, and its items in each source


class Zip(OnlyItems):
    """Collections side by side; made by ``zip``."""

    def __init__(self, collections: tuple):
        self.collections = collections

    def __repr__(self) -> str:
        return f"<Zip of {len(self.collections)} collections>"


def zip(*collections: Any) -> Zip:
    """Collections of one length side by side: their items are tuples, an entry from each.

    For ``map_sum`` and ``reduce_sum``, which pass ``(a_i, b_i)`` as an item, and ``(slice of a,
    slice of b)`` as a slice.

    Parameters
    ----------
    collections:
        lists, tuples, ranges, arrays, dask Arrays, lists of Delayed, placed items, and variables
        and NumPy on them (``z[1:]``, ``np.exp(z)``), whose items are differentiated. Bags and
        dataframes can be zipped only with each other, if they have the same number of partitions.

    Raises
    ------
    ValueError
        if there are no collections, or their lengths or numbers of partitions differ.

    See Also
    --------
    map_sum, reduce_sum, place

    Notes
    -----
    Beside placed items, collections in this process travel with every evaluation, or once if they
    are large and stay the same. Beside a sample of placed items (``Shards.sample``), an array with
    a row for each placed item gives the drawn items' rows. With several placed collections the sum
    is a task graph: place them together, ``dg.place(dg.zip(a, b))``, whose items are tuples.

    Examples
    --------
    >>> def error(x, y, slope):
    ...     return (y - slope * x) ** 2
    >>> data = dg.zip(np.array([1.0, 2.0]), np.array([3.0, 5.0]))
    >>> dg.grad(lambda slope: dg.map_sum(lambda xy, slope: error(*xy, slope), data, slope))(2.0)
    np.float64(-6.0)
    """
    if not collections:
        raise ValueError("dg.zip of nothing has no items; zip at least one collection")
    zipped = Zip(collections)
    if inside_model():
        require_one_length([len(collection) for collection in collections])
    else:
        require_sources_alike(as_sources(zipped, "an argument of dg.zip", slices=True))
    return zipped


MOST_TERMS = 64  # in a program: more belong to batches


def reason_against(name: str) -> str:
    """Why an evaluation with a sum over other items is no program."""
    return f"the sum over {name!r} has other or many items"


class Items:
    """The items of a sum: sources that are cut at the same places.

    ``firsts``: for each block the index of its first item, or its partition; ``sizes``: its number
    of items, if known. ``placed_field``: the number of the first placed source;
    ``beside_placed``: the sources that are not placed.
    """

    def __init__(self, sources: Sequence[Source], starts: Sequence[int], slices: bool):
        self.sources = tuple(sources)
        placed = {n: source for n, source in enumerate(sources) if isinstance(source, PlacedSource)}
        self.placed = tuple([source.placed for source in placed.values()])
        self.placed_field = next(iter(placed), None)
        self.beside_placed = tuple([source for n, source in enumerate(sources) if n not in placed])
        self.is_counted = sources[0].count is not None
        self.slices = slices
        self._starts = starts
        item = None if slices else 0
        self.firsts: Sequence[First] = (
            starts if self.is_counted else [Partition(start, item) for start in starts]
        )

    @property
    def fit_a_program(self) -> bool:
        """Whether an evaluation that sums them may be one program, with each term in it."""
        count = len(self.firsts) if self.slices else self.count
        return count <= MOST_TERMS and {Source}.issuperset(map(type, self.sources))

    @cached_property
    def counts(self) -> list[int]:
        """The items of each block, or one for each partition: what progress counts."""
        return self.sizes if self.is_counted else [1] * len(self.firsts)

    @property
    def count(self) -> int:
        """All of them."""
        return self.sources[0].count if self.is_counted else len(self.firsts)  # type: ignore

    @cached_property
    def sizes(self) -> list[int]:
        return np.diff([*self._starts, self.sources[0].count]).tolist() if self.is_counted else []

    @cached_property
    def _blocks(self) -> list[list[Any]]:
        """The blocks of each source, cut at the first use, since workers may hold them."""
        return [source.cut(self._starts) for source in self.sources]

    def blocks(self, tasks: TaskGraph, name: str, used_twice: bool = False) -> list[ZippedBlock]:
        """For each block its start, and its items in each source, or references to them."""
        sources = [
            self._data(tasks, number, name, used_twice) for number in range(len(self.sources))
        ]
        return [
            (first, [source[row] for source in sources]) for row, first in enumerate(self.firsts)
        ]

    def placed_now(self, tasks: TaskGraph, blocks: list[ZippedBlock]) -> list[ZippedBlock]:
        """The blocks of an earlier pass, with the placed items as they are held now."""
        placed = {
            number: self._data(tasks, number, "", used_twice=False)
            for number, source in enumerate(self.sources)
            if isinstance(source, PlacedSource)
        }
        return [
            (first, [placed[n][row] if n in placed else field for n, field in enumerate(fields)])
            for row, (first, fields) in enumerate(blocks)
        ]

    def _data(self, tasks: TaskGraph, number: int, name: str, used_twice: bool) -> list[Any]:
        """The items of one source, block by block; a slice is the only item of its block."""
        data = self.sources[number].data(tasks, self._blocks[number], name, used_twice)
        return [[slice_] for slice_ in data] if self.slices else data

    def variable(self, field: int) -> Node:
        """The variable of one field, or NumPy on variables."""
        variable = self.sources[field].variable
        assert variable is not None
        return variable

    def are_rows(self, field: int) -> bool:
        """Whether a field is an array of rows, and not a list."""
        return isinstance(self.sources[field].items, np.ndarray | Elsewhere)

    def with_sources(self, sources: Sequence[Source]) -> "Items":
        """Other sources of the same length, cut at the same places."""
        if tuple(sources) == self.sources:
            return self
        return Items(sources, self._starts, self.slices)

    @property
    def is_here(self) -> bool:
        """Whether all items are in this process."""
        return all(source.is_here for source in self.sources)

    def here(self, start: int, stop: int) -> list[Any]:
        """The items of each source in a run of blocks, all in this process.

        After the last run no blocks are held, as a graph may have many sums.
        """
        are_all = (start, stop) == (0, len(self.firsts))
        if are_all and not self.slices and {Source}.issuperset(map(type, self.sources)):
            return [brought_here(source.items) for source in self.sources]
        runs = [blocks[start:stop] for blocks in self._blocks]
        if stop == len(self.firsts):
            self.__dict__.pop("_blocks", None)  # another thread may have done so
        return runs if self.slices else list(map(join, runs))


def side_by_side(items: Any) -> tuple:
    """The collections that a sum runs over: several in a zip."""
    return items.collections if isinstance(items, Zip) else (items,)


def drawn_in(items: Any) -> Drawn | None:
    """The first sample of placed items among the collections; None if there is none."""
    return next(
        (collection for collection in side_by_side(items) if isinstance(collection, Drawn)), None
    )


def as_sources(items: Any, argument: str, slices: bool) -> list[Source]:
    drawn = drawn_in(items)
    return [
        ChosenSource(collection, drawn.indices, argument)
        if drawn is not None and has_row_for_each(collection, drawn)
        else as_source(collection, argument, slices)
        for collection in side_by_side(items)
    ]


def cut_alike(sources: Sequence[Source], grainsize: Grainsize, slices: bool) -> Items:
    """Cuts sources at the same places: where one must be cut, or into runs of ``grainsize``."""
    require_sources_alike(sources)
    count = sources[0].count
    if count is None:
        require_auto(grainsize, sources[0])
        return Items(sources, range(sources[0].partitions or 0), slices)
    placed = [source.placed for source in sources if isinstance(source, PlacedSource)]
    for shards in placed:
        require_same_grainsize(grainsize, shards, slices)
    require_one_sample([shards for shards in placed if isinstance(shards, Drawn)])
    starts = one_cut({source.starts for source in sources if source.starts is not None})
    if starts is None and slices and grainsize == "auto":
        starts = one_cut({source.own_starts for source in sources if source.own_starts})
    if starts is None:
        starts = tuple(range(0, count, chosen_size(sources, grainsize, count, slices)))
    return Items(sources, starts, slices)


def chosen_size(sources: Sequence[Source], grainsize: Grainsize, count: int, slices: bool) -> int:
    """The number of items in a block that may be cut anywhere."""
    if not slices:
        return aligned_grainsize(grainsize, count)
    if grainsize == "auto":
        return slice_size([source.items for source in sources], count)
    return int(grainsize)


def one_cut(cuts: set) -> tuple[int, ...] | None:
    if len(cuts) > 1:
        raise ValueError(
            "the zipped collections are split at different places; place them with one grainsize, "
            "rechunk them alike, or give a grainsize"
        )
    return next(iter(cuts), None)


def require_same_grainsize(grainsize: Grainsize, placed: Placed, slices: bool) -> None:
    if grainsize == "auto":
        return
    if slices:
        cut_as, is_same = f"slices of {placed.slice_size}", grainsize == placed.slice_size
    else:
        sizes = (placed.grainsize, aligned_grainsize(placed.slice_size, 1))
        cut_as, is_same = f"blocks of {placed.grainsize}", aligned_grainsize(grainsize, 1) in sizes
    if not is_same:
        raise ValueError(
            f"the items were placed in {cut_as}, and grainsize={grainsize} was asked for; leave it "
            f"out, or place them so: dg.place(items, grainsize={grainsize})"
        )


def require_auto(grainsize: Grainsize, source: Source) -> None:
    if grainsize != "auto":
        raise ValueError(
            f"the items come in {source.partitions} partitions, which are the blocks, and "
            f"grainsize={grainsize} was asked for; leave it out, or repartition the collection"
        )


def require_sources_alike(sources: Sequence[Source]) -> None:
    counts = [source.count for source in sources]
    if None not in counts:
        require_one_length(counts)
        return
    partitions = [source.partitions for source in sources]
    if any(count is not None for count in counts):
        raise TypeError(
            "a collection whose items are not counted before they are computed (a bag, a "
            "dataframe) cannot be zipped with one in other blocks; put both into one bag with "
            "dask.bag.zip, or compute it first"
        )
    if len(set(partitions)) > 1:
        raise ValueError(
            f"the zipped collections must have the same number of partitions; found "
            f"{' and '.join(map(str, partitions))}; repartition them, or use dask.bag.zip"
        )


def require_one_length(counts: Sequence[int | None]) -> None:
    if len(set(counts)) > 1:
        raise ValueError(
            f"the zipped collections must have the same length; found lengths "
            f"{' and '.join(map(str, counts))}"
        )


def require_one_sample(drawn: Sequence[Drawn]) -> None:
    """Raises unless zipped samples were drawn alike."""
    for first, other in pairwise(drawn):
        is_one = first.population == other.population
        if not (is_one and np.array_equal(first.indices, other.indices)):
            raise ValueError(
                f"the zipped samples {first!r} and {other!r} are of different items; draw them "
                f"with one seed from as many items each, or place these together"
            )


def holds_nodes(sources: Sequence[Source]) -> bool:
    return any(isinstance(source, NodeSource) for source in sources)


def terms_of(parts: Sequence[Any], is_zip: bool, slices: bool, grainsize: Grainsize) -> Any:
    """The first argument of each term: items, or slices of them; for a zip, tuples.

    ``parts`` are collections in this process, whose entries may be nodes or a backend's boxes.
    """
    count = len(parts[0])
    require_one_length([len(part) for part in parts])
    if slices:
        size = slice_size(parts, count) if grainsize == "auto" else int(grainsize)
        starts = range(0, count, size)
        parts = [[as_slice(part[start : start + size]) for start in starts] for part in parts]
    if not is_zip:
        return parts[0]
    return [tuple([part[number] for part in parts]) for number in range(len(parts[0]))]


def nested_part(items: Any, argument: str) -> Any:
    """A collection inside a model, of values or boxes."""
    if isinstance(items, Drawn):
        raise TypeError(
            f"{argument} is {items!r}, and stands inside a model, where sums are not scaled to all "
            f"items; draw outside of models"
        )
    if isinstance(items, Placed):
        return items.items
    if not is_boxed(items):
        return as_items(items, argument)
    if not len(items):
        raise ValueError(f"{argument} is empty, and an empty sum has no shape; sum at least one")
    return items


def is_boxed(items: Any) -> bool:
    """Whether items are a backend's box of an array: a sequence that ``as_items`` refuses."""
    is_plain = isinstance(items, list | tuple | range | str | bytes | dict)
    is_plain = is_plain or hasattr(items, "__array__")
    return not is_plain and hasattr(items, "__len__") and hasattr(items, "__getitem__")
