"""Variables: the leaves of a graph with respect to which it is differentiated."""

import dataclasses
import functools
import itertools
import math
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import optree

from daskgrad.autodiff.values.descriptions import describe, is_integer
from daskgrad.autodiff.values.elsewhere import Elsewhere, brought_here
from daskgrad.autodiff.values.memory import canonical_leaf, contiguous, of_its_own, require_room
from daskgrad.autodiff.values.trees import BOXES, Children, flatten, map_leaves
from daskgrad.graph.nodes import Node, names
from daskgrad.graph.notebooks import leaves_table
from daskgrad.tasks.collections import (
    is_collection,
    is_dask_array,
    require_known_chunks,
    task_of,
)
from daskgrad.tasks.task_graph import TaskGraph

SEQUENCES = list | tuple | deque
PLAIN_INDEX = {int, slice, np.ndarray, np.int64, type(None), type(...)}  # holds no node


class Variable(Node):
    """A leaf to differentiate with respect to: a pytree of arrays, copied or borrowed.

    An item of a container is a variable, too, and a part of its container: its cotangent goes to
    the leaves of the ``root`` from ``first_leaf`` on. ``is_recorded``: it stands for an argument of
    a differentiated function. ``is_borrowed``: its arrays belong to the caller. ``is_here``: none
    of its arrays is elsewhere.
    """

    is_recorded = False
    is_borrowed = False
    is_here = True

    def __init__(
        self, value: Any, name: str, container: "Variable | None" = None, first_leaf: int = 0
    ):
        super().__init__(name, (), None if container is None else container.key_name)
        self.primal = value
        self.leaves, self.structure = flatten(value)
        for leaf in self.leaves:
            if isinstance(leaf, Elsewhere):
                self.is_here = False
        self.asked: tuple[int, ...] = ()
        self._container = container  # not itself: a cycle would keep copies until a collection
        self.first_leaf = first_leaf
        self._parts: weakref.WeakValueDictionary[Any, Variable] | None = None
        self._children: Children | None = None
        self._shown: Variable | None = None
        self._showing: weakref.WeakSet[Variable] | None = None

    @property
    def root(self) -> "Variable":
        """The outermost container that it is a part of, or itself."""
        return self if self._container is None else self._container.root

    @property
    def containers(self) -> Iterator["Variable"]:
        """The containers that it is a part of, innermost first."""
        container = self._container
        while container is not None:
            yield container
            container = container._container

    def __getstate__(self) -> dict[str, Any]:
        self.own_arrays()  # a copy may be used later than the call
        parts = dict(self._parts or {})
        return {**super().__getstate__(), "_parts": parts, "_children": None, "_showing": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._parts = weakref.WeakValueDictionary(state["_parts"])

    def __repr__(self) -> str:
        size = f"{type(self.primal).__name__} of {len(self.leaves)}" if self.is_container else ""
        return f"<Variable {self.name}: {size or describe(self.primal)}>"

    def _repr_html_(self) -> str:
        """For notebooks: dtype, shape and bytes of its leaves."""
        return leaves_table("variable", self.name, self.leaves, self.structure)

    def build_value(self, tasks: TaskGraph, inputs: list[Any]) -> Any:
        primal = self.primal if self.is_here else map_leaves(brought_here, self.primal)
        return tasks.data(self.key, primal)

    def __dask_postcompute__(self) -> tuple[Callable, tuple]:
        """Gives the user a copy, since the graph keeps the arrays themselves."""
        take, args = super().__dask_postcompute__()
        return own_result, (take, *args)

    def own_arrays(self) -> None:
        """Copies borrowed arrays, so that nobody else can change them."""
        if self._container is not None:
            self.root.own_arrays()
        elif self._shown is not None:
            self._shown.own_arrays()
        elif self.is_borrowed:
            arrays = map(brought_here, self.leaves)
            self._show([x.copy(order="A") if isinstance(x, np.ndarray) else x for x in arrays])
            self.is_borrowed = False

    def as_constant(self) -> "Variable":
        """Another variable of the same arrays, which nobody differentiates."""
        constant = Variable(self.primal, self.name)
        constant.key = self.key  # so that the value enters a graph once
        constant._shown = self
        if self._showing is None:
            self._showing = weakref.WeakSet()
        self._showing.add(constant)
        return constant

    def _show(self, leaves: list[Any]) -> None:
        """Replaces its arrays by copies, in its parts and constants, too; under another key, since
        a scheduler may not have forgotten the arrays of this one."""
        self.leaves, self.key = leaves, names.key("value", self.key_name)
        self.primal = optree.tree_unflatten(self.structure, leaves)
        for part in list((self._parts or {}).values()):
            start = part.first_leaf - self.first_leaf
            part._show(leaves[start : start + len(part.leaves)])
        for constant in list(self._showing or ()):
            constant._show(leaves)
            constant.key = self.key

    @property
    def is_container(self) -> bool:
        return not optree.treespec_is_leaf(self.structure)

    def __getitem__(self, index: Any) -> Any:
        if not self.is_container:
            parts = index if type(index) is tuple else (index,)
            if PLAIN_INDEX.issuperset(map(type, parts)) and isinstance(self.primal, np.ndarray):
                try:
                    self.primal[index]
                except IndexError as error:
                    raise IndexError(f"{self!r} has no item {index!r}: {error}") from None
            return super().__getitem__(index)
        if isinstance(self.primal, SEQUENCES) and (isinstance(index, slice) or is_integer(index)):
            try:
                index = range(len(self.primal))[index]
            except IndexError:
                raise IndexError(self._has_no_item(index)) from None
            if isinstance(index, range):
                return [self._part(place).for_user() for place in index]
        return self._part(index).for_user()

    def __getattr__(self, attribute: str) -> Any:
        """The field of a namedtuple or a registered dataclass."""
        primal: Any = self.__dict__.get("primal")
        if attribute in getattr(type(primal), "_fields", ()):
            return self._part(primal._fields.index(attribute)).for_user()
        if dataclasses.is_dataclass(primal) and attribute in self.structure.entries():
            return self._part(attribute).for_user()
        return super().__getattr__(attribute)

    def __iter__(self) -> Iterator[Node]:
        if isinstance(self.primal, SEQUENCES):
            return (self._part(index).for_user() for index in range(len(self.primal)))
        if self.is_container:
            return iter(self.primal)  # the keys of a dict
        return super().__iter__()

    def __len__(self) -> int:
        return len(self.primal) if isinstance(self.primal, SEQUENCES) else super().__len__()

    def for_user(self) -> Any:
        """Itself; or the value's class with variables for fields, if a field is called as an
        attribute of variables."""
        value_class: Any = type(self.primal)
        if not (has_attributes_of_variables(value_class) and self.is_container):
            return self
        parts = [self._part(entry).for_user() for entry in self.structure.entries()]
        one_level: Any = self.structure.one_level()
        try:
            return one_level.unflatten(parts)
        except Exception as error:
            error.add_note(
                f"daskgrad: variable {self.name!r} is a {value_class.__name__} with attributes "
                f"that variables have, too, and so was made anew with variables for its fields; "
                f"give these other names, or pass a dict"
            )
            raise

    def _part(self, entry: Any) -> "Variable":
        """A child of the container, by ``optree``'s entry: an index, a key or a field name."""
        if self._parts is None:
            self._parts = weakref.WeakValueDictionary()
        part = self._parts.get(entry)
        if part is None:
            if self._children is None:
                self._children = Children.of(self.structure)
            number = self._children.numbers.get(entry)
            if number is None:
                raise KeyError(self._has_no_item(entry))
            first, structure = self._children.firsts[number], self._children.structures[number]
            leaves = self.leaves[first : first + structure.num_leaves]
            child = optree.tree_unflatten(structure, leaves)
            name = f"{self.name}[{entry!r}]"
            part = self._parts[entry] = Variable(child, name, self, self.first_leaf + first)
            part.asked = tuple([n - first for n in self.asked if 0 <= n - first < len(leaves)])
        return part

    def _has_no_item(self, entry: Any) -> str:
        entries = ", ".join([repr(entry) for entry in self.structure.entries()])
        return f"variable {self.name!r} has no item {entry!r}; it has {entries}"


@functools.lru_cache(256)
def has_attributes_of_variables(cls: type) -> bool:
    """Whether a named tuple or a dataclass has an attribute that variables have, too."""
    if dataclasses.is_dataclass(cls):
        fields = [field.name for field in dataclasses.fields(cls)]
    elif hasattr(cls, "_fields"):
        fields = []
    else:
        return False
    names = {name for name in (*fields, *dir(cls)) if not name.startswith("__")}
    return not names.isdisjoint(dir(Variable(None, "")))


def for_user(argument: Any) -> Any:
    return argument.for_user() if isinstance(argument, Variable) else argument


def own_result(results: Any, take: Callable, *args: Any) -> Any:
    return of_its_own(take(results, *args))


def copy_variable(value: Any, name: str) -> Variable:
    """A variable with copies of a pytree's arrays."""
    return Variable(map_leaves(lambda leaf: checked_leaf(leaf, name, copy=True), value), name)


def borrow_variable(value: Any, name: str) -> Variable:
    """A variable with the caller's arrays, which nobody may write into while it is used."""
    borrowed = Variable(map_leaves(lambda leaf: checked_leaf(leaf, name, copy=False), value), name)
    borrowed.is_borrowed = True
    return borrowed


OTHER_DERIVATIVE = (
    "depends on the variables of another derivative; for second derivatives of a graph call dg.hvp "
    "instead of a gradient of a gradient; within one model, autograd.grad may be nested"
)


def checked_leaf(leaf: Any, name: str, copy: bool) -> Any:
    """A leaf as models get it; with its own memory if ``copy``."""
    if type(leaf) in BOXES:
        return leaf
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
        if copy:
            require_room(leaf, repr(name))
            return canonical_leaf(np.array(leaf, order="A"))
        return canonical_leaf(np.asarray(contiguous(leaf, repr(name))))
    if isinstance(leaf, Elsewhere):
        return leaf.fetch() if copy else leaf
    if leaf is None or isinstance(leaf, bool | int | str | bytes | np.generic):
        return leaf
    if isinstance(leaf, float | complex):  # Python's, or a class of the user's
        return complex(leaf) if isinstance(leaf, complex) else float(leaf)
    raise TypeError(
        f"{name!r} holds {describe(leaf)}; expected float or complex arrays, or dicts, lists, "
        f"tuples and registered dataclasses of them"
    )


# -------------------------------------------------------------------------------------------------
# Chunked variables: dask Arrays to differentiate with respect to; their chunks stay in place.


@dataclasses.dataclass(frozen=True)
class ChunkedValue:
    """Shape and dtype of an array that is not in this process."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class ChunkVariable(Variable):
    """One chunk of a dask Array: a variable with a value that Dask has, or computes."""

    is_settled = True
    is_here = False

    def __init__(self, chunk: Any, known: ChunkedValue, name: str):
        super().__init__(known, name)
        self.key = task_of(chunk).key
        self._graph = chunk.__dask_graph__()


class ChunkedVariable(Node):
    """A dask Array as a variable, for ``dg.array`` and ``dg.grid``; ``blocks``: the variables of
    its chunks, in C order."""

    def __init__(self, name: str, blocks: tuple[ChunkVariable, ...], chunks: Any, dtype: np.dtype):
        super().__init__(name, ())
        self.blocks = blocks
        self.chunks = chunks
        self.dtype = dtype

    def build_value(self, tasks: TaskGraph, inputs: list[Any]) -> Any:
        raise TypeError(
            f"variable {self.name!r} is a dask Array, of which models get the chunks; use "
            f"dg.array(x) or dg.grid(x) of it"
        )


def chunked_variable(array: Any, name: str) -> ChunkedVariable:
    """The variable of a dask Array."""
    require_known_chunks(array)
    if array.dtype.kind not in "fc":
        raise TypeError(
            f"{name!r} is a dask Array of {array.dtype}, which has no derivative; make it one of "
            f"float numbers: x.astype(float)"
        )
    shapes = itertools.product(*array.chunks)
    places = np.ndenumerate(array.to_delayed(optimize_graph=False))
    blocks = [
        ChunkVariable(chunk, ChunkedValue(shape, array.dtype), f"{name}{list(index)}")
        for (index, chunk), shape in zip(places, shapes, strict=True)
    ]
    return ChunkedVariable(name, tuple(blocks), array.chunks, array.dtype)


# ---------------------------------------------------------------------------------------- variable


def variable(value: Any, name: str | None = None) -> Any:
    """A leaf to differentiate with respect to.

    ``value`` is any pytree of float or complex arrays and numbers; it is copied. Integer, boolean
    and string leaves may stand in it, and have no derivative. Items of dicts, lists and tuples
    (``x["w"]``, ``w, b = x``) are variables, too. A named tuple or a dataclass with a field that is
    called as an attribute of variables, such as ``name`` or ``leaves``, is itself returned, with
    variables for its fields.

    Or it is a dask Array of floats or complex numbers, and its chunks stay in place:
    ``dg.array(x)`` and ``dg.grid(x)`` take the variable, and ``dg.differentiate`` returns its
    gradient as a dask Array of the same chunks.

    Returns
    -------
    Variable
        The leaf, which functions and models take in the place of its value.

    Raises
    ------
    TypeError
        if the value is or holds a node, an array of Python objects, or a subclass of NumPy's array
        such as a masked array, if a dask Array has no float or complex numbers, or if the name is
        not a string.
    ValueError
        for a broadcast array with a copy of more than a gigabyte, and for a dask Array with unknown
        chunks.

    See Also
    --------
    differentiate, delayed

    Examples
    --------
    >>> x = dg.variable(np.array([3.0, 4.0]), name="position")
    >>> dg.delayed(np.sum)(x**2).compute()
    np.float64(25.0)
    """
    if not (name is None or isinstance(name, str)):
        raise TypeError(f"the name of a variable must be a string; found {describe(name)}")
    name = name or "variable"
    if is_dask_array(value):
        return chunked_variable(value, name)
    return copy_variable(value, name).for_user()
