"""Call: the workers evaluate sums for the client; it sends, waits, adds up, and tries again."""

import asyncio
import contextlib
import itertools
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NoReturn

import dask
import numpy as np
from distributed import Client
from distributed.core import clean_exception

from daskgrad.autodiff.models.captured import Captured
from daskgrad.autodiff.values import clock
from daskgrad.autodiff.values.cotangents import Leaves
from daskgrad.autodiff.values.elsewhere import Elsewhere, RowsElsewhere, brought_here
from daskgrad.autodiff.values.memory import canonical
from daskgrad.placed.attached import (
    Attached,
    AttachedGradient,
    AttachedVersion,
    Attachment,
    Hold,
    Recipe,
    RemoteGradient,
    RepeatableSum,
)
from daskgrad.placed.connection import Connection, connection_of
from daskgrad.placed.messages import (
    ABANDON,
    FIXED,
    POINT,
    ROWS,
    AttachedRows,
    Frames,
    Parcel,
    frame_entries,
    unpack,
)
from daskgrad.placed.replicas import Replicated, replicated_in
from daskgrad.placed.request import Request, SpreadSum, Tree
from daskgrad.placed.samples import Sample
from daskgrad.placed.shards import Shards
from daskgrad.placed.spread import NO_BLOCKS, Assignment, Holdings, Spread
from daskgrad.placed.updates import KeptCotangent
from daskgrad.placed.worker import WHOLE, call_worker
from daskgrad.placed.worker_store import ticket_of
from daskgrad.placed.worker_sums import (
    KEPT,
    CannotFinish,
    WorkerResult,
    merge_item_cotangents,
    merge_subtrees,
    own_numbers,
    place_in_sent,
)
from daskgrad.sums.block_tasks import Summand
from daskgrad.sums.item_cotangents import ItemGradient, join, with_item_cotangents
from daskgrad.sums.item_sum import ReductionNode
from daskgrad.sums.placed import ArrayTermsError
from daskgrad.tasks.clients import CONNECTED
from daskgrad.tasks.settings import limit, limit_named
from daskgrad.tasks.waiting import (
    all_or_first_error,
    in_loop,
    is_done,
    result_of,
    seceded,
    without_locals,
)

# -------------------------------------------------------------------------------------------------
# The attached arrays that the sums of a call use, and their gradients.


class AttachedUse:
    """The attached arrays among the items of some sums, through the attempts of one call."""

    def __init__(self, connection: Connection, sums: Sequence[SpreadSum]):
        self._connection = connection
        self._originals = sums
        self._spreads: dict[Attachment, Holdings] = {}  # one for all sums
        self._dropped: dict[Attachment, Sequence[str]] = {}
        self.sums = sums  # with stand-ins for the arrays that workers have
        self.versions: list[AttachedVersion] = []
        self.kept: set[int] = set()  # numbers of sums whose cotangents workers keep
        sent = [field for spread_sum in sums for field in spread_sum.sent]
        fields = [field for field in sent if isinstance(field, Elsewhere)]
        self._are_here = not fields
        wholes = [f.whole if isinstance(f, RowsElsewhere) else f for f in fields]
        self.attachments: list[Attachment] = list(
            dict.fromkeys(whole.attachment for whole in wholes if isinstance(whole, Attached))
        )

    def settle(self) -> None:
        """Finds the blocks and steps that workers lack, and once which arrays they hold."""
        if self._are_here:
            return
        is_first = self.sums is self._originals
        for spread_sum in self._originals if is_first else ():
            if isinstance(spread_sum.spread, Holdings) and spread_sum.sample is None:
                for field in [field for field in spread_sum.sent if isinstance(field, Attached)]:
                    self._spreads.setdefault(field.attachment, spread_sum.spread)
        settled = [a.settle(self._connection, spread) for a, spread in self._spreads.items()]
        versions = [version for version in settled if version is not None]
        # Only the first attempt asks all workers: they hear of the calls that are dropped by then.
        self._dropped = self._dropped or {v.attachment: v.dropped for v in versions}
        self.versions = [v._replace(dropped=self._dropped[v.attachment]) for v in versions]
        if is_first:
            self._spreads = {v.attachment: self._spreads[v.attachment] for v in versions}
            self._choose()

    def _choose(self) -> None:
        """Puts stand-ins in the places of the arrays that workers hold."""
        names: dict[Any, str] = {(v.attachment, v.layout.spread): v.name for v in self.versions}

        def as_sent(spread_sum: SpreadSum, field: Any) -> Any:
            if isinstance(field, Attached) and spread_sum.sample is None:
                name = names.get((field.attachment, spread_sum.spread))
                if name is not None:
                    return AttachedRows(name, field.name)
            return brought_here(field)

        self.sums = [
            spread_sum._replace(sent=[as_sent(spread_sum, field) for field in spread_sum.sent])
            for spread_sum in self._originals
        ]
        self.kept = {number for number, _, _ in self._kept_fields()}

    def abandon(self, call: str) -> None:
        """Has workers drop the cotangents of a call, also if they get it later than this."""
        for attachment in self.attachments:
            attachment.dropped.append(call)

    # ---- gradients

    def with_gradients(
        self, totals: Sequence[Captured], call: str, parcels: Sequence[Parcel]
    ) -> Sequence[Captured]:
        """The sums, with gradients made of the cotangents that workers kept."""
        kept = list(self._kept_fields())
        gradients: list[dict[int, AttachedGradient]] = [{} for _ in totals]
        for version in self.versions:
            fields = [field for field in kept if field[2].attachment is version.attachment]
            if not fields:
                continue
            sums = {n: RepeatableSum(self.sums[n], parcels[n]) for n, _, _ in fields}
            recipe = Recipe(version.layout, version.version, sums, version.attachment.limit)
            hold = Hold(call, version.attachment.dropped)
            for number, n, array in fields:
                ticket = ticket_of(version.name, call, number, n)
                gradient = RemoteGradient(KeptCotangent(ticket), {ticket: recipe}, (hold,))
                gradients[number][n] = AttachedGradient(array, gradient)
        return list(map(with_cotangents, totals, gradients))

    def _kept_fields(self) -> Iterator[tuple[int, int, Attached]]:
        """The differentiated attached arrays, with the numbers of their sums, and their places
        among all differentiated fields."""
        for number, (original, sent) in enumerate(zip(self._originals, self.sums, strict=True)):
            for n, field in enumerate(own_numbers(sent.summand)):
                place = place_in_sent(sent.summand, field)
                if place is not None and isinstance(sent.sent[place], AttachedRows):
                    yield number, n, original.sent[place]


