"""Adding: sums of blocks, of gradients and of the cotangents of shared inputs, along the tree."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from daskgrad.autodiff.models import finite
from daskgrad.autodiff.models.captured import Captured, Gradient
from daskgrad.autodiff.models.pullbacks import NOTHING, add_cotangents, named, require_items
from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.addition import (
    ADDITIONS,
    Add,
    Subtrees,
    final_leaves,
    flatten_sum,
    pairwise,
    rounded_value,
)
from daskgrad.autodiff.values.cotangents import ONE_REAL_NUMBER, Cotangent, Unscaled, is_zero
from daskgrad.autodiff.values.descriptions import describe
from daskgrad.autodiff.values.trees import BOXES, map_leaves


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
