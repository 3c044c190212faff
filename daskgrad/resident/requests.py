"""Requests: sums over placed items as what each worker is asked to do."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from daskgrad import cotangents
from daskgrad.latest import drop_oldest
from daskgrad.models import Model, SentFunction
from daskgrad.resident.holdings import NOTHING_ASKED, Asked, Holdings
from daskgrad.resident.jobs import Summand
from daskgrad.resident.messages import LARGE, Frames, Parcel, pack
from daskgrad.resident.routes import Work
from daskgrad.structures import flatten
from daskgrad.terms import Sum


class PlacedSum(NamedTuple):
    """A sum over placed blocks, and the values of its inputs."""

    holdings: Holdings
    model: Model
    whole: Sum
    inputs: Sequence[Any]
    whole_slices: bool


class Request:
    """What is sent for some sums: the point, which travels every time, and the parcels.

    The summands are parcels, and so are large inputs that are not differentiated: they are likely
    to be the same in the next call.
    """

    def __init__(self, sums: Sequence[PlacedSum]):
        self._values: list[Any] = []
        self._places: dict[int, int] = {}
        self.parcels: dict[str, Frames] = {}
        self._jobs = [self._job(each) for each in sums]
        self.point = pack(self._values)
        self.works = self._by_worker([each.holdings for each in sums])

    def _job(self, each: PlacedSum) -> dict[str, Any]:
        model = each.model._replace(fun=SentFunction.of(each.model))
        summand = Summand(model, each.whole, each.whole_slices)
        active = {number - 1 for number, _ in each.whole.active}  # input 0 of a term is its item
        kept, inputs = {}, []
        for number, value in enumerate(each.inputs):
            if number not in active and cotangents.nbytes(flatten(value)[0]) >= LARGE:
                kept[number] = self._add(Parcel.of(value))
                inputs.append(0)
            else:
                inputs.append(self._place(value))
        return {
            "summand": self._add(summand_parcel(summand)),
            "inputs": inputs,
            "parcels": kept,
            "count": len(each.holdings.blocks),
            "summation": each.whole.summation,
        }

    def _add(self, parcel: Parcel) -> str:
        self.parcels[parcel.digest] = parcel.frames
        return parcel.digest

    def _place(self, value: Any) -> int:
        """The place of a value in the point: the same one for the same object."""
        if id(value) not in self._places:
            self._places[id(value)] = len(self._values)
            self._values.append(value)
        return self._places[id(value)]

    def _by_worker(self, holdings: Sequence[Holdings]) -> list[Work]:
        """What each worker does, in the order of the blocks; every worker has all jobs."""
        asked = [held.asked() for held in holdings]
        addresses = dict.fromkeys(address for each in asked for address in each)
        return [self._work(address, asked) for address in addresses]

    def _work(self, address: str, asked: Sequence[Mapping[str, Asked]]) -> Work:
        jobs = [
            {**job, **each.get(address, NOTHING_ASKED)._asdict()}
            for job, each in zip(self._jobs, asked, strict=True)
        ]
        return {"address": address, "jobs": jobs}


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
