"""Tasks in line: they run in the calling thread when they are added.

The bits are the same as in a graph of Dask: the same functions run on the same blocks, and add up
in the same order.
"""

import functools
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from daskgrad.autodiff.models.captured import Captured
from daskgrad.autodiff.values.carriers import carrier
from daskgrad.graph.activity import Graph
from daskgrad.graph.forward import DirectSums
from daskgrad.sums.adding import require_gradient, round_sum
from daskgrad.sums.block_tasks import TracedSum
from daskgrad.sums.item_cotangents import (
    item_cotangents_in,
    join,
    with_item_cotangents,
    without_items,
)
from daskgrad.sums.item_sum import ReductionNode
from daskgrad.tasks import observers
from daskgrad.tasks.keys import Stage, key_parts
from daskgrad.tasks.task_functions import REFERENCES
from daskgrad.tasks.task_graph import TaskGraph, Where

RUN = 64  # blocks of differentiated items: their cotangents are put into one array then


@carrier
class KnownResult:
    """The result of a task that has run, instead of a reference to it."""

    key: Any  # None for a part of a result until a key, of this ``name``, is needed
    value: Any
    name: str = ""
    reference: Any = None  # for tasks that run later


class InLine(TaskGraph):
    """The tasks of one evaluation, which run when they are added.

    So a small model costs little more than its own run: nothing is planned, looked up or sent.
    Nothing runs twice: a node's value and its pullback are of one run, and consumers need not
    compare the values that they have seen. ``client``: of a cluster whose workers take part.
    """

    def __init__(self, graph: Graph, direct: DirectSums, client: Any = None):
        super().__init__(Where.HERE)
        self._graph = graph
        self._direct = direct
        self._shown: dict[Any, Any] = {}  # the keys under which observers know tasks
        self._audience = observers.audience(client)
        self._evaluation = key_parts(self.key("value", "node")) if self._audience else None

    def add(
        self, key: Any, fun: Callable, *args: Any, annotations: dict[str, Any] | None = None
    ) -> Any:
        values: list[Any] = []
        for arg in args:  # a loop: all that is done here is done for every task
            if type(arg) is list:
                values.append([x.value if type(x) is KnownResult else x for x in arg])
            else:
                values.append(arg.value if type(arg) is KnownResult else arg)
        if key in self._direct:
            return self._add_sum(key, fun, args, fun(*values))
        if self._policy is None and self._evaluation is None:
            return KnownResult(key, fun(*values))
        return KnownResult(
            key, self._run(key, args, self.function(key, fun).run_here, tuple(values))
        )

    def _add_sum(self, key: Any, fun: Callable, args: tuple, inputs: list[Any]) -> Any:
        """A sum that is evaluated directly, from its inputs."""
        node, start = self._direct[key], time.time()
        captured = capture_here(node, self._graph, inputs)
        if self._audience:
            of_items = self.key("forward", node.name, node.items.count)
            self._tell(of_items, self._keys_in(args), start)
            self._tell(key, [of_items], time.time())
        return KnownResult(key, captured)

    def pick(
        self, stage: Stage, name: str, fun: Callable, source: Any, *args: Any, **options: Any
    ) -> Any:
        picked = KnownResult(None, fun(source.value, *args), name)
        if self._evaluation is not None:
            picked.key = self.key(stage, name, 0)
            self._shown[picked.key] = self._shown.get(source.key, source.key)
        return picked

    def data(self, key: Any, value: Any) -> Any:
        return KnownResult(key, value)

    def shared(self, model: Any) -> Any:
        return model

    def _run(self, key: Any, args: Iterable[Any], fun: Callable, *values: Any) -> Any:
        """Runs a task; observers see it, and its inputs, under keys of this evaluation."""
        if self._evaluation is None:
            return fun(*values)
        parts = key_parts(key)
        if parts is not None and parts.evaluation != self._evaluation.evaluation:  # a node's key
            name = f"{parts.stage}-{parts.model}-{self._evaluation.evaluation}"
            self._shown[key] = (name, *key[1:], "node")
        run = functools.partial(fun, *values)
        shown = self._shown.get(key, key)
        return observers.run_observed(self._audience, shown, self._keys_in(args), run)

    def _tell(self, key: Any, inputs: Sequence[Any], start: float) -> None:
        """Tells observers of a task that has run here."""
        observers.tell_planned(self._audience, key, inputs)
        observers.tell_ran(self._audience, key, inputs, start)

    def _keys_in(self, args: Iterable[Any]) -> list[Any]:
        """The keys, as observers know them, that arguments refer to."""
        keys = [item.key for item in items_of(args) if isinstance(item, (KnownResult, *REFERENCES))]
        return [self._shown.get(source, source) for source in keys]


def items_of(args: Iterable[Any]) -> list[Any]:
    """The arguments of a task, and in the places of lists their items."""
    return [item for arg in args for item in (arg if type(arg) is list else (arg,))]


def capture_here(node: ReductionNode, graph: Graph, inputs: Sequence[Any]) -> Captured:
    """The sum of a model over items that are here, with its gradient."""
    fields, items = node.active_fields(graph), node.items
    traced = TracedSum(node.model, node.summand(graph), inputs)
    are_rows = [items.are_rows(field) and not items.slices for field in fields]
    terms, count = traced.no_terms(are_rows), len(items.firsts)
    step = RUN if fields else count
    for start in range(0, count, step):
        traced.add(terms, items.firsts[start], items.here(start, min(start + step, count)))
    captured = traced.total(terms, f"all {items.count} items")
    require_gradient(captured, node.name)
    total = round_sum(without_items(captured))
    if not fields:
        return total
    cotangents = []
    for index, field in enumerate(fields):
        leaves, sizes = item_cotangents_in(captured, index), [items.count]
        is_cut = items.are_rows(field) and items.slices
        parts = [(leaf,) for leaf in leaves] if is_cut else [leaves]
        cotangents.append(join(parts, items.are_rows(field), items.sizes if is_cut else sizes))
    return with_item_cotangents(total, [tuple(cotangents)])
