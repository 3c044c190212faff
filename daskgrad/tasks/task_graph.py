"""Tasks: what daskgrad hands to Dask. The only module that touches Dask's task and graph classes.

A key reads ``(<stage>-<model name>-<token>, number)``, so that the stock dashboard groups and
colours tasks by stage and model. Every evaluation has a token of its own: Dask returns the old
result for a key that it knows.
"""

import copy
import functools
import itertools
import os
import string
import uuid
from collections.abc import Callable, Container, Iterable, Sequence
from enum import Enum, auto
from typing import Any, Literal, NamedTuple, get_args

import dask
import dask.local
import dask.threaded
from dask.base import DaskMethodsMixin, is_dask_collection, replace_name_in_key
from dask.delayed import single_key
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.task_spec import DataNode, GraphNode, List, Task, TaskRef
from dask.typing import Key

from daskgrad.models.finite import is_debugging, watched
from daskgrad.models.portable_errors import make_plain
from daskgrad.models.travel.policy import CONFIG, DEFAULT, Under, sent
from daskgrad.tasks.clients import active_client, in_worker
from daskgrad.tasks.supervision import Supervised
from daskgrad.values.caches import drop_oldest
from daskgrad.values.memory import canonical_for
from daskgrad.values.registrations import Registering, sent_by_value

Stage = Literal["forward", "value", "backward", "cotangent", "tangent"]

LETTERS = str.maketrans(string.digits, string.ascii_lowercase[:10])


@functools.lru_cache(maxsize=1024)
def spoken(name: str) -> str:
    """A model's name in letters and hyphens, as Dask keeps it: log_lik → log-lik, m1 → m-b.

    Dask's ``key_split`` drops everything from the first word on that is not all letters, or that
    is eight letters long and, since it begins with one of a to f, may be a hash.
    """
    parts = ["".join(group) for _, group in itertools.groupby(name, _kind)]
    words = [part.translate(LETTERS) for part in parts if part.isalnum()]
    words = [
        f"{word[:4]}-{word[4:]}" if len(word) == 8 and word[0] in "abcdef" else word
        for word in words
        if word.isalpha()
    ]
    return "-".join(words) or "model"


def _kind(letter: str) -> int:
    return 0 if letter.isalpha() else 1 if letter in string.digits else 2


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


PROCESS = uuid.uuid4().hex[:20]
tokens = itertools.count()


NAMES = 4096  # models whose names are remembered for messages
_named: dict[str, str] = {}  # by what is in keys, the latest


class Names:
    """Hands out keys under one token, of hexadecimal digits as Dask's own."""

    def __init__(self) -> None:
        self._token = f"{PROCESS}{next(tokens):012x}"
        self._numbers = itertools.count()

    def key(self, stage: Stage, name: str) -> Key:
        in_key = spoken(name)
        if _named.get(in_key) != name:
            _named[in_key] = name
            drop_oldest(_named, NAMES)
        return (f"{stage}-{in_key}-{self._token}", os.getpid(), next(self._numbers))


def called(key: Key) -> str:
    """What a task does, for messages: the stage of a model, or the key of another collection."""
    head = key[0] if isinstance(key, tuple) else key
    stage, _, rest = str(head).partition("-")
    if stage not in get_args(Stage) or not isinstance(key, tuple):
        return f"task {key!r}"
    in_key = rest.rpartition("-")[0]
    return f"{stage} of {_named.get(in_key, in_key)!r}"


def watched_key(key: Key) -> Key:
    """The key of a task that is watched: under its own, Dask may know the result already."""
    return (*key, "watched") if isinstance(key, tuple) else key


def is_of_pullbacks(key: Key) -> bool:
    """Whether the task of a key captures a call, or pulls back."""
    return isinstance(key, tuple) and str(key[0]).startswith(("forward-", "backward-"))


class Where(Enum):
    """Where tasks run: in this process, where results do not travel; on a cluster, which runs a
    task where what it takes in is; or as whoever computes them later decides."""

    HERE = auto()
    CLUSTER = auto()
    ANYWHERE = auto()


