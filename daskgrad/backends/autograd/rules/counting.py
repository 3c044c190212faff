"""Counting: histograms, whose weights have derivatives; in the places they are constant."""

from collections.abc import Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.extend import primitive
from autograd.tracer import isbox

from daskgrad.backends.autograd.rules.declaration import Refusal, declare, equivalent, plain
from daskgrad.backends.autograd.rules.twins import TWINS, as_array, composed, within


def bincount_adjoint(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Any:
    x = np.array(plain(args[0]))
    return lambda g: tuple([g[x] for _ in argnums])


def bincount_tangent(argnums: tuple, tangents: Any, ans: Any, args: tuple, kwargs: dict) -> Any:
    return anp.bincount(args[0], tangents[0], *args[2:], **kwargs)


declare(anp.bincount, adjoint=bincount_adjoint, tangent=bincount_tangent, keywords="minlength")
TWINS[np.bincount] = lambda x, weights=None, minlength=0: anp.bincount(
    plain(x), as_array(weights), minlength
)


@primitive
def histogram_counts(weights: Any, a: Any, bins: Any, range: Any, density: Any) -> Any:
    return np.histogram(a, bins, range, density, weights)[0]


@equivalent(histogram_counts)
def counts_of(weights: Any, a: Any, bins: Any, range: Any, density: Any) -> Any:
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
    found, edges = np.histogram(a, bins, range, density, plain(weights))
    if isbox(weights):
        return histogram_counts(weights, a, bins, range, density), edges
    return found, edges


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
    """The same for places of several coordinates; ``np.histogram2d`` calls this one."""
    require_constant_edges(np.histogramdd, sample, bins, range)
    rows = [plain(part) for part in sample] if isinstance(sample, list | tuple) else plain(sample)
    found, edges = np.histogramdd(rows, bins, range, density, plain(as_array(weights)))
    if not within(weights):
        return found, edges
    columns = np.atleast_2d(rows) if isinstance(rows, list) else np.atleast_2d(rows.T)
    numbers, inside = zip(*map(bins_of, columns, edges), strict=True)
    taken = np.logical_and.reduce(inside)
    place = np.ravel_multi_index([number[taken] for number in numbers], found.shape)
    counts = anp.bincount(place, as_array(weights)[taken], found.size).reshape(found.shape)
    if density:  # in NumPy's order, for its bits
        total = anp.sum(counts)
        for widths in np.meshgrid(*map(np.diff, edges), indexing="ij", sparse=True):
            counts = counts / widths
        counts = counts / total
    return counts, edges


@composed(np.histogram_bin_edges)
def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
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
