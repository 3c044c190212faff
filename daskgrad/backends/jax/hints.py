"""Hints: advice for errors of models that are not written for JAX."""

import jax

ERRORS = (
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerBoolConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
)

HINT = (
    "a model of backend 'jax' is compiled: all its arrays and floating-point arguments are traced, "
    "also those that are not differentiated. Use jax.numpy instead of numpy and math, jnp.where "
    "and jax.lax instead of Python's if and loops over values, and x.at[i].set(y) instead of "
    "x[i] = y; pass arguments that decide on shapes or branches as Python int, bool or str"
)


def hint(error: Exception, stage: str) -> str | None:
    """The hint for an error of JAX about a traced array that is used as a NumPy array."""
    is_assignment = "in-place item assignment" in str(error)
    return HINT if isinstance(error, ERRORS) or is_assignment else None
