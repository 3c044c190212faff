"""Matrices: Jacobians and Hessians as trees of trees of submatrices."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import optree

from daskgrad.values.cotangents import is_differentiable
from daskgrad.values.trees import flatten
from daskgrad.values.vectors import entries


def submatrices(
    value: Any, argument: Any, found: Sequence[Sequence[Any]], are_columns: bool = False
) -> Any:
    """A tree of trees of submatrices, from the rows of a matrix.

    A row belongs to one entry of the value and has the shapes of the argument's leaves; with
    ``are_columns`` it is the other way round.
    """
    outer, outer_tree = flatten(value)
    inner, inner_tree = flatten(argument)
    runs = list(pairwise(accumulate(map(entries, inner if are_columns else outer), initial=0)))

    def submatrix(place: int, other: int) -> Any:
        leaf, inner_leaf = outer[place], inner[other]
        if not is_differentiable(inner_leaf):
            return None
        own, across = (other, place) if are_columns else (place, other)
        parts = [each[across] for each in found[slice(*runs[own])]]
        shape = (*np.shape(leaf), *np.shape(inner_leaf))
        if not parts:  # an empty leaf has no rows
            return np.zeros(shape, np.result_type(leaf if are_columns else inner_leaf))
        stacked = np.stack(parts, axis=-1 if are_columns else 0)
        return np.ascontiguousarray(stacked).reshape(shape)

    made = [
        optree.tree_unflatten(inner_tree, [submatrix(place, other) for other in range(len(inner))])
        if is_differentiable(leaf)
        else None
        for place, leaf in enumerate(outer)
    ]
    return optree.tree_unflatten(outer_tree, made)
