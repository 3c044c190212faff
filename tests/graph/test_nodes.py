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
import dask.array
import dask.bag
import optree
import pytest
from comparisons import bits
from numpy.testing import assert_allclose, assert_array_equal
from optree.dataclasses import dataclass
from policies import moving

import daskgrad as dg
from daskgrad.graph.nodes import CallNode, Node
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


# ------------------------------------------------------------------------------- variables


def test_a_variable_has_a_copy_in_c_order():
    """Whatever the caller does to the array later, the graph has what it was given."""
    x = X.copy()
    pytree = {"w": x, "list": [x]}
    node, other = energy(dg.variable(x)), energy(dg.variable(pytree)["list"][0])
    x *= 0.0
    pytree["list"][0] = None
    assert node.compute() == other.compute() == plain_energy(X)
    strided = np.arange(12.0).reshape(3, 4).T[::2]
    value = dg.variable(strided).compute()
    assert value.flags.c_contiguous
    assert_array_equal(value, strided)


def test_a_variables_value_keeps_its_dtype_and_shape():
    numbers = [2.0, np.float32(2.0), np.float16(1.0), 1j, np.complex64(1j)]
    for value in (*numbers, np.zeros((0, 3)), X > 0):
        computed = dg.variable(value).compute()
        assert np.shape(computed) == np.shape(value)
        assert np.asarray(computed).dtype == np.asarray(value).dtype


def test_a_variable_is_shown_under_its_name():
    assert repr(dg.variable(X, "weights")) == "<Variable weights: float64[3]>"
    assert repr(dg.variable({"w": [X]}, "p")["w"][0]) == "<Variable p['w'][0]: float64[3]>"
    assert repr(energy(X)) == f"{energy(X)}" == "<CallNode energy>"
    assert repr(energy) == "<model energy>"
    assert not hasattr(dg.variable(X), "value"), "used by mistake it would be a constant"


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
@pytest.mark.parametrize("name", PROGRAMS)
def test_parts_of_a_variable_have_the_gradients_that_autograd_finds(name):
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


def test_classes_with_names_of_ours_are_classes_of_variables():
    p = dg.variable(Tree(B, B + 1))
    assert isinstance(p, Tree)
    value, gradient = dask.compute(*dg.differentiate(energy(PRODUCT(p)) + energy(p.root), p))
    total = lambda p: plain_energy(plain_product(p)) + plain_energy(p.root)  # noqa: E731
    assert_allclose(value, total(Tree(B, B + 1)))
    assert_allclose(gradient, gradient_by_leaf(total, Tree(B, B + 1)))
    titled = dg.grad(lambda p: energy(p.inputs[0] * p.inputs[1]))(Titled("t", [B, B + 1]))
    first, second = autograd.grad(lambda p: plain_energy(p[0] * p[1]))([B, B + 1])
    assert isinstance(titled, Titled)
    assert titled.name is None
    assert_allclose(titled.inputs, [first, second])


@dataclass(namespace="daskgrad")
class Counted:
    name: str
    w: object

    def __post_init__(self):
        self.count = self.w.tolist()


def test_a_class_with_names_of_ours_that_cannot_hold_variables_is_an_error_that_says_so():
    with pytest.raises(AttributeError, match=r"\.tolist needs the value") as caught:
        dg.grad(lambda p: energy(p.w))(Counted("c", B))
    assert "give these other names, or pass a dict" in caught.value.__notes__[0]


def test_a_part_is_one_object_however_often_it_is_taken():
    p = dg.variable({"w": [X, Y]})
    assert p["w"] is p["w"]
    assert p["w"][0] is p["w"][-2]
    assert all(a is b for a, b in zip(p["w"], p["w"][:], strict=True))
    assert isinstance(p["w"][0], Variable)
    assert isinstance(p["w"][0][0], CallNode), "items of an array are no parts"
    assert len(p["w"]) == 2


def test_a_part_that_is_not_there_is_an_error_that_lists_those_there_are():
    p = dg.variable({"w": [X, Y], 3: X}, "p")
    for ask, error, message in (
        (lambda: p["b"], KeyError, r"variable 'p' has no item 'b'; it has .*'w'"),
        (lambda: p["w"][2], IndexError, r"variable \"p\['w'\]\" has no item 2; it has 0, 1"),
        (
            lambda: dg.variable([X, Y], "list")["a"],
            KeyError,
            "variable 'list' has no item 'a'; it has 0, 1",
        ),
        (
            lambda: dg.variable(Point(X, Y), "point").z,
            AttributeError,
            r"\.z needs the value of <Variable point: .*>",
        ),
    ):
        with pytest.raises(error, match=message):
            ask()


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
    leaves = optree.tree_leaves(pytree, namespace="daskgrad")
    return scale * sum([np.sum(leaf**2) for leaf in leaves if not isinstance(leaf, str)])


