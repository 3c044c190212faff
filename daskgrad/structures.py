"""Structures: pytrees taken apart and put together, also where their classes are not imported.

``optree`` does the work. A class of the user's own is a node of a pytree once it is registered with
``optree`` in the namespace "daskgrad". A class of a script is not imported by the workers, but sent
to them by value; its registration is sent along.
"""

import pickle
from collections.abc import Callable, Sequence
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


def aligned(value: Any) -> Any:
    """A pytree with copies in the place of arrays that do not begin at a multiple of their items.

    Such are arrays that came in a message, from wherever in it they stood. NumPy adds them up in
    another order, and SciPy refuses some.
    """
    leaves, structure = flatten(value)
    if not any(map(is_askew, leaves)):
        return value
    return unflatten(structure, [leaf.copy() if is_askew(leaf) else leaf for leaf in leaves])


def is_askew(leaf: Any) -> bool:
    return type(leaf) is np.ndarray and not leaf.flags.aligned


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
