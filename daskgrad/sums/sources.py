"""Sources: the kinds of collections that a sum may run over, each cut into blocks of items.

A source knows its number of items, where it may be cut, and how its blocks get into a task graph.
Graphs of Dask collections are not optimised: that would fuse a step that two collections share into
tasks of each, which would compute it twice.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from daskgrad.autodiff.models.as_called import LargeArrays, eager_tape, taken_items
from daskgrad.autodiff.programs.items import ItemList
from daskgrad.autodiff.tape.boxes import TAPE_BOXES, ArrayBox
from daskgrad.autodiff.values.descriptions import describe
from daskgrad.autodiff.values.elsewhere import Elsewhere, RowsElsewhere, brought_here
from daskgrad.autodiff.values.memory import row_major
from daskgrad.autodiff.values.trees import LEAF_TYPES, flatten, usual_leaves
from daskgrad.graph.nodes import Node
from daskgrad.graph.variables import Variable
from daskgrad.sums.cutting import as_block, as_items, as_slice, describe_items
from daskgrad.sums.placed import Drawn, Placed
from daskgrad.tasks.collections import is_collection
from daskgrad.tasks.task_graph import TaskGraph

COMPUTED = (Node, ArrayBox)
PLAIN = LEAF_TYPES - TAPE_BOXES

ITEM = "an array among the items of a sum"


class Source:
    """One collection that a sum runs over; this kind is in this process.

    ``count`` is ``None`` if it is unknown before anything is computed; then there are
    ``partitions`` blocks. ``starts``: where it is cut, if it cannot be cut elsewhere;
    ``own_starts``: where a sum over slices cuts it by default. ``is_here``: the items are in this
    process, not results of tasks or on a cluster. ``kind`` names a collection that cannot be
    recorded as one node an item. ``variable``: the variable with these items, or NumPy on
    variables. ``large``, ``objects``: arrays and objects among the items that are not copied.
    """

    count: int | None
    partitions: int | None = None
    starts: tuple[int, ...] | None = None
    own_starts: tuple[int, ...] | None = None
    variable: Node | None = None
    is_here: bool = True
    kind: str | None = None
    large: Sequence[LargeArrays] = ()
    objects: Sequence[Any] = ()

    def __init__(self, items: Sequence[Any] | np.ndarray | Elsewhere, variable: Node | None = None):
        if variable is None:
            runs_now = eager_tape() is not None
            items, self.large, self.objects = taken_items(items, ITEM, runs_now)
        self._items: Any = items
        self.count = len(items)
        self.variable = variable

    @property
    def items(self) -> Any:
        """The items; a variable's that were elsewhere may have come here since."""
        if isinstance(self._items, Elsewhere) and self.variable is not None:
            whole = known(self.variable)
            return self._items if isinstance(whole, Elsewhere) else self._items_in(whole)
        return self._items

    def _items_in(self, array: np.ndarray) -> np.ndarray:
        return array

    def cut(self, starts: Sequence[int]) -> list[Any]:
        """The blocks that begin at these places."""
        items = brought_here(self.items)
        return [items[start:stop] for start, stop in pairwise([*starts, len(items)])]

    def data(self, tasks: TaskGraph, blocks: list[Any], name: str, used_twice: bool) -> list[Any]:
        """For each block its items or a reference to them; items that are used twice get a key."""
        return [tasks.constant(block, name) for block in blocks] if used_twice else blocks

    def like(self, variable: Node) -> "Source":
        """The source of another variable, of the same kind."""
        return as_source(variable, "a tangent of the items", slices=False)

    def one_by_one(self) -> list[Any]:
        """The items of a sum that is recorded as one node an item."""
        if self.kind is not None:
            raise TypeError(
                f"a list of nodes is summed with one node an item, and cannot be zipped with "
                f"{self.kind}; zip it with lists and arrays, or sum over a variable that is a list"
            )
        if self.variable is None:
            return list(brought_here(self.items))
        return [self.variable[number] for number in range(len(self.items))]


class NodeSource(Source):
    """A list that holds nodes, or other collections within its items."""


