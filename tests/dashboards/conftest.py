"""After each test nobody observes what is evaluated; one cluster of this process shows pages."""

import pytest
from clusters import CALM
from dask.config import set as configured
from distributed import Client, LocalCluster
from waiting import wait_until

import daskgrad as dg
from daskgrad.tasks import observers


@pytest.fixture(autouse=True)
def nobody_observes():
    yield
    assert observers.observers == ()


@pytest.fixture(scope="session")
def cluster_of_pages():
    """Nobody opens its pages: Bokeh keeps what belongs to sessions that have expired."""
    options = {"processes": False, "protocol": "tcp://", "dashboard_address": "127.0.0.1:0"}
    with configured(CALM), LocalCluster(n_workers=2, threads_per_worker=1, **options) as local:
        yield local


@pytest.fixture
def mounted(cluster_of_pages):
    """A client of a cluster with the pages, which have seen nothing yet."""

    def forget(dask_scheduler):
        if not dask_scheduler.tasks:
            return dask_scheduler.plugins["daskgrad-recorder"].recorder.__init__() is None

    with Client(cluster_of_pages) as client:
        dg.dashboards.mount(client)
        wait_until(lambda: client.run_on_scheduler(forget))
        yield client
