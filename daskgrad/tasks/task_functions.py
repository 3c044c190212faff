"""Task functions: the callables of tasks, references to results, and tasks as Dask has them."""

import contextlib
from collections.abc import Callable, Mapping
from contextvars import copy_context
from typing import Any, NamedTuple

from dask.task_spec import DataNode, List, Task, TaskRef
from dask.typing import Key
from distributed.protocol.serialize import (
    dask_deserialize,
    dask_serialize,
    pickle_dumps,
    pickle_loads,
)

from daskgrad.autodiff.models import blas, finite, travel
from daskgrad.autodiff.models.captured import Captured
from daskgrad.autodiff.models.failures import make_plain
from daskgrad.autodiff.models.model import Model
from daskgrad.autodiff.models.pullbacks import for_each
from daskgrad.autodiff.models.travel import spilling
from daskgrad.autodiff.values.carriers import Registrations, carrier
from daskgrad.autodiff.values.memory import Sealed, canonical, takes_as_it_arrives
from daskgrad.tasks import allocator
from daskgrad.tasks.clients import current_worker
from daskgrad.tasks.keys import Stage
from daskgrad.tasks.sending import sealed_unless_plain


class KeptTask(Task):
    """A task that the optimisers of other collections must not merge with its neighbours."""

    __slots__ = ()

    @property
    def block_fusion(self) -> bool:
        return True


@carrier
class TaskFunction:
    """The callable of a task: a function, and settings for its run.

    ``policy``: of pullbacks; None is the default. ``must_be_finite``: NaNs and infinities are
    errors. ``is_batched``: it is called for each entry of the batches among its arguments.
    ``brings_classes``: it registers, on arrival, classes that are sent by value. ``keeps_memory``:
    a worker keeps the memory that arrays free. ``is_alone``: no other model of its graph runs
    beside it, so that BLAS keeps its threads.
    """

    fun: Callable
    policy: Sealed | None = None
    must_be_finite: bool = False
    is_batched: bool = False
    keeps_memory: bool = False
    is_alone: bool = False
    brings_classes: bool = False

    def __reduce__(self) -> tuple:
        classes = Registrations() if self.brings_classes else None  # first: the others need them
        return load_function, (classes, *[getattr(self, name) for name in self.__match_args__])

    def __call__(self, *args: Any, after: Any = None) -> Any:
        """Runs as a Dask task; it waits for ``after``, and does not use it."""
        worker = current_worker()
        if self.keeps_memory and worker is not None:
            allocator.keep_freed_memory_of_nanny(worker.memory_manager.memory_limit)
        try:
            with blas.threads(self.is_alone):
                return self.run(args)
        except Exception as error:
            if worker is not None:
                make_plain(error)
            raise

    def run(self, args: tuple) -> Any:
        """Calls the function, with arrays as they were before they were sent."""
        return self.run_here(args if takes_as_it_arrives(self.fun) else canonical(args))

    def run_here(self, args: tuple) -> Any:
        """Calls the function on arrays that were not sent, or are canonical."""
        if self.policy is None and not self.must_be_finite:
            return self._run(args)
        context = copy_context()
        context.run(travel.CURRENT.set, self.policy)
        context.run(finite.REQUIRED.set, self.must_be_finite)
        return context.run(self._run, args)

    def _run(self, args: tuple) -> Any:
        return for_each(self.fun, *args) if self.is_batched else self.fun(*args)


def load_function(_: Registrations | None, *fields: Any) -> TaskFunction:
    return TaskFunction(*fields)


class Picked(NamedTuple):
    """A reference to ``fun(result, *args)``, so cheap that each consumer calls it again.

    ``stage`` and ``name`` go into the key of the task that does so where results travel.
    """

    source: TaskRef
    fun: Callable
    args: tuple[Any, ...]
    stage: Stage
    name: str

    @property
    def key(self) -> Key:
        """The key of the source's task."""
        return self.source.key

    def of(self, result: Any) -> Any:
        return self.fun(result, *self.args)


REFERENCES = (TaskRef, Picked)
Held = Mapping[Key, DataNode | Task]


