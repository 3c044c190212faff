"""Evaluations: calls whose workers kept cotangents of attached arrays, and how to repeat them.

A worker may be lost with what it kept. So the client remembers what a call was made of, as far as
that takes little memory, and evaluates lost blocks again.
"""

import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from daskgrad.resident.attached_steps import Arrays
from daskgrad.resident.messages import AttachedRows, unpack
from daskgrad.resident.parcels import Parcel
from daskgrad.sums.block_tasks import TracedSum
from daskgrad.sums.cutting import Block
from daskgrad.values.cotangents import nbytes
from daskgrad.values.memory import canonical
from daskgrad.values.trees import flatten


class Hold:
    """While it is there, the workers keep the cotangents of a call."""

    def __init__(self, call: str, dropped: deque[str]):
        weakref.finalize(self, dropped.append, call).atexit = False


class RepeatableSum(NamedTuple):
    """A sum as its workers got it: the parcel of its model and summand, the shared inputs, the
    fields of the items beside the placed ones, and these in blocks."""

    name: str
    parcel: Parcel
    inputs: Sequence[Any]
    sent: Sequence[Any]
    blocks: Sequence[Block]
    block_items: int

    def cotangents(self, number: int, arrays: Arrays) -> list[Any]:
        """Of the differentiated fields of a block's items, where ``arrays`` are the attached ones'.

        RuntimeError if a constant of the model has changed since.
        """
        if not self.parcel.is_intact():
            raise RuntimeError(
                f"a worker was lost, and what the sum over {self.name!r} had kept there cannot be "
                f"made again, since an argument that is not differentiated was changed in place; "
                f"pass a new array instead"
            )
        model, summand = canonical(unpack(self.parcel.frames))
        first, block = number * self.block_items, self.blocks[number]
        stop = first + self.block_items
        rows = [
            arrays[field.name] if isinstance(field, AttachedRows) else field[first:stop]
            for field in self.sent
        ]
        traced = TracedSum(model, summand, self.inputs)
        captured = traced.capture(first, *traced.fields(rows, block.items))
        return [leaves[0] for leaves in captured.pullback.item_cotangents]


class Evaluation:
    """A call that kept cotangents of attached arrays of one ``version``, in a ``Layout``.

    ``sums`` are those that differentiate them, by their numbers in the call; empty if the call is
    not remembered.
    """

    def __init__(self, call: str, layout: Any, version: int, sums: dict[int, RepeatableSum]):
        self.call, self.layout, self.version = call, layout, version
        self.sums = sums

    @property
    def cost(self) -> int:
        """The bytes that it takes to remember it."""
        return sum([nbytes_of(each.inputs, each.sent) for each in self.sums.values()])

    def cotangent(self, ticket: str, number: int, arrays: Arrays) -> Any:
        """What was kept of a block under a ticket of this call, evaluated here."""
        _, place, field = ticket.rsplit("/", 2)
        return self.sums[int(place)].cotangents(number, arrays)[int(field)]


def nbytes_of(inputs: Sequence[Any], sent: Sequence[Any]) -> int:
    return nbytes(flatten((list(inputs), list(sent)))[0])
