"""In line: an evaluation in the calling thread, without a graph of Dask's, as far as that is best.

Without a cluster, tasks are worth their cost only from some milliseconds of work on: the tasks run
here in the order in which they were added, and what is not done after a while is handed to Dask,
unless the tasks take less time than Dask would take for them.
Where a sum runs over items that are placed on the cluster, its workers evaluate it, and the
small nodes around it run here meanwhile. The bits are those of the graph: the same functions run on
the same blocks, added in the same order.
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import dask
import dask.base
import dask.local
import dask.multiprocessing
import dask.threaded
from dask.callbacks import Callback
from dask.local import get_sync
from distributed import Client

from daskgrad.autodiff.models.captured import Captured
from daskgrad.autodiff.models.finite import is_debugging
from daskgrad.autodiff.models.model import identity
from daskgrad.autodiff.values import clock
from daskgrad.autodiff.values.addition import power_of_two
from daskgrad.autodiff.values.carriers import carrier, kept_or_made
from daskgrad.autodiff.values.cotangents import Leaves, nbytes
from daskgrad.autodiff.values.memory import canonical
from daskgrad.autodiff.values.trees import flatten
from daskgrad.graph.activity import Graph, leaves_in
from daskgrad.graph.forward import DirectSums
from daskgrad.graph.nodes import Constant, Node
from daskgrad.sums.adding import CapturedSubtrees, require_gradient, round_sum
from daskgrad.sums.block_tasks import Summand, TracedSum
from daskgrad.sums.item_cotangents import (
    item_cotangents_in,
    join,
    with_item_cotangents,
    without_items,
)
from daskgrad.sums.item_sum import (
    ReductionNode,
    build_captured_sum,
    build_captures,
    build_summed,
)
from daskgrad.sums.placed import ArrayTermsError, CallOfWorkers, call_workers
from daskgrad.sums.sources import Source
from daskgrad.tasks import observers
from daskgrad.tasks.collections import is_collection
from daskgrad.tasks.keys import Stage, key_parts
from daskgrad.tasks.settings import setting
from daskgrad.tasks.task_graph import TaskGraph, where

# -------------------------------------------------------------------------------------------------
# Threads: whether Dask's threads end sooner than the calling thread, by kind of evaluation.
#
# Models of small arrays hold Python's lock nearly all the time. Threads then take turns, and on two
# cores take up to 2.5 times as long as one alone. Nobody can see that in a model, so both ways are
# timed: the first evaluation that is long enough goes to threads, and the second one stays. It is
# not tried where the processor time a second shows that threads run side by side. (On two cores,
# for sums of small to large arrays, threads took as long as the calling thread where they used 1.5
# times its processor time a second, 2.5 times as long at 1.25, and 0.64 times as long at 1.9.)
# Models that wait, for a file or a service, always go to threads.

LITTLE_GAIN = 1.33  # in processor time a second: threads are then taken to be the slower way
MUCH_GAIN = 1.75  # from which on the calling thread is not tried
DOUBT = 1.3  # how many times as long staying may take where the gain is little
CHANGE = 1.2  # times as long, before a way is left for the other: machines are noisy
WAITING = 0.25  # in processor time a second of the calling thread: below it a model waits
SAMPLE = 5e-3  # seconds; the processor time of less is not measured
PAUSE, MOST_PAUSE = (
    4,
    256,
)  # evaluations before the other way is tried again; twice as many each time
TRIALS = 2  # in a row
PATIENCE = 2.0  # times as long as on threads a sum may stay
FADING = 0.25  # the part of a slower evaluation that counts; of a quicker one all does
KINDS = 256  # that are remembered

Result = TypeVar("Result")


class Kind:
    """What is known of evaluations of the same models and about the same size.

    ``here`` and ``threads``: the seconds an item or node that evaluations took that stayed, and the
    others; None if there were none.
    """

    def __init__(self) -> None:
        self.here: float | None = None
        self.threads: float | None = None
        self.gain = math.inf  # the last: processor time a second on threads, over that before
        self._is_here = False
        self._left = self._pause = PAUSE

    def choose(self) -> bool:
        """Whether the next evaluation stays; now and then the other way is tried again."""
        if self.here is None or self.threads is None:
            return self.gain < MUCH_GAIN
        longer = CHANGE if self._is_here else 1.0 / CHANGE
        is_quicker_here = self.here < self.threads * (DOUBT if self.gain < LITTLE_GAIN else longer)
        if is_quicker_here is not self._is_here:
            self._is_here = is_quicker_here
            self._left = self._pause = PAUSE
        self._left -= 1
        if self._left >= 0:
            return is_quicker_here
        if self._left <= -TRIALS:
            self._pause = min(2 * self._pause, MOST_PAUSE)
            self._left = self._pause
        return not is_quicker_here

    def learn(self, stayed: bool, seconds: float) -> None:
        """Takes in the time of an evaluation that stayed, or did not."""
        if stayed:
            self.here = faded(self.here, seconds)
        else:
            self.threads = faded(self.threads, seconds)


def faded(known: float | None, seconds: float) -> float:
    """A quicker time at once, and a slower one little by little: it may be chance."""
    return seconds if known is None else min(seconds, known + FADING * (seconds - known))


class Times(NamedTuple):
    """Seconds of this process's processors and of the clock."""

    processor: float
    clock: float


