"""Loop nodes: a loop outside of models is one node, and so are its tangents."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from daskgrad.autodiff.models.duals import Dual
from daskgrad.autodiff.models.model import Model
from daskgrad.autodiff.values.trees import flatten, map_leaves
from daskgrad.graph.activity import Graph
from daskgrad.graph.backward import Backward, Contribution, backward_tasks, select
from daskgrad.graph.delayed import delayed
from daskgrad.graph.forward import Forward, forward_tasks, pass_value_on, value_of
from daskgrad.graph.nodes import Constant, Node, make_call
from daskgrad.graph.tangents import TANGENT, Tangents, push_node
from daskgrad.graph.variables import Variable, checked_leaf
from daskgrad.loops.pieces import (
    Piece,
    capture_outputs,
    capture_piece,
    cotangent_of_xs,
    evaluate_piece,
    nbytes_of,
    outputs_of,
    pull_back_piece,
    pull_outputs,
    with_outputs,
)
from daskgrad.loops.schedules import AUTO, Limit, as_schedules
from daskgrad.loops.steps import Loop
from daskgrad.tasks.collections import is_collection
from daskgrad.tasks.task_graph import TaskGraph


class LoopNode(Node):
    """A loop of ``model(state, x, *shared)``; its inputs are the state, ``xs`` if it has them, and
    the nodes in ``shared``. Its value is the last state, or with ``outputs`` (last, outputs)."""

    is_one_run = True

    def __init__(
        self,
        model: Model,
        state: Any,
        steps: int,
        shared: tuple,
        xs: Any = None,
        outputs: str | None = None,
        limit: Limit = AUTO,
    ):
        has_xs = xs is not None
        first = 1 + has_xs
        call, shared_inputs, self.seen = make_call(model, (*[None] * first, *shared), {})
        holes = [(place, number + first) for place, number in call.holes]
        call = call._replace(holes=(*[(n, n) for n in range(first)], *holes))
        changing = [as_one_node(state, "state", model)]
        changing += [as_one_node(xs, "xs", model)] if has_xs else []
        super().__init__(model.name, [*changing, *shared_inputs])
        self.model = model
        self.call = call
        self.loop = Loop(call, steps, has_xs, outputs)
        self.limit = limit

    def differentiated(self, graph: Graph) -> Loop:
        """The loop, with its active inputs."""
        return self.loop.differentiated(graph.active_inputs(self))

    def build_value(self, tasks: TaskGraph, inputs: list[Any]) -> Any:
        pieces, state, outputs = build_pieces(
            self, tasks, self.loop, inputs, (self.stage, evaluate_piece, FIRST, SECOND)
        )
        if self.loop.outputs is None:
            args: tuple = (FIRST, pieces[-1].result)
        else:
            args = (with_outputs, state, outputs, self.loop.outputs)
        return tasks.add(self.key, *args, annotations=self.annotations)


FIRST, SECOND = itemgetter(0), itemgetter(1)


def holds_nodes(tree: Any) -> bool:
    return any(isinstance(leaf, Node) or is_collection(leaf) for leaf in flatten(tree)[0])


def as_one_node(tree: Any, role: str, model: Model) -> Node:
    """One node for a pytree that may hold nodes."""
    if isinstance(tree, Node):
        return tree
    if holds_nodes(tree):
        return TOGETHER(tree)
    name = f"the {role} of the loop {model.name!r}"
    return Constant(map_leaves(lambda leaf: checked_leaf(leaf, name, copy=False), tree))


TOGETHER = delayed(lambda tree: tree, name="together")


class BuiltPiece(NamedTuple):
    """A piece in a pass: references to its task's result and to its inputs."""

    piece: Piece
    result: Any
    inputs: list[Any]


def build_pieces(
    node: LoopNode, tasks: TaskGraph, loop: Loop, inputs: Sequence[Any], kind: tuple
) -> tuple[list[BuiltPiece], Any, list[Any]]:
    """Builds the tasks of the pieces; returns them, the last state, and the parts of the outputs.

    ``kind``: the tasks' stage and function, and functions of a result: its state, its outputs.
    """
    stage, fun, state_of, outputs_of = kind
    source = node.inputs[0]
    nbytes = nbytes_of(source.primal) if isinstance(source, Variable) else None
    if isinstance(source, Constant) and not is_collection(source.value):
        nbytes = nbytes_of(source.value)
    tasks.share([node.model, node.model])  # it is in every task
    (state, *others), total, parts, pieces = inputs, None, [], []
    for schedule in as_schedules(loop.steps, node.limit, nbytes):
        piece = Piece(schedule, node.limit)
        args = (tasks.shared(node.model), loop, piece, [state, *others], total)
        task = node.build_task(tasks, stage, fun, *args, calls=piece.steps(loop))
        pieces.append(BuiltPiece(piece, task, args[3]))
        state = node.build_pick(tasks, "value", state_of, pieces[-1].result)
        if loop.outputs is not None:
            parts.append(node.build_pick(tasks, "value", outputs_of, pieces[-1].result))
            total = parts[-1] if loop.outputs == "sum" else None
    return pieces, state, parts[-1:] if loop.outputs == "sum" else parts


