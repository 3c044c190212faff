"""A long loop over time: memory and time of its gradient, for several ways to keep its states.

    python benchmarks/loops.py [--quick] [--rounds N] [--results DIR]

What is measured: value and gradient, with respect to the first state and a field that all steps
share, of 1,000 steps of a nonlinear diffusion of 200 x 200 numbers. Time is by the clock, medians
of rounds in which the programs take turns, each in a process of its own; memory is the most that
the process held in one call beyond what it held before, in states (320 kB each). All runs in one
thread: with several, what one has freed may stay with it, and memory is up to twice as much. What a
step takes itself, with its tape and the gradients, is some 20 to 25 of them.

The programs:

- every tape: the loop as one model, whose tape holds all steps;
- every state: ``dg.scan`` with ``checkpoints=1000``: no step runs again before it is traced;
- auto: ``dg.scan``: each step runs at most twice;
- 32, 12 states: ``checkpoints=32`` and 12;
- 10 MB: ``memory="10 MB"``;
- JAX: ``lax.scan`` over 32 segments of a checkpointed ``lax.scan``, compiled.

On a cluster: four loops at once with ``checkpoints=10`` on two worker processes of one thread, and
the most that each of them held. The gradients are compared: those of ``scan`` have the same bits.

Claims: 32 states take at most 60 states of memory and 1.2 times the time of the fastest way to use
``scan``; steps run as often as the optimum says; with four loops at once a process holds at most
60.
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import contextlib
import ctypes
import functools
import gc
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import autograd.numpy as anp
import dask
import numpy as np

import daskgrad as dg
from daskgrad.loops.schedules import fewest_steps
from hosts import Program, cluster, hosted, in_rounds
from report import Claim, at_most, finish, options, table

SIZE, STEPS = 200, 1000
QUICK_STEPS = 60
KEPT = {"every state": {"checkpoints": STEPS}, "auto": {}}
KEPT |= {"32 states": {"checkpoints": 32}, "12 states": {"checkpoints": 12}}
KEPT |= {"10 MB": {"memory": "10 MB"}}
ALL_TAPES, JAX, FOUR = "every tape", "JAX", "four loops, 10 states, two processes"

# -------------------------------------------------------------------------------------- the loop


def step(u: Any, c: Any) -> Any:
    neighbours = anp.roll(u, 1, 0) + anp.roll(u, -1, 0) + anp.roll(u, 1, 1) + anp.roll(u, -1, 1)
    return u + 0.1 * c * (neighbours - 4.0 * u) - 0.01 * u * u * u


def loss(u: Any) -> Any:
    return anp.sum(u * u)


def whole_loop(u: Any, c: Any, steps: int) -> Any:
    for _ in range(steps):
        u = step(u, c)
    return loss(u)


def point(number: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(number + 1)
    shape = (SIZE, SIZE)
    return generator.normal(size=shape), generator.uniform(0.5, 1.0, shape)


# ------------------------------------------------------------------------------------- memory


class Found(NamedTuple):
    """The gradient, and the most bytes held beyond those before the call."""

    gradient: Any
    nbytes: int


def status(word: str) -> int:
    """A line of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(word))