def now() -> Times:
    return Times(clock.processor_seconds(), clock.seconds())


def since(begin: Times) -> Times:
    return Times(*[b - a for a, b in zip(begin, now(), strict=True)])


class Comparison:
    """One evaluation, which is timed if it takes longer than it may in the calling thread."""

    __slots__ = ("_begin", "_graph", "_here", "_is_tried_here", "_kind", "_stays", "_there")

    def __init__(self, graph: Graph):
        self._graph = graph
        self._begin = now()
        self._here: Times | None = None  # until the time is up
        self._there = Times(0.0, 0.0)  # where it was handed over
        self._kind: Kind | None = None  # None unless Dask's threads would run it
        self._stays = self._is_tried_here = False

    def stays(self) -> bool:
        """Whether the evaluation stays in the calling thread; decided when it is asked first, which
        is when its time is up. Observers see the tasks of a graph alone, so it does not for them.
        """
        if self._here is None:
            self._here = since(self._begin)
            if observers.of_tasks:
                return False
            if uses_threads():
                self._kind = kept_or_made(_kinds, kind_of(self._graph), Kind, KINDS)
                is_waiting = self._here.processor < WAITING * self._here.clock
                self._stays = self._is_tried_here = not is_waiting and self._kind.choose()
            else:
                self._stays = dask.base.get_scheduler() is get_sync
        return self._stays

    def gives_up(self) -> bool:
        """Whether to stay has taken far longer than threads took before; then it stays no more."""
        known = None if self._kind is None else self._kind.threads
        if self._stays and known is not None:
            limit = PATIENCE * known * size_of(self._graph)
            self._stays = since(self._begin).clock < limit
        return not self._stays

    def hand_over(self, compute: Callable[..., Result], *args: Any) -> Result:
        """What Dask computes."""
        begin = now()
        result = compute(*args)
        there = since(begin)
        self._there = Times(*[a + b for a, b in zip(self._there, there, strict=True)])
        return result

    def end(self) -> None:
        """Takes in how long the evaluation took, and how much of the processors threads used."""
        kind, here, there = self._kind, self._here, self._there
        if kind is None or here is None:
            return
        kind.learn(self._is_tried_here, since(self._begin).clock / size_of(self._graph))
        is_measured = min(here.clock, there.clock) > SAMPLE and here.processor > 0
        if is_measured and not self._is_tried_here:
            kind.gain = there.processor / there.clock * here.clock / here.processor


