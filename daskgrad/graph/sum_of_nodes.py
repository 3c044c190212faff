"""Sums of nodes: added along a tree, with at most one task in the backward pass."""

from collections.abc import Callable, Sequence
from typing import Any

from daskgrad.autodiff.models.pullbacks import add_with_fingerprints, sum_values
from daskgrad.autodiff.values.addition import in_groups
from daskgrad.autodiff.values.cotangents import Cotangent
from daskgrad.graph.activity import Graph
from daskgrad.graph.backward import Backward, Contribution, backward_tasks
from daskgrad.graph.forward import Forward, forward_tasks, pass_value_on
from daskgrad.graph.nodes import Node
from daskgrad.graph.tangents import Tangents, is_linear, push_node
from daskgrad.tasks.keys import Stage
from daskgrad.tasks.task_graph import TaskGraph


class AddedNode(Node):
    """A node whose value is added up; ``may_be_empty``: a term may turn out to have no items.

    ``adder_name``: its name in the keys of additions.
    """

    may_be_empty = False
    summation: str
    adder_name: str

    @property
    def places(self) -> Sequence[Any]:
        """The terms' names in errors: of nodes their names, of blocks their first items."""
        return [repr(source.name) for source in self.inputs]


class SumNode(AddedNode):
    """The sum of nodes of one structure and shape.

    It passes its cotangent on to the terms, with fingerprints of the values that it added up.
    """

    is_elementwise = True

    def __init__(self, inputs: Sequence[Node], name: str = "sum", summation: str = "pairwise"):
        super().__init__(name, inputs)
        self.adder_name = self.key_name
        self.summation = summation

    def build_value(self, tasks: TaskGraph, inputs: list[Any]) -> Any:
        return build_sum(self, tasks, inputs, self.stage, key=self.key)


def sum_of(nodes: Sequence[Node], name: str = "sum", summation: str = "pairwise") -> Node:
    """The sum of nodes; a single node is its own sum."""
    return SumNode(nodes, name, summation) if len(nodes) > 1 else nodes[0]


def build_sum(
    node: AddedNode,
    tasks: TaskGraph,
    terms: Sequence[Any],
    stage: Stage = "value",
    fun: Callable = sum_values,
    of: Node | None = None,
    key: Any = None,
) -> Any:
    """Builds the tasks that add up terms.

    ``fun(terms, summation, is_last, name, places)`` adds up some terms; without places, cotangents
    of the node ``of``. The tasks have the name and annotations of ``of``, or else of ``node``; the
    last one has the ``key``, if there is one.
    """
    named = node if of is None else of
    known = node.places if of is None and len(terms) == len(node.places) else []
    places = dict(zip(map(id, terms), known, strict=False))
    key_name = node.adder_name if of is None else of.key_name

    def add(group: Sequence[Any], is_last: bool) -> Any:
        this = tasks.key(stage, key_name, 0) if key is None or not is_last else key
        args: tuple = (list(group), node.summation, is_last, named.name)
        if known:
            args += ([places[id(term)] for term in group],)
        total = tasks.add(this, fun, *args, annotations=named.annotations)
        places[id(total)] = places.get(id(group[0]))
        return total

    if node.may_be_empty and len(terms) == 1:  # the term may turn out to have no items
        return add(terms, True)
    return in_groups(terms, add)


def build_sum_with_fingerprints(node: AddedNode, forward: Forward, values: Sequence[Any]) -> None:
    """Builds the tasks that add up values, and keep the values' fingerprints.

    The output of a gradient keeps none: see ``waits_for_value``.
    """
    if node is forward.graph.output and node in forward.graph.scalars:
        forward.values[node] = build_sum(node, forward.tasks, values)
    else:
        added = build_sum(node, forward.tasks, values, fun=add_with_fingerprints)
        forward.added[node] = added
        pass_value_on(node, forward, added)


def waits_for_value(node: AddedNode, backward: Backward, arrived: Contribution) -> bool:
    """Whether the cotangent of a sum arrives after its value.

    A cotangent that is known earlier must not wait: no term would be pulled back, and all tapes
    would be held, until all terms have run.
    """
    is_known = isinstance(arrived.cotangent, Cotangent) and not arrived.saw_value
    return node in backward.forward.added and not is_known


@forward_tasks.register
def _(node: SumNode, forward: Forward) -> None:
    inputs = forward.inputs(node)
    if forward.graph.watched_inputs(node):
        build_sum_with_fingerprints(node, forward, inputs)
    else:
        forward.values[node] = build_sum(node, forward.tasks, inputs)


@backward_tasks.register
def _(node: SumNode, backward: Backward, arrived: Contribution) -> None:
    watched, prints = backward.graph.watched_inputs(node), None
    if waits_for_value(node, backward, arrived):
        names = ", ".join(dict.fromkeys([repr(node.inputs[n].name) for n in sorted(watched)]))
        prints = backward.build_fingerprints(node, arrived, names)
    alike = Contribution(arrived.cotangent, saw_value=False)
    for number, source in reversed(list(enumerate(node.inputs))):
        is_seen = prints is not None and number in watched
        backward.send(source, alike._replace(sums=((prints, number),)) if is_seen else alike)


@is_linear.register
def _(node: SumNode, graph: Graph) -> bool:
    return True


@push_node.register
def _(node: SumNode, tangents: Tangents, tangent_only: bool) -> Node:
    if not tangent_only:
        duals = [tangents.dual_as_node(source) for source in node.inputs]
        return SumNode(duals, node.name, node.summation)
    active = [source for source in node.inputs if source in tangents.graph.active]
    inactive = [source for source in node.inputs if source not in tangents.graph.active]
    tangents.constant_terms.update(dict.fromkeys(inactive))
    return sum_of([tangents.tangent(source) for source in active], node.name, node.summation)
