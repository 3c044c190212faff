"""Blocks: evaluates the items of a block of a sum in loops, items of one kind together."""

import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
import optree

from daskgrad.backends.jax.compiled import compiled_of, leaf_kind
from daskgrad.backends.jax.loops import Loop, loop_of
from daskgrad.backends.traced_call import TracedBlock
from daskgrad.values.trees import LEAF, exactly, flatten, unflatten

HELD = 2**22  # bytes of items and gradients that are held at a time

Result = tuple[Any, Sequence[Any]]  # a value, and its gradient


def trace_block(block: TracedBlock) -> Iterator[list[Result | None]]:
    """The values and gradients of runs of items (see ``backends.protocol``)."""
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
