"""In line: evaluations in the calling thread, as far as that is quicker than a graph of Dask's.

Without a cluster, tasks are worth their cost only from some milliseconds of work on. So each task
runs when it is added; when the time is up, Dask gets the remaining ones, if threads are of use to
them. On a cluster the workers evaluate sums over placed items, and the small nodes around them run
here meanwhile. The bits are the same as in a graph of Dask: the same functions run on the same
blocks, and add up in the same order.
"""

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dask
import dask.base
import dask.threaded
from dask.callbacks import Callback
from dask.local import get_sync
from distributed import Client

from daskgrad.autodiff.models.captured import Captured
from daskgrad.autodiff.models.finite import is_debugging
from daskgrad.autodiff.models.model import identity
from daskgrad.autodiff.values import clock
from daskgrad.autodiff.values.addition import power_of_two
from daskgrad.autodiff.values.carriers import carrier, drop_oldest
from daskgrad.autodiff.values.cotangents import Leaves
from daskgrad.autodiff.values.memory import canonical
from daskgrad.autodiff.values.trees import flatten
from daskgrad.graph.activity import Graph
from daskgrad.graph.forward import DirectSums
from daskgrad.graph.nodes import Constant, Node
from daskgrad.sums.adding import CapturedSubtrees, require_gradient, round_sum
from daskgrad.sums.block_tasks import Summand, TracedSum, capture_block
from daskgrad.sums.item_cotangents import (
    item_cotangents_in,
    join,
    with_item_cotangents,
    without_items,
)
from daskgrad.sums.item_sum import ReductionNode, build_captured_sum, build_summed
from daskgrad.sums.placed import ArrayTermsError
from daskgrad.tasks import observers
from daskgrad.tasks.clients import OF_CLUSTER
from daskgrad.tasks.collections import is_collection
from daskgrad.tasks.keys import Stage, key_parts
from daskgrad.tasks.settings import setting
from daskgrad.tasks.task_functions import REFERENCES
from daskgrad.tasks.task_graph import LOCAL, TaskGraph, Where, where

CLUSTER_SECONDS = 0.1  # before the cluster gets the remaining tasks: a graph takes as long there
TASK_SECONDS = 5e-4  # that Dask takes for a task on threads: a quicker one runs here
WORKERS = 0  # the process of sums that workers evaluate, for observers
NODE_TASKS = 4  # of a node: its value, its pullback, the call of that, a sum of cotangents
LARGE = 2**16  # bytes of a call: from here on threads run models side by side
PACES = 1024  # models whose last sum here is remembered
FOREVER = 1e9  # seconds, of a model that ran in no sum yet


# ------------------------------------------------------------------------------- whether at all


def seconds_in_line(graph: Graph, client: Client | None) -> float:
    """How many seconds an evaluation may run in the calling thread; zero: not at all, also if
    ``debug_nans`` or callbacks of Dask's local schedulers watch the tasks.

    ``client``: evaluates the graph; None also in a task of a cluster, which runs on a worker.
    """
    if is_debugging() or not all(is_plain(node, client) for node in graph.order):
        return 0.0
    if client is None:
        scheduler = dask.config.get("scheduler", None)
        is_usual = scheduler in OF_CLUSTER or dask.base.get_scheduler() in LOCAL
        return setting("inline.seconds") if is_usual and not Callback.active else 0.0
    is_enabled = setting("resident.enabled")
    return CLUSTER_SECONDS if is_enabled and is_resident(graph, client) else 0.0


def is_resident(graph: Graph, client: Client) -> bool:
    """Whether a client's workers evaluate all sums over placed items; all sums if none is."""
    sums = [node for node in graph.order if isinstance(node, ReductionNode)]
    sums = [node for node in sums if node.is_on(client)] or sums
    return bool(sums) and all(
        [node.is_for_workers(client) and node.is_direct(graph, client) for node in sums]
    )


def is_plain(node: Node, client: Client | None) -> bool:
    """Whether a node has no annotations, and takes nothing that Dask computes."""
    is_from_elsewhere = isinstance(node, Constant) and is_collection(node.value)
    if isinstance(node, ReductionNode):
        is_from_elsewhere = not (node.is_on(client) or node.items.is_here)
    return not (node.annotations or node.is_settled or is_from_elsewhere)


