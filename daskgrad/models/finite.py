"""Finite: the first task, model and item whose result is not finite.

While ``debug_nans`` is active, tasks are put into graphs with a function that looks at what they
return. That travels with the task, so it does not matter who runs it; what is sent otherwise knows
nothing of it. Only where a result is not finite, the task's work is done again, item by item, to
find out where that came from.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, NoReturn

import numpy as np
import optree

from daskgrad.models.accumulation import add_cotangents
from daskgrad.models.captured import Captured, Gradient
from daskgrad.models.determinism import SumWithFingerprints
from daskgrad.models.failures import Partition, argument_label, at
from daskgrad.models.model import Call, Model
from daskgrad.models.portions import add_sent_back, capture_item, evaluate_item, pull_back_item
from daskgrad.models.pullbacks import capture, each_of, evaluate, pull_back
from daskgrad.models.tracing import Active
from daskgrad.values.compensated import final_leaves, rounded_value
from daskgrad.values.cotangents import Cotangent, Leaves, Seed, Unscaled
from daskgrad.values.trees import NAMESPACE, flatten

_DEBUGGING: ContextVar[bool] = ContextVar("non-finite numbers are errors", default=False)


@contextmanager
def debug_nans() -> Iterator[None]:
    """A context in which a value, cotangent or gradient that is not finite is an error.

    The error names the model, the pass (forward, value, backward), the item of a sum, what is not
    finite and which arguments are, of the first such task on its path through the graph. Not finite
    is NaN, and infinity, too, also where a model means it (a log density of zero): arguments and
    items may be infinite or NaN, as long as values and derivatives are not.

    Works on every scheduler, and for plain values as for gradients; all is evaluated as tasks
    meanwhile, also small evaluations and placed items, with the same bits. Holds for what is asked
    for in this thread, in this context: a collection that ``differentiate`` returned before is not
    watched. Costs nothing elsewhere.

    Raises
    ------
    FloatingPointError
        from an evaluation within the context.
    """
    before = _DEBUGGING.get()
    try:
        _DEBUGGING.set(True)  # not before "try": Ctrl-C may come as it returns
        yield
    finally:
        _DEBUGGING.set(before)


def is_debugging() -> bool:
    return _DEBUGGING.get()


# ------------------------------------------------------------------------------- what is watched


class Watched:
    """A task's function, and then a look at what it returned."""

    __slots__ = ("fun",)

    def __init__(self, fun: Callable):
        self.fun = fun

    def __reduce__(self) -> tuple:
        return Watched, (self.fun,)

    def __call__(self, *args: Any) -> Any:
        result = self.fun(*args)
        if not is_finite(result):
            EXPLANATIONS[self.fun](result, *args)
        return result


def watched(fun: Callable) -> Callable:
    """The function for a task whose result must be finite; others as they are."""
    return Watched(fun) if fun in EXPLANATIONS else fun


def is_finite(result: Any) -> bool:
    """Whether all numbers in what a task returned are finite."""
    if isinstance(result, Captured):
        pullback = result.pullback
        leaves = pullback.leaves if isinstance(pullback, Gradient) else ()
        columns = itertools.chain.from_iterable(getattr(pullback, "columns", ()))
        return is_finite(result.value) and all_finite([*final_leaves(leaves), *columns])
    if isinstance(result, SumWithFingerprints):
        return is_finite(result.value)
    if isinstance(result, Cotangent):
        factor = [result.factor] if isinstance(result, Unscaled) else []
        return all_finite([*final_leaves(result.leaves), *factor])
    if isinstance(result, tuple) and result and isinstance(result[0], Cotangent):
        return all(map(is_finite, result))
    return all_finite(flatten(rounded_value(result))[0])


def all_finite(leaves: Sequence[Any]) -> bool:
    return all([trouble_in(leaf) is None for leaf in leaves])


def trouble_in(leaf: Any) -> str | None:
    """The first entry of a leaf that is not finite, and where it is."""
    if not isinstance(leaf, np.ndarray | np.generic | float | complex):
        return None
    array = np.asarray(leaf)
    if array.dtype.kind not in "fc" or np.all(np.isfinite(array)):
        return None
    bad = np.argwhere(~np.isfinite(array))
    entry = array[tuple(bad[0])]
    kind = "NaN" if np.isnan(entry) else str(entry)
    if not array.ndim:
        return kind
    return f"{kind} at [{', '.join(map(str, bad[0]))}] ({len(bad)} of {array.size} entries)"


