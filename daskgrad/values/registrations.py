"""Registrations: pytree structures that can be sent to processes that lack their classes.

A class that a script defines is sent by value, together with its registration with ``optree``.
"""

from collections.abc import Callable
from typing import Any

import optree

from daskgrad.values.carriers import carrier
from daskgrad.values.trees import NAMESPACE


@carrier
class Structure:
    """The structure of a pytree, which can be sent to a process that lacks its classes."""

    spec: optree.PyTreeSpec

    def __reduce__(self) -> tuple[Callable, tuple]:
        return _load_structure, (Registrations(), self.spec)  # in this order

    def unflatten(self, leaves: list[Any]) -> Any:
        return self.spec.unflatten(leaves)


class Registrations:
    """Registers the classes that are sent by value in the process that loads it."""

    def __reduce__(self) -> tuple[Callable, tuple]:
        return register, (sent_by_value(),)


def sent_by_value() -> list[tuple]:
    """The registered classes that are defined in scripts or functions, with their registrations."""
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
