"""Beside a cluster: what is small runs in the client's process once the cluster has measured it."""

import math
import os
import threading
from contextlib import nullcontext

import autograd.numpy as np
import dask
import numpy
import pytest
from distributed import get_worker
from probes import forget_evaluations
from programs import flat
from waiting import SLOW

import daskgrad as dg
import daskgrad.autodiff.tape
from daskgrad.derivatives import eager, evaluation, in_line
from daskgrad.placed.call import DirectCall
from daskgrad.tasks import observers, supervision, task_graph
from daskgrad.tasks.supervision import seconds_in

X = numpy.array([0.5, 1.2, -0.3])
ROWS = [row * X for row in range(1, 30)]


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No evaluation of another test is known; all that is measured is small, however late."""
    monkeypatch.setattr(supervision, "SOON", 60.0 * SLOW)
    forget_evaluations(monkeypatch)
    with dask.config.set({"daskgrad.inline.seconds": 1000.0, "daskgrad.compile": False}):
        yield


@pytest.fixture
def node(log):
    """A model that notes where it runs."""

    def model(x, factor=1.0):
        with log.open("a") as file:
            file.write("here\n" if os.getpid() == client_process else "cluster\n")
        return np.sum(np.sin(x) * factor)

    client_process = os.getpid()
    return dg.delayed(model)


def places(log, evaluate, count):
    """By evaluation, the processes that ran models."""
    before, seen = len(log.read_text().split()), []
    for _ in range(count):
        evaluate()
        lines = log.read_text().split()
        seen.append("/".join(dict.fromkeys(lines[before:])))
        before = len(lines)
    return seen


WAYS = {
    "objective": lambda fun: lambda: dg.value_and_grad(fun)(X),
    "pair": lambda fun: lambda: dg.value_and_grad(lambda x: (fun(x), 1), has_aux=True)(X),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_second_evaluation_runs_here_with_the_bits_of_the_first(way, client, node, log):
    results = []
    evaluate = WAYS[way](lambda x: node(x) + node(x, 2.0) * 3.0)
    assert places(log, lambda: results.append(evaluate()), 3) == ["cluster", "here", "here"]
    assert len({flat(result).tobytes() for result in results}) == 1


def test_a_sum_over_items_runs_here(client, node, log):
    gradient, results = dg.value_and_grad(lambda x: dg.map_sum(node, ROWS, x)), []
    assert places(log, lambda: results.append(gradient(X)), 3) == ["cluster", "here", "here"]
    assert len({flat(result).tobytes() for result in results}) == 1


def test_what_takes_long_stays_on_the_cluster_until_it_takes_less(client, node, log, monkeypatch):
    monkeypatch.setattr(in_line, "TASK_SECONDS", 0.0)
    gradient = dg.grad(lambda x: node(x) + node(x, 2.0))
    with dask.config.set({"daskgrad.inline.seconds": 1e-12}):
        assert places(log, lambda: gradient(X), 3) == ["cluster"] * 3
    assert places(log, lambda: gradient(X), 2) == ["here"] * 2


@pytest.mark.parametrize("is_watched", [False, True])
def test_where_it_takes_longer_is_tried_seldom(is_watched, client, node, log, monkeypatch):
    monkeypatch.setattr(in_line, "TASK_SECONDS", 0.0)
    monkeypatch.setattr(in_line, "TRY_AGAIN", 2)
    monkeypatch.setattr(task_graph, "seconds_of", lambda *_: 0.0)
    gradient = dg.grad(lambda x: node(x) + node(x, 2.0))
    context = observers.observed_by(observers.Observer()) if is_watched else nullcontext()
    with dask.config.set({"daskgrad.inline.seconds": 1e-12}), context:
        seen = places(log, lambda: gradient(X), 10)
    rest = ["cluster"] * 4
    assert seen == ["cluster", "here", "cluster", "cluster", "here", *rest, "here"]


def around_placed(terms):
    """A gradient of some terms, and of a sum that the workers evaluate."""
    shards = dg.place(ROWS)
    return dg.grad(lambda x: terms(x) + dg.map_sum(lambda row, x: np.dot(row, x) ** 2, shards, x))


def test_what_is_around_a_placed_sum_runs_here_if_it_is_one_model_or_was_quick(client, node, log):
    gradient = around_placed(node)
    assert places(log, lambda: gradient(X), 2) == ["here"] * 2
    gradient = around_placed(lambda x: node(x) + node(x, 2.0))
    assert places(log, lambda: gradient(X), 3) == ["cluster", "here", "here"]


def test_what_takes_long_around_a_placed_sum_runs_on_the_cluster(client, node, log, monkeypatch):
    monkeypatch.setattr(in_line, "TASK_SECONDS", 0.0)
    monkeypatch.setattr(in_line, "TRY_AGAIN", 1)
    gradient, apart = (around_placed(terms) for terms in (node, lambda x: node(x) + node(x, 2.0)))
    with dask.config.set({"daskgrad.inline.seconds": 1e-12}):
        assert places(log, lambda: gradient(X), 3) == ["here", "cluster", "cluster"]
        assert places(log, lambda: apart(X), 3) == ["cluster"] * 3
    assert places(log, lambda: gradient(X), 2) == ["here"] * 2
    assert places(log, lambda: apart(X), 2) == ["here"] * 2


def test_the_time_of_the_workers_does_not_count(client, clock, monkeypatch):
    def results(call):
        clock.move(1e4)  # longer than may be spent here
        return awaited(call)

    awaited = DirectCall.results
    monkeypatch.setattr(DirectCall, "results", results)
    gradient = around_placed(lambda x: dg.delayed(np.sum)(x) + dg.delayed(np.max)(x))
    for _ in range(3):
        gradient(X)
    (timing,) = in_line._measured.values()
    assert timing.mistakes == 0


@pytest.mark.parametrize("way", WAYS)
def test_a_model_that_needs_a_worker_gets_one(way, client, log, monkeypatch):
    def on_worker(x):
        with log.open("a") as file:
            file.write("here\n" if os.getpid() == client_process else "cluster\n")
        return np.sum(x) * len([get_worker().address])

    monkeypatch.setattr(in_line, "TRY_AGAIN", 2)
    client_process = os.getpid()
    model, results = dg.delayed(on_worker), []
    evaluate = WAYS[way](lambda x: model(x) + model(x * 2.0))
    seen = places(log, lambda: results.append(evaluate()), 5)
    assert seen == ["cluster", "here/cluster", "cluster", "here/cluster", "cluster"]
    assert log.read_text().count("here") == 2, "it fails once in an evaluation"
    assert len({flat(result).tobytes() for result in results}) == 1


def test_an_error_of_a_model_is_raised(client, node, log, monkeypatch):
    def fails_below_zero(x):
        if x[0] < 0.0:
            raise ArithmeticError("below zero")
        return x * 2.0

    monkeypatch.setattr(in_line, "TRY_AGAIN", 1)
    model = dg.delayed(fails_below_zero)
    gradient = dg.grad(lambda x: node(model(x)) + node(x))
    assert places(log, lambda: gradient(X), 2) == ["cluster", "here"]
    with pytest.raises(ArithmeticError, match="below zero") as error:
        gradient(-X)
    assert "model 'fails_below_zero'" in "\n".join(error.value.__notes__)
    assert places(log, lambda: gradient(X), 3) == ["cluster", "here", "here"]


def test_held_pullbacks_stay_on_the_cluster(client, node, log):
    """One that fails in the client could not ask the cluster any more."""

    def evaluate():
        value, pullback = dg.vjp(lambda x: node(x) + node(x, 2.0), X)
        pullback(value)

    assert places(log, evaluate, 3) == ["cluster"] * 3


@pytest.mark.parametrize("is_summed", [False, True])
def test_what_is_annotated_stays_on_the_cluster(is_summed, client, node, log):
    def gradient_of(context):
        def fun(x):
            with context():
                return dg.map_sum(node, ROWS, x) if is_summed else node(x) + node(x, 2.0)

        return dg.grad(fun)

    gradient, annotated = gradient_of(nullcontext), gradient_of(lambda: dask.annotate(priority=1))
    assert places(log, lambda: gradient(X), 2) == ["cluster", "here"]
    assert places(log, lambda: annotated(X), 2) == ["cluster", "cluster"]
    with dask.annotate(priority=1):
        assert places(log, lambda: gradient(X), 2) == ["cluster", "cluster"]


def test_placed_items_stay_where_they_are(client, node, log):
    with dg.place(ROWS) as shards:
        gradient = dg.grad(lambda x: dg.map_sum(node, shards, x))
        assert places(log, lambda: gradient(X), 3) == ["cluster"] * 3


@pytest.mark.parametrize("are_items", [False, True])
def test_what_workers_have_copies_of_stays_there(are_items, client, node, log):
    def fun(x, data):
        return dg.map_sum(node, data, x) if are_items else node(x, data) + node(x)

    gradient, rows = dg.grad(fun), numpy.array(ROWS) if are_items else X
    assert places(log, lambda: gradient(X, rows), 2) == ["cluster", "here"]
    copies = dg.replicate(rows.copy())
    assert places(log, lambda: gradient(X, copies), 3) == ["cluster"] * 3
    assert places(log, lambda: gradient(X, rows), 1) == ["here"]


@pytest.mark.parametrize("mode", ["auto", True, False])
def test_compiled_models_run_here_too(mode, client, monkeypatch):
    evaluations, run_here = [], in_line.run_here
    for module in (eager, evaluation):
        monkeypatch.setattr(
            module, "run_here", lambda *args: evaluations.append(1) or run_here(*args)
        )
    model = dg.delayed(lambda x, k: np.sum(np.sin(x) * k), compile=mode)
    gradient = dg.grad(lambda x: model(x, 1.0) + model(x, 2.0))
    with dask.config.set({"daskgrad.compile": "auto"}):
        results = [gradient(X).tobytes() for _ in range(6)]
    assert len(set(results)) == 1
    assert len(evaluations) == 5


def test_an_error_that_the_function_handles_is_none_of_a_worker(client, node, log):
    def on_worker(x):
        return np.sum(x) * len([get_worker().address])

    model = dg.delayed(on_worker)

    def fun(x):
        try:
            return node(x) + model(x)
        except ValueError:
            return node(x)

    gradient = dg.value_and_grad(fun)
    results = [flat(gradient(X)).tobytes() for _ in range(4)]
    assert len(set(results)) == 1


def test_models_of_other_libraries_stay_on_the_cluster(client, node, log):
    dg.register_backend("of another library", daskgrad.autodiff.tape)
    other = dg.delayed(node.__wrapped__, backend="of another library")

    def gradient_of(model):
        return dg.grad(lambda x: model(x) + model(x, 2.0))

    gradient = gradient_of(other)
    with dask.config.set(scheduler="sync"):
        assert places(log, lambda: gradient(X), 3) == ["here"] * 3
    assert places(log, lambda: gradient(X), 2) == ["cluster"] * 2
    assert places(log, lambda: gradient_of(node)(X), 2) == ["here"] * 2
    assert places(log, lambda: gradient_of(other)(X), 2) == ["cluster"] * 2


def test_another_model_between_others_is_another_graph(client, node, log):
    light, heavy = dg.delayed(lambda x: x * 2.0), dg.delayed(lambda x: x * 3.0)

    def gradient_of(model):
        return dg.grad(lambda x: node(model(node(x) * x)))

    assert places(log, lambda: gradient_of(light)(X), 2) == ["cluster", "here"]
    assert places(log, lambda: dg.grad(lambda x: node(heavy(node(x) * x)))(X), 1) == ["cluster"]


def test_inline_seconds_of_zero_leave_all_to_the_cluster(client, node, log):
    gradient = dg.grad(lambda x: node(x) + node(x, 2.0))
    with dask.config.set({"daskgrad.inline.seconds": 0}):
        assert places(log, lambda: gradient(X), 3) == ["cluster"] * 3


class Listener(observers.Observer):
    def __init__(self):
        self.tasks = []

    def ran(self, task):
        self.tasks.append(task)


def test_pages_of_a_cluster_see_what_runs_here(client, node, log):
    listener = observers.of_clients.setdefault(client, Listener())
    gradient = dg.grad(lambda x: node(x) + node(x, 2.0))
    assert places(log, lambda: gradient(X), 2) == ["cluster", "here"]
    names = {str(task.key[0]).rpartition("-")[0] for task in listener.tasks}
    assert names >= {"forward-model", "backward-model"}
    assert {task.process for task in listener.tasks} == {os.getpid()}
    assert {task.thread for task in listener.tasks} == {threading.get_ident()}


def test_tasks_that_the_scheduler_has_forgotten_are_not_small(client):
    assert math.isinf(client.run_on_scheduler(seconds_in, ["forward-unknown"]))
