"""Adding: the sums of blocks, in a tree; values, gradients, and the cotangents of shared inputs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from daskgrad.models.accumulation import add_cotangents
from daskgrad.models.captured import Captured, Gradient, Seen
from daskgrad.models.determinism import Added, print_of
from daskgrad.models.model import Model
from daskgrad.values import cotangents
from daskgrad.values.addition import ADDERS
from daskgrad.values.compensated import final_leaves, rounded_value
from daskgrad.values.cotangents import ONE_REAL_NUMBER, Cotangent, Part, is_zero
from daskgrad.values.descriptions import describe
from daskgrad.values.fingerprints import Fingerprint
from daskgrad.values.summation import pairwise


class Nothing:
    """The value of a block without items, of which there is one: adding it changes nothing."""

    def __reduce__(self) -> str:
        return "NOTHING"

    def __repr__(self) -> str:
        return "NOTHING"


NOTHING = Nothing()


def captured_sum(value: Any, pullback: Any, seen: tuple[Seen, ...], is_part: bool) -> Captured:
    """A sum and its pullback, rounded unless ``is_part``; fingerprints are of rounded values."""
    if is_part:
        return Captured(value, pullback, seen)
    if isinstance(pullback, Gradient):
        pullback = pullback.with_leaves(final_leaves(pullback.leaves))
    return Captured(rounded_value(value), pullback, seen)


def add_captured(
    model: Model, blocks: Sequence[Captured], summation: str = "pairwise", is_last: bool = True
) -> Captured:
    """The sum of blocks whose terms are scalars, with its gradient.

    The last one is of all blocks, and rounds it.
    """
    if all(block.value is NOTHING for block in blocks):
        require_items(is_last, model.name)
        return blocks[0]
    blocks = [block for block in blocks if block.value is not NOTHING]
    for block in blocks:
        require_gradient(block, model)
    value = pairwise([block.value for block in blocks], ADDERS[summation].values)
    leaves = pairwise([block.pullback.leaves for block in blocks], ADDERS[summation].cotangents)
    return captured_sum(value, Gradient(leaves), blocks[0].seen, is_part=not is_last)


def require_gradient(block: Captured, model: Model) -> None:
    if not isinstance(block.pullback, Gradient):
        raise TypeError(
            f"the gradient of a sum over {model.name!r} was asked for, but its terms are "
            f"{describe(rounded_value(block.value))}; {ONE_REAL_NUMBER}"
        )


def add_parts(
    parts: Sequence[Cotangent], is_last: bool, summation: str = "pairwise", name: str = ""
) -> Cotangent:
    """The sum of the cotangents that the blocks of a sum return; the last one rounds and scales it.

    Blocks whose terms are of other dtypes have other factors: they are scaled one by one, and the
    last bits depend on how the sum was cut.
    """
    factors = [part.factor for part in parts if isinstance(part, Part) and not is_zero(part.leaves)]
    if not is_one_factor(factors, parts):
        parts, factors = [scaled(part) for part in parts], []
    total = add_cotangents(parts, (True,) * len(parts), ADDERS[summation].cotangents, name)
    if not factors:
        return Cotangent(final_leaves(total.leaves), total.seen) if is_last else total
    sum_of_parts = Part(total.leaves, total.seen, factors[0])
    return scaled(sum_of_parts) if is_last else sum_of_parts


def is_one_factor(factors: Sequence[Any], parts: Sequence[Cotangent]) -> bool:
    """Whether all parts that are not zero wait for one factor, or none does."""
    kinds = {(factor, np.asarray(factor).dtype) for factor in factors}
    nonzero = len([part for part in parts if not is_zero(part.leaves)])
    return len(kinds) <= 1 and len(factors) in (0, nonzero)


def scaled(part: Cotangent) -> Cotangent:
    if isinstance(part, Part):
        leaves = final_leaves(part.leaves)
        return Cotangent(cotangents.scale(leaves, part.factor), part.seen)
    return part


def sum_values(
    values: Sequence[Any], summation: str = "pairwise", is_last: bool = True, name: str = "sum"
) -> Any:
    """The sum of values of one structure and shape; the last one is of all, and rounds it."""
    values = [value for value in values if value is not NOTHING]
    if not values:
        require_items(is_last, name)
        return NOTHING
    total = pairwise(values, ADDERS[summation].values)
    return rounded_value(total) if is_last else total


def add_seen(
    values: Sequence[Any], summation: str = "pairwise", is_last: bool = True, name: str = "sum"
) -> Added:
    """As ``sum_values``, with the fingerprints of what was added up, which may be such sums."""
    whole = [each if isinstance(each, Added) else Added(each, (seen_of(each),)) for each in values]
    total = sum_values([each.value for each in whole], summation, is_last, name)
    return Added(total, tuple([each for added in whole for each in added.prints]))


def seen_of(value: Any) -> Fingerprint:
    return () if value is NOTHING else print_of(value)


def require_items(is_last: bool, name: str) -> None:
    if is_last:
        raise ValueError(
            f"no partition of the items of model {name!r} holds an item, and an empty sum has no "
            f"shape; sum at least one"
        )
