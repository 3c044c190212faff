"""Elementwise: ufuncs and ``where``, block by block, with broadcasting."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskgrad.arrays.chunks import Chunks, Parts, broadcast, call, cut_parts, made_of, place_in
from daskgrad.arrays.halos import GridLayout
from daskgrad.autodiff.values.carriers import carrier
from daskgrad.autodiff.values.descriptions import path_of


def apply(fun: Callable, name: str, operands: Sequence[Any]) -> Parts:
    """``fun(*operands)``; operands are parts, NumPy arrays, or objects without axes."""
    chunks = broadcast([x.chunks for x in operands if isinstance(x, Parts)], f"np.{name}")
    operands = [cut_like(operand, chunks, name) for operand in operands]
    wide = broadcast([x.chunks for x in operands if isinstance(x, Parts)], f"np.{name}")
    if wide != chunks:
        raise ValueError(
            f"np.{name} of an array of shape {GridLayout(chunks).shape} and a NumPy array would "
            f"have the shape {GridLayout(wide).shape}; make that a dg.array, too, with chunks"
        )

    dtype = dtype_of(fun, operands)
    nodes = tuple([n for n, each in enumerate(operands) if hasattr(each, "__dask_graph__")])
    if nodes:
        fitting = tuple([sizes[0] if len(sizes) == 1 else 1 for sizes in chunks])
        fun = OfNodes(fun, name, nodes, fitting)

    def block_at(index: tuple[int, ...]) -> Any:
        args = [x.block(place_in(x.chunks, index)) if isinstance(x, Parts) else x for x in operands]
        return call(fun, name, *args)

    return made_of(chunks, dtype, block_at)


@carrier
class OfNodes:
    """A function of blocks and nodes. A node's value is not cut, so it must fit each block.

    ``places``: the operands that are nodes; ``fitting``: how many entries they may have along each
    axis, beside one.
    """

    fun: Callable
    name: str
    places: tuple[int, ...]
    fitting: tuple[int, ...]

    def __call__(self, *operands: Any) -> Any:
        for place in self.places:
            shape = np.shape(operands[place])
            pairs = zip(shape[::-1], self.fitting[::-1], strict=False)
            if len(shape) > len(self.fitting) or any([n not in (1, own) for n, own in pairs]):
                raise ValueError(
                    f"np.{self.name} of a dg.array and a node whose value, of shape {shape}, is "
                    f"not cut into chunks; make that a dg.array, too, or let a model have both: "
                    f"x.map_blocks(model, node)"
                )
        return self.fun(*operands)


def cut_like(operand: Any, chunks: Chunks, name: str) -> Any:
    """A NumPy array cut as the result is; anything else unchanged."""
    if not isinstance(operand, np.ndarray) or not operand.ndim:
        return operand
    pairs = list(zip(operand.shape[::-1], chunks[::-1], strict=False))[::-1]
    if operand.ndim > len(chunks) or any(size not in (1, sum(sizes)) for size, sizes in pairs):
        raise ValueError(
            f"np.{name}: a NumPy array of shape {operand.shape} cannot be broadcast to "
            f"{GridLayout(chunks).shape}"
        )
    fitted = tuple([(1,) if size == 1 else sizes for size, sizes in pairs])
    return cut_parts(operand, fitted)


def dtype_of(fun: Callable, operands: Sequence[Any]) -> np.dtype:
    """The dtype of a result, computed on ones."""

    def one(operand: Any) -> Any:
        if isinstance(operand, Parts):
            return np.ones(1, operand.dtype)
        return 1.0 if hasattr(operand, "__dask_graph__") else operand

    with np.errstate(all="ignore"):
        return np.asarray(fun(*map(one, operands))).dtype


# -------------------------------------------------------------------------------------------------
# NumPy's ufuncs that arrays in chunks have, and the errors of other functions.

UFUNCS = set(
    "add subtract multiply divide power negative positive absolute fabs exp exp2 expm1 log log2 "
    "log10 log1p sqrt square reciprocal sin cos tan arcsin arccos arctan arctan2 sinh cosh tanh "
    "arcsinh arccosh arctanh maximum minimum fmax fmin logaddexp logaddexp2 sign conjugate matmul "
    "greater greater_equal less less_equal equal not_equal logical_and logical_or logical_not "
    "isfinite isnan isinf".split()
)

INSTEAD = {  # by name, also of methods
    "reshape": "rechunk, and reshape each block with map_blocks",
    "ravel": "sum, or take norms, over several axes",
    "flatten": "sum, or take norms, over several axes",
    "einsum": "np.tensordot and a transpose",
    "inner": "np.tensordot",
    "outer": "x[:, None] of a NumPy array, or np.tensordot(x, y, 0)",
    "vdot": "(x * y).sum()",
    "var": "((x - x.mean()) ** 2).mean()",
    "std": "np.sqrt(((x - x.mean()) ** 2).mean())",
    "average": "(weights * x).sum() / weights.sum()",
    "clip": "np.minimum(np.maximum(x, low), high)",
    "take": "slices, or map_blocks",
    "flip": "x.T, or map_blocks",
    "vstack": "np.concatenate along axis 0",
    "hstack": "np.concatenate along axis 1",
    "astype": "dg.array(x.astype(...)) before",
    "copy": "the array itself, which nothing can write to",
}


def refused(function: Any, method: str = "__call__", options: Any = ()) -> TypeError:
    """The error of a call that is not in the closed set."""
    name = function.__name__
    if method != "__call__":
        instead = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}.get(name)
        advice = f"x.{instead}()" if instead and method == "reduce" else "another operation"
        return TypeError(f"np.{name}.{method} of a dg.array is not there; use {advice}")
    if options:
        names = ", ".join(map(repr, options))
        return TypeError(f"np.{name} of a dg.array takes no {names}; its dtypes follow NumPy's")
    known = isinstance(function, np.ufunc) or getattr(function, "__module__", None)
    path = path_of(function) if known else f".{name}"
    advice = INSTEAD.get(name, "x.map_blocks(model), which calls a model on each chunk")
    return TypeError(
        f"{path} is not among the operations of a dg.array, which are differentiated chunk by "
        f"chunk; use {advice}"
    )
