"""Tangents: nodes that push tangents forward along a graph, recorded beside its own.

Each active node gets a node whose value is a dual: the value and its tangents. The new nodes are
nodes like others, so that forward mode runs as any graph does, and its backward pass is the
Hessian-vector product. If only an output's tangent is wanted, linear nodes need no values of their
inputs, and sums over items stay sums of single numbers.
"""

from functools import singledispatch
from typing import Any

import numpy as np
import optree

from daskgrad.autodiff.models.duals import (
    Dual,
    dual_of,
    push_forward,
    tangent_of,
    with_zero_tangents,
)
from daskgrad.autodiff.models.model import Model
from daskgrad.autodiff.values.descriptions import describe
from daskgrad.graph.activity import Graph
from daskgrad.graph.delayed import delayed
from daskgrad.graph.nodes import CallNode, ItemNode, Node, names
from daskgrad.graph.operators import NEGATIVE
from daskgrad.graph.variables import Variable

TANGENT = delayed(tangent_of, name="tangent")
ZERO_TANGENTS = delayed(with_zero_tangents, name="zero tangents")
PAIR = delayed(dual_of, name="pair")


class Tangents:
    """Records the nodes of duals and tangents along a graph.

    ``variables`` holds, for each variable that is differentiated, its tangents: one a direction.
    """

    def __init__(self, graph: Graph, variables: dict[Variable, tuple[Variable, ...]]):
        self.graph = graph
        self._count = len(next(iter(variables.values()), (None,)))  # of directions
        self._variables = variables
        self._duals: dict[Node, Any] = {}
        self._tangents: dict[Node, Any] = {}
        self._models: dict[tuple[int, bool], Model] = {}
        self.constant_terms: dict[Node, None] = {}  # no tangent depends on them; must be numbers

    def dual(self, node: Node) -> Any:
        """Stands for the value and tangents of an active node."""
        if node not in self._duals:
            self._record({node}, set())
        return self._duals[node]

    def dual_as_node(self, node: Node) -> Node:
        """The dual of any node, as a node."""
        if node not in self.graph.active:
            return ZERO_TANGENTS(node, self._count)
        dual = self.dual(node)
        return PAIR(*dual) if isinstance(dual, Dual) else dual

    def tangent(self, node: Node) -> Any:
        """Stands for an active node if only its one tangent is wanted."""
        if node not in self._tangents:
            self._record(set(), {node})
        return self._tangents[node]

    def arguments(self, node: Node) -> list[Any]:
        """The inputs of a node, with duals for the active ones."""
        return [
            self._duals[source] if source in self.graph.active else source for source in node.inputs
        ]

    def model(self, model: Model, tangent_only: bool) -> Model:
        """The model that takes duals; the nodes of one model share it."""
        key = id(model), tangent_only
        if key not in self._models:
            self._models[key] = push_forward(model, tangent_only)
        return self._models[key]

    def of_items(self, node: Node) -> tuple[Node, ...]:
        """The tangents of a variable, or of NumPy on variables, a node each."""
        if isinstance(node, Variable):
            return self.of_variable(node)
        dual = self.dual(node)
        if isinstance(dual, Dual):
            return dual.tangents
        return tuple([annotate(TANGENT(dual, number), node) for number in range(self._count)])

    def of_variable(self, variable: Variable) -> tuple[Variable, ...]:
        """The tangents of a variable, or of a part of one."""
        roots = self._variables[variable.root]
        return roots if variable.root is variable else tuple([part(variable, r) for r in roots])

    def dual_of_variable(self, variable: Variable) -> Any:
        """Stands for a variable's value and tangents."""
        return Dual(variable, self.of_variable(variable))

    def _record(self, duals: set[Node], tangents: set[Node]) -> None:
        """Records the duals and tangents of these nodes, and of their inputs, inputs first."""
        for node in reversed(self.graph.order):
            active = [source for source in node.inputs if source in self.graph.active]
            if node in tangents and node not in duals and is_linear(node, self.graph):
                tangents.update(active)
            elif node in tangents or node in duals:
                duals.update(active)
        for node in self.graph.order:
            if node in duals:
                self._duals[node] = annotate(push_node(node, self, False), node)
            if node in tangents:
                if node in self._duals and not isinstance(node, Variable):
                    dual = self._duals[node]
                    made = dual.tangents[0] if isinstance(dual, Dual) else TANGENT(dual)
                else:
                    made = push_node(node, self, True)
                self._tangents[node] = annotate(made, node)


