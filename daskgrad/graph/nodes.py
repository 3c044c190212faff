"""Nodes: recorded calls of models. Recording runs nothing.

A node is a Dask collection: computing it gives its value and traces nothing.
"""

import functools
import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import dask
import numpy as np
from dask.typing import Key

from daskgrad.autodiff.models.as_called import (
    LargeArrays,
    Seen,
    as_called,
    eager_tape,
    running,
    seen_by,
    taken,
    taken_array,
)
from daskgrad.autodiff.models.model import Call, Model, inside_model
from daskgrad.autodiff.models.portions import capture_item, evaluate_item
from daskgrad.autodiff.models.pullbacks import capture, evaluate
from daskgrad.autodiff.rules.twins import as_array
from daskgrad.autodiff.tape.boxes import TAPE_BOXES, place_here
from daskgrad.autodiff.values.carriers import Structure
from daskgrad.autodiff.values.descriptions import describe
from daskgrad.autodiff.values.elsewhere import Elsewhere, brought_here
from daskgrad.autodiff.values.memory import contiguous, require_room
from daskgrad.autodiff.values.protection import USED_UP
from daskgrad.autodiff.values.trees import NAMESPACE, flatten
from daskgrad.graph.hidden_nodes import NESTED, PLAIN, containers_in, find_hidden
from daskgrad.graph.in_place import (
    VIEWS,
    ChangeInPlace,
    InPlaceOperators,
    is_basic,
    note_view,
    usable,
)
from daskgrad.graph.notebooks import BACKENDS, leaves_table, node_table
from daskgrad.graph.operators import GETITEM, ArrayOperators
from daskgrad.graph.order import order, reduced
from daskgrad.tasks.collections import Collection, is_collection
from daskgrad.tasks.keys import Names, Stage
from daskgrad.tasks.task_graph import TaskGraph, TasksHere

SHOWN = 8  # names of inputs
NO_KEYWORDS: dict[str, Any] = {}
NO_ANNOTATIONS: dict[str, Any] = {}  # of nearly all nodes; nobody changes a node's annotations
HEAVY = 2**16  # bytes: a larger constant array has its own key, and is not part of a task

names = Names()


