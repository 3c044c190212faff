"""Slopes: a value's derivatives by the entries of a function's arguments, as a sparse matrix."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.values.carriers import carrier

NO_COLUMNS = np.zeros(0, np.intp)


@carrier
class Slopes:
    """The slopes of one leaf: a matrix with a row an entry of the leaf, in C order.

    ``columns`` and ``values`` list its entries, row by row; row n ends at ``ends[n]``.
    Columns are counted over the entries of all arguments, and ascend within a row.
    """

    shape: tuple[int, ...]
    ends: np.ndarray
    columns: np.ndarray
    values: np.ndarray

    def __repr__(self) -> str:
        return f"Slopes({self.shape}, {len(self.values)} entries)"

    def __getitem__(self, index: Any) -> "Slopes":
        places = np.arange(len(self.ends)).reshape(self.shape)[index]
        return self.taken(np.shape(places), np.ravel(places))

    def taken(self, shape: tuple[int, ...], rows: np.ndarray) -> "Slopes":
        """The slopes of a leaf of this shape, from rows of this matrix; -1 for no entry."""
        if np.array_equal(rows, np.arange(len(self.ends))):
            return Slopes(shape, self.ends, self.columns, self.values)
        padded = np.append(self.ends, len(self.columns))
        taken, ends = taken_rows(padded, rows)
        return Slopes(shape, ends, self.columns[taken], self.values[taken])

    @property
    def rows(self) -> np.ndarray:
        """The row of each entry."""
        return np.repeat(np.arange(len(self.ends)), widths(self.ends))


@carrier
class UnitSlopes:
    """The slopes of the arguments' own entries: one, in these columns."""

    columns: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.columns.shape

    def __getitem__(self, index: Any) -> "UnitSlopes":
        return UnitSlopes(np.asarray(self.columns[index]))


@carrier
class Left:
    """Slopes that were left out, since they would take too many products."""

    shape: tuple[int, ...]
    products: int

    def __getitem__(self, index: Any) -> "Left":
        return Left(np.broadcast_to(0, self.shape)[index].shape, self.products)


def as_matrix(slopes: Slopes | UnitSlopes, leaf: Any) -> Slopes:
    """The slopes of a leaf as a matrix."""
    if type(slopes) is Slopes:
        return slopes
    size = slopes.columns.size
    ones = np.ones(size, np.result_type(leaf))
    return Slopes(slopes.shape, np.arange(1, size + 1), slopes.columns.ravel(), ones)


def widths(ends: np.ndarray) -> np.ndarray:
    """The number of entries of each row."""
    counts = ends.copy()
    counts[1:] -= ends[:-1]
    return counts


def taken_rows(ends: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The places of the entries of some rows, row by row, and the rows' ends among them."""
    width = widths(ends)[rows]
    stops = np.cumsum(width)
    count = int(stops[-1]) if len(stops) else 0
    return np.repeat(ends[rows] - stops, width) + np.arange(count), stops


def stacked(matrices: Sequence[Slopes]) -> Slopes:
    """The rows of some matrices, one matrix below the other."""
    first, ends = 0, []
    for matrix in matrices:
        ends.append(matrix.ends + first)
        first += len(matrix.columns)
    columns = np.concatenate([matrix.columns for matrix in matrices])
    values = np.concatenate([matrix.values for matrix in matrices])
    joined = np.concatenate(ends)
    return Slopes(joined.shape, joined, columns, values)


def chained(outer: Slopes, inner: Slopes) -> Slopes:
    """The product of two matrices of real numbers, by the chain rule."""
    taken, _ = taken_rows(inner.ends, outer.columns)
    width = widths(inner.ends)[outer.columns]
    rows, columns = np.repeat(outer.rows, width), inner.columns[taken]
    values = np.repeat(outer.values, width) * inner.values[taken]
    stride = int(columns.max(initial=0)) + 1
    keys, places = np.unique(rows * stride + columns, return_inverse=True)
    sums = np.bincount(places, values, len(keys)).astype(outer.values.dtype)
    ends = np.cumsum(np.bincount(keys // stride, minlength=len(outer.ends)))
    return Slopes(outer.shape, ends, keys % stride, sums)


def dense_block(slopes: Slopes, first: int, last: int) -> np.ndarray:
    """The columns from ``first`` to ``last``, with their zeros."""
    is_within = (first <= slopes.columns) & (slopes.columns < last)
    places = slopes.rows[is_within], slopes.columns[is_within] - first
    return with_zeros(slopes.values[is_within], places, (len(slopes.ends), last - first))


def with_zeros(values: Any, places: tuple[np.ndarray, ...], shape: tuple[int, ...]) -> Any:
    """Values at their places in an array of zeros; they may be in a box."""
    if type(values) is np.ndarray:
        array = np.zeros(shape, values.dtype)
        array[places] = values
        return array
    order = np.full(shape, len(values))
    order[places] = np.arange(len(values))
    return np.concatenate([values, np.zeros(1, values.dtype)])[order]


class SparseRows(NamedTuple):
    """A sparse matrix: row n has the values from ``starts[n]`` to ``starts[n + 1]``."""

    values: Any
    columns: np.ndarray
    starts: np.ndarray
    width: int

    def as_scipy(self) -> Any:
        from scipy import sparse  # here: most programs do not need it

        shape = len(self.starts) - 1, self.width
        return sparse.csr_array((self.values, self.columns, self.starts), shape=shape)


def sparse_block(slopes: Slopes, first: int, last: int) -> SparseRows:
    """The columns from ``first`` to ``last``, with each entry of the structure."""
    is_within = (first <= slopes.columns) & (slopes.columns < last)
    counts = np.bincount(slopes.rows[is_within], minlength=len(slopes.ends))
    starts = np.concatenate([[0], np.cumsum(counts)])
    columns = slopes.columns[is_within] - first
    return SparseRows(slopes.values[is_within], columns, starts, last - first)


def full_rows(dense: np.ndarray) -> SparseRows:
    """An array of two axes, with all entries."""
    rows, columns = dense.shape
    starts = columns * np.arange(rows + 1)
    return SparseRows(dense.ravel(), np.tile(np.arange(columns), rows), starts, columns)
