"""Pullbacks: calls captured with the map from a cotangent to the inputs'; sums of cotangents.

``capture`` is the forward task of a call and ``pull_back`` its backward task; between them the
worker keeps a ``Captured``. A pullback that arrives empty in another process is traced again from
the arguments, which the backward task has as dependencies.
"""

import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

from daskgrad.autodiff.models import finite, travel
from daskgrad.autodiff.models.captured import Captured, Pullback, Seen
from daskgrad.autodiff.models.determinism import (
    SumWithFingerprints,
    fingerprint_of,
    require_same_input,
    require_same_value,
    require_value_seen,
)
from daskgrad.autodiff.models.failures import Blame, term_at
from daskgrad.autodiff.models.model import Call, Model, described_arguments, run
from daskgrad.autodiff.models.tracing import (
    CALL_THE_FUNCTION,
    Active,
    Tracer,
    as_moved,
    is_real_scalar,
)
from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.addition import (
    ADDITIONS,
    Add,
    StructureError,
    are_alike,
    flatten_sum,
    pairwise,
    rounded_value,
)
from daskgrad.autodiff.values.cotangents import Cotangent, Leaves, Seed, is_zero
from daskgrad.autodiff.values.descriptions import describe
from daskgrad.autodiff.values.fingerprints import Fingerprint
from daskgrad.autodiff.values.trees import flatten
from daskgrad.autodiff.values.vectors import unit

logger = logging.getLogger("daskgrad")


# How often this process traced a model again, as its pullback arrived empty.
traced_again = SimpleNamespace(count=0)


def evaluate(model: Model, call: Call, inputs: Sequence[Any]) -> Any:
    """The value of a call; traces nothing."""
    where = Blame("value", model, call, inputs)
    with where:
        value = plain_value(model, call, inputs)
    if finite.is_required():
        finite.require(where, "the value", value)
    return value


def plain_value(model: Model, call: Call, inputs: Sequence[Any]) -> Any:
    """The value of a model that is not traced, in C order; anything but a node."""
    value = run(model, call, inputs)
    if hasattr(value, "__dask_graph__"):
        raise TypeError(f"model {model.name!r} returned {describe(value)}; {CALL_THE_FUNCTION}")
    return as_moved(value)


def capture(model: Model, call: Call, active: Sequence[Active], inputs: Sequence[Any]) -> Captured:
    """Runs a model once and keeps its pullback."""
    where = Blame("forward", model, call, inputs)
    with where:
        tracer = Tracer(model, call, active, inputs)
        value, pullback = tracer.run(inputs)
    if finite.is_required():
        finite.require_captured(where, active, value, pullback)
    return Captured(value, pullback, tracer.seen(active))


def pull_back(
    captured: Captured,
    cotangent: Cotangent,
    model: Model,
    call: Call,
    active: Sequence[Active],
    inputs: Sequence[Any],
    value_elsewhere: Any = None,
) -> Cotangent | tuple[Cotangent, ...]:
    """The cotangents of the active inputs; a single one is not wrapped in a tuple.

    ``value_elsewhere``: see ``determinism.require_value_seen``.
    """
    where = Blame("backward", model, call, inputs)
    with where:
        require_value_seen(captured, cotangent, value_elsewhere, model)
        pullback = captured.pullback
        if isinstance(pullback, Pullback):

            def trace_again(model: Model) -> Captured:
                return Captured(*Tracer(model, call, active, inputs).run(inputs), ())

            pullback = unpack_or_trace(captured, model, call, inputs, trace_again)
        leaves = pullback(seed(cotangent, captured.value, model))
    if finite.is_required():
        finite.require_pulled(where, active, leaves)
    return share_out(leaves, captured.seen)


