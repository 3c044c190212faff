"""Halos: edges that blocks send, frames that are made of them, and padding at the boundary.

Each function stands beside its adjoint. All work leaf by leaf on pytrees of arrays whose first axes
are those of the grid; of a dual, on value and tangents.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.grids.layout import Direction, Frame, edge
from daskgrad.models.duals import Dual, is_dual
from daskgrad.values.cotangents import Leaves
from daskgrad.values.trees import flatten, map_leaves

Edges = list[tuple[Any, ...]]  # for each direction the leaves of the edge


def cut_edges(block: Any, ways: Sequence[Direction], widths: Sequence[int]) -> Edges:
    """The edges of a block that one neighbour needs, in each direction in which that sees it."""
    leaves = flatten(block)[0]
    places = [edge(way, widths) for way in ways]
    return [
        tuple([None if leaf is None else leaf[place].copy(order="C") for leaf in leaves])
        for place in places
    ]


def assemble(block: Any, edges: Sequence[Edges], frame: Frame) -> Any:
    """A block within its halos; ``edges`` are those of the frame's parts."""
    leaves, structure = flatten(block)
    framed: list[Any] = []
    for number, leaf in enumerate(leaves):
        if leaf is None:  # the tangent of integers
            framed.append(None)
            continue
        whole = np.empty((*frame.whole, *leaf.shape[len(frame.shape) :]), leaf.dtype)
        whole[frame.own] = leaf
        for (_, ways), strips in zip(frame.parts, edges, strict=True):
            for way, strip in zip(ways, strips, strict=True):
                whole[frame.place(way)] = strip[number]
        framed.append(whole)
    return structure.unflatten(framed)


def split(cotangent: Leaves, frame: Frame) -> tuple[Leaves, list[Edges]]:
    """The adjoint of ``assemble``: the block's cotangent, and those of the edges of the parts."""

    def at(place: tuple[slice, ...]) -> Leaves:
        return tuple([None if leaf is None else leaf[place].copy(order="C") for leaf in cotangent])

    edges = [[at(frame.place(way)) for way in ways] for _, ways in frame.parts]
    return at(frame.own), edges


# ------------------------------------------------------------------------------- the boundary


class Constant(NamedTuple):
    """What is beyond the boundary is this number."""

    value: float


Side = str | Constant | None  # "reflect", "nearest", a constant; None: a halo is there
Sides = tuple[tuple[Side, Side], ...]  # of each axis: before the first entry, behind the last


def pad(tree: Any, sides: Sides, depth: Sequence[int]) -> Any:
    """A block, or a frame, with as many entries as ``depth`` says beyond the boundary."""
    if is_dual(tree):
        zeros = tangent_sides(sides)
        tangents = tuple([pad(each, zeros, depth) for each in tree.tangents])
        return Dual(pad(tree.value, sides, depth), tangents)
    return map_leaves(lambda leaf: None if leaf is None else pad_leaf(leaf, sides, depth), tree)


def tangent_sides(sides: Sides) -> Sides:
    """The boundary for tangents: constants do not change."""

    def of_tangents(side: Side) -> Side:
        return Constant(0.0) if isinstance(side, Constant) else side

    return tuple([(of_tangents(low), of_tangents(high)) for low, high in sides])


def pad_leaf(leaf: np.ndarray, sides: Sides, depth: Sequence[int]) -> np.ndarray:
    for axis, ((low, high), width) in enumerate(zip(sides, depth, strict=True)):
        parts = [beyond(leaf, low, axis, width, -1), leaf, beyond(leaf, high, axis, width, 1)]
        there = [part for part in parts if part is not None]
        leaf = np.concatenate(there, axis) if len(there) > 1 else leaf
    return leaf


def beyond(leaf: np.ndarray, side: Side, axis: int, width: int, way: int) -> Any:
    """The entries beyond one side of an axis; None where a halo is."""
    if side is None or not width:
        return None
    ahead = along(leaf, axis, slice(0, width) if way < 0 else slice(-width, None))
    if side == "reflect":
        return np.flip(ahead, axis)
    if isinstance(side, Constant):
        return np.full(ahead.shape, side.value, leaf.dtype)
    outermost = along(leaf, axis, slice(0, 1) if way < 0 else slice(-1, None))
    return np.repeat(outermost, width, axis)


def along(leaf: np.ndarray, axis: int, part: slice) -> np.ndarray:
    return leaf[(slice(None),) * axis + (part,)]


def unpad(cotangent: Leaves, sides: Sides, depth: Sequence[int]) -> Leaves:
    """The adjoint of ``pad`` for the leaves of a value; those of a dual are padded alike, but for
    constants, which both drop."""
    return tuple([None if each is None else unpad_leaf(each, sides, depth) for each in cotangent])


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
    """Adds the cotangent of what ``beyond`` made to that of the entries it was made of."""
    width = outer.shape[axis]
    if side == "reflect":
        along(inner, axis, slice(0, width) if way < 0 else slice(-width, None))[...] += np.flip(
            outer, axis
        )
    elif side == "nearest":
        outermost = along(inner, axis, slice(0, 1) if way < 0 else slice(-1, None))
        outermost += np.sum(outer, axis, keepdims=True)
