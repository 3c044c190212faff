"""Spread: which worker evaluates which blocks of a sum, and the seconds that they take."""

import asyncio
import functools
import itertools
import logging
import threading
import time
import uuid
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from distributed import Client, Future

from daskgrad.autodiff.values.addition import power_of_two
from daskgrad.placed.messages import OnePickle, key_of
from daskgrad.sums.cutting import Block
from daskgrad.tasks.clients import address_of, current_worker
from daskgrad.tasks.collections import is_there
from daskgrad.tasks.observers import TOPIC
from daskgrad.tasks.sending import named_if_unreadable, named_if_unsendable
from daskgrad.tasks.supervision import present_workers, workers_of
from daskgrad.tasks.waiting import LateError, answer, ask_scheduler

# -------------------------------------------------------------------------------------------------
# Balance: gives each worker a run of blocks, at costs in proportion to its threads.
#
# Among about equally good cuts it takes the one at the largest power of two: the more of a subtree
# a worker holds, the fewer partial sums it returns.

UNEVEN = 1.1  # the largest load, in mean loads, up to which no block moves; the least, inversely
DOUBT = 0.5  # added to it after one measured call, half as much after two ...
CHANCE = 3.0  # typical changes of a load from look to look that are no reason to move blocks
WORTH = 5e-4  # seconds by which a call must become shorter: blocks take some time to move
TOLERANCE = 0.03  # part of a worker's share by which an aligned cut may miss it


def assign(
    costs: np.ndarray, workers: dict[str, int], holders: Sequence[str] = (), uneven: float = UNEVEN
) -> list[str]:
    """For each block the address of the worker that is to hold it.

    A block stays with its holder, unless the holder is gone, or has the largest load while some
    load is ``uneven``, so many times the mean or the mean so many times it: the surplus of one
    worker moves, and not the runs behind it. Measured costs differ by less by chance.
    """
    addresses, threads = list(workers), np.array(list(workers.values()))
    wanted = [holder if holder in workers else "" for holder in holders or [""] * len(costs)]
    held: dict[str, list[int]] = {address: [] for address in ["", *workers]}
    for number, holder in enumerate(wanted):
        held[holder].append(number)
    free = held.pop("")
    load = np.array([np.sum(costs[numbers]) for numbers in held.values()])
    gets = filling(load, threads, np.sum(costs[free]))
    load += gets
    even = threads * np.sum(costs) / np.sum(threads)
    is_uneven = (load > uneven * even) | (uneven * load < even)
    while numbers := held[addresses[most := int(np.argmax(load / threads))]]:
        cost = costs[numbers[-1]]
        least = int(np.argmin((load + cost) / threads))
        after = (load[least] + cost) / threads[least]
        is_worth = is_uneven[most] or is_uneven[least]
        if not is_worth or after > (1.0 - TOLERANCE) * load[most] / threads[most]:
            break
        free.append(numbers.pop())
        load[most] -= cost
        load[least] += cost
        gets[least] += cost
    if not free:
        return wanted
    free.sort()
    start = 0
    for address, stop in zip(workers, run_stops(costs, free, gets.tolist()), strict=True):
        for number in free[start:stop]:
            wanted[number] = address
        start = stop
    return wanted


def filling(load: np.ndarray, threads: np.ndarray, cost: float) -> np.ndarray:
    """For each worker its part of a cost that fills up the least loads, as water would."""
    order = np.argsort(load / threads)
    levels = (cost + np.cumsum(load[order])) / np.cumsum(threads[order])  # if the first k get it
    return np.maximum(np.min(levels) * threads - load, 0.0)


def run_stops(costs: np.ndarray, blocks: Sequence[int], gets: Sequence[float]) -> list[int]:
    """For each worker the end of its run among these blocks, in proportion to its ``gets``;
    ``costs`` (> 0) are of all blocks."""
    done = np.concatenate([[0.0], np.cumsum(costs[list(blocks)])])
    ends = [*blocks, len(costs)]  # of a run that is cut at this place
    wanted = done[-1] * np.cumsum(gets) / np.sum(gets)
    slack = TOLERANCE * done[-1] / len(gets)
    stops = [0]
    for goal in wanted[:-1]:
        stops.append(max(stops[-1], aligned_cut(done, ends, float(goal), slack)))
    return [*stops[1:], len(blocks)]


