"""Adapters: gradients where their users are, in optimisers, samplers and other frameworks.

Each is loaded when it is first used, and needs the library that it is for, an extra of the package.
"""

import functools
import importlib
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any

from daskgrad.derivatives.evaluation import compute_value
from daskgrad.derivatives.gradient import value_and_grad
from daskgrad.derivatives.inputs import as_number

ON_DEMAND = {  # the modules that define them
    "flat": "daskgrad.adapters.flat_vectors",
    "flat_residuals": "daskgrad.adapters.flat_vectors",
    "sample": "daskgrad.adapters.nuts",
    "as_pytensor": "daskgrad.adapters.pytensor_ops",
    "as_torch": "daskgrad.adapters.torch_functions",
    "as_jax": "daskgrad.adapters.jax_functions",
    "SumEstimator": "daskgrad.adapters.estimators",
}


def __getattr__(name: str) -> Any:
    if name not in ON_DEMAND:
        raise AttributeError(f"module 'daskgrad.adapters' has no attribute {name!r}")
    adapter = globals()[name] = getattr(importlib.import_module(ON_DEMAND[name]), name)
    return adapter


def __dir__() -> list[str]:
    return sorted(ON_DEMAND)


# ----------------------------------------------------------- calls from threads of other libraries


def in_this_context(fun: Callable) -> Callable:
    """A function that has, in any thread, the client and the settings of this context: samplers and
    frameworks call from threads of their own."""
    context = copy_context()

    def call(*args: Any) -> Any:
        return context.copy().run(fun, *args)  # a copy, since threads cannot share one

    return call


def value_of(fun: Callable, name: str) -> Callable[[Sequence[Any]], Any]:
    """A function of a list of arguments that returns the value alone, in any thread."""
    return in_this_context(lambda args: compute_value(as_number(fun(*args), name)))


def gradients_of(fun: Callable) -> Callable[[Sequence[int], Sequence[Any]], tuple[Any, tuple]]:
    """A function that returns the value and some gradients, in any thread; it takes the numbers of
    the arguments to differentiate, and all arguments."""
    derivative = functools.cache(functools.partial(value_and_grad, fun))

    @in_this_context
    def evaluate(numbers: Sequence[int], args: Sequence[Any]) -> tuple[Any, tuple]:
        if len(numbers) > 1:
            return derivative(tuple(numbers))(*args)
        value, gradient = derivative(numbers[0])(*args)  # a single model has a short way
        return value, (gradient,)

    return evaluate