class Node(Collection, InPlaceOperators, ArrayOperators):
    """One recorded call: its name, the nodes it takes in, and the tasks of its value.

    ``key_name`` is its name in keys, by which Dask's dashboard groups tasks. ``stage``: the first
    word of the keys of its value's tasks. ``is_stopped``: derivatives do not go through it to its
    inputs. ``model`` and ``call``: the called model and its arguments, or None. ``is_one_run``: its
    model runs once, or again and again, but never beside itself. ``is_light``: a call of NumPy
    between models, recorded by its own operators; it may join others in one node
    (``graph.expressions``). ``is_here``: its value is in this process, or can be computed in it.
    ``views`` may show its value's memory, ``view_of`` is a node whose memory it may show, with an
    index; ``changed``: how its array has changed in place since it was recorded.
    ``seen``: what its model referred to when it was called, ``large``: arrays that it has seen.
    """

    stage: Stage = "value"
    is_stopped = False
    model: Any = None
    call: Any = None
    seen: Any = None
    large: Sequence[LargeArrays] = ()
    is_one_run = False
    is_light = False
    calls = 0  # of a model, by the task with the node's own key
    asked: tuple[int, ...] = ()  # the leaves of a variable whose gradients should be rows
    views: Sequence[weakref.ref["Node"]] = ()
    view_of: tuple["Node", Any] | None = None
    changed: tuple[ChangeInPlace, ...] = ()

    def __init__(self, name: str, inputs: Sequence["Node"], key_name: str | None = None):
        if (tape := eager_tape()) is not None:
            tape.refuse(f"the node {name!r}")
        self.name = name
        self.key_name = name if key_name is None else key_name
        self.inputs = tuple(inputs)
        for source in self.inputs:
            if source.changed:
                self.inputs = tuple([usable(node) if node.changed else node for node in inputs])
                break
        self.key: Key = names.key("value", self.key_name, self.calls)
        self.annotations = dict(dask.get_annotations()) or NO_ANNOTATIONS

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return reduced(self)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "views"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.view_of is not None:
            note_view(self, *self.view_of)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def _repr_html_(self) -> str:
        """For notebooks: the kind of node, its inputs, and its state."""
        inputs = [source.name for source in self.inputs]
        shown = ", ".join(inputs[:SHOWN]) + (f" … {len(inputs):,} nodes" * (len(inputs) > SHOWN))
        rows = [*self.about_model(), ("takes in", shown or "no node")]
        return node_table(type(self).__name__, self.name, rows, self.held)

    def about_model(self) -> list[tuple[str, str]]:
        """For notebooks: the model that it calls, and how it is differentiated."""
        return []

    def build_value(self, tasks: TaskGraph, inputs: list[Any]) -> Any:
        """Builds the tasks that compute the value alone; returns a reference to it."""
        raise NotImplementedError

    def build_task(
        self, tasks: TaskGraph, stage: Stage, fun: Callable, *args: Any, calls: int | None = None
    ) -> Any:
        """Builds a task with the node's name and annotations."""
        key = tasks.key(stage, self.key_name, calls)
        return tasks.add(key, fun, *args, annotations=self.annotations)

    def build_pick(self, tasks: TaskGraph, stage: Stage, fun: Callable, *args: Any) -> Any:
        """Builds the task of a part of a result, as ``TaskGraph.pick`` does."""
        return tasks.pick(stage, self.key_name, fun, *args, annotations=self.annotations)

    def is_direct(self, graph: Any, client: Any) -> bool:
        """Whether it is a sum that can be evaluated directly, outside of a graph."""
        return False

    def own_arrays(self) -> None:
        """Copies borrowed arrays, since the node may outlive the call that recorded it."""

    def build_graph(self) -> Any:
        return graph_of([self])[0]

    def record(self, model: Model, args: tuple, kwargs: dict[str, Any] = NO_KEYWORDS) -> "Node":
        """Records a call of NumPy between models."""
        node = CallNode(model, args, kwargs)
        node.call = node.call._replace(place=place_here())
        node.is_light = True
        if model.name in VIEWS and node.inputs:
            note_view(node, node.inputs[0])
        node.is_here = all([source.is_here for source in node.inputs])
        return node

    def value_here(self) -> Any:
        """The value of a node that ``is_here``, kept while the user's function runs: it may ask for
        thousands that depend on each other."""
        recording = running()
        known = None if recording is None else recording.values
        return build_values(TasksHere(), [self], known)[self]

    def __getitem__(self, index: Any) -> "Node":
        source = usable(self, index) if self.changed else self
        changes, self.changed = self.changed, ()
        node = ItemNode(GETITEM, (source, index), {})
        self.changed = changes
        if not all([isinstance(source, Constant) for source in node.inputs[1:]]):
            node = CallNode(GETITEM, (self, index), {})  # an index that is computed
        elif is_basic(index):
            note_view(node, self, index)
        node.is_here = all([source.is_here for source in node.inputs])
        return node


class Constant(Node):
    """A value that is not differentiated: an array that is large or elsewhere, or a Dask collection
    of another kind."""

    def __init__(self, value: Any):
        super().__init__("constants", ())  # a word that Dask's dashboard does not take for a hash
        if isinstance(value, np.ndarray):
            value, large = taken_array(value, "an array among the arguments of a model")
            self.large = () if large is None else (large,)
        self.value = value
        self.is_here = isinstance(value, np.ndarray)

    def build_value(self, tasks: TaskGraph, inputs: list[Any]) -> Any:
        if is_collection(self.value):
            return tasks.include(self.value)
        return tasks.constant(self.value, self.name, lambda value: contiguous(brought_here(value)))

    def build_graph(self) -> Any:
        """Its value under its own key; in the graphs of other nodes it has the value's key."""
        tasks = TaskGraph()
        tasks.add(self.key, same, self.build_value(tasks, []))
        return tasks.high_level_graph([self.key])

    def _repr_html_(self) -> str:
        return leaves_table("constant", "value", *flatten(self.value))


