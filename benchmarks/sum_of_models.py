"""Value and gradient of a sum of 2,048 uneven models: daskgrad's shards against its peers.

    python benchmarks/sum_of_models.py [--quick] [--markdown] [--items N] [--rounds N]
                                       [--results DIR]

What is measured: the time of one value and gradient of the sum at a new point, as the steps of a
fit need them, on two cores. The models (``ragged_models``) take about a millisecond each, some
several times as long as others; they have their own data and share twenty parameters. All peers
run in this run, in rounds of random order, each while the processes of the others are stopped
(``hosts``); a time is the median over the rounds, a speed-up the median over the rounds of the
serial loop's time over the peer's. That all peers return the same value and gradient is checked in
every round.

The peers; except where it says so, the data are where the work is done before the time is taken:

- serial loop: ``autograd.value_and_grad`` of one model after another, in a fresh process;
- serial loop, raised malloc thresholds: the same in a process with the thresholds that daskgrad
  sets in the workers (``MALLOPT``), so that neither has an advantage by them;
- joblib: chunks with loky's two warm processes, as ``Parallel`` does it: the data travel each time;
- ProcessPoolExecutor: two processes that were given the data when they started; one call each, of
  every other chunk;
- dask.delayed, a task a model, and dask.delayed, 16 chunks: on two worker processes;
- dask.delayed, 16 chunks, threads: Dask's scheduler of two threads, in one process;
- daskgrad, list, threads: ``map_sum`` over a plain list, on two threads;
- daskgrad, list: ``map_sum`` over a plain list on two worker processes; the data travel each time;
- daskgrad, shards: ``map_sum`` over what ``dg.place`` put on two worker processes.

The second table is for small models (``small_misfit``), eight times as many, most of whose time
goes to tracing them: the serial loop; compiled, one process: ``map_sum`` over a plain list, in
line, of a model with ``compile=True``; and the same, placed on two worker processes, with Dask's
defaults and with few wake-ups: a worker's event loop is woken some 150 times a second, by a
profiler and by ticks, and then waits for Python's lock as long as the small arrays of a model let
go of it and take it again. Its times are those of one of three steps that follow each other, since
a host that was stopped begins slowly. Where two cores share what computes, two processes are less
than twice as fast as one. How much, "compiled, two processes" tells: each has its half of the
models before the time is taken.

Claims: the shards are at least 2.4 times as fast as the serial loop, at least 1.9 times as fast as
the serial loop with raised thresholds, and faster than every other peer. Small compiled models on
two workers are at least 10 times as fast as the serial loop, with few wake-ups 1.7 times as one
process, and 0.9 times as two processes.
"""

import contextlib
import ctypes
import functools
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import dask
import joblib
import numpy
from distributed import Client
from joblib.externals.loky import get_reusable_executor

import daskgrad as dg
from hosts import Measured, Program, cluster, hosted, in_rounds, spawn
from ragged_models import (
    loop,
    make_groups,
    make_items,
    misfit,
    small_loop,
    small_misfit,
    small_start,
    start,
)
from report import Claim, at_least, finish, options, ratio, table

SERIAL = "serial loop"
EQUAL = "serial loop, raised malloc thresholds"
SHARDS = "daskgrad, shards"
CHUNKS = 16
MALLOPT = {-1: 256 << 20, -3: 16 << 20}  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD, in bytes

# -------------------------------------------------------------------------------- the peers


def chunks(items: list) -> list[list]:
    """The items in at most CHUNKS interleaved parts, which take about the same time."""
    return [items[first::CHUNKS] for first in range(min(CHUNKS, len(items)))]


def add(parts: Sequence[tuple[float, Any]]) -> tuple[float, Any]:
    values, gradients = zip(*parts, strict=True)
    return sum(values), numpy.sum(gradients, axis=0)


@contextlib.contextmanager
def serial(count: int, raised: bool) -> Iterator[dict[str, Program]]:
    items = make_items(count)
    for parameter, size in MALLOPT.items() if raised else ():
        if not ctypes.CDLL(None).mallopt(parameter, size):
            raise OSError(f"mallopt({parameter}, {size}) failed")
    yield {EQUAL if raised else SERIAL: lambda point: loop(items, point)}


@contextlib.contextmanager
def loky(count: int) -> Iterator[dict[str, Program]]:
    parts = chunks(make_items(count))
    with joblib.Parallel(n_jobs=2) as parallel:
        yield {"joblib": lambda x: add(parallel(joblib.delayed(loop)(part, x) for part in parts))}
    get_reusable_executor().shutdown()  # its processes would wait for more work


resident: list = []  # a pool process's data


def take_data(count: int) -> None:
    resident.extend(make_items(count))


