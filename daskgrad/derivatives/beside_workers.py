"""Beside workers: the tasks of an evaluation whose sums over placed items the workers evaluate.

They get direct calls, which take less time than tasks. The nodes around these sums run in the
calling thread meanwhile, or on the cluster: that is decided before.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from daskgrad.autodiff.values.memory import canonical
from daskgrad.derivatives.tasks_in_line import InLine, KnownResult, items_of
from daskgrad.graph.activity import Graph
from daskgrad.graph.forward import DirectSums
from daskgrad.graph.nodes import Node
from daskgrad.placed.call import call_workers
from daskgrad.sums.placed import ArrayTermsError
from daskgrad.tasks import observers
from daskgrad.tasks.keys import Stage
from daskgrad.tasks.task_functions import REFERENCES
from daskgrad.tasks.task_graph import TaskGraph

WORKERS = 0  # the process of sums that workers evaluate, for observers


class BesideWorkers(InLine):
    """The tasks of one evaluation, beside sums that a cluster's workers evaluate.

    Tasks that need such a sum wait until ``compute``; other tasks run meanwhile. ``watch`` pauses
    while this thread is busy with the workers. Unless ``is_here``, the cluster runs the tasks.
    """

    def __init__(self, graph: Graph, direct: DirectSums, watch: Any, is_here: bool):
        super().__init__(graph, direct, direct.client)
        self._client = direct.client
        self._watch, self._is_here = watch, is_here
        self._pending: dict[Any, None] = {}  # the keys of sums that have no result yet
        self._left = count_first_sums(graph, self._client)  # until the workers are called
        self._call: Any = None  # of the workers
        self._running: Sequence[Any] = ()  # the keys of the sums that are called
        self._began = 0.0  # the time of the call, since the epoch
        self._is_sent = True
        self._values: dict[Any, Any] = {}  # results that planned tasks refer to, by key

    def add(
        self, key: Any, fun: Callable, *args: Any, annotations: dict[str, Any] | None = None
    ) -> Any:
        waits = self._pending and any([isinstance(item, REFERENCES) for item in items_of(args)])
        if waits or not self._is_here:
            if key in self._direct:
                self._pending[key] = None
            return self._plan(key, fun, args, annotations)
        if not self._is_sent:
            self._flush()
        if key in self._direct:
            self._pending[key] = None
            reference = self._plan(key, fun, args, annotations)
            self._left -= 1
            if not self._left:
                self._start(self._next_sums())
            return reference
        return super().add(key, fun, *args, annotations=annotations)

    def _plan(self, key: Any, fun: Callable, args: tuple, annotations: Any) -> Any:
        return TaskGraph.add(self, key, fun, *map(self._refer, args), annotations=annotations)

    def pick(
        self, stage: Stage, name: str, fun: Callable, source: Any, *args: Any, **options: Any
    ) -> Any:
        if type(source) is not KnownResult:
            source = self._refer(source)
            return TaskGraph.pick(self, stage, name, fun, source, *args, **options)
        return super().pick(stage, name, fun, source, *args, **options)

    def shared(self, model: Any) -> Any:
        return model if self._is_here else TaskGraph.shared(self, model)

    def _refer(self, arg: Any) -> Any:
        """An argument with references in the places of results."""
        if type(arg) is KnownResult:
            if arg.reference is None:
                key = self.key("value", arg.name) if arg.key is None else arg.key
                arg.reference = TaskGraph.data(self, key, arg.value)
                self._values[key] = arg.value
                shown = self._shown.get(key, key)
                if self._audience and shown != key:  # a task that passes a part on
                    self._tell(key, [shown], time.time())
            return arg.reference
        return [self._refer(item) for item in arg] if type(arg) is list else arg

    def compute(self, keys: Iterable[Any]) -> Sequence[Any]:
        """The results of tasks; they need all pending sums."""
        keys = list(keys)
        while self._pending:
            sums = self._next_sums()
            self._finish([source for key in sums for source in self.inputs(key)], keys)
            if self._call is None:
                self._start(sums)
            for key in sums:
                del self._pending[key]
            self._values.update(zip(sums, self._results_of_call(sums), strict=True))
        self._finish(keys, keys)
        return [self._values[key] for key in keys]

    def abandon(self) -> None:
        """Gives up the sums that workers evaluate."""
        if self._call is not None:
            self._tell_workers_ran(has_failed=True)
            self._call.abandon()

    def _tell_workers_ran(self, has_failed: bool = False) -> None:
        for key in self._running:
            observers.tell_ran(
                self._audience, key, self.inputs(key), self._began, WORKERS, has_failed
            )

    def _next_sums(self) -> list[Any]:
        """The pending sums that wait for no other one."""
        waiting = {key: self.needed(self.inputs(key), self._values) for key in self._pending}
        return [key for key, needed in waiting.items() if self._pending.keys().isdisjoint(needed)]

    def _start(self, keys: Sequence[Any]) -> None:
        """Calls the workers once for several sums, so that each gets the point once."""
        nodes = [self._direct[key] for key in keys]
        inputs = [self.run_one(key, self._values) for key in keys]
        sums = [
            (node, node.summand(self._graph), values)
            for node, values in zip(nodes, inputs, strict=True)
        ]
        self._began, self._running = time.time(), keys
        for key in keys:
            observers.tell_planned(self._audience, key, self.inputs(key))
        with self._watch.paused():
            self._call = call_workers(self._client, sums)
        self._is_sent = False

    def _flush(self) -> None:
        """Waits a moment until the workers have their requests, before anything runs beside."""
        assert self._call is not None
        with self._watch.paused():
            self._call.flush()
        self._is_sent = True

    def _results_of_call(self, keys: Sequence[Any]) -> Sequence[Any]:
        assert self._call is not None
        try:
            with self._watch.paused():
                results = self._call.results()
        except ArrayTermsError as error:
            self._direct[keys[error.number]].note_array_terms()
            raise
        self._tell_workers_ran()
        self._call, self._is_sent = None, True
        return results

    def _finish(self, keys: Iterable[Any], later: Sequence[Any]) -> None:
        """Runs the tasks that the keys need, here or on the cluster."""
        needed = self.needed(keys, self._values)
        if needed and not self._is_here:
            self._values.update(self._on_cluster(needed, keys, later))
            return
        for key in needed:
            inputs = map(self.reference, self.inputs(key))
            self._values[key] = self._run(key, inputs, self.run_one, key, self._values)

    def _on_cluster(
        self, running: Sequence[Any], keys: Iterable[Any], later: Sequence[Any]
    ) -> dict[Any, Any]:
        """The results of the tasks that are ``running`` there for the keys, if these or ``later``
        keys use them."""
        others = set(self.needed(later, self._values)).difference(running)
        used = {*keys, *later, *[source for key in others for source in self.inputs(key)]}
        kept = [key for key in running if key in used]
        tasks = self.rest(kept, self._values)
        tasks.is_measured = True
        results = tasks.compute(kept)
        self.seconds += tasks.seconds
        return dict(zip(kept, map(canonical, results), strict=True))


def count_first_sums(graph: Graph, client: Any) -> int:
    """How many sums the workers can evaluate at once: they wait for no other one."""
    count = 0
    waiting: set[Node] = set()
    for node in graph.order:
        is_waiting = not waiting.isdisjoint(node.inputs)
        if is_waiting or node.is_direct(graph, client):
            waiting.add(node)
            count += not is_waiting
    return count
