"""Threads: whether Dask's threads get more done than the calling thread, by kind of evaluation.

Models of small arrays hold Python's lock nearly all the time. Threads then take turns, and on two
cores take up to twice as long as one alone. So an evaluation that is handed over is measured: the
processor time that this process uses in a second on threads, over that in a second before. Where a
model waits for another program, it uses little of either, and threads are worth it.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import dask.base
import dask.threaded
from dask.local import get_sync

from daskgrad.graph.activity import Graph
from daskgrad.sums.item_sum import ReductionNode
from daskgrad.values.caches import kept_or_made

GAIN = 4 / 3  # from which threads end sooner: a part of their time goes into taking turns
SAMPLE = 5e-3  # seconds; what took less is not measured
PAUSE = 4  # evaluations in line before threads are tried again; each time twice as many
KINDS = 256  # that are remembered

Result = TypeVar("Result")


class Kind:
    """What is known of evaluations of the same models and about the same size."""

    def __init__(self) -> None:
        self._left = 0
        self._pause = PAUSE

    def stays(self) -> bool:
        """Whether the next evaluation goes on in the calling thread."""
        if self._left <= 0:
            return False
        self._left -= 1
        if self._left == 0:
            self._pause *= 2
        return True

    def learn(self, gain: float) -> None:
        """Takes in how many times as much threads got done as the calling thread."""
        if gain < GAIN:
            self._left = self._pause
        else:
            self._left, self._pause = 0, PAUSE


class Times(NamedTuple):
    """Seconds of this process's processors and of the clock."""

    processor: float
    clock: float


def now() -> Times:
    return Times(time.process_time(), time.perf_counter())


def since(begin: Times) -> Times:
    return Times(*[b - a for a, b in zip(begin, now(), strict=True)])


class Comparison:
    """What one evaluation gets done in the calling thread, and then on Dask's threads."""

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
        """What Dask computes; takes in how much threads got done."""
        begin = now()
        result = compute(*args)
        there, here = since(begin), self._here
        if self._stays or self._kind is None or here is None:
            return result
        if min(here.clock, there.clock) > SAMPLE and here.processor > 0:
            gain = there.processor / there.clock * here.clock / here.processor
            self._kind.learn(gain)
        return result


_kinds: dict[Any, Kind] = {}


def kind_of(graph: Graph) -> Any:
    """A key of evaluations of the same models, to within a factor of two as many of them."""
    sums = [node for node in graph.order if isinstance(node, ReductionNode)]
    blocks = sum([len(node.items.firsts) for node in sums])
    names = frozenset([node.name for node in graph.order])
    return names, len(graph.order).bit_length(), blocks.bit_length()
