"""Item sums: sums over models. A reduction is recorded as one node.

The blocks of a sum whose value is one real number return (value, gradient), and both are added up
along one tree. The blocks of any other sum keep their pullbacks, and have a backward task each.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from daskgrad.graph.activity import Graph
from daskgrad.graph.backward import Backward, Contribution, backward_tasks, select
from daskgrad.graph.forward import DirectSums, Forward, forward_tasks, pass_value_on, value_of
from daskgrad.graph.nodes import Node, make_call
from daskgrad.graph.tangents import Tangents, dual_node, tangent_node
from daskgrad.models.duals import Dual
from daskgrad.models.model import Model, identity
from daskgrad.models.tracing import Active
from daskgrad.sums.adding import add_captured, add_parts
from daskgrad.sums.block_tasks import (
    First,
    Summand,
    capture_block,
    evaluate_block,
    pull_back_block,
    pull_back_sum,
)
from daskgrad.sums.item_cotangents import (
    column_of,
    columns_in,
    join_items,
    pull_back_items,
    without_items,
)
from daskgrad.sums.node_sum import AddedNode, add_up, add_up_seen, in_tree, waits_for_value
from daskgrad.sums.sources import Column, as_column
from daskgrad.sums.zipping import Items
from daskgrad.tasks.task_graph import TaskGraph
from daskgrad.values.caches import drop_oldest

Block = tuple[First, list[Any]]  # where it begins, and what each column has in it


ARRAY_VALUED = 1024  # models that are remembered since their terms turned out not to be numbers
_array_valued: dict[Any, None] = {}  # those whose items are sent to the workers; the latest


class ReductionNode(AddedNode):
    """The sum of ``model(item, *shared)`` over blocks of items.

    A term's inputs are the parts of its item (one, or those of a zip), and then the nodes in
    ``shared``. ``inputs`` are the nodes in ``shared``, and then the variables among the parts.
    """

    def __init__(
        self,
        model: Model,
        shared: tuple,
        items: Items,
        template: Any = None,
        summation: str = "pairwise",
    ):
        call, shared_inputs = make_call(model, (template, *shared), {})
        parts = len(items.columns)
        self.own = [n for n, column in enumerate(items.columns) if column.variable is not None]
        variables = [column.variable for column in items.columns if column.variable is not None]
        super().__init__(model.name, [*shared_inputs, *variables])
        self.model = model
        own_holes = [(number, number) for number in range(parts)]
        holes = [(position, number + parts) for position, number in call.holes]
        self.call = call._replace(holes=(*own_holes, *holes))
        self.items = items
        self.summation = summation
        self.width = len(shared_inputs)

    def add_value(self, tasks: TaskGraph, inputs: list[Any]) -> Any:
        model = tasks.shared(self.model)
        summand = self.summand()
        values = [
            tasks.add(
                tasks.key(self.stage, self.name) if summand.is_partial else self.key,
                evaluate_block,
                model,
                summand,
                first,
                inputs[: self.width],
                *columns,
                annotations=self.annotations,
            )
            for first, columns in self.blocks(tasks)
        ]
        return add_up(self, tasks, values, self.key) if summand.is_partial else values[0]

    def blocks(self, tasks: TaskGraph, used_twice: bool = False) -> list[Block]:
        data = self.items.data(tasks, self.name, used_twice)
        return list(zip(self.items.firsts, data, strict=True))

    def summand(self, graph: Graph | None = None) -> Summand:
        """What it adds up, differentiated as ``graph`` says."""
        active, items = () if graph is None else self.active_terms(graph), self.items
        return Summand(
            self.call,
            active,
            self.summation,
            len(items.columns),
            items.placed_part,
            items.slices,
            self.is_partial,
        )

    @property
    def is_partial(self) -> bool:
        """Whether a block is not the whole sum."""
        return len(self.items.firsts) > 1 or self.may_be_empty

    @property
    def may_be_empty(self) -> bool:  # type: ignore[override]
        """Whether a block may turn out to have no items."""
        return not self.items.is_counted

    def is_on(self, client: Any) -> bool:
        """Whether one part of its items is on the cluster of a client, and the others are here."""
        placed, others = self.items.placed, self.items.beside_placed
        is_there = len(placed) == 1 and placed[0].is_on(client)
        return is_there and all([column.is_here for column in others])

    def is_sent(self, client: Any) -> bool:
        """Whether its items are variables', perhaps beside others that are here, and can go to the
        workers of a client with a request."""
        is_apart = client is not None and bool(self.own) and not self.items.placed
        return is_apart and self.items.is_here

    @property
    def has_array_terms(self) -> bool:
        """Whether the model's terms over these items turned out not to be numbers."""
        return identity(self.model) in self._array_valued

    def note_array_terms(self) -> None:
        known = self._array_valued
        known[identity(self.model)] = None
        drop_oldest(known, ARRAY_VALUED)

    @property
    def _array_valued(self) -> dict[Any, None]:
        return self.items.placed[0].array_valued if self.items.placed else _array_valued

    def active_terms(self, graph: Graph) -> tuple[Active, ...]:
        """Which inputs of a term are differentiated; none of a sum that is not active itself."""
        if self not in graph.active:  # behind stop_gradient, or beside the output
            return ()
        parts = len(self.items.columns)
        own = [Active(number, watched=False) for number in self.active_parts(graph)]
        shared = [
            active._replace(number=active.number + parts)
            for active in graph.active_inputs(self)
            if active.number < self.width
        ]
        return (*own, *shared)

    def active_parts(self, graph: Graph) -> list[int]:
        """Which parts of an item are differentiated."""
        if self not in graph.active:
            return []
        pairs = zip(self.own, self.inputs[self.width :], strict=True)
        return [number for number, variable in pairs if variable in graph.active]

    def active_shared(self, graph: Graph) -> list[Node]:
        return [source for source in self.inputs[: self.width] if source in graph.active]

    def is_fused(self, graph: Graph) -> bool:
        """Whether the blocks' values and gradients are added up together.

        Known before anything runs: the value is one real number, since the output is and depends on
        it elementwise, or since ``keep`` says so.
        """
        return self.model.keep == "gradient" or (
            self in graph.scalars and self.model.keep == "auto"
        )

    def is_direct(self, graph: Graph, client: Any) -> bool:
        """Whether its value and gradient can be evaluated directly, outside of a graph.

        By the workers also where it may turn out not to be one real number: it usually is.
        """
        if not (self.is_on(client) or self.is_sent(client)):
            is_plain = self.items.is_here and not self.own
            return is_plain and self in graph.active and self.is_fused(graph)
        if self.has_array_terms:
            return False
        return self not in graph.active or self.model.keep == "auto" or self.is_fused(graph)


