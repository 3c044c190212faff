"""Norms of vectors and matrices."""

from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.numpy import linalg

from daskgrad.backends.autograd.rules.declaration import Refusal, equivalent, plain


def norm_needed(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> bool:
    """autograd's rule is right for the Euclidean norm of real arrays, along one axis or all."""
    return ord is not None or keepdims or isinstance(axis, tuple) or plain(x).dtype.kind == "c"


@equivalent(linalg._primitive_norm, needed=norm_needed, keywords="ord axis keepdims")
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
