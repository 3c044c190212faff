"""Nodes: what is recorded, what stands for it, and that nothing runs before it is asked for."""

import copy
import functools
import gc
import operator
import pickle
import sys
from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import NamedTuple

import autograd
import autograd.numpy as np
import dask
import dask.bag
import dask.dataframe
import distributed
import optree
import pandas
import pytest
from dask.utils import key_split
from numpy.testing import assert_allclose, assert_array_equal
from optree.dataclasses import dataclass
from schedulers import schedulers_in_turn

import daskgrad as dg
from daskgrad.graph.nodes import HEAVY, CallNode, Node
from daskgrad.graph.variables import Variable

X = np.array([0.3, 0.5, 0.9])
Y = np.array([2.0, -1.0, 0.5])
M = np.array([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0], [2.0, 2.0, 1.0]])


pytestmark = pytest.mark.usefixtures("synchronous")


@dg.delayed
def energy(x):
    return np.sum(np.sin(x) ** 2)


def plain_energy(x):
    return np.sum(np.sin(x) ** 2)


def counted(fun):
    """A model that counts how often it ran, on which kinds of arguments."""

    def model(*args):
        model.kinds.append(type(args[0]).__name__)
        return fun(*args)

    model.kinds = []
    return model


# --------------------------------------------------------------------------------- operators


