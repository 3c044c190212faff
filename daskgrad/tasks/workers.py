"""Workers: lists the workers of a cluster that take work, and their threads."""

import time
from collections.abc import Callable
from typing import Any

from distributed import Client

from daskgrad.tasks.clients import address_of
from daskgrad.tasks.settings import limit, limit_named
from daskgrad.tasks.waiting import ask_scheduler
from daskgrad.values import clock


def workers_of(client: Client) -> dict[str, int]:
    """The workers of a cluster that take work, and their threads; waits a while for the first."""
    if workers := running_workers(client):
        return workers
    waiting = client.submit(int, pure=False)  # for a task an adaptive cluster starts a worker
    try:
        return first_workers(client)
    finally:
        waiting.release()


def first_workers(client: Client) -> dict[str, int]:
    deadline = clock.seconds() + limit("workers")
    while not (workers := running_workers(client)):
        if clock.seconds() > deadline:
            there = ", ".join(present_workers(client))
            found = f"all of them ({there}) are paused or closing" if there else "it has none"
            raise TimeoutError(
                f"no worker of {address_of(client)} has taken work for {limit_named('workers')}: "
                f"{found}; see the logs of the cluster's workers, or scale it up"
            )
        time.sleep(0.05)
    return workers


def running_workers(client: Client) -> dict[str, int]:
    return threads_of(client, lambda: client.scheduler.ncores_running())


def present_workers(client: Client) -> dict[str, int]:
    """All workers, and their threads; also those that are paused or closing."""
    return threads_of(client, lambda: client.scheduler.ncores())


def threads_of(client: Client, ask: Callable[[], Any]) -> dict[str, int]:
    found = ask_scheduler(client, ask, "for its workers")
    return {address: count for address, count in sorted(found.items()) if count}
