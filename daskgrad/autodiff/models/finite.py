"""Finite: NaNs and infinities are errors of the model, item or sum in which they arise.

While ``debug_nans`` is active, tasks carry a flag, whoever runs them: each run of a model, pullback
and addition checks its result.
"""

import itertools
import linecache
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import optree

from daskgrad.autodiff.libraries import registry
from daskgrad.autodiff.models.captured import Gradient
from daskgrad.autodiff.models.failures import (
    Blame,
    argument_label,
    at,
    named_arguments,
    traceback_of,
)
from daskgrad.autodiff.models.model import Model, run
from daskgrad.autodiff.models.tracing import Active, Tracer
from daskgrad.autodiff.tape.boxes import place_of
from daskgrad.autodiff.tape.reverse import PlacedNode, trace
from daskgrad.autodiff.values.addition import final_leaves
from daskgrad.autodiff.values.cotangents import Cotangent, Leaves, is_differentiable
from daskgrad.autodiff.values.rows import Rows
from daskgrad.autodiff.values.slopes import Slopes
from daskgrad.autodiff.values.trees import NAMESPACE, flatten

_DEBUGGING: ContextVar[bool] = ContextVar("non-finite numbers are errors", default=False)


@contextmanager
def debug_nans() -> Iterator[None]:
    """A context in which NaNs and infinities in values, cotangents and gradients are errors.

    The first task on a path through the graph that makes one raises the error. It names the model,
    the pass (forward, value, backward), the item of a sum, the entry that is not finite, and the
    arguments that are; a note has the line of the model, which runs once more for that. Infinity
    counts even if the model intends it (a log density of zero). Arguments and items may be infinite
    or NaN, as long as values and derivatives are not.

    It works on every scheduler, for plain values and for gradients. Within the context all is
    evaluated as tasks, small evaluations and placed items, too, with the same bits. It holds for
    evaluations in this thread within the context, and not for a collection that ``differentiate``
    returned before. It costs nothing outside the context.

    Raises
    ------
    FloatingPointError
        from an evaluation within the context.

    See Also
    --------
    check_grads, explain

    Examples
    --------
    >>> with dg.debug_nans():
    ...     dg.grad(dg.delayed(lambda x: np.sum(x) * np.inf, name="hot"))(np.ones(2))
    Traceback (most recent call last):
        ...
    FloatingPointError: model 'hot', forward pass: the value has inf; argument 0 is finite
    """
    before = _DEBUGGING.get()
    try:
        _DEBUGGING.set(True)  # not before "try": Ctrl-C may come as it returns
        yield
    finally:
        _DEBUGGING.set(before)


is_debugging = _DEBUGGING.get


REQUIRED: ContextVar[bool] = ContextVar("all numbers of this task must be finite", default=False)

is_required = REQUIRED.get  # in C, as each run of a model calls it


def require(where: Blame, subject: str, tree: Any, active: Sequence[Active] = ()) -> None:
    """Raises unless a tree is finite, which the call or term ``where`` has made; ``active``: the
    inputs of which it has the cotangents."""
    problem = trouble(tree)
    if problem is None:
        return
    named = named_arguments(where.call, where.inputs)
    error = FloatingPointError(
        f"model {where.model.name!r}, {where.stage} pass{at(where.place)}: {subject} {problem}; "
        + "; ".join([f"{name} {trouble(arg) or 'is finite'}" for name, arg in named])
    )
    line = line_of_error(where, active)
    if line is not None:
        error.add_note(f"daskgrad: {line}")
    raise error


def line_of_error(where: Blame, active: Sequence[Active]) -> str | None:
    """The model's line of its first floating-point error, which is raised as the call runs again,
    and is pulled back if it has active inputs; None if there is no such error."""
    model = where.model
    try:
        with np.errstate(divide="raise", over="raise", invalid="raise"):
            if active and (model.backend == "autograd" or registry.is_compiled(model.backend)):
                model = model._replace(backend="autograd")
                pull_ones(Tracer(model, where.call, active, where.inputs), where.inputs)
            else:
                run(model, where.call, where.inputs)
    except FloatingPointError as error:
        frames = traceback_of(error)
        nodes = [frame.tb_frame.f_locals.get("node") for frame in frames]
        pulled = [node.place for node in nodes if isinstance(node, PlacedNode)]
        lines = [place_of(frame.tb_frame, frame.tb_lineno) for frame in frames]
        places = list(filter(None, pulled or lines))
        if not places:
            return None
        path, line = places[-1]
        passed = ", in the derivative" if pulled else ""
        code = linecache.getline(path, line).strip()
        return f"{error}{passed}: {path}, line {line}{code and f': {code}'}"
    except Exception:  # the error to tell is another one
        return None
    return None


def pull_ones(tracer: Tracer, inputs: Sequence[Any]) -> None:
    """Pulls ones back through a tape of nodes that know their lines."""
    outputs, tape = trace(*tracer.call(inputs), PlacedNode)
    tape.pull([np.ones_like(leaf) if is_differentiable(leaf) else None for leaf in outputs])


def require_captured(where: Blame, active: Sequence[Active], value: Any, pullback: Any) -> None:
    """Checks the value, and the gradient if it was computed with it."""
    require(where, "the value", value)
    if isinstance(pullback, Gradient):
        backward = where._replace(stage="backward")
        require_pulled(backward, active, pullback.leaves, "gradient with respect to")


def require_pulled(
    where: Blame, active: Sequence[Active], leaves: Leaves, subject: str = "cotangent of"
) -> None:
    """Checks the cotangents of the active inputs, leaf by leaf."""
    remaining = iter(final_leaves(leaves))
    for number, *_ in active:
        primals, structure = flatten(where.inputs[number])
        tree = optree.tree_unflatten(structure, list(itertools.islice(remaining, len(primals))))
        require(where, f"the {subject} {argument_label(where.call, number)}", tree, active)


def require_arrived(cotangent: Cotangent, value: Any, model: Model) -> None:
    """Checks the cotangent of a value, which a user may have passed."""
    problem = trouble(optree.tree_unflatten(flatten(value)[1], list(cotangent.leaves)))
    if problem is not None:
        raise FloatingPointError(
            f"model {model.name!r}, backward pass: the cotangent that arrives at its value "
            f"{problem}"
        )


def require_sum(subject: str, leaves: Sequence[Any]) -> None:
    """Checks a sum of finite terms or blocks, or a multiple of one."""
    if trouble(list(final_leaves(tuple(leaves)))) is not None:
        raise FloatingPointError(
            f"{subject} is not finite, but each of its terms is: they overflow, or their factor is "
            f"infinite"
        )


def trouble_in(leaf: Any) -> str | None:
    """The first entry of a leaf that is not finite, and its place, in words; None if all are."""
    if isinstance(leaf, Rows | Slopes):
        problem = trouble_in(leaf.values)
        return None if problem is None else f"{problem} of the values of its {leaf!r}"
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
    """The first entry of a pytree that is not finite, in words; None if there is none."""
    paths, leaves, _ = optree.tree_flatten_with_path(tree, none_is_leaf=True, namespace=NAMESPACE)
    for path, leaf in zip(paths, leaves, strict=True):
        problem = trouble_in(leaf)
        if problem is not None:
            where = "".join([f"[{entry!r}]" for entry in path])
            return f"has {problem}" + (f" of its entry {where}" if where else "")
    return None
