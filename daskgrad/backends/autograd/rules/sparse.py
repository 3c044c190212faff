"""Sparse matrices: products and solutions, of constant matrices and of traced entries.

A matrix of traced entries is a vector of them and a pattern: their rows and columns. Its product
with a dense matrix, and ``sampled``, the product of two dense ones at the places of a pattern, are
each other's derivatives. All of them take as many steps as there are entries.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import autograd.numpy as anp
import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from autograd.extend import primitive

from daskgrad.backends.autograd.rules.declaration import declare, each_of, sum_of


class Pattern(NamedTuple):
    """The places of entries; those of equal places are added."""

    rows: Any
    columns: Any
    shape: tuple[int, int]

    @property
    def T(self) -> "Pattern":
        return Pattern(self.columns, self.rows, self.shape[::-1])

    def matrix(self, data: Any) -> Any:
        return scipy.sparse.coo_array((data, (self.rows, self.columns)), shape=self.shape)


# -------------------------------------------------------------------------- constant matrices


@primitive
def constant_product(matrix: Any, x: Any) -> Any:
    """SciPy's product of a constant sparse matrix, or of a LinearOperator, with an array."""
    return matrix @ x


def constant_product_adjoint(
    argnums: tuple, ans: Any, args: tuple, kwargs: dict
) -> Callable[[Any], tuple]:
    turned, shape = args[0].T, (args[0].shape[0], *np.shape(args[1])[1:])
    given = np.shape(args[1])  # SciPy's products with coo arrays of one row are numbers
    return lambda g: (anp.reshape(constant_product(turned, anp.reshape(g, shape)), given),)


declare(
    constant_product,
    adjoint=constant_product_adjoint,
    tangent=sum_of(lambda _, t, a, x: constant_product(a, t)),
)

# ----------------------------------------------------------------------------- traced entries


@primitive
def product(data: Any, x: Any, pattern: Pattern) -> Any:
    """The matrix of these entries times a vector or a matrix."""
    found = pattern.matrix(data) @ x
    return np.reshape(found, (pattern.shape[0], *np.shape(x)[1:]))  # SciPy's of one row are numbers


def product_cotangent(argnum: int, g: Any, data: Any, x: Any, pattern: Pattern) -> Any:
    return sampled(g, x, pattern) if argnum == 0 else product(data, g, pattern.T)


def product_tangent(argnum: int, t: Any, data: Any, x: Any, pattern: Pattern) -> Any:
    return product(t, x, pattern) if argnum == 0 else product(data, t, pattern)


declare(product, adjoint=each_of(product_cotangent), tangent=sum_of(product_tangent))


@primitive
def sampled(u: Any, v: Any, pattern: Pattern) -> Any:
    """The entries of ``u @ v.T`` at the places of a pattern."""
    rows, columns, _ = pattern
    if np.ndim(u) == 1:
        return np.take(u, rows) * np.take(v, columns)
    pairs = zip(np.ascontiguousarray(u.T), np.ascontiguousarray(v.T), strict=True)
    terms = (np.take(a, rows) * np.take(b, columns) for a, b in pairs)
    return sum(terms, np.zeros(len(rows)))  # one by one: no array of entries times columns


def sampled_cotangent(argnum: int, g: Any, u: Any, v: Any, pattern: Pattern) -> Any:
    return product(g, v, pattern) if argnum == 0 else product(g, u, pattern.T)


def sampled_tangent(argnum: int, t: Any, u: Any, v: Any, pattern: Pattern) -> Any:
    return sampled(t, v, pattern) if argnum == 0 else sampled(u, t, pattern)


declare(sampled, adjoint=each_of(sampled_cotangent), tangent=sum_of(sampled_tangent))


@primitive
def dense(data: Any, pattern: Pattern) -> Any:
    """The matrix as a dense one."""
    return pattern.matrix(data).toarray()


def dense_adjoint(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
    rows, columns, _ = args[1]
    return lambda g: (g[rows, columns],)


declare(dense, adjoint=dense_adjoint, tangent=sum_of(lambda _, t, data, pattern: dense(t, pattern)))

# ---------------------------------------------------------------------------------- solutions


class Factor:
    """The factors L and U of a matrix; what is pickled is the matrix, which is factorized again."""

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

    def solve(self, b: Any, is_turned: bool) -> Any:
        how = "T" if is_turned else "N"
        if self._is_complex:
            return self._factors.solve(np.asarray(b, complex), how)
        if np.iscomplexobj(b):
            parts = [
                self._factors.solve(np.ascontiguousarray(part), how) for part in (b.real, b.imag)
            ]
            return parts[0] + 1j * parts[1]
        return self._factors.solve(np.asarray(b, float), how)


@primitive
def solution(data: Any, b: Any, pattern: Pattern, factor: Factor, is_turned: bool) -> Any:
    """x of ``A x = b``, for a matrix with these entries, or for its transpose.

    The factors are those of the matrix itself.
    """
    return factor.solve(b, is_turned)


def solution_adjoint(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
    data, _, pattern, factor, is_turned = args
    places = pattern.T if is_turned else pattern

    def solution_pullback(g: Any) -> tuple:
        turned = solution(data, g, pattern, factor, not is_turned)
        return tuple(
            [-sampled(turned, ans, places) if argnum == 0 else turned for argnum in argnums]
        )

    return solution_pullback


def solution_tangent(
    argnums: tuple, tangents: Sequence, ans: Any, args: tuple, kwargs: dict
) -> Any:
    data, _, pattern, factor, is_turned = args
    places = pattern.T if is_turned else pattern
    parts = [
        -product(t, ans, places) if argnum == 0 else t
        for argnum, t in zip(argnums, tangents, strict=True)
    ]
    return solution(data, sum(parts[1:], parts[0]), pattern, factor, is_turned)


declare(solution, adjoint=solution_adjoint, tangent=solution_tangent)
