"""Linear algebra. Cotangents are not conjugated: adjoints have transposes, not their conjugates."""

from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.core import make_vjp, primitive_vjps
from autograd.numpy import linalg

from daskgrad.autodiff.rules.declaration import (
    Refusal,
    declare,
    equivalent,
    is_real_like,
    namespace_of,
    plain,
)
from daskgrad.autodiff.rules.linalg_products import pull_cholesky, pull_inverse, pull_of_matrix


def transposed(a):
    return anp.swapaxes(a, -1, -2)


def conjugate_transposed(a):
    return anp.conj(transposed(a))


# --------------------------------------------------------------------------- inverses, solutions


def tall(transpose, *matrices):
    """Matrices, or the transposes that make tall ones of wide ones."""
    return list(map(transposed, matrices)) if transpose else list(matrices)


def pinv_adjoint(argnums, ans, args, kwargs):
    """In products none of which has more entries than a; the transpose's inverse is transposed."""
    rows, columns = np.shape(plain(args[0]))[-2:]
    is_wide = rows < columns

    def pinv_pullback(g):
        a, inverse, g = tall(is_wide, args[0], ans, g)
        adjoint, g = conjugate_transposed(inverse), transposed(g)
        left = anp.matmul(g, anp.matmul(inverse, adjoint))
        inner = anp.conj(left - anp.matmul(a, anp.matmul(inverse, left)))
        right = anp.matmul(inverse, g)
        beyond = right - anp.matmul(right, anp.matmul(inverse, a))
        outer = anp.conj(anp.matmul(adjoint, beyond))
        return tuple(tall(is_wide, inner + outer - transposed(anp.matmul(right, inverse))))

    return pinv_pullback


def pinv_tangent(argnums, tangents, ans, args, kwargs):
    """G. H. Golub, V. Pereyra, "The differentiation of pseudo-inverses...", 1973, (4.12)."""
    rows, columns = np.shape(plain(args[0]))[-2:]
    a, inverse, t = tall(rows < columns, args[0], ans, tangents[0])
    adjoint, turned = conjugate_transposed(inverse), conjugate_transposed(t)
    left = anp.matmul(anp.matmul(inverse, adjoint), turned)
    right = anp.matmul(anp.matmul(turned, adjoint), inverse)
    (found,) = tall(
        rows < columns,
        left
        - anp.matmul(anp.matmul(left, a), inverse)
        + right
        - anp.matmul(anp.matmul(inverse, a), right)
        - anp.matmul(anp.matmul(inverse, t), inverse),
    )
    return found


@equivalent(
    linalg.pinv,
    adjoint=pinv_adjoint,
    tangent=pinv_tangent,
    needed=lambda a, rcond=None, hermitian=False, **rtol: bool(hermitian),
    keywords="rcond rtol hermitian",
)
def pinv(a, rcond=None, hermitian=False, **rtol):
    """Of a Hermitian matrix, of which NumPy reads the lower triangle."""
    lower = anp.tril(a, -1)
    diagonal = anp.real(a) * np.eye(np.shape(plain(a))[-1])
    return linalg.pinv(lower + conjugate_transposed(lower) + diagonal, rcond, **rtol)


def solve_needed(a: Any, b: Any) -> bool:
    """Whether stacks of matrices are broadcast."""
    a, b = np.shape(plain(a)), np.shape(plain(b))
    return a[:-2] != b[:-2] if len(b) > 1 else len(a) > 2


def solve_adjoint(argnums, ans, args, kwargs):
    autograds = primitive_vjps[linalg.solve](argnums, ans, args, kwargs)
    a, b = args
    if not is_real_like(ans.dtype, a, b) or a.ndim != 2 or b.ndim > 2:
        return autograds

    def solve_pullback(g):
        if not is_real_like(ans.dtype, g):
            return autograds(g)
        pulled = namespace_of(a, g).linalg.solve(a.T, g)
        dot = namespace_of(pulled, ans).dot
        of_both = [pull_of_matrix(pulled, ans, dot) if 0 in argnums else None, pulled]
        return tuple([of_both[argnum] for argnum in argnums])

    return solve_pullback


def is_one_matrix(ans: Any) -> bool:
    return is_real_like(ans.dtype, ans) and ans.ndim == 2


def inv_adjoint(argnums, ans, args, kwargs):
    autograds = primitive_vjps[linalg.inv](argnums, ans, args, kwargs)
    if not is_one_matrix(ans):
        return autograds

    def inv_pullback(g):
        is_usual = is_real_like(ans.dtype, g)
        return (pull_inverse(g, ans, namespace_of(g, ans).dot),) if is_usual else autograds(g)

    return inv_pullback