# ------------------------------------------------------------------------------------------ time


class TimeHere:
    """The time that tasks may run in the calling thread; tells whether they wait in it.

    To hand ``nodes`` over takes far longer than a pause of the first ones (an import, a compiler,
    a busy machine). So one slow task does not count, unless to hand them over took less time.
    """

    __slots__ = ("_pause", "_seen", "_watch", "deadline", "seconds")

    def __init__(self, seconds: float, nodes: int = 0):
        self.seconds = seconds
        self._pause = nodes * NODE_TASKS * TASK_SECONDS
        self._begin()
        self.deadline += self._pause / 40

    def _begin(self) -> None:
        self._seen = clock.seconds()
        self.deadline = self._seen + self.seconds
        self._watch = Stopwatch()

    def is_late(self) -> bool:
        return clock.seconds() > self.deadline

    def put_off(self) -> bool:
        """Adds the time that Dask would have taken for a task; returns whether it is late."""
        now = clock.seconds()
        spent, self._seen = now - self._seen, now
        self.deadline += TASK_SECONDS
        if now > self.deadline and self.seconds < spent < self._pause:
            self.deadline += spent
            self._pause = 0.0
            self._watch = Stopwatch()
        return now > self.deadline

    def leave_out(self, begin: float) -> None:
        """Does not count the time since ``begin``, which had its own limit."""
        self._seen = clock.seconds()
        self.deadline += self._seen - begin
        self._watch = Stopwatch()

    def goes_on(self, bytes_of_call: int) -> bool:
        """Whether the calling thread remains the best place when the time is up; starts anew then.

        Models of small arrays hold Python's lock, so that threads take turns. Models of large
        arrays release it; so do models that wait for a file or a service. A thread that others keep
        from its processor does not wait.
        """
        is_best = self._watch.is_busy() and bytes_of_call < LARGE and uses_threads()
        if is_best:
            self._begin()
        return is_best


class Stopwatch:
    """The time that this thread takes since it was made."""

    __slots__ = ("_begin", "_busy", "_preemptions")

    def __init__(self) -> None:
        self._begin, self._busy = clock.seconds(), clock.thread_seconds()
        self._preemptions = clock.preemptions()

    def is_busy(self) -> bool:
        """Whether it computes half of the time at least, or would if others left it a processor."""
        return 2.0 * (clock.thread_seconds() - self._busy) >= self.seconds()

    def seconds(self) -> float:
        """Without the time that others kept it from its processor."""
        is_preempted = clock.preemptions() > self._preemptions
        busy = clock.thread_seconds() - self._busy
        return busy if is_preempted else clock.seconds() - self._begin


def uses_threads() -> bool:
    """Whether Dask would run tasks on threads of this process, and nobody watches them."""
    pool = dask.config.get("pool", None)
    is_of_threads = pool is None or isinstance(pool, ThreadPoolExecutor)
    is_usual = dask.base.get_scheduler() in (None, dask.threaded.get)
    return is_of_threads and is_usual and not observers.of_tasks


# ---------------------------------------------------------------------------------------- running


@carrier
class KnownResult:
    """The result of a task that has run, instead of a reference to it."""

    key: Any  # None for a part of a result until a key, of this ``name``, is needed
    value: Any
    name: str = ""
    reference: Any = None  # for tasks that run later


