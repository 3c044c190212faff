"""Loops: the forward pass of a program over many items of one kind, in one call of XLA.

XLA compiles operations in a loop otherwise than alone, and the last bits may differ: with a sum of
13 exponentials they do, with one of 100 they do not. So items go through the loop of their kind
and through nothing else, single ones, too, and each kind has one loop. Its arrays have a row an
item, and a length that the shapes alone decide; how many rows it goes through is known only when it
runs, so that XLA cannot unroll it. All items run through the same compiled body, and the bits of
each depend neither on its place nor on how many there are.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from daskgrad.backends.jax.compiled import Compiled
from daskgrad.backends.traced_call import Layout
from daskgrad.values.summation import power_of_two

NBYTES = 2**20  # of a loop's rows: the items, and their gradients
LONGEST = 256  # rows
SHORTEST = 16  # rows: items that are larger are evaluated alone, and their calls cost little

RowsOf = Callable[[int, Sequence[int], int], np.ndarray]


class Loop:
    """Both passes of a program whose value is one real number, over items.

    ``is_own`` says of each leaf of a call whether it is the item's. ``nbytes`` of an item and its
    gradient; ``length``: how many of them one call goes through at the most.
    """

    def __init__(
        self, compiled: Compiled, layout: Layout, arrays: Sequence[Any], is_own: list[bool]
    ):
        self._compiled = compiled
        self._traced = compiled.trace(arrays, compiled.constants(layout.leaves))
        self._reached = compiled.reached
        self._count = len(arrays)  # of the leaves; constants follow
        self._places = [layout.places.index(number) for number in range(self._count)]
        self._places += compiled.constants(range(len(layout.leaves)))
        self._are_own = [is_own[place] for place in self._places]
        self.nbytes = self._nbytes(layout, arrays)
        self.length = min(LONGEST, power_of_two(max(1, NBYTES // self.nbytes)))
        self._run = jax.jit(self._run_rows)

    def _nbytes(self, layout: Layout, arrays: Sequence[Any]) -> int:
        leaves = [*arrays, *self._compiled.constants(layout.leaves)]
        own = itertools.compress(leaves, self._are_own)
        pulled = itertools.compress(arrays, self._reached)
        return 8 + sum([np.asarray(leaf).nbytes for leaf in (*own, *pulled)])

    @property
    def structure(self) -> Any:
        return self._compiled.structure

    @property
    def is_right(self) -> bool:
        """Whether it may replace single calls: their value is one real number, they are small, and
        have no effects, whose order would change."""
        outputs = self._compiled.outputs
        is_number = len(outputs.slots) == 1 and outputs.is_real_scalar()
        return is_number and not self._traced.effects and self.length >= SHORTEST

    def run(
        self, numbers: Sequence[int], layout: Layout, arrays: Sequence[Any], rows: RowsOf
    ) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        """The value of each item, and its gradient: an entry, or None, for each array.

        ``rows(place, numbers, length)`` returns these items' leaves at a place.
        """
        leaves = [*arrays, *self._compiled.constants(layout.leaves)]
        for start in range(0, len(numbers), self.length):
            run = numbers[start : start + self.length]
            given = [
                rows(place, run, self.length) if is_own else leaf
                for leaf, place, is_own in zip(leaves, self._places, self._are_own, strict=True)
            ]
            yield from self._each(len(run), self._run(len(run), given))

    def _each(self, count: int, results: Sequence[Any]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        values, *pulled = [np.asarray(result)[:count].copy() for result in results]
        rest = iter(pulled)
        none = [None] * count
        columns = [next(rest) if is_there else none for is_there in self._reached]
        return zip(values, zip(*columns, strict=True), strict=True)

    def _run_rows(self, count: Any, leaves: list[Any]) -> list[Any]:
        def item(number: Any) -> list[Any]:
            own = [
                lax.dynamic_index_in_dim(leaf, number, keepdims=False) if is_own else leaf
                for leaf, is_own in zip(leaves, self._are_own, strict=True)
            ]
            arrays, constants = own[: self._count], own[self._count :]
            values, pulled, _ = self._compiled.both_passes(self._traced, arrays, constants)
            return [*values, *itertools.compress(pulled, self._reached)]

        def step(number: Any, results: list[Any]) -> list[Any]:
            pairs = zip(results, item(number), strict=True)
            return [lax.dynamic_update_index_in_dim(rows, row, number, 0) for rows, row in pairs]

        likes = jax.eval_shape(item, 0)
        results = [jnp.zeros((self.length, *like.shape), like.dtype) for like in likes]
        return lax.fori_loop(0, count, step, results)


def loop_of(
    compiled: Compiled, layout: Layout, arrays: Sequence[Any], is_own: Sequence[bool]
) -> Loop | None:
    """The loop of a program over the leaves that are the items' own; ``None`` if it has none.

    The program and the shapes decide this, never data: the bits would depend on it.
    """
    which = tuple(is_own)
    with compiled.lock:  # so that one of several threads runs the function
        if which not in compiled.loops:
            loop = Loop(compiled, layout, arrays, list(is_own))
            compiled.loops[which] = loop if loop.is_right else None
        return compiled.loops[which]
