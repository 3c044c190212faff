"""How fast compiled models are, against the tape, autograd, JAX and NumPy by hand.

    python benchmarks/compiled.py [--quick]

What is measured is a call of ``dg.value_and_grad`` of one model (``models``), in line, at one
point: with ``compile=True``, and with ``compile=False``, which traces it each time; ``autograd``'s
``value_and_grad``; the gradient written by hand in NumPy, where there is one; and JAX's ``jit`` in
double precision, if it is installed, with its result made an array of NumPy. All run in this
process, with one BLAS thread, in interleaved rounds; a time is the median over the rounds.

Before any time is taken, value and gradient of the program are compared with the tape's, bit by
bit. The claims: compiled models are 10 times as fast as autograd, in the geometric mean over the
models; those that have a size are ahead of JAX up to 1,000 numbers; and the embedded atom of 100
and 1,000 numbers, with ``out=``, takes no longer than its value and its gradient by hand, as most
people write them: two functions, each of which evaluates the exponentials. (The column "by hand"
has them in one function.) The last lines are a sum of small models, in line; sums of models that
bring their gradient, which for 10,000 atoms takes at most 1.2 times as long as a loop over them by
hand; and what a call adds to the bare program.
"""

# ruff: noqa: E402  the number of threads is set before NumPy is imported

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import argparse
import importlib.util
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import autograd
import dask
import numpy as np

import daskgrad as dg
import tape
from daskgrad.autodiff.programs import backend
from models import (
    EXAMPLES,
    Example,
    embedded_atom_by_hand,
    embedded_atom_in_two_passes,
    of_size,
)
from report import Claim, at_least, at_most, judged
from tape import time_of

FASTER_AT_LEAST = 10.0  # than autograd, geometric mean
SIZES = (10, 100, 1_000, 10_000, 100_000)
COLUMNS = ("compiled", "tape", "autograd", "by hand", "JAX")

Peers = dict[str, Callable[[], Any]]
random = np.random.default_rng(1)


def peers_of(example: Example, with_jax: bool) -> Peers:
    model, point = example.model, example.point
    compiled, traced = (dg.value_and_grad(dg.delayed(model, compile=c)) for c in (True, False))
    plain = autograd.value_and_grad(model)
    peers: Peers = {
        "compiled": lambda: compiled(point),
        "tape": lambda: traced(point),
        "autograd": lambda: plain(point),
    }
    by_hand = example.by_hand
    if by_hand is not None:
        peers["by hand"] = lambda: by_hand(point)
    if with_jax and example.in_jax:
        peers["JAX"] = in_jax(example)
    return peers


def in_jax(example: Example) -> Callable[[], Any]:
    import jax

    jax.config.update("jax_enable_x64", True)
    gradient = jax.jit(jax.value_and_grad(partial(example.fun, jax.numpy)))

    def value_and_gradient():
        value, slope = gradient(example.point)
        return float(value), np.asarray(slope)

    return value_and_gradient


def require_same(example: Example, peers: Peers) -> None:
    """The bits of the tape, and the numbers of all others."""
    for _ in range(80):  # the program runs from the fourth call on, by one function a little later
        mine = peers["compiled"]()
    for name, peer in peers.items():
        for one, other in zip(mine, peer(), strict=True):
            if name == "tape" and np.asarray(one).tobytes() != np.asarray(other).tobytes():
                raise SystemExit(f"{example.name}: the program has not the tape's bits")
            scale = np.max(np.abs(other)) * (1e-9 if np.asarray(one).itemsize > 4 else 1e-4)
            if not np.max(np.abs(one - other)) <= scale:
                raise SystemExit(f"{example.name}: {name} has another value or gradient")


def times_of(peers: Peers, rounds: int, seconds: float) -> dict[str, float]:
    """Seconds a call of each peer: medians over rounds in which they take turns in going first."""
    calls = {
        name: max(1, int(seconds / max(time_of(peer, 2), 1e-7))) for name, peer in peers.items()
    }
    found: dict[str, list[float]] = {name: [] for name in peers}
    names = list(peers)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            found[name].append(time_of(peers[name], calls[name]))
    return {name: statistics.median(each) for name, each in found.items()}


def reported(name: str, times: dict[str, float]) -> dict[str, float]:
    cells = [f"{times[c] * 1e6:>10.1f} µs" if c in times else " " * 13 for c in COLUMNS]
    print(f"{name:<32}{''.join(cells)}{times['autograd'] / times['compiled']:>8.1f}", flush=True)
    return times


def measured(
    examples: Iterable[Example], with_jax: bool, rounds: int, seconds: float, suffix: str = ""
) -> list[dict[str, float]]:
    found = []
    for example in examples:
        peers = peers_of(example, with_jax)
        require_same(example, peers)
        found.append(reported(example.name + suffix, times_of(peers, rounds, seconds)))
    return found