class InLine(TaskGraph):
    """The tasks of one evaluation, which run when they are added, until the time is up.

    So a small model costs little more than its own run: nothing is planned, looked up or sent.
    Until then nothing runs twice without a cluster: a node's value and its pullback are of one run,
    and consumers need not compare the values that they have seen.

    On a cluster, the workers evaluate sums over their items. Tasks that need such a sum wait until
    ``compute``; other tasks run meanwhile.
    """

    def __init__(self, graph: Graph, direct: DirectSums, seconds: float):
        super().__init__(Where.HERE)
        self._graph = graph
        self._direct = direct
        self._client = direct.client
        self._time = TimeHere(seconds, len(graph.order))
        self._is_late = False
        self._pending: dict[Any, None] = {}  # the keys of sums that have no result yet
        self._left = count_first_sums(graph, self._client)  # until the workers are called
        self._call: Any = None  # of the workers
        self._running: Sequence[Any] = ()  # the keys of the sums that are called
        self._called = self._began = 0.0  # the time of the call, since the epoch, too
        self._is_sent = True
        self._values: dict[Any, Any] = {}  # results that planned tasks refer to, by key
        self._shown: dict[Any, Any] = {}  # the keys under which observers know tasks
        self._audience = observers.audience(self._client)
        self._evaluation = key_parts(self.key("value", "node")) if self._audience else None
        graph.is_watched = self._client is not None

    def add(
        self, key: Any, fun: Callable, *args: Any, annotations: dict[str, Any] | None = None
    ) -> Any:
        waits = self._pending and any([isinstance(item, REFERENCES) for item in items_of(args)])
        if self._is_late or waits:
            if key in self._direct:
                self._pending[key] = None
            return super().add(key, fun, *map(self._refer, args), annotations=annotations)
        if not self._is_sent:
            self._flush()
        values = []
        for arg in args:  # a loop: all that is done here is done for every task
            kind = type(arg)
            values.append(
                arg.value if kind is KnownResult else results_in(arg) if kind is list else arg
            )
        if key in self._direct:
            return self._add_sum(key, fun, args, fun(*values))
        if self._policy is None and self._evaluation is None:
            value = fun(*values)
        else:
            value = self._run(key, args, self.function(key, fun).run_here, tuple(values))
        if self._time.put_off():
            arrays = [*values, getattr(value, "value", value)]  # it may be a captured one
            if not self._time.goes_on(largest_array(arrays)):
                self._hand_over()
        return KnownResult(key, value)

    def _add_sum(self, key: Any, fun: Callable, args: tuple, inputs: list[Any]) -> Any:
        """A sum that is evaluated directly: here, or by the workers together with others."""
        if not self._direct[key].is_for_workers(self._client):
            return KnownResult(key, self._capture(key, inputs, self._keys_in(args)))
        self._pending[key] = None
        reference = super().add(key, fun, *map(self._refer, args))
        self._left -= 1
        if not self._left:
            self._start(self._next_sums())
        return reference

    def pick(
        self, stage: Stage, name: str, fun: Callable, source: Any, *args: Any, **options: Any
    ) -> Any:
        if self._is_late or type(source) is not KnownResult:
            return super().pick(stage, name, fun, self._refer(source), *args, **options)
        picked = KnownResult(None, fun(source.value, *args), name)
        if self._evaluation is not None:
            picked.key = self.key(stage, name, 0)
            self._shown[picked.key] = self._shown.get(source.key, source.key)
        return picked

    def data(self, key: Any, value: Any) -> Any:
        return super().data(key, value) if self._is_late else KnownResult(key, value)

    def shared(self, model: Any) -> Any:
        return super().shared(model) if self._is_late else model

    def _run(self, key: Any, args: Iterable[Any], fun: Callable, *values: Any) -> Any:
        """Runs a task; observers see it, and its inputs, under keys of this evaluation."""
        if self._evaluation is None:
            return fun(*values)
        parts = key_parts(key)
        if parts is not None and parts.evaluation != self._evaluation.evaluation:  # a node's key
            name = f"{parts.stage}-{parts.model}-{self._evaluation.evaluation}"
            self._shown[key] = (name, *key[1:], "node")
        run = functools.partial(fun, *values)
        shown = self._shown.get(key, key)
        return observers.run_observed(self._audience, shown, self._keys_in(args), run)

    def _keys_in(self, args: Iterable[Any]) -> list[Any]:
        """The keys, as observers know them, that arguments refer to."""
        keys = [item.key for item in items_of(args) if isinstance(item, (KnownResult, *REFERENCES))]
        return [self._shown.get(source, source) for source in keys]

    def _tell(self, key: Any, inputs: Sequence[Any], start: float) -> None:
        """Tells observers of a task that has run here."""
        observers.tell_planned(self._audience, key, inputs)
        observers.tell_ran(self._audience, key, inputs, start)

    def _hand_over(self) -> None:
        """Tasks are planned from here on; they may run again where results are lost or move."""
        self._is_late = self._graph.is_watched = True
        if self._client is None:
            self._where = where()
            self._direct.is_open = False

    def _refer(self, arg: Any) -> Any:
        """An argument with references in the places of results."""
        if type(arg) is KnownResult:
            if arg.reference is None:
                key = self.key("value", arg.name) if arg.key is None else arg.key
                arg.reference = super().data(key, arg.value)
                self._values[key] = arg.value
                shown = self._shown.get(key, key)
                if self._audience and shown != key:  # a task that passes a part on
                    self._tell(key, [shown], time.time())
            return arg.reference
        return [self._refer(item) for item in arg] if type(arg) is list else arg

    # ---- on a cluster

    def compute(self, keys: Iterable[Any]) -> Sequence[Any]:
        """The results of tasks; they need all pending sums."""
        if self._client is None:
            return super().compute(keys)
        keys = list(keys)
        while self._pending:
            sums = self._next_sums()
            self._finish([source for key in sums for source in self.inputs(key)], keys)
            called = [key for key in sums if self._direct[key].is_for_workers(self._client)]
            if called and self._call is None:
                self._start(called)
            for key in sums:
                del self._pending[key]
                if key not in called:
                    values = self.run_one(key, self._values)
                    self._values[key] = self._capture(key, values, self.inputs(key))
            if called:
                self._values.update(zip(called, self._results_of_call(called), strict=True))
        self._finish(keys, keys)
        return [self._values[key] for key in keys]

    def abandon(self) -> None:
        """Gives up the sums that workers evaluate."""
        if self._call is not None:
            self._tell_workers_ran(has_failed=True)
            self._call.abandon()

    def _tell_workers_ran(self, has_failed: bool = False) -> None:
        for key in self._running:
            observers.tell_ran(
                self._audience, key, self.inputs(key), self._began, WORKERS, has_failed
            )

    def _next_sums(self) -> list[Any]:
        """The pending sums that wait for no other one."""
        waiting = {key: self.needed(self.inputs(key), self._values) for key in self._pending}
        return [key for key, needed in waiting.items() if self._pending.keys().isdisjoint(needed)]

    def _start(self, keys: Sequence[Any]) -> None:
        """Calls the workers once for several sums, so that each gets the point once."""
        from daskgrad.placed.call import call_workers  # here: without a cluster nobody needs it

        nodes = [self._direct[key] for key in keys]
        inputs = [self.run_one(key, self._values) for key in keys]
        sums = [
            (node, node.summand(self._graph), values)
            for node, values in zip(nodes, inputs, strict=True)
        ]
        self._called, self._began = clock.seconds(), time.time()
        self._running = keys
        for key in keys:
            observers.tell_planned(self._audience, key, self.inputs(key))
        self._call = call_workers(self._client, sums)
        self._is_sent = False

    def _flush(self) -> None:
        """Waits a moment until the workers have their requests, before anything runs beside."""
        assert self._call is not None
        self._call.flush()
        self._is_sent = True

    def _results_of_call(self, keys: Sequence[Any]) -> Sequence[Any]:
        assert self._call is not None
        try:
            results = self._call.results()
        except ArrayTermsError as error:
            self._direct[keys[error.number]].note_array_terms()
            raise
        self._tell_workers_ran()
        self._time.leave_out(self._called)
        self._call, self._is_sent = None, True
        return results

    def _capture(self, key: Any, inputs: Sequence[Any], sources: Sequence[Any]) -> Captured:
        if not self._is_sent:
            self._flush()
        begin = clock.seconds()
        node = self._direct[key]
        tell = functools.partial(self._tell_blocks, node, sources, time.time())
        args = (node, self._graph, inputs, self._time, self.key, tell)
        captured, parts = capture_here(*args)
        self._time.leave_out(begin)
        self._tell(key, parts, time.time())
        return captured

    def _tell_blocks(
        self, node: ReductionNode, sources: Sequence[Any], start: float, done: int
    ) -> Any:
        """Tells observers of the first blocks of a sum, which ran here; returns their key."""
        if not self._audience:
            return None
        key = self.key("forward", node.name, sum(node.items.counts[:done]))
        self._tell(key, sources, start)
        return key

    def _finish(self, keys: Iterable[Any], later: Sequence[Any]) -> None:
        """Runs the tasks that the keys need, or lets the cluster run them when the time is up."""
        for key in self.needed(keys, self._values):
            if self._time.is_late():
                self._values.update(self._on_cluster(keys, later))
                return
            inputs = map(self.reference, self.inputs(key))
            self._values[key] = self._run(key, inputs, self.run_one, key, self._values)
            self._time.put_off()

    def _on_cluster(self, keys: Iterable[Any], later: Sequence[Any]) -> dict[Any, Any]:
        """The results of the tasks that the keys need, if these or ``later`` keys use them."""
        running = dict.fromkeys(self.needed(keys, self._values))
        others = [key for key in self.needed(later, self._values) if key not in running]
        used = {*keys, *later, *[source for key in others for source in self.inputs(key)]}
        kept = [key for key in running if key in used]
        results = self.rest(kept, self._values).compute(kept)
        return dict(zip(kept, map(canonical, results), strict=True))


