"""Presence: shows Dask's scheduler which workers a client calls directly.

The scheduler does not see these calls: an idle timeout or adaptive scaling would close the cluster
in the middle of a fit. A scheduler plugin protects workers that logged an event lately.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

from distributed import Scheduler
from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin

from daskgrad.tasks.observers import TOPIC
from daskgrad.values import clock

LINGER = 10.0  # seconds after its last event for which a worker counts as in use
GRACE = 2.0  # seconds after which a client that has left loses its plugins on the workers


@dataclass(eq=False)
class PresencePlugin(SchedulerPlugin):
    """Keeps Dask from closing workers that evaluate; leaves with its ``client``."""

    idempotent = True

    name: str
    client: str

    async def start(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._called: dict[str, float] = {}  # when a worker last said that it evaluates

    def log_event(self, topic: str, msg: Any) -> None:
        if topic == TOPIC and isinstance(msg, dict) and "worker" in msg:
            self._called[msg["worker"]] = clock.seconds()
            self._scheduler.idle_since = None

    def valid_workers_downscaling(self, scheduler: Scheduler, workers: list[Any]) -> list[Any]:
        """The workers that Dask may close: those that are not in use."""
        since = clock.seconds() - LINGER
        return [ws for ws in workers if self._called.get(ws.address, since) <= since]

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: Any) -> None:
        self._called.pop(worker, None)

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """Removes the plugins here and on the workers, if the client could not."""
        if client == self.client and self.name in scheduler.plugins:
            scheduler.remove_plugin(name=self.name)
            asyncio.get_running_loop().call_later(GRACE, self._leave_workers, scheduler)

    def _leave_workers(self, scheduler: Scheduler) -> None:
        """Runs later: a cluster that closes with its client removes the plugins itself."""
        if scheduler.status == Status.running:
            removal = scheduler.unregister_worker_plugin(comm=None, name=self.name)
            self._removal = asyncio.ensure_future(removal)
