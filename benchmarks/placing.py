"""What it costs to put items on workers: many small ones once, and parameters with every call.

    python benchmarks/placing.py [--quick] [--rounds N] [--results DIR]

What is measured is processor time, on one cluster of two worker processes with a thread each, in
interleaved rounds; a time is the median over the rounds, a ratio the median of the rounds' ratios.

- Placing: ``dg.place(items, grainsize=1)`` of 10^6 items (floats, pairs of floats, rows of an array
  of 4 columns; 10^5 arrays of 4 numbers), and ``pickle.dumps`` of the same items beside it; for the
  rows, which that copies as they are, ``client.scatter`` of the array's halves. Counted is the
  client's process, all threads.
- Parameters: value and gradient of a sum over models that have a matrix of 128 x 128 parameters
  each, 512 of them, with respect to the matrices and to what all models see. A call is counted by
  the process that is busiest in it, client or worker. The peers are the serial loop with autograd
  in the client's process, the sum over the matrices (a variable's items), and the same with the
  matrices zipped with placed numbers that nobody uses.

Claims: placing takes at most 10 times as long as pickling, and of rows at most 3 times as long as
scattering; the serial loop keeps a process busy at
least as long as the sum over the matrices does, and that one at most 1.1 times as long as the zip
with placed numbers.
"""

import contextlib
import functools
import pickle
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import autograd
import autograd.numpy as np
import numpy
from distributed import Client

import daskgrad as dg
from hosts import Program, cluster, hosted, in_rounds
from report import Claim, at_least, at_most, finish, options, ratio, table

MANY, QUICK_MANY = 10**6, 10**4
WIDTH, MODELS, QUICK_MODELS = 128, 512, 16
LAYERS = 6
CALLS = 4  # of one round

