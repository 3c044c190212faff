"""What a node of a graph of small models costs: chains, fans and layers of 1 to 10,000 nodes.

    python benchmarks/graphs.py [--quick] [--rounds N] [--results DIR]

What is measured: the processor time of value and gradient of a program of many models that take no
time (a few operations on 10 numbers), recorded, built and run anew in each call. Rounds are
interleaved; in each one every peer is called, in random order. A time is the median over the
rounds, a ratio the median over the rounds. All run in this process, with one BLAS thread.

The shapes: a model alone, the energy of ten atoms in some fifteen operations; a chain, each of
whose models takes the value of the one before; a fan, all of whose models take the same value, and
are added up; layers, ten models wide, each of which takes two values of the layer before.

Then larger models, fifty of some 10 ms in five layers, on two workers: the processor time of all
processes over that of autograd, which differentiates them on one tape.

The peers:

- daskgrad, in line: in the calling thread, without a graph of Dask's;
- daskgrad, threads: as a graph on Dask's threads from the first task on;
- autograd: the same models, called in plain Python and differentiated as one function;
- dask.delayed: the values alone, without a gradient, as a graph on Dask's threads.

Claims: daskgrad takes in line at most 1.2 times as long as autograd for the model alone, and at
most 3 times for each shape of 10 nodes or more; a chain has at most two tasks a node in this
process, and one for its value. Larger models take at most 1.6 times as long on two workers.
"""

# ruff: noqa: E402  the number of BLAS threads is set before NumPy is imported

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import functools
import gc
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import autograd
import autograd.numpy as np
import dask
import numpy
from dask.callbacks import Callback

import daskgrad as dg
from hosts import cluster
from report import at_most, finish, options, ratio, table

X = numpy.linspace(0.5, 1.5, 10)
WIDTH = 10  # of a layer
WORKERS = "daskgrad, two workers"

IN_LINE, THREADS, AUTOGRAD, DELAYED = PEERS = (
    "daskgrad, in line",
    "daskgrad, threads",
    "autograd",
    "dask.delayed",
)

# ------------------------------------------------------------------------------------ the programs


def energy(x: Any) -> Any:
    return np.sum(x * x)


def wave(x: Any) -> Any:
    return 0.1 + x * 0.9


def mix(x: Any, y: Any) -> Any:
    return 0.5 * x + 0.4 * y


def potential(x: Any) -> Any:
    """The energy of atoms on a line that are embedded in each other's densities."""
    distances = np.sqrt(1.0 + (x[:, None] - x[None, :]) ** 2)
    densities = np.sum(np.exp(-distances), axis=1)
    return 0.5 * np.sum(np.exp(-2.0 * distances)) - np.sum(np.sqrt(densities))


class Models(NamedTuple):
    """The models as one library takes them, and how it adds values up."""

    potential: Callable
    energy: Callable
    wave: Callable
    mix: Callable
    add: Callable


RECORDED = Models(*map(dg.delayed, (potential, energy, wave, mix)), dg.sum)
PLAIN = Models(potential, energy, wave, mix, sum)
LAZY = Models(*map(dask.delayed, (potential, energy, wave, mix, sum)))


def alone(models: Models, nodes: int, x: Any) -> Any:
    return models.potential(x)


def chain(models: Models, nodes: int, x: Any) -> Any:
    for _ in range(nodes - 1):
        x = models.wave(x)
    return models.energy(x)


def fan(models: Models, nodes: int, x: Any) -> Any:
    return models.add([models.energy(x) for _ in range(nodes)])


