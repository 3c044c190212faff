"""The backward graph, which mirrors the forward graph: one task a node, in reverse order.

Each task pulls the cotangent of its node's value back to the cotangents of the active inputs. The
cotangents of a value that was used several times are added in the order of the uses.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any, NamedTuple

from daskgrad.autodiff.models.determinism import fingerprints_of
from daskgrad.autodiff.models.portions import add_sent_back, pull_back_item
from daskgrad.autodiff.models.pullbacks import add_cotangents, pull_back
from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.addition import in_groups
from daskgrad.autodiff.values.cotangents import Cotangent
from daskgrad.autodiff.values.memory import takes_as_arrived
from daskgrad.graph.activity import Graph
from daskgrad.graph.forward import Forward
from daskgrad.graph.nodes import CallNode, ItemNode, Node
from daskgrad.graph.variables import Variable
from daskgrad.tasks.task_graph import TaskGraph, TasksHere


class Contribution(NamedTuple):
    """The cotangent that one consumer returns for a value, or a reference to it.

    ``saw_value``: the consumer worked on the value itself. A sum passes on the cotangent of its own
    value, with another fingerprint; so ``sums`` refers to the ``Fingerprints`` that each sum has
    seen, with the number of the value among its inputs. ``is_item``: it may be a ``Portion``, the
    cotangent of one item of the value.
    """

    cotangent: Any
    saw_value: bool = True
    sums: tuple[tuple[Any, int], ...] = ()
    is_item: bool = False


@dataclass(slots=True, eq=False)
class Backward:
    """The backward pass, while its tasks are added: the contributions to each node so far.

    ``repeated``: the parts of the forward pass whose tasks were added once more.
    """

    graph: Graph
    forward: Forward
    tasks: TaskGraph
    contributions: dict[Node, list[Contribution]] = field(default_factory=lambda: defaultdict(list))
    repeated: set[Any] = field(default_factory=set)

    def send(self, node: Node, contribution: Contribution) -> None:
        """Hands a cotangent to an input if the input is active."""
        if node in self.graph.active:
            self.contributions[node].append(contribution)

    def send_all(self, node: Node, cotangents: Any) -> None:
        """Hands the result of a node's backward task to its active inputs."""
        active = [source for source in node.inputs if source in self.graph.active]
        if len(active) == 1:
            return self.send(active[0], Contribution(cotangents))
        for number, source in enumerate(active):
            pick = node.build_pick(self.tasks, "cotangent", select, cotangents, number)
            self.send(source, Contribution(pick))

    def value_elsewhere(self, node: Node, arrived: Contribution) -> Any:
        """A value as others have seen it, if the cotangent carries no fingerprint of it."""
        if arrived.sums:
            return seen_in_sums(arrived)
        return None if arrived.saw_value else self.forward.values[node]

    def build_fingerprints(self, node: Node, arrived: Contribution, names: str) -> Any:
        """Builds a task that compares, and returns, the fingerprints of a sum and its consumers."""
        args = (self.forward.added[node], arrived.cotangent, seen_in_sums(arrived), names)
        return node.build_task(self.tasks, "cotangent", fingerprints_of, *args)


def seen_in_sums(arrived: Contribution) -> list[Any]:
    """A ``SeenInSums``, of references."""
    return [arrived.saw_value, *itertools.chain.from_iterable(arrived.sums)]


def build_backward(
    forward: Forward, tasks: TaskGraph, cotangent: Cotangent, saw_value: bool = False
) -> dict[Variable, Any]:
    """Builds the tasks of the backward pass, from the cotangent of the output.

    Returns a reference to the cotangent of each variable, or part of one, that it reached.
    ``saw_value``: the cotangent carries the fingerprint of the output's value.
    Nodes that run in this process count as variables: ``pull_here`` pulls these back.
    """
    graph = forward.graph
    backward = Backward(graph, forward, tasks)
    backward.send(graph.output, Contribution(cotangent, saw_value))
    arrived = {}
    for node in reversed(graph.order):
        if node in backward.contributions:
            total = accumulate(node, backward)
            if isinstance(node, Variable) or node in graph.here:
                arrived[node] = tasks.keep("cotangent", node.key_name, total.cotangent)
            else:
                backward_tasks(node, backward, total)
    return arrived


def pull_here(
    forward: Forward,
    arrived: dict[Variable, Any],
    tasks: TaskGraph | None = None,
    is_batched: bool = False,
) -> dict[Variable, Any]:
    """Pulls cotangents that arrived at nodes of this process back to the variables.

    ``tasks``: adds tasks that do so. A variable's other cotangents come before these.
    ``is_batched``: they are batches.
    """
    graph = forward.graph
    if not graph.here:
        return arrived
    tasks = TasksHere(graph.is_chain, is_batched) if tasks is None else tasks
    backward = Backward(graph, forward.here, tasks)
    for node, cotangent in arrived.items():
        backward.contributions[node].append(Contribution(cotangent, saw_value=False))
    at_variables = {}
    for node in reversed(graph.order):
        if node in backward.contributions:
            total = accumulate(node, backward)
            if isinstance(node, Variable):
                at_variables[node] = tasks.keep("cotangent", node.key_name, total.cotangent)
            else:
                backward_tasks(node, backward, total)
    return at_variables


def accumulate(node: Node, backward: Backward) -> Contribution:
    """Adds the contributions of a value's consumers, in their order, along the tree."""
    returned = backward.contributions.pop(node)[::-1]  # held no longer than it is used

    def add(group: Sequence[Contribution], is_last: bool) -> Contribution:
        are_items = [term.is_item for term in group]
        saw_value = tuple([term.saw_value for term in group])
        args = [[term.cotangent for term in group], saw_value, cotangents.add, node.name]
        if any(are_items) and (is_last or not all(are_items)):
            args.append(backward.forward.values[node])
        fun = add_sent_back if any(are_items) else add_cotangents
        total = node.build_task(backward.tasks, "cotangent", fun, *args)
        sums = tuple([pair for term in group for pair in term.sums])
        return Contribution(total, any(saw_value), sums, all(are_items) and not is_last)

    total = in_groups(returned, add)
    return add([total], True) if total.is_item else total


@takes_as_arrived
def select(cotangents: Sequence[Cotangent], number: int) -> Cotangent:
    return cotangents[number]


@singledispatch
def backward_tasks(node: Node, backward: Backward, arrived: Contribution) -> None:
    """Builds a node's task and sends its results to the node's active inputs."""
    raise NotImplementedError(f"no backward tasks for {node!r}")


@backward_tasks.register
def _(node: CallNode, backward: Backward, arrived: Contribution) -> None:
    backward.send_all(node, build_pull_back(node, backward, arrived, pull_back))


@backward_tasks.register
def _(node: ItemNode, backward: Backward, arrived: Contribution) -> None:
    source = node.inputs[0]
    is_alone = source in backward.graph.used_once
    pulled = build_pull_back(node, backward, arrived, pull_back_item, is_alone)
    backward.send(source, Contribution(pulled, is_item=not is_alone))


def build_pull_back(
    node: CallNode, backward: Backward, arrived: Contribution, fun: Callable, *more: Any
) -> Any:
    forward, elsewhere = backward.forward, backward.value_elsewhere(node, arrived)
    args = (forward.captured[node], arrived.cotangent, *forward.called(node), elsewhere, *more)
    return node.build_task(backward.tasks, "backward", fun, *args)
