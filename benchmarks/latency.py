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

Beside them, the cost of recording: the same calls with a recorder and without one, in turn within
each round, so that a ratio compares neighbours:

- placed: the call above, on a cluster, with the scheduler plugin of ``dg.dashboards.mount``;
- graph: five models of five milliseconds and six of none as a graph on that cluster, likewise;
- in line, synchronous, threads: that graph with models that take no time, within ``dg.report``,
  which is told of every task.

These ratios scatter by 5 % on a machine that others share. So the processor time of all that the
plugin does is measured, too, as a share of the time of the placed calls and of the graph: the
scheduler, which runs it, is in the client's process.

And the cost of adapters, those whose libraries are installed: value and gradient of a model that
takes about two milliseconds, through the adapter, without, and through the least that its library
allows (``through_adapters.py``), in turn likewise.

Claims: daskgrad takes at most 1.5 times as long as ``client.run``, and the ``dask.delayed`` graph
at least 5 times as long as daskgrad; a mounted recorder takes at most 2 % of the placed calls and
of the graph; an adapter adds at most 15 % to the bare call.
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
from daskgrad.dashboards.feeding import RecorderPlugin, recording
from daskgrad.dashboards.local import LocalObserver
from daskgrad.dashboards.recorder import Recorder
from daskgrad.tasks.observers import observed_by
from hosts import Program, cluster, hosted, in_rounds
from report import at_least, at_most, finish, options, ratio, table
from through_adapters import ADAPTED, all_adapters

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


RECORDED = "recorded: "  # how the names of pairs begin
SHARE = "share of the plugin: "
IN_TURN = 20  # calls in a row with or without a recorder


def wave(x: Any, seconds: float) -> Any:
    time.sleep(seconds)
    return np.sin(x)


def total(y: Any) -> Any:
    return np.sum(y * y)


def by_graph(seconds: float) -> Program:
    def fun(x: Any) -> Any:
        return dg.sum([dg.delayed(total)(dg.delayed(wave)(x * n, seconds)) for n in range(5)])

    return dg.value_and_grad(fun)


def by_tasks(program: Program, **settings: Any) -> Program:
    """The program, where all of it runs as Dask's tasks."""

    def call(x: Any) -> Any:
        with dask.config.set({"daskgrad.inline.seconds": 0, **settings}):
            return program(x)

    return call


def in_pairs(
    program: Program, recorded: Callable[[], Any], calls: int
) -> Callable[[float], tuple[float, float]]:
    """Seconds of a call with and without a recorder, which take turns."""

    def call(seconds: float) -> tuple[float, float]:
        spent, count = {True: 0.0, False: 0.0}, 0
        while sum(spent.values()) < seconds or not count:
            for is_recorded in (count % 2 == 0, count % 2 == 1):
                with recorded() if is_recorded else contextlib.nullcontext():
                    start = time.perf_counter()
                    for number in range(calls):
                        program(numpy.full(NUMBERS, float(number)))
                    spent[is_recorded] += time.perf_counter() - start
            count += 1
        return spent[True] / (count * calls), spent[False] / (count * calls)

    return call


class TimedPlugin(RecorderPlugin):
    """A recorder that takes down the processor time that it takes."""

    spent = 0.0


def timed(name: str) -> Callable:
    method = getattr(RecorderPlugin, name)

    def call(self: TimedPlugin, *args: Any, **kwargs: Any) -> Any:
        start = time.thread_time()
        try:
            return method(self, *args, **kwargs)
        finally:
            self.spent += time.thread_time() - start

    return call


for name in ("update_graph", "transition", "log_event", "sample"):
    setattr(TimedPlugin, name, timed(name))


def share_of_plugin(client: Client, program: Program) -> Callable[[float], float]:
    """The plugin's own share of the time of some calls."""

    def call(seconds: float) -> float:
        plugin, calls = TimedPlugin(name="timed", has_pages=False), calls_for(program)
        client.register_plugin(plugin, name=plugin.name)
        try:
            start = time.perf_counter()
            calls(seconds)
            lasted = time.perf_counter() - start
            return client.run_on_scheduler(spent_by, name=plugin.name) / lasted
        finally:
            client.unregister_scheduler_plugin(plugin.name)

    return call


