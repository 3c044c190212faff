"""Backward tasks that run on another worker than their forward tasks, whatever the tapes hold."""

import time

import autograd.numpy as np
import dask
import pytest
from clusters import whole_again
from distributed import get_task_stream
from numpy.testing import assert_array_equal
from policies import Always, Never, under
from probes import THINGS, slow_back, slow_holder

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


def objective(model, *args):
    def of_x(x):
        return mixed([model(x, 1.0 + number, *args) for number in range(COUNT)])

    return of_x


def assert_right_if_stolen(client, fun, expected):
    """All tasks are meant for one worker, and some of the backward tasks are taken by the other.

    That one is idle, and Dask lets it steal what takes far longer than a move: nearly always.
    """
    first, second = client.scheduler_info(n_workers=-1)["workers"]
    for _ in range(10):
        with (
            dask.annotate(workers=[first], allow_other_workers=True),
            get_task_stream(client) as stream,
        ):
            value, gradient = dg.value_and_grad(fun)(X)
        assert value == expected[0]
        assert_array_equal(gradient, expected[1])
        if second in workers_of("backward-slow", stream.data):
            return
    raise AssertionError("the test needs a stolen task")


def workers_of(stage, rows):
    """Which workers ran the tasks whose keys begin so."""
    return {row["worker"] for row in rows if str(row["key"]).startswith(f"('{stage}")}


CASES = [
    *[
        pytest.param(thing, Always(), marks=[pytest.mark.long] * bool(at))
        for at, thing in enumerate(THINGS)
    ],
    pytest.param("nothing", Never(), marks=pytest.mark.long),
]


@pytest.mark.parametrize(("thing", "policy"), CASES)
def test_a_stolen_backward_task_gives_the_same_bits(thing, policy, client, tmp_path):
    model = dg.delayed(slow_holder)
    with dask.config.set(scheduler="sync"):
        expected = dg.value_and_grad(objective(model, thing, tmp_path / "log", 0.0))(X)
    with under(policy):
        assert_right_if_stolen(client, objective(model, thing, tmp_path / "log", 0.1), expected)


def slow_chain(x, scale, path, seconds):
    y = slow_back(x * scale, path, seconds)
    for _ in range(500):
        y = np.sin(y) * 1.0001
    return y


@pytest.mark.parametrize("policy", [Always(), pytest.param(Never(), marks=pytest.mark.long)])
def test_a_deep_chain_is_stolen(policy, client, tmp_path):
    model = dg.delayed(slow_chain)
    with dask.config.set(scheduler="sync"):
        expected = dg.value_and_grad(objective(model, tmp_path / "log", 0.0))(X)
    with under(policy):
        assert_right_if_stolen(client, objective(model, tmp_path / "log", 0.1), expected)


# ------------------------------------------------------------------------------ other libraries


def slow_in_jax():
    jax = pytest.importorskip("jax")

    def waited(g):
        time.sleep(0.1)
        return g

    @jax.custom_vjp
    def slow(x):
        return x

    def backward(_, g):
        return (jax.pure_callback(waited, jax.ShapeDtypeStruct(g.shape, g.dtype), g),)

    slow.defvjp(lambda x: (x, None), backward)

    def slow_jax(x, scale):
        return jax.numpy.sin(slow(x * scale)) * x[::-1]

    return slow_jax


def slow_in_torch():
    torch = pytest.importorskip("torch")

    class Slow(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x.clone()

        @staticmethod
        def backward(context, g):
            time.sleep(0.1)
            return g

    def slow_torch(x, scale):
        return torch.sin(Slow.apply(x * scale)) * x.flip(0)

    return slow_torch


@pytest.mark.optional
@pytest.mark.parametrize(("backend", "made"), [("jax", slow_in_jax), ("torch", slow_in_torch)])
def test_tapes_of_other_libraries_are_stolen(backend, made, client):
    """They cannot be sent, whatever the policy says."""
    model = dg.delayed(made(), backend=backend)
    with dask.config.set(scheduler="sync"):
        expected = dg.value_and_grad(objective(model))(X)
    with under(Always()):
        assert_right_if_stolen(client, objective(model), expected)


# ------------------------------------------------------------------------------ retired workers


def test_a_worker_hands_its_pullbacks_on_when_it_is_retired(tmp_path, frail):
    def one_of_each(x):
        model = dg.delayed(slow_holder)
        return mixed([model(x, 1.0, thing, tmp_path / "log", 0.0) for thing in THINGS])

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
        used = workers_of("backward-slow", stream.data)
        assert used
        assert first not in used
