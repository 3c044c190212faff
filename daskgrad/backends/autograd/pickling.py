"""Pickling: sends models to other processes, with autograd's primitives in them.

A primitive is a closure, so cloudpickle sends it by value, and the copy that arrives has no rule:
autograd's table of rules has the primitive itself as key. This affects every script that imports a
primitive by name (``from autograd.scipy.special import logsumexp``) or defines one. Here a
primitive that a module has under its name is sent by that name, and any other one with its rules.
"""

import importlib
import io
import pickle
import sys
import uuid
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np
from autograd.core import JVPNode, VJPNode, primitive_jvps, primitive_vjps
from autograd.tracer import notrace_primitives, primitive

from daskgrad.backends.pickling.arrays import reduce_array, reduce_dtype
from daskgrad.backends.pickling.functions import Pickles

NODES = (VJPNode, JVPNode)


class ModelPickler(cloudpickle.Pickler):
    """cloudpickle, which knows autograd's functions, and NumPy's own dtypes."""

    def reducer_override(self, obj: Any) -> Any:
        if is_primitive(obj) or is_wrapped(obj):
            module = module_of(obj)
            if module is not None:
                return load_named, (module, obj.__name__)
        if is_primitive(obj):
            return make_primitive, (token_of(obj), obj.fun), rules_of(obj), None, None, set_rules
        if isinstance(obj, np.dtype):
            return reduce_dtype(obj)
        return super().reducer_override(obj)


class TapePickler(ModelPickler):
    """As for models; but arrays keep their strides, and an open file is refused."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, np.ndarray):
            return reduce_array(obj)
        if isinstance(obj, io.IOBase):
            raise pickle.PicklingError(f"a tape cannot be pickled: it holds the file {obj!r}")
        return super().reducer_override(obj)


dumps, loads = Pickles(ModelPickler).dumps, pickle.loads


def is_primitive(obj: Any) -> bool:
    return getattr(obj, "_is_autograd_primitive", False) is True


def is_wrapped(obj: Any) -> bool:
    """Whether an object is a closure that autograd made, and so may have a different name."""
    code = getattr(obj, "__code__", None)
    return code is not None and (getattr(obj, "__module__", None) or "").startswith("autograd.")


def module_of(obj: Any) -> str | None:
    """The module that has an object under its name: the one of the raw function, or autograd's."""
    if not obj.__name__.isidentifier():  # a lambda, of which a tape may hold thousands
        return None
    raw = getattr(getattr(obj, "fun", None), "__module__", None)
    own = [raw] if raw and raw != "__main__" else []
    autograds = [name for name in sys.modules if name.startswith("autograd.")]
    for name in (*own, *autograds):
        if getattr(sys.modules.get(name), obj.__name__, None) is obj:
            return name
    return None


def load_named(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


# --------------------------------------------------------------- primitives that are sent by value

_primitives: dict[str, Callable] = {}  # those that arrived here, so that each arrives once


def token_of(obj: Any) -> str:
    """A key of a primitive that is unique across processes."""
    if not hasattr(obj, "daskgrad_token"):
        obj.daskgrad_token = uuid.uuid4().hex
    return obj.daskgrad_token


def make_primitive(token: str, fun: Callable) -> Any:
    made: Any = _primitives.setdefault(token, primitive(fun))
    made.daskgrad_token = token
    return made


def rules_of(obj: Any) -> tuple:
    notrace = tuple([obj in notrace_primitives[node] for node in NODES])
    return primitive_vjps.get(obj), primitive_jvps.get(obj), notrace


def set_rules(made: Any, rules: tuple) -> None:
    vjp, jvp, notrace = rules
    if vjp is not None:
        primitive_vjps[made] = vjp
    if jvp is not None:
        primitive_jvps[made] = jvp
    for node, is_notrace in zip(NODES, notrace, strict=True):
        if is_notrace:
            notrace_primitives[node].add(made)
