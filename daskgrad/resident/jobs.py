"""Jobs: the blocks of one sum that one worker evaluates for one request, in threads."""

import threading
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from distributed.core import error_message

from daskgrad.models import Model
from daskgrad.pullbacks import Captured, Gradient, Seen
from daskgrad.resident.messages import Frames, Parcels, Unopened, unpack
from daskgrad.structures import aligned
from daskgrad.summation import Place, Subtrees
from daskgrad.terms import ADDERS, Sum, TracedSum, captured_sum

Sums = dict[Place, Captured]


class Summand(NamedTuple):
    """What a sum adds up: the same for every block, and sent to a worker once."""

    model: Model
    whole: Sum
    whole_slices: bool


class Result(NamedTuple):
    """The partial sums, job by job, and for each worker the seconds of each block of each job."""

    sums: list[Sums]
    seconds: dict[str, list[list[float]]]

    def __reduce__(self) -> tuple:
        """As plain tuples, in less than half the time: the client loads one for each worker."""
        return load_result, ([as_tuples(sums) for sums in self.sums], self.seconds)


def as_tuples(sums: Sums) -> tuple[list[tuple], list[tuple]]:
    """What the blocks of a job saw, which is the same for all, and the partial sums."""
    seen = next(iter(sums.values())).seen if sums else ()
    partial_sums = [(place, each.value, each.pullback.leaves) for place, each in sums.items()]
    return [tuple(each) for each in seen], partial_sums


def load_result(jobs: list[tuple], seconds: dict[str, list[list[float]]]) -> Result:
    return Result([load_sums(*job) for job in jobs], seconds)


def load_sums(seen: list[tuple], partial_sums: list[tuple]) -> Sums:
    """Without fingerprints, as all partial sums are."""
    saw = tuple([Seen(*each) for each in seen])
    return {
        place: Captured(value, Gradient(leaves), saw, ()) for place, value, leaves in partial_sums
    }


class Stopped(Exception):
    """An evaluation cannot be finished here; carries the reply that says why."""

    def __init__(self, status: str, **reply: Any):
        super().__init__(status)
        self.reply = {"status": status, **reply}


class Job:
    """One sum of a request: the blocks of it that this worker holds.

    A block is (its number among ``count``, the index of its first item, the key of its items); a
    ``unit`` is how many of them one thread evaluates in one go.
    """

    def __init__(self, message: Mapping[str, Any], values: Unopened, parcels: Parcels):
        self.count: int = message["block_count"]
        self._summand = parcels[message["summand"]]
        self._kept = {place: parcels[digest] for place, digest in message["parcels"]}
        self._inputs: Sequence[int] = message["inputs"]
        self._values = values
        self._blocks: Sequence[tuple[int, int, str]] = message["blocks"]
        self._unit: int = message["unit"]
        self._traced: tuple[TracedSum, bool] | None = None
        self._subtrees = new_subtrees(self.count, message["summation"])
        self._lock = threading.Lock()
        self.seconds = [0.0] * len(self._blocks)

    @property
    def name(self) -> str:
        return self._summand.value().model.name

    def units(self) -> list["Unit"]:
        starts = range(0, len(self._blocks), self._unit)
        return [Unit(self, start, self._blocks[start : start + self._unit]) for start in starts]

    def run(self, place: int, items: Any) -> None:
        """Evaluates the block at a place in the request, and adds it to what is there."""
        traced, whole_slices = self._opened()
        number, first, _ = self._blocks[place]
        start = time.perf_counter()
        items = aligned(items)
        captured = traced.capture(first, [items] if whole_slices else items)
        self.seconds[place] = time.perf_counter() - start
        if not isinstance(captured.pullback, Gradient):
            raise Stopped("arrays", model=self.name)
        with self._lock:
            self._subtrees.put((0, number), captured)

    def sums(self) -> Sums:
        return self._subtrees.sums()

    def _opened(self) -> tuple[TracedSum, bool]:
        """The sum that blocks are captured of, and whether a block is the one item of its term."""
        with self._lock:
            if self._traced is None:
                summand = self._summand.value()
                self._traced = self._trace(summand), summand.whole_slices
            return self._traced

    def _trace(self, summand: Summand) -> TracedSum:
        values = self._values.value()
        inputs = [
            self._kept[place].value() if place in self._kept else values[number]
            for place, number in enumerate(self._inputs)
        ]
        return TracedSum(summand.model, summand.whole, inputs)


class Unit(NamedTuple):
    """A run of blocks of one job, from the place ``start`` in the request on."""

    job: Job
    start: int
    blocks: Sequence[tuple[int, int, str]]

    @property
    def keys(self) -> list[str]:
        return [key for _, _, key in self.blocks]

    def run(self, data: Sequence[Any], evaluation: str, running: Container[str]) -> None:
        """Evaluates its blocks as long as the evaluation is among those that are running."""
        try:
            for place, items in enumerate(data, self.start):
                if evaluation not in running:
                    raise Stopped("abandoned")
                self.job.run(place, items)
        except Stopped:
            raise
        except BaseException as error:  # an exit or a StopIteration would end the event loop
            raise failed(error) from error


def failed(error: BaseException) -> Stopped:
    message = dict(error_message(error))
    message.pop("status")
    return Stopped("failed", **message)


def new_subtrees(count: int, summation: str) -> Subtrees:
    """The partial sums of blocks whose terms are scalars; without fingerprints until ``total``."""
    adders = ADDERS[summation]

    def add(first: Captured, second: Captured, owned: bool) -> Captured:
        value = adders.values(first.value, second.value, owned)
        leaves = adders.cotangents(first.pullback.leaves, second.pullback.leaves, owned)
        return Captured(value, Gradient(leaves), first.seen, ())

    return Subtrees(count, add)


def total(subtrees: Subtrees) -> Captured:
    """The whole sum, rounded."""
    captured = subtrees.total()
    return captured_sum(captured.value, captured.pullback, captured.seen, is_part=False)


def joined(sums: Iterable[Sums], count: int, summation: str) -> Subtrees:
    """The partial sums of several workers, in as few subtrees as they make."""
    subtrees = new_subtrees(count, summation)
    for each in sums:
        for place, captured in each.items():
            subtrees.put(place, captured)
    return subtrees


def merged(messages: Sequence[Mapping[str, Any]], own: Result, others: Sequence[Frames]) -> Result:
    """The results of several workers as one."""
    results: list[Result] = [own, *map(unpack, others)]
    sums = [
        joined([result.sums[n] for result in results], job["block_count"], job["summation"]).sums()
        for n, job in enumerate(messages)
    ]
    return Result(sums, {a: times for result in results for a, times in result.seconds.items()})
