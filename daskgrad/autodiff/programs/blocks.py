"""Blocks: the terms of a sum, by programs, without what a single call costs beside its program."""

from collections.abc import Hashable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from daskgrad.autodiff.programs.signatures import (
    Signature,
    kind_of_leaf,
    opened_layout,
    opened_origins,
    order_within,
    signature_of,
    sort_of_leaf,
    taken_apart,
    without_size,
)
from daskgrad.autodiff.rules.declaration import Diverged
from daskgrad.autodiff.tape.traced_call import Pending, TracedBlock
from daskgrad.autodiff.values.carriers import kept_or_made
from daskgrad.autodiff.values.trees import LEAF, unflatten

AT_A_TIME = 32  # results that are held
MOST_KINDS = 1024  # of items that are known in later sums

Result = tuple[Any, Sequence[Any]]  # a value, and its gradient
Flat = list[tuple[list[Any], Any]]  # the leaves and the structure of each field of an item
Kind = tuple[tuple[Any, ...], ...]  # what items have in common that one program serves
Known = Any  # a ``programs.Entry``, or None for items that get no programs


def trace_block(block: TracedBlock) -> Iterator[list[Result | Pending | None]]:
    """The values and gradients of runs of items (see ``autodiff.libraries.registry``)."""
    items, programs = block.kept.get(Items), block.call(0)[0].fun.programs
    if items is None or not items.are_current:
        items = block.kept[Items] = Items(programs.looks)
    for start in range(0, block.count, AT_A_TIME):
        stop = min(start + AT_A_TIME, block.count)
        if items.are_impure or programs.is_cold:
            yield [None] * (stop - start)
        else:
            yield [items.result(block, number) for number in range(start, stop)]


class Items:
    """What is known of the items of a sum: the programs for each kind of them."""

    def __init__(self, looks: bool) -> None:
        self._looks = looks  # see ``signature_of``
        self._groups: dict[Kind, Group] = {}
        self._found: dict[Hashable, tuple[Group, Known]] = {}
        self._have_order = False  # of keys in dicts

    @property
    def are_current(self) -> bool:
        """Whether nothing has changed to which the model refers."""
        return all([group.is_current for group in list(self._groups.values())[:1]])

    @property
    def are_impure(self) -> bool:
        """Whether no call of the model is compiled."""
        return any([group.is_impure for group in list(self._groups.values())[:1]])

    def result(self, block: TracedBlock, number: int) -> Result | Pending:
        """Value and gradient of an item, unless it is to be traced."""
        flat = [taken_apart(field[number]) for field in block.fields]
        key_of = kind_of_item if self._have_order else memory_of_item
        key = key_of(flat, self._looks)
        found = self._found.get(key)
        group, entry = found or self._look_up(block, number, flat, key)
        return group.result(entry, flat) or Pending(entry)

    def _look_up(
        self, block: TracedBlock, number: int, flat: Flat, key: Hashable
    ) -> tuple["Group", Known]:
        """The items that an item goes with, and what is known of those like it."""
        for group in self._groups.values():
            if key in group.known:  # in another block, or in an earlier sum
                break
        else:
            family = family_of_item(flat, self._looks)
            if any([order for _, order, *_ in family]):
                self._have_order, key = True, kind_of_item(flat, self._looks)
            known = self._groups.get(family)
            if known is None or not known.serves_sizes:
                known = Group(block, number, flat, self._looks)
            group = known
            self._groups[family] = group
        found = self._found[key] = group, group.look_up(flat, key)
        return found


def kind_of_item(flat: Flat, looks: bool) -> Kind:
    return tuple(
        [
            (structure, order_within(structure), *[kind_of_leaf(leaf, looks) for leaf in leaves])
            for leaves, structure in flat
        ]
    )


def family_of_item(flat: Flat, looks: bool) -> Kind:
    """The same, whatever its size."""
    return tuple(
        [
            (structure, order_within(structure), *[sort_of_leaf(leaf, looks) for leaf in leaves])
            for leaves, structure in flat
        ]
    )


