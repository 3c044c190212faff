"""Requests: what the client asks each worker to do for sums over spread blocks."""

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from daskgrad.autodiff.models.model import Model
from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.carriers import kept_or_made, sent_by_value
from daskgrad.autodiff.values.elsewhere import Elsewhere
from daskgrad.autodiff.values.trees import exactly, flatten
from daskgrad.placed.messages import (
    LARGE,
    LARGE_POINT,
    AttachedRows,
    Frames,
    InStore,
    JobMessage,
    Parcel,
    Work,
    addresses,
    pack,
    routes,
)
from daskgrad.placed.replicas import replicated_in, with_stand_ins
from daskgrad.placed.samples import Sample
from daskgrad.placed.spread import NOTHING_ASKED, Asked, BlockRun, Spread
from daskgrad.placed.worker_sums import place_in_sent
from daskgrad.sums.block_tasks import Summand
from daskgrad.tasks.sending import named_if_unsendable


class SpreadSum(NamedTuple):
    """A sum over ``spread`` blocks; ``sent`` are the fields of items that workers do not hold.

    ``sample``: it is over a sample of the items in these blocks.
    """

    spread: Spread
    model: Model
    summand: Summand
    sent: Sequence[Any]
    inputs: Sequence[Any]
    sample: Sample | None = None

    @property
    def leaves(self) -> int:
        """How many leaves the tree has that it is added along."""
        return self.spread.count if self.sample is None else self.sample.block_count

    @property
    def drawn(self) -> Literal["", "items", "slices"]:
        if self.sample is None:
            return ""
        return "slices" if self.summand.slices else "items"

    def is_active(self, number: int) -> bool:
        """Whether an input of a term is differentiated."""
        return any([number == each.number for each in self.summand.active])

    def is_array(self, number: int) -> bool:
        """Whether a field beside the placed one is an array, and not a list."""
        place = place_in_sent(self.summand, number)
        return place is not None and isinstance(self.sent[place], np.ndarray | Elsewhere)

    def field(self, place: int) -> int:
        """The number of the field of an item that is at a place in ``sent``."""
        placed = self.summand.placed
        return place + (placed is not None and place >= placed)


class Tree(NamedTuple):
    """The work of some workers: the client sends it to the first, which passes it on."""

    address: str
    all_addresses: Sequence[str]
    work: bytes


class Plan(NamedTuple):
    """What each worker does for a request, and for the next one, unless something changes.

    ``needed`` are the names of what each worker needs in its store. ``asked`` is what it is asked
    for, sum by sum; kept, so that its id stays valid.
    """

    trees: Sequence[Tree]
    needed: Mapping[str, Sequence[str]]
    asked: Sequence[Mapping[str, Asked]]

    @property
    def addresses(self) -> list[str]:
        return [address for tree in self.trees for address in tree.all_addresses]


class Request:
    """What the client sends for some sums: point, parcels, and rows of items for each worker;
    ``asked`` is what it asks of each of them, sum by sum.

    Summands, and large inputs that are not differentiated, are parcels: the next call probably has
    the same ones. ``rows`` are of the items that a worker does not hold; ``blocks`` are of attached
    arrays, for the workers that lack them.
    """

    def __init__(
        self,
        sums: Sequence[SpreadSum],
        asked: Sequence[Mapping[str, Asked]],
        blocks: Sequence[Frames] = (),
    ):
        self._values: list[Any] = []
        self._places: dict[int, int] = {}
        self.parcels: dict[str, Frames] = {}
        self.summands: list[Parcel] = []  # of the sums
        with named_if_unsendable(parts_of(sums)):
            rows = [self._rows(each, of) for each, of in zip(sums, asked, strict=True)]
            jobs = tuple(map(self._job, sums))
            self.point = pack(self._values)
            self.rows = pack_rows(rows)
        is_large = self._is_large([*self.rows.values(), *blocks])
        self.plan = make_plan(jobs, rows, asked, is_large, sums[0].spread.plans)

    def _is_large(self, apart: Sequence[Frames]) -> bool:
        """Whether it is cheaper if workers pass on the point, and with it what others get apart."""
        point = sum(map(len, self.point))
        nbytes = sum([len(frame) for frames in apart for frame in frames])
        return point >= LARGE_POINT and point * max(len(self.rows), 1) >= nbytes

    def _job(self, each: SpreadSum) -> JobMessage:
        fields = each.summand.field_count
        numbers = range(fields, fields + len(each.inputs))
        inputs, stored = self._set_aside(each, list(map(with_stand_ins, each.inputs)), numbers)
        self.summands.append(summand_parcel(each.model.sent(), each.summand))
        return JobMessage(
            self._add(self.summands[-1]),
            tuple(map(self._place, inputs)),
            stored,
            tuple([known.name for known in replicated_in(each.inputs)]),
            each.leaves,
            each.spread.block_items,
            each.spread.key,
            each.summand.summation,
            each.drawn,
        )

    def _rows(self, each: SpreadSum, asked: Mapping[str, Asked]) -> dict[str, "WorkerItems"]:
        """The rows for each worker."""
        if not each.sent and each.sample is None:
            return {}
        return {address: self._rows_of(each, of.runs) for address, of in asked.items()}

    def _rows_of(self, each: SpreadSum, runs: Sequence[BlockRun]) -> "WorkerItems":
        size = each.spread.block_items
        bounds = [(run.start * size, run.stop * size) for run in runs]
        drawn = [] if each.sample is None else each.sample.runs(runs, size)
        if each.sample is not None:
            bounds = [(run.rank, run.stop) for run in drawn]
        rows = [
            field
            if isinstance(field, AttachedRows)
            else [field[start:stop] for start, stop in bounds]
            for field in each.sent
        ]
        fields, stored = self._set_aside(each, rows, map(each.field, range(len(rows))))
        return WorkerItems(fields, list(map(tuple, drawn)), stored)

    def _set_aside(
        self, each: SpreadSum, values: Sequence[Any], numbers: Iterable[int]
    ) -> tuple[list[Any], InStore]:
        """Leaves ``None`` for attached arrays, and for large values that are not differentiated, of
        which it makes parcels."""
        sent, stored = list(values), []
        for place, (number, value) in enumerate(zip(numbers, values, strict=True)):
            if isinstance(value, AttachedRows):
                stored.append((place, value.layout, value.name))
            elif not each.is_active(number) and is_kept(value):
                stored.append((place, self._add(Parcel.of(value)), ""))
            else:
                continue
            sent[place] = None
        return sent, tuple(stored)

    def _add(self, parcel: Parcel) -> str:
        self.parcels[parcel.digest] = parcel.frames
        return parcel.digest

    def _place(self, value: Any) -> int:
        """The place of a value in the point, which has each object once."""
        if id(value) not in self._places:
            self._places[id(value)] = len(self._values)
            self._values.append(value)
        return self._places[id(value)]


