"""One fixture runs a test on every scheduler; clusters are started once."""

import gc
import multiprocessing
import signal
import sys
from concurrent.futures import ProcessPoolExecutor

import dask
import numpy as np
import pytest
from clusters import FRAIL, client_of
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context
from hypothesis import settings
from schedulers import SCHEDULERS, use_scheduler
from waiting import SLOW, Clock, Gate

settings.register_profile("ci", derandomize=True, deadline=None, max_examples=25)
settings.load_profile("ci")

dask.config.set(  # idle clusters take a quarter of two cores otherwise
    {
        "distributed.worker.multiprocessing-method": "forkserver",  # spawned ones import all anew
        "distributed.worker.profile.enabled": False,
        "distributed.worker.memory.monitor-interval": "1s",
        "distributed.admin.tick.interval": "1s",
        "distributed.admin.system-monitor.interval": "10s",
    }
)

get_mp_context().set_forkserver_preload(["distributed", "daskgrad", "pandas"])

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # pytest was started in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config, items):
    for item in items if SLOW != 1 else ():
        marker = item.get_closest_marker("timeout")
        seconds = marker.args[0] if marker else float(config.getini("timeout"))
        item.add_marker(pytest.mark.timeout(seconds * SLOW), append=False)


def pytest_collection_finish():
    """Modules and tests stay; whoever looks for garbage need not look at them."""
    gc.collect()
    gc.freeze()


TWO_WORKERS = {
    "n_workers": 2,
    "threads_per_worker": 1,
    "host": "127.0.0.1",
    "dashboard_address": "127.0.0.1:0",
}


@pytest.fixture
def random():
    return np.random.default_rng(0)


@pytest.fixture
def clock(monkeypatch):
    """The package's clock in this process, which stands still until the test moves it."""
    clock = Clock()
    clock.replace(monkeypatch)
    return clock


@pytest.fixture
def gate(tmp_path):
    gate = Gate(tmp_path / "gate")
    yield gate
    gate.open()  # where the test has failed, models wait


@pytest.fixture
def log(tmp_path):
    """A file that models in any process can write lines to."""
    path = tmp_path / "log"
    path.touch()
    return path


@pytest.fixture
def quick_switches():
    """Python's threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(autouse=True, scope="module")
def on_schedulers(request):
    """Small evaluations run on Dask's schedulers, too, except where a module is about others."""
    if request.module.__name__ in ("test_in_line", "test_resident", "test_resident_cluster"):
        yield
    else:
        with dask.config.set({"daskgrad.inline.seconds": 0}):
            yield


@pytest.fixture(scope="session")
def pool():
    """Two processes for Dask's process scheduler, which would start new ones for every call."""
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("forkserver")) as executor:
        yield executor


@pytest.fixture(scope="session")
def shared_cluster():
    """Two workers with a thread each, for tests that leave them as they are."""
    with LocalCluster(**TWO_WORKERS) as cluster:
        yield cluster


@pytest.fixture
def client(shared_cluster):
    """A client of the shared cluster."""
    with Client(shared_cluster) as client:
        yield client


@pytest.fixture(scope="session")
def frail_cluster():
    """The same, for tests that kill, retire and restart the workers."""
    with dask.config.set(FRAIL):
        cluster = LocalCluster(**TWO_WORKERS)
    with cluster:
        yield cluster


@pytest.fixture
def frail(frail_cluster):
    """A client of the cluster whose workers may be killed, with two of them."""
    with client_of(frail_cluster) as client:
        yield client


@pytest.fixture(params=SCHEDULERS)
def scheduler(request):
    """Runs the test on every scheduler in turn."""
    with use_scheduler(request.param, request):
        yield request.param


@pytest.fixture
def synchronous(request):
    """Runs a test in this thread, unless it names a scheduler or a client. Objectives are graphs:
    a function may do anything, and programs are for schedulers that are known by name."""
    if {"scheduler", "client", "every_scheduler"} & set(request.fixturenames):
        yield
    else:
        with dask.config.set(scheduler=dask.get):
            yield


@pytest.fixture
def every_scheduler(request):
    """A function that calls another one on every scheduler, and returns the results by name."""

    def on_every_scheduler(compute):
        results = {}
        for name in SCHEDULERS:
            if name == "cluster":
                results[name] = on_cluster(request, compute)
            else:
                with use_scheduler(name, request):
                    results[name] = compute()
        return results

    return on_every_scheduler


def on_cluster(request, compute):
    with Client(request.getfixturevalue("shared_cluster")):
        return compute()