@forward_tasks.register
def _(node: ReductionNode, forward: Forward) -> None:
    if forward.direct is not None and forward.is_direct(node):
        fused = direct_sum(node, forward, forward.direct)
    elif node.is_fused(forward.graph):
        fused = fused_blocks(node, forward)
    else:
        return add_kept_blocks(node, forward)
    forward.captured[node] = fused
    pass_value_on(node, forward, fused.total)


def direct_sum(node: ReductionNode, forward: Forward, direct: DirectSums) -> "Fused":
    """Adds a task that only gathers the inputs of a sum, whose result is put in its place."""
    tasks, key = forward.tasks, forward.tasks.key("forward", node.name)
    direct[key] = node
    total = tasks.add(key, list, shared_values(node, forward))
    columns = [
        tasks.add(tasks.key("cotangent", node.name), columns_in, total, number)
        for number in range(len(node.active_parts(forward.graph)))
    ]
    return Fused(total, columns)


def add_kept_blocks(node: ReductionNode, forward: Forward) -> None:
    """Adds the tasks of a sum whose blocks keep their pullbacks until the backward pass."""
    data = node.blocks(forward.tasks, used_twice=True)
    blocks = captured_blocks_of(node, forward, data)
    values = block_values(node, forward.tasks, blocks)
    forward.captured[node] = list(zip(blocks, values, data, strict=True))
    if node.is_partial:
        add_up_seen(node, forward, values)
    else:
        (forward.values[node],) = values


def captured_blocks_of(node: ReductionNode, forward: Forward, data: Sequence[Block]) -> list[Any]:
    summand, inputs = node.summand(forward.graph), shared_values(node, forward)
    return captured_blocks(node, forward.tasks, summand, inputs, data)


def captured_blocks(
    node: ReductionNode,
    tasks: TaskGraph,
    summand: Summand,
    inputs: list[Any],
    data: Sequence[Block],
) -> list[Any]:
    """Adds a task for each of these blocks, which captures it."""
    model = tasks.shared(node.model)
    return [
        tasks.add(
            tasks.key("forward", node.name),
            capture_block,
            model,
            summand,
            first,
            inputs,
            *columns,
            annotations=node.annotations,
        )
        for first, columns in data
    ]