def with_cotangents(total: Captured, gradients: dict[int, AttachedGradient]) -> Captured:
    """A sum with these cotangents of fields of its items, by their places.

    A field without a cotangent in any block has none, as in this process: a zero has no sign then.
    """
    pullback = total.pullback
    if not gradients or not isinstance(pullback, ItemGradient):
        return total
    fields = [
        ((gradients[n],),) if n in gradients and any(map(any, field)) else field
        for n, field in enumerate(pullback.item_cotangents)
    ]
    gradient = ItemGradient(pullback.leaves, tuple(fields))
    return Captured(total.value, gradient, total.seen, total.fingerprint)


# -------------------------------------------------------------------------------------------- call

ATTEMPTS = 20  # of one call
SENDING = 0.01  # seconds in which the event loop sends requests, if it has nothing else to do
numbers = itertools.count()


def call_workers(
    client: Client, sums: Sequence[tuple[ReductionNode, Summand, Sequence[Any]]]
) -> "DirectCall":
    """Calls a client's workers for sums, each a node, its summand and its inputs."""
    connection = connection_of(client)
    return DirectCall(connection, [as_spread_sum(connection, *parts) for parts in sums])


def as_spread_sum(
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


class DirectCall:
    """A call of the workers for some sums; it begins when it is made.

    If workers are lost, the others return the sums that they have, and another attempt is made for
    the remaining leaves of the sums' trees; then one for the blocks whose cotangents lost workers
    kept.
    """

    def __init__(self, connection: Connection, sums: Sequence[SpreadSum]):
        self._connection = connection
        self._sums = sums
        self._spreads = [spread_sum.spread for spread_sum in sums]
        self._name = f"{connection.name}-{next(numbers)}"
        self._attempts = itertools.count(WHOLE + 1)
        self._left: list[set[int]] | None = None  # leaves, sum by sum; None: all
        self._again: list[set[int]] = [set() for _ in sums]  # blocks that lost workers had kept
        self._keepers: list[dict[int, str]] = [{} for _ in sums]  # of cotangents, by block
        self._deaths: list[Counter[int]] = [Counter() for _ in sums]  # of workers, by block
        self._results: list[WorkerResult] = []
        self._deadline = clock.seconds() + limit("evaluation")
        self._replicated = replicated_in(
            [value for spread_sum in sums for value in spread_sum.inputs]
        )
        self._attached = AttachedUse(connection, sums)
        self._reading = contextlib.ExitStack()  # until there are results, or nobody wants them
        with contextlib.ExitStack() as reading:
            for array in (*self._replicated, *self._attached.attachments):
                reading.enter_context(array.reading())
            for array in self._replicated:
                connection.release_with(array)
            self._attempt = self._begin()
            self._reading = reading.pop_all()

    def _begin(self) -> "Attempt":
        self._connection.prepare(self._spreads)
        self._attached.settle()
        attached, sums = self._attached.versions, self._attached.sums
        blocks = [frames for version in attached for frames in version.blocks.values()]
        if self._left is not None and any(self._left):
            pairs = zip(sums, self._left, strict=True)
            sums = [spread_sum._replace(left=left) for spread_sum, left in pairs]
        request = Request(sums, self._assigned(), blocks)
        number = next(self._attempts)
        return Attempt(self._connection, self._name, number, request, self._replicated, attached)

    def _assigned(self) -> list[Mapping[str, Assignment]]:
        """The blocks that are left. Those with half of the deaths that are allowed come last, one a
        thread: a block that kills its worker takes along the blocks that wait there."""
        if self._left is None:
            return [spread.assigned() for spread in self._spreads]
        limit_of_safe, left = max(allowed_deaths(), 1), self._blocks_left()
        safe = [
            {block for block in blocks if 2 * deaths[block] < limit_of_safe}
            for blocks, deaths in zip(left, self._deaths, strict=True)
        ]
        among, a_thread = (safe, None) if any(safe) else (left, 1)
        pairs = zip(self._spreads, among, strict=True)
        return [spread.assigned(blocks, a_thread) for spread, blocks in pairs]

    def _blocks_left(self) -> list[set[int]]:
        """The blocks with the remaining leaves; if none remain, those that are evaluated again."""
        if self._left is None:
            return [set(range(spread.count)) for spread in self._spreads]
        if not any(self._left):
            return self._again
        pairs = zip(self._sums, self._left, strict=True)
        return [spread_sum.blocks_with(leaves) for spread_sum, leaves in pairs]

    def results(self) -> Sequence[Captured]:
        """Waits for the sums; calls again if it failed through no fault of a model.

        ArrayTermsError if terms are arrays; RuntimeError if workers die time after time;
        TimeoutError after ``wait.evaluation``.
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
                if self._attempt.failures:
                    self._recover()
                self._miss_lost_cotangents()
                if self._left is not None and not any([*self._left, *self._again]):
                    return self._add_up(self._results)
                self._attempt = self._begin()
            raise RuntimeError(f"{self._names()} could not be evaluated in {ATTEMPTS} attempts")

    def flush(self) -> None:
        """Waits a moment until the workers have been sent it."""
        self._attempt.flush()

    def abandon(self) -> None:
        """Gives up the results, unless they are there."""
        self._attempt.abandon()
        self._attached.abandon(self._name)
        self._reading.close()

    def _give_up(self, reply: dict[str, Any]) -> NoReturn:
        match reply["status"]:
            case "arrays":
                raise ArrayTermsError(reply["number"])
            case "late":
                raise TimeoutError(f"{self._names()} took longer than {limit_named('evaluation')}")
        reraise(reply)

    def _keep(self, results: Sequence[WorkerResult]) -> bool:
        """Keeps the results of evaluated leaves; whether there are any."""
        left = self._left or [set(range(spread_sum.leaves)) for spread_sum in self._sums]
        before = sum(map(len, [*left, *self._again]))
        if any(left):  # else the sums are there, and workers kept cotangents again
            self._results.extend(results)
        for number, leaves_left in enumerate(left):
            for level, index in [place for of in results for place in of.sums[number]]:
                leaves_left -= {*range(index << level, (index + 1) << level)}
            if number in self._attached.kept:
                self._keepers[number] |= self._attempt.evaluated(results, number)
                self._again[number] -= self._keepers[number].keys()
        self._left = left
        return sum(map(len, [*left, *self._again])) < before

    def _miss_lost_cotangents(self) -> None:
        """Has the blocks evaluated again whose cotangents lost workers have kept."""
        if not any(self._keepers):
            return
        holders = {address for keepers in self._keepers for address in keepers.values()}
        gone = self._connection.gone(holders)
        for keepers, again in zip(self._keepers, self._again, strict=True):
            for block in [block for block, address in keepers.items() if address in gone]:
                del keepers[block]
                again.add(block)

    def _recover(self) -> None:
        """After a failed attempt: counts the deaths of workers, as Dask does for each task, and
        places lost items again."""
        attempt, left = self._attempt, self._blocks_left()
        lost = [reply["address"] for reply in attempt.failures if reply["status"] == "lost"]
        for address in self._connection.gone(lost):
            for number, assigned in enumerate(attempt.plan.assigned):
                blocks = assigned.get(address, NO_BLOCKS).numbers
                self._count_death(number, [n for n in blocks if n in left[number]], address)
        # Last: it finds the workers that are left, so that no death is counted twice.
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
        return " and ".join(
            [f"the sum over {spread_sum.model.name!r}" for spread_sum in self._sums]
        )

    def _add_up(self, results: Sequence[WorkerResult]) -> Sequence[Captured]:
        for version in self._attached.versions:
            version.attachment.taken(version)
        totals = [
            total_of(spread_sum, number, results) for number, spread_sum in enumerate(self._sums)
        ]
        if self._left is None:
            for number, spread_sum in enumerate(self._sums):
                if spread_sum.sample is None and spread_sum.spread.is_measured_now():
                    spread_sum.spread.record_times(self._attempt.times(results, number))
        return self._attached.with_gradients(totals, self._name, self._attempt.request.summands)


def total_of(spread_sum: SpreadSum, number: int, results: Sequence[WorkerResult]) -> Captured:
    """A sum of a call, of the workers' partial sums."""
    sums, summand = [result.sums[number] for result in results], spread_sum.summand
    summed = merge_subtrees(sums, spread_sum.leaves, summand.summation).rounded()
    items = canonical(merge_item_cotangents(results, number))
    firsts = sorted(items)
    if not items:
        return summed
    sizes = np.diff([*firsts, spread_sum.item_count]).tolist()  # of parts that workers cut
    are_arrays = map(spread_sum.is_array, own_numbers(summand))
    fields = zip(zip(*[items[first] for first in firsts], strict=True), are_arrays, strict=True)
    joined = [join(parts, is_array and not are_kept(parts), sizes) for parts, is_array in fields]
    return with_item_cotangents(summed, [tuple(joined)])


def are_kept(parts: Sequence[Leaves]) -> bool:
    """Whether workers keep the cotangents of an attached array."""
    return any([part[0] is KEPT for part in parts])


class Attempt:
    """A request that the workers are answering: a call has another one after a failure."""

    def __init__(
        self,
        connection: Connection,
        call: str,
        number: int,
        request: Request,
        replicated: Sequence[Replicated],
        attached: Sequence[AttachedVersion],
    ):
        self._connection = connection
        self._client = connection.client
        self._call, self._number = call, number
        self.request, self.plan = request, request.plan
        arrays: list[Replicated | AttachedVersion] = [*replicated, *attached]
        self._arrays = {array.name: array for array in arrays}
        self._versions = {array.name: array.version for array in arrays}
        self._dropped = [call for version in attached for call in version.dropped]
        blocks = [(version.name, version.blocks) for version in attached]
        self._apart = {ROWS: request.rows, **dict(blocks)}  # entries for one worker each
        self._sent = {tree.address: self._sent_to(tree) for tree in self.plan.trees}
        self.failures: list[dict[str, Any]] = []  # replies of workers that could not finish
        self._gone: dict[str, float] = {}  # when it was seen that the scheduler knows them no more
        self._is_stopped = False
        self._asking: dict[str, Any] = {}  # the tasks that ask trees, by their first workers
        self._are_sent = threading.Event()
        self._future: Future | None = in_loop(self._client, self._ask_all)

    def flush(self) -> None:
        self._are_sent.wait(SENDING)

    def results(self, deadline: float) -> list[WorkerResult]:
        """The results of the workers that could finish; CannotFinish if a model failed, or if it is
        late."""
        assert self._future is not None
        try:
            with seceded():
                if not is_done(self._future, deadline - clock.seconds(), self._look):
                    raise CannotFinish("late")
            results = [result for result in result_of(self._future) if result is not None]
        except BaseException:
            self.abandon()
            raise
        for address in [address for result in results for address in result.seconds]:
            self._connection.note(address, self._needed(address))
        return results

    def times(
        self, results: Sequence[WorkerResult], number: int
    ) -> dict[str, tuple[list[int], Any]]:
        """For each worker the blocks that it was asked for of a sum, and the seconds of each."""
        seconds = {a: of[number] for result in results for a, of in result.seconds.items()}
        assigned = self.plan.assigned[number]
        return {a: (of.numbers, seconds[a]) for a, of in assigned.items() if a in seconds}

    def evaluated(self, results: Sequence[WorkerResult], number: int) -> dict[int, str]:
        """The blocks of a sum that were evaluated, and by which workers."""
        return {
            block: address
            for address, (blocks, seconds) in self.times(results, number).items()
            for block, took in zip(blocks, seconds, strict=True)
            if not np.isnan(took)
        }

    def _look(self) -> None:
        """Waits no longer for workers that are gone; for workers that wait for these, some time."""
        now, gone = clock.seconds(), self._connection.gone(self.plan.addresses)
        if not self._gone.keys() >= {*gone}:
            self._tell_workers(gone)
        for address in gone:
            is_late = now - self._gone.setdefault(address, now) > limit("answers")
            for tree in self.plan.trees:
                is_given_up = address == tree.address or (is_late and address in tree.all_addresses)
                if is_given_up and (task := self._asking.get(tree.address)):
                    self._client.loop.add_callback(task.cancel)

    async def _ask_all(self) -> list[WorkerResult | None]:
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._are_sent.set)  # after each task's first step
        return await all_or_first_error([self._ask(tree) for tree in self.plan.trees])

    async def _ask(self, tree: Tree) -> WorkerResult | None:
        """The result of the workers of a tree, unpacked while others still work."""
        self._asking[tree.address] = asyncio.current_task()
        try:
            reply = await call_worker(
                self._client.rpc,
                tree.address,
                self._connection.name,
                call=self._call,
                number=self._number,
                work=tree.work,
                sent=self._sent[tree.address],
                versions=self._versions,
                dropped=self._dropped,
            )
            result = unpack(reply)
            failures = result.failures
        except CannotFinish as unfinished:
            if unfinished.is_the_models:
                raise
            result, failures = None, [unfinished.reply]
        except asyncio.CancelledError:
            lost = [address for address in tree.all_addresses if address in self._gone]
            if not lost:
                raise
            result, failures = None, [{"status": "lost", "address": address} for address in lost]
        finally:
            del self._asking[tree.address]  # an error of the task would hold it
        self.failures += failures
        if not self._is_stopped and any([reply["status"] != "given up" for reply in failures]):
            self._tell_workers()
        return result

    # ---- sending

    def _needed(self, address: str) -> dict[str, int]:
        """The versions of the entries that a worker needs, by name."""
        return {name: self._versions.get(name, FIXED) for name in self.plan.needed[address]}

    def _sent_to(self, tree: Tree) -> dict[str, dict[str, Frames]]:
        """The entries that the workers of a tree lack, as a message holds them."""
        of_all = {POINT: self.request.point}
        for name, known in self._lacking(tree).items():
            if name not in self._arrays:
                of_all[name] = self.request.parcels[name]
                continue
            versions = [version for version in known if version is not None]
            oldest = min(versions) if len(versions) == len(known) else None
            since, frames = self._arrays[name].update(oldest)
            if frames:
                of_all[name] = frames
            if since is None:  # without an answer nobody knows which workers have got it
                for address in tree.all_addresses:
                    self._connection.note(address, {name: None})
        sent = {"": of_all}
        for address in tree.all_addresses:
            apart = {name: of[address] for name, of in self._apart.items() if address in of}
            if apart:
                sent[address] = apart
        return frame_entries(sent, tree.all_addresses)

    def _lacking(self, tree: Tree) -> dict[str, list[int | None]]:
        """For each name that a worker of the tree lacks, the versions that the workers have."""
        known: dict[str, list[int | None]] = {}
        lacking: dict[str, None] = {}
        for address in tree.all_addresses:
            for name, version in self._needed(address).items():
                known.setdefault(name, []).append(self._connection.version(address, name))
                if known[name][-1] != version:
                    lacking[name] = None
        return {name: known[name] for name in lacking}

    def abandon(self) -> None:
        """Tells the workers, once, that nobody wants the call; does not wait for their answers."""
        future, self._future = self._future, None
        if future is not None and self._client.status in CONNECTED:
            future.cancel()
            self._send(WHOLE)

    def _tell_workers(self, gone: Sequence[str] = ()) -> None:
        """Tells the workers to return the sums that they have, and not to wait for the gone."""
        self._send(self._number, gone)

    def _send(self, number: int, gone: Sequence[str] = ()) -> None:
        self._is_stopped = True
        handler = self._connection.name + ABANDON
        addresses = self.plan.addresses
        self._connection.send(addresses, handler, call=self._call, number=number, gone=gone)


def allowed_deaths() -> int:
    """How many workers may die of a block, as Dask says of tasks."""
    return dask.config.get("distributed.scheduler.allowed-failures")


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
