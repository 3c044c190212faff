"""Addition: the sum of two values, leaf by leaf, plain or with its rounding error beside it."""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optree

from daskgrad.values import compensated, cotangents
from daskgrad.values.compensated import Unrounded, UnroundedValue, flatten_sum, rounded_value
from daskgrad.values.cotangents import as_summand
from daskgrad.values.descriptions import describe
from daskgrad.values.registrations import Structure
from daskgrad.values.summation import Addition
from daskgrad.values.trees import flatten


def add_values(first: Any, second: Any, owned: bool = False) -> Any:
    """The sum of two values, leaf by leaf, of one structure and shape.

    ``owned`` says that the first is a result of this function, and may be overwritten.
    """
    if type(first) is np.float64 and type(second) is np.float64:
        return first + second
    leaves, others, structure = flatten_pair(first, second, flatten)
    pairs = zip(leaves, others, strict=True)
    return optree.tree_unflatten(structure, [_add_leaf(a, b, owned) for a, b in pairs])


def add_anew(first: Any, second: Any, owned: bool = False) -> Any:
    """As ``add_values``, in new arrays; also adds the boxes of a trace."""
    leaves, others, structure = flatten_pair(first, second, flatten)
    sums = map(operator.add, map(as_summand, leaves), map(as_summand, others))
    return optree.tree_unflatten(structure, list(sums))


def add_compensated(first: Any, second: Any, owned: bool = False) -> Any:
    """As ``add_values``, of values and unrounded sums; overwrites nothing."""
    leaves, others, structure = flatten_pair(first, second, flatten_sum)
    require_numbers([*leaves, *others])
    return UnroundedValue(list(map(compensated.add_leaf, leaves, others)), Structure(structure))


ADDITIONS = {
    "pairwise": Addition(add_values, cotangents.add),
    "compensated": Addition(add_compensated, compensated.add),
}


def flatten_pair(first: Any, second: Any, flatten: Callable) -> tuple[Sequence, Sequence, Any]:
    """The leaves of two values, and the structure of both."""
    (leaves, structure), (others, other) = flatten(first), flatten(second)
    if structure != other or list(map(np.shape, leaves)) != list(map(np.shape, others)):
        raise StructureError(
            f"the terms of a sum must have one structure and shape; found "
            f"{describe(rounded_value(first))} and {describe(rounded_value(second))}"
        )
    return leaves, others, structure


class StructureError(ValueError):
    """Two terms of a sum cannot be added."""


def are_alike(first: Any, second: Any) -> bool:
    """Whether two terms have one structure and shape."""
    try:
        flatten_pair(first, second, flatten)
    except StructureError:
        return False
    return True


OBJECTS = np.dtype(object)


NUMBERS = (np.ndarray, np.generic, int, float, complex, Unrounded)


def require_numbers(leaves: Sequence[Any]) -> None:
    for leaf in leaves:
        if not isinstance(leaf, NUMBERS) or getattr(leaf, "dtype", OBJECTS).kind in "USMV":
            raise TypeError(f"the terms of a sum must be numbers; found {describe(leaf)}")
        if isinstance(leaf, np.ma.MaskedArray):
            raise TypeError(
                f"the terms of a sum must be numbers; found a masked array, {describe(leaf)}, "
                f"whose mask would be lost; fill it, or sum the entries that are not masked"
            )


def _add_leaf(first: Any, second: Any, owned: bool) -> Any:
    require_numbers((first, second))
    first, second = as_summand(first), as_summand(second)
    if owned and isinstance(first, np.ndarray) and first.dtype == getattr(second, "dtype", None):
        return np.add(first, second, out=first)
    return first + second
