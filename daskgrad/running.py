"""Running what was built, in the calling thread or where Dask would, and again what was lost."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import dask.system
from distributed import CancelledError

from daskgrad.backward import add_backward
from daskgrad.batches import Batch, BatchTasks, unit_cotangents
from daskgrad.cotangents import Cotangent, Seed
from daskgrad.demands import warn_of_shipping
from daskgrad.fingerprints import fingerprint
from daskgrad.forward import Whole, add_forward
from daskgrad.graph import Graph
from daskgrad.inline import InLine, seconds_in_line
from daskgrad.nodes import Node
from daskgrad.reduction import ReductionNode
from daskgrad.resident.evaluation import ArrayTermsError
from daskgrad.shards import active_client
from daskgrad.structures import flatten
from daskgrad.tasks import TaskGraph
from daskgrad.variables import Variable

ATTEMPTS = 10  # how often an evaluation is repeated after placed items were lost

Arrived = dict[Variable, Cotangent]  # what arrived at each variable, or part of one


def evaluated(graph: Graph, extras: Sequence[Node] = ()) -> tuple[Any, Sequence[Any], Arrived]:
    """The output's value, those of the extras, and the cotangents that arrive at variables."""
    return repeated(graph, lambda: once(graph, extras))


def once(graph: Graph, extras: Sequence[Node]) -> tuple[Any, Sequence[Any], Arrived]:
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


def known_or(compute: Callable[[list[Any]], Sequence[Any]], references: Sequence[Any]) -> list[Any]:
    """What references stand for: computed, unless it is a cotangent, which is known already.

    That is the cotangent of an output that is itself a variable.
    """
    keys = [ref.key for ref in references if not isinstance(ref, Cotangent)]
    computed = iter(compute(keys))
    return [ref if isinstance(ref, Cotangent) else next(computed) for ref in references]


def repeated(
    graph: Graph, evaluate: Callable[[], Any], prepare: Callable[[], Any] = lambda: None
) -> Any:
    """Evaluates; where placed items were lost with a worker, places them again and repeats.

    ``prepare`` is called before each repetition.
    """
    sums = [node for node in graph.order if isinstance(node, ReductionNode)]
    placed = [shards for node in sums for shards in node.items.placed]
    is_lost = False
    for _ in range(ATTEMPTS):
        try:
            if is_lost:
                prepare()
            return evaluate()
        except ArrayTermsError as error:
            for shards in placed:
                shards.array_valued.add(str(error))
        except CancelledError:
            if not placed:
                raise
            for shards in placed:
                shards.restore()  # unless another evaluation has done so already
            is_lost = True
    if is_lost:
        prepare()
    return evaluate()


class Kept:
    """A forward pass that was run, and what its pullbacks need for any number of cotangents."""

    def __init__(self, graph: Graph):
        self._graph = graph
        self.value = repeated(graph, self._run)
        self._seen = fingerprint(flatten(self.value)[0])

    def _run(self) -> Any:
        warn_of_shipping(self._graph, active_client())
        tasks = TaskGraph()
        self._forward = add_forward(self._graph, tasks)
        self._tasks = tasks.persisted()
        return known_or(self._tasks.compute, [self._forward.values[self._graph.output]])[0]

    def pull(self, cotangent: Cotangent) -> Arrived:
        """What arrives at the variables."""
        return repeated(self._graph, lambda: self._pull(cotangent), prepare=self._run)

    def _pull(self, cotangent: Cotangent) -> Arrived:
        tasks, cotangent = self._tasks.copy(), self._of_value(cotangent)
        arrived = add_backward(self._graph, self._forward, tasks, cotangent, saw_value=True)
        computed = known_or(tasks.compute, list(arrived.values()))
        return dict(zip(arrived, computed, strict=True))

    def _of_value(self, cotangent: Cotangent) -> Cotangent:
        """A cotangent of the value that the caller has: the models may have run again since."""
        return Cotangent(cotangent.leaves, self._seen)

    def pull_each(self, cotangents: Sequence[Cotangent]) -> list[Arrived]:
        """What arrives at the variables for each of many cotangents."""

        def add_seeds(tasks: TaskGraph, start: int, stop: int) -> Any:
            batch = Batch(tuple(map(self._of_value, cotangents[start:stop])))
            return tasks.data(self._seed_key(tasks), batch)

        return self._pull_all(len(cotangents), add_seeds)

    def pull_units(self, count: int) -> list[Arrived]:
        """What arrives for the cotangents that are one in one of the value's ``count`` entries."""

        def add_seeds(tasks: TaskGraph, start: int, stop: int) -> Any:
            value = self._forward.values[self._graph.output]
            args = (value, start, stop, self._seen)
            return tasks.add(self._seed_key(tasks), unit_cotangents, *args)

        return self._pull_all(count, add_seeds)

    def _seed_key(self, tasks: TaskGraph) -> Any:
        return tasks.key("cotangent", self._graph.output.name)

    def _pull_all(
        self, count: int, add_seeds: Callable[[TaskGraph, int, int], Any]
    ) -> list[Arrived]:
        runs = groups(count)

        def evaluate() -> list[Arrived]:
            tasks = self._tasks.copy()
            arrived = [
                add_backward(
                    self._graph,
                    self._forward,
                    BatchTasks(tasks),  # type: ignore[arg-type]
                    add_seeds(tasks, start, stop),
                    saw_value=True,
                )
                for start, stop in runs
            ]
            computed = iter(tasks.compute([ref.key for each in arrived for ref in each.values()]))
            batches = [{variable: next(computed) for variable in each} for each in arrived]
            return [
                {variable: batch.entries[number] for variable, batch in each.items()}
                for each, (start, stop) in zip(batches, runs, strict=True)
                for number in range(stop - start)
            ]

        return repeated(self._graph, evaluate, prepare=self._run)


def groups(count: int) -> list[tuple[int, int]]:
    """Runs of directions that share a task: two for each thread there is, if there are so many."""
    client = active_client()
    threads = sum(client.nthreads().values()) if client else dask.system.CPU_COUNT
    number = max(1, min(count, 2 * threads))
    bounds = [count * n // number for n in range(number + 1)]
    return list(pairwise(bounds)) if count else []
