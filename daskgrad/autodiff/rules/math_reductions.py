"""Sums, products, extremes and differences along axes.

autograd's adjoints of sums and means go through products of shapes and its own wrappers, which on
small arrays takes several times as long as the arithmetic. Ours do the same arithmetic in the same
order, for plain real arrays, and so give the same bits.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.core import primitive_jvps, primitive_vjps
from autograd.numpy import numpy_wrapper
from autograd.numpy.numpy_vjps import repeat_to_match_shape
from autograd.tracer import isbox

from daskgrad.autodiff.rules.declaration import (
    ArrayBox,
    Refusal,
    declare,
    equivalent,
    is_plain,
    is_real_like,
    kernel,
    namespace_of,
    plain,
    quick,
    shape_of,
)
from daskgrad.autodiff.rules.twins import TWINS, recorded


def is_given(value: Any) -> bool:
    return value is not np._NoValue and value is not None


# --------------------------------------------------------------------------- sums and means


def sum_adjoint(fun: Callable, is_mean: bool) -> Callable:
    """The rule of a sum or mean over one axis or all."""
    autograds = primitive_vjps[fun]

    def sum_rule(argnums, ans, args, kwargs):
        axis = reduced_axis(args, kwargs)
        if axis == UNKNOWN:
            if is_given(kwargs.get("where")):
                return chosen_pullback(is_mean, argnums, ans, args, kwargs)
            return autograds(argnums, ans, args, kwargs)
        return spread_pullback(args[0].shape, args[0].dtype, axis, is_mean)

    return sum_rule


UNKNOWN = "unknown"


def reduced_axis(args: tuple, kwargs: dict) -> Any:
    """The axis or axes over which an array is summed, ``None`` for all, or ``UNKNOWN``."""
    if (
        not isinstance(args[0], np.ndarray)
        or args[0].ndim == 0
        or kwargs.keys() - {"axis", "keepdims"}
    ):
        return UNKNOWN
    if len(args) > 1:
        return args[1] if len(args) == 2 and is_axis(args[1]) else UNKNOWN
    axis = kwargs.get("axis")
    return axis if axis is None or is_axis(axis) else UNKNOWN


def is_axis(axis: Any) -> bool:
    return type(axis) is int or (type(axis) is tuple and all([type(n) is int for n in axis]))


def kept_shape(shape: Sequence[int], axis: int | tuple[int, ...] | None) -> tuple[int, ...]:
    """The shape of a reduction that keeps its axes."""
    axes = axis if type(axis) is tuple else (axis,)
    if None in axes:
        return (1,) * len(shape)
    return tuple([1 if n in axes or n - len(shape) in axes else m for n, m in enumerate(shape)])


@functools.lru_cache(maxsize=1024)
def spread_pullback(
    shape: tuple, dtype: np.dtype, axis: int | tuple[int, ...] | None, is_mean: bool
) -> Callable[[Any], tuple]:
    """Spreads a cotangent over the summed axes; ``g + 0`` is autograd's. It holds no array, and is
    one object for all sums alike."""
    kept = kept_shape(shape, axis)
    terms = np.prod([m for m, n in zip(shape, kept, strict=True) if m != n], dtype=int)

    def sum_pullback(g):
        if not is_plain(g):
            cotangent, count = repeat_to_match_shape(g, shape, dtype, axis, None)
            return (cotangent / count if is_mean else cotangent,)
        g = g.reshape(kept) + np.zeros((), dtype)
        if is_mean:
            g = g / terms
        return (spread(g, shape),)

    return sum_pullback


@kernel
def spread(g: Any, shape: tuple) -> np.ndarray:
    """An array of this shape, filled with a cotangent."""
    filled = np.empty(shape, g.dtype)
    filled[...] = g
    return filled


def chosen_pullback(is_mean, argnums, ans, args, kwargs):
    """The pullback of a sum or mean of the entries that ``where`` chooses."""
    options = by_name(args, kwargs)
    axes = {name: options[name] for name in options.keys() & {"axis", "keepdims"}}
    pull_sum = primitive_vjps[anp.sum](argnums, ans, args[:1], axes)
    chosen = np.broadcast_to(options["where"], shape_of(args[0]))
    count = np.maximum(np.sum(chosen, **axes), 1) if is_mean else 1.0
    return lambda g: (anp.where(chosen, pull_sum(g / count)[0], 0.0),)


def by_name(args, kwargs):
    """The further arguments of a sum or mean."""
    return dict(zip(("axis", "dtype", "out", "keepdims"), args[1:], strict=False)) | kwargs


def sum_tangent(argnums, tangents, ans, args, kwargs):
    """The sum of the tangents; ``initial`` is a constant."""
    options = by_name(args, kwargs)
    options.pop("initial", None)
    return anp.sum(tangents[0], **options)


mean, var, std = (getattr(numpy_wrapper, f"_primitive_{name}") for name in ("mean", "var", "std"))
declare(
    anp.sum,
    adjoint=sum_adjoint(anp.sum, is_mean=False),
    tangent=sum_tangent,
    keywords="axis keepdims initial dtype where",
)
declare(
    mean,
    adjoint=sum_adjoint(mean, is_mean=True),
    tangent=primitive_jvps[mean],
    keywords="axis keepdims dtype where",
)


declare(  # autograd does not take ``dtype``
    anp.cumsum,
    program=lambda a, axis=None, dtype=None, out=None: anp.cumsum(
        anp.atleast_1d(a if dtype is None else anp.astype(a, dtype)), axis
    ),
    needed=lambda a, axis=None, *dtype, **options: bool(dtype or options or not shape_of(a)),
    keywords="axis dtype",
)


def spread_needed(*args, where=None, correction=None, mean=None, **kwargs):
    """autograd ignores ``where``, ``correction`` and ``mean``."""
    return is_given(where) or is_given(correction) or is_given(mean)


@equivalent(
    var,
    adjoint=primitive_vjps[var],  # autograd's tangents are wrong for several axes
    needed=spread_needed,
    keywords="axis keepdims ddof dtype where correction mean",
)
def variance(
    a,
    axis=None,
    dtype=None,
    out=None,
    ddof=0,
    keepdims=np._NoValue,
    *,
    where=np._NoValue,
    correction=np._NoValue,
    mean=np._NoValue,
):
    """The mean square distance of the chosen entries from their mean."""
    a = a if dtype is None else anp.astype(a, dtype)
    chosen = np.broadcast_to(where if is_given(where) else True, shape_of(a))
    axes = {"axis": axis, "keepdims": True}
    count = np.sum(chosen, **axes)
    a = anp.where(chosen, a, 0.0)
    mean = mean if is_given(mean) else anp.sum(a, **axes) / np.maximum(count, 1)
    gaps = anp.where(chosen, a - mean, 0.0)
    freedom = count - (correction if is_given(correction) else ddof)
    squares = anp.sum(anp.real(gaps * anp.conj(gaps)), **axes)
    total = squares / np.where(freedom > 0, freedom, np.nan)
    keepdims = is_given(keepdims) and keepdims
    return anp.reshape(total, np.sum(chosen, axis=axis, keepdims=keepdims).shape)


def std_adjoint(argnums, ans, args, kwargs):
    """autograd's rule divides by the deviation; where it is zero, so is the slope, as a norm's."""
    is_zero = plain(ans) == 0.0
    divisor = anp.where(is_zero, np.inf, ans) if np.any(is_zero) else ans
    return primitive_vjps[std](argnums, divisor, args, kwargs)


@equivalent(
    std,
    adjoint=std_adjoint,
    needed=spread_needed,
    keywords="axis keepdims ddof dtype where correction mean",
)
def deviation(*args, **kwargs):
    """If nothing deviates the derivative is zero."""
    square = variance(*args, **kwargs)
    is_zero = plain(square) == 0.0
    return anp.where(is_zero, 0.0, anp.sqrt(anp.where(is_zero, 1.0, square)))


def with_mean(fun: Callable, program: Callable) -> Callable:
    """Takes a traced ``mean=``, too: primitives look for boxes by position alone."""
    return lambda *args, **kwargs: (program if isbox(kwargs.get("mean")) else fun)(*args, **kwargs)


TWINS[np.var] = ArrayBox.var = with_mean(anp.var, variance)
TWINS[np.std] = ArrayBox.std = with_mean(anp.std, deviation)


# ----------------------------------------------------------------------------- extremes


def axes_at_end(a, axis):
    """An array with the axes that are reduced as its last one; ``None`` for all."""
    if axis is None:
        return anp.ravel(a)
    axes = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    a = anp.moveaxis(a, axes, tuple(range(-len(axes), 0)))
    count = np.ndim(plain(a)) - len(axes)
    kept, reduced = shape_of(a)[:count], shape_of(a)[count:]
    return anp.reshape(a, (*kept, math.prod(reduced)))


def normal_axes(axis, ndim):
    """Axes as autograd's rules for tangents want them: from 0 on, in order."""
    if not isinstance(axis, tuple) or not ndim:
        return axis
    return tuple(sorted([n % ndim for n in axis]))