def uses_threads() -> bool:
    """Whether Dask would run tasks on threads of this process."""
    pool = dask.config.get("pool", None)
    is_of_threads = pool is None or isinstance(pool, ThreadPoolExecutor)
    return is_of_threads and dask.base.get_scheduler() in (None, dask.threaded.get)


# ------------------------------------------------------------------------------------- kinds

_kinds: dict[Any, Kind] = {}


def kind_of(graph: Graph) -> Any:
    """A key of evaluations of the same models on as many threads; to within factors of two as many
    nodes, items and bytes."""
    models = frozenset([identity(node.model) for node in graph.order if node.model is not None])
    sizes = (len(graph.order), size_of(graph), bytes_of(graph))
    threads = dask.config.get("num_workers", None)
    return models, threads, *[size.bit_length() for size in sizes]


def size_of(graph: Graph) -> int:
    """How many nodes there are, and items."""
    return len(graph.order) + sum([source.count or 0 for source in sources_of(graph)])


def bytes_of(graph: Graph) -> int:
    """The bytes of what goes into a graph; of items in a list as if all were like the first."""
    given = [nbytes(leaves_in(node)) for node in graph.order]
    return sum(given) + sum(map(bytes_of_items, sources_of(graph)))


def bytes_of_items(source: Source) -> int:
    items = getattr(source, "items", ())
    if isinstance(items, list | tuple) and items:
        return nbytes(flatten(items[0])[0]) * len(items)
    return getattr(items, "nbytes", 0)


def sources_of(graph: Graph) -> list[Source]:
    """What the sums of a graph run over."""
    sums = [node for node in graph.order if isinstance(node, ReductionNode)]
    return [source for node in sums for source in node.items.sources]


# ----------------------------------------------------------------------------------------- in line

CLUSTER_SECONDS = 0.1  # before the rest is sent to the cluster, where a graph takes as long
TASK_SECONDS = 5e-4  # that Dask takes for a task on threads: quicker ones need not be handed over
NODE_TASKS = 4  # of a node: its value, its pullback, the call of that, a sum of cotangents

LOCAL = (dask.threaded.get, dask.local.get_sync, dask.multiprocessing.get)


# ------------------------------------------------------------------------------- whether at all


def seconds_in_line(graph: Graph, client: Client | None) -> float:
    """How many seconds an evaluation may run in the calling thread; zero: not at all.

    Nodes with annotations and other Dask collections are for Dask, and so are sums over items that
    are results of tasks or on a cluster, unless the workers evaluate them directly. Nothing runs
    in line where ``debug_nans`` or callbacks of Dask's local schedulers watch the tasks.
    """
    if is_debugging() or not all(is_plain(node, client) for node in graph.order):
        return 0.0
    if client is None:
        is_usual = not dask.config.get("scheduler", None) or dask.base.get_scheduler() in LOCAL
        seconds = setting("inline.seconds")
        return seconds if is_usual and not Callback.active else 0.0
    is_enabled = setting("resident.enabled")
    return CLUSTER_SECONDS if is_enabled and is_resident(graph, client) else 0.0


def is_resident(graph: Graph, client: Client) -> bool:
    """Whether the workers are called directly: for all sums over placed items.

    Where there are none, for all sums there are: others would be evaluated here.
    """
    sums = [node for node in graph.order if isinstance(node, ReductionNode)]
    sums = [node for node in sums if node.is_on(client)] or sums
    return bool(sums) and all(
        [node.is_for_workers(client) and node.is_direct(graph, client) for node in sums]
    )


def is_plain(node: Node, client: Client | None) -> bool:
    is_from_elsewhere = isinstance(node, Constant) and is_collection(node.value)
    if isinstance(node, ReductionNode):
        is_from_elsewhere = not (node.is_on(client) or node.items.is_here)
    return not (node.annotations or node.is_settled or is_from_elsewhere)


# --------------------------------------------------------------------------------------- running


