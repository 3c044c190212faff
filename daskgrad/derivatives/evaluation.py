"""Running what was built, in the calling thread or where Dask would, and again what was lost."""

import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import dask.system

from daskgrad.derivatives.at_once import AtOnce, Known
from daskgrad.derivatives.in_line import InLine, seconds_in_line
from daskgrad.derivatives.inputs import warn_of_shipping
from daskgrad.graph.activity import Graph
from daskgrad.graph.backward import add_backward
from daskgrad.graph.batches import Batch, BatchTasks, unit_cotangents
from daskgrad.graph.forward import Forward, Whole, add_forward
from daskgrad.graph.nodes import Node
from daskgrad.graph.variables import Variable
from daskgrad.models.determinism import NondeterministicModelError
from daskgrad.models.pullbacks import capture, each_of, pull_back
from daskgrad.resident.evaluation import ArrayTermsError
from daskgrad.sums.item_sum import ReductionNode
from daskgrad.tasks.clients import active_client
from daskgrad.tasks.supervision import LostError
from daskgrad.tasks.task_graph import TaskGraph, Where, where
from daskgrad.tasks.workers import present
from daskgrad.values.cotangents import Cotangent, Seed
from daskgrad.values.fingerprints import agree, fingerprint
from daskgrad.values.trees import flatten

DERIVATIVES_A_THREAD = 8  # that are evaluated at once
ATTEMPTS = 10  # how often an evaluation is repeated after placed items were lost

Arrived = dict[Variable, Cotangent]  # what arrived at each variable, or part of one


def evaluated(graph: Graph, extras: Sequence[Node] = ()) -> tuple[Any, Sequence[Any], Arrived]:
    """The output's value, those of the extras, and the cotangents that arrive at variables."""
    return repeated(graph, lambda: once(graph, extras))


def once(graph: Graph, extras: Sequence[Node]) -> tuple[Any, Sequence[Any], Arrived]:
    client = active_client()
    seconds = seconds_in_line(graph, client)
    if not seconds:
        warn_of_shipping(graph, client)
        return both_passes(graph, extras, TaskGraph(where()))
    if client is None and graph.is_one_call:
        return one_call(graph)
    whole = Whole(client)
    if client is None:
        return both_passes(graph, extras, AtOnce(graph, whole, seconds), whole)
    tasks = TaskGraph(Where.CLUSTER)
    return both_passes(graph, extras, tasks, whole, InLine(tasks, whole, seconds).compute)


def one_call(graph: Graph) -> tuple[Any, Sequence[Any], Arrived]:
    """Both passes of one model on variables: there is nothing to hand over, or to do meanwhile."""
    graph.is_watched = False
    node: Any = graph.output
    inputs = [source.primal for source in node.inputs]
    active = graph.active_inputs(node)
    captured = capture(node.model, node.call, active, inputs)
    pulled = each_of(pull_back(captured, Seed(), node.model, node.call, active, inputs))
    sources = [node.inputs[each.number] for each in active]
    return captured.value, (), dict(zip(sources, pulled, strict=True))


def both_passes(
    graph: Graph,
    extras: Sequence[Node],
    tasks: TaskGraph,
    whole: Whole | None = None,
    compute: Callable[[list[Any]], Sequence[Any]] | None = None,
) -> tuple[Any, Sequence[Any], Arrived]:
    """Adds the tasks of both passes, and computes them where they have not run at once."""
    forward = add_forward(graph, tasks, whole)
    arrived = add_backward(graph, forward, tasks, Seed())
    references = [forward.values[node] for node in (graph.output, *extras)]
    value, *rest = known_or(compute or tasks.compute, [*references, *arrived.values()])
    computed, pulled = rest[: len(extras)], rest[len(extras) :]
    return value, computed, dict(zip(arrived, pulled, strict=True))


def known_or(compute: Callable[[list[Any]], Sequence[Any]], references: Sequence[Any]) -> list[Any]:
    """What references stand for: computed, unless it is known already.

    That is what has been run at once, and the cotangent of an output that is itself a variable.
    """
    keys = [ref.key for ref in references if not isinstance(ref, Cotangent | Known)]
    computed = iter(compute(keys) if keys else ())
    return [
        known(ref) if isinstance(ref, Cotangent | Known) else next(computed) for ref in references
    ]


def known(reference: Any) -> Any:
    return reference.value if isinstance(reference, Known) else reference


def repeated(
    graph: Graph, evaluate: Callable[[], Any], prepare: Callable[[], Any] | None = None
) -> Any:
    """Evaluates; where something was lost with workers, or in a restart, makes it good and repeats.

    That is where items were placed, which are placed again, or where the evaluation uses what
    ``prepare`` computes, which is called before each repetition. What else is lost is not ours.
    """
    sums = [node for node in graph.order if isinstance(node, ReductionNode)]
    placed = [shards for node in sums for shards in node.items.placed]
    is_lost = False
    for _ in range(ATTEMPTS):
        try:
            if is_lost and prepare is not None:
                prepare()
            return evaluate()
        except ArrayTermsError as error:
            for node in sums:
                if node.model.name == str(error):
                    node.array_valued(active_client()).add(str(error))
        except LostError as error:
            if not (placed or prepare or error.is_restart):
                raise
            for shards in placed:
                shards.restore()  # unless another evaluation has done so already
            is_lost = True
    if is_lost and prepare is not None:
        prepare()
    return evaluate()