OPERATORS = {
    "x + y": lambda x, y: x + y,
    "x - y": lambda x, y: x - y,
    "x * y": lambda x, y: x * y,
    "x / y": lambda x, y: x / y,
    "x ** 2": lambda x, y: x**2 + y,
    "x ** y": lambda x, y: x**y,
    "2.0 ** y": lambda x, y: x + 2.0**y,
    "-x": lambda x, y: -x * y,
    "number on the left": lambda x, y: (1.0 - x) + 2.0 / y + 3.0 * x + (0.5 + y),
    "number on the right": lambda x, y: (x - 1.0) / 2.0 + y * 3.0,
    "array on the left": lambda x, y: (Y + x) * (Y - y) + Y * x + Y / x + np.abs(Y) ** y,
    "array on the right": lambda x, y: (x + Y) * (y - Y) + x * Y + y / Y,
    "scalar on the left": lambda x, y: np.float64(2.0) * x + np.float32(1.0) - y,
    "matrix on the left": lambda x, y: M @ x + y,
    "matrix on the right": lambda x, y: x @ M + y,
    "x @ y": lambda x, y: x @ y,
    "index": lambda x, y: x[0] * y[-1],
    "slices": lambda x, y: x[1:] * y[:-1],
    "index arrays": lambda x, y: x[[0, 0, 2]] * y[np.array([True, False, True])][0],
    "new axes": lambda x, y: x[:, None] * y[None],
    "used many times": lambda x, y: x * x + x / x - x * y * x,
    "in place": lambda x, y: operator.imul(operator.iadd(x * 1.0, y), 2.0),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_on_nodes_is_the_operator_on_their_values(name):
    apply = OPERATORS[name]
    x, y = X, X + 1.0
    node = apply(dg.variable(x), dg.variable(y))
    assert isinstance(node, CallNode)
    assert_allclose(node.compute(), apply(x, y), rtol=1e-15)
    value, gradients = dg.value_and_grad(lambda x, y: energy(apply(x, y)), argnums=(0, 1))(x, y)
    plain = lambda x, y: plain_energy(apply(x, y))  # noqa: E731
    assert_allclose(value, plain(x, y), rtol=1e-14)
    for found, expected in zip(gradients, autograd.grad(plain, argnum=(0, 1))(x, y), strict=True):
        assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_an_operator_keeps_the_dtype_of_its_operands():
    x = dg.variable(np.float32([1.0, 2.0]))
    assert (x * 2.0).compute().dtype == np.float32
    assert (np.float32(2.0) * x).compute().dtype == np.float32
    assert (np.ones(2) * x).compute().dtype == np.float64


def test_numpys_functions_for_the_operators_take_nodes():
    x = dg.variable(X)
    for ufunc in (np.add, np.subtract, np.multiply, np.divide, np.power):
        assert_allclose(ufunc(x, Y).compute(), ufunc(X, Y), rtol=1e-15)
    assert_allclose(np.negative(x).compute(), -X)
    assert_allclose(np.matmul(M, x).compute(), M @ X)


# ------------------------------------------------------------------------------- variables


def test_a_variable_copies_its_value():
    """Whatever the caller does to the array later, the graph has what it was given."""
    x = X.copy()
    pytree = {"w": x, "list": [x]}
    node, other = energy(dg.variable(x)), energy(dg.variable(pytree)["list"][0])
    x *= 0.0
    pytree["list"][0] = None
    assert node.compute() == other.compute() == plain_energy(X)


def test_a_variable_has_a_copy_in_c_order_whatever_it_is_given():
    strided = np.arange(12.0).reshape(3, 4).T[::2]
    value = dg.variable(strided).compute()
    assert value.flags.c_contiguous
    assert_array_equal(value, strided)


@pytest.mark.parametrize(
    "value", [2.0, np.float32(2.0), np.float16(1.0), 1j, np.complex64(1j), np.zeros((0, 3)), X > 0]
)
def test_a_variables_value_keeps_its_dtype_and_shape(value):
    computed = dg.variable(value).compute()
    assert np.shape(computed) == np.shape(value)
    assert np.asarray(computed).dtype == np.asarray(value).dtype


def test_a_variable_is_shown_under_its_name():
    assert repr(dg.variable(X, "weights")) == "<Variable weights>"
    assert repr(dg.variable({"w": [X]}, "p")["w"][0]) == "<Variable p['w'][0]>"
    assert repr(energy(X)) == "<CallNode energy>"
    assert repr(energy) == "<model energy>"
    assert f"{energy(X)}" == "<CallNode energy>"


def test_the_value_of_a_variable_is_no_attribute_that_could_be_used_by_mistake():
    """A constant in the place of a variable has the gradient zero, and no error."""
    assert not hasattr(dg.variable(X), "value")


# ------------------------------------------------------------------- parts of pytree variables


Point = namedtuple("Point", "x, y")
Tree = namedtuple("Tree", "root, leaves")


class Named(NamedTuple):
    x: object
    y: object

    @property
    def key(self):
        return self.x


@dataclass(namespace="daskgrad")
class Layer:
    w: object
    b: object


@dataclass(namespace="daskgrad")
class Titled:
    name: str
    inputs: object


W, B = np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]), np.array([0.7, 0.8])
PROGRAMS = {
    "items of a dict": ({"w": W, "b": B}, lambda p: [X @ p["w"], p["b"]]),
    "one item": ({"w": W, "b": B}, lambda p: [X @ p["w"]]),
    "unpacked": ((W, B), lambda p: (lambda w, b: [X @ w, b])(*p)),
    "a list": ([W, B], lambda p: [X @ p[0], p[-1]]),
    "a slice": ([B, B + 1, B + 2], lambda p: [sum_up(*p[1:])]),
    "a slice backwards": ([B, B + 1, B + 2], lambda p: [p[::-1][0] * p[::2][0]]),
    "a loop": ([B, B + 1, B + 2], lambda p: [b * b for b in p]),
    "nested": ({"a": [{"w": W}, B]}, lambda p: [X @ p["a"][0]["w"], p["a"][1]]),
    "whole and part": ({"w": W, "b": B}, lambda p: [layer(p), p["b"] * p["b"], layer(p)]),
    "part and whole": ({"w": W, "b": B}, lambda p: [p["b"] * p["b"], layer(p)]),
    "a part of a part": ([{"w": W, "b": B}, B], lambda p: [layer(p[0]), p[0]["b"], p[1]]),
    "not the first": ([B, [B + 1, {"b": B + 2}]], lambda p: [p[1][1]["b"] * p[1][0], p[0]]),
    "all three levels": ([{"w": W, "b": B}], lambda p: [layers(p), layer(p[0]), p[0]["b"]]),
    "operators on parts": ({"w": W, "b": B}, lambda p: [(p["w"] * 2.0)[1] - p["b"][::-1]]),
    "a namedtuple": (Point(B, B + 1), lambda p: [p[0] * p[1]]),
    "fields": (Point(B, B + 1), lambda p: [p.x * p.y * p.y]),
    "a namedtuple unpacked": (Point(B, B + 1), lambda p: (lambda x, y: [x * y * y])(*p)),
    "fields with names of ours": (Tree(B, B + 1), lambda p: [p.leaves * p.root, p[1], p.root]),
    "whole, with names of ours": (Tree(B, B + 1), lambda p: [product(p), p.leaves]),
    "nested, with names of ours": (
        {"a": [Tree(B, Tree(B + 1, B + 2))]},
        lambda p: [p["a"][0].leaves.root * p["a"][-1].root, *p["a"][0].leaves],
    ),
    "a property with a name of ours": (Named(B, B + 1), lambda p: [p.key * p.y]),
    "a deque": (deque([B, B + 1]), lambda p: [p[-1], p[0] * p[len(p) - 1], *p]),
    "indices of NumPy": ([B, B + 1], lambda p: [p[np.int64(-1)] * p[np.int32(0)]]),
    "integers among them": ({"n": 3, "b": B, "s": "text"}, lambda p: [p["b"] * p["n"]]),
    "numbers": ([1.0, 2.0], lambda p: [p[0] * p[1], p[1] / p[0]]),
}


