"""The tasks of a derivative: what each needs, and in which order cotangents are added."""

import autograd.numpy as np
import dask
import pytest
from numpy.testing import assert_array_equal

import daskgrad as dg
from daskgrad.autodiff.models.captured import Captured
from daskgrad.autodiff.values.cotangents import Cotangent, Seed
from daskgrad.graph.activity import Graph
from daskgrad.graph.backward import build_backward
from daskgrad.graph.forward import build_forward
from daskgrad.tasks.task_graph import TaskGraph

X = np.linspace(0.2, 1.3, 4)


def named(name):
    return dg.delayed(lambda x, y=1.0: np.sin(x) * y, name=name)


P, Q, R, END = map(named, ("p", "q", "r", "end"))


def built(output, *wrt, cotangent=None, extras=()):
    """The forward pass, what arrives at the variables, and all tasks."""
    tasks = TaskGraph()
    forward = build_forward(Graph(output, wrt, extras), tasks)
    arrived = build_backward(forward, tasks, cotangent or Cotangent((np.ones(4),)))
    return forward, arrived, dict(tasks.high_level_graph())


def short(key):
    return key[0].rsplit("-", 1)[0]


def diamond(x, y):
    p = P(x)
    return END(Q(p), R(p))


FORWARD = {  # of programs of x, which is differentiated, and of y: tasks, and what they need
    "a consumer needs the value alone: x ── p ── q": (
        lambda x, y: Q(P(x)),
        {
            "value-x": [],
            "forward-p": ["value-x"],
            "value-p": ["forward-p"],
            "forward-q": ["value-p"],
            "value-q": ["forward-q"],
        },
    ),
    "an inactive node is evaluated and keeps nothing: x ── end ── q ── y": (
        lambda x, y: END(x, Q(y)),
        {
            "value-x": [],
            "value-y": [],
            "value-q": ["value-y"],
            "forward-end": ["value-q", "value-x"],
            "value-end": ["forward-end"],
        },
    ),
}
BACKWARD = {
    "a chain is mirrored": (
        lambda x, y: Q(P(x)),
        {
            "backward-q": ["forward-q", "value-p", "value-q"],
            "backward-p": ["backward-q", "forward-p", "value-x"],
        },
    ),
    "a diamond adds up what its two branches return": (
        diamond,
        {
            "backward-end": ["forward-end", "value-end", "value-q", "value-r"],
            "cotangent-end": ["backward-end"],
            "backward-q": ["cotangent-end", "forward-q", "value-p"],
            "backward-r": ["cotangent-end", "forward-r", "value-p"],
            "cotangent-p": ["backward-q", "backward-r"],
            "backward-p": ["cotangent-p", "forward-p", "value-x"],
        },
    ),
    "a node that no cotangent reaches has no task": (
        lambda x, y: END(P(x), Q(y)),
        {
            "backward-end": ["forward-end", "value-end", "value-p", "value-q"],
            "backward-p": ["backward-end", "forward-p", "value-x"],
        },
    ),
    "a sum hands its cotangent on without a task": (
        lambda x, y: dg.sum([P(x), Q(x)]),
        {
            "backward-p": ["forward-p", "value-p", "value-x"],
            "backward-q": ["forward-q", "value-q", "value-x"],
            "cotangent-x": ["backward-p", "backward-q"],
        },
    ),
}


@pytest.mark.parametrize("name", [*FORWARD, *BACKWARD])
def test_what_the_tasks_need(name):
    program, expected = {**FORWARD, **BACKWARD}[name]
    x, y = dg.variable(X, name="x"), dg.variable(X, name="y")
    _, arrived, tasks = built(program(x, y), x)
    stages = ("value", "forward") if name in FORWARD else ("backward", "cotangent")
    needs = {short(key): sorted(map(short, task.dependencies)) for key, task in tasks.items()}
    assert {key: value for key, value in needs.items() if key.split("-")[0] in stages} == expected
    assert list(arrived) == [x]


def test_values_pullbacks_and_cotangents():
    x = dg.variable(X, name="x")
    node, extra = P(x), Q(P(x))
    forward, arrived, tasks = built(node, x, extras=[extra])
    keys = [forward.captured[node].key, forward.values[node].key, forward.values[extra].key]
    captured, value, other = dask.get(tasks, keys)
    assert isinstance(captured, Captured)
    assert value is captured.value
    assert_array_equal(value, np.sin(X))
    assert_array_equal(other, np.sin(np.sin(X)))
    assert not any(short(key) == "forward-q" for key in tasks), "it does not matter to the output"
    (reference,) = arrived.values()
    assert_array_equal(dask.get(tasks, reference.key).leaves[0], np.cos(X))


def test_cotangents_are_added_in_the_order_in_which_the_value_was_used():
    """(1e16 + 1) - 1e16 = 0 and (1e16 - 1e16) + 1 = 1, by the order in which nodes are recorded."""
    x = dg.variable(np.float64(1.0))
    total = dg.delayed(lambda *terms: terms[0] + terms[1] + terms[2])

    def gradient(*weights):
        models = [dg.delayed(lambda x, w=weight: w * x) for weight in weights]
        return dask.compute(*dg.differentiate(total(*[model(x) for model in models]), x))[1]

    assert gradient(1e16, 1.0, -1e16) == 0.0
    assert gradient(1e16, -1e16, 1.0) == 1.0


def test_parts_of_a_variable_get_a_cotangent_each():
    p = dg.variable({"a": X, "b": X}, name="p")
    assert {node.name for node in built(END(p["a"], p["b"]), p)[1]} == {"p['a']", "p['b']"}
    assert [node.name for node in built(END(p["a"], 2.0), p)[1]] == ["p['a']"]


def test_the_seed_of_a_plain_sum_is_no_task():
    """Nothing is pulled back before the forward tasks of the terms are there."""
    x = dg.variable(np.float64(2.0), name="x")
    models = [dg.delayed(lambda x, n=n: n * x**2, name="term") for n in range(3)]
    _, _, tasks = built(dg.sum([model(x) for model in models]), x, cotangent=Seed())
    backward = [task for key, task in tasks.items() if short(key) == "backward-term"]
    assert len(backward) == 3
    for task in backward:
        needs = sorted(map(short, task.dependencies))
        assert needs == ["forward-term", "value-term", "value-x"]
