"""Recorder: what is kept of the evaluations of a cluster or process; knows neither Dask nor Bokeh.

Everything is bounded: the latest tasks, calls and evaluations one by one, and sums of all by model.
Times are seconds since the epoch. Who feeds it calls one method for each thing that happens, in one
thread at a time; pages read its attributes.
"""

import time
from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from daskgrad.autodiff.values.carriers import drop_oldest

TASKS = 20_000  # that are kept one by one
CALLS = 5_000
EVALUATIONS = 64
MODELS = 512
BLOCKS = 4_096  # of a model, whose costs are kept
WORKERS = 1_024
SAMPLES = 900  # of the memory
RUNS = 16
ROWS = 2_048  # of a run; every second one is dropped when there are so many
NODES = 600  # tasks of an evaluation whose graph is kept
EDGES_OF = 5_000  # the first tasks of a larger one, whose edges are counted


class Task(NamedTuple):
    """One task that ran. ``source``: of a backward task, the key of the forward one it pulls back.

    ``nbytes`` is the size of its result, zero where nobody knows it.
    """

    key: Hashable
    stage: str
    model: str
    evaluation: str
    worker: str
    thread: int
    start: float
    stop: float
    nbytes: int = 0
    has_failed: bool = False
    source: Hashable = None


class Call(NamedTuple):
    """Direct calls of one worker for a sum, as many as ended in about half a second."""

    model: str
    worker: str
    start: float
    stop: float
    calls: int
    blocks: int
    seconds: float


class BlockCost(NamedTuple):
    """What a block of items took in the latest call: its first item, and how many it has."""

    first: int
    items: int
    seconds: float
    worker: str


class MemorySample(NamedTuple):
    """Bytes on each worker at one time: by kind; used by the process; and its limit."""

    when: float
    held: Mapping[str, Mapping[str, int]]
    limits: Mapping[str, int]
    traced_again: int


class Row(NamedTuple):
    """One evaluation of a run: its number, seconds since the run began, and what it found.

    ``step`` is how far the point moved since the evaluation before, NaN for the first.
    """

    number: int
    seconds: float
    value: float
    norm: float
    step: float


class Count:
    """Tasks of one stage and model: how many are planned, done and failed."""

    __slots__ = ("done", "failed", "total")

    def __init__(self) -> None:
        self.total = self.done = self.failed = 0


class GraphNode:
    """A task of a graph that is kept: what it refers to, and its state."""

    __slots__ = ("inputs", "model", "seconds", "stage", "state", "worker")

    def __init__(self, stage: str, model: str, inputs: Sequence[Hashable]):
        self.stage, self.model, self.inputs = stage, model, inputs
        self.state, self.worker, self.seconds = "waiting", "", 0.0


class Evaluation:
    """The tasks of one evaluation: counts by stage and model, and its graph if that is small.

    ``edges`` count what each (stage, model) refers to, of the first tasks if there are many;
    ``dropped`` the tasks that never ran, since another one failed or nobody wants them any more.
    """

    def __init__(self, name: str, start: float):
        self.name, self.start, self.stop = name, start, start
        self.dropped = 0
        self.counts: dict[tuple[str, str], Count] = {}
        self.nodes: dict[Hashable, GraphNode] | None = {}
        self.edges: dict[tuple[tuple[str, str], tuple[str, str]], int] = {}

    @property
    def total(self) -> int:
        return sum([count.total for count in self.counts.values()])

    @property
    def done(self) -> int:
        return sum([min(count.done, count.total) for count in self.counts.values()])

    @property
    def failed(self) -> int:
        return sum([count.failed for count in self.counts.values()])

    def summarize(self) -> None:
        """Keeps how stages and models refer to each other, in the place of the tasks."""
        assert self.nodes is not None
        self.edges, self.nodes = edges_of(self.nodes), None

    @property
    def is_done(self) -> bool:
        return self.done + self.failed + self.dropped >= self.total

    def absorb(self, other: "Evaluation") -> None:
        """Takes in the tasks of this evaluation that ran elsewhere."""
        self.start, self.stop = min(self.start, other.start), max(self.stop, other.stop)
        self.dropped += other.dropped
        for kind, count in other.counts.items():
            mine = self.counts.setdefault(kind, Count())
            mine.total, mine.done = mine.total + count.total, mine.done + count.done
            mine.failed += count.failed
        if self.nodes is not None and other.nodes is not None:
            self.nodes |= other.nodes


