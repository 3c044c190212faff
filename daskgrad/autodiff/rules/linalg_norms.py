"""Norms of vectors and matrices: a rule of our own for every ``ord``, in both modes.

autograd's is wrong for ``keepdims``, for axes in some orders and for some complex arrays, and has
few values of ``ord``. A norm is real, and its derivative is ``Re Σ slope · t / divisor``, summed
over the axes of the norm. At a kink several largest entries or sums share the slope, equal singular
values keep NumPy's order, and an entry that is zero has the slope zero if ``ord`` is at least one,
as for ``np.abs``, also if all entries are zero; then the second derivative is NaN.
"""

from typing import Any, NamedTuple

import autograd.numpy as anp
import numpy as np
from autograd.numpy import linalg
from autograd.numpy.numpy_vjps import unbroadcast

from daskgrad.autodiff.rules.declaration import Refusal, adjoint_of, declare, plain, shape_of


class Norm(NamedTuple):
    """One norm, over these ``axes``; ``kept_shape`` is its shape with ``keepdims``."""

    ans: Any
    x: Any
    ord: Any
    axis: Any
    axes: tuple[int, ...]
    kept_shape: tuple[int, ...]

    def slope(self) -> tuple[Any, Any]:
        """The slope at each entry, and the common divisor."""
        value = anp.reshape(self.ans, self.kept_shape)
        if self.ord in (None, "fro") or (self.ord == 2 and len(self.axes) == 1):
            return flat_at_zero(anp.conj(self.x), value)
        if self.ord in ("nuc", 2, -2) and len(self.axes) == 2:
            return self._of_singular_values(), 1.0
        size = anp.abs(self.x)
        if len(self.axes) == 2:
            summed = self.axes[0 if self.ord in (1, -1) else 1]
            return direction(self.x) * self._shares(anp.sum(size, axis=summed, keepdims=True)), 1.0
        if self.ord in (np.inf, -np.inf):
            return direction(self.x) * self._shares(size), 1.0
        slope = direction(self.x) * size ** (self.ord - 1)
        if self.ord < 1:
            return slope, value ** (self.ord - 1)
        return flat_at_zero(slope, value ** (self.ord - 1))

    def _shares(self, sizes):
        """One for the largest (or smallest) size; equal shares if several are largest."""
        sizes, extreme = plain(sizes), np.max if self.ord > 0 else np.min
        are_chosen = sizes == extreme(sizes, axis=self.axes, keepdims=True)
        return are_chosen / np.sum(are_chosen, axis=self.axes, keepdims=True, dtype=sizes.dtype)

    def _of_singular_values(self) -> Any:
        u, _, vh = linalg.svd(anp.moveaxis(self.x, self.axes, (-2, -1)), full_matrices=False)
        if self.ord != "nuc":
            place = slice(0, 1) if self.ord == 2 else slice(-1, None)
            u, vh = u[..., place], vh[..., place, :]
        return anp.moveaxis(anp.conj(anp.matmul(u, vh)), (-2, -1), self.axes)


def flat_at_zero(slope, divisor):
    """With the quotient zero where both are zero, which has no derivative there: NaN."""
    is_zero = plain(divisor) == 0.0
    if not np.any(is_zero):
        return slope, divisor
    kink = anp.sqrt(anp.where(is_zero, slope * slope, 1.0))
    return anp.where(is_zero, kink, slope), anp.where(is_zero, 1.0, divisor)


def norm_of(ans: Any, x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Norm:
    if ord == 0:
        raise Refusal("np.linalg.norm with ord=0 counts entries, and has no derivative")
    shape = shape_of(x)
    axes = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = tuple([n % len(shape) for n in axes])
    kept_shape = tuple([1 if n in axes else m for n, m in enumerate(shape)])
    return Norm(ans, x, ord, axis, axes, kept_shape)


def direction(x):
    """The derivative of the absolute value at each entry; zero at zero."""
    if not anp.iscomplexobj(x):
        return anp.sign(x)
    is_zero = plain(x) == 0.0
    return anp.where(is_zero, 0.0, anp.conj(x)) / anp.where(is_zero, 1.0, anp.abs(x))


def norm_adjoint(argnums, ans, args, kwargs):
    norm = norm_of(ans, *args, **kwargs)

    def norm_pullback(g):
        slope, divisor = norm.slope()
        return (anp.reshape(g, norm.kept_shape) / divisor * slope,)

    return norm_pullback


def norm_tangent(argnums, tangents, ans, args, kwargs):
    norm = norm_of(ans, *args, **kwargs)
    slope, divisor = norm.slope()
    total = anp.sum(anp.real(tangents[0] * slope), axis=norm.axis, keepdims=True)
    return anp.reshape(total / divisor, shape_of(ans))


declare(
    linalg._primitive_norm, adjoint=norm_adjoint, tangent=norm_tangent, keywords="ord axis keepdims"
)


@adjoint_of(anp.hypot)
def hypot_adjoint(argnums, ans, args, kwargs):
    metas = [anp.metadata(args[argnum]) for argnum in argnums]

    def hypot_pullback(g):
        parts = [flat_at_zero(args[argnum] + 0.0 * ans, ans) for argnum in argnums]
        pairs = zip(parts, metas, strict=True)
        return tuple([unbroadcast(g * slope / divisor, meta) for (slope, divisor), meta in pairs])

    return hypot_pullback
