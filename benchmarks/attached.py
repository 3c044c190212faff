"""Steps of parameters that belong to placed items: attached to these, sent with each call, here.

    python benchmarks/attached.py [--quick] [--rounds N] [--results DIR]

What is measured: the time by the clock of one step: value and gradient of a sum over 1,024 items,
each with parameters of its own, and Adam for these and for the shared ones. An item multiplies a
matrix by its parameters, some times over. Each round runs five steps of each program; a ratio is
the median over the rounds.

The programs: one process, without a cluster; two workers of one thread to which the
parameters are sent with each call (a zipped array), and that send gradients back; and two workers
where the parameters are attached to the items. Before anything is measured, the values of five
steps must be the same bits. In the numbers of parameters an item has, from 16 to 4,096.

Claim: at the largest number attached parameters are at least twice as fast as those that are sent.
"""

import contextlib
import functools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import autograd.numpy as np
import numpy

import daskgrad as dg
from hosts import cluster, hosted, in_rounds
from report import at_least, finish, options, ratio, table

WIDTHS = (16, 256, 4_096)  # parameters of an item
ITEMS, ROWS, STEPS = 1024, 8, 5
HERE, SENT, ATTACHED = "one process", "two workers, sent", "two workers, attached"


def term(pair: Any, x: Any) -> Any:
    z, matrix = pair
    h = np.tanh(matrix @ (z * x))
    return np.sum(h**2) + 1e-3 * np.sum(z**2)


def stepping(width: int, is_attached: bool) -> Callable[[int], tuple[float, float]]:
    """A function that takes some steps; the value of the last one, and the seconds of one."""
    generator = numpy.random.default_rng(0)
    shards = dg.place([generator.normal(size=(ROWS, width)) for _ in range(ITEMS)])
    start = generator.normal(size=(ITEMS, width))
    params = {"x": numpy.ones(width), "z": shards.attach(start) if is_attached else start}
    optimiser = dg.optim.Adam(1e-4)
    state = optimiser.init(params)
    step = dg.value_and_grad(lambda x, z: dg.map_sum(term, dg.zip(z, shards), x), (0, 1))

    def steps(_: int) -> tuple[float, float]:
        begin = time.perf_counter()
        for _ in range(STEPS):
            value, (of_x, of_z) = step(params["x"], params["z"])
            optimiser.update(params, {"x": of_x, "z": of_z}, state)
        return value, (time.perf_counter() - begin) / STEPS

    return steps


def programs(name: str, widths: tuple[int, ...]) -> dict[str, Callable]:
    return {f"{name} {width}": stepping(width, name == ATTACHED) for width in widths}


@contextlib.contextmanager
def here(widths: tuple[int, ...]) -> Iterator[dict[str, Callable]]:
    yield programs(HERE, widths)


@contextlib.contextmanager
def on_workers(name: str, widths: tuple[int, ...]) -> Iterator[dict[str, Callable]]:
    with cluster(2):
        yield programs(name, widths)


def measured(widths: tuple[int, ...], rounds: int) -> dict[str, list[float]]:
    setups = [
        functools.partial(here, widths),
        *[functools.partial(on_workers, name, widths) for name in (SENT, ATTACHED)],
    ]
    with hosted(*setups) as hosts:
        for width in widths:
            runs = {name: run(0) for name, run in hosts.items() if name.endswith(f" {width}")}
            values = {name: run.result[0] for name, run in runs.items()}
            if len(set(values.values())) > 1:
                raise SystemExit(f"the values of some steps differ: {values}")
        found = in_rounds(hosts, rounds, lambda number: number + 1)
    return {name: [run.result[1] for run in runs] for name, runs in found.items()}


# ----------------------------------------------------------------------------------- telling


def summary(times: dict[str, list[float]], widths: tuple[int, ...]) -> list[dict[str, Any]]:
    return [
        {
            "width": width,
            **{n: statistics.median(times[f"{n} {width}"]) for n in (HERE, SENT, ATTACHED)},
            "over sent": ratio(times[f"{SENT} {width}"], times[f"{ATTACHED} {width}"]),
            "over here": ratio(times[f"{HERE} {width}"], times[f"{ATTACHED} {width}"]),
        }
        for width in widths
    ]


def printed(found: list[dict[str, Any]]) -> str:
    lines = [
        (
            f"{each['width']:,}",
            *[f"{each[name] * 1e3:.1f} ms" for name in (HERE, SENT, ATTACHED)],
            f"{each['over sent']:.2f}",
            f"{each['over here']:.2f}",
        )
        for each in found
    ]
    return table(("parameters", HERE, SENT, ATTACHED, "sent / attached", "here / attached"), lines)


def draw(found: list[dict[str, Any]], stated: str) -> Any:
    from plots import bars, page  # here: processes that a benchmark starts do not need Bokeh

    names = [f"{each['width']:,} parameters an item" for each in found]
    plot = bars(names, [each["over sent"] for each in found], "sent / attached", "linear")
    return page("Steps of parameters of items", stated, plot)


def main() -> int:
    arguments = options(__doc__).parse_args()
    arguments.rounds = arguments.rounds or (3 if arguments.quick else 15)
    widths = WIDTHS[:2] if arguments.quick else WIDTHS
    times = measured(widths, arguments.rounds)
    found = summary(times, widths)
    print(printed(found))
    claims = [
        at_least("sent with each call: time over attached", found[-1]["over sent"], 2.0),
    ]
    content = {"programs": found, "all seconds": times}
    return finish("attached", arguments, content, claims, functools.partial(draw, found))


if __name__ == "__main__":
    sys.exit(main())
