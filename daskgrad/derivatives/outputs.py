"""Outputs: checks of what a differentiated function returns, and of its cotangents."""

from typing import Any

import numpy as np
import optree

from daskgrad.derivatives.inputs import checked_leaves
from daskgrad.graph.delayed import delayed
from daskgrad.graph.nodes import Constant, Node, same
from daskgrad.models.tracing import is_real_scalar
from daskgrad.values import cotangents
from daskgrad.values.cotangents import Cotangent
from daskgrad.values.descriptions import describe, is_number
from daskgrad.values.memory import of_its_own
from daskgrad.values.trees import flatten


def require_real_scalar(value: Any, name: str) -> None:
    """Raises unless a value, which no backward task may have checked, is one real number."""
    if not is_real_scalar([value]):
        raise TypeError(
            f"the gradient of {name!r} was asked for, but its value is {describe(value)}; "
            f"{cotangents.ONE_REAL_NUMBER}"
        )


def as_number(output: Any, name: str) -> Node:
    """The node of an output that is one real number; a constant one depends on no model."""
    if isinstance(output, Node):
        return output
    if is_number(output):
        return Constant(np.float64(output))
    raise TypeError(
        f"{name!r} must return a node, whose value is one real number; found {describe(output)}"
        + (": add the nodes up, or use vjp" if holds_node(output) else "")
    )


def as_output(output: Any, name: str) -> Node:
    """The node of an output that may be a pytree of nodes."""
    if isinstance(output, Node):
        return output
    if holds_node(output):
        return PACK(output)
    raise TypeError(f"{name!r} must return a node or a pytree of nodes; found {describe(output)}")


def holds_node(value: Any) -> bool:
    return any(isinstance(leaf, Node) for leaf in flatten(value)[0])


PACK = delayed(same, name="output")


def checked_cotangent(cotangent: Any, value: Any, name: str) -> Cotangent:
    """A cotangent in the structure, shapes and dtypes of the value."""
    return Cotangent(
        of_its_own(checked_leaves(cotangent, value, f"cotangent of {name!r}", "value"))
    )


def unstack(cotangent: Any, value: Any, name: str) -> list[Cotangent] | None:
    """The cotangents of a stacked batch, or ``None`` where it is a single one."""
    leaves, structure = flatten(cotangent)
    primals, expected = flatten(value)
    if structure != expected or any(hasattr(leaf, "__dask_graph__") for leaf in leaves):
        return None  # ``checked_cotangent`` decides whether that is an error
    pairs = zip(leaves, primals, strict=True)
    there = [(np.shape(c), np.shape(p)) for c, p in pairs if c is not None]
    counts = {shape[0] for shape, _ in there if shape}
    if len(counts) != 1:
        return None
    if not all(shape[1:] == own and len(shape) == len(own) + 1 for shape, own in there):
        return None
    (count,) = counts
    if not count:
        raise ValueError(f"the stack of cotangents of {name!r} is empty; pass at least one")
    rows = [[None if leaf is None else leaf[n] for leaf in leaves] for n in range(count)]
    return [checked_cotangent(optree.tree_unflatten(structure, row), value, name) for row in rows]