def shared_values(node: ReductionNode, forward: Forward) -> list[Any]:
    return [forward.values[source] for source in node.inputs[: node.width]]


class Fused(NamedTuple):
    """References to the sum of captured blocks, and for each differentiated part of the items to
    the cotangents of each block's items."""

    total: Any
    columns: list[Any]


def fused_blocks(node: ReductionNode, forward: Forward) -> Fused:
    tasks, parts = forward.tasks, node.active_parts(forward.graph)
    blocks = captured_blocks_of(node, forward, node.blocks(tasks))
    if not parts:
        return Fused(add_captured_blocks(node, tasks, blocks), [])
    add = functools.partial(tasks.add, annotations=node.annotations)
    summed = [add(tasks.key("forward", node.name), without_items, block) for block in blocks]
    pairs, model = list(zip(blocks, summed, strict=True)), tasks.shared(node.model)
    columns = [
        [add(tasks.key("cotangent", node.name), column_of, b, n, s, model) for b, s in pairs]
        for n in range(len(parts))
    ]
    return Fused(add_captured_blocks(node, tasks, summed), columns)


def add_captured_blocks(
    node: ReductionNode, tasks: TaskGraph, blocks: Sequence[Any], are_all: bool = True
) -> Any:
    """Adds the tasks that add up captured blocks; ``are_all``: there are no others."""
    model = tasks.shared(node.model)

    def add(group: Sequence[Any], is_last: bool) -> Any:
        key = tasks.key("forward", node.name)
        args = (model, list(group), node.summation, is_last and are_all)
        return tasks.add(key, add_captured, *args, annotations=node.annotations)

    return in_tree(node, blocks, add)


def block_values(node: ReductionNode, tasks: TaskGraph, blocks: Sequence[Any]) -> list[Any]:
    pick = functools.partial(tasks.pick, "value", node.name, value_of)
    return [pick(block, annotations=node.annotations) for block in blocks]


@backward_tasks.register
def _(node: ReductionNode, backward: Backward, arrived: Contribution) -> None:
    shared, tasks = node.active_shared(backward.graph), backward.tasks
    if isinstance(backward.forward.captured[node], Fused):
        if shared:
            send_each(node, backward, pull_back_fused(node, backward, arrived), shared)
        for number, part in enumerate(node.active_parts(backward.graph)):
            pull_back_fused_items(node, backward, arrived, number, part)
        return
    parts = node.active_parts(backward.graph)
    pulled = pulled_back_blocks(node, backward, arrived)
    for number, source in enumerate(shared):
        terms = picked(node, tasks, pulled, number, len(shared) + len(parts))
        backward.send(source, add_up_parts(node, source, tasks, terms))
    for number, part in enumerate(parts, len(shared)):
        columns = picked(node, tasks, pulled, number, len(shared) + len(parts))
        join_columns(node, backward, columns, part)


def send_each(node: Node, backward: Backward, cotangents: Any, to: Sequence[Node]) -> None:
    """Hands what a task returned, one cotangent or several, to each of these inputs."""
    for number, source in enumerate(to):
        backward.send(source, picked(node, backward.tasks, [cotangents], number, len(to))[0])


def pull_back_fused(node: ReductionNode, backward: Backward, arrived: Contribution) -> Any:
    tasks = backward.tasks
    return tasks.add(
        tasks.key("backward", node.name),
        pull_back_sum,
        backward.forward.captured[node].total,
        arrived.cotangent,
        tasks.shared(node.model),
        backward.witness(node, arrived),
        annotations=node.annotations,
    )


def pull_back_fused_items(
    node: ReductionNode, backward: Backward, arrived: Contribution, number: int, part: int
) -> None:
    """Adds the task that puts the cotangents of one part of the items together, and scales them."""
    tasks, fused = backward.tasks, backward.forward.captured[node]
    joined = tasks.add(
        tasks.key("backward", node.name),
        pull_back_items,
        fused.columns[number],
        node.items.sizes,
        node.items.are_rows(part),
        fused.total,
        arrived.cotangent,
        tasks.shared(node.model),
        backward.witness(node, arrived),
        annotations=node.annotations,
    )
    backward.send(node.items.variable(part), joined)


