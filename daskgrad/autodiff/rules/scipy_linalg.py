"""SciPy's linear algebra; imported once autograd's module for it is."""

from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np
import scipy.linalg
from autograd.core import primitive_jvps
from autograd.extend import primitive
from autograd.scipy import linalg

from daskgrad.autodiff.rules.declaration import (
    Refusal,
    adjoint_of,
    declare,
    equivalent,
    plain,
    refusing,
    shape_of,
)
from daskgrad.autodiff.rules.linalg_eigenvectors import LOST


def has_stacks(*args, **kwargs):
    """Whether an argument is a stack of matrices, for which autograd's rules are wrong."""
    arrays = [plain(array) for array in args if not isinstance(array, str | tuple)]
    return any([np.ndim(array) > 2 for array in arrays])


def refuse_stacks(name: str) -> Callable:
    return refusing(
        f"linalg.{name} has no derivative rule for stacks; write np.stack of the results for each "
        f"matrix"
    )


def solve_triangular_needed(a, b, trans=0, lower=False, unit_diagonal=False, **kwargs):
    """autograd does not look at ``unit_diagonal``; of complex matrices its rule fails."""
    is_complex = np.iscomplexobj(plain(a)) or np.iscomplexobj(plain(b))
    return unit_diagonal or is_complex or has_stacks(a, b)


@equivalent(
    linalg.solve_triangular,
    needed=solve_triangular_needed,
    arrays=2,
    keywords="trans lower unit_diagonal check_finite",
)
def solve_triangular(a, b, trans=0, lower=False, unit_diagonal=False, **kwargs):
    """With the unit diagonal written out; of complex matrices as of any others."""
    if has_stacks(a, b):
        refuse_stacks("solve_triangular")()
    if unit_diagonal:
        size = shape_of(a)[-1]
        a = a * (1.0 - np.eye(size)) + np.eye(size)
    if not (np.iscomplexobj(plain(a)) or np.iscomplexobj(plain(b))):
        return linalg.solve_triangular(a, b, trans=trans, lower=lower)
    a = anp.tril(a) if lower else anp.triu(a)
    if trans in (2, "C"):
        a = anp.conj(a)
    return anp.linalg.solve(a if trans in (0, "N") else anp.transpose(a), b)


# ---------------------------------------------------------------------------------- banded


def shift(row, by):
    """The entries ``by`` places further on, zeros beyond the ends."""
    count = shape_of(row)[0]
    places = np.arange(count) + by
    inside = (places >= 0) & (places < count)
    inside = inside.reshape((count,) + (1,) * (np.ndim(plain(row)) - 1))
    return anp.where(inside, row[np.clip(places, 0, count - 1)], 0.0)


@adjoint_of(
    linalg.solve_banded,
    program=refuse_stacks("solve_banded"),
    needed=has_stacks,
    arrays=3,
    keywords="check_finite",
)
def solve_banded_adjoint(argnums, ans, args, kwargs):
    """For ``A x = b`` with A by its diagonals: row r of ``ab`` has ``A[j + r - upper, j]`` at j."""
    (lower, upper), ab, *_ = args
    rows = lower + upper + 1
    flipped = anp.array([shift(ab[rows - 1 - r], r - lower) for r in range(rows)])

    def solve_banded_pullback(g):
        b = linalg.solve_banded((upper, lower), flipped, g)
        columns = [anp.reshape(part, (shape_of(part)[0], -1)) for part in (b, ans)]
        parts = [shift(columns[0], r - upper) * columns[1] for r in range(rows)]
        a = -anp.array([anp.sum(part, axis=1) for part in parts])
        return tuple([{1: a, 2: b}[argnum] for argnum in argnums])

    return solve_banded_pullback


def is_mixed(a, b, q):
    """Whether one of the two matrices that are factorized is real, and the solution complex."""
    is_complex = [np.iscomplexobj(plain(matrix)) for matrix in (a, b, q)]
    return any(is_complex) and not all(is_complex[:2])


