"""Rows: the cotangent of an array of which only some rows were used; zero in all others.

Terms of a sum that index a shared array each touch few of its rows. Their cotangents are added up
as rows and become an array once, when all have been added. The bits are those of arrays: the
entries of a row were added to zeros, so none is -0.0, and x + 0.0 is x for all others. What is kept
as rows, and from when on as an array, is therefore free, and decided by what is quicker.
"""

import math
from typing import Any

import numpy as np

from daskgrad.values.carriers import carrier

SMALL = 2**16  # bytes of an array that is added up as quickly as its rows are found
MANY = 4  # times the number of rows is more than an array has: then an array is as quick


def are_many(count: int, shape: tuple[int, ...]) -> bool:
    return MANY * count > shape[0]


def is_small(array: Any) -> bool:
    """Whether the cotangent of an array is never kept as rows."""
    return math.prod(array.shape) * array.dtype.itemsize <= SMALL


@carrier
class Rows:
    """``values[n]`` is the row number ``rows[n]``; these are in order, each once."""

    rows: np.ndarray
    values: np.ndarray
    shape: tuple[int, ...]

    def __repr__(self) -> str:
        return f"Rows({len(self.rows)} of {self.values.dtype}{list(self.shape)})"

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + self.values.nbytes

    def copy(self) -> "Rows":
        """Nothing is ever written into them."""
        return self

    def dense(self) -> np.ndarray:
        array = np.zeros(self.shape, self.values.dtype)
        array[self.rows] = self.values
        return array


def merge(first: Rows, second: Rows) -> Any:
    """The sum: rows, or an array where these are many."""
    rows = np.union1d(first.rows, second.rows)
    if are_many(len(rows), first.shape):
        return first.dense() + second.dense()
    values = np.zeros((len(rows), *first.shape[1:]), np.result_type(first.values, second.values))
    values[np.searchsorted(rows, first.rows)] = first.values
    values[np.searchsorted(rows, second.rows)] += second.values
    return Rows(rows, values, first.shape)


def dense_leaf(leaf: Any) -> Any:
    """An array in the place of rows; other leaves as they are."""
    return leaf.dense() if isinstance(leaf, Rows) else leaf