class TaskGraph:
    """The tasks of one evaluation, while they are put together; ``where`` they will run."""

    def __init__(self, where: Where = Where.ANYWHERE) -> None:
        self.key = Names().key  # a new key of this evaluation: (stage, name of a model)
        self._is_watched = is_debugging()
        self._where = where
        self._policy = sent(dask.config.get(CONFIG, DEFAULT))
        self._tasks: dict[Key, Planned | DataNode] = {}
        self._annotations: dict[str, dict[Key, Any]] = {}
        self._collections: dict[Key, Any] = {}
        self._futures: list[Any] = []  # holds results on the cluster, which drops them otherwise
        self._used: set[int] = set()
        self._used_twice: set[int] = set()
        self._constants: dict[int, tuple[Any, TaskRef]] = {}

    def add(
        self, key: Key, fun: Callable, *args: Any, annotations: dict[str, Any] | None = None
    ) -> TaskRef:
        """The task ``fun(*args)``; lists among the arguments may hold references."""
        if self._is_watched:
            key, fun = watched_key(key), self.watched(fun)
        self._tasks[key] = Planned(self.under_policy(key, fun), args)
        for kind, value in (annotations or {}).items():
            self._annotations.setdefault(kind, {})[key] = _at(key, value)
        return TaskRef(key)

    def pick(
        self,
        stage: Stage,
        name: str,
        fun: Callable,
        whole: TaskRef,
        *args: Any,
        stays: bool = False,
        annotations: dict[str, Any] | None = None,
    ) -> Any:
        """A reference to a part of a result, ``fun(result, *args)``, which takes no time.

        It is a task of its own where results travel, so that the part travels without the rest.
        ``stays``: on a cluster it does not, since its one consumer takes in nothing else.
        """
        is_there = self._where is Where.HERE or (stays and self._where is Where.CLUSTER)
        if is_there and not self._is_watched:
            return Picked(whole, fun, args)
        return self.add(self.key(stage, name), fun, whole, *args, annotations=annotations)

    def kept(self, stage: Stage, name: str, reference: Any) -> Any:
        """A reference to a result that is asked for: a task, also where it is a part of another's.

        So the rest is given up when it is used up.
        """
        if not isinstance(reference, Picked):
            return reference
        return self.add(self.key(stage, name), reference.fun, reference.whole, *reference.args)

    def under_policy(self, key: Key, fun: Callable) -> Callable:
        """The function of a task, with the policy in force where that is not the default one."""
        if self._policy is not None and is_of_pullbacks(key):
            return Under(fun, self._policy)
        return fun

    def watched(self, fun: Callable) -> Callable:
        """The function of a task, with a look at its result where this graph is watched."""
        return watched(fun) if self._is_watched else fun

    def data(self, key: Key, value: Any) -> TaskRef:
        """Puts a value into the graph, once however many tasks refer to it."""
        key = watched_key(key) if self._is_watched else key
        self._tasks[key] = DataNode(key, value)
        return TaskRef(key)

    def constant(
        self, value: Any, name: str, prepare: Callable[[Any], Any] = lambda value: value
    ) -> TaskRef:
        """Puts a constant into the graph, prepared; the same object gets the same key."""
        if id(value) not in self._constants:
            ref = self.data(self.key("value", name), prepare(value))
            self._constants[id(value)] = (value, ref)  # holds it, so that its id stays its own
        return self._constants[id(value)][1]

    def share(self, models: Iterable[Any]) -> None:
        """Says which models will be used: one used by several tasks becomes a key of its own."""
        for model in models:
            (self._used_twice if id(model) in self._used else self._used).add(id(model))

    def shared(self, model: Any) -> Any:
        """The model itself, or a reference to it where several nodes use it."""
        return self.constant(model, model.name) if id(model) in self._used_twice else model

    def include(self, collection: Any) -> TaskRef:
        """Refers to the result of another Dask collection or future."""
        if isinstance(collection, TaskRef):  # a distributed future
            return TaskRef(collection.key)
        single = collection if isinstance(collection, Collection) else dask.delayed(collection)
        ref = TaskRef(single.key) if single is collection else what_stands_at(single)
        self._collections[ref.key] = single
        return ref

    # ---- in line

    def needed(self, keys: Iterable[Key], done: Container[Key]) -> list[Key]:
        """The tasks that the keys need and that are not done, in the order they were added."""
        wanted = {key for key in keys if key not in done}
        for key in reversed(self._tasks):
            if key in wanted:
                wanted.update([source for source in self.inputs(key) if source not in done])
        return [key for key in self._tasks if key in wanted]

    def inputs(self, key: Key) -> Sequence[Key]:
        """The keys that a task refers to."""
        task = self._tasks[key]
        return task.inputs if isinstance(task, Planned) else ()

    def run_one(self, key: Key, values: dict[Key, Any]) -> Any:
        """The result of one task, given those of all that it refers to."""
        task = self._tasks[key]
        return task.run(values) if isinstance(task, Planned) else task()

    def rest(self, keys: Iterable[Key], done: dict[Key, Any]) -> "TaskGraph":
        """A graph of what the keys need and of the results that are used there."""
        other = TaskGraph()
        other._annotations = self._annotations
        for key in self.needed(keys, done):
            other._tasks[key] = self._tasks[key]
            for source in self.inputs(key):
                if source in done:
                    other._tasks[source] = DataNode(source, done[source])
        return other

    # ---- to Dask

    def compute(self, keys: Iterable[Key]) -> Sequence[Any]:
        """Runs all tasks where Dask would, and waits for the results of the keys."""
        built = self.high_level_graph()
        results = [Result(key, built) for key in keys]
        return dask.compute(*results, traverse=False, optimize_graph=False, scheduler=supervised())

    def persisted(self) -> "TaskGraph":
        """Runs all tasks where Dask would; returns a graph that holds their results.

        Tasks added to a ``copy`` of that graph may refer to everything in this one.
        """
        built = self.high_level_graph()
        wanted = [Result(key, built) for key in (*self._tasks, *self._collections)]
        other = TaskGraph()
        other._constants = dict(self._constants)
        other._policy = self._policy
        other._where = self._where
        for result in dask.persist(*wanted, traverse=False, optimize_graph=False):
            held = result.__dask_graph__()[result.key]
            if isinstance(held, DataNode):
                other._tasks[result.key] = held
            else:
                other._futures.append(held)
        return other

    def release(self) -> None:
        """Lets go of the results that this graph, or the one it is a copy of, holds on a cluster.

        The tasks that only they need are not run any more.
        """
        for future in self._futures:
            future.release()

    def copy(self) -> "TaskGraph":
        """A graph to add tasks to, which leaves this one as it is."""
        other = TaskGraph()
        other._tasks = dict(self._tasks)
        other._constants = dict(self._constants)
        other._futures = self._futures
        other._policy = self._policy
        other._where = self._where
        return other

    def high_level_graph(self) -> HighLevelGraph:
        """The graph as one layer, on top of those of the collections that it uses."""
        current = dask.get_annotations()
        own = {kind: self._annotation(kind, current.get(kind)) for kind in self._annotations}
        sends_classes = bool(sent_by_value())
        tasks = {
            key: task.task(key, sends_classes) if isinstance(task, Planned) else task
            for key, task in self._tasks.items()
        }
        layer = MaterializedLayer(tasks, annotations={**current, **own})
        name = f"daskgrad-{uuid.uuid4().hex}"
        return HighLevelGraph.from_collections(name, layer, list(self._collections.values()))

    def _annotation(self, kind: str, current: Any) -> Callable[[Key], Any]:
        """One kind of annotation, as a function of the key: the call's own, else the current."""
        others = {} if current is None else {key: _at(key, current) for key in self._tasks}
        return {**others, **self._annotations[kind]}.get


