"""Vectors: a pytree as the vector of the numbers in its differentiable leaves.

A unit or random vector is a pytree in the shape of a value, with ``None`` for other leaves.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.values.cotangents import Leaves, cast, is_differentiable, zeros
from daskgrad.autodiff.values.descriptions import describe, imported
from daskgrad.autodiff.values.trees import flatten, map_leaves, unflatten


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
    """Arrays in the shapes of the leaves: zeros but for a one at a place, counted in C order."""
    arrays = []
    for leaf in leaves:
        array = zeros(leaf)
        size = 0 if array is None else np.size(array)
        if 0 <= place < size:
            flat = np.zeros(size, np.result_type(leaf))
            flat[place] = 1.0
            array = flat.reshape(np.shape(leaf))[()]
        arrays.append(array)
        place -= size
    return tuple(arrays)


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
    def move(leaf: Any, change: Any) -> Any:
        return leaf if change is None else cast(np.asarray(leaf + t * change), leaf)[()]

    return map_leaves(move, value, direction)


def still(value: Any) -> Any:
    """The zero direction."""
    return map_leaves(zeros, value)


def products(first: Any, second: Any) -> list[np.ndarray]:
    pairs = zip(flatten(first)[0], flatten(second)[0], strict=True)
    known = [(a, np.asarray(b, np.result_type(b, float))) for a, b in pairs if a is not None]
    return [np.real(a * b) for a, b in known]


def inner(first: Any, second: Any) -> float:
    """The inner product of two pytrees, in autograd's convention for complex numbers."""
    return float(sum([np.sum(product) for product in products(first, second)]))


def size(first: Any, second: Any) -> float:
    """The scale of the inner product's rounding error: the sum of absolute products."""
    return float(sum([np.sum(np.abs(product)) for product in products(first, second)]))


# -------------------------------------------------------------- real numbers; a complex one is two


