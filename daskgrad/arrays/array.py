"""Array: an array in chunks, each of them a node, with a closed set of operations."""

from collections.abc import Sequence
from typing import Any

import dask
import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from daskgrad.arrays import arrangements, elementwise, reductions
from daskgrad.arrays import reductions as products
from daskgrad.arrays.chunks import Chunks, Parts, as_chunks, made_of
from daskgrad.arrays.elementwise import FUNCTIONS, UFUNCS, refused
from daskgrad.arrays.grid import CUT, Grid, as_grid, as_node, joined
from daskgrad.arrays.halos import Layout
from daskgrad.arrays.map_overlap import map_overlap
from daskgrad.autodiff.values.descriptions import describe
from daskgrad.graph.delayed import as_model
from daskgrad.graph.nodes import CallNode, Constant, Node, graph_of
from daskgrad.graph.variables import ChunkedVariable, Variable
from daskgrad.tasks.collections import as_dask_array, is_dask_array, require_known_chunks


class Array(NDArrayOperatorsMixin):
    """An array in chunks, made by ``dg.array``; programs on it are those of NumPy and dask.array.

    Operators and ufuncs with broadcasting, ``np.where``, ``sum``, ``mean``, ``prod``, ``max``,
    ``min`` and ``np.linalg.norm`` over axes, ``@``, ``np.dot``, ``np.tensordot``, transposes,
    integers and slices of step one as indices, ``rechunk``, ``np.concatenate``, ``np.stack``,
    ``map_blocks`` and ``map_overlap``. Operands must have the same chunks, or axes of one entry;
    NumPy arrays are cut to fit. Anything else is a ``TypeError`` that names what works.

    A reduction to one number is a node, as every model's value: the output of a function that is
    differentiated, or an operand. Extrema pass their derivative on to all equal entries, in equal
    parts.
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
            first, second = [as_parts(each, "np.matmul") for each in inputs]
            return wrapped(products.matmul(*fitted(first, second)))
        return wrapped(elementwise.apply(ufunc, ufunc.__name__, list(map(as_operand, inputs))))

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        method = FUNCTIONS.get(function)
        if method is None:
            raise refused(function)
        return getattr(NumpyFunctions, method)(*args, **options)

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

    def sum(self, axis: Any = None, keepdims: bool = False) -> Any:
        found = reductions.reduce(self._parts, axis, keepdims, np.sum, reductions.added)
        return wrapped(found)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Any:
        return wrapped(reductions.mean(self._parts, axis, keepdims))

    def prod(self, axis: Any = None, keepdims: bool = False) -> Any:
        found = reductions.reduce(self._parts, axis, keepdims, np.prod, reductions.multiplied)
        return wrapped(found)

    def max(self, axis: Any = None, keepdims: bool = False) -> Any:
        found = reductions.reduce(self._parts, axis, keepdims, np.max, reductions.extreme)
        return wrapped(found)

    def min(self, axis: Any = None, keepdims: bool = False) -> Any:
        found = reductions.reduce(self._parts, axis, keepdims, np.min, reductions.extreme)
        return wrapped(found)

    def dot(self, other: Any) -> Any:
        return self @ other

    @property
    def T(self) -> "Array":
        return self.transpose()

    def transpose(self, *axes: Any) -> "Array":
        given = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
        return Array(arrangements.transpose(self._parts, given))

    def rechunk(self, chunks: Any) -> "Array":
        """The same array in other chunks: a size, or for each axis a size or sizes; -1: one."""
        return Array(arrangements.rechunk(self._parts, chunks))

    def map_blocks(self, model: Any, *others: Any, name: str | None = None) -> "Array":
        """``model(block, *others)`` for each block, in which an array of the same chunks stands
        for its block; the result has the block's shape, which is not checked before it is used."""
        made = as_model(model, name)
        rows = [each_block(other, self, made.name) for other in others]
        blocks = [
            CallNode(made, (block, *[row[number] for row in rows]), {})
            for number, block in enumerate(self._parts.blocks)
        ]
        return Array(self._parts._replace(blocks=tuple(blocks)))

    def map_overlap(self, step: Any, *shared: Any, **options: Any) -> "Array":
        """``dg.map_overlap`` of the array; arrays among ``shared`` are its parameters."""
        given = [as_a_grid(each) if isinstance(each, Array) else each for each in shared]
        found = map_overlap(step, as_a_grid(self), *given, **options)
        return Array(self._parts._replace(blocks=found.blocks))

    def compute(self, **options: Any) -> np.ndarray:
        """The whole array, in this process."""
        found = dask.compute(list(self.blocks), **options)[0]
        return joined(list(map(np.asarray, found)), Layout(self.chunks))

    def persist(self, **options: Any) -> "Array":
        """The array whose chunks are computed and stay on the workers."""
        blocks = dask.persist(*self.blocks, **options)
        return Array(self._parts._replace(blocks=tuple(blocks)))

    def to_dask_array(self) -> Any:
        """A dask Array of the same chunks."""
        return as_dask_array(*graph_of(self.blocks), self.chunks, self.dtype)


# ------------------------------------------------------------------------- NumPy's functions


