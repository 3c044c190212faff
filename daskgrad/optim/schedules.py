"""Schedules: rates as functions of a step's number, 0, 1, 2 ...; clipped gradients."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from daskgrad.autodiff.values import fingerprints
from daskgrad.autodiff.values.descriptions import describe
from daskgrad.autodiff.values.rows import Rows
from daskgrad.autodiff.values.trees import flatten, map_leaves
from daskgrad.optim.optimiser import Rate, rate_at, require_number, require_rate

RateSchedule = Callable[[int], float]


def exponential(rate: float, factor: float, every: int = 1) -> RateSchedule:
    """``rate * factor**(step / every)``.

    Examples
    --------
    >>> rate = dg.optim.exponential(1.0, 0.5, every=10)
    >>> rate(0), rate(10), rate(20)
    (1.0, 0.5, 0.25)
    """
    require_number(rate, "the rate", 0.0)
    require_number(factor, "the factor", 0.0)
    require_number(every, "every", 1)
    return lambda step: rate * factor ** (step / every)


def cosine(rate: float, steps: int, least: float = 0.0) -> RateSchedule:
    """From ``rate`` to ``least`` along half a cosine in so many steps, and then ``least``.

    I. Loshchilov, F. Hutter, "SGDR: stochastic gradient descent with warm restarts", ICLR 2017,
    without restarts.

    Examples
    --------
    >>> rate = dg.optim.cosine(1.0, 10)
    >>> rate(0), round(rate(5), 3), rate(10), rate(11)
    (1.0, 0.5, 0.0, 0.0)
    """
    require_number(rate, "the rate", 0.0)
    require_number(steps, "steps", 1)
    require_number(least, "least", 0.0)

    def cosine_rate(step: int) -> float:
        done = min(step / steps, 1.0)
        return least + (rate - least) * (1.0 + math.cos(math.pi * done)) / 2.0

    return cosine_rate


def piecewise(rates: Mapping[int, float]) -> RateSchedule:
    """Rates by the number of the first step that has them: ``{0: 1e-2, 1000: 1e-3}``.

    Examples
    --------
    >>> rate = dg.optim.piecewise({0: 0.1, 100: 0.01})
    >>> rate(0), rate(99), rate(100)
    (0.1, 0.1, 0.01)
    """
    if 0 not in rates:
        raise ValueError(f"the rates must begin at step 0; found {describe(dict(rates))}")
    for start, rate in rates.items():
        require_number(rate, f"the rate from step {start} on", 0.0)
    starts = sorted(rates)
    return lambda step: rates[max([start for start in starts if start <= step])]


def warm_up(rate: Rate, steps: int) -> RateSchedule:
    """Rises linearly over the first steps to a rate, or to a schedule's.

    Examples
    --------
    >>> rate = dg.optim.warm_up(dg.optim.exponential(1.0, 0.5, every=10), 4)
    >>> [round(rate(step), 2) for step in range(4)]
    [0.25, 0.47, 0.65, 0.81]
    """
    require_rate(rate)
    require_number(steps, "steps", 1)
    return lambda step: rate_at(rate, step) * min((step + 1) / steps, 1.0)


# -------------------------------------------------------------------------------------------------
# Clipping: gradients of limited length.


def norm(gradients: Any) -> float:
    """The 2-norm of all arrays, numbers and ``Rows`` of a pytree; other leaves do not count.

    Examples
    --------
    >>> dg.optim.norm({"w": np.array([3.0, 4.0]), "b": 12.0})
    13.0
    """
    leaves = flatten(gradients)[0]
    arrays = [leaf.values if isinstance(leaf, Rows) else np.asarray(leaf) for leaf in leaves]
    norms = [
        fingerprints.norm(np.ravel(array).astype(np.result_type(array, np.float64)))
        for array in arrays
        if array.dtype.kind in "fc"
    ]
    return fingerprints.norm(np.array(norms, np.float64))


def clip_by_norm(gradients: Any, limit: float) -> Any:
    """The gradients, scaled so that the norm of all leaves together is at most ``limit``.

    Examples
    --------
    >>> dg.optim.clip_by_norm({"w": np.array([3.0, 4.0])}, 1.0)
    {'w': array([0.6, 0.8])}
    """
    require_number(limit, "the limit", 0.0)
    length = norm(gradients)
    if not length > limit:
        return gradients

    def scaled(leaf: Any) -> Any:
        dtype = leaf.dtype if isinstance(leaf, Rows) else np.asarray(leaf).dtype
        return leaf * dtype.type(limit / length) if dtype.kind in "fc" else leaf

    return map_leaves(scaled, gradients)
