"""Random programs for the benchmark of what may happen to workers, in rounds, from a seed.

The functions of their models are those that ``tests/promises/test_survival.py`` runs: each reports
that it runs, as do its pullbacks and tangents. Workers import this module.
"""

import faulthandler
import functools
import operator
import os
import pickle
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
from distributed import WorkerPlugin
from survivors import (
    as_array,
    looked_up,
    mixed,
    own_term,
    passing,
    piece,
    report_to,
    scaled_term,
    slice_term,
    smooth,
    step,
    term,
    total,
    wave,
)

import daskgrad as dg
from daskgrad.placed.messages import FIXED
from daskgrad.placed.worker import SumsPlugin

Attempt = Callable[[Callable[[], Any]], Any]  # calls a function, again if it was interrupted
Turn = Callable[["Run"], Any]  # one round of a program
METHODS = (dg.optim.Adam, dg.optim.Adagrad, dg.optim.Momentum)

# ------------------------------------------------------------------------------- on the workers


class Reporter(WorkerPlugin):
    """Passes reports on to the watch that a file holds, and writes stacks when it is told to."""

    name = "chaos"

    def __init__(self, folder: Path):
        self._folder = folder

    def setup(self, worker: Any) -> None:
        report_to(self)
        write_stacks_to(self._folder)

    def __call__(self, moment: str) -> None:
        pickle.loads((self._folder / "watch").read_bytes())(moment)


def write_stacks_to(folder: Path) -> None:
    """At a signal, the stacks of all threads go to a file that has the process's number."""
    file = open(folder / f"stacks.{os.getpid()}", "w")
    faulthandler.register(signal.SIGUSR1, file)


def kept(dask_worker: Any) -> tuple[int, int]:
    """How many arrays and cotangents a worker keeps for its client."""
    plugins = dask_worker.plugins.values()
    stores = [plugin._store for plugin in plugins if isinstance(plugin, SumsPlugin)]
    arrays = [c for store in stores for c in store._entries.values() if c.version != FIXED]
    return len(arrays), sum([len(store._cotangents) for store in stores])


# ---------------------------------------------------------------------------------- objectives


def joined(pieces: list[Any], number: int) -> Any:
    return passing(mixed(pieces)) * (1.0 + 0.1 * number)


def graph(chance: random.Random) -> Callable:
    """Models that take the values of one to three earlier ones."""
    size = chance.randint(4, 12)
    parents = [[chance.randrange(n) for _ in range(chance.randint(1, 3))] for n in range(1, size)]

    def objective(run: "Run", x: Any) -> Any:
        nodes = [dg.delayed(piece)(x, 0)]
        for number, taken in enumerate(parents):
            nodes.append(dg.delayed(joined)([nodes[n] for n in taken], number))
        return dg.delayed(total)(dg.delayed(mixed)(nodes))

    return objective


def loop(chance: random.Random) -> Callable:
    states = chance.choice(["auto", 2, 4])
    return lambda run, x: dg.delayed(total)(
        dg.scan(step, x, len(run.rows), x, xs=numpy.stack(run.rows), checkpoints=states)
    )


def domain(chance: random.Random) -> Callable:
    blocks, fuse = chance.randint(2, 4), chance.randint(1, 3)
    steps = fuse * chance.randint(1, 3)

    def objective(run: "Run", x: Any) -> Any:
        grid = dg.grid(numpy.linspace(1.0, 2.0, 24), blocks)
        after = dg.map_overlap(smooth, grid, x, steps=steps, fuse=fuse)
        return dg.sum(after.map(total))

    return objective


def placed(chance: random.Random) -> Callable:
    adding = chance.choice([dg.map_sum, dg.map_mean])
    return lambda run, x: adding(term, run.items, x)


def zipped(chance: random.Random) -> Callable:
    return lambda run, x: dg.map_sum(scaled_term, dg.zip(run.items, run.numbers), x)


def sent(chance: random.Random) -> Callable:
    return lambda run, x: dg.map_sum(term, run.rows, x)


def slices(chance: random.Random) -> Callable:
    return lambda run, x: dg.reduce_sum(slice_term, run.columns, x)