class Budget:
    """How long tasks may run in the calling thread.

    To hand ``nodes`` over takes far longer than the pauses of the first ones, which imports, a
    compiler or the garbage collector make. A part of that time is allowed for, and the first task
    that is slow does not count, unless to hand them over took less time.
    """

    __slots__ = ("_pause", "_seen", "deadline", "seconds")

    def __init__(self, seconds: float, nodes: int = 0):
        self.seconds = seconds
        self._pause = nodes * NODE_TASKS * TASK_SECONDS
        self._seen = clock.seconds()
        self.deadline = self._seen + seconds + self._pause / 40

    def is_late(self) -> bool:
        return clock.seconds() > self.deadline

    def put_off(self) -> bool:
        """Allows for a task that has run, for which Dask would have taken as long; is it late?"""
        now = clock.seconds()
        spent, self._seen = now - self._seen, now
        self.deadline += TASK_SECONDS
        if now > self.deadline and self.seconds < spent < self._pause:
            self.deadline += spent
            self._pause = 0.0
        return now > self.deadline

    def beside(self, evaluate: Callable[..., Any], *args: Any) -> Any:
        """Calls something whose time does not count: it has its own limit, or only waits."""
        begin = clock.seconds()
        result = evaluate(*args)
        self._seen = clock.seconds()
        self.deadline += self._seen - begin
        return result


class InLine:
    """The tasks of one evaluation, some of whose sums are evaluated directly."""

    def __init__(self, graph: Graph, tasks: TaskGraph, direct: DirectSums, seconds: float):
        self._graph = graph
        self._tasks = tasks
        self._direct = direct
        self._values: dict[Any, Any] = {}
        self._seconds = seconds

    def compute(self, keys: Sequence[Any]) -> list[Any]:
        """The results of tasks. They need all sums, since the value of every node is wanted."""
        self._budget = Budget(self._seconds)
        while undone := [key for key in self._direct if key not in self._values]:
            self._evaluate(self._independent(undone), keys)
        self._run(keys, keys)
        return [self._values[key] for key in keys]

    def _independent(self, undone: Sequence[Any]) -> Sequence[Any]:
        """The sums among these that do not depend on another of them."""
        if len(undone) == 1:
            return undone
        others = set(undone)
        return [
            key
            for key in undone
            if not others.intersection(self._tasks.needed(self._tasks.inputs(key), self._values))
        ]

    def _evaluate(self, waiting: Sequence[Any], keys: Sequence[Any]) -> None:
        """Evaluates sums: sends off those on the cluster, and runs the others meanwhile."""
        self._run([source for key in waiting for source in self._tasks.inputs(key)], keys)
        client = self._direct.client
        there = [key for key in waiting if self._direct[key].is_for_workers(client)]
        here = [key for key in waiting if key not in there]
        call = self._budget.beside(self._start, there)
        try:
            if call is not None and here:
                call.flush()
            for key in here:
                args = (self._direct[key], self._graph, self._inputs(key))
                how = (self._budget, Comparison(self._graph))  # it never stays beside a cluster
                self._values[key] = self._budget.beside(capture_here, *args, *how)
            if call is not None:
                beside = self._independent_of_sums(keys)
                if beside and not here:
                    call.flush()
                self._run_in_time(beside)
                results = self._budget.beside(call.results)
                self._values.update(zip(there, results, strict=True))
        except BaseException as error:
            if call is not None:
                call.abandon()
            if isinstance(error, ArrayTermsError):
                self._direct[there[error.number]].note_array_terms()
            raise

    def _start(self, keys: Sequence[Any]) -> CallOfWorkers | None:
        """One call for the sums of one cluster, so that the point goes out once a worker."""
        if not keys:
            return None
        sums = [
            (node := self._direct[key], node.summand(self._graph), self._inputs(key))
            for key in keys
        ]
        return call_workers(self._direct.client, sums)

    def _inputs(self, key: Any) -> list[Any]:
        return self._tasks.run_one(key, self._values)

    def _independent_of_sums(self, keys: Sequence[Any]) -> list[Any]:
        """What the keys need, and can be run while the sums are under way."""
        blocked = {key for key in self._direct if key not in self._values}
        independent = []
        for key in self._tasks.needed(keys, self._values):
            if key in blocked or blocked.intersection(self._tasks.inputs(key)):
                blocked.add(key)
            else:
                independent.append(key)
        return independent

    def _run_in_time(self, keys: Sequence[Any]) -> None:
        """Runs tasks as far as time allows."""
        for key in keys:
            if self._budget.is_late():
                return
            self._run_one(key)

    def _run(self, keys: Sequence[Any], later: Sequence[Any]) -> None:
        """Runs what the keys need; after the deadline Dask does. Keeps what ``later`` ones need."""
        for key in self._tasks.needed(keys, self._values):
            if self._budget.is_late():
                self._values.update(self._hand_over(keys, later))
                return
            self._run_one(key)

    def _run_one(self, key: Any) -> None:
        if observers.of_tasks:
            inputs = self._tasks.inputs(key)
            run = functools.partial(self._tasks.run_one, key, self._values)
            self._values[key] = observers.run_observed(key, inputs, run)
        else:
            self._values[key] = self._tasks.run_one(key, self._values)
        self._budget.put_off()

    def _hand_over(self, keys: Sequence[Any], later: Sequence[Any]) -> dict[Any, Any]:
        running = dict.fromkeys(self._tasks.needed(keys, self._values))
        others = [key for key in self._tasks.needed(later, self._values) if key not in running]
        used = {*keys, *later, *[source for key in others for source in self._tasks.inputs(key)]}
        kept = [key for key in running if key in used]
        rest = self._tasks.rest(kept, self._values)
        return dict(zip(kept, map(canonical, rest.compute(kept)), strict=True))


