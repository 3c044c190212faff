"""Reductions: sums over models. A reduction is recorded as one node.

The blocks of a sum whose value is one real number return (value, gradient), and both are added up
along one tree. The blocks of any other sum keep their pullbacks, and have a backward task each.
"""

import functools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from daskgrad.backward import Backward, Contribution, backward_tasks, select
from daskgrad.columns import Column
from daskgrad.cotangents import describe
from daskgrad.forward import Forward, forward_tasks, pass_value_on, value_of
from daskgrad.graph import Graph
from daskgrad.inline import sum_in_line
from daskgrad.items import (
    Items,
    Zip,
    as_columns,
    cut_alike,
    holds_nodes,
    in_line,
    require_columns_alike,
    side_by_side,
    slices_in_line,
)
from daskgrad.itemwise import column_of, join_items, pull_back_items, without_items
from daskgrad.models import Model, inside_model
from daskgrad.nodes import CallNode, Node, as_model, make_call, require_no_node_in
from daskgrad.partitions import Grainsize, require_grainsize
from daskgrad.pullbacks import Active
from daskgrad.structures import flatten
from daskgrad.summation import in_groups
from daskgrad.tasks import TaskGraph
from daskgrad.terms import (
    First,
    add_captured,
    add_parts,
    capture_block,
    evaluate_block,
    pull_back_block,
    pull_back_sum,
    sum_values,
)

# ------------------------------------------------------------------------------ a sum of nodes


class SumNode(Node):
    """The sum of nodes of one structure and shape; its backward pass has no tasks."""

    is_elementwise = True

    def __init__(self, inputs: Sequence[Node], name: str = "sum"):
        super().__init__(name, inputs)

    def add_value(self, tasks: TaskGraph, inputs: list[Any]) -> Any:
        if len(inputs) == 1:
            return inputs[0]
        return add_up(self, tasks, inputs, self.key)


def add_up(node: Node, tasks: TaskGraph, values: Sequence[Any], key: Any) -> Any:
    """Adds the tasks that add up values; the last one has the ``key``.

    A single value needs none, unless it may turn out to be that of no items.
    """

    def add(group: Sequence[Any], is_last: bool) -> Any:
        this = key if is_last else tasks.key("value", node.name)
        annotations = node.annotations
        return tasks.add(this, sum_values, list(group), node.name, is_last, annotations=annotations)

    needs_adding = getattr(node, "needs_adding", False)
    return add(values, True) if needs_adding and len(values) == 1 else in_groups(values, add)


@forward_tasks.register
def _(node: SumNode, forward: Forward) -> None:
    key = forward.tasks.key("value", node.name)
    inputs = forward.inputs(node)
    forward.values[node] = add_up(node, forward.tasks, inputs, key) if inputs[1:] else inputs[0]


@backward_tasks.register
def _(node: SumNode, backward: Backward, arrived: Contribution) -> None:
    for source in reversed(node.inputs):
        backward.send(source, arrived.cotangent, saw_value=False)


# ----------------------------------------------------------------------------- a sum over items


class ReductionNode(Node):
    """The sum of ``model(item, *shared)`` over blocks of items.

    A term's inputs are the parts of its item (one, or those of a zip), and then the nodes in
    ``shared``. ``inputs`` are the nodes in ``shared``, and then the variables among the parts.
    """

    def __init__(self, model: Model, shared: tuple, items: Items, template: Any):
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
        self.placed = items if items.is_placed else None
        self.width = len(shared_inputs)

    def add_value(self, tasks: TaskGraph, inputs: list[Any]) -> Any:
        model = tasks.shared(self.model)
        adds = self.needs_adding
        values = [
            tasks.add(
                tasks.key("value", self.name) if adds else self.key,
                evaluate_block,
                model,
                self.call,
                first,
                inputs[: self.width],
                *columns,
                annotations=self.annotations,
            )
            for first, columns in self.blocks(tasks)
        ]
        return add_up(self, tasks, values, self.key) if adds else values[0]

    def blocks(self, tasks: TaskGraph, used_twice: bool = False) -> list[tuple[First, list[Any]]]:
        data = self.items.data(tasks, self.name, used_twice)
        return list(zip(self.items.firsts, data, strict=True))

    @property
    def needs_adding(self) -> bool:
        """Whether there are several blocks, or one that may turn out to be empty."""
        return len(self.items.firsts) > 1 or not self.items.is_counted

    def active_terms(self, graph: Graph) -> tuple[Active, ...]:
        """Which inputs of a term are differentiated."""
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


