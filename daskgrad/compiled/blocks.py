"""Blocks: the terms of a sum, by programs, without what a single call costs beside its program."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from daskgrad.backends.traced_call import TracedBlock
from daskgrad.compiled.signatures import kind_of_leaf, signature_of
from daskgrad.values.trees import LEAF, exactly, flatten, unflatten

AT_A_TIME = 32  # results that are held

Result = tuple[Any, Sequence[Any]]  # a value, and its gradient


def trace_block(block: TracedBlock) -> Iterator[list[Result | None]]:
    """The values and gradients of runs of items (see ``backends.protocol``)."""
    groups: dict[Hashable, Group] = {}
    for start in range(0, block.count, AT_A_TIME):
        results = []
        for number in range(start, min(start + AT_A_TIME, block.count)):
            leaves, kind = leaves_of_item([field[number] for field in block.fields])
            group = groups.get(kind)
            if group is None:
                group = groups[kind] = Group(block, number)
            results.append(group.result(block, number, leaves))
        yield results


def leaves_of_item(item: Sequence[Any]) -> tuple[list[list[Any]], Hashable]:
    """The leaves of an item's fields, and what items have in common that one program serves."""
    flat = [flatten(field) for field in item]
    kinds = [
        (structure, order_of_item(structure), *map(kind_of_leaf, leaves))
        for leaves, structure in flat
    ]
    return [leaves for leaves, _ in flat], tuple(kinds)


def order_of_item(structure: Any) -> bytes | None:
    """The order of the keys of dicts; of a plain tuple, which is common, nothing."""
    if structure is LEAF:
        return b""
    is_plain = structure.num_nodes == structure.num_leaves + 1 and structure.type is tuple
    return b"" if is_plain else exactly(structure)


class Group:
    """The items of one kind: the inputs that they share, and where their own leaves go."""

    def __init__(self, block: TracedBlock, number: int):
        call, arrays = block.call(number)
        layout = call.layout()
        signature = signature_of(layout)
        self._entry = call.fun.programs.entry(call.fun.fun, signature) if arrays else None
        if self._entry is None:
            return
        assert signature is not None
        origins = call.origins()
        self._inputs = [layout.leaves[place] for place in signature.places]
        self._own = [
            (at, *origin)
            for at, origin in enumerate([origins[place] for place in signature.places])
            if origin is not None and origin[0] < len(block.fields)
        ]

    def result(
        self, block: TracedBlock, number: int, leaves: Sequence[Sequence[Any]]
    ) -> Result | None:
        """Value and gradient of an item, or ``None`` if it is to be traced."""
        entry = self._entry
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
