"""Feeding: what keys tell of tasks, as a recorder takes it, on a scheduler or in this process."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from daskgrad.dashboards.recorder import Recorder, Task
from daskgrad.tasks.keys import KeyParts, key_parts, known_name
from daskgrad.values.caches import drop_oldest

ADOPTED = 4096  # keys that are remembered


class Feed:
    """Feeds a recorder with tasks, known by their keys; those of others are left out.

    Nodes have keys before they are evaluated, so a graph may have tasks under keys of two kinds:
    all of them belong to the evaluation that the graph was made for, which is the latest.
    """

    def __init__(self, recorder: Recorder):
        self.recorder = recorder
        self._adopted: dict[Hashable, str] = {}

    def parts(self, key: Any) -> KeyParts | None:
        found = key_parts(key)
        adopted = self._adopted.get(key) if found is not None else None
        return found if found is None or adopted is None else found._replace(evaluation=adopted)

    def plan(self, graph: Iterable[tuple[Any, Sequence[Any]]]) -> None:
        """The tasks of one graph that will run, and the keys that they refer to."""
        found = [(key, key_parts(key), inputs) for key, inputs in graph]
        known = [(key, parts, inputs) for key, parts, inputs in found if parts is not None]
        if not known:
            return
        latest = max([parts.evaluation for _, parts, _ in known])
        by_evaluation: dict[str, list[Any]] = {}
        for key, parts, inputs in known:
            evaluation = parts.evaluation
            if parts.stage == "value" and evaluation != latest:
                evaluation = self._adopted[key] = latest
            planned = (key, parts.stage, parts.model, inputs)
            by_evaluation.setdefault(evaluation, []).append(planned)
        drop_oldest(self._adopted, ADOPTED)
        for model in {parts.model for _, parts, _ in known}:
            self.recorder.learn_name(model, known_name(model))
        for evaluation, tasks in by_evaluation.items():
            self.recorder.plan(evaluation, tasks)

    def add(self, key: Any, parts: KeyParts, inputs: Iterable[Any], **ran: Any) -> None:
        """A task that ran; a backward task's source is the forward task among its inputs."""
        pairs = [(each, key_parts(each)) for each in inputs] if parts.stage == "backward" else []
        source = next((each for each, of in pairs if of and of.stage == "forward"), None)
        self.recorder.add_task(Task(key, *parts, source=source, **ran))
