"""Connection: a client's plugins on its cluster, and its book of the entries that workers have."""

import asyncio
import concurrent.futures
import contextlib
import logging
import math
import threading
import time
import uuid
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import dask
import numpy as np
from dask.utils import parse_timedelta
from distributed import Client, Scheduler
from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin

from daskgrad.autodiff.values import clock
from daskgrad.autodiff.values.carriers import kept_or_made
from daskgrad.placed.messages import ASK, FIXED, PARCELS, Frames, frame_message, pack, unpack
from daskgrad.placed.spread import Holdings, Spread
from daskgrad.placed.worker import EVENTS_EVERY, SumsPlugin, call_worker, this_process
from daskgrad.placed.worker_sums import CannotFinish
from daskgrad.tasks import observers
from daskgrad.tasks.clients import CONNECTED
from daskgrad.tasks.observers import TOPIC
from daskgrad.tasks.plugins import remove_plugins, take_away
from daskgrad.tasks.settings import limit, setting
from daskgrad.tasks.supervision import present_workers, workers_of
from daskgrad.tasks.waiting import LateError, answer, in_loop

# -------------------------------------------------------------------------------------------------
# Presence: shows Dask's scheduler which workers a client calls directly.
#
# The scheduler does not see these calls: an idle timeout or adaptive scaling would close the
# cluster in the middle of a fit, and never let it grow. A scheduler plugin protects workers that
# logged an event lately, and counts their calls as tasks of as many seconds.

LINGER = 10.0  # seconds after its last event for which a worker counts as in use
GRACE = 2.0  # seconds after which a client that has left loses its plugins on the workers


@dataclass(eq=False)
class PresencePlugin(SchedulerPlugin):
    """Has Dask keep and start workers for direct calls; leaves with its ``client``."""

    idempotent = True

    name: str
    client: str

    async def start(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._called: dict[str, float] = {}  # when a worker last said that it evaluates
        # By worker and model: when the last call ended, its seconds, and its blocks.
        self._calls: dict[str, dict[str, tuple[float, float, float]]] = {}
        scheduler.handlers["adaptive_target"] = self.adaptive_target

    def log_event(self, topic: str, msg: Any) -> None:
        if topic == TOPIC and isinstance(msg, dict) and "worker" in msg:
            now = self._called[msg["worker"]] = clock.seconds()
            self._scheduler.idle_since = None
            if "seconds" in msg:
                calls = self._calls.get(msg["worker"], {})
                calls = {model: call for model, call in calls.items() if call[0] > now - LINGER}
                seconds, blocks = msg["seconds"] / msg["calls"], msg["blocks"] / msg["calls"]
                self._calls[msg["worker"]] = calls | {msg["model"]: (now, seconds, blocks)}

    def threads(self, duration: float) -> int:
        """How many threads would do the work of a call in this time."""
        since = clock.seconds() - LINGER
        used = [worker for worker, called in self._called.items() if called > since]
        calls = [call for worker in used for call in self._calls.get(worker, {}).values()]
        seconds, blocks = [sum([call[n] for call in calls]) for n in (1, 2)]
        return math.ceil(min(seconds / duration, blocks))

    def valid_workers_downscaling(self, scheduler: Scheduler, workers: list[Any]) -> list[Any]:
        """The workers that Dask may close: they are not in use."""
        since = clock.seconds() - LINGER
        return [ws for ws in workers if self._called.get(ws.address, since) <= since]

    def adaptive_target(self, target_duration: Any = None) -> int:
        """How many workers an adaptive cluster should have: Dask's number, or by Dask's rule the
        number for the calls of all clients, if that is larger."""
        scheduler = self._scheduler
        target = scheduler.adaptive_target(target_duration)
        duration = target_duration or dask.config.get("distributed.adaptive.target-duration")
        plugins = [p for p in scheduler.plugins.values() if isinstance(p, PresencePlugin)]
        threads = sum([plugin.threads(parse_timedelta(duration)) for plugin in plugins])
        present = [ws.nthreads for ws in scheduler.workers.values()]
        return max(target, math.ceil(threads * len(present) / max(sum(present), 1)))

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: Any) -> None:
        self._called.pop(worker, None)
        self._calls.pop(worker, None)

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """Removes the plugins here and on the workers, if the client could not."""
        if client == self.client and self.name in scheduler.plugins:
            scheduler.remove_plugin(name=self.name)
            self._leaving = asyncio.ensure_future(self._leave_workers(scheduler))

    async def _leave_workers(self, scheduler: Scheduler) -> None:
        """Removes the plugins on the workers, unless the cluster closes with its client and removes
        them itself; while some workers close, it may."""
        await asyncio.sleep(GRACE)
        while scheduler.status == Status.running:
            if len(scheduler.running) == len(scheduler.workers):
                await remove_plugins(self.name, scheduler)
                return
            await asyncio.sleep(GRACE)


