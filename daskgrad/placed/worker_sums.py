"""Worker sums: the blocks of a request's sums that one worker evaluates, in threads."""

import itertools
import math
import threading
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from distributed.core import error_message

from daskgrad.autodiff.models.captured import Captured, Gradient
from daskgrad.autodiff.models.failures import make_plain
from daskgrad.autodiff.values import clock
from daskgrad.autodiff.values.addition import Place, power_of_two
from daskgrad.autodiff.values.cotangents import Leaves
from daskgrad.autodiff.values.memory import canonical
from daskgrad.autodiff.values.protection import read_only
from daskgrad.autodiff.values.trees import map_leaves
from daskgrad.placed.messages import (
    AttachedRows,
    DrawnRun,
    Frames,
    JobMessage,
    StandIn,
    Unopened,
    key_of,
    slices_of,
    unpack,
)
from daskgrad.placed.worker_store import Store, ticket_of
from daskgrad.sums.adding import CapturedSubtrees
from daskgrad.sums.block_tasks import Summand, TracedSum
from daskgrad.sums.cutting import columns_of, join, rows_nbytes, take
from daskgrad.sums.item_cotangents import ItemGradient

COPIED = 2**20  # bytes of arrays that are put side by side, so that blocks are evaluated together
KEPT = True  # in a result, in the place of a cotangent that its worker keeps
Sums = dict[Place, Captured]
# By the index of the first item of a part, for each differentiated field of its items.
ItemCotangents = dict[int, tuple[Leaves, ...]]


class WorkerResult(NamedTuple):
    """The partial sums of each job, the cotangents of its items, and by worker the seconds of each
    block of each job: NaN for a block that was not evaluated, since the call was given up.

    ``failures`` are the replies of workers that could not finish their part.
    """

    sums: list[Sums]
    item_cotangents: list[ItemCotangents]
    seconds: dict[str, list[list[float]]]
    failures: list[dict[str, Any]]


class CannotFinish(Exception):
    """A worker cannot finish its part of a call, for the reason in its ``reply``."""

    def __init__(self, status: str, **reply: Any):
        super().__init__(status)
        self.reply = {"status": status, **reply}

    @property
    def is_the_models(self) -> bool:
        """Whether the model would fail anywhere."""
        return self.reply["status"] in ("failed", "arrays")


class JobPart(NamedTuple):
    """Items that are not cut: a block; or drawn items, a subtree of the sum or a slice.

    ``place`` is in the tree of the sum, ``first`` the number of the first item. The rows go from
    ``start`` to ``stop`` in a run; items are in ``blocks``, which a ``move`` placed, drawn ones at
    ``indices`` among all.
    """

    place: Place
    first: int
    run: int
    start: int
    stop: int
    move: int
    blocks: Sequence[int]
    indices: np.ndarray | None = None


Subtree = tuple[Place, Sequence[JobPart]]  # of the sum: consecutive parts of a worker


