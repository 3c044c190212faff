"""Sparse matrices: products and solutions, of constant matrices and of traced entries.

A matrix of traced entries is a vector of them and a pattern: their rows and columns. Its product
with a dense matrix, and ``sampled``, the product of two dense ones at the places of a pattern, are
each other's derivatives. All of them take as many steps as there are entries.
"""

from typing import Any, NamedTuple

import autograd.numpy as anp
import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from autograd.extend import primitive

from daskgrad.autodiff.rules.declaration import (
    added,
    declare,
    each_of,
    linear_in_each,
    plain,
    unboxed,
)
from daskgrad.autodiff.rules.twins import operand


class Pattern(NamedTuple):
    """The places of entries; entries at equal places are added."""

    rows: Any
    columns: Any
    shape: tuple[int, int]

    @property
    def T(self) -> "Pattern":
        return Pattern(self.columns, self.rows, self.shape[::-1])

    def matrix(self, data):
        return scipy.sparse.coo_array((data, (self.rows, self.columns)), shape=self.shape)


# -------------------------------------------------------------------------- constant matrices


@primitive
def constant_product(matrix, x):
    """SciPy's product of a constant sparse matrix, or of a LinearOperator, with an array."""
    return matrix @ x


def constant_product_adjoint(argnums, ans, args, kwargs):
    turned, of_x = args[0].T, np.shape(args[1])
    of_product = args[0].shape[0], *of_x[1:]  # SciPy's products with one row are numbers
    return lambda g: (anp.reshape(constant_product(turned, anp.reshape(g, of_product)), of_x),)


declare(
    constant_product, adjoint=constant_product_adjoint, tangent=linear_in_each(constant_product)
)

# ----------------------------------------------------------------------------- traced entries


@primitive
def product(data: Any, x: Any, pattern: Pattern) -> Any:
    """The matrix of these entries times a vector or a matrix."""
    shape = pattern.shape[0], *np.shape(x)[1:]  # SciPy's products with one row are numbers
    return np.reshape(pattern.matrix(data) @ x, shape)


declare(
    product,
    adjoint=each_of(
        lambda g, data, x, pattern: sampled(g, x, pattern),
        lambda g, data, x, pattern: product(data, g, pattern.T),
    ),
    tangent=linear_in_each(product),
)


@primitive
def sampled(u: Any, v: Any, pattern: Pattern) -> Any:
    """The entries of ``u @ v.T`` at the places of a pattern."""
    rows, columns, _ = pattern
    if np.ndim(u) == 1:
        return np.take(u, rows) * np.take(v, columns)
    pairs = zip(np.ascontiguousarray(u.T), np.ascontiguousarray(v.T), strict=True)
    terms = (np.take(a, rows) * np.take(b, columns) for a, b in pairs)
    return sum(terms, np.zeros(len(rows)))  # one by one: no array of entries times columns


declare(
    sampled,
    adjoint=each_of(
        lambda g, u, v, pattern: product(g, v, pattern),
        lambda g, u, v, pattern: product(g, u, pattern.T),
    ),
    tangent=linear_in_each(sampled),
)


@primitive
def dense(data: Any, pattern: Pattern) -> Any:
    """The matrix as a dense one."""
    return pattern.matrix(data).toarray()


declare(
    dense,
    adjoint=each_of(lambda g, data, pattern: g[pattern.rows, pattern.columns]),
    tangent=linear_in_each(dense),
)


# ---------------------------------------------------------------------------------- solutions


class Factor:
    """The factors L and U of a matrix; it is pickled as the matrix, and factorized again."""

    def __init__(self, data: Any, pattern: Pattern, order: str | None = None):
        self._given = data, pattern, order
        matrix = pattern.matrix(np.asarray(data, np.result_type(data, float))).tocsc()
        try:
            self._factors = scipy.sparse.linalg.splu(matrix, permc_spec=order)
        except RuntimeError as error:
            raise np.linalg.LinAlgError(
                f"a sparse matrix of shape {pattern.shape} cannot be solved with: {error}"
            ) from error
        self._is_complex = np.iscomplexobj(matrix)

    def __reduce__(self) -> tuple:
        return Factor, self._given

    def solve(self, b, is_turned):
        mode = "T" if is_turned else "N"
        if self._is_complex:
            return self._factors.solve(np.asarray(b, complex), mode)
        if np.iscomplexobj(b):
            real, imaginary = map(np.ascontiguousarray, (b.real, b.imag))
            return self._factors.solve(real, mode) + 1j * self._factors.solve(imaginary, mode)
        return self._factors.solve(np.asarray(b, float), mode)