def parts_of(sums: Sequence[SpreadSum]) -> Iterator[tuple[str, Any]]:
    """What a request sends, and what errors call it."""
    for each in sums:
        name = each.model.name
        yield f"the model {name!r}", each.model
        yield f"an argument of {name!r}", [each.summand, each.sent, each.inputs]


class WorkerItems(NamedTuple):
    """The items of a sum for one worker: for each field the rows of each run of blocks.

    ``drawn`` says, run by run, which of the items that it holds are in a sample (``DrawnRun``).
    ``stored`` are the fields that its store has; ``fields`` has ``None`` for them.
    """

    fields: list[Any]
    drawn: list[tuple]
    stored: InStore

    @property
    def sent(self) -> tuple[list[Any], list[tuple]]:
        return self.fields, self.drawn


def pack_rows(sums: Sequence[Mapping[str, WorkerItems]]) -> dict[str, Frames]:
    """The rows of all sums, by worker."""
    there = dict.fromkeys(address for rows in sums for address in rows)
    return {
        address: pack([rows[address].sent if address in rows else ((), ()) for rows in sums])
        for address in there
    }


def is_kept(value: Any) -> bool:
    """Whether an input that is not differentiated is large enough to be a parcel."""
    return cotangents.nbytes(flatten(value)[0]) >= LARGE


PLANS = 32  # that are kept with the blocks of a request's first sum


def make_plan(
    jobs: tuple[JobMessage, ...],
    rows: Sequence[Mapping[str, WorkerItems]],
    asked: Sequence[Mapping[str, Asked]],
    is_large: bool,
    plans: dict[Any, Plan],
) -> Plan:
    """The plan of a request: one that is kept, or a new one."""

    def make() -> Plan:
        there = dict.fromkeys(address for each in asked for address in each)
        sums = list(zip(jobs, rows, asked, strict=True))
        works = [Work(a, [message_for(a, *each) for each in sums]) for a in there]
        trees = routes(works, is_large)
        sent = [Tree(tree.address, addresses(tree), pickle.dumps(tree)) for tree in trees]
        needed = {work.address: needed_by(work) for work in works}
        return Plan(sent, needed, asked)

    stored = tuple([tuple([(address, of.stored) for address, of in each.items()]) for each in rows])
    return kept_or_made(plans, (jobs, stored, tuple(map(id, asked)), is_large), make, PLANS)


def needed_by(work: Work) -> list[str]:
    """The names of what a worker needs in its store."""
    return list(dict.fromkeys(name for job in work.jobs for name in job.needed))


def message_for(
    address: str, job: JobMessage, rows: Mapping[str, WorkerItems], asked: Mapping[str, Asked]
) -> JobMessage:
    """A job for one worker; its runs are plain tuples, in half the bytes."""
    stored = rows[address].stored if address in rows else ()
    runs, unit = asked.get(address, NOTHING_ASKED)
    return job._replace(stored_rows=stored, runs=list(map(tuple, runs)), unit=unit)


# ------------------------------------------------------------- summands, which are mostly the same

MOST_KEPT = 128  # parcels
EXACT = (float, complex)  # equal ones may differ in the sign of a zero
HASHED = (type(None), bool, int, str, bytes)

_parcels: dict[Any, Parcel] = {}


def summand_parcel(model: Model, summand: Summand) -> Parcel:
    """The parcel of what a sum adds up; made again only if that may have changed."""
    key = summand_key(model, summand)
    if key is None:
        return Parcel.of((model, summand))
    return kept_or_made(_parcels, key, lambda: Parcel.of((model, summand)), MOST_KEPT)


def summand_key(model: Model, summand: Summand) -> tuple | None:
    """A key that tells a summand from others; None if it holds objects that can change in place."""
    call, *rest = summand
    structure = exactly(call.structure.spec)
    if structure is None or not all(type(leaf) in (*EXACT, *HASHED) for leaf in call.leaves):
        return None
    leaves = tuple(
        [(type(leaf), repr(leaf) if type(leaf) in EXACT else leaf) for leaf in call.leaves]
    )
    function: Any = model.fun
    return (
        function.data,
        model[1:],
        leaves,
        call.structure.spec,
        structure,
        call.holes,
        *rest,
        tuple(sent_by_value()),  # a parcel brings along the classes that were registered before it
    )
