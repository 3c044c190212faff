"""Grids: arrays in blocks. A block is an array, a node, or a pytree of arrays of one shape."""

import dataclasses
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import dask
import numpy as np
import optree

from daskgrad.arrays.halos import GridLayout
from daskgrad.autodiff.models.model import Model
from daskgrad.autodiff.values.descriptions import describe, is_integer
from daskgrad.autodiff.values.trees import NAMESPACE, flatten, map_leaves, unflatten
from daskgrad.graph.delayed import as_model
from daskgrad.graph.nodes import CallNode, Constant, Node, graph_of
from daskgrad.graph.variables import ChunkedVariable, Variable
from daskgrad.tasks.collections import as_dask_array, is_dask_array, require_known_chunks


@dataclasses.dataclass(frozen=True)
class Grid:
    """An array, or a pytree of arrays of one shape, in blocks; made by ``dg.grid``.

    ``blocks`` has the blocks in C order: NumPy arrays, or nodes that stand for them; ``chunks`` the
    sizes of the blocks along each axis, as Dask's. A grid is a pytree with the blocks as leaves, so
    a grid of arrays may be differentiated (``dg.grad(fun)(grid)`` is a grid of the same layout),
    and a Dask collection: ``dask.compute(grid)`` and ``dask.persist(grid)`` return grids.

    Examples
    --------
    >>> plate = dg.grid(np.arange(16.0).reshape(4, 4), blocks=(2, 2))
    >>> plate.chunks, len(plate.blocks), plate.blocks[3]
    (((2, 2), (2, 2)), 4, array([[10., 11.],
           [14., 15.]]))
    """

    blocks: tuple[Any, ...]
    chunks: tuple[tuple[int, ...], ...]

    def __repr__(self) -> str:
        counts = " x ".join([str(len(sizes)) for sizes in self.chunks])
        return f"<Grid of shape {self.shape}, {counts} blocks>"

    @property
    def layout(self) -> GridLayout:
        return GridLayout(self.chunks)

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each axis that is cut; arrays may have further ones."""
        return self.layout.shape

    def __iter__(self) -> Iterator[Any]:
        return iter(self.blocks)

    def map(self, model: Any, *shared: Any, name: str | None = None) -> list[Node]:
        """A node ``model(block, *shared)`` for each block; ``dg.sum`` adds them up.

        A grid of the same layout among ``shared`` stands for its block.
        """
        called = as_model(model, name)
        columns = [self.blocks, *[each_block(arg, self, called.name) for arg in shared]]
        return [CallNode(called, row, {}) for row in zip(*columns, strict=True)]

    def compute(self, **options: Any) -> "Grid":
        """The grid of the blocks' values, as ``dask.compute``."""
        return dask.compute(self, **options)[0]

    def persist(self, **options: Any) -> "Grid":
        """The grid with computed blocks, which stay on the workers, as ``dask.persist``."""
        return dask.persist(self, **options)[0]

    def to_array(self) -> Any:
        """The whole array, or the pytree of whole arrays, in this process.

        TypeError if the blocks are not computed yet.
        """
        if any(isinstance(block, Node) for block in self.blocks):
            raise TypeError(f"{self!r} has nodes for blocks; compute it first: grid.compute()")
        leaves = [flatten(block)[0] for block in self.blocks]
        arrays = [joined(blocks, self.layout) for blocks in zip(*leaves, strict=True)]
        return unflatten(flatten(self.blocks[0])[1], arrays)

    def to_dask_array(self, dtype: Any = float) -> Any:
        """A dask Array with the grid's chunks, if the blocks are single arrays of this dtype."""
        return as_dask_array(*graph_of(list(map(as_node, self.blocks))), self.chunks, dtype)


def as_node(block: Any) -> Node:
    return block if isinstance(block, Node) else Constant(block)


optree.register_pytree_node(
    Grid,  # type: ignore[arg-type]
    lambda grid: (grid.blocks, grid.chunks, range(len(grid.blocks))),  # type: ignore[attr-defined]
    lambda chunks, blocks: Grid(tuple(blocks), chunks),  # type: ignore[arg-type,return-value]
    namespace=NAMESPACE,
)


def joined(blocks: Sequence[np.ndarray], layout: GridLayout) -> np.ndarray:
    """The whole array."""
    first = blocks[0]
    whole = np.empty((*layout.shape, *first.shape[len(layout.chunks) :]), first.dtype)
    for block, index in zip(blocks, layout.indices(), strict=True):
        whole[layout.slices(index)] = block
    return whole


def each_block(arg: Any, like: Grid, name: str) -> list[Any]:
    """An argument for each block: a grid's block, or anything else as it is."""
    grid = as_grid(arg)
    if grid is None:
        return [arg] * len(like.blocks)
    if grid.chunks != like.chunks:
        raise ValueError(
            f"{name!r} was called on grids of different blocks: {like!r} with chunks "
            f"{like.chunks}, and {grid!r} with chunks {grid.chunks}; cut both alike"
        )
    return list(grid.blocks)


def as_grid(value: Any) -> Grid | None:
    """A grid, or a variable that is one or a dask Array; None for anything else."""
    if isinstance(value, ChunkedVariable):
        return Grid(value.blocks, value.chunks)
    if isinstance(value, Variable) and isinstance(value.primal, Grid):
        count = len(value.primal.blocks)
        return Grid(tuple([value._part(n) for n in range(count)]), value.primal.chunks)
    return value if isinstance(value, Grid) else None


