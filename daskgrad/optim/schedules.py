"""Schedules: rates as functions of the number of the step, 0, 1, 2 ..."""

import math
from collections.abc import Callable, Mapping

from daskgrad.optim.optimiser import Rate, rate_at, require_number, require_rate
from daskgrad.values.descriptions import describe

Schedule = Callable[[int], float]


def exponential(rate: float, factor: float, every: int = 1) -> Schedule:
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


def cosine(rate: float, steps: int, least: float = 0.0) -> Schedule:
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


def piecewise(rates: Mapping[int, float]) -> Schedule:
    """The rate that each step begins to have: ``{0: 1e-2, 1000: 1e-3}``.

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


def warm_up(rate: Rate, steps: int) -> Schedule:
    """Rises linearly over the first steps, to the rate, or to that of a schedule.

    Examples
    --------
    >>> rate = dg.optim.warm_up(dg.optim.exponential(1.0, 0.5, every=10), 4)
    >>> [round(rate(step), 2) for step in range(4)]
    [0.25, 0.47, 0.65, 0.81]
    """
    require_rate(rate)
    require_number(steps, "steps", 1)
    return lambda step: rate_at(rate, step) * min((step + 1) / steps, 1.0)
