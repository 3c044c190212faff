"""One call of a user's function, with variables in the place of what is differentiated.

``fun`` is ordinary Python that calls models. It runs once, in the calling thread.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optree

from daskgrad import cotangents
from daskgrad.backward import add_backward
from daskgrad.cotangents import Cotangent, Seed, describe
from daskgrad.demands import (
    constant_output,
    require_derivative,
    require_no_node,
    require_own_variables,
    require_real_scalar,
    warn_of_independent,
    warn_of_shipping,
)
from daskgrad.forward import Whole, add_forward
from daskgrad.graph import Graph
from daskgrad.inline import InLine, seconds_in_line
from daskgrad.nodes import Node, Variable, variable
from daskgrad.running import known_or, repeated
from daskgrad.shards import active_client
from daskgrad.signatures import argument_name
from daskgrad.structures import flatten
from daskgrad.tasks import TaskGraph


class Recording:
    """One call of a user's function with variables in the place of some arguments."""

    def __init__(self, fun: Callable, name: str, argnums: Sequence[int], args: Sequence[Any]):
        self.fun = fun
        self.name = name
        self.args = list(args)
        self.variables = []
        for number in argnums:
            argument = argument_name(fun, number)
            require_no_node(args[number], argument)
            require_derivative(args[number], argument, name)
            self.variables.append(recorded_variable(args[number], argument))
            self.args[number] = self.variables[-1]

    def graph(
        self, output: Node, extras: Sequence[Node] = (), output_is_scalar: bool = False
    ) -> Graph:
        graph = Graph(output, self.variables, extras, output_is_scalar)
        require_own_variables(graph, self.variables, self.name)
        return graph

    def run(self, kwargs: dict, has_aux: bool) -> tuple[Any, Any]:
        result = self.fun(*self.args, **kwargs)
        if not has_aux:
            return result, None
        if not (isinstance(result, tuple) and len(result) == 2):
            raise TypeError(
                f"{self.name!r} must return a pair (output, auxiliary), since has_aux=True; "
                f"found {describe(result)}"
            )
        return result

    def differentiate(self, output: Any, aux: Any) -> tuple[Any, Any, list[Any]]:
        """Value, auxiliary and gradients, computed; the output must be one real number."""
        output = output if isinstance(output, Node) else constant_output(output, self.name)
        aux_leaves, aux_structure = flatten(aux)
        extras = [leaf for leaf in aux_leaves if isinstance(leaf, Node)]
        graph = self.graph(output, extras, output_is_scalar=True)
        value, computed, arrived = repeated(graph, lambda: self._compute(graph, extras))
        require_real_scalar(value, output.name)
        rest = iter(computed)
        aux = [next(rest) if isinstance(leaf, Node) else leaf for leaf in aux_leaves]
        gradients = self.gather(arrived)
        return np.asarray(value)[()], optree.tree_unflatten(aux_structure, aux), gradients

    def _compute(self, graph: Graph, extras: Sequence[Node]) -> tuple[Any, Sequence[Any], dict]:
        """The output's value, those of the extras, and the cotangents that arrive at variables."""
        tasks, client = TaskGraph(), active_client()
        seconds = seconds_in_line(graph, client)
        if not seconds:
            warn_of_shipping(graph, client)
        forward = add_forward(graph, tasks, Whole(client) if seconds else None)
        arrived = add_backward(graph, forward, tasks, Seed())
        references = [forward.values[node] for node in (graph.output, *extras)]
        wanted = [*references, *arrived.values()]
        if forward.whole is None:
            value, *rest = known_or(tasks.compute, wanted)
        else:
            value, *rest = known_or(InLine(tasks, forward.whole, seconds).compute, wanted)
        computed, pulled = rest[: len(extras)], rest[len(extras) :]
        return value, computed, dict(zip(arrived, pulled, strict=True))

    def gather(self, arrived: dict[Variable, Cotangent]) -> list[Any]:
        """The gradient of each variable, from the cotangents that arrived at its parts."""
        gradients, independent = [], []
        for root in self.variables:
            leaves = cotangents.assemble(root.leaves, parts(root, arrived))
            if cotangents.is_zero(leaves):
                independent.append(root)
            gradients.append(cotangents.gradient(root.leaves, root.structure, leaves))
        warn_of_independent(independent, self.name)
        return gradients


def recorded_variable(value: Any, name: str) -> Variable:
    made = variable(value, name)
    made.is_recorded = True
    return made


def parts(root: Variable, arrived: dict[Variable, Any]) -> list[tuple[int, Any]]:
    """What arrived at a variable as a whole and at its parts, in the order of their leaves."""
    found = [node for node in arrived if node.root is root]
    found.sort(key=lambda node: (node.first_leaf, -len(node.leaves)))
    return [(node.first_leaf, arrived[node]) for node in found]