class ForwardPass(NamedTuple):
    """A forward pass that was run: its graph holds the results, on the cluster of ``client``."""

    forward: Forward
    tasks: TaskGraph
    client: Any


class Kept:
    """A forward pass that was run, and what its pullbacks need for any number of cotangents.

    The forward pass runs again where its results are gone: with all workers that had them, in a
    restart of the cluster, or because another cluster is active now. It must have the same value.
    """

    def __init__(self, graph: Graph):
        self._graph = graph
        self._lock = threading.Lock()
        self.value, self._pass = repeated(graph, self._run)
        self._seen = fingerprint(flatten(self.value)[0])

    def _run(self) -> tuple[Any, ForwardPass]:
        client = active_client()
        warn_of_shipping(self._graph, client)
        tasks = TaskGraph(where())
        forward = add_forward(self._graph, tasks)
        kept = tasks.persisted()
        try:
            value = known_or(kept.compute, [forward.values[self._graph.output]])[0]
        except BaseException:
            kept.release()
            raise
        return value, ForwardPass(forward, kept, client)

    def _run_again(self, lost: ForwardPass) -> None:
        """Runs the forward pass again, unless another thread has done so since it was lost."""
        with self._lock:
            if self._pass is not lost:
                return
            value, anew = self._run()
            if not agree(fingerprint(flatten(value)[0]), self._seen):
                raise NondeterministicModelError(
                    f"the forward pass of {self._graph.output.name!r} was run again for its "
                    f"pullback, since its results were lost, and returned another value: one of "
                    f"its models depends on something else than its arguments. Random numbers are "
                    f"the same in every run with dg.random.generators"
                )
            self._pass = anew

    def _repeated(self, evaluate: Callable[[ForwardPass], Any]) -> Any:
        """Evaluates on what is kept, which is kept anew where it is not there (any more)."""
        used = self._pass
        if used.client is not None and active_client() is not used.client:
            repeated(self._graph, lambda: self._run_again(used))

        def evaluate_latest() -> Any:
            nonlocal used
            used = self._pass
            return evaluate(used)

        return repeated(self._graph, evaluate_latest, prepare=lambda: self._run_again(used))

    def pull(self, cotangent: Cotangent) -> Arrived:
        """What arrives at the variables."""

        def evaluate(kept: ForwardPass) -> Arrived:
            tasks, of_value = kept.tasks.copy(), self._of_value(cotangent)
            arrived = add_backward(self._graph, kept.forward, tasks, of_value, saw_value=True)
            computed = known_or(tasks.compute, list(arrived.values()))
            return dict(zip(arrived, computed, strict=True))

        return self._repeated(evaluate)

    def _of_value(self, cotangent: Cotangent) -> Cotangent:
        """A cotangent of the value that the caller has: the models may have run again since."""
        return Cotangent(cotangent.leaves, self._seen)

    def pull_each(self, cotangents: Sequence[Cotangent]) -> list[Arrived]:
        """What arrives at the variables for each of many cotangents."""

        def seeds(kept: ForwardPass, tasks: TaskGraph, start: int, stop: int) -> Any:
            batch = Batch(tuple(map(self._of_value, cotangents[start:stop])))
            return tasks.data(self._seed_key(tasks), batch)

        return self._pull_all(len(cotangents), seeds)

    def pull_units(self, count: int) -> list[Arrived]:
        """What arrives for the cotangents that are one in one of the value's ``count`` entries."""

        def seeds(kept: ForwardPass, tasks: TaskGraph, start: int, stop: int) -> Any:
            value = kept.forward.values[self._graph.output]
            args = (value, start, stop, self._seen)
            return tasks.add(self._seed_key(tasks), unit_cotangents, *args)

        return self._pull_all(count, seeds)

    def _seed_key(self, tasks: TaskGraph) -> Any:
        return tasks.key("cotangent", self._graph.output.name)

    def _pull_all(
        self, count: int, seeds: Callable[[ForwardPass, TaskGraph, int, int], Any]
    ) -> list[Arrived]:
        runs = groups(count)

        def evaluate(kept: ForwardPass) -> list[Arrived]:
            tasks = kept.tasks.copy()
            arrived = [
                add_backward(
                    self._graph,
                    kept.forward,
                    BatchTasks(tasks),  # type: ignore[arg-type]
                    seeds(kept, tasks, start, stop),
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

        return self._repeated(evaluate)


def groups(count: int) -> list[tuple[int, int]]:
    """Runs of directions that share a task: two for each thread there is, if there are so many."""
    return runs(count, 2 * threads())


def at_once(count: int) -> list[tuple[int, int]]:
    """Runs of derivatives that share an evaluation: some for each thread, and no more to keep."""
    return runs(count, -(-count // (DERIVATIVES_A_THREAD * threads())))


def runs(count: int, number: int) -> list[tuple[int, int]]:
    """So many runs of ``count`` things, or one a thing."""
    number = max(1, min(count, number))
    bounds = [count * n // number for n in range(number + 1)]
    return list(pairwise(bounds)) if count else []


def threads() -> int:
    client = active_client()
    return sum(present(client).values()) if client else dask.system.CPU_COUNT