def unpack_or_trace(
    captured: Captured,
    model: Model,
    call: Call,
    inputs: Sequence[Any],
    capture_again: Callable[[Model], Captured],
) -> Any:
    """The pullback of ``captured``, unpacked; if its tapes did not come along, it is traced again.

    Then the value must be as before, and the policy decides whether to keep the pullback, which
    Dask counts as empty. The logger gets a record of each model that runs again.
    """
    pullback = captured.pullback
    pullback.unpack()
    if not pullback.is_empty:
        return pullback
    if logger.isEnabledFor(logging.INFO):
        shapes = ", ".join(described_arguments(call, inputs))
        logger.info("model %r is traced again, called with (%s)", model.name, shapes)
    traced_again.count += 1
    again = capture_again(model._replace(keep="tape"))
    require_same_value(captured, again.fingerprint, model)
    pullback = again.pullback
    is_travelling = isinstance(pullback, travel.Travelling)
    if model.keep != "recompute" and (
        not is_travelling or travel.unseen.admits(pullback, pullback.measured())
    ):
        captured.pullback = pullback
    return pullback


def share_out(leaves: Leaves, seen: Sequence[Seen]) -> Cotangent | tuple[Cotangent, ...]:
    """Splits the cotangents of all active leaves into one ``Cotangent`` for each active input."""
    if len(seen) == 1:
        return Cotangent(tuple(leaves), seen[0][0])
    parts, remaining = [], iter(leaves)
    for print_, width in seen:
        parts.append(Cotangent(tuple(itertools.islice(remaining, width)), print_))
    return tuple(parts)


def each_of(pulled: Cotangent | tuple[Cotangent, ...]) -> tuple[Cotangent, ...]:
    """The result of ``share_out`` as a tuple, also for one input."""
    return (pulled,) if isinstance(pulled, Cotangent) else pulled


def seed(cotangent: Cotangent, value: Any, model: Model) -> Leaves:
    """The cotangent of a value, leaf by leaf, in the value's shapes and dtypes: a sum passes on its
    own, which may be complex for a real term."""
    leaves = flatten(value)[0]
    if isinstance(cotangent, Seed):
        if not is_real_scalar(leaves):
            raise TypeError(
                f"the gradient of {model.name!r} was asked for, but its value is "
                f"{describe(value)}; {cotangents.ONE_REAL_NUMBER}"
            )
        return (cotangent.as_like(leaves[0]),)
    if finite.is_required():
        finite.require_arrived(cotangent, value, model)
    pairs = zip(cotangent.leaves, leaves, strict=True)
    return tuple([cotangents.seed(c, leaf) for c, leaf in pairs])


# -------------------------------------------------------------------------------------------------
# Batches: many cotangents pulled back along one captured forward pass, several in a task.


class Batch(NamedTuple):
    """The results of a task for a batch of cotangents, one entry each."""

    entries: tuple[Any, ...]


def for_each(fun: Callable, *args: Any) -> Any:
    """Calls a task's function for each entry of the batches among its arguments."""
    count = next((n for n in map(entries_in, args) if n is not None), None)
    if count is None:
        return fun(*args)
    return Batch(tuple([fun(*[entry(arg, n) for arg in args]) for n in range(count)]))


def entries_in(arg: Any) -> int | None:
    """The number of entries of the batches in an argument; None without batches."""
    if isinstance(arg, Batch):
        return len(arg.entries)
    if isinstance(arg, list):
        return next((n for n in map(entries_in, arg) if n is not None), None)
    return None


def entry(arg: Any, number: int) -> Any:
    if isinstance(arg, Batch):
        return arg.entries[number]
    if entries_in(arg) is None:
        return arg
    return [entry(item, number) for item in arg]


def unit_cotangents(value: Any, start: int, stop: int, seen: Fingerprint | None = None) -> Batch:
    """The unit cotangents of a value for its entries ``start`` to ``stop``.

    Entries are counted over the differentiable leaves in turn, in C order. ``seen`` is the
    fingerprint of the caller's value.
    """
    leaves = flatten(value)[0]
    return Batch(tuple([Cotangent(unit(leaves, place), seen) for place in range(start, stop)]))


