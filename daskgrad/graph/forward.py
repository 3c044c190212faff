"""The forward graph: one task a node that keeps its pullback, one that passes its value on.

A consumer depends only on the value task, and so never pulls residuals over the network. Within one
process there is no value task: consumers take the value out of the captured call themselves.
"""

from functools import singledispatch
from typing import Any

from daskgrad.autodiff.models.captured import Captured
from daskgrad.autodiff.models.determinism import SumWithFingerprints
from daskgrad.autodiff.models.model import Call
from daskgrad.autodiff.models.tracing import Active
from daskgrad.autodiff.values.memory import takes_as_arrived
from daskgrad.graph.activity import Graph
from daskgrad.graph.nodes import CallNode, Node, models, value_of_node
from daskgrad.graph.variables import Variable
from daskgrad.tasks.task_graph import TaskGraph


class DirectSums(dict[Any, Any]):
    """The nodes of sums that are evaluated outside of the graph.

    The keys are those of the tasks that gather the inputs of a sum. ``client`` is the one that Dask
    would compute with, or None without a cluster. When this is no longer open, further sums become
    tasks.
    """

    def __init__(self, client: Any):
        super().__init__()
        self.client = client
        self.is_open = True


class Forward:
    """The forward pass, while its tasks are added: a reference to each value and captured call.

    ``direct`` takes in the sums that are evaluated outside of the graph; None: all are tasks.
    """

    def __init__(self, graph: Graph, tasks: TaskGraph, direct: DirectSums | None = None):
        self.graph = graph
        self.tasks = tasks
        self.direct = direct
        self.values = Values(tasks)
        self.staying = graph.inputs_of_one_call if tasks.is_for_cluster else ()  # need not travel
        self.captured: dict[Node, Any] = {}
        self.active: dict[CallNode, tuple[Active, ...]] = {}  # inputs, as they were then
        self.added: dict[Node, Any] = {}  # sums, with what they have seen of their terms

    def inputs(self, node: Node) -> list[Any]:
        return [self.values[source] for source in node.inputs]

    def called(self, node: CallNode) -> tuple[Any, Call, tuple[Active, ...], list[Any]]:
        """Which model is called with what: what both passes tell the tasks of a node.

        It is made for each anew, and not kept, since the garbage collector goes through all that
        a graph of many nodes keeps, again and again.
        """
        model = self.tasks.shared(node.model)
        return model, node.call, self.active[node], self.inputs(node)

    def is_direct(self, node: Node) -> bool:
        """Whether a node is a sum that is evaluated outside of the graph."""
        if self.direct is None or not self.direct.is_open:
            return False
        return node.is_direct(self.graph, self.direct.client)


class Values(dict[Node, Any]):
    """A reference to each value; a variable's value enters the graph when it is first asked for.

    Nobody asks for a variable whose items are summed over: its blocks are sent instead.
    """

    def __init__(self, tasks: TaskGraph):
        self._tasks = tasks

    def __missing__(self, node: Node) -> Any:
        if not isinstance(node, Variable):
            raise KeyError(node)
        self[node] = value_of_node(node, self._tasks, {})
        return self[node]


def build_forward(graph: Graph, tasks: TaskGraph, direct: DirectSums | None = None) -> Forward:
    """Builds the tasks of the forward pass; inactive nodes get one task that computes the value."""
    forward = Forward(graph, tasks, direct)
    tasks.share(models(graph.order))
    tasks.is_chain = graph.is_chain
    for node in graph.order:
        if isinstance(node, Variable):
            continue  # its value enters the graph when it is first asked for
        if node in graph.active or forward.is_direct(node):
            forward_tasks(node, forward)
        else:
            forward.values[node] = value_of_node(node, tasks, forward.values)
    for node in (graph.output, *graph.extras):  # in the graph, even if it is a variable
        forward.values[node] = tasks.keep("value", node.key_name, forward.values[node])
    return forward


@singledispatch
def forward_tasks(node: Node, forward: Forward) -> None:
    """Adds a node's tasks and enters its value into ``forward.values``."""
    raise NotImplementedError(f"no forward tasks for {node!r}")


@forward_tasks.register
def _(node: CallNode, forward: Forward) -> None:
    forward.active[node] = forward.graph.active_inputs(node)
    captured = node.build_task(forward.tasks, "forward", node.capture, *forward.called(node))
    forward.captured[node] = captured
    pass_value_on(node, forward, captured)


def pass_value_on(node: Node, forward: Forward, captured: Any) -> None:
    """Builds the task that takes the value out of the captured call.

    A single model that takes in this value and nothing else runs beside it, and needs no such task.
    """
    stays = node in forward.staying
    forward.values[node] = forward.tasks.pick(
        "value", node.name, value_of, captured, stays=stays, annotations=node.annotations
    )


@takes_as_arrived
def value_of(captured: Captured | SumWithFingerprints) -> Any:
    return captured.value
