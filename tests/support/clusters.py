"""Clusters that tests start for themselves, kill the workers of, and shut down."""

import contextlib
import os
import signal
import threading
import time

import dask
from distributed import Client, LocalCluster
from probes import lines

CALM = {  # a test that kills workers must not lose the cluster, nor wait for ever
    "distributed.deploy.lost-worker-timeout": "1h",
    "distributed.scheduler.no-workers-timeout": "60s",
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


def kill_when(path, sign, after=0.0):
    """Kills the worker that first writes a line that starts with ``sign``."""

    def watch():
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for line in lines(path):
                if line.startswith(sign):
                    time.sleep(after)
                    return os.kill(int(line.split()[-1]), signal.SIGKILL)
            time.sleep(0.005)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def kill(client, address):
    """Kills a worker and returns when the scheduler knows."""
    pid = client.run(os.getpid, workers=[address])[address]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: address not in client.ncores())


def wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def tasks_run(client):
    """How many tasks the scheduler has had run; blocks that are moved are none."""

    def count(dask_scheduler):
        prefixes = dask_scheduler.task_prefixes.values()
        return sum([prefix.state_counts["processing"] for prefix in prefixes])

    return client.run_on_scheduler(count)
