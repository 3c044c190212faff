"""Pullbacks on a cluster: they stay, they move, they are spilled, and their worker dies."""

import contextlib

import autograd.numpy as np
import dask
import probes
import pytest
from dask.sizeof import sizeof
from distributed import Future, get_worker
from numpy.testing import assert_array_equal
from probes import lines, write
from waiting import wait_until

import daskgrad as dg
from daskgrad.autodiff.models.pullbacks import capture
from daskgrad.autodiff.models.tracing import Active

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


def test_dask_is_told_the_real_size_of_what_is_kept():
    """The residuals, each once, and the value; not the argument, which the worker has anyway."""

    def heavy(x):
        return np.sum(np.sin(x) * np.ones((10, 100_000)), axis=0)

    x = np.ones(100_000)
    captured = captured_call(heavy, x)
    held = captured.pullback.tape.held_arrays()
    assert any(array is x for array in held)
    residuals = sum(array.nbytes for array in held) - x.nbytes
    assert residuals >= 8e6
    assert sizeof(captured) == pytest.approx(residuals + captured.value.nbytes, rel=0.001)


def captured_call(fun, x):
    node = dg.delayed(fun)(dg.variable(x))
    return capture(node.model, node.call, (Active(0, watched=False),), [x])


# ---------------------------------------------------------------------------------- they move


def expected(model, x, log):
    """Value and gradient of sum(tanh(model(x))) on one process, and how often the model ran."""
    log.write_text("")
    with dask.config.set(scheduler="sync"):
        result = dg.value_and_grad(lambda x: outer(dg.delayed(model)(x, log)))(x)
    assert lines(log) == ["ran"]
    log.write_text("")
    return result


@dg.delayed
def outer(y):
    return np.sum(np.tanh(y))


def test_pullbacks_move_when_they_are_rebalanced_and_replicated(client, log):
    x = np.linspace(0.1, 1.0, 5)
    _, gradient = expected(probes.holds_lock, x, log)
    _, pullback = dg.vjp(lambda x: outer(dg.delayed(probes.holds_lock)(x, log)), x)
    futures = [Future(key, client) for key in client.futures if key[0].startswith("forward")]
    with no_replicas_dropped(client):
        client.replicate(futures, n=2)
        assert all(len(holders) == 2 for holders in client.who_has(futures).values())
        assert_array_equal(pullback(1.0)[0], gradient)


@contextlib.contextmanager
def no_replicas_dropped(client):
    """Dask's active memory manager drops all but one, every two seconds."""
    client.amm.stop()
    try:
        yield
    finally:
        client.amm.start()


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
