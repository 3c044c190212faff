"""Local: feeds a recorder with evaluations of this process, and records runs of evaluations."""

import contextlib
import logging
import math
import os
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from distributed import Client

from daskgrad.autodiff.values import clock
from daskgrad.autodiff.values.descriptions import describe
from daskgrad.autodiff.values.rows import Rows
from daskgrad.autodiff.values.trees import flatten
from daskgrad.dashboards.feeding import NAME, Feed
from daskgrad.dashboards.recorder import Recorder, Row, RunRecord
from daskgrad.tasks import observers
from daskgrad.tasks.clients import CONNECTED, active_client
from daskgrad.tasks.observers import TOPIC, Evaluated, Inputs, Observer, Ran, observed_by
from daskgrad.tasks.waiting import in_loop

logger = logging.getLogger("daskgrad")

SEND_EVERY = 0.5  # seconds between two messages to the scheduler
MERGED = 0.5  # seconds of evaluations by one program that are one record
SENT = 2_000  # tasks at most in one of them: the latest


class LocalObserver(Observer):
    """Records the tasks and evaluations of this process, from all its threads.

    Evaluations by one program are added to the recorder together, by ``finish``, ``ask``, or when
    half a second is over: a program may take ten microseconds.
    """

    def __init__(self, recorder: Recorder):
        self.recorder = recorder
        self._feed = Feed(recorder)
        self._rows = RowMaker()
        self._lock = threading.Lock()
        self._program: list[Any] = []  # its first evaluation, the last one's end, number, seconds

    def planned(self, tasks: Inputs) -> None:
        with self._lock:
            self._feed.plan(tasks.items())

    def ran(self, task: Ran) -> None:
        with self._lock:
            self._feed.add_local(task, f"process {task.process}")

    def dropped(self, keys: Iterable[Hashable]) -> None:
        with self._lock:
            self._feed.drop(keys)

    def evaluated(self, evaluation: Evaluated) -> None:
        """An evaluation within no ``record`` belongs to a run with the function's name."""
        name, recorder = evaluation.name, self.recorder
        with self._lock:
            if evaluation.calls is not None:
                self._add_program(evaluation)
            is_recorded = RunObserver in map(type, observers.present())
            if evaluation.value is not None and not is_recorded:
                row = self._rows.next(evaluation, recorder.begin)
                recorder.add_rows(name, name, recorder.begin, (row,))

    def _add_program(self, evaluation: Evaluated) -> None:
        start, stop, calls = evaluation[-3:]
        if self._program:
            first = self._program[0]
            if first.calls is calls and start - first.start < MERGED:
                self._program[1] = stop
                self._program[2] += 1
                self._program[3] += stop - start
                return
            self._add_programs()
        self._program = [evaluation, stop, 1, stop - start]

    def _add_programs(self) -> None:
        if self._program:
            self.recorder.add_programs(*self._program, f"process {os.getpid()}")
            self._program = []

    def ask(self, question: Callable[..., Any], *args: Any) -> Any:
        """Asks the recorder while nobody writes to it."""
        with self._lock:
            self._add_programs()
            return question(self.recorder, *args)

    def finish(self) -> None:
        with self._lock:
            self._add_programs()

    def recorded(self, run: str, name: str, start: float, row: Sequence[float]) -> None:
        with self._lock:
            self.recorder.add_rows(run, name, start, [Row(*row)])


class RowMaker:
    """Makes a row of each evaluation; keeps the latest point, for the step to the next."""

    def __init__(self) -> None:
        self._count = 0
        self._point = np.zeros(0)

    def next(self, evaluation: Evaluated, start: float) -> Row:
        assert evaluation.value is not None
        point, before = vector(evaluation.arguments).copy(), self._point
        is_like = self._count > 0 and before.shape == point.shape
        step = length_of(point - before) if is_like else np.nan
        length = length_of(vector(evaluation.gradients))
        row = Row(self._count, evaluation.stop - start, float(evaluation.value), length, step)
        self._count, self._point = self._count + 1, point
        return row


def vector(trees: Sequence[Any]) -> np.ndarray:
    """The float and complex numbers of pytrees, in one array."""
    if len(trees) == 1 and type(trees[0]) is np.ndarray and trees[0].dtype.kind in "fc":
        return trees[0].ravel()  # nearly always: a fit pays for it at each call
    arrays = []
    for tree in trees:
        for leaf in flatten(tree)[0]:
            array = np.asarray(leaf.values if type(leaf) is Rows else leaf)
            if array.dtype.kind in "fc":
                arrays.append(array.ravel())
    return np.concatenate(arrays) if arrays else np.zeros(0)


