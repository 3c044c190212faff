"""Sums, products, extremes and differences along axes.

autograd's adjoints of sums and means go through products of shapes and its own wrappers, which on
small arrays takes several times as long as the arithmetic. Those here do the same arithmetic in the
same order, for plain real arrays, and so give the same bits.
"""

from collections.abc import Callable, Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.core import primitive_jvps, primitive_vjps
from autograd.numpy import numpy_wrapper
from autograd.numpy.numpy_vjps import repeat_to_match_shape

from daskgrad.backends.autograd.rules.declaration import (
    declare,
    equivalent,
    is_plain,
    plain,
)

# --------------------------------------------------------------------------- sums and means


def sum_adjoint(fun: Callable, is_mean: bool) -> Callable:
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


def sum_tangent(argnums: tuple, tangents: Sequence, ans: Any, args: tuple, kwargs: dict) -> Any:
    """The sum of the tangents; ``initial`` is a constant."""
    given = args[1:]
    options = dict(zip(("axis", "dtype", "out", "keepdims"), given, strict=False)) | kwargs
    options.pop("initial", None)
    return anp.sum(tangents[0], **options)


mean, var, std = (getattr(numpy_wrapper, f"_primitive_{name}") for name in ("mean", "var", "std"))
declare(
    anp.sum,
    adjoint=sum_adjoint(anp.sum, is_mean=False),
    tangent=sum_tangent,
    keywords="axis keepdims initial dtype",
)
declare(
    mean,
    adjoint=sum_adjoint(mean, is_mean=True),
    tangent=primitive_jvps[mean],
    keywords="axis keepdims dtype",
)
for fun in (var, std):  # autograd's tangents are wrong for several axes
    declare(fun, adjoint=primitive_vjps[fun], keywords="axis keepdims ddof dtype")
declare(anp.cumsum, keywords="axis")

# ----------------------------------------------------------------------------- extremes


def normal_axes(axis: Any, ndim: int) -> Any:
    """Axes as autograd's rules for tangents want them: from 0 on, in order."""
    if not isinstance(axis, tuple) or not ndim:
        return axis
    return tuple(sorted([n % ndim for n in axis]))


def extreme_needed(a: Any, axis: Any = None, *args: Any, **kwargs: Any) -> bool:
    """autograd's tangents want axes from 0 on, in order."""
    return axis != normal_axes(axis, np.ndim(plain(a)))


def extreme(fun: Callable) -> None:
    def program(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
        axis = normal_axes(axis, np.ndim(plain(a)))
        return fun(a, axis=axis, keepdims=keepdims)

    declare(fun, program=program, needed=extreme_needed, keywords="axis keepdims")


for fun in {anp.max, anp.min, anp.amax, anp.amin}:
    extreme(fun)


# ----------------------------------------------------------------------------- products


def prod_needed(a: Any, *args: Any, **kwargs: Any) -> bool:
    """autograd divides by every factor."""
    return not np.all(plain(a))


@equivalent(anp.prod, needed=prod_needed, keywords="axis keepdims initial dtype")
def prod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = 1.0,
) -> Any:
    """Factors by pairs, without a division by any of them."""
    shape = np.prod(plain(a), axis=axis, keepdims=keepdims).shape
    ndim = np.ndim(plain(a))
    axes = range(ndim) if axis is None else (axis if isinstance(axis, tuple) else (axis,))
    factors = anp.moveaxis(a, tuple(axes), tuple(range(len(axes))))
    rest = np.shape(plain(factors))[len(axes) :]
    factors = anp.reshape(factors, (-1, *rest))
    while (count := np.shape(plain(factors))[0]) > 1:
        half = count // 2
        pairs = factors[:half] * factors[half : 2 * half]
        factors = anp.concatenate([pairs, factors[2 * half :]]) if count % 2 else pairs
    return anp.reshape(factors, shape) * initial


# --------------------------------------------------------------------------- differences

Given = Any  # np._NoValue, or what was given


def is_given(value: Any) -> bool:
    return value is not np._NoValue and value is not None


def diff_needed(
    a: Any, n: int = 1, axis: int = -1, prepend: Given = np._NoValue, append: Given = np._NoValue
) -> bool:
    """autograd ignores ``prepend`` and ``append``."""
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
    parts = [part if np.ndim(plain(part)) else part * np.ones(edge) for part in parts]
    a = anp.moveaxis(anp.concatenate(parts, axis=axis), axis, -1)
    for _ in range(n):
        a = a[..., 1:] - a[..., :-1]
    return anp.moveaxis(a, -1, axis)


def gradient_needed(f: Any, *spacing: Any, axis: Any = None, edge_order: int = 1) -> bool:
    """autograd supposes a spacing of one, and arrays that are long enough for all cases."""
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
    parts = [
        (along if gap is plain(gap) else between)(f, gap, n, edge_order)
        for gap, n in zip(gaps, axes, strict=True)
    ]
    return parts[0] if len(parts) == 1 else parts


def along(f: Any, gap: Any, axis: int, edge_order: int) -> Any:
    """The differences along one axis: NumPy's weights, times the entries in reach.

    An entry of the value depends on those up to ``reach`` from it; so its weights are what NumPy
    makes of unit vectors, and those too far apart to meet share an array.
    """
    f = anp.moveaxis(f, axis, -1)
    count = np.shape(plain(f))[-1]
    here, reach = np.arange(count), min(edge_order, count - 1)
    period = 2 * reach + 1
    total = 0.0
    for shift in range(period):
        units = (here % period == shift).astype(np.result_type(float, np.asarray(gap).dtype))
        weights: Any = np.gradient(units, gap, edge_order=edge_order)  # type: ignore[call-overload]
        source = here + (shift - here + reach) % period - reach
        total = total + weights * f[..., np.clip(source, 0, count - 1)]
    return anp.moveaxis(total, -1, axis)


def between(f: Any, places: Any, axis: int, edge_order: int) -> Any:
    """The differences along one axis of a traced spacing: the slopes of parabolas through three
    entries, and at the ends those of lines for ``edge_order=1``."""
    f = anp.moveaxis(f, axis, -1)
    count = np.shape(plain(f))[-1]
    if not np.ndim(plain(places)):
        places = places * np.arange(count)
    gaps = places[1:] - places[:-1]
    slopes = (f[..., 1:] - f[..., :-1]) / gaps
    if edge_order == 1:
        first, last = slopes[..., :1], slopes[..., -1:]
    else:
        bends = (slopes[..., 1:] - slopes[..., :-1]) / (gaps[1:] + gaps[:-1])
        first = slopes[..., :1] - gaps[0] * bends[..., :1]
        last = slopes[..., -1:] + gaps[-1] * bends[..., -1:]
    shares = gaps[:-1] / (gaps[1:] + gaps[:-1])
    inner = slopes[..., :-1] * (1.0 - shares) + slopes[..., 1:] * shares
    return anp.moveaxis(anp.concatenate([first, inner, last], axis=-1), -1, axis)


# ------------------------------------------------------------------------------------ traces


def trace_needed(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> bool:
    """autograd ignores axes and stacks."""
    return (axis1, axis2) != (0, 1) or np.ndim(plain(a)) != 2


@equivalent(anp.trace, needed=trace_needed, keywords="offset axis1 axis2")
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return anp.sum(anp.diagonal(a, offset, axis1, axis2), axis=-1)
