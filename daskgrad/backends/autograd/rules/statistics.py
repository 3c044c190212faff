"""Statistics: order statistics, averages and covariances.

Entries that are equal have an order, the one of a stable sort; their derivative goes to the one
that is chosen. A slice whose value is NaN, for a NaN within, has NaNs as derivative.
"""

from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np

from daskgrad.backends.autograd.rules.declaration import declare, equivalent, plain
from daskgrad.backends.autograd.rules.reductions import is_given
from daskgrad.backends.autograd.rules.twins import TWINS, by_position

# ----------------------------------------------------------------------------------- quantiles


def axes_at_end(a: Any, axis: Any) -> Any:
    """An array with the axes that are reduced as its last one; ``None`` for all."""
    if axis is None:
        return anp.ravel(a)
    axes = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    a = anp.moveaxis(a, axes, tuple(range(-len(axes), 0)))
    rest = np.shape(plain(a))[: np.ndim(plain(a)) - len(axes)]
    return anp.reshape(a, (*rest, -1))


SLOPES = {  # method -> how fast the rank of a quantile grows with q, less the number of entries
    "linear": -1.0,
    "interpolated_inverted_cdf": 0.0,
    "hazen": 0.0,
    "weibull": 1.0,
    "median_unbiased": 1.0 / 3.0,
    "normal_unbiased": 0.25,
}


def rank_of(numpys: Callable, values: np.ndarray, q: Any, method: str) -> tuple[Any, Any]:
    """The rank of a quantile among sorted entries, as plain numbers, and as a function of q.

    NumPy finds it, as the quantile of the ranks. It is between two ranks for some methods; then
    its slope is that of H. J. Hyndman, Y. Fan, "Sample quantiles in statistical packages", 1996.
    """
    ranks = np.where(np.isnan(values), np.nan, np.arange(values.shape[-1], dtype=float))
    found: Any = numpys(ranks, plain(q), axis=-1, method=method)
    if q is plain(q) or method not in SLOPES:
        return found, found
    count = np.sum(~np.isnan(ranks), axis=-1)
    slope = np.where((found > 0) & (found < count - 1), count + SLOPES[method], 0.0)
    q = anp.reshape(q, np.shape(plain(q)) + (1,) * count.ndim)
    return found, found + slope * (q - plain(q))


def quantile_program(numpys: Callable, unit: float) -> Callable:
    def program(
        a: Any,
        q: Any,
        axis: Any = None,
        out: Any = None,
        overwrite_input: bool = False,
        method: str = "linear",
        keepdims: Any = False,
        **kwargs: Any,
    ) -> Any:
        keepdims = is_given(keepdims) and keepdims
        reduced = np.sum(plain(a), axis=axis, keepdims=keepdims)
        shape = np.shape(plain(q)) + reduced.shape
        a = axes_at_end(a, axis)
        values = plain(a)
        order = np.argsort(values, axis=-1, kind="stable")
        places = np.take_along_axis(np.arange(values.size).reshape(values.shape), order, -1)
        found, rank = rank_of(numpys, np.take_along_axis(values, order, -1), q / unit, method)
        lower, upper = (
            np.nan_to_num(end(found)).astype(np.intp)[..., None] for end in (np.floor, np.ceil)
        )
        places = np.broadcast_to(places, found.shape + places.shape[-1:])
        below, above = (
            anp.ravel(a)[np.take_along_axis(places, end, -1)[..., 0]] for end in (lower, upper)
        )
        part = rank - lower[..., 0]
        return anp.reshape(below * (1.0 - part) + above * part, shape)

    return program


for fun, numpys, unit in (
    (anp.quantile, np.quantile, 1.0),
    (anp.percentile, np.quantile, 100.0),
    (anp.nanquantile, np.nanquantile, 1.0),
    (anp.nanpercentile, np.nanquantile, 100.0),
):
    program = quantile_program(numpys, unit)
    declare(fun, program=program, arrays=2, keywords="q axis method keepdims")


