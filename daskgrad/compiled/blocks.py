"""Blocks: the terms of a sum, by programs, without what a single call costs beside its program."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from daskgrad.backends.traced_call import TracedBlock
from daskgrad.compiled.signatures import (
    Signature,
    kind_of_leaf,
    order_within,
    signature_of,
    without_size,
)
from daskgrad.values.trees import LEAF, flatten, unflatten

AT_A_TIME = 32  # results that are held

Result = tuple[Any, Sequence[Any]]  # a value, and its gradient


def trace_block(block: TracedBlock) -> Iterator[list[Result | None]]:
    """The values and gradients of runs of items (see ``backends.protocol``)."""
    groups: dict[Hashable, Group] = {}
    entries: dict[Hashable, tuple[Group, Any]] = {}
    for start in range(0, block.count, AT_A_TIME):
        stop = min(start + AT_A_TIME, block.count)
        if any([group.is_impure for group in groups.values()]):
            yield [None] * (stop - start)
            continue
        results = []
        for number in range(start, stop):
            leaves, kind = leaves_of_item([field[number] for field in block.fields])
            found = entries.get(kind)
            if found is None:
                family = tuple([(*field[:2], *map(without_size, field[2:])) for field in kind])
                group = groups.get(family)
                if group is None or not group.serves_sizes:
                    group = groups[family] = Group(block, number, kind)
                found = entries[kind] = group, group.entry(kind)
            group, entry = found
            results.append(group.result(entry, leaves))
        yield results


def leaves_of_item(item: Sequence[Any]) -> tuple[list[list[Any]], tuple]:
    """The leaves of an item's fields, and what items have in common that one program serves."""
    flat = [flatten(field) for field in item]
    kinds = [
        (structure, order_within(structure), *map(kind_of_leaf, leaves))
        for leaves, structure in flat
    ]
    return [leaves for leaves, _ in flat], tuple(kinds)


class Group:
    """The items that differ in sizes alone: the inputs that they share, and where their own leaves
    go."""

    def __init__(self, block: TracedBlock, number: int, kind: Sequence[Sequence[Any]]):
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
        self.serves_sizes = self._signature_for(kind) == self._signature

    @property
    def is_impure(self) -> bool:
        """Whether no call of the model is compiled."""
        return self._fun.programs.impurity is not None

    def _signature_for(self, kind: Sequence[Sequence[Any]]) -> Signature | None:
        if self._signature is None:
            return None
        *others, kinds = self._signature.key
        of_leaves = {place: kind[field][2 + leaf] for place, field, leaf in self._leaves}
        kinds = [of_leaves.get(place, each) for place, each in enumerate(kinds)]
        return self._signature._replace(key=(*others, tuple(kinds)))

    def entry(self, kind: Sequence[Sequence[Any]]) -> Any:
        """The programs for items of a kind."""
        signature = self._signature_for(kind) if self.serves_sizes else self._signature
        return signature and self._fun.programs.entry(self._fun.fun, signature)

    def result(self, entry: Any, leaves: Sequence[Sequence[Any]]) -> Result | None:
        """Value and gradient of an item, or ``None`` if it is to be traced."""
        if entry is None or entry.refusal or entry.is_due or not entry.ways:
            return None
        inputs = self._inputs.copy()
        for at, field, leaf in self._own:
            inputs[at] = leaves[field][leaf]
        found = entry.run(inputs)
        if found is None or type(found[1][0]) is not np.float64 or len(found[1]) > 1:
            return None
        way, outputs, residuals = found
        value = outputs[0] if way.structure is LEAF else unflatten(way.structure, outputs)
        return value, way.program.pull_examples(residuals)
