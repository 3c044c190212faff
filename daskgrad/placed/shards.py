"""Shards: items that are cut once, put on the workers once, and used by every later call.

Without a cluster they stay in the process.
"""

import threading
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from dask.sizeof import sizeof
from distributed import Client

from daskgrad.autodiff.values.descriptions import escaped, nbytes, seconds, table
from daskgrad.autodiff.values.trees import LEAF_TYPES
from daskgrad.graph.nodes import Node
from daskgrad.placed.attached import Attached, Attachment, attach
from daskgrad.placed.connection import connection_of
from daskgrad.placed.samples import Sample, draw
from daskgrad.placed.spread import CLOSED, Holdings
from daskgrad.sums.cutting import (
    Block,
    Grainsize,
    Partitions,
    Tuples,
    aligned_grainsize,
    as_items,
    columns_of,
    cut,
    require_grainsize,
    slice_size,
)
from daskgrad.sums.placed import Placed
from daskgrad.sums.sources import Source, as_source
from daskgrad.sums.zipping import Zip, require_one_length
from daskgrad.tasks.clients import active_client, address_of
from daskgrad.tasks.collections import is_collection
from daskgrad.tasks.supervision import workers_of
from daskgrad.tasks.task_graph import TaskGraph


class WorkerPlan(NamedTuple):
    """The share of one worker in a call; a thread evaluates ``unit`` blocks in one go.

    ``seconds`` is the time of its blocks per thread, None before the first call.
    """

    worker: str
    threads: int
    blocks: int
    items: int
    unit: int
    seconds: float | None

    @property
    def took(self) -> str:
        return "not measured yet" if self.seconds is None else seconds(self.seconds)

    def __str__(self) -> str:
        took = self.took if self.seconds is None else f"{self.took} a call"
        noun = "thread" if self.threads == 1 else "threads"
        return (
            f"{self.worker} ({self.threads} {noun}): {self.items} items in {self.blocks} blocks, "
            f"{self.unit} in one go, {took}"
        )


