"""Carriers: objects that only carry fields, and are rebuilt from these on arrival."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

import optree

from daskgrad.autodiff.values.memory import canonical_leaf
from daskgrad.autodiff.values.trees import NAMESPACE, flatten

Made = TypeVar("Made")


@dataclass_transform(eq_default=False)
def carrier(cls: type[Made]) -> type[Made]:
    """A class with a slot for each annotated field; its objects are equal to themselves alone.

    They are pickled by their fields, unless the class defines ``__reduce__``. Arrays among the
    fields, and in lists and tuples there, are canonical on arrival; unpickling runs none of the
    user's code. Their size counts the arrays in the fields, so that Dask knows it, unless the class
    defines ``__sizeof__``. Methods must name a base class instead of calling ``super()``.
    """
    made: Any = dataclass(slots=True, eq=False, repr=False)(cls)
    if "__sizeof__" not in vars(cls):
        made.__sizeof__ = size_of_carrier
    if "__reduce__" not in vars(cls):
        made.__reduce__ = reduce_carrier
    return made


def size_of_carrier(self: Any) -> int:
    leaves, _ = flatten([getattr(self, name) for name in self.__match_args__])
    held = [x.nbytes if hasattr(x, "nbytes") else sys.getsizeof(x) for x in leaves]
    return object.__sizeof__(self) + sum(held)


def reduce_carrier(self: Any) -> tuple[Callable, tuple]:
    return load_carrier, (type(self), [getattr(self, name) for name in self.__match_args__])


def load_carrier(cls: type[Made], fields: Sequence[Any]) -> Made:
    return cls(*map(canonical_field, fields))


def canonical_field(field: Any) -> Any:
    if type(field) is tuple or type(field) is list:
        return type(field)(map(canonical_field, field))
    return canonical_leaf(field)


# -------------------------------------------------------------------------------------------------
# Registrations: pytree structures that can be sent to processes that lack their classes.
#
# A class that a script defines is sent by value, together with its registration with ``optree``.


@carrier
class Structure:
    """The structure of a pytree, which can be sent to a process that lacks its classes."""

    spec: optree.PyTreeSpec

    def __reduce__(self) -> tuple[Callable, tuple]:
        return load_structure, (Registrations(), self.spec)  # in this order

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


def load_structure(_: Registrations, spec: optree.PyTreeSpec) -> Structure:
    return Structure(spec)


# -------------------------------------------------------------------------------------------------
# Caches: dicts of limited size that drop their oldest entries, shared by threads.

CacheKey = TypeVar("CacheKey")
Kept = TypeVar("Kept")


def kept_or_made(
    kept: dict[CacheKey, Kept], key: CacheKey, make: Callable[[], Kept], count: int
) -> Kept:
    """The entry of a key, made if it is missing; the cache keeps at most ``count`` entries."""
    entry = kept.get(key)
    if entry is None:
        entry = kept[key] = make()
        drop_oldest(kept, count)
    return entry


def drop_oldest(kept: dict[Any, Any], count: int) -> None:
    """Drops all but the latest ``count`` entries."""
    if len(kept) > count:
        for old in list(kept)[:-count]:  # of a copy: other threads add to it
            kept.pop(old, None)
