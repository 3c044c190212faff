"""Models of uneven size, for the benchmarks of sums: growth curves of about a millisecond each.

An item is one plot of plants: five covariates, and the sizes of its plants at its own number of
times. Its four rates are exponentials of linear forms of the covariates, whose twenty coefficients
all items share. The sizes follow Euler's steps of logistic growth under crowding; the model is the
squared misfit of their logarithms. The numbers of plants and times differ from item to item.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import autograd
import autograd.numpy as np
import numpy

COVARIATES, RATES = 5, 4


class Plot(NamedTuple):
    covariates: Any  # COVARIATES numbers
    sizes: Any  # a row of logarithms for each time, a column for each plant


def start() -> numpy.ndarray:
    """The point from which a fit would start: COVARIATES * RATES coefficients."""
    return 0.05 * numpy.random.default_rng(1).standard_normal(COVARIATES * RATES) - 0.2


def make_items(count: int) -> list[Plot]:
    random = numpy.random.default_rng(0)
    return [make_item(random) for _ in range(count)]


def make_item(random: numpy.random.Generator) -> Plot:
    times, plants = random.integers(1, 9), random.integers(5, 41)
    sizes = numpy.cumsum(random.uniform(0.0, 0.1, (times, plants)), axis=0)
    return Plot(random.uniform(0.5, 1.5, COVARIATES), sizes)


def misfit(plot: Plot, coefficients: Any) -> Any:
    forms = np.dot(np.reshape(coefficients, (RATES, COVARIATES)), plot.covariates)
    growth, capacity, crowding, first = np.exp(forms)
    size, total = first * np.ones(plot.sizes.shape[1]), 0.0
    for observed in plot.sizes:
        share = crowding * np.mean(size)
        size = size + 0.1 * growth * size * (1.0 - size / capacity - share)
        total = total + np.sum((observed - np.log(size)) ** 2)
    return total


def loop_over(model: Callable) -> Callable:
    """Value and gradient of the sum over items, as one writes it with autograd alone."""
    value_and_grad = autograd.value_and_grad(model, 1)

    def loop(items: Sequence[Any], point: numpy.ndarray) -> tuple[float, numpy.ndarray]:
        value, gradient = 0.0, numpy.zeros_like(point)
        for item in items:
            term, its_gradient = value_and_grad(item, point)
            value += term
            gradient += its_gradient
        return value, gradient

    return loop


loop = loop_over(misfit)


# --------------------------------------------------------------------------- smaller models


class Group(NamedTuple):
    """The outcomes of a few persons: zero or one, with five covariates of each."""

    covariates: Any
    outcomes: Any


def small_start() -> numpy.ndarray:
    """Five coefficients, and the logarithm of the effects' spread."""
    return 0.1 * numpy.random.default_rng(2).standard_normal(COVARIATES + 1)


def make_groups(count: int) -> list[Group]:
    random = numpy.random.default_rng(3)
    sizes = 5 * random.integers(1, 9, count)
    return [
        Group(random.standard_normal((size, COVARIATES)), 1.0 * (random.random(size) < 0.4))
        for size in sizes
    ]


def small_misfit(group: Group, p: Any) -> Any:
    """Minus the log-likelihood of a group, with its effect at three places."""
    forms = np.dot(group.covariates, p[:COVARIATES])
    total = 0.0
    for place in (-1.2, 0.0, 1.2):
        shifted = forms + place * np.exp(p[COVARIATES])
        total = total + np.exp(
            np.sum(group.outcomes * shifted - np.log1p(np.exp(shifted))) / len(group.outcomes)
        )
    return -np.log(total)


small_loop = loop_over(small_misfit)
