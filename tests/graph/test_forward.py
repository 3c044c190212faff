"""The forward graph: one task a node that keeps its pullback, one that passes its value on."""

import autograd.numpy as np
import dask
from numpy.testing import assert_array_equal

import daskgrad as dg
from daskgrad.graph.activity import Graph
from daskgrad.graph.forward import build_forward
from daskgrad.models.captured import Captured
from daskgrad.tasks.task_graph import TaskGraph

X = np.linspace(0.2, 1.3, 4)


@dg.delayed
def squash(x):
    return np.tanh(x)


@dg.delayed
def energy(x):
    return np.sum(x * x)


def built(output, *wrt, extras=()):
    """The tasks by name, (stage, model): what they need, by name."""
    tasks = TaskGraph()
    forward = build_forward(Graph(output, wrt, extras), tasks)
    graph = dict(tasks.high_level_graph())
    needs = {short(key): sorted(map(short, task.dependencies)) for key, task in graph.items()}
    return forward, graph, needs


def short(key):
    return key[0].rsplit("-", 1)[0]


def test_a_consumer_needs_the_value_alone():
    """
    ::

        value-x ── forward-squash ── value-squash ── forward-energy ── value-energy
    """
    x = dg.variable(X, name="x")
    _, _, needs = built(energy(squash(x)), x)
    assert needs == {
        "value-x": [],
        "forward-squash": ["value-x"],
        "value-squash": ["forward-squash"],
        "forward-energy": ["value-squash"],
        "value-energy": ["forward-energy"],
    }


def test_an_inactive_node_is_evaluated_and_keeps_nothing():
    """
    ::

        value-y ── value-squash ──┐
        value-x ──────────────────┴── forward-dot ── value-dot
    """
    x, y = dg.variable(X, name="x"), dg.variable(X, name="y")
    _, _, needs = built(dg.delayed(np.dot, name="dot")(x, squash(y)), x)
    assert needs == {
        "value-x": [],
        "value-y": [],
        "value-squash": ["value-y"],
        "forward-dot": ["value-squash", "value-x"],
        "value-dot": ["forward-dot"],
    }


def test_the_forward_task_returns_value_and_pullback_and_the_value_task_the_value():
    x = dg.variable(X, name="x")
    node = squash(x)
    forward, graph, _ = built(node, x)
    captured, value = dask.get(graph, [forward.captured[node].key, forward.values[node].key])
    assert isinstance(captured, Captured)
    assert value is captured.value
    assert_array_equal(value, np.tanh(X))


def test_a_model_of_several_nodes_is_one_key():
    x = dg.variable(X)
    tasks = TaskGraph()
    build_forward(Graph(squash(squash(squash(x))), [x]), tasks)
    held = [task for task in dict(tasks.high_level_graph()).values() if hasattr(task, "value")]
    assert sum(task.value is squash.model for task in held) == 1


def test_every_evaluation_has_keys_of_its_own():
    """Dask would return the old result for a key that it knows."""
    x = dg.variable(X, name="x")
    node = squash(x)
    first, second = [set(built(node, x)[1]) for _ in range(2)]
    assert {short(key) for key in first & second} == {"value-x"}


def test_an_extra_output_is_in_the_forward_pass():
    x = dg.variable(X, name="x")
    extra = energy(squash(x))
    forward, graph, needs = built(squash(x), x, extras=[extra])
    assert needs["value-energy"] == ["value-squash"], "evaluated: it does not matter to the output"
    assert dask.get(graph, forward.values[extra].key) == np.sum(np.tanh(X) ** 2)
