"""Worker sums: the blocks of a request's sums that one worker evaluates, in threads."""

import math
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from distributed.core import error_message

from daskgrad.autodiff.models.captured import Captured, Gradient, Seen
from daskgrad.autodiff.models.failures import make_plain
from daskgrad.autodiff.values import clock
from daskgrad.autodiff.values.addition import Place, power_of_two
from daskgrad.autodiff.values.cotangents import Leaves
from daskgrad.autodiff.values.memory import canonical, canonical_leaf
from daskgrad.autodiff.values.protection import read_only
from daskgrad.placed.messages import (
    AttachedRows,
    DrawnRun,
    Frames,
    JobMessage,
    Parcels,
    Unopened,
    key_of,
    slices_of,
    unpack,
)
from daskgrad.placed.worker_store import AttachedBlocks, Replicas
from daskgrad.sums.adding import CapturedSubtrees
from daskgrad.sums.block_tasks import Summand, TracedSum
from daskgrad.sums.cutting import join, take
from daskgrad.sums.item_cotangents import ItemGradient, without_items

KEPT = True  # in a result, in the place of a cotangent that its worker keeps
Sums = dict[Place, Captured]
# By the index of the first item of a block, for each differentiated field of its items.
ItemCotangents = dict[int, tuple[Leaves, ...]]


class Result(NamedTuple):
    """The partial sums of each job, and by worker the seconds of each block of each job; NaN for
    one that was not evaluated, since the call was given up.

    ``item_cotangents`` are those of the blocks' items, if these are differentiated. ``failures``
    are the replies of workers that could not finish their part.
    """

    sums: list[Sums]
    item_cotangents: list[ItemCotangents]
    seconds: dict[str, list[list[float]]]
    failures: list[dict[str, Any]]

    def __reduce__(self) -> tuple:
        """Pickles plain tuples, in less than half the time: the client loads one per worker."""
        sums = [as_tuples(sums) for sums in self.sums]
        return load_result, (sums, self.item_cotangents, self.seconds, self.failures)


def as_tuples(sums: Sums) -> tuple[tuple[Seen, ...], list[tuple]]:
    """What all blocks of a job saw, and its partial sums."""
    seen = next(iter(sums.values())).seen if sums else ()
    partial_sums = [(place, each.value, each.pullback.leaves) for place, each in sums.items()]
    return seen, partial_sums


def load_result(jobs: list[tuple], item_cotangents: list[ItemCotangents], *rest: Any) -> Result:
    if any(item_cotangents):
        item_cotangents = canonical(item_cotangents)
    return Result([load_sums(*job) for job in jobs], item_cotangents, *rest)


def load_sums(seen: tuple[Seen, ...], partial_sums: list[tuple]) -> Sums:
    """The partial sums; like all partial sums they have no fingerprints."""
    return {
        place: Captured(canonical(value), Gradient(tuple(map(canonical_leaf, leaves))), seen, ())
        for place, value, leaves in partial_sums
    }


class CannotFinish(Exception):
    """A worker cannot finish its part of a call; carries the reply that says why."""

    def __init__(self, status: str, **reply: Any):
        super().__init__(status)
        self.reply = {"status": status, **reply}

    @property
    def is_the_models(self) -> bool:
        """Whether it is so wherever the model is evaluated."""
        return self.reply["status"] in ("failed", "arrays")


class AskedBlock(NamedTuple):
    """A block that this worker evaluates: its number among all blocks, the place of its run."""

    number: int
    run: int
    key: str | None


