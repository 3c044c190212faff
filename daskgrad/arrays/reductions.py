"""Reductions: sums, means, products, extrema and norms over axes: of each block, then of blocks."""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskgrad.arrays.chunks import Chunks, as_axes
from daskgrad.arrays.elementwise import apply, dtype_of
from daskgrad.arrays.parts import Parts, call, made_of
from daskgrad.graph.nodes import Node
from daskgrad.sums.node_sum import sum_of


def reduce(
    parts: Parts,
    axis: Any,
    keepdims: bool,
    fun: Callable,
    join: Callable[[Sequence[Node]], Node],
) -> Parts:
    """``fun(block, axis=..., keepdims=True)`` of each block, and these joined along the axes."""
    axes = as_axes(axis, len(parts.chunks))
    name = fun.__name__
    each = functools.partial(fun, axis=axes, keepdims=True)
    kept = tuple([(1,) if n in axes else sizes for n, sizes in enumerate(parts.chunks)])

    def block_at(index: tuple[int, ...]) -> Any:
        return join([call(each, name, parts.block(i)) for i in along(parts.chunks, index, axes)])

    found = made_of(kept, dtype_of(fun, [parts]), block_at)
    return found if keepdims else without_axes(found, axes)


def along(chunks: Chunks, index: Sequence[int], axes: Sequence[int]) -> list[tuple[int, ...]]:
    """The blocks that one block of a reduction is made of."""
    places = [
        range(len(sizes)) if axis in axes else [place]
        for axis, (sizes, place) in enumerate(zip(chunks, index, strict=True))
    ]
    return list(itertools.product(*places))


def without_axes(parts: Parts, axes: Sequence[int]) -> Parts:
    """An array without axes of one entry."""
    chunks = tuple([sizes for n, sizes in enumerate(parts.chunks) if n not in axes])
    squeeze = functools.partial(np.squeeze, axis=tuple(axes))
    blocks = [call(squeeze, "squeeze", block) for block in parts.blocks]
    return Parts(tuple(blocks), chunks, parts.dtype)


def added(nodes: Sequence[Node]) -> Node:
    return sum_of(nodes)


def multiplied(nodes: Sequence[Node]) -> Node:
    return functools.reduce(
        lambda first, second: call(np.multiply, "multiply", first, second), nodes
    )


def largest(nodes: Sequence[Node]) -> Node:
    return nodes[0] if len(nodes) == 1 else call(max_of, "max", list(nodes))


def smallest(nodes: Sequence[Node]) -> Node:
    return nodes[0] if len(nodes) == 1 else call(min_of, "min", list(nodes))


def max_of(blocks: Any) -> Any:
    return np.max(np.stack(blocks), axis=0)


def min_of(blocks: Any) -> Any:
    return np.min(np.stack(blocks), axis=0)


def count(parts: Parts, axis: Any) -> int:
    """How many entries go into one of a reduction."""
    shape = parts.shape
    return int(np.prod([shape[axis] for axis in as_axes(axis, len(shape))], dtype=int))


def mean(parts: Parts, axis: Any, keepdims: bool) -> Parts:
    total = reduce(parts, axis, keepdims, np.sum, added)
    return apply(np.divide, "divide", [total, float(count(parts, axis))])


def norm(parts: Parts, axis: Any, keepdims: bool) -> Parts:
    """The square root of the sum of squares."""
    squares = apply(square_size, "square", [parts])
    return apply(np.sqrt, "sqrt", [reduce(squares, axis, keepdims, np.sum, added)])


def square_size(x: Any) -> Any:
    return np.real(x * np.conj(x)) if np.iscomplexobj(x) else x * x
