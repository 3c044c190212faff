"""Pickling: sends models to other processes, with JAX's functions in them.

Functions with their own rules (``jax.custom_vjp``) are objects that cannot be made without
arguments, as cloudpickle does when it loads them. Here an object that a module has under its name
is sent by that name, and any other one is made from its function.
"""

import pickle
from typing import Any

import jax

from daskgrad.backends.pickling.functions import Pickles
from daskgrad.backends.pickling.pickler import Pickler
from daskgrad.values.closures import is_named

CUSTOM = (jax.custom_vjp, jax.custom_jvp)


class ModelPickler(Pickler):
    """cloudpickle, which knows JAX's functions with rules of their own."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) in CUSTOM:
            if is_named(obj):
                return obj.__qualname__
            state = {name: value for name, value in vars(obj).items() if name != "fun"}
            return type(obj), (obj.fun,), state
        return super().reducer_override(obj)


dumps, loads = Pickles(ModelPickler).dumps, pickle.loads
