"""What derivatives demand of functions, arguments and cotangents, and the errors that say so."""

import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import optree

from daskgrad.derivatives.shipping import complaints
from daskgrad.graph.activity import Graph
from daskgrad.graph.nodes import Constant, Node, delayed
from daskgrad.graph.variables import OTHER_DERIVATIVE, Variable
from daskgrad.models.tracing import is_real_scalar
from daskgrad.values import cotangents
from daskgrad.values.cotangents import Cotangent
from daskgrad.values.descriptions import describe
from daskgrad.values.trees import flatten

Argnums = int | Sequence[int]


def require_argnums(argnums: Argnums, count: int, name: str) -> list[int]:
    if type(argnums) is int and 0 <= argnums < count:  # nearly always
        return [argnums]
    is_sequence = isinstance(argnums, Sequence | np.ndarray)
    numbers: list[Any] = list(argnums) if is_sequence else [argnums]  # type: ignore[arg-type]
    for number in numbers:
        if not (is_number(number) and 0 <= number < count):
            raise ValueError(
                f"argnums={argnums!r} of {name!r} must be numbers of positional arguments, counted "
                f"from 0; it was called with {count}"
            )
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"argnums={argnums!r} of {name!r} names an argument twice")
    return numbers


def is_number(argnum: Any) -> bool:
    return isinstance(argnum, int | np.integer) and not isinstance(argnum, bool)


def require_argnums_kind(argnums: Any, name: str) -> None:
    """Numbers of arguments; what stands there by mistake is often an argument itself."""
    numbers = argnums if isinstance(argnums, list | tuple | range | np.ndarray) else [argnums]
    if np.ndim(argnums) > 1 or not len(numbers) or not all(map(is_number, numbers)):
        raise ValueError(
            f"argnums={describe(argnums)} of {name!r} must be numbers of positional arguments; the "
            f"arguments themselves go in a second call, as in dg.value_and_grad(fun)(x)"
        )


def require_function(fun: Any, asked: str, place: str = "first") -> None:
    if not callable(fun):
        raise TypeError(
            f"the {place} argument of dg.{asked} is a function that calls models; "
            f"found {describe(fun)}"
        )


def has_derivative(value: Any) -> bool:
    return any(cotangents.is_differentiable(leaf) for leaf in flatten(value)[0])


def require_derivative(value: Any, argument: str, name: str) -> None:
    if has_derivative(value):
        return
    raise TypeError(
        f"argument {argument!r} of {name!r} is {describe(value)}, which has no derivative; "
        f"pass float or complex numbers or NumPy arrays of such (np.asarray makes them of others', "
        f"x.astype(float) of integers; a dataclass must be registered with optree: "
        f"optree.dataclasses.register_node(its_class, namespace='daskgrad')), or leave it out"
    )


def require_no_node(value: Any, argument: str) -> None:
    for leaf in flatten(value)[0]:
        if isinstance(leaf, Node):
            raise TypeError(f"{argument!r} holds {leaf!r}, which {OTHER_DERIVATIVE}")


def require_own_variables(graph: Graph, variables: Sequence[Variable], name: str) -> None:
    """A derivative inside another one would take the variables of the other for constants."""
    own = set(variables)
    for node in graph.order:
        if isinstance(node, Variable) and node.root not in own and node.root.is_recorded:
            raise TypeError(f"the output of {name!r} depends on {node!r}, which {OTHER_DERIVATIVE}")


def require_node(output: Any) -> None:
    if not isinstance(output, Node):
        raise TypeError(
            f"differentiate needs a node, which is what calling a model returns; "
            f"found {describe(output)}"
        )


def require_variables(wrt: Sequence[Any]) -> None:
    for leaf in wrt:
        if not isinstance(leaf, Variable):
            raise TypeError(
                f"wrt must be a variable that dg.variable made, or a pytree of them; "
                f"found {describe(leaf)}"
            )


def require_real_scalar(value: Any, name: str) -> None:
    """The value of an output that no backward task has looked at."""
    if not is_real_scalar([value]):
        raise TypeError(
            f"the gradient of {name!r} was asked for, but its value is {describe(value)}; "
            f"{cotangents.ONE_REAL_NUMBER}"
        )


def as_number(output: Any, name: str) -> Node:
    """The node of an output that is one real number."""
    return output if isinstance(output, Node) else constant_output(output, name)


