"""The package's clock ticks here: programs are made at the same calls on a slow machine."""

import dask
import pytest
from fuzzers import ticking

from daskgrad.autodiff.programs import blocks, store


@pytest.fixture(autouse=True)
def _ticks(monkeypatch):
    ticking(monkeypatch)


@pytest.fixture
def soon(monkeypatch):
    """Programs at the second call, batches at once, in the calling thread."""
    monkeypatch.setattr(store, "CALLS", 2)
    monkeypatch.setattr(blocks, "SERVED", 1)
    with dask.config.set(scheduler="synchronous"):
        yield
