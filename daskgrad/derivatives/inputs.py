"""Inputs: checks of functions, arguments and tangents, and the errors that they raise."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from daskgrad.graph.activity import Graph
from daskgrad.graph.chunked_variables import ChunkedVariable
from daskgrad.graph.nodes import Node
from daskgrad.graph.variables import OTHER_DERIVATIVE, Variable
from daskgrad.tasks.collections import is_dask_array
from daskgrad.values import cotangents
from daskgrad.values.cotangents import Leaves
from daskgrad.values.descriptions import describe, function_name, is_integer
from daskgrad.values.trees import flatten
from daskgrad.values.vectors import still

Argnums = int | Sequence[int]


def require_argnums(argnums: Argnums, count: int, name: str) -> list[int]:
    if type(argnums) is int and 0 <= argnums < count:  # nearly always
        return [argnums]
    is_sequence = isinstance(argnums, Sequence | np.ndarray)
    numbers: list[Any] = list(argnums) if is_sequence else [argnums]  # type: ignore[arg-type]
    for number in numbers:
        if not (is_integer(number) and 0 <= number < count):
            raise ValueError(
                f"argnums={argnums!r} of {name!r} must be numbers of positional arguments, counted "
                f"from 0; it was called with {count}"
            )
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"argnums={argnums!r} of {name!r} names an argument twice")
    return numbers


def require_argnums_kind(argnums: Any, name: str) -> None:
    """Raises unless these are numbers of arguments; by mistake they often are an argument."""
    numbers = argnums if isinstance(argnums, list | tuple | range | np.ndarray) else [argnums]
    if np.ndim(argnums) > 1 or not len(numbers) or not all(map(is_integer, numbers)):
        raise ValueError(
            f"argnums={describe(argnums)} of {name!r} must be numbers of positional arguments; the "
            f"arguments themselves go in a second call, as in dg.value_and_grad(fun)(x)"
        )


def require_function(fun: Any, asked: str, place: str = "first") -> None:
    if not callable(fun):
        raise TypeError(
            f"the {place} argument of dg.{asked} must be a function that calls models; "
            f"found {describe(fun)}"
        )


def require_differentiable(fun: Any, argnums: Any, asked: str) -> str:
    """Checks a function and which arguments to differentiate; returns the function's name."""
    require_function(fun, asked)
    name = function_name(fun)
    require_argnums_kind(argnums, name)
    return name


def as_argnums(found: Sequence[Any], argnums: Argnums) -> Any:
    """The only one of these where ``argnums`` is a number, else a tuple."""
    return found[0] if is_integer(argnums) else tuple(found)


def has_derivative(value: Any) -> bool:
    return any(cotangents.is_differentiable(leaf) for leaf in flatten(value)[0])


def require_derivative(value: Any, argument: str, name: str) -> None:
    if has_derivative(value):
        return
    if is_dask_array(value):
        raise TypeError(
            f"argument {argument!r} of {name!r} is a dask Array; its derivative is one, too, which "
            f"dg.differentiate returns: x = dg.variable(array), "
            f"dg.differentiate({name}(x), x); or compute it first"
        )
    raise TypeError(
        f"argument {argument!r} of {name!r} is {describe(value)}, which has no derivative; "
        f"pass float or complex numbers or NumPy arrays of them (np.asarray converts others, "
        f"x.astype(float) integers; a dataclass must be registered with optree: "
        f"optree.dataclasses.register_node(its_class, namespace='daskgrad')), or leave it out"
    )


def require_no_node(value: Any, argument: str) -> None:
    for leaf in flatten(value)[0]:
        if isinstance(leaf, Node):
            raise TypeError(f"{argument!r} holds {leaf!r}, which {OTHER_DERIVATIVE}")


def require_own_variables(graph: Graph, variables: Sequence[Variable], name: str) -> None:
    """Raises for a derivative inside another one, whose variables would be constants here."""
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
        if not isinstance(leaf, Variable | ChunkedVariable):
            raise TypeError(
                f"wrt must be a variable that dg.variable made, or a pytree of them; "
                f"found {describe(leaf)}"
            )


def checked_leaves(derivative: Any, value: Any, what: str, of: str) -> Leaves:
    """The leaves of a tangent or cotangent in the structure, shapes and dtypes of a value."""
    leaves, structure = flatten(derivative)
    primals, expected = flatten(value)
    if structure != expected:
        raise ValueError(
            f"{what}: expected the structure of the {of}, {describe(value)}; "
            f"found {describe(derivative)}"
        )
    pairs = zip(leaves, primals, strict=True)
    return tuple([cotangents.check(leaf, primal, what) for leaf, primal in pairs])


def checked_tangent(tangent: Any, primal: Any, argument: str) -> Any:
    """A tangent in the structure, shapes and dtypes of its primal; zeros where it is ``None``."""
    if tangent is None:
        return still(primal)
    checked = checked_leaves(tangent, primal, f"tangent of {argument!r}", "primal")
    return cotangents.gradient(*flatten(primal), checked)


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