class NumberKind(NamedTuple):
    """Shape and dtype of a leaf with a derivative."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @classmethod
    def of(cls, leaf: Any) -> "NumberKind":
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


Kinds = Sequence[NumberKind | None]  # None for a leaf without derivative


def kinds(leaves: Sequence[Any]) -> tuple[NumberKind | None, ...]:
    return tuple([NumberKind.of(leaf) if is_differentiable(leaf) else None for leaf in leaves])


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
    parts = [
        np.zeros(kind.size, kind.real) if leaf is None else reals(np.asarray(leaf, kind.dtype))
        for leaf, kind in zip(leaves, kinds, strict=True)
        if kind is not None
    ]
    return concatenate(parts)


def split(numbers: np.ndarray, kinds: Kinds) -> Leaves:
    """The leaves of these kinds with these real numbers."""
    ends = np.cumsum([0 if kind is None else kind.size for kind in kinds])[:-1]
    pairs = zip(np.split(numbers, ends), kinds, strict=True)
    return tuple([None if kind is None else kind.leaf(part) for part, kind in pairs])


# -------------------------------------------------------------------------------------------------
# Raveling: a pytree of real numbers as one vector, and back.


class Raveling:
    """The float leaves of a pytree in a vector; other leaves stay as they are.

    ``scale``: a pytree of positive numbers, which are broadcast, or None: the leaves of a vector
    are its entries times these. TypeError if a leaf is complex, or none has a derivative.
    """

    def __init__(self, tree: Any, name: str, scale: Any = None):
        self.name = name
        self._leaves, self._structure = flatten(tree)
        self._kinds = kinds(self._leaves)
        known = [kind for kind in self._kinds if kind is not None]
        if not known or any(kind.dtype.kind != "f" for kind in known):
            raise TypeError(
                f"the parameters of {name!r} must be real floating-point numbers and arrays of "
                f"them, to be a vector; found {describe(tree)}"
            )
        self._shapes = [kind.shape for kind in known]
        self.size = count(known)
        self.scale = self.spread(scale, 1.0)
        if not np.all((self.scale > 0.0) & np.isfinite(self.scale)):
            raise ValueError(
                f"the scale of the parameters of {name!r} must be positive numbers, typical sizes; "
                f"found {self.scale.min():g} to {self.scale.max():g}"
            )

    def ravel(self, tree: Any) -> np.ndarray:
        """The vector of a pytree of this structure, in double precision."""
        leaves = self._floats(tree)
        shapes = list(map(np.shape, leaves))
        if shapes != self._shapes:
            raise ValueError(
                f"the parameters of {self.name!r} have the shapes {self._shapes}; found {shapes}"
            )
        return joined(leaves)

    def ravel_rows(self, tree: Any) -> np.ndarray:
        """The matrix of a pytree of arrays with a first axis more: the rows."""
        leaves = self._floats(tree)
        return np.concatenate([np.reshape(leaf, (len(leaf), -1)) for leaf in leaves], axis=1)

    def ravel_matrix(self, tree: Any) -> np.ndarray:
        """The matrix of a pytree with a pytree for each leaf, which is its rows: a Hessian."""
        parts = zip(self._structure.flatten_up_to(tree), self._kinds, strict=True)
        blocks = [
            self.ravel_rows(map_leaves(functools.partial(as_rows, kind.size), part))
            for part, kind in parts
            if kind is not None
        ]
        return np.concatenate(blocks)

    def ravel_sparse_rows(self, tree: Any) -> Any:
        """The matrix of a pytree of sparse matrices, each with the rows."""
        sparse = imported("scipy.sparse", "scipy", "a sparse Jacobian is SciPy's")
        return sparse.hstack(self._floats(tree), "csr")

    def spread(self, tree: Any, default: float) -> np.ndarray:
        """The vector of a pytree with leaves that are broadcast to these shapes.

        ``None``, for a leaf or the whole pytree, is the default.
        """
        leaves = [None] * len(self._shapes) if tree is None else self._floats(tree)
        filled = [default if leaf is None else leaf for leaf in leaves]
        return joined(map(np.broadcast_to, filled, self._shapes))

    def unravel(self, vector: Any) -> Any:
        """The pytree of a vector, with the dtypes of the first one, and its Python floats."""
        pairs = zip(self._cut(vector), self._leaves, strict=True)
        leaves = [
            leaf if part is None else float(part) if type(leaf) is float else part
            for part, leaf in pairs
        ]
        return unflatten(self._structure, leaves)

    def direction(self, vector: Any) -> Any:
        """The pytree of a tangent: ``None`` for leaves that have no derivative."""
        return unflatten(self._structure, self._cut(vector))

    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """For each entry its row in the leaves with the most common first axis, and its place in
        that row; -1 for entries of other leaves.
        """
        lengths = {shape[0]: 0 for shape in self._shapes if shape}
        for shape in self._shapes:
            if shape:
                lengths[shape[0]] += math.prod(shape)
        length = max(lengths, key=lengths.__getitem__, default=0)
        rows, columns, width = [], [], 0
        for shape in self._shapes:
            row, column = np.full((2, *shape), -1)
            if shape and shape[0] == length:
                row, column = np.indices((length, math.prod(shape[1:])))
                column, width = column + width, width + math.prod(shape[1:])
            rows.append(np.ravel(row))
            columns.append(np.ravel(column))
        return np.concatenate(rows), np.concatenate(columns)

    @property
    def names(self) -> list[str]:
        """A name for each entry of the vector: ``"a.b[0, 1]"``."""
        return [
            f"{path}[{', '.join(map(str, index))}]" if index else path
            for path, shape in zip(self._paths, self._shapes, strict=True)
            for index in np.ndindex(*shape)
        ]

    @property
    def _paths(self) -> list[str]:
        paths = zip(self._structure.paths(), self._kinds, strict=True)
        return [".".join(map(str, path)) or "x" for path, kind in paths if kind is not None]

    def by_name(self, tree: Any) -> dict[str, np.ndarray]:
        """The leaves in the vector, in double precision, by their paths: ``"a.b.0"``."""
        leaves = [np.asarray(leaf, float) for leaf in self._floats(tree)]
        return dict(zip(self._paths, leaves, strict=True))

    def _floats(self, tree: Any) -> list[Any]:
        """The leaves that go into the vector."""
        leaves, structure = flatten(tree)
        if structure != self._structure:
            raise ValueError(
                f"the parameters of {self.name!r} have the structure {self._structure}; found "
                f"{describe(tree)}"
            )
        pairs = zip(leaves, self._kinds, strict=True)
        return [leaf for leaf, kind in pairs if kind is not None]

    def _cut(self, vector: Any) -> list[Any]:
        """The leaves in a vector, each with its own memory."""
        numbers = np.asarray(vector)
        if numbers.shape != (self.size,):
            raise ValueError(
                f"the parameters of {self.name!r} are a vector of {self.size} numbers; found "
                f"{describe(vector)}"
            )
        leaves = split(self.scale * numbers, self._kinds)
        return [None if leaf is None else leaf.copy() for leaf in leaves]


def as_rows(count: int, leaf: Any) -> Any:
    """An array with its first axes, of ``count`` entries, as one."""
    return leaf if leaf is None else np.reshape(leaf, (count, -1))


def joined(leaves: Iterable[Any]) -> np.ndarray:
    """The entries of all leaves, one after another."""
    return np.concatenate(list(map(np.ravel, leaves)), dtype=float)