class Job:
    """This worker's blocks of one sum, the one with this ``number`` in a request.

    ``values`` is the point; ``rows`` has the request's items for each sum, field and run of blocks.
    """

    def __init__(
        self,
        message: JobMessage,
        number: int,
        values: Unopened,
        rows: Unopened,
        parcels: Parcels,
        replicas: Replicas,
        attached: AttachedBlocks,
    ):
        self._message = message
        self._number = number
        self._summand = parcels[message.summand]
        self._values, self._rows = values, rows
        self._replicas = replicas
        self._attached = attached
        self._kept = {place: parcels[digest] for place, digest in message.parcels}
        self._kept_rows = {place: parcels[digest] for place, digest in message.kept_rows}
        self._blocks = list(blocks_of(message.runs, message.key))
        self._opened: tuple[TracedSum, list[Any]] | None = None
        self.subtrees = CapturedSubtrees(message.block_count, message.summation)
        self.item_cotangents: ItemCotangents = {}
        self.uses_attached = False
        self._lock = threading.Lock()
        self.seconds = [math.nan] * len(self._blocks)

    @property
    def is_done(self) -> bool:
        return not any(map(math.isnan, self.seconds))

    @property
    def name(self) -> str:
        model, _ = self._summand.value()
        return model.name

    @property
    def costs(self) -> dict[str, Any]:
        """How many items a block and blocks a unit have, the runs of blocks, and their seconds."""
        message = self._message
        runs = [(start, stop) for start, stop, _ in message.runs]
        return {
            "block_items": message.block_items,
            "unit": message.unit,
            "runs": runs,
            "block_seconds": self.seconds,
        }

    def units(self) -> list["Unit"]:
        unit = self._message.unit
        starts = range(0, len(self._blocks), unit)
        return [Unit(self, start, self._blocks[start : start + unit]) for start in starts]

    def run(self, place: int, items: Any) -> None:
        """Evaluates the block at a place in the request, and adds it to the partial sums."""
        traced, sent = self._open()
        number, run, _ = self._blocks[place]
        start, size = clock.seconds(), self._message.block_items
        begin = (number - self._message.runs[run][0]) * size  # in the rows of its run
        rows = [self._rows_of(runs, run, begin, number) for runs in sent]
        self._add(traced, number * size, (0, number), rows, items)
        self.seconds[place] = clock.seconds() - start

    def _rows_of(self, runs: Any, run: int, begin: int, number: int) -> Any:
        """What a block has of a field that the request brings, or of an attached array."""
        if isinstance(runs, AttachedRows):
            try:
                return read_only(self._attached.rows(runs.layout, runs.name, number))
            except KeyError:  # released meanwhile, since the shards were closed
                raise CannotFinish("no attached") from None
        return runs[run][begin : begin + self._message.block_items]

    def has_attached(self) -> bool:
        """Whether the attached arrays are here, in the version that is wanted."""
        numbers = [block.number for block in self._blocks]
        attached = [each for each in self._items_here()[0] if isinstance(each, AttachedRows)]
        self.uses_attached = bool(attached)
        return all([self._attached.has(e.layout, e.version, numbers) for e in attached])

    def keep_attached(self, call: str) -> None:
        """Keeps the cotangents of attached arrays here, out of the result."""
        _, summand = self._summand.value()
        fields, size = self._items_here()[0], self._message.block_items
        for n, number in enumerate(own_numbers(summand)):
            place = place_in_sent(summand, number)
            if place is None or not isinstance(fields[place], AttachedRows):
                continue
            blocks = {first // size: each[n][0] for first, each in self.item_cotangents.items()}
            ticket = ticket_of(call, self._number, n)
            self._attached.keep(fields[place].layout, call, {ticket: blocks})
            self.item_cotangents = {
                first: (*each[:n], (None if each[n][0] is None else KEPT,), *each[n + 1 :])
                for first, each in self.item_cotangents.items()
            }

    def _add(
        self, traced: TracedSum, first: int, place: Place, rows: list[Any], items: Any
    ) -> None:
        """Captures items, the first of which has this index, at their place in the tree."""
        captured = traced.capture(first, *traced.fields(rows, canonical(items)))
        if not isinstance(captured.pullback, Gradient):
            raise CannotFinish("arrays", number=self._number)
        with self._lock:
            if isinstance(captured.pullback, ItemGradient):
                self.item_cotangents[first] = captured.pullback.item_cotangents
            self.subtrees.put(place, without_items(captured))

    def _open(self) -> tuple[TracedSum, list[Any]]:
        """The sum, and the rows of each run for each field that the request brings."""
        with self._lock:
            if self._opened is None:
                model, summand = self._summand.value()
                values = self._values.value()
                inputs = fill([values[place] for place in self._message.inputs], self._kept)
                traced = TracedSum(model, summand, self._replicas.fill(inputs))
                self._opened = traced, self._sent_here()
            return self._opened

    def _sent_here(self) -> list[Any]:
        fields, _ = self._items_here()
        return fill(fields, self._kept_rows)

    def _items_here(self) -> tuple[Sequence[Any], Sequence[tuple]]:
        """What the request brings of the items (``request.WorkerItems``)."""
        sums = self._rows.value()
        return sums[self._number] if sums else ((), ())


def own_numbers(summand: Summand) -> list[int]:
    """The numbers of the fields of an item that are differentiated."""
    return [each.number for each in summand.active if each.number < summand.field_count]


def place_in_sent(summand: Summand, number: int) -> int | None:
    """The place of a field among those that a request brings; None for the placed one."""
    if summand.placed is None or number < summand.placed:
        return number
    return None if number == summand.placed else number - 1


def ticket_of(call: str, number: int, field: int) -> str:
    """Under which workers keep the cotangents of a sum's n-th differentiated field."""
    return f"{call}/{number}/{field}"


def fill(values: Iterable[Any], parcels: Mapping[int, Unopened]) -> list[Any]:
    """The values, with those of the parcels at their places."""
    return [parcels[n].value() if n in parcels else value for n, value in enumerate(values)]


def blocks_of(runs: Sequence[Sequence[int]], key: str) -> Iterator[AskedBlock]:
    """The blocks of some runs, and the keys of their items, if they are placed."""
    for place, (start, stop, move) in enumerate(runs):
        for number in range(start, stop):
            yield AskedBlock(number, place, key_of(key, move, number) if key else None)


class Unit(NamedTuple):
    """Blocks of one job, from the place ``start`` in the request on."""

    job: Job
    start: int
    blocks: Sequence[AskedBlock]

    def run(self, data: Sequence[Any], call: str, running: Container[str]) -> None:
        """Evaluates its blocks until the call is given up."""
        run_unit(enumerate(data, self.start), self.job.run, call, running)


def run_unit(
    parts: Iterable[tuple[int, Any]],
    run: Callable[[int, Any], None],
    call: str,
    running: Container[str],
) -> None:
    """Runs the parts of a unit, each with its items, until the call is given up."""
    try:
        for place, items in parts:
            if call not in running:
                return
            run(place, items)
    except CannotFinish:
        raise
    except BaseException as error:  # an exit or a StopIteration would end the event loop
        raise failed(error) from error


def failed(error: BaseException) -> CannotFinish:
    if isinstance(error, Exception):
        make_plain(error)
    message = dict(error_message(error))
    message.pop("status")
    return CannotFinish("failed", **message)


def merge_subtrees(sums: Iterable[Sums], count: int, summation: str) -> CapturedSubtrees:
    """The partial sums of several workers, in as few subtrees as possible."""
    subtrees = CapturedSubtrees(count, summation)
    for each in sums:
        for place, captured in each.items():
            subtrees.put(place, captured)
    return subtrees


def merge_results(messages: Sequence[JobMessage], own: Result, others: Sequence[Frames]) -> Result:
    """The results of several workers as one."""
    results: list[Result] = [own, *map(unpack, others)]
    sums = [
        merge_subtrees([each.sums[n] for each in results], job.block_count, job.summation)
        for n, job in enumerate(messages)
    ]
    item_cotangents = [merge_item_cotangents(results, n) for n in range(len(messages))]
    seconds = {a: times for result in results for a, times in result.seconds.items()}
    failures = [reply for result in results for reply in result.failures]
    return Result([each.sums() for each in sums], item_cotangents, seconds, failures)


def merge_item_cotangents(results: Iterable[Result], number: int) -> ItemCotangents:
    """The cotangents of the items of all blocks of one job."""
    return {n: each for result in results for n, each in result.item_cotangents[number].items()}


# -------------------------------------------------------------------------------------------------
# Worker samples: the drawn items of a sum that one worker holds, in pieces, in threads.

PIECES = 4  # for each thread, if there are several, so that they end together


class Piece(NamedTuple):
    """Drawn items that one thread evaluates in one go: a subtree of the sum, or a slice.

    ``place`` is that in the tree, ``rank`` the number of the first of them among all drawn;
    ``run`` is the number of the run of blocks that they are from, and ``move`` what placed that.
    """

    place: Place
    rank: int
    indices: np.ndarray
    run: int
    move: int


class SampledJob(Job):
    """This worker's part of a sum over a sample, in pieces for so many ``threads``."""

    def prepare(self, threads: int) -> None:
        """Cuts what was drawn here into pieces."""
        self._drawn: list[DrawnRun] = [DrawnRun(*each) for each in self._items_here()[1]]
        count = sum([len(each.indices) for each in self._drawn])
        most = power_of_two(max(1, count // (PIECES * threads if threads > 1 else 1)))
        self._pieces = [*self._cut(most)]
        self.seconds = [math.nan] * len(self._pieces)

    def _cut(self, most: int) -> Iterator[Piece]:
        for number, (drawn, run) in enumerate(zip(self._drawn, self._message.runs, strict=True)):
            if self._message.drawn == "slices":
                parts = leaves_of(drawn, self._message.block_items)
            else:
                parts = subtrees_of(drawn, most)
            for place, start, stop in parts:
                indices = drawn.indices[start - drawn.rank : stop - drawn.rank]
                yield Piece(place, start, indices, number, run[2])

    @property
    def costs(self) -> dict[str, Any]:
        """None of blocks: each call has other items."""
        return {}

    def units(self) -> list[Any]:
        return [SampledUnit(self, place) for place in range(len(self._pieces))]

    def blocks_of(self, place: int) -> list[AskedBlock]:
        """The blocks that the items of a piece are in."""
        piece, size = self._pieces[place], self._message.block_items
        numbers = np.unique(piece.indices // size).tolist()
        key = self._message.key
        return [AskedBlock(n, piece.run, key_of(key, piece.move, n)) for n in numbers]

    def run_piece(self, place: int, blocks: Sequence[Any]) -> None:
        """Evaluates a piece, whose items are in these blocks, and adds it to the partial sums."""
        piece, (traced, sent) = self._pieces[place], self._open()
        begin = clock.seconds()
        start = piece.rank - self._drawn[piece.run].rank  # in the rows of its run
        rows = [field[piece.run][start : start + len(piece.indices)] for field in sent]
        items = join([*picked(piece.indices, blocks, self._message.block_items)])
        self._add(traced, piece.rank, piece.place, rows, items)
        self.seconds[place] = clock.seconds() - begin


class SampledUnit(NamedTuple):
    """A piece of a sampled job, and the blocks that its items are in."""

    job: SampledJob
    place: int

    @property
    def blocks(self) -> list[AskedBlock]:
        return self.job.blocks_of(self.place)

    def run(self, data: Sequence[Any], call: str, running: Container[str]) -> None:
        """Evaluates it unless the call is given up."""
        run_unit([(self.place, data)], self.job.run_piece, call, running)


def picked(indices: np.ndarray, blocks: Sequence[Any], size: int) -> Iterator[Any]:
    """The items of ascending indices, from the blocks of so many items that they are in."""
    for items, (start, stop) in zip(blocks, slices_of(indices, size), strict=True):
        yield take(items, indices[start:stop] % size)


def subtrees_of(drawn: DrawnRun, most: int) -> Iterator[tuple[Place, int, int]]:
    """The subtrees that make up a run, of at most so many items: place, and ranks from and to."""
    start = drawn.rank
    while start < drawn.stop:
        size = min(power_of_two(drawn.stop - start), start & -start or most, most)
        yield (size.bit_length() - 1, start // size), start, start + size
        start += size


def leaves_of(drawn: DrawnRun, size: int) -> Iterator[tuple[Place, int, int]]:
    """The slices that items of a run were drawn from, each a leaf of the tree."""
    for number, (start, stop) in enumerate(slices_of(drawn.indices, size), drawn.slice_rank):
        yield (0, number), drawn.rank + start, drawn.rank + stop
