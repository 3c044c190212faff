"""Observers: told what this process evaluates; there are none unless somebody asked.

Whoever could tell asks first whether there is one, which takes no time. What a cluster runs, its
scheduler sees (``daskgrad.dashboards``): here are the tasks of the calling thread and of Dask's
local schedulers, and the evaluations of this process, wherever they ran.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dask.callbacks import Callback
from dask.typing import Key

TOPIC = "daskgrad"  # of the events that workers and clients send to Dask's scheduler

late_events: list[Callable[[Any], None]] = []  # each waits for the events of a client's workers

Inputs = Mapping[Key, Sequence[Key]]  # of each task the keys that it refers to


class Ran(NamedTuple):
    """A task that ran in this process or its pool; seconds since the epoch."""

    key: Key
    inputs: Sequence[Key]
    start: float
    stop: float
    process: int
    thread: int


class Evaluated(NamedTuple):
    """One call for a value and its gradient; the gradients are those of some arguments."""

    name: str
    arguments: Sequence[Any]
    value: float
    gradients: Sequence[Any]
    start: float
    stop: float


class Observer:
    """Does nothing with what it is told, in the thread where it happens.

    Evaluations in line are quicker where nobody ``sees_tasks``.
    """

    sees_tasks = True

    def planned(self, tasks: Inputs) -> None:
        """These tasks will run."""

    def ran(self, task: Ran) -> None: ...

    def evaluated(self, evaluation: Evaluated) -> None: ...

    def recorded(self, run: str, name: str, start: float, row: Sequence[float]) -> None:
        """A run that the user records has one more row."""


observers: tuple[Observer, ...] = ()
of_tasks: tuple[Observer, ...] = ()  # those that see tasks
_lock = threading.Lock()


@contextlib.contextmanager
def observed_by(observer: Observer) -> Iterator[None]:
    """A context in which an observer is told what all threads of this process evaluate."""
    with _lock:
        _set((*observers, observer))
    try:
        yield
    finally:
        with _lock:
            _set(tuple([each for each in observers if each is not observer]))


def _set(found: tuple[Observer, ...]) -> None:
    global observers, of_tasks
    observers, of_tasks = found, tuple([each for each in found if each.sees_tasks])


def run_observed(key: Key, inputs: Sequence[Key], run: Callable[[], Any]) -> Any:
    """Runs a task in the calling thread, and tells the observers."""
    told = of_tasks
    for each in told:
        each.planned({key: inputs})
    start = time.time()
    result = run()
    ran = Ran(key, inputs, start, time.time(), os.getpid(), threading.get_ident())
    for each in told:
        each.ran(ran)
    return result


def tell_evaluated(evaluation: Evaluated) -> None:
    for each in observers:
        each.evaluated(evaluation)


class LocalTasks(Callback):
    """A callback that tells the observers which of some tasks Dask's local schedulers run."""

    def __init__(self, inputs: Inputs):
        self._inputs = inputs
        self._observers = of_tasks
        self._begun: dict[Key, float] = {}

    def __enter__(self) -> Any:
        for each in self._observers:
            each.planned(self._inputs)
        return super().__enter__()

    def _pretask(self, key: Key, dask: Any, state: Any) -> None:
        self._begun[key] = time.time()

    def _posttask(self, key: Key, result: Any, dask: Any, state: Any, worker: Any) -> None:
        if key not in self._inputs:  # of another graph, which another thread computes
            return
        where = place_of(worker)
        ran = Ran(key, self._inputs[key], self._begun.pop(key), time.time(), *where)
        for each in self._observers:
            each.ran(ran)


def place_of(worker: int | None) -> tuple[int, int]:
    """Process and thread of what Dask's local schedulers call a worker: a thread or a process."""
    if worker is None:
        return os.getpid(), threading.get_ident()
    is_thread = worker in {thread.ident for thread in threading.enumerate()}
    return (os.getpid(), worker) if is_thread else (worker, 0)
