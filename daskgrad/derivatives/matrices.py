"""Matrices: Jacobians and Hessians as trees of trees of submatrices."""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import optree

from daskgrad.autodiff.models.duals import Dual
from daskgrad.autodiff.values.cotangents import is_differentiable
from daskgrad.autodiff.values.slopes import (
    SparseRows,
    as_matrix,
    dense_block,
    full_rows,
    sparse_block,
)
from daskgrad.autodiff.values.trees import NAMESPACE, flatten
from daskgrad.autodiff.values.vectors import entries


def submatrices(
    value: Any,
    argument: Any,
    rows: Sequence[Sequence[Any]],
    are_columns: bool = False,
    sparse: bool = False,
) -> Any:
    """A tree of trees of submatrices, from the rows of a matrix, each with the argument's leaves.

    ``are_columns``: ``rows`` are the columns, each with the value's leaves. ``sparse``: submatrices
    are ``SparseRows``, with all entries.
    """
    outer, inner = flatten(value)[0], flatten(argument)[0]
    runs = list(pairwise(accumulate(map(entries, inner if are_columns else outer), initial=0)))

    def submatrix(i: int, j: int) -> Any:
        run, leaf = (j, i) if are_columns else (i, j)
        parts = [row[leaf] for row in rows[slice(*runs[run])]]
        shape = (*np.shape(outer[i]), *np.shape(inner[j]))
        if parts:
            stack = np.stack(parts, axis=-1 if are_columns else 0)
            matrix = np.ascontiguousarray(stack).reshape(shape)
        else:  # an empty leaf has no rows
            matrix = np.zeros(shape, np.result_type(outer[i] if are_columns else inner[j]))
        return full_rows(matrix.reshape(np.size(outer[i]), np.size(inner[j]))) if sparse else matrix

    return tree_of_blocks(value, argument, submatrix)


def blocks(dual: Dual, argument: Any, sparse: bool) -> Any:
    """A tree of trees of submatrices, from a value with its slopes; ``sparse``: ``SparseRows``."""
    outer, inner = flatten(dual.value)[0], flatten(argument)[0]
    slopes = flatten(dual.tangents[0])[0]
    runs = list(pairwise(accumulate(map(entries, inner), initial=0)))

    def block(i: int, j: int) -> Any:
        matrix = as_matrix(slopes[i], outer[i])
        if sparse:
            return sparse_block(matrix, *runs[j])
        return dense_block(matrix, *runs[j]).reshape((*np.shape(outer[i]), *np.shape(inner[j])))

    return tree_of_blocks(dual.value, argument, block)


def tree_of_blocks(value: Any, argument: Any, block: Callable[[int, int], Any]) -> Any:
    """The value's tree with the argument's tree in the place of each leaf; ``block(i, j)`` makes
    its leaf ``j`` at leaf ``i`` of the value."""
    outer, outer_tree = flatten(value)
    inner, inner_tree = flatten(argument)

    def row(i: int) -> Any:
        return inner_tree.unflatten(
            [block(i, j) if is_differentiable(leaf) else None for j, leaf in enumerate(inner)]
        )

    return outer_tree.unflatten(
        [row(i) if is_differentiable(leaf) else None for i, leaf in enumerate(outer)]
    )


def as_scipy(tree: Any) -> Any:
    """A tree with SciPy's arrays in the places of ``SparseRows``."""

    def is_sparse(part: Any) -> bool:
        return type(part) is SparseRows

    def converted(leaf: Any) -> Any:
        return leaf.as_scipy() if is_sparse(leaf) else leaf

    return optree.tree_map(
        converted, tree, is_leaf=is_sparse, none_is_leaf=True, namespace=NAMESPACE
    )
