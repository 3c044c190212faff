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
    is_differentiable,
    is_zero,
)
from daskgrad.autodiff.values.descriptions import describe
from daskgrad.autodiff.values.trees import BOXES, flatten, map_leaves
from daskgrad.sums.item_cotangents import Gathered, Widths

# -------------------------------------------------------------------------------------------------
# Terms: added as they come, with the pullbacks of terms that are arrays.


class Terms(Travelling):
    """The pullback of a sum of terms that are not scalars: the terms' pullbacks, in order.

    ``widths``: how many leaves the differentiated fields of each item have; ``add`` adds two
    cotangents. ``dtypes``: of the leaves of each term, if terms differ: each term gets the sum's
    cotangent in its own dtypes, so that no bit depends on the terms beside it.
    """

    __slots__ = ("_add", "are_rows", "dtypes", "pullbacks", "widths")

    def __init__(
        self,
        pullbacks: Sequence[Any] = (),
        widths: Sequence[Widths] = (),
        are_rows: Sequence[bool] = (),
        add: Add = cotangents.add,
        dtypes: Sequence[Leaves] | None = None,
    ):
        super().__init__()
        self.dtypes = dtypes
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
        return parts, self.widths, self.are_rows, self._add, self.dtypes

    def _with_tapes(self) -> list[Pullback]:
        return [pullback for pullback in self.pullbacks if isinstance(pullback, Pullback)]

    def measured(self) -> Measured:
        parts = [pullback.measured() for pullback in self._with_tapes()]
        nbytes, steps, seconds = map(sum, zip(*parts, strict=True))
        return Measured(nbytes, steps, seconds)

    def restore(self, contents: tuple[Any, ...]) -> None:
        parts, self.widths, self.are_rows, self._add, self.dtypes = contents
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

        ``cotangent``: of the block's value, or of the whole sum's if the terms have several dtypes;
        ``look`` gets the number of each term and the cotangents that it returned.
        """
        gathered = Gathered(self.are_rows, self._add)
        for number, (pullback, widths) in enumerate(zip(self.pullbacks, self.widths, strict=True)):
            of_term = cotangent
            if self.dtypes is not None:
                of_term = tuple(map(cotangents.in_dtype, cotangent, self.dtypes[number]))
            leaves = pullback.of_term(of_term)
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
        self._dtypes: list[Any] = []  # of their values

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
            self._dtypes.append(dtypes_of(value))

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
        dtypes = self._dtypes if len(set(self._dtypes)) > 1 else None
        pullback = Terms(self._kept, self._widths, self._are_rows, self._add, dtypes)
        return self._values.total(), pullback


class TermsInTurn:
    """Takes the terms of several sums, one after the other, so many of each."""

    def __init__(self, sums: Sequence[AddedTerms], sizes: Sequence[int]):
        self._sums = sums
        self._left = list(zip(sums, sizes, strict=True))[::-1]

    def _next(self, most: int) -> tuple[AddedTerms, int]:
        """The sum of the next terms, and how many of at most so many are its."""
        terms, left = self._left.pop()
        if left > most:
            self._left.append((terms, left - most))
        return terms, min(left, most)

    def push(self, value: Any, pullback: Any, widths: Widths) -> None:
        self._next(1)[0].push(value, pullback, widths)

    def push_run(self, run: TermRun, gradients: Leaves, widths: Widths) -> None:
        start, count = 0, len(run.values)
        while start < count:
            terms, size = self._next(count - start)
            part = slice(start, start + size)
            rows = tuple([x if x is None else x[part] for x in gradients])
            terms.push_run(run._replace(values=run.values[part]), rows, widths)
            start += size

    def end_run(self) -> None:
        for terms in self._sums:
            terms.end_run()


def dtypes_of(value: Any) -> Leaves:
    """The dtype of each leaf of a value, None for a leaf without derivative."""
    leaves = (value,) if type(value) is np.ndarray else flatten(value)[0]
    return tuple([np.result_type(leaf) if is_differentiable(leaf) else None for leaf in leaves])


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
    scales it, by the sum's own cotangent, whatever the dtypes of the blocks are. If terms of some
    blocks are real numbers and others are complex, each block is scaled: bits depend on the cut.
    """
    nonzero = [block for block in blocks if not is_zero(block.leaves)]
    factors = [block.factor for block in nonzero if isinstance(block, Unscaled)]
    if len(factors) not in (0, len(nonzero)):
        blocks, factors = list(map(scale_by_factor, blocks)), []
    if factors and type(factors[0]) in BOXES:  # a recording knows them by identity alone
        if len({1.0 if factor.is_one else id(factor) for factor in factors}) > 1:
            raise factors[0].refusal("a sum asks whether its blocks have one factor")
    total = add_cotangents(blocks, (True,) * len(blocks), ADDITIONS[summation].cotangents, name)
    if not factors:
        return Cotangent(final_leaves(total.leaves), total.seen) if is_last else total
    if not is_last:
        return Unscaled(total.leaves, total.seen, factors[0])
    added = scale_by_factor(Unscaled(total.leaves, total.seen, factors[0]))
    if finite.is_required():
        subject = f"backward pass: the sum of {len(blocks)} cotangents of one value"
        finite.require_sum(subject, added.leaves)
    return added


def scale_by_factor(cotangent: Cotangent) -> Cotangent:
    if isinstance(cotangent, Unscaled):
        leaves = final_leaves(cotangent.leaves)
        return Cotangent(cotangents.scale(leaves, cotangent.factor), cotangent.seen)
    return cotangent


def divide_leaves(value: Any, count: int) -> Any:
    """A mean: a value divided by a number, leaf by leaf; leaves may be boxes of a trace."""
    return map_leaves(lambda leaf: leaf / count, value)
