"""The passes of item sums: the tasks of a sum over models, forward and backward.

The blocks of a sum whose value is one real number return (value, gradient), and both are added up
along one tree. The blocks of any other sum keep their pullbacks, and have a backward task each.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from daskgrad.graph.backward import Backward, Contribution, backward_tasks, select
from daskgrad.graph.forward import DirectSums, Forward, forward_tasks, pass_value_on, value_of
from daskgrad.graph.sum_of_nodes import build_sum, build_sum_with_fingerprints, waits_for_value
from daskgrad.sums.adding import add_captured, add_unscaled
from daskgrad.sums.block_tasks import Summand, capture_block, pull_back_block, pull_back_sum
from daskgrad.sums.item_cotangents import (
    concatenate_items,
    item_cotangents_in,
    item_cotangents_of,
    place_items,
    pull_back_items,
    without_items,
)
from daskgrad.sums.item_sum import ReductionNode
from daskgrad.sums.sources import ChosenSource
from daskgrad.sums.zipping import ZippedBlock
from daskgrad.tasks.task_graph import TaskGraph


class FusedBlocks(NamedTuple):
    """Blocks whose values and gradients are added up together, or a sum that is evaluated directly.

    ``total`` refers to the sum. ``item_cotangents`` refers, for each differentiated field of the
    items, to the cotangents of each block's items.
    """

    node: ReductionNode
    total: Any
    item_cotangents: Sequence[Any]

    def build_value(self, forward: Forward) -> None:
        pass_value_on(self.node, forward, self.total)

    def build_cotangents(self, backward: Backward, arrived: Contribution) -> None:
        node, tasks = self.node, backward.tasks
        elsewhere = backward.value_elsewhere(node, arrived)
        args = (self.total, arrived.cotangent, tasks.shared(node.model), elsewhere)
        shared = node.active_shared(backward.graph)
        if shared:
            pulled = [node.build_task(tasks, "backward", pull_back_sum, *args)]
            for number, source in enumerate(shared):
                (each,) = pick_each(node, tasks, pulled, number, len(shared))
                backward.send(source, Contribution(each))
        for number, field in enumerate(node.active_fields(backward.graph)):
            items = (self.item_cotangents[number], node.items.sizes, node.items.are_rows(field))
            joined = node.build_task(tasks, "backward", pull_back_items, *items, *args)
            send_items(node, backward, field, joined)


class KeptBlocks(NamedTuple):
    """Blocks that keep their pullbacks until the backward pass.

    ``captured`` and ``values`` refer to their results; ``blocks`` are what they were evaluated on.
    """

    node: ReductionNode
    summand: Summand
    captured: list[Any]
    values: list[Any]
    blocks: list[ZippedBlock]

    def build_value(self, forward: Forward) -> None:
        if self.summand.is_partial:
            build_sum_with_fingerprints(self.node, forward, self.values)
        else:
            (forward.values[self.node],) = self.values

    def build_cotangents(self, backward: Backward, arrived: Contribution) -> None:
        node, tasks, pulled = self.node, backward.tasks, self._pull_back(backward, arrived)
        shared, fields = node.active_shared(backward.graph), node.active_fields(backward.graph)
        count = len(shared) + len(fields)
        for number, source in enumerate(shared):
            terms = pick_each(node, tasks, pulled, number, count)
            total = build_sum(node, tasks, terms, "cotangent", add_unscaled, of=source)
            backward.send(source, Contribution(total))
        for number, field in enumerate(fields, len(shared)):
            pulled_items = pick_each(node, tasks, pulled, number, count)
            items = (pulled_items, node.items.sizes, node.items.are_rows(field))
            joined = node.build_task(tasks, "cotangent", concatenate_items, *items)
            send_items(node, backward, field, joined)

    def _pull_back(self, backward: Backward, arrived: Contribution) -> list[Any]:
        node, tasks = self.node, backward.tasks
        args = (arrived.cotangent, tasks.shared(node.model), self.summand)
        inputs, seen = shared_values(node, backward.forward), self._seen(backward, arrived)
        blocks = node.items.placed_now(tasks, self.blocks)
        return [
            node.build_task(
                tasks, "backward", pull_back_block, each, *args, first, inputs, elsewhere, *fields
            )
            for each, (first, fields), elsewhere in zip(self.captured, blocks, seen, strict=True)
        ]

    def _seen(self, backward: Backward, arrived: Contribution) -> list[Any]:
        """The ``value_elsewhere`` of each block."""
        if not self.summand.is_partial:
            return [backward.value_elsewhere(self.node, arrived)]
        if not waits_for_value(self.node, backward, arrived):
            return self.values
        prints = backward.build_fingerprints(self.node, arrived, repr(self.node.name))
        return [[False, prints, number] for number in range(len(self.values))]


@forward_tasks.register
def _(node: ReductionNode, forward: Forward) -> None:
    blocks: FusedBlocks | KeptBlocks
    if forward.direct is not None and forward.is_direct(node):
        blocks = build_direct_sum(node, forward, forward.direct)
    elif node.is_fused(forward.graph):
        blocks = build_fused_blocks(node, forward)
    else:
        blocks = build_kept_blocks(node, forward)
    forward.captured[node] = blocks
    blocks.build_value(forward)


@backward_tasks.register
def _(node: ReductionNode, backward: Backward, arrived: Contribution) -> None:
    backward.forward.captured[node].build_cotangents(backward, arrived)


def build_direct_sum(node: ReductionNode, forward: Forward, direct: DirectSums) -> FusedBlocks:
    """Builds a task that only gathers the sum's inputs; the sum replaces its result."""
    tasks, key = forward.tasks, forward.tasks.key("forward", node.name)
    direct[key] = node
    total = tasks.add(key, list, shared_values(node, forward))
    item_cotangents = tuple(
        [
            node.build_task(tasks, "cotangent", item_cotangents_in, total, number)
            for number in range(len(node.active_fields(forward.graph)))
        ]
    )
    return FusedBlocks(node, total, item_cotangents)


