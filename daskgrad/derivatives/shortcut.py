"""Shortcut: value and gradient of one compiled model, by its program and nothing else."""

from collections.abc import Callable
from typing import Any

import numpy as np

from daskgrad.backends import registry
from daskgrad.derivatives.inputs import Argnums
from daskgrad.graph.delayed import DelayedModel
from daskgrad.models.finite import is_debugging, is_required
from daskgrad.models.model import Model, SentFunction, inside_model
from daskgrad.tasks.clients import is_in_line
from daskgrad.values.descriptions import is_integer


def shortcut_of(
    fun: Any, argnums: Argnums, out: Any = None
) -> Callable[[tuple], tuple[Any, Any] | None] | None:
    """A function of the arguments that returns value and gradient, or None if the call is not a
    usual one; None if ``fun`` is not a compiled model.

    It is for calls of which nobody but the caller sees anything: in no task, model or context that
    looks at numbers, and without cluster, callbacks and chosen scheduler.
    """
    programs = programs_of(fun.model) if type(fun) is DelayedModel else None
    if programs is None:
        return None
    model = fun.model.fun
    numbers = tuple(map(int, np.ravel(argnums)))
    is_bare = is_integer(argnums)

    def shortcut(args: tuple) -> tuple[Any, Any] | None:
        if is_debugging() or is_required() or inside_model() or not is_in_line():
            return None
        found = programs.shortcuts(numbers, is_bare, out is not None)
        return None if found is None else found(model, args if out is None else (*args, out))

    return shortcut


def programs_of(model: Model) -> Any:
    """The programs of a model's function, or None if it is not compiled in this process."""
    if model.backend not in registry.MODULES or model.keep == "recompute":
        return None
    find: Any = getattr(registry.load(model.backend), "programs_of", None)
    if find is None or isinstance(model.fun, SentFunction):
        return None
    try:
        return find(model.fun)
    except TypeError:  # there are no weak references to it
        return None
