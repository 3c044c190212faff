"""Forward mode of a JAX model: JAX's own linear map, in its arrays."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from daskgrad.backends.jax.outputs import Outputs, with_shape


def linearize(
    fun: Callable[..., Sequence[Any]], arrays: Sequence[Any]
) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
    """The outputs of ``fun``, and the map from the arrays' tangents to theirs; in JAX's arrays."""
    outputs = Outputs()
    with jax.enable_x64(True):
        primals = [jnp.asarray(array) for array in arrays]
        ends, push_ends, others = jax.linearize(
            lambda *boxes: outputs.split(fun(*boxes)), *primals, has_aux=True
        )

    def push(tangents: Sequence[Any]) -> list[Any]:
        with jax.enable_x64(True):
            pairs = zip(tangents, primals, strict=True)
            pushed = push_ends(*[with_shape(tangent, primal) for tangent, primal in pairs])
        return outputs.tangents(pushed)

    return outputs.join(ends, others), push