class Costs:
    """What a model's tasks and calls took: by stage, by worker, and by block of items."""

    def __init__(self) -> None:
        self.stages: dict[str, list[float]] = {}  # [tasks, seconds, longest]
        self.workers: dict[str, dict[str, float]] = {}  # by stage the seconds on each worker
        self.blocks: dict[int, BlockCost] = {}
        self.unit = 0
        self.calls = 0

    def add(self, stage: str, worker: str, seconds: float, count: int = 1) -> None:
        total = self.stages.setdefault(stage, [0, 0.0, 0.0])
        total[0] += count
        total[1] += seconds
        total[2] = max(total[2], seconds / count)
        by_worker = self.workers.setdefault(stage, {})
        if worker in by_worker:
            by_worker[worker] += seconds
        else:
            by_worker[worker] = seconds
            drop_oldest(by_worker, WORKERS)

    def absorb(self, other: "Costs") -> None:
        for stage, (count, seconds, longest) in other.stages.items():
            mine = self.stages.setdefault(stage, [0, 0.0, 0.0])
            total = [mine[0] + count, mine[1] + seconds, max(mine[2], longest)]
            self.stages[stage] = total
            by_worker = self.workers.setdefault(stage, {})
            for worker, spent in other.workers[stage].items():
                by_worker[worker] = by_worker.get(worker, 0.0) + spent
        self.blocks |= other.blocks
        self.calls += other.calls


class Run:
    """The rows of one ``dg.record``, thinned when there are many: every ``stride``-th is kept."""

    def __init__(self, name: str, start: float):
        self.name, self.start = name, start
        self.rows: list[Row] = []
        self.latest: Row | None = None
        self.stride, self.count = 1, 0

    def add(self, row: Row) -> None:
        self.latest = row
        self.count += 1
        if row.number % self.stride == 0:
            self.rows.append(row)
        if len(self.rows) > ROWS:
            self.stride *= 2
            self.rows = [each for each in self.rows if each.number % self.stride == 0]

    @property
    def shown(self) -> list[Row]:
        """The rows that are kept, and the latest one."""
        is_last = self.latest is None or (self.rows and self.rows[-1] is self.latest)
        return self.rows if is_last else [*self.rows, self.latest]  # type: ignore[list-item]


