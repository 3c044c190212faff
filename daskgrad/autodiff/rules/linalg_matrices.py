"""Functions of ``numpy.linalg`` that are a few lines of others: solutions, factors, numbers."""

import functools
from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.extend import primitive
from autograd.numpy import linalg
from autograd.tracer import isbox

from daskgrad.autodiff.rules.declaration import (
    Refusal,
    adjoint_of,
    declare,
    equivalent,
    is_recorded,
    kernel,
    of_one,
    plain,
    refusing,
    shape_of,
)
from daskgrad.autodiff.rules.linalg import conjugate_transposed, transposed
from daskgrad.autodiff.rules.linalg_eigenvectors import eig_for_values, eigh_for_values
from daskgrad.autodiff.rules.math_reductions import axes_at_end
from daskgrad.autodiff.rules.twins import as_array, composed

# ------------------------------------------------------------------------- solutions, inverses


declare(
    linalg.lstsq,
    program=refusing(
        "autograd.numpy.linalg.lstsq has no derivative rule for a and b, as autograd's values hold "
        "no rank; write lstsq of plain numpy.linalg, which has one"
    ),
    arrays=2,
    keywords="rcond",
)


@composed(np.linalg.lstsq)
def least_squares(a, b, rcond=None, of_less_rank=""):
    """NumPy's results; all but the rank have derivatives."""
    a, b = as_array(a), as_array(b)
    x, squares, rank, sizes = np.linalg.lstsq(plain(a), plain(b), rcond)
    x = least_squares_solution(a, b, x, rank, of_less_rank)
    return x, squares_of_gaps(a, b, x, squares), rank, known_sizes(a, sizes)


@primitive
def least_squares_solution(a, b, x, rank, of_less_rank):
    """``of_less_rank``: the refusal's text if columns depend on each other."""
    return x


@primitive
def squares_of_gaps(a, b, x, squares):
    return squares


@primitive
def known_sizes(a, sizes):
    """The singular values."""
    return sizes


@kernel
def inverse_of_rank(a, rank):
    """The pseudoinverse by the largest singular values, as many as the rank."""
    left, sizes, right = np.linalg.svd(a, full_matrices=False)
    return (right[:rank].conj().T / sizes[:rank]) @ left[:, :rank].conj().T


@adjoint_of(least_squares_solution)
def solution_adjoint(argnums, ans, args, kwargs):
    """G. H. Golub, V. Pereyra, as the pseudoinverse's."""
    a, b, _, rank, of_less_rank = args
    rows, columns = shape_of(a)
    is_of_less_rank = plain(rank) < min(rows, columns)
    if is_of_less_rank and (0 in argnums or (isbox(a) and not is_recorded(a))):
        raise Refusal(
            of_less_rank
            or f"np.linalg.lstsq has no derivative rule for a matrix a of shape {(rows, columns)} "
            f"and rank {plain(rank)}: the solution jumps with the rank; remove the columns that "
            f"depend on others, or solve with a.T @ a plus a multiple of the identity"
        )

    def of_matrix(inverse, g, pulled):
        x = anp.reshape(ans, (columns, -1))
        of_a = -anp.matmul(pulled, transposed(x))
        if rows > columns:
            gaps = anp.reshape(b, (rows, -1)) - anp.matmul(a, x)
            right = transposed(anp.matmul(inverse, anp.conj(pulled)))
            return of_a + anp.matmul(anp.conj(gaps), right)
        if rows < columns:
            left = anp.matmul(transposed(inverse), anp.conj(x))
            right = conjugate_transposed(g - anp.matmul(transposed(a), pulled))
            return of_a + anp.matmul(left, right)
        return of_a

    def solution_pullback(g):
        inverse = inverse_of_rank(plain(a), rank) if is_of_less_rank else linalg.pinv(a, 0.0)
        g = anp.reshape(g, (columns, -1))
        pulled = anp.matmul(transposed(inverse), g)
        of_b = anp.reshape(pulled, shape_of(b))
        return tuple([of_b if argnum else of_matrix(inverse, g, pulled) for argnum in argnums])

    return solution_pullback


