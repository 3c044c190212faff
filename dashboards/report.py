"""Report: what was evaluated within a context, as one HTML file, and as a trace for Perfetto."""

import contextlib
import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from distributed import Client

from daskgrad.autodiff.values.descriptions import describe, imported
from daskgrad.dashboards.feeding import recording
from daskgrad.dashboards.local import LocalObserver
from daskgrad.dashboards.recorder import Recorder, Task
from daskgrad.tasks import observers
from daskgrad.tasks.clients import active_client
from daskgrad.tasks.observers import observed_by

# -------------------------------------------------------------------------------------------------
# Trace: records in Chrome's trace event format, which Perfetto and chrome://tracing open.
#
# A process is a worker, a thread one of its threads. An arrow goes from a forward task to the
# backward task that pulls it back.

APART = 1_000  # from one process to the next: a thread with its number would be its main thread
CALLS = 100_000  # the first number of the rows of direct calls, one for each sum


def trace_events(recorder: Recorder) -> dict[str, Any]:
    """The whole trace, as it is written to a JSON file; times are in microseconds."""
    found = list(events(recorder))
    first = min([event["ts"] for event in found if "ts" in event], default=0.0)
    for event in found:
        if first < 0.0 and "ts" in event:  # clocks of other machines may be behind
            event["ts"] -= first
    return {"traceEvents": found, "displayTimeUnit": "ms"}


def events(recorder: Recorder) -> Iterator[dict[str, Any]]:
    workers = list(dict.fromkeys([each.worker for each in (*recorder.tasks, *recorder.calls)]))
    numbers = {worker: APART * number for number, worker in enumerate(workers, 1)}
    for worker, number in numbers.items():
        yield metadata("process_name", number, 0, worker or "not run")
    threads: dict[tuple[str, int], int] = {}
    for each in recorder.tasks:
        place = (each.worker, each.thread)
        if place not in threads:
            threads[place] = sum([worker == each.worker for worker, _ in threads]) + 1
            named = f"thread {threads[place]}"
            yield metadata("thread_name", numbers[each.worker], threads[place], named)
    forward = {task.key: task for task in recorder.tasks if task.stage == "forward"}
    for number, task in enumerate(recorder.tasks):
        at = {"pid": numbers[task.worker], "tid": threads[task.worker, task.thread]}
        yield span(task, recorder, at)
        source = forward.get(task.source)
        if source is not None:
            there = {"pid": numbers[source.worker], "tid": threads[source.worker, source.thread]}
            arrow = {"name": "pullback", "cat": "flow", "id": number}
            yield {**arrow, **there, "ph": "s", "ts": micro(source.start, recorder)}
            yield {**arrow, **at, "ph": "f", "bp": "e", "ts": micro(task.start, recorder)}
    yield from call_events(recorder, numbers)


def call_events(recorder: Recorder, numbers: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """Direct calls, of which a worker tells twice a second: those of two sums may overlap."""
    rows: dict[tuple[str, str], int] = {}
    for call in recorder.calls:
        place = (call.worker, call.model)
        if place not in rows:
            rows[place] = CALLS + len(rows)
            named = f"direct calls of {recorder.called(call.model)}"
            yield metadata("thread_name", numbers[call.worker], rows[place], named)
        yield {
            "name": f"{call.calls} calls of {recorder.called(call.model)}",
            "cat": "call",
            "ph": "X",
            "ts": micro(call.start, recorder),
            "dur": (call.stop - call.start) * 1e6,
            "pid": numbers[call.worker],
            "tid": rows[place],
            "args": {"blocks": call.blocks, "seconds in models": call.seconds},
        }


def span(task: Task, recorder: Recorder, at: dict[str, int]) -> dict[str, Any]:
    return {
        "name": f"{task.stage} {recorder.called(task.model)}",
        "cat": task.stage,
        "ph": "X",
        "ts": micro(task.start, recorder),
        "dur": (task.stop - task.start) * 1e6,
        **at,
        "args": {"evaluation": task.evaluation, "bytes": task.nbytes, "failed": task.has_failed},
    }


def metadata(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def micro(when: float, recorder: Recorder) -> float:
    return (when - recorder.begin) * 1e6


# ------------------------------------------------------------------------------------------ report

Path = str | os.PathLike[str]


@contextlib.contextmanager
def report(path: Path, trace: Path | None = None) -> Iterator[Recorder]:
    """A context at whose end the file ``path`` shows what was evaluated within it.

    It is one HTML file with everything in it: time line, graph, costs of models, memory of workers,
    and the descent of each run (``dg.record``). It holds for every scheduler of Dask and for small
    evaluations in the calling thread; on a cluster, for the client that is active at the start.
    ``trace`` is a JSON file in Chrome's trace event format, which https://ui.perfetto.dev opens.

    Tasks are drawn one by one up to the latest 20,000. Yields the ``Recorder``, whose attributes
    hold the same numbers after the context.

    Raises
    ------
    TypeError
        if a path is neither a string nor a path.
    FileNotFoundError
        if the folder of a file does not exist.
    ModuleNotFoundError
        if Bokeh is not installed (``pip install "daskgrad[dashboards]"``).

    Examples
    --------
    >>> import os, tempfile
    >>> file = os.path.join(tempfile.mkdtemp(), "report.html")
    >>> with dg.report(file):
    ...     gradient = dg.grad(lambda x: dg.delayed(np.sum)(x**2))(np.ones(3))
    >>> os.path.exists(file)
    True
    """
    paths = [require_path(each) for each in (path, trace) if each is not None]
    imported("bokeh", "dashboards", "dg.report draws with Bokeh")  # before anything is evaluated
    from daskgrad.dashboards.pages import report_page

    recorder = Recorder()
    client = active_client()
    with observed_by(LocalObserver(recorder)):
        with contextlib.nullcontext() if client is None else recorded(client, recorder):
            try:
                yield recorder
            finally:
                for wait in () if client is None else observers.late_events:
                    wait(client)
        paths[0].write_text(report_page(recorder, paths[0].stem), encoding="utf-8")
        if trace is not None:
            paths[1].write_text(json.dumps(trace_events(recorder)), encoding="utf-8")


def require_path(path: Any) -> pathlib.Path:
    """The path of a file that can be written."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"dg.report takes the path of a file; found {describe(path)}")
    found = pathlib.Path(path)
    if not found.absolute().parent.is_dir():
        raise FileNotFoundError(f"dg.report cannot write {found}: its folder does not exist")
    return found


@contextlib.contextmanager
def recorded(client: Client, recorder: Recorder) -> Iterator[None]:
    """Records what the scheduler sees, in a plugin of this report's own, and fetches it."""
    with recording(client) as name:
        yield
        recorder.absorb(client.run_on_scheduler(records, name=name))


def records(name: str, dask_scheduler: Any) -> Recorder:
    plugin = dask_scheduler.plugins[name]
    plugin.sample()
    return plugin.recorder
