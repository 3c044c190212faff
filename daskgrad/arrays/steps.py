"""Block steps: the tasks of one block, which runs some steps between two exchanges of edges.

A block's forward task keeps its value alone. The backward task gets block and edges once more, runs
the steps again, and pulls each back, the last one first.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.arrays.halos import Edges, Frame, Sides, assemble, cut_edges, edge, pad, split, unpad
from daskgrad.autodiff.models import finite
from daskgrad.autodiff.models.captured import Captured
from daskgrad.autodiff.models.determinism import require_agreement, require_value_seen
from daskgrad.autodiff.models.failures import Blame
from daskgrad.autodiff.models.model import Call, Model
from daskgrad.autodiff.models.portions import Strips
from daskgrad.autodiff.models.pullbacks import plain_value, seed
from daskgrad.autodiff.models.tracing import Active, Tracer, seen_by
from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.cotangents import Cotangent, Leaves
from daskgrad.autodiff.values.descriptions import describe
from daskgrad.autodiff.values.fingerprints import fingerprint
from daskgrad.autodiff.values.trees import flatten, map_leaves
from daskgrad.graph.nodes import Node, make_call
from daskgrad.graph.tangents import TANGENT, Tangents, push_node
from daskgrad.tasks.task_graph import TaskGraph


class BlockSteps(NamedTuple):
    """The steps of one block between two exchanges.

    The inputs of a step are the padded state, and further inputs of ``call``; ``fields`` are the
    numbers of frames of parameters on the same grid. ``steps`` steps run, from number ``begin`` on;
    each takes ``depth`` entries off a frame. ``sides`` and ``field_sides``: the boundary of the
    state and of the fields. ``active``: the differentiated inputs, the state first.
    """

    call: Call
    frame: Frame
    depth: tuple[int, ...]
    sides: Sides
    field_sides: Sides
    begin: int
    steps: int
    fields: tuple[int, ...]
    name: str  # of the block, for errors
    active: tuple[Active, ...] = ()


class Turn(NamedTuple):
    """One step: its inputs, the state and fields padded, and the fields' places in their frames."""

    number: int
    inputs: list[Any]
    places: tuple[slice, ...]


class StepRun:
    """Runs the steps of one block, from its value, its neighbours' edges, and the other inputs."""

    def __init__(self, stage: str, model: Model, steps: BlockSteps, others: Sequence[Any]):
        self._stage = stage
        self._model = model._replace(keep="tape")
        self._steps = steps
        self._others = list(others)

    def turn(self, number: int, state: Any) -> Turn:
        """The inputs of a step, from a state with the halos of this and later steps."""
        steps, frame = self._steps, self._steps.frame
        used = [number * width for width in steps.depth]
        ends = zip(used, frame.low, frame.high, frame.whole, strict=True)
        places = tuple(
            [slice(n if low else 0, size - (n if high else 0)) for n, low, high, size in ends]
        )
        inputs = [pad(state, steps.sides, steps.depth), *self._others]
        for field in steps.fields:
            part = map_leaves(lambda leaf: None if leaf is None else leaf[places], inputs[field])
            inputs[field] = pad(part, steps.field_sides, steps.depth)
        return Turn(number, inputs, places)

    def advance(self, turn: Turn) -> Any:
        """The state after a step; traces nothing."""
        with self.blame(turn):
            value = plain_value(self._model, self._steps.call, turn.inputs)
            if finite.is_required():
                finite.require(self.blame(turn), "the value", value)
            self._require_unpadded(value, turn)
        return value

    def pull_back(self, turn: Turn, cotangent: Leaves, expected: Any) -> Leaves:
        """The cotangents of the active inputs, in the shapes in which the step saw them."""
        with self.blame(turn):
            tracer = Tracer(self._model, self._steps.call, self._steps.active, turn.inputs)
            value, pullback = tracer.run(turn.inputs)
            leaves = flatten(value)[0]
            subject = f"the step {self._model.name!r} of a grid"
            require_agreement(expected, fingerprint(leaves), subject)
            pulled = pullback(tuple(map(cotangents.seed, cotangent, leaves)))
            if finite.is_required():
                finite.require_pulled(self.blame(turn), self._steps.active, pulled)
        return pulled

    def blame(self, turn: Turn) -> Blame:
        place = f"block {self._steps.name}, step {self._steps.begin + turn.number}"
        return Blame(self._stage, self._model, self._steps.call, turn.inputs, place)

    def _require_unpadded(self, value: Any, turn: Turn) -> None:
        """Raises unless a step returned its state without halos."""
        (leaves, structure), (padded, other) = flatten(value), flatten(turn.inputs[0])
        depth = self._steps.depth
        halo = np.array([2 * width for width in depth])
        axes = len(depth)
        expected = [(*(np.shape(x)[:axes] - halo), *np.shape(x)[axes:]) for x in padded]
        if structure == other and list(map(np.shape, leaves)) == expected:
            return
        raise ValueError(
            f"the step {self._model.name!r} must return its state without the halos of "
            f"{list(depth)} entries on either side of each axis; for {describe(turn.inputs[0])} it "
            f"returned {describe(value)}"
        )


# --------------------------------------------------------------------------------- the tasks


def pull_back_frame(cotangent: Cotangent, value: Any, frame: Frame) -> tuple[Any, ...]:
    """The cotangents of a parameter's block and of the neighbours' edges."""
    leaves = tuple(map(cotangents.seed, cotangent.leaves, flatten(value)[0]))
    inner, edges = split(leaves, frame)
    return (Cotangent(inner), *strips_of(edges, frame))