@adjoint_of(squares_of_gaps)
def squares_adjoint(argnums, ans, args, kwargs):
    a, b, x, _ = args
    (rows, columns), is_none = shape_of(a), not np.size(plain(ans))

    def squares_pullback(g):
        if is_none:
            return tuple([np.zeros(shape_of(args[argnum])) for argnum in argnums])
        targets, solutions = anp.reshape(b, (rows, -1)), anp.reshape(x, (columns, -1))
        slope = 2.0 * g * anp.conj(targets - anp.matmul(a, solutions))
        pulls = (
            lambda: -anp.matmul(slope, transposed(solutions)),
            lambda: anp.reshape(slope, shape_of(b)),
            lambda: -anp.reshape(anp.matmul(transposed(a), slope), shape_of(x)),
        )
        return tuple([pulls[argnum]() for argnum in argnums])

    return squares_pullback


@adjoint_of(known_sizes)
@of_one
def sizes_adjoint(g, ans, a, sizes):
    u, _, vh = linalg.svd(a, full_matrices=False)
    return anp.conj(anp.matmul(u * g, vh))


@equivalent(linalg.tensorinv, keywords="ind")
def tensorinv(a, ind=2):
    shape = shape_of(a)
    rows = int(np.prod(shape[:ind]))
    return anp.reshape(linalg.inv(anp.reshape(a, (rows, -1))), shape[ind:] + shape[:ind])


@equivalent(linalg.tensorsolve, arrays=2, keywords="axes")
def tensorsolve(a, b, axes=None):
    if axes is not None:
        ndim = np.ndim(plain(a))
        axes = [n % ndim for n in axes]
        a = anp.transpose(a, [n for n in range(ndim) if n not in axes] + axes)
    shape = shape_of(a)[np.ndim(plain(b)) :]
    matrix = anp.reshape(a, (np.size(plain(b)), -1))
    return anp.reshape(linalg.solve(matrix, anp.ravel(b)), shape)


@equivalent(linalg.matrix_power)
def matrix_power(a, n):
    if n == 0:
        return np.broadcast_to(np.eye(shape_of(a)[-1]), shape_of(a))
    square, n = (a, n) if n > 0 else (linalg.inv(a), -n)
    power = None
    while n:
        if n % 2:
            power = square if power is None else anp.matmul(power, square)
        n //= 2
        square = anp.matmul(square, square) if n else square
    return power


# ------------------------------------------------------------------------------ factors, values


@equivalent(linalg.qr, keywords="mode")
def qr(a, mode="reduced"):
    """As Q₀ R₀ is the plain matrix, B = A R₀⁻¹ is orthogonal here, and has the factors Q = B L⁻ᴴ
    and Lᴴ, where L Lᴴ = Bᴴ B (L. N. Trefethen, D. Bau, "Numerical Linear Algebra", lecture 23)."""
    rows, columns = shape_of(a)[-2:]
    if mode not in ("reduced", "complete", "r") or (mode == "complete" and rows > columns):
        raise Refusal(
            f"np.linalg.qr has no derivative rule for mode={mode!r} and a matrix of shape "
            f"{(rows, columns)}; use mode='reduced' or mode='r'"
        )
    square = a[..., :rows]
    triangle: Any = np.linalg.qr(plain(square), mode="r")
    # singular values tell the rank, since rounding leaves the diagonal of R above zero
    precision = max(shape_of(square)[-2:]) * np.finfo(triangle.dtype).eps
    if np.any(np.linalg.matrix_rank(triangle, rtol=precision) < min(rows, columns)):
        raise Refusal(
            "np.linalg.qr has no derivative rule for a matrix a whose columns depend on each other"
        )
    near = anp.matmul(square, np.linalg.inv(triangle))
    lower = linalg.cholesky(anp.matmul(conjugate_transposed(near), near))
    q = conjugate_transposed(linalg.solve(lower, conjugate_transposed(near)))
    r = anp.matmul(conjugate_transposed(lower), triangle)
    if columns > rows:
        beyond = anp.matmul(conjugate_transposed(q), a[..., rows:])
        r = anp.concatenate([r, beyond], axis=-1)
    return r if mode == "r" else [q, r]


