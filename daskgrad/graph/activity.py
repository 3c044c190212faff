"""Activity: which nodes of a recorded graph are active, and which are scalars."""

import functools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from daskgrad.autodiff.models.as_called import as_called
from daskgrad.autodiff.models.tracing import Active
from daskgrad.autodiff.values.trees import flatten
from daskgrad.graph.expressions import joined, run_here
from daskgrad.graph.nodes import CallNode, Constant, Node, is_chain
from daskgrad.graph.operators import last_of
from daskgrad.graph.order import order
from daskgrad.graph.variables import Variable


class Graph:
    """The nodes that some outputs depend on, inputs first.

    ``active`` nodes are on a path from a variable in ``wrt`` to ``output`` that nothing stops.
    ``extras`` are outputs that only need a value. ``here`` are the nodes that run in this process.
    The values of ``scalars`` must be single real numbers because the output's is; empty unless
    ``output_is_scalar``. ``is_watched``: a value may be computed again, and is then compared with
    the one that its consumers have seen.
    """

    def __init__(
        self,
        output: Node,
        wrt: Sequence[Variable],
        extras: Iterable[Node] = (),
        output_is_scalar: bool = False,
    ):
        self.is_watched = True
        self.wrt = set(wrt)
        reached = order([output], lambda node: () if node.is_stopped else node.inputs)
        self.active = self._active(reached)
        self.extras = tuple(extras)
        if self.extras or any(node.is_stopped or node.is_settled for node in reached):
            outputs = [output, *self.extras]
            reached = order(
                outputs,
                lambda node: () if node.is_settled and node not in self.active else node.inputs,
            )
        for node in reached:
            if node.seen is not None or node.large:  # nearly never
                as_called(reached)
                break
        self.order = joined(reached, {output, *self.extras})
        self.output = output
        if self.order is not reached:
            self.active = {node for node in self.order if node in self.active}
            self.output = next(node for node in self.order if last_of(node) is output)
        self.here = run_here(self.order)
        self.scalars = self._scalars() if output_is_scalar else set()
        self._inputs: dict[tuple[Active, ...], tuple[Active, ...]] = {}

    def active_inputs(self, node: Node) -> tuple[Active, ...]:
        """The differentiated inputs; all but variables and values of this process are watched.

        Equal tuples are one object.
        """
        active = tuple(
            [
                Active(number, self._is_watched(source), source.asked)
                for number, source in enumerate(node.inputs)
                if source in self.active
            ]
        )
        return self._inputs.setdefault(active, active)

    def _is_watched(self, source: Node) -> bool:
        return self.is_watched and not isinstance(source, Variable) and source not in self.here

    def watched_inputs(self, node: Node) -> set[int]:
        """The numbers of the watched inputs; a sum may have very many."""
        return {
            number
            for number, source in enumerate(node.inputs)
            if source in self.active and self._is_watched(source)
        }

    @functools.cached_property
    def is_chain(self) -> bool:
        """Whether no model runs beside another, so that BLAS keeps its threads."""
        return is_chain([node for node in self.order if node not in self.here])

    @functools.cached_property
    def used_once(self) -> set[Node]:
        """The nodes with exactly one active consumer."""
        uses = Counter([source for node in self.active for source in node.inputs])
        return {source for source, count in uses.items() if count == 1}

    @functools.cached_property
    def inputs_of_one_call(self) -> set[Node]:
        """The nodes with one model as their only consumer, which may run where the value is."""
        uses = Counter([source for node in self.order for source in node.inputs])
        calls = [node for node in self.active if isinstance(node, CallNode)]
        pairs = [(node, *node.inputs) for node in calls if len(node.inputs) == 1]
        return {
            source
            for node, source in pairs
            if uses[source] == 1 and node.annotations == source.annotations
        }

    def _active(self, reached: Iterable[Node]) -> set[Node]:
        active: set[Node] = set()
        for node in reached:
            sources = () if node.is_stopped else node.inputs
            is_wanted = isinstance(node, Variable) and node.root in self.wrt
            if is_wanted or any(source in active for source in sources):
                active.add(node)
        return active

    def _scalars(self) -> set[Node]:
        scalars = {self.output}
        for node in reversed(self.order):
            if node in scalars and keeps_scalars(node):
                scalars.update(node.inputs)
        return scalars


def keeps_scalars(node: Node) -> bool:
    """Whether a node is elementwise, so that a scalar value needs scalar inputs."""
    if isinstance(node, CallNode):
        return node.model.operator is not None
    return getattr(type(node), "is_elementwise", False)


def leaves_in(node: Node) -> Sequence[Any]:
    """The arrays that a node brings into a graph: a variable's, or constants."""
    if isinstance(node, Variable):
        return node.leaves
    if isinstance(node, Constant):
        return flatten(node.value)[0]
    return () if node.call is None else node.call.leaves
