"""In line: which evaluations run in the calling thread, decided before each begins.

In the calling thread a small model costs little more than its own run, and Dask's threads run
models beside each other. So it is measured what evaluations took. One that nobody has measured goes
to Dask if tasks of it could run side by side. Nothing changes in the middle: a wrong choice costs
one evaluation.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import dask
import dask.base
import dask.threaded
import numpy as np
from dask.callbacks import Callback
from dask.local import get_sync
from distributed import Client

from daskgrad.autodiff.libraries.registry import OF_NUMPY
from daskgrad.autodiff.models.finite import is_debugging
from daskgrad.autodiff.models.model import identity
from daskgrad.autodiff.values import clock
from daskgrad.autodiff.values.carriers import drop_oldest
from daskgrad.autodiff.values.cotangents import nbytes
from daskgrad.autodiff.values.elsewhere import replicated, replicated_among
from daskgrad.autodiff.values.trees import flatten
from daskgrad.graph.activity import Graph, leaves_in
from daskgrad.graph.nodes import Constant, Node, is_chain
from daskgrad.graph.variables import Variable
from daskgrad.sums.item_sum import ReductionNode
from daskgrad.tasks import observers
from daskgrad.tasks.clients import OF_CLUSTER, may_spare_cluster
from daskgrad.tasks.collections import is_collection
from daskgrad.tasks.settings import setting
from daskgrad.tasks.task_graph import LOCAL

TASK_SECONDS = 5e-4  # that Dask takes for a task on threads
NODE_TASKS = 4  # of a node: its value, its pullback, the call of that, a sum of cotangents
LARGE = 2**16  # bytes of an array: from here on models release Python's lock, and threads help
TRY_AGAIN = 4  # a cluster evaluates 4, 16, 64 ... times before the client's process is tried again
MOST_MISTAKES = 6  # that count
MOST_KNOWN = 1024  # graphs


# ------------------------------------------------------------------------------- whether at all


def seconds_in_line(graph: Graph) -> float:
    """How many seconds an evaluation without a cluster may run in the calling thread; zero: not at
    all, also if ``debug_nans`` or callbacks of Dask's local schedulers watch the tasks."""
    if is_debugging() or not all(is_plain(node, None) for node in graph.order):
        return 0.0
    scheduler = dask.config.get("scheduler", None)
    is_usual = scheduler in OF_CLUSTER or dask.base.get_scheduler() in LOCAL
    return setting("inline.seconds") if is_usual and not Callback.active else 0.0


def is_beside_workers(graph: Graph, client: Client) -> bool:
    """Whether a client's workers evaluate sums of a graph by direct calls."""
    if is_debugging() or not all(is_plain(node, client) for node in graph.order):
        return False
    return setting("resident.enabled") and is_resident(graph, client)


def graph_may_spare_cluster(graph: Graph) -> bool:
    """Whether a graph for a cluster may run in the calling thread: all of its data is here, no
    worker has copies, its models are of NumPy, and nobody annotates or watches its tasks."""
    if is_debugging() or not may_spare_cluster():
        return False
    for node in graph.order:
        if (isinstance(node, Variable) and not node.is_here) or not is_plain(node, None):
            return False
        if node.model is not None and node.model.backend not in OF_NUMPY:
            return False
    return not replicated or not replicated_among(data_of(graph))


def data_of(graph: Graph) -> Iterator[Any]:
    """The arrays that models get: arguments, constants and items."""
    for node in graph.order:
        yield from leaves_in(node)
        for source in node.items.sources if isinstance(node, ReductionNode) else ():
            items = getattr(source, "items", ())
            yield items
            yield from flatten(items)[0] if isinstance(items, list) else ()


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


# ---------------------------------------------------------------------------------------- measured


