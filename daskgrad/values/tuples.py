"""Tuples: items that are tuples, kept column by column.

So a row of numbers and its label are one item of a sum, and a run of these items is two arrays.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import optree

from daskgrad.values.cotangents import nbytes
from daskgrad.values.trees import NAMESPACE, flatten


class Tuples(Sequence):
    """Columns of equal length as a sequence of tuples; a slice takes a slice of each column."""

    __slots__ = ("columns",)

    def __init__(self, columns: Iterable[Any]):
        self.columns = tuple(columns)

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, place: Any) -> Any:
        found = tuple([column[place] for column in self.columns])
        return Tuples(found) if isinstance(place, slice) else found

    def __iter__(self) -> Iterator[tuple]:
        return zip(*self.columns, strict=True)

    def __reduce__(self) -> tuple:
        return Tuples, (self.columns,)

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + nbytes(flatten(self.columns)[0])


optree.register_pytree_node(
    Tuples,
    lambda items: (items.columns, None),  # type: ignore[attr-defined]
    lambda _, columns: Tuples(columns),
    namespace=NAMESPACE,
)


class Partitions(list):
    """Partitions of a table as items, each of which is a slice by itself."""

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        return Partitions(found) if isinstance(place, slice) else found


def take(items: Any, places: np.ndarray) -> Any:
    """The items at these places, in new arrays and lists."""
    if isinstance(items, Tuples):
        return Tuples([take(column, places) for column in items.columns])
    if isinstance(items, np.ndarray):
        return items[places]
    kind = Partitions if isinstance(items, Partitions) else list
    return kind([items[place] for place in places.tolist()])


def join(parts: Sequence[Any]) -> Any:
    """Items of one kind, one after the other."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], Tuples):
        columns = zip(*[part.columns for part in parts], strict=True)
        return Tuples([join(column) for column in columns])
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts, dtype=parts[0].dtype)  # records stay records
    return [*chain.from_iterable(parts)]


def columns_of(items: Any) -> tuple:
    """The columns of items: one unless they are tuples."""
    return items.columns if isinstance(items, Tuples) else (items,)


def as_slice(items: Any) -> Any:
    """Items as an argument of a function that takes a slice: a tuple of columns for tuples."""
    if isinstance(items, Tuples):
        return tuple(map(as_slice, items.columns))
    return items[0] if isinstance(items, Partitions) else items
