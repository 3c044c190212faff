"""Shortcut: value and gradient of one compiled model, by its program and nothing else."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskgrad.backends import registry
from daskgrad.derivatives.inputs import Argnums
from daskgrad.derivatives.sparse import Asked, asked_leaves
from daskgrad.graph.delayed import DelayedModel
from daskgrad.models.finite import is_debugging, is_required
from daskgrad.models.model import Model, SentFunction, inside_model
from daskgrad.tasks.clients import is_in_line
from daskgrad.values.descriptions import is_integer


def shortcut_of(
    fun: Any, argnums: Argnums, out: Any = None, sparse: Asked = False
) -> Callable[[tuple], tuple[Any, Any] | None] | None:
    """A function of the arguments that returns value and gradient, or None if the call is not a
    usual one; None if ``fun`` is not a compiled model.

    It is for calls of which nobody but the caller sees anything: in no task, model or context that
    looks at numbers, and without cluster, callbacks and chosen scheduler.
    """
    find = finder_of(fun.model) if type(fun) is DelayedModel else None
    if find is None:
        return None
    model = fun.model.fun
    numbers = tuple(map(int, np.ravel(argnums)))
    is_bare = is_integer(argnums)

    def asked(args: tuple) -> Sequence[int]:
        return asked_leaves(fun, numbers, args, sparse)

    def shortcut(args: tuple) -> tuple[Any, Any] | None:
        if is_debugging() or is_required() or inside_model() or not is_in_line():
            return None
        found = find().shortcuts((numbers, is_bare, out is not None, sparse), asked)
        return None if found is None else found(model, args if out is None else (*args, out))

    return shortcut


def finder_of(model: Model) -> Callable[[], Any] | None:
    """Finds the programs of a model's function, or None if it is not compiled in this process.

    A function with variables of another function may have others as soon as one is assigned.
    """
    if not registry.is_compiled(model.backend) or model.keep == "recompute":
        return None
    fun, prepare = model.fun, registry.load(model.backend).prepare  # type: ignore[attr-defined]
    if isinstance(fun, SentFunction):
        return None
    if getattr(fun, "__closure__", None):
        return lambda: prepare(fun).programs
    programs = prepare(fun).programs
    return lambda: programs
