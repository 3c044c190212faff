"""The forward graph: a task a node that keeps its pullback, and one that passes its value on.

A consumer depends on the value task alone, and so never pulls residuals over the network. Within
one process there is no value task: consumers take the value out of the captured call themselves.
"""

from functools import singledispatch
from typing import Any

from daskgrad.autodiff.models.captured import Captured
from daskgrad.autodiff.models.determinism import SumWithFingerprints
from daskgrad.autodiff.models.model import Call
from daskgrad.autodiff.models.tracing import Active
from daskgrad.autodiff.values.memory import takes_as_arrived
from daskgrad.graph.activity import Graph
from daskgrad.graph.nodes import CallNode, Constant, Node, models, value_of_node
from daskgrad.graph.variables import Variable
from daskgrad.tasks.task_graph import TaskGraph, TasksHere


class DirectSums(dict[Any, Any]):
    """The nodes of sums that are evaluated outside of the graph, by the keys of their input tasks.

    ``client``: Dask would compute with it; None without a cluster.
    """

    def __init__(self, client: Any):
        super().__init__()
        self.client = client


class Forward:
    """The forward pass, while its tasks are added: a reference to each value and captured call.

    ``direct`` takes in sums that are evaluated outside of the graph; None: all are tasks.
    ``here`` is the part of the pass that runs in this process, while the tasks are added.
    """

    def __init__(
        self,
        graph: Graph,
        tasks: TaskGraph,
        direct: DirectSums | None = None,
        here: "Forward | None" = None,
    ):
        self.graph = graph
        self.tasks = tasks
        self.direct = direct
        self._here = here  # None: itself; a cycle would keep variables until it is collected
        self.values = Values(tasks) if here is None else ValuesOfBoth(tasks, here)
        self.staying = graph.inputs_of_one_call if tasks.is_for_cluster else ()  # need not travel
        self.captured: dict[Node, Any] = {}
        self.active: dict[CallNode, tuple[Active, ...]] = {}  # inputs, as they were then
        self.added: dict[Node, Any] = {}  # sums, with the fingerprints of their terms

    @property
    def here(self) -> "Forward":
        return self if self._here is None else self._here

    def inputs(self, node: Node) -> list[Any]:
        return [self.values[source] for source in node.inputs]

    def called(self, node: CallNode) -> tuple[Any, Call, tuple[Active, ...], list[Any]]:
        """The model and its arguments, for the tasks of a node in both passes.

        Made for each pass anew, since the garbage collector goes again and again through all that
        a graph of many nodes keeps.
        """
        model = self.tasks.shared(node.model)
        return model, node.call, self.active[node], self.inputs(node)

    def is_direct(self, node: Node) -> bool:
        """Whether a node is a sum that is evaluated outside of the graph."""
        direct = self.direct
        return direct is not None and node.is_direct(self.graph, direct.client)


class Values(dict[Node, Any]):
    """A reference to each value; variables and constants enter the graph when a task takes them.

    No task takes a variable if its items are summed over: its blocks are sent instead.
    """

    def __init__(self, tasks: TaskGraph):
        self._tasks = tasks

    def __missing__(self, node: Node) -> Any:
        if not isinstance(node, Variable | Constant):
            raise KeyError(node)
        self[node] = value_of_node(node, self._tasks, {})
        return self[node]


class ValuesOfBoth(Values):
    """References to values; some values are in this process."""

    def __init__(self, tasks: TaskGraph, here: Forward):
        super().__init__(tasks)
        self._here = here

    def __missing__(self, node: Node) -> Any:
        if node not in self._here.graph.here:
            return super().__missing__(node)
        key = self._tasks.key("value", node.key_name)  # not its own: it may show borrowed arrays
        self[node] = self._tasks.data(key, self._here.values[node])
        return self[node]


def build_forward(
    graph: Graph, tasks: TaskGraph, direct: DirectSums | None = None, is_lazy: bool = False
) -> Forward:
    """Builds the tasks of the forward pass; inactive nodes get one task that computes the value.

    ``is_lazy``: nothing runs yet, in this process either.
    """
    here = Forward(graph, TasksHere(graph.is_chain)) if graph.here and not is_lazy else None
    forward = Forward(graph, tasks, direct, here)
    tasks.share(models(graph.order))
    tasks.is_chain = graph.is_chain
    for node in graph.order:
        if isinstance(node, Variable | Constant):
            continue  # it enters the graph when a task takes it
        one_pass = forward.here if node in graph.here else forward
        if node in graph.active or forward.is_direct(node):
            forward_tasks(node, one_pass)
        else:
            one_pass.values[node] = value_of_node(node, one_pass.tasks, one_pass.values)
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

    A single model that takes in this value and nothing else runs beside it, and needs no task.
    """
    stays = node in forward.staying
    forward.values[node] = forward.tasks.pick(
        "value", node.name, value_of, captured, stays=stays, annotations=node.annotations
    )


@takes_as_arrived
def value_of(captured: Captured | SumWithFingerprints) -> Any:
    return captured.value