class Shards(Placed):
    """Placed items; made by ``place``. A context manager, which closes them at its end.

    The workers drop the items when this is closed or garbage collected. ``slice_size`` is the
    number of items in each slice, for sums over slices.

    Examples
    --------
    >>> with dg.place([1.0, 2.0, 3.0]) as shards:
    ...     dg.grad(lambda x: dg.map_sum(lambda item, x: item * x**2, shards, x))(2.0)
    np.float64(24.0)
    """

    def __init__(
        self,
        items: Any,
        grainsize: int,
        slice_size: int,
        client: Client | None,
        attachment: Attachment | None = None,
    ):
        self.attachment = attachment or Attachment()
        self._items = items
        self._blocks = cut(items, grainsize)
        self._starts = tuple([block.first for block in self._blocks])
        self.grainsize = grainsize
        self.slice_size = slice_size
        self._slices: Shards | None = None
        self.array_valued: dict[Any, None] = {}
        self._client = client
        self._is_used = False
        self._lock = threading.RLock()
        self._holdings = None if client is None else self._hold(client)

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        if not self._blocks:
            return "<Shards: closed>"
        blocks = f"{len(self.blocks)} blocks of {self.grainsize}"
        if self._slices is not None:
            blocks += f", {len(self._slices.blocks)} slices of {self.slice_size}"
        head = f"<Shards: {len(self)} items, {blocks}, in {self._place}"
        return "\n  ".join([head, *map(str, self.plan)]) + ">"

    @property
    def _place(self) -> str:
        return "this process" if self._client is None else address_of(self._client)

    def _repr_html_(self) -> str:
        """For notebooks: the items and the plan, a row for each worker."""
        if not self._blocks:
            return escaped(repr(self))
        cut_as = f"{len(self.blocks):,} blocks of {self.grainsize:,}"
        size = f"{nbytes(sizeof(self.items))}, as Dask estimates it"
        about = [("items", f"{len(self):,}"), ("cut into", cut_as), ("size", size)]
        head = ("worker", "threads", "items", "blocks", "in one go", "a call")
        plan = [(p.worker, p.threads, p.items, p.blocks, p.unit, p.took) for p in self.plan]
        return table("", ("Shards", self._place), about) + table("", head, plan)

    def sample(self, count: int, seed: int | Sequence[int] | None = None) -> Sample:
        """Some of the items, drawn without replacement, as the items of a sum: a mini-batch.

        A sum over them, by ``map_sum`` or ``reduce_sum``, is divided by the fraction that was
        drawn: its expectation is the sum over all items. ``map_mean`` gives the sample's mean,
        and ``per_item`` each item's value and gradient. The items stay on the workers, and a call
        is one request to each of them, with the indices of the drawn items::

            step = dg.value_and_grad(lambda W, batch: dg.map_sum(model, batch, W), sparse=True)
            for number in range(1000):
                value, rows = step(W, shards.sample(256, seed=(7, number)))

        A seed draws equal items wherever they are, and the bits of ``map_sum`` depend on these
        alone. Functions of ``reduce_sum`` get the drawn items of one slice at a time.

        A zip with a sample goes item by item over the sample. If an array has a row for each placed
        item, the zip takes the rows of the drawn items: such an array holds parameters of the
        items. Its gradient is zero in all other rows; with ``sparse`` it is ``Rows``::

            step = dg.value_and_grad(
                lambda z, batch: dg.map_sum(model, dg.zip(z, batch)), sparse="z"
            )

        These rows and their gradients travel. An attached array is brought to this process once,
        and stays until a sum over all items uses it.

        Parameters
        ----------
        count:
            the number of items.
        seed:
            one or more integers: equal numbers draw equal items, with one version of NumPy. None
            draws others each time.

        Returns
        -------
        Sample
            The sample; ``indices`` are the numbers of its items, ascending.

        Raises
        ------
        ValueError
            if there are fewer items, or a number of the seed is negative.
        TypeError
            if the seed is something else.
        RuntimeError
            if the shards are closed.
        """
        self._require_open()
        return draw(self, count, seed)

    def attach(self, array: np.ndarray) -> Attached:
        """Parameters with a row for each item, which stay where the items are.

        Zipped with the shards they are fields of the items, and ``dg.optim`` updates them in place.
        On a cluster neither they nor their gradients travel::

            z = shards.attach(np.zeros((len(shards), 3)))
            step = dg.value_and_grad(lambda x, z: dg.map_sum(model, dg.zip(z, shards), x), (0, 1))
            params, optimiser = {"x": x, "z": z}, dg.optim.Adam(1e-2)
            state = optimiser.init(params)
            value, (of_x, of_z) = step(x, z)
            optimiser.update(params, {"x": of_x, "z": of_z}, state)
            np.savez("fit.npz", z=z, **state)               # fetches them

        The bits are as if an array were zipped with the shards. A worker that dies takes no
        numbers along: the client remembers the steps since it last had the arrays, and repeats them
        for lost blocks. It fetches the arrays when that would be more than 128 steps, or take more
        memory than the arrays, and when blocks are moved to other workers.

        ``np.asarray(z)`` fetches the array at any time, and ``np.asarray(of_z)`` a gradient, also
        after the shards were closed. All else that takes arrays does so, too: other derivatives
        than ``value_and_grad`` and ``grad``, sums over other items, models that get all of it,
        ``clip_by_norm``, ``dg.record``. Steps are taken in the client then, and also if a sum uses
        replicated arrays, or other arguments that take more memory than the attached arrays, if an
        optimiser of your own cannot be pickled, and if a gradient is ``Rows``.

        Parameters
        ----------
        array:
            real floats, with a row for each item; it is copied. To go on with saved numbers,
            attach them.

        Returns
        -------
        array
            The attached array, for ``dg.zip`` with these shards, and for ``dg.optim``.

        Raises
        ------
        TypeError, ValueError
            if it is no such array.
        RuntimeError
            if the shards are closed; by ``update``, while a sum that uses the array is evaluated.
        """
        self._require_open()
        return attach(self.attachment, len(self), array)

    def __enter__(self) -> "Shards":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Releases the items, here and on the workers; later sums over them are errors."""
        with self._lock:
            try:
                self.attachment.bring()
            finally:
                self._items, self._blocks, self._client = None, [], None
                self._release()
                if self._slices is not None:
                    self._slices.close()
            self.attachment.leave()  # last: workers without the plugins have dropped the blocks

    def _release(self) -> None:
        holdings, self._holdings = self._holdings, None
        if holdings is not None:
            holdings.release()
            connection_of(holdings.client).leave(holdings)

    def cut_for(self, slices: bool) -> "Shards":
        """As ``Placed`` says; the first call places the slices.

        It drops these items if no sum has used them; a later sum places them again.
        """
        with self._lock:
            self._require_open()
            if not slices or self.slice_size == self.grainsize:
                self._is_used = True
                return self
            if self._slices is None:
                if not self._is_used:
                    self._release()
                size = self.slice_size
                self._slices = Shards(self._items, size, size, self._client, self.attachment)
            return self._slices

    @property
    def items(self) -> Any:
        self._require_open()
        return self._items

    @property
    def are_plain(self) -> bool:
        return not isinstance(self.items, Tuples | Partitions)

    @property
    def blocks(self) -> list[Block]:
        self._require_open()
        return self._blocks

    def _require_open(self) -> None:
        if not self._blocks:
            raise RuntimeError(CLOSED)

    @property
    def starts(self) -> tuple[int, ...]:
        self._require_open()
        return self._starts

    @property
    def plan(self) -> list[WorkerPlan]:
        """The share of each worker; empty without a cluster."""
        plan, holdings = [], self._holdings
        if holdings is not None:
            for address, assigned in holdings.assigned().items():
                threads, blocks = holdings.workers.get(address, 1), assigned.numbers
                items = sum([len(self.blocks[number].items) for number in blocks])
                elapsed = float(holdings.seconds[blocks].sum()) / threads
                took = None if np.isnan(elapsed) else elapsed
                plan.append(WorkerPlan(address, threads, len(blocks), items, assigned.unit, took))
        return plan if self._slices is None else [*plan, *self._slices.plan]

    @property
    def is_remote(self) -> bool:
        return self._client is not None and self.is_on(active_client())

    def is_on(self, client: Client | None) -> bool:
        return client is not None and client is self._client

    @property
    def holdings(self) -> Holdings:
        """Which worker holds which blocks."""
        with self._lock:
            if self._client is None:  # closed, by another thread perhaps
                raise RuntimeError(CLOSED)
            if self._holdings is None:
                self._holdings = self._hold(self._client)
            return self._holdings

    def _hold(self, client: Client) -> Holdings:
        connection_of(client).register()  # an adaptive cluster keeps the workers then
        return Holdings(client, self._blocks)

    def references(self, tasks: TaskGraph) -> list[Any]:
        return [tasks.include_placed(future) for future in self.holdings.references()]

    def restore(self) -> None:
        if self.is_remote:
            self.holdings.restore()


# -------------------------------------------------------------------------------------------------
# Placing: brings items to this process, cuts them, and puts them on the workers.

BLOCKS_A_THREAD = 32  # so that moving one shifts the load by some 3 percent
MOST_A_THREAD = 64  # for any grainsize: each is a key of Dask's, and takes some 0.1 ms
COMPUTED = 64  # results of Delayed objects or futures that one task brings together


def place(items: Any, grainsize: Grainsize = "auto") -> Shards:
    """Cuts items once and puts them on the workers once, for sums that are computed many times.

    Uses the active ``distributed`` client; without one the items stay in the process::

        with Client(), dg.place(items) as shards:
            dg.value_and_grad(lambda x: dg.map_sum(model, shards, x))(x)

    On a cluster, sums over shards and their gradients are evaluated where the items are: the point
    goes out once per worker, and the sums come back. A worker holds a run of blocks. Their times
    are measured, and blocks are moved when workers are unevenly loaded, join or leave
    (``Shards.plan`` shows it). The items stay in the client's memory, too, and
    are placed again if their worker is gone.

    Collections of one length are placed together, and summed over as their ``zip`` is::

        shards = dg.place(dg.zip(counts, rows, groups))
        dg.reduce_sum(lambda fields, x: ..., shards, x)  # (counts, rows, groups) of a slice

    The workers also evaluate sums over a ``zip`` of shards with data or variables of this process,
    and return the gradients of the items: ``dg.zip(p, shards)`` has items ``(p_i, item)``; an item
    of a placed zip is a tuple. A sum over a ``zip`` of several shards, or with a Dask collection or
    future among its items or arguments, is a task graph, as it is over other items: several tasks a
    block, each about a millisecond. Place collections together instead of zipping shards.

    Parameters
    ----------
    items:
        a list, a tuple, a range, or a NumPy array of rows; a dask Array, a Bag, a list of Delayed,
        or a dask DataFrame, which are computed once; or a ``zip`` of several of these, with
        tuples as items. The items of a DataFrame are its partitions, and so are the slices.
    grainsize:
        items in one block, rounded down to a power of two, and in one slice of ``reduce_sum``, not
        rounded. With "auto" there are at least 32 blocks a thread, if there are as many items, and
        the slices have the sizes that ``reduce_sum`` gives to items that are not placed: some
        dozens of long rows may be one slice, for one worker. Slices are put on the workers when
        the first ``reduce_sum`` is recorded, in the place of blocks that no sum has used; items
        that are summed in both ways are there twice. If a small grainsize would make more than 64
        blocks a thread, the blocks are larger, and the slices are not. The number of blocks that
        one thread evaluates in one go is measured.

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

    See Also
    --------
    Shards, map_sum, replicate, zip

    Examples
    --------
    >>> with dg.place(list(np.eye(3))) as shards:  # on the workers of the active client, if any
    ...     square = lambda a, x: np.sum(a * x) ** 2
    ...     dg.value_and_grad(lambda x: dg.map_sum(square, shards, x))(np.array([1.0, 2.0, 3.0]))
    (np.float64(14.0), array([2., 4., 6.]))
    """
    require_grainsize(grainsize)
    local_items = bring_here(items)
    count, client = len(local_items), active_client()
    threads = 1 if client is None else sum(workers_of(client).values())
    size = aligned_grainsize(grainsize, count, BLOCKS_A_THREAD * threads)
    sliced = slice_size([local_items], count) if grainsize == "auto" else int(grainsize)
    if any([isinstance(column, Partitions) for column in columns_of(local_items)]):
        sliced = 1
    least = -(-count // (MOST_A_THREAD * threads))  # rounded up to a power of two below
    return Shards(local_items, max(size, 1 << (least - 1).bit_length()), sliced, client)


def bring_here(items: Any) -> Any:
    """The items to place, in this process: a list, an array, or several side by side."""
    if not isinstance(items, Zip):
        return local_collection(items, "items")
    argument = "an argument of dg.zip"
    collections = [local_collection(collection, argument) for collection in items.collections]
    require_one_length(list(map(len, collections)))
    return Tuples(collections)


def local_collection(items: Any, argument: str) -> Sequence[Any] | np.ndarray:
    parts = [items]
    if isinstance(items, list | tuple) and not set(map(type, items)) <= LEAF_TYPES:
        parts.extend({type(item): item for item in items}.values())  # an item of each type
    for part in parts:
        require_can_be_placed(part, argument)
    if hasattr(type(items), "divisions"):
        return Partitions(results_of(as_source(items, argument, slices=True)))
    if any(map(is_collection, parts)):
        blocks = results_of(as_source(items, argument, slices=False))
        is_array = isinstance(blocks[0], np.ndarray)
        items = np.concatenate(blocks) if is_array else [*chain.from_iterable(blocks)]
    return as_items(items, argument)


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


def results_of(source: Source) -> Sequence[Any]:
    """The blocks of a collection, computed."""
    tasks = TaskGraph()
    starts = source.own_starts or range(0, source.count or 0, COMPUTED)
    blocks = source.data(tasks, source.cut(starts), "place", used_twice=False)
    return tasks.compute([block.key for block in blocks])
