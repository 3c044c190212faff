"""Pytrees apart and together again, also in a process that has not their classes."""

import pickle
import sys
import threading
import uuid
from collections import OrderedDict, namedtuple

import cloudpickle
import numpy as np
import optree
import pytest

from daskgrad.autodiff.values.carriers import Structure, sent_by_value
from daskgrad.autodiff.values.trees import NAMESPACE, exactly, flatten
from daskgrad.tasks.task_functions import TaskFunction

Pair = namedtuple("Pair", "first second")
ONES = np.ones(3)


@pytest.mark.parametrize(
    "value",
    [
        *((), (1.0,), (ONES, None), (ONES, (2,)), ("a",), Pair(ONES, 1)),
        *(1.0, None, ONES, "text", [], {}, [None, 1.0], [None, [None], {"a": None}], object()),
        {"b": 1.0, "a": [2.0, (None, "x")], "c": {}},
        Pair(1.0, {"x": None}),
        OrderedDict([("z", 1), ("a", 2)]),
    ],
)
def test_putting_together_what_was_taken_apart(value):
    """None and what is not registered are leaves."""
    leaves, structure = flatten(value)
    expected, other = optree.tree_flatten(value, none_is_leaf=True, namespace=NAMESPACE)
    assert structure == other
    assert hash(structure) == hash(other)
    assert exactly(structure) == exactly(other)
    assert list(map(id, leaves)) == list(map(id, expected))
    moved = pickle.loads(cloudpickle.dumps(Structure(structure)))
    for again in (structure, Structure(structure), moved):
        assert type(again.unflatten(leaves)) is type(value)
        assert repr(again.unflatten(leaves)) == repr(value)


@pytest.fixture
def weights():
    class Weights:
        def __init__(self, w, b):
            self.w, self.b = w, b

    optree.register_pytree_node(
        Weights, lambda x: ((x.w, x.b), None), lambda _, c: Weights(*c), namespace=NAMESPACE
    )
    yield Weights
    optree.unregister_pytree_node(Weights, namespace=NAMESPACE)


def test_only_classes_that_no_module_has_are_sent(weights):
    """A class that a module has is registered by importing the module."""
    sent = [cls for cls, *_ in sent_by_value()]
    assert weights in sent
    optree.register_pytree_node(
        uuid.UUID, lambda x: ((x.hex,), None), lambda _, c: uuid.UUID(*c), namespace=NAMESPACE
    )
    try:
        assert uuid.UUID not in [cls for cls, *_ in sent_by_value()]
    finally:
        optree.unregister_pytree_node(uuid.UUID, namespace=NAMESPACE)


def test_structures_that_are_equal_and_not_the_same():
    for one, other in (
        ({"a": 1.0, "b": 2.0}, {"b": 1.0, "a": 2.0}),
        ([{"a": 1.0, "b": 2.0}], [{"b": 1.0, "a": 2.0}]),
        ({1: 2.0}, {True: 2.0}),
        ({0.0: 2.0}, {-0.0: 2.0}),
    ):
        assert flatten(one)[1] == flatten(other)[1], "else this cannot fail"
        assert exactly(flatten(one)[1]) != exactly(flatten(other)[1])
        assert exactly(flatten(one)[1]) == exactly(flatten(one)[1])


def test_a_structure_that_only_cloudpickle_sends():
    class Box:
        pass

    def put_together(lock, children):
        return Box()

    def spec(metadata):
        value = Box()
        value.metadata = metadata
        return flatten(value)[1]

    optree.register_pytree_node(
        Box, lambda box: ([], box.metadata), put_together, namespace=NAMESPACE
    )
    assert exactly(spec(1)) is not None
    assert exactly(spec(threading.Lock())) is None
    optree.unregister_pytree_node(Box, namespace=NAMESPACE)


# ------------------------------------------------------------------- into another process

SCRIPT = """
import dataclasses
import optree
from daskgrad.autodiff.values.carriers import Structure
from daskgrad.autodiff.values.trees import NAMESPACE, flatten

@dataclasses.dataclass
class Layer:
    w: object
    b: object

@dataclasses.dataclass
class Net:
    layers: list
    name: str

for cls, names in ((Layer, ("w", "b")), (Net, ("layers",))):
    def take_apart(x, names=names):
        rest = {k: v for k, v in vars(x).items() if k not in names}
        return [getattr(x, k) for k in names], rest
    def put_together(rest, children, cls=cls, names=names):
        return cls(**dict(zip(names, children)), **rest)
    optree.register_pytree_node(cls, take_apart, put_together, namespace=NAMESPACE)

def total(net):
    leaves, spec = flatten(net)
    doubled = Structure(spec).unflatten([2.0 * leaf for leaf in leaves])
    return sum(leaves), doubled.layers[1].b, type(doubled).__name__, doubled.name

net = Net([Layer(1.0, 2.0), Layer(3.0, 4.0)], "mine")
"""
TOTAL = (10.0, 8.0, "Net", "mine")


@pytest.fixture
def script():
    names = {"__name__": "__main__"}
    exec(SCRIPT, names)
    yield names
    for cls in (names["Layer"], names["Net"]):
        optree.unregister_pytree_node(cls, namespace=NAMESPACE)


def put_together(data):
    structure, leaves, total = pickle.loads(data)
    net = structure.unflatten(leaves)
    assert not hasattr(sys.modules["__main__"], "Net")
    pickle.loads(data)  # a second task brings the same classes
    return leaves, net.layers[1].b, net.name, type(net).__name__, total(net)


def test_classes_of_a_script_are_sent_into_a_process_that_has_not_got_them(script, pool):
    leaves, spec = flatten(script["net"])
    function = TaskFunction(script["total"], brings_classes=True)
    data = cloudpickle.dumps((Structure(spec), leaves, function))
    there = pool.submit(put_together, data).result()
    assert there == ([1.0, 2.0, 3.0, 4.0], 4.0, "mine", "Net", TOTAL)
