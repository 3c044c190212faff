"""Requests: sums over placed items as what each worker is asked to do."""

import pickle
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from daskgrad import cotangents
from daskgrad.latest import drop_oldest
from daskgrad.models import Model, SentFunction
from daskgrad.resident.holdings import NOTHING_ASKED, Asked, Holdings
from daskgrad.resident.jobs import Summand
from daskgrad.resident.messages import LARGE, Frames, Parcel, pack
from daskgrad.resident.routes import LARGE_POINT, Work, addresses, routes
from daskgrad.structures import flatten
from daskgrad.terms import Sum


class PlacedSum(NamedTuple):
    """A sum over placed blocks, and the values of its inputs."""

    holdings: Holdings
    model: Model
    whole: Sum
    inputs: Sequence[Any]
    whole_slices: bool


class JobMessage(NamedTuple):
    """A sum as all workers are told of it.

    ``inputs`` are places in the point; ``parcels`` are the inputs that do not stand there, as pairs
    (number of the input, digest).
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
    """Who does what for a request: it is that of the next one, too, unless something changed."""

    works: Sequence[Work]
    trees: Sequence[Tree]
    asked: Sequence[Mapping[str, Asked]]  # held here, so that their ids stay theirs


class Request:
    """What is sent for some sums: the point, which travels every time, and the parcels.

    The summands are parcels, and so are large inputs that are not differentiated: they are likely
    to be the same in the next call. ``plans`` has those of the latest requests.
    """

    def __init__(self, sums: Sequence[PlacedSum], plans: dict[tuple, Plan]):
        self._values: list[Any] = []
        self._places: dict[int, int] = {}
        self.parcels: dict[str, Frames] = {}
        jobs = tuple([self._job(each) for each in sums])
        self.point = pack(self._values)
        is_large = sum(map(len, self.point)) >= LARGE_POINT
        self.plan = planned(jobs, [each.holdings.asked() for each in sums], is_large, plans)

    def _job(self, each: PlacedSum) -> JobMessage:
        model = each.model._replace(fun=SentFunction.of(each.model))
        summand = Summand(model, each.whole, each.whole_slices)
        active = {number - 1 for number, _ in each.whole.active}  # input 0 of a term is its item
        kept, inputs = [], []
        for number, value in enumerate(each.inputs):
            if number not in active and cotangents.nbytes(flatten(value)[0]) >= LARGE:
                kept.append((number, self._add(Parcel.of(value))))
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


PLANS = 16  # that are kept


def planned(
    jobs: tuple[JobMessage, ...],
    asked: Sequence[Mapping[str, Asked]],
    is_large: bool,
    plans: dict[tuple, Plan],
) -> Plan:
    """The plan that is kept in ``plans``, or a new one."""
    key = (jobs, tuple(map(id, asked)), is_large)
    plan = plans.get(key)
    if plan is None:
        works = by_worker(jobs, asked)
        trees = [
            Tree(tree["address"], addresses(tree), pickle.dumps(tree))
            for tree in routes(works, is_large)
        ]
        plan = plans[key] = Plan(works, trees, asked)
        drop_oldest(plans, PLANS)
    return plan


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
    parcel = _parcels.get(key)
    if parcel is None:
        parcel = _parcels[key] = Parcel.of(summand)
        drop_oldest(_parcels, KEPT)
    return parcel


def summand_key(summand: Summand) -> tuple | None:
    """What tells a summand from others, or None where it holds what can change in place."""
    model, (call, *rest) = summand.model, summand.whole
    if not all(type(leaf) in (*EXACT, *HASHED) for leaf in call.leaves):
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
        call.holes,
        *rest,
        summand.whole_slices,
    )