def count_first_sums(graph: Graph, client: Any) -> int:
    """How many sums the workers can evaluate at once: they wait for no other one."""
    if client is None:
        return 0
    count = 0
    waiting: set[Node] = set()
    for node in graph.order:
        is_waiting = not waiting.isdisjoint(node.inputs)
        if is_waiting or (node.is_direct(graph, client) and node.is_for_workers(client)):
            waiting.add(node)
            count += not is_waiting
    return count


def results_in(items: list[Any]) -> list[Any]:
    """A list of arguments with plain results."""
    return [item.value if type(item) is KnownResult else item for item in items]


def items_of(args: Iterable[Any]) -> list[Any]:
    """The arguments of a task, and in the places of lists their items."""
    return [item for arg in args for item in (arg if type(arg) is list else (arg,))]


def largest_array(values: Any) -> int:
    """The bytes of the largest array in a pytree."""
    return max([getattr(leaf, "nbytes", 0) for leaf in flatten(values)[0]], default=0)


# ------------------------------------------------------------------------------------ sums, here


def capture_here(
    node: ReductionNode,
    graph: Graph,
    inputs: Sequence[Any],
    time: TimeHere,
    new_key: Callable[..., Any],
    tell: Callable[[int], Any],
) -> tuple[Captured, list[Any]]:
    """A sum over items that are here, as far as there is time; the other blocks are Dask's then.

    Returns the keys of its parts, too; ``tell`` hears how many blocks ran here, and has their key.
    """
    summand, fields = node.summand(graph), node.active_fields(graph)
    traced = TracedSum(node.model, summand, inputs)
    are_rows = [node.items.are_rows(field) and not node.items.slices for field in fields]
    firsts, terms = node.items.firsts, traced.no_terms(are_rows)
    allowed = TimeHere(max(time.deadline - clock.seconds(), time.seconds))
    items: list[Any] = []

    def stays() -> bool:
        if dask.base.get_scheduler() is get_sync and not observers.of_tasks:
            return True
        return allowed.goes_on(largest_array((inputs, [field[:1] for field in items])))

    counts, watch, done = node.items.counts, Stopwatch(), 0
    first = counts[0] * _paces.get(identity(node.model), FOREVER)
    for start, done in runs_here(len(firsts), allowed.seconds, stays, first):
        items = node.items.here(start, done)
        traced.add(terms, firsts[start], items)
        if not terms.are_scalars:
            break
    _paces[identity(node.model)] = watch.seconds() / sum(counts[:done])
    drop_oldest(_paces, PACES)
    captured = traced.total(terms, f"blocks 0 to {done - 1}")
    require_gradient(captured, node.name)
    total = without_items(captured)
    keys = [tell(done)]
    remaining: list[list[Leaves]] = [[] for _ in fields]
    if done < len(firsts):
        subtrees = CapturedSubtrees(len(firsts), node.summation)
        subtrees.put((done.bit_length() - 1, 0), total)
        args = (node, summand, inputs, done, len(fields), new_key)
        parts, others, remaining = capture_with_dask(*args)
        for place, part in parts:
            subtrees.put(place, part)
        total = subtrees.total()
        keys += others
    total = round_sum(total)
    if not fields:
        return total, keys
    joined = [
        join_items(node, field, item_cotangents_in(captured, index), done, remaining[index])
        for index, field in enumerate(fields)
    ]
    return with_item_cotangents(total, [tuple(joined)]), keys


