"""Which nodes take part in a derivative, in which order, and which are known to be scalars."""

import pickle

import autograd.numpy as np
import pytest

import daskgrad as dg
from daskgrad.autodiff.models.tracing import Active
from daskgrad.graph.activity import Graph, keeps_scalars
from daskgrad.graph.nodes import CallNode, order
from daskgrad.graph.operators import (
    ADD,
    DIVIDE,
    MATMUL,
    MULTIPLY,
    NEGATIVE,
    POWER,
    SUBTRACT,
    UFUNCS,
)
from daskgrad.sums.map_sum import MEAN

X = np.linspace(0.2, 1.3, 4)


@dg.delayed
def squash(x):
    return np.tanh(x)


@dg.delayed
def mix(x, y):
    return x * y


def test_inputs_come_first_and_every_node_once():
    x = dg.variable(X, name="x")
    a, b = dg.delayed(np.sin, name="a")(x), dg.delayed(np.cos, name="b")(x)
    end = dg.delayed(np.sum, name="end")(mix(a, b))
    for nodes in ([end], [end, a, x]):
        assert [node.name for node in order(nodes)] == ["x", "a", "b", "mix", "end"]
    for _ in range(5_000):  # needs no recursion
        end = squash(end)
    assert len(Graph(end, [x]).order) == 5_005


def test_active_nodes_lie_between_a_variable_and_the_output():
    x, y, z = [dg.variable(X, name=name) for name in "xyz"]
    p, q, s = [dg.delayed(np.sin, name=n)(v) for n, v in zip("pqs", (x, y, z), strict=True)]
    out = mix(p, q)
    assert Graph(out, [x]).active == {x, p, out}
    assert Graph(out, [y]).active == {y, q, out}
    assert Graph(out, [x, y, z]).active == {x, y, p, q, out}
    assert Graph(out, [z]).active == set()
    assert s not in set(Graph(out, [z]).order)
    assert s in set(Graph(out, [z], extras=[s]).order)
    assert s not in Graph(out, [z], extras=[s]).active


def test_a_part_of_a_variable_is_active_with_the_whole():
    p = dg.variable({"a": X, "b": [X, 2.0]})
    out = mix(p["a"], p["b"][1])
    assert Graph(out, [p]).active == {p["a"], p["b"][1], out}
    assert p["a"] is p["a"], "a part is one node, however often it is taken"


def test_active_inputs_are_watched_unless_they_are_variables():
    x = dg.variable(X)
    y = squash(x)
    out = mix(y, x)
    graph = Graph(out, [x])
    assert graph.active_inputs(out) == (Active(0, watched=True), Active(1, watched=False))
    assert Graph(out, []).active_inputs(out) == ()


def test_scalars_are_what_a_scalar_output_depends_on_elementwise():
    x = dg.variable(X)
    s, t, u = [dg.delayed(np.sum, name=name)(x) for name in "stu"]
    v = squash(u)
    out = dg.sum([s, -t * 2.0, v]) / 3.0
    assert {s, t, v} <= Graph(out, [x], output_is_scalar=True).scalars
    assert u not in Graph(out, [x], output_is_scalar=True).scalars
    assert not Graph(out, [x]).scalars


def test_only_elementwise_nodes_keep_scalars():
    x, y = dg.variable(X), dg.variable(X)
    for node in (x + y, x - y, x * y, x / y, x**y, -x, dg.sum([x, y])):
        assert keeps_scalars(node)
    for node in (x @ y, x[0], mix(x, y)):
        assert not keeps_scalars(node)


@pytest.mark.parametrize(
    "model", [ADD, SUBTRACT, MULTIPLY, DIVIDE, POWER, NEGATIVE, MEAN], ids=lambda model: model.name
)
def test_operators_declare_all_that_they_are(model):
    """What is forgotten would cost speed without a word."""
    fun, operator = model.fun, model.operator
    count = 1 if model is NEGATIVE else 2
    x, y = [0.75, 1.5][:count], [2.5, 0.5][:count]
    both = [a + b for a, b in zip(x, y, strict=True)]
    is_sum = fun(*both) == fun(*x) + fun(*y)
    ones = [[float(n == place) for n in range(count)] for place in range(count)]
    assert operator.signs == (tuple([fun(*one) for one in ones]) if is_sum else ())
    doubled = [[a * (1 + (n == place)) for n, a in enumerate(x)] for place in range(count)]
    linear = [place for place in range(count) if fun(*doubled[place]) == 2.0 * fun(*x)]
    assert operator.linear_in == (() if is_sum else tuple(linear))


def test_every_ufunc_of_nodes_is_elementwise_but_matmul():
    assert [model for model in UFUNCS.values() if model.operator is None] == [MATMUL]
    renamed = ADD._replace(name="plus")  # stays an operator
    assert keeps_scalars(CallNode(renamed, (dg.variable(1.0), 2.0), {}))
    assert pickle.loads(pickle.dumps(renamed)).operator == renamed.operator
