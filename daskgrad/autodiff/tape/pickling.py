"""Pickling: sends models to other processes, with autograd's primitives in them.

A primitive is a closure, so cloudpickle sends it by value, and the copy that arrives has no rule:
autograd's table of rules has the primitive itself as key. This affects every script that imports a
primitive by name (``from autograd.scipy.special import logsumexp``) or defines one. Here a
primitive that a module has under its name is sent by that name, and any other one with its rules.
"""

import functools
import importlib
import io
import math
import pickle
import sys
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
from autograd.core import JVPNode, VJPNode, primitive_jvps, primitive_vjps
from autograd.tracer import notrace_primitives, primitive

from daskgrad.autodiff.values.pickling import Pickler, Pickles

NODES = (VJPNode, JVPNode)


class AutogradPickler(Pickler):
    """Knows autograd's functions, too."""

    def reducer_override(self, obj: Any) -> Any:
        if is_primitive(obj) or is_wrapped(obj):
            name = name_of(obj)
            if name is not None:
                return load_named, name
        if is_primitive(obj):
            return make_primitive, (token_of(obj), obj.fun), rules_of(obj), None, None, set_rules
        return super().reducer_override(obj)


class TapePickler(AutogradPickler):
    """Views share their memory; arrays that would lose their strides are refused."""

    most = math.inf

    def reducer_override(self, obj: Any) -> Any:
        reduced = super().reducer_override(obj)
        if isinstance(obj, np.ndarray) and reduced is NotImplemented and not obj.flags.forc:
            kind = type(obj).__name__
            raise pickle.PicklingError(
                f"a {kind} with strides {obj.strides} cannot be pickled: it would lose them"
            )
        if isinstance(obj, io.IOBase):
            raise pickle.PicklingError(f"a tape cannot be pickled: it holds the file {obj!r}")
        return reduced


dumps, loads = Pickles(AutogradPickler).dumps, pickle.loads


def is_primitive(obj: Any) -> bool:
    return getattr(obj, "_is_autograd_primitive", False) is True


def is_wrapped(obj: Any) -> bool:
    """Whether an object is a closure that autograd made, and so may have a different name."""
    code = getattr(obj, "__code__", None)
    return code is not None and (getattr(obj, "__module__", None) or "").startswith("autograd.")


def name_of(obj: Any) -> tuple[str, str] | None:
    """The module of autograd's or daskgrad's that has an object, and its name there."""
    name = names_in_modules(len(sys.modules)).get(id(obj))
    return name if name is not None and load_named(*name) is obj else None


@functools.lru_cache(1)
def names_in_modules(count: int) -> dict[int, tuple[str, str]]:
    """The names of all functions there, by their ids; autograd's own modules before daskgrad's."""
    return {
        id(thing): (module, name)
        for module in sorted(sys.modules, reverse=True)
        if module.partition(".")[0] in ("autograd", "daskgrad")
        for name, thing in list(vars(sys.modules[module]).items())
        if callable(thing)
    }


def load_named(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


# --------------------------------------------------------------- primitives that are sent by value

_own: dict[str, Callable] = {}  # made in this process; pickles of them change nothing
_primitives: dict[str, Callable] = {}  # arrived here, each once


def token_of(obj: Any) -> str:
    """A key of a primitive that is unique across processes."""
    if not hasattr(obj, "daskgrad_token"):
        obj.daskgrad_token = uuid.uuid4().hex
        _own[obj.daskgrad_token] = obj
    return obj.daskgrad_token


def make_primitive(token: str, fun: Callable) -> Any:
    made: Any = _own.get(token) or _primitives.setdefault(token, primitive(fun))
    made.daskgrad_token = token
    return made


def rules_of(obj: Any) -> tuple:
    notrace = tuple([obj in notrace_primitives[node] for node in NODES])
    return primitive_vjps.get(obj), primitive_jvps.get(obj), notrace


def set_rules(made: Any, rules: tuple) -> None:
    if made.daskgrad_token in _own:
        return
    vjp, jvp, notrace = rules
    if vjp is not None:
        primitive_vjps[made] = vjp
    if jvp is not None:
        primitive_jvps[made] = jvp
    for node, is_notrace in zip(NODES, notrace, strict=True):
        if is_notrace:
            notrace_primitives[node].add(made)
