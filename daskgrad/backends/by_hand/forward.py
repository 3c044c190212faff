"""Forward mode of a model that brings its gradient: tangents by the dot product."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskgrad.backends.by_hand.function import WATCHING, WithGradient
from daskgrad.backends.by_hand.gradients import Wanted
from daskgrad.backends.by_hand.reverse import evaluate
from daskgrad.values.trees import flatten, unflatten


class Mark:
    """Stands for an array, of which ``number`` is one."""

    __slots__ = ("number",)

    def __init__(self, number: int):
        self.number = number


def linearize(
    fun: Callable[..., Sequence[Any]], arrays: Sequence[Any]
) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
    """Runs ``fun`` once; returns its outputs and the map of tangents (``backends.protocol``).

    ``fun`` calls one function that brings its gradient, and passes its arguments on to it.
    """
    gradients: list[list[Any]] = []

    def watch(called: WithGradient, args: tuple, kwargs: dict) -> Any:
        leaves, structure = flatten((args, kwargs))
        places = [leaf.number if type(leaf) is Mark else None for leaf in leaves]
        leaves = [arrays[leaf.number] if type(leaf) is Mark else leaf for leaf in leaves]
        args, kwargs = unflatten(structure, leaves)
        before = WATCHING.set(None)
        try:
            wanted = Wanted(called, structure, places)
            value, gradient = evaluate(called, args, kwargs, wanted, arrays)
        finally:
            WATCHING.reset(before)
        gradients.append(gradient)
        return value

    before = WATCHING.set(watch)
    try:
        (value,) = fun(*map(Mark, range(len(arrays))))
    finally:
        WATCHING.reset(before)
    (gradient,) = gradients

    def push(tangents: Sequence[Any]) -> list[Any]:
        there = [
            np.sum(g * t).real for g, t in zip(gradient, tangents, strict=True) if t is not None
        ]
        return [np.sum(there, dtype=value.dtype)]

    return [value], push
