"""Sparse arrays of traced data, in three formats of places."""

from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from daskgrad.autodiff.rules import scipy_sparse as rules
from daskgrad.autodiff.rules.scipy_sparse import SparseArray, from_sparse
from daskgrad.autodiff.rules.twins import operand
from daskgrad.autodiff.tape import value
from daskgrad.scipy.dispatch import dispatched, within_models

Shape = tuple[int, int] | None


@within_models
def coo_array(arg1: Any, shape: Shape = None) -> SparseArray:
    """The array of ``(data, (rows, columns))``, or of a sparse matrix."""
    return made("coo_array", arg1, shape)


@within_models
def csr_array(arg1: Any, shape: Shape = None) -> SparseArray:
    """The array of ``(data, indices, indptr)``, ``(data, (rows, columns))`` or a sparse matrix.

    Row i has the columns ``indices[indptr[i]:indptr[i + 1]]``.
    """
    return made("csr_array", arg1, shape)


@within_models
def csc_array(arg1: Any, shape: Shape = None) -> SparseArray:
    """As ``csr_array``, by columns: column i has the rows ``indices[indptr[i]:indptr[i + 1]]``."""
    return made("csc_array", arg1, shape)


@within_models
def diags_array(diagonals: Any, /, *, offsets: Any = 0, shape: Shape = None) -> SparseArray:
    """The array of these diagonals, vectors or numbers, at the offsets from the main one."""
    if np.ndim(offsets) == 0:
        offsets, diagonals = [int(offsets)], [diagonals]
    parts = [np.reshape(operand(diagonal), (-1,)) for diagonal in diagonals]
    if len(parts) != len(offsets):
        raise ValueError(f"sparse.diags_array: {len(parts)} diagonals have {len(offsets)} offsets")
    if shape is None:
        size = np.size(parts[0]) + abs(int(offsets[0]))
        shape = (size, size)
    entries, places = [np.zeros(0)], [np.zeros((2, 0), int)]
    for part, offset in zip(parts, offsets, strict=True):
        length = min(shape[0] + min(offset, 0), shape[1] - max(offset, 0))
        if length < 0 or np.size(part) not in (1, length):
            raise ValueError(
                f"sparse.diags_array: a diagonal of {np.size(part)} entries is at the offset "
                f"{offset} of the shape {shape}; it must have {max(length, 0)}"
            )
        entries.append(np.broadcast_to(part, (length,)))
        places.append(np.arange(length) + np.array([[max(-offset, 0)], [max(offset, 0)]]))
    rows, columns = np.concatenate(places, axis=1)
    return coo_array((np.concatenate(entries), (rows, columns)), shape)


def made(name: str, source: Any, shape: Shape) -> SparseArray:
    if isinstance(source, SparseArray) or scipy.sparse.issparse(source):
        array = from_sparse(source, name).as_array()
        if shape not in (None, array.shape):
            raise ValueError(
                f"sparse.{name}: the shape is {shape}, that of the matrix {array.shape}"
            )
        return array
    if isinstance(source, tuple) and len(source) == 2 and isinstance(source[1], tuple | list):
        data, (rows, columns) = source
    elif isinstance(source, tuple) and len(source) == 3 and name != "coo_array":
        data, rows, columns, shape = compressed(name, source, shape)
    else:
        raise TypeError(
            f"sparse.{name} takes {EXPECTED[name]} or a sparse matrix, not "
            f"{type(source).__name__}; the places of entries must be given, as they have no "
            f"derivative"
        )
    data, rows, columns = operand(data), integers(name, rows), integers(name, columns)
    height, width = (extent(rows), extent(columns)) if shape is None else map(int, shape)
    if np.shape(data) != np.shape(rows) or np.shape(rows) != np.shape(columns) or rows.ndim != 1:
        raise ValueError(
            f"sparse.{name}: the data have the shape {np.shape(data)}, the places "
            f"{np.shape(rows)} and {np.shape(columns)}; they must be vectors of one length"
        )
    for places, size in ((rows, height), (columns, width)):
        if len(places) and not (0 <= np.min(places) and np.max(places) < size):
            raise ValueError(
                f"sparse.{name}: places go from {np.min(places)} to {np.max(places)}, and must be "
                f"within the shape {(height, width)}"
            )
    kind = scipy.sparse.get_index_dtype(maxval=max(height, width))  # as SciPy's: half the bytes
    return SparseArray(
        data, rules.Pattern(rows.astype(kind), columns.astype(kind), (height, width))
    )


PAIR, TRIPLE = "(data, (rows, columns))", "(data, indices, indptr)"
EXPECTED = {
    "coo_array": PAIR,
    "csr_array": f"{TRIPLE}, {PAIR}",
    "csc_array": f"{TRIPLE}, {PAIR}",
}


def compressed(name: str, parts: tuple, shape: Shape) -> tuple[Any, Any, Any, Any]:
    """The data, the rows and columns of a compressed format, and the shape."""
    data, indices, ends = parts[0], integers(name, parts[1]), integers(name, parts[2])
    counts = np.diff(ends)
    if not len(ends) or ends[0] != 0 or np.any(counts < 0) or ends[-1] != len(indices):
        raise ValueError(
            f"sparse.{name}: indptr must grow from 0 to {len(indices)}, the number of indices"
        )
    lines = np.repeat(np.arange(len(counts)), counts)
    is_by_rows = name == "csr_array"
    if shape is None:
        sizes = len(counts), extent(indices)
        shape = sizes if is_by_rows else sizes[::-1]
    elif shape[0 if is_by_rows else 1] != len(counts):
        raise ValueError(
            f"sparse.{name}: indptr tells of {len(counts)} lines, the shape is {shape}"
        )
    return (data, lines, indices, shape) if is_by_rows else (data, indices, lines, shape)


def extent(places: Any) -> int:
    return int(np.max(places)) + 1 if len(places) else 0


def integers(name: str, places: Any) -> Any:
    numbers = np.asarray(value(places))
    if numbers.dtype.kind not in "iu" and numbers.size:
        raise TypeError(f"sparse.{name}: places are integers, not {numbers.dtype}")
    return numbers.astype(np.intp)


@dispatched
def matmul(A: Any, x: Any) -> Any:
    """``A @ x``, of a sparse matrix, or of a ``scipy.sparse.linalg.LinearOperator``.

    A LinearOperator is constant; its derivative takes its transpose (``rmatvec``).
    """
    if isinstance(A, SparseArray):
        return A @ x
    if not (scipy.sparse.issparse(A) or isinstance(A, scipy.sparse.linalg.LinearOperator)):
        raise TypeError(
            f"sparse.matmul takes a sparse matrix or a LinearOperator, not {type(A).__name__}; of "
            f"arrays write A @ x"
        )
    return rules.constant_product(A, operand(x))
