"""Vectors: a pytree as the vector of the numbers in its differentiable leaves.

A unit or random vector is a pytree in the shape of a value, with ``None`` for other leaves.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.values.cotangents import Leaves, cast, is_differentiable, zeros
from daskgrad.autodiff.values.descriptions import describe, imported
from daskgrad.autodiff.values.trees import flatten, map_leaves, substitute, unflatten


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


# -------------------------------------------------------------------------------------------------
# Raveling: a pytree of real numbers as one vector, and back.


class Raveling:
    """How the float leaves of a pytree lie in a vector; other leaves stay as they are.

    TypeError if a leaf is complex, or none has a derivative.
    """

    def __init__(self, tree: Any, name: str):
        self._name = name
        self._leaves, self._structure = flatten(tree)
        self._places = [n for n, leaf in enumerate(self._leaves) if is_differentiable(leaf)]
        arrays = [np.asarray(self._leaves[place]) for place in self._places]
        if not arrays or any(array.dtype.kind != "f" for array in arrays):
            raise TypeError(
                f"the parameters of {name!r} must be real floating-point numbers and arrays of "
                f"them, to be a vector; found {describe(tree)}"
            )
        self._dtypes = [array.dtype for array in arrays]
        self._shapes = [array.shape for array in arrays]
        sizes = [array.size for array in arrays]
        self._ends = list(accumulate(sizes))
        self.size = self._ends[-1]

    def ravel(self, tree: Any) -> np.ndarray:
        """The vector of a pytree of this structure, in double precision."""
        leaves = self._own(tree)
        shapes = list(map(np.shape, leaves))
        if shapes != self._shapes:
            raise ValueError(
                f"the parameters of {self._name!r} have the shapes {self._shapes}; found {shapes}"
            )
        return join(leaves)

    def ravel_rows(self, tree: Any) -> np.ndarray:
        """The matrix of a pytree of arrays that have one axis more, the first: the rows."""
        leaves = self._own(tree)
        return np.concatenate([np.reshape(leaf, (len(leaf), -1)) for leaf in leaves], axis=1)

    def ravel_sparse_rows(self, tree: Any) -> Any:
        """The same of a pytree of sparse matrices, each of which has the rows."""
        sparse = imported("scipy.sparse", "scipy", "a sparse Jacobian is SciPy's")
        return sparse.hstack(self._own(tree), "csr")

    def spread(self, tree: Any, default: float) -> np.ndarray:
        """The vector of a pytree whose leaves are broadcast to these shapes.

        ``None``, for a leaf or the whole pytree, is the default.
        """
        leaves = [None] * len(self._places) if tree is None else self._own(tree)
        filled = [default if leaf is None else leaf for leaf in leaves]
        return join(map(np.broadcast_to, filled, self._shapes))

    def unravel(self, vector: Any) -> Any:
        """The pytree of a vector, with the dtypes of the first one."""
        parts = self._cut(vector)
        return unflatten(self._structure, substitute(self._leaves, self._places, parts))

    def direction(self, vector: Any) -> Any:
        """The same as a tangent: ``None`` in the places of leaves that have no derivative."""
        parts = self._cut(vector)
        none = [None] * len(self._leaves)
        return unflatten(self._structure, substitute(none, self._places, parts))

    def by_name(self, tree: Any) -> dict[str, np.ndarray]:
        """The leaves that are in the vector, in double precision, by their paths: ``"a.b.0"``."""
        paths = self._structure.paths()
        names = [".".join(map(str, paths[place])) or "x" for place in self._places]
        return dict(zip(names, [np.asarray(leaf, float) for leaf in self._own(tree)], strict=True))

    def _own(self, tree: Any) -> list[Any]:
        """The leaves that are in the vector."""
        leaves, structure = flatten(tree)
        if structure != self._structure:
            raise ValueError(
                f"the parameters of {self._name!r} have the structure {self._structure}; found "
                f"{describe(tree)}"
            )
        return [leaves[place] for place in self._places]

    def _cut(self, vector: Any) -> list[Any]:
        """The leaves that are in a vector."""
        given = np.asarray(vector)
        if given.shape != (self.size,):
            raise ValueError(
                f"the parameters of {self._name!r} are a vector of {self.size} numbers; found "
                f"{describe(vector)}"
            )
        parts = np.split(given, self._ends[:-1])
        return [
            np.array(part, dtype).reshape(shape)[()]
            for part, dtype, shape in zip(parts, self._dtypes, self._shapes, strict=True)
        ]


def join(leaves: Iterable[Any]) -> np.ndarray:
    """The entries of all leaves, one after another."""
    return np.concatenate(list(map(np.ravel, leaves)), dtype=float)
