"""Requests: sums over placed items as what each worker is asked to do."""

import pickle
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from daskgrad import cotangents
from daskgrad.latest import kept_or_made
from daskgrad.models import Model, SentFunction
from daskgrad.resident.holdings import NOTHING_ASKED, Asked, Holdings
from daskgrad.resident.jobs import Summand
from daskgrad.resident.messages import LARGE, Frames, Parcel, pack
from daskgrad.resident.routes import LARGE_POINT, Work, addresses, routes
from daskgrad.structures import exactly, flatten, sent_by_value
from daskgrad.terms import Sum


class PlacedSum(NamedTuple):
    """A sum over placed blocks, and the values of its inputs.

    ``columns`` are what is zipped with the placed items, which are the part number ``placed``.
    """

    holdings: Holdings
    model: Model
    whole: Sum
    columns: Sequence[Any]
    placed: int
    inputs: Sequence[Any]
    whole_slices: bool

    def given(self) -> list[tuple[int, Any]]:
        """The inputs of a term that are not placed, with their numbers among its inputs."""
        values = [*self.columns, *self.inputs]
        return [(n + (n >= self.placed), value) for n, value in enumerate(values)]


class JobMessage(NamedTuple):
    """A sum as all workers are told of it.

    ``inputs`` are places in the point, of what is zipped with the placed items and of the shared
    inputs; ``parcels`` are those that do not stand there, as pairs (number of the input, digest).
    """

    summand: str
    inputs: tuple[int, ...]
    parcels: tuple[tuple[int, str], ...]
    block_count: int
    summation: str


class Tree(NamedTuple):
    """What the first of some workers is sent, for itself and for those that it passes it on to."""

    address: str
    all_addresses: Sequence[str]
    work: bytes


class Plan(NamedTuple):
    """Who does what for a request: it is that of the next one, too, unless something changed.

    ``asked`` is what each worker is asked for each of the sums; held here, so that ids stay theirs.
    """

    trees: Sequence[Tree]
    asked: Sequence[Mapping[str, Asked]]

    @property
    def addresses(self) -> list[str]:
        return [address for tree in self.trees for address in tree.all_addresses]


class Request:
    """What is sent for some sums: the point, which travels every time, and the parcels.

    The summands are parcels, and so are large inputs that are not differentiated: they are likely
    to be the same in the next call.
    """

    def __init__(self, sums: Sequence[PlacedSum]):
        self._values: list[Any] = []
        self._places: dict[int, int] = {}
        self.parcels: dict[str, Frames] = {}
        jobs = tuple([self._job(each) for each in sums])
        self.point = pack(self._values)
        is_large = sum(map(len, self.point)) >= LARGE_POINT
        self.plan = planned(jobs, [each.holdings for each in sums], is_large)

    def _job(self, each: PlacedSum) -> JobMessage:
        model = each.model._replace(fun=SentFunction.of(each.model))
        summand = Summand(model, each.whole, each.placed, each.whole_slices)
        active = {number for number, _ in each.whole.active}
        kept: list[tuple[int, str]] = []
        inputs: list[int] = []
        for number, value in each.given():
            if number not in active and cotangents.nbytes(flatten(value)[0]) >= LARGE:
                kept.append((len(inputs), self._add(Parcel.of(value))))
                inputs.append(0)
            else:
                inputs.append(self._place(value))
        return JobMessage(
            self._add(summand_parcel(summand)),
            tuple(inputs),
            tuple(kept),
            len(each.holdings.blocks),
            each.whole.summation,
        )

    def _add(self, parcel: Parcel) -> str:
        self.parcels[parcel.digest] = parcel.frames
        return parcel.digest

    def _place(self, value: Any) -> int:
        """The place of a value in the point: the same one for the same object."""
        if id(value) not in self._places:
            self._places[id(value)] = len(self._values)
            self._values.append(value)
        return self._places[id(value)]


PLANS = 32  # that are kept with the blocks of a request's first sum


def planned(jobs: tuple[JobMessage, ...], holdings: Sequence[Holdings], is_large: bool) -> Plan:
    """The plan of a request: one that is kept, or a new one."""
    asked = [held.asked() for held in holdings]

    def make() -> Plan:
        trees = routes(by_worker(jobs, asked), is_large)
        sent = [Tree(tree["address"], addresses(tree), pickle.dumps(tree)) for tree in trees]
        return Plan(sent, asked)

    key = (jobs, tuple(map(id, asked)), is_large)
    return kept_or_made(holdings[0].plans, key, make, PLANS)


def by_worker(jobs: Sequence[JobMessage], asked: Sequence[Mapping[str, Asked]]) -> list[Work]:
    """What each worker does, in the order of the blocks; every worker has all jobs."""
    there = dict.fromkeys(address for each in asked for address in each)
    return [
        {
            "address": address,
            "jobs": [
                {**job._asdict(), **each.get(address, NOTHING_ASKED)._asdict()}
                for job, each in zip(jobs, asked, strict=True)
            ],
        }
        for address in there
    ]


# ------------------------------------------------------------- summands, which are mostly the same

KEPT = 128  # parcels
EXACT = (float, complex)  # equal ones may differ in the sign of a zero
HASHED = (type(None), bool, int, str, bytes)

_parcels: dict[Any, Parcel] = {}


def summand_parcel(summand: Summand) -> Parcel:
    """The parcel of a summand; made anew only if anything in it is new, or may have changed."""
    key = summand_key(summand)
    if key is None:
        return Parcel.of(summand)
    return kept_or_made(_parcels, key, lambda: Parcel.of(summand), KEPT)


def summand_key(summand: Summand) -> tuple | None:
    """What tells a summand from others, or None where it holds what can change in place."""
    model, (call, *rest) = summand.model, summand.whole
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
        summand.placed,
        summand.whole_slices,
        tuple(sent_by_value()),  # a parcel brings along the classes that were registered before it
    )
