"""Sums of nodes: balanced, and with at most one task in the backward pass."""

from collections.abc import Callable, Sequence
from typing import Any

from daskgrad.graph.activity import Graph
from daskgrad.graph.backward import Backward, Contribution, backward_tasks
from daskgrad.graph.forward import Forward, forward_tasks, pass_value_on
from daskgrad.graph.nodes import Node
from daskgrad.graph.tangents import (
    PAIR,
    ZERO_TANGENTS,
    Tangents,
    dual_node,
    is_linear,
    tangent_node,
)
from daskgrad.sums.adding import add_with_fingerprints, sum_values
from daskgrad.tasks.keys import Stage
from daskgrad.tasks.task_graph import TaskGraph
from daskgrad.values.cotangents import Cotangent
from daskgrad.values.summation import in_groups


class AddedNode(Node):
    """A node whose value is added up; ``may_be_empty``: a term may turn out to have no items."""

    may_be_empty = False
    summation: str

    def build_task(self, tasks: TaskGraph, stage: Stage, fun: Callable, *args: Any) -> Any:
        return tasks.add(tasks.key(stage, self.name), fun, *args, annotations=self.annotations)

    def pick(self, tasks: TaskGraph, stage: Stage, fun: Callable, *args: Any) -> Any:
        return tasks.pick(stage, self.name, fun, *args, annotations=self.annotations)


class SumNode(AddedNode):
    """The sum of nodes of one structure and shape.

    Its backward pass hands the cotangent on; a task tells what the sum has seen of its terms.
    """

    is_elementwise = True

    def __init__(self, inputs: Sequence[Node], name: str = "sum", summation: str = "pairwise"):
        super().__init__(name, inputs)
        self.summation = summation

    def build_value(self, tasks: TaskGraph, inputs: list[Any]) -> Any:
        if len(inputs) == 1:
            return inputs[0]
        return build_sum(self, tasks, inputs, self.key)


def build_sum(
    node: AddedNode,
    tasks: TaskGraph,
    values: Sequence[Any],
    key: Any,
    fun: Callable = sum_values,
) -> Any:
    """Builds the tasks that add up values; the last one has the ``key``."""

    def add(group: Sequence[Any], is_last: bool) -> Any:
        this = key if is_last else tasks.key(node.stage, node.name)
        args = (list(group), node.summation, is_last, node.name)
        return tasks.add(this, fun, *args, annotations=node.annotations)

    return in_tree(node, values, add)


def in_tree(
    node: AddedNode,
    terms: Sequence[Any],
    add: Callable[[Sequence[Any], bool], Any],
) -> Any:
    """As ``in_groups``; a single term is added up, too, if it may turn out to be of no items."""
    return add(terms, True) if node.may_be_empty and len(terms) == 1 else in_groups(terms, add)


def build_sum_with_fingerprints(node: AddedNode, forward: Forward, values: Sequence[Any]) -> None:
    """Builds the tasks that add up values, and keep what they have seen for the backward pass.

    The output of a gradient keeps nothing: see ``waits_for_value``.
    """
    tasks, key = forward.tasks, forward.tasks.key("value", node.name)
    if node is forward.graph.output and node in forward.graph.scalars:
        forward.values[node] = build_sum(node, tasks, values, key)
    else:
        forward.added[node] = build_sum(node, tasks, values, key, add_with_fingerprints)
        pass_value_on(node, forward, forward.added[node])


def waits_for_value(node: AddedNode, backward: Backward, arrived: Contribution) -> bool:
    """Whether the cotangent of a sum comes after its value, as that of a consumer does.

    What is known before must not wait: terms would be pulled back when all have run, and the tapes
    that they depend on would all be held until then.
    """
    is_known = isinstance(arrived.cotangent, Cotangent) and not arrived.saw_value
    return node in backward.forward.added and not is_known


@forward_tasks.register
def _(node: SumNode, forward: Forward) -> None:
    inputs = forward.inputs(node)
    if not inputs[1:]:
        forward.values[node] = inputs[0]
    elif watched_terms(node, forward.graph):
        build_sum_with_fingerprints(node, forward, inputs)
    else:
        key = forward.tasks.key("value", node.name)
        forward.values[node] = build_sum(node, forward.tasks, inputs, key)


def watched_terms(node: SumNode, graph: Graph) -> set[int]:
    """Which terms are differentiated, and may differ when they are computed again."""
    return {number for number, watched in graph.active_inputs(node) if watched}


@backward_tasks.register
def _(node: SumNode, backward: Backward, arrived: Contribution) -> None:
    if not node.inputs[1:]:
        return backward.send(node.inputs[0], *arrived)
    watched, prints = watched_terms(node, backward.graph), None
    if waits_for_value(node, backward, arrived):
        names = ", ".join(dict.fromkeys([repr(node.inputs[n].name) for n in sorted(watched)]))
        prints = backward.build_fingerprints(node, arrived, names)
    for number, source in reversed(list(enumerate(node.inputs))):
        sums = ((prints, number),) if prints is not None and number in watched else ()
        backward.send(source, arrived.cotangent, saw_value=False, sums=sums)


@is_linear.register
def _(node: SumNode, graph: Graph) -> bool:
    return True


@dual_node.register
def _(node: SumNode, tangents: Tangents) -> SumNode:
    duals = [as_dual(source, tangents) for source in node.inputs]
    return SumNode(duals, node.name, node.summation)


def as_dual(source: Node, tangents: Tangents) -> Node:
    if source not in tangents.graph.active:
        return ZERO_TANGENTS(source, tangents.count)
    dual = tangents.dual(source)
    return dual if isinstance(dual, Node) else PAIR(*dual)


@tangent_node.register
def _(node: SumNode, tangents: Tangents) -> SumNode:
    active = [source for source in node.inputs if source in tangents.graph.active]
    inactive = [source for source in node.inputs if source not in tangents.graph.active]
    tangents.constant_terms.update(dict.fromkeys(inactive))
    return SumNode([tangents.tangent(source) for source in active], node.name, node.summation)