def length_of(numbers: np.ndarray) -> float:
    """The 2-norm, in a third of the time of ``np.linalg.norm``; infinite above 1e154."""
    return math.sqrt(np.vdot(numbers, numbers).real)


class ClientObserver(Observer):
    """Sends the tasks that a client runs itself to the pages of its cluster, twice a second."""

    def __init__(self, client: Client):
        self._client = weakref.ref(client)
        self._planned: deque[tuple[Any, Sequence[Any]]] = deque(maxlen=SENT)
        self._ran: deque[Ran] = deque(maxlen=SENT)
        self._is_awake = False

    def planned(self, tasks: Inputs) -> None:
        self._planned.extend(tasks.items())
        client = self._client()
        if not self._is_awake and client is not None:
            self._is_awake = True
            loop: Any = client.loop.asyncio_loop
            loop.call_soon_threadsafe(loop.call_later, SEND_EVERY, self._send)

    def ran(self, task: Ran) -> None:
        self._ran.append(task)

    def _send(self) -> None:
        self._is_awake = False
        client = self._client()
        if client is not None and client.status in CONNECTED:
            tasks = {"planned": taken(self._planned), "ran": taken(self._ran)}
            in_loop(client, lambda: client.run_on_scheduler(take, **tasks)).add_done_callback(
                note_failure
            )


def taken(entries: deque[Any]) -> list[Any]:
    """All entries, which are removed; other threads may add some meanwhile."""
    return [entries.popleft() for _ in range(len(entries))]


def take(planned: list[Any], ran: list[Ran], dask_scheduler: Any) -> None:
    """Runs on the scheduler."""
    plugin = dask_scheduler.plugins.get(NAME)
    if plugin is not None:
        plugin.add_of_client(planned, ran)


class RunObserver(Observer):
    """Makes rows of evaluations; sends them to observers, and to the scheduler twice a second."""

    sees_tasks = False

    def __init__(self, run: RunRecord):
        self.run = run
        self.id = uuid.uuid4().hex
        self._rows = RowMaker()
        self._unsent: list[Row] = []
        self._sent = clock.seconds()
        self._lock = threading.Lock()

    def evaluated(self, evaluation: Evaluated) -> None:
        if evaluation.value is None:
            return
        with self._lock:
            row = self._rows.next(evaluation, self.run.start)
            self.run.add(row)
            self._unsent.append(row)
            for observer in observers.present():
                observer.recorded(self.id, self.run.name, self.run.start, row)
            if clock.seconds() - self._sent > SEND_EVERY:
                self._send()

    def finish(self) -> None:
        with self._lock:
            self._send()

    def _send(self) -> None:
        rows, self._unsent = self._unsent, []
        self._sent = clock.seconds()
        client = active_client()
        if client is None or not rows:
            return
        run = {"run": self.id, "name": self.run.name, "start": self.run.start}
        message = {"action": "descent", **run, "rows": list(map(list, rows))}
        scheduler: Any = client.scheduler
        sent = in_loop(client, lambda: scheduler.log_event(topic=TOPIC, msg=message))
        sent.add_done_callback(note_failure)


def note_failure(sent: Any) -> None:
    """A fit goes on although its page is not brought up to date."""
    if sent.cancelled() or sent.exception() is not None:
        logger.info("the scheduler was not told of recorded evaluations")


@contextlib.contextmanager
def record(name: str) -> Iterator[RunRecord]:
    """A context whose gradients make a run: value, gradient norm and step of each evaluation.

    The page *Descent* of a cluster that ``dg.dashboards.mount`` was called for shows it live, and
    ``dg.report`` draws it. Yields the run: ``run.shown`` are its rows, every one up to 2,048, then
    every second, fourth ... one. A run counts calls of ``dg.value_and_grad`` and ``dg.grad``: of
    its own thread, and of threads that have no run of their own, such as a pool's.

    Raises
    ------
    TypeError
        if the name is not a string.

    See Also
    --------
    report, dashboards.mount

    Examples
    --------
    >>> with dg.record("descent") as run:
    ...     x = np.ones(2)
    ...     for _ in range(3):
    ...         x = x - 0.25 * dg.grad(lambda x: dg.delayed(np.sum)(x**2))(x)
    >>> len(run.shown)
    3
    """
    if not isinstance(name, str):
        raise TypeError(
            f"the name of a run that dg.record makes must be a string; found {describe(name)}"
        )
    observer = RunObserver(RunRecord(name, time.time()))
    with observed_by(observer):
        yield observer.run