# ------------------------------------------------------------------------------------ sums, here


def capture_here(
    node: ReductionNode,
    graph: Graph,
    inputs: Sequence[Any],
    budget: Budget,
    comparison: Comparison,
) -> Captured:
    """A sum over items that are here, as far as there is time.

    The blocks that are left then are tasks, unless Dask's threads would not end sooner.
    """
    summand, fields = node.summand(graph), node.active_fields(graph)
    traced = TracedSum(node.model, summand, inputs)
    are_rows = [node.items.are_rows(field) and not node.items.slices for field in fields]
    firsts, terms = node.items.firsts, traced.no_terms(are_rows)
    done = 0
    for start, done in runs_here(len(firsts), budget, comparison):
        traced.add(terms, firsts[start], node.items.here(start, done))
        if not terms.are_scalars:
            break
    captured = traced.total(terms, f"blocks 0 to {done - 1}")
    require_gradient(captured, node.name)
    total = without_items(captured)
    rest: list[list[Leaves]] = [[] for _ in fields]
    if done < len(firsts):
        subtrees = CapturedSubtrees(len(firsts), node.summation)
        subtrees.put((done.bit_length() - 1, 0), total)
        args = (node, summand, inputs, done, len(fields))
        parts, rest = comparison.hand_over(capture_with_dask, *args)
        for place, part in parts:
            subtrees.put(place, part)
        total = subtrees.total()
    total = round_sum(total)
    if not fields:
        return total
    joined = [
        join_items(node, field, item_cotangents_in(captured, number), done, rest[number])
        for number, field in enumerate(fields)
    ]
    return with_item_cotangents(total, [tuple(joined)])


def join_items(
    node: ReductionNode, field: int, here: Leaves, done: int, rest: Sequence[Leaves]
) -> Leaves:
    """The cotangents of one field of all items: what came of the first blocks ``here``, and the
    ``rest``, block by block."""
    are_rows, sizes = node.items.are_rows(field), node.items.sizes
    parts, counts = [here], [sum(sizes[:done])]
    if are_rows and node.items.slices:
        parts, counts = [(leaf,) for leaf in here], sizes[:done]
    return join([*parts, *rest], are_rows, [*counts, *sizes[done:]])


