"""A domain that is cut into 2 x 2 blocks: time and bytes of a step, value and gradient.

    python benchmarks/domains.py [--quick] [--rounds N] [--results DIR]

What is measured: the time by the clock of value and gradient of 16 steps of a diffusion in a medium
(periodic, depth 1, double precision), with respect to the first state and the medium, over the
number of steps; medians of rounds in which all take turns, each in a process of its own with one
BLAS thread. Blocks of 256 x 256 and of 1,024 x 1,024 numbers; exchanges after 1, 4 and 8 steps.

The programs:

- one domain: ``dg.scan`` of the undivided domain, all states kept: one core;
- threads: ``dg.map_overlap`` over 2 x 2 blocks, on two threads;
- processes: the same on a cluster of two worker processes;
- weak scaling: one block on one thread, two and four blocks on two threads.

Bytes: what the tasks that cut edges return in one evaluation, which is what travels where blocks
are on different workers, over what halos of that depth must carry.

Claims: no gradient differs from that of one domain by more than 1e-12; edges have the bytes that
halos of their depth must carry, within 10 %.
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import dask
import numpy as np
from dask.callbacks import Callback

import daskgrad as dg
from hosts import Program, cluster, hosted, in_rounds
from report import Claim, at_most, finish, options, table

SIDES, QUICK_SIDES = (256, 1024), (32,)
FUSED = (1, 4, 8)
STEPS, CUT = 16, (2, 2)
ONE, THREADS, PROCESSES = "one domain", "threads", "processes"


class Setting(NamedTuple):
    where: str
    side: int  # of a block
    fuse: int
    blocks: tuple[int, int] = CUT

    def __str__(self) -> str:
        many = "" if self.blocks == CUT else f", {self.blocks[0] * self.blocks[1]} blocks"
        return f"{self.where}, {self.side}, k = {self.fuse}{many}"


# ------------------------------------------------------------------------------------ the domain


def step(u: Any, c: Any) -> Any:
    inner = u[1:-1, 1:-1]
    around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * inner
    return inner + 0.1 * c[1:-1, 1:-1] * around - 0.01 * inner * inner


def loss(u: Any) -> Any:
    return (u * u).sum()


def wrapped(a: Any) -> Any:
    a = np.concatenate([a[-1:], a, a[:1]], 0)
    return np.concatenate([a[:, -1:], a, a[:, :1]], 1)


def whole_step(u: Any, c: Any) -> Any:
    return step(wrapped(u), wrapped(c))


def of_domain(p: Any) -> Any:
    return dg.delayed(loss)(dg.scan(whole_step, p["u"], STEPS, p["c"], checkpoints=STEPS))


def of_blocks(p: Any, fuse: int) -> Any:
    last = dg.map_overlap(step, p["u"], p["c"], steps=STEPS, fuse=fuse)
    return dg.sum(last.map(loss))


def point(shape: tuple[int, int], number: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(number + 1)
    return {"u": generator.normal(size=shape), "c": generator.uniform(0.5, 1.0, shape)}


# -------------------------------------------------------------------------------------- programs


@contextlib.contextmanager
def programs_of(where: str, settings: list[Setting]) -> Iterator[dict[str, Program]]:
    """Functions of a round's number, which return the gradient, as whole arrays."""
    with contextlib.ExitStack() as stack:
        if where == PROCESSES:
            stack.enter_context(cluster(2))
        else:
            stack.enter_context(dask.config.set(scheduler="threads", num_workers=2))
        yield {str(each): functools.partial(gradient, each) for each in settings}


def gradient(setting: Setting, number: int) -> Any:
    shape = tuple([count * setting.side for count in setting.blocks])
    arrays = point(shape, number)
    if setting.where == ONE:
        with dask.config.set(scheduler="sync"):
            return dg.value_and_grad(of_domain)(arrays)
    grids = {name: dg.grid(array, setting.blocks) for name, array in arrays.items()}
    value, found = dg.value_and_grad(lambda p: of_blocks(p, setting.fuse))(grids)
    return value, {name: each.to_array() for name, each in found.items()}


def all_settings(sides: tuple[int, ...]) -> dict[str, list[Setting]]:
    found = {ONE: [Setting(ONE, side, STEPS) for side in sides]}
    for where in (THREADS, PROCESSES):
        found[where] = [Setting(where, side, fuse) for side in sides for fuse in FUSED]
    side = max(sides)
    found[THREADS] += [Setting(THREADS, side, 4, blocks) for blocks in ((1, 1), (1, 2))]
    return found


