"""Feeding: fills a recorder with tasks, known by their keys, and with events of a scheduler."""

import contextlib
import time
import uuid
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from distributed import Client, Scheduler, Worker
from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin
from tornado.ioloop import PeriodicCallback

from daskgrad.autodiff.models import pullbacks
from daskgrad.autodiff.values.carriers import drop_oldest
from daskgrad.autodiff.values.descriptions import imported
from daskgrad.dashboards.recorder import (
    BlockCost,
    CallRecord,
    MemorySample,
    Recorder,
    Row,
    Task,
)
from daskgrad.tasks.keys import calls_in, dashboard_name, key_parts, known_name
from daskgrad.tasks.observers import TOPIC, Ran
from daskgrad.tasks.plugins import take_away

PLANNED = 100_000  # tasks that are remembered until they are forgotten


class TaskPlan(NamedTuple):
    """A task before it runs; a backward task pulls back the forward task ``source``. ``items``: the
    first item of a block of a sum, or step of a loop, and how many there are."""

    stage: str
    model: str
    evaluation: str
    source: Hashable
    items: tuple[int, int] | None


class Feed:
    """Feeds a recorder with daskgrad's tasks; all other keys are left out.

    Nodes have keys, with another token, before they are evaluated: in a graph they belong to the
    evaluation that the graph was made for, which has the latest token.
    """

    def __init__(self, recorder: Recorder):
        self.recorder = recorder
        self.planned: dict[Hashable, TaskPlan] = {}  # may yet run

    def plan(self, graph: Iterable[tuple[Any, Sequence[Any]]]) -> None:
        """The tasks of one graph that will run: their keys, and the keys of their inputs."""
        known = [(key, parts, inputs) for key, inputs in graph if (parts := key_parts(key))]
        known.sort(key=lambda entry: entry[0][2])  # as the program made them, not as a set has them
        latest = max([parts.evaluation for _, parts, _ in known], default="")
        by_evaluation: dict[str, list[Any]] = {}
        firsts: Counter[str] = Counter()
        for key, (stage, model, evaluation), inputs in known:
            if stage == "value":
                evaluation = latest
            source = None
            if stage == "backward":
                source = next((key for key in inputs if is_of_stage(key, "forward")), None)
            items = None
            if stage == "forward" and len(key) > 3 and (count := calls_in(key, stage)):
                items = firsts[model], count
                firsts[model] += count
            self.planned[key] = TaskPlan(stage, model, evaluation, source, items)
            by_evaluation.setdefault(evaluation, []).append((key, stage, model, inputs))
        drop_oldest(self.planned, PLANNED)
        for model in sorted({parts.model for _, parts, _ in known}):
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
        stage, model, evaluation, source, items = self.planned[key]
        where = (worker, thread, start, stop, nbytes, has_failed)
        self.recorder.add_task(Task(key, stage, model, evaluation, *where, source))
        if items is not None and not has_failed:
            block = BlockCost(*items, stop - start, worker)
            self.recorder.add_block_cost(model, block, evaluation)

    def add_local(self, task: Ran, process: str) -> None:
        """A task that ran in a process without workers, or a sum that workers evaluated for it."""
        if task.key not in self.planned:
            return
        stage, model, evaluation, *_ = self.planned[task.key]
        when, record = (
            (task.thread, task.start, task.stop),
            self.recorder.evaluations.get(evaluation),
        )
        if record is not None:
            record.start = min(record.start, task.start)  # a client tells of it later
        if task.process:
            self.add(task.key, process, *when, has_failed=task.has_failed)
        elif task.has_failed:
            self.recorder.drop_task(evaluation)
        else:  # the workers tell what it took
            self.recorder.end_task(Task(task.key, stage, model, evaluation, "all workers", *when))
        del self.planned[task.key]

    def drop(self, keys: Iterable[Hashable]) -> None:
        """Planned tasks that will not run in a process without workers."""
        for key in keys:
            plan = self.planned.pop(key, None)
            if plan is not None:
                self.recorder.drop_task(plan.evaluation)


def is_of_stage(key: Hashable, stage: str) -> bool:
    parts = key_parts(key)
    return parts is not None and parts.stage == stage


# -------------------------------------------------------------------------------------------------
# Worker plugin: tells the scheduler how often a worker had to trace a model again.

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


# -------------------------------------------------------------------------------------------------
# Scheduler plugin: feeds a recorder from transitions of tasks and from events of workers.

SAMPLE_EVERY = 1000  # milliseconds between two looks at the workers' memory
PLACED = "value-shard"  # how the keys of placed items begin

UNDONE = ("waiting", "queued", "no-worker", "processing")  # states of tasks that may yet run

KINDS = {"forward": "pullbacks", "value": "values", "backward": "cotangents"}
KINDS |= {"cotangent": "cotangents", "tangent": "tangents"}


