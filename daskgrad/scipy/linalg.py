"""Linear algebra, as in ``scipy.linalg``; ``numpy.linalg`` is differentiated itself."""

from typing import Any

import numpy as np

from daskgrad.autodiff.rules import scipy_linalg as rules
from daskgrad.autodiff.rules.linalg import conjugate_transposed, transposed
from daskgrad.autodiff.rules.scipy_linalg import linalg, lu_packed
from daskgrad.autodiff.tape import value
from daskgrad.scipy.dispatch import dispatched

expm, solve_sylvester = dispatched(rules.expm), dispatched(rules.solve_sylvester)
sqrtm, solve_banded = dispatched(linalg.sqrtm), dispatched(linalg.solve_banded)
solve_triangular = dispatched(linalg.solve_triangular)

SYMMETRIC = ("sym", "symmetric")
HERMITIAN = ("her", "hermitian", "pos", "positive definite")


@dispatched
def solve(
    a: Any,
    b: Any,
    lower: bool = False,
    *,
    assume_a: str | None = None,
    transposed: bool = False,
) -> Any:
    """The solution x of ``a @ x = b``; with ``transposed``, of ``a.T @ x = b``.

    If ``assume_a`` says symmetric or Hermitian, only one triangle is read. ValueError for other
    structures.
    """
    if assume_a in (*SYMMETRIC, *HERMITIAN):
        a = mirror(a, lower, assume_a in HERMITIAN)
    elif assume_a not in (None, "gen", "general"):
        raise ValueError(
            f"linalg.solve takes assume_a={assume_a!r} for no derivative; leave it out, or use one "
            f"of {', '.join(map(repr, (*SYMMETRIC, *HERMITIAN)))}"
        )
    return np.linalg.solve(np.swapaxes(a, -1, -2) if transposed else a, b)


def mirror(a: Any, lower: bool, is_hermitian: bool) -> Any:
    """The matrix of one triangle and its mirror image."""
    triangle = np.tril(a, -1) if lower else np.triu(a, 1)
    diagonal = np.tril(np.triu(np.real(a) if is_hermitian else a))
    turn = conjugate_transposed if is_hermitian else transposed
    return triangle + diagonal + turn(triangle)


@dispatched
def cho_factor(a: Any, lower: bool = False) -> tuple[Any, bool]:
    """The Cholesky factor of a Hermitian matrix, for ``cho_solve``; zeros in the other triangle."""
    factor = np.linalg.cholesky(a)
    return (factor if lower else conjugate_transposed(factor)), lower


@dispatched
def cho_solve(c_and_lower: tuple[Any, bool], b: Any) -> Any:
    """The solution x of ``a @ x = b``, from ``cho_factor(a)``."""
    factor, lower = c_and_lower
    first, second = ("N", "C") if lower else ("C", "N")
    return solve_triangular(
        factor, solve_triangular(factor, b, trans=first, lower=lower), trans=second, lower=lower
    )


@dispatched
def lu_factor(a: Any) -> tuple[Any, Any]:
    """The factors L and U of a square matrix in one array, and the pivots, for ``lu_solve``."""
    pivots = linalg.lu_factor(value(a))[1]
    return lu_packed(np.take(a, permutation(pivots), axis=0)), pivots


@dispatched
def lu_solve(lu_and_piv: tuple[Any, Any], b: Any, trans: int = 0) -> Any:
    """The solution x of ``a @ x = b``, from ``lu_factor(a)``.

    ``trans`` is 1 for the transposed matrix, and 2 for its conjugate.
    """
    lu, pivots = lu_and_piv
    order = permutation(pivots)
    unit = {"lower": True, "unit_diagonal": True}
    if trans == 0:
        return solve_triangular(lu, solve_triangular(lu, np.take(b, order, axis=0), **unit))
    inner = solve_triangular(lu, b, trans=trans)
    return np.take(solve_triangular(lu, inner, trans=trans, **unit), np.argsort(order), axis=0)


def permutation(pivots: Any) -> Any:
    """The order of the rows, from the rows that each step exchanges."""
    order = np.arange(len(pivots))
    for row, other in enumerate(pivots):
        order[[row, other]] = order[[other, row]]
    return order


@dispatched
def block_diag(*arrs: Any) -> Any:
    """The matrices along the diagonal, zeros elsewhere; a vector is a row."""
    blocks = list(map(np.atleast_2d, arrs))
    width = sum([np.shape(block)[1] for block in blocks])
    dtype = np.result_type(*map(value, blocks))
    rows, begin = [], 0
    for block in blocks:
        height, columns = np.shape(block)
        after = width - begin - columns
        parts = [np.zeros((height, begin), dtype), block, np.zeros((height, after), dtype)]
        rows.append(np.concatenate(parts, axis=1))
        begin += columns
    return np.concatenate(rows, axis=0)


@dispatched
def toeplitz(c: Any, r: Any = None) -> Any:
    """The matrix of constant diagonals with this first column and this first row."""
    column = np.ravel(c)
    row = np.conj(column) if r is None else np.ravel(r)
    diagonals = np.concatenate([column[::-1], row[1:]])
    heights, widths = np.ogrid[: len(column), : len(row)]
    return diagonals[len(column) - 1 - heights + widths]
