"""Holdings: blocks of items on the workers of a cluster, one run of blocks a worker.

Each block is an ordinary Dask key. The client keeps the blocks, too: Dask cannot compute scattered
data again when its worker dies, so the client places what was lost under a new key. A key holds the
numbers of the block and of the move that brought it to its worker, which also name runs of blocks.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from distributed import Client, Future

from daskgrad.resident.messages import OnePickle, key_of
from daskgrad.resident.spread import Spread
from daskgrad.sums.cutting import Block
from daskgrad.tasks.clients import in_worker
from daskgrad.tasks.collections import is_there
from daskgrad.tasks.sending import named_if_unsendable
from daskgrad.tasks.waiting import LateError, answer, ask_scheduler
from daskgrad.tasks.workers import present_workers, workers_of

logger = logging.getLogger("daskgrad")

ATTEMPTS = 5  # to place blocks while workers come and go
TAKES = 1.0  # seconds for a worker that pauses or closes to take blocks again
CLOSED = "these shards are closed; place the items again"


class Holdings(Spread):
    """Blocks whose items are on a cluster: their keys, who holds them, and what they cost."""

    def __init__(self, client: Client, blocks: Sequence[Block]):
        self.client = client
        self.key = f"value-shard-{uuid.uuid4().hex}"
        self.blocks = blocks
        self.futures: list[Any] = [None] * len(blocks)
        self._latest_move = 0
        self._is_released = False
        super().__init__([len(block.items) for block in blocks])
        self.settle(workers_of(client))

    def require_open(self) -> None:
        """Raises if another thread has closed the shards."""
        if self._is_released:
            raise RuntimeError(CLOSED)

    def references(self) -> list[Any]:
        """The futures of the blocks; places again those that are known to be lost."""
        with self._lock:
            self.require_open()
            if not all(map(is_there, self.futures)):
                self.restore()
            return list(self.futures)

    # ---- placing

    def settle(self, workers: dict[str, int]) -> None:
        """Spreads the blocks over these workers, unless they are; places lost ones again."""
        for _ in range(ATTEMPTS):
            try:
                return super().settle(workers)
            except LateError:
                raise
            except (KeyError, OSError):  # a worker has gone since, or takes nothing any more
                time.sleep(0.05)
                workers = workers_of(self.client)
        super().settle(workers)

    def restore(self) -> None:
        """Places again what the cluster has lost."""
        self.settle(workers_of(self.client))

    def rebalance(self) -> None:
        """Never fails if a worker has gone: the call has its results, and the next finds out."""
        try:
            super().rebalance()
        except LateError:
            raise
        except (KeyError, OSError) as error:
            logger.info("blocks stay where they are: a worker takes none (%r)", error)

    def record_times(self, times: Mapping[str, tuple[Sequence[int], Sequence[float]]]) -> None:
        with self._lock:
            if not self._is_released:  # meanwhile
                super().record_times(times)

    def release(self) -> None:
        with self._lock:
            self._is_released = True
            self.futures, self.holders = [], []
            self._forget()

    def _locate(self) -> None:
        """Asks the scheduler which worker holds each block: "" for a lost one."""
        if None in self.futures:
            return
        found: dict[str, list[str]] = {}
        scheduler: Any = self.client.scheduler
        held = ask_scheduler(self.client, scheduler.has_what, "who holds the placed items")
        for address, keys in held.items():
            for key in keys:
                found.setdefault(key, []).append(address)
        for number, future in enumerate(self.futures):
            holders = found.get(future.key, [""])
            if self.holders[number] not in holders:
                self.holders[number] = holders[0]
        self._forget()

    def _give(self, address: str, numbers: Sequence[int]) -> None:
        """Places blocks under new keys, so that no late message about an old key can meet them."""
        self._latest_move += 1
        keys = [key_of(self.key, self._latest_move, number) for number in numbers]
        data = {
            key: as_sent(self.blocks[number].items, address)
            for key, number in zip(keys, numbers, strict=True)
        }

        async def scatter() -> Any:
            where: dict[str, Any] = {"workers": [address], "timeout": TAKES}
            try:
                return await self.client.scatter(data, hash=False, asynchronous=True, **where)
            except KeyError:  # the scheduler has keys of a worker that left meanwhile
                await forget(self.client, keys)
                raise

        def scatter_whole() -> Any:  # half done, the scheduler would keep what it was sent
            return asyncio.shield(scatter())

        def require_there() -> None:
            if address not in present_workers(self.client):
                raise KeyError(address)

        what = f"{len(numbers)} blocks of items were sent to the worker at {address}"
        with named_if_unsendable(self._items_of(numbers)):
            futures = answer(self.client, scatter_whole, what, of="placing", look=require_there)
        for number, key in zip(numbers, keys, strict=True):
            self.futures[number] = futures[key]
            self._moves[number] = self._latest_move
            self.holders[number] = address

    def _items_of(self, numbers: Sequence[int]) -> Iterator[tuple[str, Any]]:
        """The items of blocks, and what errors call them."""
        for block in [self.blocks[number] for number in numbers]:
            for number, item in enumerate(block.items, start=block.first):
                yield f"item {number}", item


async def forget(client: Client, keys: Sequence[str]) -> None:
    """Has the scheduler forget keys that nobody wants: somebody wants them first, and no more then.

    Dask's scheduler cannot be restarted while it has such keys.
    """
    nowhere: dict[str, list[str]] = {key: [] for key in keys}
    scheduler: Any = client.scheduler
    await scheduler.update_data(who_has=nowhere, nbytes={}, client=client.id)
    for key in keys:
        Future(key, client).release()


def as_sent(items: Any, address: str) -> Any:
    """A block's items for a worker; one in this process gets the objects themselves.

    Within a task, Dask scatters to the task's own worker, whatever the address.
    """
    is_here = address.startswith("inproc://") or in_worker()
    return items if is_here or isinstance(items, np.ndarray) else OnePickle(items)