class Recorder:
    """Bounded records; ``version`` changes with each of them."""

    def __init__(self) -> None:
        self.begin = time.time()
        self.clear()

    def clear(self) -> None:
        self.tasks: deque[Task] = deque(maxlen=TASKS)
        self.calls: deque[Call] = deque(maxlen=CALLS)
        self.evaluations: dict[str, Evaluation] = {}
        self.models: dict[str, Costs] = {}
        self.memory: deque[MemorySample] = deque(maxlen=SAMPLES)
        self.runs: dict[str, Run] = {}
        self.workers: dict[str, int] = {}  # and their threads
        self.names: dict[str, str] = {}  # of models, by what keys call them
        self.task_count = self.evaluation_count = 0
        self.call_count = self.calls_added = 0  # calls, and how often some were told
        self.version = 0

    @property
    def is_empty(self) -> bool:
        return not (self.task_count or self.call_count or self.evaluations)

    # ---- tasks

    def plan(
        self, evaluation: str, tasks: Iterable[tuple[Hashable, str, str, Sequence[Hashable]]]
    ) -> None:
        """Tasks that will run: their keys, stages and models, and the keys that they refer to."""
        found = self.evaluations.get(evaluation)
        if found is None:
            found = self.evaluations[evaluation] = Evaluation(evaluation, time.time())
            self.evaluation_count += 1
            drop_oldest(self.evaluations, EVALUATIONS)
        for key, stage, model, inputs in tasks:
            kind = (stage, model)
            count = found.counts.get(kind) or found.counts.setdefault(kind, Count())
            count.total += 1
            if found.nodes is not None:
                found.nodes[key] = GraphNode(stage, model, inputs)
                if len(found.nodes) > EDGES_OF:
                    found.summarize()
        if found.nodes is not None and len(found.nodes) > NODES:
            found.summarize()
        self.version += 1

    def set_state(self, evaluation: str, key: Hashable, state: str, worker: str = "") -> None:
        """The state of a task: waiting, running, done, failed or released."""
        found = self.evaluations.get(evaluation)
        node = None if found is None or found.nodes is None else found.nodes.get(key)
        if node is not None:
            node.state, node.worker = state, worker or node.worker
            self.version += 1

    def drop_task(self, evaluation: str) -> None:
        """A task was planned and will not run."""
        found = self.evaluations.get(evaluation)
        if found is not None:
            found.dropped += 1
            self.version += 1

    def add_task(self, task: Task) -> None:
        self.tasks.append(task)
        self.task_count += 1
        key, stage, model, evaluation, worker, _, start, stop, _, has_failed, _ = task
        self._costs_of(model).add(stage, worker, stop - start)
        found = self.evaluations.get(evaluation)
        if found is not None:
            found.stop = max(found.stop, stop)
            count = found.counts.get((stage, model))
            if count is not None:
                count.failed += has_failed
                count.done += not has_failed
            node = None if found.nodes is None else found.nodes.get(key)
            if node is not None:
                node.state, node.worker = "failed" if has_failed else "done", worker
                node.seconds = stop - start
        self.version += 1

    # ---- direct calls

    def add_call(self, call: Call) -> None:
        self.calls.append(call)
        self.call_count += call.calls
        self.calls_added += 1
        costs = self._costs_of(call.model)
        costs.calls += call.calls
        costs.add("call", call.worker, call.seconds, call.calls)
        self.version += 1

    def add_block_costs(
        self,
        model: str,
        worker: str,
        block_items: int,
        unit: int,
        runs: Iterable[tuple[int, int]],
        seconds: Sequence[float],
    ) -> None:
        """What the blocks of a worker took in a call; the last block may have fewer items."""
        costs = self._costs_of(model)
        costs.unit = unit
        numbers = [number for start, stop in runs for number in range(start, stop)]
        for number, took in zip(numbers, seconds, strict=True):
            costs.blocks[number] = BlockCost(number * block_items, block_items, took, worker)
        drop_oldest(costs.blocks, BLOCKS)

    # ---- the rest

    def add_memory(self, sample: MemorySample) -> None:
        self.memory.append(sample)
        self.version += 1

    def add_rows(self, run: str, name: str, start: float, rows: Iterable[Row]) -> None:
        found = self.runs.get(run)
        if found is None:
            found = self.runs[run] = Run(name, start)
            drop_oldest(self.runs, RUNS)
        for row in rows:
            found.add(row)
        self.version += 1

    def set_workers(self, workers: Mapping[str, int]) -> None:
        self.workers = dict(workers)
        self.version += 1

    def end_evaluations(self) -> None:
        """Forgets the evaluations that are not done: nobody runs their tasks any more."""
        kept = self.evaluations.items()
        self.evaluations = {name: found for name, found in kept if found.is_done}
        self.version += 1

    def absorb(self, other: "Recorder") -> None:
        """Takes in the records of another recorder, of the same evaluations or others."""
        self.tasks.extend(other.tasks)
        self.tasks = deque(sorted(self.tasks, key=lambda task: task.stop), maxlen=TASKS)
        self.calls.extend(other.calls)
        for name, found in other.evaluations.items():
            mine = self.evaluations.setdefault(name, found)
            if mine is not found:
                mine.absorb(found)
        for model, costs in other.models.items():
            self._costs_of(model).absorb(costs)
        self.runs |= other.runs
        self.names = {**other.names, **self.names}
        self.workers = {**other.workers, **self.workers}
        self.memory.extend(other.memory)
        self.task_count += other.task_count
        self.call_count += other.call_count
        self.calls_added += other.calls_added
        self.evaluation_count = max(self.evaluation_count, other.evaluation_count)
        self.begin = min(self.begin, other.begin)
        self.version += 1

    def called(self, model: str) -> str:
        """A model's name as its author wrote it, where that is known."""
        return self.names.get(model, model)

    def learn_name(self, in_key: str, name: str) -> None:
        self.names[in_key] = name
        drop_oldest(self.names, MODELS)

    def _costs_of(self, model: str) -> Costs:
        found = self.models.get(model)
        if found is None:
            found = self.models[model] = Costs()
            drop_oldest(self.models, MODELS)
        return found


def edges_of(nodes: Mapping[Hashable, GraphNode]) -> dict[Any, int]:
    """How often a task of one stage and model refers to one of another."""
    edges: dict[Any, int] = {}
    for node in nodes.values():
        for source in [nodes[key] for key in node.inputs if key in nodes]:
            pair = ((source.stage, source.model), (node.stage, node.model))
            edges[pair] = edges.get(pair, 0) + 1
    return edges