def extreme_needed(a, axis=None, *args, initial=None, where=None, **kwargs):
    """autograd's tangents want axes from 0 on, in order; it ignores ``initial`` and ``where``."""
    if is_given(initial) or is_given(where):
        return True
    return isinstance(axis, tuple) and axis != normal_axes(axis, np.ndim(plain(a)))


@kernel
def pull_extreme(g, ans, x, axis):
    """A cotangent at the entries that are the extreme ones, in equal parts."""
    if axis is None:
        chosen = x == ans
        return chosen * ((g + 0.0) / np.count_nonzero(chosen))
    kept = kept_shape(x.shape, axis)
    chosen = x == ans.reshape(kept)
    return chosen * ((g.reshape(kept) + 0.0) / np.add.reduce(chosen, axis=axis, keepdims=True))


def extreme(fun: Callable, larger: Callable, least: float) -> None:
    def program(a, axis=None, out=None, keepdims=False, initial=np._NoValue, where=np._NoValue):
        axis = normal_axes(axis, np.ndim(plain(a)))
        if not np.size(plain(a)):  # initial is a constant
            return fun(
                plain(a), axis=axis, keepdims=is_given(keepdims) and keepdims, initial=initial
            )
        a = anp.where(where, a, least) if is_given(where) else a
        value = fun(a, axis=axis, keepdims=is_given(keepdims) and keepdims)
        return larger(value, initial) if is_given(initial) else value

    autograds = primitive_vjps[fun]

    def adjoint(argnums, ans, args, kwargs):
        axis, x = reduced_axis(args, kwargs), args[0]
        if axis == UNKNOWN or type(axis) is tuple or not is_real_like(x.dtype, x, ans):
            return autograds(argnums, ans, args, kwargs)

        def extreme_pullback(g):
            if is_plain(g):
                return (pull_extreme(g, ans, x, axis),)
            return autograds(argnums, ans, args, kwargs)(g)

        return extreme_pullback

    declare(
        fun,
        adjoint=adjoint,
        tangent=primitive_jvps[fun],
        program=program,
        needed=extreme_needed,
        keywords="axis keepdims initial where",
    )


