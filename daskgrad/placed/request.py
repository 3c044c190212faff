"""Requests: the jobs of each worker for sums over spread blocks, with all that they need."""

import pickle
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from daskgrad.autodiff.models.model import Model
from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.carriers import kept_or_made
from daskgrad.autodiff.values.elsewhere import Elsewhere
from daskgrad.autodiff.values.trees import flatten
from daskgrad.placed.messages import (
    LARGE,
    LARGE_POINT,
    AttachedRows,
    DrawnRun,
    Frames,
    JobMessage,
    Parcel,
    StandIn,
    Work,
    addresses,
    pack,
    routes,
)
from daskgrad.placed.replicas import replicated_in, with_stand_ins
from daskgrad.placed.samples import Sample
from daskgrad.placed.spread import NO_BLOCKS, Assignment, BlockRun, Spread
from daskgrad.placed.worker_sums import place_in_sent
from daskgrad.sums.block_tasks import Summand
from daskgrad.tasks.sending import named_if_unsendable


class SpreadSum(NamedTuple):
    """A sum over ``spread`` blocks, or over a ``sample`` of their items.

    ``sent`` are the fields of items that workers do not hold. ``left`` are the leaves of the tree
    of its additions that are to be evaluated; None: all.
    """

    spread: Spread
    model: Model
    summand: Summand
    sent: Sequence[Any]
    inputs: Sequence[Any]
    sample: Sample | None = None
    left: Container[int] | None = None

    @property
    def leaves(self) -> int:
        """The number of leaves in the tree of its additions."""
        return self.spread.count if self.sample is None else self.sample.block_count

    @property
    def item_count(self) -> int:
        return self.spread.item_count if self.sample is None else len(self.sample)

    @property
    def drawn(self) -> Literal["", "items", "slices"]:
        if self.sample is None:
            return ""
        return "slices" if self.summand.slices else "items"

    def blocks_with(self, leaves: set[int]) -> set[int]:
        """The blocks that hold the terms of some leaves."""
        if self.sample is None:
            return leaves
        return self.sample.blocks_with(leaves, self.spread.block_items)

    def is_active(self, number: int) -> bool:
        """Whether an input of a term is differentiated."""
        return any([number == active.number for active in self.summand.active])

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
    """The work of each worker for a request, and for the next one, unless something changes.

    ``needed`` names the entries of its store that each worker needs. ``assigned`` are its blocks,
    sum by sum; kept, so that their ids stay valid.
    """

    trees: Sequence[Tree]
    needed: Mapping[str, Sequence[str]]
    assigned: Sequence[Mapping[str, Assignment]]

    @property
    def addresses(self) -> list[str]:
        return [address for tree in self.trees for address in tree.all_addresses]


