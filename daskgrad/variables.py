"""Variables: what is differentiated. Leaves of graphs, and containers of such."""

import dataclasses
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import optree

from daskgrad.cotangents import describe, require_room
from daskgrad.nodes import Node
from daskgrad.structures import flatten, unflatten
from daskgrad.tasks import TaskGraph, is_collection


class Variable(Node):
    """A leaf to differentiate with respect to: a pytree of arrays, copied.

    An item of a container is a variable itself, a part of the whole: its cotangent goes to the
    ``root``'s leaves from ``first_leaf`` on. ``is_recorded``: it stands for an argument of a
    function that is differentiated.
    """

    is_recorded = False

    def __init__(self, value: Any, name: str, whole: "Variable | None" = None, first_leaf: int = 0):
        super().__init__(name, ())
        self.primal = value
        self.leaves, self.structure = flatten(value)
        self._whole = whole  # not itself: in a cycle, what it copied would wait for the collector
        self.first_leaf = first_leaf
        self._parts: weakref.WeakValueDictionary[Any, Variable] | None = None

    @property
    def root(self) -> "Variable":
        """What it is a part of, or a part of a part of, or itself."""
        return self if self._whole is None else self._whole.root

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parts": dict(self._parts or {})}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._parts = weakref.WeakValueDictionary(state["_parts"])

    def add_value(self, tasks: TaskGraph, inputs: list[Any]) -> Any:
        return tasks.data(self.key, self.primal)

    @property
    def is_container(self) -> bool:
        return not optree.treespec_is_leaf(self.structure)

    def __getitem__(self, index: Any) -> Any:
        if not self.is_container:
            return super().__getitem__(index)
        if isinstance(self.primal, list | tuple) and isinstance(index, int | slice):
            try:
                index = range(len(self.primal))[index]
            except IndexError:
                raise IndexError(self._has_no_item(index)) from None
            if isinstance(index, range):
                return [self._part(place) for place in index]
        return self._part(index)

    def __getattr__(self, attribute: str) -> Any:
        """The field of a namedtuple or a registered dataclass."""
        primal: Any = self.__dict__.get("primal")
        if attribute in getattr(type(primal), "_fields", ()):
            return self._part(primal._fields.index(attribute))
        if dataclasses.is_dataclass(primal) and attribute in self.structure.entries():
            return self._part(attribute)
        return super().__getattr__(attribute)

    def __iter__(self) -> Iterator[Node]:
        if isinstance(self.primal, list | tuple):
            return (self._part(index) for index in range(len(self.primal)))
        return super().__iter__()

    def __len__(self) -> int:
        return len(self.primal) if isinstance(self.primal, list | tuple) else super().__len__()

    def _part(self, entry: Any) -> "Variable":
        """One child of the container, under the index, key or field name that ``optree`` gives."""
        if self._parts is None:
            self._parts = weakref.WeakValueDictionary()
        part = self._parts.get(entry)
        if part is None:
            children, entries = self.structure.children(), self.structure.entries()
            if entry not in entries:
                raise KeyError(self._has_no_item(entry))
            number = entries.index(entry)
            first = sum([child.num_leaves for child in children[:number]])
            leaves = self.leaves[first : first + children[number].num_leaves]
            child = optree.tree_unflatten(children[number], leaves)
            name = f"{self.name}[{entry!r}]"
            part = self._parts[entry] = Variable(child, name, self, self.first_leaf + first)
        return part

    def _has_no_item(self, entry: Any) -> str:
        entries = ", ".join([repr(entry) for entry in self.structure.entries()])
        return f"variable {self.name!r} has no item {entry!r}; it has {entries}"


def variable(value: Any, name: str | None = None) -> Variable:
    """A leaf to differentiate with respect to.

    ``value`` is any pytree of float or complex arrays and numbers; it is copied. Integer, boolean
    and string leaves may stand in it, and have no derivative. Items of dicts, lists and tuples
    (``x["w"]``, ``w, b = x``) are variables, too.

    Raises
    ------
    TypeError
        where the value is or holds a node, an array of Python objects, or a subclass of NumPy's
        array such as a masked array, and where the name is no string.
    ValueError
        for a broadcast array whose copy would take more than a gigabyte.
    """
    if not (name is None or isinstance(name, str)):
        raise TypeError(f"the name of a variable is a string; found {describe(name)}")
    leaves, structure = flatten(value)
    copies = [own_copy(leaf, name or "variable") for leaf in leaves]
    return Variable(unflatten(structure, copies), name or "variable")


OTHER_DERIVATIVE = (
    "depends on the variables of another derivative; second derivatives of a graph are for hvp, "
    "not for a gradient of a gradient; within one model, autograd.grad may be nested"
)


def own_copy(leaf: Any, name: str) -> Any:
    """A leaf that nobody else can change."""
    if isinstance(leaf, Node):
        raise TypeError(f"{name!r} holds {leaf!r}, which {OTHER_DERIVATIVE}")
    if is_collection(leaf):
        raise TypeError(f"{name!r} holds a Dask collection; compute it first, or pass it as data")
    if isinstance(leaf, np.ndarray):
        if type(leaf) not in (np.ndarray, np.memmap) or leaf.dtype.kind == "O":
            raise TypeError(
                f"{name!r} holds {type(leaf).__name__} {describe(leaf)}; "
                f"convert it to a plain array of numbers first"
            )
        require_room(leaf, repr(name))
        return np.array(leaf, order="C")
    if isinstance(leaf, float | complex) and not isinstance(leaf, np.generic):
        return np.asarray(leaf)[()]
    if leaf is None or isinstance(leaf, bool | int | str | bytes | np.generic):
        return leaf
    raise TypeError(
        f"{name!r} holds {describe(leaf)}; expected float or complex arrays, or dicts, lists, "
        f"tuples and registered dataclasses of them"
    )
