"""Into how many slices ``reduce_sum`` is to cut arrays: the rule against every other cut.

    python benchmarks/slices.py [--quick] [--rounds N] [--results DIR]

What is measured: value and gradient of a Poisson regression with random intercepts, a model that is
NumPy on whole columns (counts, four regressors, the group of each row; 1,000 groups), of 10^4, 10^5
and 10^6 rows in 1, 2, 4 ... 64 slices and as ``grainsize="auto"`` cuts them: in line, in one thread
without a cluster, and placed on two workers of a thread each (``dg.place(dg.zip(...))``; slices
that somebody asks for are a power of two of rows there). Further 2 x 10^5 rows in 1 and 16 slices,
in line and on one worker; and 50 leapfrog steps of a sampler over 2 x 10^5 and 10^6 rows, with a
prior beside the sum, placed on the two workers, and in line.

The peers are plain autograd, the same model of all rows in one process; for 16 slices autograd,
slice by slice, whose gradients are added up by hand; and for the steps what no program on two
workers can be quicker than: autograd on half of the rows, and an empty ``client.run``.

Each program runs some calls a round, in random order. A time is the processor time of the client
and of the worker that has most of it, which is what a call takes where nobody else uses the cores;
what the clock says is beside it. A ratio is the median over the rounds.

The least of many noisy times is less than the true one of any cut. So the best cut of the even
rounds, which is the one with the least median there, is compared with "auto" in the odd rounds, and
the other way round. Where "auto" makes slices that are among the cuts, it is the same program, and
runs once. What runs in one process shares its columns, and has a process for each number of rows,
which has freed a large array before, as those that read data have: malloc then keeps what a call
frees. In a new process it gives that back after each call if it is more than twice the largest
array, so that 2 slices of 10^5 rows take twice as long as 4, and autograd longer than either. For
the steps autograd has a process of both kinds: to have memory from the system again and again takes
it longer than all else, and what placing is worth depends on that.

Claims: "auto" takes at most 1.1 times the best cut's time, in line and placed, for each number of
rows; 16 slices of 2 x 10^5 rows in line no longer than autograd's, slice by slice; autograd in a
new process takes at least 1.5 times as long for the leapfrog steps of 2 x 10^5 rows as two workers
do, and these take at most 1.5 times the least time possible. None where malloc keeps the memory:
then what the two workers save is what it takes to call them.
"""

import contextlib
import functools
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import autograd
import autograd.numpy as np
import dask
import numpy
from distributed import Client

import daskgrad as dg
from hosts import Program, cluster, hosted, in_rounds
from report import Claim, at_least, at_most, finish, options, ratio, table

ROWS = (10**4, 10**5, 10**6)
CUTS = ("auto", 1, 2, 4, 8, 16, 32, 64)  # slices
CALLS = 10**6  # rows that a program goes through in a round, in so many calls as it takes,
MOST_CALLS = 30  # or in so many
OF_SLICES = 200_000  # rows
LARGE = 3 * 2**20  # numbers in an array after which malloc keeps what is freed
GROUPS = 1000
STEPS = 50
PLAIN, LINE, PLACED, ALONE = "autograd", "in line", "placed", "on one worker"
KEPT = "autograd, memory kept"
BY_HAND = "autograd, slice by slice"
IN_LINE = {"scheduler": "sync"}
LEAST = "half of autograd and an empty call"

Point = tuple[numpy.ndarray, numpy.ndarray]


class Times(NamedTuple):
    """Of one call: processor seconds on the longest way, and what the clock says."""

    processor: float
    clock: float


@functools.cache
def make_columns(count: int) -> tuple:
    generator = numpy.random.default_rng(count)
    regressors = generator.standard_normal((count, 4))
    counts = generator.poisson(numpy.exp(regressors @ (0.1, -0.2, 0.3, 0.0)))
    return counts, regressors, generator.integers(0, GROUPS, count)


def likelihood(columns: Any, beta: Any, z: Any) -> Any:
    counts, regressors, groups = columns
    eta = np.dot(regressors, beta) + z[groups]
    return np.sum(counts * eta - np.exp(eta))


def prior(beta: Any, z: Any) -> Any:
    return -0.5 * (np.sum(beta**2) + np.sum(z**2))


def start() -> Point:
    return numpy.zeros(4), numpy.zeros(GROUPS)


def by_autograd(count: int) -> Program:
    columns = make_columns(count)
    gradient = autograd.value_and_grad(lambda point: likelihood(columns, *point))
    return lambda point: gradient(point)


