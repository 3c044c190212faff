"""Evaluation in line: the bits of every scheduler, each model once, and only where it may be."""

import contextlib
import threading

import autograd.numpy as np
import dask
import dask.array
import dask.bag
import dask.local
import numpy
import pytest
from dask.callbacks import Callback
from fuzzers import ticking
from numpy.testing import assert_allclose
from samples import askew

import daskgrad as dg
from daskgrad.autodiff.models import determinism, tracing
from daskgrad.derivatives import in_line as inline
from daskgrad.derivatives.in_line import InLine
from daskgrad.graph.variables import Variable

RANDOM = numpy.random.default_rng(5)
N = 75
ROWS = RANDOM.normal(size=(N, 4)) * 10.0 ** RANDOM.uniform(-8, 8, size=(N, 4))
X = numpy.linspace(0.2, 1.3, 4)

TICK = 1e-4  # seconds that each reading of the clock takes
BUDGETS = (200 * TICK, 1e-9)  # with the latter everything is handed over after the first step


def dot(row, x):
    return np.dot(row, np.sin(x))


def wave(row, x):
    return row * np.sin(x)


def mixed(x):
    return x[::-1] * 2.0


@contextlib.contextmanager
def in_line(seconds):
    """No task puts the end off, however quick it is, and small arrays go to Dask, too, then; yields
    a clock that its readings move on."""
    with (
        dask.config.set({"daskgrad.inline.seconds": seconds}),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(inline, "TASK_SECONDS", 0.0)
        patch.setattr(inline, "LARGE", 0)
        yield ticking(patch, tick=TICK)


@pytest.mark.parametrize("length", [30, 10_000], ids=["in the task", "a key of its own"])
def test_models_never_see_constants_askew_in_line(length):
    """NumPy adds such an array up in another order than the array that arrives elsewhere."""
    seen = []

    def model(x, data):
        seen.append(data.flags.aligned)
        return np.sum(x) * np.sum(data)

    with in_line(60):
        dg.grad(lambda x: dg.delayed(model)(x, askew(numpy.arange(length * 1.0))))(X)
    assert seen == [True]


# -------------------------------------------------------------------------- who runs the models


@pytest.fixture
def runs():
    """The threads in which ``logged`` ran, and on what."""
    return []


def logged(runs, fun):
    def model(item, x):
        runs.append((threading.get_ident(), item))
        return fun(item, x)

    return model


def here(runs):
    return [item for thread, item in runs if thread == threading.get_ident()]


def square(item, x):
    return item * np.sum(x**2)


def test_little_work_runs_in_the_calling_thread(runs):
    with dask.config.set(scheduler="threads"), in_line(60):
        dg.grad(lambda x: dg.map_sum(logged(runs, square), list(range(N)), x))(X)
    assert here(runs) == list(range(N))


@pytest.mark.parametrize("seconds", BUDGETS)
def test_each_model_runs_once_also_where_the_rest_is_handed_over(seconds, runs):
    def objective(x):
        y = dg.delayed(lambda x: logged(runs, lambda item, x: x * 1.0)("first", x))(x)
        return dg.map_sum(logged(runs, slow_square), list(range(N)), y, grainsize=1)

    def slow_square(item, x):
        ticks.now += 0.002
        return square(item, x)

    with dask.config.set(scheduler="threads"), in_line(seconds) as ticks:
        value, gradient = dg.value_and_grad(objective)(X)
    items = list(range(N))
    assert sorted([item for _, item in runs if item != "first"]) == items
    assert [item for _, item in runs].count("first") == 1
    assert 0 < len(here(runs)) < N, "else nothing was handed over, or all"
    assert_allclose(value, sum(items) * np.sum(X**2))
    assert_allclose(gradient, sum(items) * 2.0 * X)


@pytest.fixture
def handed_over(monkeypatch):
    evaluations, hand_over = [], InLine._hand_over
    monkeypatch.setattr(
        InLine, "_hand_over", lambda tasks: evaluations.append(tasks) or hand_over(tasks)
    )
    monkeypatch.setattr(inline, "LARGE", 0)
    return evaluations


@pytest.mark.parametrize(("seconds", "are_here"), [(1e-4, True), (5e-3, False)])
def test_quick_tasks_are_not_handed_over_however_many_there_are(
    seconds, are_here, clock, handed_over
):
    def model(x):
        clock.move(seconds)
        return 0.5 * x

    def chain(x):
        for _ in range(300):
            x = dg.delayed(model)(x)
        return x

    assert dg.grad(chain)(1.0) == 0.5**300
    assert bool(handed_over) is not are_here


PAUSES = {  # in seconds, at the first of so many nodes; to hand one over takes 2 ms
    "shorter than to hand the nodes over": (40, [0.05], True),
    "longer than that": (40, [0.1], False),
    "a second one": (40, [0.05, 0.05], False),
    "several short ones": (4_000, [0.05] * 4, True),
}


@pytest.mark.parametrize(("count", "pauses", "are_here"), PAUSES.values(), ids=PAUSES)
def test_a_pause_at_the_first_tasks_hands_nothing_over(count, pauses, are_here, clock, handed_over):
    """As an import, a compiler or the garbage collector makes one."""
    left = iter(pauses)

    def model(x):
        clock.move(next(left, 0.0))
        return np.sum(x**2)

    energy = dg.delayed(model)
    with dask.config.set({"daskgrad.inline.seconds": 0.02}):
        gradient = dg.grad(lambda x: dg.sum([energy(x) for _ in range(count)]))(X)
    assert bool(handed_over) is not are_here
    assert next(left, None) is None
    assert_allclose(gradient, 2.0 * count * X)


def test_no_variable_outlives_its_call(monkeypatch):
    """It would get a copy of its argument."""
    copied = []
    monkeypatch.setattr(Variable, "own_arrays", lambda self: copied.append(self.name))
    total = dg.delayed(np.sum, name="total")
    with in_line(60):
        dg.value_and_grad(total)(X)
        dg.value_and_grad(lambda x: (total(x) * 2.0, {"again": total(x)}), has_aux=True)(X)
    assert copied == []


WITHOUT = {  # in which nothing runs in line
    "time": lambda: dask.config.set({"daskgrad.inline.seconds": 0}),
    "nobody who watches": lambda: Callback(pretask=lambda *_: None),
    "plain tasks": lambda: dask.annotate(priority=1),
}


@pytest.mark.parametrize("name", WITHOUT)
def test_nothing_runs_in_line_without(name, runs):
    with dask.config.set(scheduler="threads"), in_line(60), WITHOUT[name]():
        dg.grad(lambda x: dg.map_sum(logged(runs, square), list(range(N)), x))(X)
    assert len(runs) == N
    assert not here(runs)


def test_a_scheduler_of_the_users_gets_all_tasks():
    tasks = []

    def get(graph, keys, **kwargs):
        tasks.extend(dict(graph.__dask_graph__()))
        return dask.local.get_sync(graph, keys, **kwargs)

    with dask.config.set(scheduler=get), in_line(60):
        dg.grad(lambda x: dg.map_sum(square, list(range(N)), x, grainsize=1))(X)
    assert len(tasks) > N


COMPUTED = {
    "a dask Array": lambda: dask.array.from_array(numpy.arange(float(N)), chunks=10),
    "a Bag": lambda: dask.bag.from_sequence(list(range(N)), npartitions=3),
    "Delayed": lambda: [dask.delayed(float)(number) for number in range(N)],
}


@pytest.mark.parametrize("kind", COMPUTED)
def test_sums_over_results_of_tasks_do_not_run_in_line(kind, runs):
    with dask.config.set(scheduler="threads"), in_line(60):
        gradient = dg.grad(lambda x: dg.map_sum(logged(runs, square), COMPUTED[kind](), x))(X)
    assert len(runs) == N
    assert not here(runs)
    assert_allclose(gradient, sum(range(N)) * 2.0 * X)


# ------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("seconds", BUDGETS)
def test_an_error_in_line_is_that_of_a_scheduler(seconds):
    def fails(item, x):
        if item == 5:
            raise ArithmeticError("no")
        return np.sum(item * x)

    with in_line(seconds), pytest.raises(ArithmeticError) as caught:
        dg.grad(lambda x: dg.map_sum(fails, list(range(8)), x, grainsize=1))(X)
    assert "forward pass of model 'fails', item 5" in "\n".join(caught.value.__notes__)


# ----------------------------------------------------------------------------------- the order


@pytest.mark.parametrize("steps", [[], [8], [2, 2, 2], [8, 2], [2, 8, 2], [8, 8]])
def test_the_bits_do_not_depend_on_how_the_runs_grow(steps, monkeypatch):
    def gradient(x):
        return dg.value_and_grad(lambda x: dg.map_sum(dot, ROWS, x, grainsize=1))(x)

    with dask.config.set(scheduler="threads"):
        expected = gradient(X)
    rest = iter(steps)
    monkeypatch.setattr(inline, "LARGE", 0)
    monkeypatch.setattr(inline, "growth", lambda spent, limit: next(rest, 1))
    monkeypatch.setattr(inline, "_paces", {})
    for _ in range(2):  # the second one begins with as many blocks as the first one's pace allows
        for found, other in zip(gradient(X), expected, strict=True):
            assert found.tobytes() == other.tobytes()


def test_a_quick_sum_is_one_run_from_its_second_evaluation_on(monkeypatch):
    """Items of many sizes would not fill batches in the first runs."""
    runs = []
    monkeypatch.setattr(inline, "_paces", {})
    add = inline.TracedSum.add
    monkeypatch.setattr(inline.TracedSum, "add", lambda *args: runs.append(args) or add(*args))
    gradient = dg.grad(lambda x: dg.map_sum(dot, ROWS, x, grainsize=1))
    with in_line(60.0):
        gradient(X)
        assert len(runs) > 1
        runs.clear()
        gradient(X)
    assert len(runs) == 1


# ------------------------------------------------------------------------------- on a cluster


def test_nodes_that_need_no_sum_run_while_workers_evaluate(client, gate):
    shards = dg.place(list(ROWS))

    def waits(row, x):
        gate.wait("sum")
        return np.dot(row, x)

    def meanwhile(x):
        gate.wait_for(2)
        gate.open()
        return np.sum(x)

    node = dg.delayed(meanwhile, compile=False)
    gradient = dg.grad(lambda x: dg.map_sum(waits, shards, x) * 2.0 + node(x))
    assert_allclose(gradient(X), 2.0 * ROWS.sum(axis=0) + 1.0)


def test_an_error_beside_a_sum_gives_the_sum_up(client, gate, log):
    shards = dg.place(list(ROWS))

    def waits(row, x):
        with log.open("a") as file:
            file.write("x\n")
        gate.wait("sum")
        return np.dot(row, x)

    def fails(x):
        gate.wait_for(2)
        raise ArithmeticError("no")

    node = dg.delayed(fails, compile=False)
    with pytest.raises(ArithmeticError, match="no"):
        dg.grad(lambda x: dg.map_sum(waits, shards, x) + node(x))(X)
    gate.open()
    assert_allclose(dg.grad(lambda x: dg.map_sum(dot, shards, x))(X), dg.grad(by_graph)(X))
    assert log.read_text().count("x") < N, "the workers went on"


def by_graph(x):
    return dg.map_sum(dot, ROWS, x)


def test_on_a_cluster_fingerprints_are_taken(client, monkeypatch):
    """The cluster may run tasks again that are handed over later."""
    taken = []
    for module in (determinism, tracing):
        take = module.fingerprint
        monkeypatch.setattr(module, "fingerprint", lambda x, f=take: taken.append(x) or f(x))
    shards, node = dg.place(list(ROWS)), dg.delayed(mixed, compile=False)
    dg.grad(lambda x: dg.map_sum(dot, shards, node(node(x))))(X)
    assert taken
