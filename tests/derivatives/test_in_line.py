"""Evaluation in line: the bits of every scheduler, each model once, and only where it may be."""

import threading

import autograd.numpy as np
import dask
import dask.array
import dask.bag
import dask.local
import numpy
import pytest
from dask.callbacks import Callback
from numpy.testing import assert_allclose
from samples import askew

import daskgrad as dg
from daskgrad.autodiff.models import determinism, tracing
from daskgrad.derivatives import tasks_in_line
from daskgrad.graph.variables import Variable

RANDOM = numpy.random.default_rng(5)
N = 75
ROWS = RANDOM.normal(size=(N, 4)) * 10.0 ** RANDOM.uniform(-8, 8, size=(N, 4))
X = numpy.linspace(0.2, 1.3, 4)


def dot(row, x):
    return np.dot(row, np.sin(x))


def wave(row, x):
    return row * np.sin(x)


def mixed(x):
    return x[::-1] * 2.0


def in_line(seconds):
    return dask.config.set({"daskgrad.inline.seconds": seconds})


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
    gradient = dg.grad(lambda x: dg.map_sum(logged(runs, square), list(range(N)), x))
    with dask.config.set(scheduler="threads"), in_line(60):
        for is_here in (False, True, True):  # the first is not measured yet
            gradient(X)
            assert len(runs) == N
            assert here(runs) == (list(range(N)) if is_here else [])
            runs.clear()


def test_each_model_runs_once(runs):
    def objective(x):
        y = dg.delayed(lambda x: logged(runs, lambda item, x: x * 1.0)("first", x))(x)
        return dg.map_sum(logged(runs, square), list(range(N)), y, grainsize=1)

    both = dg.value_and_grad(objective)
    with dask.config.set(scheduler="threads"), in_line(60):
        for _ in range(3):
            value, gradient = both(X)
            assert sorted([item for _, item in runs if item != "first"]) == list(range(N))
            assert [item for _, item in runs].count("first") == 1
            assert_allclose(value, sum(range(N)) * np.sum(X**2))
            assert_allclose(gradient, sum(range(N)) * 2.0 * X)
            runs.clear()


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
    gradient = dg.grad(lambda x: dg.map_sum(logged(runs, square), list(range(N)), x))
    with dask.config.set(scheduler="threads"), in_line(60):
        gradient(X)
        with WITHOUT[name]():
            runs.clear()
            gradient(X)
        assert len(runs) == N
        assert not here(runs)
        gradient(X)
        assert here(runs), "else the first one would not have been here, either"


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


def test_an_error_in_line_is_that_of_a_scheduler():
    failing = [4]

    def fails(item, x):
        if item in failing:
            raise ArithmeticError("no")
        return np.sum(item * x)

    gradient = dg.grad(lambda x: dg.map_sum(fails, [0, 1, 2, 3, 5, 6], x, grainsize=1))
    with in_line(60):
        gradient(X)
        failing.append(5)
        for seconds in (60, 0):
            with in_line(seconds), pytest.raises(ArithmeticError) as caught:
                gradient(X)
            assert "forward pass of model 'fails', item 4" in "\n".join(caught.value.__notes__)


# ----------------------------------------------------------------------------------- the order


@pytest.mark.parametrize("run", [1, 2, 8, 128])
def test_the_bits_of_items_do_not_depend_on_the_length_of_runs(run, monkeypatch):
    def objective(rows, x):
        return dg.map_sum(dot, rows, x, grainsize=1)

    both = dg.value_and_grad(objective, (0, 1))
    with in_line(0):
        expected = bits(both(ROWS, X))
    monkeypatch.setattr(tasks_in_line, "RUN", run)
    with in_line(60):
        assert [bits(both(ROWS, X)) for _ in range(2)] == [expected] * 2


def bits(result):
    value, gradients = result
    return [array.tobytes() for array in (value, *gradients)]


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