def memory_of_item(flat: Flat, looks: bool) -> tuple:
    """The same where no dict has an order, in less time: strides tell more kinds apart."""
    if len(flat) == 1:  # most items are one array
        ((leaves, structure),) = flat
        if structure is LEAF and type(leaves[0]) is np.ndarray:
            return memory_of_array(leaves[0])
    parts = [structure for _, structure in flat]
    for leaves, _ in flat:
        if {np.ndarray}.issuperset(map(type, leaves)):
            parts += map(memory_of_array, leaves)
        else:
            parts += [
                memory_of_array(leaf) if type(leaf) is np.ndarray else kind_of_leaf(leaf, looks)
                for leaf in leaves
            ]
    return tuple(parts)


memory_of_array = attrgetter("shape", "dtype", "strides")


class Group:
    """The items that differ in sizes alone: the inputs that they share, and where their own leaves
    go. ``known``: of items that this sum or an earlier one has met, by their keys."""

    def __init__(self, block: TracedBlock, number: int, flat: Flat, looks: bool):
        self._looks = looks
        call, arrays = block.call(number)
        passed = call.layout()
        layout = opened_layout(passed)
        self._fun = call.fun
        self._signature = signature_of(layout, looks) if arrays else None
        self._leaves = [
            (place, *origin)
            for place, origin in enumerate(opened_origins(passed.leaves, call.origins()))
            if origin is not None and origin[0] < len(block.fields)
        ]
        places = [] if self._signature is None else self._signature.places
        self._inputs = [layout.leaves[place] for place in places]
        at = {place: number for number, place in enumerate(places)}
        self._own = [(at[each[0]], *each[1:]) for each in self._leaves if each[0] in at]
        self.serves_sizes = self._signature_for(kind_of_item(flat, looks)) == self._signature
        self._programs = self._fun.programs
        self._programs.look_at(self._fun.fun)
        self._watch = self._programs.watch
        self.known: dict[Hashable, Known] = {}
        if self._signature is not None and self.serves_sizes:
            self.known = self._programs.known_items(self._shared())

    @property
    def is_current(self) -> bool:
        watch = self._watch
        return watch is self._programs.watch and watch is not None and not watch.has_changed()

    @property
    def is_impure(self) -> bool:
        return self._programs.impurity is not None

    def _signature_for(self, kind: Kind) -> Signature | None:
        if self._signature is None:
            return None
        (*others, kinds), places, structure, asked = self._signature
        own = list(kinds)
        for place, field, leaf in self._leaves:
            own[place] = kind[field][2 + leaf]
        return Signature((*others, tuple(own)), places, structure, asked)

    def _shared(self) -> Hashable:
        """What tells groups apart: by their programs where items have the same keys, and by the
        inputs of these, which items of other sorts have at other places."""
        assert self._signature is not None
        *others, kinds = self._signature.key
        own = {place for place, *_ in self._leaves}
        shared = [without_size(kind) if n in own else kind for n, kind in enumerate(kinds)]
        return (*others, tuple(shared), tuple(self._leaves))

    def look_up(self, flat: Flat, key: Hashable) -> Known:
        """What is known of items like this one. Nothing has changed since the block began."""

        def find() -> Known:
            signature = self._signature
            if self.serves_sizes:
                signature = self._signature_for(kind_of_item(flat, self._looks))
            return self._programs.known_entry(signature)

        return kept_or_made(self.known, key, find, MOST_KINDS)

    def result(self, entry: Known, flat: Flat) -> Result | None:
        """Value and gradient of an item, or ``None`` if it is to be traced."""
        if entry is None or not entry.ways or self._programs.is_due:
            return None
        inputs = self._inputs.copy()
        for at, field, leaf in self._own:
            inputs[at] = flat[field][0][leaf]
        found = self._programs.run(entry, inputs)
        if found is None or type(found[1][0]) is not np.float64 or len(found[1]) > 1:
            return None
        way, outputs, residuals = found
        value = outputs[0] if way.structure is LEAF else unflatten(way.structure, outputs)
        try:
            return value, way.program.pull_examples(residuals)
        except Diverged:
            return None