class PlannedTask:
    """The task ``fun(*args)`` before it is Dask's; ``inputs`` are the keys that it refers to.

    References are arguments, or items of lists that are arguments.
    """

    __slots__ = ("args", "fun", "inputs")

    def __init__(self, fun: TaskFunction, args: tuple):
        self.fun = fun
        self.args = args
        inputs: list[Key] = []
        for arg in args:
            if isinstance(arg, REFERENCES):
                inputs.append(arg.key)
            elif isinstance(arg, list):
                inputs += [item.key for item in arg if isinstance(item, REFERENCES)]
        self.inputs = tuple(inputs)

    def run(self, values: dict[Key, Any]) -> Any:
        """The function's result, with ``values`` for its references."""
        if not self.inputs:
            return self.fun.run_here(self.args)
        return self.fun.run_here(tuple([_fill(arg, values) for arg in self.args]))

    def where_results_travel(self, pick: Callable[[Picked], TaskRef]) -> "PlannedTask":
        """The task with references to tasks, made by ``pick``, instead of parts of results."""

        def picked(arg: Any) -> Any:
            if isinstance(arg, list):
                return [pick(item) if isinstance(item, Picked) else item for item in arg]
            return pick(arg) if isinstance(arg, Picked) else arg

        return PlannedTask(self.fun, tuple(map(picked, self.args)))

    def sealed(self, models: Mapping[int, Any]) -> "PlannedTask":
        """The task with arguments that may be sent; ``models``: substitutes, by models' ids."""
        opens_itself = takes_as_it_arrives(self.fun.fun)

        def seal(arg: Any) -> Any:
            if type(arg) is Model:
                return models.get(id(arg), arg)
            is_open = opens_itself or isinstance(arg, REFERENCES)
            return arg if is_open else sealed_unless_plain(arg)

        args = [
            list(map(seal, arg))
            if isinstance(arg, list) and any(isinstance(item, REFERENCES) for item in arg)
            else seal(arg)
            for arg in self.args
        ]
        return PlannedTask(self.fun, tuple(args))

    def task(self, key: Key, held: Held, after: TaskRef | None = None) -> KeptTask:
        """Dask's task, which contains ``held`` data; a root waits for ``after``."""
        args = [_as_dask(arg, held) for arg in self.args]
        if after is None or not self.is_root(held):
            return KeptTask(key, self.fun, *args)
        return KeptTask(key, self.fun, *args, after=after)

    def is_root(self, held: Held) -> bool:
        """Whether it refers to held data alone."""
        return all([key in held for key in self.inputs])


def _fill(arg: Any, values: dict[Key, Any]) -> Any:
    """An argument with references replaced by results."""
    if isinstance(arg, TaskRef):
        return values[arg.key]
    if isinstance(arg, Picked):
        return arg.of(values[arg.key])
    if isinstance(arg, list):
        return [_fill(item, values) if isinstance(item, REFERENCES) else item for item in arg]
    return arg


def _as_dask(arg: Any, held: Held) -> Any:
    """An argument as Dask takes it."""
    if isinstance(arg, TaskRef):
        return held.get(arg.key, arg)
    if isinstance(arg, Picked):  # runs within the task that it is part of
        return Task(None, arg.fun, held.get(arg.key, arg.source), *arg.args)
    if isinstance(arg, list) and any(isinstance(item, REFERENCES) for item in arg):
        return List(*[_as_dask(item, held) for item in arg])
    return arg


# -------------------------------------------------------------------------------------------------
# Spilling: tells the policy whether Dask's workers write a pullback to disk or send it.
#
# Dask passes a context to the serializers of messages, and none to the serializers of spill files.
# If that changed, the policy would use the wrong one of its two rates.


def install_spilling() -> None:
    """Registers with Dask how pullbacks are spilled and sent."""
    dask_serialize.register(Captured, serialize)
    dask_deserialize.register(Captured, deserialize)


def serialize(captured: Captured, context: Any = None) -> tuple[Any, Any]:
    with spilling() if context is None else contextlib.nullcontext():
        return pickle_dumps(captured, context)


def deserialize(header: Any, frames: Any) -> Any:
    return pickle_loads(header, frames)