def aligned_cut(done: np.ndarray, ends: Sequence[int], goal: float, slack: float) -> int:
    """The place nearest to ``goal``, or the best aligned one within ``slack``."""
    start, stop = np.searchsorted(done, [goal - slack, np.nextafter(goal + slack, np.inf)]).tolist()
    if start == stop:
        places = [max(start - 1, 0), min(start, len(done) - 1)]
        return min(places, key=lambda n: abs(done[n] - goal))
    return max(range(start, stop), key=lambda n: (alignment(ends[n]), -abs(done[n] - goal)))


def alignment(number: int) -> int:
    """The largest power of two that divides a number of blocks; zero is the best."""
    return number & -number if number else 1 << 62


def rebalancing(
    costs: np.ndarray,
    holders: Sequence[str],
    workers: dict[str, int],
    measured: int,
    uneven: float = UNEVEN,
) -> list[str] | None:
    """The new holder of each block if the loads are too uneven; None if no block should move.

    The costs come from ``measured`` calls: in few of them a worker may have been slow by chance. No
    block moves unless that reduces the largest load: with a block or two on each worker no cut is
    fine enough, and one slow call would put two blocks in the place of one.
    """
    before = loads(costs, holders, workers)
    mean = float(np.mean(before))
    if max(before) <= max((uneven + DOUBT / measured) * mean, mean + WORTH):
        return None
    wanted = assign(costs, workers, holders, uneven)
    return wanted if max(loads(costs, wanted, workers)) < max(before) else None


def uneven_loads(
    costs: np.ndarray, earlier: np.ndarray, holders: Sequence[str], workers: dict[str, int]
) -> float:
    """The largest load, in mean loads, that is no reason to move blocks: more than ``UNEVEN`` where
    loads change as much from one look to the next."""
    if np.any(np.isnan(costs + earlier)):
        return UNEVEN
    now, before = [np.array(loads(of, holders, workers)) for of in (costs, earlier)]
    shares = [load / np.mean(load) for load in (now, before)]
    return max(UNEVEN, 1.0 + CHANCE * float(np.median(np.abs(shares[0] - shares[1]))))


def loads(costs: np.ndarray, holders: Sequence[str], workers: dict[str, int]) -> list[float]:
    """For each worker the cost of its blocks, per thread."""
    sums = dict.fromkeys(workers, 0.0)
    for cost, holder in zip(costs, holders, strict=True):
        sums[holder] = sums.get(holder, 0.0) + cost
    return [cost / workers.get(address, 1) for address, cost in sums.items()]


def unit_blocks(costs: np.ndarray, threads: int, seconds: float) -> int:
    """How many blocks one thread evaluates in one go.

    They take about ``seconds``, so that scheduling is cheap in proportion; they are few enough that
    a worker's threads end together. Blocks share batches, so few units are made if more would save
    little time, and one if threads would gain nothing.
    """
    total = float(np.sum(costs))
    by_time = seconds * len(costs) / total if total else len(costs)
    goes = power_of_two(int(min(max(total / (threads * WAIT), 1), 8)))  # of each thread
    is_for_one = threads == 1 or total < ONE_THREAD_SECONDS
    by_threads = len(costs) if is_for_one else len(costs) / (goes * threads)
    return max(1, int(min(by_time, by_threads, len(costs))))


# ------------------------------------------------------------------------------------------ spread

EVERY = 8  # calls, one of them measured, so that two are measured between moves of blocks
WAIT = 5e-3  # seconds for which a worker's threads may wait for the last one
ONE_THREAD_SECONDS = 0.02  # of work that one thread does, as the calling thread would
UNIT_SECONDS = 0.2  # of work for one hop into a worker's thread, which takes some 0.1 ms


class BlockRun(NamedTuple):
    """Blocks of consecutive numbers that one ``move`` placed."""

    start: int
    stop: int
    move: int


