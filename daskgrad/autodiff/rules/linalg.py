"""Linear algebra. Cotangents are not conjugated: adjoints have transposes, not their conjugates."""

from functools import lru_cache, partial

import autograd.numpy as anp
import numpy as np
from autograd.core import make_vjp, primitive_vjps
from autograd.numpy import linalg

from daskgrad.autodiff.rules.declaration import (
    Refusal,
    adjoint_of,
    declare,
    equivalent,
    is_real_like,
    namespace_of,
    of_one,
    plain,
    quick,
    shape_of,
)
from daskgrad.autodiff.values.descriptions import imported


def transposed(a):
    return anp.swapaxes(a, -1, -2)


def conjugate_transposed(a):
    return anp.conj(transposed(a))


# --------------------------------------------------------------------------- inverses, solutions


def tall(matrix, *others):
    """Matrices if the first one is tall, otherwise their transposes."""
    rows, columns = shape_of(matrix)[-2:]
    return list(map(transposed, (matrix, *others))) if rows < columns else [matrix, *others]


def in_shape_of(matrix, result):
    """A result for tall matrices, transposed if the matrix is wide."""
    return tall(matrix, result)[1]


@of_one
def pinv_adjoint(g, ans, matrix, *args, **kwargs):
    """In products with no more entries than the matrix; the inverse's transpose is the inverse of
    the transpose."""
    a, inverse, g = tall(matrix, ans, g)
    adjoint, g = conjugate_transposed(inverse), transposed(g)
    left = anp.matmul(g, anp.matmul(inverse, adjoint))
    inner = anp.conj(left - anp.matmul(a, anp.matmul(inverse, left)))
    right = anp.matmul(inverse, g)
    beyond = right - anp.matmul(right, anp.matmul(inverse, a))
    outer = anp.conj(anp.matmul(adjoint, beyond))
    return in_shape_of(matrix, inner + outer - transposed(anp.matmul(right, inverse)))


def pinv_tangent(argnums, tangents, ans, args, kwargs):
    """G. H. Golub, V. Pereyra, "The differentiation of pseudo-inverses...", 1973, (4.12)."""
    a, inverse, t = tall(args[0], ans, tangents[0])
    adjoint, turned = conjugate_transposed(inverse), conjugate_transposed(t)
    left = anp.matmul(anp.matmul(inverse, adjoint), turned)
    right = anp.matmul(anp.matmul(turned, adjoint), inverse)
    left = left - anp.matmul(anp.matmul(left, a), inverse)
    both = left + right - anp.matmul(anp.matmul(inverse, a), right)
    return in_shape_of(args[0], both - anp.matmul(anp.matmul(inverse, t), inverse))


@equivalent(
    linalg.pinv,
    adjoint=pinv_adjoint,
    tangent=pinv_tangent,
    needed=lambda a, rcond=None, hermitian=False, **rtol: bool(hermitian),
    keywords="rcond rtol hermitian",
)
def pinv(a, rcond=None, hermitian=False, **rtol):
    """The inverse of a Hermitian matrix; NumPy reads its lower triangle alone."""
    lower = anp.tril(a, -1)
    diagonal = anp.real(a) * np.eye(shape_of(a)[-1])
    return linalg.pinv(lower + conjugate_transposed(lower) + diagonal, rcond, **rtol)


# autograd's adjoints of one real matrix go through ``np.einsum``, which on small matrices takes
# several times as long as the arithmetic, and on large ones is slow; its adjoint of ``solve``
# solves once for each operand. These call BLAS.


def is_one_matrix(ans, args, kwargs):
    return is_real_like(ans.dtype, ans) and ans.ndim == 2


def inverse_pullback(argnums, ans, a):
    def pull(g):
        dot = namespace_of(g, ans).dot
        return (-dot(dot(ans.T, g), ans.T),)

    return pull


declare(linalg.inv, adjoint=quick(linalg.inv, is_one_matrix, inverse_pullback))


def solves_one_matrix(ans, args, kwargs):
    a, b = args
    return is_real_like(ans.dtype, a, b) and a.ndim == 2 and b.ndim <= 2


def solution_pullback(argnums, ans, a, b):
    def pull(g):
        pulled = namespace_of(a, g).linalg.solve(a.T, g)
        if 0 not in argnums:
            return (pulled,)
        dot = namespace_of(pulled, ans).dot
        if pulled.ndim == 1:
            of_matrix = dot(-pulled.reshape(-1, 1), ans.reshape(1, -1))
        else:
            of_matrix = -dot(pulled, ans.T)
        return (of_matrix, pulled)[: len(argnums)]

    return pull


def solve_needed(a, b):
    """Whether stacks of matrices are broadcast."""
    a, b = shape_of(a), shape_of(b)
    return a[:-2] != b[:-2] if len(b) > 1 else len(a) > 2


