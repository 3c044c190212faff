"""Selections: functions of plain NumPy that select some entries of their arguments.

NumPy's own function, called with the numbers of the places, tells which entries these are.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.tracer import isbox
from numpy.lib.array_utils import normalize_axis_tuple

from daskgrad.autodiff.rules.declaration import Refusal, always, plain, shape_of
from daskgrad.autodiff.rules.manipulation import arrangement, places_of
from daskgrad.autodiff.rules.twins import TWINS, as_array, by_position, composed, joined, recorded

for fun, keywords in (
    (np.flip, "axis"),
    (np.delete, "obj axis"),
    (np.take_along_axis, "indices axis"),
):
    arrangement(getattr(anp, fun.__name__), always, keywords)
    TWINS[fun] = by_position(fun, getattr(anp, fun.__name__), 1)


@recorded(np.resize, arrays=1, keywords="new_shape")
def resize(a, new_shape):
    """NumPy makes zeros of an empty array."""
    places = places_of(a)
    return anp.ravel(a)[np.resize(places, new_shape)] if places.size else anp.zeros(new_shape)


@recorded(np.compress, arrays=2)
def compress(condition, a, axis=None, out=None):
    require_no_out(np.compress, out)
    return anp.ravel(a)[np.compress(plain(condition), places_of(a), axis)]


def require_no_out(fun: Callable, out: Any) -> None:
    if out is not None:
        raise Refusal(
            f"np.{fun.__name__} has no derivative rule for out=; take the value that it returns"
        )


@composed(np.insert)
def insert(arr, obj, values, axis=None):
    arr, values = anp.array(arr), anp.array(values)
    places, new = places_of(arr), places_of(values) + np.size(plain(arr))
    values = in_dtype(values, plain(arr).dtype)
    return joined([arr, values])[np.insert(places, plain(obj), new, axis)]


def in_dtype(a: Any, dtype: np.dtype) -> Any:
    return a if plain(a).dtype == dtype else a.astype(dtype)


@composed(np.choose)
def choose(a, choices, out=None, mode="raise"):
    require_no_out(np.choose, out)
    shapes = [shape_of(choice) for choice in choices]
    shape = np.broadcast_shapes(shape_of(a), *shapes)
    parts = [anp.broadcast_to(anp.array(choice), shape) for choice in choices]
    size = int(np.prod(shape))
    places = np.arange(size * len(parts)).reshape(len(parts), *shape)
    return joined(parts)[np.choose(plain(a), list(places), mode=mode)]


@composed(np.piecewise)
def piecewise(x, condlist, funclist, *args, **kw):
    """The last condition that holds counts; without any the value is zero."""
    x = anp.array(x)
    pick = np.zeros(shape_of(x), np.intp)
    parts, count = [np.zeros(1)], 1
    for condition, fun in zip(conditions_of(x, condlist, funclist), funclist, strict=True):
        size = np.count_nonzero(condition)
        if size:
            part = anp.array(fun(x[condition], *args, **kw) if callable(fun) else fun)
            parts.append(anp.broadcast_to(part, (size,)))
            pick[condition] = np.arange(count, count + size)
            count += int(size)
    return in_dtype(anp.concatenate(parts)[pick], plain(x).dtype)


def conditions_of(x: Any, condlist: Any, funclist: Sequence) -> Sequence[np.ndarray]:
    """NumPy's conditions, one for each function, as arrays of the shape of x."""
    is_single = np.isscalar(condlist) or (
        not isinstance(condlist[0], list | np.ndarray) and np.ndim(plain(x)) > 0
    )
    conditions = np.asarray([plain(condlist)] if is_single else list(map(plain, condlist)), bool)
    if len(conditions) == len(funclist) - 1:
        conditions = np.concatenate([conditions, ~np.any(conditions, axis=0, keepdims=True)])
    if len(conditions) != len(funclist):
        count = len(conditions)
        raise ValueError(
            f"np.piecewise got {len(funclist)} functions for {count} conditions; pass {count} or "
            f"{count + 1}"
        )
    return list(conditions)