def join_items(
    node: ReductionNode, field: int, first: Leaves, done: int, others: Sequence[Leaves]
) -> Leaves:
    """The cotangents of one field of all items: of the first ``done`` blocks, and of each other."""
    are_rows, sizes = node.items.are_rows(field), node.items.sizes
    parts, counts = [first], [sum(sizes[:done])]
    if are_rows and node.items.slices:
        parts, counts = [(leaf,) for leaf in first], sizes[:done]
    return join([*parts, *others], are_rows, [*counts, *sizes[done:]])


_paces: dict[Any, float] = {}  # seconds an item, of each model's last sum here


def runs_here(
    count: int, seconds: float, stays: Callable[[], bool], expected: float = FOREVER
) -> Iterator[tuple[int, int]]:
    """The runs of blocks to evaluate here, (start, stop): they grow until the time is up, and go on
    as long as the sum ``stays``; all blocks before each such question are one subtree.

    The first run is as long as the ``expected`` seconds of a block allow: batches are larger then.
    """
    watch = Stopwatch()
    done, stop = 0, max(1, int(min(count, seconds / (expected + 1e-9))))
    stop = count if stop == count else power_of_two(stop)
    while done < stop:
        yield done, stop
        done = stop
        stop = min(done * growth(watch.seconds(), seconds), count)
    step = done
    while done < count and (done != power_of_two(done) or stays()):
        yield done, min(done + step, count)
        done += step


