"""Recorder: bounded records of the evaluations of a cluster or a process, without Dask and Bokeh.

It keeps the latest tasks, calls and evaluations one by one, and sums of all of them by model. Times
are seconds since the epoch. Feeders call one method for each event, in one thread at a time; pages
read the attributes.
"""

import time
import traceback
from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from daskgrad.autodiff.values import descriptions
from daskgrad.autodiff.values.carriers import drop_oldest
from daskgrad.tasks.keys import calls_in, dashboard_name, key_parts
from daskgrad.tasks.observers import Evaluated

TASKS = 20_000  # kept one by one
CALLS = 5_000
EVALUATIONS = 64
MODELS = 512
BLOCKS = 4_096  # costs of a model's blocks
WORKERS = 1_024
SAMPLES = 900  # of memory
RUNS = 16
ROWS = 2_048  # of a run; every second one is dropped when there are more
NODES = 600  # tasks; a larger graph is kept as edges between stages and models

StageAndModel = tuple[str, str]
Edges = set[tuple[StageAndModel, StageAndModel]]  # from a task's input to the task


class Task(NamedTuple):
    """One task that ran. ``nbytes``: size of its result, zero if unknown.

    ``source``: the forward task that a backward task pulls back.
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


class CallRecord(NamedTuple):
    """All direct calls of one worker for a sum that ended within about half a second; or of one
    program in a process, which has no blocks."""

    model: str
    worker: str
    start: float
    stop: float
    calls: int
    blocks: int
    seconds: float


class BlockCost(NamedTuple):
    """Seconds of a block of items, or of a loop's steps, in the latest call or task; the first of
    them, and how many there are."""

    first: int
    items: int
    seconds: float
    worker: str


class MemorySample(NamedTuple):
    """Bytes on each worker at one time, by kind, and the worker's limit."""

    when: float
    held: Mapping[str, Mapping[str, int]]
    limits: Mapping[str, int]
    traced_again: int


class Row(NamedTuple):
    """One evaluation of a run: number, seconds since the run began, value and gradient norm.

    ``step``: distance from the point of the evaluation before, NaN for the first.
    """

    number: int
    seconds: float
    value: float
    norm: float
    step: float


@dataclass(slots=True)
class Count:
    """Tasks of one stage and model: planned, done and failed; and their calls of the model."""

    total: int = 0
    done: int = 0
    failed: int = 0
    calls: int = 0
    called: int = 0  # calls of the tasks done

    @property
    def shown(self) -> tuple[int, int]:
        """Calls done and planned, or tasks that make none."""
        done, total = (self.called, self.calls) if self.calls else (self.done, self.total)
        return min(done, total), total

    def add(self, other: "Count") -> None:
        self.total, self.done = self.total + other.total, self.done + other.done
        self.failed += other.failed
        self.calls, self.called = self.calls + other.calls, self.called + other.called


@dataclass(slots=True)
class GraphNode:
    """A task of a graph: its inputs' keys, and its state."""

    stage: str
    model: str
    inputs: Sequence[Hashable]
    state: str = "waiting"
    worker: str = ""
    seconds: float = 0.0
    tasks: str = ""  # where it stands for several on a page


class EvaluationRecord:
    """The tasks of one evaluation: counts by stage and model, ``edges`` between these, and its
    graph: ``nodes`` is None for a large one.

    ``dropped`` counts tasks that never ran: another one failed, or nobody wants them any more.
    """

    def __init__(self, name: str, start: float):
        self.name, self.start, self.stop = name, start, start
        self.dropped = 0
        self.counts: dict[StageAndModel, Count] = {}
        self.nodes: dict[Hashable, GraphNode] | None = {}
        self.edges: Edges = set()

    @property
    def total(self) -> int:
        return sum([count.total for count in self.counts.values()])

    @property
    def done(self) -> int:
        return sum([min(count.done, count.total) for count in self.counts.values()])

    @property
    def failed(self) -> int:
        return sum([count.failed for count in self.counts.values()])

    @property
    def is_done(self) -> bool:
        """Whether it is over; a failed one is, though the scheduler may yet cancel other tasks."""
        return self.failed > 0 or self.done + self.dropped >= self.total

    def node(self, key: Hashable) -> GraphNode | None:
        return None if self.nodes is None else self.nodes.get(key)

    def absorb(self, other: "EvaluationRecord") -> None:
        """Adds the tasks of this evaluation that another recorder saw."""
        self.start, self.stop = min(self.start, other.start), max(self.stop, other.stop)
        self.dropped += other.dropped
        self.edges |= other.edges
        for kind, count in other.counts.items():
            self.counts.setdefault(kind, Count()).add(count)
        if self.nodes is not None and other.nodes is not None:
            self.nodes = {**other.nodes, **self.nodes}  # the client knows what made its results


