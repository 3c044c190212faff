"""Registrations: structures that travel, also where their classes are not imported. A class of the
user's own is a node of a pytree once it is registered with ``optree``; that of a script is sent to
the workers by value, and its registration is sent along.
"""

from collections.abc import Callable
from typing import Any

import optree

from daskgrad.values.carriers import carrier
from daskgrad.values.trees import NAMESPACE


@carrier
class Structure:
    """The structure of a pytree, which can be sent to a process that has not its classes."""

    spec: optree.PyTreeSpec

    def __reduce__(self) -> tuple[Callable, tuple]:
        return _load_structure, (Registrations(), self.spec)  # in this order

    def unflatten(self, leaves: list[Any]) -> Any:
        return self.spec.unflatten(leaves)


class Registrations:
    """Registers, where it is loaded, the classes that are sent by value."""

    def __reduce__(self) -> tuple[Callable, tuple]:
        return register, (sent_by_value(),)


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
