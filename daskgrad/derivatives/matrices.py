"""Matrices: Jacobians and Hessians as trees of trees of submatrices."""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from daskgrad.models.duals import Dual
from daskgrad.values.cotangents import is_differentiable
from daskgrad.values.slopes import as_matrix, dense_block, full_array, sparse_block
from daskgrad.values.trees import flatten
from daskgrad.values.vectors import entries


def submatrices(
    value: Any,
    argument: Any,
    found: Sequence[Sequence[Any]],
    are_columns: bool = False,
    sparse: bool = False,
) -> Any:
    """A tree of trees of submatrices, from the rows of a matrix.

    A row belongs to one entry of the value and has the shapes of the argument's leaves; with
    ``are_columns`` it is the other way round. ``sparse``: as SciPy's arrays, with all entries.
    """
    outer, inner = flatten(value)[0], flatten(argument)[0]
    runs = list(pairwise(accumulate(map(entries, inner if are_columns else outer), initial=0)))

    def submatrix(place: int, other: int) -> Any:
        leaf, inner_leaf = outer[place], inner[other]
        own, across = (other, place) if are_columns else (place, other)
        parts = [each[across] for each in found[slice(*runs[own])]]
        shape = (*np.shape(leaf), *np.shape(inner_leaf))
        if parts:
            stacked = np.stack(parts, axis=-1 if are_columns else 0)
            made = np.ascontiguousarray(stacked).reshape(shape)
        else:  # an empty leaf has no rows
            made = np.zeros(shape, np.result_type(leaf if are_columns else inner_leaf))
        return full_array(made.reshape(np.size(leaf), np.size(inner_leaf))) if sparse else made

    return tree_of_blocks(value, argument, submatrix)


def blocks(dual: Dual, argument: Any, sparse: bool) -> Any:
    """The same from a value with its slopes."""
    outer, inner = flatten(dual.value)[0], flatten(argument)[0]
    slopes = flatten(dual.tangents[0])[0]
    runs = list(pairwise(accumulate(map(entries, inner), initial=0)))

    def block(place: int, other: int) -> Any:
        matrix, columns = as_matrix(slopes[place], outer[place]), runs[other]
        if sparse:
            return sparse_block(matrix, *columns)
        shape = (*np.shape(outer[place]), *np.shape(inner[other]))
        return dense_block(matrix, *columns).reshape(shape)

    return tree_of_blocks(dual.value, argument, block)


def tree_of_blocks(value: Any, argument: Any, block: Callable[[int, int], Any]) -> Any:
    """The value's tree with the argument's in the place of each leaf, from the numbers of both."""
    outer, outer_tree = flatten(value)
    inner, inner_tree = flatten(argument)
    made = [
        inner_tree.unflatten(
            [
                block(place, other) if is_differentiable(inner_leaf) else None
                for other, inner_leaf in enumerate(inner)
            ]
        )
        if is_differentiable(leaf)
        else None
        for place, leaf in enumerate(outer)
    ]
    return outer_tree.unflatten(made)
