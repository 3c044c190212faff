"""Statistics: order statistics, averages and covariances.

A stable sort orders equal entries; the derivative goes to the entry that is chosen. A slice with a
NaN has the value NaN, and NaNs as derivative.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.extend import primitive
from autograd.tracer import isbox

from daskgrad.autodiff.rules.declaration import (
    Refusal,
    declare,
    equivalent,
    linear_in_each,
    plain,
    shape_of,
)
from daskgrad.autodiff.rules.math_reductions import axes_at_end, is_given
from daskgrad.autodiff.rules.twins import TWINS, as_array, by_position, composed, within

# ----------------------------------------------------------------------------------- quantiles


RANKS = {  # method -> m and c: the rank of the quantile is (n + m) q + c, of n entries
    "linear": (-1.0, 0.0),
    "interpolated_inverted_cdf": (0.0, -1.0),
    "hazen": (0.0, -0.5),
    "weibull": (1.0, -1.0),
    "median_unbiased": (1.0 / 3.0, -2.0 / 3.0),
    "normal_unbiased": (0.25, -0.625),
}


def rank_of(numpys: Callable, values: np.ndarray, q: Any, method: str) -> tuple[Any, Any, Any]:
    """The rank of a quantile among sorted entries, and the ranks of the entries around it.

    NumPy finds it, as the quantile of the ranks. With some methods it is between two ranks; then
    its slope by q is from R. J. Hyndman, Y. Fan, "Sample quantiles in statistical packages", 1996.
    On an entry it is the slope on the right, as of ``np.interp`` at a knot, and on the last entry
    the slope on the left.
    """
    ranks = np.where(np.isnan(values), np.nan, np.arange(values.shape[-1], dtype=float))
    ranks_at: Any = numpys(ranks, plain(q), axis=-1, method=method)
    lower, upper = (np.nan_to_num(end(ranks_at)).astype(np.intp) for end in (np.floor, np.ceil))
    if q is plain(q) or method not in RANKS:
        return ranks_at, lower, upper
    last = np.sum(~np.isnan(ranks), axis=-1) - 1
    q = anp.reshape(q, shape_of(q) + (1,) * last.ndim)
    more, start = RANKS[method]
    slope = last + 1.0 + more
    unbounded = slope * plain(q) + start  # with some methods lower than the first, or higher
    is_between = (unbounded >= 0.0) & (unbounded <= last) & (last > 0)
    is_on_entry = is_between & (lower == upper)
    lower = lower - (is_on_entry & (upper == last))
    upper = lower + np.where(is_between, 1, upper - lower)
    return ranks_at + np.where(is_between, slope, 0.0) * (q - plain(q)), lower, upper


def quantile(
    numpys: Callable,
    unit: float,
    a: Any,
    q: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: Any = False,
) -> Any:
    keepdims = is_given(keepdims) and keepdims
    reduced = np.sum(plain(a), axis=axis, keepdims=keepdims)
    shape = shape_of(q) + reduced.shape
    a = axes_at_end(a, axis)
    values = plain(a)
    order = np.argsort(values, axis=-1, kind="stable")
    places = np.take_along_axis(np.arange(values.size).reshape(values.shape), order, -1)
    sorted_values = np.take_along_axis(values, order, -1)
    rank, *ends = rank_of(numpys, sorted_values, q / unit, method)
    places = np.broadcast_to(places, shape_of(rank) + places.shape[-1:])
    below, above = (
        anp.ravel(a)[np.take_along_axis(places, end[..., None], -1)[..., 0]] for end in ends
    )
    part = rank - ends[0]
    return anp.reshape(below * (1.0 - part) + above * part, shape)


def median(numpys, a, axis=None, out=None, overwrite_input=False, keepdims=False):
    return quantile(numpys, 1.0, a, 0.5, axis, keepdims=keepdims)


for numpys, of_units, of_hundreds, middle in (
    (np.quantile, anp.quantile, anp.percentile, anp.median),
    (np.nanquantile, anp.nanquantile, anp.nanpercentile, anp.nanmedian),
):
    for fun, unit in ((of_units, 1.0), (of_hundreds, 100.0)):
        program = partial(quantile, numpys, unit)
        declare(fun, program=program, arrays=2, keywords="q axis method keepdims")
    declare(middle, program=partial(median, numpys), keywords="axis keepdims")


@equivalent(anp.ptp, keywords="axis keepdims")
def ptp(a, axis=None, out=None, keepdims=np._NoValue):
    keepdims = is_given(keepdims) and keepdims
    return anp.max(a, axis=axis, keepdims=keepdims) - anp.min(a, axis=axis, keepdims=keepdims)


# ------------------------------------------------------------------------------------ averages


def aligned_weights(a, axis, weights):
    """Weights with the array's axes, if they are given for the reduced axes alone."""
    shape = shape_of(a)
    if shape_of(weights) == shape:
        return weights
    axes = axis if isinstance(axis, tuple) else (axis,)
    axes = tuple([n % len(shape) for n in axes])
    weights = anp.transpose(weights, tuple(np.argsort(axes).tolist()))
    return anp.reshape(weights, tuple([m if n in axes else 1 for n, m in enumerate(shape)]))


