"""Unboxing: numbers without derivative within a JAX model."""

from typing import Any

import jax
import numpy as np


def stop_gradient(leaf: Any) -> Any:
    """The same number, without its derivative."""
    return jax.lax.stop_gradient(leaf) if isinstance(leaf, jax.Array) else leaf


def value(leaf: Any) -> Any:
    """A JAX array as a plain array; an error while a model is compiled."""
    if isinstance(leaf, jax.core.Tracer):
        raise TypeError(
            "dg.value cannot be used within a model of the JAX backend: the model is compiled, so "
            "its arrays have no values; use jax.lax.stop_gradient, jax.lax.cond and "
            "jax.debug.print, or a different backend"
        )
    return np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf
