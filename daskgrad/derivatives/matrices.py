"""Matrices: trees of trees of blocks, which Jacobians and Hessians are."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import optree

from daskgrad.values.cotangents import is_differentiable


def blocks(
    outer: Sequence[Any], inner: Sequence[Any], outer_tree: Any, inner_tree: Any, rows: Sequence
) -> Any:
    """A tree of trees of blocks, from the rows of a matrix.

    A row is of one entry of the ``outer`` leaves, and has the ``inner`` leaves' shapes.
    """
    rest = iter(rows)
    made: list[Any] = []
    for leaf in outer:
        if not is_differentiable(leaf):
            made.append(None)
            continue
        own = [next(rest) for _ in range(np.size(leaf))]
        columns = [
            block(column, leaf, other) if is_differentiable(other) else None
            for other, column in zip(inner, columns_of(own, len(inner)), strict=True)
        ]
        made.append(optree.tree_unflatten(inner_tree, columns))
    return optree.tree_unflatten(outer_tree, made)


def columns_of(rows: Sequence[Sequence[Any]], count: int) -> list[list[Any]]:
    """The ``count`` columns of a matrix, which may have no rows."""
    return [[row[number] for row in rows] for number in range(count)]


def block(rows: Sequence[Any], leaf: Any, other: Any) -> Any:
    """The block of two leaves; an empty leaf has no rows."""
    shape = (*np.shape(leaf), *np.shape(other))
    return (np.array(rows) if rows else np.zeros(shape)).reshape(shape)
