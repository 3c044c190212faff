"""Blocks: the terms of a sum, by programs, without what a single call costs beside its program."""

from collections.abc import Hashable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from daskgrad.autodiff.compiled.families import Family
from daskgrad.autodiff.compiled.programs import MOST_SIGNATURES, Entry
from daskgrad.autodiff.compiled.signatures import (
    Signature,
    kind_of_leaf,
    order_within,
    signature_of,
    sort_of_leaf,
    without_size,
)
from daskgrad.autodiff.tape.traced_call import Pending, TracedBlock
from daskgrad.autodiff.values.trees import LEAF, flatten, unflatten

AT_A_TIME = 32  # results that are held

Result = tuple[Any, Sequence[Any]]  # a value, and its gradient
Flat = list[tuple[list[Any], Any]]  # the leaves and the structure of each field of an item
Kind = tuple[tuple[Any, ...], ...]  # what items have in common that one program serves


def trace_block(block: TracedBlock) -> Iterator[list[Result | Pending | None]]:
    """The values and gradients of runs of items (see ``autodiff.libraries.registry``)."""
    items = block.kept.get(Items)
    if items is None or not items.are_current:
        items = block.kept[Items] = Items()
    for start in range(0, block.count, AT_A_TIME):
        stop = min(start + AT_A_TIME, block.count)
        if items.are_impure:
            yield [None] * (stop - start)
        else:
            yield [items.result(block, number) for number in range(start, stop)]


class Items:
    """What is known of the items of a sum: the programs for each kind of them."""

    def __init__(self) -> None:
        self._groups: dict[Kind, Group] = {}
        self._found: dict[Hashable, tuple[Group, Entry | None]] = {}
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
        flat = [flatten(field[number]) for field in block.fields]
        key = kind_of_item(flat) if self._have_order else memory_of_item(flat)
        found = self._found.get(key)
        if found is None:
            return self._first_result(block, number, flat, key)
        group, entry = found
        return group.result(entry, flat) or Pending(entry)

    def _first_result(
        self, block: TracedBlock, number: int, flat: Flat, key: Hashable
    ) -> Result | Pending:
        """The same for an item of a kind that has no programs, or none that were looked up."""
        for group in self._groups.values():
            known = group.known.get(key)
            if known is not None:  # in another block, or in an earlier sum
                break
        else:
            group, key = self._group(block, number, flat, key)
            known = group.known.get(key, 0)
        if group.rests(key, known):
            return group.at_rest
        found = self._found[key] = group, group.look_up(flat, key, known)
        return group.result(found[1], flat) or Pending(found[1])

    def _group(
        self, block: TracedBlock, number: int, flat: Flat, key: Hashable
    ) -> tuple["Group", Hashable]:
        """The items that an item goes with, and its key."""
        family = family_of_item(flat)
        if any([order for _, order, *_ in family]):
            self._have_order, key = True, kind_of_item(flat)
        group = self._groups.get(family)
        if group is None or not group.serves_sizes:
            group = self._groups[family] = Group(block, number, flat)
        return group, key


def kind_of_item(flat: Flat) -> Kind:
    return tuple(
        [
            (structure, order_within(structure), *map(kind_of_leaf, leaves))
            for leaves, structure in flat
        ]
    )


def family_of_item(flat: Flat) -> Kind:
    """The same, whatever its size."""
    return tuple(
        [
            (structure, order_within(structure), *map(sort_of_leaf, leaves))
            for leaves, structure in flat
        ]
    )


def memory_of_item(flat: Flat) -> tuple:
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
                memory_of_array(leaf) if type(leaf) is np.ndarray else kind_of_leaf(leaf)
                for leaf in leaves
            ]
    return tuple(parts)


memory_of_array = attrgetter("shape", "dtype", "strides")


class Group:
    """The items that differ in sizes alone: the inputs that they share, and where their own leaves
    go.

    ``known``: the programs for items that this sum or an earlier one has met, by their keys; or
    how often an item was met for which nothing was done. ``family`` is that of the programs, if all
    sizes are served.
    """

    def __init__(self, block: TracedBlock, number: int, flat: Flat):
        call, arrays = block.call(number)
        layout = call.layout()
        self._fun = call.fun
        self._signature = signature_of(layout) if arrays else None
        self._leaves = [
            (place, *origin)
            for place, origin in enumerate(call.origins())
            if origin is not None and origin[0] < len(block.fields)
        ]
        places = [] if self._signature is None else self._signature.places
        self._inputs = [layout.leaves[place] for place in places]
        at = {place: number for number, place in enumerate(places)}
        self._own = [(at[each[0]], *each[1:]) for each in self._leaves if each[0] in at]
        self.serves_sizes = self._signature_for(kind_of_item(flat)) == self._signature
        programs = self._fun.programs
        programs.look_at(self._fun.fun)
        self._watch = programs.watch
        self.family: Family | None = None
        self.known: dict[Hashable, Entry | int] = {}
        if self._signature is not None and self.serves_sizes and not self.is_impure:
            self.family = programs.family(self._fun.fun, self._signature)
            self.known = programs.known_items(self._shared())
        self.at_rest = Pending(self.family)

    @property
    def is_current(self) -> bool:
        watch = self._watch
        return watch is self._fun.programs.watch and watch is not None and not watch.has_changed()

    @property
    def is_impure(self) -> bool:
        return self._fun.programs.impurity is not None

    def _signature_for(self, kind: Kind) -> Signature | None:
        if self._signature is None:
            return None
        (*others, kinds), places, structure, asked = self._signature
        own = list(kinds)
        for place, field, leaf in self._leaves:
            own[place] = kind[field][2 + leaf]
        return Signature((*others, tuple(own)), places, structure, asked)

    def rests(self, key: Hashable, known: Entry | int) -> bool:
        """Whether nothing is to be done for an item of this key, of which this is known, but to
        count it."""
        family = self.family
        if type(known) is not int or family is None or not family.rests(known):
            return False
        if known or len(self.known) < MOST_SIGNATURES:
            family.sizes += not known
            self.known[key] = known + 1
        return True

    def look_up(self, flat: Flat, key: Hashable, known: Entry | int) -> Entry | None:
        """The programs for items like this one, of which this is known. Nothing has changed since
        the block began."""
        if not isinstance(known, int):
            return known
        signature = self._signature
        if self.serves_sizes:
            signature = self._signature_for(kind_of_item(flat))
        found = self._fun.programs.known_entry(self._fun.fun, signature, self.family, known)
        if found is not None and (known or len(self.known) < MOST_SIGNATURES):
            self.known[key] = found
        return found

    def _shared(self) -> Hashable:
        """What tells groups apart: by their programs where items have the same keys, and by the
        inputs of these, which items of other sorts have at other places."""
        assert self._signature is not None
        *others, kinds = self._signature.key
        own = {place for place, *_ in self._leaves}
        shared = [without_size(kind) if n in own else kind for n, kind in enumerate(kinds)]
        return (*others, tuple(shared), tuple(self._leaves))

    def result(self, entry: Entry | None, flat: Flat) -> Result | None:
        """Value and gradient of an item, or ``None`` if it is to be traced."""
        if entry is None or not entry.ways or entry.refusal or entry.is_due:
            return None
        inputs = self._inputs.copy()
        for at, field, leaf in self._own:
            inputs[at] = flat[field][0][leaf]
        found = entry.run(inputs)
        if found is None or type(found[1][0]) is not np.float64 or len(found[1]) > 1:
            return None
        way, outputs, residuals = found
        value = outputs[0] if way.structure is LEAF else unflatten(way.structure, outputs)
        return value, way.program.pull_examples(residuals)
