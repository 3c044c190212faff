"""What it costs to cut a sum into more chunks: the slow-down of one worker, the speed-up of two.

    python benchmarks/chunking.py [--quick] [--items N] [--rounds N] [--results DIR]
                                  [--against OLD.json]

What is measured: the time of one value and gradient of the same sum of 1,024 models (about a second
of work, ``ragged_models``), which ``dg.place(items, grainsize=...)`` cuts into 1, 2, 4 ... 1,024
chunks: the curve that users of Stan's ``reduce_sum`` draw. Each is measured on a cluster of one
worker process and on one of two, of one thread each, for resident sums and for the graph
mode (``daskgrad.resident.enabled`` is False), each with clusters of its own. All cells run in every
round, in random order, while the processes of the other clusters are stopped (``hosts``).

A slow-down is the median over the rounds of one worker's time over its own time for one chunk in
the same mode; a speed-up the median of the latter over the time in question. ``--against`` prints,
cell by cell, the median time over that of an earlier run.

Claim: of a resident sum, 1,024 chunks cost one worker less than 5 % over one chunk.
"""

import contextlib
import functools
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import dask

import daskgrad as dg
from hosts import Program, Setup, cluster, hosted, in_rounds
from ragged_models import make_items, misfit, start
from report import at_most, finish, options, ratio, table

MODES = {"resident": True, "graph": False}
WORKERS = (1, 2)
QUICK_GRAPH = 16  # chunks at which a quick run stops in the graph mode

Cell = tuple[str, int, int]  # mode, workers, chunks


def cell_name(mode: str, workers: int, chunks: int) -> str:
    return f"{mode}, {workers} workers, {chunks} chunks"


@contextlib.contextmanager
def chunked(
    mode: str, workers: int, count: int, numbers: tuple[int, ...]
) -> Iterator[dict[str, Program]]:
    """A cluster that holds the sum once for each number of chunks."""
    items = make_items(count)
    with dask.config.set({"daskgrad.resident.enabled": MODES[mode]}), cluster(workers):
        yield {
            cell_name(mode, workers, chunks): sum_over(dg.place(items, grainsize=count // chunks))
            for chunks in numbers
        }


def sum_over(shards: dg.Shards) -> Program:
    return dg.value_and_grad(lambda x: dg.map_sum(misfit, shards, x))


def make_cells(count: int, quick: bool) -> list[Cell]:
    """All cells; the numbers of chunks are the powers of two up to the number of items."""
    numbers = [2**k for k in range(count.bit_length())]
    return [
        (mode, workers, chunks)
        for mode in MODES
        for workers in WORKERS
        for chunks in numbers
        if chunks <= QUICK_GRAPH or not (quick and mode == "graph")
    ]


def measure(count: int, cells: list[Cell], rounds: int) -> dict[Cell, list[float]]:
    """The seconds of each cell in each round."""

    def setup(mode: str, workers: int) -> Setup:
        numbers = tuple([c for m, w, c in cells if (m, w) == (mode, workers)])
        return functools.partial(chunked, mode, workers, count, numbers)

    setups = [setup(mode, workers) for mode in MODES for workers in WORKERS]
    with hosted(*setups) as programs:
        measured = in_rounds(programs, rounds, lambda n: start() * (1.0 + 0.01 * n))
    return {cell: [once.seconds for once in measured[cell_name(*cell)]] for cell in cells}


def summary(seconds: Mapping[Cell, list[float]]) -> list[dict[str, Any]]:
    return [
        {
            "mode": mode,
            "workers": workers,
            "chunks": chunks,
            "seconds": statistics.median(times),
            "slow-down": ratio(times, seconds[mode, 1, 1]),
            "speed-up": ratio(seconds[mode, 1, 1], times),
            "all seconds": times,
        }
        for (mode, workers, chunks), times in seconds.items()
    ]


def printed(rows: list[dict[str, Any]]) -> str:
    """A line for each number of chunks."""
    header = ["chunks"]
    for mode in MODES:
        header += [f"{mode}: slow-down", "speed-up on 1", "on 2"]
    slow_down, speed_up = by_cell(rows, "slow-down"), by_cell(rows, "speed-up")
    return table(
        header,
        lines_of(
            rows,
            lambda mode, chunks: (
                text(slow_down.get((mode, 1, chunks)), ".3f"),
                *(text(speed_up.get((mode, workers, chunks)), ".2f") for workers in WORKERS),
            ),
        ),
    )


def by_cell(rows: list[dict[str, Any]], field: str) -> dict[Cell, float]:
    return {(row["mode"], row["workers"], row["chunks"]): row[field] for row in rows}


def lines_of(
    rows: list[dict[str, Any]], cells: Callable[[str, int], tuple[str, ...]]
) -> list[list[str]]:
    """For each number of chunks a line with the cells of both modes."""
    numbers = sorted({row["chunks"] for row in rows})
    return [[str(n), *(cell for mode in MODES for cell in cells(mode, n))] for n in numbers]


def text(number: float | None, form: str) -> str:
    return "" if number is None else format(number, form)


def compared(rows: list[dict[str, Any]], path: Path) -> str:
    """The times over those of an earlier run."""
    old = by_cell(json.loads(path.read_text())["cells"], "seconds")
    new = by_cell(rows, "seconds")
    ratios = {cell: new[cell] / old[cell] for cell in new if cell in old}
    header = ["chunks", *(f"{mode}, on {workers}" for mode in MODES for workers in WORKERS)]
    lines = lines_of(
        rows,
        lambda mode, chunks: tuple(
            [text(ratios.get((mode, workers, chunks)), ".3f") for workers in WORKERS]
        ),
    )
    return f"time over that in {path}, on 1 and 2 workers:\n" + table(header, lines)


def draw(rows: list[dict[str, Any]], count: int, stated: str) -> Any:
    from plots import lines, page  # here: processes that a benchmark starts do not need Bokeh

    def curves(field: str, workers: tuple[int, ...]) -> dict[str, list[float]]:
        return {
            f"{mode}, {number} worker{'s' * (number > 1)}": [
                row[field] for row in rows if (row["mode"], row["workers"]) == (mode, number)
            ]
            for mode in MODES
            for number in workers
        }

    chunks = sorted({row["chunks"] for row in rows})
    axis = "chunks that the sum is cut into"
    title = f"A sum of {count:,} models, cut into chunks"
    slow = lines(
        "One worker slows down", chunks, curves("slow-down", (1,)), (axis, "time / time of 1 chunk")
    )
    fast = lines(
        "Speed-up over one worker with one chunk",
        chunks,
        curves("speed-up", WORKERS),
        (axis, "speed-up (times as fast)"),
    )
    return page(title, stated, slow, fast)


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--items", type=int, help="how many models; a power of two")
    parser.add_argument("--against", type=Path, help="the JSON file of an earlier run")
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (2 if arguments.quick else 9)
    count = arguments.items or (64 if arguments.quick else 1024)

    seconds = measure(count, make_cells(count, arguments.quick), arguments.rounds)
    rows = summary(seconds)
    print(printed(rows))
    if arguments.against:
        print("\n" + compared(rows, arguments.against))
    slow_down = by_cell(rows, "slow-down")["resident", 1, count]
    claims = [at_most(f"{count:,} chunks over one, resident", slow_down, 1.05)]
    found = {"items": count, "cells": rows}
    return finish("chunking", arguments, found, claims, functools.partial(draw, rows, count))


if __name__ == "__main__":
    sys.exit(main())
