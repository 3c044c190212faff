"""Task functions: what a task calls, and what Dask is given for it."""

from collections.abc import Callable
from typing import Any, NamedTuple

from dask.task_spec import List, Task, TaskRef
from dask.typing import Key

from daskgrad.models.portable_errors import make_plain
from daskgrad.tasks.clients import in_worker
from daskgrad.values.memory import canonical_for
from daskgrad.values.registrations import Registering


class KeptTask(Task):
    """A task that other collections' optimisers must not merge with its neighbours."""

    __slots__ = ()

    @property
    def block_fusion(self) -> bool:
        return True


class Canonical:
    """A function for a task, called with arrays as they were before they came in a message."""

    __slots__ = ("fun",)

    def __init__(self, fun: Callable):
        self.fun = fun

    def __reduce__(self) -> tuple:
        return Canonical, (self.fun,)

    def __call__(self, *args: Any) -> Any:
        try:
            return self.fun(*canonical_for(self.fun, args))
        except Exception as error:
            if in_worker():
                make_plain(error)
            raise


class Picked(NamedTuple):
    """A reference to ``fun(result, *args)``, which costs nothing: each consumer calls it anew."""

    whole: TaskRef
    fun: Callable
    args: tuple[Any, ...]

    @property
    def key(self) -> Key:
        """That of the task whose result it is taken out of."""
        return self.whole.key

    def of(self, result: Any) -> Any:
        return self.fun(result, *self.args)


REFERENCES = (TaskRef, Picked)


class Planned:
    """The task ``fun(*args)`` before Dask has it; ``inputs`` are the keys that it refers to.

    References are arguments, or items of lists that are arguments.
    """

    __slots__ = ("args", "fun", "inputs")

    def __init__(self, fun: Callable, args: tuple):
        self.fun = fun
        self.args = args
        self.inputs: list[Key] = []
        for arg in args:
            if isinstance(arg, REFERENCES):
                self.inputs.append(arg.key)
            elif isinstance(arg, list):
                self.inputs += [item.key for item in arg if isinstance(item, REFERENCES)]

    def run(self, values: dict[Key, Any]) -> Any:
        """What the function returns, given the results of all that it refers to."""
        if not self.inputs:
            return self.fun(*canonical_for(self.fun, self.args))
        filled = tuple([_filled(arg, values) for arg in self.args])
        return self.fun(*canonical_for(self.fun, filled))

    def task(self, key: Key, sends_classes: bool) -> KeptTask:
        """Dask's task; ``sends_classes``: with the registrations of classes."""
        fun = Canonical(self.fun)
        return KeptTask(
            key, Registering(fun) if sends_classes else fun, *[_listed(arg) for arg in self.args]
        )


def _filled(arg: Any, values: dict[Key, Any]) -> Any:
    """An argument with results in the places of references."""
    if isinstance(arg, TaskRef):
        return values[arg.key]
    if isinstance(arg, Picked):
        return arg.of(values[arg.key])
    if isinstance(arg, list):
        return [_filled(item, values) if isinstance(item, REFERENCES) else item for item in arg]
    return arg


def _listed(arg: Any) -> Any:
    """An argument as Dask takes it."""
    if isinstance(arg, Picked):
        return Task(None, arg.fun, arg.whole, *arg.args)  # runs within the task that it is part of
    if isinstance(arg, list) and any(isinstance(item, REFERENCES) for item in arg):
        return List(*map(_listed, arg))
    return arg