def runs_here(count: int, budget: Budget, comparison: Comparison) -> Iterator[tuple[int, int]]:
    """The runs of blocks to be evaluated here, (start, stop): longer and longer ones until the time
    is up, and then, where the evaluation stays, some more of the last length.

    Where it does not stay to the end, they are a subtree together.
    """
    begin = clock.seconds()
    limit = max(budget.deadline - begin, budget.seconds)  # a short sum is worth no graph
    done, stop = 0, 1
    while done < stop:
        yield done, stop
        done = stop
        stop = min(done * growth(clock.seconds() - begin, limit), count)
    step = done
    while done < count and comparison.stays():
        if done == power_of_two(done) and comparison.gives_up():
            return
        yield done, min(done + step, count)
        done += step


def growth(spent: float, limit: float) -> int:
    """How many times as many blocks may be done before the limit as were done in the time spent;
    at the most eight times, and far from the limit, since later ones may take longer.

    A power of two, so that they are a subtree.
    """
    if spent * 32 < limit:
        return 8
    return 2 if spent * 2 <= limit else 1


def capture_with_dask(
    node: ReductionNode, summand: Summand, inputs: Sequence[Any], done: int, fields: int
) -> tuple[list[tuple[Any, Captured]], list[list[Leaves]]]:
    """The blocks from number ``done`` on, as tasks, in as many sums as there are subtrees.

    And for each differentiated field of the items their cotangents, block by block.
    """
    tasks = TaskGraph(where())
    given = [tasks.constant(value, node.name) for value in inputs]
    data = node.items.blocks(tasks, node.name)
    blocks = build_captures(node, tasks, summand, given, data[done:])
    summed = build_summed(node, tasks, blocks) if fields else blocks
    places, keys = [], []
    for start, stop, place in subtrees_from(done, len(data)):
        part = summed[start - done : stop - done]
        places.append(place)
        keys.append(build_captured_sum(node, tasks, part, are_all=False).key)
    for number in range(fields):
        own = [node.build_pick(tasks, "cotangent", item_cotangents_in, b, number) for b in blocks]
        keys.append(node.build_task(tasks, "cotangent", list, own).key)
    results = tasks.compute(keys)
    parts = zip(places, results[: len(places)], strict=True)
    return list(parts), list(results[len(places) :])