class Timing(NamedTuple):
    """The time of the last evaluation of a graph: ``seconds`` of processors. ``is_large``: it has
    large arrays. ``waits``: its models wait, for a file or a service. ``mistakes``: how often in a
    row the client's process was the wrong place beside a cluster, and ``left``: evaluations on the
    cluster before it is tried again."""

    seconds: float
    is_large: bool
    waits: bool = False
    mistakes: int = 0
    left: int = 0


class GraphKey(NamedTuple):
    """By which graphs of one program are known: the first and the last model, a hash of all, the
    bytes of the variables, the number of items, and the tasks that Dask would have."""

    first: Any
    last: Any
    models: int
    nbytes: int
    items: int
    tasks: int


_measured: dict[GraphKey, Timing] = {}
_latest: dict[Any, tuple[GraphKey, Timing]] = {}  # by the first and the last model


def key_of(graph: Graph) -> GraphKey:
    models: list[Any] = []
    size = items = 0
    tasks = len(graph.order)
    for node in graph.order:  # a loop: it costs a little for every node
        if node.model is not None:
            models.append(identity(node.model))
        if type(node) is Variable:
            size += nbytes(node.leaves)
        elif type(node) is ReductionNode:
            items += node.items.count
            tasks += len(node.items.firsts)
    first, last = (models[0], models[-1]) if models else (None, None)
    return GraphKey(first, last, hash(tuple(models)), size, items, NODE_TASKS * tasks)


def stays(key: GraphKey, graph: Graph | None = None) -> bool:
    """Whether an evaluation runs in the calling thread. ``graph``: for one that was not measured
    yet; without it, such an evaluation does not."""
    known = _measured.get(key)
    if known is None and graph is not None:
        known = expected(key, graph)
        if known is None:
            return is_one_by_one(graph)
    if known is None:
        return False
    if known.waits:
        return False
    return known.seconds <= limit_of(key) or not (known.is_large or gains_always())


def spares_cluster(key: GraphKey, otherwise: bool = False) -> bool:
    """Whether an evaluation beside a cluster runs in the calling thread; ``otherwise``: one that
    was not measured yet does."""
    known = _measured.get(key)
    if known is None:
        return otherwise
    return not (known.waits or known.left) and known.seconds <= limit_of(key)


def expected(key: GraphKey, graph: Graph) -> Timing | None:
    """The time that a graph may take, from the latest one of its models with other data."""
    latest = _latest.get((key.first, key.last))
    if latest is None:
        return None
    (_, _, _, *before), timing = latest
    sizes = zip(key[3:], before, strict=True)
    factor = max([1.0, *[size / max(other, 1) for size, other in sizes]])
    return timing._replace(seconds=factor * timing.seconds, is_large=is_large(graph))


def gains_always() -> bool:
    """Whether Dask's scheduler may run models of small arrays beside each other, or somebody
    watches its tasks."""
    pool, scheduler = dask.config.get("pool", None), dask.base.get_scheduler()
    is_of_threads = pool is None or isinstance(pool, ThreadPoolExecutor)
    is_usual = scheduler is get_sync or (is_of_threads and scheduler in (None, dask.threaded.get))
    return bool(observers.observers and observers.of_tasks()) or not is_usual


def is_one_by_one(graph: Graph, client: Client | None = None) -> bool:
    """Whether no task could run beside another; ``client``: its workers evaluate sums."""
    calls = [node for node in graph.order if node.model is not None and node not in graph.here]
    if client is not None:
        around = [node for node in calls if not (node.is_light or node.is_direct(graph, client))]
        return is_chain(around)
    if len(calls) == 1 and isinstance(calls[0], ReductionNode):
        return len(calls[0].items.firsts) == 1
    return graph.is_chain


def is_large(graph: Graph) -> bool:
    """Whether a graph has large arrays among arguments, constants and items."""
    for node in graph.order:
        if isinstance(node, ReductionNode) and node.items.is_here:
            leaves: Any = [flatten(field[:1])[0] for field in node.items.here(0, 1)]
        else:
            leaves = [leaves_in(node)]
        if any(map(has_large, leaves)):
            return True
    return False


