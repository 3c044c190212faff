"""Differences along axes."""

from collections.abc import Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np

from daskgrad.backends.autograd.rules.declaration import Refusal, equivalent, plain

Given = Any  # np._NoValue, or what was given


def is_given(value: Any) -> bool:
    return value is not np._NoValue and value is not None


def diff_needed(
    a: Any, n: int = 1, axis: int = -1, prepend: Given = np._NoValue, append: Given = np._NoValue
) -> bool:
    """autograd does not look at what is put before and after."""
    return is_given(prepend) or is_given(append) or not 0 < n < np.shape(plain(a))[axis]


@equivalent(anp.diff, needed=diff_needed, arrays=5, keywords="n axis prepend append")
def diff(
    a: Any, n: int = 1, axis: int = -1, prepend: Given = np._NoValue, append: Given = np._NoValue
) -> Any:
    if n == 0:
        return a * 1.0
    edge = list(np.shape(plain(a)))
    edge[axis] = 1
    parts = [prepend] * is_given(prepend) + [a] + [append] * is_given(append)
    whole = [part if np.ndim(plain(part)) else part * np.ones(edge) for part in parts]
    a = anp.moveaxis(anp.concatenate(whole, axis=axis), axis, -1)
    for _ in range(n):
        a = a[..., 1:] - a[..., :-1]
    return anp.moveaxis(a, -1, axis)


def gradient_needed(f: Any, *spacing: Any, axis: Any = None, edge_order: int = 1) -> bool:
    """autograd has equal distances of one, and arrays that are long enough for all cases."""
    shape, axes = np.shape(plain(f)), gradient_axes(f, axis)
    return bool(spacing) or edge_order != 1 or len(axes) > 1 or any(shape[n] < 4 for n in axes)


def gradient_axes(f: Any, axis: Any) -> Sequence[int]:
    if axis is None:
        return range(np.ndim(plain(f)))
    return axis if isinstance(axis, tuple | list) else (axis,)


@equivalent(anp.gradient, needed=gradient_needed, arrays=99, keywords="axis edge_order")
def gradient(f: Any, *spacing: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """The weights of NumPy's differences are linear in f: those of unit vectors along the axis."""
    axes = gradient_axes(f, axis)
    gaps = spacing or (1.0,)
    gaps = gaps * len(axes) if len(gaps) == 1 else gaps
    parts = [along(f, plain_spacing(gap), n, edge_order) for gap, n in zip(gaps, axes, strict=True)]
    return parts[0] if len(parts) == 1 else parts


def plain_spacing(gap: Any) -> Any:
    if gap is not plain(gap):
        raise Refusal(
            "np.gradient has no derivative rule for its spacing varargs; write the differences"
        )
    return gap


def along(f: Any, gap: Any, axis: int, edge_order: int) -> Any:
    """The differences along one axis: NumPy's weights, times what they reach.

    An entry of the value depends on those up to ``reach`` from it; so its weights are what NumPy
    makes of unit vectors, and those too far apart to meet share an array.
    """
    f = anp.moveaxis(f, axis, -1)
    count = np.shape(plain(f))[-1]
    here, reach = np.arange(count), min(edge_order, count - 1)
    period = 2 * reach + 1
    total = 0.0
    for shift in range(period):
        units = (here % period == shift).astype(float)
        weights: Any = np.gradient(units, gap, edge_order=edge_order)  # type: ignore[call-overload]
        source = here + (shift - here + reach) % period - reach
        total = total + weights * f[..., np.clip(source, 0, count - 1)]
    return anp.moveaxis(total, -1, axis)
