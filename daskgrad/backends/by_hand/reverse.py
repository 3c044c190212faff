"""Reverse mode of a model that brings its gradient: the tape is that gradient."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from daskgrad.backends.by_hand.function import WithGradient
from daskgrad.backends.by_hand.gradients import Wanted
from daskgrad.values.carriers import carrier
from daskgrad.values.trees import LEAF, unflatten


def trace(fun: Any, arrays: Sequence[Any]) -> tuple[list[Any], "Tape"]:
    """The value of a call, and its gradient (see ``backends.protocol``)."""
    if type(fun.fun) is not WithGradient:  # what takes tangents, which come from a gradient
        raise NotImplementedError(
            "a second derivative was asked for of a model that brings its own gradient "
            "(gradient=True): there is no rule for that gradient; leave gradient=True out, and "
            "write the model in NumPy, or take differences of gradients, dg.grad(fun)(x + h)"
        )
    layout = fun.layout()
    args, kwargs = unflatten(layout.structure, layout.leaves)
    wanted = Wanted(fun.fun, layout.structure, layout.places)
    value, gradient = evaluate(fun.fun, args, kwargs, wanted, arrays)
    fun.structure = LEAF
    return [value], Tape(gradient)


def evaluate(
    fun: WithGradient, args: Sequence[Any], kwargs: dict, wanted: Wanted, arrays: Sequence[Any]
) -> tuple[Any, list[Any]]:
    """The value of a call, and the gradient of each array."""
    pair = fun.pair(fun.fun(*args, **kwargs))
    value, cell = pair[0], [pair[1]]
    del pair  # whose references are counted
    return value, wanted.of(cell, arrays)


@carrier
class Tape:
    """The gradient of one real number, to be scaled by the cotangent. It stays in its process: it
    is as large as the arguments, and the model may run again."""

    gradient: list[Any]

    def pull(self, cotangents: Sequence[Any]) -> list[Any]:
        """Maps the cotangent (or None) to one (or None) per array."""
        (factor,) = cotangents
        if factor is None:
            return [None] * len(self.gradient)
        if factor == 1.0:
            return list(self.gradient)
        return [g.dtype.type(factor) * g for g in self.gradient]

    def held_arrays(self) -> list[np.ndarray]:
        return [g for g in self.gradient if isinstance(g, np.ndarray)]