@primitive
def solution(data: Any, b: Any, pattern: Pattern, factor: Factor, is_turned: bool) -> Any:
    """x of ``A x = b``, for a matrix with these entries and factors, or for its transpose."""
    return factor.solve(b, is_turned)


def solution_adjoint(argnums, ans, args, kwargs):
    data, _, pattern, factor, is_turned = args
    places = pattern.T if is_turned else pattern

    def solution_pullback(g):
        pulled = solution(data, g, pattern, factor, not is_turned)
        return tuple([pulled if argnum else -sampled(pulled, ans, places) for argnum in argnums])

    return solution_pullback


def solution_tangent(argnums, tangents, ans, args, kwargs):
    data, _, pattern, factor, is_turned = args
    places, pairs = pattern.T if is_turned else pattern, zip(argnums, tangents, strict=True)
    total = added([t if argnum else -product(t, ans, places) for argnum, t in pairs])
    return solution(data, total, pattern, factor, is_turned)


declare(solution, adjoint=solution_adjoint, tangent=solution_tangent)


# -------------------------------------------------------------------------------------------------
# Sparse arrays of traced entries, and the operators of boxes with sparse matrices.


class SparseArray:
    """A sparse matrix with traced entries ``data``, at ``coords``, rows and columns.

    It is no array of NumPy's, and no value of a model, which returns its products with dense
    arrays, its sums, or its ``data``. Entries at equal places are added. ``is_matrix``: made of one
    of SciPy's matrices; ``*`` and ``sum`` are refused if they mean something else for these.
    """

    __array_ufunc__ = None  # operators of arrays leave theirs to ours
    ndim = 2

    def __init__(self, data: Any, pattern: Pattern, is_matrix: bool = False):
        self.data, self.pattern, self.is_matrix = data, pattern, is_matrix

    def _with(self, data: Any) -> "SparseArray":
        return SparseArray(data, self.pattern, self.is_matrix)

    def as_array(self) -> "SparseArray":
        """With the operators of SciPy's arrays."""
        return SparseArray(self.data, self.pattern)

    @property
    def shape(self) -> tuple[int, int]:
        return self.pattern.shape

    @property
    def coords(self) -> tuple[Any, Any]:
        return self.pattern.rows, self.pattern.columns

    @property
    def dtype(self) -> Any:
        return np.result_type(plain(self.data))

    @property
    def nnz(self) -> int:
        """The number of entries that are given."""
        return len(self.pattern.rows)

    @property
    def T(self) -> "SparseArray":
        return SparseArray(self.data, self.pattern.T, self.is_matrix)

    def tocsc(self) -> "SparseArray":
        """Itself: formats are SciPy's alone."""
        return self

    tocsr = tocoo = tocsc

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"a sparse array of traced entries has no {name!r}; it has products, sums, diagonal() "
            f"and daskgrad.scipy.sparse.linalg; write A.toarray() for a dense array, which has more"
        )

    def __repr__(self) -> str:
        return f"<SparseArray of shape {self.shape} with {self.nnz} entries>"

    def __array__(self, *args, **kwargs):
        raise TypeError(
            f"{self!r} is no array, and takes part in products and sums alone; write A @ x, or "
            f"A.toarray() for the dense array"
        )

    def unboxed(self) -> "SparseArray":
        """With plain numbers as entries."""
        return self._with(unboxed(self.data))

    def transpose(self) -> "SparseArray":
        return self.T

    def conj(self) -> "SparseArray":
        return self._with(anp.conj(self.data))

    def toarray(self) -> Any:
        return dense(self.data, self.pattern)

    def diagonal(self, k: int = 0) -> Any:
        rows, columns, (height, width) = self.pattern
        size = max(min(height + min(k, 0), width - max(k, 0)), 0)
        entries = np.flatnonzero(columns - rows == k)
        places = np.minimum(rows, columns)[entries]
        onto = Pattern(places, np.zeros_like(places), (size, 1))
        return product(self.data[entries], np.ones(1), onto)

    def sum(self, axis: int | None = None, dtype: None = None, out: None = None) -> Any:
        if dtype is not None or out is not None:
            raise NotImplementedError("the sum of a sparse array takes no dtype= and no out=")
        if axis is None:
            return anp.sum(self.data)
        self._require_array("sum(axis=...)")
        if axis not in (0, 1, -1, -2):
            raise ValueError(f"axis is {axis!r}; of a sparse array it must be None, 0 or 1")
        turned = self.T if axis in (0, -2) else self
        return turned @ np.ones(turned.shape[1])

    def __matmul__(self, other):
        x = dense_operand(other, "@")
        if np.ndim(x) not in (1, 2) or np.shape(x)[0] != self.shape[1]:
            raise ValueError(
                f"the shapes {self.shape} and {np.shape(x)} do not fit in a product of matrices"
            )
        return product(self.data, x, self.pattern)

    def __rmatmul__(self, other):
        return anp.transpose(self.T @ anp.transpose(dense_operand(other, "@")))

    def dot(self, other):
        return self @ other if np.ndim(plain(other)) else self * other

    def __mul__(self, other: Any) -> "SparseArray":
        """Entry by entry, with a number, or an array that is broadcast."""
        if np.ndim(plain(other)):
            self._require_array("*")
        return self.multiply(other)

    __rmul__ = __mul__

    def multiply(self, other: Any) -> "SparseArray":
        return self._with(self.data * self._at_places(other))

    def __truediv__(self, other: Any) -> "SparseArray":
        return self._with(self.data / self._at_places(other))

    def _require_array(self, subject: str) -> None:
        if self.is_matrix:
            raise TypeError(
                f"{subject} is not the same for SciPy's sparse matrices and arrays; write A @ x, "
                f"or A.multiply(x), or make an array: daskgrad.scipy.sparse.csr_array(A)"
            )

    def _at_places(self, other):
        x, (rows, columns) = dense_operand(other, "*"), self.coords
        shape = (1,) * (2 - np.ndim(x)) + np.shape(x)
        if len(shape) > 2 or any(m not in (1, n) for m, n in zip(shape, self.shape, strict=True)):
            raise ValueError(f"an array of shape {np.shape(x)} cannot be broadcast to {self.shape}")
        if np.ndim(x) == 0:
            return x
        zeros = np.zeros_like(rows)
        x = anp.reshape(x, shape)
        return x[zeros if shape[0] == 1 else rows, zeros if shape[1] == 1 else columns]

    def __neg__(self) -> "SparseArray":
        return self._with(-self.data)

    def __add__(self, other):
        if np.ndim(plain(other)) == 0 and isinstance(other, NUMBERS) and other == 0:
            return self  # as sum() begins
        other = from_sparse(other, "+")
        if other.shape != self.shape:
            raise ValueError(f"sparse arrays of shapes {self.shape} and {other.shape} are added")
        joined = [np.concatenate(pair) for pair in zip(self.coords, other.coords, strict=True)]
        data = anp.concatenate([self.data, other.data])
        is_matrix = self.is_matrix or other.is_matrix
        return SparseArray(data, Pattern(joined[0], joined[1], self.shape), is_matrix)

    __radd__ = __add__

    def __sub__(self, other):
        return self + -from_sparse(other, "-")

    def __rsub__(self, other):
        return -self + other