@composed(np.nan_to_num)
def nan_to_num(x, copy=True, nan=0.0, posinf=None, neginf=None):
    """With traced numbers in the places of NaN and infinities, too."""
    x = anp.array(x)
    for number, is_there in ((nan, np.isnan), (posinf, np.isposinf), (neginf, np.isneginf)):
        if isbox(number):
            x = anp.where(is_there(plain(x)), number, x)
    return anp.nan_to_num(x, copy=copy, nan=plain(nan), posinf=plain(posinf), neginf=plain(neginf))


# ---------------------------------------------------------------------------------------- sets


def entries(a: Any, values: np.ndarray) -> Any:
    """The first entries of an array that have these values."""
    a = anp.ravel(a)
    order = np.argsort(plain(a), kind="stable")
    chosen = a[order[np.searchsorted(plain(a)[order], values)]]
    return in_dtype(chosen, values.dtype)


def with_entries(a: Any, result: Any) -> Any:
    """NumPy's values, or a tuple that begins with them, with the entries of an array in place."""
    if isinstance(result, tuple):
        return getattr(result, "_make", tuple)([entries(a, result[0]), *result[1:]])
    return entries(a, result)


@composed(np.unique)
def unique(ar, return_index=False, return_inverse=False, return_counts=False, axis=None, **kwargs):
    """A value has the derivative of its first entry."""
    result: Any = np.unique(
        plain(ar), return_index, return_inverse, return_counts, axis=axis, **kwargs
    )
    if axis is None:
        return with_entries(ar, result)
    index = np.unique(plain(ar), return_index=True, axis=axis, **kwargs)[1]
    values = anp.take(ar, index, axis=axis)
    return (values, *result[1:]) if isinstance(result, tuple) else values


def of_set(fun, x):
    return with_entries(x, fun(plain(x)))


OF_ONE = (np.unique_all, np.unique_counts, np.unique_inverse, np.unique_values)
TWINS.update({fun: partial(of_set, fun) for fun in OF_ONE})


def of_sets(fun, ar1, ar2, *args, **kwargs):
    """A value in both sets has the first array's derivative."""
    result = fun(plain(ar1), plain(ar2), *args, **kwargs)
    return with_entries(joined([ar1, ar2]) if fun in (np.union1d, np.setxor1d) else ar1, result)


OF_TWO = (np.union1d, np.intersect1d, np.setdiff1d, np.setxor1d)
TWINS.update({fun: partial(of_sets, fun) for fun in OF_TWO})


@composed(np.select)
def select(condlist, choicelist, default=0):
    """autograd's own function calls NumPy's with boxes."""
    if len(condlist) != len(choicelist):
        return np.select(condlist, [0] * len(choicelist))  # NumPy's error
    chosen = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        chosen = anp.where(condition, choice, chosen)
    return chosen


@composed(np.trim_zeros)
def trim_zeros(filt, trim="fb", axis=None):
    """A slice of each axis; NumPy's function goes through traced entries one by one."""
    filt, ends = as_array(filt), trim.lower()
    if ends not in ("f", "b", "fb", "bf"):
        raise ValueError(f"np.trim_zeros takes trim='f', 'b' or 'fb'; found {trim!r}")
    places = np.argwhere(plain(filt))
    count = places.shape[1]
    axes = range(count) if axis is None else normalize_axis_tuple(axis, count)
    if not len(places):
        return filt[tuple([slice(0, 0 if n in axes else None) for n in range(count)])]
    first, last = np.min(places, axis=0), np.max(places, axis=0) + 1
    kept = [
        slice(int(first[n]) if "f" in ends else None, int(last[n]) if "b" in ends else None)
        for n in range(count)
    ]
    return filt[tuple([kept[n] if n in axes else slice(None) for n in range(count)])]
