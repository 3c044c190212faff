"""Clusters in this process, for tests in which nothing is pickled by Dask or killed."""

import pytest
from distributed import Client, LocalCluster
from waiting import Clock


@pytest.fixture(scope="module")
def local_cluster():
    """Two workers with two threads each in this process, which tests leave as they are."""
    options = {"threads_per_worker": 2, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(n_workers=2, processes=False, **options) as cluster:
        yield cluster


@pytest.fixture(scope="module", autouse=True)
def time_stands_still_for_fixtures():
    """Evaluations of a module's fixtures are measured, too, and decide where tests run."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        Clock().replace(monkeypatch)
        yield


@pytest.fixture(autouse=True)
def time_stands_still(clock):
    """What is beside sums stays here, and blocks where they are, also on a slow machine."""


@pytest.fixture
def local(local_cluster):
    """A client of the cluster in this process."""
    with Client(local_cluster) as client:
        yield client
