"""Nodes: what the user writes. Calling a model records a node; nothing runs.

A node is a Dask collection: computing it gives its value and traces nothing.
"""

import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import dask
import numpy as np
from dask.typing import Key

from daskgrad import backends
from daskgrad.graph.hidden_nodes import NESTED, containers_in, find_hidden
from daskgrad.models.model import KEEP, Call, Model, Operator
from daskgrad.models.portions import evaluate_item
from daskgrad.models.pullbacks import evaluate
from daskgrad.tasks.collections import Collection, is_collection
from daskgrad.tasks.keys import Names, Stage
from daskgrad.tasks.task_graph import TaskGraph
from daskgrad.values.descriptions import describe, function_name, path_of, require_choice, traceable
from daskgrad.values.memory import contiguous, require_room
from daskgrad.values.protection import USED_UP
from daskgrad.values.registrations import Structure
from daskgrad.values.trees import NAMESPACE, flatten

HEAVY = 2**16  # bytes from which on a constant array is a key of its own, and not part of a task

UNPACKED = "a, b = node is written a, b = node[0], node[1]"
BRANCH = "what depends on the value, such as an if, stands in that function"

names = Names()


# ---------------------------------------------------------------------------------------- nodes


class Node(Collection):
    """One recorded call: its name, the nodes it takes in, and how its value is computed.

    ``stage``: the first word of the keys of the tasks that compute its value. ``is_stopped``:
    derivatives do not go through it to what it takes in.
    """

    stage: Stage = "value"
    is_stopped = False

    def __init__(self, name: str, inputs: Sequence["Node"]):
        self.name = name
        self.inputs = tuple(inputs)
        self.key: Key = names.key("value", name)
        self.annotations = dict(dask.get_annotations())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def build_value(self, tasks: TaskGraph, inputs: list[Any]) -> Any:
        """Builds the tasks that compute the value alone; returns a reference to it."""
        raise NotImplementedError

    def is_direct(self, graph: Any, client: Any) -> bool:
        """Whether it is a sum that can be evaluated directly, outside of a graph."""
        return False

    def own_arrays(self) -> None:
        """Copies what is borrowed, because it may be used when what records it has ended."""

    def build_graph(self) -> Any:
        tasks = TaskGraph()
        for node in unsettled([self]):
            node.own_arrays()
        build_values(tasks, [self])
        return tasks.high_level_graph()

    # ---- operators record nodes, too

    def __add__(self, other: Any) -> "Node":
        return ADD(self, other)

    def __radd__(self, other: Any) -> "Node":
        return ADD(other, self)

    def __sub__(self, other: Any) -> "Node":
        return SUBTRACT(self, other)

    def __rsub__(self, other: Any) -> "Node":
        return SUBTRACT(other, self)

    def __mul__(self, other: Any) -> "Node":
        return MULTIPLY(self, other)

    def __rmul__(self, other: Any) -> "Node":
        return MULTIPLY(other, self)

    def __truediv__(self, other: Any) -> "Node":
        return DIVIDE(self, other)

    def __rtruediv__(self, other: Any) -> "Node":
        return DIVIDE(other, self)

    def __pow__(self, other: Any) -> "Node":
        return POWER(self, other)

    def __rpow__(self, other: Any) -> "Node":
        return POWER(other, self)

    def __matmul__(self, other: Any) -> "Node":
        return MATMUL(self, other)

    def __rmatmul__(self, other: Any) -> "Node":
        return MATMUL(other, self)

    def __neg__(self) -> "Node":
        return NEGATIVE(self)

    def __getitem__(self, index: Any) -> "Node":
        if isinstance(index, int | str | np.integer):
            return ItemNode(GETITEM.model, (self, index), {})
        return GETITEM(self, index)

    # ---- a node is not an array

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> "Node":
        if method == "__call__" and ufunc in UFUNCS and not kwargs:
            return UFUNCS[ufunc](*inputs)
        path = path_of(ufunc)
        raise self._is_no_array(path, f"dg.delayed({traceable(path)})(node)")

    def __array_function__(self, function: Any, *_: Any) -> Any:
        path = path_of(function)
        raise self._is_no_array(path, f"dg.delayed({traceable(path)})(node)")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise self._is_no_array("np.asarray")

    def __float__(self) -> float:
        raise self._is_no_array("float()")

    def __int__(self) -> int:
        raise self._is_no_array("int()")

    def __complex__(self) -> complex:
        raise self._is_no_array("complex()")

    def __index__(self) -> int:
        raise self._is_no_array("the use as an index")

    def __bool__(self) -> bool:
        raise self._is_no_array("its truth", BRANCH)

    def __iter__(self) -> Iterator["Node"]:
        raise self._is_no_array("iteration", UNPACKED)

    def __len__(self) -> int:
        raise self._is_no_array("len()", "dg.delayed(len)(node)")

    def __lt__(self, other: Any) -> bool:
        raise self._is_no_array("comparison", BRANCH)

    __le__ = __gt__ = __ge__ = __lt__

    def __eq__(self, other: Any) -> bool:
        if self is other:
            return True
        raise self._is_no_array("comparison", BRANCH)

    def __ne__(self, other: Any) -> bool:
        return not self == other

    __hash__ = object.__hash__

    def __contains__(self, item: Any) -> bool:
        raise self._is_no_array("'in'")

    def __setitem__(self, index: Any, value: Any) -> None:
        raise self._is_no_array("assignment to an item")

    def __abs__(self) -> "Node":
        raise self._is_no_array("abs()")

    def __round__(self, digits: int | None = None) -> "Node":
        raise self._is_no_array("round()")

    def __format__(self, spec: str) -> str:
        if spec:
            raise self._is_no_array("formatting")
        return repr(self)

    def __floordiv__(self, other: Any) -> "Node":
        raise self._is_no_array("floor division")

    __rfloordiv__ = __floordiv__

    def __mod__(self, other: Any) -> "Node":
        raise self._is_no_array("a remainder")

    __rmod__ = __divmod__ = __rdivmod__ = __mod__

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_") or "name" not in self.__dict__:  # not ours, or not made yet
            raise AttributeError(attribute)
        is_method = callable(getattr(np.ndarray, attribute, None))
        model = f"lambda x: x.{attribute}{'()' if is_method else ''}"
        raise AttributeError(str(self._is_no_array(f".{attribute}", f"dg.delayed({model})(node)")))

    def _is_no_array(self, asked: str, instead: str = "") -> TypeError:
        """What to do where a node is used as an array; ``instead``: what to write for it."""
        return TypeError(
            f"{asked} was asked of {self!r}, which has no value yet; wrap the function that needs "
            f"its value in dg.delayed and call that{instead and f': {instead}'}; or, where no "
            f"derivative goes through it, take the value with .compute()"
        )


