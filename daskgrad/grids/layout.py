"""Layout: where the blocks of a grid are, which are neighbours, and what a halo consists of.

A direction has -1, 0 or 1 for each axis. The *frame* of a block is the block with its halos on
those sides that have a neighbour; beyond the others is the boundary of the grid.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

Index = tuple[int, ...]
Direction = tuple[int, ...]


class Layout(NamedTuple):
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
        """Where a block is in the whole array."""
        starts = [sum(sizes[:i]) for sizes, i in zip(self.chunks, index, strict=True)]
        pairs = zip(starts, self.block_shape(index), strict=True)
        return tuple([slice(start, start + size) for start, size in pairs])

    def neighbour(self, index: Index, direction: Direction, periodic: Sequence[bool]) -> int | None:
        """The number of the block in a direction; None beyond the boundary."""
        found = []
        for place, step, sizes, wraps in zip(index, direction, self.chunks, periodic, strict=True):
            to = place + step
            if wraps:
                to %= len(sizes)
            if not 0 <= to < len(sizes):
                return None
            found.append(to)
        return self.number(tuple(found))


class Frame(NamedTuple):
    """A block with its halos: ``low`` and ``high`` are their widths along each axis, zero at the
    boundary; ``parts`` has for each neighbour its number and the directions in which it is."""

    shape: tuple[int, ...]  # of the block
    low: tuple[int, ...]
    high: tuple[int, ...]
    widths: tuple[int, ...]
    parts: tuple[tuple[int, tuple[Direction, ...]], ...]

    @property
    def whole(self) -> tuple[int, ...]:
        """The shape with halos."""
        sizes = zip(self.low, self.shape, self.high, strict=True)
        return tuple([sum(each) for each in sizes])

    def place(self, direction: Direction) -> tuple[slice, ...]:
        """Where in the frame the part in a direction is; that of the block itself for zeros."""
        found = []
        for step, low, size, high in zip(direction, self.low, self.shape, self.high, strict=True):
            ends = {-1: (0, low), 0: (low, low + size), 1: (low + size, low + size + high)}
            found.append(slice(*ends[step]))
        return tuple(found)

    @property
    def own(self) -> tuple[slice, ...]:
        return self.place((0,) * len(self.shape))


def edge(direction: Direction, widths: Sequence[int]) -> tuple[slice, ...]:
    """What the block in a direction sends: the edge that is on the side of the receiver."""
    ways = {-1: lambda w: slice(-w, None), 0: lambda w: slice(None), 1: lambda w: slice(0, w)}
    return tuple([ways[step](width) for step, width in zip(direction, widths, strict=True)])


def frame_of(
    layout: Layout, index: Index, widths: tuple[int, ...], periodic: Sequence[bool]
) -> Frame:
    """The frame of a block, with halos of these widths."""

    def width(axis: int, step: int) -> int:
        direction = tuple([step * (a == axis) for a in range(len(widths))])
        is_there = layout.neighbour(index, direction, periodic) is not None
        return widths[axis] if is_there else 0

    axes = range(len(widths))
    low, high = [tuple([width(axis, step) for axis in axes]) for step in (-1, 1)]
    found: dict[int, list[Direction]] = {}
    steps = [[s for s in (-1, 0, 1) if not s or (low, high)[s > 0][axis]] for axis in axes]
    for direction in itertools.product(*steps):
        if any(direction):
            neighbour = layout.neighbour(index, direction, periodic)
            assert neighbour is not None
            found.setdefault(neighbour, []).append(direction)
    parts = tuple([(number, tuple(ways)) for number, ways in found.items()])
    return Frame(layout.block_shape(index), low, high, widths, parts)