def join_columns(node: ReductionNode, backward: Backward, blocks: Any, part: int) -> None:
    """Adds the task that puts the cotangents of one part of the items together."""
    tasks = backward.tasks
    joined = tasks.add(
        tasks.key("cotangent", node.name),
        join_items,
        list(blocks),
        node.items.sizes,
        node.items.are_rows(part),
        annotations=node.annotations,
    )
    backward.send(node.items.variable(part), joined)


def pulled_back_blocks(node: ReductionNode, backward: Backward, arrived: Contribution) -> list[Any]:
    tasks, summand = backward.tasks, node.summand(backward.graph)
    model, inputs = tasks.shared(node.model), shared_values(node, backward.forward)
    captured = backward.forward.captured[node]
    witnesses = seen_of_blocks(node, backward, arrived)
    data = node.items.placed_now(tasks, [columns for _, _, (_, columns) in captured])
    return [
        tasks.add(
            tasks.key("backward", node.name),
            pull_back_block,
            block,
            arrived.cotangent,
            model,
            summand,
            first,
            inputs,
            witness,
            *columns,
            annotations=node.annotations,
        )
        for (block, _, (first, _)), columns, witness in zip(captured, data, witnesses, strict=True)
    ]


def seen_of_blocks(node: ReductionNode, backward: Backward, arrived: Contribution) -> list[Any]:
    """What the sum of the blocks has seen of each, or what others have of it."""
    values = [value for _, value, _ in backward.forward.captured[node]]
    if not node.is_partial:
        return [backward.witness(node, arrived)]
    if not waits_for_value(node, backward, arrived):
        return values
    prints = backward.add_prints(node, arrived, repr(node.name))
    return [[False, prints, number] for number in range(len(values))]


def picked(
    node: Node, tasks: TaskGraph, pulled: Sequence[Any], number: int, count: int
) -> Sequence[Any]:
    """What each block returned for one of ``count`` active inputs."""
    if count == 1:
        return pulled
    pick = functools.partial(tasks.pick, "cotangent", node.name, select)
    return [pick(block, number, annotations=node.annotations) for block in pulled]


def add_up_parts(node: ReductionNode, source: Node, tasks: TaskGraph, parts: Sequence[Any]) -> Any:
    """Adds the tasks that add up what the blocks returned for one input."""

    def add(group: Sequence[Any], is_last: bool) -> Any:
        key = tasks.key("cotangent", source.name)
        args = (list(group), is_last, node.summation, source.name)
        return tasks.add(key, add_parts, *args, annotations=source.annotations)

    return in_tree(node, parts, add)


# ------------------------------------------------------------------------------------ tangents


@dual_node.register
def _(node: ReductionNode, tangents: Tangents) -> ReductionNode:
    return pushed_sum(node, tangents, tangent_only=False)


@tangent_node.register
def _(node: ReductionNode, tangents: Tangents) -> ReductionNode:
    return pushed_sum(node, tangents, tangent_only=True)


def pushed_sum(node: ReductionNode, tangents: Tangents, tangent_only: bool) -> ReductionNode:
    """The sum of the terms' duals, or of their tangents; differentiated items become duals, too."""
    shared = tangents.arguments(node)[: node.width]
    parts = [None] * len(node.items.columns)
    (template, *rest), _ = node.call.arguments([*parts, *shared])
    columns, duals = dual_columns(node, tangents)
    whole = (template,) if template is None else template
    whole = tuple([dual if dual else part for dual, part in zip(duals, whole, strict=True)])
    return ReductionNode(
        tangents.model(node.model, tangent_only),
        tuple(rest),
        node.items.with_columns(columns),
        whole[0] if template is None else whole,
        node.summation,
    )


def dual_columns(node: ReductionNode, tangents: Tangents) -> tuple[list[Column], list[Any]]:
    """The columns with those of the tangents, and for each part of an item the place of its dual.

    The place is ``None`` where a part is not differentiated.
    """
    active = node.active_parts(tangents.graph)
    columns, duals = [], []
    for number, column in enumerate(node.items.columns):
        columns.append(column)
        of = tangents.of_variable(node.items.variable(number)) if number in active else ()
        columns.extend([as_column(each, "a tangent of the items", False) for each in of])
        duals.append(Dual(None, (None,) * len(of)) if of else None)
    return columns, duals
