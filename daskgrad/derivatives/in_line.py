"""In line: an evaluation in the calling thread, without a graph of Dask's, as far as that is best.

Without a cluster, tasks are worth their cost only from some milliseconds of work on: the tasks run
here in the order in which they were added, and what is not done after a while is handed to Dask,
unless the tasks take less time than Dask would take for them.
Where a sum runs over items that are placed on the cluster, its workers evaluate it, and the
small nodes around it run here meanwhile. The bits are those of the graph: the same functions run on
the same blocks, added in the same order.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import dask
import dask.base
import dask.local
import dask.multiprocessing
import dask.threaded
from dask.callbacks import Callback
from distributed import Client

from daskgrad.derivatives.threads import Comparison
from daskgrad.graph.activity import Graph
from daskgrad.graph.forward import DirectSums
from daskgrad.graph.nodes import Constant, Node
from daskgrad.graph.sum_of_nodes import build_sum
from daskgrad.models.captured import Captured
from daskgrad.models.finite import is_debugging
from daskgrad.sums.adding import CapturedSubtrees, add_captured, require_gradient, round_sum
from daskgrad.sums.block_tasks import Summand, TracedSum
from daskgrad.sums.item_sum import ReductionNode
from daskgrad.sums.item_sum_passes import build_captures
from daskgrad.sums.placed import ArrayTermsError, CallOfWorkers, call_workers
from daskgrad.tasks import observers
from daskgrad.tasks.collections import is_collection
from daskgrad.tasks.settings import setting
from daskgrad.tasks.task_graph import TaskGraph
from daskgrad.values import clock
from daskgrad.values.memory import canonical
from daskgrad.values.summation import power_of_two

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
    summand = node.summand(graph)
    traced = TracedSum(node.model, summand, inputs)
    firsts, terms = node.items.firsts, traced.no_terms()
    done = 0
    for start, done in runs_here(len(firsts), budget, comparison):
        traced.add(terms, firsts[start], node.items.here(start, done))
        if not terms.are_scalars:
            break
    captured = traced.total(terms, f"blocks 0 to {done - 1}")
    require_gradient(captured, node.name)
    if done == len(firsts):
        return round_sum(captured)
    subtrees = CapturedSubtrees(len(firsts), node.summation)
    subtrees.put((done.bit_length() - 1, 0), captured)
    for place, captured in comparison.hand_over(capture_with_dask, node, summand, inputs, done):
        subtrees.put(place, captured)
    return subtrees.rounded()


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
    node: ReductionNode, summand: Summand, inputs: Sequence[Any], done: int
) -> list[tuple[Any, Captured]]:
    """The blocks from number ``done`` on, as tasks, in as many sums as there are subtrees."""
    tasks = TaskGraph()
    given = [tasks.constant(value, node.name) for value in inputs]
    data = node.items.blocks(tasks, node.name)
    places, keys = [], []
    for start, stop, place in subtrees_from(done, len(data)):
        blocks = build_captures(node, tasks, summand, given, data[start:stop])
        places.append(place)
        total = build_sum(node, tasks, blocks, "forward", add_captured, are_all=False)
        keys.append(total.key)
    return list(zip(places, tasks.compute(keys), strict=True))


def subtrees_from(start: int, count: int) -> Iterable[tuple[int, int, tuple[int, int]]]:
    """The subtrees that the blocks from ``start`` on make: (start, stop, place in the tree).

    From the first one on these are the runs 0-1, 1-2, 2-4, 4-8 ...
    """
    while start < count:
        size = start & -start or 1
        yield start, min(start + size, count), (size.bit_length() - 1, start // size)
        start += size