# ------------------------------------------------------------------------------------ tangents


@push_node.register
def _(node: LoopNode, tangents: Tangents, tangent_only: bool) -> Node:
    """The loop of the states' duals."""
    first = 1 + node.loop.has_xs
    duals = [tangents.dual_as_node(source) for source in node.inputs[:first]]
    args, _ = node.loop.call.arguments([*duals, *tangents.arguments(node)[first:]])
    dual: Node = LoopNode(
        tangents.model(node.model, False),
        duals[0],
        node.loop.steps,
        args[first:],
        duals[1] if node.loop.has_xs else None,
        node.loop.outputs,
        node.limit,
    )
    if node.loop.outputs is not None:
        dual = TOGETHER_DUAL(dual)
    return TANGENT(dual) if tangent_only else dual


def dual_of_pair(pair: tuple[Dual, Dual]) -> Dual:
    """The dual of a pair, from the pair of duals."""
    state, outputs = pair
    tangents = tuple(zip(state.tangents, outputs.tangents, strict=True))
    return Dual((state.value, outputs.value), tangents)


TOGETHER_DUAL = delayed(dual_of_pair, name="together")


# -------------------------------------------------------------------------------------------------
# The passes of loops: the tasks of a loop's pieces, forward and backward.
#
# No task of the backward pass can start before the cotangent has arrived, since each piece waits
# for the cotangent of its last state: so states that are computed again never pile up.


@forward_tasks.register
def _(node: LoopNode, forward: Forward) -> None:
    tasks, loop = forward.tasks, node.differentiated(forward.graph)
    kind = ("forward", capture_piece, value_of, outputs_of)
    pieces, state, parts = build_pieces(node, tasks, loop, forward.inputs(node), kind)
    if loop.outputs is None:
        forward.captured[node] = pieces, None
        forward.values[node] = state
    else:
        args = (state, parts, loop.outputs)
        outputs = node.build_task(tasks, "forward", capture_outputs, *args, calls=0)
        forward.captured[node] = pieces, outputs
        pass_value_on(node, forward, outputs)


@backward_tasks.register
def _(node: LoopNode, backward: Backward, arrived: Contribution) -> None:
    tasks, loop = backward.tasks, node.differentiated(backward.graph)
    model, (pieces, captured) = tasks.shared(node.model), backward.forward.captured[node]
    state, outputs = arrived.cotangent, None
    elsewhere = backward.value_elsewhere(node, arrived)
    if captured is not None:
        whole = (captured, state, model, elsewhere)
        pair = node.build_task(tasks, "backward", pull_outputs, *whole, calls=0)
        elsewhere = None
        state, outputs = [node.build_pick(tasks, "cotangent", select, pair, n) for n in (0, 1)]
    has_xs = int(loop.has_active_xs)
    carried: list[Any] = []
    rows: list[Any] = []
    for piece, result, inputs in reversed(pieces):
        args = (result, state, outputs, carried, model, loop, piece, inputs, elsewhere)
        steps = piece.steps(loop)
        pulled = node.build_task(tasks, "backward", pull_back_piece, *args, calls=steps)
        elsewhere = None
        state, *others = [
            node.build_pick(tasks, "cotangent", select, pulled, number)
            for number in range(len(loop.active))
        ]
        rows.extend(others[:has_xs])
        carried = others[has_xs:]
    backward.send(node.inputs[0], Contribution(state))
    if has_xs:
        counts = [built.piece.steps(loop) for built in pieces]
        together = node.build_task(tasks, "cotangent", cotangent_of_xs, rows[::-1], counts)
        backward.send(node.inputs[1], Contribution(together))
    for active, cotangent in zip(loop.active[1 + has_xs :], carried, strict=True):
        backward.send(node.inputs[active.number], Contribution(cotangent))
