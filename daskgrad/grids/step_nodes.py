"""Step nodes: for each block of a grid, the node of its steps, and that of a framed parameter."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from daskgrad.graph.nodes import Node, make_call
from daskgrad.graph.tangents import TANGENT, Tangents, push_node
from daskgrad.grids.block_steps import BlockSteps, evaluate_block, frame_block
from daskgrad.grids.halos import cut_edges
from daskgrad.grids.layout import Frame
from daskgrad.models.model import Model
from daskgrad.tasks.task_graph import TaskGraph


class Segment:
    """The steps from one kept state to the next: the backward pass runs them again together."""


class Place(NamedTuple):
    """A segment, and whether the value of a node in it is the kept one at its end."""

    segment: Segment
    is_kept: bool


class FramedNode(Node):
    """A node that takes in a block and the edges of its neighbours; the last inputs are these."""

    frame: Frame

    @property
    def neighbours(self) -> tuple[Node, ...]:
        count = len(self.frame.parts)
        return self.inputs[len(self.inputs) - count :] if count else ()

    def build_edges(self, tasks: TaskGraph, values: Sequence[Any]) -> list[Any]:
        """Builds the tasks that cut the edges, where the neighbours' blocks are."""
        pairs = zip(self.frame.parts, values, strict=True)
        return [
            self.build_task(tasks, "value", cut_edges, value, ways, self.frame.widths)
            for (_, ways), value in pairs
        ]


class FrameNode(FramedNode):
    """A block of a parameter within its halos."""

    def __init__(self, block: Node, neighbours: Sequence[Node], frame: Frame, name: str):
        super().__init__(name, [block, *neighbours])
        self.frame = frame

    def build_value(self, tasks: TaskGraph, inputs: list[Any]) -> Any:
        block, *others = inputs
        edges = self.build_edges(tasks, others)
        args = (frame_block, block, edges, self.frame)
        return tasks.add(self.key, *args, annotations=self.annotations)


class StepNode(FramedNode):
    """Some steps of one block; its inputs are the block, what else the steps take in, and the
    neighbours. ``place``: None if the backward pass finds all states there."""

    def __init__(
        self,
        model: Model,
        block: Node,
        neighbours: Sequence[Node],
        shared: tuple,
        steps: BlockSteps,
        place: Place | None = None,
    ):
        call, others = make_call(model, (None, *shared), {})
        holes = [(place, number + 1) for place, number in call.holes]
        call = call._replace(holes=((0, 0), *holes))
        super().__init__(model.name, [block, *others, *neighbours])
        fields = [n for n, node in enumerate(others, 1) if isinstance(node, FrameNode)]
        self.model = model
        self.call = call
        self.steps = steps._replace(call=call, fields=tuple(fields))
        self.frame = steps.frame
        self.place = place
        self.width = 1 + len(others)  # how many inputs a step takes in

    def build_value(self, tasks: TaskGraph, inputs: list[Any]) -> Any:
        block, *others = inputs[: self.width]
        edges = self.build_edges(tasks, inputs[self.width :])
        args = (evaluate_block, tasks.shared(self.model), self.steps, block, edges, others)
        return tasks.add(self.key, *args, annotations=self.annotations)


# ------------------------------------------------------------------------------------ tangents


@push_node.register
def _(node: FrameNode, tangents: Tangents, tangent_only: bool) -> Node:
    block, *neighbours = [tangents.dual_as_node(source) for source in node.inputs]
    dual = FrameNode(block, neighbours, node.frame, node.name)
    return TANGENT(dual) if tangent_only else dual


@push_node.register
def _(node: StepNode, tangents: Tangents, tangent_only: bool) -> Node:
    args, _ = node.steps.call.arguments([None, *tangents.arguments(node)[1 : node.width]])
    dual = StepNode(
        tangents.model(node.model, False),
        tangents.dual_as_node(node.inputs[0]),
        [tangents.dual_as_node(source) for source in node.neighbours],
        args[1:],
        node.steps,
        node.place,
    )
    return TANGENT(dual) if tangent_only else dual
