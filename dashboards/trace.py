"""Trace: records in Chrome's trace event format, which Perfetto and chrome://tracing open.

A process is a worker, a thread one of its threads. An arrow goes from a forward task to the
backward task that pulls it back.
"""

from collections.abc import Iterator
from typing import Any

from daskgrad.dashboards.recorder import Recorder, Task

CALLS = 0  # the thread of direct calls, of which a worker tells twice a second


def trace_events(recorder: Recorder) -> dict[str, Any]:
    """The whole trace, as it is written to a JSON file; times are in microseconds."""
    return {"traceEvents": list(events(recorder)), "displayTimeUnit": "ms"}


def events(recorder: Recorder) -> Iterator[dict[str, Any]]:
    workers = list(dict.fromkeys([each.worker for each in (*recorder.tasks, *recorder.calls)]))
    numbers = {worker: number for number, worker in enumerate(workers, 1)}
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
    for call in recorder.calls:
        yield {
            "name": f"{call.calls} calls of {recorder.called(call.model)}",
            "cat": "call",
            "ph": "X",
            "ts": micro(call.start, recorder),
            "dur": (call.stop - call.start) * 1e6,
            "pid": numbers[call.worker],
            "tid": CALLS,
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