# ----------------------------------------------------------------------------------------- bytes


class Edges(Callback):
    """Adds up the bytes of what tasks that cut edges return: lists of arrays, for a neighbour."""

    nbytes = 0

    def _posttask(self, key: Any, result: Any, *others: Any) -> None:
        if type(result) is list:
            self.nbytes += sum([array.nbytes for edge in result for array in edge])


def bytes_of_edges(side: int, fuse: int) -> tuple[float, float]:
    """What the blocks sent each other in one forward pass, and what their halos had to carry: of
    the state in each exchange, and of the medium once."""
    arrays = point((2 * side, 2 * side), 0)
    grids = {name: dg.grid(array, CUT) for name, array in arrays.items()}
    with Edges() as edges, dask.config.set(scheduler="sync"):
        dg.value_and_grad(lambda p: of_blocks(p, fuse))(grids)
    halo = 4 * 8 * ((side + 2 * fuse) ** 2 - side**2)
    return edges.nbytes, halo * (STEPS // fuse + 1)


# --------------------------------------------------------------------------------------- telling


def rows_of(measured: dict[str, list[Any]], settings: list[Setting]) -> list[dict[str, Any]]:
    rows = []
    for each in settings:
        times = sorted([one.seconds for one in measured[str(each)]])
        median = times[len(times) // 2] / STEPS
        one = [o.seconds for o in measured[str(Setting(ONE, each.side, STEPS))]]
        pairs = zip(measured[str(each)], one, strict=True)
        over = sorted([a.seconds / b for a, b in pairs])[len(one) // 2]
        rows.append({"name": str(each), "seconds": median, "over": over, **each._asdict()})
    return rows


def worst(measured: dict[str, list[Any]], settings: list[Setting]) -> float:
    """The greatest difference of a gradient from that of one domain, over the greatest entry."""
    found = 0.0
    for each in settings:
        if each.blocks != CUT:
            continue
        wanted = measured[str(Setting(ONE, each.side, STEPS))][-1].result
        value, gradients = measured[str(each)][-1].result
        for name in ("u", "c"):
            scale = np.max(np.abs(wanted[1][name]))
            found = max(found, np.max(np.abs(gradients[name] - wanted[1][name])) / scale)
        found = max(found, abs(value - wanted[0]) / abs(wanted[0]))
    return float(found)


def printed(rows: list[dict[str, Any]]) -> str:
    lines = [(r["name"], f"{1e3 * r['seconds']:.2f}", f"{r['over']:.2f}") for r in rows]
    return table(
        ("where, side of a block, exchange after k", "ms a step", "over one domain"), lines
    )


def claims_of(
    measured: dict[str, list[Any]], settings: list[Setting], sides: tuple[int, ...]
) -> Iterator[Claim]:
    yield at_most("differences from one domain, relative", worst(measured, settings), 1e-12)
    for side in sides:
        for fuse in FUSED:
            sent, must = bytes_of_edges(side, fuse)
            yield at_most(f"bytes of edges, {side}, k = {fuse}", sent / must, 1.1)


def draw(rows: list[dict[str, Any]], stated: str) -> Any:
    from plots import bars, page  # here: processes that a benchmark starts do not need Bokeh

    names = [row["name"] for row in rows]
    plot = bars(names, [row["over"] for row in rows], "time over that of one domain", "linear")
    return page("A domain in 2 x 2 blocks: value and gradient", stated, plot)


def main() -> int:
    arguments = options(__doc__).parse_args()
    arguments.rounds = arguments.rounds or (1 if arguments.quick else 5)
    sides = QUICK_SIDES if arguments.quick else SIDES
    settings = all_settings(sides)
    setups: list[Callable] = [
        functools.partial(programs_of, where, each) for where, each in settings.items()
    ]
    with hosted(*setups) as programs:
        measured = in_rounds(programs, arguments.rounds, int)
    flat = [each for group in settings.values() for each in group]
    rows = rows_of(measured, flat)
    print(printed(rows))
    claims = list(claims_of(measured, flat, sides))
    return finish("domains", arguments, {"domains": rows}, claims, functools.partial(draw, rows))


if __name__ == "__main__":
    sys.exit(main())
