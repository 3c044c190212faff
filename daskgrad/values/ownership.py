"""Ownership: what nobody else holds may be given away as it is.

A pullback may return what it was given, what it keeps, or one array for two inputs, and a cotangent
belongs to all its consumers. So a gradient is copied before the user may write into it, unless
Python's count of references says that nobody else has it. NumPy decides by the same count whether
an operation may write into its operand (``numpy/_core/src/multiarray/temp_elide.c``).
"""

from collections.abc import MutableMapping
from sys import getrefcount
from typing import Any

import numpy as np

from daskgrad.values.cotangents import Cotangent, Leaves, Seed


def take_cotangent(arrived: MutableMapping[Any, Cotangent], key: Any) -> Cotangent:
    """A cotangent, taken out of ``arrived``, whose arrays are the caller's alone.

    They are copied where anybody else holds them, the memory that they show, or the cotangent.
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
    """The leaves of a cotangent, and how many references there are: to it and to their tuple; and
    for each leaf to it and to the array whose memory it shows.
    """
    cotangent = arrived.pop(key)
    leaves = cotangent.leaves
    holders = getrefcount(cotangent), getrefcount(leaves)
    of_leaves = [(getrefcount(leaf), getrefcount(getattr(leaf, "base", None))) for leaf in leaves]
    return leaves, holders, of_leaves


# As this version of Python counts them, where nobody else holds anything.
_, ALONE, (ALONE_LEAF,) = count_references({"": Cotangent((np.zeros(2).reshape(1, 2),))}, "")
SHARED = (-1, -1)


def own_leaf(leaf: Any, holders: tuple[int, int]) -> Any:
    """An array itself if it is held by nobody else and shows all of its memory, or a copy."""
    if not isinstance(leaf, np.ndarray):
        return leaf
    memory = leaf if leaf.base is None else leaf.base
    checked = slice(1 if memory is leaf else 2)  # many hold None
    is_alone = holders[checked] == ALONE_LEAF[checked]
    is_whole = type(memory) is np.ndarray and memory.flags.owndata and memory.nbytes == leaf.nbytes
    return leaf if is_alone and is_whole and leaf.flags.writeable else leaf.copy()
