"""Expressions: connected calls of NumPy between models, joined into one node.

A graph has one node for each expression: its last call, with all others in the node's model. An
expression of small variables alone runs in the calling thread, in both passes: it costs no task.
Its pullback runs when the cotangents of the other nodes have arrived.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from operator import attrgetter
from typing import Any

from daskgrad.autodiff.models.model import Call, Model, Operator
from daskgrad.autodiff.tape.rule_calls import unbox_container
from daskgrad.autodiff.values.carriers import carrier
from daskgrad.autodiff.values.cotangents import nbytes
from daskgrad.graph.nodes import HEAVY, CallNode, Node, call_of_leaves
from daskgrad.graph.variables import Variable

MOST_INPUTS = 16  # of an expression: all of them are in memory at once


@carrier
class Expression:
    """The function of an expression: calls on inputs and on earlier results.

    ``sources`` are their numbers, call by call; ``places`` are the calls' lines in the program.
    """

    functions: tuple[Callable, ...]
    calls: tuple[Call, ...]
    sources: tuple[tuple[int, ...], ...]
    places: tuple[tuple[str, int] | None, ...]

    def __call__(self, *inputs: Any) -> Any:
        values = list(inputs)
        steps = zip(self.functions, self.calls, self.sources, self.places, strict=True)
        for function, call, sources, place_in_program in steps:  # a warning looks for this name
            args, kwargs = call.arguments([values[number] for number in sources])
            try:
                values.append(function(*args, **kwargs))
            except Exception as error:
                if place_in_program is not None:
                    file, line = place_in_program
                    error.add_note(f"daskgrad: the call stands in {file}, line {line}")
                raise
        return unbox_container(values[-1])  # of functions that return several arrays


class ExpressionNode(CallNode):
    """An expression, in the place of its last call: with its key, and equal to it."""

    is_light = True

    def __init__(self, nodes: Sequence[CallNode]):
        last = nodes[-1]
        inside = set(nodes)
        inputs = [source for node in nodes for source in node.inputs if source not in inside]
        self.inputs = tuple(dict.fromkeys(inputs))
        numbers = {node: number for number, node in enumerate((*self.inputs, *nodes))}
        expression = Expression(
            tuple([node.model.fun for node in nodes]),
            tuple([node.call for node in nodes]),
            tuple([tuple([numbers[source] for source in node.inputs]) for node in nodes]),
            tuple([node.call.place for node in nodes]),
        )
        is_elementwise = all([node.model.operator is not None for node in nodes])
        operator = Operator() if is_elementwise else None
        self.model = Model(expression, last.model.name, last.model.backend, operator=operator)
        self.call = call_of_leaves(len(self.inputs))._replace(place=last.call.place)
        self.name, self.key_name, self.key = last.name, last.key_name, last.key
        self.annotations, self.stage, self.is_here = last.annotations, last.stage, last.is_here
        self.stands_for = last

    def __hash__(self) -> int:
        return hash(self.stands_for)


def joined(nodes: list[Node], kept: Collection[Node]) -> list[Node]:
    """The nodes, inputs first, with expressions in the place of their calls.

    A call joins the expression of its only consumers, unless it is among the ``kept`` nodes, or can
    run in this process and they cannot.
    """
    light: dict[Node, None] = {}
    of_sums: set[Node] = set()  # operators that pass cotangents on to sums: see ``Operator``
    for node in nodes:
        if not node.is_light or node.is_settled:
            continue
        if node.model.operator is not None and any(
            [source in of_sums or is_sum(source) for source in node.inputs]
        ):
            of_sums.add(node)
        else:
            light[node] = None
    if not light:
        return nodes
    members = expressions_of(
        light,
        nodes,
        attrgetter("inputs"),
        lambda node, last: node not in kept and node.annotations == last.annotations,
    )
    made = {
        last: ExpressionNode(calls)
        for last, calls in members.items()
        if len(calls) > 1 or last.model.operator is None
    }
    return [made.get(node, node) for node in nodes if node not in light or node in members]


def expressions_of(
    light: Collection[Any],
    calls: Iterable[Any],
    inputs_of: Callable[[Any], Sequence[Any]],
    may_join: Callable[[Any, Any], bool],
) -> dict[Any, list[Any]]:
    """The ``light`` ones among calls by the last call of their expression; both inputs first.

    A call joins the expression of its only consumers if it ``may_join`` their last call, and both
    run in this process or neither does.
    """
    consumers: dict[Any, list[Any]] = defaultdict(list)
    for call in calls:
        for source in inputs_of(call):
            consumers[source].append(call)
    lasts: dict[Any, Any] = {}  # of the expression that a call belongs to
    members: dict[Any, list[Any]] = {}
    inputs: dict[Any, set[Any]] = {}
    for call in reversed(light):  # type: ignore[call-overload]
        last = lasts.get(consumers[call][0], call) if consumers[call] else call
        if last is not call and not (
            may_join(call, last)
            and call.is_here == last.is_here
            and all([lasts.get(consumer) is last for consumer in consumers[call]])
            and len(inputs[last].union(inputs_of(call))) <= MOST_INPUTS
        ):
            last = call
        lasts[call] = last
        members.setdefault(last, []).append(call)
        inputs.setdefault(last, set()).update(inputs_of(call))
        inputs[last].discard(call)
    return {last: nodes[::-1] for last, nodes in members.items()}


def is_sum(node: Node) -> bool:
    """Whether it is a sum or a loop, which takes in nodes and calls a model many times."""
    return bool(node.inputs) and not isinstance(node, CallNode)


def run_here(nodes: Iterable[Node]) -> set[Node]:
    """The nodes, inputs first, that run in this process: NumPy on small variables, their items.

    A call with annotations, which are for Dask, is a task.
    """
    small: set[Node] = set()
    for node in nodes:
        if not node.is_here or node.is_settled or node.annotations:
            continue
        if node.inputs:
            is_small = all([source in small for source in node.inputs])
        else:
            is_small = isinstance(node, Variable) and nbytes(node.leaves) <= HEAVY
        if is_small:
            small.add(node)
    return {node for node in small if node.inputs}
