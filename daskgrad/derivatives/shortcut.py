"""Shortcut: value and gradient of one compiled model, by its program and nothing else."""

from collections.abc import Callable
from types import FunctionType
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
) -> "Shortcut | None":
    """The shortcut of a function, or None if it is not a compiled model."""
    find = finder_of(fun.model) if type(fun) is DelayedModel else None
    return None if find is None else Shortcut(find, fun, argnums, out, sparse)


class Shortcut:
    """Returns value and gradient of a compiled model, or None if the call is not a usual one.

    It is for calls of which nobody but the caller sees anything: in no task, model or context that
    looks at numbers, and without cluster, callbacks and chosen scheduler. What is sent of it is
    what it was made of.
    """

    __slots__ = ("_asked", "_find", "_given", "_key", "_model", "_out")

    def __init__(
        self, find: Callable[[], Any], fun: DelayedModel, argnums: Argnums, out: Any, sparse: Asked
    ):
        numbers = tuple(map(int, np.ravel(argnums)))
        self._given = fun, argnums, out, sparse
        self._key = numbers, is_integer(argnums), out is not None, sparse
        self._find, self._model, self._out = find, fun.model.fun, out
        self._asked = lambda args: asked_leaves(fun, numbers, args, sparse)

    def __reduce__(self) -> tuple:
        return shortcut_of, self._given

    def __call__(self, args: tuple) -> tuple[Any, Any] | None:
        if is_debugging() or is_required() or inside_model() or not is_in_line():
            return None
        found = self._find().shortcuts(self._key, self._asked)
        if found is None:
            return None
        return found(self._model, args if self._out is None else (*args, self._out))


def finder_of(model: Model) -> Callable[[], Any] | None:
    """Finds the programs of a model's function, or None if it is not compiled in this process.

    A function with variables of another function, or with defaults, may have other programs as soon
    as one is assigned, and any function once it gets other code.
    """
    if not registry.is_compiled(model.backend) or model.keep == "recompute":
        return None
    fun, prepare = model.fun, registry.load(model.backend).prepare  # type: ignore[attr-defined]
    if isinstance(fun, SentFunction):
        return None
    if type(fun) is FunctionType and (fun.__closure__ or fun.__defaults__ or fun.__kwdefaults__):
        return lambda: prepare(fun).programs
    programs, code = prepare(fun).programs, getattr(fun, "__code__", None)
    if code is None:
        return lambda: programs
    return lambda: programs if fun.__code__ is code else prepare(fun).programs
