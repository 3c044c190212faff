"""Shards: items that are cut once, put on the workers once, and used by every later call.

Without a cluster they stay in the process.
"""

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from distributed import Client

from daskgrad.clients import active_client, address_of, workers_of
from daskgrad.nodes import OnlyItems
from daskgrad.partitions import Block, Grainsize, aligned_grainsize, as_items, cut
from daskgrad.resident.evaluator import Evaluator, evaluator_of
from daskgrad.resident.holdings import CLOSED, Holdings
from daskgrad.tasks import TaskGraph

BLOCKS_A_THREAD = 32  # as many as blocks are moved by when loads are balanced: some 3 percent each
MOST_A_THREAD = 64  # whatever grainsize is asked for: each is a key of Dask's, and some 0.1 ms


class WorkerPlan(NamedTuple):
    """What one worker holds and does in a call.

    ``seconds`` is the measured time of its blocks per thread, or None before the first call;
    ``unit`` the number of blocks that one thread evaluates in one go.
    """

    worker: str
    threads: int
    blocks: int
    items: int
    unit: int
    seconds: float | None

    def __str__(self) -> str:
        took = "not measured yet" if self.seconds is None else f"{self.seconds:.3g} s a call"
        of = "thread" if self.threads == 1 else "threads"
        return (
            f"{self.worker} ({self.threads} {of}): {self.items} items in {self.blocks} blocks, "
            f"{self.unit} in one go, {took}"
        )


class Shards(OnlyItems):
    """Placed items; made by ``place``. A context manager, which closes them at its end.

    The workers drop the items when this is closed or garbage collected. ``slice_size`` is how many
    items a sum of whole slices has in each.
    """

    def __init__(self, items: Any, grainsize: int, slice_size: int, client: Client | None):
        self._items = items
        self._blocks = blocks = cut(items, grainsize)
        self._starts = tuple([block.first for block in blocks])
        self.grainsize = grainsize
        self.slice_size = slice_size
        self._slices: Shards | None = None
        self._lock = threading.RLock()
        self.array_valued: set[str] = set()  # models whose terms turned out not to be numbers
        self._client = client
        self._holdings = None if client is None else Holdings(client, blocks)

    def __len__(self) -> int:
        last = self.blocks[-1]
        return last.first + len(last.items)

    def __repr__(self) -> str:
        if not self._blocks:
            return "<Shards: closed>"
        where = "this process" if self._client is None else address_of(self._client)
        blocks = f"{len(self.blocks)} blocks of {self.grainsize}"
        head = f"<Shards: {len(self)} items, {blocks}, in {where}"
        return "\n  ".join([head, *map(str, self.plan)]) + ">"

    def __enter__(self) -> "Shards":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Releases the items, here and on the workers; sums over them are errors from now on."""
        with self._lock:
            self._items, self._blocks = None, []
            if self._slices is not None:
                self._slices.close()
            if self._holdings is not None:
                self._holdings.release()
                self.evaluator.leave(self._holdings)
            self._holdings = self._client = None

    def cut_for(self, whole_slices: bool) -> "Shards":
        """The same items as a sum needs them: these, or in slices, which are placed when they are
        asked for first."""
        if not whole_slices or self.slice_size == self.grainsize:
            return self
        with self._lock:
            self._require_open()
            if self._slices is None:
                size = self.slice_size
                self._slices = Shards(self._items, size, size, self._client)
            return self._slices

    @property
    def blocks(self) -> list[Block]:
        """The items in runs, as they are in this process."""
        self._require_open()
        return self._blocks

    def _require_open(self) -> None:
        if not self._blocks:
            raise RuntimeError(CLOSED)

    @property
    def starts(self) -> tuple[int, ...]:
        """The index of the first item of each block."""
        self._require_open()
        return self._starts

    @property
    def plan(self) -> list[WorkerPlan]:
        """Who holds how much, and how it is evaluated; empty without a cluster."""
        held = self._holdings
        if held is None:
            return []
        return [self._plan_of(held, address, blocks) for address, blocks in held.work().items()]

    def _plan_of(self, held: Holdings, address: str, blocks: Sequence[int]) -> WorkerPlan:
        threads = held.workers.get(address, 1)
        items = sum([len(self.blocks[number].items) for number in blocks])
        seconds = float(held.seconds[blocks].sum()) / threads
        unit = held.unit(address)
        took = None if np.isnan(seconds) else seconds
        return WorkerPlan(address, threads, len(blocks), items, unit, took)

    @property
    def is_remote(self) -> bool:
        """Whether the cluster that holds the shards is the one that Dask would use now."""
        return self._client is not None and self.is_on(active_client())

    def is_on(self, client: Client | None) -> bool:
        """Whether they are on the cluster of a client."""
        return client is not None and client is self._client

    @property
    def holdings(self) -> Holdings:
        """Which worker holds which blocks."""
        held = self._holdings
        if held is None:  # closed, by another thread perhaps
            raise RuntimeError(CLOSED)
        return held

    @property
    def evaluator(self) -> Evaluator:
        """What asks the workers to evaluate their blocks."""
        return evaluator_of(self.holdings.client)

    def data(self, tasks: TaskGraph) -> list[Any]:
        """For each block its items, or a reference to them on the cluster that is active."""
        if self.is_remote:
            return [tasks.include(future) for future in self.holdings.references()]
        return [block.items for block in self.blocks]

    def restore(self) -> None:
        """Places again what the cluster has lost."""
        if self.is_remote:
            self.holdings.restore()


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

    So are sums over a ``zip`` of shards with what is in this process, variables for instance, whose
    items' gradients come back then. A sum over a ``zip`` of several shards, or with a Dask
    collection or future among its items or arguments, is a task graph, as it is over other items:
    several tasks a block, each about a millisecond. Place tuples in the place of zipping shards, or
    choose a larger grainsize.

    Parameters
    ----------
    items:
        a list, a tuple, or a NumPy array of rows; compute other collections first.
    grainsize:
        items in one block, rounded down to a power of two, and in one slice of ``reduce_sum``;
        "auto" makes at least 32 blocks a thread, if there are as many items. Where a smaller
        number would make more than 64 a thread the blocks are larger, and the slices, which are
        put on the workers at the first ``reduce_sum``, are not. How many blocks one thread
        evaluates in one go is measured.

    Returns
    -------
    The shards, for ``map_sum``, ``reduce_sum``, ``per_item`` and ``zip``: a context manager, whose
    end releases the items, as ``close()`` does.

    Raises
    ------
    TypeError, ValueError
        for anything else in the place of the items, no items, and a grainsize that is no number of
        items.
    """
    items = as_items(items)
    client = active_client()
    threads = 1 if client is None else sum(workers_of(client).values())
    size = aligned_grainsize(grainsize, len(items), BLOCKS_A_THREAD * threads)
    least = -(-len(items) // (MOST_A_THREAD * threads))
    return Shards(items, max(size, next_power_of_two(least)), size, client)


def next_power_of_two(number: int) -> int:
    """The smallest power of two that is at least ``number``."""
    return 1 << (number - 1).bit_length()
