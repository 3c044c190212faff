"""Cumulated sums and products, and the functions that ignore NaNs.

A NaN that is ignored has the derivative zero; so has every entry of a slice of nothing but NaNs.
"""

from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np

from daskgrad.backends.autograd.rules.declaration import declare, equivalent, plain
from daskgrad.backends.autograd.rules.reductions import deviation, is_given, variance

# ---------------------------------------------------------------------------------- cumulation


@equivalent(anp.cumprod, keywords="axis dtype")
def cumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """Products of 1, 2, 4, ... factors, without a division by any of them."""
    a = a if dtype is None else anp.astype(a, dtype)
    axis = axis if np.ndim(plain(a)) else None
    a = anp.ravel(a) if axis is None else anp.moveaxis(a, axis, -1)
    reach, count = 1, np.shape(plain(a))[-1]
    while reach < count:
        a = anp.concatenate([a[..., :reach], a[..., reach:] * a[..., :-reach]], axis=-1)
        reach *= 2
    return a if axis is None else anp.moveaxis(a, -1, axis)


def cumulative(name: str, cumulate: Callable, neutral: float) -> None:
    """The array API's names, which may begin with the sum or product of nothing."""

    def program(
        x: Any,
        *,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        include_initial: bool = False,
    ) -> Any:
        axis = 0 if axis is None else axis
        total = cumulate(x, axis=axis, dtype=dtype)
        if not include_initial:
            return total
        shape = list(np.shape(plain(x)))
        shape[axis] = 1
        return anp.concatenate([np.full(shape, neutral), total], axis=axis)

    if hasattr(anp, name):  # since NumPy 2.1
        declare(getattr(anp, name), program=program, keywords="axis dtype include_initial")


cumulative("cumulative_sum", anp.cumsum, 0.0)
cumulative("cumulative_prod", anp.cumprod, 1.0)

# ---------------------------------------------------------------------------------------- NaNs


def without_nans(a: Any, instead: float) -> Any:
    return anp.where(np.isnan(plain(a)), instead, a)


def ignoring_nans(fun: Callable, twin: Callable, instead: float, keywords: str) -> None:
    def program(a: Any, *args: Any, **kwargs: Any) -> Any:
        return twin(without_nans(a, instead), *args, **kwargs)

    declare(fun, program=program, keywords=keywords)


SUMS, EXTREMES = "axis dtype keepdims initial where", "axis keepdims initial where"
ignoring_nans(anp.nansum, anp.sum, 0.0, SUMS)
ignoring_nans(anp.nanprod, anp.prod, 1.0, SUMS)
ignoring_nans(anp.nancumsum, anp.cumsum, 0.0, "axis dtype")
ignoring_nans(anp.nancumprod, anp.cumprod, 1.0, "axis dtype")
ignoring_nans(anp.nanmax, anp.max, -np.inf, EXTREMES)
ignoring_nans(anp.nanmin, anp.min, np.inf, EXTREMES)


def chosen_of(a: Any, where: Any) -> np.ndarray:
    """Which entries count: those that are chosen, and are no NaNs."""
    return ~np.isnan(plain(a)) & (True if where is np._NoValue else where)


def of_chosen(twin: Callable) -> Callable:
    """The program that chooses what is no NaN."""

    def program(a: Any, *args: Any, where: Any = np._NoValue, **kwargs: Any) -> Any:
        return twin(a, *args, where=chosen_of(a, where), **kwargs)

    return program


@equivalent(anp.nanmean, keywords="axis dtype keepdims where")
def nanmean(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = np._NoValue,
    *,
    where: Any = np._NoValue,
) -> Any:
    axes = {"axis": axis, "keepdims": is_given(keepdims) and keepdims}
    chosen = chosen_of(a, where)
    return anp.sum(a, dtype=dtype, where=chosen, **axes) / np.maximum(np.sum(chosen, **axes), 1)


CHOICES = "axis dtype keepdims where"
declare(anp.nanvar, program=of_chosen(variance), keywords=f"{CHOICES} ddof correction mean")
declare(anp.nanstd, program=of_chosen(deviation), keywords=f"{CHOICES} ddof correction mean")
