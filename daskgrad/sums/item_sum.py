"""Item sums: sums over models. A reduction is recorded as one node, and so are its tangents."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from daskgrad.autodiff.models.as_called import Seen
from daskgrad.autodiff.models.duals import Dual
from daskgrad.autodiff.models.model import Call, Model, identity
from daskgrad.autodiff.models.tracing import Active
from daskgrad.autodiff.values.carriers import drop_oldest
from daskgrad.graph.activity import Graph
from daskgrad.graph.backward import Backward, Contribution, backward_tasks, select
from daskgrad.graph.forward import DirectSums, Forward, forward_tasks, pass_value_on, value_of
from daskgrad.graph.nodes import Node, are_distinct_nodes, call_of_leaves, make_call, names
from daskgrad.graph.sum_of_nodes import (
    AddedNode,
    build_sum,
    build_sum_with_fingerprints,
    waits_for_value,
)
from daskgrad.graph.tangents import Tangents, push_node
from daskgrad.sums.adding import add_captured, add_unscaled
from daskgrad.sums.block_tasks import (
    Summand,
    capture_block,
    evaluate_block,
    pull_back_block,
    pull_back_sum,
)
from daskgrad.sums.item_cotangents import (
    concatenate_items,
    item_cotangents_in,
    item_cotangents_of,
    place_items,
    pull_back_items,
    without_items,
)
from daskgrad.sums.sources import ChosenSource, Source
from daskgrad.sums.zipping import Items, ZippedBlock
from daskgrad.tasks.keys import Stage
from daskgrad.tasks.task_graph import TaskGraph

ARRAY_VALUED = 1024  # models that are remembered, as their terms are not numbers
_array_valued: dict[Any, None] = {}  # the latest; their items go to the workers


class ReductionNode(AddedNode):
    """The sum of ``model(item, *shared)`` over blocks of items.

    A term's inputs are the fields of its item (one, or several of a zip), and then the nodes in
    ``shared``. The node's ``inputs`` are the nodes in ``shared``, and then the variables among the
    fields.

    Keys of blocks and keys of additions have different names: Dask spreads a group of tasks evenly
    over workers only if the group does not depend on itself.
    """

    def __init__(
        self,
        model: Model,
        shared: tuple,
        items: Items,
        template: Any = None,
        summation: str = "pairwise",
    ):
        self.call, shared_inputs, self.seen = call_on_items(model, template, shared, items)
        self.large = [large for source in items.sources for large in source.large]
        variables = [source.variable for source in items.sources]
        self.own = tuple([n for n, variable in enumerate(variables) if variable is not None])
        super().__init__(model.name, [*shared_inputs, *[v for v in variables if v is not None]])
        self.adder_name = f"sum of {model.name}"
        self.model = model
        self.items = items
        self.calls = items.count if len(items.firsts) == 1 else 0
        self.key = names.key("value", self.adder_name, self.calls)
        self.summation = summation
        self.width = len(shared_inputs)

    @property
    def places(self) -> Sequence[Any]:
        return self.items.firsts

    def build_value(self, tasks: TaskGraph, inputs: list[Any]) -> Any:
        summand, blocks = self.summand(), self.items.blocks(tasks, self.name)
        args = (evaluate_block, summand, inputs[: self.width], blocks)
        if not summand.is_partial:
            return self.build_blocks(tasks, self.stage, *args, self.key)[0]
        values = self.build_blocks(tasks, self.stage, *args)
        return build_sum(self, tasks, values, self.stage, key=self.key)

    def build_blocks(
        self,
        tasks: TaskGraph,
        stage: Stage,
        fun: Callable,
        summand: Summand,
        inputs: list[Any],
        blocks: Sequence[ZippedBlock],
        key: Any = None,
    ) -> list[Any]:
        """Builds the task ``fun(model, summand, first, inputs, *fields)`` of each block, where
        ``inputs`` are the shared ones; the task of a single block may have the ``key``."""
        model = tasks.shared(self.model)
        if len(blocks) > 1 and not tasks.is_for_cluster:  # a cluster keeps large models
            model = tasks.constant(self.model, f"model of {self.name}")
        args, counts = (fun, model, summand), self.items.counts[-len(blocks) :]
        return [
            tasks.add(
                key or tasks.key(stage, self.name, count),
                *args,
                first,
                inputs,
                *fields,
                annotations=self.annotations,
            )
            for count, (first, fields) in zip(counts, blocks, strict=True)
        ]

    def summand(self, graph: Graph | None = None) -> Summand:
        """The terms, differentiated as ``graph`` says."""
        active, items = () if graph is None else self.active_terms(graph), self.items
        return Summand(
            self.call,
            active,
            self.summation,
            len(items.sources),
            items.placed_field,
            items.slices,
            len(items.firsts) > 1 or self.may_be_empty,
        )

    @property
    def may_be_empty(self) -> bool:  # type: ignore[override]
        """Whether a block may have no items."""
        return not self.items.is_counted

    def is_on(self, client: Any) -> bool:
        """Whether a client's cluster holds one field of the items, and this process the others."""
        placed, others = self.items.placed, self.items.beside_placed
        is_there = len(placed) == 1 and placed[0].is_on(client)
        return is_there and all([source.is_here for source in others])

    def is_for_workers(self, client: Any) -> bool:
        """Whether a client's workers evaluate it, if it is evaluated directly: they hold its items,
        or these are a variable's in this process and can go there with a request."""
        are_sent = client is not None and bool(self.own) and not self.items.placed
        return self.is_on(client) or (are_sent and self.items.is_here)

    @property
    def has_array_terms(self) -> bool:
        """Whether the model has returned terms over these items that are not numbers."""
        return identity(self.model) in self._array_valued

    def note_array_terms(self) -> None:
        known = self._array_valued
        known[identity(self.model)] = None
        drop_oldest(known, ARRAY_VALUED)

    @property
    def _array_valued(self) -> dict[Any, None]:
        return self.items.placed[0].array_valued if self.items.placed else _array_valued

    def active_terms(self, graph: Graph) -> tuple[Active, ...]:
        """The inputs of a term that are differentiated: none if the sum itself is not active."""
        if self not in graph.active:  # behind stop_gradient, or beside the output
            return ()
        fields = len(self.items.sources)
        of_items = [Active(number, watched=False) for number in self.active_fields(graph)]
        shared = [
            active._replace(number=active.number + fields)
            for active in graph.active_inputs(self)
            if active.number < self.width
        ]
        return (*of_items, *shared)

    def active_fields(self, graph: Graph) -> list[int]:
        """The fields of an item that are differentiated."""
        if self not in graph.active:
            return []
        pairs = zip(self.own, self.inputs[self.width :], strict=True)
        return [number for number, variable in pairs if variable in graph.active]

    def active_shared(self, graph: Graph) -> list[Node]:
        return [source for source in self.inputs[: self.width] if source in graph.active]

    def is_fused(self, graph: Graph) -> bool:
        """Whether values and gradients of blocks are added up together.

        So it is if the value must be one real number: the output is one and depends on it
        elementwise, or ``keep`` says so.
        """
        return self.model.keep == "gradient" or (
            self in graph.scalars and self.model.keep == "auto"
        )

    def is_direct(self, graph: Graph, client: Any) -> bool:
        """Whether value and gradient can be evaluated outside of a graph: on workers, unless the
        terms are known to be arrays; without a cluster, if the value must be one real number."""
        if not self.is_for_workers(client):
            is_here = client is None and self.items.is_here
            return is_here and self in graph.active and self.is_fused(graph)
        if self.has_array_terms:
            return False
        return self not in graph.active or self.model.keep == "auto" or self.is_fused(graph)


