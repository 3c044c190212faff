"""Call: one evaluation of sums by the workers; sends the point, waits, adds up, tries again."""

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import dask
import numpy as np
from distributed import Client
from distributed.core import clean_exception

from daskgrad.autodiff.models.captured import Captured
from daskgrad.autodiff.values import clock
from daskgrad.autodiff.values.cotangents import Leaves
from daskgrad.autodiff.values.elsewhere import Elsewhere, RowsElsewhere, brought_here
from daskgrad.autodiff.values.memory import of_its_own
from daskgrad.placed.attached import Attached, AttachedGradient
from daskgrad.placed.attached_steps import Kept
from daskgrad.placed.attachment import (
    Attachment,
    Evaluation,
    Gradient,
    Hold,
    Layout,
    RepeatableSum,
    nbytes_of,
)
from daskgrad.placed.connection import Connection, connection_of
from daskgrad.placed.messages import (
    AttachedRows,
    Frames,
    Parcel,
    abandoning,
    frame_message,
    frame_messages,
    pack,
    unpack,
)
from daskgrad.placed.replicas import Replicated, replicated_in
from daskgrad.placed.request import Request, SpreadSum, Tree
from daskgrad.placed.samples import Sample
from daskgrad.placed.shards import Shards
from daskgrad.placed.spread import NOTHING_ASKED, Asked, Holdings, Spread
from daskgrad.placed.worker import call_worker
from daskgrad.placed.worker_store import News, Version, frame_versions
from daskgrad.placed.worker_sums import (
    CannotFinish,
    ItemCotangents,
    Result,
    merge_item_cotangents,
    merge_subtrees,
    own_numbers,
    place_in_sent,
    ticket_of,
)
from daskgrad.sums.block_tasks import Summand
from daskgrad.sums.item_cotangents import ItemGradient, join, with_item_cotangents
from daskgrad.sums.item_sum import ReductionNode
from daskgrad.sums.placed import ArrayTermsError
from daskgrad.tasks.clients import CONNECTED
from daskgrad.tasks.settings import limit, limit_named
from daskgrad.tasks.waiting import Together, in_loop, is_done, result_of, seceded, without_locals

# -------------------------------------------------------------------------------------------------
# Attached calls: the attached arrays that the sums of a call use, and the gradients of these.


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
            for field in [field for field in each.sent if isinstance(field, Attached)]:
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


# -------------------------------------------------------------------------------------------- call

ATTEMPTS = 20  # of one call
numbers = itertools.count()


def call_workers(
    client: Client, sums: Sequence[tuple[ReductionNode, Summand, Sequence[Any]]]
) -> "Call":
    """As ``sums.placed.call_workers`` says."""
    connection = connection_of(client)
    return Call(connection, [spread_sum(connection, *parts) for parts in sums])


def spread_sum(
    connection: Connection, node: ReductionNode, summand: Summand, inputs: Sequence[Any]
) -> SpreadSum:
    placed = node.items.placed
    sample = next((items for items in placed if isinstance(items, Sample)), None)
    sent = [source.items for source in node.items.beside_placed]
    if placed:
        (shards,) = placed
        assert isinstance(shards, Shards | Sample)
        spread: Spread = shards.holdings
    else:
        spread = connection.spread(node.name, node.items.sizes)
    return SpreadSum(spread, node.model, summand, sent, inputs, sample)


