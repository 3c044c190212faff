"""Halos: edges that blocks send, frames that are made of them, and padding at the boundary.

Each function stands beside its adjoint. All work leaf by leaf on pytrees of arrays that have the
grid's axes first; on a dual, they work on value and tangents.
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.models.duals import Dual, is_dual
from daskgrad.autodiff.values.cotangents import Leaves
from daskgrad.autodiff.values.trees import flatten, map_leaves

# -------------------------------------------------------------------------------------------------
# Layout: the places of a grid's blocks, their neighbours, and the parts of a halo.
#
# A direction has -1, 0 or 1 for each axis. The *frame* of a block is the block with its halos on
# the sides that have a neighbour; its other sides lie at the boundary of the grid.

Index = tuple[int, ...]
Direction = tuple[int, ...]


class GridLayout(NamedTuple):
    """The sizes of the blocks along each axis, as Dask's chunks."""

    chunks: tuple[tuple[int, ...], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple([sum(sizes) for sizes in self.chunks])

    def indices(self) -> list[Index]:
        """The blocks, in C order."""
        return list(itertools.product(*[range(len(sizes)) for sizes in self.chunks]))

    def number(self, index: Index) -> int:
        """The place of a block among ``indices``."""
        number = 0
        for place, sizes in zip(index, self.chunks, strict=True):
            number = number * len(sizes) + place
        return number

    def block_shape(self, index: Index) -> tuple[int, ...]:
        return tuple([sizes[i] for sizes, i in zip(self.chunks, index, strict=True)])

    def slices(self, index: Index) -> tuple[slice, ...]:
        """The place of a block in the whole array."""
        starts = [sum(sizes[:i]) for sizes, i in zip(self.chunks, index, strict=True)]
        pairs = zip(starts, self.block_shape(index), strict=True)
        return tuple([slice(start, start + size) for start, size in pairs])

    def neighbour(self, index: Index, direction: Direction, periodic: Sequence[bool]) -> int | None:
        """The number of the block in a direction; None beyond the boundary."""
        neighbour = []
        for place, step, sizes, wraps in zip(index, direction, self.chunks, periodic, strict=True):
            target = place + step
            if wraps:
                target %= len(sizes)
            if not 0 <= target < len(sizes):
                return None
            neighbour.append(target)
        return self.number(tuple(neighbour))


class Frame(NamedTuple):
    """A block with its halos. ``low`` and ``high`` are their widths along each axis, zero at the
    boundary; ``parts`` has each neighbour's number and the directions that lead to it."""

    shape: tuple[int, ...]  # of the block
    low: tuple[int, ...]
    high: tuple[int, ...]
    widths: tuple[int, ...]
    parts: tuple[tuple[int, tuple[Direction, ...]], ...]

    @property
    def whole(self) -> tuple[int, ...]:
        """The shape with halos."""
        return tuple(map(sum, zip(self.low, self.shape, self.high, strict=True)))

    def place(self, direction: Direction) -> tuple[slice, ...]:
        """The place in the frame of the part in a direction; of the block itself for zeros."""
        place = []
        for step, low, size, high in zip(direction, self.low, self.shape, self.high, strict=True):
            ends = {-1: (0, low), 0: (low, low + size), 1: (low + size, low + size + high)}
            place.append(slice(*ends[step]))
        return tuple(place)

    @property
    def interior(self) -> tuple[slice, ...]:
        return self.place((0,) * len(self.shape))


def edge(direction: Direction, widths: Sequence[int]) -> tuple[slice, ...]:
    """The slices of the edge that a block needs from its neighbour in a direction."""
    ways = {-1: lambda w: slice(-w, None), 0: lambda w: slice(None), 1: lambda w: slice(0, w)}
    return tuple([ways[step](width) for step, width in zip(direction, widths, strict=True)])


def frame_of(
    layout: GridLayout, index: Index, widths: tuple[int, ...], periodic: Sequence[bool]
) -> Frame:
    """The frame of a block, with halos of these widths."""

    def width(axis: int, step: int) -> int:
        direction = tuple([step * (a == axis) for a in range(len(widths))])
        is_there = layout.neighbour(index, direction, periodic) is not None
        return widths[axis] if is_there else 0

    axes = range(len(widths))
    low, high = [tuple([width(axis, step) for axis in axes]) for step in (-1, 1)]
    directions: dict[int, list[Direction]] = {}
    steps = [[s for s in (-1, 0, 1) if not s or (low, high)[s > 0][axis]] for axis in axes]
    for direction in itertools.product(*steps):
        if any(direction):
            neighbour = layout.neighbour(index, direction, periodic)
            assert neighbour is not None
            directions.setdefault(neighbour, []).append(direction)
    parts = tuple([(number, tuple(ways)) for number, ways in directions.items()])
    return Frame(layout.block_shape(index), low, high, widths, parts)


# ------------------------------------------------------------------------------------------- halos

Edges = list[tuple[Any, ...]]  # for each direction the leaves of the edge


def cut_edges(block: Any, ways: Sequence[Direction], widths: Sequence[int]) -> Edges:
    """The edges of a block for one neighbour: one for each direction in which it sees the block."""
    leaves = flatten(block)[0]
    return [copied(leaves, edge(way, widths)) for way in ways]


def copied(leaves: Sequence[Any], place: tuple[slice, ...]) -> Leaves:
    return tuple([None if leaf is None else leaf[place].copy(order="C") for leaf in leaves])


def assemble(block: Any, edges: Sequence[Edges], frame: Frame) -> Any:
    """A block within its halos; ``edges``: for each of the frame's parts, its edges."""
    leaves, structure = flatten(block)
    frames: list[Any] = []
    for number, leaf in enumerate(leaves):
        if leaf is None:  # the tangent of integers
            frames.append(None)
            continue
        whole = np.empty((*frame.whole, *leaf.shape[len(frame.shape) :]), leaf.dtype)
        whole[frame.interior] = leaf
        for (_, ways), strips in zip(frame.parts, edges, strict=True):
            for way, strip in zip(ways, strips, strict=True):
                whole[frame.place(way)] = strip[number]
        frames.append(whole)
    return structure.unflatten(frames)


def split(cotangent: Leaves, frame: Frame) -> tuple[Leaves, list[Edges]]:
    """The adjoint of ``assemble``: the cotangents of the block, and of the edges of the parts."""
    edges = [[copied(cotangent, frame.place(way)) for way in ways] for _, ways in frame.parts]
    return copied(cotangent, frame.interior), edges


# ------------------------------------------------------------------------------- the boundary


class ConstantBoundary(NamedTuple):
    """All entries beyond the boundary are this number."""

    value: float


Side = str | ConstantBoundary | None  # "reflect", "nearest", a constant; None: a halo is there
Sides = tuple[tuple[Side, Side], ...]  # of each axis: before the first entry, behind the last


def pad(tree: Any, sides: Sides, depth: Sequence[int]) -> Any:
    """A block, or a frame, with ``depth`` entries beyond the boundary."""
    if is_dual(tree):

        def of_tangents(side: Side) -> Side:  # a constant does not change
            return ConstantBoundary(0.0) if isinstance(side, ConstantBoundary) else side

        zeros = tuple([(of_tangents(low), of_tangents(high)) for low, high in sides])
        tangents = tuple([pad(tangent, zeros, depth) for tangent in tree.tangents])
        return Dual(pad(tree.value, sides, depth), tangents)
    return map_leaves(lambda leaf: None if leaf is None else pad_leaf(leaf, sides, depth), tree)


def pad_leaf(leaf: np.ndarray, sides: Sides, depth: Sequence[int]) -> np.ndarray:
    for axis, ((low, high), width) in enumerate(zip(sides, depth, strict=True)):
        ends = beyond(leaf, low, axis, width, -1), beyond(leaf, high, axis, width, 1)
        parts = [part for part in (ends[0], leaf, ends[1]) if part is not None]
        leaf = np.concatenate(parts, axis) if len(parts) > 1 else leaf
    return leaf


def beyond(leaf: np.ndarray, side: Side, axis: int, width: int, way: int) -> Any:
    """The entries beyond one side of an axis; None if there is a halo."""
    if side is None or not width:
        return None
    strip = along(leaf, axis, slice(0, width) if way < 0 else slice(-width, None))
    if side == "reflect":
        return np.flip(strip, axis)
    if isinstance(side, ConstantBoundary):
        return np.full(strip.shape, side.value, leaf.dtype)
    border = along(leaf, axis, slice(0, 1) if way < 0 else slice(-1, None))
    return np.repeat(border, width, axis)


def along(leaf: np.ndarray, axis: int, part: slice) -> np.ndarray:
    return leaf[(slice(None),) * axis + (part,)]


def unpad(cotangent: Leaves, sides: Sides, depth: Sequence[int]) -> Leaves:
    """The adjoint of ``pad``, for the leaves of a value or of a dual: both drop constants."""
    return tuple([None if leaf is None else unpad_leaf(leaf, sides, depth) for leaf in cotangent])


def unpad_leaf(cotangent: np.ndarray, sides: Sides, depth: Sequence[int]) -> np.ndarray:
    for axis in reversed(range(len(sides))):
        (low, high), width = sides[axis], depth[axis]
        ends = [width if side is not None else 0 for side in (low, high)]
        if not any(ends):
            continue
        stop = cotangent.shape[axis] - ends[1]
        inner = along(cotangent, axis, slice(ends[0], stop)).copy()
        if ends[0]:
            add_beyond(inner, along(cotangent, axis, slice(0, width)), low, axis, -1)
        if ends[1]:
            add_beyond(inner, along(cotangent, axis, slice(stop, None)), high, axis, 1)
        cotangent = inner
    return cotangent


def add_beyond(inner: np.ndarray, outer: np.ndarray, side: Side, axis: int, way: int) -> None:
    """The adjoint of ``beyond``: adds the entries' cotangents to their sources' cotangents."""
    width = outer.shape[axis]
    if side == "reflect":
        strip = along(inner, axis, slice(0, width) if way < 0 else slice(-width, None))
        strip += np.flip(outer, axis)
    elif side == "nearest":
        border = along(inner, axis, slice(0, 1) if way < 0 else slice(-1, None))
        border += np.sum(outer, axis, keepdims=True)