def same(value: Any) -> Any:
    return value


class CallNode(Node):
    """A model called on arguments with some nodes among them."""

    is_one_run = True
    calls = 1

    def __init__(self, model: Model, args: tuple, kwargs: dict):
        self.model = model
        self.call, inputs, self.seen = make_call(model, args, kwargs)
        super().__init__(model.name, inputs)

    def about_model(self) -> list[tuple[str, str]]:
        model = self.model
        backend = BACKENDS.get(model.backend, str(model.backend))
        return [("model", model.name), ("backend", backend), ("keep", model.keep)]

    evaluate: Callable = staticmethod(evaluate)
    capture: Callable = staticmethod(capture)

    def build_value(self, tasks: TaskGraph, inputs: list[Any]) -> Any:
        args = (self.evaluate, tasks.shared(self.model), self.call, inputs)
        return tasks.add(self.key, *args, annotations=self.annotations)


class ItemNode(CallNode):
    """A plain index or key of a node: an item of a container, or entries of an array."""

    evaluate = staticmethod(evaluate_item)
    capture = staticmethod(capture_item)


def make_call(
    model: Model, args: tuple, kwargs: dict, objects: Sequence[Any] = ()
) -> tuple[Call, list[Node], Seen | None]:
    """The arguments as a pytree of constants with holes, the nodes that fill the holes, and what
    else the call has seen, ``objects`` among it."""
    argument = f"an argument of model {model.name!r}"
    if model.operator is None:
        require_no_node_in(model.fun, f"the function of model {model.name!r}")
    if not kwargs and are_distinct_nodes(args):
        return call_of_leaves(len(args)), list(args), seen_by(model, objects)
    if not kwargs and all(isinstance(arg, Node | np.ndarray) for arg in args):  # nearly always
        leaves, structure = list(args), call_of_leaves(len(args)).structure
    else:
        leaves, spec = flatten((args, kwargs))
        structure = Structure(spec)
        require_no_node_as_key((args, kwargs), argument)
    inputs: dict[int, tuple[int, Node]] = {}
    holes = []
    objects = list(objects)
    for position, leaf in enumerate(leaves):
        if issubclass(type(leaf), PLAIN):  # there may be thousands
            continue
        node = as_node(leaf)
        if node is None:
            require_no_node_in(leaf, argument)
            leaf = leaves[position] = taken(contiguous(leaf, argument))
            if not isinstance(leaf, np.ndarray):
                objects.append(leaf)
            continue
        number, _ = inputs.setdefault(id(leaf), (len(inputs), node))
        holes.append((position, number))
        leaves[position] = None
    nodes = [node for _, node in inputs.values()]
    return Call(tuple(leaves), structure, tuple(holes)), nodes, seen_by(model, objects)


def are_distinct_nodes(args: tuple) -> bool:
    """Whether arguments are nodes and nothing else, and no node is there twice."""
    return all([isinstance(arg, Node) for arg in args]) and len({*args}) == len(args)


@functools.lru_cache(maxsize=64)
def call_of_leaves(count: int) -> Call:
    """The call on so many nodes: one object for each number."""
    structure = Structure(flatten(((0.0,) * count, {}))[1])
    return Call((None,) * count, structure, tuple([(n, n) for n in range(count)]))


ARRAY = Model(as_array, "array")


def as_node(leaf: Any) -> Node | None:
    """The node that stands for a leaf of the arguments, or None for a constant in the task; for an
    array of nodes, which ``np.array([x[0], x[1]])`` is, the node of its numbers."""
    if isinstance(leaf, Node):
        return leaf
    if isinstance(leaf, np.ndarray):
        if leaf.dtype.hasobject:
            node = next((entry for entry in leaf.flat if isinstance(entry, Node)), None)
            return None if node is None else node.record(ARRAY, (leaf.tolist(),))
        require_room(leaf, "an argument of a model")
        return Constant(leaf) if leaf.nbytes > HEAVY else None
    return Constant(leaf) if isinstance(leaf, Elsewhere) or is_collection(leaf) else None