class Job:
    """This worker's part of one sum, the one with this ``number`` in a request.

    ``values`` is the point; ``rows`` has the request's items for each sum, field and run of blocks.
    """

    def __init__(
        self,
        message: JobMessage,
        number: int,
        values: Unopened,
        rows: Unopened,
        store: Store,
        threads: int,
    ):
        self._message = message
        self._number = number
        self._store = store
        self._values, self._rows = values, rows
        # Taken now: a later request may make the store drop them.
        self._entries = store.entries(message.needed)
        self._summand: Unopened = self._entries[message.needed[0]]
        self._opened: tuple[TracedSum, list[Any]] | None = None
        self.subtrees = CapturedSubtrees(message.block_count, message.summation)
        self.item_cotangents: ItemCotangents = {}
        self._evaluated: list[Sequence[JobPart]] = []
        self._lock = threading.Lock()
        if message.drawn:
            self._parts = list(drawn_parts(message, self._worker_items()[1], threads))
        else:
            self._parts = list(block_parts(message))
        self.seconds = [math.nan] * len(self._parts)

    @property
    def attached(self) -> dict[int, AttachedRows]:
        """The attached arrays among the fields that the request brings, by their places."""
        fields, _ = self._worker_items()
        return {n: field for n, field in enumerate(fields) if type(field) is AttachedRows}

    @property
    def is_done(self) -> bool:
        return not any(map(math.isnan, self.seconds))

    @property
    def name(self) -> str:
        model, _ = self._summand.value()
        return model.name

    @property
    def costs(self) -> dict[str, Any]:
        """The sizes of blocks and units, the runs of blocks, and their seconds; empty for a sample,
        since each call has other items."""
        message = self._message
        if message.drawn:
            return {}
        return {
            "block_items": message.block_items,
            "unit": message.unit,
            "runs": [(start, stop) for start, stop, _ in message.runs],
            "block_seconds": self.seconds,
        }

    def units(self) -> list[tuple["Job", Sequence[int]]]:
        """The parts that a thread evaluates in one go, by their numbers."""
        parts, unit = range(len(self._parts)), 1 if self._message.drawn else self._message.unit
        return [(self, parts[start : start + unit]) for start in parts[::unit]]

    def keys(self, number: int) -> list[str]:
        """The keys of the blocks that a part is in; none if workers hold no items."""
        part, message = self._parts[number], self._message
        if not message.key:
            return []
        return [key_of(message.key, part.move, block) for block in part.blocks]

    def run(
        self,
        numbers: Sequence[int],
        data: Sequence[Sequence[Any]],
        attempt: Any,
        running: Container[Any],
    ) -> None:
        """Evaluates parts, each with the blocks that it is in, while the attempt is running."""
        start = 0
        try:
            for subtrees in self._together(numbers, data):
                if attempt not in running:
                    return
                stop = start + sum([len(parts) for _, parts in subtrees])
                self._evaluate(subtrees, numbers[start:stop], data[start:stop])
                start = stop
        except CannotFinish:
            raise
        except BaseException as error:  # an exit or a StopIteration would end the event loop
            raise failed(error) from error

    def _together(
        self, numbers: Sequence[int], data: Sequence[Sequence[Any]]
    ) -> Iterator[Sequence[Subtree]]:
        """Parts that are evaluated as one, in as few subtrees as possible.

        If items go in batches, small blocks make larger ones together, above all of ragged items.
        Other items may be slow: a call that is given up ends between their blocks, and keeps the
        sums that it has.
        """
        parts, message = [self._parts[number] for number in numbers], self._message
        (_, summand), first = self._summand.value(), parts[0]
        is_alone = len(parts) == 1 or message.drawn or summand.slices
        fields = [] if is_alone else self._fields(parts[:1], data[:1])
        if is_alone or not self._open()[0].is_batched(first.first, fields):
            yield from [[(part.place, [part])] for part in parts]
            return
        nbytes = sum([rows_nbytes(column) or 0 for f in fields for column in columns_of(f)])
        most = power_of_two(max(1, COPIED // max(1, nbytes)))
        blocks = [part.blocks[0] for part in parts]
        for shift, group in itertools.groupby(enumerate(blocks), lambda pair: pair[1] - pair[0]):
            run = [block for _, block in group]
            for start in [run[0], *range(run[0] - run[0] % most + most, run[-1] + 1, most)]:
                stop = min(start - start % most + most, run[-1] + 1)
                bounds = subtrees_of(start, stop, most, message.block_count)
                yield [(place, parts[a - shift : b - shift]) for place, a, b in bounds]

    def _evaluate(
        self,
        subtrees: Sequence[Subtree],
        numbers: Sequence[int],
        data: Sequence[Sequence[Any]],
    ) -> None:
        """Evaluates parts as one, and puts their sums at their places in the tree."""
        begin, (traced, _) = clock.seconds(), self._open()
        fields = self._fields([self._parts[number] for number in numbers], data)
        firsts = [parts[0].first for _, parts in subtrees]
        ends = [*firsts, firsts[0] + len(fields[0])]
        sizes = [stop - start for start, stop in itertools.pairwise(ends)]
        sums = traced.captures(firsts[0], sizes, fields)
        for (place, parts), captured in zip(subtrees, sums, strict=True):
            self._put(place, parts, captured)
        seconds = (clock.seconds() - begin) / len(numbers)
        for number in numbers:
            self.seconds[number] = seconds

    def _fields(self, parts: Sequence[JobPart], data: Sequence[Sequence[Any]]) -> list[Any]:
        """The fields of the items of consecutive parts, each with the blocks that it is in."""
        traced, sent = self._open()
        rows = [join([self._rows_of(runs, part) for part in parts]) for runs in sent]
        blocks = [*itertools.chain.from_iterable(data)]
        if parts[0].indices is not None:
            blocks = [*picked(parts[0].indices, blocks, self._message.block_items)]
        return traced.fields(rows, canonical(join(blocks) if blocks else None))

    def _rows_of(self, runs: Any, part: JobPart) -> Any:
        """The rows of a part, in a field that the request brings or in an attached array."""
        if type(runs) is not AttachedRows:
            return runs[part.run][part.start : part.stop]
        try:
            return read_only(self._store.rows(runs.layout, runs.name, part.blocks[0]))
        except KeyError:  # it was lost, or released meanwhile
            raise CannotFinish("missing", names=[runs.layout]) from None

    def keep_attached(self, call: str) -> None:
        """Keeps the cotangents of attached arrays here, out of the result."""
        (_, summand), attached = self._summand.value(), self.attached
        for n, field in enumerate(own_numbers(summand)):
            place = place_in_sent(summand, field)
            if place not in attached:
                continue
            layout = attached[place].layout
            cotangents = self.item_cotangents
            blocks = {
                block: rows
                for parts in self._evaluated
                for block, rows in self._by_blocks(parts, cotangents[parts[0].first][n][0])
            }
            self._store.keep(ticket_of(layout, call, self._number, n), blocks)
            self.item_cotangents = {
                first: (*fields[:n], (None if fields[n][0] is None else KEPT,), *fields[n + 1 :])
                for first, fields in cotangents.items()
            }

    def _by_blocks(self, parts: Sequence[JobPart], rows: Any) -> Iterator[tuple[int, Any]]:
        """The blocks of a subtree, with the rows of each."""
        size, is_whole = self._message.block_items, rows is None or len(parts) == 1
        for number, part in enumerate(parts):
            of_block = rows if is_whole else rows[number * size : (number + 1) * size]
            yield part.blocks[0], of_block

    def _put(self, place: Place, parts: Sequence[JobPart], captured: Captured) -> None:
        """Puts the sum of parts at its place in the tree."""
        if not isinstance(captured.pullback, Gradient):
            raise CannotFinish("arrays", number=self._number)
        with self._lock:
            self._evaluated.append(parts)
            if isinstance(captured.pullback, ItemGradient):
                self.item_cotangents[parts[0].first] = captured.pullback.item_cotangents
            gradient = Gradient(captured.pullback.leaves)  # like all partial sums no fingerprint
            self.subtrees.put(place, Captured(captured.value, gradient, captured.seen, ()))

    def _open(self) -> tuple[TracedSum, list[Any]]:
        """The sum, and the rows of each run for each field that the request brings."""
        with self._lock:
            if self._opened is None:
                model, summand = self._summand.value()
                values = self._values.value()
                inputs = [self._whole(values[place]) for place in self._message.inputs]
                if any([type(entry) is np.ndarray for entry in self._entries.values()]):
                    inputs = [map_leaves(self._whole, value) for value in inputs]
                rows = list(map(self._whole, self._worker_items()[0]))
                self._opened = TracedSum(model, summand, inputs), rows
            return self._opened

    def _whole(self, value: Any) -> Any:
        """A value, or what it stands for; replicated arrays are read-only."""
        if type(value) is not StandIn:
            return value
        entry = self._entries[value.name]
        return entry.value() if type(entry) is Unopened else read_only(entry)

    def _worker_items(self) -> tuple[Sequence[Any], Sequence[tuple]]:
        """The items that the request brings (``request.WorkerItems``)."""
        sums = self._rows.value()
        return sums[self._number] if sums else ((), ())


def own_numbers(summand: Summand) -> list[int]:
    """The numbers of an item's differentiated fields."""
    return [active.number for active in summand.active if active.number < summand.field_count]


def place_in_sent(summand: Summand, number: int) -> int | None:
    """The place of a field among all that a request brings; None for the placed field."""
    if summand.placed is None or number < summand.placed:
        return number
    return None if number == summand.placed else number - 1


def failed(error: BaseException) -> CannotFinish:
    if isinstance(error, Exception):
        make_plain(error)
    message = dict(error_message(error))
    message.pop("status")
    return CannotFinish("failed", **message)


def merge_subtrees(sums: Iterable[Sums], count: int, summation: str) -> CapturedSubtrees:
    """The partial sums of several workers, in as few subtrees as possible."""
    subtrees = CapturedSubtrees(count, summation)
    for place, captured in [pair for of_worker in sums for pair in of_worker.items()]:
        subtrees.put(place, captured)
    return subtrees


def merge_results(
    messages: Sequence[JobMessage], local: WorkerResult, remote: Sequence[Frames]
) -> WorkerResult:
    """The results of several workers as one."""
    results: list[WorkerResult] = [local, *map(unpack, remote)]
    subtrees = [
        merge_subtrees([result.sums[n] for result in results], job.block_count, job.summation)
        for n, job in enumerate(messages)
    ]
    item_cotangents = [merge_item_cotangents(results, n) for n in range(len(messages))]
    seconds = {a: times for result in results for a, times in result.seconds.items()}
    failures = [reply for result in results for reply in result.failures]
    return WorkerResult([of_job.sums() for of_job in subtrees], item_cotangents, seconds, failures)


def merge_item_cotangents(results: Iterable[WorkerResult], number: int) -> ItemCotangents:
    """The cotangents of the items of all blocks of one job."""
    blocks = [block for result in results for block in result.item_cotangents[number].items()]
    return dict(blocks)


# -------------------------------------------------------------------------------------------------
# Parts: the blocks of a job, or its drawn items.

PARTS = 4  # of a sample for each of several threads, so that these end together


def block_parts(message: JobMessage) -> Iterator[JobPart]:
    """The blocks of a job."""
    size = message.block_items
    for run, (start, stop, move) in enumerate(message.runs):
        for block in range(start, stop):
            begin = (block - start) * size
            yield JobPart((0, block), block * size, run, begin, begin + size, move, (block,))


def drawn_parts(message: JobMessage, runs: Sequence[tuple], threads: int) -> Iterator[JobPart]:
    """The drawn items of a job, in parts for a number of threads; each run is a ``DrawnRun``."""
    size, drawn_runs = message.block_items, [DrawnRun(*run) for run in runs]
    count = sum([len(drawn.indices) for drawn in drawn_runs])
    most = power_of_two(max(1, count // (PARTS * threads if threads > 1 else 1)))
    for run, drawn in enumerate(drawn_runs):
        is_sliced = message.drawn == "slices"
        ranks = drawn.rank, drawn.stop, most, message.block_count
        bounds = leaves_of(drawn, size) if is_sliced else subtrees_of(*ranks)
        for place, first, end in bounds:
            start, stop = first - drawn.rank, end - drawn.rank
            indices = drawn.indices[start:stop]
            blocks = np.unique(indices // size).tolist()
            yield JobPart(place, first, run, start, stop, drawn.move, blocks, indices)


def picked(indices: np.ndarray, blocks: Sequence[Any], size: int) -> Iterator[Any]:
    """The items of ascending indices, out of their blocks of ``size`` items."""
    for items, (start, stop) in zip(blocks, slices_of(indices, size), strict=True):
        yield take(items, indices[start:stop] % size)


def subtrees_of(start: int, stop: int, most: int, count: int) -> Iterator[tuple[Place, int, int]]:
    """Consecutive terms of a sum of ``count`` as subtrees, with at most so many: place and bounds.

    The last subtree of a sum may have fewer terms than others of its level.
    """
    while start < stop:
        size = min(start & -start or most, most)
        if stop < count:
            size = min(size, power_of_two(stop - start))
        yield (size.bit_length() - 1, start // size), start, min(start + size, stop)
        start += size


def leaves_of(drawn: DrawnRun, size: int) -> Iterator[tuple[Place, int, int]]:
    """The slices that hold items of a run, each a leaf of the tree."""
    for number, (start, stop) in enumerate(slices_of(drawn.indices, size), drawn.slice_rank):
        yield (0, number), drawn.rank + start, drawn.rank + stop
