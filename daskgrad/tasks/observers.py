"""Observers: callbacks for each evaluation of this process; none by default.

They hear of the tasks of the calling thread and of Dask's local schedulers, and of this process's
evaluations, wherever these ran. A cluster's scheduler sees what a cluster runs
(``daskgrad.dashboards``).
"""

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dask.callbacks import Callback
from dask.typing import Key

TOPIC = "daskgrad"  # of the events that workers and clients send to Dask's scheduler

late_events: list[Callable[[Any], None]] = []  # each waits for the events of a client's workers

Inputs = Mapping[Key, Sequence[Key]]  # the keys that each task refers to


class Ran(NamedTuple):
    """A task that ran in this process or its pool; seconds since the epoch.

    Process 0 stands for the workers, which evaluate a sum in direct calls.
    """

    key: Key
    inputs: Sequence[Key]
    start: float
    stop: float
    process: int
    thread: int
    has_failed: bool = False


class Evaluated(NamedTuple):
    """One call for a value and its gradient; ``gradients`` by the ``arguments``. Another derivative
    has no ``value`` here.

    ``calls``: how often a program stood for each model; None if there were tasks.
    """

    name: str
    arguments: Sequence[Any]
    value: float | None
    gradients: Sequence[Any]
    start: float
    stop: float
    calls: Mapping[str, int] | None = None


class Observer:
    """Methods are called in the thread where it happens; these do nothing.

    Evaluations in line are quicker if no observer ``sees_tasks``.
    """

    sees_tasks = True

    def planned(self, tasks: Inputs) -> None:
        """These tasks will run."""

    def ran(self, task: Ran) -> None: ...

    def evaluated(self, evaluation: Evaluated) -> None: ...

    def recorded(self, run: str, name: str, start: float, row: Sequence[float]) -> None:
        """A run that the user records got a row."""

    def finish(self) -> None:
        """Its context ends."""


observers: tuple[Observer, ...] = ()
of_tasks: tuple[Observer, ...] = ()  # those that see tasks
of_clients: weakref.WeakKeyDictionary[Any, Observer] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


@contextlib.contextmanager
def observed_by(observer: Observer) -> Iterator[None]:
    """A context in which an observer hears of the evaluations of all threads of this process."""
    with _lock:
        _set((*observers, observer))
    try:
        yield
    finally:
        with _lock:
            _set(tuple([other for other in observers if other is not observer]))
        observer.finish()


def _set(present: tuple[Observer, ...]) -> None:
    global observers, of_tasks
    observers, of_tasks = present, tuple([o for o in present if o.sees_tasks])


def audience(client: Any) -> tuple[Observer, ...]:
    """Who hears of the tasks of an evaluation in line: a client whose cluster shows pages has an
    observer of its own."""
    observer = of_clients.get(client) if client is not None and of_clients else None
    return of_tasks if observer is None else (*of_tasks, observer)


def run_observed(
    audience: Sequence[Observer], key: Key, inputs: Sequence[Key], run: Callable[[], Any]
) -> Any:
    """Runs a task in the calling thread, and tells the observers."""
    tell_planned(audience, key, inputs)
    start = time.time()
    try:
        result = run()
    except BaseException:
        tell_ran(audience, key, inputs, start, has_failed=True)
        raise
    tell_ran(audience, key, inputs, start)
    return result


def tell_planned(audience: Sequence[Observer], key: Key, inputs: Sequence[Key]) -> None:
    for observer in audience:
        observer.planned({key: inputs})


def tell_ran(
    audience: Sequence[Observer],
    key: Key,
    inputs: Sequence[Key],
    start: float,
    process: int | None = None,
    has_failed: bool = False,
) -> None:
    """Without a process it ran in this thread."""
    process = os.getpid() if process is None else process
    ran = Ran(key, inputs, start, time.time(), process, threading.get_ident(), has_failed)
    for observer in audience:
        observer.ran(ran)


def tell_evaluated(evaluation: Evaluated) -> None:
    for observer in observers:
        observer.evaluated(evaluation)


class LocalTasks(Callback):
    """Tells the observers which of some tasks Dask's local schedulers run."""

    def __init__(self, inputs: Inputs):
        self._inputs = inputs
        self._observers = of_tasks
        self._begun: dict[Key, float] = {}

    def __enter__(self) -> Any:
        for observer in self._observers:
            observer.planned(self._inputs)
        return super().__enter__()

    def _pretask(self, key: Key, dask: Any, state: Any) -> None:
        self._begun[key] = time.time()

    def _posttask(self, key: Key, result: Any, dask: Any, state: Any, worker: Any) -> None:
        if key not in self._inputs:  # of another graph, which another thread computes
            return
        where = place_of(worker)
        ran = Ran(key, self._inputs[key], self._begun.pop(key), time.time(), *where)
        for observer in self._observers:
            observer.ran(ran)


def place_of(worker: int | None) -> tuple[int, int]:
    """Process and thread of a local scheduler's worker, which is a thread's or process's number."""
    if worker is None:
        return os.getpid(), threading.get_ident()
    is_thread = worker in {thread.ident for thread in threading.enumerate()}
    return (os.getpid(), worker) if is_thread else (worker, 0)
