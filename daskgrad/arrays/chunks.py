"""Chunks: sizes along each axis, how those of operands go together, and the blocks they make."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.arrays.halos import Layout
from daskgrad.autodiff.models.model import Model
from daskgrad.autodiff.values.descriptions import is_integer
from daskgrad.graph.nodes import CallNode, Node

Chunks = tuple[tuple[int, ...], ...]


def broadcast(all_chunks: Sequence[Chunks], what: str) -> Chunks:
    """The chunks of the result of an elementwise operation; axes of one entry are repeated."""
    ndim = max(map(len, all_chunks))
    found = []
    for axis in range(-ndim, 0):
        sizes = {chunks[axis] for chunks in all_chunks if len(chunks) >= -axis}
        wide = sizes - {(1,)}
        if len(wide) > 1:
            told = " and ".join(map(str, sorted(wide)))
            raise ValueError(
                f"{what} of arrays with other chunks along axis {ndim + axis}: {told}; rechunk "
                f"one: x.rechunk(y.chunks)"
            )
        found.append((wide or sizes).pop())
    return tuple(found)


def place_in(chunks: Chunks, index: Sequence[int]) -> tuple[int, ...]:
    """Which block of an operand goes with a block of a broadcast result."""
    own = index[len(index) - len(chunks) :]
    pairs = zip(chunks, own, strict=True)
    return tuple([0 if sizes == (1,) else place for sizes, place in pairs])


def as_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """The axes that an argument of NumPy's functions names; all for None."""
    if axis is None:
        return tuple(range(ndim))
    given = [axis] if is_integer(axis) else list(axis)
    for each in given:
        if not is_integer(each) or not -ndim <= each < ndim:
            raise ValueError(f"axis {each!r} is none of an array with {ndim} axes")
    return tuple(sorted({int(each) % ndim for each in given}))


def as_chunks(given: Any, shape: Sequence[int]) -> Chunks:
    """The chunks that a size, or for each axis a size or sizes, stand for; -1: one chunk."""
    each = [given] * len(shape) if is_integer(given) else list(given)
    if len(each) != len(shape):
        raise ValueError(f"chunks for {len(shape)} axes are needed; found {given!r}")
    return tuple([sizes_of(one, size) for one, size in zip(each, shape, strict=True)])


def sizes_of(given: Any, size: int) -> tuple[int, ...]:
    if is_integer(given):
        width = size if given == -1 else int(given)
        if width < 1:
            raise ValueError(f"a chunk must have one entry or more, or -1 for all; found {given}")
        return (*[width] * (size // width), *([size % width] if size % width else []))
    sizes = tuple(map(int, given))
    if sum(sizes) != size or min(sizes, default=0) < 1:
        raise ValueError(f"chunks must be positive and add up to {size}; found {sizes}")
    return sizes


# -------------------------------------------------------------------------------------------------
# Parts: the blocks of an array, and how operations make new ones.


class Parts(NamedTuple):
    """An array in chunks: nodes, or constants, in C order."""

    blocks: tuple[Any, ...]
    chunks: Chunks
    dtype: np.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.layout.shape

    @property
    def layout(self) -> Layout:
        return Layout(self.chunks)

    def block(self, index: Sequence[int]) -> Any:
        return self.blocks[self.layout.number(tuple(index))]


def made_of(chunks: Chunks, dtype: Any, block_at: Callable[[tuple[int, ...]], Any]) -> Parts:
    """The array whose block at each index a function makes."""
    return Parts(tuple(map(block_at, Layout(chunks).indices())), chunks, np.dtype(dtype))


def call(fun: Callable, name: str, *args: Any) -> Node:
    """A node that calls a function of NumPy's."""
    return CallNode(Model(fun, name), args, {})