def growth(spent: float, limit: float) -> int:
    """How much longer than all before a run makes them, a power of two: all are then one subtree.
    It stays far from the limit, since later blocks may be slow."""
    if spent * 32 < limit:
        return 8
    return 2 if spent * 2 <= limit else 1


def capture_with_dask(
    node: ReductionNode,
    summand: Summand,
    inputs: Sequence[Any],
    done: int,
    fields: int,
    new_key: Callable[..., Any],
) -> tuple[list[tuple[Any, Captured]], list[Any], list[list[Leaves]]]:
    """Lets Dask evaluate the blocks from number ``done`` on: the sum of each subtree, their keys,
    and the items' cotangents for each differentiated field, block by block."""
    tasks = TaskGraph(where())
    tasks.key = new_key  # of the evaluation that it is part of
    shared = [tasks.constant(value, node.name) for value in inputs]
    data = node.items.blocks(tasks, node.name)
    blocks = node.build_blocks(tasks, "forward", capture_block, summand, shared, data[done:])
    summed = build_summed(node, tasks, blocks) if fields else blocks
    places, keys = [], []
    for start, stop, place in subtrees_from(done, len(data)):
        part = summed[start - done : stop - done]
        places.append(place)
        keys.append(build_captured_sum(node, tasks, part, are_all=False).key)
    for index in range(fields):
        parts = [node.build_pick(tasks, "cotangent", item_cotangents_in, b, index) for b in blocks]
        keys.append(node.build_task(tasks, "cotangent", list, parts).key)
    results, count = tasks.compute(keys), len(places)
    parts = list(zip(places, results[:count], strict=True))
    return parts, keys[:count], list(results[count:])


def subtrees_from(start: int, count: int) -> Iterable[tuple[int, int, tuple[int, int]]]:
    """The subtrees of the blocks from ``start`` on: (start, stop, place in the tree); from 0 on
    they are 0-1, 1-2, 2-4, 4-8 ..."""
    while start < count:
        size = start & -start or 1
        yield start, min(start + size, count), (size.bit_length() - 1, start // size)
        start += size
