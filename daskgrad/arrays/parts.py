"""Parts: the blocks of an array, and how operations make new ones."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.arrays.chunks import Chunks
from daskgrad.graph.nodes import CallNode, Node
from daskgrad.grids.layout import Layout
from daskgrad.models.model import Model


class Parts(NamedTuple):
    """An array in chunks: nodes, or constants, in C order."""

    blocks: tuple[Any, ...]
    chunks: Chunks
    dtype: np.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.layout.shape

    @property
    def layout(self) -> Layout:
        return Layout(self.chunks)

    def block(self, index: Sequence[int]) -> Any:
        return self.blocks[self.layout.number(tuple(index))]


def made_of(chunks: Chunks, dtype: Any, block_at: Callable[[tuple[int, ...]], Any]) -> Parts:
    """The array whose block at each index a function makes."""
    return Parts(tuple(map(block_at, Layout(chunks).indices())), chunks, np.dtype(dtype))


def call(fun: Callable, name: str, *args: Any) -> Node:
    """A node that calls a function of NumPy's."""
    return CallNode(Model(fun, name), args, {})
