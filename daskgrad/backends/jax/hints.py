"""Hints: what to do where a model is not written for JAX."""

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
    "those that are not differentiated, too. Use jax.numpy in the place of numpy and math, "
    "jnp.where and jax.lax in the place of Python's if and loops over values, and "
    "x.at[i].set(y) in the place of x[i] = y; what decides on shapes or branches is passed as a "
    "Python int, bool or str"
)


def hint(error: Exception, stage: str) -> str | None:
    """What an error means that JAX raises where a traced array is used as a NumPy array."""
    is_assignment = "in-place item assignment" in str(error)
    return HINT if isinstance(error, ERRORS) or is_assignment else None