def call_on_items(
    model: Model, template: Any, shared: tuple, items: Items
) -> tuple[Call, list[Node], Seen | None]:
    """The call of a term on the fields of its item and the nodes in ``shared``, as ``make_call``
    returns it."""
    fields, objects = len(items.sources), [x for source in items.sources for x in source.objects]
    if template is None and are_distinct_nodes(shared):
        _, inputs, seen = make_call(model, shared, {}, objects)
        return call_of_leaves(1 + len(inputs)), inputs, seen
    call, inputs, seen = make_call(model, (template, *shared), {}, objects)
    own_holes = [(number, number) for number in range(fields)]
    holes = [(position, number + fields) for position, number in call.holes]
    return call._replace(holes=(*own_holes, *holes)), inputs, seen


# ------------------------------------------------------------------------------------ tangents


@push_node.register
def _(node: ReductionNode, tangents: Tangents, tangent_only: bool) -> ReductionNode:
    """The sum of the terms' duals, or of their tangents; differentiated items become duals."""
    shared = tangents.arguments(node)[: node.width]
    fields = [None] * len(node.items.sources)
    (template, *arguments), _ = node.call.arguments([*fields, *shared])
    sources, duals = dual_sources(node, tangents)
    item = (template,) if template is None else template
    item = tuple([dual if dual else field for dual, field in zip(duals, item, strict=True)])
    return ReductionNode(
        tangents.model(node.model, tangent_only),
        tuple(arguments),
        node.items.with_sources(sources),
        item[0] if template is None else item,
        node.summation,
    )


