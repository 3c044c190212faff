"""Reductions: sums over models. A reduction is recorded as one node.

The blocks of a sum whose value is one real number return (value, gradient), and both are added up
along one tree. The blocks of any other sum keep their pullbacks, and have a backward task each.
"""

import functools
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from daskgrad.backward import Backward, Contribution, backward_tasks, select
from daskgrad.cotangents import describe
from daskgrad.forward import Forward, forward_tasks, pass_value_on, value_of
from daskgrad.graph import Graph
from daskgrad.models import Model
from daskgrad.nodes import CallNode, Node, Variable, as_model, make_call, require_no_node_in
from daskgrad.partitions import (
    Block,
    Grainsize,
    aligned_grainsize,
    as_items,
    cut,
    require_grainsize,
)
from daskgrad.pullbacks import Active
from daskgrad.shards import Shards
from daskgrad.structures import flatten
from daskgrad.summation import in_groups
from daskgrad.tasks import TaskGraph, is_collection
from daskgrad.terms import (
    ADDERS,
    ITEM,
    add_captured,
    add_parts,
    capture_block,
    evaluate_block,
    pull_back_block,
    pull_back_sum,
    sum_values,
)

Summation = Literal["pairwise", "compensated"]

# ------------------------------------------------------------------------------ a sum of nodes


class SumNode(Node):
    """The sum of nodes of one structure and shape; its backward pass has no tasks."""

    is_elementwise = True

    def __init__(self, inputs: Sequence[Node], name: str = "sum", summation: str = "pairwise"):
        super().__init__(name, inputs)
        self.summation = summation

    def add_value(self, tasks: TaskGraph, inputs: list[Any]) -> Any:
        if len(inputs) == 1:
            return inputs[0]
        return add_up(self, tasks, inputs, self.key)


