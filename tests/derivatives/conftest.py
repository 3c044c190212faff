"""Programs of whole derivatives: made at the same calls on a slow machine, and counted."""

import dask
import pytest
from fuzzers import ticking

from daskgrad.autodiff.programs import whole


@pytest.fixture
def whole_programs(monkeypatch):
    """Derivatives get programs, at the same calls on a slow machine."""
    ticking(monkeypatch)
    with dask.config.set({"daskgrad.inline.seconds": 60}):
        yield


@pytest.fixture
def taken(monkeypatch):
    """How many results of programs there were."""
    results = []
    plain = whole.Whole._by_program

    def counted(self, *args, **options):
        result = plain(self, *args, **options)
        results.append(result is not None and result is not whole.FAILED)
        return result

    monkeypatch.setattr(whole.Whole, "_by_program", counted)
    return lambda: results.count(True)