class Assignment(NamedTuple):
    """The blocks that a worker is to evaluate, and how many of them make one unit."""

    runs: list[BlockRun]
    unit: int

    @property
    def numbers(self) -> list[int]:
        return [number for run in self.runs for number in range(run.start, run.stop)]


NO_BLOCKS = Assignment([], 1)


class Spread:
    """The blocks of a sum on a cluster's workers; each request brings the items.

    ``sizes`` are the numbers of items in the blocks.
    """

    key = ""  # begins the keys of the items that workers hold: they hold none

    def __init__(self, sizes: Sequence[int]):
        self.count = len(sizes)
        self.block_items = sizes[0]  # but for the last block, which may have fewer
        self.item_count = sum(sizes)
        self._sizes = np.array(sizes, float)
        self.holders: list[str] = [""] * self.count
        self.seconds = np.full(self.count, np.nan)  # as far as they are known
        self._costs = self.seconds.copy()  # without each worker's first call
        self._earlier = self.seconds.copy()  # the costs at the last look at the loads
        self._least = self.seconds.copy()  # in the calls since the last look at the loads
        self._measured = 0  # the number of these calls
        self._uneven = UNEVEN
        self._warm: set[str] = set()
        self._moves = [0] * self.count  # by which each block came to its worker
        self._assigned: dict[str, Assignment] | None = None
        self.plans: dict[Any, Any] = {}  # of requests, until ``assigned`` changes
        self._calls = 0
        self.workers: dict[str, int] = {}  # that have the blocks, and their threads
        self._lock = threading.RLock()

    def require_open(self) -> None:
        """Raises if the blocks cannot be evaluated any more."""

    def work(self) -> dict[str, list[int]]:
        """For each worker the numbers of its blocks."""
        work: dict[str, list[int]] = {}
        for number, holder in enumerate(self.holders):
            work.setdefault(holder, []).append(number)
        return work

    def assigned(
        self, among: Container[int] | None = None, a_thread: int | None = None
    ) -> dict[str, Assignment]:
        """The blocks of each worker, each block once: the same object until that changes.

        ``among``: these blocks alone, and at most ``a_thread`` of them for each thread.
        """
        with self._lock:
            self.require_open()
            if among is None:
                if self._assigned is None:
                    self._assigned = self._assignments(self.work())
                return self._assigned
            work = {a: [n for n in numbers if n in among] for a, numbers in self.work().items()}
            if a_thread is not None:
                work = {a: of[: a_thread * self.workers.get(a, 1)] for a, of in work.items()}
            return self._assignments({a: numbers for a, numbers in work.items() if numbers})

    def _assignments(self, work: Mapping[str, Sequence[int]]) -> dict[str, Assignment]:
        return {address: self._assignment_of(address, numbers) for address, numbers in work.items()}

    def _assignment_of(self, address: str, numbers: Sequence[int]) -> Assignment:
        runs = list(split_into_runs(numbers, [self._moves[n] for n in numbers]))
        seconds = self.seconds[numbers]
        if np.any(np.isnan(seconds)):
            return Assignment(runs, 1)
        threads = self.workers.get(address, 1)
        return Assignment(runs, unit_blocks(seconds, threads, UNIT_SECONDS))

    # ---- spreading

    def settle(self, workers: dict[str, int]) -> None:
        """Spreads the blocks over these workers, unless they are."""
        with self._lock:
            self.require_open()
            self._locate()
            are_same = list(workers.items()) == list(self.workers.items())
            if are_same and all(holder in workers for holder in self.holders):
                return
            self.workers = {}  # if this is interrupted, the next call settles again
            self._move(assign(self.costs(), workers, self.holders, self._uneven))
            self.workers = dict(workers)

    def _locate(self) -> None:
        """Finds out who has which blocks."""

    def rebalance(self) -> None:
        """Moves blocks if the measured loads of the workers are too uneven."""
        with self._lock:
            if np.any(np.isnan(self._costs)):
                return
            options = self._measured, self._uneven
            wanted = rebalancing(self.costs(), self.holders, self.workers, *options)
            if wanted is not None:
                self._move(wanted)

    def _move(self, wanted: Sequence[str]) -> None:
        moving: dict[str, list[int]] = {}
        for number, (holder, address) in enumerate(zip(self.holders, wanted, strict=True)):
            if holder != address:
                moving.setdefault(address, []).append(number)
        if moving:
            self._forget()  # whatever becomes of it
            for address, numbers in moving.items():
                self._give(address, numbers)

    def _give(self, address: str, numbers: Sequence[int]) -> None:
        """Gives blocks to a worker."""
        for number in numbers:
            self.holders[number] = address

    def _forget(self) -> None:
        """Drops assignments and plans, which depend on who has which blocks."""
        self._assigned, self.plans = None, {}

    # ---- measuring

    def is_measured_now(self) -> bool:
        """Counts a call; whether its times are wanted: of the first 16 calls, then every 8th."""
        self._calls += 1
        return self._calls <= 2 * EVERY or self._calls % EVERY == 0

    def record_times(self, times: Mapping[str, tuple[Sequence[int], Sequence[float]]]) -> None:
        """Records the seconds of each block; after calls 2, 4, 8 ... rebalances.

        A block costs the least time that it took since the last such call, since other work of the
        machine only adds to it. A worker's first call loads models, with cold caches: its times
        only choose the units.
        """
        with self._lock:
            for address, (numbers, seconds) in times.items():
                if len(numbers):
                    self._measure(address, np.asarray(numbers), np.maximum(seconds, 1e-9))
            self._measured += 1
            if self._calls & (self._calls - 1) == 0:
                self._forget()
                self._uneven = uneven_loads(self._costs, self._earlier, self.holders, self.workers)
                self.rebalance()
                self._earlier[:] = self._costs if self._measured > 1 else np.nan  # by chance
                self._least[:], self._measured = np.nan, 0

    def _measure(self, address: str, numbers: np.ndarray, seconds: np.ndarray) -> None:
        if address in self._warm:
            least = np.fmin(self._least[numbers], seconds)
            self._least[numbers] = self._costs[numbers] = self.seconds[numbers] = least
        else:
            known = self.seconds[numbers]
            self.seconds[numbers] = np.where(np.isnan(known), seconds, known)
            self._warm.add(address)

    def costs(self) -> np.ndarray:
        """The cost of each block: its seconds, or its number of items until all were measured."""
        return self._sizes if np.any(np.isnan(self._costs)) else self._costs


