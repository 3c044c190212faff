"""Optimisers and samplers call thousands of times: small evaluations run in line, as for users."""

import dask
import pytest


@pytest.fixture(autouse=True)
def in_line():
    with dask.config.set({"daskgrad.inline.seconds": 0.1}):
        yield
