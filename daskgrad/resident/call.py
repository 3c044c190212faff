"""Call: one evaluation of sums by the workers; sends the point, waits, adds up, tries again."""

import asyncio
import contextlib
import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import dask
import numpy as np
from distributed import Client
from distributed.core import clean_exception

from daskgrad.models.captured import Captured
from daskgrad.resident.attached_calls import AttachedUse
from daskgrad.resident.connection import Connection, connection_of
from daskgrad.resident.handlers import abandoning
from daskgrad.resident.messages import Frames, frame_message, frame_messages, unpack
from daskgrad.resident.replicas import Replicated, replicated_in
from daskgrad.resident.requests import Request, SpreadSum, Tree
from daskgrad.resident.samples import Sample
from daskgrad.resident.shards import Shards
from daskgrad.resident.spread import Spread
from daskgrad.resident.worker_plugin import call_worker
from daskgrad.resident.worker_replicas import Version, frame_versions
from daskgrad.resident.worker_sums import (
    CannotFinish,
    ItemCotangents,
    Result,
    merge_item_cotangents,
    merge_subtrees,
    own_numbers,
)
from daskgrad.sums.block_tasks import Summand
from daskgrad.sums.item_cotangents import join, with_item_cotangents
from daskgrad.sums.item_sum import ReductionNode
from daskgrad.sums.placed import ArrayTermsError
from daskgrad.tasks.clients import CONNECTED
from daskgrad.tasks.settings import limit, limit_named
from daskgrad.tasks.waiting import (
    Together,
    in_loop,
    is_done,
    result_of,
    seceded,
    without_locals,
)
from daskgrad.values import clock
from daskgrad.values.cotangents import Leaves

ATTEMPTS = 20  # of one call
numbers = itertools.count()


def call_workers(
    client: Client, sums: Sequence[tuple[ReductionNode, Summand, Sequence[Any]]]
) -> "Call":
    """One call for the sums of one cluster, so that the point goes out once a worker."""
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
    """A call of the workers for some sums; it begins when it is made."""

    def __init__(self, connection: Connection, sums: Sequence[SpreadSum]):
        self._connection = connection
        self._sums = sums
        self._deaths = 0
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
        self._connection.prepare([each.spread for each in self._sums])
        request = Request(self._attached.settle(self._connection))
        return Attempt(self._connection, request, self._replicated, self._attached.news())

    def results(self) -> Sequence[Captured]:
        """Waits for the sums; calls again if it failed through no fault of a model.

        RuntimeError if workers die time after time; TimeoutError after ``wait.evaluation``.
        """
        with self._reading:
            for _ in range(ATTEMPTS):
                try:
                    return self._add_up(self._attempt.results(self._deadline))
                except CannotFinish as unfinished:
                    reply = unfinished.reply
                self._attached.abandon(self._attempt.name)
                self._recover(reply)  # not above, where another exception would be its context
            raise RuntimeError(f"{self._names()} could not be evaluated in {ATTEMPTS} attempts")

    def flush(self) -> None:
        """Waits a moment until the workers have been sent it."""
        self._attempt.flush()

    def abandon(self) -> None:
        """Gives up the results, unless they are there."""
        self._attempt.abandon()
        self._attached.abandon(self._attempt.name)
        self._reading.close()

    def _recover(self, reply: dict[str, Any]) -> None:
        """Calls again after workers could not finish; raises the error if a model failed."""
        match reply["status"]:
            case "failed":
                reraise(reply)
            case "arrays":
                raise ArrayTermsError(reply["number"])
            case "late":
                raise TimeoutError(f"{self._names()} took longer than {limit_named('evaluation')}")
        if reply["status"] == "no replicas":
            unknown = {each.name: None for each in self._replicated}
            self._connection.note_versions(reply["address"], unknown)
        if reply["status"] == "no attached":
            self._attached.lose(reply["address"])
        self._connection.look_again([each.spread for each in self._sums], reply)
        if reply["status"] == "lost" and self._connection.gone([reply["address"]]):
            self._deaths += 1
        allowed = dask.config.get("distributed.scheduler.allowed-failures")
        if self._deaths > allowed:
            raise RuntimeError(
                f"{self._deaths} workers died while they evaluated {self._names()}, the last one "
                f"at {reply['address']}: see the workers' logs; a model may need more "
                f"memory than a worker has (distributed.scheduler.allowed-failures = {allowed})"
            )
        self._attempt = self._begin()

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
        self._take_times({a: s for result in results for a, s in result.seconds.items()})
        attempt = self._attempt
        return self._attached.with_gradients(totals, attempt.name, attempt.request.summands)

    def _take_times(self, times: dict[str, list[list[float]]]) -> None:
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
        self._future: Together | None = Together(
            self._client, [partial(self._ask, tree) for tree in self.plan.trees]
        )

    def flush(self) -> None:
        if self._future is not None:
            self._future.flush()

    def results(self, deadline: float) -> list[Result]:
        """The workers' results; CannotFinish if a worker cannot, or it is late."""
        assert self._future is not None
        try:
            with seceded():
                if not is_done(self._future, deadline - clock.seconds(), self._look):
                    raise CannotFinish("late")
            results = result_of(self._future)
        except BaseException:
            self.abandon()
            raise
        versions = {each.name: each.version for each in self._replicated}
        for address in self.plan.addresses:
            self._connection.sent(address, self.request.needed(address))
            self._connection.note_versions(address, versions)
        return results

    def _look(self) -> None:
        for address in self._connection.gone(self.plan.addresses):
            raise CannotFinish("lost", address=address)

    async def _ask(self, tree: Tree) -> Result:
        """The result of the workers of a tree, unpacked while others still work."""
        rows = self.request.rows
        result = await call_worker(
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
        return unpack(result)

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
