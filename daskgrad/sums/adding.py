"""Adding: the terms of a block, and blocks, along the tree; the cotangents of shared inputs."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskgrad.autodiff.models import finite
from daskgrad.autodiff.models.captured import Captured, Gradient, Pullback
from daskgrad.autodiff.models.pullbacks import NOTHING, add_cotangents, named, require_items
from daskgrad.autodiff.models.travel import Measured, Travelling
from daskgrad.autodiff.tape.traced_call import SIDE_BY_SIDE, TermRun
from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.addition import (
    ADDITIONS,
    Add,
    Addition,
    PairwiseSum,
    Subtrees,
    final_leaves,
    flatten_sum,
    pairwise,
    rounded_value,
    sum_of_rows,
)
from daskgrad.autodiff.values.cotangents import (
    ONE_REAL_NUMBER,
    Cotangent,
    Leaves,
    Unscaled,
    is_zero,
)
from daskgrad.autodiff.values.descriptions import describe
from daskgrad.autodiff.values.trees import BOXES, map_leaves
from daskgrad.sums.item_cotangents import Gathered, Widths

# -------------------------------------------------------------------------------------------------
# Terms: added as they come, with the pullbacks of terms that are arrays.


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
    """The sum of a block's terms so far, and the material of their pullback."""

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


# -------------------------------------------------------------------------------------------------
# Blocks: their sums, with gradients, and the cotangents that they return.


def round_sum(total: Captured) -> Captured:
    """A sum with its pullback, both rounded; fingerprints are of rounded values."""
    pullback = total.pullback
    if isinstance(pullback, Gradient):
        pullback = pullback.with_leaves(final_leaves(pullback.leaves))
    return Captured(rounded_value(total.value), pullback, total.seen)


def add_captured(
    blocks: Sequence[Captured],
    summation: str = "pairwise",
    is_last: bool = True,
    name: str = "sum",
    places: Sequence[Any] = (),
) -> Captured:
    """The sum of blocks of scalar terms, with its gradient; the last addition rounds it."""
    if all(block.value is NOTHING for block in blocks):
        require_items(is_last, name)
        return blocks[0]
    all_blocks, blocks = blocks, [block for block in blocks if block.value is not NOTHING]
    for block in blocks:
        require_gradient(block, name)
    with named(name, [block.value for block in all_blocks], places):
        total = pairwise(blocks, addition_of_captured(summation))
    if finite.is_required():
        subject = f"sum over {name!r}: the value or gradient"
        finite.require_sum(subject, [*flatten_sum(total.value)[0], *total.pullback.leaves])
    return round_sum(total) if is_last else total


def addition_of_captured(summation: str) -> Add:
    """The addition of two blocks of scalar terms; partial sums have no fingerprints."""
    addition = ADDITIONS[summation]

    def add(first: Captured, second: Captured, owned: bool) -> Captured:
        value = addition.values(first.value, second.value, owned)
        leaves = addition.cotangents(first.pullback.leaves, second.pullback.leaves, owned)
        return Captured(value, Gradient(leaves), first.seen, ())

    return add


class CapturedSubtrees(Subtrees):
    """The partial sums of blocks of scalar terms."""

    def __init__(self, count: int, summation: str):
        super().__init__(count, addition_of_captured(summation))

    def rounded(self) -> Captured:
        """The sum of all blocks, rounded."""
        return round_sum(self.total())


def require_gradient(block: Captured, name: str) -> None:
    if not isinstance(block.pullback, Gradient):
        raise TypeError(
            f"the gradient of a sum over {name!r} was asked for, but its terms are "
            f"{describe(rounded_value(block.value))}; {ONE_REAL_NUMBER}"
        )


def add_unscaled(
    blocks: Sequence[Cotangent], summation: str, is_last: bool, name: str = ""
) -> Cotangent:
    """The sum of the cotangents that the blocks of a sum return; the last addition rounds and
    scales it. Blocks of several dtypes have several factors: they are scaled one by one, and the
    last bits depend on the cut.
    """
    unscaled = [
        block for block in blocks if isinstance(block, Unscaled) and not is_zero(block.leaves)
    ]
    factors = [block.factor for block in unscaled]
    if not is_one_factor(factors, blocks):
        blocks, factors = [scale_by_factor(block) for block in blocks], []
    total = add_cotangents(blocks, (True,) * len(blocks), ADDITIONS[summation].cotangents, name)
    if not factors:
        return Cotangent(final_leaves(total.leaves), total.seen) if is_last else total
    waiting = Unscaled(total.leaves, total.seen, factors[0])
    if not is_last:
        return waiting
    added = scale_by_factor(waiting)
    if finite.is_required():
        subject = f"backward pass: the sum of {len(blocks)} cotangents of one value"
        finite.require_sum(subject, added.leaves)
    return added


def is_one_factor(factors: Sequence[Any], blocks: Sequence[Cotangent]) -> bool:
    """Whether the same factor waits for all blocks that are not zero, or none for any."""
    kinds = set(map(kind_of_factor, factors))
    if len(kinds) > 1 and type(factors[0]) in BOXES:
        raise factors[0].refusal("a sum asks whether its blocks have one factor")
    nonzero = len([block for block in blocks if not is_zero(block.leaves)])
    return len(kinds) <= 1 and len(factors) in (0, nonzero)


def kind_of_factor(factor: Any) -> tuple:
    """A key of equal factors; a recorded evaluation knows its factors by identity alone."""
    if type(factor) in BOXES:
        return 1.0 if factor.is_one else id(factor), factor.dtype
    return factor, np.asarray(factor).dtype


def scale_by_factor(cotangent: Cotangent) -> Cotangent:
    if isinstance(cotangent, Unscaled):
        leaves = final_leaves(cotangent.leaves)
        return Cotangent(cotangents.scale(leaves, cotangent.factor), cotangent.seen)
    return cotangent


def divide_leaves(value: Any, count: int) -> Any:
    """A mean: a value divided by a number, leaf by leaf; leaves may be boxes of a trace."""
    return map_leaves(lambda leaf: leaf / count, value)
