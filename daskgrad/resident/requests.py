"""Requests: what the client asks each worker to do, for sums whose blocks are spread over them."""

import pickle
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from daskgrad.models.model import Model, SentFunction
from daskgrad.resident.messages import LARGE, Frames, pack
from daskgrad.resident.parcels import Parcel
from daskgrad.resident.routes import LARGE_POINT, Work, addresses, routes
from daskgrad.resident.spread import NOTHING_ASKED, Asked, Run, Spread
from daskgrad.sums.block_tasks import Summand
from daskgrad.values import cotangents
from daskgrad.values.caches import kept_or_made
from daskgrad.values.registrations import sent_by_value
from daskgrad.values.trees import exactly, flatten


class SpreadSum(NamedTuple):
    """A sum whose blocks are spread over workers, and the values of its inputs.

    ``sent`` has the fields of an item that the workers do not hold.
    """

    spread: Spread
    model: Model
    summand: Summand
    sent: Sequence[Any]
    inputs: Sequence[Any]

    def is_active(self, number: int) -> bool:
        """Whether an input of a term is differentiated."""
        return any([number == active for active, _ in self.summand.active])

    def field(self, place: int) -> int:
        """The number of the field of an item that is at a place in ``sent``."""
        placed = self.summand.placed
        return place + (placed is not None and place >= placed)


class JobMessage(NamedTuple):
    """A sum as a request describes it to all workers.

    ``inputs`` are the places of the shared inputs in the point; ``parcels`` holds those that are
    not there, as pairs (number of the input, digest), and ``kept_rows`` for each worker pairs
    (number of the field, digest). ``key`` begins the keys of the items that the workers hold.
    """

    summand: str
    inputs: tuple[int, ...]
    parcels: tuple[tuple[int, str], ...]
    kept_rows: tuple[tuple[str, tuple[tuple[int, str], ...]], ...]
    block_count: int
    block_items: int
    key: str
    summation: str


class Tree(NamedTuple):
    """The work of some workers: the client sends it to the first, which passes it on."""

    address: str
    all_addresses: Sequence[str]
    work: bytes


class Plan(NamedTuple):
    """What each worker does for a request, and for the next one, unless something changes.

    ``asked`` is what each worker is asked for, sum by sum; held here, so that ids stay theirs.
    """

    trees: Sequence[Tree]
    asked: Sequence[Mapping[str, Asked]]

    @property
    def addresses(self) -> list[str]:
        return [address for tree in self.trees for address in tree.all_addresses]


class Request:
    """What the client sends for some sums: the point, which travels every time, and the parcels.

    The summands are parcels, and so are large inputs that are not differentiated: the next call
    probably has the same ones. ``rows`` has for each worker the items that it does not hold.
    """

    def __init__(self, sums: Sequence[SpreadSum]):
        self._values: list[Any] = []
        self._places: dict[int, int] = {}
        self.parcels: dict[str, Frames] = {}
        self._needed_by_all: dict[str, None] = {}
        self._needed_by: dict[str, dict[str, None]] = {}
        asked = [each.spread.asked() for each in sums]
        sent = [self._rows(each, of) for each, of in zip(sums, asked, strict=True)]
        jobs = tuple([self._job(each, rows) for each, rows in zip(sums, sent, strict=True)])
        self.point = pack(self._values)
        self.rows = pack_rows(sent) if any(each.sent for each in sums) else {}
        self.plan = make_plan(jobs, sums[0].spread.plans, asked, self._is_large(len(self.rows)))

    def _is_large(self, workers: int) -> bool:
        """Whether it costs less to pass the point on than to send it to each worker directly.

        Workers that pass it on also pass on the rows of others.
        """
        point = sum(map(len, self.point))
        rows = sum([len(frame) for frames in self.rows.values() for frame in frames])
        return point >= LARGE_POINT and point * max(workers, 1) >= rows

    def _job(self, each: SpreadSum, rows: Mapping[str, "Rows"]) -> JobMessage:
        model = each.model._replace(fun=SentFunction.of(each.model))
        fields = each.summand.field_count
        kept: list[tuple[int, str]] = []
        inputs: list[int] = []
        for number, value in enumerate(each.inputs):
            if not each.is_active(number + fields) and is_kept(value):
                kept.append((len(inputs), self._add(Parcel.of(value), self._needed_by_all)))
                inputs.append(0)
            else:
                inputs.append(self._place(value))
        return JobMessage(
            self._add(summand_parcel(model, each.summand), self._needed_by_all),
            tuple(inputs),
            tuple(kept),
            tuple([(address, of_worker.kept) for address, of_worker in rows.items()]),
            each.spread.count,
            each.spread.block_items,
            each.spread.key,
            each.summand.summation,
        )

    def _rows(self, each: SpreadSum, asked: Mapping[str, Asked]) -> dict[str, "Rows"]:
        """The rows for each worker."""
        if not each.sent:
            return {}
        size = each.spread.block_items
        return {a: self._rows_of(each, a, of.runs, size) for a, of in asked.items()}

    def _rows_of(self, each: SpreadSum, address: str, runs: Sequence[Run], size: int) -> "Rows":
        needed = self._needed_by.setdefault(address, {})
        kept: list[tuple[int, str]] = []
        fields: list[Any] = []
        for number, field in enumerate(each.sent):
            rows = [field[run.start * size : run.stop * size] for run in runs]
            if not each.is_active(each.field(number)) and is_kept(rows):
                kept.append((number, self._add(Parcel.of(rows), needed)))
                fields.append(None)
            else:
                fields.append(rows)
        return Rows(fields, tuple(kept))

    def _add(self, parcel: Parcel, needed: dict[str, None]) -> str:
        self.parcels[parcel.digest] = parcel.frames
        needed[parcel.digest] = None
        return parcel.digest

    def needed(self, address: str) -> list[str]:
        """The digests of the parcels that a worker needs."""
        return [*self._needed_by_all, *self._needed_by.get(address, ())]

    def _place(self, value: Any) -> int:
        """The place of a value in the point: the same one for the same object."""
        if id(value) not in self._places:
            self._places[id(value)] = len(self._values)
            self._values.append(value)
        return self._places[id(value)]


