"""Holdings: blocks of items on the workers of a cluster, one run of blocks a worker.

Each block is an ordinary Dask key. Blocks whose items the client has are scattered, and the client
keeps them, too: Dask cannot compute scattered data again when its worker dies, so the client places
what was lost under a new key.
"""

import asyncio
import logging
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from distributed import Client

from daskgrad.clients import LateError, answer, present, told_by_scheduler, workers_of
from daskgrad.partitions import Block
from daskgrad.resident import balance

logger = logging.getLogger("daskgrad")

ATTEMPTS = 5  # to place blocks while workers come and go
TAKES = 1.0  # seconds for a worker that pauses or closes to take blocks again
EVERY = 16  # calls, of which one is measured
CLOSED = "these shards are closed; place the items again"
UNIT_SECONDS = 0.2  # of work for one hop into a worker's thread, which takes some 0.1 ms


class Asked(NamedTuple):
    """The blocks of a worker: number, index of the first item, key; how many go in one unit."""

    blocks: list[tuple[int, int, str]]
    unit: int


NOTHING_ASKED = Asked([], 1)


class Holdings:
    """Blocks on a cluster: their keys, who holds them, and what they cost."""

    def __init__(self, client: Client, blocks: Sequence[Block]):
        self.client = client
        self.blocks = blocks
        self.futures: list[Any] = [None] * len(blocks)
        self.holders: list[str] = [""] * len(blocks)
        self.seconds = np.full(len(blocks), np.nan)  # what each took, as far as is known
        self._costs = self.seconds.copy()  # the same, without the first calls of workers
        self._warm: set[str] = set()
        self._units: dict[str, int] = {}
        self._work: dict[str, list[int]] = {}
        self._asked: dict[str, Asked] | None = None
        self._is_released = False
        self.plans: dict[Any, Any] = {}  # of requests, as long as what is asked stays the same
        self._calls = 0
        self._workers: dict[str, int] = {}
        self._lock = threading.RLock()
        self.settle(workers_of(client))

    @property
    def workers(self) -> dict[str, int]:
        """The workers on which the blocks are spread, and their threads."""
        return self._workers

    def require_open(self) -> None:
        """Another thread may close the shards in a call."""
        if self._is_released:
            raise RuntimeError(CLOSED)

    def work(self) -> dict[str, list[int]]:
        """For each worker the numbers of the blocks that it holds."""
        if not self._work:
            work: dict[str, list[int]] = {}
            for number, holder in enumerate(self.holders):
                work.setdefault(holder, []).append(number)
            self._work = work
        return self._work

    def references(self) -> list[Any]:
        """The futures of the blocks."""
        with self._lock:
            self.require_open()
            return list(self.futures)

    def asked(self) -> dict[str, Asked]:
        """What each worker is asked; all blocks once, also while other threads move them.

        It is the same object as long as it is the same.
        """
        with self._lock:
            self.require_open()
            if self._asked is None:
                self._asked = {a: self._asked_of(a, numbers) for a, numbers in self.work().items()}
            return self._asked

    def _asked_of(self, address: str, numbers: Sequence[int]) -> Asked:
        blocks = [(n, self.blocks[n].first, self.futures[n].key) for n in numbers]
        return Asked(blocks, self.unit(address))

    def unit(self, address: str) -> int:
        """How many blocks, a power of two, one thread of a worker evaluates in one go."""
        if address not in self._units:
            self._units[address] = self._chosen_unit(address, self.work().get(address, []))
        return self._units[address]

    def _chosen_unit(self, address: str, numbers: list[int]) -> int:
        if not numbers or np.any(np.isnan(self.seconds[numbers])):
            return 1
        threads = self._workers.get(address, 1)
        return balance.unit_blocks(self.seconds[numbers], threads, UNIT_SECONDS)

    # ---- placing

    def settle(self, workers: dict[str, int]) -> None:
        """Spreads the blocks over these workers, unless they are; places lost ones again."""
        for _ in range(ATTEMPTS):
            try:
                return self._settle(workers)
            except LateError:
                raise
            except (KeyError, OSError):  # a worker has gone since, or takes nothing any more
                time.sleep(0.05)
                workers = workers_of(self.client)
        self._settle(workers)

    def _settle(self, workers: dict[str, int]) -> None:
        with self._lock:
            self.require_open()
            self._locate()
            are_same = list(workers.items()) == list(self._workers.items())
            if are_same and all(holder in workers for holder in self.holders):
                return
            self._workers = dict(workers)
            self._move(balance.assigned(self.costs(), workers))

    def restore(self) -> None:
        """Places again what the cluster has lost."""
        self.settle(workers_of(self.client))

    def rebalance(self) -> None:
        """Moves blocks where the measured loads of the workers are too uneven.

        That is after a call, which is not to fail where a worker has gone: the next one finds out.
        """
        with self._lock:
            if np.any(np.isnan(self._costs)):
                return
            wanted = balance.moves(self.costs(), self.holders, self._workers)
            if wanted is None:
                return
            try:
                self._move(wanted)
            except LateError:
                raise
            except (KeyError, OSError) as error:
                logger.info("blocks stay where they are: a worker takes none (%r)", error)

    def is_measured_now(self) -> bool:
        """Counts a call, and says whether its times are wanted: of the first ones, then of some."""
        self._calls += 1
        return self._calls <= EVERY or self._calls % EVERY == 0

    def measured(self, times: Mapping[str, tuple[Sequence[int], Sequence[float]]]) -> None:
        """Takes what each worker's blocks took in the latest call; now and then moves some.

        That is after the calls number 2, 4, 8 ...: often at first, and then hardly ever. The first
        call of a worker, which loads models and has cold caches, only serves to choose the units.
        """
        with self._lock:
            if self._is_released:  # meanwhile
                return
            for address, (numbers, seconds) in times.items():
                if len(numbers):
                    self._measure(address, np.asarray(numbers), np.maximum(seconds, 1e-9))
            if self._calls & (self._calls - 1) == 0:
                self._units = {}
                self._forget()
                self.rebalance()

    def _measure(self, address: str, numbers: np.ndarray, seconds: np.ndarray) -> None:
        known = self.seconds[numbers]
        if address in self._warm:
            is_first = np.isnan(self._costs[numbers])
            self._costs[numbers] = np.where(is_first, seconds, 0.5 * (known + seconds))
            self.seconds[numbers] = self._costs[numbers]
        else:
            self.seconds[numbers] = np.where(np.isnan(known), seconds, known)
            self._warm.add(address)

    def costs(self) -> np.ndarray:
        """What each block costs: seconds, or the number of its items before all were measured."""
        if not np.any(np.isnan(self._costs)):
            return self._costs
        return np.array([float(len(block.items)) for block in self.blocks])

    def release(self) -> None:
        with self._lock:
            self._is_released = True
            self.futures, self.holders, self._work = [], [], {}
            self._forget()

    def _forget(self) -> None:
        """Who is asked for what is not the same any more."""
        self._asked, self.plans = None, {}

    def _locate(self) -> None:
        """Asks the scheduler who holds the blocks: nobody ("") holds a lost one."""
        if None in self.futures:
            return
        found: dict[str, list[str]] = {}
        scheduler: Any = self.client.scheduler
        held = told_by_scheduler(self.client, scheduler.has_what, "who holds the placed items")
        for address, keys in held.items():
            for key in keys:
                found.setdefault(key, []).append(address)
        for number, future in enumerate(self.futures):
            holders = found.get(future.key, [""])
            if self.holders[number] not in holders:
                self.holders[number] = holders[0]
        self._work = {}
        self._forget()

    def _move(self, wanted: Sequence[str]) -> None:
        moving: dict[str, list[int]] = {}
        for number, (holder, address) in enumerate(zip(self.holders, wanted, strict=True)):
            if holder != address:
                moving.setdefault(address, []).append(number)
        if moving:
            self._work, self._units = {}, {}  # whatever becomes of it
            self._forget()
            for address, numbers in moving.items():
                self._scatter(address, numbers)

    def _scatter(self, address: str, numbers: Sequence[int]) -> None:
        """Places blocks, each under a new key: what is left of an old one cannot meet it."""
        data = {new_key(): self.blocks[number].items for number in numbers}

        def scatter() -> Any:  # to its end: half done, the scheduler would keep what it was sent
            where: dict[str, Any] = {"workers": [address], "timeout": TAKES}
            placing = self.client.scatter(data, hash=False, asynchronous=True, **where)
            return asyncio.shield(placing)

        def require_there() -> None:
            if address not in present(self.client):
                raise KeyError(address)

        what = f"{len(numbers)} blocks of items were sent to the worker at {address}"
        futures = answer(self.client, scatter, what, of="placing", look=require_there)
        for number, key in zip(numbers, data, strict=True):
            self.futures[number] = futures[key]
            self.holders[number] = address


def new_key() -> str:
    return f"value-shard-{uuid.uuid4().hex}"