def part(of: Variable, root: Variable) -> Variable:
    """The part of another variable, of the same structure, that corresponds to ``of``."""
    leaves = root.leaves[of.first_leaf : of.first_leaf + len(of.leaves)]
    value = optree.tree_unflatten(of.structure, leaves)
    return Variable(value, f"tangent of {of.name}", root, of.first_leaf)


def annotate(made: Any, node: Node) -> Any:
    """Gives nodes made for another one its annotations, and keys of the stage ``tangent``."""
    if isinstance(made, Dual):
        return Dual(annotate(made.value, node), tuple([annotate(t, node) for t in made.tangents]))
    if isinstance(made, Node) and not isinstance(made, Variable) and made.stage != "tangent":
        made.annotations = node.annotations
        if isinstance(made, CallNode) and isinstance(node, CallNode):
            made.call = made.call._replace(place=node.call.place)
        made.is_here = node.is_here and all([source.is_here for source in made.inputs])
        made.stage = "tangent"
        made.key = names.key("tangent", made.name, made.calls)
    return made


# ---------------------------------------------------------------------------- kinds of nodes


@singledispatch
def push_node(node: Node, tangents: Tangents, tangent_only: bool) -> Any:
    """Stands for a node's value and tangents, or only for its one tangent."""
    raise NotImplementedError(f"no tangents for {node!r}")


@singledispatch
def is_linear(node: Node, graph: Graph) -> bool:
    """Whether the tangent of a node needs only the tangents of its active inputs."""
    return False


@push_node.register
def _(node: Variable, tangents: Tangents, tangent_only: bool) -> Any:
    return tangents.of_variable(node)[0] if tangent_only else tangents.dual_of_variable(node)


@push_node.register
def _(node: CallNode, tangents: Tangents, tangent_only: bool) -> Any:
    if tangent_only and is_linear(node, tangents.graph):
        return linear_tangent(node, tangents)
    args, kwargs = node.call.arguments(tangents.arguments(node))
    return CallNode(tangents.model(node.model, tangent_only), args, kwargs)


@push_node.register
def _(node: ItemNode, tangents: Tangents, tangent_only: bool) -> Any:
    """The item of a dual is a dual, taken out as the item is; of variables, items side by side."""
    args, kwargs = node.call.arguments(tangents.arguments(node))
    container, index = args
    if not isinstance(container, Dual):
        made = ItemNode(tangents.model(node.model, False), args, kwargs)
        return TANGENT(made) if tangent_only else made
    parts = (container.value, *container.tangents)
    items = [ItemNode(node.model, (part, index), {}) for part in parts]
    return items[1] if tangent_only else Dual(items[0], tuple(items[1:]))


@is_linear.register
def _(node: CallNode, graph: Graph) -> bool:
    """Only for real numbers: other tangents would have to be broadcast."""
    if node not in graph.scalars:
        return False
    operator = node.model.operator
    return operator is not None and operator.is_linear(operands_active(node, graph))


def require_numbers_left_out(node: CallNode, tangents: Tangents) -> None:
    """Raises unless the inactive operands, too, are numbers."""
    args, _ = node.call.arguments(node.inputs)
    for arg in args:
        if isinstance(arg, Node):
            if arg not in tangents.graph.active:
                tangents.constant_terms[arg] = None
        elif not (np.ndim(arg) == 0 and np.isrealobj(arg)):
            raise TypeError(
                f"a derivative of {node.name!r} was asked for, and one of its operands is "
                f"{describe(arg)}; the value must be one real number: sum arrays up"
            )


def operands_active(node: CallNode, graph: Graph) -> list[bool]:
    """Which operands of an operator are active."""
    args, _ = node.call.arguments(node.inputs)
    return [isinstance(arg, Node) and arg in graph.active for arg in args]


def linear_tangent(node: CallNode, tangents: Tangents) -> Any:
    """The tangent of a sum, difference, multiple or quotient of numbers."""
    active = tangents.graph.active
    are_active = operands_active(node, tangents.graph)
    args, _ = node.call.arguments([tangents.tangent(s) if s in active else s for s in node.inputs])
    require_numbers_left_out(node, tangents)
    signs = node.model.operator.signs if node.model.operator else ()
    if signs and not all(are_active):
        place = are_active.index(True)
        return args[place] if signs[place] > 0 else CallNode(NEGATIVE, (args[place],), {})
    return CallNode(node.model, args, {})
