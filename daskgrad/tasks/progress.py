"""Progress: finds out whether tasks can progress; runs in the process of Dask's scheduler.

A task can progress if a running worker has it, or if it is queued behind any tasks of running
workers, or if it waits for a task that can. Otherwise nobody can run it: no worker exists, all
workers are paused or closing, or the task's restrictions exclude them all.
"""

from collections.abc import Iterable, Sequence
from typing import Any

SHOWN = 3  # tasks that a message names


def standing(keys: Sequence[Any], dask_scheduler: Any) -> dict[str, Any]:
    """Whether any task that the keys still need can progress; if none can, tasks and workers. Keys
    that are not known arrive yet, or the scheduler has forgotten them.

    Stops at the first task that can, so that it takes no time where all is well.
    """
    wanted = [dask_scheduler.tasks.get(key) for key in keys]
    if None in wanted:
        return {"can_progress": True, "are_known": False}
    if any(task.state == "erred" for task in wanted):
        return {"can_progress": True}  # the client will be told of the error
    todo = [task for task in wanted if task.state != "memory"]
    seen: set[Any] = set()
    while todo:
        task = todo.pop()
        if task in seen:
            continue
        seen.add(task)
        if can_progress(task, dask_scheduler):
            return {"can_progress": True}
        todo.extend(task.waiting_on or ())
    return {
        "can_progress": not seen,  # without unfinished tasks, the results are on their way
        "count": len(seen),
        "tasks": first_tasks(seen),
        "workers": {ws.address: ws.status.name for ws in dask_scheduler.workers.values()},
    }


def can_progress(task: Any, scheduler: Any) -> bool:
    if task.state == "processing":
        worker = task.processing_on
        return worker.status.name == "running" or is_busy(worker)
    return task.state == "queued" and bool(scheduler.running)


def is_busy(worker: Any) -> bool:
    """Whether a worker that takes no new tasks still runs its last ones.

    Dask counts separately the tasks that left their thread to wait for tasks that they started.
    """
    return (
        bool(worker.long_running) or worker.metrics.get("task_counts", {}).get("executing", 0) > 0
    )


def first_tasks(tasks: Iterable[Any]) -> list[tuple[Any, dict[str, Any]]]:
    """The first tasks that wait for no other: their keys, and their restrictions."""
    ready = sorted([task for task in tasks if not task.waiting_on], key=lambda task: str(task.key))
    return [(task.key, restrictions(task)) for task in ready[:SHOWN]]


def restrictions(task: Any) -> dict[str, Any]:
    asked = {
        "workers": sorted(task.worker_restrictions or ()),
        "hosts": sorted(task.host_restrictions or ()),
        "resources": dict(task.resource_restrictions or {}),
    }
    return {kind: value for kind, value in asked.items() if value}
