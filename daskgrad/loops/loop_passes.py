"""The passes of loops: the tasks of a loop's pieces, forward and backward.

Nothing of the backward pass can start before the cotangent is there, since each piece waits for
that of its last state: so states that are computed again never pile up.
"""

from typing import Any, NamedTuple

from daskgrad.graph.backward import Backward, Contribution, backward_tasks, select
from daskgrad.graph.forward import Forward, forward_tasks, pass_value_on, value_of
from daskgrad.loops.loop_node import LoopNode
from daskgrad.loops.pieces import (
    Piece,
    capture_outputs,
    capture_piece,
    cotangent_of_xs,
    outputs_of,
    pull_back_piece,
    pull_outputs,
)


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
