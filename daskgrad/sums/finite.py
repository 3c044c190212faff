"""Finite: which item and argument a number of a sum that is not finite came from."""

from collections.abc import Sequence
from typing import Any, NoReturn

from daskgrad.models.captured import Captured
from daskgrad.models.determinism import SumWithFingerprints
from daskgrad.models.finite import (
    EXPLANATIONS,
    PULLED,
    Where,
    explain_add_cotangents,
    in_structure,
    require_captured,
    trouble,
)
from daskgrad.models.model import Model
from daskgrad.models.pullbacks import plain_value, seed
from daskgrad.sums.adding import add_captured, add_unscaled, add_with_fingerprints, sum_values
from daskgrad.sums.block_tasks import (
    First,
    Summand,
    TracedSum,
    capture_block,
    describe_block,
    evaluate_block,
    nth,
    pull_back_block,
    pull_back_sum,
)
from daskgrad.sums.item_cotangents import pull_back_items
from daskgrad.values.cotangents import Cotangent


def fail_sum(name: str, what: str) -> NoReturn:
    raise FloatingPointError(
        f"sum over {name!r}: {what} is not finite, and each of its terms is; they overflow, or an "
        f"infinite factor arrived"
    )


def explain_evaluate_block(
    value: Any, model: Model, summand: Summand, first: First, inputs: Sequence[Any], *columns: Any
) -> None:
    for offset, item in enumerate(zip(*columns, strict=True)):
        own = [*item, *inputs]
        where = Where("value", model, summand.call, own, nth(first, offset))
        where.require("the value", plain_value(model, summand.call, own))
    fail_sum(model.name, f"the value of {describe_block(first, columns[0])}")


def explain_capture_block(
    captured: Captured,
    model: Model,
    summand: Summand,
    first: First,
    inputs: Sequence[Any],
    *columns: Any,
) -> None:
    traced = TracedSum(model, summand, inputs)
    pairs = zip(zip(*columns, strict=True), traced.terms(first, columns), strict=True)
    for offset, (item, term) in enumerate(pairs):
        value, pullback, _ = term()
        place, own = nth(first, offset), [*item, *inputs]
        require_captured(value, pullback, model, summand.call, summand.active, own, place)
    fail_sum(model.name, f"the value or gradient of {describe_block(first, columns[0])}")


def explain_pull_back_block(
    pulled: Any,
    captured: Captured,
    cotangent: Cotangent,
    model: Model,
    summand: Summand,
    first: First,
    inputs: Sequence[Any],
    value_elsewhere: Any,
    *columns: Any,
) -> None:
    require_arrived(cotangent, captured, model)
    traced = TracedSum(model._replace(keep="tape"), summand, inputs)
    pairs = zip(zip(*columns, strict=True), traced.terms(first, columns), strict=True)
    for offset, (item, term) in enumerate(pairs):
        value, pullback, _ = term()
        place = nth(first, offset)
        where = Where("backward", model, summand.call, [*item, *inputs], place)
        leaves = pullback(seed(cotangent, value, model))
        where.require_cotangents(summand.active, leaves, PULLED)
    fail_sum(model.name, f"the cotangent from {describe_block(first, columns[0])}")


def require_arrived(cotangent: Cotangent, captured: Captured, model: Model) -> None:
    found = trouble(in_structure(cotangent, captured))
    if found is not None:
        raise FloatingPointError(
            f"sum over {model.name!r}, backward pass: the cotangent that arrives at its value "
            f"{found}"
        )


def explain_pull_back_sum(
    pulled: Any, captured: Captured, cotangent: Cotangent, model: Model, value_elsewhere: Any
) -> None:
    require_arrived(cotangent, captured, model)
    fail_sum(model.name, "the cotangent of its shared arguments")


def explain_pull_back_items(
    pulled: Any,
    blocks: Any,
    sizes: Any,
    are_rows: bool,
    captured: Captured,
    cotangent: Cotangent,
    model: Model,
    value_elsewhere: Any,
) -> None:
    require_arrived(cotangent, captured, model)
    fail_sum(model.name, "the cotangent of its items")


def explain_add_captured(captured: Captured, model: Model, *_: Any) -> None:
    fail_sum(model.name, "the value or gradient")


def explain_sum_values(
    value: Any, values: Any, summation: str = "", is_last: bool = True, name: str = "sum"
) -> None:
    fail_sum(name, "the value")


def explain_add_seen(added: SumWithFingerprints, values: Sequence[Any], *args: Any) -> None:
    explain_sum_values(added.value, values, *args)


EXPLANATIONS.update(
    {
        evaluate_block: explain_evaluate_block,
        capture_block: explain_capture_block,
        pull_back_block: explain_pull_back_block,
        pull_back_sum: explain_pull_back_sum,
        pull_back_items: explain_pull_back_items,
        add_captured: explain_add_captured,
        sum_values: explain_sum_values,
        add_with_fingerprints: explain_add_seen,
        add_unscaled: explain_add_cotangents,
    }
)