@forward_tasks.register
def _(node: ReductionNode, forward: Forward) -> None:
    if node.is_fused(forward.graph):
        forward.captured[node] = fused = fused_blocks(node, forward)
        pass_value_on(node, forward, fused.total)
    else:
        data = node.blocks(forward.tasks, used_twice=True)
        blocks = captured_blocks(node, forward, data)
        values = block_values(node, forward.tasks, blocks)
        forward.captured[node] = list(zip(blocks, values, data, strict=True))
        key = forward.tasks.key("value", node.name)
        forward.values[node] = add_up(node, forward.tasks, values, key)


def captured_blocks(
    node: ReductionNode, forward: Forward, data: Sequence[tuple[First, list[Any]]]
) -> list[Any]:
    tasks, active = forward.tasks, node.active_terms(forward.graph)
    model, inputs = tasks.shared(node.model), shared_values(node, forward)
    return [
        tasks.add(
            tasks.key("forward", node.name),
            capture_block,
            model,
            node.call,
            active,
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
    columns: list[list[Any]]


def fused_blocks(node: ReductionNode, forward: Forward) -> Fused:
    tasks, parts = forward.tasks, node.active_parts(forward.graph)
    blocks = captured_blocks(node, forward, node.blocks(tasks))
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


def add_captured_blocks(node: ReductionNode, tasks: TaskGraph, blocks: Sequence[Any]) -> Any:
    model = tasks.shared(node.model)

    def add(group: Sequence[Any], is_last: bool) -> Any:
        key = tasks.key("forward", node.name)
        return tasks.add(
            key, add_captured, model, list(group), is_last, annotations=node.annotations
        )

    return in_groups(blocks, add) if blocks[1:] or not node.needs_adding else add(blocks, True)


def block_values(node: ReductionNode, tasks: TaskGraph, blocks: Sequence[Any]) -> list[Any]:
    return [
        tasks.add(tasks.key("value", node.name), value_of, block, annotations=node.annotations)
        for block in blocks
    ]


@backward_tasks.register
def _(node: ReductionNode, backward: Backward, arrived: Contribution) -> None:
    shared, tasks = node.active_shared(backward.graph), backward.tasks
    if node.is_fused(backward.graph):
        if shared:
            send_each(node, backward, pull_back_fused(node, backward, arrived), shared)
        for number, part in enumerate(node.active_parts(backward.graph)):
            pull_back_fused_items(node, backward, arrived, number, part)
        return
    parts = node.active_parts(backward.graph)
    pulled = pulled_back_blocks(node, backward, arrived.cotangent)
    for number, source in enumerate(shared):
        terms = picked(node, tasks, pulled, number, len(shared) + len(parts))
        backward.send(source, add_up_parts(source, tasks, terms))
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


def pulled_back_blocks(node: ReductionNode, backward: Backward, cotangent: Any) -> list[Any]:
    tasks, active = backward.tasks, node.active_terms(backward.graph)
    model, inputs = tasks.shared(node.model), shared_values(node, backward.forward)
    captured = backward.forward.captured[node]
    data = node.items.placed_now(tasks, [columns for _, _, (_, columns) in captured])
    return [
        tasks.add(
            tasks.key("backward", node.name),
            pull_back_block,
            block,
            cotangent,
            model,
            node.call,
            active,
            first,
            inputs,
            value,
            len(captured) > 1,
            *columns,
            annotations=node.annotations,
        )
        for (block, value, (first, _)), columns in zip(captured, data, strict=True)
    ]


def picked(
    node: Node, tasks: TaskGraph, pulled: Sequence[Any], number: int, count: int
) -> Sequence[Any]:
    """What each block returned for one of ``count`` active inputs."""
    if count == 1:
        return pulled
    key = functools.partial(tasks.key, "cotangent", node.name)
    return [
        tasks.add(key(), select, block, number, annotations=node.annotations) for block in pulled
    ]


def add_up_parts(source: Node, tasks: TaskGraph, parts: Sequence[Any]) -> Any:
    """Adds the tasks that add up what the blocks returned for one input."""

    def add(group: Sequence[Any], is_last: bool) -> Any:
        key = tasks.key("cotangent", source.name)
        return tasks.add(key, add_parts, list(group), is_last, annotations=source.annotations)

    return in_groups(parts, add)


# ------------------------------------------------------------------------------------- public


def map_sum(model: Any, items: Any, *shared: Any, grainsize: Grainsize = "auto") -> Any:
    """The sum of ``model(item, *shared)`` over the items, as one node.

    The terms must have one structure and shape. They are added along a binary tree over the items'
    indices: the bits of value and gradient depend neither on the grainsize nor on the scheduler.
    Inside a model nothing is recorded: it returns the sum itself, and derivatives flow through it.

    Parameters
    ----------
    model:
        a plain function, or what ``delayed`` made of one.
    items:
        a list or tuple; a NumPy or dask Array (its rows are the items); a list of Delayed, each of
        them an item; a dask Bag (its elements; the bits depend on its partitions); what ``place``
        returned; a variable that is a list, a tuple or an array, whose items are differentiated;
        or ``zip`` of such. A list that holds nodes is recorded as one node an item.
    shared:
        what every term sees; may hold variables and other nodes at any depth.
    grainsize:
        items in one task, rounded down to a power of two; "auto" makes 32 to 64 tasks of a long
        list. Placed items and bags have theirs.

    Raises
    ------
    ValueError
        for no items, collections of several lengths, a grainsize that is no number of items or not
        that of the shards, and a dask Array whose rows are not counted.
    TypeError
        for anything else in the place of the items.
    """
    model = as_model(model)
    require_grainsize(grainsize)
    if inside_model() and not involves_node(items, shared):
        return sum_in_line(model.fun, model.name, in_line(items, "items"), shared)
    columns = as_columns(items, "items", whole_slices=False)
    if not holds_nodes(columns):
        return reduction(model, items, columns, shared, grainsize, whole_slices=False)
    require_columns_alike(columns)
    singles = [column.one_by_one() for column in columns]
    terms = side_by_side(singles) if isinstance(items, Zip) else singles[0]
    return sum([CallNode(model, (item, *shared), {}) for item in terms])


def reduce_sum(partial_sum: Any, sliced: Any, *shared: Any, grainsize: Grainsize = "auto") -> Any:
    """The sum of ``partial_sum(slice, *shared)`` over slices of ``grainsize`` items, as one node.

    As ``map_sum``, but the user's function gets a whole slice (a list, or rows of an array; of a
    ``zip`` a tuple of slices) and adds up itself. The grainsize is taken as it is; with "auto" the
    slices of a dask Array are its blocks along the first axis. Those of a dask DataFrame, Series or
    Bag are its partitions. The bits of the result depend on the slices, and on nothing else (of a
    DataFrame also on its memory layout, which pandas may change when a partition moves). Source of
    the interface: Stan's ``reduce_sum``.
    """
    model = as_model(partial_sum)
    require_grainsize(grainsize)
    if inside_model() and not involves_node(sliced, shared):
        slices = slices_in_line(sliced, "sliced", grainsize)
        return sum_in_line(model.fun, model.name, slices, shared)
    columns = as_columns(sliced, "sliced", whole_slices=True)
    if not holds_nodes(columns):
        return reduction(model, sliced, columns, shared, grainsize, whole_slices=True)
    singles = [Column(column.one_by_one()) for column in columns]
    slices = [
        tuple([run for (run,) in block]) if isinstance(sliced, Zip) else block[0][0]
        for block in cut_alike(singles, grainsize, whole_slices=True).data(TaskGraph(), model.name)
    ]
    return sum([CallNode(model, (each, *shared), {}) for each in slices])


def reduction(
    model: Model,
    items: Any,
    columns: Sequence[Column],
    shared: tuple,
    grainsize: Grainsize,
    whole_slices: bool,
) -> ReductionNode:
    for column in columns:
        if type(column) is Column:
            require_no_node_in(column.items, f"the items of model {model.name!r}")
    template = (None,) * len(columns) if isinstance(items, Zip) else None
    return ReductionNode(model, shared, cut_alike(columns, grainsize, whole_slices), template)


def involves_node(items: Any, shared: tuple) -> bool:
    """Whether a sum inside a model is one of an inner derivative, which is recorded."""
    items = items.collections if isinstance(items, Zip) else items
    return any(isinstance(leaf, Node) for leaf in flatten((items, shared))[0])


def sum(nodes: Iterable[Node]) -> Node:
    """The sum of nodes of one structure and shape, along a binary tree over their indices."""
    nodes = list(nodes)
    for number, node in enumerate(nodes):
        if not isinstance(node, Node):
            raise TypeError(
                f"dg.sum adds up nodes; found {describe(node)} in place {number}: add it with +"
            )
    if not nodes:
        raise ValueError("dg.sum of no nodes has no shape; sum at least one")
    return SumNode(nodes) if len(nodes) > 1 else nodes[0]
