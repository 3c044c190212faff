"""Which nodes take part in a derivative, in which order, and which are known to be scalars."""

import pickle

import pytest

import daskgrad as dg
from daskgrad.graph.activity import keeps_scalars
from daskgrad.graph.nodes import CallNode
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
