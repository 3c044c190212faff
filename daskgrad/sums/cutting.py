"""Cutting: the collections that sums run over, cut into blocks of items."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
import optree
from numpy.lib.stride_tricks import as_strided

from daskgrad.autodiff.models.as_called import eager_tape
from daskgrad.autodiff.programs.items import LOOKED_AT, ItemList
from daskgrad.autodiff.values.addition import power_of_two
from daskgrad.autodiff.values.cotangents import nbytes
from daskgrad.autodiff.values.descriptions import describe, is_integer
from daskgrad.autodiff.values.memory import require_room, row_major
from daskgrad.autodiff.values.pickling import address
from daskgrad.autodiff.values.trees import BOXES, LEAF_TYPES, NAMESPACE, flatten, usual_leaves

# -------------------------------------------------------------------------------------------------
# Tuples: items that are tuples, such as a row and its label, kept column by column.


class Tuples(Sequence):
    """Columns of equal length as a sequence of tuples; a slice takes a slice of each column."""

    __slots__ = ("columns",)

    def __init__(self, columns: Iterable[Any]):
        self.columns = tuple(columns)

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, place: Any) -> Any:
        items = tuple([column[place] for column in self.columns])
        return Tuples(items) if isinstance(place, slice) else items

    def __iter__(self) -> Iterator[tuple]:
        return zip(*self.columns, strict=True)

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + nbytes(flatten(self.columns)[0])


optree.register_pytree_node(
    Tuples,
    lambda items: (items.columns, None),  # type: ignore[attr-defined]
    lambda _, columns: Tuples(columns),
    namespace=NAMESPACE,
)


class Partitions(list):
    """Partitions of a table as items; each is a slice by itself."""

    def __getitem__(self, place: Any) -> Any:
        items = super().__getitem__(place)
        return Partitions(items) if isinstance(place, slice) else items


def take(items: Any, places: np.ndarray) -> Any:
    """The items at these places, in new arrays and lists."""
    if isinstance(items, Tuples):
        return Tuples([take(column, places) for column in items.columns])
    if isinstance(items, np.ndarray):
        return items[places]
    kind = Partitions if isinstance(items, Partitions) else list
    return kind([items[place] for place in places.tolist()])


def join(parts: Sequence[Any]) -> Any:
    """Items of one kind, one after the other; consecutive rows of one array without a copy."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], Tuples):
        columns = zip(*[part.columns for part in parts], strict=True)
        return Tuples([join(column) for column in columns])
    if isinstance(parts[0], np.ndarray):
        rows = consecutive_rows(parts)
        if rows is not None:
            return rows
        return np.concatenate(parts, dtype=parts[0].dtype)  # records stay records
    return [*chain.from_iterable(parts)]


def consecutive_rows(parts: Sequence[np.ndarray]) -> np.ndarray | None:
    """The rows of an array that parts show one after the other; ``None`` of any other parts."""
    first, count = parts[0], 0
    if type(first) is not np.ndarray or first.base is None:
        return None
    for part in parts:
        is_alike = part.base is first.base and part.dtype == first.dtype
        is_alike &= part.strides == first.strides and part.shape[1:] == first.shape[1:]
        if not is_alike or address(part) != address(first) + count * first.strides[0]:
            return None
        count += len(part)
    return as_strided(first, (count, *first.shape[1:]), first.strides)


def columns_of(items: Any) -> tuple:
    """The columns of items: one unless they are tuples."""
    return items.columns if isinstance(items, Tuples) else (items,)


def as_slice(items: Any) -> Any:
    """Items as the argument of a function of slices: a tuple of columns for tuples."""
    if isinstance(items, Tuples):
        return tuple(map(as_slice, items.columns))
    return items[0] if isinstance(items, Partitions) else items


# ----------------------------------------------------------------------------------------- cutting

BLOCKS = 32  # the least that an automatic grainsize makes of a long list
SLICE_ROWS = 2**15  # in a slice of arrays: rows of a few numbers take a millisecond or two
SLICE_BYTES = 2**22  # in a slice of wide rows
FEW = 4  # slices: more than these grow more slowly than the arrays
SLICES = 64  # of arrays, at the most: one or more for each core of a large machine

Grainsize = int | Literal["auto"]


class Block(NamedTuple):
    """A run of items; ``first`` is the index of its first item among all."""

    first: int
    items: Any