def build_fused_blocks(node: ReductionNode, forward: Forward) -> FusedBlocks:
    tasks, fields = forward.tasks, range(len(node.active_fields(forward.graph)))
    args = (node.summand(forward.graph), shared_values(node, forward))
    blocks = build_captures(node, tasks, *args, node.items.blocks(tasks, node.name))
    summed = blocks
    if fields:
        summed = [node.build_task(tasks, "forward", without_items, block) for block in blocks]
    model, pairs = tasks.shared(node.model), list(zip(blocks, summed, strict=True))
    item_cotangents = [
        [
            node.build_task(tasks, "cotangent", item_cotangents_of, b, n, of, model)
            for b, of in pairs
        ]
        for n in fields
    ]
    total = build_sum(node, tasks, summed, "forward", add_captured)
    return FusedBlocks(node, total, item_cotangents)


def build_kept_blocks(node: ReductionNode, forward: Forward) -> KeptBlocks:
    tasks, summand = forward.tasks, node.summand(forward.graph)
    blocks = node.items.blocks(tasks, node.name, used_twice=True)
    captured = build_captures(node, tasks, summand, shared_values(node, forward), blocks)
    values = [node.build_pick(tasks, "value", value_of, each) for each in captured]
    return KeptBlocks(node, summand, captured, values, blocks)


def build_captures(
    node: ReductionNode,
    tasks: TaskGraph,
    summand: Summand,
    inputs: list[Any],
    blocks: Sequence[ZippedBlock],
) -> list[Any]:
    return node.build_blocks(tasks, "forward", capture_block, summand, inputs, blocks)


def send_items(node: ReductionNode, backward: Backward, field: int, joined: Any) -> None:
    """Sends the cotangents of all items to the variable that they are of."""
    variable, source = node.items.variable(field), node.items.sources[field]
    if isinstance(source, ChosenSource):
        where = source.shape, source.indices, bool(variable.asked)
        joined = node.build_task(backward.tasks, "cotangent", place_items, joined, *where)
    backward.send(variable, Contribution(joined))


def pick_each(
    node: ReductionNode, tasks: TaskGraph, pulled: list[Any], number: int, count: int
) -> list[Any]:
    """What each task returned for one of ``count`` active inputs."""
    if count == 1:
        return pulled
    return [node.build_pick(tasks, "cotangent", select, each, number) for each in pulled]


def shared_values(node: ReductionNode, forward: Forward) -> list[Any]:
    return [forward.values[source] for source in node.inputs[: node.width]]
