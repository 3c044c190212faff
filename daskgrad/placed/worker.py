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
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from distributed import Worker
from distributed.diagnostics.plugin import WorkerPlugin

from daskgrad.autodiff.values import clock
from daskgrad.autodiff.values.carriers import drop_oldest
from daskgrad.placed.messages import (
    ABANDON,
    ASK,
    FIXED,
    POINT,
    ROWS,
    Frames,
    SentEntries,
    Unopened,
    Work,
    addresses,
    copy_frames,
    frame_entries,
    frame_message,
    pack,
    unpack,
)
from daskgrad.placed.worker_store import Store
from daskgrad.placed.worker_sums import (
    CannotFinish,
    Job,
    WorkerResult,
    failed,
    merge_results,
)
from daskgrad.tasks import allocator
from daskgrad.tasks.observers import TOPIC
from daskgrad.tasks.waiting import all_or_first_error

EVENTS_EVERY = 0.5  # seconds between two events
ALIVE_EVERY = 1.0  # seconds between two signs of life while a long call runs
REMEMBERED = 1024  # attempts that are over

Attempt = tuple[str, int]  # of a call, with its number; ``WHOLE``: all attempts
WHOLE = 0

NO_ROWS = Unopened(pack(()))
NO_VERSIONS: Mapping[str, int] = {}


