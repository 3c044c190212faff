"""Feeding: what keys tell of tasks, as a recorder takes it, on a scheduler or in this process."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from daskgrad.dashboards.recorder import Recorder, Task
from daskgrad.tasks.keys import key_parts, known_name
from daskgrad.values.caches import drop_oldest

PLANNED = 100_000  # tasks that are remembered until they are forgotten


class Planned(NamedTuple):
    """What is known of a task before it runs; a backward task pulls back that of the source."""

    stage: str
    model: str
    evaluation: str
    source: Hashable


class Feed:
    """Feeds a recorder with tasks, known by their keys; those of others are left out.

    Nodes have keys before they are evaluated, so a graph may have tasks under keys of two kinds:
    all of them belong to the evaluation that the graph was made for, which is the latest.
    ``planned``: the tasks that may yet run, by their keys, which are looked up for each that does.
    """

    def __init__(self, recorder: Recorder):
        self.recorder = recorder
        self.planned: dict[Hashable, Planned] = {}

    def plan(self, graph: Iterable[tuple[Any, Sequence[Any]]]) -> None:
        """The tasks of one graph that will run, and the keys that they refer to."""
        found = [(key, key_parts(key), inputs) for key, inputs in graph]
        known = [(key, parts, inputs) for key, parts, inputs in found if parts is not None]
        if not known:
            return
        latest = max([parts.evaluation for _, parts, _ in known])
        by_evaluation: dict[str, list[Any]] = {}
        for key, (stage, model, evaluation), inputs in known:
            if stage == "value":
                evaluation = latest
            source = pulled_back(inputs) if stage == "backward" else None
            self.planned[key] = Planned(stage, model, evaluation, source)
            by_evaluation.setdefault(evaluation, []).append((key, stage, model, inputs))
        drop_oldest(self.planned, PLANNED)
        for model in {parts.model for _, parts, _ in known}:
            self.recorder.learn_name(model, known_name(model))
        for evaluation, tasks in by_evaluation.items():
            self.recorder.plan(evaluation, tasks)

    def add(
        self,
        key: Any,
        worker: str,
        thread: int,
        start: float,
        stop: float,
        nbytes: int = 0,
        has_failed: bool = False,
    ) -> None:
        """A planned task that ran."""
        stage, model, evaluation, source = self.planned[key]
        where = (worker, thread, start, stop, nbytes, has_failed)
        self.recorder.add_task(Task(key, stage, model, evaluation, *where, source))


def pulled_back(inputs: Iterable[Any]) -> Hashable:
    """The forward task among the inputs of a backward task."""
    for key in inputs:
        parts = key_parts(key)
        if parts is not None and parts.stage == "forward":
            return key
    return None