def median_rule(fun: Callable, numpys: Callable) -> None:
    quantile = quantile_program(numpys, 1.0)

    def program(
        a: Any,
        axis: Any = None,
        out: Any = None,
        overwrite_input: bool = False,
        keepdims: Any = False,
    ) -> Any:
        return quantile(a, 0.5, axis, keepdims=keepdims)

    declare(fun, program=program, keywords="axis keepdims")


median_rule(anp.median, np.quantile)
median_rule(anp.nanmedian, np.nanquantile)


@equivalent(anp.ptp, keywords="axis keepdims")
def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = np._NoValue) -> Any:
    keepdims = is_given(keepdims) and keepdims
    return anp.max(a, axis=axis, keepdims=keepdims) - anp.min(a, axis=axis, keepdims=keepdims)


# ------------------------------------------------------------------------------------ averages


def aligned_weights(a: Any, axis: Any, weights: Any) -> Any:
    """Weights with the array's axes, if they are given for the reduced axes alone."""
    shape = np.shape(plain(a))
    if np.shape(plain(weights)) == shape:
        return weights
    axes = axis if isinstance(axis, tuple) else (axis,)
    axes = tuple([n % len(shape) for n in axes])
    weights = anp.transpose(weights, tuple(np.argsort(axes).tolist()))
    return anp.reshape(weights, tuple([m if n in axes else 1 for n, m in enumerate(shape)]))


@equivalent(anp.average, arrays=3, keywords="axis weights returned keepdims")
def average(
    a: Any,
    axis: Any = None,
    weights: Any = None,
    returned: bool = False,
    *,
    keepdims: Any = np._NoValue,
) -> Any:
    keepdims = is_given(keepdims) and keepdims
    if weights is None:
        found = anp.mean(a, axis=axis, keepdims=keepdims)
        total = plain(found).dtype.type(np.size(plain(a)) / np.size(plain(found)))
    else:
        weights = aligned_weights(a, axis, weights)
        total = anp.sum(weights + anp.zeros_like(a), axis=axis, keepdims=keepdims)
        found = anp.sum(a * weights, axis=axis, keepdims=keepdims) / total
    return [found, total + anp.zeros_like(found)] if returned else found


# --------------------------------------------------------------------------------- covariances


def as_rows(x: Any, rowvar: bool, is_first: bool) -> Any:
    """Observations of one variable in a row."""
    is_single = np.ndim(plain(x)) < 2
    x = anp.reshape(x, (1, -1)) if is_single else x
    is_row = is_single if is_first else np.shape(plain(x))[0] == 1
    return x if rowvar or is_row else anp.transpose(x)


@equivalent(anp.cov, arrays=7, keywords="y rowvar bias ddof fweights aweights dtype")
def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: Any = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Any:
    x = as_rows(m, rowvar, True)
    if y is not None:
        x = anp.concatenate([x, as_rows(y, rowvar, False)], axis=0)
    ddof = (0 if bias else 1) if ddof is None else ddof
    given = [w for w in (fweights, aweights) if w is not None]
    weights: Any = np.ones(np.shape(plain(x))[1], plain(x).real.dtype)
    for weight in given:
        weights = weights * weight
    total = anp.sum(weights)
    gaps = x - anp.sum(x * weights, axis=1, keepdims=True) / total
    lost = ddof if aweights is None else ddof * anp.sum(weights * aweights) / total
    found = anp.dot(gaps, anp.conj(anp.transpose(gaps * weights))) / (total - lost)
    return found[0, 0] if np.shape(plain(found)) == (1, 1) else found


@equivalent(anp.corrcoef, arrays=2, keywords="y rowvar dtype")
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    """NumPy clips what rounding has put beyond one; the derivative is that of the quotient."""
    found = cov(x, y, rowvar)
    if np.ndim(plain(found)) == 0:
        return found / found
    spread = anp.sqrt(anp.real(anp.diagonal(found)))
    return found / spread[:, None] / spread[None, :]


for fun, arrays in (
    (np.average, 1),
    (np.cov, 2),
    (np.corrcoef, 2),
    (np.quantile, 2),
    (np.percentile, 2),
    (np.nanquantile, 2),
    (np.nanpercentile, 2),
):
    TWINS[fun] = by_position(fun, getattr(anp, fun.__name__), arrays)