class Request:
    """The point of some sums, their parcels, and rows of items for each worker.

    ``assigned`` are the blocks of each worker, sum by sum. Summands, and large inputs that are not
    differentiated, are parcels: the next call probably has the same ones. ``rows`` are of the items
    that a worker does not hold. ``blocks`` of attached arrays go along.
    """

    def __init__(
        self,
        sums: Sequence[SpreadSum],
        assigned: Sequence[Mapping[str, Assignment]],
        blocks: Sequence[Frames] = (),
    ):
        self._values: list[Any] = []
        self._places: dict[int, int] = {}
        self.parcels: dict[str, Frames] = {}
        self.summands: list[Parcel] = []
        with named_if_unsendable(parts_of(sums)):
            rows = list(map(self._rows, sums, assigned))
            jobs = tuple(map(self._job, sums))
            self.point = pack(self._values)
            self.rows = pack_rows(rows)
        is_large = self._is_large([*self.rows.values(), *blocks])
        self.plan = make_plan(jobs, rows, assigned, is_large, sums[0].spread.plans)

    def _is_large(self, apart: Sequence[Frames]) -> bool:
        """Whether it is cheaper if workers pass on the point, with rows and blocks of others."""
        point = sum(map(len, self.point))
        nbytes = sum([len(frame) for frames in apart for frame in frames])
        return point >= LARGE_POINT and point * max(len(self.rows), 1) >= nbytes

    def _job(self, spread_sum: SpreadSum) -> JobMessage:
        self.summands.append(Parcel.of((spread_sum.model.sent(), spread_sum.summand)))
        inputs = map(with_stand_ins, spread_sum.inputs)
        sent = [
            self._unless_stored(spread_sum, number, value)
            for number, value in enumerate(inputs, spread_sum.summand.field_count)
        ]
        replicas = [known.name for known in replicated_in(spread_sum.inputs)]
        return JobMessage(
            (self._add(self.summands[-1]), *names_of(sent), *replicas),
            tuple(map(self._place, sent)),
            spread_sum.leaves,
            spread_sum.spread.block_items,
            spread_sum.spread.key,
            spread_sum.summand.summation,
            spread_sum.drawn,
        )

    def _rows(
        self, spread_sum: SpreadSum, assigned: Mapping[str, Assignment]
    ) -> dict[str, "WorkerItems"]:
        """The rows for each worker."""
        if not spread_sum.sent and spread_sum.sample is None:
            return {}
        return {address: self._rows_of(spread_sum, of.runs) for address, of in assigned.items()}

    def _rows_of(self, spread_sum: SpreadSum, runs: Sequence[BlockRun]) -> "WorkerItems":
        size = spread_sum.spread.block_items
        bounds = [(run.start * size, run.stop * size) for run in runs]
        drawn: list[DrawnRun] = []
        if spread_sum.sample is not None:
            drawn = spread_sum.sample.runs(runs, size, spread_sum.left)
            bounds = [(run.rank, run.stop) for run in drawn]
        fields = [
            field
            if isinstance(field, AttachedRows)
            else self._unless_stored(
                spread_sum, spread_sum.field(n), [field[start:stop] for start, stop in bounds]
            )
            for n, field in enumerate(spread_sum.sent)
        ]
        return WorkerItems(fields, list(map(tuple, drawn)))

    def _unless_stored(self, spread_sum: SpreadSum, number: int, value: Any) -> Any:
        """An input of a term, or a stand-in for a large one that is not differentiated."""
        if spread_sum.is_active(number) or cotangents.nbytes(flatten(value)[0]) < LARGE:
            return value
        return StandIn(self._add(Parcel.of(value)))

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
    """The parts of a request, with their names in errors."""
    for spread_sum in sums:
        name = spread_sum.model.name
        yield f"the model {name!r}", spread_sum.model
        yield f"an argument of {name!r}", [spread_sum.summand, spread_sum.sent, spread_sum.inputs]


class WorkerItems(NamedTuple):
    """The items of a sum for one worker: for each field the rows of each run of blocks.

    A field is a stand-in if the worker's store has it. ``drawn`` are the items of a sample, run by
    run (``DrawnRun``).
    """

    fields: Sequence[Any] = ()
    drawn: Sequence[tuple] = ()


NO_ITEMS = WorkerItems()


def names_of(values: Iterable[Any]) -> tuple[str, ...]:
    """The names of the entries of a store that some values stand for."""
    names = [getattr(v, "layout", v.name) for v in values if type(v) in (StandIn, AttachedRows)]
    return tuple(names)


def pack_rows(sums: Sequence[Mapping[str, WorkerItems]]) -> dict[str, Frames]:
    """The rows of all sums, by worker."""
    return {
        address: pack([tuple(rows.get(address, NO_ITEMS)) for rows in sums])
        for address in dict.fromkeys(address for rows in sums for address in rows)
    }


PLANS = 32  # kept with the blocks of a request's first sum


def make_plan(
    jobs: tuple[JobMessage, ...],
    rows: Sequence[Mapping[str, WorkerItems]],
    assigned: Sequence[Mapping[str, Assignment]],
    is_large: bool,
    plans: dict[Any, Plan],
) -> Plan:
    """The plan of a request: one that is kept, or a new one."""

    def make() -> Plan:
        workers = dict.fromkeys(address for of_sum in assigned for address in of_sum)
        sums = list(zip(jobs, rows, assigned, strict=True))
        works = [Work(a, [message_for(a, *parts) for parts in sums]) for a in workers]
        trees = routes(works, is_large)
        sent = [Tree(tree.address, addresses(tree), pickle.dumps(tree)) for tree in trees]
        names = [dict.fromkeys(name for job in work.jobs for name in job.needed) for work in works]
        needed = {work.address: list(of) for work, of in zip(works, names, strict=True)}
        return Plan(sent, needed, assigned)

    stored = [[(address, names_of(of.fields)) for address, of in one.items()] for one in rows]
    key = jobs, tuple(map(tuple, stored)), tuple(map(id, assigned)), is_large
    return kept_or_made(plans, key, make, PLANS)


def message_for(
    address: str,
    job: JobMessage,
    rows: Mapping[str, WorkerItems],
    assigned: Mapping[str, Assignment],
) -> JobMessage:
    """A job for one worker; its runs are plain tuples, in half the bytes."""
    needed = (*job.needed, *names_of(rows.get(address, NO_ITEMS).fields))
    runs, unit = assigned.get(address, NO_BLOCKS)
    return job._replace(needed=needed, runs=list(map(tuple, runs)), unit=unit)