class Call:
    """A call of the workers for some sums; it begins when it is made.

    Where workers are lost, the others return what they have evaluated, and another attempt is made
    for the rest; all of it again where they keep cotangents of the attempt, or draw from blocks.
    """

    def __init__(self, connection: Connection, sums: Sequence[SpreadSum]):
        self._connection = connection
        self._sums = sums
        self._spreads = [each.spread for each in sums]
        self._left: list[set[int]] | None = None  # blocks, sum by sum; None: all
        self._deaths: list[Counter[int]] = [Counter() for _ in sums]  # of workers, by block
        self._results: list[Result] = []
        self._deadline = clock.seconds() + limit("evaluation")
        self._replicated = replicated_in([value for each in sums for value in each.inputs])
        self._attached = AttachedUse(sums)
        self._reading = contextlib.ExitStack()  # until there are results, or nobody wants them
        with contextlib.ExitStack() as reading:
            for each in self._replicated:
                reading.enter_context(each.reading())
            reading.enter_context(self._attached.reading())
            self._attempt = self._begin()
            self._reading = reading.pop_all()

    def _begin(self) -> "Attempt":
        self._connection.prepare(self._spreads)
        sums = self._attached.settle(self._connection)
        request = Request(sums, self._asked())
        return Attempt(self._connection, request, self._replicated, self._attached.news())

    def _asked(self) -> list[Mapping[str, Asked]]:
        """What is left; blocks of half as many workers that died as may die come last, one for each
        thread at a time: it is they, or what kills workers has no part in them."""
        left = self._left
        if left is None:
            return [each.asked() for each in self._spreads]
        allowed = allowed_deaths()
        safe = [
            {n for n in numbers if 2 * deaths[n] < max(allowed, 1)}
            for numbers, deaths in zip(left, self._deaths, strict=True)
        ]
        if any(safe):
            return [each.asked(of) for each, of in zip(self._spreads, safe, strict=True)]
        return [each.asked(of, a_thread=1) for each, of in zip(self._spreads, left, strict=True)]

    def results(self) -> Sequence[Captured]:
        """Waits for the sums; calls again if it failed through no fault of a model.

        RuntimeError if workers die time after time; TimeoutError after ``wait.evaluation``.
        """
        with self._reading:
            attempts = 0
            while attempts < ATTEMPTS:
                reply: dict[str, Any] = {}
                try:
                    results = self._attempt.results(self._deadline)
                except CannotFinish as unfinished:
                    reply = unfinished.reply
                if reply:  # not above, where another exception would be its context
                    self._give_up(reply)
                if self._left is None and not self._attempt.failures:
                    return self._add_up(results)
                attempts = 0 if self._keep(results) else attempts + 1
                if self._left is not None and not any(self._left):
                    return self._add_up(self._results)
                if self._attempt.failures:
                    self._recover()
                self._attempt = self._begin()
            raise RuntimeError(f"{self._names()} could not be evaluated in {ATTEMPTS} attempts")

    def flush(self) -> None:
        """Waits a moment until the workers have been sent it."""
        self._attempt.flush()

    def abandon(self) -> None:
        """Gives up the results, unless they are there."""
        self._attempt.abandon()
        self._attached.abandon(self._attempt.name)
        self._reading.close()

    def _give_up(self, reply: dict[str, Any]) -> NoReturn:
        match reply["status"]:
            case "arrays":
                raise ArrayTermsError(reply["number"])
            case "late":
                raise TimeoutError(f"{self._names()} took longer than {limit_named('evaluation')}")
        reraise(reply)

    def _keep(self, results: Sequence[Result]) -> bool:
        """Keeps the results of some blocks, where that can be; whether there are any."""
        asked = self._attempt.plan.asked
        if not self._attached.are_here or any([each.sample is not None for each in self._sums]):
            self._attached.abandon(self._attempt.name)
            return False
        self._results.extend(results)
        done = [self._done(number, results) for number in range(len(asked))]
        left = self._left or [set(range(each.count)) for each in self._spreads]
        self._left = [before - now for before, now in zip(left, done, strict=True)]
        return any(done)

    def _done(self, number: int, results: Sequence[Result]) -> set[int]:
        """The blocks of a sum that were evaluated."""
        asked = self._attempt.plan.asked[number]
        return {
            block
            for result in results
            for address, seconds in result.seconds.items()
            if address in asked
            for block, took in zip(asked[address].numbers, seconds[number], strict=True)
            if not np.isnan(took)
        }

    def _recover(self) -> None:
        """After an attempt in which workers could not finish: counts those that died, as Dask does
        for each task, and places again what was lost."""
        attempt = self._attempt
        for reply in attempt.failures:
            if reply["status"] == "no replicas":
                unknown = {each.name: None for each in self._replicated}
                self._connection.note_versions(reply["address"], unknown)
            if reply["status"] == "no attached":
                self._attached.lose(reply["address"])
        lost = [reply["address"] for reply in attempt.failures if reply["status"] == "lost"]
        for address in self._connection.gone(lost):
            for number, asked in enumerate(attempt.plan.asked):
                self._count_death(number, asked.get(address, NOTHING_ASKED).numbers, address)
        # Last: a worker that was counted is not among those that it finds, to be counted again.
        self._connection.look_again(self._spreads, attempt.failures)

    def _count_death(self, number: int, blocks: Sequence[int], address: str) -> None:
        """Counts the death of a worker that was asked for these blocks of a sum."""
        deaths, allowed = self._deaths[number], allowed_deaths()
        deaths.update(blocks)
        worst = [block for block in blocks if deaths[block] > allowed]
        if not worst:
            return
        size = self._spreads[number].block_items
        raise RuntimeError(
            f"{deaths[worst[0]]} workers died while they evaluated the sum over "
            f"{self._sums[number].model.name!r}, each with items among {worst[0] * size} to "
            f"{(worst[-1] + 1) * size - 1}, the last one at {address}: see the workers' logs; a "
            f"model may need more memory than a worker has "
            f"(distributed.scheduler.allowed-failures = {allowed})"
        )

    def _names(self) -> str:
        return " and ".join([f"the sum over {each.model.name!r}" for each in self._sums])

    def _add_up(self, results: Sequence[Result]) -> Sequence[Captured]:
        self._attached.told()
        totals = []
        for number, each in enumerate(self._sums):
            sums = [result.sums[number] for result in results]
            summed = merge_subtrees(sums, each.leaves, each.summand.summation).rounded()
            items = merge_item_cotangents(results, number)
            blocks = [items[first] for first in sorted(items)]
            if each.sample is not None and items:
                blocks = [of_all_drawn(each, items, len(each.sample))]
            totals.append(with_item_cotangents(summed, blocks))
        if self._left is None:
            self._take_times(results)
        attempt = self._attempt
        return self._attached.with_gradients(totals, attempt.name, attempt.request.summands)

    def _take_times(self, results: Sequence[Result]) -> None:
        times = {a: s for result in results for a, s in result.seconds.items()}
        for number, each in enumerate(self._sums):
            if each.sample is None and each.spread.is_measured_now():
                asked = self._attempt.plan.asked[number]
                took = {a: (of.numbers, times[a][number]) for a, of in asked.items()}
                each.spread.record_times(took)


