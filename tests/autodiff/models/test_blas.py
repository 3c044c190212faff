"""BLAS has one thread where models may run beside each other, and its own number elsewhere."""

import threading

import dask
import numpy as np
import pytest
import threadpoolctl
from clusters import cluster
from numpy.testing import assert_array_equal
from probes import lines, write
from schedulers import use_scheduler
from waiting import wait_until

import daskgrad as dg
from daskgrad.autodiff.models.blas import ONE_THREAD
from daskgrad.tasks.task_graph import TaskGraph

X = np.linspace(0.5, 1.5, 3)
OWN = 3  # threads
seen = []


@pytest.fixture(autouse=True)
def own_threads():
    """BLAS has several threads, on a machine with one core, too; it has them again afterwards."""
    seen.clear()
    with threadpoolctl.threadpool_limits(OWN, "blas"):
        yield
        assert counts() == {OWN}


def counts():
    found = threadpoolctl.threadpool_info()
    return {each["num_threads"] for each in found if each["user_api"] == "blas"}


def look():
    seen.append((*counts(), threading.current_thread().name))


def term(item, x):
    look()
    return np.sum(np.sin(item * x))


def wave(x):
    look()
    return np.sin(x)


def energy(x):
    look()
    return np.sum(x * x)


def step(state, x):
    look()
    return np.sin(state + x)


def black_box(x):
    look()
    return float(np.sum(x**2))


model, last = dg.delayed(wave), dg.delayed(energy)
differences = dg.finite_difference(black_box)
PROGRAMS = {  # and whether models may run beside each other
    "sum": (lambda x: dg.map_sum(term, [*np.arange(9.0)], x, grainsize=2), True),
    "models": (lambda x: last(model(x)) + last(2 * x), True),
    "differences": (lambda x: differences(x) * 2, True),
    "one": (last, False),
    "chain": (lambda x: last(model(model(x)) ** 2), False),
    "loop": (lambda x: last(dg.scan(step, x, 4, 1.0)), False),
}
PLACES = ("in line", "sync", "threads", "lazy", "workers")


def computed(place, fun, request):
    if place == "in line":
        with dask.config.set({"daskgrad.inline.seconds": 10.0}):
            return dg.value_and_grad(fun)(X)
    if place == "lazy":
        x = dg.variable(X)
        with dask.config.set(scheduler="threads"):
            return dask.compute(*dg.differentiate(fun(x), x))
    if place == "workers":
        with cluster(n_workers=1, threads_per_worker=2, processes=False, host=None):
            return dg.value_and_grad(fun)(X)
    with use_scheduler(place, request):
        return dg.value_and_grad(fun)(X)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_how_many_threads_models_see(request, program, place):
    fun, beside = PROGRAMS[program]
    computed(place, fun, request)
    assert {each[:-1] for each in seen} == {(1,) if beside else (OWN,)}


def allow_own_threads():
    threadpoolctl.threadpool_limits(OWN, "blas")


def written(item, x, log):
    write(log, str(*counts()))
    return np.sum(np.sin(item * x))


def test_models_of_placed_items_see_one(tmp_path):
    """Also on workers whose BLAS the nanny has left all threads."""
    with cluster(n_workers=1) as client, dg.place([*np.arange(9.0)], grainsize=2) as shards:
        client.run(allow_own_threads)
        dg.grad(lambda x: dg.map_sum(written, shards, x, str(tmp_path / "log")))(X)
    assert {*lines(tmp_path / "log")} == {"1"}


def test_values_pullbacks_and_jacobians_go_by_the_same_rule():
    with dask.config.set(scheduler="threads"):
        PROGRAMS["chain"][0](dg.variable(X)).compute()
        _, pull = dg.vjp(PROGRAMS["chain"][0], X)
        pull(1.0)
        assert {each[:-1] for each in seen} == {(OWN,)}
        seen.clear()
        PROGRAMS["sum"][0](dg.variable(X)).compute()
        assert {each[:-1] for each in seen} == {(1,)}


def test_many_cotangents_are_pulled_back_beside_each_other(monkeypatch):
    graphs, copy = [], TaskGraph.copy

    def remember(self, *args, **options):
        graphs.append(copy(self, *args, **options))
        return graphs[-1]

    monkeypatch.setattr(TaskGraph, "copy", remember)
    with dask.config.set(scheduler="threads"):
        dg.vjp(PROGRAMS["chain"][0], X)[1](1.0)
        dg.jacobian(lambda x: model(model(x)), mode="reverse")(X)
    assert [graph.is_chain for graph in graphs] == [True, False]


def product(item, x):
    """BLAS with two threads has other bits than with one."""
    matrix = np.sin(np.outer(x, x) + item)
    return np.sum(np.linalg.inv(matrix @ matrix + 300 * np.eye(300)) @ x)


def test_a_sum_has_the_same_bits_everywhere(every_scheduler):
    x = np.linspace(0.1, 1.0, 300)

    def compute():
        fun = dg.value_and_grad(lambda x: dg.map_sum(product, [1.0, 2.0, 3.0], x, grainsize=1))
        return fun(x)

    results = every_scheduler(compute)
    with dask.config.set({"daskgrad.inline.seconds": 100.0}):
        results["in line"] = compute()
    value, gradient = results["cluster"]
    for other, of_other in results.values():
        assert value == other
        assert_array_equal(gradient, of_other)


def test_the_last_one_to_leave_gives_threads_back():
    first, second, inside = threading.Event(), threading.Event(), []

    def stay(leave):
        with ONE_THREAD:
            inside.append(leave)
            leave.wait(30)

    threads = [threading.Thread(target=stay, args=(leave,)) for leave in (first, second)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(inside) == 2)
    assert counts() == {1}
    for leave, thread, expected in zip((first, second), threads, ({1}, {OWN}), strict=True):
        leave.set()
        thread.join(30)
        assert counts() == expected
