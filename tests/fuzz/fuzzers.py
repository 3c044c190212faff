"""The fuzzers by name, the seeds of their programs, and a clock by which each program is replayed.

A fuzzer is a function of a seed and a counter: it tells what of the seed's program is wrong, a list
of texts, and counts what kinds of programs there were.
"""

import collections
import importlib
import time
import traceback
from typing import NamedTuple

import numpy as np
import pytest

from daskgrad.autodiff.programs import blocks, store
from daskgrad.autodiff.values import clock

FUZZERS = "programs derivatives loops sizes batches items references graphs objectives sums".split()
FUZZERS += ["machine"]


class Ticks:
    """A clock that its readings move on: who decides by time does so alike on every machine."""

    def __init__(self, seed=None, tick=1e-5):
        """Each reading takes a tick, or with a seed a random time."""
        self._random = None if seed is None else np.random.default_rng(seed)
        self._tick, self.now = tick, 0.0

    def seconds(self):
        factor = 1.0 if self._random is None else self._random.lognormal(sigma=2.0)
        self.now += factor * self._tick
        return self.now


def ticking(patch, seed=None, tick=1e-5):
    """The package's clock here is the one returned, of ticks, until the patch is undone; programs
    are made at the third call, and batches of two items at the third item."""
    ticks = Ticks(seed, tick)
    patch.setattr(store, "CALLS", 3)
    patch.setattr(blocks, "SERVED", 3)
    patch.setattr(blocks, "LEAST", 2)
    for name in ("seconds", "thread_seconds", "processor_seconds"):
        patch.setattr(clock, name, ticks.seconds)
    patch.setattr(clock, "preemptions", lambda: 0)
    return ticks


class Run(NamedTuple):
    name: str
    programs: int
    seconds: float
    wrong: list[int]  # seeds
    counts: collections.Counter


def seeds(first, count):
    """The seeds of so many programs; the first is the one that replays a program."""
    drawn = np.random.default_rng(first).integers(2**31, size=count).tolist()
    return [first, *drawn[1:]][:count]


def run(name, first, count, tell=print):
    """Runs a fuzzer on so many programs; ``tell`` gets what is wrong at once."""
    fuzzer = importlib.import_module(f"fuzz_{name}").differences
    begin, wrong, counts = time.monotonic(), [], collections.Counter()
    for seed in seeds(first, count):
        with pytest.MonkeyPatch.context() as patch:
            ticking(patch, seed)
            try:
                texts = fuzzer(seed, counts)
            except Exception:
                texts = [traceback.format_exc()]
        for text in texts:
            tell(f"{name}, --seed {seed} --programs 1: {text}")
        wrong += [seed] * bool(texts)
    return Run(name, count, time.monotonic() - begin, wrong, counts)
