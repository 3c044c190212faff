"""The sweep: the cotangents of variables, pulled back along the calls of an eager evaluation.

A recorded graph has a node for each expression, which has a tape of its own, and adds up the
cotangents of a value along a tree. The sweep does so, too: its bits are the graph's.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from daskgrad.autodiff.models.captured import owner
from daskgrad.autodiff.models.tracing import SEED, is_real_scalar
from daskgrad.autodiff.tape.outer import OuterNode
from daskgrad.autodiff.tape.reverse import (
    Cotangents,
    arrays_within,
    backward_order,
    pull_nodes,
)
from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.addition import pairwise
from daskgrad.autodiff.values.cotangents import SMALL, Cotangent
from daskgrad.graph.eager import EagerCall
from daskgrad.graph.expressions import expressions_of
from daskgrad.graph.order import order as order_of

MANY = 3  # uses of a value whose cotangents have several sums
Unit = EagerCall | OuterNode  # a call of a model, or of NumPy
Arrived = dict[OuterNode, list[Any]]  # the cotangents from the uses of each value


class Sweep:
    """The way back from the nodes of the output's leaves, which ``run`` runs models along.

    ``is_kept``: it can be gone many times, by several threads at once.
    """

    def __init__(self, ends: Sequence[OuterNode], run: Callable, is_kept: bool = False):
        self._ends, self._run, self._is_kept = ends, run, is_kept
        self._order = order_of(list(filter(None, map(unit_of, ends))), units_of)
        if len(ends) > 1:  # a graph has a node that takes them in
            self._order.append(EagerCall("output", ends, None))
            self._order[-1].outs = ()
        self._members = expressions(self._order, ends)

    @property
    def is_chain(self) -> bool:
        """Whether no model runs beside another: see ``nodes.is_chain``."""
        before: Sequence[OuterNode | None] = ()
        for unit in self._order:
            is_call = isinstance(unit, EagerCall)
            if is_call and unit.is_addition:
                continue
            if not is_call and (unit not in self._members or unit.is_small):
                continue
            inputs = unit.sources if is_call else inputs_of(self._members[unit])
            if is_call and not unit.is_run:
                return False
            if before and not any([node in before for node in inputs]):
                return False
            if is_call:
                before = unit.outs
            else:  # a joined expression is not the node that its consumers have taken in
                is_alone = len(self._members[unit]) == 1 and unit.is_operator
                before = (unit if is_alone or unit.is_selection else None,)
        return True

    @property
    def is_as_moved(self) -> bool:
        """Whether NumPy has got other calls' arrays in C order, in which a graph moves them."""
        inside = {node: last for last, nodes in self._members.items() for node in nodes}
        for last, nodes in self._members.items():
            for node in nodes:
                for parent in node.parents:
                    if parent.fun is not None and inside.get(parent) is not last:
                        flags = getattr(parent.value, "flags", None)
                        if flags is not None and not flags.c_contiguous:
                            return False
        return True

    @property
    def shape(self) -> tuple[int, ...]:
        """How many values each call has taken in."""
        return tuple([len(inputs_below(unit)) for unit in self._order])

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the models that were called, in alphabetical order."""
        calls = [unit for unit in self._order if isinstance(unit, EagerCall) and unit.called]
        return tuple(sorted([call.name for call in calls if not call.is_addition]))

    def may_be_apart(self, arguments: Sequence[Sequence[OuterNode | None]]) -> bool:
        """Whether a recorded graph may add up the cotangents of a container in another order: of a
        call's value, or of one of the ``arguments``, beside the cotangents of its parts."""
        uses: dict[OuterNode, list[Sequence[OuterNode]]] = defaultdict(list)
        for end in self._ends:
            uses[end].append(())
        for unit in self._order:
            inputs: Sequence[OuterNode] = ()
            count = 1
            if isinstance(unit, EagerCall):
                inputs = unit.sources
                count = MANY if unit.called and unit.repeats_a_value else 1
            elif unit in self._members:
                inputs = inputs_of(self._members[unit])
            for node in inputs:
                uses[node] += [inputs] * count
        often = [node for node, users in uses.items() if len(users) >= MANY]
        if any([node.call is not None and len(node.call.outs) > 1 for node in often]):
            return True
        for nodes in arguments:
            leaves = {node for node in nodes if node is not None}
            for node in leaves.intersection(often):
                if len(leaves) == 1 or any([len(leaves.intersection(x)) > 1 for x in uses[node]]):
                    return True
        return False

    def pull(self, seeds: Sequence[Any]) -> dict[OuterNode, Cotangent]:
        """The cotangents of variables, from the cotangents of the ends."""
        arrived: Arrived = defaultdict(list)
        for end, seed in zip(self._ends, seeds, strict=True):
            arrived[end].append(seed)
        later = []
        for unit in reversed(self._order):
            if isinstance(unit, EagerCall):
                if not arrived.keys().isdisjoint(unit.outs):
                    pull_call(unit, arrived, self._run)
                    if not self._is_kept:
                        unit.release()
            elif unit in self._members and unit in arrived:
                if unit.is_small:
                    later.append(unit)
                else:
                    pull_expression(unit, self._members[unit], arrived)
                    if not self._is_kept:
                        unit.value = None
        if later:  # NumPy on small variables, once all other cotangents have arrived
            for node, terms in arrived.items():
                arrived[node] = [total(terms)]
            for unit in reversed(self._order):
                if type(unit) is OuterNode and unit.is_small and unit in arrived:
                    if unit in self._members:
                        pull_expression(unit, self._members[unit], arrived)
        return {node: Cotangent((total(terms),)) for node, terms in arrived.items()}


