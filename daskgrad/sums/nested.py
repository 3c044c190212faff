"""Nested: sums inside models, where nothing is recorded.

The terms may hold the boxes of a trace, so they are added with ``+``, in the order of every other
sum: derivatives flow through it as through the rest of the model.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import optree

from daskgrad.values.addition import not_alike
from daskgrad.values.cotangents import as_summand
from daskgrad.values.protection import of_run
from daskgrad.values.summation import pairwise
from daskgrad.values.trees import flatten


def nested_sum(fun: Callable, name: str, items: Iterable[Any], shared: tuple) -> Any:
    """The sum of ``fun(item, *shared)`` over at least one item."""
    return pairwise((term(fun, name, *pair, shared) for pair in enumerate(items)), add)


def term(fun: Callable, name: str, number: int, item: Any, shared: tuple) -> Any:
    try:
        return fun(*of_run([item, *shared]))
    except Exception as error:
        error.add_note(f"daskgrad: in item {number} of a sum of {name!r} inside a model")
        raise


def add(first: Any, second: Any, owned: bool = False) -> Any:
    """The sum of two values, leaf by leaf, in new arrays: a box may hold the old ones."""
    leaves, structure = flatten(first)
    others, other_structure = flatten(second)
    if structure != other_structure or list(map(np.shape, leaves)) != list(map(np.shape, others)):
        raise not_alike(first, second)
    pairs = zip(leaves, others, strict=True)
    return optree.tree_unflatten(structure, [as_summand(a) + as_summand(b) for a, b in pairs])
