"""Evaluations: calls of which only the value is wanted, as programs take calls."""

from collections.abc import Callable
from typing import Any

from daskgrad.autodiff.tape.traced_call import Layout, TracedCall
from daskgrad.autodiff.values.trees import flatten


class Evaluation(TracedCall):
    """A call of a function with its arguments, none of which is traced."""

    __slots__ = ("_args", "_kwargs")

    def __init__(self, fun: Callable, args: tuple, kwargs: dict):
        self.fun, self._args, self._kwargs = fun, args, kwargs
        self.known = None

    def __call__(self, *boxes: Any) -> list[Any]:
        return self.leaves_of(self.fun(*self._args, **self._kwargs))

    def layout(self) -> Layout:
        leaves, structure = flatten((self._args, self._kwargs))
        return Layout(leaves, structure, (None,) * len(leaves))
