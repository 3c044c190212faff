"""Elementwise: ufuncs and ``where``, block by block, with broadcasting."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskgrad.arrays.chunks import Chunks, broadcast, place_in
from daskgrad.arrays.parts import Parts, call, made_of
from daskgrad.grids.layout import Layout


def apply(fun: Callable, name: str, operands: Sequence[Any]) -> Parts:
    """``fun(*operands)``; operands are parts, NumPy arrays, or anything that has no axes."""
    there = [each for each in operands if isinstance(each, Parts)]
    chunks = broadcast([each.chunks for each in there], f"np.{name}")
    operands = [cut_like(each, chunks, name) for each in operands]
    wide = broadcast([each.chunks for each in operands if isinstance(each, Parts)], f"np.{name}")
    if wide != chunks:
        raise ValueError(
            f"np.{name} of an array of shape {Layout(chunks).shape} and a NumPy array would have "
            f"the shape {Layout(wide).shape}; make that a dg.array, too, with chunks"
        )

    def block_at(index: tuple[int, ...]) -> Any:
        args = [
            each.block(place_in(each.chunks, index)) if isinstance(each, Parts) else each
            for each in operands
        ]
        return call(fun, name, *args)

    return made_of(chunks, dtype_of(fun, operands), block_at)


def cut_like(operand: Any, chunks: Chunks, name: str) -> Any:
    """A NumPy array cut as the result is; anything else unchanged."""
    if not isinstance(operand, np.ndarray) or not operand.ndim:
        return operand
    own = chunks[len(chunks) - operand.ndim :]
    if operand.ndim > len(chunks) or any(
        size not in (1, sum(sizes)) for size, sizes in zip(operand.shape, own, strict=True)
    ):
        raise ValueError(
            f"np.{name}: a NumPy array of shape {operand.shape} cannot be broadcast to "
            f"{Layout(chunks).shape}"
        )
    pairs = zip(operand.shape, own, strict=True)
    fitted = tuple([(1,) if size == 1 else sizes for size, sizes in pairs])
    places = Layout(fitted)
    return made_of(fitted, operand.dtype, lambda i: operand[places.slices(i)].copy(order="C"))


def dtype_of(fun: Callable, operands: Sequence[Any]) -> np.dtype:
    """The dtype of a result, from that of ones."""

    def one(operand: Any) -> Any:
        if isinstance(operand, Parts):
            return np.ones(1, operand.dtype)
        return 1.0 if hasattr(operand, "__dask_graph__") else operand

    with np.errstate(all="ignore"):
        return np.asarray(fun(*map(one, operands))).dtype