def trouble(tree: Any) -> str | None:
    """The first entry of a pytree that is not finite, in words; None where all are finite."""
    paths, leaves, _ = optree.tree_flatten_with_path(tree, none_is_leaf=True, namespace=NAMESPACE)
    for path, leaf in zip(paths, leaves, strict=True):
        found = trouble_in(leaf)
        if found is not None:
            where = "".join([f"[{entry!r}]" for entry in path])
            return f"has {found}" + (f" of its entry {where}" if where else "")
    return None


# ---------------------------------------------------------------------------------- what is said


class Where(NamedTuple):
    """A pass of a model's call, or of one term of a sum."""

    stage: str
    model: Model
    call: Call
    inputs: Sequence[Any]
    place: int | Partition | None = None

    def require(self, what: str, tree: Any) -> None:
        found = trouble(tree)
        if found is not None:
            self.fail(f"{what} {found}")

    def require_cotangents(self, active: Sequence[Active], leaves: Leaves, what: str) -> None:
        """The cotangents of the active inputs, leaf after leaf."""
        rest = iter(final_leaves(leaves))
        for number, _ in active:
            own, structure = flatten(self.inputs[number])
            tree = optree.tree_unflatten(structure, list(itertools.islice(rest, len(own))))
            self.require(f"the {what} {argument_label(self.call, number)}", tree)

    def fail(self, found: str) -> NoReturn:
        head = f"model {self.model.name!r}, {self.stage} pass{at(self.place)}: {found}"
        raise FloatingPointError("; ".join([head, *self._arguments()]))

    def _arguments(self) -> Iterator[str]:
        args, kwargs = self.call.arguments(self.inputs)
        named = [*[(f"argument {n}", arg) for n, arg in enumerate(args)], *kwargs.items()]
        for name, arg in named:
            yield f"{name} {trouble(arg) or 'is finite'}"


# --------------------------------------------------------------------- where it came from, by task

GRADIENT = "gradient with respect to"
PULLED = "cotangent of"


def explain_evaluate(value: Any, model: Model, call: Call, inputs: Sequence[Any]) -> None:
    Where("value", model, call, inputs).require("the value", value)


def explain_capture(
    captured: Captured, model: Model, call: Call, active: Sequence[Active], inputs: Sequence[Any]
) -> None:
    require_captured(captured.value, captured.pullback, model, call, active, inputs)


def require_captured(
    value: Any,
    pullback: Any,
    model: Model,
    call: Call,
    active: Sequence[Active],
    inputs: Sequence[Any],
    place: int | Partition | None = None,
) -> None:
    """The value, and the gradient of a real number, which was pulled back at once."""
    where = Where("forward", model, call, inputs, place)
    where.require("the value", value)
    if isinstance(pullback, Gradient):
        where = where._replace(stage="backward")
        where.require_cotangents(active, pullback.leaves, GRADIENT)


def explain_pull_back(
    pulled: Any,
    captured: Captured,
    cotangent: Cotangent,
    model: Model,
    call: Call,
    active: Sequence[Active],
    inputs: Sequence[Any],
    *_: Any,
) -> None:
    where = Where("backward", model, call, inputs)
    where.require("the cotangent that arrives at its value", in_structure(cotangent, captured))
    leaves = tuple(itertools.chain.from_iterable([part.leaves for part in each_of(pulled)]))
    where.require_cotangents(active, leaves, PULLED)


def in_structure(cotangent: Cotangent, captured: Captured) -> Any:
    """A cotangent as a pytree; the seed of a gradient is no number yet."""
    _, structure = flatten(rounded_value(captured.value))
    leaves = list(cotangent.leaves)
    return None if isinstance(cotangent, Seed) else optree.tree_unflatten(structure, leaves)


def explain_add_cotangents(total: Cotangent, terms: Sequence[Cotangent], *_: Any) -> None:
    raise FloatingPointError(
        f"backward pass: the sum of {len(terms)} cotangents of one value is not finite, and each "
        f"of them is; they overflow, or an infinite factor arrived"
    )


EXPLANATIONS: dict[Callable, Callable[..., None]] = {  # whoever has other tasks adds theirs
    evaluate: explain_evaluate,
    capture: explain_capture,
    pull_back: explain_pull_back,
    add_cotangents: explain_add_cotangents,
    evaluate_item: explain_evaluate,
    capture_item: explain_capture,
    pull_back_item: explain_pull_back,
    add_sent_back: explain_add_cotangents,
}