IN_PROCESS = (None, dask.threaded.get, dask.local.get_sync)


def where() -> Where:
    """Where Dask would run tasks now."""
    if active_client() is not None:
        return Where.CLUSTER
    return Where.HERE if dask.base.get_scheduler() in IN_PROCESS else Where.ANYWHERE


def supervised() -> Supervised | None:
    """What computes on a cluster, if Dask would; otherwise Dask chooses."""
    client = active_client()
    return None if client is None else Supervised(client, called)


def what_stands_at(single: Any) -> TaskRef:
    """The key of a collection, or what that stands for: Dask's process scheduler loses an alias,
    which a dataframe has, when it fuses tasks."""
    held = single.__dask_graph__()[single.key]
    return TaskRef(held.key if isinstance(held, TaskRef) else single.key)


def _at(key: Key, value: Any) -> Any:
    """What an annotation, which may be a function of the key, is for one key."""
    return value(key) if callable(value) else value


def _listed(arg: Any) -> Any:
    """An argument as Dask takes it."""
    if isinstance(arg, Picked):
        return Task(None, arg.fun, arg.whole, *arg.args)  # runs within the task that it is part of
    if isinstance(arg, list) and any(isinstance(item, REFERENCES) for item in arg):
        return List(*map(_listed, arg))
    return arg


