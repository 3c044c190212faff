"""Vectors: a pytree as the vector of the numbers in its differentiable leaves.

A unit or random vector is a pytree in the shape of a value, with ``None`` for other leaves.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.values.cotangents import Leaves, cast, is_differentiable, zeros
from daskgrad.values.trees import flatten, map_leaves


def differentiable(value: Any) -> list[Any]:
    """The leaves that have a derivative."""
    return [leaf for leaf in flatten(value)[0] if is_differentiable(leaf)]


def entries(value: Any) -> int:
    """The number of entries in the differentiable leaves; a complex number is one entry."""
    return sum(map(np.size, differentiable(value)))


def epsilon(value: Any) -> float:
    """The epsilon of the coarsest dtype."""
    dtypes = [np.asarray(leaf).dtype for leaf in differentiable(value)]
    return max([float(np.finfo(dtype).eps) for dtype in dtypes], default=0.0)


def is_double(value: Any) -> bool:
    """Whether all numbers are real and in double precision."""
    return all(np.asarray(leaf).dtype == np.float64 for leaf in differentiable(value))


def unit(leaves: Sequence[Any], place: int) -> Leaves:
    """Arrays in the shapes of the leaves, with one entry one and all others zero, in C order."""
    made = []
    for leaf in leaves:
        zero = zeros(leaf)
        size = 0 if zero is None else np.size(zero)
        if 0 <= place < size:
            flat = np.zeros(size, np.result_type(leaf))
            flat[place] = 1.0
            zero = flat.reshape(np.shape(leaf))[()]
        made.append(zero)
        place -= size
    return tuple(made)


# ----------------------------------------------------------------------------------- directions


def random_like(value: Any, random: np.random.Generator) -> Any:
    """A random pytree in the shape of a value, with norm about one."""
    scale = np.sqrt(entries(value))

    def draw(leaf: Any) -> Any:
        if not is_differentiable(leaf):
            return None
        leaf = np.asarray(leaf)
        drawn = random.standard_normal(leaf.shape)
        if leaf.dtype.kind == "c":
            drawn = drawn + 1j * random.standard_normal(leaf.shape)
        return np.asarray(drawn / scale, dtype=leaf.dtype)[()]

    return map_leaves(draw, value)


def move_along(value: Any, t: float, direction: Any) -> Any:
    def move(leaf: Any, step: Any) -> Any:
        return leaf if step is None else cast(np.asarray(leaf + t * step), leaf)[()]

    return map_leaves(move, value, direction)


def still(value: Any) -> Any:
    """The zero direction."""
    return map_leaves(zeros, value)


def products(first: Any, second: Any) -> list[np.ndarray]:
    pairs = zip(flatten(first)[0], flatten(second)[0], strict=True)
    return [
        np.real(a * np.asarray(b, dtype=np.result_type(b, float)))
        for a, b in pairs
        if a is not None
    ]


def inner(first: Any, second: Any) -> float:
    """The inner product of two pytrees, in autograd's convention for complex numbers."""
    return float(sum([np.sum(product) for product in products(first, second)]))


def size(first: Any, second: Any) -> float:
    """The scale of the inner product's rounding error: the sum of absolute products."""
    return float(sum([np.sum(np.abs(product)) for product in products(first, second)]))


# -------------------------------------------------------------- real numbers; a complex one is two


class Kind(NamedTuple):
    """Shape and dtype of a leaf with a derivative."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @classmethod
    def of(cls, leaf: Any) -> "Kind":
        return cls(np.shape(leaf), np.asarray(leaf).dtype)

    @property
    def real(self) -> np.dtype:
        return np.zeros((), self.dtype).real.dtype

    @property
    def size(self) -> int:
        """The number of real numbers; a complex number has two."""
        return math.prod(self.shape) * self.dtype.itemsize // self.real.itemsize

    def leaf(self, numbers: np.ndarray) -> Any:
        """The leaf of these real numbers."""
        return numbers.astype(self.real, copy=False).view(self.dtype).reshape(self.shape)[()]


Kinds = Sequence[Kind | None]  # None for a leaf without derivative


def kinds(leaves: Sequence[Any]) -> tuple[Kind | None, ...]:
    return tuple([Kind.of(leaf) if is_differentiable(leaf) else None for leaf in leaves])


def count(kinds: Kinds) -> int:
    """The number of real numbers in leaves of these kinds."""
    return sum([kind.size for kind in kinds if kind is not None])


def reals(leaf: Any) -> np.ndarray:
    """The real numbers of a leaf, as a vector."""
    flat = np.ascontiguousarray(leaf).reshape(-1)
    return flat.view(flat.real.dtype)


def concatenate(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0)


def in_reals(leaves: Sequence[Any], kinds: Kinds) -> np.ndarray:
    """The real numbers in leaves of these kinds; ``None`` is zero."""
    pairs = [(leaf, kind) for leaf, kind in zip(leaves, kinds, strict=True) if kind is not None]
    return concatenate(
        [
            np.zeros(kind.size, kind.real) if leaf is None else reals(np.asarray(leaf, kind.dtype))
            for leaf, kind in pairs
        ]
    )


def split(numbers: np.ndarray, kinds: Kinds) -> Leaves:
    """The leaves of these kinds with these real numbers."""
    ends = np.cumsum([0 if kind is None else kind.size for kind in kinds])[:-1]
    pairs = zip(np.split(numbers, ends), kinds, strict=True)
    return tuple([None if kind is None else kind.leaf(part) for part, kind in pairs])