def by_slices(sliced: Any, **options: Any) -> Program:
    gradient = dg.value_and_grad(
        lambda beta, z: dg.reduce_sum(likelihood, sliced, beta, z, **options), (0, 1)
    )
    return lambda point: gradient(*point)


def checked(program: Program, count: int) -> Program:
    """The program, if it finds autograd's value and gradient but for rounding."""
    point = numpy.full(4, 0.1), numpy.linspace(-0.1, 0.1, GROUPS)
    value, gradient = program(point)
    right, derivative = by_autograd(count)(point)
    numpy.testing.assert_allclose(value, right, rtol=1e-9)
    for found, expected in zip(gradient, derivative, strict=True):
        numpy.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * count)
    return program


# ------------------------------------------------------------------------------------- programs


def repeated(program: Program, calls: int, client: Client | None = None) -> Program:
    """Calls a program several times, at other points."""

    def run(number: int) -> Times:
        points = [(numpy.full(4, 1e-3 * number * k), numpy.zeros(GROUPS)) for k in range(calls)]
        with measured(client) as times:
            for point in points:
                program(point)
        return Times(*[seconds / calls for seconds in times])

    return run


@contextlib.contextmanager
def measured(client: Client | None) -> Iterator[list[float]]:
    """Fills in the seconds of what is done in the context."""
    times: list[float] = []
    workers = {} if client is None else client.run(time.process_time)
    here, clock = time.process_time(), time.perf_counter()
    yield times
    here, clock = time.process_time() - here, time.perf_counter() - clock
    later = {} if client is None else client.run(time.process_time)
    times += [here + max([later[each] - workers[each] for each in later], default=0.0), clock]


