"""Sparse: which leaves of the arguments should have ``Rows`` as gradients."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import optree

from daskgrad.graph.variables import Variable, borrow_variable
from daskgrad.values.cotangents import is_differentiable
from daskgrad.values.descriptions import argument_name, describe, function_name
from daskgrad.values.elsewhere import Elsewhere

Sparse = bool | str | Iterable[str]
Asked = bool | tuple[str, ...]  # the same, as it is used


def as_asked(sparse: Sparse, what: str) -> Asked:
    """TypeError unless it is True, False, a path, or several."""
    if isinstance(sparse, bool):
        return sparse
    paths: tuple[str, ...] = (sparse,) if isinstance(sparse, str) else ()
    if isinstance(sparse, Iterable) and not isinstance(sparse, str | np.ndarray):
        paths = tuple(sparse)
    is_none = isinstance(sparse, list | tuple | set | frozenset) and not paths
    if not is_none and not (paths and all(isinstance(path, str) and path for path in paths)):
        raise TypeError(
            f"sparse of {what} must be True, False, or paths of leaves such as 'W' or "
            f"'params.W'; found {describe(sparse)}"
        )
    return paths


def ask_for_rows(variables: Sequence[Variable], sparse: Asked, name: str) -> None:
    """Asks for rows as the gradients of the leaves that ``sparse`` names.

    ValueError for a path that names no array with a gradient.
    """
    unused = set() if isinstance(sparse, bool) else set(sparse)
    wanted = frozenset(unused)
    for variable in variables:
        asked = []
        for number, (leaf, names) in enumerate(leaves_with_names(variable)):
            found = {path for path in wanted if any(is_within(each, path) for each in names)}
            is_array = isinstance(leaf, np.ndarray | Elsewhere) and leaf.ndim
            if is_array and is_differentiable(leaf):
                unused -= found
                if sparse is True or found:
                    asked.append(number)
        variable.asked = tuple(asked)
    if unused:
        known = [names[0] for each in variables for _, names in leaves_with_names(each)]
        told = ", ".join(map(repr, sorted(unused)))
        raise ValueError(
            f"sparse of {name!r} names {told}, and no float array is called so; the leaves of the "
            f"arguments that are differentiated are {', '.join(map(repr, known))}"
        )


def asked_leaves(
    fun: Callable, numbers: Sequence[int], args: Sequence[Any], sparse: Asked
) -> list[int]:
    """Of the leaves with a gradient of the arguments at ``numbers``, counted argument by argument,
    the numbers of those that ``sparse`` names."""
    if not sparse:
        return []
    ordered = sorted({number % len(args) for number in numbers})
    variables = [borrow_variable(args[n], argument_name(fun, n)) for n in ordered]
    ask_for_rows(variables, sparse, function_name(fun))
    pairs = [(leaf, n in each.asked) for each in variables for n, leaf in enumerate(each.leaves)]
    are_asked = [is_asked for leaf, is_asked in pairs if is_differentiable(leaf)]
    return [number for number, is_asked in enumerate(are_asked) if is_asked]


def leaves_with_names(variable: Variable) -> Iterable[tuple[object, tuple[str, str]]]:
    """The leaves of an argument, each with its path, with and without the argument's name."""
    for leaf, accessor in zip(variable.leaves, variable.structure.accessors(), strict=True):
        entries = list(map(name_of, accessor))
        yield leaf, (".".join([variable.name, *entries]), ".".join(entries))


def name_of(entry: optree.PyTreeEntry) -> str:
    """An index, a key, or the name of a field."""
    written = entry.codify("")
    return written[1:] if written.startswith(".") else str(entry.entry)


def is_within(name: str, path: str) -> bool:
    return name == path or name.startswith(f"{path}.")
