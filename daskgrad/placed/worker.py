"""Worker plugin: evaluates the blocks that its worker holds when a client calls it.

It passes the request on to the workers below it in the tree, and adds their partial sums to its
own. Models run in the worker's thread pool, never in its event loop.
"""

import asyncio
import math
import os
import pickle
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from distributed import Worker
from distributed.diagnostics.plugin import WorkerPlugin

from daskgrad.autodiff.values import clock
from daskgrad.placed.messages import (
    Frames,
    Parcels,
    Unopened,
    Work,
    abandoning,
    addresses,
    attaching,
    copy_frames,
    frame_message,
    frame_messages,
    pack,
    releasing,
    unpack,
)
from daskgrad.placed.worker_store import AttachedBlocks, Replicas, Version, frame_versions
from daskgrad.placed.worker_sums import (
    CannotFinish,
    Job,
    Result,
    failed,
    merge_results,
)
from daskgrad.tasks import allocator
from daskgrad.tasks.observers import TOPIC

# -------------------------------------------------------------------------------------------------
# Worker loop: functions in threads, and several coroutines, awaited in a worker's event loop.


async def all_or_first_error(coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    """The results of all coroutines. The first error, or cancelling this, cancels the others."""
    if len(coroutines) == 1:  # without a task: one trip through the loop less
        return [await coroutines[0]]
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        while tasks:  # until none is left: an error holds this list, and a task holds the error
            tasks.pop().cancel()


def in_thread(pool: Executor, fun: Callable, *args: Any) -> asyncio.Future:
    """The result of a function in a thread of a pool. It runs also where nobody waits any more.

    The loop's ``run_in_executor`` chains two futures: 3 % of a gradient whose models take no time.
    """
    loop = asyncio.get_running_loop()
    result = loop.create_future()
    pool.submit(run, [result, loop, fun, args])
    return result


def run(call: list[Any]) -> None:
    """Takes the call out of the list: the pool keeps its arguments as long as a traceback does."""
    result, loop, fun, args = call
    call.clear()
    try:
        value = fun(*args)
    except BaseException as error:
        loop.call_soon_threadsafe(settle, result, result.set_exception, error)
        del result, fun, args  # the error's traceback would hold them, and so itself
    else:
        loop.call_soon_threadsafe(settle, result, result.set_result, value)


def settle(result: asyncio.Future, set_result: Callable[[Any], None], to: Any) -> None:
    if not result.cancelled():
        set_result(to)


# ----------------------------------------------------------------------------------- worker plugin

EVENTS_EVERY = 0.5  # seconds between two events on what was evaluated
ALIVE_EVERY = 1.0  # seconds between two signs of life while a long call runs

NO_ROWS = Unopened(pack(()))
NO_FRAMES: Mapping[str, Frames] = {}
NO_VERSIONS: Mapping[str, Version] = {}


@dataclass(eq=False)
class SumsPlugin(WorkerPlugin):
    """Evaluates sums for the connection of the same ``name``."""

    idempotent = True

    name: str
    roomy_malloc: bool
    client_process: tuple[str, int]

    def setup(self, worker: Worker) -> None:
        self._worker = worker
        self._parcels = Parcels()
        self._replicas = Replicas()
        self._attached = AttachedBlocks()
        # A thread that no task holds, since tasks wait for answers.
        self._answering = ThreadPoolExecutor(1, thread_name_prefix="daskgrad-attached")
        self._running: set[str] = set()
        self._log = EventLog(worker, self._running)
        worker.handlers[self.name] = self.evaluate
        worker.handlers[abandoning(self.name)] = self.abandon
        worker.handlers[releasing(self.name)] = self.release
        worker.handlers[attaching(self.name)] = self.ask_attached
        if self._sets_malloc():
            allocator.keep_freed_memory()

    def teardown(self, worker: Worker) -> None:
        self._running.clear()
        self._answering.shutdown(wait=False)
        for handler in (self.name, *[of(self.name) for of in (abandoning, releasing, attaching)]):
            worker.handlers.pop(handler, None)
        if self._sets_malloc():
            allocator.restore()

    def _sets_malloc(self) -> bool:
        return self.roomy_malloc and not self._is_with_client()

    def _is_with_client(self) -> bool:
        """Whether this is the client's process, where messages share memory with its arrays."""
        return this_process() == self.client_process

    # ---- requests

    async def evaluate(
        self,
        call: str,
        work: bytes,
        point: Frames,
        parcels: Mapping[str, Frames] = NO_FRAMES,
        rows: Mapping[str, Frames] = NO_FRAMES,
        versions: Mapping[str, Version] = NO_VERSIONS,
        attached: Mapping[str, Frames] = NO_FRAMES,
    ) -> dict[str, Any]:
        """Returns the partial sums of this worker and those below it, as far as they are there when
        the call ends or is given up, or says why it cannot.

        ``parcels`` are keyed by their digests, ``rows`` by the workers' addresses, ``versions`` by
        the names of replicated arrays, ``attached`` (``News``) by layouts of attached ones.
        """
        self._running.add(call)
        self._log.wake()
        try:
            message = {"call": call, "point": point, "parcels": parcels, "rows": rows}
            message |= {"versions": versions, "attached": attached}
            result = await self._evaluate(pickle.loads(work), message)
            return {"status": "OK", "result": frame_message(pack(result))}
        except CannotFinish as unfinished:
            return {"address": self._worker.address} | unfinished.reply
        except Exception as error:
            return failed(error).reply
        finally:
            self._running.discard(call)

    async def abandon(self, call: str) -> None:
        """The call is given up: begins no more blocks of it."""
        self._running.discard(call)
        self._attached.drop(call)

    async def release(self, replica: str) -> None:
        """The array of this name is gone."""
        self._replicas.forget(replica)

    async def ask_attached(self, question: Frames) -> dict[str, Any]:
        """Calls a method of ``AttachedBlocks``."""
        method, *args = unpack(question)
        try:
            found = await in_thread(self._answering, getattr(self._attached, method), *args)
            return {"status": "OK", "result": frame_message(pack(found))}
        except Exception as error:
            return failed(error).reply

    async def _evaluate(self, work: Work, message: Mapping[str, Any]) -> Result:
        for layout, news in message["attached"].items():
            told = unpack(news)
            self._running.difference_update(told.dropped)  # a call that came after its abandonment
            await self._in_thread(self._attached.receive, layout, told)
        if message["call"] not in self._running:
            raise CannotFinish("abandoned")
        jobs = self._jobs(work, message)
        below = [self._ask(child, message) for child in work.children]
        own, *others = await all_or_first_error([self._own(message["call"], jobs), *below])
        return await self._in_thread(merge_results, work.jobs, own, others) if others else own

    async def _ask(self, child: Work, message: Mapping[str, Any]) -> Frames:
        """The result of a worker below, which also gets the rows of those below it."""
        rows = {a: message["rows"][a] for a in addresses(child) if a in message["rows"]}
        try:
            return await call_worker(
                self._worker.rpc,
                child.address,
                self.name,
                call=message["call"],
                work=pickle.dumps(child),
                point=frame_message(message["point"]),
                parcels=frame_messages(message["parcels"]),
                rows=frame_messages(rows),
                versions=frame_versions(message["versions"]),
                attached=frame_messages(message["attached"]),
            )
        except CannotFinish as unfinished:
            if unfinished.is_the_models:
                raise
            nothing: list[dict] = [{} for _ in child.jobs]
            return pack(Result(nothing, nothing, {}, [unfinished.reply]))

    def _jobs(self, work: Work, message: Mapping[str, Any]) -> list[Job]:
        needed = [digest for job in work.jobs for digest in job.digests]
        parcels = message["parcels"]
        if parcels and self._is_with_client():
            parcels = {digest: copy_frames(frames) for digest, frames in parcels.items()}
        if self._parcels.receive(parcels, needed):
            raise CannotFinish("no parcels", address=self._worker.address)
        if not self._replicas.receive(message["versions"], self._is_with_client()):
            raise CannotFinish("no replicas", address=self._worker.address)
        values = Unopened(message["point"])
        sent = message["rows"].get(work.address)
        rows = NO_ROWS if sent is None else Unopened(sent)
        kept = self._parcels, self._replicas, self._attached
        jobs = [
            Job(job, n, values, rows, *kept, self._worker.state.nthreads)
            for n, job in enumerate(work.jobs)
        ]
        for job in jobs:
            if message["attached"] and not job.has_attached():
                raise CannotFinish("no attached", address=self._worker.address)
        return jobs

    async def _own(self, call: str, jobs: Sequence[Job]) -> Result:
        """The partial sums of the blocks that this worker holds, and the seconds of each block."""
        units = deque([unit for job in jobs for unit in job.units()])
        start = time.time()
        lanes = min(self._worker.state.nthreads, len(units))
        await all_or_first_error([self._lane(call, units) for _ in range(lanes)])
        is_done = all([job.is_done for job in jobs])
        if is_done:
            self._log.add([job for job in jobs if job.seconds], start, time.time())
        for job in jobs:
            if job.uses_attached:
                if call not in self._running:  # nobody would drop what is kept
                    raise CannotFinish("abandoned")
                job.keep_attached(call)
        sums, seconds = [job.subtrees.sums() for job in jobs], [job.seconds for job in jobs]
        item_cotangents = [job.item_cotangents for job in jobs]
        failures = [] if is_done else [{"status": "given up", "address": self._worker.address}]
        return Result(sums, item_cotangents, {self._worker.address: seconds}, failures)

    async def _lane(self, call: str, units: deque[tuple[Job, Sequence[int]]]) -> None:
        """Evaluates one unit after another in one thread of the pool.

        Items are taken here, not in the thread: a worker's data belong to its event loop.
        """
        while units and call in self._running:
            job, parts = units.popleft()
            data = self._held([job.keys(part) for part in parts])
            await self._in_thread(job.run, parts, data, call, self._running)

    def _held(self, parts: Sequence[Sequence[str]]) -> list[list[Any]]:
        """The blocks of each part, by their keys."""
        data = self._worker.data
        try:
            return [[data[key] for key in keys] for keys in parts]
        except KeyError:
            raise CannotFinish("no items", address=self._worker.address) from None

    def _in_thread(self, fun: Callable, *args: Any) -> Awaitable[Any]:
        return in_thread(self._worker.executor, fun, *args)


class EventLog:
    """Tells Dask's event log what the worker evaluates: once at least, at most twice a second."""

    def __init__(self, worker: Worker, running: Collection[str]):
        self._worker = worker
        self._running = running
        self._events: dict[str, dict[str, Any]] = {}
        self._is_awake = False
        self._last = -math.inf

    def wake(self) -> None:
        """Logs that a call is running, unless something was logged lately."""
        if self._is_awake:
            return
        self._is_awake = True
        asyncio.get_running_loop().call_later(EVENTS_EVERY, self._tell)
        if clock.seconds() - self._last > ALIVE_EVERY:
            self._say(action="evaluating")

    def add(self, jobs: Sequence[Job], start: float, stop: float) -> None:
        for job in jobs:
            new = {"start": start, "calls": 0, "blocks": 0, "seconds": 0.0}
            event = self._events.setdefault(job.name, new)
            event["calls"] += 1
            event["blocks"] += len(job.seconds)
            event["seconds"] += sum(job.seconds)
            event["stop"] = stop
            event |= job.costs  # of the latest call

    def _tell(self) -> None:
        events, self._events = self._events, {}
        for model, event in events.items():
            self._say(action="evaluate", model=model, **event)
        self._is_awake = False
        if self._running:
            self.wake()

    def _say(self, **event: Any) -> None:
        self._worker.log_event(TOPIC, {"worker": self._worker.address, **event})
        self._last = clock.seconds()


async def call_worker(pool: Any, address: str, handler: str, **message: Any) -> Frames:
    """A worker's result; CannotFinish if it is lost, has no such handler, or cannot finish.

    What is empty is left out: Dask measures each container of a message.
    """
    sent = {name: part for name, part in message.items() if part}
    try:
        reply = await getattr(pool(address), handler)(**sent)
    except OSError as error:
        raise CannotFinish("lost", address=address, error=repr(error)) from None
    if not reply:
        raise CannotFinish("no plugin", address=address)
    if reply["status"] != "OK":
        raise CannotFinish(**reply)
    return reply["result"]


def this_process() -> tuple[str, int]:
    return socket.gethostname(), os.getpid()
