"""Clusters whose workers tests kill: one for many tests, or a test's own."""

import contextlib
import os
import signal
import socket
from collections import Counter

import dask
from distributed import Client, LocalCluster
from distributed.core import Status
from waiting import wait_until

CALM = {  # a test that kills workers must not lose the cluster, nor wait for ever
    "distributed.deploy.lost-worker-timeout": "1h",
    "distributed.scheduler.no-workers-timeout": "60s",
}
FRAIL = {
    **CALM,
    "distributed.scheduler.allowed-failures": 100,
    # Dask tries for 30 s by default to connect to a worker that is dead, and waits for it
    "distributed.comm.timeouts.connect": "5s",
    "daskgrad.wait.workers": "60s",  # so long may nannies take on a busy machine
}


@contextlib.contextmanager
def cluster(config=None, **options):
    """A cluster of this test's own, with two workers of one thread."""
    options = {"n_workers": 2, "threads_per_worker": 1, "host": "127.0.0.1", **options}
    options = {"dashboard_address": "127.0.0.1:0", **options}
    with (
        dask.config.set({**CALM, **(config or {})}),
        LocalCluster(**options) as local,
        Client(local) as client,
    ):
        yield client


@contextlib.contextmanager
def client_of(frail):
    """A client of the cluster that many tests kill the workers of, when it is whole."""
    with dask.config.set(FRAIL), Client(frail) as client:
        whole_again(client)
        yield client


ENDED = (Status.closed, Status.failed)


def whole_again(client, count=2):
    """Starts others for workers that are closed, closes those too many, and waits for the rest."""
    cluster = client.cluster

    def is_whole():
        ended = [name for name, nanny in [*cluster.workers.items()] if nanny.status in ENDED]
        for name in ended:  # else they would be kept; what is killed, a nanny starts again
            cluster.workers.pop(name)
            cluster.worker_spec.pop(name, None)
        if len(cluster.workers) < count:
            cluster.scale(max(count, len(cluster.worker_spec)))
        found = running(client)
        if too_many := found[count:]:  # one that just holds what no other can take stays: again
            client.retire_workers(too_many, close_workers=True)
        return len(found) == len(client.ncores()) == count

    wait_until(is_whole)


def running(client):
    infos = client.scheduler_info(n_workers=-1)["workers"]
    return [address for address, info in infos.items() if info["status"] == "running"]


@contextlib.contextmanager
def allowed_failures(client, count):
    """A task may kill so many workers, and no more."""

    def allow(dask_scheduler, count):
        before, dask_scheduler.allowed_failures = dask_scheduler.allowed_failures, count
        return before

    before = client.run_on_scheduler(allow, count=count)
    try:
        with dask.config.set({"distributed.scheduler.allowed-failures": count}):
            yield
    finally:
        client.run_on_scheduler(allow, count=before)


def kill(client, *addresses):
    """Kills workers and returns when the scheduler knows."""
    for pid in client.run(os.getpid, workers=list(addresses)).values():
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not {*addresses} & {*client.ncores()})


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def tasks_run(client):
    """How many tasks the scheduler has had run, by name; blocks that are moved are none."""

    def count(dask_scheduler):
        prefixes = dask_scheduler.task_prefixes.items()
        return Counter({name: prefix.state_counts["processing"] for name, prefix in prefixes})

    return client.run_on_scheduler(count)


def holder_of(client, stage):
    """The worker that has the only task whose key begins so."""
    (holder,) = {
        address
        for address, keys in client.has_what().items()
        if any(key[0].startswith(stage) for key in keys)
    }
    return holder