def add_up(
    node: "SumNode | ReductionNode", tasks: TaskGraph, values: Sequence[Any], key: Any
) -> Any:
    """Adds the tasks that add up two or more values; the last one has the ``key``."""

    def add(group: Sequence[Any], is_last: bool) -> Any:
        this = key if is_last else tasks.key("value", node.name)
        args = (list(group), node.summation, is_last)
        return tasks.add(this, sum_values, *args, annotations=node.annotations)

    return in_groups(values, add)


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

    ``inputs`` are the nodes in ``shared``; a term's inputs are its item and then those. With
    ``whole_slices`` each block is one item.
    """

    def __init__(
        self,
        model: Model,
        shared: tuple,
        items: Shards | Sequence[Block],
        whole_slices: bool = False,
        summation: str = "pairwise",
    ):
        call, inputs = make_call(model, (None, *shared), {})
        holes = [(position, number + 1) for position, number in call.holes]
        super().__init__(model.name, inputs)
        self.model = model
        self.call = call._replace(holes=((ITEM, ITEM), *holes))
        self.placed = items if isinstance(items, Shards) else None
        self.blocks = items.blocks if isinstance(items, Shards) else items
        self.whole_slices = whole_slices
        self.summation = summation

    @property
    def shards(self) -> Shards:
        assert self.placed is not None
        return self.placed

    @property
    def is_remote(self) -> bool:
        """Whether the items are on the cluster that Dask would use now."""
        return self.placed is not None and self.placed.is_remote

    def data_here(self) -> list[tuple[int, Any]]:
        """For each block the index of its first item, and its items, which are in this process."""
        return [(first, [items] if self.whole_slices else items) for first, items in self.blocks]

    def block_data(self, tasks: TaskGraph, used_twice: bool = False) -> list[tuple[int, Any]]:
        """For each block the index of its first item, and its items or a reference to them.

        Items that are ``used_twice``, in both passes, get a key of their own.
        """
        if self.placed is not None:
            data = self.placed.data(tasks)
        elif used_twice:
            data = [tasks.constant(block.items, self.name) for block in self.blocks]
        else:
            data = [block.items for block in self.blocks]
        return [
            (block.first, [items] if self.whole_slices else items)
            for block, items in zip(self.blocks, data, strict=True)
        ]

    def add_value(self, tasks: TaskGraph, inputs: list[Any]) -> Any:
        model, many = tasks.shared(self.model), len(self.blocks) > 1
        values = [
            tasks.add(
                tasks.key("value", self.name) if many else self.key,
                evaluate_block,
                model,
                self.call,
                first,
                items,
                inputs,
                self.summation,
                many,
                annotations=self.annotations,
            )
            for first, items in self.block_data(tasks)
        ]
        return add_up(self, tasks, values, self.key) if many else values[0]

    def active_terms(self, graph: Graph) -> tuple[Active, ...]:
        """Which inputs of a term are differentiated."""
        return tuple([a._replace(number=a.number + 1) for a in graph.active_inputs(self)])

    def is_whole(self, graph: Graph) -> bool:
        """Whether its value and gradient can be evaluated as a whole, outside of a graph.

        Over placed items also where it may turn out not to be one real number: it usually is.
        """
        if not self.is_remote:
            return self in graph.active and self.is_fused(graph)
        if self not in graph.active:
            return True
        is_known_better = self.model.name in self.shards.array_valued
        return not is_known_better and (self.model.keep == "auto" or self.is_fused(graph))

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
    if forward.whole is not None and node.is_whole(forward.graph):
        forward.captured[node] = add_whole(node, forward, forward.whole)
        pass_value_on(node, forward)
        return
    blocks = captured_blocks_of(node, forward)
    if node.is_fused(forward.graph):
        forward.captured[node] = add_captured_blocks(node, forward.tasks, blocks)
        pass_value_on(node, forward)
    else:
        values = block_values(node, forward.tasks, blocks)
        forward.captured[node] = list(zip(blocks, values, strict=True))
        key = forward.tasks.key("value", node.name)
        forward.values[node] = add_up(node, forward.tasks, values, key)


class WholeSum(NamedTuple):
    """A sum that is evaluated as a whole, in the place of a task of this graph."""

    node: ReductionNode
    active: tuple[Active, ...]


def add_whole(node: ReductionNode, forward: Forward, whole: dict[Any, WholeSum]) -> Any:
    """Adds a task that only gathers the inputs of a sum, whose result is put in its place."""
    key = forward.tasks.key("forward", node.name)
    whole[key] = WholeSum(node, node.active_terms(forward.graph))
    return forward.tasks.add(key, list, forward.inputs(node))


def captured_blocks_of(node: ReductionNode, forward: Forward) -> list[Any]:
    active, inputs = node.active_terms(forward.graph), forward.inputs(node)
    is_fused = node.is_fused(forward.graph)
    everything = range(len(node.blocks))
    return captured_blocks(node, forward.tasks, active, inputs, everything, not is_fused)


def captured_blocks(
    node: ReductionNode,
    tasks: TaskGraph,
    active: tuple[Active, ...],
    inputs: list[Any],
    numbers: range,
    used_twice: bool = False,
) -> list[Any]:
    """Adds a task for each of the blocks with these numbers, which captures it."""
    model = tasks.shared(node.model)
    data = node.block_data(tasks, used_twice)
    return [
        tasks.add(
            tasks.key("forward", node.name),
            capture_block,
            model,
            node.call,
            active,
            *data[number],
            inputs,
            node.summation,
            len(node.blocks) > 1,
            annotations=node.annotations,
        )
        for number in numbers
    ]


def add_captured_blocks(
    node: ReductionNode, tasks: TaskGraph, blocks: Sequence[Any], are_all: bool = True
) -> Any:
    """Adds the tasks that add up captured blocks; ``are_all``: there are no others."""
    model = tasks.shared(node.model)

    def add(group: Sequence[Any], is_last: bool) -> Any:
        key = tasks.key("forward", node.name)
        args = (model, list(group), node.summation, is_last and are_all)
        return tasks.add(key, add_captured, *args, annotations=node.annotations)

    return in_groups(blocks, add)


def block_values(node: ReductionNode, tasks: TaskGraph, blocks: Sequence[Any]) -> list[Any]:
    return [
        tasks.add(tasks.key("value", node.name), value_of, block, annotations=node.annotations)
        for block in blocks
    ]


@backward_tasks.register
def _(node: ReductionNode, backward: Backward, arrived: Contribution) -> None:
    if not isinstance(backward.forward.captured[node], list):
        backward.send_all(node, pull_back_fused(node, backward, arrived))
    else:
        pulled = pulled_back_blocks(node, backward, arrived.cotangent)
        active = [source for source in node.inputs if source in backward.graph.active]
        for number, source in enumerate(active):
            terms = picked(node, backward.tasks, pulled, number, len(active))
            backward.send(source, add_up_parts(node, source, backward.tasks, terms))


def pull_back_fused(node: ReductionNode, backward: Backward, arrived: Contribution) -> Any:
    tasks = backward.tasks
    return tasks.add(
        tasks.key("backward", node.name),
        pull_back_sum,
        backward.forward.captured[node],
        arrived.cotangent,
        tasks.shared(node.model),
        backward.witness(node, arrived),
        annotations=node.annotations,
    )


def pulled_back_blocks(node: ReductionNode, backward: Backward, cotangent: Any) -> list[Any]:
    tasks, active = backward.tasks, node.active_terms(backward.graph)
    model, inputs = tasks.shared(node.model), backward.forward.inputs(node)
    data = node.block_data(tasks, used_twice=True)
    captured = backward.forward.captured[node]
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
            items,
            inputs,
            value,
            len(captured) > 1,
            node.summation,
            annotations=node.annotations,
        )
        for (block, value), (first, items) in zip(captured, data, strict=True)
    ]


def picked(
    node: ReductionNode, tasks: TaskGraph, pulled: Sequence[Any], number: int, count: int
) -> Sequence[Any]:
    """What each block returned for one of ``count`` active inputs."""
    if count == 1:
        return pulled
    key = functools.partial(tasks.key, "cotangent", node.name)
    return [
        tasks.add(key(), select, block, number, annotations=node.annotations) for block in pulled
    ]


def add_up_parts(node: ReductionNode, source: Node, tasks: TaskGraph, parts: Sequence[Any]) -> Any:
    """Adds the tasks that add up what the blocks returned for one input."""

    def add(group: Sequence[Any], is_last: bool) -> Any:
        key = tasks.key("cotangent", source.name)
        args = (list(group), is_last, node.summation)
        return tasks.add(key, add_parts, *args, annotations=source.annotations)

    return in_groups(parts, add)


# ------------------------------------------------------------------------------------- public


def map_sum(
    model: Any,
    items: Any,
    *shared: Any,
    grainsize: Grainsize = "auto",
    summation: Summation = "pairwise",
) -> Node:
    """The sum of ``model(item, *shared)`` over the items, as one node.

    The terms must have one structure and shape. They are added along a binary tree over the items'
    indices: the bits of value and gradient depend neither on the grainsize nor on the scheduler.

    Parameters
    ----------
    model:
        a plain function, or what ``delayed`` made of one.
    items:
        a list, a tuple, an array (its rows are the items), or what ``place`` returned. A list that
        holds nodes or other Dask collections is recorded as one node an item.
    shared:
        what every term sees; may hold variables and other nodes at any depth.
    grainsize:
        items in one task, rounded down to a power of two; "auto" makes 32 to 64 tasks of a long
        list. Placed items have theirs.
    summation:
        "pairwise" rounds every addition: the error of a sum s of n terms x is at most
        u log2(n) Σ|x| to first order, where u is half the dtype's epsilon. "compensated" adds up
        the rounding errors, too, along the same tree, and rounds once at the end: the error is at
        most u |s| + O(log²n u²) Σ|x|, entry by entry and for real and imaginary parts each, in the
        value and in the sum of the terms' gradients. The terms and their gradients are as accurate
        as the model, and a factor that scales the sum is rounded as ever. Partial sums of several
        dtypes are converted to their common one before they are added; integers are added exactly.
        Where plain addition gives an infinity or NaN, so does this. ``daskgrad.compensation`` has
        the bound and its source.

    Raises
    ------
    ValueError
        for no items, a grainsize that is no number of items, one that is not the shards' own, or
        an unknown summation.
    TypeError
        for anything else in the place of the items.
    """
    model = as_model(model)
    require_summation(summation)
    if isinstance(items, Shards):
        require_same_grainsize(grainsize, items)
        return ReductionNode(model, shared, items, summation=summation)
    if isinstance(items, Variable) and isinstance(items.primal, list | tuple):
        items = list(items)
    items = as_items(items)
    size = aligned_grainsize(grainsize, len(items))
    if isinstance(items, list) and any(map(holds_node, items)):
        return sum([CallNode(model, (item, *shared), {}) for item in items], summation)
    require_no_node_in(items, f"the items of model {model.name!r}")
    return ReductionNode(model, shared, cut(items, size), summation=summation)


def reduce_sum(
    partial_sum: Any,
    sliced: Any,
    *shared: Any,
    grainsize: Grainsize = "auto",
    summation: Summation = "pairwise",
) -> Node:
    """The sum of ``partial_sum(slice, *shared)`` over slices of ``grainsize`` items, as one node.

    As ``map_sum``, but the user's function gets a whole slice (a list, or rows of an array) and
    adds up itself; the bits of the result depend on the grainsize, which is taken as it is, and on
    nothing else. Source of the interface: Stan's ``reduce_sum``. ``summation`` says how the slices'
    sums are added, not how the user's function adds.
    """
    model = as_model(partial_sum)
    require_summation(summation)
    if isinstance(sliced, Shards):
        require_same_grainsize(grainsize, sliced)
        return ReductionNode(model, shared, sliced, whole_slices=True, summation=summation)
    items = as_items(sliced, "sliced")
    require_grainsize(grainsize)
    size = aligned_grainsize(grainsize, len(items)) if grainsize == "auto" else int(grainsize)
    blocks = cut(items, size)
    if isinstance(items, list) and any(map(holds_node, items)):
        return sum([CallNode(model, (block.items, *shared), {}) for block in blocks], summation)
    require_no_node_in(items, f"the items of model {model.name!r}")
    return ReductionNode(model, shared, blocks, whole_slices=True, summation=summation)


def sum(nodes: Iterable[Node], summation: Summation = "pairwise") -> Node:
    """The sum of nodes of one structure and shape, along a binary tree over their indices.

    ``summation`` is that of ``map_sum``, for the value: what several nodes contribute to the
    gradient of one variable comes from several consumers, and is added pairwise.
    """
    nodes = list(nodes)
    require_summation(summation)
    for number, node in enumerate(nodes):
        if not isinstance(node, Node):
            raise TypeError(
                f"dg.sum adds up nodes; found {describe(node)} in place {number}: add it with +"
            )
    if not nodes:
        raise ValueError("dg.sum of no nodes has no shape; sum at least one")
    return SumNode(nodes, summation=summation) if len(nodes) > 1 else nodes[0]


def require_summation(summation: Any) -> None:
    if not (isinstance(summation, str) and summation in ADDERS):
        raise ValueError(f"summation is one of {', '.join(map(repr, ADDERS))}; found {summation!r}")


def require_same_grainsize(grainsize: Grainsize, shards: Shards) -> None:
    require_grainsize(grainsize)
    if grainsize != "auto" and aligned_grainsize(grainsize, 1) != shards.grainsize:
        raise ValueError(
            f"the items were placed with grainsize {shards.grainsize}, and grainsize={grainsize} "
            f"was asked for; leave it out, or place the items again"
        )


def holds_node(item: Any) -> bool:
    return any(isinstance(leaf, Node) or is_collection(leaf) for leaf in flatten(item)[0])
