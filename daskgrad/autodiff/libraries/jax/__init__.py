"""The JAX backend: models compiled once a worker for each kind of call, in double precision."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from daskgrad.autodiff.libraries.jax.arrays import JaxOutputs, as_numpy, with_shape
from daskgrad.autodiff.libraries.jax.arrays import dumps as dumps
from daskgrad.autodiff.libraries.jax.arrays import loads as loads
from daskgrad.autodiff.libraries.jax.arrays import stop_gradient as stop_gradient
from daskgrad.autodiff.libraries.jax.arrays import value as value
from daskgrad.autodiff.libraries.jax.blocks import trace_block as trace_block
from daskgrad.autodiff.libraries.jax.compiled import prepare as prepare
from daskgrad.autodiff.libraries.jax.compiled import program_of
from daskgrad.autodiff.libraries.registry import GradientTape
from daskgrad.autodiff.tape.traced_call import FlatArguments, TracedCall
from daskgrad.autodiff.values.carriers import carrier
from daskgrad.autodiff.values.trees import flatten, unflatten

# -------------------------------------------------------------------------------------------------
# Reverse mode of a JAX model: the tape is JAX's own pullback, a pytree of residuals.
#
# JAX's thread-local switch allows double precision, where the arrays have it, and leaves the
# process's setting alone.


def run(fun: Callable, args: tuple, kwargs: dict) -> Any:
    """The value of a call, compiled if possible."""
    leaves, structure = flatten((args, kwargs))
    layout = FlatArguments(leaves, structure, (None,) * len(leaves))
    with jax.enable_x64(True):
        program = program_of(fun, layout)
        if program is not None:
            values = program.outputs.join_as_numpy(*program.value(layout))
            return unflatten(program.structure, values)
        leaves, structure = flatten(fun(*args, **kwargs))
        outputs = JaxOutputs()
        return unflatten(structure, outputs.join_as_numpy(*outputs.split(leaves)))


def trace(fun: Any, arrays: Sequence[Any]) -> tuple[list[Any], "JaxTape | GradientTape"]:
    """Runs ``fun`` once, compiled if possible (see ``autodiff.libraries.registry``)."""
    with jax.enable_x64(True):
        if not isinstance(fun, TracedCall):
            return trace_anew(fun, arrays)
        layout = fun.layout()
        program = program_of(fun.fun, layout)
        if program is None:
            return trace_anew(fun, arrays)
        ends, pullback, others = program.forward(layout, arrays)
        fun.structure = program.structure
        values = program.outputs.join_as_numpy(ends, others)
    if program.outputs.is_real_scalar():
        gradient = as_numpy(program.of_reached(pullback))
        return values, GradientTape(gradient, *program.outputs.places())
    return values, JaxTape(pullback, program.pull, program.outputs.places(), len(arrays))


def trace_anew(fun: Callable, arrays: Sequence[Any]) -> tuple[list[Any], "JaxTape"]:
    """Runs the Python code of ``fun``, operation by operation."""
    outputs = JaxOutputs()
    split = lambda *boxes: outputs.split(fun(*boxes))  # noqa: E731
    ends, pullback, others = jax.vjp(split, *arrays, has_aux=True)
    values = outputs.join_as_numpy(ends, others)
    return values, JaxTape(pullback, outputs.pull, outputs.places(), len(arrays))


@carrier
class JaxTape:
    """The residuals of one call: ``pull`` maps the outputs' cotangents to the arrays'."""

    pullback: Any
    apply: Callable[[Any, Sequence[Any]], Sequence[Any]]
    ends: Sequence[int]
    count: int

    def pull(self, cotangents: Sequence[Any]) -> list[Any]:
        """Maps a cotangent (or None) per output to one per array."""
        arrived = [cotangents[place] for place in self.ends]
        if all(cotangent is None for cotangent in arrived):
            return [None] * self.count
        with jax.enable_x64(True):
            return as_numpy(self.apply(self.pullback, arrived))

    def held_arrays(self) -> list[Any]:
        """The residuals, each once."""
        leaves = jax.tree_util.tree_leaves(self.pullback)
        return list({id(leaf): leaf for leaf in leaves if hasattr(leaf, "nbytes")}.values())


# -------------------------------------------------------------------------------------------------
# Forward mode of a JAX model: JAX's own linear map, in its arrays.


def linearize(
    fun: Callable[..., Sequence[Any]], arrays: Sequence[Any]
) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
    """The outputs of ``fun``, and the map from the arrays' tangents to the outputs'."""
    outputs = JaxOutputs()
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


# -------------------------------------------------------------------------------------------------
# Hints: advice for errors of models that are not written for JAX.

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
    """The hint for an error about a traced array that is used as a NumPy array."""
    is_assignment = "in-place item assignment" in str(error)
    return HINT if isinstance(error, ERRORS) or is_assignment else None


# --------------------------------------------------------------------------------- the jax backend

finds_writes = False  # JAX's arrays are constant; a model that is not compiled sees NumPy's
