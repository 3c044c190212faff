"""What cuts derivatives within a JAX model."""

from typing import Any

import jax
import numpy as np


def stop_gradient(leaf: Any) -> Any:
    """The same number, without its derivative."""
    return jax.lax.stop_gradient(leaf) if isinstance(leaf, jax.Array) else leaf


def value(leaf: Any) -> Any:
    """The plain array in one of JAX's; there is none while a model is compiled."""
    if isinstance(leaf, jax.core.Tracer):
        raise TypeError(
            "dg.value was asked within a model of the JAX backend, where arrays have shapes and no "
            "values, since the model is compiled; use jax.lax.stop_gradient, jax.lax.cond and "
            "jax.debug.print, or another backend"
        )
    return np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf
