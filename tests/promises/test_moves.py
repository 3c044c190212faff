"""Backward tasks that run on another worker than their forward tasks, whatever the tapes hold."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import autograd.numpy as np
import dask
import pytest
from clusters import whole_again
from distributed import get_task_stream
from lengths import in_short
from numpy.testing import assert_array_equal
from policies import Always, Never, under
from probes import THINGS, gated_back, holding
from waiting import wait_until

import daskgrad as dg

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
]

COUNT = 10
X = np.linspace(0.1, 1.0, 6)


@dg.delayed
def mixed(values):
    return np.sum(np.tanh(sum(values)))


def holder(x, number, thing, gate):
    return np.sin(gated_back(holding(x * number, THINGS[thing]()), gate)) * x[::-1]


def deep_chain(x, number, thing, gate):
    y = gated_back(x * number, gate)
    for _ in range(500):
        y = np.sin(y) * 1.0001
    return y


def objective(model, *args):
    def of_x(x):
        return mixed([model(x, 1.0 + number, *args) for number in range(COUNT)])

    return of_x


# ----------------------------------------------------------------------------------- stealing


@contextlib.contextmanager
def no_stealing_but_ours(client):
    async def switch(dask_scheduler, name):
        await getattr(dask_scheduler.extensions["stealing"], name)()

    client.run_on_scheduler(switch, name="stop")
    try:
        yield
    finally:
        client.run_on_scheduler(switch, name="start")


def steal_all(dask_scheduler, stage, victim, thief):
    """Moves what has not begun, as Dask does where a worker is idle."""
    stealing = dask_scheduler.extensions["stealing"]
    victim, thief = dask_scheduler.workers[victim], dask_scheduler.workers[thief]
    for task in list(victim.processing):
        if str(task.key).startswith(f"('{stage}") and task not in stealing.in_flight:
            stealing.move_task_request(task, victim, thief)


def require_same_bits_if_stolen(client, gate, fun, expected):
    """One backward task waits on the worker of all forward tasks; the other worker takes others."""
    first, second = client.scheduler_info(n_workers=-1)["workers"]

    def compute():
        with client.as_current(), dask.annotate(workers=[first], allow_other_workers=True):
            return dg.value_and_grad(fun)(X)

    def stolen():
        client.run_on_scheduler(steal_all, stage="backward", victim=first, thief=second)
        return len({process for _, process in gate.arrived()}) == 2

    with no_stealing_but_ours(client), ThreadPoolExecutor(1) as pool:
        try:
            result = pool.submit(compute)
            gate.wait_for(1)
            wait_until(stolen)
        finally:
            gate.open()
        value, gradient = result.result()
    assert value == expected[0]
    assert_array_equal(gradient, expected[1])


MODELS = {**{f"holds {thing}": (holder, thing) for thing in THINGS}, "deep": (deep_chain, None)}
POLICIES = {"travels": Always(), "stays": Never()}
CASES = [(name, policy) for policy in POLICIES for name in MODELS]


@in_short(("name", "policy"), CASES, ("holds nothing", "travels"), ("deep", "travels"))
def test_a_stolen_backward_task_gives_the_same_bits(name, policy, client, gate):
    fun, thing = MODELS[name]
    model = dg.delayed(fun)
    with dask.config.set(scheduler="sync"):
        expected = dg.value_and_grad(objective(model, thing, None))(X)
    with under(POLICIES[policy]):
        require_same_bits_if_stolen(client, gate, objective(model, thing, gate), expected)


# ------------------------------------------------------------------------------ retired workers


def test_a_worker_hands_its_pullbacks_on_when_it_is_retired(frail):
    def one_of_each(x):
        model = dg.delayed(holder)
        return mixed([model(x, 1.0, thing, None) for thing in THINGS])

    with dask.config.set(scheduler="sync"):
        expected = dg.grad(one_of_each)(X)
    for policy in (Always(), Never()):
        whole_again(frail)
        first, *_ = frail.ncores()
        with dask.annotate(workers=[first], allow_other_workers=True), under(policy):
            _, pullback = dg.vjp(one_of_each, X)
        frail.retire_workers([first], close_workers=True)
        with get_task_stream(frail) as stream:
            assert_array_equal(pullback(1.0)[0], expected)
        rows = [row for row in stream.data if str(row["key"]).startswith("('backward-holder")]
        assert rows
        assert first not in {row["worker"] for row in rows}
