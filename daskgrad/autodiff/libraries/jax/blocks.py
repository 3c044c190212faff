"""Blocks: evaluates the items of a block of a sum in loops, items of one kind together."""

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optree
from jax import lax

from daskgrad.autodiff.libraries.jax.compiled import Compiled, compiled_of, leaf_kind
from daskgrad.autodiff.tape.traced_call import FlatArguments, TracedBlock
from daskgrad.autodiff.values.addition import power_of_two
from daskgrad.autodiff.values.trees import LEAF, exactly, flatten, unflatten

# -------------------------------------------------------------------------------------------------
# Loops: the forward pass of a program over many items of one kind, in one call of XLA.
#
# XLA compiles operations in a loop otherwise than alone, and the last bits may differ: with a sum
# of 13 exponentials they do, with one of 100 they do not. So items go through the loop of their
# kind and through nothing else, single ones, too, and each kind has one loop. Its arrays have a row
# an item, and a length that the shapes alone decide; how many rows it goes through is known only
# when it runs, so that XLA cannot unroll it. All items run through the same compiled body, and the
# bits of each depend neither on its place nor on how many there are.

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
        self, compiled: Compiled, layout: FlatArguments, arrays: Sequence[Any], is_own: list[bool]
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

    def _nbytes(self, layout: FlatArguments, arrays: Sequence[Any]) -> int:
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
        self, numbers: Sequence[int], layout: FlatArguments, arrays: Sequence[Any], rows: RowsOf
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
    compiled: Compiled, layout: FlatArguments, arrays: Sequence[Any], is_own: Sequence[bool]
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


# ------------------------------------------------------------------------------------------ blocks

HELD = 2**22  # bytes of items and gradients that are held at a time

Result = tuple[Any, Sequence[Any]]  # a value, and its gradient


def trace_block(block: TracedBlock) -> Iterator[list[Result | None]]:
    """The values and gradients of runs of items (see ``autodiff.libraries.registry``)."""
    parts = [part_of(field) for field in block.fields]
    groups: dict[Hashable, Group] = {}
    begin, held = 0, 0
    for kind, start, stop in runs_of_one_kind(parts):
        group = groups.get(kind)
        if group is None:
            group = groups[kind] = Group(block, parts, start, is_alone=None in kind)
        while start < stop:
            room = max(1, (HELD - held) // group.nbytes) if group.nbytes else stop
            end = min(stop, start + room)
            group.numbers.extend(range(start, end))
            held += group.nbytes * (end - start)
            start = end
            if held >= HELD:
                yield results_of(groups.values(), begin, end)
                begin, held = end, 0
    yield results_of(groups.values(), begin, block.count)


def runs_of_one_kind(
    parts: Sequence["Part"],
) -> Iterator[tuple[tuple[Hashable, ...], int, int]]:
    """Runs of consecutive items of one kind: the kind, first number and end."""
    start = 0
    for kind, run in itertools.groupby(zip(*[part.kinds for part in parts], strict=True)):
        stop = start + len(list(run))
        yield kind, start, stop
        start = stop


def results_of(groups: Iterable["Group"], start: int, stop: int) -> list[Result | None]:
    """The results of the groups for items ``start`` to ``stop``."""
    found: list[Result | None] = [None] * (stop - start)
    for group in groups:
        for number, result in group.results():
            found[number - start] = result
    return found


class Group:
    """Items of one kind; ``numbers`` are those that are to be evaluated next."""

    def __init__(self, block: TracedBlock, parts: Sequence["Part"], number: int, is_alone: bool):
        self.numbers: list[int] = []
        self._parts = parts
        self._loop: Loop | None = None
        call, self._arrays = block.call(number)
        if self._arrays and not is_alone:
            self._layout, self._origins = call.layout(), call.origins()
            self._set_loop(call.fun)

    def _set_loop(self, fun: Any) -> None:
        with jax.enable_x64(True):
            compiled = compiled_of(fun, self._layout)
            if compiled is not None:  # the first inputs are the parts of an item
                is_own = [each is not None and each[0] < len(self._parts) for each in self._origins]
                self._loop = loop_of(compiled, self._layout, self._arrays, is_own)

    @property
    def nbytes(self) -> int:
        """The bytes of an item while it is held."""
        return 0 if self._loop is None else self._loop.nbytes

    def results(self) -> Iterable[tuple[int, Result]]:
        """The results of its items, which are then removed; none if the kind has no loop."""
        numbers, self.numbers = self.numbers, []
        if self._loop is None or not numbers:
            return ()
        with jax.enable_x64(True):
            found = list(self._loop.run(numbers, self._layout, self._arrays, self._rows))
        structure = self._loop.structure
        if not optree.treespec_is_leaf(structure):
            found = [(unflatten(structure, [value]), gradient) for value, gradient in found]
        return zip(numbers, found, strict=True)

    def _rows(self, place: int, numbers: Sequence[int], length: int) -> np.ndarray:
        """The items' leaves at a place of the call, padded to the rows of a loop."""
        origin = self._origins[place]
        assert origin is not None
        part, leaf = origin
        rows = self._parts[part].rows(leaf, numbers)
        padded = np.zeros((length, *rows.shape[1:]), rows.dtype)
        padded[: len(rows)] = rows
        return padded


# ------------------------------------------------------------------------- the parts of items


class ArrayPart:
    """A part of each item that is a row of an array."""

    def __init__(self, array: np.ndarray):
        self._array = array
        self.kinds = [leaf_kind(array[0])] * len(array)

    def rows(self, leaf: int, numbers: Sequence[int]) -> np.ndarray:
        return self._array[numbers]


class TreePart:
    """A part of each item that is an entry of a list, and a pytree."""

    def __init__(self, trees: Sequence[Any]):
        self._trees = [flatten(tree) for tree in trees]
        self.kinds = [tree_kind(*tree) for tree in self._trees]

    def rows(self, leaf: int, numbers: Sequence[int]) -> np.ndarray:
        return np.array([self._trees[number][0][leaf] for number in numbers])


Part = ArrayPart | TreePart


def part_of(field: Sequence[Any] | np.ndarray) -> Part:
    return ArrayPart(field) if isinstance(field, np.ndarray) else TreePart(field)


def tree_kind(leaves: Sequence[Any], structure: Any) -> Hashable:
    """The kind of items that share a loop; ``None`` for an item that is evaluated alone."""
    order = b"" if structure is LEAF else exactly(structure)
    kinds = tuple([None if isinstance(leaf, jax.Array) else leaf_kind(leaf) for leaf in leaves])
    return None if order is None or None in kinds else (structure, order, kinds)
