"""Ownership: whether the caller may have an array itself, or needs a copy.

A pullback may return its argument, an array that it keeps, or one array for two inputs, and a
cotangent belongs to all its consumers. So a gradient is copied before the user may write into it,
unless Python's reference counts say that nobody else has it. NumPy uses the same counts to decide
whether an operation may write into its operand (``numpy/_core/src/multiarray/temp_elide.c``).
"""

from collections.abc import MutableMapping
from sys import getrefcount
from typing import Any

import numpy as np

from daskgrad.values.cotangents import Cotangent, Leaves, Seed


def take_cotangent(arrived: MutableMapping[Any, Cotangent], key: Any) -> Cotangent:
    """Takes a cotangent out of ``arrived``; its arrays belong to the caller alone.

    They are copied if anybody else holds them, the memory that they show, or the cotangent.
    """
    if isinstance(arrived[key], Seed):
        return arrived.pop(key)
    leaves, holders, of_leaves = count_references(arrived, key)
    if holders != ALONE:
        of_leaves = [SHARED] * len(leaves)
    return Cotangent(tuple(map(own_leaf, leaves, of_leaves)))


def count_references(
    arrived: MutableMapping[Any, Cotangent], key: Any
) -> tuple[Leaves, tuple[int, int], list[tuple[int, int]]]:
    """The leaves of a cotangent, and numbers of references: to the cotangent and to the tuple of
    its leaves; and for each leaf, to it and to the array whose memory it shows.
    """
    cotangent = arrived.pop(key)
    leaves = cotangent.leaves
    holders = getrefcount(cotangent), getrefcount(leaves)
    of_leaves = [(getrefcount(leaf), getrefcount(getattr(leaf, "base", None))) for leaf in leaves]
    return leaves, holders, of_leaves


# The counts of this version of Python if nobody else holds anything.
_, ALONE, (ALONE_LEAF,) = count_references({"": Cotangent((np.zeros(2).reshape(1, 2),))}, "")
SHARED = (-1, -1)


def own_leaf(leaf: Any, holders: tuple[int, int]) -> Any:
    """An array itself if nobody else holds it and it shows all of its memory; else a copy."""
    if not isinstance(leaf, np.ndarray):
        return leaf
    memory = leaf if leaf.base is None else leaf.base
    checked = slice(1 if memory is leaf else 2)  # many hold None
    is_alone = holders[checked] == ALONE_LEAF[checked]
    is_whole = type(memory) is np.ndarray and memory.flags.owndata and memory.nbytes == leaf.nbytes
    return leaf if is_alone and is_whole and leaf.flags.writeable else leaf.copy()
