"""Steps of mini-batches over placed items, with replicated parameters, and in one process.

    python benchmarks/minibatches.py [--quick] [--rounds N] [--results DIR]

What is measured: the time by the clock of one step: 32 of 1,024 items are drawn, a sum over them
is evaluated with its gradient as rows, and SGD updates a matrix of 100,000 x 100 numbers (80 MB).
An item looks up 50 rows, and then does some work, from nothing to some 10 ms. Each round runs five
steps of each program; a ratio is the median over the rounds.

The programs: one process without a cluster, in line, and on Dask's threads, one for each core; a
cluster of one and of two workers of one thread, with the items placed and the matrix replicated;
and two workers to which the matrix is sent with each call. Before anything is measured, the values
of three steps must be the same bits.

Claims: where an item takes 5 ms and more in line, two workers are faster than one process, with
threads, too; and with the least work a replicated matrix is at least twice as fast as one that is
sent.
"""

import contextlib
import functools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import autograd.numpy as np
import dask
import numpy

import daskgrad as dg
from hosts import cluster, hosted, in_rounds
from report import at_least, finish, options, ratio, table

WORK = (0, 10, 40, 80)  # products of matrices
DRAWN, ITEMS, STEPS = 32, 1024, 5
HERE, THREADS = "in line", "threads"
ONE, TWO, SENT = "one worker", "two workers", "two workers, matrix sent"
SCHEDULERS = {HERE: "synchronous", THREADS: "threads"}

Run = Callable[[int], float]


def term(item: Any, W: Any, work: int) -> Any:
    rows, x = item
    h = np.outer(W[rows] @ x, x)
    mixing = np.outer(x, x) / np.sum(x**2)  # after which no number vanishes
    for _ in range(work):
        h = np.tanh(h @ mixing)
    return np.sum(h**2)


def make_items(length: int) -> list[Any]:
    generator = numpy.random.default_rng(0)
    return [(generator.integers(0, length, 50), generator.normal(size=100)) for _ in range(ITEMS)]


def stepping(W: Any, shards: Any, work: int) -> Callable[[int], tuple[float, float]]:
    """A function that takes some steps from a seed on; their value, and the seconds of one."""
    optimiser = dg.optim.SGD(1e-6)
    state = optimiser.init(W)
    step = dg.value_and_grad(lambda W, batch: dg.map_sum(term, batch, W, work), sparse="W")

    def steps(seed: int) -> tuple[float, float]:
        begin = time.perf_counter()
        for number in range(STEPS):
            value, rows = step(W, shards.sample(DRAWN, seed=(abs(seed), number)))
            optimiser.update(W, rows, state)
        return value, (time.perf_counter() - begin) / STEPS

    return steps


def programs(length: int, name: str, work: tuple[int, ...]) -> dict[str, Callable]:
    """Programs by their names, one for each amount of work."""
    found = {}
    for each in work:
        W = numpy.zeros((length, 100)) + 0.01
        W = W if name in (HERE, THREADS, SENT) else dg.replicate(W)
        found[f"{name} {each}"] = stepping(W, dg.place(make_items(length)), each)
    return found


@contextlib.contextmanager
def here(length: int, name: str, work: tuple[int, ...]) -> Iterator[dict[str, Callable]]:
    with dask.config.set(scheduler=SCHEDULERS[name]):
        yield programs(length, name, work)


@contextlib.contextmanager
def on_workers(length: int, count: int, name: str, work: tuple[int, ...]) -> Iterator[Any]:
    with cluster(count):
        yield programs(length, name, work)


def measured(length: int, work: tuple[int, ...], rounds: int) -> dict[str, Any]:
    setups = [
        functools.partial(here, length, HERE, work),
        functools.partial(here, length, THREADS, work),
        functools.partial(on_workers, length, 1, ONE, work),
        functools.partial(on_workers, length, 2, TWO, work),
        functools.partial(on_workers, length, 2, SENT, work[:1]),
    ]
    with hosted(*setups) as hosts:
        for each in work:
            require_same({name: run(0) for name, run in hosts.items() if name.endswith(f" {each}")})
        found = in_rounds(hosts, rounds, lambda number: number + 1)
    return {name: [run.result[1] for run in runs] for name, runs in found.items()}


def require_same(runs: dict[str, Any]) -> None:
    values = {name: run.result[0] for name, run in runs.items()}
    if len(set(values.values())) > 1:
        raise SystemExit(f"the values of some steps differ: {values}")


# ----------------------------------------------------------------------------------- telling


def summary(times: dict[str, list[float]], amounts: tuple[int, ...]) -> list[dict[str, Any]]:
    return [
        {
            "work": work,
            **{
                name: statistics.median(times[f"{name} {work}"])
                for name in (HERE, THREADS, ONE, TWO, SENT)
                if f"{name} {work}" in times
            },
            **{
                f"over {name}": ratio(times[f"{name} {work}"], times[f"{TWO} {work}"])
                for name in SCHEDULERS
            },
        }
        for work in amounts
    ]


def printed(found: list[dict[str, Any]]) -> str:
    names = (HERE, THREADS, ONE, TWO, SENT)
    lines = [
        (
            f"{each[HERE] / DRAWN * 1e3:.2f} ms",
            *[f"{each[name] * 1e3:.1f} ms" if name in each else "" for name in names],
            *[f"{each[f'over {name}']:.2f}" for name in SCHEDULERS],
        )
        for each in found
    ]
    return table(("an item", *names, *[f"two workers over {name}" for name in SCHEDULERS]), lines)


def draw(found: list[dict[str, Any]], stated: str) -> Any:
    from plots import bars, page  # here: processes that a benchmark starts do not need Bokeh

    names = [f"{each[HERE] / DRAWN * 1e3:.2f} ms an item" for each in found]
    speed_ups = [each[f"over {HERE}"] for each in found]
    plot = bars(names, speed_ups, "speed of two workers over one process in line", "linear")
    return page("Steps of mini-batches", stated, plot)


def main() -> int:
    arguments = options(__doc__).parse_args()
    arguments.rounds = arguments.rounds or (3 if arguments.quick else 15)
    length, work = (5_000, WORK[:2]) if arguments.quick else (100_000, WORK)
    times = measured(length, work, arguments.rounds)
    found = summary(times, work)
    print(printed(found))
    heavy = [each for each in found if each[HERE] >= DRAWN * 5e-3]
    sent = ratio(times[f"{SENT} {WORK[0]}"], times[f"{TWO} {WORK[0]}"])
    claims = [
        *[
            at_least(
                f"an item takes 5 ms: speed over one process, {name}",
                min([each[f"over {name}"] for each in heavy], default=0.0),
                1.0,
            )
            for name in SCHEDULERS
        ],
        at_least("a matrix that is sent: time over a replicated one's", sent, 2.0),
    ]
    content = {"programs": found, "all seconds": times}
    return finish("minibatches", arguments, content, claims, functools.partial(draw, found))


if __name__ == "__main__":
    sys.exit(main())
