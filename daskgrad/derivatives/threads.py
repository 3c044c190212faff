"""Threads: whether Dask's threads end sooner than the calling thread, by kind of evaluation.

Models of small arrays hold Python's lock nearly all the time. Threads then take turns, and on two
cores take up to 2.5 times as long as one alone. Nobody can see that in a model, so both ways are
timed: the first evaluation that is long enough is handed over, and the second one stays. There is
no doubt where threads used hardly more of the processors than the calling thread, or much more. (On
two cores, for sums of small to large arrays, threads took the time of the calling thread where they
used 1.5 times as much, 2.5 times that time at 1.25, and 0.64 at 1.9.)
"""

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import dask.base
import dask.threaded
from dask.local import get_sync

from daskgrad.graph.activity import Graph
from daskgrad.sums.item_sum import ReductionNode
from daskgrad.values.caches import kept_or_made

LITTLE, MUCH = 1.33, 1.75  # times the processor time a second; threads end sooner at the latter
SAMPLE = 5e-3  # seconds; what took less is not measured
PAUSE = 4  # evaluations before the other way is tried again; each time twice as many
TRIALS = 2  # in a row
FADING = 0.25  # the part of a slower evaluation that counts; of a quicker one all does
KINDS = 256  # that are remembered

Result = TypeVar("Result")


class Kind:
    """What is known of evaluations of the same models and about the same size.

    Times are of an item or node.
    """

    def __init__(self) -> None:
        self._seconds: dict[bool, float] = {}  # of those that stayed, and of the others
        self._gain = math.inf
        self._stays = False
        self._left = self._pause = PAUSE

    def stays(self) -> bool:
        """Whether the next evaluation stays in the calling thread."""
        if len(self._seconds) < 2:
            return self._gain < MUCH
        if self._is_quicker_here() is not self._stays:
            self._stays = not self._stays
            self._left = self._pause = PAUSE
        self._left -= 1
        if self._left >= 0:
            return self._stays
        if self._left == -TRIALS:
            self._pause *= 2
            self._left = self._pause
        return not self._stays

    def _is_quicker_here(self) -> bool:
        if LITTLE <= self._gain < MUCH:
            return self._seconds[True] < self._seconds[False]
        return self._gain < LITTLE

    def learn_gain(self, gain: float) -> None:
        """Takes in how much of the processors threads used, over the calling thread alone."""
        self._gain = gain

    def learn_time(self, stayed: bool, seconds: float) -> None:
        known = self._seconds.get(stayed, seconds)
        self._seconds[stayed] = min(seconds, known + FADING * (seconds - known))


class Times(NamedTuple):
    """Seconds of this process's processors and of the clock."""

    processor: float
    clock: float


def now() -> Times:
    return Times(time.process_time(), time.perf_counter())


def since(begin: Times) -> Times:
    return Times(*[b - a for a, b in zip(begin, now(), strict=True)])


class Comparison:
    """One evaluation, which is timed if it takes longer than it may in the calling thread."""

    __slots__ = ("_begin", "_graph", "_here", "_kind", "_stays")

    def __init__(self, graph: Graph):
        self._graph = graph
        self._begin = now()
        self._here: Times | None = None  # until the time is up
        self._kind: Kind | None = None  # of an evaluation on threads
        self._stays = False

    def stays(self) -> bool:
        """Whether the evaluation stays in the calling thread; asked when its time is up."""
        if self._here is None:
            self._here = since(self._begin)
            scheduler = dask.base.get_scheduler()
            if scheduler in (None, dask.threaded.get):
                self._kind = kept_or_made(_kinds, kind_of(self._graph), Kind, KINDS)
            self._stays = scheduler is get_sync if self._kind is None else self._kind.stays()
        return self._stays

    def hand_over(self, compute: Callable[..., Result], *args: Any) -> Result:
        """What Dask computes; takes in how much of the processors it used."""
        begin = now()
        result = compute(*args)
        there, here = since(begin), self._here
        if self._stays or self._kind is None or here is None:
            return result
        if min(here.clock, there.clock) > SAMPLE and here.processor > 0:
            self._kind.learn_gain(there.processor / there.clock * here.clock / here.processor)
        return result

    def end(self) -> None:
        """Takes in how long the evaluation took."""
        if self._kind is not None:
            self._kind.learn_time(self._stays, since(self._begin).clock / size_of(self._graph))


_kinds: dict[Any, Kind] = {}


def kind_of(graph: Graph) -> Any:
    """A key of evaluations of the same models, to within a factor of two as many of them."""
    names = frozenset([node.name for node in graph.order])
    return names, len(graph.order).bit_length(), size_of(graph).bit_length()


def size_of(graph: Graph) -> int:
    """How many nodes there are, and items."""
    sums = [node for node in graph.order if isinstance(node, ReductionNode)]
    return len(graph.order) + sum([node.items.sources[0].count or 0 for node in sums])