def calls_of(count: int) -> int:
    return max(3, min(MOST_CALLS, CALLS // count))


def cell(mode: str, count: int, cut: Any = "") -> str:
    slices = "" if cut == "" else f", {cut}" if cut == "auto" else f", {cut} slices"
    return f"{mode}, {count} rows{slices}"


def rows_of(mode: str, count: int, cut: int) -> int:
    """How many rows a slice has; slices of placed columns are a power of two of them."""
    size = -(-count // cut)
    return size if mode == LINE else min(count, 1 << (size - 1).bit_length())


@functools.cache
def automatic(count: int) -> int:
    """How many rows a slice has as "auto" cuts them, which is the same in line and placed."""
    found = []

    def of_slice(columns: Any, x: Any) -> Any:
        found.append(len(columns[0]))
        return x

    dg.grad(lambda x: dg.reduce_sum(of_slice, dg.zip(*make_columns(count)), x))(0.0)
    return found[0]


def same_as_auto(mode: str, count: int, cuts: tuple) -> Any:
    """The cut among these that "auto" makes; None if it makes none of them."""
    size = automatic(count)
    return next((c for c in cuts if c != "auto" and rows_of(mode, count, c) == size), None)


def to_run(mode: str, count: int, cuts: tuple) -> list:
    """The cuts without the one that "auto" makes."""
    same = same_as_auto(mode, count, cuts)
    return [cut for cut in cuts if cut != same]


@contextlib.contextmanager
def in_one_process(count: int, cuts: tuple) -> Iterator[dict[str, Program]]:
    numpy.ones(LARGE)
    cuts = to_run(LINE, count, cuts)
    with dask.config.set(IN_LINE):
        programs = {cell(LINE, count, cut): in_line(count, cut) for cut in cuts}
        yield {cell(PLAIN, count): repeated(by_autograd(count), calls_of(count)), **programs}


@contextlib.contextmanager
def slice_by_slice(count: int) -> Iterator[dict[str, Program]]:
    ways = {LINE: in_line, BY_HAND: by_hand}
    cells = [(way, cut) for cut in (1, 16) for way in ways]
    with dask.config.set(IN_LINE):
        yield {cell(way, count, cut): ways[way](count, cut) for way, cut in cells}


@contextlib.contextmanager
def steps_in_one_process(peer: str, count: int, steps: int) -> Iterator[dict[str, Program]]:
    if peer == KEPT:
        numpy.ones(LARGE)
    columns = dg.zip(*make_columns(count))
    gradient = of_sum(columns) if peer == LINE else posterior(count)
    with dask.config.set(IN_LINE):
        yield {leapfrog(count, peer): trajectory(gradient, steps)}


def leapfrog(count: int, peer: str) -> str:
    return f"leapfrog, {count} rows, {peer}"


def posterior(count: int, share: int = 1) -> Callable[..., Any]:
    """The gradient of a share of the rows' likelihood, and of the prior, by autograd."""
    columns = tuple([column[: count // share] for column in make_columns(count)])
    gradient = autograd.grad(lambda point: likelihood(columns, *point) + prior(*point))
    return lambda *point: gradient(point)


def in_line(count: int, cut: Any) -> Program:
    grainsize = cut if cut == "auto" else rows_of(LINE, count, cut)
    columns = make_columns(count)
    program = by_slices(dg.zip(*columns), grainsize=grainsize)
    return repeated(checked(program, count), calls_of(count))


def by_hand(count: int, cut: int) -> Program:
    columns = make_columns(count)
    runs = [slice(start, start + count // cut) for start in range(0, count, count // cut)]
    gradients = [
        autograd.value_and_grad(
            lambda point, own=tuple([column[run] for column in columns]): likelihood(own, *point)
        )
        for run in runs
    ]

    def added(point: Point) -> Any:
        value, gradient = gradients[0](point)
        total = [each.copy() for each in gradient]
        for each in gradients[1:]:
            term, gradient = each(point)
            value += term
            for sum_, part in zip(total, gradient, strict=True):
                sum_ += part
        return value, total

    return repeated(checked(added, count), calls_of(count))


@contextlib.contextmanager
def on_two(rows: tuple[int, ...], cuts: tuple, of_slices: int, steps: int) -> Iterator[dict]:
    cells = [(count, cut) for count in rows for cut in to_run(PLACED, count, cuts)]
    with cluster(2) as client:
        programs = {cell(PLACED, *each): placed(client, *each) for each in cells}
        for count in (of_slices, rows[-1]):
            gradient = of_sum(dg.place(dg.zip(*make_columns(count))))
            programs[leapfrog(count, PLACED)] = trajectory(gradient, steps, client)
            least = half_and_a_call(count, client)
            programs[leapfrog(count, LEAST)] = trajectory(least, steps, client)
        yield programs


def of_sum(columns: Any) -> Callable[..., Any]:
    """The gradient of the likelihood as a sum of slices, and of the prior."""
    of_prior = dg.delayed(prior)
    return dg.grad(
        lambda beta, z: dg.reduce_sum(likelihood, columns, beta, z) + of_prior(beta, z), (0, 1)
    )


def half_and_a_call(count: int, client: Client) -> Callable[..., Any]:
    half = posterior(count, share=2)

    def gradient(*point: Any) -> Any:
        client.run(nothing)
        return half(*point)

    return gradient


def nothing() -> None:
    """What an empty call does."""


@contextlib.contextmanager
def on_one(of_slices: int) -> Iterator[dict[str, Program]]:
    with cluster(1) as client:
        yield {cell(ALONE, of_slices, cut): placed(client, of_slices, cut) for cut in (1, 16)}


def placed(client: Client, count: int, cut: Any) -> Program:
    grainsize = cut if cut == "auto" else rows_of(PLACED, count, cut)
    shards = dg.place(dg.zip(*make_columns(count)), grainsize)
    return repeated(checked(by_slices(shards), count), calls_of(count), client)


def trajectory(gradient: Callable[..., Any], steps: int, client: Client | None = None) -> Program:
    """Leapfrog steps of Hamiltonian Monte Carlo; the times are of one step."""

    def run(number: int) -> Times:
        generator = numpy.random.default_rng(number + 1)
        place = start()
        momentum = tuple([generator.standard_normal(each.shape) for each in place])
        with measured(client) as times:
            force = gradient(*place)
            for _ in range(steps):
                momentum = moved(momentum, force, 5e-5)
                place = moved(place, momentum, 1e-4)
                force = gradient(*place)
                momentum = moved(momentum, force, 5e-5)
        if not all(numpy.all(numpy.isfinite(each)) for each in place):
            raise ValueError("the trajectory has left the real numbers")
        return Times(*[seconds / steps for seconds in times])

    return run


def moved(place: Any, direction: Any, by: float) -> Any:
    return tuple([a + by * b for a, b in zip(place, direction, strict=True)])


# --------------------------------------------------------------------------------------- results

Seconds = Mapping[str, list[float]]


def summary(times: Mapping[str, list[Times]]) -> list[dict[str, Any]]:
    return [
        {
            "program": name,
            "processor seconds": statistics.median([each.processor for each in found]),
            "clock seconds": statistics.median([each.clock for each in found]),
            "all": found,
        }
        for name, found in times.items()
    ]


def printed(programs: list[dict[str, Any]]) -> str:
    rows = [
        (
            each["program"],
            *[f"{each[of] * 1e3:.2f}" for of in ("processor seconds", "clock seconds")],
        )
        for each in programs
    ]
    return table(("program", "processor ms", "ms by the clock"), rows)


def make_claims(
    seconds: Seconds, rows: tuple[int, ...], cuts: tuple, of_slices: int
) -> list[Claim]:
    claims = [against_best(seconds, mode, n, cuts) for mode in (LINE, PLACED) for n in rows]
    sixteen = [seconds[cell(mode, of_slices, 16)] for mode in (LINE, BY_HAND)]
    text = f"16 slices of {of_slices} rows over {BY_HAND}"
    claims.append(at_most(text, ratio(*sixteen), 1.0))
    one, two = [seconds[leapfrog(of_slices, of)] for of in (PLAIN, PLACED)]
    text = f"leapfrog steps of {of_slices} rows, {PLAIN} in one process over {PLACED}"
    claims.append(at_least(text, ratio(one, two), 1.5))
    for count in (of_slices, rows[-1]):
        steps = [seconds[leapfrog(count, of)] for of in (PLACED, LEAST)]
        claims.append(at_most(f"leapfrog steps of {count} rows over {LEAST}", ratio(*steps), 1.5))
    return claims


def against_best(seconds: Seconds, mode: str, count: int, cuts: tuple) -> Claim:
    """Each half of the rounds says which cut is the best, and the other half how good it is."""
    found = {cut: seconds[cell(mode, count, cut)] for cut in cuts if cut != "auto"}
    auto, bests, ratios = seconds[cell(mode, count, "auto")], [], []
    halves = [slice(0, None, 2), slice(1, None, 2)] if len(auto) > 1 else [slice(None)]
    for half, others in zip(halves, halves[::-1], strict=True):
        best = min(found, key=lambda cut: statistics.median(found[cut][others]))
        ratios += [a / b for a, b in zip(auto[half], found[best][half], strict=True)]
        bests.append(str(best))
    named = " or ".join(dict.fromkeys(bests))
    text = f'"auto" of {count} rows over the best cut ({named}), {mode}'
    return at_most(text, statistics.median(ratios), 1.1)


def with_aliases(
    times: Mapping[str, list[Times]], rows: tuple[int, ...], cuts: tuple
) -> dict[str, list[Times]]:
    """The times, those of "auto" also under the name of the cut that it makes."""
    found = dict(times)
    for mode in (LINE, PLACED):
        for count in rows:
            same = same_as_auto(mode, count, cuts)
            if same is not None:
                found[cell(mode, count, same)] = found[cell(mode, count, "auto")]
    return found


def draw(seconds: Seconds, rows: tuple[int, ...], cuts: tuple, stated: str) -> Any:
    from plots import lines, page  # here: processes that a benchmark starts do not need Bokeh

    numbers = [cut for cut in cuts if cut != "auto"]

    def plot(mode: str) -> Any:
        curves = {
            f"{n:,} rows": [
                ratio(seconds[cell(mode, n, cut)], seconds[cell(PLAIN, n)]) for cut in numbers
            ]
            for n in rows
        }
        return lines(mode, numbers, curves, ("slices", "processor time over autograd's"))

    title = "A Poisson regression, by the number of slices"
    return page(title, stated, plot(LINE), plot(PLACED))


def main() -> int:
    arguments = options(__doc__).parse_args()
    arguments.rounds = arguments.rounds or (3 if arguments.quick else 16)
    rows, cuts = (ROWS[:1], ("auto", 1, 4)) if arguments.quick else (ROWS, CUTS)
    of_slices, steps = (ROWS[0], 3) if arguments.quick else (OF_SLICES, STEPS)
    setups = [
        *[functools.partial(in_one_process, count, cuts) for count in rows],
        functools.partial(slice_by_slice, of_slices),
        *[
            functools.partial(steps_in_one_process, peer, count, steps)
            for count in {of_slices, rows[-1]}
            for peer in (PLAIN, KEPT, LINE)
        ],
        functools.partial(on_two, rows, cuts, of_slices, steps),
        functools.partial(on_one, of_slices),
    ]
    with hosted(*setups) as programs:
        found = in_rounds(programs, arguments.rounds, lambda number: number)
    times = {name: [once.result for once in each] for name, each in found.items()}
    times = with_aliases(times, rows, cuts)
    seconds = {name: [each.processor for each in all_] for name, all_ in times.items()}
    results = summary(times)
    print(printed(results))
    claims = make_claims(seconds, rows, cuts, of_slices)
    drawing = functools.partial(draw, seconds, rows, cuts)
    return finish("slices", arguments, {"programs": results}, claims, drawing)


if __name__ == "__main__":
    sys.exit(main())