for fun in {anp.max, anp.amax}:
    extreme(fun, anp.maximum, -np.inf)
for fun in {anp.min, anp.amin}:
    extreme(fun, anp.minimum, np.inf)


# ----------------------------------------------------------------------------- products


def prod_needed(a, *args, where=None, **kwargs):
    """autograd divides by every factor, and ignores ``where``."""
    return is_given(where) or not np.all(plain(a))


@equivalent(anp.prod, needed=prod_needed, keywords="axis keepdims initial dtype where")
def prod(a, axis=None, dtype=None, out=None, keepdims=False, initial=1.0, where=np._NoValue):
    """Factors by pairs, without a division by any of them."""
    keepdims = is_given(keepdims) and keepdims
    initial = initial if is_given(initial) else 1.0
    a = anp.where(where, a, 1.0) if is_given(where) else a
    shape = np.prod(plain(a), axis=axis, keepdims=keepdims).shape
    factors = axes_at_end(a, axis if np.ndim(plain(a)) else None)
    while (count := shape_of(factors)[-1]) > 1:
        half = count // 2
        pairs = factors[..., :half] * factors[..., half : 2 * half]
        others = factors[..., 2 * half :]
        factors = anp.concatenate([pairs, others], axis=-1) if count % 2 else pairs
    factors = factors if count else np.ones((*shape_of(factors)[:-1], 1))
    return anp.reshape(factors, shape) * initial


# --------------------------------------------------------------------------- differences


def diff_needed(a, n=1, axis=-1, prepend=np._NoValue, append=np._NoValue):
    """autograd ignores ``prepend`` and ``append``."""
    return is_given(prepend) or is_given(append) or not 0 < n < shape_of(a)[axis]


@recorded(np.diff, needed=diff_needed, arrays=5, keywords="n axis prepend append")
def diff(a, n=1, axis=-1, prepend=np._NoValue, append=np._NoValue):
    if n == 0:
        return a * 1.0
    edge = list(shape_of(a))
    edge[axis] = 1
    parts = [prepend] * is_given(prepend) + [a] + [append] * is_given(append)
    parts = [part if np.ndim(plain(part)) else part * np.ones(edge) for part in parts]
    a = anp.moveaxis(anp.concatenate(parts, axis=axis), axis, -1)
    for _ in range(n):
        a = a[..., 1:] - a[..., :-1]
    return anp.moveaxis(a, -1, axis)


