"""At once: runs tasks in the calling thread when they are added, as long as there is time.

A graph is for those who run it elsewhere or later. Where the next task runs here and now, nothing
is planned, looked up or sent: a small model costs little more than its own run. The functions and
their arguments are those of the tasks, and so are the bits. What is added when the time is up is
for Dask, with the results so far as data.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dask.local import get_sync

from daskgrad.derivatives.in_line import Budget, capture_here
from daskgrad.derivatives.threads import Comparison
from daskgrad.graph.activity import Graph
from daskgrad.graph.forward import DirectSums
from daskgrad.tasks import observers
from daskgrad.tasks.keys import Stage, key_parts
from daskgrad.tasks.task_graph import TaskGraph, where
from daskgrad.values.carriers import carrier


@carrier
class Known:
    """The result of a task that has run, in the place of a reference to it.

    A part of a result has no ``key`` before one is needed, and the ``name`` that this will have.
    """

    key: Any
    value: Any
    name: str = ""
    reference: Any = None  # for tasks of Dask's, where there are any


class AtOnce(TaskGraph):
    """The tasks of one evaluation, run as they are added; those added when time is up are Dask's.

    As long as they run here nothing runs twice: a node's value and its pullback are of one run, and
    what consumers have seen of the value need not be compared.
    """

    def __init__(self, graph: Graph, direct: DirectSums, seconds: float):
        super().__init__()
        self._graph = graph
        self._direct = direct
        self._budget = Budget(seconds, len(graph.order))
        self._comparison = Comparison(graph)
        self._is_late = False
        graph.is_watched = False

    def add(
        self, key: Any, fun: Callable, *args: Any, annotations: dict[str, Any] | None = None
    ) -> Any:
        if self._is_late:
            return super().add(key, fun, *map(self._refer, args), annotations=annotations)
        given = []
        for arg in args:  # a loop: all that is done here is done for every task
            kind = type(arg)
            given.append(arg.value if kind is Known else _known(arg) if kind is list else arg)
        if key in self._direct:
            args = (self._direct[key], self._graph, *given)
            how = (self._budget, self._comparison)
            return Known(key, self._budget.beside(capture_here, *args, *how))
        value = fun(*given) if self._policy is None else self.function(key, fun).run(tuple(given))
        if self._budget.put_off():
            self._hand_over()
        return Known(key, value)

    def pick(
        self, stage: Stage, name: str, fun: Callable, source: Any, *args: Any, **how: Any
    ) -> Any:
        if self._is_late:
            return super().pick(stage, name, fun, self._refer(source), *args, **how)
        return Known(None, fun(source.value, *args), name)

    def data(self, key: Any, value: Any) -> Any:
        return super().data(key, value) if self._is_late else Known(key, value)

    def compute(self, keys: Iterable[Any]) -> Sequence[Any]:
        return self._comparison.hand_over(super().compute, keys)

    def _scheduler(self) -> Callable:
        return get_sync if self._comparison.stays() else super()._scheduler()

    def end(self) -> None:
        """Takes in how long the evaluation took, of which there are all results."""
        self._comparison.end()

    def _hand_over(self) -> None:
        """From here on tasks may run again, where something is lost or moved."""
        self._is_late = self._graph.is_watched = True
        self._where = where()
        self._direct.is_open = False
        self._comparison.stays()  # decides, and measures what ran here

    def _refer(self, arg: Any) -> Any:
        """An argument with references in the places of results."""
        if type(arg) is Known:
            if arg.reference is None:
                key = self.key("value", arg.name) if arg.key is None else arg.key
                arg.reference = super().data(key, arg.value)
            return arg.reference
        return [self._refer(item) for item in arg] if type(arg) is list else arg


class ObservedAtOnce(AtOnce):
    """The same, where observers are told of each task that runs here, under keys of this graph."""

    def __init__(self, graph: Graph, direct: DirectSums, seconds: float):
        super().__init__(graph, direct, seconds)
        own = key_parts(self.key("value", "node"))
        self._evaluation = "" if own is None else own.evaluation
        self._told: dict[Any, Any] = {}  # the keys of tasks under which observers know them

    def add(
        self, key: Any, fun: Callable, *args: Any, annotations: dict[str, Any] | None = None
    ) -> Any:
        run = functools.partial(super().add, key, fun, *args, annotations=annotations)
        if self._is_late:
            return run()
        given = [item for arg in args for item in (arg if type(arg) is list else (arg,))]
        inputs = [self._told.get(each.key, each.key) for each in given if type(each) is Known]
        parts = key_parts(key)
        if parts is not None and parts.evaluation != self._evaluation:  # a node's key
            self._told[key] = (f"{parts.stage}-{parts.model}-{self._evaluation}", *key[1:], "node")
        return observers.run_observed(self._told.get(key, key), inputs, run)

    def pick(
        self, stage: Stage, name: str, fun: Callable, source: Any, *args: Any, **how: Any
    ) -> Any:
        picked = super().pick(stage, name, fun, source, *args, **how)
        if type(picked) is Known:
            picked.key = self.key(stage, name)
            self._told[picked.key] = self._told.get(source.key, source.key)
        return picked


def _known(items: list[Any]) -> list[Any]:
    """A list with results in the places of what stands for them."""
    return [item.value if type(item) is Known else item for item in items]
