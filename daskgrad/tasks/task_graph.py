"""Task graph: the tasks of one evaluation, which Dask runs, or the calling thread."""

import functools
import uuid
import weakref
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Any

import dask
import dask.local
import dask.multiprocessing
import dask.threaded
import numpy as np
from dask.highlevelgraph import HighLevelGraph
from dask.task_spec import DataNode, List, Task, TaskRef
from dask.typing import Key
from distributed import Client

from daskgrad.autodiff.models import blas
from daskgrad.autodiff.models.finite import is_debugging
from daskgrad.autodiff.models.model import Model
from daskgrad.autodiff.models.pullbacks import for_each
from daskgrad.autodiff.models.travel import sent
from daskgrad.autodiff.values.carriers import sent_by_value
from daskgrad.autodiff.values.memory import Sealed
from daskgrad.tasks import observers
from daskgrad.tasks.clients import active_client, connected
from daskgrad.tasks.collections import Collection, HoldingLayer, Results, task_of
from daskgrad.tasks.kept_models import give, sent_models
from daskgrad.tasks.keys import Names, Stage, is_of_pullbacks, key_parts, task_label, watched_key
from daskgrad.tasks.sending import named_if_unsendable, sealed_unless_plain
from daskgrad.tasks.settings import setting
from daskgrad.tasks.supervision import seconds_of, supervised
from daskgrad.tasks.task_functions import KeptTask, Picked, PlannedTask, TaskFunction

# -------------------------------------------------------------------------------------------------
# Held data: the values in a graph, as Dask orders and runs it best.
#
# Dask orders tasks by the set of roots that each one needs. Data of several tasks are no roots:
# their consumers are. Along a chain of n tasks with a root each, such as ``total = total +
# f(x, n)``, the sets take n² memory, and so do the sets of results that each task leads to; and if
# n keys are data, Dask's local schedulers look at all of them for each task. So a task that runs in
# this process contains its data, and many tasks begin after one and end in one; elsewhere, data of
# many tasks are a task, and so the only root.

FEW = 8  # roots of a graph that Dask orders as quickly as one
LITTLE = 2**10  # bytes that are sent with each of a few tasks rather than as a task of their own


