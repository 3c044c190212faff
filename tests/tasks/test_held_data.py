"""Data in graphs: what Dask needs to order them grows with their tasks, and tasks hold data."""

import math
import pickle
from collections import Counter

import autograd.numpy as np
import dask
import dask.order
import pytest
from dask.callbacks import Callback
from dask.task_spec import DataNode
from inputs import energy
from probes import peak_bytes

import daskgrad as dg
from daskgrad.tasks.task_graph import DataTask, TaskGraph

X = np.linspace(0.5, 1.5, 4)


def added(terms):
    total = 0.0
    for term in terms:
        total = total + term
    return total


def of_one(count):
    return dg.value_and_grad(lambda x: added([energy(x) for _ in range(count)]))(X)


def of_each(count):
    xs = [X.copy() for _ in range(count)]
    return dg.value_and_grad(lambda xs: added(map(energy, xs)))(xs)


def pulled_back(count):
    value, pullback = dg.vjp(lambda x: added([energy(x) for _ in range(count)]), X)
    return pullback(value)


def differentiated(count):
    xs = [dg.variable(X.copy()) for _ in range(count)]
    return dask.compute(dg.differentiate(dg.sum(list(map(energy, xs))), xs))


@pytest.fixture
def built(monkeypatch):
    graphs, build = [], TaskGraph.high_level_graph

    def remember(tasks, *keys):
        graphs.append(build(tasks, *keys))
        return graphs[-1]

    monkeypatch.setattr(TaskGraph, "high_level_graph", remember)
    return graphs


HERE = {"scheduler": "sync", "daskgrad.inline.seconds": 0.0}
ANYWHERE = {"scheduler": lambda *args, **_: dask.get(*args)}


def bytes_to_order(graph):
    """The least of three measures: threads of other tests' clusters hold objects, too."""
    tasks = dict(graph)
    return min([peak_bytes(lambda: dask.order.order(tasks)) for _ in range(3)])


@pytest.mark.parametrize(
    ("way", "program"), [(HERE, of_one), (HERE, of_each), (HERE, pulled_back), (ANYWHERE, of_one)]
)
def test_the_memory_that_ordering_takes_grows_with_the_graph(built, way, program):
    peaks = []
    for count in (50, 400):
        with dask.config.set(way):
            program(count)
        peaks.append(max(map(bytes_to_order, built)))
        built.clear()
    assert math.log(peaks[1] / peaks[0], 8) < 1.15, peaks


def data_in(graph):
    return [node for node in dict(graph).values() if isinstance(node, DataNode)]


@pytest.mark.parametrize("program", [of_one, of_each, pulled_back])
def test_tasks_that_run_here_hold_their_data(built, program):
    with dask.config.set(HERE):
        program(20)
    assert built
    asked = sum([len(data_in(graph)) for graph in built])
    assert asked == (program is pulled_back), "the value, which is there"


def test_one_task_is_added_and_runs():
    stages = Counter()
    with dask.config.set(HERE), Callback(pretask=lambda key, *_: stages.update([key[0][:9]])):
        of_each(20)
    expected = {"forward-e": 20, "forward-a": 2, "backward-": 22, "value-add": 1}
    assert stages == {**expected, "value-fir": 1}


def test_small_data_of_few_tasks_are_no_keys_where_they_are_many(built):
    differentiated(20)
    assert [type(node.value).__name__ for node in data_in(built[0])] == ["Model"]


def test_data_that_many_tasks_take_are_a_task_that_travels(built):
    with dask.config.set(ANYWHERE):
        of_one(20)
    (data,) = [node for node in dict(built[0]).values() if isinstance(node, DataTask)]
    moved = pickle.loads(pickle.dumps(data))
    assert type(moved) is DataTask
    assert moved.key == data.key
    assert moved({}).tobytes() == moved.value.tobytes() == X.tobytes()