def gradient_needed(f, *spacing, axis=None, edge_order=1):
    """autograd supposes a spacing of one, and arrays that are long enough for all cases."""
    shape, axes = shape_of(f), gradient_axes(f, axis)
    return bool(spacing) or edge_order != 1 or len(axes) > 1 or any(shape[n] < 4 for n in axes)


def gradient_axes(f: Any, axis: Any) -> Sequence[int]:
    if axis is None:
        return range(np.ndim(plain(f)))
    return axis if isinstance(axis, tuple | list) else (axis,)


@equivalent(anp.gradient, needed=gradient_needed, arrays=99, keywords="axis edge_order")
def gradient(f, *spacing, axis=None, edge_order=1):
    """NumPy's differences are linear in f, with the weights that it gives to unit vectors."""
    axes = gradient_axes(f, axis)
    gaps = spacing or (1.0,)
    gaps = gaps * len(axes) if len(gaps) == 1 else gaps
    parts = [
        (along if gap is plain(gap) else between)(f, gap, n, edge_order)
        for gap, n in zip(gaps, axes, strict=True)
    ]
    return parts[0] if len(parts) == 1 else parts


def along(f, gap, axis, edge_order):
    """The differences along one axis: the weights that NumPy gives to unit vectors, times the
    entries. Unit vectors farther apart than ``reach`` share an array."""
    f = anp.moveaxis(f, axis, -1)
    count = shape_of(f)[-1]
    places, reach = np.arange(count), min(edge_order, count - 1)
    period = 2 * reach + 1
    total = 0.0
    for shift in range(period):
        units = (places % period == shift).astype(np.result_type(float, np.asarray(gap).dtype))
        weights: Any = np.gradient(units, gap, edge_order=edge_order)
        source = places + (shift - places + reach) % period - reach
        total = total + weights * f[..., np.clip(source, 0, count - 1)]
    return anp.moveaxis(total, -1, axis)


def between(f, places, axis, edge_order):
    """The differences along one axis of a traced spacing: slopes of parabolas through three
    entries, and of lines at the ends for ``edge_order=1``."""
    f = anp.moveaxis(f, axis, -1)
    count = shape_of(f)[-1]
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


def trace_needed(a, offset=0, axis1=0, axis2=1, dtype=None):
    """autograd ignores axes and stacks, and does not take ``dtype``."""
    return (axis1, axis2) != (0, 1) or np.ndim(plain(a)) != 2 or dtype is not None


def sums_one_diagonal(ans, args, kwargs):
    (x, *others) = args
    is_usual = not (others or kwargs) and is_real_like(np.dtype(float), x, ans)
    return is_usual and x.ndim == 2


def trace_pullback(argnums, ans, x):
    rows, columns = shape = x.shape

    def pull(g):
        if namespace_of(g) is not np:
            return (anp.where(np.eye(*shape) > 0.0, g, np.zeros((), g.dtype)),)
        out = np.zeros(shape, g.dtype)
        out.reshape(-1)[: min(rows, columns) * columns : columns + 1] = g
        return (out,)

    return pull


@equivalent(
    anp.trace,
    adjoint=quick(anp.trace, sums_one_diagonal, trace_pullback),
    tangent=primitive_jvps[anp.trace],
    needed=trace_needed,
    keywords="offset axis1 axis2 dtype",
)
def trace(a, offset=0, axis1=0, axis2=1, dtype=None):
    return anp.sum(anp.diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype)


# ------------------------------------------------------------------ autograd.grad within models

IGNORED = {"where", "initial", "correction", "mean"}


def checked(fun: Callable, rule: Callable) -> Callable:
    """autograd's own rule, which ignores these parameters, for its own derivatives in a model."""
    names = IGNORED - {"initial"} if fun in (anp.sum, anp.prod) else IGNORED

    def checked_rule(*call):
        ignored = [name for name, value in call[-1].items() if name in names and is_given(value)]
        if ignored:
            raise Refusal(
                f"autograd.grad has no derivative rule for {fun.__name__!r} with "
                f"{'=, '.join(ignored)}=; choose with np.where"
            )
        return rule(*call)

    return checked_rule


for fun in {anp.sum, anp.prod, anp.max, anp.min, anp.amax, anp.amin, mean, var, std}:
    for table in (primitive_vjps, primitive_jvps):
        if fun in table:
            table[fun] = checked(fun, table[fun])
