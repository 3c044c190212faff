"""The client's part of the resident evaluator: its plugin on the workers, and who they are."""

import contextlib
import threading
import time
import uuid
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import dask
import numpy as np
from distributed import Client

from daskgrad.resident.holdings import Holdings, workers_of
from daskgrad.resident.plugin import EvaluatorPlugin, this_process
from daskgrad.resident.presence import PresencePlugin

LOOK_EVERY = 1.0  # seconds between two looks at which workers there are


class Evaluator:
    """Evaluates blocks on one cluster; there is one for every client."""

    def __init__(self, client: Client):
        self._client = weakref.ref(client)
        self.name = f"daskgrad-{uuid.uuid4().hex}"
        self._users: weakref.WeakSet[Holdings] = weakref.WeakSet()
        self._known: dict[str, set[str]] = {}  # by worker, the parcels that it has
        self._workers: dict[str, int] = {}
        self._looked = -np.inf
        self._is_registered = False
        self._lock = threading.RLock()

    @property
    def client(self) -> Client:
        client = self._client()
        if client is None or client.status not in ("running", "connecting"):
            raise RuntimeError(
                "the client that placed the items is closed; place them again with another one"
            )
        return client

    # ---- before and after a call

    def prepare(self, holdings: Sequence[Holdings]) -> None:
        """Sees to it that the plugin is there, and the blocks are on the workers there are."""
        with self._lock:
            self._users.update(holdings)
            self._register()
            if time.monotonic() - self._looked > LOOK_EVERY:
                self._look()
            self._settle([held for held in holdings if held.workers != self._workers])

    def look_again(self, holdings: Sequence[Holdings], reply: dict[str, Any]) -> None:
        """After a failed call: finds out who is there, and places again what was lost."""
        with self._lock:
            if reply["status"] == "no parcels":
                self._known.pop(reply["address"], None)
            if reply["status"] == "no evaluator":
                self._is_registered = False
                self._register()
            self._look()
            self._settle(holdings)

    def known(self, address: str) -> set[str]:
        """The digests of the parcels that a worker has."""
        return self._known.setdefault(address, set())

    def is_there(self, address: str) -> bool:
        return address in self.client.ncores()

    def leave(self, holdings: Holdings) -> None:
        """These blocks are not evaluated any more; the last ones take the plugin with them."""
        with self._lock:
            self._users.discard(holdings)
            if self._users or not self._is_registered:
                return
            self._is_registered = False
            self._known = {}
        with contextlib.suppress(RuntimeError, OSError):  # the cluster may be gone already
            self.client.unregister_worker_plugin(self.name)
            self.client.unregister_scheduler_plugin(self.name)

    def _settle(self, holdings: Iterable[Holdings]) -> None:
        for held in dict.fromkeys(holdings):
            held.settle(self._workers)

    def _look(self) -> None:
        self._workers = workers_of(self.client)
        self._looked = time.monotonic()
        self._known = {a: known for a, known in self._known.items() if a in self._workers}

    def _register(self) -> None:
        if not self._is_registered:
            roomy_malloc = dask.config.get("daskgrad.worker.malloc", True)
            plugin = EvaluatorPlugin(self.name, roomy_malloc, this_process())
            self.client.register_plugin(plugin, name=self.name)
            self.client.register_plugin(PresencePlugin(self.name, self.client.id), name=self.name)
            self._is_registered = True


evaluators: weakref.WeakKeyDictionary[Client, Evaluator] = weakref.WeakKeyDictionary()


def evaluator_of(client: Client) -> Evaluator:
    found = evaluators.get(client)
    return evaluators.setdefault(client, Evaluator(client)) if found is None else found