def solve_sylvester(a, b, q):
    """The solution of ``a @ x + x @ b = q``, of complex matrices if one is: SciPy takes Schur's
    real form of the others, which may be no triangle, for one."""
    if is_mixed(a, b, q):
        a, b, q = (anp.array(matrix) + 0.0j for matrix in (a, b, q))
    return linalg.solve_sylvester(a, b, q)


@equivalent(
    linalg.solve_sylvester, needed=lambda *args: has_stacks(*args) or is_mixed(*args), arrays=3
)
def refused_sylvester(*args):
    if has_stacks(*args):
        refuse_stacks("solve_sylvester")()
    raise Refusal(
        "linalg.solve_sylvester is wrong in SciPy for real and complex matrices together; write "
        "daskgrad.scipy.linalg.solve_sylvester, or add 0j to the real ones"
    )


# ------------------------------------------------------------------------------------- roots


def require_regular(root: Any) -> None:
    """At a matrix that is singular up to rounding the root branches, and slopes are infinite."""
    roots = np.linalg.eigvals(plain(root))
    least = np.min(np.abs(roots[:, None] + roots), initial=np.inf)
    if least < np.sqrt(np.finfo(roots.dtype).eps / LOST) * 2.0 * np.max(np.abs(roots), initial=0.0):
        raise Refusal(
            "linalg.sqrtm has no derivative rule for a matrix that is singular up to rounding, "
            "where its slopes are infinite; add a small multiple of the identity matrix, or write "
            "a function of the matrix itself"
        )


def sqrtm_adjoint(argnums, ans, args, kwargs):
    """autograd's rule, without dropping imaginary parts."""
    require_regular(ans)
    turned = anp.transpose(ans)

    return lambda g: (solve_sylvester(turned, turned, g),)


def sqrtm_tangent(argnums, tangents, ans, args, kwargs):
    require_regular(ans)
    return primitive_jvps[linalg.sqrtm](argnums, tangents, ans, args, kwargs)


declare(
    linalg.sqrtm,
    adjoint=sqrtm_adjoint,
    tangent=sqrtm_tangent,
    program=refuse_stacks("sqrtm"),
    needed=has_stacks,
    keywords="disp blocksize",
)

# ----------------------------------------------------------------------- exponentials, factors

expm = primitive(scipy.linalg.expm)


@adjoint_of(expm)
def expm_adjoint(argnums, ans, args, kwargs):
    """The Fréchet derivative of the transpose, a corner of an exponential of twice the size (R.
    Mathias, SIAM J. Matrix Anal. Appl. 17, 1996); all orders follow."""
    turned = anp.swapaxes(args[0], -1, -2)
    size = shape_of(turned)[-1]

    def expm_pullback(g):
        above = anp.concatenate([turned, g], axis=-1)
        below = anp.concatenate([anp.zeros_like(turned), turned], axis=-1)
        return (expm(anp.concatenate([above, below], axis=-2))[..., :size, size:],)

    return expm_pullback


@primitive
def lu_packed(a):
    """The factors L and U in one array; no rows of the matrix need an exchange."""
    lu, pivots = scipy.linalg.lu_factor(a)
    assert list(pivots) == list(range(len(pivots))), pivots
    return lu


@adjoint_of(lu_packed)
def lu_adjoint(argnums, ans, args, kwargs):
    """From dL = L tril(L⁻¹ dA U⁻¹, -1) and dU = triu(L⁻¹ dA U⁻¹) U, transposed."""
    lower = anp.tril(ans, -1) + np.eye(shape_of(ans)[-1])
    upper = anp.triu(ans)

    def lu_pullback(g):
        inner = anp.tril(anp.dot(anp.transpose(lower), anp.tril(g, -1)), -1)
        inner = inner + anp.triu(anp.dot(anp.triu(g), anp.transpose(upper)))
        left = linalg.solve_triangular(lower, inner, trans=1, lower=True)
        return (anp.transpose(linalg.solve_triangular(upper, anp.transpose(left))),)

    return lu_pullback
