"""Sending models to other processes, with JAX's functions in them.

Functions with rules of their own (``jax.custom_vjp``) are objects, which cloudpickle makes without
arguments where it loads them; they do not allow that. Here one that a module has under its own name
is sent as that name, and any other one is made from its function.
"""

import pickle
import sys
from collections.abc import Callable
from typing import Any

import cloudpickle
import jax

from daskgrad.backends.pickling.functions import Pickles

CUSTOM = (jax.custom_vjp, jax.custom_jvp)


class ModelPickler(cloudpickle.Pickler):
    """cloudpickle, which knows JAX's functions with rules of their own."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) in CUSTOM:
            if is_named(obj):
                return obj.__qualname__
            state = {name: value for name, value in vars(obj).items() if name != "fun"}
            return type(obj), (obj.fun,), state, None, None, set_state
        return super().reducer_override(obj)


def is_named(obj: Any) -> bool:
    """Whether a module that others can import has an object under its name."""
    module, name = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None)
    if module in (None, "__main__") or name is None:
        return False
    return getattr(sys.modules.get(str(module)), name, None) is obj


def set_state(made: Any, state: dict) -> None:
    vars(made).update(state)


pickles = Pickles(ModelPickler)
loads = pickle.loads


def dumps(fun: Callable) -> bytes:
    """A function as bytes that ``loads`` makes a function of, in any process."""
    return pickles.dumps(fun)
