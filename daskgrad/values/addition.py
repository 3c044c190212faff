"""Addition: the sum of two values, leaf by leaf, plain or with its rounding error beside it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import optree

from daskgrad.values import compensated, cotangents
from daskgrad.values.compensated import Unrounded, UnroundedValue, rounded_value, taken_apart
from daskgrad.values.cotangents import as_summand
from daskgrad.values.descriptions import describe
from daskgrad.values.summation import Addition
from daskgrad.values.trees import flatten


def add_values(first: Any, second: Any, owned: bool = False) -> Any:
    """The sum of two values, leaf by leaf, of one structure and shape.

    ``owned`` says that the first is a result of this function, and may be overwritten.
    """
    if type(first) is np.float64 and type(second) is np.float64:
        return first + second
    leaves, structure = flatten(first)
    others, other_structure = flatten(second)
    if structure != other_structure or list(map(np.shape, leaves)) != list(map(np.shape, others)):
        raise not_alike(first, second)
    pairs = zip(leaves, others, strict=True)
    return optree.tree_unflatten(structure, [_add_leaf(a, b, owned) for a, b in pairs])


def add_compensated(first: Any, second: Any, owned: bool = False) -> Any:
    """As ``add_values``, of values and unrounded sums; overwrites nothing."""
    leaves, structure = taken_apart(first)
    others, other = taken_apart(second)
    shapes, other_shapes = list(map(np.shape, leaves)), list(map(np.shape, others))
    if structure.spec != other.spec or shapes != other_shapes:
        raise not_alike(rounded_value(first), rounded_value(second))
    require_numbers([*leaves, *others])
    pairs = zip(leaves, others, strict=True)
    return UnroundedValue([compensated.add_leaf(a, b) for a, b in pairs], structure)


ADDITIONS = {
    "pairwise": Addition(add_values, cotangents.add),
    "compensated": Addition(add_compensated, compensated.add),
}


def not_alike(first: Any, second: Any) -> ValueError:
    return ValueError(
        f"the terms of a sum must have one structure and shape; "
        f"found {describe(first)} and {describe(second)}"
    )


OBJECTS = np.dtype(object)


NUMBERS = (np.ndarray, np.generic, int, float, complex, Unrounded)


def require_numbers(leaves: Sequence[Any]) -> None:
    for leaf in leaves:
        if not isinstance(leaf, NUMBERS) or getattr(leaf, "dtype", OBJECTS).kind in "USMV":
            raise TypeError(f"the terms of a sum must be numbers; found {describe(leaf)}")
        if isinstance(leaf, np.ma.MaskedArray):
            raise TypeError(
                f"the terms of a sum must be numbers; found a masked array, {describe(leaf)}, "
                f"whose mask would be lost: fill it, or sum what is not masked"
            )


def _add_leaf(first: Any, second: Any, owned: bool) -> Any:
    require_numbers((first, second))
    first, second = as_summand(first), as_summand(second)
    if owned and isinstance(first, np.ndarray) and first.dtype == getattr(second, "dtype", None):
        return np.add(first, second, out=first)
    return first + second
