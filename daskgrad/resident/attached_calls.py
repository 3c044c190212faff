"""Attached calls: the attached arrays that the sums of a call use, and the gradients of these."""

import contextlib
from collections.abc import Sequence
from typing import Any

from daskgrad.models.captured import Captured
from daskgrad.resident.attached import Attached, AttachedGradient
from daskgrad.resident.attached_steps import Kept
from daskgrad.resident.attachment import Attachment, Gradient, Layout
from daskgrad.resident.connection import Connection
from daskgrad.resident.evaluations import (
    Evaluation,
    Hold,
    RepeatableSum,
    nbytes_of,
)
from daskgrad.resident.holdings import Holdings
from daskgrad.resident.messages import AttachedRows, Frames, pack
from daskgrad.resident.parcels import Parcel
from daskgrad.resident.replicas import replicated_in
from daskgrad.resident.requests import SpreadSum
from daskgrad.resident.worker_attached import News
from daskgrad.resident.worker_sums import own_numbers, place_in_sent, ticket_of
from daskgrad.sums.item_cotangents import ItemGradient
from daskgrad.values.elsewhere import Elsewhere, RowsElsewhere, brought_here
from daskgrad.values.memory import of_its_own


class AttachedUse:
    """The attached arrays among the items of some sums, through the attempts of one call."""

    def __init__(self, sums: Sequence[SpreadSum]):
        self._given = sums
        self.sums = sums  # as they are sent: with stand-ins for the arrays that workers have
        fields = [field for each in sums for field in each.sent if isinstance(field, Elsewhere)]
        self.are_here = not fields
        wholes = [f.whole if isinstance(f, RowsElsewhere) else f for f in fields]
        found = [whole.attachment for whole in wholes if isinstance(whole, Attached)]
        self._attachments: list[Attachment] = list({id(each): each for each in found}.values())
        self._news: dict[int, tuple[Layout, News]] = {}  # by attachment

    def reading(self) -> contextlib.ExitStack:
        """Nobody changes the arrays meanwhile."""
        with contextlib.ExitStack() as stack:
            for each in self._attachments:
                stack.enter_context(each.reading())
            return stack.pop_all()

    def settle(self, connection: Connection) -> Sequence[SpreadSum]:
        """The sums, after their workers were given the rows that they lack."""
        if self.are_here:
            return self.sums
        spreads: dict[int, Holdings] = {}  # by attachment: one for all sums
        for each in self._given:
            for field in attached_in(each):
                if isinstance(each.spread, Holdings) and each.sample is None:
                    spreads.setdefault(id(field.attachment), each.spread)
        settled = {
            id(each): each.settle(connection, spreads[id(each)])
            for each in self._attachments
            if id(each) in spreads
        }

        def sent(each: SpreadSum, field: Any) -> Any:
            key = id(field.attachment) if isinstance(field, Attached) else None
            if key in self._news and spreads[key] is each.spread and each.sample is None:
                layout, news = self._news[key]
                return AttachedRows(layout.name, field.name, news.version)
            return brought_here(field)

        self._news = {
            id(each): (layout, each.news())
            for each in self._attachments
            if (layout := settled.get(id(each))) is not None
        }
        self.sums = [s._replace(sent=[sent(s, field) for field in s.sent]) for s in self._given]
        return self.sums

    def news(self) -> dict[str, Frames]:
        """What the call tells the workers, by layout."""
        return {layout.name: pack(news) for layout, news in self._news.values()}

    def told(self) -> None:
        for each in self._attachments:
            if id(each) in self._news:
                each.told(self._news[id(each)][1])

    def abandon(self, call: str) -> None:
        """Nobody needs what workers may keep of this call, also if they get it later than this."""
        for each in self._attachments:
            each.dropped.append(call)

    def lose(self, address: str) -> None:
        for each in self._attachments:
            each.lose(address)

    # ---- gradients

    def with_gradients(
        self, totals: Sequence[Captured], call: str, parcels: Sequence[Parcel]
    ) -> Sequence[Captured]:
        """The sums that the workers returned, with gradients of what they kept."""
        own = [self._own(number) for number in range(len(totals))]
        if not any(own):
            return totals
        used = {id(field.attachment) for fields in own for field in fields.values()}
        made = {
            id(each): self._evaluation(each, own, call, parcels)
            for each in self._attachments
            if id(each) in used
        }
        return [
            with_cotangents(
                total,
                {
                    n: gradient(field, number, n, *made[id(field.attachment)])
                    for n, field in of.items()
                },
            )
            for number, (total, of) in enumerate(zip(totals, own, strict=True))
        ]

    def _own(self, number: int) -> dict[int, Attached]:
        """The attached arrays that a sum differentiates and that stay, by their place among all
        fields that it differentiates."""
        found = {}
        for n, field in enumerate(own_numbers(self.sums[number].summand)):
            place = place_in_sent(self.sums[number].summand, field)
            if place is not None and isinstance(self.sums[number].sent[place], AttachedRows):
                found[n] = self._given[number].sent[place]
        return found

    def _evaluation(
        self,
        attachment: Attachment,
        own: Sequence[dict[int, Attached]],
        call: str,
        parcels: Sequence[Parcel],
    ) -> tuple[Evaluation, Hold]:
        """What is remembered of the call, and what makes the workers keep its cotangents."""
        numbers = [
            number
            for number, fields in enumerate(own)
            if any([field.attachment is attachment for field in fields.values()])
        ]
        layout, news = self._news[id(attachment)]
        inputs = [value for n in numbers for value in self.sums[n].inputs]
        cost = nbytes_of(inputs, [field for n in numbers for field in self.sums[n].sent])
        is_remembered = cost <= attachment.limit and not replicated_in(inputs)
        sums = {n: self._repeatable(n, parcels[n]) for n in numbers} if is_remembered else {}
        evaluation = Evaluation(call, layout, news.version, sums)
        return evaluation, Hold(call, attachment.dropped)

    def _repeatable(self, number: int, parcel: Parcel) -> RepeatableSum:
        each = self.sums[number]
        spread: Any = each.spread
        return RepeatableSum(
            each.model.name,
            parcel,
            of_its_own(list(each.inputs)),
            of_its_own(list(each.sent)),
            spread.blocks,
            spread.block_items,
        )


def attached_in(each: SpreadSum) -> list[Attached]:
    return [field for field in each.sent if isinstance(field, Attached)]


def gradient(
    field: Attached, number: int, n: int, evaluation: Evaluation, hold: Hold
) -> AttachedGradient:
    """That of a field, which workers keep for the sum of this number as its n-th."""
    ticket = ticket_of(evaluation.call, number, n)
    return AttachedGradient(field, Gradient(Kept(ticket), {ticket: evaluation}, (hold,)))


def with_cotangents(total: Captured, gradients: dict[int, AttachedGradient]) -> Captured:
    """A sum with these cotangents of fields of its items, by their places.

    A field that no block has a cotangent of has none, as in this process: a zero has no sign then.
    """
    kept = total.pullback
    if not gradients or not isinstance(kept, ItemGradient):
        return total
    fields = [
        ((gradients[n],),) if n in gradients and any([leaf for (leaf,) in field]) else field
        for n, field in enumerate(kept.item_cotangents)
    ]
    found = ItemGradient(kept.leaves, tuple(fields))
    return Captured(total.value, found, total.seen, total.fingerprint)
