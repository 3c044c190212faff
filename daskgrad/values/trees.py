"""Structures: pytrees taken apart and put together, also where their classes are not imported.

``optree`` does the work. A class of the user's own is a node of a pytree once it is registered with
``optree`` in the namespace "daskgrad". A class of a script is not imported by the workers, but sent
to them by value; its registration is sent along.
"""

import itertools
import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import cloudpickle
import numpy as np
import optree

NAMESPACE = "daskgrad"


LEAF = optree.treespec_leaf(none_is_leaf=True, namespace=NAMESPACE)
LEAF_TYPES = {np.ndarray, np.float64, float, type(None)}  # and a backend's boxes of arrays


def flatten(value: Any) -> tuple[list[Any], optree.PyTreeSpec]:
    """The leaves of a pytree and its structure; ``None`` counts as a leaf."""
    if type(value) in LEAF_TYPES:  # by far the most frequent ones, in a tenth of the time
        return [value], LEAF
    try:
        return optree.tree_flatten(value, none_is_leaf=True, namespace=NAMESPACE)
    except RecursionError:
        raise RecursionError(
            f"a {type(value).__name__} is nested too deep to be taken apart, or holds itself; "
            f"pytrees of arrays are some levels deep"
        ) from None


def unflatten(structure: optree.PyTreeSpec, leaves: Sequence[Any]) -> Any:
    """The pytree of this structure and these leaves."""
    return leaves[0] if structure is LEAF else structure.unflatten(leaves)


def children_of(structure: optree.PyTreeSpec) -> dict[Any, tuple[int, optree.PyTreeSpec]]:
    """For each child of a container, by its entry: its first leaf, and its structure."""
    children = structure.children()
    firsts = itertools.accumulate([child.num_leaves for child in children], initial=0)
    return dict(zip(structure.entries(), zip(firsts, children, strict=False), strict=True))


def exactly(structure: optree.PyTreeSpec) -> bytes | None:
    """What tells structures apart that are equal, or None where nothing does.

    They may differ in the order of a dict's keys, which a model may go by, and in keys like 1 and
    True. Equality is wanted, too: two classes of one name may have the same bytes here.
    """
    for dumps in (pickle.dumps, cloudpickle.dumps):  # which may do what pickle cannot
        try:
            return dumps(structure)
        except Exception:
            continue
    return None


# ------------------------------------------------------------------------- arrays that arrive

OWN_DTYPES = {code: np.dtype(code) for code in "?" + np.typecodes["AllInteger"] + "efdgFDG"}


def canonical(value: Any) -> Any:
    """A pytree with its arrays as NumPy makes them, which those that came in a message are not.

    Such an array begins wherever in the message it stood: NumPy adds it up in another order, and
    SciPy refuses some. And its dtype is equal to NumPy's own, but another object, as is that of all
    arrays that are computed from it: ``np.add.at`` takes 25 times as long. What begins at a
    multiple of its items is not copied.
    """
    leaves, structure = flatten(value)
    if all(map(is_canonical, leaves)):
        return value
    return unflatten(structure, list(map(canonical_leaf, leaves)))


def with_canonical_leaves(make: Callable, leaves: Iterable[Any], *args: Any) -> Any:
    """What ``make`` returns for leaves that have arrived; for the pickles of what holds leaves."""
    return make(tuple(map(canonical_leaf, leaves)), *args)


def canonical_leaf(leaf: Any) -> Any:
    if type(leaf) is not np.ndarray:
        return leaf
    array = leaf if leaf.flags.aligned else leaf.copy()
    dtype = own_dtype(array.dtype)
    return array if dtype is array.dtype else array.view(dtype)


def is_canonical(leaf: Any) -> bool:
    if type(leaf) is not np.ndarray:
        return True
    dtype = leaf.dtype
    return leaf.flags.aligned and dtype is OWN_DTYPES.get(dtype.char, dtype)


def of_its_own(value: Any) -> Any:
    """A copy for the caller, who may write into it; a pullback may hold the array itself."""
    leaves, structure = flatten(value)
    copies = [canonical_leaf(x).copy() if isinstance(x, np.ndarray) else x for x in leaves]
    return unflatten(structure, copies)


def own_dtype(dtype: np.dtype) -> np.dtype:
    """NumPy's own object for a dtype; the same where there is none that says as much."""
    own = OWN_DTYPES.get(dtype.char, dtype)
    return own if own == dtype and dtype.metadata is None else dtype


def takes_as_arrived(fun: Callable) -> Callable:
    """Marks the function of a task that makes those parts of its arguments canonical that it uses.

    Looking through all of a large container for each of its items would take the square of its
    size.
    """
    fun.takes_as_arrived = True  # type: ignore[attr-defined]
    return fun


def canonical_for(fun: Callable, args: tuple) -> tuple:
    """The arguments of a task, canonical unless its function sees to that itself."""
    return args if getattr(fun, "takes_as_arrived", False) else canonical(args)


class Structure:
    """The structure of a pytree, which can be sent to a process that has not its classes."""

    __slots__ = ("spec",)

    def __init__(self, spec: optree.PyTreeSpec):
        self.spec = spec

    def __reduce__(self) -> tuple[Callable, tuple]:
        return _load_structure, (Registrations(), self.spec)  # in this order

    def unflatten(self, leaves: list[Any]) -> Any:
        return self.spec.unflatten(leaves)


class Registrations:
    """Registers, where it is loaded, the classes that are sent by value."""

    def __reduce__(self) -> tuple[Callable, tuple]:
        return register, (sent_by_value(),)


class Registering:
    """A function for a task, which brings the registrations with it."""

    __slots__ = ("fun",)

    def __init__(self, fun: Callable):
        self.fun = fun

    def __reduce__(self) -> tuple[Callable, tuple]:
        return _load_function, (Registrations(), self.fun)

    def __call__(self, *args: Any) -> Any:
        return self.fun(*args)


def sent_by_value() -> list[tuple]:
    """The classes of scripts and functions that are registered here, and how."""
    entries: Any = optree.register_pytree_node.get
    entries = entries(namespace=NAMESPACE)
    return [
        (cls, entry.flatten_func, entry.unflatten_func, entry.path_entry_type)
        for cls, entry in entries.items()
        if cls.__module__ == "__main__" or "<locals>" in cls.__qualname__
    ]


def register(classes: list[tuple]) -> Registrations:
    for cls, flatten_func, unflatten_func, entry_type in classes:
        if optree.register_pytree_node.get(cls, namespace=NAMESPACE) is None:
            optree.register_pytree_node(
                cls, flatten_func, unflatten_func, path_entry_type=entry_type, namespace=NAMESPACE
            )
    return Registrations()


def _load_structure(_: Registrations, spec: optree.PyTreeSpec) -> Structure:
    return Structure(spec)


def _load_function(_: Registrations, fun: Callable) -> Registering:
    return Registering(fun)
