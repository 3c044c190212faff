"""Linear algebra. Cotangents are not conjugated: adjoints have transposes, not their conjugates."""

from collections.abc import Callable, Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.core import primitive_vjps
from autograd.numpy import linalg

from daskgrad.backends.autograd.rules.declaration import (
    ADJOINTS,
    TANGENTS,
    Refusal,
    equivalent,
    keywords,
    plain,
)


def transposed(a: Any) -> Any:
    return anp.swapaxes(a, -1, -2)


def conjugate_transposed(a: Any) -> Any:
    return anp.conj(transposed(a))


# -------------------------------------------------------------------------------------- norms


def norm_needed(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> bool:
    """autograd's rule is right for the Euclidean norm of real arrays, along one axis or all."""
    return ord is not None or keepdims or isinstance(axis, tuple) or plain(x).dtype.kind == "c"


@equivalent(linalg._primitive_norm, needed=norm_needed)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    ndim = np.ndim(plain(x))
    shape = np.shape(np.linalg.norm(plain(x), ord, axis, keepdims))
    axes = tuple(range(ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    if ord is None:
        return anp.reshape(euclidean(x, axes), shape)
    x = anp.moveaxis(x, axes, tuple(range(-len(axes), 0)))
    return anp.reshape(vector_norm(x, ord) if len(axes) == 1 else matrix_norm(x, ord), shape)


def euclidean(x: Any, axes: tuple) -> Any:
    return anp.sqrt(anp.sum(anp.real(x * anp.conj(x)), axis=axes))


def vector_norm(x: Any, ord: Any) -> Any:
    """The norm along the last axis."""
    if ord == 2:
        return euclidean(x, (-1,))
    size = anp.abs(x)
    if ord == np.inf:
        return anp.max(size, axis=-1)
    if ord == -np.inf:
        return anp.min(size, axis=-1)
    if ord == 0:
        raise Refusal("np.linalg.norm with ord=0 counts entries, and has no derivative")
    return anp.sum(size**ord, axis=-1) ** (1.0 / ord)


def matrix_norm(x: Any, ord: Any) -> Any:
    """The norm of the matrices in the last two axes."""
    if ord == "fro":
        return euclidean(x, (-2, -1))
    if ord in (1, -1, np.inf, -np.inf):
        sums = anp.sum(anp.abs(x), axis=-2 if ord in (1, -1) else -1)
        return anp.max(sums, axis=-1) if ord > 0 else anp.min(sums, axis=-1)
    singular = linalg.svd(x, compute_uv=False)
    if ord == "nuc":
        return anp.sum(singular, axis=-1)
    return singular[..., 0 if ord == 2 else -1]


# --------------------------------------------------------------------------- inverses, solutions


def pinv_adjoint(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
    (a, *_) = args
    rows, columns = np.shape(plain(a))[-2:]

    def pinv_pullback(g: Any) -> tuple:
        g = transposed(g)
        left = anp.matmul(np.eye(rows) - anp.matmul(a, ans), anp.matmul(g, ans))
        right = anp.matmul(ans, anp.matmul(g, np.eye(columns) - anp.matmul(ans, a)))
        inner = anp.conj(anp.matmul(left, conjugate_transposed(ans)))
        outer = anp.conj(anp.matmul(conjugate_transposed(ans), right))
        through = transposed(anp.matmul(ans, anp.matmul(g, ans)))
        return (real_like(inner + outer - through, a),)

    return pinv_pullback


def pinv_tangent(argnums: tuple, tangents: Sequence, ans: Any, args: tuple, kwargs: dict) -> Any:
    """G. H. Golub, V. Pereyra, "The differentiation of pseudo-inverses...", 1973, (4.12)."""
    a, t = args[0], tangents[0]
    adjoint = conjugate_transposed(t)
    rows, columns = np.shape(plain(a))[-2:]
    left = anp.matmul(ans, anp.matmul(conjugate_transposed(ans), adjoint))
    right = anp.matmul(adjoint, anp.matmul(conjugate_transposed(ans), ans))
    return (
        anp.matmul(left, np.eye(rows) - anp.matmul(a, ans))
        + anp.matmul(np.eye(columns) - anp.matmul(ans, a), right)
        - anp.matmul(ans, anp.matmul(t, ans))
    )


ADJOINTS[linalg.pinv] = pinv_adjoint
TANGENTS[linalg.pinv] = pinv_tangent


def real_like(cotangent: Any, of: Any) -> Any:
    return cotangent if anp.iscomplexobj(of) else anp.real(cotangent)


def solve_needed(a: Any, b: Any) -> bool:
    """Whether stacks of matrices are broadcast."""
    a, b = np.shape(plain(a)), np.shape(plain(b))
    return a[:-2] != b[:-2] if len(b) > 1 else len(a) > 2


@equivalent(linalg.solve, needed=solve_needed, arrays=2)
def solve(a: Any, b: Any) -> Any:
    """With stacks of one shape."""
    if np.ndim(plain(b)) == 1:
        return linalg.solve(a, b[:, None])[..., 0]
    stack = np.broadcast_shapes(np.shape(plain(a))[:-2], np.shape(plain(b))[:-2])
    parts = [anp.broadcast_to(part, stack + np.shape(plain(part))[-2:]) for part in (a, b)]
    return linalg.solve(*parts)


# ------------------------------------------------------------------------------ factors


def cholesky_adjoint(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
    """I. Murray, "Differentiation of the Cholesky decomposition", 2016; for complex ones, too."""
    upper = kwargs.get("upper", False)
    if not (upper or anp.iscomplexobj(ans)):
        return primitive_vjps[linalg.cholesky](argnums, ans, args, kwargs)
    lower = conjugate_transposed(ans) if upper else ans
    size = np.shape(plain(ans))[-1]
    halves = np.tril(np.ones((size, size))) - 0.5 * np.eye(size)

    def cholesky_pullback(g: Any) -> tuple:
        g = conjugate_transposed(g) if upper else g
        inner = halves * anp.matmul(transposed(lower), g)
        left = linalg.solve(transposed(lower), inner)
        whole = transposed(linalg.solve(conjugate_transposed(lower), transposed(left)))
        return ((whole + conjugate_transposed(whole)) / 2.0,)

    return cholesky_pullback


def slogdet_adjoint(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
    """autograd's, and the sign of a complex determinant, which turns."""
    if not anp.iscomplexobj(args[0]):
        return primitive_vjps[linalg.slogdet](argnums, ans, args, kwargs)
    inverse, sign = transposed(linalg.inv(args[0])), ans[0]

    def slogdet_pullback(g: Any) -> tuple:
        factor = g[1] + 1j * anp.imag(g[0] * sign)
        return (anp.reshape(factor, (*np.shape(plain(factor)), 1, 1)) * inverse,)

    return slogdet_pullback


ADJOINTS[linalg.cholesky] = cholesky_adjoint
ADJOINTS[linalg.slogdet] = slogdet_adjoint

keywords("ord axis keepdims", linalg._primitive_norm)
keywords("rcond rtol", linalg.pinv)
keywords("upper", linalg.cholesky)
keywords("UPLO", linalg.eigh)
keywords("full_matrices compute_uv", linalg.svd)