@pytest.mark.parametrize("place", PLACES)
def test_nodes_stand_anywhere_in_an_argument(place):
    put = PLACES[place]
    count = len([v for v in optree.tree_leaves(put("x"), namespace="daskgrad") if v == "x"])
    model = dg.delayed(collected)
    gradient = dg.grad(lambda x: model(put(x * 1.0), scale=3.0) + model(scale=2.0, pytree=put(x)))
    assert_allclose(gradient(X), count * 10.0 * X, rtol=1e-14)


def test_keyword_arguments_are_differentiated_as_positional_ones():
    model = dg.delayed(lambda x, *, w, b=0.0: np.sum(x * w + b))
    gradients = dg.grad(lambda x, w, b: model(x, w=w, b=b), argnums=(0, 1, 2))(X, Y, 0.5)
    for gradient, right in zip(gradients, (Y, X, 3.0), strict=True):
        assert_allclose(gradient, right)

    def objective(x, scale=1.0, *, shift=None):  # a function gets its own
        return energy(x * scale + shift)

    gradient = dg.grad(objective)(X, scale=2.0, shift=Y)
    expected = autograd.grad(lambda x: plain_energy(2.0 * x + Y))(X)
    assert_allclose(gradient, expected, rtol=1e-14)


def test_a_node_that_is_an_argument_twice_is_one_input():
    x = dg.variable(X)
    assert dg.delayed(collected)([x, x, {"a": x}]).inputs == (x,)
    assert_allclose(dg.grad(lambda x: dg.delayed(collected)([x, x]))(X), 4 * X)


# ------------------------------------------------------------------------------- constants


NUMBERS = np.array([1.0, 2.0, 3.0])


def series(numbers):
    import dask.dataframe
    import pandas

    return dask.dataframe.from_pandas(pandas.Series(numbers), npartitions=2)


COLLECTIONS = {
    "a Delayed": lambda: dask.delayed(lambda: NUMBERS)(),
    "an array": lambda: dask.array.from_array(NUMBERS, chunks=2),
    "an array's product": lambda: dask.array.from_array(NUMBERS / 2.0, chunks=2) * 2.0,
    "a bag": lambda: dask.bag.from_sequence(list(NUMBERS), npartitions=2),
    "a dataframe": lambda: series(NUMBERS),
    "a persisted node of another graph": lambda: (dg.variable(NUMBERS) * 1.0).persist(),
}


@pytest.mark.parametrize("kind", COLLECTIONS)
def test_collections_of_dask_are_constants(kind):
    data = COLLECTIONS[kind]()
    model = dg.delayed(lambda x, data, same: np.sum(x * np.asarray(data) + x * np.asarray(same)))
    with dask.config.set(scheduler=moving):
        assert_allclose(dg.grad(lambda x: model(x, data, {"a": data}["a"]))(X), 2.0 * NUMBERS)


def test_lazy_derivatives_hold_the_futures_that_they_use(client):
    x = dg.variable(X)

    def lazy():
        items = [client.submit(operator.mul, Y, n) for n in (2.0, 3.0)]
        product = dg.delayed(lambda y, x: np.sum(y["b"] * x), name="product")
        scattered = {"b": client.scatter(Y)}
        terms = dg.map_sum(lambda y, x: np.sum(y * x), items, x)
        return dg.differentiate(product(scattered, x) + terms, x)

    value, gradient = lazy()
    gc.collect()
    client.submit(int, pure=False).result()  # then releases are heard of
    assert_allclose(gradient.compute(), 6.0 * Y)
    assert_allclose(value.compute(), 6.0 * np.sum(X * Y))


# ------------------------------------------------------------------------------ the decorator


def test_delayed_is_a_decorator_with_and_without_arguments():
    def total(x):
        """The docstring."""
        return np.sum(x)

    bare, named, empty = (
        dg.delayed(total),
        dg.delayed(name="other", keep="tape")(total),
        dg.delayed()(total),
    )
    assert bare.__doc__ == "The docstring."
    assert [model.model.name for model in (bare, named, empty)] == ["total", "other", "total"]
    assert named.model.keep == "tape"
    for model in (bare, named, empty):
        assert_allclose(dg.grad(model)(X), np.ones(3))
    assert named.__wrapped__(X) == np.sum(X)


