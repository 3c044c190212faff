"""Pullbacks: one call of a model, captured with the map from its cotangent to its inputs'.

``capture`` is the forward task of a call and ``pull_back`` its backward task. The worker keeps a
``Captured`` between them. A pullback that arrives empty in another process is traced again from the
arguments, which the backward task has as dependencies.
"""

import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any

from daskgrad.models import finite
from daskgrad.models.captured import Captured, Pullback, Seen, Travelling
from daskgrad.models.determinism import require_same_value, require_value_seen
from daskgrad.models.failures import Blame
from daskgrad.models.model import Call, Model, described_arguments, run
from daskgrad.models.tracing import CALL_THE_FUNCTION, Active, Tracer, as_moved, is_real_scalar
from daskgrad.models.travel import policy
from daskgrad.values import cotangents
from daskgrad.values.cotangents import Cotangent, Leaves, Seed
from daskgrad.values.descriptions import describe
from daskgrad.values.trees import flatten

logger = logging.getLogger("daskgrad")


class TracedAgain:
    """How often this process traced a model again, since its pullback had arrived empty."""

    count = 0


traced_again = TracedAgain()


def evaluate(model: Model, call: Call, inputs: Sequence[Any]) -> Any:
    """The value of a call; traces nothing."""
    try:
        value = plain_value(model, call, inputs)
    except Exception as error:
        Blame("value", model, call, inputs).note(error)
        raise
    if finite.is_required():
        finite.require(Blame("value", model, call, inputs), "the value", value)
    return value


def plain_value(model: Model, call: Call, inputs: Sequence[Any]) -> Any:
    """The value of a model that is not traced, in C order; it may be anything but a node."""
    value = run(model, call, inputs)
    if hasattr(value, "__dask_graph__"):
        raise TypeError(f"model {model.name!r} returned {describe(value)}; {CALL_THE_FUNCTION}")
    return as_moved(value)


def capture(model: Model, call: Call, active: Sequence[Active], inputs: Sequence[Any]) -> Captured:
    """Runs a model once and keeps its pullback."""
    try:
        tracer = Tracer(model, call, active, inputs)
        value, pullback = tracer.run(inputs)
    except Exception as error:
        Blame("forward", model, call, inputs).note(error)
        raise
    if finite.is_required():
        finite.require_captured(Blame("forward", model, call, inputs), active, value, pullback)
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

    ``value_elsewhere`` is the value that others used, if the cotangent carries no fingerprint of
    it, or the fingerprints that sums have seen.
    """
    try:
        require_value_seen(captured, cotangent, value_elsewhere, model)
        pullback = captured.pullback
        if isinstance(pullback, Pullback):

            def trace_again(model: Model) -> Captured:
                return Captured(*Tracer(model, call, active, inputs).run(inputs), ())

            pullback = unpack_or_trace(captured, model, call, inputs, trace_again)
        leaves = pullback(seed(cotangent, captured.value, model))
    except Exception as error:
        Blame("backward", model, call, inputs).note(error)
        raise
    if finite.is_required():
        finite.require_pulled(Blame("backward", model, call, inputs), active, leaves)
    return share_out(leaves, captured.seen)


def unpack_or_trace(
    captured: Captured,
    model: Model,
    call: Call,
    inputs: Sequence[Any],
    capture_again: Callable[[Model], Captured],
) -> Any:
    """The pullback of ``captured``, unpacked; if its tapes did not come along, it is traced again.

    Then the value must be the same as before, and the policy decides whether to keep the pullback,
    since Dask has counted the empty one. The logger gets a record for each model that runs again.
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
    is_travelling = isinstance(pullback, Travelling)
    if model.keep != "recompute" and (
        not is_travelling or policy.unseen.admits(pullback, pullback.measured())
    ):
        captured.pullback = pullback
    return pullback


def share_out(leaves: Leaves, seen: Sequence[Seen]) -> Cotangent | tuple[Cotangent, ...]:
    """Splits the cotangents of all active leaves into one ``Cotangent`` per active input."""
    if len(seen) == 1:
        return Cotangent(tuple(leaves), seen[0][0])
    parts, rest = [], iter(leaves)
    for print_, width in seen:
        parts.append(Cotangent(tuple(itertools.islice(rest, width)), print_))
    return tuple(parts)


def each_of(pulled: Cotangent | tuple[Cotangent, ...]) -> tuple[Cotangent, ...]:
    """The result of ``share_out`` as a tuple, also for one input."""
    return (pulled,) if isinstance(pulled, Cotangent) else pulled


def seed(cotangent: Cotangent, value: Any, model: Model) -> Leaves:
    """The cotangent of a value, leaf by leaf, in the value's shapes and dtypes.

    A sum passes on the cotangent of its own value, which may be complex where a term is real.
    """
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