class PlacedSource(Source):
    """Items that were placed; they have been cut."""

    kind = "what dg.place returned"

    def __init__(self, placed: Placed, slices: bool):
        self._placed = placed
        self._slices = slices
        self.count = len(placed)

    @cached_property
    def placed(self) -> Placed:
        return self._placed.cut_for(self._slices)

    @property
    def starts(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.placed.starts

    @property
    def is_here(self) -> bool:  # type: ignore[override]
        return not self.placed.is_remote

    def cut(self, starts: Sequence[int]) -> list[Any]:
        blocks = [block.items for block in self.placed.blocks]
        return list(map(as_slice, blocks)) if self._slices else blocks

    def data(self, tasks: TaskGraph, blocks: list[Any], name: str, used_twice: bool) -> list[Any]:
        if self.is_here:
            return self.cut(())  # an error if they were closed
        held = list(self.placed.references(tasks))
        if not self._slices or self.placed.are_plain:
            return held
        return [tasks.add(tasks.key("value", name), as_slice, block) for block in held]


class DrawnSource(PlacedSource):
    """Items that were drawn from placed ones; a task graph gets them from this process."""

    kind = "what was drawn from placed items"
    is_here = True

    @property
    def starts(self) -> tuple[int, ...] | None:  # type: ignore[override]
        return self.placed.starts if self._slices else None

    @property
    def items(self) -> Any:
        return self.placed.items

    def cut(self, starts: Sequence[int]) -> list[Any]:
        blocks = Source.cut(self, starts)
        return list(map(as_slice, blocks)) if self._slices else blocks

    def data(self, tasks: TaskGraph, blocks: list[Any], name: str, used_twice: bool) -> list[Any]:
        return Source.data(self, tasks, blocks, name, used_twice)


class ChosenSource(Source):
    """The drawn items' rows of an array that has a row for each placed item."""

    kind = "an array beside what was drawn from placed items"

    def __init__(self, array: Any, indices: np.ndarray, argument: str):
        variable, whole = array if isinstance(array, Node) else None, known(array)
        is_there = isinstance(whole, Elsewhere)
        rows = RowsElsewhere(whole, indices) if is_there else as_items(whole[indices], argument)
        super().__init__(rows, variable)
        self.shape, self.indices = whole.shape, indices

    def _items_in(self, array: np.ndarray) -> np.ndarray:
        return array[self.indices]

    def like(self, variable: Node) -> "ChosenSource":
        return ChosenSource(variable, self.indices, "a tangent of the items")


class ComputedSource(Source):
    """A list of Delayed objects or futures, each an item; tasks ``prepare`` each block."""

    is_here = False
    prepare: Callable[[Any], Any] | None = staticmethod(as_block)

    def data(self, tasks: TaskGraph, blocks: list[Any], name: str, used_twice: bool) -> list[Any]:
        computed = [refer(tasks, block) for block in blocks]
        if self.prepare is None:
            return computed
        return [tasks.add(tasks.key("value", name), self.prepare, block) for block in computed]


class RowSource(ComputedSource):
    """A dask Array; its rows are the items."""

    kind = "a dask Array"

    def __init__(self, array: Any):
        self.array = array.rechunk(dict.fromkeys(range(1, array.ndim), -1))
        self.count = self.rows = int(array.shape[0])
        self.own_starts = tuple([0, *np.cumsum(array.chunks[0])[:-1].tolist()])

    def cut(self, starts: Sequence[int]) -> list[Any]:
        sizes = tuple([stop - start for start, stop in pairwise([*starts, self.rows])])
        return delayed_blocks(self.array.rechunk({0: sizes}))


class PartitionSource(ComputedSource):
    """A collection with its partitions as blocks; tasks ``prepare`` each if it is given."""

    count = None

    def __init__(self, collection: Any, prepare: Callable[[Any], Any] | None = None):
        self.blocks = delayed_blocks(collection)
        self.partitions = len(self.blocks)
        self.kind = f"a dask {type(collection).__name__}"
        self.prepare = prepare

    def cut(self, starts: Sequence[int]) -> list[Any]:
        return self.blocks


def delayed_blocks(collection: Any) -> list[Any]:
    return np.ravel(np.asarray(collection.to_delayed(optimize_graph=False), dtype=object)).tolist()


def refer(tasks: TaskGraph, block: Any) -> Any:
    """A reference to a block that is a collection, or a list of items with references."""
    if not isinstance(block, list):
        return tasks.include(block)
    return [tasks.include(item) if is_collection(item) else item for item in block]


def as_source(items: Any, argument: str, slices: bool) -> Source:
    if isinstance(items, Placed):
        return (DrawnSource if isinstance(items, Drawn) else PlacedSource)(items, slices)
    if isinstance(items, Elsewhere):
        return Source(items)
    if isinstance(items, Variable):
        require_items_in(items, items.primal, argument)
        if isinstance(items.primal, Elsewhere):
            return Source(items.primal, items)
        items.own_arrays()  # blocks may be used later than the call that records them
        return Source(as_items(items.primal, argument), items)
    if isinstance(items, Node) and items.is_here:
        value = items.value_here()
        require_items_in(items, value, argument)
        return Source(as_items(value, argument), items)
    if isinstance(items, Node):
        raise TypeError(
            f"{argument} is {items!r}, and how many items it will have is not known while the sum "
            f"is recorded; transform parameters of items by NumPy alone, or in the model; pass a "
            f"list of nodes, one an item; or sum within a model that takes all: "
            f"dg.delayed(lambda items, *shared: dg.map_sum(model, items, *shared))"
        )
    if hasattr(type(items), "rechunk"):
        return array_source(items, argument, slices)
    if hasattr(type(items), "foldby"):
        return PartitionSource(read_once(items))
    if hasattr(type(items), "divisions"):
        if not slices:
            raise TypeError(
                f"{argument} is a dask {type(items).__name__}, whose partitions are not split into "
                f"items; use reduce_sum, whose function gets a partition at a time"
            )
        return PartitionSource(items)
    require_sequence(items, argument)
    items = as_items(items, argument)
    are_plain = isinstance(items, np.ndarray) or are_usual(items)
    if are_plain or not holds_node(list(items)):
        return Source(items)
    # a node, or more than a collection
    is_node = [isinstance(x, COMPUTED) or (holds_node(x) and not is_collection(x)) for x in items]
    return NodeSource(items) if any(is_node) else ComputedSource(items)


def has_row_for_each(collection: Any, drawn: Drawn) -> bool:
    """Whether a collection is an array with a row for each item that could be drawn."""
    array = known(collection)
    is_array = isinstance(array, np.ndarray | Elsewhere) and array.ndim > 0
    return is_array and len(array) == drawn.population


def require_sequence(items: Any, argument: str) -> None:
    if not isinstance(items, list | tuple | range | np.ndarray):
        raise TypeError(
            f"{argument} must be a list, a tuple, a range, a NumPy or dask Array, a dask Bag, a "
            f"variable, what dg.place returned, or one dg.zip of such; "
            f"found {describe_items(items)}"
        )


def read_once(bag: Any) -> Any:
    """A bag of the same items with lists as partitions, which any number of tasks may read, under
    keys that do not depend on the caller."""
    return bag.map_partitions(as_block)


def array_source(array: Any, argument: str, slices: bool) -> Source:
    if not array.ndim or array.dtype == object:
        raise TypeError(
            f"{argument} is a dask Array of dtype {array.dtype} and {array.ndim} dimensions; it "
            f"must have numbers, and rows, which are the items"
        )
    if array.shape[0] == 0:
        raise ValueError(f"{argument} is empty, and an empty sum has no shape; sum at least one")
    if not np.isnan(array.shape[0]):
        return RowSource(array)
    if slices:
        return PartitionSource(array.rechunk(dict.fromkeys(range(1, array.ndim), -1)), row_major)
    raise ValueError(
        f"{argument} is a dask Array whose rows are not counted; call its compute_chunk_sizes(), "
        f"or sum over its blocks as they are with reduce_sum"
    )


def known(collection: Any) -> Any:
    """The value of a variable, or of NumPy on variables; any other collection itself."""
    if isinstance(collection, Variable):
        return collection.primal
    is_here = isinstance(collection, Node) and collection.is_here
    return collection.value_here() if is_here else collection


def require_items_in(variable: Node, value: Any, argument: str) -> None:
    if not isinstance(value, list | tuple) and not np.ndim(value):
        raise TypeError(
            f"{argument} is {variable!r}, which is {describe(value)}; the variables that have "
            f"items are lists, tuples, and arrays of at least one dimension"
        )


def are_usual(items: Sequence[Any]) -> bool:
    """Whether items are leaves of the usual types, or tuples of them, and none is computed."""
    if type(items) is ItemList and items.facts is not None:
        kinds = items.facts.types
        return kinds <= LEAF_TYPES and kinds.isdisjoint(TAPE_BOXES)
    leaves = usual_leaves(items)
    if leaves is None or eager_tape() is None:
        return leaves is not None
    return TAPE_BOXES.isdisjoint(map(type, leaves))


def holds_node(tree: Any) -> bool:
    """Whether a tree holds a node, a collection, or a value of an eager evaluation."""
    leaves = [leaf for leaf in flatten(tree)[0] if type(leaf) not in PLAIN]
    return any([isinstance(leaf, COMPUTED) or is_collection(leaf) for leaf in leaves])
