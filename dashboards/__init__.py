"""Dashboards: live pages of gradients on Dask's dashboard, and reports; ``daskgrad.dashboards``.

``recorder`` keeps the records, ``feeding`` and ``local`` feed it, ``pages`` draws them. Nothing is
recorded, and Bokeh is not imported, unless somebody asks.
"""

import pickle
from typing import Any

from distributed import Client, Scheduler

from daskgrad.autodiff.values.descriptions import describe
from daskgrad.dashboards.feeding import NAME, CountingPlugin, RecorderPlugin
from daskgrad.dashboards.local import ClientObserver
from daskgrad.tasks.observers import of_clients

__all__ = ["mount"]


def mount(client: Client) -> str:
    """Adds the pages of gradients to a cluster's dashboard, and records from now on.

    Every page of the dashboard has an entry for the first one in its navigation. A second call
    changes nothing. It holds until the cluster closes. A scheduler that is started with ``dask
    scheduler --preload daskgrad.dashboards`` has the pages from the start; the call adds what this
    client runs itself.

    Returns
    -------
    str
        The address of the first page.

    Raises
    ------
    TypeError
        if ``client`` is not a ``distributed.Client``, or is an asynchronous one.
    ModuleNotFoundError
        if Bokeh is not installed where the scheduler runs (``pip install "daskgrad[dashboards]"``).
    RuntimeError
        if the scheduler has no dashboard.

    See Also
    --------
    daskgrad.report, daskgrad.progress
    """
    if not isinstance(client, Client):
        raise TypeError(f"dg.dashboards.mount takes a distributed.Client; found {describe(client)}")
    if client.asynchronous:
        raise TypeError(
            "dg.dashboards.mount takes no asynchronous client; call it in another thread with a "
            "client of its own, Client(address), or start the scheduler with "
            "--preload daskgrad.dashboards"
        )
    client.register_plugin(RecorderPlugin())
    client.register_plugin(CountingPlugin())
    of_clients.setdefault(client, ClientObserver(client))
    return client.dashboard_link.replace("/status", "/gradient")


async def dask_setup(scheduler: Scheduler) -> None:
    """Dask calls it when a scheduler preloads this module."""
    await scheduler.register_scheduler_plugin(RecorderPlugin(), name=NAME, idempotent=True)
    plugin: Any = pickle.dumps(CountingPlugin())
    await scheduler.register_worker_plugin(None, plugin=plugin, name=NAME, idempotent=True)
