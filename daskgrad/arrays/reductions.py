"""Reductions: sums, extrema and norms over axes, and products that sum over axes."""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskgrad.arrays.chunks import Chunks, Parts, as_axes, call, made_of
from daskgrad.arrays.elementwise import apply, dtype_of
from daskgrad.autodiff.models.custom_vjp import custom_vjp
from daskgrad.graph.nodes import Node
from daskgrad.graph.sum_of_nodes import sum_of


def tensordot(a: Parts, b: Parts, axes: Any = 2) -> Parts:
    """As NumPy's; the contracted axes must have the same chunks."""
    of_a, of_b = contracted(a, b, axes)
    for first, second in zip(of_a, of_b, strict=True):
        if a.chunks[first] != b.chunks[second]:
            raise ValueError(
                f"np.tensordot contracts axes with other chunks: {a.chunks[first]} and "
                f"{b.chunks[second]}; rechunk one"
            )
    free_a = [n for n in range(len(a.chunks)) if n not in of_a]
    free_b = [n for n in range(len(b.chunks)) if n not in of_b]
    product = functools.partial(np.tensordot, axes=(of_a, of_b))
    inner = list(itertools.product(*[range(len(a.chunks[n])) for n in of_a]))

    def block_at(index: tuple[int, ...]) -> Any:
        own_a, own_b = index[: len(free_a)], index[len(free_a) :]
        terms = [
            call(
                product,
                "tensordot",
                a.block(placed(len(a.chunks), free_a, own_a, of_a, k)),
                b.block(placed(len(b.chunks), free_b, own_b, of_b, k)),
            )
            for k in inner
        ]
        return sum_of(terms)

    chunks = (*[a.chunks[n] for n in free_a], *[b.chunks[n] for n in free_b])
    return made_of(chunks, dtype_of(np.multiply, [a, b]), block_at)


def placed(
    ndim: int,
    free: Sequence[int],
    own: Sequence[int],
    inner: Sequence[int],
    at: Sequence[int],
) -> tuple[int, ...]:
    """The index of a block from its places along the free and along the contracted axes."""
    found = dict(zip(free, own, strict=True)) | dict(zip(inner, at, strict=True))
    return tuple([found[axis] for axis in range(ndim)])


def contracted(a: Parts, b: Parts, axes: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if isinstance(axes, int | np.integer):
        last = len(a.chunks)
        pairs = [list(range(last - int(axes), last)), list(range(int(axes)))]
    else:
        pairs = [[each] if isinstance(each, int) else list(each) for each in axes]
    ndims = len(a.chunks), len(b.chunks)
    found = [tuple([n % ndim for n in each]) for each, ndim in zip(pairs, ndims, strict=True)]
    return found[0], found[1]


def matmul(a: Parts, b: Parts) -> Parts:
    """Of vectors and matrices."""
    if not (1 <= len(a.chunks) <= 2 and 1 <= len(b.chunks) <= 2):
        raise TypeError(
            f"@ of a dg.array is for vectors and matrices; found {len(a.chunks)} and "
            f"{len(b.chunks)} axes: use np.tensordot, or map_blocks with a model"
        )
    return tensordot(a, b, ((len(a.chunks) - 1,), (0,)))


# -------------------------------------------------------------------------------------------------
# Reductions: sums, means, products, extrema and norms over axes: of each block, then of blocks.


def reduce(
    parts: Parts,
    axis: Any,
    keepdims: bool,
    fun: Callable,
    join: Callable[[Sequence[Any], Callable, str], Node],
) -> Parts:
    """``fun(block, axis=..., keepdims=True)`` of each block, and these joined along the axes."""
    axes = as_axes(axis, len(parts.chunks))
    name = fun.__name__
    each = functools.partial(fun, axis=axes, keepdims=True)
    kept = tuple([(1,) if n in axes else sizes for n, sizes in enumerate(parts.chunks)])

    def block_at(index: tuple[int, ...]) -> Any:
        blocks = [parts.block(i) for i in along(parts.chunks, index, axes)]
        return join(blocks, each, name)

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


def added(blocks: Sequence[Any], each: Callable, name: str) -> Node:
    return sum_of([call(each, name, block) for block in blocks])


def multiplied(blocks: Sequence[Any], each: Callable, name: str) -> Node:
    nodes = [call(each, name, block) for block in blocks]
    return functools.reduce(functools.partial(call, np.multiply, "multiply"), nodes)


def extreme(blocks: Sequence[Any], each: Callable, name: str) -> Node:
    if len(blocks) == 1:
        return call(each, name, blocks[0])
    pairs = [call(functools.partial(with_count, each=each), name, block) for block in blocks]
    return call(functools.partial(extreme_of, name=name), name, pairs)


def with_count(block: Any, each: Any) -> tuple[Any, Any]:
    """The extremes of a block, and how many of its entries each of them is."""
    found = each(block)
    return found, np.sum(block == found, **each.keywords)


def extreme_of(pairs: Any, name: str) -> Any:
    values, counts = zip(*pairs, strict=True)
    return shared(np.stack(values), np.stack(counts), name)


@custom_vjp
def shared(values: Any, counts: Any, name: str) -> Any:
    """The extremes over the first axis, where each value stands for as many entries as it counts:
    a derivative is passed on to all of these in equal parts."""
    return getattr(np, name)(values, axis=0)


def shared_forward(values: Any, counts: Any, name: str) -> tuple[Any, Any]:
    found = shared(values, counts, name)
    there = counts * (values == found)
    return found, there / np.sum(there, axis=0)


def shared_backward(shares: Any, cotangent: Any) -> tuple[Any, None, None]:
    return shares * cotangent, None, None


def shared_jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    found, shares = shared_forward(*primals)
    return found, np.sum(shares * tangents[0], axis=0)


shared.defvjp(shared_forward, shared_backward)
shared.defjvp(shared_jvp)


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