def loop_over_resident(first: int, point: Any) -> tuple[float, Any]:
    return loop(resident[first::2], point)


@contextlib.contextmanager
def process_pool(count: int) -> Iterator[dict[str, Program]]:
    with ProcessPoolExecutor(2, spawn, take_data, (count,)) as pool:
        yield {
            "ProcessPoolExecutor": lambda x: add(list(pool.map(loop_over_resident, (0, 1), (x, x))))
        }


def by_delayed(parts: Sequence[Any]) -> Program:
    def value_and_grad(point):
        shared = dask.delayed(point)
        return add(dask.compute(*[dask.delayed(loop)(part, shared) for part in parts]))

    return value_and_grad


def by_daskgrad(items: Any, model: Any = misfit) -> Program:
    return dg.value_and_grad(lambda x: dg.map_sum(model, items, x))


@contextlib.contextmanager
def threads(count: int) -> Iterator[dict[str, Program]]:
    items = make_items(count)
    parts = [dask.delayed(part, traverse=False) for part in chunks(items)]
    with dask.config.set(scheduler="threads", num_workers=2):
        yield {
            f"dask.delayed, {CHUNKS} chunks, threads": by_delayed(parts),
            "daskgrad, list, threads": by_daskgrad(items),
        }


@contextlib.contextmanager
def graphs(count: int) -> Iterator[dict[str, Program]]:
    items = make_items(count)
    with cluster(2) as client:
        yield {
            "dask.delayed, a task a model": by_delayed(on_workers(client, [[i] for i in items])),
            f"dask.delayed, {CHUNKS} chunks": by_delayed(on_workers(client, chunks(items))),
            "daskgrad, list": by_daskgrad(items),
        }


def on_workers(client: Client, parts: list[list]) -> list[Any]:
    return client.scatter(parts, hash=False)


@contextlib.contextmanager
def shards(count: int) -> Iterator[dict[str, Program]]:
    with cluster(2):
        yield {SHARDS: by_daskgrad(dg.place(make_items(count)))}


# ----------------------------------------------------------------------------- small models

COMPILED, HALVES = "compiled, one process", "compiled, two processes"
PLACED, QUIET = "compiled, shards", "compiled, shards, few wake-ups"
FEW_WAKE_UPS = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "500 ms",
}
small_model = dg.delayed(small_misfit, compile=True)
STEPS = 3


def in_steps(program: Program) -> Program:
    """The program at points one after the other; returns what it does at the last one."""

    def steps(point: Any) -> Any:
        return [program(point * (1.0 + 1e-3 * step)) for step in range(STEPS)][-1]

    return steps


@contextlib.contextmanager
def small_serial(count: int) -> Iterator[dict[str, Program]]:
    groups = make_groups(count)
    yield {SERIAL: in_steps(lambda point: small_loop(groups, point))}


@contextlib.contextmanager
def small_compiled(count: int) -> Iterator[dict[str, Program]]:
    with dask.config.set(scheduler="sync"):
        yield {COMPILED: in_steps(by_daskgrad(make_groups(count), small_model))}


of_half: list[Program] = []  # the sum of a process's half


def take_half(count: int, first: int) -> None:
    dask.config.set(scheduler="sync")
    of_half.append(by_daskgrad(make_groups(count)[first::2], small_model))


def sum_of_half(point: Any) -> tuple[float, Any]:
    return of_half[0](point)


@contextlib.contextmanager
def small_halves(count: int) -> Iterator[dict[str, Program]]:
    with (
        ProcessPoolExecutor(1, spawn, take_half, (count, 0)) as even,
        ProcessPoolExecutor(1, spawn, take_half, (count, 1)) as odd,
    ):

        def value_and_grad(point: Any) -> tuple[float, Any]:
            halves = [pool.submit(sum_of_half, point) for pool in (even, odd)]
            return add([half.result() for half in halves])

        yield {HALVES: in_steps(value_and_grad)}


@contextlib.contextmanager
def small_shards(count: int) -> Iterator[dict[str, Program]]:
    with cluster(2):
        yield {PLACED: in_steps(by_daskgrad(dg.place(make_groups(count)), small_model))}


@contextlib.contextmanager
def small_quiet(count: int) -> Iterator[dict[str, Program]]:
    with dask.config.set(FEW_WAKE_UPS), small_shards(count) as programs:
        yield {QUIET: programs[PLACED]}


def small_seconds(count: int, rounds: int) -> dict[str, list[float]]:
    peers = (small_serial, small_compiled, small_halves, small_shards, small_quiet)
    setups = [functools.partial(peer, count) for peer in peers]
    with hosted(*setups) as programs:
        measured = in_rounds(programs, rounds, lambda n: small_start() * (1.0 + 0.01 * n))
    require_agreement(measured)
    return {name: [each.seconds / STEPS for each in times] for name, times in measured.items()}


