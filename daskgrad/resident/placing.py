"""Placing: brings items to this process, cuts them, and puts them on the workers."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from daskgrad.graph.nodes import Node
from daskgrad.resident.shards import Shards
from daskgrad.sums.cutting import (
    Grainsize,
    aligned_grainsize,
    as_items,
    require_grainsize,
    slice_size,
)
from daskgrad.sums.sources import Source, as_source
from daskgrad.sums.zipping import Zip, require_one_length
from daskgrad.tasks.clients import active_client
from daskgrad.tasks.collections import is_collection
from daskgrad.tasks.task_graph import TaskGraph
from daskgrad.tasks.workers import workers_of
from daskgrad.values.trees import LEAF_TYPES
from daskgrad.values.tuples import Partitions, Tuples, columns_of

BLOCKS_A_THREAD = 32  # so that moving one shifts the load by some 3 percent
MOST_A_THREAD = 64  # whatever grainsize is asked for: each is a key of Dask's, and some 0.1 ms
COMPUTED = 64  # Delayed objects or futures whose results one task brings together


def place(items: Any, grainsize: Grainsize = "auto") -> Shards:
    """Cuts items once and puts them on the workers once, for sums that are computed many times.

    Uses the active ``distributed`` client; without one the items stay in the process::

        with Client(), dg.place(items) as shards:
            dg.value_and_grad(lambda x: dg.map_sum(model, shards, x))(x)

    On a cluster, sums over shards and their gradients are evaluated where the items are: the point
    goes out once per worker, and the sums come back. A worker holds a run of blocks; what the
    blocks take is measured, and they are moved when workers are unevenly loaded, join or leave
    (``Shards.plan`` tells). The items stay in the client's memory, too, and are placed again when a
    worker that held them is gone.

    Collections of one length are placed together, and summed over as their ``zip`` is::

        shards = dg.place(dg.zip(counts, rows, groups))
        dg.reduce_sum(lambda fields, x: ..., shards, x)  # (counts, rows, groups) of a slice

    So are sums over a ``zip`` of shards with what is in this process, variables for instance, whose
    items' gradients come back then: ``dg.zip(p, shards)`` has items ``(p_i, item)``, where an item
    of a placed zip is a tuple. A sum over a ``zip`` of several shards, or with a Dask collection or
    future among its items or arguments, is a task graph, as it is over other items: several tasks a
    block, each about a millisecond. Place collections together instead of zipping shards.

    Parameters
    ----------
    items:
        a list, a tuple, a range, or a NumPy array of rows; a dask Array, a Bag, a list of Delayed,
        or a dask DataFrame, which are computed once; or a ``zip`` of several of these, whose items
        are tuples. The items of a DataFrame are its partitions, and so are the slices.
    grainsize:
        items in one block, rounded down to a power of two, and in one slice of ``reduce_sum``. With
        "auto" there are at least 32 blocks a thread, if there are as many items, and the slices are
        those that ``reduce_sum`` makes of items that are not placed. These are put on the workers
        when the first such sum is recorded, in the place of blocks that no sum has used; items that
        are summed in both ways are there twice. Where a small grainsize would make more than 64
        blocks a thread, the blocks are larger, and the slices are not. How many blocks one thread
        evaluates in one go is measured.

    Returns
    -------
    Shards
        The shards, for ``map_sum``, ``reduce_sum``, ``per_item`` and ``zip``. As a context manager
        they release the items at its end, as ``close()`` does.

    Raises
    ------
    TypeError, ValueError
        if the items, or a collection in the zip, are anything else (variables, nodes, shards),
        there are no items, lengths differ, or the grainsize is not a number of items.

    Examples
    --------
    >>> with dg.place(list(np.eye(3))) as shards:  # on the workers of the active client, if any
    ...     square = lambda a, x: np.sum(a * x) ** 2
    ...     dg.value_and_grad(lambda x: dg.map_sum(square, shards, x))(np.array([1.0, 2.0, 3.0]))
    (np.float64(14.0), array([2., 4., 6.]))
    """
    require_grainsize(grainsize)
    here = bring_here(items)
    client = active_client()
    threads = 1 if client is None else sum(workers_of(client).values())
    size = aligned_grainsize(grainsize, len(here), BLOCKS_A_THREAD * threads)
    sliced = slice_size([here], len(here)) if grainsize == "auto" else size
    if any([isinstance(column, Partitions) for column in columns_of(here)]):
        sliced = 1
    least = -(-len(here) // (MOST_A_THREAD * threads))  # rounded up to a power of two below
    return Shards(here, max(size, 1 << (least - 1).bit_length()), sliced, client)


def bring_here(items: Any) -> Any:
    """The items to place, in this process: a list, an array, or several side by side."""
    if not isinstance(items, Zip):
        return items_here(items, "items")
    collections = [items_here(each, "an argument of dg.zip") for each in items.collections]
    require_one_length([len(each) for each in collections])
    return Tuples(collections)


def items_here(items: Any, argument: str) -> Sequence[Any] | np.ndarray:
    is_list = isinstance(items, list | tuple)
    found = [items, *(one_of_each_kind(items) if is_list else ())]
    for each in found:
        require_can_be_placed(each, argument)
    if hasattr(type(items), "divisions"):
        return Partitions(results_of(as_source(items, argument, slices=True)))
    if not any(map(is_collection, found)):
        return as_items(items, argument)
    return as_items(compute_items(as_source(items, argument, slices=False)), argument)


def one_of_each_kind(items: Sequence[Any]) -> Iterable[Any]:
    """An item of each type; none if all are numbers or arrays, of which there may be millions."""
    if set(map(type, items)) <= LEAF_TYPES:
        return ()
    return {type(item): item for item in items}.values()


def require_can_be_placed(items: Any, argument: str) -> None:
    if isinstance(items, Node):
        raise TypeError(
            f"{argument} must be a list, an array or another collection of data; found {items!r}, "
            f"and what is placed stays as it is: zip the data with it, dg.zip(p, dg.place(data))"
        )
    if isinstance(items, Shards):
        raise TypeError(
            f"{argument} must be a list, an array or another collection of data; found Shards, "
            f"which are placed already: zip them with others, or place all together"
        )


def compute_items(source: Source) -> Any:
    """The items of a collection that are results of tasks."""
    results = results_of(source)
    if isinstance(results[0], np.ndarray):
        return np.concatenate(results)
    return [*chain.from_iterable(results)]


def results_of(source: Source) -> Sequence[Any]:
    """The blocks of a collection."""
    tasks = TaskGraph()
    starts = source.own_starts or range(0, source.count or 0, COMPUTED)
    blocks = source.data(tasks, source.cut(starts), "place", used_twice=False)
    return tasks.compute([block.key for block in blocks])
