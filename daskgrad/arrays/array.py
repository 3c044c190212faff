"""Array: an array in chunks, each of them a node, with a closed set of operations."""

from collections.abc import Callable, Sequence
from typing import Any

import dask
import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from daskgrad.arrays import arrangements, elementwise, reductions
from daskgrad.arrays.chunks import Chunks, Parts, as_chunks, cut_parts, made_of
from daskgrad.arrays.elementwise import UFUNCS, refused
from daskgrad.arrays.grid import (
    Grid,
    as_grid,
    as_node,
    grid_of_dask_array,
    grid_of_variable,
    joined,
)
from daskgrad.arrays.halos import GridLayout
from daskgrad.arrays.map_overlap import map_overlap
from daskgrad.autodiff.values.descriptions import describe
from daskgrad.graph.delayed import as_model
from daskgrad.graph.nodes import CallNode, Node, graph_of
from daskgrad.graph.variables import ChunkedVariable, Variable
from daskgrad.tasks.collections import as_dask_array, is_dask_array


def reduction(name: str, reduce: Callable) -> Callable:
    """A method of arrays, which is NumPy's function, too: hence the name of its first argument."""

    def method(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return wrapped(reduce(a._parts, axis, keepdims))

    method.__name__, method.__qualname__ = name, f"Array.{name}"
    return method


class Array(NDArrayOperatorsMixin):
    """An array in chunks, made by ``dg.array``, for programs of NumPy's and dask.array's kind.

    Operators and ufuncs with broadcasting, ``np.where``, ``sum``, ``mean``, ``prod``, ``max``,
    ``min`` and ``np.linalg.norm`` over axes, ``@``, ``np.dot``, ``np.tensordot``, transposes,
    integers and slices of step one as indices, ``rechunk``, ``np.concatenate``, ``np.stack``,
    ``map_blocks`` and ``map_overlap``. Operands must have the same chunks, or axes of one entry;
    NumPy arrays are cut to fit. Anything else is a ``TypeError`` that names a way that works.

    A reduction to one number is a node, as every model's value: the output of a differentiated
    function, or an operand. Extrema pass their derivative on to all equal entries, in equal parts.
    """

    takes_nodes = True

    def __init__(self, parts: Parts):
        self._parts = parts

    def __repr__(self) -> str:
        counts = " x ".join([str(len(sizes)) for sizes in self.chunks])
        return f"<dg.array of shape {self.shape}, {self.dtype}, {counts} chunks>"

    @property
    def chunks(self) -> Chunks:
        return self._parts.chunks

    @property
    def shape(self) -> tuple[int, ...]:
        return self._parts.shape

    @property
    def ndim(self) -> int:
        return len(self.chunks)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=int))

    @property
    def dtype(self) -> np.dtype:
        return self._parts.dtype

    @property
    def blocks(self) -> tuple[Any, ...]:
        """The chunks, in C order: nodes."""
        return tuple(map(as_node, self._parts.blocks))

    # ---- NumPy's protocols

    __hash__ = object.__hash__

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options or ufunc.__name__ not in UFUNCS:
            raise refused(ufunc, method, options)
        if ufunc is np.matmul:
            first, second = [as_parts(operand, "np.matmul") for operand in inputs]
            return wrapped(reductions.matmul(*fitted(first, second)))
        return wrapped(elementwise.apply(ufunc, ufunc.__name__, list(map(as_operand, inputs))))

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        if function not in FUNCTIONS:
            raise refused(function)
        return FUNCTIONS[function](*args, **options)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            f"{self!r} has no value yet, and NumPy would lose its derivative; compute it "
            f"(x.compute()), or let a model have its blocks (x.map_blocks)"
        )

    def __bool__(self) -> bool:
        raise TypeError(f"{self!r} has no value yet to branch on; use np.where")

    def __iter__(self) -> Any:
        raise TypeError(f"{self!r} cannot be iterated over; take x[0], x[1] ...")

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError(f"{self!r} has no axis")
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        return wrapped(arrangements.select(self._parts, index))

    def __setitem__(self, index: Any, value: Any) -> Any:
        raise TypeError(f"{self!r} cannot be written to; use np.where or np.concatenate")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(name)
        raise AttributeError(str(refused(getattr(np.ndarray, name))))

    # ---- methods

    sum = reduction("sum", reductions.total)
    mean = reduction("mean", reductions.mean)
    prod = reduction("prod", reductions.product)
    max = reduction("max", reductions.largest)
    min = reduction("min", reductions.least)

    def dot(self, other: Any) -> Any:
        return self @ other

    @property
    def T(self) -> "Array":
        return self.transpose()

    def transpose(self, *axes: Any) -> "Array":
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
        return Array(arrangements.transpose(self._parts, order))

    def rechunk(self, chunks: Any) -> "Array":
        """The array in other chunks: one size, or a size or sizes for each axis; -1: one chunk."""
        return Array(arrangements.rechunk(self._parts, chunks))

    def map_blocks(self, model: Any, *others: Any, name: str | None = None) -> "Array":
        """``model(block, *others)`` for each block; an array of the same chunks stands for its
        block. The result must have the block's shape, which is not checked before it is used."""
        called = as_model(model, name)
        rows = [each_block(other, self, called.name) for other in others]
        blocks = [
            CallNode(called, (block, *[row[number] for row in rows]), {})
            for number, block in enumerate(self._parts.blocks)
        ]
        return Array(self._parts._replace(blocks=tuple(blocks)))

    def map_overlap(self, step: Any, *shared: Any, **options: Any) -> "Array":
        """``dg.map_overlap`` of the array; arrays among ``shared`` are its parameters."""
        grids = [Grid(x._parts.blocks, x.chunks) if isinstance(x, Array) else x for x in shared]
        state = Grid(self._parts.blocks, self.chunks)
        result = map_overlap(step, state, *grids, **options)
        return Array(self._parts._replace(blocks=result.blocks))

    def compute(self, **options: Any) -> np.ndarray:
        """The whole array, in this process."""
        blocks = dask.compute(list(self.blocks), **options)[0]
        return joined(list(map(np.asarray, blocks)), GridLayout(self.chunks))

    def persist(self, **options: Any) -> "Array":
        """The array with computed chunks, which stay on the workers."""
        blocks = dask.persist(*self.blocks, **options)
        return Array(self._parts._replace(blocks=tuple(blocks)))

    def to_dask_array(self) -> Any:
        """A dask Array of the same chunks."""
        return as_dask_array(*graph_of(self.blocks), self.chunks, self.dtype)


