"""Finite: a number that is not finite is an error where it is made: of a model, an item, a sum.

While ``debug_nans`` is active, tasks are put into graphs with a flag, which travels with them, so
that it does not matter who runs them. Where it is set, whoever runs a model, pulls back or adds
looks at what comes of it.
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import optree

from daskgrad.models.captured import Gradient
from daskgrad.models.failures import Blame, argument_label, at
from daskgrad.models.model import Model
from daskgrad.values.compensated import final_leaves
from daskgrad.values.cotangents import Cotangent, Leaves
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


REQUIRED: ContextVar[bool] = ContextVar("all numbers of this task must be finite", default=False)

is_required = REQUIRED.get  # a call in C: it is asked at each run of a model


# ---------------------------------------------------------------------------- what must be finite


def require(where: Blame, what: str, tree: Any) -> None:
    """``where``: the pass of a call, or of one term of a sum, that the tree comes from."""
    found = trouble(tree)
    if found is None:
        return
    args, kwargs = where.call.arguments(where.inputs)
    named = [*[(f"argument {n}", arg) for n, arg in enumerate(args)], *kwargs.items()]
    raise FloatingPointError(
        f"model {where.model.name!r}, {where.stage} pass{at(where.place)}: {what} {found}; "
        + "; ".join([f"{name} {trouble(arg) or 'is finite'}" for name, arg in named])
    )


def require_captured(where: Blame, active: Sequence[Any], value: Any, pullback: Any) -> None:
    """The value, and the gradient of a real number, which was pulled back at once."""
    require(where, "the value", value)
    if isinstance(pullback, Gradient):
        backward = where._replace(stage="backward")
        require_pulled(backward, active, pullback.leaves, "gradient with respect to")


def require_pulled(
    where: Blame, active: Sequence[Any], leaves: Leaves, what: str = "cotangent of"
) -> None:
    """The cotangents of the active inputs, leaf after leaf."""
    rest = iter(final_leaves(leaves))
    for number, _ in active:
        own, structure = flatten(where.inputs[number])
        tree = optree.tree_unflatten(structure, list(itertools.islice(rest, len(own))))
        require(where, f"the {what} {argument_label(where.call, number)}", tree)


def require_arrived(cotangent: Cotangent, value: Any, model: Model) -> None:
    """The cotangent of a value, which users may hand in."""
    found = trouble(optree.tree_unflatten(flatten(value)[1], list(cotangent.leaves)))
    if found is not None:
        raise FloatingPointError(
            f"model {model.name!r}, backward pass: the cotangent that arrives at its value {found}"
        )


def require_sum(what: str, leaves: Sequence[Any]) -> None:
    """A sum of finite terms, of blocks for instance, or a multiple of one."""
    if trouble(list(final_leaves(tuple(leaves)))) is not None:
        raise FloatingPointError(
            f"{what} is not finite, and each of its terms is; they overflow, or an infinite factor "
            f"arrived"
        )


# --------------------------------------------------------------------------------- what is found


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
