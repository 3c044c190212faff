"""Blocks: the terms of a sum, without what a single call costs beside the function."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from daskgrad.backends.by_hand.gradients import Wanted
from daskgrad.backends.by_hand.reverse import evaluate
from daskgrad.backends.traced_call import TracedBlock
from daskgrad.values.protection import protect
from daskgrad.values.trees import flatten, unflatten

AT_A_TIME = 32  # results that are held

Result = tuple[Any, Sequence[Any]]  # a value, and its gradient


def trace_block(block: TracedBlock) -> Iterator[list[Result | None]]:
    """The values and gradients of runs of items (see ``backends.protocol``)."""
    groups: dict[Hashable, Group] = {}
    for start in range(0, block.count, AT_A_TIME):
        results: list[Result | None] = []
        for number in range(start, min(start + AT_A_TIME, block.count)):
            flat = [flatten(field[number]) for field in block.fields]
            kind = tuple([structure for _, structure in flat])
            group = groups.get(kind)
            if group is None:
                group = groups[kind] = Group(block, number)
            results.append(group.result([leaves for leaves, _ in flat]))
        yield results


class Group:
    """The items of one kind: the arguments that they share, and where their own leaves go."""

    def __init__(self, block: TracedBlock, number: int):
        call, self._arrays = block.call(number)
        layout, origins = call.layout(), call.origins()
        self._own = [
            (place, *origin)
            for place, origin in enumerate(origins)
            if origin is not None and origin[0] < len(block.fields)
        ]
        are_own = [layout.places[place] is not None for place, *_ in self._own]
        self._is_alone = any(are_own) or not self._arrays  # its arrays are other ones each time
        if self._is_alone:
            return
        self._fun = call.fun
        self._leaves = layout.leaves
        self._structure = layout.structure
        self._are_plain = layout.structure == flatten(((0.0,) * len(layout.leaves), {}))[1]
        self._wanted = Wanted(call.fun, layout.structure, layout.places)

    def result(self, fields: Sequence[Sequence[Any]]) -> Result | None:
        """Value and gradient of an item, or ``None`` if it is to be traced."""
        if self._is_alone:
            return None
        leaves = list(self._leaves)
        for place, field, leaf in self._own:
            leaves[place] = fields[field][leaf]
        leaves = protect(leaves)
        args, kwargs = (leaves, {}) if self._are_plain else unflatten(self._structure, leaves)
        return evaluate(self._fun, args, kwargs, self._wanted, self._arrays)
