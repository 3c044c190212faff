"""Block pullbacks: a block's terms while they are added, and the pullbacks of terms of arrays."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskgrad.autodiff.models.captured import Gradient, Pullback
from daskgrad.autodiff.models.travel import Measured, Travelling
from daskgrad.autodiff.tape.traced_call import SIDE_BY_SIDE, TermRun
from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.addition import Add, Addition, PairwiseSum, sum_of_rows
from daskgrad.autodiff.values.cotangents import Leaves
from daskgrad.sums.item_cotangents import Gathered, Widths


class Terms(Travelling):
    """The pullback of a sum of terms that are not scalars: the terms' pullbacks, in order.

    ``widths``: how many leaves the differentiated fields of each item have; ``add`` adds two
    cotangents.
    """

    __slots__ = ("_add", "are_rows", "pullbacks", "widths")

    def __init__(
        self,
        pullbacks: Sequence[Any] = (),
        widths: Sequence[Widths] = (),
        are_rows: Sequence[bool] = (),
        add: Add = cotangents.add,
    ):
        super().__init__()
        self.pullbacks = pullbacks
        self.widths = widths
        self.are_rows = are_rows
        self._add = add

    def __repr__(self) -> str:
        return f"Terms({len(self.pullbacks)} pullbacks)"

    def tapes(self) -> list[Any]:
        return [pullback.tape for pullback in self._with_tapes()]

    def contents(self) -> tuple[Any, ...]:
        parts = [p.contents() if isinstance(p, Pullback) else p for p in self.pullbacks]
        return parts, self.widths, self.are_rows, self._add

    def _with_tapes(self) -> list[Pullback]:
        return [pullback for pullback in self.pullbacks if isinstance(pullback, Pullback)]

    def measured(self) -> Measured:
        parts = [pullback.measured() for pullback in self._with_tapes()]
        nbytes, steps, seconds = map(sum, zip(*parts, strict=True))
        return Measured(nbytes, steps, seconds)

    def restore(self, contents: tuple[Any, ...]) -> None:
        parts, self.widths, self.are_rows, self._add = contents
        self.pullbacks = [Pullback(*p) if isinstance(p, tuple) else p for p in parts]

    def __sizeof__(self) -> int:
        held = 0 if self._packed is None else self._packed.nbytes
        return object.__sizeof__(self) + held + sum([p.__sizeof__() for p in self.pullbacks])

    @property
    def is_empty(self) -> bool:  # type: ignore[override]
        if self._packed is not None:
            return False
        return not self.pullbacks or any(pullback.is_empty for pullback in self._with_tapes())

    def __call__(
        self, cotangent: Leaves, look: Callable[[int, Leaves], None] | None = None
    ) -> tuple[Leaves, tuple[Leaves, ...]]:
        """The sum of the shared inputs' cotangents, and the items' cotangents side by side.

        ``look`` gets the number of each term and the cotangents that it returned.
        """
        gathered = Gathered(self.are_rows, self._add)
        for number, (pullback, widths) in enumerate(zip(self.pullbacks, self.widths, strict=True)):
            leaves = pullback.of_term(cotangent)
            if look is not None:
                look(number, leaves)
            gathered.push(leaves, widths)
        return gathered.total()


class AddedTerms:
    """The sum of a block's terms so far, and the material of their pullback.

    ``are_rows``: for each differentiated field of the items, whether it is an array of rows.
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

    def push_run(self, run: TermRun, gradients: Leaves, widths: Widths) -> None:
        """Adds consecutive terms and their gradients, many at a time along the same tree."""
        self.count += len(run.values)
        self._scalars += len(run.values)
        for part in self._values.subtrees(len(run.values)):
            self._values.push(sum_of_rows(run.values[part]), part.stop - part.start)
        self._gradients.push_run(len(run.values), gradients, widths)

    def end_run(self) -> None:
        self._gradients.end_run()

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
    """A list of values and gradients as a run; None unless they are small arrays of one kind."""
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
