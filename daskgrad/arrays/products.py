"""Products: matrix products and ``tensordot``, summed over the chunks of the contracted axes."""

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from daskgrad.arrays.elementwise import dtype_of
from daskgrad.arrays.parts import Parts, call, made_of
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
