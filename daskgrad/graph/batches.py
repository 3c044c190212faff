"""Batches: many cotangents pulled back along one captured forward pass, several in a task."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from daskgrad.tasks.task_graph import TaskGraph
from daskgrad.values.cotangents import Cotangent
from daskgrad.values.fingerprints import Fingerprint
from daskgrad.values.trees import flatten
from daskgrad.values.vectors import unit


class Batch(NamedTuple):
    """What a task returns for a batch of cotangents: an entry for each."""

    entries: tuple[Any, ...]


class BatchTasks:
    """A task graph to which tasks are added that go through batches of cotangents."""

    def __init__(self, tasks: TaskGraph):
        self._tasks = tasks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tasks, name)

    def pick(self, stage: Any, name: str, fun: Callable, *args: Any, **options: Any) -> Any:
        return self._tasks.pick(stage, name, functools.partial(for_each, fun), *args, **options)

    def add(self, key: Any, fun: Callable, *args: Any, annotations: dict | None = None) -> Any:
        fun = functools.partial(for_each, self._tasks.watched(fun))
        return self._tasks.add(key, fun, *args, annotations=annotations)


def for_each(fun: Callable, *args: Any) -> Any:
    """Calls a task's function for each entry of the batches among its arguments."""
    count = next((n for n in map(entries_in, args) if n is not None), None)
    if count is None:
        return fun(*args)
    return Batch(tuple([fun(*[entry(arg, n) for arg in args]) for n in range(count)]))


def entries_in(arg: Any) -> int | None:
    """How many entries the batches in an argument have."""
    if isinstance(arg, Batch):
        return len(arg.entries)
    if isinstance(arg, list):
        return next((n for n in map(entries_in, arg) if n is not None), None)
    return None


def entry(arg: Any, number: int) -> Any:
    if isinstance(arg, Batch):
        return arg.entries[number]
    if entries_in(arg) is None:
        return arg
    return [entry(item, number) for item in arg]


def unit_cotangents(value: Any, start: int, stop: int, seen: Fingerprint | None = None) -> Batch:
    """The cotangents of a value that are one in one entry, for a run of its entries.

    The entries are those of its differentiable leaves, one leaf after another, in C order. ``seen``
    is the fingerprint of the value as the caller has it.
    """
    leaves = flatten(value)[0]
    return Batch(tuple([Cotangent(unit(leaves, place), seen) for place in range(start, stop)]))