class Constant(Node):
    """Something that is not differentiated: a large array, or another Dask collection."""

    def __init__(self, value: Any):
        super().__init__("constant", ())
        self.value = value

    def build_value(self, tasks: TaskGraph, inputs: list[Any]) -> Any:
        if is_collection(self.value):
            return tasks.include(self.value)
        return tasks.constant(self.value, self.name, contiguous)


class CallNode(Node):
    """A model called on arguments, some of which are nodes."""

    def __init__(self, model: Model, args: tuple, kwargs: dict):
        self.model = model
        self.call, inputs = make_call(model, args, kwargs)
        super().__init__(model.name, inputs)

    evaluate: Callable = staticmethod(evaluate)

    def build_value(self, tasks: TaskGraph, inputs: list[Any]) -> Any:
        args = (self.evaluate, tasks.shared(self.model), self.call, inputs)
        return tasks.add(self.key, *args, annotations=self.annotations)


class ItemNode(CallNode):
    """What stands under one index or key: an item of a container, or a part of an array."""

    evaluate = staticmethod(evaluate_item)


def make_call(model: Model, args: tuple, kwargs: dict) -> tuple[Call, list[Node]]:
    """The arguments as a pytree of constants with holes, and the nodes that go into the holes."""
    require_no_node_in(model.fun, f"the function of model {model.name!r}")
    leaves, structure = arguments_apart(args, kwargs, model.name)
    inputs: dict[int, tuple[int, Node]] = {}
    holes = []
    for position, leaf in enumerate(leaves):
        node = as_node(leaf)
        if node is None:
            what = f"an argument of model {model.name!r}"
            require_no_node_in(leaf, what)
            leaves[position] = contiguous(leaf, what)
            continue
        number, _ = inputs.setdefault(id(leaf), (len(inputs), node))
        holes.append((position, number))
        leaves[position] = None
    nodes = [node for _, node in inputs.values()]
    return Call(tuple(leaves), structure, tuple(holes)), nodes