def tasks_here(
    planned: Mapping[Key, PlannedTask],
    data: Mapping[Key, DataNode],
    keys: Iterable[Key],
    first: Key,
    last: Key,
) -> dict[Key, Any]:
    """Dask's tasks that compute the keys in this process: many begin after the ``first`` one, and
    many results end in the ``last``, which is for the order alone and does not run."""
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
    planned: Mapping[Key, PlannedTask],
    data: Mapping[Key, DataNode],
    keys: Iterable[Key] | None,
    models: Mapping[int, Any],
) -> dict[Key, Any]:
    """Dask's tasks that compute the keys anywhere; None: any keys.

    ``models``: substitutes for models, by the models' ids.
    """
    kept = {key: models[id(node.value)] for key, node in data.items() if id(node.value) in models}
    kept = {key: task for key, task in kept.items() if isinstance(task, Task)}
    data = {key: node for key, node in data.items() if key not in kept}
    uses = Counter([key for task in planned.values() for key in set(task.inputs)])
    held: dict[Key, Any] = {
        key: node
        for key, node in data.items()
        if uses[key] <= FEW
        and type(node.value) in (np.ndarray, np.float64, float)
        and np.asarray(node.value).nbytes <= LITTLE
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


def nothing(*_: Any) -> None:
    """The function of tasks that only put others in order."""


# -------------------------------------------------------------------------------------- task graph


class Where(Enum):
    """The place of tasks: this process, in which results do not travel; a cluster, which runs them
    beside their inputs; or any place that a later caller chooses."""

    HERE = auto()
    CLUSTER = auto()
    ANYWHERE = auto()


class TaskGraph:
    """The tasks of one evaluation while its graph is built; ``where`` they will run.

    ``is_measured``: a cluster's scheduler is asked for the ``seconds`` that its tasks have run.
    ``are_apart``: its results need nothing of each other; if some are lost, the error has the rest.
    """

    is_measured = False
    are_apart = False
    seconds = 0.0

    def __init__(self, where: Where = Where.ANYWHERE) -> None:
        self.key = Names().key  # a new key of this evaluation: (stage, name of a model)
        self._is_watched = is_debugging()
        self._is_batched = False
        self.is_chain = False  # whether no model runs beside another
        self._where = where
        self._policy = sent(setting("pullbacks"))
        self._tasks: dict[Key, PlannedTask | DataNode] = {}
        self._annotations: dict[str, dict[Key, Any]] = {}
        self._collections: dict[Key, Any] = {}
        self._futures: list[Any] = []  # holds results on the cluster, which drops them otherwise
        self._given: list[Any] = []  # futures of others that tasks refer to
        self._placed: list[weakref.ref] = []  # futures of placed items, which may move
        self._uses: Counter[int] = Counter()  # of models, by their ids
        self._functions: dict[tuple[Callable, Sealed | None], TaskFunction] = {}
        self._constants: dict[int, tuple[Any, TaskRef]] = {}

    def add(
        self, key: Key, fun: Callable, *args: Any, annotations: dict[str, Any] | None = None
    ) -> TaskRef:
        """The task ``fun(*args)``; lists among the arguments may hold references."""
        if self._is_watched:
            key = watched_key(key)
        self._tasks[key] = PlannedTask(self.function(key, fun), args)
        for kind, value in (annotations or {}).items():
            self._annotations.setdefault(kind, {})[key] = _at(key, value)
        return TaskRef(key)

    @property
    def is_for_cluster(self) -> bool:
        """Whether a task will run where its inputs are."""
        return self._where is Where.CLUSTER

    def pick(
        self,
        stage: Stage,
        name: str,
        fun: Callable,
        source: TaskRef,
        *args: Any,
        stays: bool = False,
        annotations: dict[str, Any] | None = None,
    ) -> Any:
        """A reference to a part of a result, ``fun(result, *args)``, which takes no time.

        If results travel, a task, so that the part travels alone; unless it ``stays``, since its
        only consumer runs where the result is.
        """
        if stays or self._where is Where.HERE:
            fun = functools.partial(for_each, fun) if self._is_batched else fun
            return Picked(source, fun, args, stage, name)
        return self.add(self.key(stage, name, 0), fun, source, *args, annotations=annotations)

    def keep(self, stage: Stage, name: str, reference: Any) -> Any:
        """A reference to a task, for the caller, so that Dask drops the result it is part of."""
        if not isinstance(reference, Picked):
            return reference
        key = self.key(stage, name, 0)
        return self.add(key, reference.fun, reference.source, *reference.args)

    def function(self, key: Key, fun: Callable) -> TaskFunction:
        """The callable of a key's task; all tasks of one function share it."""
        policy = self._policy if self._policy is not None and is_of_pullbacks(key) else None
        function = self._functions.get((fun, policy))
        if function is None:
            function = TaskFunction(fun, policy, self._is_watched, self._is_batched)
            self._functions[fun, policy] = function
        return function

    def data(self, key: Key, value: Any) -> TaskRef:
        """Puts a value into the graph, once for all tasks that refer to it."""
        key = watched_key(key) if self._is_watched else key
        self._tasks[key] = DataNode(key, value)
        return TaskRef(key)

    def constant(
        self, value: Any, name: str, prepare: Callable[[Any], Any] = lambda value: value
    ) -> TaskRef:
        """Puts a constant into the graph, prepared; the same object gets the same key."""
        if id(value) not in self._constants:
            ref = self.data(self.key("value", name), prepare(value))
            self._constants[id(value)] = (value, ref)  # holds the value, so that its id stays valid
        return self._constants[id(value)][1]

    def share(self, models: Iterable[Any]) -> None:
        """Announces models: one that several tasks use gets its own key."""
        self._uses.update(map(id, models))

    def shared(self, model: Any) -> Any:
        """The model itself, or a reference to it if several nodes use it."""
        return self.constant(model, model.name) if self._uses[id(model)] > 1 else model

    def include(self, collection: Any) -> TaskRef:
        """A reference to the result of another Dask collection or future."""
        if isinstance(collection, TaskRef):  # a distributed future
            self._given.append(collection)
            return TaskRef(collection.key)
        single = collection if isinstance(collection, Collection) else dask.delayed(collection)
        ref = TaskRef(single.key) if single is collection else task_of(single)
        self._collections[ref.key] = single
        return ref

    def planned(self) -> dict[Key, Sequence[Key]]:
        """The tasks, without data, and the keys that each refers to."""
        tasks = self._tasks.items()
        return {key: task.inputs for key, task in tasks if isinstance(task, PlannedTask)}

    def include_placed(self, future: Any) -> TaskRef:
        """A reference to a future that is not held: its owner drops it when the items move."""
        self._placed.append(weakref.ref(future))
        return TaskRef(future.key)

    def reference(self, key: Key) -> TaskRef:
        """A reference to a task or to data of this graph."""
        return TaskRef(key)

    # ---- in line

    def needed(self, keys: Iterable[Key], done: Container[Key]) -> list[Key]:
        """The tasks that the keys need and that are not done, in the order of their addition."""
        wanted = {key for key in keys if key not in done}
        for key in reversed(self._tasks):
            if key in wanted:
                wanted.update([source for source in self.inputs(key) if source not in done])
        return [key for key in self._tasks if key in wanted]

    def inputs(self, key: Key) -> Sequence[Key]:
        """The keys that a task refers to."""
        task = self._tasks[key]
        return task.inputs if isinstance(task, PlannedTask) else ()

    def run_one(self, key: Key, values: dict[Key, Any]) -> Any:
        """The result of one task, given the results that it refers to."""
        task = self._tasks[key]
        return task.run(values) if isinstance(task, PlannedTask) else task()

    def rest(self, keys: Iterable[Key], done: dict[Key, Any]) -> "TaskGraph":
        """A graph, for Dask, of the tasks that the keys still need, with the results they use.

        Parts of results become tasks.
        """
        other = TaskGraph()
        other.key = self.key
        other.is_chain = self.is_chain
        other._annotations = self._annotations
        parts: dict[tuple, TaskRef] = {}

        def pick(picked: Picked) -> TaskRef:
            part = (picked.key, picked.fun, picked.args)
            if part not in parts:
                parts[part] = other.keep(picked.stage, picked.name, picked)
            return parts[part]

        for key in self.needed(keys, done):
            task = self._tasks[key]
            is_data = isinstance(task, DataNode)
            other._tasks[key] = task if is_data else task.where_results_travel(pick)
            for source in self.inputs(key):
                if source in done:
                    other._tasks[source] = DataNode(source, done[source])
        return other

    # ---- to Dask

    def compute(self, keys: Iterable[Key]) -> Sequence[Any]:
        """Runs all tasks where Dask would, and waits for the results of the keys."""
        keys, client = list(keys), active_client()
        built = self.high_level_graph(keys, client)
        with named_if_unsendable(parts_sent(built)):
            if client is None:
                return self._compute_here(keys, built)
            return Results(keys, built).compute_by(
                functools.partial(supervised, client, self._measure), are_apart=self.are_apart
            )

    def _measure(self, client: Client) -> None:
        if self.is_measured:
            self.seconds += seconds_of(client, filter(key_parts, self.planned()))

    def _compute_here(self, keys: list[Key], built: HighLevelGraph) -> Sequence[Any]:
        if not observers.of_tasks() or dask.base.get_scheduler() not in LOCAL:
            return Results(keys, built).compute_by(self._scheduler())
        with observers.LocalTasks(self.planned()):  # else processes tell of several tasks at once
            return Results(keys, built).compute_by(self._scheduler(), chunksize=1)

    def _scheduler(self) -> Callable:
        """The scheduler that Dask would use without a cluster."""
        return dask.base.get_scheduler() or dask.threaded.get

    def persist(self) -> "TaskGraph":
        """Runs all tasks where Dask would; returns a graph that holds the results.

        Tasks that are added to a ``copy`` of it may refer to all tasks of this graph.
        """
        data = self._data if self._where is Where.HERE else {}  # it is where it is needed
        keys = [key for key in (*self._tasks, *self._collections) if key not in data]
        client = active_client()
        built = self.high_level_graph(keys, client)
        other = TaskGraph(self._where)
        other.is_chain = self.is_chain
        other._tasks.update(data)
        other._constants = dict(self._constants)
        other._policy = self._policy
        with named_if_unsendable(parts_sent(built)):
            if client is None:
                results = map(DataNode, keys, self._compute_here(keys, built))
                other._tasks.update(zip(keys, results, strict=True))
            else:
                with connected(client, "a graph cannot be computed"):
                    other._futures += Results(keys, built).compute_by(client.get, sync=False)
        return other

    def release(self) -> None:
        """Releases the results that this graph, or its original, holds on a cluster.

        Dask then cancels the tasks that only these results need.
        """
        for future in self._futures:
            future.release()

    def copy(self, is_batched: bool = False) -> "TaskGraph":
        """A copy to add tasks to; ``is_batched``: the new tasks take batches of cotangents."""
        other = TaskGraph(self._where)
        other._is_batched = is_batched
        other.is_chain = self.is_chain and not is_batched
        other._tasks = dict(self._tasks)
        other._constants = dict(self._constants)
        other._futures = self._futures
        other._policy = self._policy
        return other

    def high_level_graph(
        self, keys: Iterable[Key] | None = None, client: Client | None = None
    ) -> HighLevelGraph:
        """The graph as one layer, above the layers of the collections that it uses.

        ``client`` will compute the ``keys``; None: any keys.
        """
        current = dask.get_annotations()
        annotations = dict(current)
        for kind in self._annotations:
            annotations[kind] = self._annotation(kind, current.get(kind))
        models, futures = ({}, []) if client is None else sent_models(client, self._models())
        tasks = self._for_dask(keys, models)
        layer = HoldingLayer(tasks, annotations, [*self._given, *futures], self._placed)
        name = f"daskgrad-{uuid.uuid4().hex}"
        return HighLevelGraph.from_collections(name, layer, list(self._collections.values()))

    def _models(self) -> Iterator[tuple[Key, Model]]:
        """The models that tasks take, and the tasks' keys."""
        for key, task in self._tasks.items():
            args = (task.value,) if isinstance(task, DataNode) else task.args
            yield from ((key, arg) for arg in args if type(arg) is Model)

    def _for_dask(self, keys: Iterable[Key] | None, models: dict[int, Any]) -> dict[Key, Any]:
        brings_classes = bool(sent_by_value())
        keeps_memory = self._where is not Where.HERE and setting("worker.malloc")
        planned = {key: task for key, task in self._tasks.items() if isinstance(task, PlannedTask)}
        for task in planned.values():
            task.fun.brings_classes, task.fun.keeps_memory = brings_classes, keeps_memory
            task.fun.is_alone = self.is_chain
        if keys is None or self._where is not Where.HERE:
            constants = {ref.key for _, ref in self._constants.values()}
            data = {
                key: DataNode(key, sealed_unless_plain(node.value)) if key in constants else node
                for key, node in self._data.items()
            }
            return tasks_elsewhere(planned, data, keys, models)
        first, last = self.key("value", "first"), self.key("value", "last")
        return tasks_here(planned, self._data, keys, first, last)

    @property
    def _data(self) -> dict[Key, DataNode]:
        return {key: node for key, node in self._tasks.items() if isinstance(node, DataNode)}

    def _annotation(self, kind: str, current: Any) -> Callable[[Key], Any]:
        """One kind of annotation, by key: the call's annotation, else the current one."""
        others = {} if current is None else {key: _at(key, current) for key in self._tasks}
        return {**others, **self._annotations[kind]}.get


class TasksHere(TaskGraph):
    """Tasks that run as they are added: results stand in the place of references.

    ``is_chain``: no other model of the evaluation runs beside another. ``is_batched``: they take
    batches of cotangents.
    """

    def __init__(self, is_chain: bool = True, is_batched: bool = False):
        super().__init__()
        self.is_chain = is_chain
        self._is_batched = is_batched

    def add(self, key: Key, fun: Callable, *args: Any, annotations: Any = None) -> Any:
        with blas.threads(self.is_chain):
            return self.function(key, fun).run_here(args)

    def pick(
        self, stage: Stage, name: str, fun: Callable, source: Any, *args: Any, **_: Any
    ) -> Any:
        return for_each(fun, source, *args) if self._is_batched else fun(source, *args)

    def keep(self, stage: Stage, name: str, reference: Any) -> Any:
        return reference

    def data(self, key: Key, value: Any) -> Any:
        return value

    def include(self, collection: Any) -> Any:
        """The result of a collection that was persisted."""
        return collection.compute()

    def shared(self, model: Any) -> Any:
        return model


IN_PROCESS = (None, dask.threaded.get, dask.local.get_sync)
LOCAL = (*IN_PROCESS, dask.multiprocessing.get)


def where() -> Where:
    """The place in which Dask would run tasks now."""
    if active_client() is not None:
        return Where.CLUSTER
    return Where.HERE if dask.base.get_scheduler() in IN_PROCESS else Where.ANYWHERE


def parts_sent(graph: HighLevelGraph) -> Iterator[tuple[str, Any]]:
    """The tasks that go to other processes, and their names in errors."""
    if where() is not Where.HERE:
        yield from ((f"the {task_label(key)}", task) for key, task in graph.items())


def _at(key: Key, value: Any) -> Any:
    """An annotation for one key; it may be a function of the key."""
    return value(key) if callable(value) else value
