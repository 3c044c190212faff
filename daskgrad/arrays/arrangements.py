"""Arrangements: the same entries in other places: transposes, slices, other chunks, joins."""

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from daskgrad.arrays.chunks import Chunks, Parts, as_axes, as_chunks, call, made_of, without_axes
from daskgrad.autodiff.values.descriptions import describe, is_integer


def transpose(parts: Parts, axes: Any = None) -> Parts:
    ndim = len(parts.chunks)
    order = tuple(range(ndim))[::-1] if axes is None else tuple([axis % ndim for axis in axes])
    if sorted(order) != list(range(ndim)):
        raise ValueError(f"the axes of a transpose must be all of {ndim}; found {axes!r}")
    turn = functools.partial(np.transpose, axes=order)
    back = np.argsort(order)

    def block_at(index: tuple[int, ...]) -> Any:
        return call(turn, "transpose", parts.block([index[place] for place in back]))

    return made_of(tuple([parts.chunks[axis] for axis in order]), parts.dtype, block_at)


def rechunk(parts: Parts, chunks: Any) -> Parts:
    """The array in other chunks."""
    wanted = as_chunks(chunks, parts.shape)
    if wanted == parts.chunks:
        return parts
    sources = []
    for old, new in zip(parts.chunks, wanted, strict=True):
        bounds = itertools.pairwise(itertools.accumulate(new, initial=0))
        sources.append([cut_out(old, start, stop) for start, stop in bounds])
    return gather(parts, wanted, sources)


ChunkPart = tuple[int, slice]  # a chunk along one axis, and a part of it


def gather(parts: Parts, chunks: Chunks, sources: Sequence[Sequence[Sequence[ChunkPart]]]) -> Parts:
    """An array of parts of old blocks; ``sources``: the parts by axis and by new chunk."""

    def block_at(index: tuple[int, ...]) -> Any:
        return joined(parts, [along[n] for along, n in zip(sources, index, strict=True)], ())

    return made_of(chunks, parts.dtype, block_at)


def joined(parts: Parts, sources: Sequence[Sequence[ChunkPart]], at: tuple[ChunkPart, ...]) -> Any:
    """One block, from its parts along the axes behind the axes of ``at``."""
    axis = len(at)
    if axis == len(sources):
        block = parts.block([n for n, _ in at])
        cut = tuple([part for _, part in at])
        pairs = zip(parts.chunks, at, strict=True)
        is_whole = all(part == slice(0, sizes[n]) for sizes, (n, part) in pairs)
        return block if is_whole else call(functools.partial(take, cut=cut), "slice", block)
    blocks = [joined(parts, sources, (*at, part)) for part in sources[axis]]
    if len(blocks) == 1:
        return blocks[0]
    return call(functools.partial(np.concatenate, axis=axis), "concatenate", blocks)


def take(block: Any, cut: Any) -> Any:
    return block[cut]


# ------------------------------------------------------------------------------------ slices


def select(parts: Parts, index: Any) -> Parts:
    """Indexing by an integer or a slice with step one for each axis; ``...`` for further axes."""
    entries = expanded(index if isinstance(index, tuple) else (index,), len(parts.chunks))
    sources, chunks, dropped = [], [], []
    for axis, (entry, sizes) in enumerate(zip(entries, parts.chunks, strict=True)):
        size = sum(sizes)
        if is_integer(entry):
            if not -size <= entry < size:
                raise IndexError(f"index {entry} is out of bounds for axis {axis} of size {size}")
            start = int(entry) % size
            stop = start + 1
            dropped.append(axis)
        else:
            start, stop, _ = entry.indices(size)
        cut = cut_out(sizes, start, stop)
        if not cut:
            raise ValueError(f"slice {entry} of axis {axis} of size {size} has no entries")
        sources.append([[part] for part in cut])
        chunks.append(tuple([part.stop - part.start for _, part in cut]))
    selected = gather(parts, tuple(chunks), sources)
    return without_axes(selected, dropped) if dropped else selected


def cut_out(sizes: Sequence[int], start: int, stop: int) -> list[ChunkPart]:
    """The parts of chunks between two places."""
    cut, begin = [], 0
    for number, size in enumerate(sizes):
        low, high = max(start, begin), min(stop, begin + size)
        if low < high:
            cut.append((number, slice(low - begin, high - begin)))
        begin += size
    return cut


def expanded(index: tuple, ndim: int) -> list[Any]:
    """An index for each axis; raises for other kinds of indices."""
    for entry in index:
        is_slice = isinstance(entry, slice) and entry.step in (None, 1)
        if not (is_slice or is_integer(entry) or entry is Ellipsis):
            raise TypeError(
                f"a dg.array is indexed by integers and slices of step one; found "
                f"{entry if isinstance(entry, slice) else describe(entry)}: rechunk, and let a "
                f"model take the entries of each block (map_blocks)"
            )
    if index.count(Ellipsis) > 1 or len(index) - index.count(Ellipsis) > ndim:
        raise IndexError(f"too many indices for an array with {ndim} axes")
    place = index.index(Ellipsis) if Ellipsis in index else len(index)
    entries = [entry for entry in index if entry is not Ellipsis]
    middle = [slice(None)] * (ndim - len(entries))
    return [*entries[:place], *middle, *entries[place:]]


# ------------------------------------------------------------------------------------ joined


def concatenate(arrays: Sequence[Parts], axis: int = 0) -> Parts:
    (place,) = as_axes(axis, len(arrays[0].chunks))
    first = arrays[0]
    for other in arrays[1:]:
        pairs = zip(first.chunks, other.chunks, strict=False)
        same = [n == place or a == b for n, (a, b) in enumerate(pairs)]
        if len(first.chunks) != len(other.chunks) or not all(same):
            raise ValueError(
                f"np.concatenate along axis {place} needs the same chunks along the other axes; "
                f"found {first.chunks} and {other.chunks}: rechunk one"
            )
    owners = [(parts, n) for parts in arrays for n in range(len(parts.chunks[place]))]
    sizes = tuple([size for parts in arrays for size in parts.chunks[place]])
    chunks = (*first.chunks[:place], sizes, *first.chunks[place + 1 :])
    dtype = np.result_type(*[parts.dtype for parts in arrays])

    def block_at(index: tuple[int, ...]) -> Any:
        owner, number = owners[index[place]]
        return owner.block((*index[:place], number, *index[place + 1 :]))

    return made_of(chunks, dtype, block_at)


def stack(arrays: Sequence[Parts], axis: int = 0) -> Parts:
    """Arrays side by side along a new axis, each array a chunk."""
    ndim = len(arrays[0].chunks)
    (place,) = as_axes(axis, ndim + 1)
    grow = functools.partial(np.expand_dims, axis=place)

    def with_axis(parts: Parts) -> Parts:
        blocks = tuple([call(grow, "expand_dims", block) for block in parts.blocks])
        chunks = (*parts.chunks[:place], (1,), *parts.chunks[place:])
        return Parts(blocks, chunks, parts.dtype)

    return concatenate(list(map(with_axis, arrays)), place)
