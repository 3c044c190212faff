"""Blocks: evaluates the items of a block of a sum in loops, items of one kind together."""

import functools
import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from daskgrad.autodiff.libraries.jax.compiled import JitProgram, leaf_kind, program_of
from daskgrad.autodiff.tape.traced_call import FlatArguments, TracedBlock
from daskgrad.autodiff.values.addition import power_of_two
from daskgrad.autodiff.values.trees import LEAF, exactly, flatten, unflatten

# -------------------------------------------------------------------------------------------------
# Loops: the forward pass of a program over many items of one kind, in one call of XLA.
#
# XLA compiles operations in a loop otherwise than alone, and the last bits may differ: a sum of 13
# exponentials differs, a sum of 100 does not. So each kind of item has one loop, through which
# single items go, too. Its arrays have a row an item, and a length that shapes alone decide; the
# number of rows is known only when it runs, so that XLA cannot unroll it. All items go through the
# same compiled body, and the bits of each depend neither on its place nor on the number of items.

NBYTES = 2**20  # of a loop's rows, items and gradients
LONGEST = 256  # rows
SHORTEST = 16  # rows: larger items are evaluated alone, and a call costs little beside them

RowsOf = Callable[[int, Sequence[int], int], np.ndarray]


class XlaLoop:
    """Both passes of a program for one real number, over items.

    ``are_own``: whether each leaf of a call is the item's; ``nbytes``: of an item and its gradient;
    ``length``: the most items in one call.
    """

    def __init__(
        self,
        program: JitProgram,
        layout: FlatArguments,
        arrays: Sequence[Any],
        are_own: Sequence[bool],
    ):
        leaves = self._inputs(program, layout, arrays)
        self._program = program
        self._traced = program.trace(arrays, leaves[len(arrays) :])
        self._reached = program.reached
        self._places = [layout.places.index(number) for number in range(len(arrays))]
        self._places += program.constants(range(len(layout.leaves)))
        self._are_own = [are_own[place] for place in self._places]
        held = [*itertools.compress(leaves, self._are_own)]
        held += itertools.compress(arrays, self._reached)
        self.nbytes = 8 + sum([np.asarray(leaf).nbytes for leaf in held])
        self.length = min(LONGEST, power_of_two(max(1, NBYTES // self.nbytes)))
        self._run = jax.jit(functools.partial(self._run_rows, len(arrays)))

    @staticmethod
    def _inputs(program: JitProgram, layout: FlatArguments, arrays: Sequence[Any]) -> list[Any]:
        """The inputs of the program: the arrays, and the constants."""
        return [*arrays, *program.constants(layout.leaves)]

    @property
    def structure(self) -> Any:
        return self._program.structure

    @property
    def is_right(self) -> bool:
        """Whether it may replace single calls: the value is one real number, items are small, and
        there are no effects, whose order would change."""
        outputs = self._program.outputs
        is_number = len(outputs.slots) == 1 and outputs.is_real_scalar()
        return is_number and not self._traced.effects and self.length >= SHORTEST

    def run(
        self, numbers: Sequence[int], layout: FlatArguments, arrays: Sequence[Any], rows: RowsOf
    ) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        """The value of each item, and its gradient: an entry, or None, for each array.

        ``rows(place, numbers, length)`` returns these items' leaves at a place.
        """
        leaves = self._inputs(self._program, layout, arrays)
        for start in range(0, len(numbers), self.length):
            run = numbers[start : start + self.length]
            inputs = [
                rows(place, run, self.length) if is_own else leaf
                for leaf, place, is_own in zip(leaves, self._places, self._are_own, strict=True)
            ]
            yield from self._each(len(run), self._run(len(run), inputs))

    def _each(self, count: int, results: Sequence[Any]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        values, *pulled = [np.asarray(result)[:count].copy() for result in results]
        gradients, none = iter(pulled), [None] * count
        columns = [next(gradients) if is_there else none for is_there in self._reached]
        return zip(values, zip(*columns, strict=True), strict=True)

    def _run_rows(self, width: int, count: Any, leaves: list[Any]) -> list[Any]:
        def item(number: Any) -> list[Any]:
            inputs = [
                lax.dynamic_index_in_dim(leaf, number, keepdims=False) if is_own else leaf
                for leaf, is_own in zip(leaves, self._are_own, strict=True)
            ]
            values, pulled, _ = self._program.both_passes(
                self._traced, inputs[:width], inputs[width:]
            )
            return [*values, *itertools.compress(pulled, self._reached)]

        def step(number: Any, results: list[Any]) -> list[Any]:
            pairs = zip(results, item(number), strict=True)
            return [lax.dynamic_update_index_in_dim(rows, row, number, 0) for rows, row in pairs]

        likes = jax.eval_shape(item, 0)
        results = [jnp.zeros((self.length, *like.shape), like.dtype) for like in likes]
        return lax.fori_loop(0, count, step, results)


def loop_of(
    program: JitProgram, layout: FlatArguments, arrays: Sequence[Any], are_own: Sequence[bool]
) -> XlaLoop | None:
    """The loop of a program over the items' leaves; ``None`` if there is none, which the program
    and the shapes decide, and never data, as the bits depend on it."""
    key = tuple(are_own)
    with program.lock:  # so that one of several threads runs the function
        if key not in program.loops:
            loop = XlaLoop(program, layout, arrays, are_own)
            program.loops[key] = loop if loop.is_right else None
        return program.loops[key]


# ------------------------------------------------------------------------------------------ blocks

HELD = 2**22  # bytes of items and gradients at a time

Term = tuple[Any, Sequence[Any]]  # a value, and its gradient


def trace_block(block: TracedBlock) -> Iterator[list[Term | None]]:
    """The values and gradients of runs of items (see ``autodiff.libraries.registry``)."""
    fields = list(map(ItemField, block.fields))
    groups: dict[Hashable, XlaGroup] = {}
    members: list[XlaGroup] = []  # the group of each item
    for number, kind in enumerate(zip(*[field.kinds for field in fields], strict=True)):
        if kind not in groups:
            groups[kind] = XlaGroup(block, fields, number, is_alone=None in kind)
        members.append(groups[kind])
    largest = max([group.nbytes for group in groups.values()])
    size = max(1, HELD // largest) if largest else block.count
    for start in range(0, block.count, size):
        numbers: dict[XlaGroup, list[int]] = {}
        for number, group in enumerate(members[start : start + size], start):
            numbers.setdefault(group, []).append(number)
        results: list[Term | None] = [None] * len(members[start : start + size])
        for group, those in numbers.items():
            for number, result in zip(those, group.results(those), strict=False):
                results[number - start] = result
        yield results


class XlaGroup:
    """Items of one kind, which share a loop; ``nbytes``: of one item while it is held."""

    def __init__(
        self, block: TracedBlock, fields: Sequence["ItemField"], number: int, is_alone: bool
    ):
        self.nbytes = 0
        self._fields = fields
        self._loop: XlaLoop | None = None
        call, self._arrays = block.call(number)
        if not self._arrays or is_alone:
            return
        self._layout, self._origins = call.layout(), call.origins()
        with jax.enable_x64(True):
            program = program_of(call.fun, self._layout)
            if program is not None:  # the first inputs are the fields of an item
                are_own = [
                    origin is not None and origin[0] < len(fields) for origin in self._origins
                ]
                self._loop = loop_of(program, self._layout, self._arrays, are_own)
        self.nbytes = 0 if self._loop is None else self._loop.nbytes

    def results(self, numbers: Sequence[int]) -> Sequence[Term]:
        """The results of these items; none if the kind has no loop."""
        if self._loop is None:
            return ()
        with jax.enable_x64(True):
            terms = list(self._loop.run(numbers, self._layout, self._arrays, self._rows))
        structure = self._loop.structure
        return [(unflatten(structure, [value]), gradient) for value, gradient in terms]

    def _rows(self, place: int, numbers: Sequence[int], length: int) -> np.ndarray:
        """The items' leaves at a place of the call, padded to the rows of a loop."""
        origin = self._origins[place]
        assert origin is not None
        field, leaf = origin
        rows = self._fields[field].rows(leaf, numbers)
        padded = np.zeros((length, *rows.shape[1:]), rows.dtype)
        padded[: len(rows)] = rows
        return padded


class ItemField:
    """One field of all items, rows of an array or pytrees; ``kinds``: of each item."""

    def __init__(self, items: Sequence[Any] | np.ndarray):
        self._array = items if isinstance(items, np.ndarray) else None
        self._trees = [] if isinstance(items, np.ndarray) else list(map(flatten, items))
        self.kinds = [tree_kind(*tree) for tree in self._trees]
        if self._array is not None:
            self.kinds = [leaf_kind(self._array[0])] * len(self._array)

    def rows(self, leaf: int, numbers: Sequence[int]) -> np.ndarray:
        """The leaves of that number of some items."""
        if self._array is not None:
            return self._array[numbers]
        return np.array([self._trees[number][0][leaf] for number in numbers])


def tree_kind(leaves: Sequence[Any], structure: Any) -> Hashable:
    """The kind of items that share a loop; ``None`` for an item that is evaluated alone."""
    order = b"" if structure is LEAF else exactly(structure)
    kinds = tuple([None if isinstance(leaf, jax.Array) else leaf_kind(leaf) for leaf in leaves])
    return None if order is None or None in kinds else (structure, order, kinds)
