"""Term gradients: the value and the gradient of each term of a block, which are not added up."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.models.failures import Partition, term_at
from daskgrad.models.model import Model
from daskgrad.models.tracing import is_real_scalar
from daskgrad.sums.block_tasks import First, Summand, TracedSum, nth, require_one_length
from daskgrad.values.compensated import final_leaves
from daskgrad.values.cotangents import Leaves, is_differentiable
from daskgrad.values.descriptions import describe
from daskgrad.values.fingerprints import norm
from daskgrad.values.trees import flatten


class SingleTerms(NamedTuple):
    """The values of a block's terms, and the norms of their gradients or what these have, leaf by
    leaf, in rows."""

    values: np.ndarray
    gradients: Any


def norms_of_block(
    model: Model, summand: Summand, first: First, inputs: Sequence[Any], *fields: Sequence[Any]
) -> SingleTerms:
    """The values of the terms of a block, and the 2-norms of their gradients."""
    values, gradients = single_terms(model, summand, first, inputs, fields)
    return SingleTerms(as_row(values), as_row(list(map(norm_of, gradients))))


def gradients_of_block(
    model: Model, summand: Summand, first: First, inputs: Sequence[Any], *fields: Sequence[Any]
) -> SingleTerms:
    """The values of the terms of a block, and their gradients: for each leaf an array of rows."""
    values, gradients = single_terms(model, summand, first, inputs, fields)
    own = [inputs[number - summand.field_count] for number, _ in summand.active]
    primals = [leaf for value in own for leaf in flatten(value)[0]]
    rows = [[gradient[place] for gradient in gradients] for place in range(len(primals))]
    stacked = [stack_rows(*pair) for pair in zip(rows, primals, strict=True)]
    return SingleTerms(as_row(values), tuple(stacked))


def single_terms(
    model: Model,
    summand: Summand,
    first: First,
    inputs: Sequence[Any],
    fields: Sequence[Sequence[Any]],
) -> tuple[list[Any], list[Leaves]]:
    require_one_length(fields, first, model)
    traced = TracedSum(model._replace(keep="auto"), summand, inputs)
    values, gradients = [], []
    fields = list(map(traced.protected, fields))
    for offset, term in enumerate(traced.terms(first, fields)):
        value, pullback, _ = term()
        require_real_number(value, model, nth(first, offset))
        values.append(value)
        gradients.append(final_leaves(pullback.leaves))
    return values, gradients


def require_real_number(value: Any, model: Model, place: int | Partition) -> None:
    if not is_real_scalar([value]):
        raise TypeError(
            f"the gradients of single items were asked for, and model {model.name!r} returned "
            f"{describe(value)} for {term_at(place)}; return one real number, a float: sum arrays "
            f"up"
        )


def norm_of(gradient: Leaves) -> float:
    """The 2-norm over all leaves; of complex ones that of real and imaginary parts."""
    leaves = [np.ravel(leaf) for leaf in gradient if leaf is not None]
    norms = [norm(leaf.astype(np.result_type(leaf, np.float64))) for leaf in leaves]
    return norm(np.array(norms, dtype=np.float64))


def as_row(numbers: Sequence[Any]) -> np.ndarray:
    return np.array(numbers) if len(numbers) else np.zeros(0)


def stack_rows(rows: Sequence[Any], primal: Any) -> np.ndarray | None:
    """The cotangents of one leaf as rows of an array; ``None`` for a leaf without derivative."""
    if not is_differentiable(primal):
        return None
    like = np.asarray(primal)
    stacked = np.zeros((len(rows), *like.shape), like.dtype)
    for number, row in enumerate(rows):
        if row is not None:
            stacked[number] = row
    return stacked
