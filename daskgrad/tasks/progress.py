"""Progress: whether tasks can get on. Asked of Dask's scheduler, in whose process this runs.

A task moves if a worker that runs has it, or if it is queued behind others that such workers have,
whoever's they are. What is neither, nor waits for a task that does, has nobody to run it: there is
no worker, all are paused or closing, or none is one that the task may run on.
"""

from collections.abc import Iterable, Sequence
from typing import Any

SHOWN = 3  # tasks that a message names


def standing(keys: Sequence[Any], dask_scheduler: Any) -> dict[str, Any]:
    """Whether anything that the keys still need ``moves``; where nothing does, what there is.

    Stops at the first task that moves, so that it takes no time where all is well.
    """
    wanted = [dask_scheduler.tasks.get(key) for key in keys]
    if any(task is None or task.state == "erred" for task in wanted):
        return {"moves": True}  # not there yet, or about to be told
    todo = [task for task in wanted if task.state != "memory"]
    seen: set[Any] = set()
    while todo:
        task = todo.pop()
        if task in seen:
            continue
        seen.add(task)
        if moves(task, dask_scheduler):
            return {"moves": True}
        todo.extend(task.waiting_on or ())
    return {
        "moves": not seen,  # all are there: they are on their way
        "count": len(seen),
        "tasks": described(seen),
        "workers": {ws.address: ws.status.name for ws in dask_scheduler.workers.values()},
    }


def moves(task: Any, scheduler: Any) -> bool:
    if task.state == "processing":
        worker = task.processing_on
        return worker.status.name == "running" or is_busy(worker)
    return task.state == "queued" and bool(scheduler.running)


def is_busy(worker: Any) -> bool:
    """Whether a worker that takes no new tasks has not ended its last ones.

    Those that have left its threads, to wait for tasks of their own, count apart.
    """
    return (
        bool(worker.long_running) or worker.metrics.get("task_counts", {}).get("executing", 0) > 0
    )


def described(tasks: Iterable[Any]) -> list[tuple[Any, dict[str, Any]]]:
    """The first tasks that wait for no other: their keys, and what is asked of their workers."""
    ready = sorted([task for task in tasks if not task.waiting_on], key=lambda task: str(task.key))
    return [(task.key, restrictions(task)) for task in ready[:SHOWN]]


def restrictions(task: Any) -> dict[str, Any]:
    asked = {
        "workers": sorted(task.worker_restrictions or ()),
        "hosts": sorted(task.host_restrictions or ()),
        "resources": dict(task.resource_restrictions or {}),
    }
    return {kind: value for kind, value in asked.items() if value}
