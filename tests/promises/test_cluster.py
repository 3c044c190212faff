"""Pullbacks on a cluster: they stay, they move, they are spilled, and their worker dies."""

import autograd.numpy as np
import dask
import probes
import pytest
from distributed import get_worker
from numpy.testing import assert_array_equal
from probes import lines, write
from waiting import wait_until

import daskgrad as dg

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore:.*lost.*:UserWarning"),
]


# ----------------------------------------------------------------------------------- they stay


def test_a_backward_task_runs_where_its_residuals_are(client, log):
    """Eight MB of residuals on one worker, and a cotangent of one MB that comes from the other.

    source (first) ── heavy ── outer (second)
    """
    first, second = client.scheduler_info(n_workers=-1)["workers"]

    def source(x):
        return 2.0 * x

    def heavy(y):
        write(log, f"forward {get_worker().address}")
        residual = np.ones((8, 130_000))
        return np.sum(np.sin(probes.watched(y, log, "backward") * residual), axis=0)

    def objective(x):
        with dask.annotate(workers=[first]):
            y = dg.delayed(source)(x)
        z = dg.delayed(heavy)(y)
        with dask.annotate(workers=[second]):
            return outer(z)

    for _ in range(8):
        dg.grad(objective)(np.ones(1))
    assert lines(log) == [f"forward {first}", f"backward {first}"] * 8


# ---------------------------------------------------------------------------------- they move


@dg.delayed
def outer(y):
    return np.sum(np.tanh(y))


# -------------------------------------------------------------------------------- workers die


def scaled_wave(pair, x):
    return pair[0] * np.sin(pair[1] * x)


def test_a_pullback_finds_placed_items_that_were_placed_again(client):
    """Between the passes, under new keys: as after a loss that another sum has made good."""
    x, cotangent = np.linspace(0.0, 1.0, 3), np.array([0.3, -1.0, 2.0])
    items = [np.arange(3.0) + number for number in range(40)]
    numbers = np.linspace(0.0, 1.0, 40)

    def total(first, x):
        return dg.map_sum(scaled_wave, dg.zip(first, numbers), x)

    shards = dg.place(items)
    _, pullback = dg.vjp(lambda x: total(shards, x), x)
    old = set(held_shards(client))
    shards.holdings._move(shards.holdings.holders[::-1])
    wait_until(lambda: not old & set(held_shards(client)))
    found = pullback(cotangent)[0]
    with dask.config.set(scheduler="sync"):
        expected = dg.vjp(lambda x: total(items, x), x)[1](cotangent)[0]
    assert_array_equal(found, expected)


def held_shards(client):
    return [key for keys in client.has_what().values() for key in keys if "shard" in str(key)]
