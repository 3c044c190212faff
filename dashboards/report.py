"""Report: the evaluations within a context as one HTML file, and as a trace for Perfetto."""

import contextlib
import json
import os
import pathlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

from distributed import Client

from daskgrad.autodiff.values.descriptions import describe, imported
from daskgrad.dashboards.feeding import recording
from daskgrad.dashboards.local import LocalObserver
from daskgrad.dashboards.recorder import CallRecord, Recorder, Task
from daskgrad.tasks import observers
from daskgrad.tasks.clients import active_client
from daskgrad.tasks.observers import observed_by

# -------------------------------------------------------------------------------------------------
# Trace: records in Chrome's trace event format, which Perfetto and chrome://tracing open.
#
# A process is a worker, and a thread is one of its threads. An arrow goes from a forward task to
# the backward task that uses its pullback.

APART = 1_000  # between processes' numbers: a thread with such a number would be a main thread
CALLS = 100_000  # the number of the first row of direct calls; each sum has a row

Event = dict[str, Any]


def trace_events(recorder: Recorder) -> Event:
    """The whole trace, for a JSON file; times are in microseconds."""
    events = [*task_events(recorder), *call_events(recorder)]
    first = min([event["ts"] for event in events if "ts" in event], default=0.0)
    for event in events:
        if first < 0.0 and "ts" in event:  # clocks of other machines may be behind
            event["ts"] -= first
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def processes(recorder: Recorder) -> dict[str, int]:
    """The number of each worker."""
    workers = dict.fromkeys([record.worker for record in (*recorder.tasks, *recorder.calls)])
    return {worker: APART * number for number, worker in enumerate(workers, 1)}


def task_events(recorder: Recorder) -> Iterator[Event]:
    numbers = processes(recorder)
    for worker, number in numbers.items():
        yield metadata("process_name", number, 0, worker or "not run")
    places: dict[tuple[str, int], Event] = {}
    threads: Counter[str] = Counter()
    for worker, thread in dict.fromkeys([(task.worker, task.thread) for task in recorder.tasks]):
        threads[worker] += 1
        places[worker, thread] = {"pid": numbers[worker], "tid": threads[worker]}
        name = f"thread {threads[worker]}"
        yield metadata("thread_name", numbers[worker], threads[worker], name)
    forward = {task.key: task for task in recorder.tasks if task.stage == "forward"}
    for number, task in enumerate(recorder.tasks):
        place = places[task.worker, task.thread]
        name = f"{task.stage} {recorder.called(task.model)}"
        details = {"evaluation": task.evaluation, "bytes": task.nbytes, "failed": task.has_failed}
        yield span(recorder, task, name, task.stage, **place, args=details)
        source = forward.get(task.source)
        if source is not None:
            start = places[source.worker, source.thread]
            arrow = {"name": "pullback", "cat": "flow", "id": number}
            begin = micro(source.start, recorder)
            end = max(begin, micro(task.start, recorder))  # Dask guesses how far clocks differ
            yield {**arrow, **start, "ph": "s", "ts": begin}
            yield {**arrow, **place, "ph": "f", "bp": "e", "ts": end}


def call_events(recorder: Recorder) -> Iterator[Event]:
    """Direct calls, in a row for each sum: workers report twice a second, so sums overlap."""
    numbers = processes(recorder)
    rows: dict[tuple[str, str], int] = {}
    for call in recorder.calls:
        place, model = (call.worker, call.model), recorder.called(call.model)
        number = numbers[call.worker]
        if place not in rows:
            rows[place] = CALLS + len(rows)
            yield metadata("thread_name", number, rows[place], f"direct calls of {model}")
        name = f"{call.calls} calls of {model}"
        details = {"blocks": call.blocks, "seconds in models": call.seconds}
        yield span(recorder, call, name, "call", pid=number, tid=rows[place], args=details)


def span(
    recorder: Recorder, record: Task | CallRecord, name: str, category: str, **place: Any
) -> Event:
    times = {"ts": micro(record.start, recorder), "dur": (record.stop - record.start) * 1e6}
    return {"name": name, "cat": category, "ph": "X", **times, **place}


