"""Arrangements: the same entries elsewhere: transposes, slices, other chunks, joined arrays."""

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from daskgrad.arrays.chunks import Chunks, Parts, as_axes, as_chunks, call, made_of
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
    """The same array in other chunks."""
    wanted = as_chunks(chunks, parts.shape)
    if wanted == parts.chunks:
        return parts
    ways = [pieces_of(old, new) for old, new in zip(parts.chunks, wanted, strict=True)]
    return gather(parts, wanted, ways)


Piece = tuple[int, slice]  # a chunk along one axis, and a part of it


def pieces_of(old: Sequence[int], new: Sequence[int]) -> list[list[Piece]]:
    """For each new chunk of an axis the parts of old ones that it is made of."""
    found, ends = [], np.cumsum([0, *old])
    start = 0
    for size in new:
        stop = start + size
        found.append(
            [
                (n, slice(max(start, begin) - begin, min(stop, end) - begin))
                for n, (begin, end) in enumerate(itertools.pairwise(ends))
                if begin < stop and end > start
            ]
        )
        start = stop
    return found


def gather(parts: Parts, chunks: Chunks, ways: Sequence[Sequence[Sequence[Piece]]]) -> Parts:
    """The array whose blocks are made of these pieces of the old ones, along each axis."""

    def block_at(index: tuple[int, ...]) -> Any:
        return joined(parts, [way[place] for way, place in zip(ways, index, strict=True)], ())

    return made_of(chunks, parts.dtype, block_at)


def joined(parts: Parts, pieces: Sequence[Sequence[Piece]], at: tuple[Piece, ...]) -> Any:
    """One block, from its pieces along the axes that ``at`` does not name yet."""
    axis = len(at)
    if axis == len(pieces):
        block = parts.block([n for n, _ in at])
        cut = tuple([part for _, part in at])
        sizes = zip(parts.chunks, at, strict=True)
        is_whole = all(part == slice(0, own[n]) for own, (n, part) in sizes)
        return block if is_whole else call(functools.partial(take, cut=cut), "slice", block)
    found = [joined(parts, pieces, (*at, piece)) for piece in pieces[axis]]
    if len(found) == 1:
        return found[0]
    return call(functools.partial(join, axis=axis), "concatenate", found)


def take(block: Any, cut: Any) -> Any:
    return block[cut]


def join(blocks: Any, axis: int) -> Any:
    return np.concatenate(blocks, axis)


# ------------------------------------------------------------------------------------ slices


def select(parts: Parts, given: Any) -> Parts:
    """Integers and slices with step one, for each axis; ``...`` for the rest."""
    index = expanded(given if isinstance(given, tuple) else (given,), len(parts.chunks))
    ways, chunks, dropped = [], [], []
    for axis, (each, sizes) in enumerate(zip(index, parts.chunks, strict=True)):
        size = sum(sizes)
        if is_integer(each):
            if not -size <= each < size:
                raise IndexError(f"index {each} is out of bounds for axis {axis} of size {size}")
            start = int(each) % size
            stop = start + 1
            dropped.append(axis)
        else:
            start, stop, _ = each.indices(size)
        pieces = [(n, part) for n, part in cut_out(sizes, start, stop)]
        if not pieces:
            raise ValueError(f"slice {each} of axis {axis} of size {size} has no entries")
        ways.append([[piece] for piece in pieces])
        chunks.append(tuple([part.stop - part.start for _, part in pieces]))
    found = gather(parts, tuple(chunks), ways)
    if not dropped:
        return found
    squeeze = functools.partial(np.squeeze, axis=tuple(dropped))
    rest = tuple([sizes for axis, sizes in enumerate(chunks) if axis not in dropped])
    blocks = tuple([call(squeeze, "squeeze", block) for block in found.blocks])
    return Parts(blocks, rest, parts.dtype)


def cut_out(sizes: Sequence[int], start: int, stop: int) -> list[Piece]:
    """The parts of chunks between two places."""
    found, begin = [], 0
    for number, size in enumerate(sizes):
        low, high = max(start, begin), min(stop, begin + size)
        if low < high:
            found.append((number, slice(low - begin, high - begin)))
        begin += size
    return found


def expanded(given: tuple, ndim: int) -> list[Any]:
    """An index for each axis; raises for other kinds of indices."""
    for each in given:
        is_slice = isinstance(each, slice) and each.step in (None, 1)
        if not (is_slice or is_integer(each) or each is Ellipsis):
            raise TypeError(
                f"a dg.array is indexed by integers and slices of step one; found "
                f"{each if isinstance(each, slice) else describe(each)}: rechunk, and let a model "
                f"take the entries of each block (map_blocks)"
            )
    if given.count(Ellipsis) > 1 or len(given) - given.count(Ellipsis) > ndim:
        raise IndexError(f"too many indices for an array with {ndim} axes")
    place = given.index(Ellipsis) if Ellipsis in given else len(given)
    rest = [each for each in given if each is not Ellipsis]
    middle = [slice(None)] * (ndim - len(rest))
    return [*rest[:place], *middle, *rest[place:]]


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
    counts = [len(each.chunks[place]) for each in arrays]
    owners = [(n, i) for n, count in enumerate(counts) for i in range(count)]
    sizes = tuple([size for each in arrays for size in each.chunks[place]])
    chunks = (*first.chunks[:place], sizes, *first.chunks[place + 1 :])
    dtype = np.result_type(*[each.dtype for each in arrays])

    def block_at(index: tuple[int, ...]) -> Any:
        owner, own = owners[index[place]]
        return arrays[owner].block((*index[:place], own, *index[place + 1 :]))

    return made_of(chunks, dtype, block_at)


def stack(arrays: Sequence[Parts], axis: int = 0) -> Parts:
    """Arrays side by side along a new axis, each of them a chunk."""
    ndim = len(arrays[0].chunks)
    (place,) = as_axes(axis, ndim + 1)
    grow = functools.partial(np.expand_dims, axis=place)

    def with_axis(parts: Parts) -> Parts:
        blocks = tuple([call(grow, "expand_dims", block) for block in parts.blocks])
        chunks = (*parts.chunks[:place], (1,), *parts.chunks[place:])
        return Parts(blocks, chunks, parts.dtype)

    return concatenate([with_axis(each) for each in arrays], place)