def total(terms: list[Any]) -> Any:
    """The sum of the cotangents of a value, in the order of its uses."""
    if len(terms) == 1:
        return terms[0]
    return pairwise([(term,) for term in terms[::-1]], cotangents.add)[0]


def pull_call(call: EagerCall, arrived: Arrived, run: Callable) -> None:
    leaves = tuple([total(arrived.pop(out)) if out in arrived else None for out in call.outs])
    is_zero = cotangents.is_zero(leaves)
    pulled = [None] * len(call.sources) if is_zero else run(call.pull, leaves)
    pairs = list(zip(call.sources, pulled, strict=True))
    for source, cotangent in reversed(pairs) if call.is_addition else pairs:
        arrived[source].append(cotangent)


def unit_of(node: OuterNode) -> Unit | None:
    """The call that has made a value; None for a variable."""
    return node.call or (node if node.parents else None)


def inputs_below(unit: Unit) -> Sequence[OuterNode]:
    """The values that a call takes in."""
    return unit.sources if isinstance(unit, EagerCall) else unit.parents


def units_of(unit: Unit) -> list[Any]:
    """The calls that have made the values that a call takes in."""
    return list(filter(None, map(unit_of, inputs_below(unit))))


def expressions(
    order: Sequence[Any], ends: Sequence[OuterNode]
) -> dict[OuterNode, list[OuterNode]]:
    """NumPy's calls of each expression, inputs first, by its last call; see
    ``expressions.joined``."""
    light: dict[OuterNode, None] = {}
    members: dict[OuterNode, list[OuterNode]] = {}
    of_sums: set[OuterNode] = set()
    for unit in order:
        if isinstance(unit, EagerCall):
            continue
        if unit.is_selection:
            members[unit] = [unit]
        elif unit.is_operator and any([p in of_sums or is_sum(p) for p in unit.parents]):
            of_sums.add(unit)
            members[unit] = [unit]
        else:
            light[unit] = None
    if len(light) <= 1:
        members.update({node: [node] for node in light})
        return members
    return members | expressions_of(light, order, inputs_below, lambda node, _: node not in ends)


def is_sum(node: OuterNode) -> bool:
    return node.call is not None and node.call.is_sum


def inputs_of(nodes: Sequence[OuterNode]) -> list[OuterNode]:
    """The values that an expression takes in."""
    inside = set(nodes)
    return list(
        dict.fromkeys([parent for node in nodes for parent in node.parents if parent not in inside])
    )


def pull_expression(last: OuterNode, nodes: list[OuterNode], arrived: Arrived) -> None:
    """Pulls the cotangent of an expression's value back to its inputs, as its own tape would."""
    g, factor = total(arrived.pop(last)), None
    inputs = inputs_of(nodes)
    if g is None:
        for node in inputs:
            arrived[node].append(None)
        return
    g = cotangents.seed(g, last.value)
    if not last.is_selection and is_real_scalar([last.value]):
        size = cotangents.nbytes([node.value for node in inputs])
        if size <= SMALL or size <= held_by(nodes, inputs):  # its gradient is kept, and scaled
            factor, g = g, SEED.as_like(last.value)
    sums = Cotangents()
    sums.value[last] = g
    pull_nodes(nodes if len(nodes) == 1 else backward_order([last], set(nodes)), sums)
    for node in inputs:
        leaf = cotangents.project(sums.value.get(node), node.value)
        arrived[node].append(leaf if factor is None else cotangents.scale((leaf,), factor)[0])


def held_by(nodes: Sequence[OuterNode], inputs: Sequence[OuterNode]) -> int:
    """The bytes that the tape of an expression holds beside its inputs."""
    others = {id(owner(node.value)) for node in inputs}
    held = arrays_within([node.pullback for node in nodes])
    return sum([array.nbytes for array in held if id(array) not in others])
