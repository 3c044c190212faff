"""Threads: whether Dask's threads end sooner than the calling thread, by kind of evaluation.

Models of small arrays hold Python's lock nearly all the time. Threads then take turns, and on two
cores take up to 2.5 times as long as one alone. Nobody can see that in a model, so both ways are
timed: the first evaluation that is long enough goes to threads, and the second one stays. It is not
tried where the processor time a second shows that threads run side by side. (On two cores, for sums
of small to large arrays, threads took as long as the calling thread where they used 1.5 times its
processor time a second, 2.5 times as long at 1.25, and 0.64 times as long at 1.9.)
Models that wait, for a file or a service, always go to threads.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import dask.base
import dask.threaded
from dask.local import get_sync

from daskgrad.graph.activity import Graph, leaves_in
from daskgrad.models.model import identity
from daskgrad.sums.item_sum import ReductionNode
from daskgrad.sums.sources import Source
from daskgrad.tasks import observers
from daskgrad.values import clock
from daskgrad.values.caches import kept_or_made
from daskgrad.values.cotangents import nbytes
from daskgrad.values.trees import flatten

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
