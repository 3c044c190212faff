"""Plugins: how they leave a cluster, or what is left of one."""

import contextlib
from functools import partial
from typing import Any

from distributed import Client, Scheduler

from daskgrad.tasks.waiting import answer


def take_away(client: Client, name: str) -> None:
    """Removes a client's plugins of this name from scheduler and workers, unless they are gone."""
    with contextlib.suppress(OSError, RuntimeError):  # so is the cluster
        ask: Any = partial(client.run_on_scheduler, remove_plugins, name)
        answer(client, ask, "the plugins were taken away")


async def remove_plugins(name: str, dask_scheduler: Scheduler) -> None:
    """Runs on the scheduler; Dask's own functions raise for plugins that are gone."""
    if name in dask_scheduler.plugins:
        dask_scheduler.remove_plugin(name=name)
    if name in dask_scheduler.worker_plugins:
        await dask_scheduler.unregister_worker_plugin(comm=None, name=name)
