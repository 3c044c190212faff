"""First wrong rule: the model that makes a derivative wrong.

Each call of an active node, and each term of a sum, is checked alone at the values of its inputs,
in the order of the graph and in the calling thread.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import dask

from daskgrad.autodiff.models.failures import Partition, argument_label, at
from daskgrad.autodiff.models.model import Call, Model
from daskgrad.autodiff.models.pullbacks import capture, each_of, evaluate, pull_back
from daskgrad.autodiff.models.tracing import Active
from daskgrad.autodiff.values.cotangents import Cotangent, gradient
from daskgrad.autodiff.values.trees import flatten, substitute
from daskgrad.derivatives.checks.directional import Checked, Fault
from daskgrad.derivatives.inputs import as_output, has_derivative
from daskgrad.graph.activity import Graph
from daskgrad.graph.delayed import DelayedModel
from daskgrad.graph.nodes import CallNode, Node, build_values
from daskgrad.graph.variables import copy_variable, for_user
from daskgrad.sums.block_tasks import nth
from daskgrad.sums.item_sum import ReductionNode
from daskgrad.tasks.task_graph import TaskGraph

Check = Callable[[Checked], Fault | None]


def find_wrong_rule(checked: Checked, check: Check) -> str:
    """A sentence that names the first call with a wrong derivative."""
    graph, calls = recorded_calls(checked)
    with dask.config.set(scheduler="sync"), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a term need not depend on every argument
        for call in calls:
            fault = check(call.checked())
            if fault is not None:
                return call.describe(fault)
    return (
        f"each of the {len(graph.active)} nodes that matter is right by itself: look for what a "
        f"derivative cannot see, such as an argument that is also used through a closure"
    )


class SingleCall(NamedTuple):
    """One call of a model at the values of its inputs, or one term of a sum."""

    model: Model
    call: Call
    active: tuple[Active, ...]
    inputs: Sequence[Any]
    place: int | Partition | None = None

    def checked(self) -> Checked:
        """The call as a function of its active inputs."""
        args = tuple([self.inputs[number] for number, *_ in self.active])
        labels = [argument_label(self.call, number) for number, *_ in self.active]
        return Checked(self._record, self._evaluate, self._pull, args, self.model.name, labels)

    def describe(self, fault: Fault) -> str:
        label = fault.checked.labels[fault.number]
        return (
            f"the first wrong rule is that of model {self.model.name!r}{at(self.place)}, "
            f"{label}: by itself, {fault.numbers}"
        )

    def _with(self, values: Sequence[Any]) -> list[Any]:
        return substitute(self.inputs, [number for number, *_ in self.active], values)

    def _evaluate(self, *values: Any) -> Any:
        return evaluate(self.model, self.call, self._with(values))

    def _pull(self, cotangent: Any) -> list[Any]:
        """The cotangents of the active inputs, without a graph: there may be many calls."""
        called = self.model, self.call, self.active, self.inputs
        leaves = tuple(flatten(cotangent)[0])
        pulled = pull_back(capture(*called), Cotangent(leaves), *called)
        trees = [flatten(self.inputs[number]) for number, *_ in self.active]
        pairs = zip(trees, each_of(pulled), strict=True)
        return [gradient(*tree, part.leaves) for tree, part in pairs]

    def _record(self, *values: Any) -> Node:
        args, kwargs = self.call.arguments(self._with(values))
        return DelayedModel(self.model)(*args, **kwargs)


def recorded_calls(checked: Checked) -> tuple[Graph, Iterator[SingleCall]]:
    """The graph of a function, and its active calls at the values of their inputs."""
    args = [copy_variable(arg, "variable") if has_derivative(arg) else arg for arg in checked.args]
    output = as_output(checked.fun(*map(for_user, args)), checked.name)
    graph = Graph(output, [arg for n, arg in enumerate(args) if n in checked.numbers])
    nodes = [node for node in graph.order if node in graph.active]
    return graph, calls_of(graph, nodes, compute_inputs(nodes))


def compute_inputs(nodes: Sequence[Node]) -> dict[Any, Any]:
    """The values of the nodes' inputs, and for each sum the items of its blocks."""
    tasks = TaskGraph()
    sources = list(dict.fromkeys(source for node in nodes for source in node.inputs))
    values = build_values(tasks, sources)
    references = {source: values[source] for source in sources}
    for node in nodes:
        if isinstance(node, ReductionNode):
            references |= {
                (node, number): tasks.add(tasks.key("value", node.name), as_tuple, *fields)
                for number, (_, fields) in enumerate(node.items.blocks(tasks, node.name))
            }
    results = tasks.compute([reference.key for reference in references.values()])
    return dict(zip(references, results, strict=True))


def as_tuple(*fields: Any) -> tuple:
    """The fields of a block: Dask finds references in a task's own list arguments only."""
    return fields


def calls_of(graph: Graph, nodes: Sequence[Node], values: dict[Any, Any]) -> Iterator[SingleCall]:
    for node in nodes:
        inputs = [values[source] for source in node.inputs]
        if isinstance(node, CallNode):
            yield SingleCall(node.model, node.call, graph.active_inputs(node), inputs)
        elif isinstance(node, ReductionNode):
            active = node.active_terms(graph)
            for number, first in enumerate(node.items.firsts):
                for offset, item in enumerate(zip(*values[node, number], strict=True)):
                    term = [*item, *inputs[: node.width]]
                    yield SingleCall(node.model, node.call, active, term, nth(first, offset))