@dataclass(eq=False)
class SumsPlugin(WorkerPlugin):
    """Evaluates sums for the connection of the same ``name``."""

    idempotent = True

    name: str
    roomy_malloc: bool
    client_process: tuple[str, int]

    def setup(self, worker: Worker) -> None:
        self._worker = worker
        self._store = Store()
        # A thread that no task holds, since tasks wait for answers.
        self._answering = ThreadPoolExecutor(1, thread_name_prefix="daskgrad-attached")
        self._running: set[Attempt] = set()
        self._over: dict[Attempt, None] = {}  # the latest, whose requests may still come
        self._log = EventLog(worker, self._running)
        worker.handlers[self.name] = self.evaluate
        worker.handlers[self.name + ABANDON] = self.abandon
        worker.handlers[self.name + ASK] = self.ask
        if self._sets_malloc():
            allocator.keep_freed_memory(worker.memory_manager.memory_limit)

    def teardown(self, worker: Worker) -> None:
        self._running.clear()
        self._answering.shutdown(wait=False)
        for ending in ("", ABANDON, ASK):
            worker.handlers.pop(self.name + ending, None)
        if self._sets_malloc():
            allocator.restore()

    def _sets_malloc(self) -> bool:
        return self.roomy_malloc and not self._is_with_client()

    def _is_with_client(self) -> bool:
        """Whether messages share memory with the client's arrays."""
        return this_process() == self.client_process

    # ---- requests

    async def evaluate(
        self,
        call: str,
        work: bytes,
        sent: SentEntries,
        number: int = WHOLE,
        versions: Mapping[str, int] = NO_VERSIONS,
        dropped: Collection[str] = (),
    ) -> dict[str, Any]:
        """Returns the partial sums of this worker and the workers below it, as far as they have
        come when this attempt of the call, by its ``number``, ends or is given up; or the reason
        why there are none.

        ``sent`` are new entries; ``versions`` are the versions of the arrays that the call uses,
        ``dropped`` the calls that nobody wants any more.
        """
        attempt = call, number
        if not {attempt, (call, WHOLE)} & self._over.keys():
            self._running.add(attempt)
        self._log.wake()
        try:
            result = await self._evaluate(attempt, pickle.loads(work), sent, versions, dropped)
            return {"status": "OK", "result": frame_message(pack(result))}
        except CannotFinish as unfinished:
            return {"address": self._worker.address} | unfinished.reply
        except Exception as error:
            return failed(error).reply
        finally:
            self._running.discard(attempt)

    async def abandon(self, call: str, number: int = WHOLE, gone: Sequence[str] = ()) -> None:
        """Begins no more blocks of an attempt, or of a call that nobody wants, and drops what is
        kept of it; waits for no worker that is gone: Dask would try for half a minute to connect to
        it."""
        for address in gone:
            self._worker.rpc.remove(address)
        is_whole = number == WHOLE
        self._running -= {a for a in self._running if a[0] == call and (is_whole or a[1] == number)}
        self._over[call, number] = None
        drop_oldest(self._over, REMEMBERED)
        if is_whole:
            self._store.drop(call)

    async def ask(self, question: Frames) -> dict[str, Any]:
        """Calls a method of ``Store``."""
        method, *args = unpack(question)
        try:
            loop, answer = asyncio.get_running_loop(), getattr(self._store, method)
            result = await loop.run_in_executor(self._answering, answer, *args)
            return {"status": "OK", "result": frame_message(pack(result))}
        except Exception as error:
            return failed(error).reply

    async def _evaluate(
        self,
        attempt: Attempt,
        work: Work,
        sent: SentEntries,
        versions: Mapping[str, int],
        dropped: Collection[str],
    ) -> WorkerResult:
        of_all, local = [dict(sent.get(address, {})) for address in ("", work.address)]
        point, rows = Unopened(of_all.pop(POINT)), local.pop(ROWS, None)
        entries = [*of_all.items(), *local.items()]
        if entries and self._is_with_client():
            entries = [(name, copy_frames(frames)) for name, frames in entries]
        if updates := [entry for entry in entries if entry[0] in versions]:
            await self._in_thread(self._store.update, versions, updates)
        for abandoned in dropped:  # a call may come after its abandonment
            await self.abandon(abandoned)
        if attempt not in self._running:
            raise CannotFinish("abandoned")
        parcels = {name: frames for name, frames in entries if name not in versions}
        needed = {name: versions.get(name, FIXED) for job in work.jobs for name in job.needed}
        if missing := self._store.missing(needed, parcels):
            raise CannotFinish("missing", address=self._worker.address, names=missing)
        items = NO_ROWS if rows is None else Unopened(rows)
        threads = self._worker.state.nthreads
        jobs = [Job(job, n, point, items, self._store, threads) for n, job in enumerate(work.jobs)]
        call, number = attempt
        message = {"call": call, "number": number, "versions": versions, "dropped": dropped}
        below = [self._ask(child, sent, message) for child in work.children]
        result, *remote = await all_or_first_error([self._evaluate_blocks(attempt, jobs), *below])
        return await self._in_thread(merge_results, work.jobs, result, remote) if remote else result

    async def _ask(self, child: Work, sent: SentEntries, message: Mapping[str, Any]) -> Frames:
        """The result of a worker below, which also gets the entries for workers below it."""
        try:
            return await call_worker(
                self._worker.rpc,
                child.address,
                self.name,
                work=pickle.dumps(child),
                sent=frame_entries(sent, addresses(child)),
                **message,
            )
        except CannotFinish as unfinished:
            if unfinished.is_the_models:
                raise
            nothing: list[dict] = [{} for _ in child.jobs]
            return pack(WorkerResult(nothing, nothing, {}, [unfinished.reply]))

    async def _evaluate_blocks(self, attempt: Attempt, jobs: Sequence[Job]) -> WorkerResult:
        """The partial sums of this worker's blocks, and the seconds of each block."""
        units = deque([unit for job in jobs for unit in job.units()])
        start = time.time()
        lanes = min(self._worker.state.nthreads, len(units))
        await all_or_first_error([self._lane(attempt, units) for _ in range(lanes)])
        is_done = all([job.is_done for job in jobs])
        if is_done:
            self._log.add([job for job in jobs if job.seconds], start, time.time())
        call, _ = attempt
        for job in jobs:
            if job.attached:
                if (call, WHOLE) in self._over:  # nobody would drop the cotangents
                    raise CannotFinish("abandoned")
                job.keep_attached(call)
        sums, seconds = [job.subtrees.sums() for job in jobs], [job.seconds for job in jobs]
        item_cotangents = [job.item_cotangents for job in jobs]
        failures = [] if is_done else [{"status": "given up", "address": self._worker.address}]
        return WorkerResult(sums, item_cotangents, {self._worker.address: seconds}, failures)

    async def _lane(self, attempt: Attempt, units: deque[tuple[Job, Sequence[int]]]) -> None:
        """Evaluates one unit after another in one thread of the pool; takes items out of the
        worker's data here, since these belong to the event loop."""
        while units and attempt in self._running:
            job, parts = units.popleft()
            data = self._held([job.keys(part) for part in parts])
            await self._in_thread(job.run, parts, data, attempt, self._running)

    def _held(self, parts: Sequence[Sequence[str]]) -> list[list[Any]]:
        """The blocks of each part, by their keys."""
        data: Any = self._worker.data
        memory = getattr(data, "memory", data)  # measures no reads: a third of the time
        try:
            return [[(memory if key in memory else data)[key] for key in keys] for keys in parts]
        except KeyError:
            raise CannotFinish("no items", address=self._worker.address) from None

    def _in_thread(self, fun: Callable, *args: Any) -> Awaitable[Any]:
        return asyncio.get_running_loop().run_in_executor(self._worker.executor, fun, *args)


class EventLog:
    """Tells Dask's event log of evaluations, at most twice a second."""

    def __init__(self, worker: Worker, running: Collection[Attempt]):
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

    Empty parts are left out: Dask measures each container of a message.
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
