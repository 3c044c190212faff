"""Reductions: sums, extrema and norms over axes, and products that sum over axes."""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskgrad.arrays.chunks import Parts, as_axes, call, made_of, without_axes
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
                f"np.tensordot contracts axes with different chunks: {a.chunks[first]} and "
                f"{b.chunks[second]}; rechunk one"
            )
    free_a = [n for n in range(len(a.chunks)) if n not in of_a]
    free_b = [n for n in range(len(b.chunks)) if n not in of_b]
    product = functools.partial(np.tensordot, axes=(of_a, of_b))
    inner = list(itertools.product(*[range(len(a.chunks[n])) for n in of_a]))

    def block_at(index: tuple[int, ...]) -> Any:
        at_a, at_b = index[: len(free_a)], index[len(free_a) :]
        pairs = [
            (a.block(ordered((*free_a, *of_a), (*at_a, *k))), (*free_b, *of_b), (*at_b, *k))
            for k in inner
        ]
        return sum_of(
            [call(product, "tensordot", block, b.block(ordered(*at))) for block, *at in pairs]
        )

    chunks = (*[a.chunks[n] for n in free_a], *[b.chunks[n] for n in free_b])
    return made_of(chunks, dtype_of(np.multiply, [a, b]), block_at)


def ordered(axes: Sequence[int], places: Sequence[int]) -> list[int]:
    """Places along all axes, in the axes' order."""
    return [place for _, place in sorted(zip(axes, places, strict=True))]


def contracted(a: Parts, b: Parts, axes: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if isinstance(axes, int | np.integer):
        last = len(a.chunks)
        pair = [list(range(last - int(axes), last)), list(range(int(axes)))]
    else:
        pair = [[part] if isinstance(part, int) else list(part) for part in axes]
    of_a, of_b = pair
    return tuple([n % len(a.chunks) for n in of_a]), tuple([n % len(b.chunks) for n in of_b])


def matmul(a: Parts, b: Parts) -> Parts:
    """The product of vectors and matrices."""
    if not (1 <= len(a.chunks) <= 2 and 1 <= len(b.chunks) <= 2):
        raise TypeError(
            f"@ of a dg.array is for vectors and matrices; found {len(a.chunks)} and "
            f"{len(b.chunks)} axes: use np.tensordot, or map_blocks with a model"
        )
    return tensordot(a, b, ((len(a.chunks) - 1,), (0,)))


# -------------------------------------------------------------------------------------------------
# Reductions over axes: of each block, then of the blocks' results.


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
    of_block = functools.partial(fun, axis=axes, keepdims=True)
    kept = tuple([(1,) if n in axes else sizes for n, sizes in enumerate(parts.chunks)])

    def block_at(index: tuple[int, ...]) -> Any:
        places = [
            range(len(sizes)) if n in axes else [place]
            for n, (sizes, place) in enumerate(zip(parts.chunks, index, strict=True))
        ]
        return join([parts.block(i) for i in itertools.product(*places)], of_block, name)

    result = made_of(kept, dtype_of(fun, [parts]), block_at)
    return result if keepdims else without_axes(result, axes)


def added(blocks: Sequence[Any], of_block: Callable, name: str) -> Node:
    return sum_of([call(of_block, name, block) for block in blocks])


def multiplied(blocks: Sequence[Any], of_block: Callable, name: str) -> Node:
    nodes = [call(of_block, name, block) for block in blocks]
    return functools.reduce(functools.partial(call, np.multiply, "multiply"), nodes)


def extreme(blocks: Sequence[Any], of_block: Callable, name: str) -> Node:
    if len(blocks) == 1:
        return call(of_block, name, blocks[0])
    counted = functools.partial(with_count, of_block=of_block)
    pairs = [call(counted, name, block) for block in blocks]
    return call(functools.partial(extreme_of, name=name), name, pairs)


def with_count(block: Any, of_block: Any) -> tuple[Any, Any]:
    """The extremes of a block, and the number of entries that equal each of them."""
    extremes = of_block(block)
    return extremes, np.sum(block == extremes, **of_block.keywords)


def extreme_of(pairs: Any, name: str) -> Any:
    values, counts = zip(*pairs, strict=True)
    return shared(np.stack(values), np.stack(counts), name)


@custom_vjp
def shared(values: Any, counts: Any, name: str) -> Any:
    """The extremes over the first axis; each value stands for ``counts`` entries, which get equal
    parts of the derivative."""
    return getattr(np, name)(values, axis=0)


def shared_forward(values: Any, counts: Any, name: str) -> tuple[Any, Any]:
    extremes = shared(values, counts, name)
    equal = counts * (values == extremes)
    return extremes, equal / np.sum(equal, axis=0)


def shared_backward(shares: Any, cotangent: Any) -> tuple[Any, None, None]:
    return shares * cotangent, None, None


def shared_jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    extremes, shares = shared_forward(*primals)
    return extremes, np.sum(shares * tangents[0], axis=0)


shared.defvjp(shared_forward, shared_backward)
shared.defjvp(shared_jvp)


total = functools.partial(reduce, fun=np.sum, join=added)
product = functools.partial(reduce, fun=np.prod, join=multiplied)
largest = functools.partial(reduce, fun=np.max, join=extreme)
least = functools.partial(reduce, fun=np.min, join=extreme)


def mean(parts: Parts, axis: Any, keepdims: bool) -> Parts:
    shape = parts.shape
    count = math.prod([shape[n] for n in as_axes(axis, len(shape))])
    return apply(np.divide, "divide", [total(parts, axis, keepdims), float(count)])


def norm(parts: Parts, axis: Any, keepdims: bool) -> Parts:
    """The square root of the sum of squares."""
    squares = apply(square_size, "square", [parts])
    return apply(np.sqrt, "sqrt", [total(squares, axis, keepdims)])


def square_size(x: Any) -> Any:
    return np.real(x * np.conj(x)) if np.iscomplexobj(x) else x * x