def forget_peak() -> int:
    """The bytes that are held now, without what is free; the most is counted anew from here."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def watched(gradient: Callable[[Any], Any], argument: Any) -> Found:
    before = forget_peak()
    found = gradient(argument)
    return Found(found, status("VmHWM") - before)


# ------------------------------------------------------------------------------------ programs


def scanned(steps: int, **kept: Any) -> Callable[[Any], Any]:
    total = dg.delayed(loss)
    return dg.value_and_grad(lambda p: total(dg.scan(step, p[0], steps, p[1], **kept)))


@contextlib.contextmanager
def one_program(name: str, steps: int) -> Iterator[dict[str, Program]]:
    if name == JAX:
        gradient = jax_gradient(steps)
    elif name == ALL_TAPES:
        model = dg.delayed(whole_loop)
        gradient = dg.value_and_grad(lambda p: model(p[0], p[1], steps))
    else:
        gradient = scanned(steps, **KEPT[name])
    with dask.config.set(scheduler="sync"):
        yield {name: functools.partial(watched, gradient)}


def jax_gradient(steps: int) -> Callable[[Any], Any]:
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp

    def one(u: Any, c: Any) -> Any:
        ways = ((1, 0), (-1, 0), (1, 1), (-1, 1))
        neighbours = sum([jnp.roll(u, shift, axis) for shift, axis in ways])
        return u + 0.1 * c * (neighbours - 4.0 * u) - 0.01 * u * u * u

    inner = next(n for n in range(32, 0, -1) if steps % n == 0)

    def value(p: Any) -> Any:
        @jax.checkpoint
        def segment(u: Any) -> Any:
            return jax.lax.scan(lambda u, _: (one(u, p[1]), None), u, None, length=inner)[0]

        last, _ = jax.lax.scan(lambda u, _: (segment(u), None), p[0], None, length=steps // inner)
        return jnp.sum(last * last)

    compiled = jax.jit(jax.value_and_grad(value))
    return lambda p: jax.tree.map(np.asarray, compiled(p))


@contextlib.contextmanager
def four_at_once(steps: int) -> Iterator[dict[str, Program]]:
    """Four loops on two workers; the memory is that of the worker that held more."""
    with cluster(2) as client:
        total = dg.delayed(loss)

        def value(p: Any) -> Any:
            lasts = [dg.scan(step, u, steps, p[1], checkpoints=10) for u in p[0]]
            return dg.sum([total(last) for last in lasts])

        def run(argument: Any) -> Found:
            u, c = argument
            before = client.run(forget_peak)
            gradient = dg.value_and_grad(value)(([u * f for f in (1.0, 0.9, 0.8, 0.7)], c))
            after = client.run(status, "VmHWM")
            return Found(gradient, max([after[worker] - before[worker] for worker in before]))

        yield {FOUR: run}


# ------------------------------------------------------------------------------------- telling


def leaves_of(gradient: Any) -> list[np.ndarray]:
    value, (u, c) = gradient
    return [np.asarray(value), *(u if isinstance(u, list) else [u]), c]


def require_same(measured: dict[str, list[Any]]) -> None:
    """The gradients of the last round: the same bits by ``scan``, and about the same by others."""
    found = {n: leaves_of(each[-1].result.gradient) for n, each in measured.items() if n != FOUR}
    for name, leaves in found.items():
        exact = name in KEPT
        for leaf, other in zip(leaves, found["auto"], strict=True):
            same = leaf.tobytes() == other.tobytes() if exact else np.allclose(leaf, other, 1e-9)
            if not same:
                raise SystemExit(f"the gradient of {name!r} is another one than that of 'auto'")


def rows_of(measured: dict[str, list[Any]], steps: int) -> list[dict[str, Any]]:
    state = 8 * SIZE * SIZE
    rows = []
    for name, each in measured.items():
        kept = min(steps, KEPT.get(name, {}).get("checkpoints", 0))
        times = sorted([one.seconds for one in each])
        held = sorted([one.result.nbytes for one in each])
        again = fewest_steps(steps + 1, kept) / steps if kept else None
        median = len(each) // 2
        rows.append(
            {
                **{"name": name, "seconds": times[median], "states": held[median] / state},
                "runs": again,
            }
        )
    return rows


def printed(rows: list[dict[str, Any]]) -> str:
    fastest = min([row["seconds"] for row in rows if row["name"] in KEPT])
    lines = [
        (
            row["name"],
            f"{row['seconds']:.2f}",
            f"{row['seconds'] / fastest:.2f}",
            f"{row['states']:,.0f}",
            "" if row["runs"] is None else f"{row['runs']:.2f}",
        )
        for row in rows
    ]
    return table(("kept", "s", "over the fastest scan", "states of memory", "runs"), lines)


def counted(kept: int) -> float:
    """How often each step of 1,000 ran before it was traced, on the average."""
    runs = [0]

    def counting(u: Any) -> Any:
        runs[0] += 1
        return anp.sin(u)

    model = dg.delayed(counting, compile=False)
    with dask.config.set(scheduler="sync"):
        dg.grad(lambda u: dg.scan(model, u, STEPS, checkpoints=kept))(1.0)
    return runs[0] / STEPS - 1.0


def claims_of(measured: dict[str, list[Any]], rows: list[dict[str, Any]]) -> Iterator[Claim]:
    of = {row["name"]: row for row in rows}
    fastest = min(KEPT, key=lambda name: of[name]["seconds"])
    pairs = zip(measured["32 states"], measured[fastest], strict=True)
    ratios = sorted([one.seconds / other.seconds for one, other in pairs])
    yield at_most("32 states: time over the fastest", ratios[len(ratios) // 2], 1.2)
    yield at_most("32 states: states of memory", of["32 states"]["states"], 60)
    for kept in (12, 32):
        runs, least = counted(kept), fewest_steps(STEPS + 1, kept) / STEPS
        yield at_most(f"{kept} states: runs over the least", runs / least, 1.0)
    yield at_most("four loops at once: states of a process", of[FOUR]["states"], 60)


def draw(rows: list[dict[str, Any]], stated: str) -> Any:
    from plots import bars, page  # here: processes that a benchmark starts do not need Bokeh

    names = [row["name"] for row in rows]
    memory = bars(names, [row["states"] for row in rows], "states of memory", "log")
    times = bars(names, [row["seconds"] for row in rows], "s", "linear")
    return page("The gradient of a loop of 1,000 steps", stated, memory, times)


def main() -> int:
    arguments = options(__doc__).parse_args()
    arguments.rounds = arguments.rounds or (1 if arguments.quick else 5)
    steps = QUICK_STEPS if arguments.quick else STEPS
    names = [ALL_TAPES, *KEPT, *([JAX] if importlib.util.find_spec("jax") else [])]
    setups = [functools.partial(one_program, name, steps) for name in names]
    with hosted(*setups, functools.partial(four_at_once, steps)) as programs:
        measured = in_rounds(programs, arguments.rounds, point)
    require_same(measured)
    rows = rows_of(measured, steps)
    print(printed(rows))
    claims = list(claims_of(measured, rows))
    return finish("loops", arguments, {"loops": rows}, claims, functools.partial(draw, rows))


if __name__ == "__main__":
    sys.exit(main())
