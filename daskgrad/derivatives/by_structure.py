"""By structure: the Jacobian of each model by itself, and the chain rule along the graph."""

from collections.abc import Sequence
from typing import Any

from daskgrad.autodiff.libraries import registry
from daskgrad.autodiff.models.duals import Dual
from daskgrad.autodiff.models.local_jacobians import LocalJacobian, unit_slopes
from daskgrad.autodiff.models.model import Model
from daskgrad.autodiff.values.slopes import Left
from daskgrad.autodiff.values.trees import flatten
from daskgrad.autodiff.values.vectors import entries
from daskgrad.derivatives.evaluation import evaluate_graph
from daskgrad.graph.activity import Graph
from daskgrad.graph.delayed import delayed
from daskgrad.graph.expressions import ExpressionNode
from daskgrad.graph.nodes import CallNode, ItemNode, Node
from daskgrad.graph.tangents import Tangents
from daskgrad.graph.variables import Variable

FEW = 16  # products, which one task may well do
UNIT = delayed(unit_slopes, name="slopes")


class Structured(Tangents):
    """Records the nodes of values with slopes along a graph.

    ``most``: the products that a model's slopes may take.
    """

    def __init__(self, graph: Graph, variables: Sequence[Variable], most: int):
        super().__init__(graph, {})
        self._most = most
        self._firsts, first = {}, 0
        for variable in variables:
            self._firsts[variable] = first
            first += entries_of(variable)

    def model(self, model: Model, tangent_only: bool) -> Model:
        key = id(model), tangent_only
        if key not in self._models:
            self._models[key] = model._replace(fun=LocalJacobian(model, self._most))
        return self._models[key]

    def dual_of_variable(self, variable: Variable) -> Any:
        root = variable.root
        first = self._firsts[root] + entries(root.leaves[: variable.first_leaf])
        return UNIT(variable, first)


def value_and_slopes(graph: Graph, variables: Sequence[Variable]) -> Dual | None:
    """The value with its slopes; ``None`` if products along the whole graph are quicker.

    They are if a model takes more than half as many, or is no plain call.
    """
    if graph.output not in graph.active or not all(map(has_structure, graph.active)):
        return None
    most = FEW
    while True:
        node = Structured(graph, variables, most).dual(graph.output)
        dual = evaluate_graph(Graph(node, []))[0]
        products = [leaf.products for leaf in flatten(dual.tangents)[0] if type(leaf) is Left]
        if not products:
            return dual
        along_graph = min(entries(dual.value), sum(map(entries_of, variables)))
        if 2 * max(products) > along_graph:
            return None
        most = along_graph // 2


def entries_of(variable: Variable) -> int:
    return entries(variable.leaves)


def has_structure(node: Node) -> bool:
    """Whether a node is a variable, or a call whose backend tells what depends on what."""
    if isinstance(node, Variable):
        return True
    is_call = type(node) in (CallNode, ExpressionNode, ItemNode)
    return is_call and hasattr(registry.load(node.model.backend), "Dependence")
