"""Chunked variables: dask Arrays to differentiate with respect to; their chunks stay in place."""

import dataclasses
import itertools
import math
from typing import Any

import numpy as np

from daskgrad.graph.nodes import Node
from daskgrad.graph.variables import Variable
from daskgrad.tasks.collections import require_known_chunks, what_stands_at
from daskgrad.tasks.task_graph import TaskGraph


@dataclasses.dataclass(frozen=True)
class Elsewhere:
    """What is known of an array that is not in this process."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class ChunkVariable(Variable):
    """One chunk of a dask Array: a variable whose value Dask has, or computes."""

    is_settled = True

    def __init__(self, chunk: Any, known: Elsewhere, name: str):
        super().__init__(known, name)
        self.key = what_stands_at(chunk).key
        self._graph = chunk.__dask_graph__()


class ChunkedVariable(Node):
    """A dask Array as a variable, of which ``dg.array`` and ``dg.grid`` are made.

    ``blocks`` has the variables of its chunks, in C order.
    """

    def __init__(self, name: str, blocks: tuple[ChunkVariable, ...], chunks: Any, dtype: np.dtype):
        super().__init__(name, ())
        self.blocks = blocks
        self.chunks = chunks
        self.dtype = dtype

    def build_value(self, tasks: TaskGraph, inputs: list[Any]) -> Any:
        raise TypeError(
            f"variable {self.name!r} is a dask Array, of which models get the chunks; use "
            f"dg.array(x) or dg.grid(x) of it"
        )


def chunked_variable(array: Any, name: str) -> ChunkedVariable:
    """The variable of a dask Array."""
    require_known_chunks(array)
    if array.dtype.kind not in "fc":
        raise TypeError(
            f"{name!r} is a dask Array of {array.dtype}, which has no derivative; make it one of "
            f"float numbers: x.astype(float)"
        )
    shapes = itertools.product(*array.chunks)
    places = np.ndenumerate(array.to_delayed(optimize_graph=False))
    blocks = [
        ChunkVariable(chunk, Elsewhere(shape, array.dtype), f"{name}{list(index)}")
        for (index, chunk), shape in zip(places, shapes, strict=True)
    ]
    return ChunkedVariable(name, tuple(blocks), array.chunks, array.dtype)