@dataclass(eq=False)
class RecorderPlugin(SchedulerPlugin):
    """Records the gradients of one scheduler; shows them as well if it ``has_pages``."""

    idempotent = True

    name: str = NAME
    has_pages: bool = True
    recorder: Recorder = field(default_factory=Recorder, repr=False)

    async def start(self, scheduler: Scheduler) -> None:
        if self.has_pages:
            imported("bokeh", "dashboards", "the scheduler draws its pages of gradients with Bokeh")
        self._scheduler = scheduler
        self._feed = Feed(self.recorder)
        self._feed_of_clients = Feed(self.recorder)
        self._ran: set[Hashable] = set()  # planned tasks, until they are forgotten
        self._sampling = PeriodicCallback(self.sample, SAMPLE_EVERY)
        self._sampling.start()
        if self.has_pages:
            begun = [key for key, ts in scheduler.tasks.items() if ts.state in UNDONE]
            self.update_graph(scheduler, tasks=begun)
            from daskgrad.dashboards.pages import attach

            attach(scheduler, self.recorder)

    async def close(self) -> None:
        self._sampling.stop()

    # ---- tasks

    def update_graph(self, scheduler: Scheduler, *, tasks: Iterable[Any], **_: Any) -> None:
        """Plans a graph's new tasks; Dask names tasks of earlier graphs again."""
        new = [key for key in tasks if key not in self._feed.planned]
        known = [self._scheduler.tasks[key] for key in new if key in self._scheduler.tasks]
        known = [ts for ts in known if not holds_call(ts)]
        self._feed.plan([(ts.key, [source.key for source in ts.dependencies]) for ts in known])

    def transition(self, key: Any, start: Any, finish: Any, *_: Any, **details: Any) -> None:
        planned = self._feed.planned.get(key)
        if planned is None:
            return
        if start == "processing":
            if finish == "memory" or finish == "erred":
                self._add_task(key, finish == "erred", details)
        elif finish == "processing":
            worker = self._scheduler.tasks[key].processing_on
            address = "" if worker is None else worker.address
            self.recorder.set_state(planned.evaluation, key, "running", address)
        elif start == "memory":
            self.recorder.set_state(planned.evaluation, key, "released")
        if finish == "forgotten":
            del self._feed.planned[key]
            if key in self._ran:
                self._ran.remove(key)
            else:
                self.recorder.drop_task(planned.evaluation)

    def _add_task(self, key: Any, has_failed: bool, details: dict[str, Any]) -> None:
        spans = [span for span in details.get("startstops") or () if span["action"] == "compute"]
        start = spans[0]["start"] if spans else time.time()
        stop = spans[-1]["stop"] if spans else start
        worker, nbytes = details.get("worker") or "", details.get("nbytes") or 0
        self._feed.add(key, worker, details.get("thread") or 0, start, stop, nbytes, has_failed)
        self._ran.add(key)

    def add_of_client(
        self, planned: Iterable[tuple[Any, Sequence[Any]]], ran: Iterable[Ran]
    ) -> None:
        """Tasks of evaluations that a client runs itself, as far as workers do not."""
        for inputs in planned:
            self._feed_of_clients.plan([inputs])
        for task in ran:
            self._feed_of_clients.add_local(task, f"client {task.process}")

    # ---- events

    def log_event(self, topic: str, msg: Any) -> None:
        """Records direct calls, which workers report, and runs, which clients report."""
        if topic != TOPIC or not isinstance(msg, dict):
            return
        if msg.get("action") == "evaluate":
            self._add_calls(msg)
        elif msg.get("action") == "descent":
            rows = [Row(int(number), *numbers) for number, *numbers in msg["rows"]]
            self.recorder.add_rows(msg["run"], msg["name"], msg["start"], rows)

    def _add_calls(self, msg: dict[str, Any]) -> None:
        model, worker = dashboard_name(msg["model"]), msg["worker"]
        self.recorder.learn_name(model, msg["model"])
        numbers = (msg["start"], msg["stop"], msg["calls"], msg["blocks"], msg["seconds"])
        self.recorder.add_call(CallRecord(model, worker, *numbers))
        if "runs" in msg:  # a sample has none: its items are others each time
            costs = (msg["block_items"], msg["runs"], msg["block_seconds"])
            self.recorder.add_block_costs(model, worker, *costs)

    # ---- memory

    def sample(self) -> None:
        """Records the memory of workers, once anything was evaluated."""
        if self.recorder.is_empty:
            return
        workers = self._scheduler.workers
        held = {address: self._held_by(ws) for address, ws in workers.items()}
        limits = {address: ws.memory_limit or 0 for address, ws in workers.items()}
        again = sum([ws.metrics.get(TRACED_AGAIN, 0) for ws in workers.values()])
        self.recorder.add_memory(MemorySample(time.time(), held, limits, again))

    def _held_by(self, ws: Any) -> dict[str, int]:
        """Bytes on a worker: of its process, spilled, and of the results of each kind."""
        held = Counter({"process": ws.memory.process, "spilled": ws.memory.spilled})
        for ts in ws.has_what:
            planned = self._feed.planned.get(ts.key)
            if planned is not None:
                held[KINDS[planned.stage]] += max(ts.nbytes, 0)
            elif ts.prefix.name == PLACED:
                held["placed items"] += max(ts.nbytes, 0)
        return dict(held)

    def restart(self, scheduler: Scheduler) -> None:
        self.recorder.end_evaluations()


def holds_call(ts: Any) -> bool:
    """Whether a task only holds the result of a call, which ran in the client or directly."""
    parts, is_data = key_parts(ts.key), getattr(ts.run_spec, "data_producer", False)
    return parts is not None and is_data and calls_in(ts.key, parts.stage) > 0


@contextlib.contextmanager
def recording(client: Client) -> Iterator[str]:
    """A context with one more recorder on the scheduler; yields the name of its plugin."""
    name = f"daskgrad-report-{uuid.uuid4().hex}"
    client.register_plugin(RecorderPlugin(name=name, has_pages=False), name=name)
    try:
        yield name
    finally:
        take_away(client, name)
