"""The package's clock ticks here: programs are made at the same calls on a slow machine."""

import pytest
from fuzzers import ticking


@pytest.fixture(autouse=True)
def _ticks(monkeypatch):
    ticking(monkeypatch)