declare(linalg.inv, adjoint=inv_adjoint)


@equivalent(linalg.solve, adjoint=solve_adjoint, needed=solve_needed, arrays=2)
def solve(a, b):
    """With stacks of one shape."""
    if np.ndim(plain(b)) == 1:
        return linalg.solve(a, b[:, None])[..., 0]
    stack = np.broadcast_shapes(np.shape(plain(a))[:-2], np.shape(plain(b))[:-2])
    parts = [anp.broadcast_to(part, stack + np.shape(plain(part))[-2:]) for part in (a, b)]
    return linalg.solve(*parts)


# --------------------------------------------------------------------------------- determinants


def det_adjoint(argnums, ans, args, kwargs):
    """autograd's divides by every determinant, of which some are zero here."""
    if np.all(plain(ans)):
        return primitive_vjps[linalg.det](argnums, ans, args, kwargs)
    pullback, _ = make_vjp(dets, args[0])
    return lambda g: (pullback(g),)


def dets(a):
    shape = np.shape(plain(a))
    matrices = anp.reshape(a, (-1, *shape[-2:]))
    found = [singular_det(matrices[n]) for n in range(np.shape(plain(matrices))[0])]
    return anp.reshape(anp.array(found), shape[:-2])


declare(linalg.det, adjoint=det_adjoint)


def singular_det(a):
    """That of the part without zeros among its singular values, times its Schur complement's."""
    u, sizes, vh = np.linalg.svd(plain(a))
    rank = int(np.sum(sizes > sizes[0] * len(sizes) * np.finfo(sizes.dtype).eps))
    b = anp.matmul(np.conj(u.T), anp.matmul(a, np.conj(vh.T)))
    turned = np.linalg.det(u) * np.linalg.det(vh)
    if rank == len(sizes):
        return turned * linalg.det(b)
    if rank == 0:
        return turned * expanded_det(b)
    rest = anp.matmul(b[rank:, :rank], linalg.solve(b[:rank, :rank], b[:rank, rank:]))
    return turned * linalg.det(b[:rank, :rank]) * expanded_det(b[rank:, rank:] - rest)


def expanded_det(a):
    """Expanded along the first row; of zeros, so that those of many rows have no derivative."""
    size = np.shape(plain(a))[0]
    if size == 1:
        return a[0, 0]
    if size > 4:
        return 0.0 * a[0, 0]
    minors = [a[1:, [m for m in range(size) if m != n]] for n in range(size)]
    return sum([(-1.0) ** n * a[0, n] * expanded_det(minor) for n, minor in enumerate(minors)])


def slogdet_adjoint(argnums, ans, args, kwargs):
    """autograd's, and the sign of a complex determinant, which turns."""
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
        return (anp.reshape(factor, (*np.shape(plain(factor)), 1, 1)) * inverse,)

    return slogdet_pullback


declare(linalg.slogdet, adjoint=slogdet_adjoint)

# ------------------------------------------------------------------------------ factors


def cholesky_adjoint(argnums, ans, args, kwargs):
    """I. Murray, "Differentiation of the Cholesky decomposition", 2016; for complex ones, too."""
    upper = kwargs.get("upper", False)
    if not (upper or anp.iscomplexobj(ans)):
        autograds = primitive_vjps[linalg.cholesky](argnums, ans, args, kwargs)
        if not is_one_matrix(ans):
            return autograds

        def real_pullback(g):
            if not is_real_like(ans.dtype, g):
                return autograds(g)
            if namespace_of(g, ans) is np:
                return (pull_cholesky(g, ans),)
            return (pull_cholesky(g, ans, linalg.solve, anp.dot),)

        return real_pullback
    lower = conjugate_transposed(ans) if upper else ans
    size = np.shape(plain(ans))[-1]
    halves = np.tril(np.ones((size, size))) - 0.5 * np.eye(size)

    def cholesky_pullback(g):
        g = conjugate_transposed(g) if upper else g
        inner = halves * anp.matmul(transposed(lower), g)
        left = linalg.solve(transposed(lower), inner)
        whole = transposed(linalg.solve(conjugate_transposed(lower), transposed(left)))
        return ((whole + conjugate_transposed(whole)) / 2.0,)

    return cholesky_pullback


declare(linalg.cholesky, adjoint=cholesky_adjoint, keywords="upper")