# -------------------------------------------------------------------------------------- connection

logger = logging.getLogger("daskgrad")

ATTEMPTS = 5  # to register a plugin while workers come and go
LOOK_EVERY = 1.0  # seconds between two looks at which workers there are
SPREADS = 64  # remembered, of sums over items that are not placed


class Connection:
    """One client and the workers that it calls."""

    def __init__(self, client: Client):
        self._client = weakref.ref(client)
        self.name = f"daskgrad-{uuid.uuid4().hex}"
        self._users: weakref.WeakSet[Holdings] = weakref.WeakSet()
        self._watched: weakref.WeakSet[Any] = weakref.WeakSet()
        self._spreads: dict[Any, Spread] = {}
        # By worker and name, the version that it has; None: it may have any version, or none.
        self._book: dict[str, dict[str, int | None]] = {}
        self._workers: dict[str, int] = {}
        self._looked = -np.inf
        self._is_registered = False
        self._under_way: dict[concurrent.futures.Future, str] = {}  # messages, to which worker
        self._lock = threading.RLock()

    @property
    def client(self) -> Client:
        client = self._client()
        if client is None or client.status not in CONNECTED:
            raise RuntimeError(
                "the client that placed the items is closed; place them again with another one"
            )
        return client

    def spread(self, name: str, sizes: Sequence[int]) -> Spread:
        """The spread of a sum over items that no worker holds, by its model and its blocks."""
        key = (name, len(sizes), sizes[0], sizes[-1])
        with self._lock:
            return kept_or_made(self._spreads, key, lambda: Spread(sizes), SPREADS)

    # ---- before and after a call

    def prepare(self, spreads: Sequence[Spread]) -> None:
        """Registers the plugins, and spreads the blocks over the workers, unless that is done."""
        with self._lock:
            for spread in spreads:
                spread.require_open()
                if isinstance(spread, Holdings):
                    self._users.add(spread)
            self.register()
            is_late = clock.seconds() - self._looked > LOOK_EVERY
            if is_late or any([spread.workers != self._workers for spread in spreads]):
                self._look()
            self._settle([spread for spread in spreads if spread.workers != self._workers])

    def look_again(self, spreads: Sequence[Spread], replies: Sequence[dict[str, Any]]) -> None:
        """After a failed call: asks which workers there are, and places lost items again."""
        with self._lock:
            for spread in spreads:
                spread.require_open()
            for reply in replies:
                if reply["status"] == "missing":
                    for name in reply["names"]:
                        self._book.get(reply["address"], {}).pop(name, None)
                if reply["status"] == "no plugin":
                    self._is_registered = False
            self.register()
            self._look()
            self._settle(spreads)

    def version(self, address: str, name: str) -> int | None:
        """The version that a worker has under a name; None if it may have none."""
        return self._book.get(address, {}).get(name)

    def note(self, address: str, versions: Mapping[str, int | None]) -> None:
        """Notes that a worker has these versions now, and may have dropped its oldest parcels."""
        book = self._book.setdefault(address, {})
        for name, version in versions.items():
            book.pop(name, None)
            book[name] = version
        if len(book) > PARCELS:
            parcels = [name for name, version in list(book.items()) if version == FIXED]
            needed = sum([version == FIXED for version in versions.values()])
            for name in parcels[: -max(PARCELS, needed)]:
                book.pop(name, None)

    def release_with(self, array: Any) -> None:
        """Has the workers drop their copies when a replicated array is gone."""
        if array not in self._watched:
            self._watched.add(array)
            weakref.finalize(array, self._release, array.name).atexit = False

    def _release(self, name: str) -> None:
        book = list(self._book.items())
        self.tell([address for address, names in book if name in names], "forget", name)

    def tell(self, addresses: Collection[str], method: str, name: str) -> None:
        """Has workers drop something, by a method of ``Store``; waits for nobody.

        It may run in any thread, since the garbage collector calls it.
        """
        for address in addresses:
            self._book.get(address, {}).pop(name, None)
        self.send(addresses, self.name + ASK, question=pack((method, name)))

    def send(self, addresses: Iterable[str], handler: str, **message: Any) -> None:
        """Calls a handler of workers, whether they are there or not; waits for nobody."""
        client = self._client()
        if client is None or client.status not in CONNECTED or not self._is_registered:
            return
        for address in addresses:
            call = in_loop(client, partial(call_worker, client.rpc, address, handler, **message))
            self._under_way[call] = address
            call.add_done_callback(self._under_way.pop)

    def _arrive(self) -> None:
        """Waits for messages to workers that are there: without the plugins they are errors."""
        calls = list(self._under_way.items())
        gone = self.gone([address for _, address in calls]) if calls else ()
        present = [call for call, address in calls if address not in gone]
        concurrent.futures.wait(present, limit("answers"))

    def ask(self, addresses: Collection[str], purpose: str, *question: Any) -> dict[str, Any]:
        """The results of a method of ``Store``, by address, of the workers that can answer."""
        client = self._client()
        if client is None or client.status not in CONNECTED or not addresses:
            return {}
        frames = frame_message(pack(question))
        present: list[str] = []

        async def ask_one(address: str) -> Frames | None:
            try:
                return await call_worker(client.rpc, address, self.name + ASK, question=frames)
            except CannotFinish as unfinished:  # it is lost, or cannot answer
                if cause := unfinished.reply.get("exception_text"):
                    logger.warning("%s: %s failed: %s", purpose, address, cause)
                return None

        async def ask_all() -> list[Frames | None]:
            return await asyncio.gather(*map(ask_one, present))

        def require_present() -> None:
            if self.gone(present):
                raise CannotFinish("lost")

        try:
            gone = self.gone(addresses)
            present += [address for address in addresses if address not in gone]
            answers = answer(client, ask_all, purpose, of="placing", look=require_present)
        except CannotFinish:
            return self.ask(present, purpose, *question)
        except OSError as error:  # the scheduler is gone, or the client's connection to it
            logger.warning("%s: nobody answered: %r", purpose, error)
            return {}
        pairs = zip(present, answers, strict=True)
        return {address: unpack(frames) for address, frames in pairs if frames is not None}

    def gone(self, addresses: Iterable[str]) -> list[str]:
        """The workers among these that the scheduler does not know any more."""
        present = present_workers(self.client)
        return [address for address in addresses if address not in present]

    def leave(self, holdings: Holdings) -> None:
        """Forgets blocks that nobody uses any more; removes the plugins after the last ones."""
        with self._lock:
            self._users.discard(holdings)
            if self._users or not self._is_registered:
                return
            self._is_registered = False
            self._book = {}
            with contextlib.suppress(RuntimeError, OSError):  # the cluster may be gone already
                client = self.client  # waits, before another thread registers them again
                self._arrive()
                take_away(client, self.name)

    def _settle(self, spreads: Iterable[Spread]) -> None:
        for spread in dict.fromkeys(spreads):
            spread.settle(self._workers)

    def _look(self) -> None:
        self._workers = workers_of(self.client)
        self._looked = clock.seconds()
        self._book = {a: names for a, names in self._book.items() if a in self._workers}

    def register(self) -> None:
        """Registers the plugins, unless that is done."""
        with self._lock:
            if not self._is_registered:
                self._send(SumsPlugin(self.name, setting("worker.malloc"), this_process()))
                self._send(PresencePlugin(self.name, self.client.id))
                self._is_registered = True

    def _send(self, plugin: Any) -> None:
        """Registers a plugin; tries again if a worker leaves meanwhile, since Dask does not."""
        client = self.client

        def register() -> Any:
            return client.register_plugin(plugin, name=self.name)

        for attempt in range(ATTEMPTS):
            try:
                return answer(client, register, "the plugins were sent to the cluster")
            except OSError as error:
                if isinstance(error, LateError) or attempt == ATTEMPTS - 1:
                    raise


connections: weakref.WeakKeyDictionary[Client, Connection] = weakref.WeakKeyDictionary()


def connection_of(client: Client) -> Connection:
    connection = connections.get(client)
    return connections.setdefault(client, Connection(client)) if connection is None else connection


def wait_for_events(client: Client) -> None:
    """Waits until directly called workers have logged their events."""
    if client in connections:
        time.sleep(2 * EVENTS_EVERY)


observers.late_events.append(wait_for_events)