def spent_by(name: str, dask_scheduler: Any) -> float:
    return dask_scheduler.plugins[name].spent


@contextlib.contextmanager
def all_recorded() -> Iterator[dict[str, Program]]:
    """Calls with and without a recorder, in this process and on a cluster."""
    small = by_graph(0.0)

    def here() -> Any:
        return observed_by(LocalObserver(Recorder()))

    programs = {
        "in line": in_pairs(small, here, IN_TURN),
        "synchronous": in_pairs(by_tasks(small, scheduler="synchronous"), here, IN_TURN),
        "threads": in_pairs(by_tasks(small, scheduler="threads"), here, IN_TURN),
    }
    yield {RECORDED + name: program for name, program in programs.items()}


@contextlib.contextmanager
def recorded_cluster() -> Iterator[dict[str, Program]]:
    with cluster(2) as client:
        graph = by_tasks(by_graph(0.005))
        there = functools.partial(recording, client)
        placed = checked(by_shards())
        yield {
            RECORDED + "placed": in_pairs(placed, there, IN_TURN),
            RECORDED + "graph": in_pairs(graph, there, 2),
            SHARE + "placed": share_of_plugin(client, placed),
            SHARE + "graph": share_of_plugin(client, graph),
        }


def cost_of_recording(measured: dict[str, list[Any]]) -> dict[str, float]:
    """What calls take with a recorder, where they take one without it."""
    return {
        name.removeprefix(RECORDED): statistics.median(
            [with_one / without for with_one, without in [once.result for once in times]]
        )
        for name, times in measured.items()
        if name.startswith(RECORDED)
    }


def cost_of_adapters(measured: dict[str, list[Any]]) -> dict[str, tuple[float, float]]:
    """What calls take through an adapter, where plain and bare ones take one."""
    found = {}
    for name in [name for name in measured if name.startswith(ADAPTED)]:
        times = [once.result for once in measured[name]]
        over = [(ours / plain, ours / bare) for ours, plain, bare in times]
        found[name.removeprefix(ADAPTED)] = tuple(map(statistics.median, zip(*over, strict=True)))
    return found


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
    with hosted(all_peers, all_recorded, recorded_cluster, all_adapters) as programs:
        measured = in_rounds(programs, arguments.rounds, lambda n: 0.2 if arguments.quick else 0.5)
    seconds = {
        name: [once.seconds / once.result for once in times]
        for name, times in measured.items()
        if not name.startswith((RECORDED, SHARE, ADAPTED))
    }
    shares = {
        name.removeprefix(SHARE): statistics.median([once.result for once in times])
        for name, times in measured.items()
        if name.startswith(SHARE)
    }
    costs = cost_of_recording(measured)
    adapters = cost_of_adapters(measured)
    peers = summary(seconds)
    print(printed(peers))
    print(table(("recorded", "not recorded = 1"), [(n, f"{c:.3f}") for n, c in costs.items()]))
    heads = "adapter", "plain call = 1", "bare call = 1"
    print(table(heads, [(n, *[f"{c:.3f}" for c in both]) for n, both in adapters.items()]))
    claims = [
        at_most("daskgrad's time over client.run's", ratio(seconds[OURS], seconds[RUN]), 1.5),
        at_least("dask.delayed's time over daskgrad's", ratio(seconds[GRAPH], seconds[OURS]), 5.0),
        at_most("the recorder's share of placed calls", shares["placed"], 0.02),
        at_most("the recorder's share of a graph", shares["graph"], 0.02),
        *[
            at_most(f"the adapter for {n} over the bare call", c, 1.15)
            for n, (_, c) in adapters.items()
        ],
    ]
    return finish(
        "latency",
        arguments,
        {
            "peers": peers,
            "recorded": costs,
            "share of the plugin": shares,
            "adapters": adapters,
        },
        claims,
        functools.partial(draw, peers),
    )


if __name__ == "__main__":
    sys.exit(main())
