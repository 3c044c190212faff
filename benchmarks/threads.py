"""Whether Dask's threads are used where they end sooner, without a cluster and without a setting.

    python benchmarks/threads.py [--quick] [--rounds N] [--results DIR]

What is measured: value and gradient of sums of embedded atoms (``models.embedded_atom``) over items
of 100 to 10^6 numbers, at most 5,000 items and 3 x 10^7 numbers, in one process. Small arrays hold
Python's lock nearly all the time, so that threads take turns; large ones release it. Three ways:

- in line: the calling thread alone (``scheduler="sync"``).
- threads: all blocks are tasks on Dask's threads (``daskgrad.inline.seconds`` 0).
- default: in line below 20 ms and for items of less than 64 kB, else threads.

A time is that of a call by the clock; all ways run in every round, in random order. The first three
calls of each are not counted.

Claims: the median of the default's calls takes at most 1.2 times that of the quicker way, for the
smallest and the two largest sizes. How large an array must be for threads depends on the machine
and on what else runs there; the table tells, and sizes in between are not claimed.
"""

import contextlib
import functools
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import autograd.numpy as np
import dask
import numpy

import daskgrad as dg
from hosts import Program, hosted, in_rounds
from models import embedded_atom
from report import Claim, at_most, finish, options, table

SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)  # numbers of an item
CLAIMED = (100, 100_000, 1_000_000)
NUMBERS = 30_000_000
MOST_ITEMS = 5_000
LINE, THREADS, DEFAULT = "in line", "threads", "default"
WAYS: Mapping[str, dict[str, Any]] = {
    LINE: {"scheduler": "sync"},
    THREADS: {"daskgrad.inline.seconds": 0},
    DEFAULT: {},
}
WARM = 3  # calls


def term(item: Any, x: Any) -> Any:
    return embedded_atom(np, item * x)


@contextlib.contextmanager
def sums(size: int, count: int) -> Iterator[dict[str, Program]]:
    random = numpy.random.default_rng(size)
    items = [1.0 + 0.2 * random.random(size) for _ in range(count)]
    atom = dg.delayed(term, compile=True)  # its NumPy is an argument: nobody knows which one
    gradient = dg.value_and_grad(lambda x: dg.map_sum(atom, items, x))

    def run(way: str, number: int) -> Any:
        with dask.config.set(WAYS[way]):
            value, slope = gradient(numpy.full(size, 1.0 + 1e-3 * number))
        return value, slope.tobytes()

    for way in WAYS:
        for number in range(WARM):
            run(way, number)
    yield {cell(size, way): functools.partial(run, way) for way in WAYS}


def cell(size: int, way: str) -> str:
    return f"{size} numbers, {way}"


def require_same_bits(results: Sequence[Sequence[Any]]) -> None:
    for found in zip(*results, strict=True):
        if len({each.result for each in found}) > 1:
            raise SystemExit("the ways have other bits")


def summary(seconds: Mapping[str, list[float]], sizes: Sequence[int]) -> list[dict[str, Any]]:
    return [
        {
            "numbers": size,
            **{way: statistics.median(seconds[cell(size, way)]) for way in WAYS},
            "all seconds": {way: seconds[cell(size, way)] for way in WAYS},
        }
        for size in sizes
    ]


def make_claims(rows: Sequence[dict[str, Any]]) -> list[Claim]:
    claims = []
    for row in [row for row in rows if row["numbers"] in CLAIMED]:
        best = min((LINE, THREADS), key=row.__getitem__)
        text = f"items of {row['numbers']:,} numbers, the default over the quicker way ({best})"
        claims.append(at_most(text, row[DEFAULT] / row[best], 1.2))
    return claims


def draw(rows: Sequence[dict[str, Any]], stated: str) -> Any:
    from plots import lines, page  # here: processes that a benchmark starts do not need Bokeh

    sizes = [row["numbers"] for row in rows]
    curves = {way: [row[way] / row[LINE] for row in rows] for way in WAYS}
    plot = lines("one process", sizes, curves, ("numbers of an item", "time over that in line"))
    return page("Sums on threads, by the size of their arrays", stated, plot)


def main() -> int:
    arguments = options(__doc__).parse_args()
    arguments.rounds = arguments.rounds or (2 if arguments.quick else 20)
    sizes = SIZES[:2] if arguments.quick else SIZES
    numbers = NUMBERS // 100 if arguments.quick else NUMBERS
    setups = [functools.partial(sums, n, min(MOST_ITEMS, max(2, numbers // n))) for n in sizes]
    with hosted(*setups) as programs:
        found = in_rounds(programs, arguments.rounds, lambda number: number)
    for size in sizes:
        require_same_bits([found[cell(size, way)] for way in WAYS])
    seconds = {name: [each.seconds for each in times] for name, times in found.items()}
    rows = summary(seconds, sizes)
    means = [statistics.mean(row["all seconds"][DEFAULT]) for row in rows]
    cells = [
        (f"{row['numbers']:,}", *[f"{t * 1e3:.1f}" for t in (*[row[way] for way in WAYS], mean)])
        for row, mean in zip(rows, means, strict=True)
    ]
    heads = [*[f"{way}, ms" for way in WAYS], "default, mean"]
    print(table(("numbers of an item", *heads), cells))
    drawing = functools.partial(draw, rows)
    return finish("threads", arguments, {"sums": rows}, make_claims(rows), drawing)


if __name__ == "__main__":
    sys.exit(main())
