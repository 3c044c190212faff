"""Math along axes: cumulated, differenced, unwrapped, interpolated, without NaNs.

A NaN that is ignored has the derivative zero; so has every entry of a slice of nothing but NaNs.
"""

from functools import partial
from typing import Any

import autograd.numpy as anp
import numpy as np

from daskgrad.autodiff.rules.declaration import (
    Refusal,
    declare,
    equivalent,
    kernel,
    linear_in_each,
    plain,
    shape_of,
)
from daskgrad.autodiff.rules.math_reductions import deviation, is_given, variance
from daskgrad.autodiff.rules.twins import TWINS, as_array, by_position, recorded

# ---------------------------------------------------------------------------------- cumulation


@equivalent(anp.cumprod, keywords="axis dtype")
def cumprod(a, axis=None, dtype=None, out=None):
    """Products of 1, 2, 4, ... factors, without a division by any of them."""
    a = a if dtype is None else anp.astype(a, dtype)
    axis = axis if np.ndim(plain(a)) else None
    a = anp.ravel(a) if axis is None else anp.moveaxis(a, axis, -1)
    reach, count = 1, shape_of(a)[-1]
    while reach < count:
        a = anp.concatenate([a[..., :reach], a[..., reach:] * a[..., :-reach]], axis=-1)
        reach *= 2
    return a if axis is None else anp.moveaxis(a, -1, axis)


def cumulative(fun, neutral, x, *, axis=None, dtype=None, out=None, include_initial=False):
    """The array API's functions, which may begin with the sum or product of nothing."""
    axis = 0 if axis is None else axis
    total = fun(x, axis=axis, dtype=dtype)
    if not include_initial:
        return total
    shape = list(shape_of(x))
    shape[axis] = 1
    return anp.concatenate([np.full(shape, neutral), total], axis=axis)


if hasattr(anp, "cumulative_sum"):  # since NumPy 2.1
    for fun, twin, neutral in (
        (anp.cumulative_sum, anp.cumsum, 0.0),
        (anp.cumulative_prod, anp.cumprod, 1.0),
    ):
        program = partial(cumulative, twin, neutral)
        declare(fun, program=program, keywords="axis dtype include_initial")


def running(ufunc, array, axis=0):
    """The largest entries so far, or the smallest; of equal ones the last."""
    return np.take_along_axis(array, places_so_far(plain(array), axis, ufunc), axis)


@kernel
def places_so_far(values, axis, ufunc):
    is_extreme = (values == ufunc.accumulate(values, axis)) | np.isnan(values)
    steps = np.expand_dims(np.arange(values.shape[axis]), tuple(range(1, values.ndim)))
    return np.maximum.accumulate(np.where(is_extreme, np.moveaxis(steps, 0, axis), 0), axis)


# ---------------------------------------------------------------------------------------- NaNs


def without_nans(twin, instead, a, *args, **kwargs):
    return twin(anp.where(np.isnan(plain(a)), instead, a), *args, **kwargs)


SUMS, EXTREMES = "axis dtype keepdims initial where", "axis keepdims initial where"
for fun, twin, instead, keywords in (
    (anp.nansum, anp.sum, 0.0, SUMS),
    (anp.nanprod, anp.prod, 1.0, SUMS),
    (anp.nancumsum, anp.cumsum, 0.0, "axis dtype"),
    (anp.nancumprod, anp.cumprod, 1.0, "axis dtype"),
    (anp.nanmax, anp.max, -np.inf, EXTREMES),
    (anp.nanmin, anp.min, np.inf, EXTREMES),
):
    declare(fun, program=partial(without_nans, twin, instead), keywords=keywords)


def chosen_of(a: Any, where: Any) -> np.ndarray:
    """Whether each entry counts: it is chosen, and no NaN."""
    return ~np.isnan(plain(a)) & (True if where is np._NoValue else where)


def of_chosen(twin, a, *args, where=np._NoValue, **kwargs):
    return twin(a, *args, where=chosen_of(a, where), **kwargs)


@equivalent(anp.nanmean, keywords="axis dtype keepdims where")
def nanmean(a, axis=None, dtype=None, out=None, keepdims=np._NoValue, *, where=np._NoValue):
    axes = {"axis": axis, "keepdims": is_given(keepdims) and keepdims}
    chosen = chosen_of(a, where)
    return anp.sum(a, dtype=dtype, where=chosen, **axes) / np.maximum(np.sum(chosen, **axes), 1)


CHOICES = "axis dtype keepdims where"
for fun, twin in ((anp.nanvar, variance), (anp.nanstd, deviation)):
    program = partial(of_chosen, twin)
    declare(fun, program=program, keywords=f"{CHOICES} ddof correction mean")


# -------------------------------------------------------------------------------------------------
# Filters: functions of plain NumPy that interpolate, integrate, convolve or count.

# ------------------------------------------------------------------------------- interpolation


