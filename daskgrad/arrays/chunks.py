"""Chunks: sizes along each axis, broadcasting of operands' chunks, and the blocks of an array."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.arrays.halos import GridLayout
from daskgrad.autodiff.models.model import Model
from daskgrad.autodiff.values.descriptions import is_integer
from daskgrad.graph.nodes import CallNode, Node

Chunks = tuple[tuple[int, ...], ...]


def broadcast(all_chunks: Sequence[Chunks], function: str) -> Chunks:
    """The chunks of the result of an elementwise operation; axes of one entry are repeated."""
    ndim = max(map(len, all_chunks))
    chunks = []
    for axis in range(-ndim, 0):
        sizes = {operand[axis] for operand in all_chunks if len(operand) >= -axis}
        wide = sizes - {(1,)}
        if len(wide) > 1:
            text = " and ".join(map(str, sorted(wide)))
            raise ValueError(
                f"{function} of arrays with different chunks along axis {ndim + axis}: {text}; "
                f"rechunk one: x.rechunk(y.chunks)"
            )
        chunks.append((wide or sizes).pop())
    return tuple(chunks)


def place_in(chunks: Chunks, index: Sequence[int]) -> tuple[int, ...]:
    """The operand's block that goes with a block of a broadcast result."""
    pairs = zip(chunks, index[len(index) - len(chunks) :], strict=True)
    return tuple([0 if sizes == (1,) else place for sizes, place in pairs])


def as_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """The axes in an ``axis`` argument of NumPy's functions; all for None."""
    if axis is None:
        return tuple(range(ndim))
    axes = [axis] if is_integer(axis) else list(axis)
    for number in axes:
        if not is_integer(number) or not -ndim <= number < ndim:
            raise ValueError(f"an array with {ndim} axes has no axis {number!r}")
    return tuple(sorted({int(number) % ndim for number in axes}))


def as_chunks(chunks: Any, shape: Sequence[int]) -> Chunks:
    """Chunks from one size, or from a size or sizes for each axis; -1 means one chunk."""
    by_axis = [chunks] * len(shape) if is_integer(chunks) else list(chunks)
    if len(by_axis) != len(shape):
        raise ValueError(f"chunks for {len(shape)} axes are needed; found {chunks!r}")
    return tuple([sizes_of(widths, size) for widths, size in zip(by_axis, shape, strict=True)])


def sizes_of(widths: Any, size: int) -> tuple[int, ...]:
    if is_integer(widths):
        width = size if widths == -1 else int(widths)
        if width < 1:
            raise ValueError(f"a chunk must have one entry or more, or -1 for all; found {widths}")
        return (*[width] * (size // width), *([size % width] if size % width else []))
    sizes = tuple(map(int, widths))
    if sum(sizes) != size or min(sizes, default=0) < 1:
        raise ValueError(f"chunks must be positive and add up to {size}; found {sizes}")
    return sizes


# -------------------------------------------------------------------------------------------------
# Parts: the blocks of an array.


class Parts(NamedTuple):
    """An array in chunks: nodes, or constants, in C order."""

    blocks: tuple[Any, ...]
    chunks: Chunks
    dtype: np.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.layout.shape

    @property
    def layout(self) -> GridLayout:
        return GridLayout(self.chunks)

    def block(self, index: Sequence[int]) -> Any:
        return self.blocks[self.layout.number(tuple(index))]


def made_of(chunks: Chunks, dtype: Any, block_at: Callable[[tuple[int, ...]], Any]) -> Parts:
    """An array; ``block_at`` makes the block at each index."""
    return Parts(tuple(map(block_at, GridLayout(chunks).indices())), chunks, np.dtype(dtype))


def cut_parts(array: np.ndarray, chunks: Chunks) -> Parts:
    """A NumPy array in chunks, which are copies."""
    slices = GridLayout(chunks).slices
    return made_of(chunks, array.dtype, lambda index: array[slices(index)].copy(order="C"))


def call(fun: Callable, name: str, *args: Any) -> Node:
    """A node that calls a NumPy function."""
    return CallNode(Model(fun, name), args, {})


def without_axes(parts: Parts, axes: Sequence[int]) -> Parts:
    """An array without axes of one entry."""
    chunks = tuple([sizes for n, sizes in enumerate(parts.chunks) if n not in axes])
    squeeze = functools.partial(np.squeeze, axis=tuple(axes))
    return Parts(tuple([call(squeeze, "squeeze", b) for b in parts.blocks]), chunks, parts.dtype)
