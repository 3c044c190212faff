"""Shards: items that are cut once, put on the workers once, and used by every later call.

Without a cluster they stay in the process. On one, the client scatters them and keeps them, too:
Dask cannot compute scattered data again when its worker dies, so the client puts what was lost back
under the same key, and the evaluation is repeated.
"""

import uuid
from collections.abc import Iterable
from typing import Any

import dask.base
from distributed import Client

from daskgrad.partitions import Block, Grainsize, aligned_grainsize, as_items, cut
from daskgrad.tasks import TaskGraph

BLOCKS_A_THREAD = 4


class Shards:
    """Placed items; made by ``place``. The workers drop them when this is garbage collected."""

    def __init__(self, blocks: list[Block], grainsize: int, client: Client | None):
        self.blocks = blocks
        self.grainsize = grainsize
        self._client = client
        self._futures: list[Any] = [None] * len(blocks)
        self._place(range(len(blocks)))

    def __len__(self) -> int:
        return sum([len(block.items) for block in self.blocks])

    def __repr__(self) -> str:
        where = "this process" if self._client is None else self._client.scheduler.address
        blocks = f"{len(self.blocks)} blocks of {self.grainsize}"
        return f"<Shards: {len(self)} items, {blocks}, in {where}>"

    @property
    def is_remote(self) -> bool:
        """Whether the cluster that holds the shards is the one that Dask would use now."""
        return self._client is not None and active_client() is self._client

    def data(self, tasks: TaskGraph) -> list[Any]:
        """For each block its items, or a reference to them on the cluster that is active."""
        if self.is_remote:
            return [tasks.include(future) for future in self._futures]
        return [block.items for block in self.blocks]

    def restore(self) -> bool:
        """Places again what the cluster has lost; says whether there was anything.

        Asks the scheduler: a future learns of its loss later than the computation that failed.
        """
        if self._client is None or not self.is_remote:
            return False
        held = set().union(*self._client.has_what().values())
        lost = [n for n, future in enumerate(self._futures) if future.key not in held]
        self._place(lost)
        return bool(lost)

    def _place(self, numbers: Iterable[int]) -> None:
        """Scatters blocks, each under a new key: what is left of an old one cannot meet it."""
        if self._client is None:
            return
        keys = {number: f"value-shard-{uuid.uuid4().hex}" for number in numbers}
        data = {key: self.blocks[number].items for number, key in keys.items()}
        futures = self._client.scatter(data, hash=False) if data else {}
        for number, key in keys.items():
            self._futures[number] = futures[key]


def place(items: Any, grainsize: Grainsize = "auto") -> Shards:
    """Cuts items once and puts them on the workers once, for sums that are computed many times.

    Uses the active ``distributed`` client; without one the items stay in the process. The items
    stay in the client's memory, too, and are placed again when a worker that held them is gone.

    Parameters
    ----------
    items:
        what ``map_sum`` or ``reduce_sum`` would take: a list, a tuple, or an array of rows.
    grainsize:
        items in one task, rounded down to a power of two; "auto" makes at least four blocks a
        thread.
    """
    items = as_items(items)
    client = active_client()
    threads = 1 if client is None else max(1, sum(client.ncores().values()))
    size = aligned_grainsize(grainsize, len(items), BLOCKS_A_THREAD * threads)
    return Shards(cut(items, size), size, client)


def active_client() -> Client | None:
    """The client that Dask would compute with now."""
    owner = getattr(dask.base.get_scheduler(), "__self__", None)
    return owner if isinstance(owner, Client) else None


def restore_lost(placed: Iterable[Shards]) -> bool:
    """Places again what was lost of any of the shards; says whether there was anything."""
    return any([shards.restore() for shards in placed])
