"""Carriers: objects that only carry fields, and are rebuilt from them where they arrive."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

from daskgrad.values.memory import canonical_leaf
from daskgrad.values.trees import flatten

Made = TypeVar("Made")


@dataclass_transform(eq_default=False)
def carrier(cls: type[Made]) -> type[Made]:
    """A class with a slot for each annotated field; an object of it is equal to itself alone.

    It is pickled by its fields, unless it defines ``__reduce__``. Arrays among the fields, and in
    lists and tuples there, are canonical where they arrive; unpickling runs none of the user's
    code. Its size counts the arrays in its fields, so that Dask knows it, unless it defines
    ``__sizeof__``. Methods must name a base class instead of calling ``super()``.
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
