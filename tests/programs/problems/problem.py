"""A problem: a program to differentiate, where, and the same program in JAX."""

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any, Literal

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """A function that calls models, and the arguments it is differentiated at.

    ``kind`` is "sum" where ``map_sum`` or ``reduce_sum`` adds up terms, else "graph". A problem's
    twin in JAX has the function's name; JAX is imported when the twin is asked for.
    """

    fun: Callable[..., Any]
    primals: tuple
    is_scalar: bool
    kind: Literal["sum", "graph"]

    @property
    def name(self) -> str:
        return self.fun.__name__

    @property
    def jax_fun(self) -> Callable[..., Any]:
        return getattr(importlib.import_module("problems.jax_twins"), self.name)


def scalar(fun: Callable, *primals: Any, kind: Literal["sum", "graph"] = "graph") -> Problem:
    return Problem(fun, primals, True, kind)


def vector(fun: Callable, *primals: Any, kind: Literal["sum", "graph"] = "graph") -> Problem:
    return Problem(fun, primals, False, kind)


def drawn(seed: int, *shape: int) -> Any:
    """Normal random numbers; a bare number for no shape."""
    return np.random.default_rng(seed).normal(size=shape or None)
