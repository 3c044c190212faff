"""Worker plugin: tells the scheduler how often a worker had to trace a model again."""

from dataclasses import dataclass
from typing import Any

from distributed import Worker
from distributed.diagnostics.plugin import WorkerPlugin

from daskgrad.models import pullbacks

NAME = "daskgrad-recorder"  # of both plugins
TRACED_AGAIN = "daskgrad-traced-again"  # the metric


@dataclass(eq=False)
class CountingPlugin(WorkerPlugin):
    """Adds a metric to the worker's signs of life, while it is there."""

    idempotent = True
    name: str = NAME

    def setup(self, worker: Worker) -> None:
        self._worker: Any = worker
        worker.metrics[TRACED_AGAIN] = traced_again

    def teardown(self, worker: Worker) -> None:
        worker.metrics.pop(TRACED_AGAIN, None)


async def traced_again(worker: Any) -> int:
    return pullbacks.traced_again.count
