"""The mirrored graph: what each backward task needs, and in which order cotangents are added."""

import autograd.numpy as np
import dask
from numpy.testing import assert_array_equal

import daskgrad as dg
from daskgrad.graph.activity import Graph
from daskgrad.graph.backward import build_backward
from daskgrad.graph.forward import build_forward
from daskgrad.tasks.task_graph import TaskGraph
from daskgrad.values.cotangents import Cotangent, Seed

X = np.linspace(0.2, 1.3, 4)


def named(name):
    """A model with two inputs under that name."""
    return dg.delayed(lambda x, y=1.0: np.sin(x) * y, name=name)


def built(output, *wrt, cotangent=None):
    """What arrives at the variables, all tasks, and what the tasks of the backward pass need."""
    tasks = TaskGraph()
    graph = Graph(output, wrt)
    forward = build_forward(graph, tasks)
    arrived = build_backward(forward, tasks, cotangent or Cotangent((np.ones(4),)))
    dsk = dict(tasks.high_level_graph())
    needs = {
        short(key): sorted(map(short, task.dependencies))
        for key, task in dsk.items()
        if short(key).split("-")[0] in ("backward", "cotangent")
    }
    return arrived, dsk, needs


def short(key):
    return key[0].rsplit("-", 1)[0]


def test_a_chain_is_mirrored():
    """
    ::

        x ── p ── q          backward-q (its seed is known) ── backward-p
    """
    x = dg.variable(X, name="x")
    arrived, _, needs = built(named("q")(named("p")(x)), x)
    assert needs == {
        "backward-q": ["forward-q", "value-p", "value-q"],
        "backward-p": ["backward-q", "forward-p", "value-x"],
    }
    assert [short(ref.key) for ref in arrived.values()] == ["backward-p"]


def test_a_diamond_adds_up_what_its_two_branches_return():
    """
    ::

            ┌── q ──┐                     ┌── cotangent-end ── backward-q ──┐
        p ──┤       ├── end  backward-end ┤                                 ├── cotangent-p
            └── r ──┘                     └── cotangent-end ── backward-r ──┘
    """
    x = dg.variable(X, name="x")
    p = named("p")(x)
    _, dsk, needs = built(named("end")(named("q")(p), named("r")(p)), x)
    assert needs["cotangent-end"] == ["backward-end"]
    assert needs["backward-q"] == ["cotangent-end", "forward-q", "value-p"]
    assert needs["backward-r"] == ["cotangent-end", "forward-r", "value-p"]
    assert needs["cotangent-p"] == ["backward-q", "backward-r"]
    assert needs["backward-p"] == ["cotangent-p", "forward-p", "value-x"]
    assert sum(short(key) == "cotangent-end" for key in dsk) == 2


def test_cotangents_are_added_in_the_order_in_which_the_value_was_used():
    """(1e16 + 1) - 1e16 = 0 and (1e16 - 1e16) + 1 = 1, by the order in which nodes are recorded."""
    x = dg.variable(np.float64(1.0))
    total = dg.delayed(lambda *terms: terms[0] + terms[1] + terms[2])
    weights = {"big": 1e16, "one": 1.0, "minus": -1e16}

    def gradient(*names):
        models = [dg.delayed(lambda x, w=weights[name]: w * x, name=name) for name in names]
        output = total(*[model(x) for model in models])
        return dask.compute(*dg.differentiate(output, x))[1]

    assert gradient("big", "one", "minus") == 0.0
    assert gradient("big", "minus", "one") == 1.0


def test_a_node_that_no_cotangent_reaches_has_no_task():
    """
    ::

        x ── p ──┐
        y ── q ──┴── end          y is a constant here
    """
    x, y = dg.variable(X, name="x"), dg.variable(X, name="y")
    arrived, _, needs = built(named("end")(named("p")(x), named("q")(y)), x)
    assert list(arrived) == [x]
    assert set(needs) == {"backward-end", "backward-p"}


def test_a_sum_hands_its_cotangent_on_without_a_task():
    """
    ::

        p ──┐
        q ──┴── sum               backward-p and backward-q take the cotangent that is known
    """
    x = dg.variable(X, name="x")
    arrived, dsk, needs = built(dg.sum([named("p")(x), named("q")(x)]), x)
    assert set(needs) == {"backward-p", "backward-q", "cotangent-x"}
    (reference,) = arrived.values()
    result = dask.get(dsk, reference.key)
    assert_array_equal(result.leaves[0], 2.0 * np.cos(X))


def test_parts_of_a_variable_get_a_cotangent_each():
    p = dg.variable({"a": X, "b": X}, name="p")
    arrived, _, _ = built(named("end")(p["a"], p["b"]), p)
    assert {node.name for node in arrived} == {"p['a']", "p['b']"}
    arrived, _, _ = built(named("end")(p["a"], 2.0), p)
    assert [node.name for node in arrived] == ["p['a']"]


def test_the_seed_of_a_plain_sum_is_no_task():
    """Nothing is pulled back before the forward tasks of the terms are there."""
    x = dg.variable(np.float64(2.0), name="x")
    models = [dg.delayed(lambda x, n=n: n * x**2, name="term") for n in range(3)]
    _, dsk, needs = built(dg.sum([model(x) for model in models]), x, cotangent=Seed())
    assert needs["backward-term"] == ["forward-term", "value-term", "value-x"]
    assert sum(short(key) == "backward-term" for key in dsk) == 3