def has_large(leaves: Iterable[Any]) -> bool:
    """Whether there are large arrays among leaves."""
    return any([isinstance(leaf, np.ndarray) and leaf.nbytes >= LARGE for leaf in leaves])


class Stopwatch:
    """The time since it was made, without pauses; ``processor``: of this thread's processor, or of
    all."""

    __slots__ = ("_begin", "_preemptions", "_processor", "_processor_begin")

    def __init__(self, processor: Callable[[], float]) -> None:
        self._processor = processor
        self._begin, self._processor_begin = clock.seconds(), processor()
        self._preemptions = clock.preemptions()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        pause = Stopwatch(self._processor)
        yield
        self._begin += clock.seconds() - pause._begin
        self._processor_begin += pause.seconds()
        self._preemptions += clock.preemptions() - pause._preemptions

    def seconds(self) -> float:
        """The seconds of processors."""
        return self._processor() - self._processor_begin

    def is_longer(self, limit: float) -> bool:
        return clock.seconds() - self._begin > limit

    def waits(self) -> bool:
        """Whether no processor is used for more than half of the time."""
        return self.is_longer(2.0 * self.seconds())

    def is_preempted(self) -> bool:
        """Whether others have taken this thread's processor."""
        return clock.preemptions() > self._preemptions


def limit_of(key: GraphKey) -> float:
    """The seconds in which Dask's threads gain nothing."""
    return setting("inline.seconds") + TASK_SECONDS * key.tasks


def run_here(key: GraphKey, evaluate: Callable[[], Any], is_large: Callable[[], bool]) -> Any:
    """The result of an evaluation in this thread, which is measured."""
    watch = Stopwatch(clock.thread_seconds)
    result = evaluate()
    note_here(key, watch, is_large)
    return result


def note_here(key: GraphKey, watch: Stopwatch, is_large: Callable[[], bool]) -> None:
    """Notes how long an evaluation in this thread took."""
    if not watch.is_longer(limit_of(key)):  # nearly always
        return note(key, Timing(watch.seconds(), False))
    waits = watch.waits() and not watch.is_preempted()
    timing = Timing(watch.seconds(), is_large(), waits)
    if waits or timing.seconds > limit_of(key):
        timing = with_mistake(key, timing)
    return note(key, timing)


def run_by_dask(key: GraphKey, evaluate: Callable[[], Any], graph: Graph) -> Any:
    """The result of an evaluation by one of Dask's local schedulers, which is measured.

    Models that have waited in the calling thread do so until the processors are busy.
    """
    watch, before = Stopwatch(clock.processor_seconds), _measured.get(key)
    result = evaluate()
    waits = before is not None and before.waits and watch.waits()
    is_heavy = watch.seconds() > limit_of(key) and is_large(graph)
    note(key, Timing(watch.seconds(), is_heavy, waits))
    return result


def with_mistake(key: GraphKey, timing: Timing) -> Timing:
    mistakes = 1
    if (before := _measured.get(key)) is not None:
        mistakes = min(before.mistakes + 1, MOST_MISTAKES)
    return timing._replace(mistakes=mistakes, left=TRY_AGAIN**mistakes)


def note_of_cluster(key: GraphKey, seconds: float, graph: Graph) -> None:
    """Notes how long a cluster's tasks have run."""
    timing = Timing(seconds, is_large(graph))
    if (before := _measured.get(key)) is not None:
        timing = timing._replace(mistakes=before.mistakes, left=max(before.left - 1, 0))
    note(key, timing)


def note_failure(key: GraphKey) -> None:
    """Notes that a model has failed beside a cluster; it may need a worker."""
    note(key, with_mistake(key, _measured.get(key, Timing(0.0, False))))


def note(key: GraphKey, measured: Timing) -> None:
    _measured[key], _latest[key.first, key.last] = measured, (key, measured)
    drop_oldest(_measured, MOST_KNOWN)
    drop_oldest(_latest, MOST_KNOWN)
