"""Rows: the cotangent of an array of which only some rows were used; all other rows are zero.

Each term of a sum that indexes a shared array touches few of its rows. Their cotangents are added
as rows, and become an array once all have been added. The bits are those of arrays: the entries of
a row were added to zeros, so none is -0.0, and x + 0.0 is x for all others. So speed alone decides
when rows become an array.
"""

import math
from typing import Any

import numpy as np

from daskgrad.values.carriers import carrier

SMALL = 2**16  # bytes: a smaller array is added as quickly as its rows are found
MANY = 4  # if this many times the rows are more than the array has, an array is as quick


def are_many(count: int, shape: tuple[int, ...]) -> bool:
    return MANY * count > shape[0]


def is_small(array: Any) -> bool:
    """Whether the cotangent of an array is never kept as rows."""
    return math.prod(array.shape) * array.dtype.itemsize <= SMALL


@carrier
class Rows:
    """``values[n]`` is row ``rows[n]`` of the array; ``rows`` is sorted, without duplicates."""

    rows: np.ndarray
    values: np.ndarray
    shape: tuple[int, ...]

    def __repr__(self) -> str:
        return f"Rows({len(self.rows)} of {self.values.dtype}{list(self.shape)})"

    def copy(self) -> "Rows":
        """Itself: nobody writes into rows."""
        return self

    def dense(self) -> np.ndarray:
        array = np.zeros(self.shape, self.values.dtype)
        array[self.rows] = self.values
        return array


def merge(first: Rows, second: Rows) -> Any:
    """The sum of two: rows, or an array if the rows are many."""
    rows = np.union1d(first.rows, second.rows)
    if are_many(len(rows), first.shape):
        return first.dense() + second.dense()
    values = np.zeros((len(rows), *first.shape[1:]), np.result_type(first.values, second.values))
    values[np.searchsorted(rows, first.rows)] = first.values
    values[np.searchsorted(rows, second.rows)] += second.values
    return Rows(rows, values, first.shape)


def dense_leaf(leaf: Any) -> Any:
    """Rows as an array; other leaves unchanged."""
    return leaf.dense() if isinstance(leaf, Rows) else leaf