@equivalent(
    linalg.solve,
    adjoint=quick(linalg.solve, solves_one_matrix, solution_pullback),
    needed=solve_needed,
    arrays=2,
)
def solve(a, b):
    """With stacks of one shape."""
    if np.ndim(plain(b)) == 1:
        return linalg.solve(a, b[:, None])[..., 0]
    stack = np.broadcast_shapes(shape_of(a)[:-2], shape_of(b)[:-2])
    return linalg.solve(*[anp.broadcast_to(part, stack + shape_of(part)[-2:]) for part in (a, b)])


# --------------------------------------------------------------------------------- determinants


@adjoint_of(linalg.det)
def det_adjoint(argnums, ans, args, kwargs):
    """autograd's rule divides by every determinant, so it fails where one is zero."""
    if np.all(plain(ans)):
        return primitive_vjps[linalg.det](argnums, ans, args, kwargs)
    pullback, _ = make_vjp(determinants, args[0])
    return lambda g: (pullback(g),)


def determinants(a):
    matrices = anp.reshape(a, (-1, *shape_of(a)[-2:]))
    values = [singular_det(matrices[n]) for n in range(shape_of(matrices)[0])]
    return anp.reshape(anp.array(values), shape_of(a)[:-2])


def singular_det(a):
    """The determinant of the regular part, times the determinant of its Schur complement."""
    u, sizes, vh = np.linalg.svd(plain(a))
    rank = int(np.sum(sizes > sizes[0] * len(sizes) * np.finfo(sizes.dtype).eps))
    b = anp.matmul(np.conj(u.T), anp.matmul(a, np.conj(vh.T)))
    sign = np.linalg.det(u) * np.linalg.det(vh)
    if rank == len(sizes):
        return sign * linalg.det(b)
    if rank == 0:
        return sign * expanded_det(b)
    part = anp.matmul(b[rank:, :rank], linalg.solve(b[:rank, :rank], b[:rank, rank:]))
    return sign * linalg.det(b[:rank, :rank]) * expanded_det(b[rank:, rank:] - part)


def expanded_det(a):
    """A determinant of zeros, along the first row; with more than four rows no slope is left."""
    size = shape_of(a)[0]
    if size == 1:
        return a[0, 0]
    if size > 4:
        return 0.0 * a[0, 0]
    minors = [a[1:, [m for m in range(size) if m != n]] for n in range(size)]
    return sum([(-1.0) ** n * a[0, n] * expanded_det(minor) for n, minor in enumerate(minors)])


@adjoint_of(linalg.slogdet)
def slogdet_adjoint(argnums, ans, args, kwargs):
    """autograd's rule, and the sign of a complex determinant, which turns."""
    if not np.all(plain(ans[0])):
        raise Refusal(
            "np.linalg.slogdet has no derivative rule for a singular matrix a: the logarithm is "
            "infinite there; write np.linalg.det, whose derivative is the matrix of cofactors"
        )
    if not anp.iscomplexobj(args[0]):
        return primitive_vjps[linalg.slogdet](argnums, ans, args, kwargs)
    inverse, sign = transposed(linalg.inv(args[0])), ans[0]

    def slogdet_pullback(g):
        factor = g[1] + 1j * anp.imag(g[0] * sign)
        return (anp.reshape(factor, (*shape_of(factor), 1, 1)) * inverse,)

    return slogdet_pullback


# ------------------------------------------------------------------------------ factors


@lru_cache
def lower_triangle(size):
    """Ones below the diagonal, halves on it."""
    halves = np.tri(size) - 0.5 * np.eye(size)
    halves.flags.writeable = False
    return halves


def real_cholesky_pullback(argnums, ans, *args):
    """I. Murray, "Differentiation of the Cholesky decomposition", 2016."""

    def pull(g):
        namespace = namespace_of(g, ans)
        name = "scipy.linalg" if namespace is np else "autograd.scipy.linalg"
        library = imported(name, "scipy", "cholesky's derivative solves with SciPy")
        solve = partial(library.solve_triangular, check_finite=False)
        inner = lower_triangle(len(ans)) * namespace.dot(ans.T, g)
        outer = solve(ans.T, solve(ans.T, inner.T).T)
        return ((outer + outer.T) * 0.5,)

    return pull


real_cholesky_adjoint = quick(linalg.cholesky, is_one_matrix, real_cholesky_pullback)


@of_one
def complex_cholesky_adjoint(g, ans, a, upper=False):
    lower, g = [conjugate_transposed(matrix) if upper else matrix for matrix in (ans, g)]
    inner = lower_triangle(shape_of(ans)[-1]) * anp.matmul(transposed(lower), g)
    left = linalg.solve(transposed(lower), inner)
    whole = transposed(linalg.solve(conjugate_transposed(lower), transposed(left)))
    return (whole + conjugate_transposed(whole)) / 2.0


@adjoint_of(linalg.cholesky, keywords="upper")
def cholesky_adjoint(argnums, ans, args, kwargs):
    is_real = not (kwargs.get("upper", False) or anp.iscomplexobj(ans))
    adjoint = real_cholesky_adjoint if is_real else complex_cholesky_adjoint
    return adjoint(argnums, ans, args, kwargs)