NUMBERS = (int, float, complex, np.number)


def dense_operand(other, symbol):
    if isinstance(other, SparseArray) or scipy.sparse.issparse(other):
        raise NotImplementedError(
            f"daskgrad.scipy.sparse has no {symbol} of two sparse matrices of which one is traced; "
            f"multiply with a dense array: A @ (B @ x)"
        )
    return operand(other)


def from_sparse(matrix: Any, subject: str) -> SparseArray:
    """A sparse array as ours."""
    if isinstance(matrix, SparseArray):
        return matrix
    if not scipy.sparse.issparse(matrix) or matrix.ndim != 2:
        raise TypeError(
            f"daskgrad.scipy.sparse: {subject} takes a sparse matrix, not {type(matrix).__name__}; "
            f"dense arrays take part as A.toarray()"
        )
    entries = matrix.tocoo()
    pattern = Pattern(entries.row, entries.col, matrix.shape)
    return SparseArray(entries.data, pattern, isinstance(matrix, scipy.sparse.spmatrix))


# ------------------------------------------------------- SciPy's matrices, and boxes as operands


def times(matrix, x, is_reflected):
    """``matrix @ x``, which is reflected for x, or ``x @ matrix``."""
    if matrix.ndim != 2:
        raise ValueError(
            f"a sparse array of shape {matrix.shape} has no derivative rule; reshape it to a matrix"
        )
    if is_reflected:
        return constant_product(matrix, x)
    return anp.transpose(constant_product(matrix.T, anp.transpose(x)))


def scaled(matrix, x, is_reflected):
    """``matrix * x`` or ``x * matrix``: a product of matrices, or of the entries of an array."""
    if np.ndim(plain(x)) and isinstance(matrix, scipy.sparse.spmatrix):
        return times(matrix, x, is_reflected)
    return from_sparse(matrix, "*") * x