# ------------------------------------------------------------------------- NumPy's functions


def norm(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return wrapped(reductions.norm(x._parts, axis, keepdims))


def transpose(a: Any, axes: Any = None) -> Any:
    return Array(arrangements.transpose(a._parts, axes))


def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    first, second = as_parts(a, "np.tensordot"), as_parts(b, "np.tensordot")
    return wrapped(reductions.tensordot(*fitted(first, second, axes), axes))


def where(condition: Any, x: Any, y: Any) -> Any:
    operands = list(map(as_operand, (condition, x, y)))
    return wrapped(elementwise.apply(np.where, "where", operands))


def concatenate(arrays: Sequence[Any], axis: int = 0) -> Any:
    parts = [as_parts(array, "np.concatenate") for array in arrays]
    return wrapped(arrangements.concatenate(parts, axis))


def stack(arrays: Sequence[Any], axis: int = 0) -> Any:
    return wrapped(arrangements.stack([as_parts(array, "np.stack") for array in arrays], axis))


FUNCTIONS: dict[Any, Callable] = {  # with the arguments that they have here
    **{np.sum: Array.sum, np.mean: Array.mean, np.prod: Array.prod, np.linalg.norm: norm},
    **{np.max: Array.max, np.min: Array.min, np.amax: Array.max, np.amin: Array.min},
    **{np.transpose: transpose, np.concatenate: concatenate, np.stack: stack, np.where: where},
    **{np.dot: lambda a, b: np.matmul(a, b), np.tensordot: tensordot},
    np.real: lambda val: wrapped(elementwise.apply(np.real, "real", [val._parts])),
    np.imag: lambda val: wrapped(elementwise.apply(np.imag, "imag", [val._parts])),
    **{np.shape: lambda a: a.shape, np.ndim: lambda a: a.ndim},
}


# ------------------------------------------------------------------------- arrays from arguments


def array(x: Any, chunks: Any = None) -> Array:
    """An array in chunks, with operations that are differentiated chunk by chunk.

    Parameters
    ----------
    x:
        a dask Array, with its chunks; a NumPy array; a ``dg.grid`` of single arrays; or a variable
        that is one of these, and has a gradient of this kind.
    chunks:
        the entries in a chunk, for all axes or for each, or sizes for each; -1: all. Without it,
        the chunks of ``x``, and a single one for a NumPy array.

    Raises
    ------
    TypeError
        for anything else, for example a node, which has no known shape.
    ValueError
        if chunks do not add up, or the chunks of a dask Array are not known.

    See Also
    --------
    grid, reduce_sum

    Examples
    --------
    >>> def variance(x):
    ...     x = dg.array(x, chunks=(2, 3))
    ...     return ((x - x.mean(axis=0)) ** 2).sum()
    >>> dg.grad(variance)(np.arange(12.0).reshape(4, 3))[:, 0]
    array([-9., -3.,  3.,  9.])
    """
    if is_dask_array(x):
        return of_dask_array(x if chunks is None else x.rechunk(chunks))
    chunked = x if isinstance(x, Array) else in_blocks(x)
    if chunked is not None:
        return chunked if chunks is None else chunked.rechunk(chunks)
    known = x.primal if isinstance(x, Variable) else x
    if not isinstance(known, np.ndarray) or isinstance(known, np.ma.MaskedArray):
        raise TypeError(
            f"dg.array takes NumPy and dask arrays, grids, and variables that are such; found "
            f"{describe(known)}"
        )
    cut = as_chunks(-1 if chunks is None else chunks, known.shape)
    if isinstance(x, Variable):
        return Array(Parts(grid_of_variable(x, cut).blocks, cut, known.dtype))
    return Array(cut_parts(known, cut))


def in_blocks(x: Any) -> Array | None:
    """The array of a grid, of a variable that is one, or of a dask Array's variable; else None."""
    grid = as_grid(x)
    if grid is None:
        return None
    if isinstance(x, ChunkedVariable):
        return Array(Parts(x.blocks, x.chunks, x.dtype))
    blocks = x.primal.blocks if isinstance(x, Variable) else grid.blocks
    dtypes = {block.dtype for block in blocks if isinstance(block, np.ndarray)}
    if len(dtypes) > 1 or not all(isinstance(block, np.ndarray | Node) for block in blocks):
        raise TypeError("dg.array takes a grid of single arrays of one dtype")
    return Array(Parts(grid.blocks, grid.chunks, dtypes.pop() if dtypes else np.dtype(float)))


def of_dask_array(x: Any) -> Array:
    return Array(Parts(grid_of_dask_array(x).blocks, x.chunks, x.dtype))


def as_operand(value: Any) -> Any:
    """Parts of an array, a NumPy array, a number, or a node that is a number."""
    if isinstance(value, Array):
        return value._parts
    return of_dask_array(value)._parts if is_dask_array(value) else value


def as_parts(value: Any, function: str) -> Parts:
    operand = as_operand(value)
    if isinstance(operand, Variable) and isinstance(operand.primal, np.ndarray):
        operand = array(operand)._parts
    if isinstance(operand, np.ndarray) and operand.ndim:
        return made_of(tuple([(size,) for size in operand.shape]), operand.dtype, lambda _: operand)
    if not isinstance(operand, Parts):
        raise TypeError(
            f"{function} of a dg.array and {describe(operand)}; both must be arrays: write "
            f"dg.array(x) of a variable x, or let a model have the blocks, with "
            f"dg.array(...).map_blocks or dg.reduce_sum"
        )
    return operand


def fitted(first: Parts, second: Parts, axes: Any = None) -> tuple[Parts, Parts]:
    """Two arrays; one in a single chunk, as NumPy's, is cut along the axes that both share."""
    if axes is None:
        pairs = [(len(first.chunks) - 1, 0)]
    else:
        pairs = list(zip(*reductions.contracted(first, second, axes), strict=True))
    for a, b in pairs:
        one, other = first.chunks[a], second.chunks[b]
        if one != other and sum(one) == sum(other) and 1 in (len(one), len(other)):
            if len(other) == 1:
                second = recut(second, b, one)
            else:
                first = recut(first, a, other)
    return first, second


def recut(parts: Parts, axis: int, sizes: tuple[int, ...]) -> Parts:
    chunks = (*parts.chunks[:axis], sizes, *parts.chunks[axis + 1 :])
    return arrangements.rechunk(parts, chunks)


def each_block(other: Any, like: Array, name: str) -> Sequence[Any]:
    """An argument of ``map_blocks``, beside each block."""
    if not isinstance(other, Array):
        return [other] * len(like.blocks)
    if other.chunks != like.chunks:
        raise ValueError(
            f"map_blocks of {name!r} got arrays with different chunks: {like.chunks} and "
            f"{other.chunks}; rechunk one"
        )
    return other._parts.blocks


def wrapped(parts: Parts) -> Any:
    """An array; without axes it is the node of a number."""
    return Array(parts) if parts.chunks else as_node(parts.blocks[0])