@recorded(np.interp, arrays=6)
def interp(x, xp, fp, left=None, right=None, period=None):
    """A knot has the derivative of the segment on its right; the last knot, on its left."""
    xp, fp = as_array(xp), as_array(fp)
    if period is not None:
        x, xp, fp = periodic(x, xp, fp, anp.abs(period))
        left = right = None
    knots, at = plain(xp), plain(x)
    behind = np.clip(np.searchsorted(knots, at, side="right") - 1, 0, max(len(knots) - 2, 0))
    ahead = np.minimum(behind + 1, len(knots) - 1)
    gap = xp[ahead] - xp[behind]
    is_jump = plain(gap) == 0.0
    share = anp.where(is_jump, 1.0, (x - xp[behind]) / anp.where(is_jump, 1.0, gap))
    value = fp[behind] + (fp[ahead] - fp[behind]) * share
    value = anp.where(at < knots[0], fp[0] if left is None else left, value)
    return anp.where(at > knots[-1], fp[-1] if right is None else right, value)


def periodic(x: Any, xp: Any, fp: Any, period: Any) -> tuple[Any, Any, Any]:
    """The knots of one period in order, and a knot before and after them."""
    xp = xp % period
    order = np.argsort(plain(xp))
    xp, fp = xp[order], fp[order]
    xp = anp.concatenate([xp[-1:] - period, xp, xp[:1] + period])
    return x % period, xp, anp.concatenate([fp[-1:], fp, fp[:1]])


@recorded(np.trapezoid, arrays=3, keywords="axis")
def trapezoid(y, x=None, dx=1.0, axis=-1):
    y, ndim = as_array(y), len(shape_of(as_array(y)))
    if x is not None:
        x = as_array(x)
        is_line = np.ndim(plain(x)) == 1
        dx = anp.diff(x) if is_line else anp.diff(x, axis=axis)
        if is_line:
            dx = anp.reshape(dx, [-1 if n == axis % ndim else 1 for n in range(ndim)])
    ahead, behind = (along(y, axis, part) for part in (slice(1, None), slice(None, -1)))
    return anp.sum(dx * (ahead + behind) / 2.0, axis=axis)


def along(y: Any, axis: int, part: slice) -> Any:
    """A slice of an array along an axis."""
    axis = axis % np.ndim(plain(y))
    return y[(slice(None),) * axis + (part,)]


@recorded(np.unwrap, arrays=1, keywords="discont axis period")
def unwrap(p, *args, **kwargs):
    """Whole periods are added, which are constant."""
    return p + (np.unwrap(plain(p), *args, **kwargs) - plain(p))


@recorded(np.ediff1d, arrays=3)
def ediff1d(ary, to_end=None, to_begin=None):
    ary = anp.ravel(as_array(ary))
    parts = [to_begin, ary[1:] - ary[:-1], to_end]
    return anp.concatenate([anp.ravel(as_array(part)) for part in parts if part is not None])


# --------------------------------------------------------------------------------- convolution


def middle(first: Any, second: Any, mode: str = "full") -> slice:
    """The part of the full convolution that a mode returns."""
    short, long = sorted([np.size(plain(first)), np.size(plain(second))])
    if mode not in ("full", "same", "valid"):
        raise Refusal(f"there is no mode={mode!r}; write 'full', 'same' or 'valid'")
    if mode == "full":
        return slice(0, short + long - 1)
    if mode == "same":
        return slice((short - 1) // 2, (short - 1) // 2 + long)
    return slice(short - 1, long)


def convolve_adjoint(argnums, ans, args, kwargs):
    """By each vector: the cotangent convolved with the other one, reversed."""
    a, v = args[:2]
    part, count = middle(*args, **kwargs), np.size(plain(a)) + np.size(plain(v)) - 1
    before, after = np.zeros(part.start), np.zeros(count - part.stop)

    def convolve_pullback(g):
        full = anp.concatenate([before, g, after])
        pairs = [((a, v), (v, a))[argnum] for argnum in argnums]
        return tuple(
            [
                anp.reshape(anp.convolve(full, anp.ravel(other)[::-1], "valid"), shape_of(vector))
                for vector, other in pairs
            ]
        )

    return convolve_pullback


declare(
    anp.convolve,
    adjoint=convolve_adjoint,
    tangent=linear_in_each(anp.convolve),
    keywords="mode",
)
TWINS[np.convolve] = by_position(np.convolve, anp.convolve, 2)


@recorded(np.correlate, arrays=2, keywords="mode")
def correlate(a, v, mode="valid"):
    """With a longer second vector NumPy takes the middle from the other end."""
    a, v = anp.ravel(as_array(a)), anp.conj(anp.ravel(as_array(v)))[::-1]
    part, count = middle(a, v, mode), np.size(plain(a)) + np.size(plain(v)) - 1
    if np.size(plain(v)) > np.size(plain(a)):
        part = slice(count - part.stop, count - part.start)
    return anp.convolve(a, v)[part]