def metadata(kind: str, process: int, thread: int, name: str) -> Event:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def micro(moment: float, recorder: Recorder) -> float:
    return (moment - recorder.begin) * 1e6


# -------------------------------------------------------------------------------------------------
# Report.

Path = str | os.PathLike[str]


@contextlib.contextmanager
def report(path: Path, trace: Path | None = None) -> Iterator[Recorder]:
    """A context that ends with a report: the file ``path`` shows the evaluations within it.

    It is one HTML file with everything in it: time line, graph, costs of models, memory of workers,
    and the descent of each run (``dg.record``). It shows evaluations on each scheduler of Dask, and
    small ones in the calling thread. On a cluster it shows the client that is active at the start.
    ``trace`` is a JSON file in Chrome's trace event format, which https://ui.perfetto.dev opens.

    The trace has the latest 20,000 tasks one by one, the time line the latest 4,000. Yields the
    ``Recorder``; its attributes hold the same numbers after the context. A context that ends with
    an error, or is interrupted, has a report, too, which tells of the error.

    Raises
    ------
    TypeError
        if a path is neither a string nor a path.
    OSError
        at the start, if a file cannot be written: its folder does not exist, or it is one itself.
    ModuleNotFoundError
        if Bokeh is not installed (``pip install "daskgrad[dashboards]"``).

    See Also
    --------
    record, progress, dashboards.mount

    Examples
    --------
    >>> import os, tempfile
    >>> file = os.path.join(tempfile.mkdtemp(), "report.html")
    >>> with dg.report(file):
    ...     gradient = dg.grad(lambda x: dg.delayed(np.sum)(x**2))(np.ones(3))
    >>> os.path.exists(file)
    True
    """
    paths = [require_path(file) for file in (path, trace) if file is not None]
    imported("bokeh", "dashboards", "dg.report draws with Bokeh")  # before anything is evaluated
    from daskgrad.dashboards.pages import report_page

    recorder = Recorder()
    client = active_client()

    def write() -> None:
        paths[0].write_text(report_page(recorder, paths[0].stem), encoding="utf-8")
        if trace is not None:
            paths[1].write_text(json.dumps(trace_events(recorder)), encoding="utf-8")

    try:
        with observed_by(LocalObserver(recorder)):
            with contextlib.nullcontext() if client is None else recorded(client, recorder):
                try:
                    yield recorder
                finally:
                    for wait in () if client is None else observers.late_events:
                        wait(client)
    except BaseException as error:
        recorder.note_end(error)
        with noted_on(error, "the report could not be written"):
            write()
        raise
    write()


@contextlib.contextmanager
def noted_on(error: BaseException, trouble: str) -> Iterator[None]:
    """A context whose errors are notes on an earlier one, which tells more."""
    try:
        yield
    except Exception as other:
        error.add_note(f"daskgrad: {trouble}: {type(other).__name__}: {other}")


def require_path(path: Any) -> pathlib.Path:
    """The path of a file that can be written."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"dg.report takes the path of a file; found {describe(path)}")
    file = pathlib.Path(path)
    if not file.absolute().parent.is_dir():
        raise FileNotFoundError(f"dg.report cannot write {file}: its folder does not exist")
    if file.is_dir():
        raise IsADirectoryError(f"dg.report cannot write {file}: it is a folder")
    if not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
        raise PermissionError(f"dg.report cannot write {file}: it is not allowed to")
    return file


@contextlib.contextmanager
def recorded(client: Client, recorder: Recorder) -> Iterator[None]:
    """Adds the records of the scheduler, from a plugin for this report alone."""
    with recording(client) as name:
        try:
            yield
        except BaseException as error:
            with noted_on(error, "the report has no records of the scheduler"):
                recorder.absorb(client.run_on_scheduler(records, name=name))
            raise
        recorder.absorb(client.run_on_scheduler(records, name=name))


def records(name: str, dask_scheduler: Any) -> Recorder:
    plugin = dask_scheduler.plugins[name]
    plugin.sample()
    return plugin.recorder
