"""Contexts: calls from threads of other libraries, as if from the thread that made the adapter."""

import functools
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any

from daskgrad.derivatives.gradient import value_and_grad


def in_this_context(fun: Callable) -> Callable:
    """The function, which sees Dask's client and what is set around here, from any thread.

    Samplers and frameworks call from threads of their own, where ``with client.as_current()`` and
    ``with dg.debug_nans()`` of the user's thread are not known.
    """
    context = copy_context()

    def call(*args: Any) -> Any:
        return context.copy().run(fun, *args)  # a copy, since threads cannot share one

    return call


def gradients_of(fun: Callable) -> Callable[[Sequence[int], Sequence[Any]], tuple[Any, tuple]]:
    """A function of the numbers of arguments, and of all of these: their gradients, and the value.

    It may be called from any thread.
    """
    derivative = functools.cache(functools.partial(value_and_grad, fun))

    @in_this_context
    def evaluate(numbers: Sequence[int], args: Sequence[Any]) -> tuple[Any, tuple]:
        if len(numbers) > 1:
            return derivative(tuple(numbers))(*args)
        value, gradient = derivative(numbers[0])(*args)  # a single model has a short way
        return value, (gradient,)

    return evaluate
