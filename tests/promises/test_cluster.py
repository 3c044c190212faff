"""Pullbacks on a cluster: they stay, they move, they are spilled, and their worker dies."""

import contextlib
import os
import pickle
import signal
import threading

import autograd.numpy as np
import dask
import probes
import pytest
from clusters import cluster
from dask.sizeof import sizeof
from distributed import Future, get_worker
from lengths import in_short
from numpy.testing import assert_array_equal
from policies import Never, under
from probes import Turnstile, gated_back, lines, write
from waiting import wait_until

import daskgrad as dg
from daskgrad.models.captured import Pullback
from daskgrad.models.determinism import NondeterministicModelError
from daskgrad.models.pullbacks import capture
from daskgrad.models.tracing import Active

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore:.*lost.*:UserWarning"),
]


@pytest.fixture
def log(tmp_path):
    """A file that models in any process can write lines to."""
    path = tmp_path / "log"
    path.touch()
    return path


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


MOVING = in_short("model", [probes.deep_chain, probes.holds_lock], probes.holds_lock)


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


@MOVING
def test_a_pullback_arrives_empty_and_loads_without_running_anything(model, log):
    captured = captured_call(lambda x: model(x, log), np.linspace(0.1, 1.0, 5))
    moved = pickle.loads(pickle.dumps(captured))
    assert isinstance(moved.pullback, Pullback)
    assert moved.pullback.is_empty
    assert not captured.pullback.is_empty
    assert lines(log) == ["ran"]
    assert_array_equal(moved.value, captured.value)
    assert sizeof(moved) < 1000


@MOVING
def test_pullbacks_survive_retired_workers(model, log, frail):
    x = np.linspace(0.1, 1.0, 5)
    value, gradient = expected(model, x, log)
    with under(Never()):  # or how long a trace took decides whether tapes travel
        kept, pullback = dg.vjp(lambda x: outer(dg.delayed(model)(x, log)), x)
    assert kept == value
    assert lines(log) == ["ran"]
    (holder,) = {
        address
        for address, keys in frail.has_what().items()
        if any(key[0].startswith(f"forward-{model.__name__.replace('_', '-')}") for key in keys)
    }
    frail.retire_workers([holder], close_workers=True)
    assert_array_equal(pullback(1.0)[0], gradient)
    assert_array_equal(pullback(2.0)[0], 2.0 * gradient)
    assert lines(log) == ["ran", "ran"], "traced again once, at the first use"


@MOVING
def test_pullbacks_survive_being_spilled(model, log):
    x = np.linspace(0.1, 1.0, 5)
    value, gradient = expected(model, x, log)
    spill_all = {
        "distributed.worker.memory.target": 1e-9,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": False,
    }
    with cluster(spill_all) as client:
        kept, pullback = dg.vjp(lambda x: outer(dg.delayed(model)(x, log)), x)
        assert kept == value
        on_disk = client.run(lambda dask_worker: len(dask_worker.data.disk))
        assert sum(on_disk.values()) > 0, "the test needs spilled results"
        assert_array_equal(pullback(1.0)[0], gradient)


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


def graph_of_ten(x, gate):
    """Ten models whose cotangents all depend on all of them."""

    def piece(x, number):
        return np.sin(gated_back(x, gate) * (number + 1.0))

    def mixed(values):
        return np.sum(np.tanh(sum(values)))

    return dg.delayed(mixed)([dg.delayed(piece)(x, number) for number in range(10)])


@pytest.mark.long
@pytest.mark.parametrize("free", [0, 5])
def test_a_worker_killed_in_the_backward_pass_costs_only_time(free, tmp_path, frail):
    gate, x = Turnstile(tmp_path / "gate", free), np.linspace(0.0, 1.0, 7)
    gate.open()
    with dask.config.set(scheduler="sync"):
        value, gradient = dg.value_and_grad(graph_of_ten)(x, gate)
    gate.close()

    def kill():
        (_, pid), *_ = gate.wait_for()
        os.kill(pid, signal.SIGKILL)
        gate.open()

    killer = threading.Thread(target=kill)
    killer.start()
    again, same = dg.value_and_grad(graph_of_ten)(x, gate)
    killer.join()
    assert again == value
    assert_array_equal(same, gradient)
    assert len({line.split()[-1] for line in lines(gate.log)}) >= 2


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


def test_workers_drop_the_shards_that_nobody_holds(client):
    shards = dg.place([np.ones(3)] * 8)
    assert held_shards(client)
    del shards
    wait_until(lambda: not held_shards(client))


def held_shards(client):
    return [key for keys in client.has_what().values() for key in keys if "shard" in str(key)]


# ------------------------------------------------------------------- models that are not pure


def drawing(x):
    import numpy

    return x * numpy.random.default_rng().normal(size=np.shape(x))


def test_a_model_that_draws_other_numbers_when_traced_again_is_an_error(pool):
    """Dask's process scheduler moves every result, here without its tape."""
    with (
        dask.config.set(scheduler="processes", pool=pool),
        under(Never()),
        pytest.raises(NondeterministicModelError, match="'drawing' is not deterministic"),
    ):
        dg.grad(lambda x: outer(dg.delayed(drawing)(x)))(np.ones(3))