def constant_output(output: Any, name: str) -> Node:
    """A node for an output that depends on no model: a number, or an error."""
    if isinstance(output, int | float | np.integer | np.floating) and not isinstance(output, bool):
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


def packed(value: Any) -> Any:
    return value


PACK = delayed(packed, name="output")


def checked_cotangent(cotangent: Any, value: Any, name: str) -> Cotangent:
    """A cotangent in the structure, shapes and dtypes of the value."""
    leaves, structure = flatten(cotangent)
    primals, expected = flatten(value)
    if structure != expected:
        raise ValueError(
            f"cotangent of {name!r}: expected the structure of the value, {describe(value)}; "
            f"found {describe(cotangent)}"
        )
    pairs = zip(leaves, primals, strict=True)
    return Cotangent(tuple([cotangents.check(c, leaf, repr(name)) for c, leaf in pairs]))


def unstacked(cotangent: Any, value: Any, name: str) -> list[Cotangent] | None:
    """The cotangents of a stacked batch, or ``None`` where it is a single one."""
    leaves, structure = flatten(cotangent)
    primals, expected = flatten(value)
    if structure != expected or any(hasattr(leaf, "__dask_graph__") for leaf in leaves):
        return None  # which is an error, or none
    pairs = zip(leaves, primals, strict=True)
    there = [(np.shape(c), np.shape(p)) for c, p in pairs if c is not None]
    counts = {shape[0] for shape, _ in there if shape}
    if len(counts) != 1:
        return None
    if not all(shape[1:] == own and len(shape) == len(own) + 1 for shape, own in there):
        return None
    (count,) = counts
    if not count:
        raise ValueError(f"the cotangents of {name!r} are stacked, and there is none of them")
    rows = [[None if leaf is None else leaf[n] for leaf in leaves] for n in range(count)]
    return [checked_cotangent(optree.tree_unflatten(structure, row), value, name) for row in rows]


def checked_tangent(tangent: Any, primal: Any, argument: str) -> Any:
    """A tangent in the structure, shapes and dtypes of its primal; zeros where it is ``None``."""
    leaves, structure = flatten(tangent)
    primals, expected = flatten(primal)
    if tangent is None:
        leaves, structure = [None] * len(primals), expected
    if structure != expected:
        raise ValueError(
            f"tangent of {argument!r}: expected the structure of the primal, {describe(primal)}; "
            f"found {describe(tangent)}"
        )
    pairs = zip(leaves, primals, strict=True)
    checked = [cotangents.check(t, p, repr(argument), "tangent") for t, p in pairs]
    full = [cotangents.zeros(p) if t is None else t for t, p in zip(checked, primals, strict=True)]
    return optree.tree_unflatten(structure, full)


def require_tangents(primals: Any, tangents: Any, asked: str, name: str) -> None:
    """Primals and tangents come in two tuples of one length, an entry for each argument."""
    for what, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, list | tuple):
            raise TypeError(
                f"{asked} of {name!r} takes {what} as a tuple, one entry for each argument; "
                f"found {describe(given)}: write (x,) for a single one"
            )
    if len(primals) != len(tangents):
        raise ValueError(
            f"{asked} of {name!r} takes one tangent for each primal; found {len(primals)} primals "
            f"and {len(tangents)} tangents"
        )
    for number, (primal, tangent) in enumerate(zip(primals, tangents, strict=True)):
        if tangent is not None and not has_derivative(primal):
            checked_tangent(tangent, primal, f"argument {number} of {name}")


def nothing(primal: Any) -> Any:
    """The gradient of an argument without derivative: None for every leaf."""
    leaves, structure = flatten(primal)
    return optree.tree_unflatten(structure, [None] * len(leaves))


def warn_of_independent(variables: Sequence[Variable], name: str) -> None:
    for independent in variables:
        warnings.warn(
            f"the output of {name!r} does not depend on {independent.name!r}; its gradient is zero",
            stacklevel=outside(),
        )


def warn_of_shipping(graph: Graph, client: Any) -> None:
    for message in complaints(graph, client):
        warnings.warn(message, stacklevel=outside())


def outside() -> int:
    """The stacklevel, for the caller's warning, of the first frame that is not of this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("daskgrad."):
        level, frame = level + 1, frame.f_back
    return level
