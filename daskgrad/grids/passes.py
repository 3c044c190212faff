"""The passes of grids: the tasks of blocks, forward and backward.

The mirror of an exchange is an exchange: where a block took a neighbour's edge in, the neighbour's
cotangent gets that of the edge, as strips, after its own and in the order of the blocks.
"""

from typing import Any

from daskgrad.graph.activity import Graph
from daskgrad.graph.backward import Backward, Contribution, backward_tasks, select
from daskgrad.graph.forward import Forward, forward_tasks, pass_value_on
from daskgrad.graph.nodes import Node
from daskgrad.grids.block_steps import (
    BlockSteps,
    capture_block,
    capture_block_when,
    frame_block,
    pull_back_block,
    pull_back_frame,
)
from daskgrad.grids.step_nodes import FramedNode, FrameNode, Place, Segment, StepNode
from daskgrad.models.tracing import Active
from daskgrad.values.cotangents import Cotangent


@forward_tasks.register
def _(node: FrameNode, forward: Forward) -> None:
    block, *neighbours = forward.inputs(node)
    edges = node.build_edges(forward.tasks, neighbours)
    args = (frame_block, block, edges, node.frame)
    forward.values[node] = node.build_task(forward.tasks, "value", *args)


@backward_tasks.register
def _(node: FrameNode, backward: Backward, arrived: Contribution) -> None:
    args = (pull_back_frame, arrived.cotangent, backward.forward.values[node], node.frame)
    pulled = node.build_task(backward.tasks, "backward", *args)
    send_parts(node, backward, pulled, [0], saw_value=False)


def differentiated(node: StepNode, graph: Graph) -> BlockSteps:
    """The steps, with their active inputs: the state always is."""
    active = [each for each in graph.active_inputs(node) if 0 < each.number < node.width]
    first = Active(0, graph.is_watched)
    return node.steps._replace(active=(first, *active))


@forward_tasks.register
def _(node: StepNode, forward: Forward) -> None:
    tasks, inputs = forward.tasks, forward.inputs(node)
    steps = differentiated(node, forward.graph)
    edges = node.build_edges(tasks, inputs[node.width :])
    args = (tasks.shared(node.model), steps, inputs[0], edges, inputs[1 : node.width])
    captured = node.build_task(tasks, "forward", capture_block, *args)
    forward.captured[node] = captured, edges
    pass_value_on(node, forward, captured)


@backward_tasks.register
def _(node: StepNode, backward: Backward, arrived: Contribution) -> None:
    if node.place is not None:
        repeat(node.place.segment, node, backward, arrived)
    steps, (captured, edges) = (
        differentiated(node, backward.graph),
        backward.forward.captured[node],
    )
    elsewhere = backward.value_elsewhere(node, arrived)
    block, *others = backward.forward.inputs(node)[: node.width]
    args = (backward.tasks.shared(node.model), steps, block, edges, others, elsewhere)
    whole = (captured, arrived.cotangent, *args)
    pulled = node.build_task(backward.tasks, "backward", pull_back_block, *whole)
    send_parts(node, backward, pulled, [each.number for each in steps.active])


def repeat(segment: Segment, last: StepNode, backward: Backward, arrived: Contribution) -> None:
    """Builds the tasks that compute the states of a segment again, where nobody holds them.

    They wait for the cotangent of its last state: whatever can run at once does, and would be kept
    as long as if no state had been dropped.
    """
    forward, tasks = backward.forward, backward.tasks
    if segment in backward.repeated or tasks is not forward.tasks:  # these hold all results
        return
    backward.repeated.add(segment)
    gate = last.build_task(tasks, "cotangent", has_arrived, arrived.cotangent)
    states = [each for each in forward.graph.order if is_dropped(each, segment)]
    for node in states:
        (_, edges), inputs = forward.captured[node], forward.inputs(node)
        steps = differentiated(node, forward.graph)
        if is_dropped(node.inputs[0], segment):
            edges = node.build_edges(tasks, inputs[node.width :])
        args = (gate, tasks.shared(node.model), steps, inputs[0], edges, inputs[1 : node.width])
        captured = node.build_task(tasks, "forward", capture_block_when, *args)
        forward.captured[node] = captured, edges
        pass_value_on(node, forward, captured)


def is_dropped(node: Node, segment: Segment) -> bool:
    """Whether the value of a node is not kept for the backward pass of a segment."""
    return isinstance(node, StepNode) and node.place == Place(segment, False)


def has_arrived(cotangent: Cotangent) -> bool:
    """What a task waits for that needs a cotangent to be there, and nothing of it."""
    return True


def send_parts(
    node: FramedNode,
    backward: Backward,
    pulled: Any,
    active: list[int],
    saw_value: bool = True,
) -> None:
    """Sends what a task pulled back: to its block, to the neighbours, and to other inputs."""

    def part(number: int) -> Any:
        return node.build_pick(backward.tasks, "cotangent", select, pulled, number)

    count = len(node.neighbours)
    for number, neighbour in reversed(list(enumerate(node.neighbours, 1))):
        backward.send(neighbour, Contribution(part(number), saw_value=False, is_item=True))
    for place, number in reversed(list(enumerate(active[1:], 1 + count))):
        backward.send(node.inputs[number], Contribution(part(place)))
    backward.send(node.inputs[0], Contribution(part(0), saw_value=saw_value))
