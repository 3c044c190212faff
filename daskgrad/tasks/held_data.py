"""Held data: the values in a graph, as Dask orders and runs it best.

Dask orders tasks by the sets of roots that each of them needs, in which data that several tasks
take do not count: their consumers are the roots. Along a chain of n tasks with a root each, such as
``total = total + f(x, n)``, these sets take n² memory, and so do those of results that each task
leads to; and where n keys are data, Dask's local schedulers look at all of them for each task. So a
task that runs in this process holds its data, and many begin after one and end in one; elsewhere
what many tasks take is a task, and so the only root.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from dask.task_spec import DataNode, List, Task, TaskRef
from dask.typing import Key

from daskgrad.models.model import Model
from daskgrad.tasks.task_functions import KeptTask, Planned

FEW = 8  # roots of a graph that Dask orders as quickly as one
LITTLE = 2**10  # bytes that are sent with each of a few tasks rather than as a task of their own


def tasks_here(
    planned: Mapping[Key, Planned],
    data: Mapping[Key, DataNode],
    keys: Iterable[Key],
    first: Key,
    last: Key,
) -> dict[Key, Any]:
    """What Dask runs in this process to compute some keys: many tasks begin after the ``first``
    one, and many results end in the ``last``, which is for the order alone and does not run."""
    tasks: dict[Key, Any] = {key: data[key] for key in keys if key in data}
    after = None
    if sum([task.is_root(data) for task in planned.values()]) > FEW:
        tasks[first] = KeptTask(first, nothing)
        after = TaskRef(first)
    tasks.update({key: task.task(key, data, after) for key, task in planned.items()})
    used = {source for task in planned.values() for source in task.inputs}
    ends = [key for key in planned if key not in used]
    if len(ends) > FEW:
        tasks[last] = KeptTask(last, nothing, List(*map(TaskRef, ends)))
    return tasks


def tasks_elsewhere(
    planned: Mapping[Key, Planned],
    data: Mapping[Key, DataNode],
    keys: Iterable[Key] | None,
    models: Mapping[int, Any],
) -> dict[Key, Any]:
    """What Dask runs anywhere to compute some keys; None: any of them.

    ``models``: what tasks take instead of models, by their ids.
    """
    kept = {key: models[id(node.value)] for key, node in data.items() if id(node.value) in models}
    kept = {key: task for key, task in kept.items() if isinstance(task, Task)}
    data = {key: node for key, node in data.items() if key not in kept}
    uses = Counter([key for task in planned.values() for key in set(task.inputs)])
    held: dict[Key, Any] = {
        key: node for key, node in data.items() if uses[key] <= FEW and is_little(node)
    }
    wanted: Iterable[Key] = data.keys()
    if keys is None or len(held) <= FEW:
        held = {}
    else:
        wanted = (data.keys() - held.keys()) | set(keys)
    tasks: dict[Key, Any] = {
        key: DataTask(node) if uses[key] > FEW and not isinstance(node.value, Model) else node
        for key, node in data.items()
        if key in wanted
    }
    held.update(kept)
    tasks.update({key: task.sealed(models).task(key, held) for key, task in planned.items()})
    return tasks


def is_little(node: DataNode) -> bool:
    """Whether data is a number or a small array."""
    value = node.value
    return type(value) in (np.ndarray, np.float64, float) and np.asarray(value).nbytes <= LITTLE


class DataTask(KeptTask):
    """Data as a task that returns it."""

    __slots__ = ()

    def __init__(self, node: DataNode):
        super().__init__(node.key, give, DataNode(None, node.value))

    def __reduce__(self) -> tuple:
        return DataTask, (DataNode(self.key, self.value),)

    @property
    def value(self) -> Any:
        return self.args[0].value


def give(value: Any) -> Any:
    return value


def nothing(*_: Any) -> None:
    """What a task does that only puts others in order."""