# -------------------------------------------------------------------------------------------------
# Accumulation: the cotangents of one value, in the order of its uses; values, along a tree.


def add_cotangents(
    terms: Sequence[Cotangent], saw_value: Sequence[bool], add: Add = cotangents.add, name: str = ""
) -> Cotangent:
    """The sum of the cotangents from the consumers of one value of the model ``name``.

    Consumers that used the value itself (``saw_value``) must have seen the same one.
    """
    pairs = zip(terms, saw_value, strict=True)
    seen = [term.seen for term, saw in pairs if saw and term.seen is not None]
    for other in seen[1:]:
        require_same_input(seen[0], other, name)
    seeds = [term for term in terms if isinstance(term, Seed)]
    like: Leaves = next((term.leaves for term in terms if not is_zero(term.leaves)), ())
    if seeds and not like:  # only seeds and symbolic zeros
        return Seed(sum([term.times for term in seeds]))
    leaves = [(s.as_like(like[0]),) if isinstance(s, Seed) else s.leaves for s in terms]
    total = pairwise(leaves, add)
    if finite.is_required():
        subject = f"backward pass: the sum of {len(terms)} cotangents of one value"
        finite.require_sum(subject, total)
    return Cotangent(total, seen[0] if seen else None)


class Nothing:
    """The value of a block without items, a singleton: adding it changes nothing."""

    def __reduce__(self) -> str:
        return "NOTHING"

    def __repr__(self) -> str:
        return "NOTHING"


NOTHING = Nothing()


@contextmanager
def named(name: str, values: Sequence[Any], places: Sequence[Any]) -> Iterator[None]:
    """Makes errors of adding values name the sum, and the first odd term; ``places`` are the terms'
    names, if known."""
    try:
        yield
    except StructureError as error:
        where = "between terms of different tasks; compare the values of single terms"
        known = zip(places, values, strict=False)
        terms = [(place, rounded_value(value)) for place, value in known if value is not NOTHING]
        for (_, before), (place, value) in itertools.pairwise(terms):
            if not are_alike(before, value):
                where = f"where {term_at(place)} is not as the terms before it"
                break
        error.add_note(f"daskgrad: in the sum over {name!r}, {where}")
        raise


def sum_values(
    values: Sequence[Any],
    summation: str = "pairwise",
    is_last: bool = True,
    name: str = "sum",
    places: Sequence[Any] = (),
) -> Any:
    """The sum of values of one structure and shape; the last addition rounds it."""
    all_values, values = values, [value for value in values if value is not NOTHING]
    if not values:
        require_items(is_last, name)
        return NOTHING
    with named(name, all_values, places):
        total = pairwise(values, ADDITIONS[summation].values)
    if finite.is_required():
        finite.require_sum(f"sum over {name!r}: the value", flatten_sum(total)[0])
    return rounded_value(total) if is_last else total


def add_with_fingerprints(
    values: Sequence[Any],
    summation: str = "pairwise",
    is_last: bool = True,
    name: str = "sum",
    places: Sequence[Any] = (),
) -> SumWithFingerprints:
    """As ``sum_values``, with the fingerprints of all terms; a value may be a sum with its own."""
    sums = list(map(with_fingerprint, values))
    total = sum_values([term_sum.value for term_sum in sums], summation, is_last, name, places)
    return SumWithFingerprints(total, tuple([term for term_sum in sums for term in term_sum.terms]))


def with_fingerprint(value: Any) -> SumWithFingerprints:
    if isinstance(value, SumWithFingerprints):
        return value
    return SumWithFingerprints(value, (() if value is NOTHING else fingerprint_of(value),))


def require_items(is_last: bool, name: str) -> None:
    if is_last:
        raise ValueError(
            f"no partition of the items of model {name!r} holds an item, and an empty sum has no "
            f"shape; sum at least one"
        )