class Station:
    def __init__(self, data):
        self.data = data

    def misfit(self, x):
        return np.sum((x - self.data) ** 2)


def test_a_model_has_the_name_of_its_function():
    for fun, name in (
        (plain_energy, "plain_energy"),
        (lambda x: x, "<lambda>"),
        (functools.partial(functools.partial(plain_energy)), "plain_energy"),
        (np.sin, "sin"),
        (operator.itemgetter(0), "itemgetter"),
        (X.mean, "mean"),
        (Station(Y).misfit, "misfit"),
    ):
        assert dg.delayed(fun).model.name == dg.delayed(fun)(X).name == name
    again = dg.delayed(energy, name="again", keep="tape")
    assert again.model.fun is energy.model.fun
    assert again.model.name == "again"
    assert_allclose(dg.grad(dg.delayed(Station(Y).misfit))(X), 2 * (X - Y))


# ------------------------------------------------------------------------------ what runs, when


def test_computing_a_node_traces_nothing():
    """A box in the place of the array would be an object of another type."""
    model = dg.delayed(lambda x: float(type(x).__name__ == "ndarray"))
    x = dg.variable(X)
    nodes = [model(x), model(x * 1.0), dg.map_sum(lambda i, x: type(x) is type(X), [1, 2], x)]
    assert list(dask.compute(*nodes)) == [1.0, 1.0, 2]


def test_a_deep_graph_needs_no_recursion():
    node = x = dg.variable(0.0)
    depth = 2 * sys.getrecursionlimit()
    for _ in range(depth):
        node = node + 1.0
    assert node.compute() == depth
    assert dask.compute(*dg.differentiate(node, x)) == (depth, 1.0)


# ----------------------------------------------------------------------------- persisted nodes


def test_a_persisted_node_is_not_computed_again():
    runs = []
    node = dg.delayed(lambda x: runs.append(x) or 2.0 * x)(dg.variable(X)).persist()
    for _ in range(2):
        assert_allclose((node + 1.0).compute(), 2.0 * X + 1.0)
    assert len(runs) == 1


@pytest.mark.parametrize("scheduler", ["sync", "cluster"], indirect=True)
def test_a_persisted_node_keeps_its_derivative(scheduler):
    x = dg.variable(X)
    y = (x * x).persist()
    value, gradient = dask.compute(*dg.differentiate(energy(y) + energy(x), x))
    expected = autograd.grad(lambda x: plain_energy(x * x) + plain_energy(x))(X)
    assert_allclose(value, plain_energy(X * X) + plain_energy(X))
    assert_allclose(gradient, expected, rtol=1e-13)


MOVED = pytest.mark.parametrize(
    "moved", [copy.deepcopy, lambda nodes: pickle.loads(pickle.dumps(nodes))]
)


@MOVED
def test_nodes_in_a_row_of_any_length_are_copied(moved):
    x, scaled = dg.variable(X), dg.delayed(lambda y, x: 0.5 * y + np.sin(x))
    rows = [x]
    for _ in range(1000):
        rows.append(scaled(rows[-1], rows[len(rows) // 2]))
    copies = moved([rows[-1], rows[7], x])
    results = [
        dask.compute(*dg.differentiate(energy(last) + energy(early), x), scheduler="sync")
        for last, early, x in ([rows[-1], rows[7], x], copies)
    ]
    assert bits(results[0]) == bits(results[1])


@MOVED
def test_views_of_a_node_that_is_copied_are_views(moved):
    x = dg.variable(X)
    x, view = moved((x, x.reshape(-1)))
    x += 1.0
    with pytest.raises(TypeError, match="changes an array in place"):
        energy(view).compute()


@MOVED
def test_parts_of_a_variable_stay_its_parts_where_they_are_copied(moved):
    node = energy(dg.variable(X))
    assert copy.copy(node).compute() == node.compute()
    x = dg.variable({"a": np.ones(2), "b": [1.0, 2.0]})
    x["b"][0]  # nobody has it any more
    x, (part, deeper) = moved((x, (x["a"], x["b"][1])))
    assert part is x["a"]
    assert deeper is x["b"][1]
    assert part.root is deeper.root is x
