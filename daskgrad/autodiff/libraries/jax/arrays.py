"""Arrays: the leaves of a model's value, from and to JAX, which takes and returns arrays alone."""

import copy
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from daskgrad.autodiff.values.pickling import Pickler, Pickles
from daskgrad.autodiff.values.trees import NAMESPACE, is_named, substitute

End = jax.ShapeDtypeStruct  # stands for an output with a derivative
OTHER = object()  # stands for an array without derivative


class JaxOutputs:
    """The places of arrays among the outputs of a traced function, and the other leaves.

    ``split`` runs only while the function is traced, not at every call.
    """

    __slots__ = ("slots",)

    slots: list[Any]

    def split(self, leaves: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The arrays with and without derivative."""
        leaves = [in_numpys_precision(leaf) for leaf in leaves]
        self.slots = [slot_of(leaf) for leaf in leaves]
        pairs = list(zip(leaves, self.slots, strict=True))
        ends = [leaf for leaf, slot in pairs if type(slot) is End]
        return ends, [leaf for leaf, slot in pairs if slot is OTHER]

    def join(self, ends: Sequence[Any], others: Sequence[Any]) -> list[Any]:
        """All leaves, with these arrays at their places."""
        end, other = iter(ends), iter(others)
        return [
            next(end) if type(slot) is End else next(other) if slot is OTHER else copy.copy(slot)
            for slot in self.slots
        ]

    def join_as_numpy(self, ends: Sequence[Any], others: Sequence[Any]) -> list[Any]:
        return self.join(as_numpy(ends), as_numpy(others))

    def tangents(self, ends: Sequence[Any]) -> list[Any]:
        """The tangents of the ends, and ``None`` for all other leaves."""
        return substitute([None] * len(self.slots), self.places(), ends)

    def places(self) -> list[int]:
        """The places of the outputs with a derivative."""
        return [place for place, slot in enumerate(self.slots) if type(slot) is End]

    def is_real_scalar(self) -> bool:
        """Whether one real number is the only output with a derivative."""
        ends = [self.slots[place] for place in self.places()]
        return len(ends) == 1 and ends[0].shape == () and ends[0].dtype.kind == "f"

    def pull(self, pullback: Callable, cotangents: Sequence[Any]) -> Sequence[Any]:
        """JAX's pullback of the cotangents of the ends; ``None`` is zero."""
        ends = [self.slots[place] for place in self.places()]
        return pullback([with_shape(c, end) for c, end in zip(cotangents, ends, strict=True)])


PLAIN = (np.ndarray, np.generic, bool, int, float, complex, str, bytes, type(None))


def slot_of(leaf: Any) -> Any:
    if isinstance(leaf, PLAIN):
        return leaf
    if not isinstance(leaf, jax.Array):
        raise TypeError(
            f"a model of backend 'jax' returned {type(leaf).__name__}; expected arrays, numbers "
            f"and strings, or dicts, lists, tuples and dataclasses of them that are registered "
            f"with optree in namespace {NAMESPACE!r}"
        )
    is_end = jnp.issubdtype(leaf.dtype, jnp.inexact)
    return End(leaf.shape, leaf.dtype) if is_end else OTHER


def in_numpys_precision(leaf: Any) -> Any:
    """An output in a dtype that NumPy has, so not in bfloat16."""
    if isinstance(leaf, jax.Array) and leaf.dtype == jnp.bfloat16:
        return leaf.astype(jnp.float32)
    return leaf


def as_numpy(arrays: Sequence[Any]) -> list[Any]:
    """Copies as NumPy arrays or numbers, as JAX's memory is read-only."""
    return [None if array is None else np.array(array)[()] for array in arrays]


def with_shape(value: Any, like: Any) -> Any:
    """A tangent or cotangent in the shape and dtype of its primal, as JAX demands."""
    if value is None:
        return jnp.zeros(like.shape, like.dtype)
    return jnp.asarray(value, like.dtype).reshape(like.shape)


# -------------------------------------------------------------------------------------------------
# Dependence: finds the arrays that the outputs of a traced function depend on. For all others
# JAX's pullback returns zeros, which look like derivatives.


def reached(jaxpr: Any, count: int, ends: int) -> list[bool]:
    """For the first ``count`` arguments, whether one of the first ``ends`` results uses it."""
    needed = variables(jaxpr.outvars[:ends])
    for equation in reversed(jaxpr.eqns):
        if not needed.isdisjoint(equation.outvars):
            needed |= variables(equation.invars)
    return [argument in needed for argument in jaxpr.invars[:count]]


def variables(atoms: Any) -> set[Any]:
    return {atom for atom in atoms if not isinstance(atom, Literal)}


# -------------------------------------------------------------------------------------------------
# Unboxing: numbers without derivative within a JAX model.


def stop_gradient(leaf: Any) -> Any:
    """The number without its derivative."""
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


# -------------------------------------------------------------------------------------------------
# Pickling: sends models to other processes, with JAX's functions in them.
#
# Functions with their own rules (``jax.custom_vjp``) are objects that need arguments when they are
# made, which cloudpickle does not give. Here an object that a module has under its name is sent by
# that name, and any other one is made from its function.

CUSTOM = (jax.custom_vjp, jax.custom_jvp)


class JaxPickler(Pickler):
    """cloudpickle for JAX's functions with rules of their own."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) in CUSTOM:
            if is_named(obj):
                return obj.__qualname__
            state = {name: value for name, value in vars(obj).items() if name != "fun"}
            return type(obj), (obj.fun,), state
        return super().reducer_override(obj)


dumps, loads = Pickles(JaxPickler).dumps, pickle.loads