def layers(models: Models, nodes: int, x: Any) -> Any:
    values = [x] * WIDTH
    for _ in range(nodes // WIDTH - 1):
        values = [models.mix(values[n - 1], values[n]) for n in range(WIDTH)]
    return models.add([models.energy(value) for value in values])


SHAPES = (chain, fan, layers)


class Peer(NamedTuple):
    """A program; ``seconds`` are how long daskgrad may run in line."""

    program: Callable[[], Any]
    seconds: float = 0.0

    @property
    def settings(self) -> Any:
        return dask.config.set({"daskgrad.inline.seconds": self.seconds})


def programs(shape: Callable, nodes: int) -> dict[str, Peer]:
    """Value and gradient by each peer; of ``dask.delayed`` the value."""
    recorded = dg.value_and_grad(functools.partial(shape, RECORDED, nodes))
    plain = autograd.value_and_grad(functools.partial(shape, PLAIN, nodes))
    return {
        IN_LINE: Peer(lambda: recorded(X), 1e9),
        THREADS: Peer(lambda: recorded(X)),
        AUTOGRAD: Peer(lambda: plain(X)),
        DELAYED: Peer(lambda: (shape(LAZY, nodes, X).compute(), None)),
    }


def require_right(peers: dict[str, Peer]) -> None:
    value, gradient = peers[AUTOGRAD].program()
    for name, peer in peers.items():
        with peer.settings:
            found, own = peer.program()
        if not numpy.isclose(found, value) or not (own is None or numpy.allclose(own, gradient)):
            raise ValueError(f"{name}: a value or gradient is wrong")


# ------------------------------------------------------------------------------------ measuring


def measured(peers: dict[str, Peer], rounds: int) -> dict[str, list[float]]:
    """The processor seconds of each peer, round by round."""
    shuffle = random.Random(0)
    seconds: dict[str, list[float]] = {name: [] for name in peers}
    for _ in range(rounds):
        for name in shuffle.sample(list(peers), len(peers)):
            with peers[name].settings:
                seconds[name].append(seconds_of(peers[name].program))
    return seconds


def seconds_of(program: Callable[[], Any]) -> float:
    """The processor time of a call, the mean of as many as take some milliseconds."""
    gc.collect()
    calls, begin = 0, time.process_time()
    while not calls or time.process_time() - begin < 0.02:
        program()
        calls += 1
    return (time.process_time() - begin) / calls


def tasks_a_node(shape: Callable, nodes: int) -> float:
    """Those that run in this process, without the data in the graph."""
    count = 0

    def started(key: Any, graph: Any, _: Any) -> None:
        nonlocal count
        count += type(graph[key]).__name__ != "DataNode"

    with dask.config.set(scheduler="sync"), Callback(pretask=started):
        dg.value_and_grad(functools.partial(shape, RECORDED, nodes))(X)
    return count / nodes


def row(shape: Callable, nodes: int, rounds: int) -> dict[str, Any]:
    peers = programs(shape, nodes)
    require_right(peers)
    seconds = measured(peers, rounds)
    return {
        "shape": shape.__name__,
        "nodes": nodes,
        "tasks a node": tasks_a_node(shape, nodes),
        "microseconds a node": {
            name: statistics.median(times) / nodes * 1e6 for name, times in seconds.items()
        },
        "ratio to autograd": {
            name: ratio(times, seconds[AUTOGRAD]) for name, times in seconds.items()
        },
        "all seconds": seconds,
    }


# ------------------------------------------------------------------------------- larger models


def relaxed(matrices: Sequence[Any], values: Sequence[Any], slope: float, steps: int) -> Any:
    M, B, C = matrices
    x = b = np.dot(B, sum(values))
    for _ in range(steps):
        x = np.tanh(slope * np.linalg.solve(M + np.diag(x), b))
    return np.dot(C, x)


def network(models: Models, relaxed: Callable, matrices: Any, steps: int, x: Any) -> Any:
    layer = [x] * WIDTH
    for _ in range(5):
        layer = [
            relaxed(matrices, [layer[n - 2], layer[n - 1], layer[n]], 1.0 + 0.1 * n, steps)
            for n in range(WIDTH)
        ]
    return models.add([models.energy(each) for each in layer])


def larger_models(rounds: int, steps: int) -> dict[str, Any]:
    """The processor seconds of each peer, after two calls that do not count."""
    random = numpy.random.default_rng(0)
    M = 2.0 * numpy.eye(200) + random.normal(size=(200, 200)) / 30.0
    matrices = M, random.normal(size=(200, 10)) / 10.0, random.normal(size=(10, 200)) / 15.0
    plain = autograd.value_and_grad(functools.partial(network, PLAIN, relaxed, matrices, steps))
    with cluster(2) as client:
        there = client.scatter(matrices, broadcast=True, hash=False)
        recorded = functools.partial(network, RECORDED, dg.delayed(relaxed), there, steps)
        programs = {WORKERS: dg.value_and_grad(recorded), AUTOGRAD: plain}
        if not numpy.allclose(programs[WORKERS](X)[1], plain(X)[1]):
            raise ValueError("larger models: the gradient is wrong")
        seconds: dict[str, list[float]] = {name: [] for name in programs}
        for _ in range(rounds + 1):
            for name, program in programs.items():
                begin = time.process_time() + sum(client.run(time.process_time).values())
                program(X)
                end = time.process_time() + sum(client.run(time.process_time).values())
                seconds[name].append(end - begin)
    return {name: times[1:] for name, times in seconds.items()}


# ------------------------------------------------------------------------------------ telling


def printed(rows: Sequence[dict[str, Any]]) -> str:
    header = ("shape", "nodes", "tasks a node", *[f"{peer}, µs a node" for peer in PEERS])
    lines = [
        (
            each["shape"],
            f"{each['nodes']:,}",
            f"{each['tasks a node']:.2f}",
            *[
                f"{each['microseconds a node'][peer]:.0f} ({each['ratio to autograd'][peer]:.2f})"
                for peer in PEERS
            ],
        )
        for each in rows
    ]
    return table(header, lines) + "\n(in brackets: autograd = 1)"


def claims(rows: Sequence[dict[str, Any]], larger: dict[str, Any]) -> list[Any]:
    single = next(each for each in rows if each["shape"] == alone.__name__)
    graphs = [each for each in rows if each["nodes"] > 1]
    per_node = max(each["ratio to autograd"][IN_LINE] for each in graphs)
    most = max(each["nodes"] for each in graphs)
    largest = next(each for each in graphs if (each["shape"], each["nodes"]) == ("chain", most))
    return [
        at_most("one model in line over autograd", single["ratio to autograd"][IN_LINE], 1.2),
        at_most("a node in line over autograd, of the slowest shape and size", per_node, 3.0),
        at_most("tasks a node of the longest chain", largest["tasks a node"], 2.0 + 1.0 / most),
        at_most("larger models on workers", ratio(larger[WORKERS], larger[AUTOGRAD]), 1.6),
    ]


def draw(rows: Sequence[dict[str, Any]], stated: str) -> Any:
    from plots import lines, page  # here, as in the other benchmarks

    plots = []
    for shape in SHAPES:
        own = [each for each in rows if each["shape"] == shape.__name__]
        curves = {peer: [each["microseconds a node"][peer] for each in own] for peer in PEERS}
        labels = ("nodes", "processor time a node (µs)")
        plots.append(lines(shape.__name__, [each["nodes"] for each in own], curves, labels))
    return page("What a node of small models costs", stated, *plots)


def main() -> int:
    arguments = options(__doc__).parse_args()
    arguments.rounds = arguments.rounds or (3 if arguments.quick else 5)
    sizes = (10, 100) if arguments.quick else (10, 100, 1_000, 10_000)
    cases = [(alone, 1), (chain, 1), *[(shape, nodes) for shape in SHAPES for nodes in sizes]]
    rows = [row(shape, nodes, arguments.rounds) for shape, nodes in cases]
    larger = larger_models(arguments.rounds, 3 if arguments.quick else 30)
    print(printed(rows))
    found = {"programs": rows, "larger models": larger}
    return finish("graphs", arguments, found, claims(rows, larger), functools.partial(draw, rows))


if __name__ == "__main__":
    sys.exit(main())