def as_items(items: Any, argument: str = "items") -> Sequence[Any] | np.ndarray:
    """The items as a list, or as a C-contiguous array: BLAS gives strided rows other bits."""
    if type(items) in BOXES and items.ndim and len(items) and items.flags.c_contiguous:
        return items
    if isinstance(items, np.ndarray) and items.ndim:
        require_plain(items, argument)
        require_room(items, argument)
        items = np.ascontiguousarray(items)
    elif not isinstance(items, list | tuple | range):
        raise TypeError(
            f"{argument} must be a list, a tuple, a range, a NumPy array of at least one dimension "
            f"or what dg.place returns; found {describe_items(items)}"
        )
    if not len(items):
        raise ValueError(f"{argument} is empty, and an empty sum has no shape; sum at least one")
    if isinstance(items, np.ndarray):
        return items
    kinds = set(map(type, items))
    if kinds <= LEAF_TYPES and np.ndarray not in kinds:
        return list(items)  # none holds an array, and there may be millions of numbers
    if eager_tape() is not None and len(items) > LOOKED_AT:
        looked = ItemList(items)  # for a sum that runs now
        if looked.facts is not None:
            known, columns = looked.facts.known, looked.columns or ()
            if "in order" not in known:
                known["in order"] = all([all(map(is_in_row_order, leaves)) for leaves in columns])
            return looked if known["in order"] else list(map(in_row_order, items))
    leaves = usual_leaves(items)
    if leaves is None:
        leaves = flatten(list(items))[0]
    if all(map(is_in_row_order, leaves)):
        return list(items)
    return list(map(in_row_order, items))


def is_in_row_order(leaf: Any) -> bool:
    return not isinstance(leaf, np.ndarray) or leaf.flags.carray


def as_block(items: Any) -> Sequence[Any] | np.ndarray:
    """Computed items as rows of a contiguous array, or as a list."""
    if isinstance(items, np.ndarray):
        require_plain(items, "a block of the items")
        return row_major(items)
    return [in_row_order(item) for item in items]


def describe_items(items: Any) -> str:
    """A wrong collection in words, and how to convert it."""
    kind = type(items)
    if hasattr(kind, "iloc"):
        return (
            f"{describe(items)}; pass its rows: .to_numpy() or .to_dict('records'), or a list of "
            f"frames that are parts of it"
        )
    if kind.__module__.partition(".")[0] == "dask":
        return f"{describe(items)}; compute it first"
    return describe(items)


def in_row_order(item: Any) -> Any:
    """An item with C-contiguous arrays."""
    if isinstance(item, np.ndarray):
        return row_major(item)
    leaves, structure = flatten(item)
    if all(row_major(leaf) is leaf for leaf in leaves):
        return item
    return optree.tree_unflatten(structure, list(map(row_major, leaves)))


def require_plain(items: np.ndarray, argument: str) -> None:
    """Raises for subclasses: a masked array would lose its mask, and a quantity its unit."""
    if type(items) not in (np.ndarray, np.memmap, np.recarray):
        raise TypeError(
            f"{argument} is {type(items).__name__} {describe(items)}; convert it to a plain array "
            f"first, or pass a list"
        )
    if items.dtype == object:
        raise TypeError(f"{argument} is an array of Python objects, {describe(items)}; pass a list")


def cut(items: Sequence[Any] | np.ndarray, grainsize: int) -> list[Block]:
    """The items in blocks of ``grainsize``; the last one may be shorter."""
    starts = range(0, len(items), grainsize)
    return [Block(start, items[start : start + grainsize]) for start in starts]


def require_grainsize(grainsize: Any) -> None:
    is_auto = isinstance(grainsize, str) and grainsize == "auto"
    if not is_auto and not (is_integer(grainsize) and grainsize >= 1):
        raise ValueError(
            f"grainsize must be the number of items in one task, at least 1, or 'auto'; "
            f"found {grainsize!r}"
        )


def aligned_grainsize(grainsize: Grainsize, count: int, blocks: int = BLOCKS) -> int:
    """The items in one task: a power of two, so that blocks are subtrees of the sum.

    A number is rounded down; "auto" makes at least ``blocks`` blocks of as many items.
    """
    require_grainsize(grainsize)
    return power_of_two(max(1, count // blocks) if grainsize == "auto" else int(grainsize))


def slice_size(parts: Sequence[Any], count: int) -> int:
    """The default number of items in a slice, for ``parts`` side by side with ``count`` items each.

    A slice costs some tenths of a millisecond besides its rows. The bits of a sum depend on the
    slices, so the size follows from shapes alone. Arrays are cut into a power of two of equal
    slices, with at least ``SLICE_ROWS`` rows or ``SLICE_BYTES`` bytes each; above ``FEW`` slices
    their number grows as the square root, up to ``SLICES``. Items of a list may
    have any size: if one part is a list, a slice is as long as a block.
    """
    nbytes = [rows_nbytes(column) for part in parts for column in columns_of(part)]
    if None in nbytes:
        return aligned_grainsize("auto", count)
    size = max(count // SLICE_ROWS, sum(filter(None, nbytes)) // SLICE_BYTES, 1)
    slices = min(size, math.isqrt(FEW * size), count, SLICES)
    return -(-count // power_of_two(slices))


def rows_nbytes(part: Any) -> int | None:
    """The bytes of an array, or of a backend's box of one; ``None`` for a list."""
    if isinstance(part, list | tuple) or not hasattr(part, "dtype"):
        return None
    return math.prod(part.shape) * np.dtype(part.dtype).itemsize
