"""Rules of our own for sums, means and products of vectors and matrices, without the detours.

autograd's rules for these go through ``np.tensordot``, ``np.prod`` of shapes and its own wrappers,
which on small arrays take several times as long as the arithmetic. These here do the same
arithmetic in the same order, so they give the same bits. They hold for plain real arrays of one
dtype; for everything else, and for a cotangent that somebody differentiates, autograd's hold.
"""

from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.core import primitive_vjps
from autograd.numpy.numpy_vjps import (
    dot_adjoint_0,
    dot_adjoint_1,
    matmul_adjoint_0,
    matmul_adjoint_1,
    repeat_to_match_shape,
)
from autograd.tracer import trace_primitives_map

Meta = tuple[tuple[int, ...], int, np.dtype, bool]  # what anp.metadata returns


def is_plain(g: Any) -> bool:
    return type(g) is np.ndarray or type(g) is np.float64


# --------------------------------------------------------------------------- sums and means


def reduction_rule(fun: Callable, is_mean: bool) -> Callable:
    """The rule of a sum or mean over one axis or all."""
    autograds = primitive_vjps[fun]

    def sum_rule(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
        axis = reduced_axis(args, kwargs)
        if axis == UNKNOWN:
            return autograds(argnums, ans, args, kwargs)
        return spread_pullback(args[0].shape, args[0].dtype, axis, is_mean)

    return sum_rule


UNKNOWN = "unknown"


def reduced_axis(args: tuple, kwargs: dict) -> Any:
    """The axis over which an array is summed, ``None`` for all, or ``UNKNOWN``."""
    if type(args[0]) is not np.ndarray or args[0].ndim == 0 or kwargs.keys() - {"axis", "keepdims"}:
        return UNKNOWN
    if len(args) > 1:
        return args[1] if len(args) == 2 and type(args[1]) is int else UNKNOWN
    axis = kwargs.get("axis")
    return axis if axis is None or type(axis) is int else UNKNOWN


def spread_pullback(
    shape: tuple, dtype: np.dtype, axis: int | None, is_mean: bool
) -> Callable[[Any], tuple]:
    """Spreads a cotangent over the axis that was summed; ``g + 0`` is autograd's."""
    kept = tuple([1 if axis in (None, n, n - len(shape)) else m for n, m in enumerate(shape)])

    def sum_pullback(g: Any) -> tuple:
        if not is_plain(g):
            spread, count = repeat_to_match_shape(g, shape, dtype, axis, None)
            return (spread / count if is_mean else spread,)
        g = g.reshape(kept) + np.zeros((), dtype)
        if is_mean:
            g = g / np.prod(shape if axis is None else shape[axis])
        spread = np.empty(shape, g.dtype)
        spread[...] = g
        return (spread,)

    return sum_pullback


# -------------------------------------------------------------------------------- products


def product_rule(fun: Callable, *adjoints: Callable) -> Callable:
    """The rule of ``fun(A, B)`` from the adjoints with respect to ``A`` and to ``B``."""
    autograds = primitive_vjps[fun]

    def dot_rule(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
        if len(args) != 2 or kwargs or not is_simple(*args):
            if are_mixed(args):
                return pullback_of_mixed(fun, argnums, args)
            return autograds(argnums, ans, args, kwargs)
        metas = tuple(map(meta, args))
        pullbacks = [adjoints[argnum](args[1 - argnum], *metas) for argnum in argnums]
        if len(pullbacks) == 1:
            return pullback_of_one(*pullbacks)
        return pullback_of_both(*pullbacks)

    return dot_rule


def are_mixed(args: tuple) -> bool:
    """Whether one of two arrays is real, and the other complex."""
    return len({anp.iscomplexobj(arg) for arg in args}) > 1


def pullback_of_mixed(fun: Callable, argnums: tuple, args: tuple) -> Callable[[Any], tuple]:
    """As if both were complex; autograd's drops imaginary parts, right, but with a warning."""
    are_real = [not anp.iscomplexobj(args[argnum]) for argnum in argnums]
    pullback = primitive_vjps[fun](argnums, None, tuple([arg + 0j for arg in args]), {})

    def mixed_pullback(g: Any) -> tuple:
        pairs = zip(are_real, pullback(g), strict=True)
        return tuple([anp.real(part) if is_real else part for is_real, part in pairs])

    return mixed_pullback


def is_simple(a: Any, b: Any) -> bool:
    """Whether both are vectors or matrices of one real dtype."""
    return (
        type(a) is np.ndarray
        and type(b) is np.ndarray
        and a.dtype == b.dtype
        and a.dtype.kind == "f"
        and 1 <= a.ndim <= 2
        and 1 <= b.ndim <= 2
        and a.size > 0
        and b.size > 0
    )


def meta(array: np.ndarray) -> Meta:
    return array.shape, array.ndim, array.dtype, False


def pullback_of_one(pullback: Callable) -> Callable[[Any], tuple]:
    def dot_pullback(g: Any) -> tuple:
        return (pullback(g),)

    return dot_pullback


def pullback_of_both(first: Callable, second: Callable) -> Callable[[Any], tuple]:
    def dot_pullback(g: Any) -> tuple:
        return first(g), second(g)

    return dot_pullback


def dot_first(b: np.ndarray, a_meta: Meta, b_meta: Meta) -> Callable:
    def dot_first_pullback(g: Any) -> Any:
        if not is_plain(g):
            return dot_adjoint_0(b, g, a_meta, b_meta)
        if b.ndim == 1:
            product = np.dot(g.reshape(-1, 1), b.reshape(1, -1))
        else:
            product = np.dot(g.reshape(-1, b.shape[1]), b.T)
        return np.asarray(product.reshape(a_meta[0]), dtype=a_meta[2])

    return dot_first_pullback


def dot_second(a: np.ndarray, a_meta: Meta, b_meta: Meta) -> Callable:
    def dot_second_pullback(g: Any) -> Any:
        if not is_plain(g):
            return dot_adjoint_1(a, g, a_meta, b_meta)
        if a.ndim == 1:
            product = np.dot(g.reshape(-1, 1), a.reshape(1, -1))
        else:
            product = np.dot(g.reshape(a.shape[0], -1).T, a)
        product = product.T if b_meta[1] == 2 else product.reshape(b_meta[0])
        return np.asarray(product, dtype=b_meta[2])

    return dot_second_pullback


def matmul_first(b: np.ndarray, a_meta: Meta, b_meta: Meta) -> Callable:
    def matmul_first_pullback(g: Any) -> Any:
        if not is_plain(g) or g.ndim == 0 or a_meta[1] == 1:
            return matmul_adjoint_0(b, g, a_meta, b_meta[1])
        if b.ndim == 1:
            return np.matmul(g.reshape(-1, 1), b.reshape(1, -1))
        return np.matmul(g, b.T)

    return matmul_first_pullback


def matmul_second(a: np.ndarray, a_meta: Meta, b_meta: Meta) -> Callable:
    def matmul_second_pullback(g: Any) -> Any:
        if not is_plain(g) or g.ndim == 0 or a.ndim == 1:
            return matmul_adjoint_1(a, g, a_meta[1], b_meta)
        if b_meta[1] == 1:
            return np.matmul(a.T, g.reshape(-1, 1)).reshape(-1)
        return np.matmul(a.T, g)

    return matmul_second_pullback


mean = trace_primitives_map[np.mean]  # ``anp.mean`` only calls it
RULES = {
    anp.sum: reduction_rule(anp.sum, is_mean=False),
    mean: reduction_rule(mean, is_mean=True),
    anp.dot: product_rule(anp.dot, dot_first, dot_second),
    anp.matmul: product_rule(anp.matmul, matmul_first, matmul_second),
}