declare(linalg.svdvals, program=lambda x: linalg.svd(x, compute_uv=False))
declare(linalg.eigvals, program=lambda a: eig_for_values(a)[0])
declare(linalg.eigvalsh, program=lambda a, UPLO="L": eigh_for_values(a, UPLO)[0], keywords="UPLO")


@equivalent(linalg.cond, keywords="p")
def cond(x, p=None):
    if p is None or p in (2, -2):
        sizes = linalg.svd(x, compute_uv=False)
        largest, smallest = sizes[..., 0], sizes[..., -1]
        return smallest / largest if p == -2 else largest / smallest
    axes = (-2, -1)
    return linalg.norm(x, p, axis=axes) * linalg.norm(linalg.inv(x), p, axis=axes)


# -------------------------------------------------------------------------- the array API's names


@equivalent(linalg.vector_norm, keywords="axis keepdims ord")
def vector_norm(x, *, axis=None, keepdims=False, ord=2):
    if ord == 0:
        raise Refusal("np.linalg.vector_norm with ord=0 counts entries, and has no derivative")
    shape = np.sum(plain(x), axis=axis, keepdims=keepdims).shape
    return anp.reshape(linalg.norm(axes_at_end(x, axis), ord, axis=-1), shape)


declare(
    linalg.matrix_norm,
    program=lambda x, *, keepdims=False, ord="fro": linalg.norm(
        x, ord, axis=(-2, -1), keepdims=keepdims
    ),
    keywords="keepdims ord",
)
declare(
    linalg.diagonal,
    program=lambda x, *, offset=0: anp.diagonal(x, offset, -2, -1),
    keywords="offset",
)
declare(
    linalg.trace,
    program=lambda x, *, offset=0, dtype=None: anp.trace(x, offset, -2, -1, dtype),
    keywords="offset dtype",
)
for fun, twin, keywords in (
    (linalg.cross, anp.cross, "axis"),
    (linalg.outer, anp.outer, ""),
    (linalg.matmul, anp.matmul, ""),
    (linalg.tensordot, anp.tensordot, "axes"),
    (linalg.vecdot, anp.vecdot, "axis"),
):
    declare(fun, program=twin, arrays=2, keywords=keywords)


# ------------------------------------------------------------------------------- composed


@composed(np.linalg.multi_dot)
def multi_dot(arrays, *, out=None):
    """A product of matrices in the order that takes the fewest multiplications."""
    if out is not None:
        raise TypeError("np.linalg.multi_dot does not take out= of traced values; leave it out")
    sizes = [1 if np.ndim(plain(a)) == 1 else shape_of(a)[0] for a in arrays[:1]]
    sizes += [shape_of(a)[-2:][0] for a in arrays[1:]]
    sizes += [1 if np.ndim(plain(a)) == 1 else shape_of(a)[1] for a in arrays[-1:]]

    @functools.cache
    def cheapest(first: int, last: int) -> tuple[int, Any]:
        """The cost of a part of the product, and where it is divided."""
        if first == last:
            return 0, None
        ends = sizes[first] * sizes[last + 1]
        return min(
            (cheapest(first, n)[0] + cheapest(n + 1, last)[0] + ends * sizes[n + 1], n)
            for n in range(first, last)
        )

    return product(arrays, lambda first, last: cheapest(first, last)[1], 0, len(arrays) - 1)


def product(arrays: Any, division: Callable, first: int, last: int) -> Any:
    """The product of a part of the matrices, divided as ``division`` says; no inner function, which
    would refer to itself, so that the arrays would wait for the garbage collector."""
    if first == last:
        return arrays[first]
    middle = division(first, last)
    left = product(arrays, division, first, middle)
    return anp.dot(left, product(arrays, division, middle + 1, last))
