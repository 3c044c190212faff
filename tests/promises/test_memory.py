"""Graphs whose tapes do not fit into a worker's memory: right bits, and no worker is killed.

Dask spills by the sizes that it is told alone here (its monitor of the process's memory does not),
and keeps hardly anything on disk: so the sizes must be true, a tape must be left behind where it is
cheap to trace again, and what was traced again must be kept within a limit.
"""

import os

import autograd.numpy as np
import dask
import numpy
import pytest
from clusters import cluster
from lengths import in_short
from numpy.testing import assert_array_equal
from policies import under

import daskgrad as dg

pytestmark = pytest.mark.timeout(180)

LIMIT = 2**29
TAPES = 128  # of 16 MiB each: four times the limit

STRICT = {
    "distributed.worker.memory.target": 0.3,
    "distributed.worker.memory.max-spill": "64 MiB",
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": 0.95,
}

SLOW_DISK = 1e6  # bytes a second: slower than any of these models

X = np.linspace(0.1, 1.0, 8)


def heavy(x, number):
    """Eight numbers, and a tape that holds two arrays of 8 MiB."""
    table = numpy.full((8, 2**17), 1.0 + number / 7.0)
    y = np.reshape(x, (8, 1)) * table + 0.1
    return np.mean(y * y, axis=1)


def mixed(values):
    return np.sum(np.tanh(sum(values) * 1e-3))


def objective(keep, count=TAPES):
    """Every cotangent depends on every value, so that all tapes are needed after all models ran."""

    def of_x(x):
        model = dg.delayed(heavy, keep=keep)
        return dg.delayed(mixed)([model(x, number) for number in range(count)])

    return of_x


def undisturbed(count=TAPES):
    """Value and gradient without tapes in memory."""
    with dask.config.set(scheduler="sync"):
        return dg.value_and_grad(objective("recompute", count))(X)


@pytest.fixture
def small():  # a new worker for each test: memory of the test before may not be free yet
    with cluster(STRICT, n_workers=1, memory_limit=LIMIT) as client:
        yield client


@pytest.fixture
def surviving(small):
    before = small.run(os.getpid)
    yield small
    assert small.run(os.getpid) == before
    assert not small.get_events("worker-restart-memory")


@in_short("count", [TAPES // 2, TAPES], TAPES // 2)
def test_tapes_of_several_times_the_memory(count, surviving):
    expected = undisturbed(count)
    with under(dg.PullbackPolicy(disk_rate=SLOW_DISK)):
        value, gradient = dg.value_and_grad(objective("auto", count))(X)
    assert value == expected[0]
    assert_array_equal(gradient, expected[1])


@pytest.mark.long
def test_a_pullback_of_four_times_the_memory_is_called_twice(surviving):
    expected = undisturbed()
    with under(dg.PullbackPolicy(disk_rate=SLOW_DISK)):
        value, pullback = dg.vjp(objective("auto"), X)
    assert value == expected[0]
    assert_array_equal(pullback(1.0)[0], expected[1])
    assert_array_equal(pullback(2.0)[0], 2.0 * expected[1])