def arguments_apart(args: tuple, kwargs: dict, name: str) -> tuple[list[Any], Structure]:
    """The leaves of the arguments of a model, and their structure."""
    if not kwargs and all(isinstance(arg, Node | np.ndarray) for arg in args):  # nearly always
        return list(args), structure_of_leaves(len(args))
    leaves, structure = flatten((args, kwargs))
    require_no_node_as_key((args, kwargs), name)
    return leaves, Structure(structure)


@functools.lru_cache(maxsize=64)
def structure_of_leaves(count: int) -> Structure:
    """That of positional arguments none of which is a container."""
    return Structure(flatten(((0.0,) * count, {}))[1])


def as_node(leaf: Any) -> Node | None:
    """The node that stands for a leaf of the arguments, or None for a constant in the task."""
    if isinstance(leaf, Node):
        return leaf
    if isinstance(leaf, np.ndarray):
        require_room(leaf, "an argument of a model")
        return Constant(leaf) if leaf.nbytes > HEAVY else None
    return Constant(leaf) if is_collection(leaf) else None


class OnlyItems:
    """A collection that sums run over, and no argument of a model."""


def require_no_node_in(leaf: Any, where: str) -> None:
    """A node that hides where it is not found would be a constant, and its derivative zero."""
    if isinstance(leaf, OnlyItems):
        raise TypeError(
            f"{where} is {describe(leaf)}, of which models see single items; sum over it with "
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


def order(
    outputs: Iterable[Node], is_leaf: Callable[[Node], bool] = lambda node: False
) -> list[Node]:
    """All nodes that the outputs depend on, inputs first; nothing below an ``is_leaf`` node."""
    done: dict[Node, None] = {}
    stack = list(outputs)[::-1]
    while stack:
        node = stack[-1]
        inputs = () if is_leaf(node) else node.inputs
        waiting = [source for source in inputs if source not in done]
        if waiting:
            stack.extend(waiting[::-1])
        else:
            done[stack.pop()] = None
    return list(done)


def require_no_node_as_key(arguments: tuple[tuple, dict], name: str) -> None:
    """A node that is a key of a dict is no leaf, and its derivative would be lost."""
    args, kwargs = arguments
    if NESTED.isdisjoint(map(type, (*args, *kwargs.values()))):  # nearly always
        return
    for container in containers_in(arguments):
        if isinstance(container, dict) and any(isinstance(key, Node) for key in container):
            raise TypeError(
                f"an argument of model {name!r} is a dict with a node for a key, and keys are "
                f"constants; pass nodes as values"
            )


def build_values(tasks: TaskGraph, outputs: Iterable[Node]) -> dict[Node, Any]:
    """Builds the tasks that compute the outputs' values; returns a reference for every node."""
    nodes = unsettled(outputs)
    tasks.share(models(nodes))
    values: dict[Node, Any] = {}
    for node in nodes:
        values[node] = value_of_node(node, tasks, values)
    return values


def unsettled(outputs: Iterable[Node]) -> list[Node]:
    """All nodes that the outputs depend on, inputs first, as far as their values are not there."""
    return order(outputs, is_leaf=lambda node: node.is_settled)


def value_of_node(node: Node, tasks: TaskGraph, values: dict[Node, Any]) -> Any:
    """Builds the tasks of one node's value, given those of its inputs, or refers to its results."""
    if node.is_settled:
        return tasks.include(node)
    return node.build_value(tasks, [values[source] for source in node.inputs])


def models(nodes: Iterable[Node]) -> list[Model]:
    return [vars(node)["model"] for node in nodes if "model" in vars(node)]


# ------------------------------------------------------------------------------------- public


class DelayedModel:
    """A model whose calls are recorded; made by ``delayed``."""

    def __init__(self, model: Model):
        self.model = model
        self.__wrapped__ = model.fun
        self.__name__ = model.name
        self.__doc__ = model.fun.__doc__

    def __repr__(self) -> str:
        return f"<model {self.model.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> CallNode:
        return CallNode(self.model, args, kwargs)


def delayed(
    fun: Callable | None = None,
    name: str | None = None,
    backend: str = "autograd",
    keep: str = "auto",
) -> Any:
    """Makes a function a model: calling it records a node, and nothing runs.

    Also a decorator, with or without arguments.

    Parameters
    ----------
    fun:
        a function of arrays and other arguments that returns numbers, arrays, or dicts, lists and
        tuples of them. It may run more than once for one gradient (where its pullback moved between
        processes), so it must return the same value for the same arguments. It must not write into
        them: others use the same arrays, which are read-only while it runs (lists and dicts are its
        own).
    name:
        what task keys, errors and the dashboard call it; the function's name if not given.
    backend:
        the library that it is written for, which differentiates it: "autograd", "jax", "torch", or
        the name of one that ``register_backend`` made known.
    keep:
        what stays between the forward and the backward pass: the "tape"; the "gradient" (of a model
        that returns one real number); nothing ("recompute": the model runs again in the backward
        pass); or "auto": the gradient of a real number where it is no larger than what the tape
        holds, or than 64 kB, and in sums; else the tape.

    Raises
    ------
    TypeError
        where ``fun`` cannot be called, is async or yields, or the name is no string.
    ValueError
        for an unknown backend or ``keep``.
    ModuleNotFoundError
        where the backend's library is not installed; the message names the extra.
    """
    if fun is None:
        return functools.partial(delayed, name=name, backend=backend, keep=keep)
    if isinstance(fun, DelayedModel):
        fun = fun.model.fun
    if not callable(fun) or is_collection(fun):
        raise TypeError(f"dg.delayed makes a model of a function; found {describe(fun)}")
    if inspect.iscoroutinefunction(fun) or inspect.isgeneratorfunction(fun):
        raise TypeError(
            f"a model is a function that returns numbers; {function_name(fun)!r} is async or "
            f"yields: wrap it in a function that runs it to its end"
        )
    require_name(name, "a model")
    require_choice(keep, KEEP, "keep")
    backends.load(backend)
    return DelayedModel(Model(fun, name or function_name(fun), backend, keep))


def require_name(name: Any, of: str) -> None:
    if not (name is None or isinstance(name, str)):
        raise TypeError(f"the name of {of} is a string; found {describe(name)}")


def as_model(fun: Any, name: str | None = None) -> Model:
    """The model that a plain function or the result of ``delayed`` stands for, under a name."""
    if not callable(fun):
        raise TypeError(f"the model comes first, and is a function; found {describe(fun)}")
    require_name(name, "a sum")
    model = fun.model if isinstance(fun, DelayedModel) else delayed(fun).model
    return model if name is None else model._replace(name=name)


ADD, SUBTRACT, MULTIPLY, DIVIDE, POWER, NEGATIVE = (
    DelayedModel(Model(fun, name, operator=properties))
    for fun, name, properties in (
        (operator.add, "add", Operator(signs=(1, 1))),
        (operator.sub, "subtract", Operator(signs=(1, -1))),
        (operator.mul, "multiply", Operator(linear_in=(0, 1))),
        (operator.truediv, "divide", Operator(linear_in=(0,))),
        (operator.pow, "power", Operator()),
        (operator.neg, "negative", Operator(signs=(-1,))),
    )
)
MATMUL = delayed(operator.matmul, name="matmul")
GETITEM = delayed(operator.getitem, name="getitem")

UFUNCS = {
    np.add: ADD,
    np.subtract: SUBTRACT,
    np.multiply: MULTIPLY,
    np.true_divide: DIVIDE,
    np.power: POWER,
    np.matmul: MATMUL,
    np.negative: NEGATIVE,
}