# ------------------------------------------------------------------------------ making of grids


def grid(array: Any, blocks: Sequence[int] | int | None = None) -> Grid:
    """An array in blocks, for ``dg.map_overlap``.

    Parameters
    ----------
    array:
        a NumPy array, or a pytree of NumPy arrays with the same lengths along their first axes; a
        variable with such a value; a dask Array, with its chunks as the blocks; or a grid, or a
        variable that is one, as it is.
    blocks:
        the number of blocks along each of the first axes, which are the grid's; blocks of an axis
        differ in size by one at most. Or for each axis the blocks' sizes. Not for a dask Array or
        a grid.

    Raises
    ------
    TypeError
        if ``array`` holds other than arrays, or is a node of unknown shape.
    ValueError
        if there are more blocks along an axis than entries, sizes do not add up, arrays have
        different shapes, or ``blocks`` is missing, or passed with a dask Array or a grid.

    See Also
    --------
    map_overlap, array

    Examples
    --------
    >>> def total(plate):
    ...     return dg.sum(dg.grid(plate).map(lambda block: np.sum(block**2)))
    >>> plate = dg.grid(np.arange(12.0).reshape(3, 4), blocks=(1, 2))
    >>> dg.grad(total)(plate).blocks[0]
    array([[ 0.,  2.],
           [ 8., 10.],
           [16., 18.]])
    """
    cut = as_grid(array)
    if is_dask_array(array) or isinstance(array, ChunkedVariable):
        if blocks is not None:
            raise ValueError(
                "the blocks of a dask Array are its chunks; rechunk it, and leave blocks"
            )
        return cut or grid_of_dask_array(array)
    if cut is not None:
        if blocks is not None:
            raise ValueError("the blocks of a grid are those that it has; leave blocks")
        return cut
    known = array.primal if isinstance(array, Variable) else array
    leaves, structure = flatten(known)
    for leaf in leaves:
        if isinstance(leaf, np.ma.MaskedArray):
            raise TypeError("dg.grid found a masked array, whose mask would be lost; fill it first")
        if not isinstance(leaf, np.ndarray):
            raise TypeError(
                f"dg.grid takes arrays of known shape; found {describe(leaf)}; of a node make the "
                f"grid of its argument, and map the model over the blocks"
            )
    chunks = as_chunks(blocks, leaves)
    layout = GridLayout(chunks)
    if isinstance(array, Variable):
        return grid_of_variable(array, chunks)
    parts = [
        unflatten(structure, [np.ascontiguousarray(leaf[layout.slices(i)]) for leaf in leaves])
        for i in layout.indices()
    ]
    return Grid(tuple(parts), chunks)


def cut_all(tree: Any, chunks: Any) -> list[Any]:
    """The blocks of arrays, in C order."""
    layout = GridLayout(tuple(map(tuple, chunks)))
    places = map(layout.slices, layout.indices())
    return [map_leaves(operator.itemgetter(place), tree) for place in places]


CUT = Model(cut_all, "cut")


def grid_of_variable(variable: Variable, chunks: tuple[tuple[int, ...], ...]) -> Grid:
    whole = CallNode(CUT, (variable, chunks), {})
    count = len(GridLayout(chunks).indices())
    return Grid(tuple([whole[number] for number in range(count)]), chunks)


def grid_of_dask_array(array: Any) -> Grid:
    require_known_chunks(array)
    parts = array.to_delayed(optimize_graph=False).reshape(-1)
    return Grid(tuple(map(Constant, parts)), array.chunks)


def as_chunks(blocks: Any, leaves: Sequence[np.ndarray]) -> tuple[tuple[int, ...], ...]:
    if blocks is None:
        raise ValueError("dg.grid needs the number of blocks along each axis: blocks=(2, 2)")
    by_axis = list(blocks) if isinstance(blocks, list | tuple) else [blocks]
    sizes = [along if isinstance(along, list | tuple) else [along] for along in by_axis]
    if not all([is_integer(size) for along in sizes for size in along]):
        raise TypeError(
            f"blocks must be integers, or sizes, for each axis; found {describe(blocks)}"
        )
    shapes = {leaf.shape[: len(by_axis)] for leaf in leaves}
    if len(shapes) != 1 or len(next(iter(shapes))) != len(by_axis):
        raise ValueError(
            f"the arrays of a grid must have one shape in its {len(by_axis)} axes; found "
            f"{', '.join(map(describe, leaves))}"
        )
    (shape,) = shapes
    pairs = enumerate(zip(by_axis, shape, strict=True))
    return tuple([sizes_of(along, size, axis) for axis, (along, size) in pairs])


def sizes_of(along: Any, size: int, axis: int) -> tuple[int, ...]:
    """The sizes of the blocks along one axis."""
    if is_integer(along):
        if not 1 <= along <= size:
            raise ValueError(
                f"axis {axis} has {size} entries, and cannot be cut into {along} blocks"
            )
        return tuple([size // along + (n < size % along) for n in range(int(along))])
    sizes = tuple(map(int, along))
    if sum(sizes) != size or min(sizes, default=0) < 1:
        raise ValueError(
            f"the blocks of axis {axis} must have positive sizes that add up to {size}; found "
            f"{sizes}"
        )
    return sizes