def split_into_runs(numbers: Sequence[int], moves: Sequence[int]) -> Iterator[BlockRun]:
    """Cuts ascending numbers of blocks into runs of consecutive ones that one move placed."""
    places = zip(numbers, moves, itertools.count(), strict=False)
    for (_, move), run in itertools.groupby(places, lambda place: (place[0] - place[2], place[1])):
        blocks = [number for number, _, _ in run]
        yield BlockRun(blocks[0], blocks[0] + len(blocks), move)


# -------------------------------------------------------------------------------------------------
# Holdings: blocks of items on the workers of a cluster, one run of blocks a worker.
#
# Each block is an ordinary Dask key. The client keeps the blocks, too: Dask cannot compute
# scattered data again when its worker dies, so the client places a lost block under a new key. A
# key has the numbers of the block and of the move that brought it to its worker.

logger = logging.getLogger("daskgrad")

ATTEMPTS = 20  # to place blocks while workers come and go
TAKES = 1.0  # seconds for a worker that pauses or closes to take blocks again
CLOSED = "these shards are closed; place the items again"


class Holdings(Spread):
    """Blocks of items on a cluster: their keys, their holders, and their costs."""

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
        """The futures of the blocks; places lost blocks again."""
        with self._lock:
            self.require_open()
            if not all(map(is_there, self.futures)):
                self.restore()
            return list(self.futures)

    # ---- placing

    def settle(self, workers: dict[str, int]) -> None:
        """Spreads the blocks over these workers, unless they are; places lost ones again."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return super().settle(workers)
            except LateError:
                raise
            except (KeyError, OSError) as error:  # a worker has gone, or takes nothing any more
                if attempt == ATTEMPTS:
                    raise ConnectionError(
                        f"{self.count} blocks of items could not be placed at "
                        f"{address_of(self.client)}: in {ATTEMPTS} attempts a worker left or took "
                        f"nothing, at last {error!r}; see the logs of the cluster's workers"
                    ) from error
                time.sleep(0.05)
                workers = workers_of(self.client)

    def restore(self) -> None:
        """Places lost blocks again."""
        self.settle(workers_of(self.client))

    def rebalance(self) -> None:
        """Does not fail if a worker has gone: the call has its results."""
        try:
            super().rebalance()
        except LateError:
            raise
        except (KeyError, OSError) as error:
            logger.info("blocks stay where they are: a worker takes none (%r)", error)

    def record_times(self, times: Mapping[str, tuple[Sequence[int], Sequence[float]]]) -> None:
        with self._lock:
            if not self._is_released:
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
        holders_of: dict[str, list[str]] = {}
        scheduler: Any = self.client.scheduler
        held = ask_scheduler(self.client, scheduler.has_what, "who holds the placed items")
        for address, keys in held.items():
            for key in keys:
                holders_of.setdefault(key, []).append(address)
        for number, future in enumerate(self.futures):
            holders = holders_of.get(future.key, [""])
            if self.holders[number] not in holders:
                self.holders[number] = holders[0]
        self._forget()

    def _give(self, address: str, numbers: Sequence[int]) -> None:
        """Places blocks under new keys, so that no late message about an old key can meet them."""
        self._keep_alive(address)
        self._latest_move += 1
        keys = [key_of(self.key, self._latest_move, number) for number in numbers]
        data = {
            key: as_sent(self.blocks[number].items, address)
            for key, number in zip(keys, numbers, strict=True)
        }

        async def scatter() -> Any:
            options: dict[str, Any] = {"workers": [address], "timeout": TAKES, "hash": False}
            try:
                return await self.client.scatter(data, asynchronous=True, **options)
            except KeyError:  # the scheduler has keys of a worker that left meanwhile
                await forget(self.client, keys)
                raise

        def scatter_whole() -> Any:  # half done, the scheduler would keep its part
            return asyncio.shield(scatter())

        def require_present() -> None:
            self._keep_alive(address)
            if address not in present_workers(self.client):
                raise KeyError(address)

        purpose = f"{len(numbers)} blocks of items were sent to the worker at {address}"
        items = functools.partial(self._items_of, numbers)
        with named_if_unreadable(items()), named_if_unsendable(items()):
            futures = answer(
                self.client, scatter_whole, purpose, of="placing", look=require_present
            )
        for number, key in zip(numbers, keys, strict=True):
            self.futures[number] = futures[key]
            self._moves[number] = self._latest_move
            self.holders[number] = address

    def _keep_alive(self, address: str) -> None:
        """Has an adaptive cluster keep a worker that is about to get blocks: it has no tasks."""
        log: Any = functools.partial(self.client.scheduler.log_event, topic=TOPIC)
        event = {"worker": address, "action": "placing"}
        ask_scheduler(self.client, lambda: log(msg=event), "to keep a worker that gets items")

    def _items_of(self, numbers: Sequence[int]) -> Iterator[tuple[str, Any]]:
        """The items of blocks, with their names in errors."""
        for block in [self.blocks[number] for number in numbers]:
            for number, item in enumerate(block.items, start=block.first):
                yield f"item {number}", item


async def forget(client: Client, keys: Sequence[str]) -> None:
    """Has the scheduler forget keys that no client wants, by wanting them first and no more then.

    Dask's scheduler cannot be restarted while it has unwanted keys.
    """
    nowhere: dict[str, list[str]] = {key: [] for key in keys}
    scheduler: Any = client.scheduler
    await scheduler.update_data(who_has=nowhere, nbytes={}, client=client.id)
    for key in keys:
        Future(key, client).release()


def as_sent(items: Any, address: str) -> Any:
    """A block's items for a worker; a worker in this process gets the objects themselves.

    Within a task, Dask scatters to the task's own worker, whatever the address.
    """
    is_local = address.startswith("inproc://") or current_worker()
    return items if is_local or isinstance(items, np.ndarray) else OnePickle(items)