@equivalent(anp.average, arrays=3, keywords="axis weights returned keepdims")
def average(a, axis=None, weights=None, returned=False, *, keepdims=np._NoValue):
    keepdims = is_given(keepdims) and keepdims
    if weights is None:
        value = anp.mean(a, axis=axis, keepdims=keepdims)
        total = plain(value).dtype.type(np.size(plain(a)) / np.size(plain(value)))
    else:
        weights = aligned_weights(a, axis, weights)
        total = anp.sum(weights + anp.zeros_like(a), axis=axis, keepdims=keepdims)
        value = anp.sum(a * weights, axis=axis, keepdims=keepdims) / total
    return [value, total + anp.zeros_like(value)] if returned else value


# --------------------------------------------------------------------------------- covariances


def as_rows(x, rowvar, is_first):
    """Observations of one variable in a row."""
    is_single = np.ndim(plain(x)) < 2
    x = anp.reshape(x, (1, -1)) if is_single else x
    is_row = is_single if is_first else shape_of(x)[0] == 1
    return x if rowvar or is_row else anp.transpose(x)


@equivalent(anp.cov, arrays=7, keywords="y rowvar bias ddof fweights aweights dtype")
def cov(m, y=None, rowvar=True, bias=False, ddof=None, fweights=None, aweights=None, *, dtype=None):
    x = as_rows(m, rowvar, True)
    if y is not None:
        x = anp.concatenate([x, as_rows(y, rowvar, False)], axis=0)
    ddof = (0 if bias else 1) if ddof is None else ddof
    factors = [w for w in (fweights, aweights) if w is not None]
    weights: Any = np.ones(shape_of(x)[1], plain(x).real.dtype)
    for weight in factors:
        weights = weights * weight
    total = anp.sum(weights)
    gaps = x - anp.sum(x * weights, axis=1, keepdims=True) / total
    lost = ddof if aweights is None else ddof * anp.sum(weights * aweights) / total
    covariances = anp.dot(gaps, anp.conj(anp.transpose(gaps * weights))) / (total - lost)
    return covariances[0, 0] if shape_of(covariances) == (1, 1) else covariances


@equivalent(anp.corrcoef, arrays=2, keywords="y rowvar dtype")
def corrcoef(x, y=None, rowvar=True, *, dtype=None):
    """NumPy clips values that rounding has put beyond one; derivatives are the quotient's."""
    covariances = cov(x, y, rowvar)
    if np.ndim(plain(covariances)) == 0:
        return covariances / covariances
    spread = anp.sqrt(anp.real(anp.diagonal(covariances)))
    return covariances / spread[:, None] / spread[None, :]


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


# -------------------------------------------------------------------------------------------------
# Counting: histograms have derivatives by weights, and are constant in the places.


