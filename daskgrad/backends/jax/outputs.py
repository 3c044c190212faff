"""Outputs: the leaves of a model's value, of which JAX takes and returns the arrays alone."""

import copy
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from daskgrad.values.trees import NAMESPACE


class End:
    """Stands for an output that has a derivative: ``like`` has its shape and dtype."""

    def __init__(self, like: Any):
        self.like = jax.ShapeDtypeStruct(like.shape, like.dtype)


class Other:
    """Stands for an array without derivative."""


OTHER = Other()


class Outputs:
    """The outputs of a function that JAX traces: the places of arrays, and the other leaves.

    ``split`` runs only while the function is traced, not at every call.
    """

    __slots__ = ("slots",)

    slots: list[Any]

    def split(self, leaves: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The arrays with and without derivative."""
        leaves = [in_numpys_precision(leaf) for leaf in leaves]
        self.slots = [slot_of(leaf) for leaf in leaves]
        pairs = list(zip(leaves, self.slots, strict=True))
        ends = [leaf for leaf, slot in pairs if isinstance(slot, End)]
        return ends, [leaf for leaf, slot in pairs if slot is OTHER]

    def join(self, ends: Sequence[Any], others: Sequence[Any]) -> list[Any]:
        """All leaves, with these arrays at their places."""
        rest = {End: iter(ends), Other: iter(others)}
        return [
            next(rest[type(slot)]) if type(slot) in rest else copy.copy(slot) for slot in self.slots
        ]

    def tangents(self, ends: Sequence[Any]) -> list[Any]:
        """The tangents of the ends, and ``None`` for all other leaves."""
        rest = iter(ends)
        return [next(rest) if isinstance(slot, End) else None for slot in self.slots]

    def count(self) -> int:
        """The number of outputs with a derivative."""
        return sum([isinstance(slot, End) for slot in self.slots])

    def is_real_scalar(self) -> bool:
        """Whether a single real number has a derivative, and no other output."""
        likes = [like for like in self.likes() if like is not None]
        return len(likes) == 1 and likes[0].shape == () and likes[0].dtype.kind == "f"

    def likes(self) -> list[Any]:
        """Shape and dtype of each output that has a derivative, ``None`` for the others."""
        return [slot.like if isinstance(slot, End) else None for slot in self.slots]

    def dense(self, cotangents: Sequence[Any]) -> list[Any]:
        """The cotangents of the ends as JAX demands them: zeros instead of ``None``."""
        likes = [like for like in self.likes() if like is not None]
        return [with_shape(c, like) for c, like in zip(cotangents, likes, strict=True)]


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
    return End(leaf) if jnp.issubdtype(leaf.dtype, jnp.inexact) else OTHER


def in_numpys_precision(leaf: Any) -> Any:
    """An output in a dtype that NumPy has: it has no bfloat16."""
    if isinstance(leaf, jax.Array) and leaf.dtype == jnp.bfloat16:
        return leaf.astype(jnp.float32)
    return leaf


def as_numpy(arrays: Sequence[Any]) -> list[Any]:
    """Copies as NumPy arrays or numbers: JAX's own memory is read-only."""
    return [None if array is None else np.array(array)[()] for array in arrays]


def with_shape(value: Any, like: Any) -> Any:
    """A tangent or cotangent as JAX demands it: in the shape and dtype of its primal."""
    if value is None:
        return jnp.zeros(like.shape, like.dtype)
    return jnp.asarray(value, like.dtype).reshape(like.shape)