def dual_sources(node: ReductionNode, tangents: Tangents) -> tuple[list[Source], list[Any]]:
    """The sources, with the tangents' among them, and for each field of an item the place of its
    dual; ``None`` for a field that is not differentiated."""
    active = node.active_fields(tangents.graph)
    sources, duals = [], []
    for number, source in enumerate(node.items.sources):
        sources.append(source)
        of = tangents.of_items(node.items.variable(number)) if number in active else ()
        sources.extend(map(source.like, of))
        duals.append(Dual(None, (None,) * len(of)) if of else None)
    return sources, duals


# -------------------------------------------------------------------------------------------------
# Both passes: blocks of a sum that is one real number return value and gradient, which are added up
# along one tree. Blocks of any other sum keep their pullbacks, and have a backward task each.


class FusedBlocks(NamedTuple):
    """Blocks whose values and gradients are added up together, or a sum that is evaluated directly.

    ``total`` refers to the sum; ``item_cotangents``, for each differentiated field of the items, to
    the cotangents of each block's items.
    """

    node: ReductionNode
    total: Any
    item_cotangents: Sequence[Any]

    def build_value(self, forward: Forward) -> None:
        pass_value_on(self.node, forward, self.total)

    def build_cotangents(self, backward: Backward, arrived: Contribution) -> None:
        node, tasks = self.node, backward.tasks
        elsewhere = backward.value_elsewhere(node, arrived)
        args = (self.total, arrived.cotangent, tasks.shared(node.model), elsewhere)
        shared = node.active_shared(backward.graph)
        if shared:
            calls = node.items.count
            pulled = [node.build_task(tasks, "backward", pull_back_sum, *args, calls=calls)]
            for number, source in enumerate(shared):
                (part,) = pick_each(node, tasks, pulled, number, len(shared))
                backward.send(source, Contribution(part))
        for number, field in enumerate(node.active_fields(backward.graph)):
            items = (self.item_cotangents[number], node.items.sizes, node.items.are_rows(field))
            calls = 0 if shared or number else node.items.count
            joined = node.build_task(tasks, "backward", pull_back_items, *items, *args, calls=calls)
            send_items(node, backward, field, joined)


class KeptBlocks(NamedTuple):
    """Blocks that keep their pullbacks until the backward pass: references to their results and
    values, and the items of each."""

    node: ReductionNode
    summand: Summand
    captured: list[Any]
    values: list[Any]
    blocks: list[ZippedBlock]

    def build_value(self, forward: Forward) -> None:
        if self.summand.is_partial:
            build_sum_with_fingerprints(self.node, forward, self.values)
        else:
            (forward.values[self.node],) = self.values

    def build_cotangents(self, backward: Backward, arrived: Contribution) -> None:
        node, tasks, pulled = self.node, backward.tasks, self._pull_back(backward, arrived)
        shared, fields = node.active_shared(backward.graph), node.active_fields(backward.graph)
        count = len(shared) + len(fields)
        for number, source in enumerate(shared):
            terms = pick_each(node, tasks, pulled, number, count)
            total = build_sum(node, tasks, terms, "cotangent", add_unscaled, of=source)
            backward.send(source, Contribution(total))
        for number, field in enumerate(fields, len(shared)):
            pulled_items = pick_each(node, tasks, pulled, number, count)
            items = (pulled_items, node.items.sizes, node.items.are_rows(field))
            joined = node.build_task(tasks, "cotangent", concatenate_items, *items)
            send_items(node, backward, field, joined)

    def _pull_back(self, backward: Backward, arrived: Contribution) -> list[Any]:
        node, tasks = self.node, backward.tasks
        args = (arrived.cotangent, tasks.shared(node.model), self.summand)
        inputs, seen = shared_values(node, backward.forward), self._seen(backward, arrived)
        blocks = node.items.placed_now(tasks, self.blocks)
        parts = zip(self.captured, blocks, seen, node.items.counts, strict=True)
        return [
            node.build_task(
                tasks,
                "backward",
                pull_back_block,
                block,
                *args,
                first,
                inputs,
                elsewhere,
                *fields,
                calls=count,
            )
            for block, (first, fields), elsewhere, count in parts
        ]

    def _seen(self, backward: Backward, arrived: Contribution) -> list[Any]:
        """The ``value_elsewhere`` of each block."""
        if not self.summand.is_partial:
            return [backward.value_elsewhere(self.node, arrived)]
        if not waits_for_value(self.node, backward, arrived):
            return self.values
        prints = backward.build_fingerprints(self.node, arrived, repr(self.node.name))
        return [[False, prints, number] for number in range(len(self.values))]