def bincount_adjoint(argnums, ans, args, kwargs):
    x = np.array(plain(args[0]))
    return lambda g: tuple([g[x] for _ in argnums])


declare(
    anp.bincount,
    adjoint=bincount_adjoint,
    tangent=linear_in_each(anp.bincount),
    keywords="minlength",
)
TWINS[np.bincount] = lambda x, weights=None, minlength=0: anp.bincount(
    plain(x), as_array(weights), minlength
)


@primitive
def histogram_counts(weights, a, bins, range, density):
    return np.histogram(a, bins, range, density, weights)[0]


@equivalent(histogram_counts)
def counts_of(weights, a, bins, range, density):
    _, edges = np.histogram(a, bins, range, weights=plain(weights))
    number, inside = bins_of(np.ravel(a), edges)
    counts = anp.bincount(number[inside], anp.ravel(weights)[inside], len(edges) - 1)
    return counts / np.diff(edges) / anp.sum(counts) if density else counts


@composed(np.histogram)
def histogram(
    a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> tuple[Any, np.ndarray]:
    """Constant in the places; the edges must not depend on a traced value."""
    require_constant_edges(np.histogram, a, bins, range)
    a, weights = plain(a), as_array(weights)
    counts, edges = np.histogram(a, bins, range, density, plain(weights))
    if isbox(weights):
        return histogram_counts(weights, a, bins, range, density), edges
    return counts, edges


def bins_of(a: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The bin of each place, and whether it is in one; the last of the bins has both its edges."""
    number = np.searchsorted(edges, a, side="right") - 1
    number = np.where(a == edges[-1], len(edges) - 2, number)
    return number, (number >= 0) & (a <= edges[-1])


def require_constant_edges(fun: Any, a: Any, bins: Any, range: Any) -> None:
    are_found = range is None and not isinstance(bins, list | tuple) and np.ndim(plain(bins)) == 0
    if within(bins) or within(range) or (within(a) and are_found):
        raise Refusal(
            f"np.{fun.__name__} has no derivative rule for edges that depend on a traced value; "
            f"pass bins= as plain numbers, or range=, or plain places, dg.value(...)"
        )


@composed(np.histogramdd)
def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> tuple[Any, Sequence[np.ndarray]]:
    """A histogram of places with several coordinates; ``np.histogram2d`` calls it."""
    require_constant_edges(np.histogramdd, sample, bins, range)
    rows = [plain(part) for part in sample] if isinstance(sample, list | tuple) else plain(sample)
    plain_counts, edges = np.histogramdd(rows, bins, range, density, plain(as_array(weights)))
    if not within(weights):
        return plain_counts, edges
    columns = np.atleast_2d(rows) if isinstance(rows, list) else np.atleast_2d(rows.T)
    numbers, inside = zip(*map(bins_of, columns, edges), strict=True)
    taken = np.logical_and.reduce(inside)
    place = np.ravel_multi_index([number[taken] for number in numbers], plain_counts.shape)
    counts = anp.bincount(place, as_array(weights)[taken], plain_counts.size).reshape(
        plain_counts.shape
    )
    if density:  # in NumPy's order, for its bits
        total = anp.sum(counts)
        for widths in np.meshgrid(*map(np.diff, edges), indexing="ij", sparse=True):
            counts = counts / widths
        counts = counts / total
    return counts, edges


@composed(np.histogram_bin_edges)
def histogram_bin_edges(a, bins=10, range=None, weights=None):
    """Between the least and the largest number; how many there are is constant."""
    if np.ndim(plain(as_array(bins))) == 1:
        return as_array(bins)
    count = bins
    if isinstance(bins, str):
        ends = None if range is None else tuple(map(plain, range))
        count = len(np.histogram_bin_edges(plain(as_array(a)), bins, ends)) - 1
    low, high = (anp.min(a), anp.max(a)) if range is None else range
    if plain(low) == plain(high):
        low, high = low - 0.5, high + 0.5
    return anp.linspace(low, high, count + 1)
