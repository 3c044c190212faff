"""Raveling: a pytree of real numbers as one vector, and back."""

from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import numpy as np

from daskgrad.values.cotangents import is_differentiable
from daskgrad.values.descriptions import describe
from daskgrad.values.extras import imported
from daskgrad.values.trees import flatten, substitute, unflatten


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