class NumpyFunctions:
    """NumPy's functions with the arguments that they have here, by the names in ``FUNCTIONS``."""

    @staticmethod
    def sum(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return a.sum(axis, keepdims)

    @staticmethod
    def mean(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return a.mean(axis, keepdims)

    @staticmethod
    def prod(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return a.prod(axis, keepdims)

    @staticmethod
    def max(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return a.max(axis, keepdims)

    @staticmethod
    def min(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return a.min(axis, keepdims)

    @staticmethod
    def norm(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return wrapped(reductions.norm(x._parts, axis, keepdims))

    @staticmethod
    def transpose(a: Any, axes: Any = None) -> Any:
        return Array(arrangements.transpose(a._parts, axes))

    @staticmethod
    def dot(a: Any, b: Any) -> Any:
        return np.matmul(a, b)

    @staticmethod
    def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
        first, second = as_parts(a, "np.tensordot"), as_parts(b, "np.tensordot")
        return wrapped(products.tensordot(*fitted(first, second, axes), axes))

    @staticmethod
    def where(condition: Any, x: Any, y: Any) -> Any:
        given = list(map(as_operand, (condition, x, y)))
        return wrapped(elementwise.apply(np.where, "where", given))

    @staticmethod
    def concatenate(arrays: Sequence[Any], axis: int = 0) -> Any:
        parts = [as_parts(each, "np.concatenate") for each in arrays]
        return wrapped(arrangements.concatenate(parts, axis))

    @staticmethod
    def stack(arrays: Sequence[Any], axis: int = 0) -> Any:
        parts = [as_parts(each, "np.stack") for each in arrays]
        return wrapped(arrangements.stack(parts, axis))

    @staticmethod
    def real(val: Any) -> Any:
        return wrapped(elementwise.apply(np.real, "real", [val._parts]))

    @staticmethod
    def imag(val: Any) -> Any:
        return wrapped(elementwise.apply(np.imag, "imag", [val._parts]))

    @staticmethod
    def shape(a: Any) -> tuple[int, ...]:
        return a.shape

    @staticmethod
    def ndim(a: Any) -> int:
        return a.ndim


# ----------------------------------------------------------------------------- what is given


def array(x: Any, chunks: Any = None) -> Array:
    """An array in chunks, whose operations are differentiated chunk by chunk.

    Parameters
    ----------
    x:
        a dask Array, whose chunks it has; a NumPy array; a ``dg.grid`` of single arrays; or a
        variable that is one of these, whose gradient is, too.
    chunks:
        the entries in a chunk, for all axes or for each, or sizes for each; -1: all. Not given:
        those of ``x``, and a single one for a NumPy array.

    Raises
    ------
    TypeError
        for anything else, for example a node, whose shape is not known.
    ValueError
        if chunks do not add up, or the chunks of a dask Array are not known.

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
    found = x if isinstance(x, Array) else in_blocks(x)
    if found is not None:
        return found if chunks is None else found.rechunk(chunks)
    known = x.primal if isinstance(x, Variable) else x
    if not isinstance(known, np.ndarray) or isinstance(known, np.ma.MaskedArray):
        raise TypeError(
            f"dg.array takes NumPy and dask arrays, grids, and variables that are such; found "
            f"{describe(known)}"
        )
    cut = as_chunks(-1 if chunks is None else chunks, known.shape)
    places = Layout(cut)
    if not isinstance(x, Variable):
        return Array(made_of(cut, known.dtype, lambda i: known[places.slices(i)].copy(order="C")))
    whole = CallNode(CUT, (x, cut), {})
    blocks = tuple([whole[number] for number in range(len(places.indices()))])
    return Array(Parts(blocks, cut, known.dtype))


def in_blocks(given: Any) -> Array | None:
    """The array of what has blocks already: a grid, a variable that is one, or a dask Array."""
    found = as_grid(given)
    if found is None:
        return None
    if isinstance(given, ChunkedVariable):
        return Array(Parts(given.blocks, given.chunks, given.dtype))
    blocks = given.primal.blocks if isinstance(given, Variable) else found.blocks
    dtypes = {each.dtype for each in blocks if isinstance(each, np.ndarray)} or {np.dtype(float)}
    if len(dtypes) > 1 or not all(isinstance(each, np.ndarray | Node) for each in blocks):
        raise TypeError("dg.array takes a grid of single arrays of one dtype")
    return Array(Parts(found.blocks, found.chunks, dtypes.pop()))


def of_dask_array(x: Any) -> Array:
    require_known_chunks(x)
    blocks = x.to_delayed(optimize_graph=False).reshape(-1)
    return Array(Parts(tuple(map(Constant, blocks)), x.chunks, x.dtype))


def as_operand(given: Any) -> Any:
    """Parts of an array, a NumPy array, a number, or a node that is a number."""
    if isinstance(given, Array):
        return given._parts
    if is_dask_array(given):
        return of_dask_array(given)._parts
    return given


def as_parts(given: Any, what: str) -> Parts:
    found = as_operand(given)
    if isinstance(found, np.ndarray) and found.ndim:
        return made_of(tuple([(size,) for size in found.shape]), found.dtype, lambda _: found)
    if not isinstance(found, Parts):
        raise TypeError(f"{what} of a dg.array and {describe(found)}; both must be arrays")
    return found


def fitted(first: Parts, second: Parts, axes: Any = None) -> tuple[Parts, Parts]:
    """Two arrays of which a NumPy array, a single chunk, is cut along the axes that it shares."""
    if axes is None:
        pairs = [(len(first.chunks) - 1, 0)]
    else:
        pairs = list(zip(*products.contracted(first, second, axes), strict=True))
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
    """What stands for an argument of ``map_blocks`` beside each block."""
    if not isinstance(other, Array):
        return [other] * len(like.blocks)
    if other.chunks != like.chunks:
        raise ValueError(
            f"map_blocks of {name!r} got arrays with other chunks: {like.chunks} and "
            f"{other.chunks}; rechunk one"
        )
    return other._parts.blocks


def as_a_grid(given: Array) -> Grid:
    return Grid(given._parts.blocks, given.chunks)


def wrapped(parts: Parts) -> Any:
    """An array; without axes it is the node of a number."""
    return Array(parts) if parts.chunks else as_node(parts.blocks[0])