def samples(chance: random.Random) -> Callable:
    seed = chance.randrange(1000)
    return lambda run, x: dg.map_sum(term, run.items.sample(len(run.rows) // 2, seed), x)


def vector(chance: random.Random) -> Callable:
    return lambda run, x: dg.map_sum(wave, run.items, x)


NUMBERS = (graph, graph, loop, domain, placed, placed, zipped, sent, slices, samples)


def number(chance: random.Random) -> Callable:
    """The sum of one to three objectives."""
    parts = [chance.choice(NUMBERS)(chance) for _ in range(chance.choice([1, 1, 2, 3]))]
    return lambda run, x: functools.reduce(operator.add, [part(run, x) for part in parts])


# --------------------------------------------------------------------------------------- rounds


def gradient(chance: random.Random) -> Turn:
    objective = number(chance)
    return lambda run: run.attempt(
        lambda: dg.value_and_grad(lambda x: objective(run, x))(run.point())
    )


def pushed(chance: random.Random) -> Turn:
    derivative, objective = chance.choice([dg.jvp, dg.hvp]), number(chance)
    return lambda run: run.attempt(
        lambda: derivative(lambda x: objective(run, x), (run.point(),), (run.v,))
    )


def each_item(chance: random.Random) -> Turn:
    return lambda run: run.attempt(
        lambda: dg.per_item(term, run.items, gradient="full")(run.point())
    )


def forward(chance: random.Random) -> Turn:
    """A forward pass whose pullback is held from now on."""
    objective = vector(chance) if chance.random() < 0.3 else number(chance)

    def turn(run: "Run") -> Any:
        value, pullback = run.attempt(lambda: dg.vjp(lambda x: objective(run, x), run.point()))
        run.held.append((value, pullback))
        return value

    return turn


def backward(chance: random.Random) -> Turn:
    """One of the pullbacks that earlier rounds have left."""
    place, is_stacked, first = chance.random(), chance.random() < 0.3, forward(chance)

    def turn(run: "Run") -> Any:
        if not run.held:
            return first(run)
        value, pullback = run.held[int(place * len(run.held))]
        cotangent = numpy.cos(value)
        rows = numpy.stack([cotangent, -2.0 * cotangent]) if is_stacked else cotangent
        return run.attempt(lambda: pullback(rows))

    return turn


def learn(chance: random.Random) -> Turn:
    """A step of parameters that learn, which are attached to items or replicated."""
    name = chance.choice(["attached", "rows", "replicas"])
    method = chance.choice(METHODS)

    def turn(run: "Run") -> Any:
        if name not in run.learners:
            run.learners[name] = Learner(run, name, method(0.1))
        return run.learners[name].step()

    return turn


class Learner:
    """Parameters, their optimiser and its state."""

    def __init__(self, run: "Run", name: str, optimiser: Any):
        self._run, self._name, self._optimiser, self._count = run, name, optimiser, 0
        if name == "replicas":
            self._items = dg.place([*enumerate(run.rows)])
            own = dg.replicate(numpy.ones((len(run.rows), len(run.x))))
        else:
            self._items = dg.place(run.rows)
            own = self._items.attach(numpy.outer(run.numbers, run.v))
        self.params = {"x": run.x.copy(), "own": own}
        self.state = optimiser.init(self.params)

    def step(self) -> Any:
        self._count += 1
        value, gradients = self._run.attempt(lambda: self._gradient()(*self.params.values()))
        by_name = dict(zip(self.params, gradients, strict=True))
        self._optimiser.update(self.params, by_name, self.state)
        return value

    def _gradient(self) -> Callable:
        items, sparse = self._items, "own"
        if self._name == "replicas":
            return dg.value_and_grad(
                lambda x, own: dg.map_sum(looked_up, items, own, x), (0, 1), sparse=sparse
            )
        if self._name == "rows" and self._count % 2:
            items = items.sample(len(self._run.rows) // 2, self._count)
        else:
            sparse = False
        return dg.value_and_grad(
            lambda x, own: dg.map_sum(own_term, dg.zip(own, items), x), (0, 1), sparse=sparse
        )

    def arrays(self) -> list[Any]:
        return [as_array(each) for each in (*self.params.values(), *self.state.values())]


TURNS = (gradient, gradient, pushed, each_item, forward, backward, backward, backward, learn, learn)


class Run:
    """One run of a program: what its rounds share."""

    def __init__(self, seed: int, attempt: Attempt):
        numbers, chance = numpy.random.default_rng(seed), random.Random(seed)
        self.attempt = attempt
        count, width = chance.randint(6, 40), chance.randint(2, 6)
        self.x, self.v = numbers.normal(size=(2, width))
        self.numbers = numbers.normal(size=count)
        decades = 10.0 ** numbers.integers(0, 7, (count, 1))
        self.rows = [*(numbers.normal(size=(count, width)) * decades)]
        self.items = dg.place(self.rows, chance.choice(["auto", 1, 3]))
        self.columns = dg.place(dg.zip(self.numbers, numpy.stack(self.rows)))
        self.held: list[tuple[Any, Callable]] = []
        self.learners: dict[str, Learner] = {}
        self._number = 0

    def point(self) -> Any:
        return self.x * (1.0, -0.5, 2.0)[self._number % 3]

    def results(self, seed: int) -> Any:
        """The results of the rounds, one by one, and at last of all that has learned."""
        chance = random.Random(seed + 1)
        turns = [chance.choice(TURNS)(chance) for _ in range(chance.randint(6, 12))]
        for self._number, turn in enumerate(turns):
            yield turn(self)
        yield [learner.arrays() for learner in self.learners.values()]


class Keepsakes:
    """Keepsakes of a whole run: pullbacks, and parameters that learn a step after each use."""

    def __init__(self, attempt: Attempt):
        run = self._run = Run(0, attempt)
        objectives = [make(random.Random(0)) for make in (graph, vector)]
        self._pulled = [attempt(lambda f=f: dg.vjp(lambda x: f(run, x), run.x)) for f in objectives]
        self._learner = Learner(run, "attached", METHODS[0](0.01))

    def results(self) -> list[Any]:
        pulled = [
            self._run.attempt(lambda p=pullback, v=value: p(numpy.cos(v)))
            for value, pullback in self._pulled
        ]
        return [*pulled, self._learner.step()]

    def learned(self) -> list[Any]:
        return self._learner.arrays()
