"""Term gradients: value and gradient of each term of a block, not added up."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskgrad.autodiff.models.failures import Partition, term_at
from daskgrad.autodiff.models.model import Model
from daskgrad.autodiff.models.tracing import is_real_scalar
from daskgrad.autodiff.values.addition import final_leaves
from daskgrad.autodiff.values.cotangents import Leaves, is_differentiable
from daskgrad.autodiff.values.descriptions import describe
from daskgrad.autodiff.values.rows import Rows, dense_leaf, no_rows
from daskgrad.autodiff.values.trees import flatten
from daskgrad.optim.schedules import norm
from daskgrad.sums.block_tasks import First, Summand, TracedSum, nth, require_one_length


def terms_of_block(
    collect: Callable[[list[Leaves], list[Any], Sequence[int]], Any],
    model: Model,
    summand: Summand,
    first: First,
    inputs: Sequence[Any],
    *fields: Sequence[Any],
) -> tuple[np.ndarray, Any]:
    """The values of the terms of a block, and the result of ``collect``.

    It gets the terms' gradients, the leaves that are differentiated, and the numbers of leaves
    that are asked for as rows.
    """
    require_one_length(fields, first, model)
    traced = TracedSum(model._replace(keep="auto"), summand, inputs)
    values: list[Any] = []
    gradients: list[Leaves] = []

    def use(value: Any, pullback: Any, widths: Any) -> None:
        require_real_number(value, model, nth(first, len(values)))
        values.append(value)
        gradients.append(final_leaves(pullback.leaves))

    traced.evaluate(first, list(map(traced.protected, fields)), use)
    primals: list[Any] = []
    asked: list[int] = []
    for active in summand.active:
        asked += [len(primals) + number for number in active.asked]
        primals += flatten(inputs[active.number - summand.field_count])[0]
    return np.array(values), collect(gradients, primals, asked)


def require_real_number(value: Any, model: Model, place: int | Partition) -> None:
    if not is_real_scalar([value]):
        raise TypeError(
            f"the gradients of single items were asked for, and model {model.name!r} returned "
            f"{describe(value)} for {term_at(place)}; return one real number, a float: sum arrays "
            f"up"
        )


def norms(gradients: Sequence[Leaves], primals: Sequence[Any], asked: Sequence[int]) -> np.ndarray:
    """The 2-norms of gradients, over all leaves."""
    return np.array(list(map(norm, gradients)))


def stacks(
    gradients: Sequence[Leaves], primals: Sequence[Any], asked: Sequence[int]
) -> tuple[np.ndarray | list[Rows] | None, ...]:
    """The gradients of many terms, leaf by leaf: stacked arrays, or lists of ``Rows``."""
    columns = [[gradient[place] for gradient in gradients] for place in range(len(primals))]
    return tuple(
        [
            [no_rows(primal) if rows is None else rows for rows in column]
            if place in asked and are_rows(column)
            else stack(column, primal)
            for place, (column, primal) in enumerate(zip(columns, primals, strict=True))
        ]
    )


def are_rows(column: Sequence[Any]) -> bool:
    return all([leaf is None or isinstance(leaf, Rows) for leaf in column])


def stack(column: Sequence[Any], primal: Any) -> np.ndarray | None:
    """The cotangents of one leaf in an array; ``None`` for a leaf without derivative."""
    if not is_differentiable(primal):
        return None
    like = np.asarray(primal)
    stacked = np.zeros((len(column), *like.shape), like.dtype)
    for number, row in enumerate(column):
        if row is not None:
            stacked[number] = dense_leaf(row)
    return stacked