def evaluate_block(
    model: Model, steps: BlockSteps, block: Any, edges: Sequence[Edges], others: Sequence[Any]
) -> Any:
    """The block after its steps."""
    return last_state(StepRun("value", model, steps, others), steps, block, edges)


def capture_block(
    model: Model, steps: BlockSteps, block: Any, edges: Sequence[Edges], others: Sequence[Any]
) -> Captured:
    """The block after its steps; the backward pass needs only the value's fingerprint."""
    value = last_state(StepRun("forward", model, steps, others), steps, block, edges)
    return Captured(value, None, seen_by(steps.active, [block, *others]))


def capture_block_when(is_needed: bool, *args: Any) -> Captured:
    """``capture_block`` once more, when the backward pass needs it."""
    return capture_block(*args)


def last_state(run: StepRun, steps: BlockSteps, block: Any, edges: Sequence[Edges]) -> Any:
    """The block after all steps."""
    state = assemble(block, edges, steps.frame)
    for number in range(steps.steps):
        state = run.advance(run.turn(number, state))
    return state


def pull_back_block(
    captured: Captured,
    cotangent: Cotangent,
    model: Model,
    steps: BlockSteps,
    block: Any,
    edges: Sequence[Edges],
    others: Sequence[Any],
    value_elsewhere: Any = None,
) -> tuple[Any, ...]:
    """The cotangents of the block, of the neighbours' edges, and of the other active inputs."""
    require_value_seen(captured, cotangent, value_elsewhere, model)
    run = StepRun("backward", model, steps, others)
    before = [assemble(block, edges, steps.frame)]  # the states before each step, with halos
    for number in range(steps.steps - 1):
        before.append(run.advance(run.turn(number, before[-1])))
    arrived = seed(cotangent, captured.value, model)
    expected = captured.fingerprint
    totals = Totals(steps, others)
    for number in reversed(range(steps.steps)):
        turn = run.turn(number, before[number])
        pulled = run.pull_back(turn, arrived, expected)
        state = before.pop()
        expected = fingerprint(flatten(state)[0])
        width = len(flatten(state)[0])
        arrived = unpad(pulled[:width], steps.sides, steps.depth)
        totals.add(pulled[width:], turn)
    inner, strips = split(arrived, steps.frame)
    first, *prints = [print_ for print_, _ in captured.seen]
    return (
        Cotangent(inner, first),
        *strips_of(strips, steps.frame),
        *map(Cotangent, totals.parts, prints),
    )


def strips_of(edges: Sequence[Edges], frame: Frame) -> list[Strips]:
    """The cotangents of each neighbour's edges, as parts of the neighbour's cotangent."""
    return [
        Strips([(edge(way, frame.widths), leaves) for way, leaves in zip(ways, cut, strict=True)])
        for (_, ways), cut in zip(frame.parts, edges, strict=True)
    ]


class Totals:
    """The cotangents of a block's other inputs, added up from its last step to its first."""

    def __init__(self, steps: BlockSteps, others: Sequence[Any]):
        self._steps = steps
        self._values = [flatten(others[source.number - 1])[0] for source in steps.active[1:]]
        self.parts: list[Leaves] = [(None,) * len(values) for values in self._values]
        self._is_owned = False

    def add(self, pulled: Leaves, turn: Turn) -> None:
        begin = 0
        for place, (active, values) in enumerate(
            zip(self._steps.active[1:], self._values, strict=True)
        ):
            leaves = pulled[begin : begin + len(values)]
            begin += len(values)
            if active.number in self._steps.fields:
                leaves = self._in_frame(leaves, values, turn)
            self.parts[place] = cotangents.add(self.parts[place], leaves, self._is_owned)
        self._is_owned = True

    def _in_frame(self, leaves: Leaves, values: Sequence[Any], turn: Turn) -> Leaves:
        """The cotangent of a field's frame, from the cotangent of its part in a step."""
        inner = unpad(leaves, self._steps.field_sides, self._steps.depth)
        wholes = []
        for leaf, value in zip(inner, values, strict=True):
            whole = None if leaf is None else np.zeros(value.shape, leaf.dtype)
            if whole is not None:
                whole[turn.places] = leaf
            wholes.append(whole)
        return tuple(wholes)


# -------------------------------------------------------------------------------------------------
# Step nodes: for each block of a grid, the nodes of its steps, and of framed parameters.


class Segment:
    """The steps from one kept state to the next: the backward pass runs them again together."""


class SegmentPlace(NamedTuple):
    """The segment of a node, and whether the node's value is the kept one at its end."""

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
        args = (assemble, block, edges, self.frame)
        return tasks.add(self.key, *args, annotations=self.annotations)


class StepNode(FramedNode):
    """Some steps of one block; its inputs are the block, further inputs of the steps, and the
    neighbours. ``place``: None if all states are kept for the backward pass."""

    def __init__(
        self,
        model: Model,
        block: Node,
        neighbours: Sequence[Node],
        shared: tuple,
        steps: BlockSteps,
        place: SegmentPlace | None = None,
    ):
        call, others, self.seen = make_call(model, (None, *shared), {})
        holes = [(place, number + 1) for place, number in call.holes]
        call = call._replace(holes=((0, 0), *holes))
        super().__init__(model.name, [block, *others, *neighbours])
        fields = [n for n, node in enumerate(others, 1) if isinstance(node, FrameNode)]
        self.model = model
        self.call = call
        self.steps = steps._replace(call=call, fields=tuple(fields))
        self.frame = steps.frame
        self.place = place
        self.width = 1 + len(others)  # the number of a step's inputs

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