class Costs:
    """How often a model's tasks and calls ran, and their seconds: by stage, worker and block.

    Direct calls are the stage "call"; of calls within a program, the stage "program", only the
    number is known.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.workers: defaultdict[str, float] = defaultdict(float)
        self.blocks: dict[int, BlockCost] = {}
        self.evaluation = ""  # whose tasks these are; none of direct calls

    def add(self, stage: str, worker: str, seconds: float, count: int = 1) -> None:
        self.counts[stage] += count
        self.seconds[stage] += seconds
        self.workers[worker] += seconds
        drop_oldest(self.workers, WORKERS)

    def absorb(self, other: "Costs") -> None:
        self.counts.update(other.counts)
        for stage, seconds in other.seconds.items():
            self.seconds[stage] += seconds
        for worker, seconds in other.workers.items():
            self.workers[worker] += seconds
        self.blocks |= other.blocks


class RunRecord:
    """The rows of one ``dg.record``: every ``stride``-th, so that their number is bounded."""

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
            self.rows = [kept for kept in self.rows if kept.number % self.stride == 0]

    @property
    def shown(self) -> list[Row]:
        """The rows that are kept, and the latest one."""
        is_last = self.latest is None or (self.rows and self.rows[-1] is self.latest)
        return self.rows if is_last else [*self.rows, self.latest]  # type: ignore[list-item]


class Recorder:
    """Bounded records; ``version`` changes with each of them."""

    def __init__(self) -> None:
        self.begin = time.time()
        self.tasks: deque[Task] = deque(maxlen=TASKS)
        self.calls: deque[CallRecord] = deque(maxlen=CALLS)
        self.evaluations: dict[str, EvaluationRecord] = {}
        self.models: dict[str, Costs] = {}
        self.memory: deque[MemorySample] = deque(maxlen=SAMPLES)
        self.runs: dict[str, RunRecord] = {}
        self.names: dict[str, str] = {}  # of models, by their names in keys
        self.task_count = self.evaluation_count = 0
        self.call_count = self.calls_added = 0  # direct calls, and records of them
        self.version = 0
        self.end = ""  # the error with which the program ended

    @property
    def is_empty(self) -> bool:
        return not (self.task_count or self.call_count or self.evaluations)

    # ---- tasks

    def plan(
        self, evaluation: str, tasks: Iterable[tuple[Hashable, str, str, Sequence[Hashable]]]
    ) -> None:
        """Tasks that will run: key, stage, model and keys of inputs of each."""
        record = self.evaluations.get(evaluation)
        if record is None:
            record = self.evaluations[evaluation] = EvaluationRecord(evaluation, time.time())
            self.evaluation_count += 1
            drop_oldest(self.evaluations, EVALUATIONS)
        for key, stage, model, inputs in tasks:
            kind = (stage, model)
            count = record.counts.get(kind) or record.counts.setdefault(kind, Count())
            count.total += 1
            count.calls += calls_in(key, stage)
            record.edges.update([(parts[:2], kind) for parts in map(key_parts, inputs) if parts])
            if record.nodes is not None:
                before = record.nodes.get(key)  # as the client knows it that sent its result
                record.nodes[key] = GraphNode(
                    stage, model, inputs or (before and before.inputs) or ()
                )
                if len(record.nodes) > NODES:
                    record.nodes = None
        self.version += 1

    def set_state(self, evaluation: str, key: Hashable, state: str, worker: str = "") -> None:
        """The state of a task: waiting, running, done, failed or released."""
        record = self.evaluations.get(evaluation)
        node = None if record is None else record.node(key)
        if node is not None:
            node.state, node.worker = state, worker or node.worker
            self.version += 1

    def drop_task(self, evaluation: str) -> None:
        """A planned task will not run."""
        record = self.evaluations.get(evaluation)
        if record is not None:
            record.dropped += 1
            self.version += 1

    def add_task(self, task: Task) -> None:
        self.tasks.append(task)
        self.task_count += 1
        self._costs_of(task.model).add(task.stage, task.worker, task.stop - task.start)
        self.end_task(task)

    def end_task(self, task: Task) -> None:
        """A planned task is over."""
        key, stage, model, evaluation, worker, _, start, stop, _, has_failed, _ = task
        record = self.evaluations.get(evaluation)
        if record is not None:
            record.stop = max(record.stop, stop)
            count = record.counts.get((stage, model))
            if count is not None:
                count.failed += has_failed
                count.done += not has_failed
                count.called += 0 if has_failed else calls_in(key, stage)
            node = record.node(key)
            if node is not None:
                node.state, node.worker = "failed" if has_failed else "done", worker
                node.seconds = stop - start
        self.version += 1

    # ---- direct calls

    def add_call(self, call: CallRecord) -> None:
        self.calls.append(call)
        self.call_count += call.calls
        self.calls_added += 1
        self._costs_of(call.model).add("call", call.worker, call.seconds, call.calls)
        self.version += 1

    def add_programs(
        self, first: Evaluated, stop: float, count: int, seconds: float, worker: str
    ) -> None:
        """Evaluations by one program: direct calls of its name, and calls of its models."""
        name = self._name_in_keys(first.name)
        self.add_call(CallRecord(name, worker, first.start, stop, count, 0, seconds))
        for model, calls in (first.calls or {}).items():
            self._costs_of(self._name_in_keys(model)).counts["program"] += count * calls

    def _name_in_keys(self, name: str) -> str:
        in_key = dashboard_name(name)
        if self.names.get(in_key) != name:
            self.learn_name(in_key, name)
        return in_key

    def add_block_costs(
        self,
        model: str,
        worker: str,
        block_items: int,
        runs: Iterable[tuple[int, int]],
        seconds: Sequence[float],
    ) -> None:
        """The seconds of a worker's blocks in a call; the last block may have fewer items."""
        numbers = [number for start, stop in runs for number in range(start, stop)]
        for number, spent in zip(numbers, seconds, strict=True):
            first = number * block_items
            self.add_block_cost(model, BlockCost(first, block_items, spent, worker))

    def add_block_cost(self, model: str, block: BlockCost, evaluation: str = "") -> None:
        """The seconds of one block; an ``evaluation`` with tasks may have other blocks than the one
        before."""
        costs = self._costs_of(model)
        if evaluation != costs.evaluation:
            costs.blocks, costs.evaluation = {}, evaluation
        costs.blocks[block.first] = block
        drop_oldest(costs.blocks, BLOCKS)

    # ---- memory, runs and names

    def add_memory(self, sample: MemorySample) -> None:
        self.memory.append(sample)
        self.version += 1

    def add_rows(self, run: str, name: str, start: float, rows: Iterable[Row]) -> None:
        record = self.runs.get(run)
        if record is None:
            record = self.runs[run] = RunRecord(name, start)
            drop_oldest(self.runs, RUNS)
        for row in rows:
            record.add(row)
        self.version += 1

    def note_end(self, error: BaseException) -> None:
        """Notes the error with which a recorded program ended, and when."""
        lines = traceback.format_exception_only(error)  # it may have no text, and odd notes
        words = " ".join([line.strip().split("\n")[0] for line in lines[:2]])
        self.end = f"ended after {descriptions.seconds(time.time() - self.begin)} with {words}"

    def end_evaluations(self) -> None:
        """Forgets the evaluations that are not done: nobody runs their tasks any more."""
        records = self.evaluations.items()
        self.evaluations = {name: record for name, record in records if record.is_done}
        self.version += 1

    def called(self, model: str) -> str:
        """A model's name as its author wrote it, if known."""
        return self.names.get(model, model)

    def learn_name(self, in_key: str, name: str) -> None:
        self.names[in_key] = name
        drop_oldest(self.names, MODELS)

    def absorb(self, other: "Recorder") -> None:
        """Adds the records of another recorder, which may be of the same evaluations."""
        self.tasks.extend(other.tasks)
        self.tasks = deque(sorted(self.tasks, key=lambda task: task.stop), maxlen=TASKS)
        self.calls.extend(other.calls)
        common = self.evaluations.keys() & other.evaluations.keys()
        self.evaluation_count += other.evaluation_count - len(common)
        for name, record in other.evaluations.items():
            mine = self.evaluations.setdefault(name, record)
            if mine is not record:
                mine.absorb(record)
        for model, costs in other.models.items():
            self._costs_of(model).absorb(costs)
        self.runs |= other.runs
        self.names = {**other.names, **self.names}
        self.memory.extend(other.memory)
        self.task_count += other.task_count
        self.call_count += other.call_count
        self.calls_added += other.calls_added
        self.begin = min(self.begin, other.begin)
        self.version += 1

    def _costs_of(self, model: str) -> Costs:
        costs = self.models.get(model)
        if costs is None:
            costs = self.models[model] = Costs()
            drop_oldest(self.models, MODELS)
        return costs
