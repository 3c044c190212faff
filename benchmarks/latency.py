"""How many gradients a second: the calls of a fit whose models take no time.

    python benchmarks/latency.py [--quick] [--rounds N] [--results DIR]

What is measured: the time of one call, from the client and back, on one cluster of two worker
processes with a thread each. Rounds are interleaved; in each one every peer is called, with a new
point every time, for about half a second, in random order. A time is the median over the rounds of
the mean over the round's calls, a ratio the median over the rounds.

The peers:

- daskgrad, shards: value and gradient of a sum of two trivial models, one item on each worker;
- client.run: a function that returns its argument, on both workers;
- actors: a method that returns its argument, of two actors, one on each worker;
- client.submit: a task that returns its argument, on each of the workers, and gathering both;
- dask.delayed: the graph of value and gradient of the same two models by autograd and their sum.

Claims: daskgrad takes at most 1.5 times as long as ``client.run``, and the ``dask.delayed`` graph
at least 5 times as long as daskgrad.
"""

import contextlib
import functools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import autograd
import autograd.numpy as np
import dask
import numpy
from distributed import Client

import daskgrad as dg
from hosts import Program, cluster, hosted, in_rounds
from report import at_least, at_most, finish, options, ratio, table

NUMBERS = 10  # in the point
ITEMS = [1.0, 2.0]

OURS, RUN, GRAPH = "daskgrad, shards", "client.run", "dask.delayed"


def model(item: float, x: Any) -> Any:
    return item * np.sum(x * x)


value_and_grad = autograd.value_and_grad(model, 1)


def add(*parts: tuple[float, Any]) -> tuple[float, Any]:
    values, gradients = zip(*parts, strict=True)
    return sum(values), sum(gradients)


def returned(x: Any) -> Any:
    return x


class Echo:
    def returned(self, x: Any) -> Any:
        return x


def by_shards() -> Program:
    shards = dg.place(ITEMS, grainsize=1)
    return dg.value_and_grad(lambda x: dg.map_sum(model, shards, x))


def by_actors(client: Client, workers: list[str]) -> Program:
    started = [client.submit(Echo, workers=[w], actor=True, pure=False) for w in workers]
    actors = [future.result() for future in started]
    return lambda x: [called.result() for called in [actor.returned(x) for actor in actors]]


def by_submit(client: Client, workers: list[str]) -> Program:
    return lambda x: client.gather(
        [client.submit(returned, x, workers=[worker], pure=False) for worker in workers]
    )


def by_delayed(x: Any) -> Any:
    return dask.delayed(add)(*[dask.delayed(value_and_grad)(item, x) for item in ITEMS]).compute()


def calls_for(program: Program) -> Callable[[float], int]:
    """Calls the program for so many seconds, and returns how often it did."""

    def call(seconds: float) -> int:
        calls, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            program(numpy.full(NUMBERS, float(calls)))
            calls += 1
        return calls

    return call


@contextlib.contextmanager
def all_peers() -> Iterator[dict[str, Program]]:
    with cluster(2) as client:
        workers = list(client.scheduler_info()["workers"])
        yield {
            OURS: calls_for(checked(by_shards())),
            RUN: calls_for(lambda x: client.run(returned, x)),
            "actors": calls_for(by_actors(client, workers)),
            "client.submit": calls_for(by_submit(client, workers)),
            GRAPH: calls_for(checked(by_delayed)),
        }


def checked(program: Program) -> Program:
    """The program, if it finds the right value and gradient."""
    x = numpy.arange(float(NUMBERS))
    value, gradient = program(x)
    if value != sum(ITEMS) * (x @ x) or any(gradient != 2.0 * sum(ITEMS) * x):
        raise ValueError("a value or gradient is wrong")
    return program


def summary(seconds: dict[str, list[float]]) -> list[dict[str, Any]]:
    """What is known of each peer, the quickest first."""
    peers = [
        {
            "peer": name,
            "seconds": statistics.median(times),
            "calls a second": 1.0 / statistics.median(times),
            "ratio to client.run": ratio(times, seconds[RUN]),
            "all seconds": times,
        }
        for name, times in seconds.items()
    ]
    return sorted(peers, key=lambda peer: peer["seconds"])


def printed(peers: list[dict[str, Any]]) -> str:
    rows = [
        (
            peer["peer"],
            f"{peer['calls a second']:,.0f}",
            f"{peer['seconds'] * 1e3:.2f} ms",
            f"{peer['ratio to client.run']:.2f}",
        )
        for peer in peers
    ]
    return table(("peer", "calls a second", "a call", "client.run = 1"), rows)


def draw(peers: list[dict[str, Any]], stated: str) -> Any:
    from plots import bars, page  # here: processes that a benchmark starts do not need Bokeh

    names = [peer["peer"] for peer in peers]
    times = [peer["seconds"] * 1e3 for peer in peers]
    plot = bars(names, times, "time of a call (ms, logarithmic)", "log")
    return page("One call over two workers whose models take no time", stated, plot)


def main() -> int:
    arguments = options(__doc__).parse_args()
    arguments.rounds = arguments.rounds or (3 if arguments.quick else 21)
    with hosted(all_peers) as programs:
        measured = in_rounds(programs, arguments.rounds, lambda n: 0.2 if arguments.quick else 0.5)
    seconds = {
        name: [once.seconds / once.result for once in times] for name, times in measured.items()
    }
    peers = summary(seconds)
    print(printed(peers))
    claims = [
        at_most("daskgrad's time over client.run's", ratio(seconds[OURS], seconds[RUN]), 1.5),
        at_least("dask.delayed's time over daskgrad's", ratio(seconds[GRAPH], seconds[OURS]), 5.0),
    ]
    return finish("latency", arguments, {"peers": peers}, claims, functools.partial(draw, peers))


if __name__ == "__main__":
    sys.exit(main())