def small_claims(seconds: Mapping[str, list[float]]) -> list[Claim]:
    faster = ratio(seconds[SERIAL], seconds[PLACED])
    scaled, kept = (ratio(seconds[name], seconds[QUIET]) for name in (COMPILED, HALVES))
    return [
        at_least("small models, compiled shards over the serial loop", faster, 10.0),
        at_least("... few wake-ups, over compiled models in one process", scaled, 1.7),
        at_least("... few wake-ups, over compiled models in two processes", kept, 0.9),
    ]


def small_printed(seconds: Mapping[str, list[float]], markdown: bool) -> str:
    rows = [
        (name, f"{statistics.median(times) * 1e3:,.0f} ms", f"{ratio(seconds[SERIAL], times):.2f}")
        for name, times in seconds.items()
    ]
    return table(("small models", "time", "speed-up"), rows, markdown)


# -------------------------------------------------------------------------------- the results


def require_agreement(measured: Mapping[str, list[Measured]]) -> None:
    """Every peer has the serial loop's value and gradient in every round, to 1e-10."""
    for name, times in measured.items():
        for mine, right in zip(times, measured[SERIAL], strict=True):
            for found, expected in zip(mine.result, right.result, strict=True):
                scale = numpy.max(numpy.abs(expected))
                if not numpy.max(numpy.abs(found - expected)) <= 1e-10 * scale:
                    raise SystemExit(f"{name}: value or gradient is not the serial loop's")


def summary(seconds: Mapping[str, list[float]]) -> list[dict[str, Any]]:
    """What is known of each peer, the slowest first."""
    peers = [
        {
            "peer": name,
            "seconds": statistics.median(times),
            "speed-up": ratio(seconds[SERIAL], times),
            "speed-up, equal malloc": ratio(seconds[EQUAL], times),
            "all seconds": times,
        }
        for name, times in seconds.items()
    ]
    return sorted(peers, key=lambda peer: peer["speed-up"])


def make_claims(seconds: Mapping[str, list[float]]) -> list[Claim]:
    ours = seconds[SHARDS]
    best = min(ratio(times, ours) for name, times in seconds.items() if name != SHARDS)
    return [
        at_least("shards' speed-up over the serial loop", ratio(seconds[SERIAL], ours), 2.4),
        at_least("... with raised malloc thresholds", ratio(seconds[EQUAL], ours), 1.9),
        at_least("shards' speed-up over the best other peer", best, 1.0),
    ]


def printed(peers: list[dict[str, Any]], markdown: bool) -> str:
    header = ("value and gradient of the sum", "time", "speed-up", "equal malloc")
    rows = [
        (
            peer["peer"],
            f"{peer['seconds'] * 1e3:,.0f} ms",
            f"{peer['speed-up']:.2f}",
            f"{peer['speed-up, equal malloc']:.2f}",
        )
        for peer in peers
    ]
    return table(header, rows, markdown)


def draw(peers: list[dict[str, Any]], count: int, stated: str) -> Any:
    from plots import bars, page  # here: processes that a benchmark starts do not need Bokeh

    title = f"Value and gradient of a sum of {count:,} models, on two cores"
    names, speeds = [peer["peer"] for peer in peers], [peer["speed-up"] for peer in peers]
    axis = "speed-up over the serial loop (times as fast)"
    return page(title, stated, bars(names, speeds, axis, "linear"))


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--items", type=int, help="how many models")
    parser.add_argument("--markdown", action="store_true", help="print the table in Markdown")
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (3 if arguments.quick else 15)
    count = arguments.items or (256 if arguments.quick else 2048)

    setups = [functools.partial(serial, count, raised) for raised in (False, True)]
    setups += [functools.partial(s, count) for s in (loky, process_pool, threads, graphs, shards)]
    with hosted(*setups) as programs:
        measured = in_rounds(programs, arguments.rounds, lambda n: start() * (1.0 + 0.01 * n))
    require_agreement(measured)
    seconds = {name: [once.seconds for once in times] for name, times in measured.items()}
    small = small_seconds(8 * count, arguments.rounds)
    peers = summary(seconds)
    print(printed(peers, arguments.markdown), small_printed(small, arguments.markdown), sep="\n\n")
    found = {"items": count, "peers": peers, "small": small}
    drawing = functools.partial(draw, peers, count)
    claims = [*make_claims(seconds), *small_claims(small)]
    return finish("sum_of_models", arguments, found, claims, drawing)


if __name__ == "__main__":
    sys.exit(main())