class OnlyItems:
    """A collection that sums run over; it cannot be an argument of a model."""


def require_no_node_in(leaf: Any, where: str) -> None:
    """Raises if a leaf hides a node, which would be a constant, with a zero derivative."""
    if type(leaf) in TAPE_BOXES and not inside_model():  # of an eager evaluation in another thread
        raise TypeError(f"{where} is {leaf!r}, a traced value of another thread or evaluation")
    if isinstance(leaf, OnlyItems):
        raise TypeError(
            f"{where} is {describe(leaf)}, whose items models get one by one; sum over it with "
            f"dg.map_sum, or pass the list that it was made of"
        )
    if isinstance(leaf, Iterator):
        raise TypeError(f"{where} is {describe(leaf)}, {USED_UP}")
    node = find_hidden(Node, leaf)
    if node is not None:
        raise TypeError(
            f"{where} is {describe(leaf)} that holds {node!r}; pass nodes as arguments, or in "
            f"dicts, lists and tuples, or register the class with optree in namespace "
            f"{NAMESPACE!r}"
        )


def require_no_node_as_key(arguments: tuple[tuple, dict], where: str) -> None:
    """Raises if a dict has a node for a key, which is no leaf: its derivative would be lost."""
    args, kwargs = arguments
    if NESTED.isdisjoint(map(type, (*args, *kwargs.values()))):  # nearly always
        return
    for container in containers_in(arguments):
        if isinstance(container, dict) and any(isinstance(key, Node) for key in container):
            raise TypeError(
                f"{where} is a dict with a node for a key, and keys are constants; pass nodes as "
                f"values"
            )


def graph_of(outputs: Sequence[Node]) -> tuple[Any, list[Key]]:
    """Dask's graph of the outputs' values, and the values' keys."""
    if (recording := running()) is not None:
        recording.has_computed = True
    tasks = TaskGraph()
    for node in outputs:
        if node.changed and usable(node) is not node:
            raise TypeError(node.changed[0].error(node.name))
    nodes = unsettled(outputs)
    as_called(nodes, is_kept=True)
    for node in nodes:
        node.own_arrays()
    values = build_values(tasks, outputs)
    keys = [values[node].key for node in outputs]
    return tasks.high_level_graph(keys), keys


def build_values(
    tasks: TaskGraph, outputs: Iterable[Node], known: dict[Node, Any] | None = None
) -> dict[Node, Any]:
    """Builds the tasks that compute the outputs' values; returns a reference for every node, and
    enters it into the ``known`` ones."""
    values: dict[Node, Any] = {} if known is None else known
    nodes = [node for node in unsettled(outputs, values) if node not in values]
    as_called(nodes)
    tasks.share(models(nodes))
    tasks.is_chain = is_chain(nodes)
    for node in nodes:
        values[node] = value_of_node(node, tasks, values)
    return values


def is_chain(nodes: Iterable[Node]) -> bool:
    """Whether each model takes in the value before, so that none runs beside another; ``nodes``
    have inputs first."""
    calls = [node for node in nodes if node.model is not None]
    return all([node.is_one_run for node in calls]) and all(
        [any([before is source for source in node.inputs]) for before, node in pairwise(calls)]
    )


def unsettled(outputs: Iterable[Node], known: Container[Node] = ()) -> list[Node]:
    """All nodes that the outputs depend on and that have no value yet, inputs first."""
    return order(outputs, lambda node: () if node.is_settled or node in known else node.inputs)


def value_of_node(node: Node, tasks: TaskGraph, values: dict[Node, Any]) -> Any:
    """Builds the tasks of one node's value, on its inputs' tasks, or refers to its results."""
    if node.is_settled:
        return tasks.include(node)
    return node.build_value(tasks, [values[source] for source in node.inputs])


def models(nodes: Iterable[Node]) -> list[Model]:
    return [node.model for node in nodes if node.model is not None]
