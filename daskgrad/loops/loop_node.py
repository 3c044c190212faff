"""Loop nodes: a loop outside of models is recorded as one node, and so are its tangents."""

from collections.abc import Callable, Sequence
from typing import Any

from daskgrad.graph.activity import Graph
from daskgrad.graph.delayed import delayed
from daskgrad.graph.nodes import Constant, Node, make_call
from daskgrad.graph.tangents import TANGENT, Tangents, push_node
from daskgrad.graph.variables import Variable, checked_leaf
from daskgrad.loops.pieces import Piece, evaluate_piece, nbytes_of, with_outputs
from daskgrad.loops.schedules import AUTO, Limit, as_schedules
from daskgrad.loops.steps import Loop
from daskgrad.models.duals import Dual
from daskgrad.models.model import Model
from daskgrad.tasks.collections import is_collection
from daskgrad.tasks.task_graph import TaskGraph
from daskgrad.values.trees import flatten, map_leaves


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