class Attempt:
    """A request that the workers are answering: a call has another one after a failure."""

    def __init__(
        self,
        connection: Connection,
        request: Request,
        replicated: Sequence[Replicated],
        attached: Mapping[str, Frames],
    ):
        self._connection = connection
        self._replicated = replicated
        self._client = connection.client
        self.name = f"{connection.name}-{next(numbers)}"
        self.plan = request.plan
        self.request = request
        self._attached = frame_messages(attached)
        self._point = frame_message(request.point)
        self._versions = {tree.address: self._versions_for(tree) for tree in request.plan.trees}
        self.failures: list[dict[str, Any]] = []  # replies of workers that could not finish
        self._gone: dict[str, float] = {}  # when it was seen that the scheduler knows them no more
        self._is_stopped = False
        self._future: Together | None = Together(
            self._client, [partial(self._ask, tree) for tree in self.plan.trees]
        )

    def flush(self) -> None:
        if self._future is not None:
            self._future.flush()

    def results(self, deadline: float) -> list[Result]:
        """The workers' results, as far as they could finish; CannotFinish if a model failed, or it
        is late."""
        assert self._future is not None
        try:
            with seceded():
                if not is_done(self._future, deadline - clock.seconds(), self._look):
                    raise CannotFinish("late")
            results = [each for each in result_of(self._future) if each is not None]
        except BaseException:
            self.abandon()
            raise
        versions = {each.name: each.version for each in self._replicated}
        for address in [address for each in results for address in each.seconds]:
            self._connection.sent(address, self.request.needed(address))
            self._connection.note_versions(address, versions)
        return results

    def _look(self) -> None:
        """Waits no longer for workers that are gone, nor for ever for those that wait for them."""
        assert self._future is not None
        now = clock.seconds()
        for address in self._connection.gone(self.plan.addresses):
            is_late = now - self._gone.setdefault(address, now) > limit("answers")
            for number, tree in enumerate(self.plan.trees):
                if address == tree.address or (is_late and address in tree.all_addresses):
                    self._future.give_up(number)
            self._stop()

    async def _ask(self, tree: Tree) -> Result | None:
        """The result of the workers of a tree, unpacked while others still work."""
        rows = self.request.rows
        try:
            reply = await call_worker(
                self._client.rpc,
                tree.address,
                self._connection.name,
                call=self.name,
                work=tree.work,
                point=self._point,
                parcels=frame_messages(self._lacking(tree.all_addresses)),
                rows=frame_messages({a: rows[a] for a in tree.all_addresses if a in rows}),
                versions=frame_versions(self._versions[tree.address]),
                attached=self._attached,
            )
            result = unpack(reply)
            failures = result.failures
        except CannotFinish as unfinished:
            if unfinished.is_the_models:
                raise
            result, failures = None, [unfinished.reply]
        except asyncio.CancelledError:
            if not self._gone.keys() & {*tree.all_addresses}:
                raise
            lost = [address for address in tree.all_addresses if address in self._gone]
            result, failures = None, [{"status": "lost", "address": address} for address in lost]
        self.failures += failures
        if any([each["status"] != "given up" for each in failures]):
            self._stop()
        return result

    def _stop(self) -> None:
        """Tells the workers, once, to return what they have."""
        if not self._is_stopped:
            self._is_stopped = True
            in_loop(self._client, self._tell_all)

    def _versions_for(self, tree: Tree) -> dict[str, Version]:
        """The versions that are used, and what workers of the tree lack of them."""
        return {each.name: self._version_for(each, tree) for each in self._replicated}

    def _version_for(self, each: Replicated, tree: Tree) -> Version:
        known = [self._connection.version(a, each.name) for a in tree.all_addresses]
        versions = [version for version in known if version is not None]
        oldest = min(versions) if len(versions) == len(known) else None
        if oldest == each.version:
            return [each.version, None, []]
        since, frames = each.update(oldest)
        if since is None:  # until there is an answer nobody knows who has got it
            for address in tree.all_addresses:
                self._connection.note_versions(address, {each.name: None})
        return [each.version, since, frames]

    def _lacking(self, asked: Sequence[str]) -> dict[str, Frames]:
        """The parcels that one of these workers lacks."""
        return {
            digest: self.request.parcels[digest]
            for address in asked
            for digest in self.request.needed(address)
            if digest not in self._connection.known(address)
        }

    def abandon(self) -> None:
        """Tells the workers, once, that nobody waits; does not wait for their answers."""
        future, self._future = self._future, None
        if future is not None and self._client.status in CONNECTED:
            future.cancel()
            in_loop(self._client, self._tell_all)

    async def _tell_all(self) -> None:
        handler = abandoning(self._connection.name)
        calls = [
            call_worker(self._client.rpc, address, handler, call=self.name)
            for address in self.plan.addresses
        ]
        await asyncio.gather(*calls, return_exceptions=True)


def allowed_deaths() -> int:
    """How many workers may die of a block, as Dask says of tasks."""
    return dask.config.get("distributed.scheduler.allowed-failures")


def of_all_drawn(each: SpreadSum, items: ItemCotangents, count: int) -> tuple[Leaves, ...]:
    """The cotangents of so many drawn items, field by field, which workers cut into pieces of their
    own."""
    firsts = sorted(items)
    sizes = np.diff([*firsts, count]).tolist()
    return tuple(
        [
            join([items[first][n] for first in firsts], each.is_array(field), sizes)
            for n, field in enumerate(own_numbers(each.summand))
        ]
    )


def reraise(reply: dict[str, Any]) -> NoReturn:
    """Raises a model's exception outside of the event loop, which a SystemExit would end."""
    _, error, traceback = clean_exception(**reply)
    assert error is not None
    if traceback is not None:  # Dask leaves a long one out; then the exception has its own
        error.__traceback__ = traceback
    try:
        raise without_locals(error)
    finally:
        del error, traceback