def subtrees_from(start: int, count: int) -> Iterable[tuple[int, int, tuple[int, int]]]:
    """The subtrees that the blocks from ``start`` on make: (start, stop, place in the tree).

    From the first one on these are the runs 0-1, 1-2, 2-4, 4-8 ...
    """
    while start < count:
        size = start & -start or 1
        yield start, min(start + size, count), (size.bit_length() - 1, start // size)
        start += size


# -------------------------------------------------------------------------------------------------
# At once: runs tasks in the calling thread when they are added, as long as there is time.
#
# A graph is for those who run it elsewhere or later. Where the next task runs here and now, nothing
# is planned, looked up or sent: a small model costs little more than its own run. The functions and
# their arguments are those of the tasks, and so are the bits. What is added when the time is up is
# for Dask, with the results so far as data.


@carrier
class Known:
    """The result of a task that has run, in the place of a reference to it.

    A part of a result has no ``key`` before one is needed, and the ``name`` that this will have.
    """

    key: Any
    value: Any
    name: str = ""
    reference: Any = None  # for tasks of Dask's, where there are any


class AtOnce(TaskGraph):
    """The tasks of one evaluation, run as they are added; those added when time is up are Dask's.

    As long as they run here nothing runs twice: a node's value and its pullback are of one run, and
    what consumers have seen of the value need not be compared.
    """

    def __init__(self, graph: Graph, direct: DirectSums, seconds: float):
        super().__init__()
        self._graph = graph
        self._direct = direct
        self._budget = Budget(seconds, len(graph.order))
        self._comparison = Comparison(graph)
        self._is_late = False
        graph.is_watched = False

    def add(
        self, key: Any, fun: Callable, *args: Any, annotations: dict[str, Any] | None = None
    ) -> Any:
        if self._is_late:
            return super().add(key, fun, *map(self._refer, args), annotations=annotations)
        given = []
        for arg in args:  # a loop: all that is done here is done for every task
            kind = type(arg)
            given.append(arg.value if kind is Known else _known(arg) if kind is list else arg)
        if key in self._direct:
            args = (self._direct[key], self._graph, *given)
            how = (self._budget, self._comparison)
            return Known(key, self._budget.beside(capture_here, *args, *how))
        value = fun(*given) if self._policy is None else self.function(key, fun).run(tuple(given))
        if self._budget.put_off():
            self._hand_over()
        return Known(key, value)

    def pick(
        self, stage: Stage, name: str, fun: Callable, source: Any, *args: Any, **how: Any
    ) -> Any:
        if self._is_late:
            return super().pick(stage, name, fun, self._refer(source), *args, **how)
        return Known(None, fun(source.value, *args), name)

    def data(self, key: Any, value: Any) -> Any:
        return super().data(key, value) if self._is_late else Known(key, value)

    def shared(self, model: Any) -> Any:
        return super().shared(model) if self._is_late else model

    def compute(self, keys: Iterable[Any]) -> Sequence[Any]:
        return self._comparison.hand_over(super().compute, keys)

    def _scheduler(self) -> Callable:
        return get_sync if self._comparison.stays() else super()._scheduler()

    def end(self) -> None:
        """Takes in how long the evaluation took, of which there are all results."""
        self._comparison.end()

    def _hand_over(self) -> None:
        """From here on tasks may run again, where something is lost or moved."""
        self._is_late = self._graph.is_watched = True
        self._where = where()
        self._direct.is_open = False
        self._comparison.stays()  # decides, and measures what ran here

    def _refer(self, arg: Any) -> Any:
        """An argument with references in the places of results."""
        if type(arg) is Known:
            if arg.reference is None:
                key = self.key("value", arg.name) if arg.key is None else arg.key
                arg.reference = super().data(key, arg.value)
            return arg.reference
        return [self._refer(item) for item in arg] if type(arg) is list else arg


class ObservedAtOnce(AtOnce):
    """The same, where observers are told of each task that runs here, under keys of this graph."""

    def __init__(self, graph: Graph, direct: DirectSums, seconds: float):
        super().__init__(graph, direct, seconds)
        own = key_parts(self.key("value", "node"))
        self._evaluation = "" if own is None else own.evaluation
        self._told: dict[Any, Any] = {}  # the keys of tasks under which observers know them

    def add(
        self, key: Any, fun: Callable, *args: Any, annotations: dict[str, Any] | None = None
    ) -> Any:
        run = functools.partial(super().add, key, fun, *args, annotations=annotations)
        if self._is_late:
            return run()
        given = [item for arg in args for item in (arg if type(arg) is list else (arg,))]
        inputs = [self._told.get(each.key, each.key) for each in given if type(each) is Known]
        parts = key_parts(key)
        if parts is not None and parts.evaluation != self._evaluation:  # a node's key
            self._told[key] = (f"{parts.stage}-{parts.model}-{self._evaluation}", *key[1:], "node")
        return observers.run_observed(self._told.get(key, key), inputs, run)

    def pick(
        self, stage: Stage, name: str, fun: Callable, source: Any, *args: Any, **how: Any
    ) -> Any:
        picked = super().pick(stage, name, fun, source, *args, **how)
        if type(picked) is Known:
            picked.key = self.key(stage, name)
            self._told[picked.key] = self._told.get(source.key, source.key)
        return picked


def _known(items: list[Any]) -> list[Any]:
    """A list with results in the places of what stands for them."""
    return [item.value if type(item) is Known else item for item in items]