KINDS: dict[str, Callable[[int], Any]] = {
    "floats": lambda n: list(map(float, range(n))),
    "pairs": lambda n: [(float(number), 1.0) for number in range(n)],
    "rows": lambda n: numpy.ones((n, 4)),
    "arrays": lambda n: [numpy.full(4, float(number)) for number in range(n // 10)],
}
LOOP, OURS, ZIPPED = "serial loop", "items of a variable", "zipped with placed numbers"


# ------------------------------------------------------------------------------------- placing


def processor_seconds(function: Callable[[], Any]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def pickled(items: Any, _: Any) -> float:
    return processor_seconds(lambda: pickle.dumps(items, protocol=5))


def scattered(client: Client, items: numpy.ndarray, _: Any) -> float:
    halves = numpy.array_split(items, 2)
    start = time.process_time()
    futures = client.scatter(halves, hash=False)
    seconds = time.process_time() - start
    client.cancel(futures)
    return seconds


def placed(items: Any, _: Any) -> float:
    start = time.process_time()
    with dg.place(items, grainsize=1):
        return time.process_time() - start


# ---------------------------------------------------------------------------------- parameters


def model(matrix: Any, x: Any) -> Any:
    for _ in range(LAYERS):
        x = np.tanh(matrix @ x)
    return np.sum(x)


def of_pair(pair: tuple[Any, Any], x: Any) -> Any:
    return model(pair[0], x)


value_and_grad = autograd.value_and_grad(model, (0, 1))


def by_loop(matrices: list[Any], x: Any) -> Any:
    results = [value_and_grad(matrix, x) for matrix in matrices]
    values, gradients = zip(*results, strict=True)
    own, shared = zip(*gradients, strict=True)
    return sum(values), (list(own), sum(shared))


def by_items(matrices: list[Any], x: Any) -> Any:
    return dg.value_and_grad(lambda p, x: dg.map_sum(model, p, x), (0, 1))(matrices, x)


def by_zip(shards: Any, matrices: list[Any], x: Any) -> Any:
    summed = dg.value_and_grad(lambda p, x: dg.map_sum(of_pair, dg.zip(p, shards), x), (0, 1))
    return summed(matrices, x)


def busiest(client: Client, program: Callable[..., Any], matrices: list[Any], _: Any) -> float:
    """The processor seconds of a call, of the process that has most of them."""
    x, before = numpy.linspace(-1.0, 1.0, WIDTH), times_of_workers(client)
    own = processor_seconds(lambda: [program(matrices, x) for _ in range(CALLS)])
    after = times_of_workers(client)
    return max(own, *[after[address] - before[address] for address in before]) / CALLS


def times_of_workers(client: Client) -> dict[str, float]:
    return client.run(time.process_time)


def require_same(programs: dict[str, Callable[..., Any]], matrices: list[Any]) -> None:
    x = numpy.linspace(-1.0, 1.0, WIDTH)
    value, (own, shared) = programs[LOOP](matrices, x)
    for program in programs.values():
        other, (other_own, other_shared) = program(matrices, x)
        same = [numpy.isclose(value, other), numpy.allclose(shared, other_shared)]
        if not all([*same, numpy.allclose(own, other_own)]):
            raise ValueError("a value or gradient is wrong")


@contextlib.contextmanager
def all_programs(many: int, models: int) -> Iterator[dict[str, Program]]:
    generator = numpy.random.default_rng(0)
    matrices = [generator.normal(size=(WIDTH, WIDTH)) / WIDTH**0.5 for _ in range(models)]
    with cluster(2) as client:
        shards = dg.place(list(range(models)))
        calls = {LOOP: by_loop, OURS: by_items, ZIPPED: functools.partial(by_zip, shards)}
        require_same(calls, matrices)
        given = {kind: make(many) for kind, make in KINDS.items()}
        yield {
            **{f"pickling {kind}": functools.partial(pickled, i) for kind, i in given.items()},
            "scattering rows": functools.partial(scattered, client, given["rows"]),
            **{f"placing {kind}": functools.partial(placed, i) for kind, i in given.items()},
            **{
                name: functools.partial(busiest, client, program, matrices)
                for name, program in calls.items()
            },
        }


# -------------------------------------------------------------------------------- the results


def make_claims(seconds: dict[str, list[float]]) -> list[Claim]:
    placing = [
        at_most(
            f"time of placing {kind} over that of pickling them",
            ratio(seconds[f"placing {kind}"], seconds[f"pickling {kind}"]),
            10.0,
        )
        for kind in KINDS
        if kind != "rows"
    ]
    of_rows = ratio(seconds["placing rows"], seconds["scattering rows"])
    of_loop, of_zip = [ratio(seconds[LOOP], seconds[OURS]), ratio(seconds[OURS], seconds[ZIPPED])]
    return [
        *placing,
        at_most("time of placing rows over that of scattering their array", of_rows, 3.0),
        at_least("serial loop's time over the busiest process's", of_loop, 1.0),
        at_most("time of a variable's items over that beside placed numbers", of_zip, 1.1),
    ]


def draw(rows: list[dict[str, Any]], stated: str) -> Any:
    from plots import bars, page  # here: processes that a benchmark starts do not need Bokeh

    names, times = [row["program"] for row in rows], [row["seconds"] * 1e3 for row in rows]
    plot = bars(names, times, "processor time (ms, logarithmic)", "log")
    return page("Items on workers: placed once, or sent with every call", stated, plot)


def main() -> int:
    arguments = options(__doc__).parse_args()
    arguments.rounds = arguments.rounds or (2 if arguments.quick else 9)
    sizes = (QUICK_MANY, QUICK_MODELS) if arguments.quick else (MANY, MODELS)
    with hosted(functools.partial(all_programs, *sizes)) as programs:
        measured = in_rounds(programs, arguments.rounds, lambda number: None)
    seconds = {name: [once.result for once in times] for name, times in measured.items()}
    rows = [
        {"program": name, "seconds": statistics.median(times), "all seconds": times}
        for name, times in seconds.items()
    ]
    print(table(("program", "ms"), [(r["program"], f"{r['seconds'] * 1e3:.1f}") for r in rows]))
    drawing = functools.partial(draw, rows)
    return finish("placing", arguments, {"measured": rows}, make_claims(seconds), drawing)


if __name__ == "__main__":
    sys.exit(main())
