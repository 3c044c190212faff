"""Held: forward passes that were run as tasks, for the pullbacks of any number of cotangents."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from daskgrad.autodiff.models.pullbacks import Batch, unit_cotangents
from daskgrad.autodiff.values.cotangents import Cotangent
from daskgrad.autodiff.values.descriptions import NondeterministicModelError
from daskgrad.autodiff.values.fingerprints import agree, fingerprint
from daskgrad.autodiff.values.trees import flatten
from daskgrad.derivatives.evaluation import (
    Arrived,
    compute_unknown,
    evaluate_again_if_lost,
    task_groups,
)
from daskgrad.derivatives.inputs import warn_of_shipping
from daskgrad.graph.activity import Graph
from daskgrad.graph.backward import build_backward, pull_here
from daskgrad.graph.forward import Forward, build_forward
from daskgrad.tasks.clients import active_client
from daskgrad.tasks.task_graph import TaskGraph, where


class ForwardPass(NamedTuple):
    """A forward pass that was run: ``tasks`` holds the results, on the cluster of ``client``."""

    forward: Forward
    tasks: TaskGraph
    client: Any


class HeldForwardPass:
    """A forward pass that was run, for the pullbacks of any number of cotangents; it runs again if
    its results are gone (dead workers, a restart, another client), with the same value."""

    def __init__(self, graph: Graph):
        self._graph = graph
        self._lock = threading.Lock()
        self.value, self._latest = evaluate_again_if_lost(graph, self._run)
        self._fingerprint = fingerprint(flatten(self.value)[0])

    def _run(self) -> tuple[Any, ForwardPass]:
        client = active_client()
        warn_of_shipping(self._graph, client)
        tasks = TaskGraph(where())
        forward = build_forward(self._graph, tasks)
        persisted = tasks.persist()
        try:
            value = compute_unknown(persisted.compute, [forward.values[self._graph.output]])[0]
        except BaseException:
            persisted.release()
            raise
        return value, ForwardPass(forward, persisted, client)

    def _run_again(self, lost: ForwardPass) -> None:
        """Runs the forward pass again, unless another thread has done so since it was lost."""
        with self._lock:
            if self._latest is not lost:
                return
            value, anew = self._run()
            if not agree(fingerprint(flatten(value)[0]), self._fingerprint):
                raise NondeterministicModelError(
                    f"the forward pass of {self._graph.output.name!r} is not deterministic: run "
                    f"again for its pullback, since its results were lost, it returned a different "
                    f"value. Pass its models generators (dg.random.generators) instead of drawing "
                    f"from global state."
                )
            self._latest = anew

    def _evaluate(self, evaluate: Callable[[ForwardPass], Any]) -> Any:
        """Evaluates on the latest forward pass, which runs again if its results are gone."""
        used = self._latest
        if used.client is not None and active_client() is not used.client:
            evaluate_again_if_lost(self._graph, lambda: self._run_again(used))

        def evaluate_latest() -> Any:
            nonlocal used
            used = self._latest
            return evaluate(used)

        return evaluate_again_if_lost(
            self._graph, evaluate_latest, prepare=lambda: self._run_again(used)
        )

    def pull(self, cotangent: Cotangent) -> Arrived:
        """The cotangents of the variables."""

        def evaluate(run: ForwardPass) -> Arrived:
            tasks, of_value = run.tasks.copy(), self._of_value(cotangent)
            arrived = build_backward(run.forward, tasks, of_value, saw_value=True)
            computed = compute_unknown(tasks.compute, list(arrived.values()))
            return pull_here(run.forward, dict(zip(arrived, computed, strict=True)))

        return self._evaluate(evaluate)

    def _of_value(self, cotangent: Cotangent) -> Cotangent:
        """A cotangent of the value that the caller has: the models may have run again since."""
        return Cotangent(cotangent.leaves, self._fingerprint)

    def pull_each(self, cotangents: Sequence[Cotangent]) -> list[Arrived]:
        """The cotangents of the variables for each of many cotangents."""

        def seeds(run: ForwardPass, tasks: TaskGraph, start: int, stop: int) -> Any:
            batch = Batch(tuple(map(self._of_value, cotangents[start:stop])))
            return tasks.data(self._seed_key(tasks), batch)

        return self._pull_all(len(cotangents), seeds)

    def pull_units(self, count: int) -> list[Arrived]:
        """The cotangents of the variables for one in each of the value's ``count`` entries."""

        def seeds(run: ForwardPass, tasks: TaskGraph, start: int, stop: int) -> Any:
            value = run.forward.values[self._graph.output]
            args = (value, start, stop, self._fingerprint)
            return tasks.add(self._seed_key(tasks), unit_cotangents, *args)

        return self._pull_all(count, seeds)

    def _seed_key(self, tasks: TaskGraph) -> Any:
        return tasks.key("cotangent", self._graph.output.name)

    def _pull_all(
        self, count: int, seeds: Callable[[ForwardPass, TaskGraph, int, int], Any]
    ) -> list[Arrived]:
        runs = task_groups(count)

        def evaluate(run: ForwardPass) -> list[Arrived]:
            tasks = run.tasks.copy(is_batched=True)
            arrived = [
                build_backward(run.forward, tasks, seeds(run, tasks, start, stop), saw_value=True)
                for start, stop in runs
            ]
            keys = [ref.key for references in arrived for ref in references.values()]
            computed = iter(tasks.compute(keys))
            batches = [
                pull_here(run.forward, {node: next(computed) for node in nodes}, is_batched=True)
                for nodes in arrived
            ]
            return [
                {variable: cotangents.entries[index] for variable, cotangents in batch.items()}
                for batch, (start, stop) in zip(batches, runs, strict=True)
                for index in range(stop - start)
            ]

        return self._evaluate(evaluate)
