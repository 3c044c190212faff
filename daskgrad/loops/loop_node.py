"""Loop nodes: a loop outside of models is recorded as one node, and so are its tangents."""

from collections.abc import Callable, Sequence
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
    """A loop of ``model(state, x, *shared)``; its inputs are the state, ``xs`` if there are such,
    and the nodes in ``shared``. Its value is the last state, or with ``outputs`` a pair of that and
    these.
    """

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
        own = 1 + has_xs
        call, shared_inputs = make_call(model, (*[None] * own, *shared), {})
        holes = [(place, number + own) for place, number in call.holes]
        call = call._replace(holes=(*[(n, n) for n in range(own)], *holes))
        fields = [as_one_node(state, "state", model)]
        fields += [as_one_node(xs, "xs", model)] if has_xs else []
        super().__init__(model.name, [*fields, *shared_inputs])
        self.model = model
        self.call = call
        self.loop = Loop(call, steps, has_xs, outputs)
        self.limit = limit

    def pieces(self) -> list[Piece]:
        """What its tasks run, in one pass."""
        schedules = as_schedules(self.loop.steps, self.limit, known_nbytes(self.inputs[0]))
        return [Piece(schedule, self.limit) for schedule in schedules]

    def differentiated(self, graph: Graph) -> Loop:
        """The loop, with its active inputs."""
        return self.loop.differentiated(graph.active_inputs(self))

    def build_value(self, tasks: TaskGraph, inputs: list[Any]) -> Any:
        tasks.share([self.model, self.model])
        (state, *rest), total, parts = inputs, None, []
        pieces, how = self.pieces(), self.loop.outputs
        for piece in pieces:
            args = (tasks.shared(self.model), self.loop, piece, [state, *rest], total)
            pair = self.build_task(tasks, self.stage, evaluate_piece, *args)
            state = self.build_pick(tasks, "value", first_of, pair)
            if how is not None:
                parts.append(self.build_pick(tasks, "value", second_of, pair))
                total = parts[-1] if how == "sum" else None
        if how is None:
            return self.under_key(tasks, first_of, pair)
        return self.under_key(
            tasks, with_outputs, state, parts[-1:] if how == "sum" else parts, how
        )

    def under_key(self, tasks: TaskGraph, fun: Callable, *args: Any) -> Any:
        """The task whose result is the node's value."""
        return tasks.add(self.key, fun, *args, annotations=self.annotations)


def first_of(pair: Sequence[Any]) -> Any:
    return pair[0]


def second_of(pair: Sequence[Any]) -> Any:
    return pair[1]


def as_one_node(tree: Any, what: str, model: Model) -> Node:
    """One node for a pytree that may hold nodes."""
    if isinstance(tree, Node):
        return tree
    leaves = flatten(tree)[0]
    if any(isinstance(leaf, Node) or is_collection(leaf) for leaf in leaves):
        return TOGETHER(tree)
    named = f"the {what} of the loop {model.name!r}"
    return Constant(map_leaves(lambda leaf: checked_leaf(leaf, named, copy=False), tree))


TOGETHER = delayed(lambda tree: tree, name="together")


def known_nbytes(node: Node) -> int | None:
    """The bytes of a value that is known before anything runs."""
    if isinstance(node, Variable):
        return nbytes_of(node.primal)
    is_known = isinstance(node, Constant) and not is_collection(node.value)
    return nbytes_of(node.value) if is_known else None


# ------------------------------------------------------------------------------------ tangents


@push_node.register
def _(node: LoopNode, tangents: Tangents, tangent_only: bool) -> Node:
    """The loop of the states' duals."""
    own = 1 + node.loop.has_xs
    duals = [tangents.dual_as_node(source) for source in node.inputs[:own]]
    args, _ = node.loop.call.arguments([*duals, *tangents.arguments(node)[own:]])
    dual: Node = LoopNode(
        tangents.model(node.model, False),
        duals[0],
        node.loop.steps,
        args[own:],
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
# Nothing of the backward pass can start before the cotangent is there, since each piece waits for
# that of its last state: so states that are computed again never pile up.


class CapturedPiece(NamedTuple):
    """A piece in the forward pass: references to its captured run and to its inputs."""

    piece: Piece
    captured: Any
    inputs: list[Any]


class CapturedLoop(NamedTuple):
    """A loop in the forward pass; ``outputs`` refers to its captured value, if it has outputs."""

    pieces: list[CapturedPiece]
    outputs: Any


@forward_tasks.register
def _(node: LoopNode, forward: Forward) -> None:
    tasks, loop, how = forward.tasks, node.differentiated(forward.graph), node.loop.outputs
    tasks.share([node.model, node.model])  # it is in every task
    (state, *rest), total, parts, pieces = forward.inputs(node), None, [], []
    for piece in node.pieces():
        inputs = [state, *rest]
        args = (tasks.shared(node.model), loop, piece, inputs, total)
        captured = node.build_task(tasks, "forward", capture_piece, *args)
        pieces.append(CapturedPiece(piece, captured, inputs))
        state = node.build_pick(tasks, "value", value_of, captured)
        if how is not None:
            parts.append(node.build_pick(tasks, "value", outputs_of, captured))
            total = parts[-1] if how == "sum" else None
    if how is None:
        forward.captured[node] = CapturedLoop(pieces, None)
        forward.values[node] = state
    else:
        some = parts[-1:] if how == "sum" else parts
        outputs = node.build_task(tasks, "forward", capture_outputs, state, some, how)
        forward.captured[node] = CapturedLoop(pieces, outputs)
        pass_value_on(node, forward, outputs)


@backward_tasks.register
def _(node: LoopNode, backward: Backward, arrived: Contribution) -> None:
    tasks, loop = backward.tasks, node.differentiated(backward.graph)
    model, captured = tasks.shared(node.model), backward.forward.captured[node]
    state, outputs = arrived.cotangent, None
    elsewhere = backward.value_elsewhere(node, arrived)
    if captured.outputs is not None:
        whole = (captured.outputs, state, model, elsewhere)
        pair, elsewhere = node.build_task(tasks, "backward", pull_outputs, *whole), None
        state, outputs = [node.build_pick(tasks, "cotangent", select, pair, n) for n in (0, 1)]
    own = 1 + loop.has_active_xs
    carried: list[Any] = []
    rows: list[Any] = []
    for piece, each, inputs in reversed(captured.pieces):
        args = (each, state, outputs, carried, model, loop, piece, inputs, elsewhere)
        pulled, elsewhere = node.build_task(tasks, "backward", pull_back_piece, *args), None
        state, *others = [
            node.build_pick(tasks, "cotangent", select, pulled, number)
            for number in range(len(loop.active))
        ]
        rows.extend(others[: own - 1])
        carried = others[own - 1 :]
    backward.send(node.inputs[0], Contribution(state))
    if loop.has_active_xs:
        counts = [each.piece.steps(loop) for each in captured.pieces]
        together = node.build_task(tasks, "cotangent", cotangent_of_xs, rows[::-1], counts)
        backward.send(node.inputs[1], Contribution(together))
    for active, cotangent in zip(loop.active[own:], carried, strict=True):
        backward.send(node.inputs[active.number], Contribution(cotangent))
