"""Presence: shows Dask's scheduler which workers a client calls directly.

The scheduler does not see these calls: an idle timeout or adaptive scaling would close the cluster
in the middle of a fit, and never let it grow. A scheduler plugin protects workers that logged an
event lately, and counts what they said to have done as tasks of as many seconds.
"""

import asyncio
import math
from dataclasses import dataclass
from typing import Any

import dask
from dask.utils import parse_timedelta
from distributed import Scheduler
from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin

from daskgrad.tasks.observers import TOPIC
from daskgrad.values import clock

LINGER = 10.0  # seconds after its last event for which a worker counts as in use
GRACE = 2.0  # seconds after which a client that has left loses its plugins on the workers


@dataclass(eq=False)
class PresencePlugin(SchedulerPlugin):
    """Has Dask keep and start workers for what is evaluated; leaves with its ``client``."""

    idempotent = True

    name: str
    client: str

    async def start(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._called: dict[str, float] = {}  # when a worker last said that it evaluates
        # By worker and model, of a call: when it ended, its seconds, and its blocks.
        self._calls: dict[str, dict[str, tuple[float, float, float]]] = {}
        scheduler.handlers["adaptive_target"] = self.adaptive_target

    def log_event(self, topic: str, msg: Any) -> None:
        if topic == TOPIC and isinstance(msg, dict) and "worker" in msg:
            now = self._called[msg["worker"]] = clock.seconds()
            self._scheduler.idle_since = None
            if "seconds" in msg:
                calls = self._calls.get(msg["worker"], {})
                calls = {model: call for model, call in calls.items() if call[0] > now - LINGER}
                each = msg["seconds"] / msg["calls"], msg["blocks"] / msg["calls"]
                self._calls[msg["worker"]] = calls | {msg["model"]: (now, *each)}

    def threads(self, duration: float) -> int:
        """How many would do what a call takes in this time."""
        since = clock.seconds() - LINGER
        used = [worker for worker, called in self._called.items() if called > since]
        calls = [call for worker in used for call in self._calls.get(worker, {}).values()]
        seconds, blocks = [sum([call[n] for call in calls]) for n in (1, 2)]
        return math.ceil(min(seconds / duration, blocks))

    def valid_workers_downscaling(self, scheduler: Scheduler, workers: list[Any]) -> list[Any]:
        """The workers that Dask may close: those that are not in use."""
        since = clock.seconds() - LINGER
        return [ws for ws in workers if self._called.get(ws.address, since) <= since]

    def adaptive_target(self, target_duration: Any = None) -> int:
        """How many workers a cluster that adapts should have: as many as Dask says, or as the calls
        of all clients need by its rule, if these are more."""
        scheduler = self._scheduler
        target = scheduler.adaptive_target(target_duration)
        duration = target_duration or dask.config.get("distributed.adaptive.target-duration")
        plugins = [each for each in scheduler.plugins.values() if isinstance(each, PresencePlugin)]
        threads = sum([each.threads(parse_timedelta(duration)) for each in plugins])
        there = [ws.nthreads for ws in scheduler.workers.values()]
        return max(target, math.ceil(threads * len(there) / max(sum(there), 1)))

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: Any) -> None:
        self._called.pop(worker, None)
        self._calls.pop(worker, None)

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """Removes the plugins here and on the workers, if the client could not."""
        if client == self.client and self.name in scheduler.plugins:
            scheduler.remove_plugin(name=self.name)
            asyncio.get_running_loop().call_later(GRACE, self._leave_workers, scheduler)

    def _leave_workers(self, scheduler: Scheduler) -> None:
        """Runs later: a cluster that closes with its client removes the plugins itself."""
        if scheduler.status != Status.running:
            return
        if len(scheduler.running) < len(scheduler.workers):  # some close: the cluster may, too
            asyncio.get_running_loop().call_later(GRACE, self._leave_workers, scheduler)
        else:
            removal = scheduler.unregister_worker_plugin(comm=None, name=self.name)
            self._removal = asyncio.ensure_future(removal)
