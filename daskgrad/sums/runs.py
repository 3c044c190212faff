"""Runs: terms of a sum that are side by side, added many at a time along the same tree."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskgrad.backends.traced_call import TermRun
from daskgrad.sums.item_cotangents import Gathered
from daskgrad.values.cotangents import Leaves
from daskgrad.values.summation import PairwiseSum, sum_of_rows

SMALL = 2**14  # bytes of a gradient: to copy a larger one takes longer than to add it


def add_run(
    run: TermRun,
    values: PairwiseSum,
    gradients: Gathered,
    in_places: Callable[[Sequence[Any]], Leaves],
) -> None:
    """Adds terms; ``in_places`` makes a cotangent of the gradients of the traced arrays."""
    for part in values.subtrees(len(run.values)):
        values.push(sum_of_rows(run.values[part]), part.stop - part.start)
    gradients.push_run(run.gradients, in_places)


def side_by_side(results: Sequence[Any], arrays: Sequence[Any]) -> TermRun | None:
    """Values and gradients, in lists, as a run; None unless they are small arrays of one kind."""
    if None in results or sum([getattr(array, "nbytes", 0) for array in arrays]) > SMALL:
        return None
    values = [value for value, _ in results]
    if set(map(type, values)) != {np.float64}:
        return None
    columns = list(zip(*[gradient for _, gradient in results], strict=True))
    for array, column in zip(arrays, columns, strict=True):
        if type(array) is not np.ndarray or set(map(type, column)) != {np.ndarray}:
            return None
        if any([g.dtype is not array.dtype or g.shape != array.shape for g in column]):
            return None
    return TermRun(np.array(values), [np.array(column) for column in columns])
