"""Carriers: objects that only carry fields, and are made of these again where they arrive."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

from daskgrad.values.memory import canonical_leaf

Made = TypeVar("Made")


@dataclass_transform(eq_default=False)
def carrier(cls: type[Made]) -> type[Made]:
    """A class with a slot for each annotated field; an object of it is equal to itself alone.

    It is pickled by its fields, unless it has a ``__reduce__`` of its own. Arrays among them, and
    in lists and tuples, are canonical where they arrive; no code of the user's runs for that.
    Methods name a base class in the place of ``super()``.
    """
    made: Any = dataclass(slots=True, eq=False, repr=False)(cls)
    if "__reduce__" not in vars(cls):
        made.__reduce__ = reduce_carrier
    return made


def reduce_carrier(self: Any) -> tuple[Callable, tuple]:
    return load_carrier, (type(self), [getattr(self, name) for name in self.__match_args__])


def load_carrier(cls: type[Made], fields: Sequence[Any]) -> Made:
    return cls(*map(canonical_field, fields))


def canonical_field(field: Any) -> Any:
    if type(field) is tuple or type(field) is list:
        return type(field)(map(canonical_field, field))
    return canonical_leaf(field)
