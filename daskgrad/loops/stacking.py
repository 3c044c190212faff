"""Stacking: the rows of many steps side by side, of values and of cotangents."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskgrad.values.cotangents import Leaves
from daskgrad.values.trees import flatten, unflatten


def stack(values: Sequence[Any]) -> Any:
    """Values of one structure, with their leaves side by side along a new first axis."""
    return leaf_by_leaf(np.stack, values)


def concatenate(stacks: Sequence[Any]) -> Any:
    """Stacks, one after the other."""
    return stacks[0] if len(stacks) == 1 else leaf_by_leaf(np.concatenate, stacks)


def leaf_by_leaf(join: Callable[[Sequence[Any]], Any], values: Sequence[Any]) -> Any:
    leaves = zip(*[flatten(value)[0] for value in values], strict=True)
    joined = [None if group[0] is None else join(group) for group in leaves]
    return unflatten(flatten(values[0])[1], joined)


def stack_cotangents(rows: Sequence[Leaves]) -> Leaves:
    """The cotangents of consecutive rows side by side; ``None`` where all rows have none."""
    return tuple(
        [join_there(np.stack, group, [()] * len(group)) for group in zip(*rows, strict=True)]
    )


def concatenate_cotangents(stacks: Sequence[Leaves], counts: Sequence[int]) -> Leaves:
    """The cotangents of stacks with so many rows, one after the other."""
    shapes = [(count,) for count in counts]
    groups = zip(*stacks, strict=True)
    return tuple([join_there(np.concatenate, group, shapes) for group in groups])


def join_there(join: Callable, group: Sequence[Any], shapes: Sequence[tuple]) -> Any:
    """Cotangents joined, with zeros for symbolic zeros unless all are; ``shapes``: of the first
    axes, those that the cotangents need not have in common."""
    first = next((each for each in group if each is not None), None)
    if first is None:
        return None
    rest = np.shape(first)[len(shapes[0]) :]
    return join(
        [
            np.zeros((*shape, *rest), first.dtype) if each is None else each
            for each, shape in zip(group, shapes, strict=True)
        ]
    )