@forward_tasks.register
def _(node: ReductionNode, forward: Forward) -> None:
    blocks: FusedBlocks | KeptBlocks
    if forward.direct is not None and forward.is_direct(node):
        blocks = build_direct_sum(node, forward, forward.direct)
    elif node.is_fused(forward.graph):
        blocks = build_fused_blocks(node, forward)
    else:
        blocks = build_kept_blocks(node, forward)
    forward.captured[node] = blocks
    blocks.build_value(forward)


@backward_tasks.register
def _(node: ReductionNode, backward: Backward, arrived: Contribution) -> None:
    backward.forward.captured[node].build_cotangents(backward, arrived)


def build_direct_sum(node: ReductionNode, forward: Forward, direct: DirectSums) -> FusedBlocks:
    """Builds a task that gathers the sum's inputs; whoever runs it puts the sum in its place."""
    tasks, named = forward.tasks, (node.adder_name, 0)
    if node.is_for_workers(direct.client):
        named = (node.name, node.items.count)
    key = tasks.key("forward", *named)
    direct[key] = node
    total = tasks.add(key, list, shared_values(node, forward))
    item_cotangents = tuple(
        [
            node.build_task(tasks, "cotangent", item_cotangents_in, total, number)
            for number in range(len(node.active_fields(forward.graph)))
        ]
    )
    return FusedBlocks(node, total, item_cotangents)


def build_fused_blocks(node: ReductionNode, forward: Forward) -> FusedBlocks:
    tasks, fields = forward.tasks, range(len(node.active_fields(forward.graph)))
    args = (node.summand(forward.graph), shared_values(node, forward))
    items = node.items.blocks(tasks, node.name)
    blocks = node.build_blocks(tasks, "forward", capture_block, *args, items)
    summed = blocks
    if fields:  # blocks are added up without the cotangents of their items
        summed = [node.build_pick(tasks, "forward", without_items, b) for b in blocks]
    model, pairs = tasks.shared(node.model), list(zip(blocks, summed, strict=True))
    item_cotangents = [
        [
            node.build_task(tasks, "cotangent", item_cotangents_of, b, n, of, model)
            for b, of in pairs
        ]
        for n in fields
    ]
    total = build_sum(node, tasks, summed, "forward", add_captured)
    return FusedBlocks(node, tasks.keep("forward", node.key_name, total), item_cotangents)


def build_kept_blocks(node: ReductionNode, forward: Forward) -> KeptBlocks:
    tasks, summand = forward.tasks, node.summand(forward.graph)
    blocks = node.items.blocks(tasks, node.name, used_twice=True)
    args = (summand, shared_values(node, forward), blocks)
    captured = node.build_blocks(tasks, "forward", capture_block, *args)
    values = [node.build_pick(tasks, "value", value_of, block) for block in captured]
    return KeptBlocks(node, summand, captured, values, blocks)


def send_items(node: ReductionNode, backward: Backward, field: int, joined: Any) -> None:
    """Sends the cotangents of all items to their variable."""
    variable, source = node.items.variable(field), node.items.sources[field]
    if isinstance(source, ChosenSource):
        where = source.shape, source.indices, bool(variable.asked)
        joined = node.build_task(backward.tasks, "cotangent", place_items, joined, *where)
    backward.send(variable, Contribution(joined))


def pick_each(
    node: ReductionNode, tasks: TaskGraph, pulled: list[Any], number: int, count: int
) -> list[Any]:
    """The results of each task for one of ``count`` active inputs."""
    if count == 1:
        return pulled
    return [node.build_pick(tasks, "cotangent", select, task, number) for task in pulled]


def shared_values(node: ReductionNode, forward: Forward) -> list[Any]:
    return [forward.values[source] for source in node.inputs[: node.width]]