def sums(items: Sequence[Any]) -> Peers:
    """Value and gradient of the sum of embedded atoms over items."""
    atom = of_size(100)[0].model

    def term(r, x):
        return atom(r * x)

    gradient = autograd.value_and_grad(term, 1)

    def loop():
        value, total = 0.0, np.zeros(100)
        for item in items:
            one, slope = gradient(item, point)
            value, total = value + one, total + slope
        return value, total

    def loop_by_hand():
        value, total = 0.0, np.zeros(100)
        for item in items:
            one, slope = embedded_atom_by_hand(item * point)
            value += one
            total += item * slope
        return value, total

    point = np.ones(100)
    compiled, traced = (dg.delayed(term, compile=c) for c in (True, False))
    return {
        "compiled": lambda: dg.value_and_grad(lambda x: dg.map_sum(compiled, items, x))(point),
        "tape": lambda: dg.value_and_grad(lambda x: dg.map_sum(traced, items, x))(point),
        "autograd": loop,
        "by hand": loop_by_hand,
    }


def misfit_by_hand(item, x):
    """A model of a few microseconds that brings its gradient."""
    away = item - x
    weights = np.exp(-away * away)
    return -np.add.reduce(weights), (None, -2.0 * away * weights)


def atom_by_hand(item, x):
    value, slope = embedded_atom_by_hand(item * x)
    return value, (None, item * slope)


def own_gradients(count: int, rounds: int) -> list[Claim]:
    items = list(1.0 + 0.2 * random.random((count, 100)))
    for model in (misfit_by_hand, atom_by_hand):
        ratio, seconds = over_the_loop(model, items, rounds)
        what = f"sum of {count:,} {model.__name__}, {seconds * 1e6:.1f} µs each"
        print(f"{what}: {ratio:.2f} times the loop")
    return [at_most(f"{what}, over the loop", ratio, 1.2)] if count > 1_000 else []


def over_the_loop(model: Callable, items: Sequence[Any], rounds: int) -> tuple[float, float]:
    """The time of a sum of a model that brings its gradient over that of a loop, and the loop's for
    one item."""
    point = np.ones_like(items[0])
    own = dg.delayed(model, gradient=True)
    gradient = dg.value_and_grad(lambda x: dg.map_sum(own, items, x))

    def loop():
        value, total = 0.0, np.zeros_like(point)
        for item in items:
            one, (_, slope) = model(item, point)
            value += one
            total += slope
        return value, total

    for one, other in zip(gradient(point), loop(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
    times = times_of({"sum": lambda: gradient(point), "loop": loop}, rounds, 0.03)
    return times["sum"] / times["loop"], times["loop"] / len(items)


def written_in_place(size: int, rounds: int, seconds: float) -> tuple[float, float]:
    """The time of an embedded atom over that of two functions by hand; and what the call adds to
    the program."""
    example = of_size(size)[0]
    point, model, storage = example.point, example.model, np.empty(size)
    gradient = dg.value_and_grad(dg.delayed(model, compile=True), out=storage)
    for scheduler in (dask.get, None):  # a graph, for the model's own program, and whole programs
        with dask.config.set(scheduler=scheduler):
            for _ in range(80):
                gradient(point)
    programs = backend.prepare(model).programs
    entries = programs._entries.values()  # functions that are made of the same code share them
    (entry,) = [e for e in entries if e.ways and e.signature.key[-1][0][0] == point.shape]
    program = entry.ways[0].program
    peers: Peers = {
        "out=": lambda: gradient(point),
        "by hand": lambda: embedded_atom_in_two_passes(point),
        "program": lambda: program.pull_examples(program.forward(point)[1]),
    }
    times = times_of(peers, rounds, seconds)
    return times["out="] / times["by hand"], times["out="] - times["program"]


def ahead_of_jax(size: int, rows: Sequence[dict[str, float]]) -> Claim:
    least = min(row["JAX"] / row["compiled"] for row in rows)
    return at_least(f"JAX's time over that of compiled models of {size:,} numbers", least, 1.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds; no JAX")
    quick = parser.parse_args().quick
    rounds, seconds = (3, 0.003) if quick else (15, 0.03)
    with_jax = importlib.util.find_spec("jax") is not None and not quick

    tape.raise_malloc_thresholds()
    print(f"{'model':<32}{''.join([f'{column:>13}' for column in COLUMNS])}{'faster':>8}")
    rows = measured(EXAMPLES, with_jax, rounds, seconds)
    mean = statistics.geometric_mean([row["autograd"] / row["compiled"] for row in rows])
    claims = [at_least("times as fast as autograd, geometric mean", mean, FASTER_AT_LEAST)]
    for size in SIZES[1:2] if quick else SIZES:
        rows = measured(of_size(size), with_jax, rounds, seconds, f", {size:,}")
        if with_jax and size <= 1_000:
            claims.append(ahead_of_jax(size, rows))
    items = list(1.0 + 0.2 * random.random((100 if quick else 1_000, 100)))
    with dask.config.set(scheduler="sync"):
        reported(f"sum of {len(items):,} atoms", times_of(sums(items), 3 if quick else 9, 0.0))
        for count in (1_000, 10_000)[: 1 if quick else 2]:
            claims += own_gradients(count, rounds)
    for size in (100, 1_000):
        ratio, added = written_in_place(size, rounds, seconds)
        print(f"atom of {size:,}, out=: the call adds {added * 1e6:.1f} µs to the bare program")
        claims.append(at_most(f"atom of {size:,}, out=, over by hand", ratio, 1.0))
    return judged(claims, quick)


if __name__ == "__main__":
    sys.exit(main())
