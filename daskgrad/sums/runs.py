"""Runs: terms of a sum that are side by side, added many at a time along the same tree."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskgrad.backends.traced_call import SIDE_BY_SIDE, TermRun
from daskgrad.models.captured import Gradient
from daskgrad.sums.block_pullback import Terms
from daskgrad.sums.item_cotangents import Gathered, Widths
from daskgrad.values.addition import Addition
from daskgrad.values.cotangents import Leaves
from daskgrad.values.summation import PairwiseSum, sum_of_rows


class AddedTerms:
    """The sum of a block's terms so far, and what their pullback needs.

    ``are_rows`` tells of each differentiated field of the items whether it is an array with a row
    for each.
    """

    def __init__(self, addition: Addition, are_rows: Sequence[bool]):
        self.count = 0
        self._add = addition.cotangents
        self._are_rows = are_rows
        self._values = PairwiseSum(addition.values)
        self._gradients = Gathered(are_rows, self._add)
        self._scalars = 0  # terms that are one real number
        self._kept: list[Any] = []  # pullbacks of the others
        self._widths: list[Widths] = []

    def push(self, value: Any, pullback: Any, widths: Widths) -> None:
        self.count += 1
        self._values.push(value)
        is_gradient = isinstance(pullback, Gradient)
        if is_gradient:
            self._gradients.push(pullback.leaves, widths)
        if is_gradient and not pullback.is_zero:
            self._scalars += 1
        else:
            self._kept.append(pullback)
            self._widths.append(widths)

    def push_run(self, run: TermRun, in_places: Callable[[Sequence[Any]], Leaves]) -> None:
        """Adds consecutive terms, along the same tree; ``in_places`` makes a cotangent of the
        gradients of the traced arrays."""
        self.count += len(run.values)
        self._scalars += len(run.values)
        for part in self._values.subtrees(len(run.values)):
            self._values.push(sum_of_rows(run.values[part]), part.stop - part.start)
        self._gradients.push_run(run.gradients, in_places)

    @property
    def are_scalars(self) -> bool:
        """Whether no term is an array."""
        return all([isinstance(pullback, Gradient) for pullback in self._kept])

    def total(self, name: str) -> tuple[Any, Gradient | Terms]:
        """The value of the sum over the model of that name, and its pullback."""
        if self.are_scalars:
            return self._values.total(), self._gradients.gradient()
        if self._scalars:
            raise TypeError(
                f"the terms of a sum over {name!r} must be of the same kind: {self._scalars} of "
                f"{self.count} in one task returned one real number, and the others did not"
            )
        return self._values.total(), Terms(self._kept, self._widths, self._are_rows, self._add)


def side_by_side(results: Sequence[Any], arrays: Sequence[Any]) -> TermRun | None:
    """Values and gradients, in lists, as a run; None unless they are small arrays of one kind."""
    if not {tuple}.issuperset(map(type, results)):  # some are to be traced
        return None
    if sum([getattr(array, "nbytes", 0) for array in arrays]) > SIDE_BY_SIDE:
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