class Rows(NamedTuple):
    """The items of a sum for one worker: for each field the rows of each run of blocks.

    ``kept`` are the fields that are parcels instead, as pairs (number of the field, digest).
    """

    fields: list[Any]
    kept: tuple[tuple[int, str], ...]


def pack_rows(sums: Sequence[Mapping[str, Rows]]) -> dict[str, Frames]:
    """The rows of all sums, by worker."""
    there = dict.fromkeys(address for rows in sums for address in rows)
    return {
        address: pack([rows[address].fields if address in rows else () for rows in sums])
        for address in there
    }


def is_kept(value: Any) -> bool:
    """Whether an input that is not differentiated is large enough to be a parcel."""
    return cotangents.nbytes(flatten(value)[0]) >= LARGE


PLANS = 32  # that are kept with the blocks of a request's first sum


def make_plan(
    jobs: tuple[JobMessage, ...],
    plans: dict[Any, Plan],
    asked: Sequence[Mapping[str, Asked]],
    is_large: bool,
) -> Plan:
    """The plan of a request: one that is kept, or a new one."""

    def make() -> Plan:
        trees = routes(by_worker(jobs, asked), is_large)
        sent = [Tree(tree["address"], addresses(tree), pickle.dumps(tree)) for tree in trees]
        return Plan(sent, asked)

    return kept_or_made(plans, (jobs, tuple(map(id, asked)), is_large), make, PLANS)


def by_worker(jobs: Sequence[JobMessage], asked: Sequence[Mapping[str, Asked]]) -> list[Work]:
    """What each worker does, in the order of the blocks; every worker has all jobs."""
    there = dict.fromkeys(address for each in asked for address in each)
    return [
        {
            "address": address,
            "jobs": [
                message_for(job, each.get(address, NOTHING_ASKED), address)
                for job, each in zip(jobs, asked, strict=True)
            ],
        }
        for address in there
    ]


def message_for(job: JobMessage, asked: Asked, address: str) -> dict[str, Any]:
    """A job for one worker; its runs are plain tuples, in half the bytes."""
    kept_rows = dict(job.kept_rows).get(address, ())
    runs = list(map(tuple, asked.runs))
    return {**job._asdict(), "kept_rows": kept_rows, "runs": runs, "unit": asked.unit}


# ------------------------------------------------------------- summands, which are mostly the same

KEPT = 128  # parcels
EXACT = (float, complex)  # equal ones may differ in the sign of a zero
HASHED = (type(None), bool, int, str, bytes)

_parcels: dict[Any, Parcel] = {}


def summand_parcel(model: Model, summand: Summand) -> Parcel:
    """The parcel of what a sum adds up; made anew only if it is new, or may have changed."""
    key = summand_key(model, summand)
    if key is None:
        return Parcel.of((model, summand))
    return kept_or_made(_parcels, key, lambda: Parcel.of((model, summand)), KEPT)


def summand_key(model: Model, summand: Summand) -> tuple | None:
    """What tells a summand from others, or None where it holds what can change in place."""
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