def sum_up(first, second):
    return first * second


def layer(p):
    return LAYER(p) if isinstance(p, Node) else plain_layer(p)


def layers(p):
    return LAYERS(p) if isinstance(p, Node) else plain_layer(p[0])


def product(p):
    return (PRODUCT if isinstance(p.root, Node) else plain_product)(p)


def plain_product(p):
    return p.root * p.leaves


def plain_layer(p):
    return np.tanh(X @ p["w"] + p["b"])


LAYER = dg.delayed(plain_layer, name="layer")
PRODUCT = dg.delayed(plain_product, name="product")
LAYERS = dg.delayed(lambda p: plain_layer(p[0]), name="layers")


@pytest.mark.filterwarnings("ignore:Output seems independent")
@schedulers_in_turn("name", PROGRAMS)
def test_parts_of_a_variable_have_the_gradients_that_autograd_finds(name, scheduler):
    value, program = PROGRAMS[name]
    objective = lambda p: dg.sum([energy(term) for term in program(p)])  # noqa: E731
    total = lambda p: sum([plain_energy(term) for term in program(p)])  # noqa: E731
    found, gradient = dg.value_and_grad(objective)(value)
    assert_allclose(found, total(value), rtol=1e-13)
    expected = gradient_by_leaf(total, value)
    leaves, structure = optree.tree_flatten(gradient, none_is_leaf=True)
    assert structure == optree.tree_structure(value, none_is_leaf=True)
    for a, b in zip(leaves, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def gradient_by_leaf(fun, value):
    """autograd's gradient for each float leaf, with None for the others."""
    leaves, structure = optree.tree_flatten(value, none_is_leaf=True)

    def at(leaf, number):
        return fun(
            optree.tree_unflatten(structure, [*leaves[:number], leaf, *leaves[number + 1 :]])
        )

    return [
        autograd.grad(at)(leaf, number) if np.asarray(leaf).dtype.kind == "f" else None
        for number, leaf in enumerate(leaves)
    ]


def test_a_variable_with_names_of_ours_is_its_value_s_class_of_variables():
    p = dg.variable(Tree(B, B + 1))
    assert isinstance(p, Tree)
    value, gradient = dask.compute(*dg.differentiate(energy(PRODUCT(p)) + energy(p.root), p))
    total = lambda p: plain_energy(plain_product(p)) + plain_energy(p.root)  # noqa: E731
    assert_allclose(value, total(Tree(B, B + 1)))
    assert_allclose(gradient, gradient_by_leaf(total, Tree(B, B + 1)))


def test_a_dataclass_with_names_of_ours_has_its_fields():
    found = dg.grad(lambda p: energy(p.inputs[0] * p.inputs[1]))(Titled("t", [B, B + 1]))
    first, second = autograd.grad(lambda p: plain_energy(p[0] * p[1]))([B, B + 1])
    assert isinstance(found, Titled)
    assert found.name is None
    assert_allclose(found.inputs, [first, second])


@optree.dataclasses.dataclass(namespace="daskgrad")
class Counted:
    name: str
    w: object

    def __post_init__(self):
        self.count = self.w.shape[0]


def test_a_class_with_names_of_ours_that_cannot_hold_variables_is_an_error_that_says_so():
    with pytest.raises(AttributeError, match=r"\.shape needs the value") as caught:
        dg.grad(lambda p: energy(p.w))(Counted("c", B))
    assert "give these other names, or pass a dict" in caught.value.__notes__[0]


def test_a_part_is_one_object_however_often_it_is_taken():
    p = dg.variable({"w": [X, Y]})
    assert p["w"] is p["w"]
    assert p["w"][0] is p["w"][-2]
    assert all(a is b for a, b in zip(p["w"], p["w"][:], strict=True))
    assert isinstance(p["w"][0], Variable)
    assert len(p["w"]) == 2


def test_a_part_that_is_not_there_is_an_error_that_lists_those_there_are():
    p = dg.variable({"w": [X, Y], 3: X}, "p")
    with pytest.raises(KeyError, match=r"variable 'p' has no item 'b'; it has .*'w'"):
        p["b"]
    with pytest.raises(IndexError, match=r"variable \"p\['w'\]\" has no item 2; it has 0, 1"):
        p["w"][2]
    with pytest.raises(KeyError, match=r"variable 'list' has no item 'a'; it has 0, 1"):
        dg.variable([X, Y], "list")["a"]
    with pytest.raises(AttributeError, match=r"\.z needs the value of <Variable point>"):
        operator.attrgetter("z")(dg.variable(Point(X, Y), "point"))


def test_items_of_an_array_are_nodes_and_not_parts():
    x = dg.variable(X)
    assert isinstance(x[0], CallNode)
    with pytest.raises(TypeError, match="iteration"):
        iter(x)


# --------------------------------------------------------------------- where nodes may stand


PLACES = {
    "a dict": lambda x: {"a": x, "n": 1},
    "a list": lambda x: [1.0, x],
    "a tuple": lambda x: (x, "text"),
    "a namedtuple": lambda x: Point(x, 2.0),
    "a dataclass": lambda x: Layer(x, None),
    "an ordered dict": lambda x: OrderedDict(b=x, a=1.0),
    "a default dict": lambda x: defaultdict(list, {"a": x}),
    "a deque": lambda x: deque([x]),
    "deep": lambda x: {"a": [({"b": Layer([x], Point(1, (x,)))},)]},
    "twice": lambda x: [x, {"a": x}],
}


def collected(pytree, scale=1.0):
    """The sum over all arrays of a pytree."""
    leaves = optree.tree_leaves(pytree, namespace="daskgrad")
    return scale * sum([np.sum(leaf**2) for leaf in leaves if not isinstance(leaf, str)])


@schedulers_in_turn("place", PLACES)
def test_nodes_stand_anywhere_in_an_argument(place, scheduler):
    put = PLACES[place]
    count = len([v for v in optree.tree_leaves(put("x"), namespace="daskgrad") if v == "x"])
    model = dg.delayed(collected)
    gradient = dg.grad(lambda x: model(put(x * 1.0), scale=3.0) + model(scale=2.0, pytree=put(x)))
    assert_allclose(gradient(X), count * 10.0 * X, rtol=1e-14)


def test_keyword_arguments_are_differentiated_as_positional_ones():
    model = dg.delayed(lambda x, *, w, b=0.0: np.sum(x * w + b))
    gradients = dg.grad(lambda x, w, b: model(x, w=w, b=b), argnums=(0, 1, 2))(X, Y, 0.5)
    assert_allclose(gradients[0], Y)
    assert_allclose(gradients[1], X)
    assert_allclose(gradients[2], 3.0)


def test_a_function_gets_its_own_keyword_arguments():
    def objective(x, scale=1.0, *, shift=None):
        return energy(x * scale + shift)

    gradient = dg.grad(objective)(X, scale=2.0, shift=Y)
    expected = autograd.grad(lambda x: plain_energy(2.0 * x + Y))(X)
    assert_allclose(gradient, expected, rtol=1e-14)


def test_a_node_that_is_an_argument_twice_is_one_input():
    x = dg.variable(X)
    node = dg.delayed(collected)([x, x, {"a": x}])
    assert node.inputs == (x,)
    assert_allclose(dg.grad(lambda x: dg.delayed(collected)([x, x]))(X), 4 * X)


# ------------------------------------------------------------------------------- constants


@pytest.mark.parametrize("size", [HEAVY // 8, HEAVY // 8 + 1])
def test_small_and_large_constants_are_right(size, scheduler):
    data = np.linspace(0.0, 1.0, size)
    model = dg.delayed(lambda x, data: np.sum(x * data))
    value, gradient = dg.value_and_grad(lambda x: model(x, data) + model(x, [data]))(2.0)
    assert_allclose(value, 4.0 * np.sum(data))
    assert_allclose(gradient, 2.0 * np.sum(data))


def test_a_large_constant_is_one_key_however_many_nodes_use_it():
    data = np.zeros(HEAVY)
    model = dg.delayed(lambda data, other: 0.0)
    total = dg.sum([model(data, data) for _ in range(4)])
    keys = [key for key in total.__dask_graph__() if key_split(key) == "value-constants"]
    assert len(keys) == 1
    assert np.shape(total.__dask_graph__()[keys[0]]()) == data.shape


def test_dask_delayed_objects_are_constants(scheduler):
    ran = dask.delayed(lambda: Y * 2.0)()
    gradient = dg.grad(lambda x: energy(dg.delayed(operator.mul)(x, ran)))(X)
    assert_allclose(gradient, autograd.grad(lambda x: plain_energy(x * Y * 2.0))(X), rtol=1e-14)


def test_dask_arrays_are_constants(scheduler):
    data = pytest.importorskip("dask.array").from_array(np.arange(6.0), chunks=2)
    model = dg.delayed(lambda x, data: np.sum(x * data.reshape(2, 3)))
    assert_allclose(dg.grad(lambda x: model(x, data))(X), [3.0, 5.0, 7.0])
    assert_allclose(dg.grad(lambda x: model(x, {"a": data}["a"] * 2))(X), [6.0, 10.0, 14.0])


def test_dask_bags_are_constants(scheduler):
    bag = dask.bag.from_sequence([1.0, 2.0, 3.0], npartitions=2)
    model = dg.delayed(lambda x, data: np.sum(x) * sum(data))
    assert_allclose(dg.grad(lambda x: model(x, bag))(X), [6.0, 6.0, 6.0])


def test_dask_dataframes_are_constants(scheduler):
    table = dask.dataframe.from_pandas(pandas.DataFrame({"a": [1.0, 2.0, 3.0]}), npartitions=2)
    model = dg.delayed(lambda x, table: np.sum(x * table["a"].to_numpy()))
    assert_allclose(dg.grad(lambda x: model(x, table))(X), [1.0, 2.0, 3.0])


def test_futures_are_constants(client):
    future, scattered = client.submit(operator.mul, Y, 2.0), client.scatter(Y)
    model = dg.delayed(lambda x, a, b: np.sum(x * a * b["b"]))
    assert_allclose(dg.grad(lambda x: model(x, future, {"b": scattered}))(X), 2.0 * Y**2)


def test_lazy_derivatives_hold_the_futures_that_they_use(client):
    x = dg.variable(X)

    def lazy():
        items = [client.submit(operator.mul, Y, n) for n in (2.0, 3.0)]
        product = dg.delayed(lambda y, x: np.sum(y * x), name="product")
        return dg.differentiate(product(client.scatter(Y), x) + dg.map_sum(product, items, x), x)

    value, gradient = lazy()
    gc.collect()
    distributed.wait([client.submit(int, pure=False)])  # then releases are heard of
    assert_allclose(gradient.compute(), 6.0 * Y)
    assert_allclose(value.compute(), 6.0 * np.sum(X * Y))


def test_nodes_of_another_graph_that_were_persisted_are_constants(scheduler):
    other = (dg.variable(Y) * 2.0).persist()
    gradient = dg.grad(lambda x: energy(x * other))(X)
    assert_allclose(gradient, autograd.grad(lambda x: plain_energy(x * Y * 2.0))(X), rtol=1e-14)


# ------------------------------------------------------------------------------ the decorator


def test_delayed_is_a_decorator_with_and_without_arguments():
    @dg.delayed
    def bare(x):
        """The docstring."""
        return np.sum(x)

    @dg.delayed(name="other", keep="tape")
    def named(x):
        return np.sum(x)

    @dg.delayed()
    def empty(x):
        return np.sum(x)

    assert bare.__doc__ == "The docstring."
    assert [model.model.name for model in (bare, named, empty)] == ["bare", "other", "empty"]
    assert named.model.keep == "tape"
    for model in (bare, named, empty):
        assert_allclose(dg.grad(model)(X), np.ones(3))
    assert named.__wrapped__(X) == np.sum(X)


def test_delayed_of_a_model_is_a_model_of_its_function():
    again = dg.delayed(energy, name="again", keep="tape")
    assert again.model.fun is energy.model.fun
    assert again.model.name == "again"


@pytest.mark.parametrize(
    ("fun", "name"),
    [
        (plain_energy, "plain_energy"),
        (lambda x: x, "<lambda>"),
        (functools.partial(functools.partial(plain_energy)), "plain_energy"),
        (np.sin, "sin"),
        (operator.itemgetter(0), "itemgetter"),
        (X.mean, "mean"),
    ],
)
def test_a_model_has_the_name_of_its_function(fun, name):
    assert dg.delayed(fun).model.name == name
    assert dg.delayed(fun)(X).name == name


def test_methods_are_models():
    class Station:
        def __init__(self, data):
            self.data = data

        def misfit(self, x):
            return np.sum((x - self.data) ** 2)

    assert_allclose(dg.grad(dg.delayed(Station(Y).misfit))(X), 2 * (X - Y))


# ------------------------------------------------------------------------------ what runs, when


def test_nothing_runs_before_it_is_asked_for():
    fun = counted(plain_energy)
    model = dg.delayed(fun, name="model")
    x = dg.variable(X)
    total = dg.sum([model(x), model(x) * 2.0, dg.map_sum(model, [X, X])])
    value, gradient = dg.differentiate(total, x)
    assert fun.kinds == []
    dask.compute(value, gradient)
    assert len(fun.kinds) == 4


def test_computing_a_node_traces_nothing(scheduler):
    """A box in the place of the array would be an object of another type."""
    model = dg.delayed(lambda x: float(type(x).__name__ == "ndarray"))
    x = dg.variable(X)
    nodes = [model(x), model(x * 1.0), dg.map_sum(lambda i, x: type(x) is type(X), [1, 2], x)]
    assert list(dask.compute(*nodes)) == [1.0, 1.0, 2]


def test_computing_a_node_runs_each_model_once():
    fun = counted(lambda x: 2.0 * x)
    model = dg.delayed(fun, name="model")
    y = model(dg.variable(X))
    dask.compute(energy(y), energy(y) + energy(y), y)
    assert fun.kinds == ["ndarray"]


def test_a_gradient_runs_each_model_once():
    fun = counted(lambda x: 2.0 * x)
    model = dg.delayed(fun, name="model")
    dg.grad(lambda x: (lambda y: energy(y) + energy(y * 2.0))(model(x)))(X)
    assert fun.kinds == ["ArrayBox"]


def test_a_deep_graph_needs_no_recursion():
    node = x = dg.variable(0.0)
    depth = 2 * sys.getrecursionlimit()
    for _ in range(depth):
        node = node + 1.0
    assert node.compute() == depth
    assert dask.compute(*dg.differentiate(node, x)) == (depth, 1.0)


# ----------------------------------------------------------------------------- persisted nodes


def test_a_persisted_node_is_not_computed_again(scheduler, tmp_path):
    log = tmp_path / "log"

    def model(x):
        with open(log, "a") as file:
            file.write("ran\n")
        return 2.0 * x

    node = dg.delayed(model)(dg.variable(X)).persist()
    for _ in range(2):
        assert_allclose((node + 1.0).compute(), 2.0 * X + 1.0)
    assert log.read_text() == "ran\n"


def test_a_persisted_node_keeps_its_derivative(scheduler):
    x = dg.variable(X)
    y = (x * x).persist()
    value, gradient = dask.compute(*dg.differentiate(energy(y) + energy(x), x))
    expected = autograd.grad(lambda x: plain_energy(x * x) + plain_energy(x))(X)
    assert_allclose(value, plain_energy(X * X) + plain_energy(X))
    assert_allclose(gradient, expected, rtol=1e-13)


def test_a_copy_of_a_node_computes_the_same():
    node = energy(dg.variable(X))
    assert copy.copy(node).compute() == node.compute()


def test_sums_of_lists_that_hold_variables_give_the_gradients_of_the_items(scheduler):
    items = [X, Y, X * Y]
    terms = lambda items: dg.map_sum(plain_energy, items)  # noqa: E731
    gradient = dg.grad(terms)(items)
    for found, item in zip(gradient, items, strict=True):
        assert_allclose(found, autograd.grad(plain_energy)(item), rtol=1e-14)


@pytest.mark.parametrize("moved", [copy.deepcopy, lambda both: pickle.loads(pickle.dumps(both))])
def test_parts_of_a_variable_stay_its_parts_where_they_are_copied(moved):
    x = dg.variable({"a": np.ones(2), "b": [1.0, 2.0]})
    x["b"][0]  # nobody has it any more
    x, (part, deeper) = moved((x, (x["a"], x["b"][1])))
    assert part is x["a"]
    assert deeper is x["b"][1]
    assert part.root is deeper.root is x
