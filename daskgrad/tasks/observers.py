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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

from dask.callbacks import Callback
from dask.typing import Key

from daskgrad.tasks.keys import key_parts, known_name

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

    def dropped(self, keys: Iterable[Key]) -> None:
        """These planned tasks will not run: another one failed."""

    def evaluated(self, evaluation: Evaluated) -> None: ...

    def recorded(self, run: str, name: str, start: float, row: Sequence[float]) -> None:
        """A run that the user records got a row."""

    def finish(self) -> None:
        """Its context ends."""


observers: tuple[Observer, ...] = ()  # of all contexts
_of_context: ContextVar[tuple[Observer, ...]] = ContextVar("observers", default=())
of_clients: weakref.WeakKeyDictionary[Any, Observer] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


@contextlib.contextmanager
def observed_by(observer: Observer) -> Iterator[None]:
    """A context in which an observer hears of evaluations: its own, and evaluations of threads
    that have no observer of this class, such as a pool's."""
    global observers
    with _lock:
        observers = (*observers, observer)
    _of_context.set((*_of_context.get(), observer))
    try:
        yield
    finally:
        _of_context.set(without(observer, _of_context.get()))
        with _lock:
            observers = without(observer, observers)
        observer.finish()


def without(observer: Observer, others: Iterable[Observer]) -> tuple[Observer, ...]:
    return tuple([other for other in others if other is not observer])


def present() -> tuple[Observer, ...]:
    """The observers that hear of evaluations in this context."""
    here = [one for one in _of_context.get() if one in observers]  # others have ended elsewhere
    kinds = set(map(type, here))
    return tuple([one for one in observers if one in here or type(one) not in kinds])


def of_tasks() -> tuple[Observer, ...]:
    """The present observers that see tasks."""
    return tuple([one for one in present() if one.sees_tasks]) if observers else ()


def audience(client: Any) -> tuple[Observer, ...]:
    """Who hears of the tasks of an evaluation in line: a client whose cluster shows pages has an
    observer of its own."""
    observer = of_clients.get(client) if client is not None and of_clients else None
    watching = of_tasks() if observers else ()
    return watching if observer is None else (*watching, observer)


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
    for observer in present():
        observer.evaluated(evaluation)


class LocalTasks(Callback):
    """Tells the observers which of some tasks Dask's local schedulers run, and which one failed."""

    def __init__(self, inputs: Inputs):
        self._inputs = inputs
        self._observers = of_tasks()
        self._begun: dict[Key, float] = {}
        self._left = dict.fromkeys(inputs)

    def __enter__(self) -> Any:
        for observer in self._observers:
            observer.planned(self._inputs)
        return super().__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        super().__exit__(kind, error, trace)
        if isinstance(error, Exception):
            begun = [key for key in self._begun if key in self._left]  # others may still run
            blamed = [key for key in begun if is_blamed(key, error)]
            for key in blamed[:1] or (begun if len(begun) == 1 else ()):
                self._tell(key, self._begun[key], os.getpid(), threading.get_ident(), True)
        if error is not None:
            for observer in self._observers:
                observer.dropped(list(self._left))

    def _pretask(self, key: Key, dask: Any, state: Any) -> None:
        self._begun[key] = time.time()

    def _posttask(self, key: Key, result: Any, dask: Any, state: Any, worker: Any) -> None:
        if key not in self._inputs:  # of another graph, which another thread computes
            return
        self._tell(key, self._begun.pop(key), *place_of(worker))

    def _tell(self, key: Key, start: float, *where: Any) -> None:
        del self._left[key]
        ran = Ran(key, self._inputs[key], start, time.time(), *where)
        for observer in self._observers:
            observer.ran(ran)


def is_blamed(key: Key, error: Exception) -> bool:
    """Whether the notes of an error name the model of a task, and its pass."""
    parts = key_parts(key)
    blame = parts and f"in the {parts.stage} pass of model {known_name(parts.model)!r}"
    return blame is not None and any([blame in note for note in getattr(error, "__notes__", ())])


def place_of(worker: int | None) -> tuple[int, int]:
    """Process and thread of a local scheduler's worker, which is a thread's or process's number."""
    if worker is None:
        return os.getpid(), threading.get_ident()
    is_thread = worker in {thread.ident for thread in threading.enumerate()}
    return (os.getpid(), worker) if is_thread else (worker, 0)
