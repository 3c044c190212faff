"""Models that index a large array: what its gradient costs in processor time and in memory.

    python benchmarks/gathers.py [--quick] [--rounds N] [--results DIR]

What is measured: processor seconds of one value and gradient, in rounds that call each program
once; a ratio is the median over the rounds. Memory is the most that a call holds at once, by
``tracemalloc``, in units of the array. Values and gradients are compared with the peer's first.

The programs, each with its peer:

- terms: a ``map_sum`` of 32 terms with 50 rows each of a shared matrix of (100,000, 100), in line;
  the peer is a loop by hand that adds all rows into one gradient;
- terms as rows: the same, with ``sparse=True``;
- rows: one model of 50 rows of a matrix of (300,000, 100), in line; the peer is autograd;
- intercepts: a million data with 100,000 random intercepts ``z[J]``, placed on a worker, whose
  processor time counts; the peer is the same function in line, in this process.

Claims: the terms take at most 3 times as long as the loop by hand, and as rows at most 1.2 times;
the rows take at most 1.2 times autograd's memory; the intercepts take at most 1.5 times as long on
a worker as in line.
"""

import functools
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple

import autograd
import autograd.numpy as np
import dask
import numpy

import daskgrad as dg
from hosts import cluster
from report import at_most, finish, options, ratio, table

IN_LINE = {"scheduler": "sync"}


class Peers(NamedTuple):
    """A program of daskgrad's and the one it is compared with, and the clock of the former."""

    name: str
    ours: Callable[[], Any]
    peer: Callable[[], Any]
    nbytes: int
    clock: Callable[[], float] = time.process_time


# ------------------------------------------------------------------------------ the programs


def terms(scale: int, sparse: bool = False) -> Peers:
    random = numpy.random.default_rng(0)
    W = random.normal(size=(100_000 // scale, 100))
    items = [(random.normal(size=100), random.integers(0, len(W), 50)) for _ in range(32)]

    def term(item, W):
        x, S = item
        return np.sum(np.dot(W[S], x) ** 2)

    def by_hand():
        gradient, value = numpy.zeros_like(W), 0.0
        for x, S in items:
            y = W[S] @ x
            value += numpy.sum(y**2)
            numpy.add.at(gradient, S, 2.0 * numpy.outer(y, x))
        return value, gradient

    ours = dg.value_and_grad(lambda W: dg.map_sum(term, items, W), sparse=sparse)
    name = "terms as rows" if sparse else "terms"
    return Peers(name, in_line(functools.partial(ours, W)), by_hand, W.nbytes)


def rows(scale: int) -> Peers:
    W, x, S = numpy.ones((300_000 // scale, 100)), numpy.ones(100), numpy.arange(50)

    def model(W):
        return np.sum(np.dot(W[S], x) ** 2)

    ours = dg.value_and_grad(dg.delayed(model))
    peer = functools.partial(autograd.value_and_grad(model), W)
    return Peers("rows", in_line(functools.partial(ours, W)), peer, W.nbytes)


def intercepts(scale: int, client: Any, shards: Any, J: numpy.ndarray) -> Peers:
    z = numpy.linspace(0.0, 1.0, 100_000 // scale)
    here = dg.value_and_grad(lambda z: dg.delayed(squares)(J, z))
    there = dg.value_and_grad(lambda z: dg.map_sum(squares, shards, z))

    def worker_seconds() -> float:
        return sum(client.run(time.process_time).values())

    return Peers(
        "intercepts",
        functools.partial(there, z),
        in_line(functools.partial(here, z)),
        z.nbytes,
        worker_seconds,
    )


def squares(J, z):
    return np.sum(z[J] ** 2)


def in_line(call: Callable[[], Any]) -> Callable[[], Any]:
    def called():
        with dask.config.set(IN_LINE):
            return call()

    return called


# --------------------------------------------------------------------------------- measuring


def measured(peers: Peers, rounds: int) -> dict[str, Any]:
    require_same(peers)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        times[0].append(seconds(peers.ours, peers.clock))
        times[1].append(seconds(peers.peer, time.process_time))
    arrays = [memory(program) / peers.nbytes for program in (peers.ours, peers.peer)]
    return {
        "program": peers.name,
        "seconds": statistics.median(times[0]),
        "peer's seconds": statistics.median(times[1]),
        "ratio": ratio(*times),
        "arrays": arrays[0],
        "peer's arrays": arrays[1],
        "all seconds": times,
    }


def require_same(peers: Peers) -> None:
    for mine, theirs in zip(peers.ours(), peers.peer(), strict=True):
        mine = mine.to_dense() if isinstance(mine, dg.Rows) else mine
        if not numpy.allclose(mine, theirs, rtol=1e-9):
            raise SystemExit(f"{peers.name}: value or gradient is not that of the peer")


def seconds(program: Callable[[], Any], clock: Callable[[], float]) -> float:
    start = clock()
    program()
    return clock() - start


def memory(program: Callable[[], Any]) -> float:
    tracemalloc.start()
    try:
        program()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def all_measured(scale: int, rounds: int) -> list[dict[str, Any]]:
    programs = [terms(scale), terms(scale, sparse=True), rows(scale)]
    found = [measured(program, rounds) for program in programs]
    J = numpy.random.default_rng(0).integers(0, 100_000 // scale, 1_000_000 // scale)
    with cluster(1) as client, dg.place([J]) as shards:
        return [*found, measured(intercepts(scale, client, shards, J), rounds)]


# ----------------------------------------------------------------------------------- telling


def printed(found: list[dict[str, Any]]) -> str:
    lines = [
        (
            each["program"],
            f"{each['seconds'] * 1e3:.1f} ms",
            f"{each[PEERS_SECONDS] * 1e3:.1f} ms",
            f"{each['ratio']:.2f}",
            f"{each['arrays']:.2f}",
            f"{each[PEERS_ARRAYS]:.2f}",
        )
        for each in found
    ]
    return table(("program", "daskgrad", "peer", "ratio", "arrays", "peer's"), lines)


PEERS_SECONDS, PEERS_ARRAYS = "peer's seconds", "peer's arrays"


def draw(found: list[dict[str, Any]], stated: str) -> Any:
    from plots import bars, page  # here: processes that a benchmark starts do not need Bokeh

    names = [each["program"] for each in found]
    plot = bars(
        names, [each["ratio"] for each in found], "processor time over the peer's", "linear"
    )
    return page("Models that index a large array", stated, plot)


def main() -> int:
    arguments = options(__doc__).parse_args()
    arguments.rounds = arguments.rounds or (3 if arguments.quick else 21)
    found = all_measured(20 if arguments.quick else 1, arguments.rounds)
    print(printed(found))
    by_name = {each["program"]: each for each in found}
    claims = [
        at_most("terms: time over the loop's by hand", by_name["terms"]["ratio"], 3.0),
        at_most("as rows: time over the loop's by hand", by_name["terms as rows"]["ratio"], 1.2),
        at_most(
            "rows: memory over autograd's",
            by_name["rows"]["arrays"] / by_name["rows"][PEERS_ARRAYS],
            1.2,
        ),
        at_most("intercepts: time on a worker over in line", by_name["intercepts"]["ratio"], 1.5),
    ]
    return finish("gathers", arguments, {"programs": found}, claims, functools.partial(draw, found))


if __name__ == "__main__":
    sys.exit(main())