def is_collection(value: Any) -> bool:
    """Whether a value is a Dask collection or a future."""
    return is_dask_collection(value) or isinstance(value, TaskRef)


def cull(graph: HighLevelGraph, keys: Any) -> HighLevelGraph:
    """The tasks that the keys need."""
    flat = keys if isinstance(keys, list) else [keys]
    return graph.cull(set(_flat(flat)))


def _flat(keys: Iterable[Any]) -> Iterable[Key]:
    for key in keys:
        if isinstance(key, list):
            yield from _flat(key)
        else:
            yield key


class Collection(DaskMethodsMixin):
    """A Dask collection with one key.

    ``is_settled``: its graph was given to it, persisted or cloned, and is not built from nodes.
    """

    key: Key
    is_settled = False
    _graph: HighLevelGraph | None = None

    def build_graph(self) -> HighLevelGraph:
        raise NotImplementedError

    def __dask_graph__(self) -> HighLevelGraph:
        """The graph that was given, or the one that was built; another one while it is watched."""
        if self._graph is not None:
            return self._graph
        built, is_watched = self.__dict__.setdefault("_built", {}), is_debugging()
        if is_watched not in built:
            built[is_watched] = self.build_graph()
        return built[is_watched]

    def __dask_keys__(self) -> list[Key]:
        return [self._key_in_graph()]

    def _key_in_graph(self) -> Key:
        is_watched = self._graph is None and is_debugging()
        return watched_key(self.key) if is_watched else self.key

    def __dask_layers__(self) -> Sequence[str]:
        return tuple(self.__dask_graph__().layers)

    def __dask_tokenize__(self) -> Key:
        return self._key_in_graph()

    __dask_optimize__ = staticmethod(cull)
    __dask_scheduler__ = staticmethod(dask.threaded.get)

    def __dask_postcompute__(self) -> tuple[Callable, tuple]:
        return single_key, ()

    def __dask_postpersist__(self) -> tuple[Callable, tuple]:
        return self._with_graph, ()

    def _with_graph(self, graph: Any, *, rename: dict | None = None) -> "Collection":
        """The same collection on another graph: persisted, or cloned under other keys."""
        other = copy.copy(self)
        other.key = replace_name_in_key(self._key_in_graph(), rename or {})
        if not isinstance(graph, HighLevelGraph):
            graph = {key: _held(key, value) for key, value in graph.items()}
            graph = HighLevelGraph.from_collections(f"daskgrad-{uuid.uuid4().hex}", graph)
        other._graph = graph
        other.is_settled = True
        return other


def _held(key: Key, value: Any) -> Any:
    """A persisted value as a node of a graph: data, whatever it looks like, unless a future."""
    return value if isinstance(value, TaskRef | GraphNode) else DataNode(key, value)


class Result(Collection):
    """One key of a graph."""

    def __init__(self, key: Key, graph: HighLevelGraph):
        self.key = key
        self._graph = graph
