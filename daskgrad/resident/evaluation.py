"""Evaluation: one call of the workers. Sends the point, waits, adds up; repeats where need be."""

import asyncio
import itertools
import time
from collections.abc import Sequence
from typing import Any, NoReturn

import dask
from distributed.core import clean_exception

from daskgrad.models.captured import Captured
from daskgrad.resident.evaluator import Evaluator
from daskgrad.resident.jobs import Result, columns_of, merge_subtrees
from daskgrad.resident.messages import Frames, all_framed, framed, unpack
from daskgrad.resident.plugin import abandoning, call
from daskgrad.resident.requests import Request, SpreadSum, Tree
from daskgrad.sums.item_cotangents import with_columns
from daskgrad.tasks.clients import CONNECTED
from daskgrad.tasks.limits import limit, limit_named
from daskgrad.tasks.waiting import Together, in_loop, is_done, result_of, seceded, without_locals

ATTEMPTS = 20  # of one call
numbers = itertools.count()


class ArrayTermsError(TypeError):
    """The terms of the sum with this number are arrays, and have no gradient to send back."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


class Unsuccessful(Exception):
    """A worker could not do what it was asked; carries its reply, which says why."""

    def __init__(self, reply: dict[str, Any]):
        super().__init__(reply["status"])
        self.reply = reply


class Unavailable(Unsuccessful):
    """The call has to be repeated."""


class TooLate(Exception):
    """The workers have not answered in time."""


class ModelFailed(Unsuccessful):
    """A model raised an exception, which is in the reply."""


class Evaluation:
    """One evaluation of some sums on one cluster, which is under way from the start."""

    def __init__(self, evaluator: Evaluator, sums: Sequence[SpreadSum]):
        self._evaluator = evaluator
        self._sums = sums
        self._deaths = 0
        self._deadline = time.monotonic() + limit("evaluation")
        self._sent: Sent | None = None
        self._attempt()

    def _attempt(self) -> None:
        self._sent = None
        self._evaluator.prepare([each.spread for each in self._sums])
        self._sent = Sent(self._evaluator, Request(self._sums))

    def results(self) -> list[Captured]:
        """The sums, once the workers have answered; repeats what failed for no fault of a model.

        Raises
        ------
        RuntimeError
            where the workers that compute it die, or cannot be reached, time after time.
        TimeoutError
            where it takes longer than ``daskgrad.wait.evaluation``.
        """
        for _ in range(ATTEMPTS):
            try:
                assert self._sent is not None
                return self._added_up(self._sent.results(self._deadline))
            except Unavailable as failure:
                self._recover(failure)
            except TooLate:
                raise TimeoutError(
                    f"{self._names()} took longer than {limit_named('evaluation')}"
                ) from None
        raise RuntimeError(f"{self._names()} could not be evaluated in {ATTEMPTS} attempts")

    def abandon(self) -> None:
        """Nobody waits for the results any more; nothing happens where they are there."""
        if self._sent is not None:
            self._sent.abandon()

    def _recover(self, failure: Unavailable) -> None:
        lost = failure.reply["status"] == "lost"
        self._evaluator.look_again([each.spread for each in self._sums], failure.reply)
        if lost and self._evaluator.gone([failure.reply["address"]]):
            self._deaths += 1
        allowed = dask.config.get("distributed.scheduler.allowed-failures")
        if self._deaths > allowed:
            raise RuntimeError(
                f"{self._deaths} workers died while they evaluated {self._names()}, the last one "
                f"at {failure.reply['address']}: see the workers' logs; a model may need more "
                f"memory than a worker has (distributed.scheduler.allowed-failures = {allowed})"
            ) from failure
        self._attempt()

    def _names(self) -> str:
        return " and ".join([f"the sum over {each.model.name!r}" for each in self._sums])

    def _added_up(self, results: Sequence[Result]) -> list[Captured]:
        totals = []
        for number, each in enumerate(self._sums):
            sums, count = [result.sums[number] for result in results], each.spread.count
            summed = merge_subtrees(sums, count, each.summand.summation).rounded()
            columns = columns_of(results, number)
            totals.append(with_columns(summed, [columns[n] for n in range(len(columns))]))
        self._take_times({a: s for result in results for a, s in result.seconds.items()})
        return totals

    def _take_times(self, times: dict[str, list[list[float]]]) -> None:
        assert self._sent is not None
        for number, each in enumerate(self._sums):
            if not each.spread.is_measured_now():
                continue
            each.spread.measured(
                {
                    address: (asked.numbers, times[address][number])
                    for address, asked in self._sent.plan.asked[number].items()
                }
            )


class Sent:
    """A request that is under way to the workers."""

    def __init__(self, evaluator: Evaluator, request: Request):
        self._evaluator = evaluator
        self._client = evaluator.client
        self._name = f"{evaluator.name}-{next(numbers)}"
        self.plan = request.plan
        self._request = request
        self._point = framed(request.point)
        asked = [self._ask(tree) for tree in self.plan.trees]
        self._future: Together | None = Together(self._client, asked)

    def results(self, deadline: float) -> list[Result]:
        """What the workers that were called return."""
        reply = None
        try:
            results = self._wait(deadline)
        except BaseException as error:
            self.abandon()
            if not isinstance(error, ModelFailed):
                raise
            reply = error.reply
        if reply is not None:  # not above, where the exception would get another context
            reraise(reply)
        for address in self.plan.addresses:
            self._evaluator.sent(address, self._request.needed(address))
        return results

    def _wait(self, deadline: float) -> list[Result]:
        """Waits as long as all workers that were asked are there."""
        assert self._future is not None
        with seceded():
            if not is_done(self._future, deadline - time.monotonic(), self._look):
                raise TooLate
        return result_of(self._future)

    def _look(self) -> None:
        for address in self._evaluator.gone(self.plan.addresses):
            raise Unavailable({"status": "lost", "address": address})

    async def _ask(self, tree: Tree) -> Result:
        """What the workers of a tree return, unpacked while others are waited for."""
        reply = await call(
            self._client.rpc,
            tree.address,
            self._evaluator.name,
            evaluation=self._name,
            work=tree.work,
            point=self._point,
            **self._unknown(tree.all_addresses),
            **self._rows_of(tree.all_addresses),
        )
        require_success(reply)
        return unpack(reply["result"])

    def _unknown(self, asked: Sequence[str]) -> dict[str, dict[str, Frames]]:
        """The parcels that not all of these workers have, as a part of a message, if there are."""
        lacking = [
            digest
            for address in asked
            for digest in self._request.needed(address)
            if digest not in self._evaluator.known(address)
        ]
        new = {digest: framed(self._request.parcels[digest]) for digest in dict.fromkeys(lacking)}
        return {"parcels": new} if new else {}

    def _rows_of(self, asked: Sequence[str]) -> dict[str, dict[str, Frames]]:
        """The rows of these workers, as a part of a message, if there are any."""
        rows = {a: self._request.rows[a] for a in asked if a in self._request.rows}
        return {"rows": all_framed(rows)} if rows else {}

    def abandon(self) -> None:
        """Tells the workers that nobody waits, once; not waited for."""
        future, self._future = self._future, None
        if future is not None:
            future.cancel()
            if self._client.status in CONNECTED:
                in_loop(self._client, self._tell_all())

    async def _tell_all(self) -> None:
        handler = abandoning(self._evaluator.name)
        calls = [
            call(self._client.rpc, address, handler, evaluation=self._name)
            for address in self.plan.addresses
        ]
        await asyncio.gather(*calls, return_exceptions=True)


def reraise(reply: dict[str, Any]) -> NoReturn:
    """Raises a model's exception; not in the event loop, which an exit would end."""
    _, error, traceback = clean_exception(**reply)
    assert error is not None
    if traceback is not None:  # Dask leaves out a long one, and the exception has brought its own
        error.__traceback__ = traceback
    try:
        raise without_locals(error)
    finally:
        del error, traceback


def require_success(reply: dict[str, Any]) -> None:
    if reply["status"] == "OK":
        return
    if reply["status"] == "failed":
        raise ModelFailed(reply)
    if reply["status"] == "arrays":
        raise ArrayTermsError(reply["number"])
    raise Unavailable(reply)
