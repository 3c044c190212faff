"""Spread: which worker evaluates which blocks of a sum, and how long they take."""

import itertools
import threading
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.resident import balance

EVERY = 8  # calls, of which one is measured, so that there are two between moves of blocks
UNIT_SECONDS = 0.2  # of work for one hop into a worker's thread, which takes some 0.1 ms


class Run(NamedTuple):
    """Blocks of consecutive numbers that one ``move`` placed."""

    start: int
    stop: int
    move: int


class Asked(NamedTuple):
    """The blocks that a worker is asked for, and how many of them make one unit."""

    runs: list[Run]
    unit: int

    @property
    def numbers(self) -> list[int]:
        return [number for run in self.runs for number in range(run.start, run.stop)]


NOTHING_ASKED = Asked([], 1)


class Spread:
    """The blocks of a sum on a cluster's workers; each request brings the items.

    ``sizes`` are the numbers of items in the blocks.
    """

    key = ""  # the start of the keys of the items that workers hold: they hold none

    def __init__(self, sizes: Sequence[int]):
        self.count = len(sizes)
        self.block_items = sizes[0]  # but for the last block, which may have fewer
        self._sizes = np.array(sizes, float)
        self.holders: list[str] = [""] * self.count
        self.seconds = np.full(self.count, np.nan)  # of each, as far as they are known
        self._costs = self.seconds.copy()  # the same, without each worker's first call
        self._least = self.seconds.copy()  # of the calls since blocks were last to be moved
        self._measured = 0  # the number of these calls
        self._warm: set[str] = set()
        self._moves = [0] * self.count  # by which each block came to its worker
        self._asked: dict[str, Asked] | None = None
        self.plans: dict[Any, Any] = {}  # of requests, until ``asked`` changes
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

    def asked(
        self, among: Container[int] | None = None, a_thread: int | None = None
    ) -> dict[str, Asked]:
        """What each worker is asked for, each block once: the same object until that changes.

        ``among``: these blocks alone, of which each thread gets at most so many.
        """
        with self._lock:
            self.require_open()
            if among is not None:
                wanted = {a: [n for n in of if n in among] for a, of in self.work().items()}
                if a_thread is not None:
                    threads = self.workers
                    wanted = {a: of[: a_thread * threads.get(a, 1)] for a, of in wanted.items()}
                return {a: self._asked_of(a, numbers) for a, numbers in wanted.items() if numbers}
            if self._asked is None:
                self._asked = {a: self._asked_of(a, numbers) for a, numbers in self.work().items()}
            return self._asked

    def _asked_of(self, address: str, numbers: Sequence[int]) -> Asked:
        runs = list(split_into_runs(numbers, [self._moves[n] for n in numbers]))
        seconds = self.seconds[numbers]
        if np.any(np.isnan(seconds)):
            return Asked(runs, 1)
        threads = self.workers.get(address, 1)
        return Asked(runs, balance.unit_blocks(seconds, threads, UNIT_SECONDS))

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
            self._move(balance.assign(self.costs(), workers, self.holders))
            self.workers = dict(workers)

    def _locate(self) -> None:
        """Finds out who has which blocks."""

    def rebalance(self) -> None:
        """Moves blocks if the measured loads of the workers are too uneven."""
        with self._lock:
            if np.any(np.isnan(self._costs)):
                return
            wanted = balance.rebalancing(self.costs(), self.holders, self.workers, self._measured)
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
        """Drops what depends on who has which blocks."""
        self._asked, self.plans = None, {}

    # ---- measuring

    def is_measured_now(self) -> bool:
        """Counts a call; whether its times are wanted: of the first 16 calls, then every 8th."""
        self._calls += 1
        return self._calls <= 2 * EVERY or self._calls % EVERY == 0

    def record_times(self, times: Mapping[str, tuple[Sequence[int], Sequence[float]]]) -> None:
        """Records the seconds of each block; after calls 2, 4, 8 ... rebalances.

        A block costs the least time that it took since the last such call: what else a machine does
        only adds to it. A worker's first call loads models, with cold caches: its times only choose
        the units.
        """
        with self._lock:
            for address, (numbers, seconds) in times.items():
                if len(numbers):
                    self._measure(address, np.asarray(numbers), np.maximum(seconds, 1e-9))
            self._measured += 1
            if self._calls & (self._calls - 1) == 0:
                self._forget()
                self.rebalance()
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


def split_into_runs(numbers: Sequence[int], moves: Sequence[int]) -> Iterator[Run]:
    """Cuts ascending numbers of blocks into runs of consecutive ones that one move placed."""
    places = zip(numbers, moves, itertools.count(), strict=False)
    for (_, move), run in itertools.groupby(places, lambda each: (each[0] - each[2], each[1])):
        first, *rest = [number for number, _, _ in run]
        yield Run(first, first + 1 + len(rest), move)
