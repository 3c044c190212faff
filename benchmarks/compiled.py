"""How fast value and gradient of compiled models are, against tape, autograd and NumPy by hand.

    python benchmarks/compiled.py [--quick]

The models are those of ``tape.py``, and the energy of an embedded atom, whose gradient is written
by hand in NumPy, too. What is measured is ``daskgrad.models.pullbacks.capture``, the body of a
model's forward task, with a compiled model and with one that is traced, and plain autograd. All run
in this process, with one BLAS thread and without Dask, in interleaved rounds; a time is the median
over the rounds. The last line is a sum of small models, in line, against loops of autograd and of
the gradient by hand.

Before any time is taken, value and gradient of the program are compared with the tape's, bit by
bit. One claim is checked: how many times as fast as autograd compiled models are, in the geometric
mean.
"""

# ruff: noqa: E402  the number of BLAS threads is set before NumPy is imported

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

import autograd
import dask
import numpy as np

import daskgrad as dg
import tape
from tape import Case, time_of

FASTER_AT_LEAST = 5.0  # than autograd, geometric mean

random = np.random.default_rng(1)


def embedded_atom(r):
    """Pair repulsion and the energy of an atom in the density of its neighbours."""
    pairs = np.exp(-10.9 * (r - 1.0))
    density = np.exp(-5.5 * (r - 1.0))
    return 0.1 * np.sum(pairs) - 1.3 * np.sqrt(np.sum(density))


def embedded_atom_by_hand(r):
    pairs = np.exp(-10.9 * (r - 1.0))
    density = np.exp(-5.5 * (r - 1.0))
    root = np.sqrt(np.sum(density))
    value = 0.1 * np.sum(pairs) - 1.3 * root
    return value, (0.65 * 5.5 / root) * density - (0.1 * 10.9) * pairs


ATOMS = [
    Case(f"embedded atom, {size:,}", embedded_atom, 1.0 + 0.2 * random.random(size))
    for size in (10, 100, 1_000, 100_000)
]


def peers_of(case: Case) -> dict[str, Callable[[], Any]]:
    peers = {
        "compiled": tape.ours(case, "compiled"),
        "tape": tape.ours(case),
        "autograd": tape.autograds(case),
    }
    if case.fun is embedded_atom:
        peers["by hand"] = lambda: embedded_atom_by_hand(case.point)
    return peers


def require_same_bits(case: Case, peers: dict[str, Callable[[], Any]]) -> None:
    for _ in range(4):  # the program runs at the fourth call
        mine, right = peers["compiled"](), peers["tape"]()
        for one, other in zip(mine, right, strict=True):
            if np.asarray(one).tobytes() != np.asarray(other).tobytes():
                raise SystemExit(f"{case.name}: the program has not the tape's bits")


def times_of(peers: dict[str, Callable[[], Any]], rounds: int, seconds: float) -> dict[str, float]:
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
    columns = [f"{time * 1e6:>10.1f} µs" for time in times.values()]
    faster = times["autograd"] / times["compiled"]
    print(f"{name:<38}{''.join(columns)}{faster:>8.1f}", flush=True)
    return times


def sums(items: Sequence[Any]) -> dict[str, Callable[[], Any]]:
    """Value and gradient of the sum of ``embedded_atom(r * x)`` over items."""

    def term(r, x):
        return embedded_atom(r * x)

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
    compiled = dg.delayed(term, compile=True)
    return {
        "compiled": lambda: dg.value_and_grad(lambda x: dg.map_sum(compiled, items, x))(point),
        "tape": lambda: dg.value_and_grad(lambda x: dg.map_sum(term, items, x))(point),
        "autograd": loop,
        "by hand": loop_by_hand,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    quick = parser.parse_args().quick
    rounds, seconds = (5, 0.01) if quick else (15, 0.03)

    tape.raise_malloc_thresholds()
    print(f"{'model':<38}{'compiled':>13}{'tape':>13}{'autograd':>13}{'':>13}{'faster':>8}")
    ratios = []
    for case in (*tape.ORDINARY, tape.STENCIL, *ATOMS):
        peers = peers_of(case)
        require_same_bits(case, peers)
        times = reported(case.name, times_of(peers, rounds, seconds))
        ratios.append(times["autograd"] / times["compiled"])
    items = list(1.0 + 0.2 * random.random((1_000, 100)))
    with dask.config.set({"daskgrad.inline.seconds": 60}):
        reported("sum of 1,000 embedded atoms", times_of(sums(items), 3 if quick else 9, 0.0))
    mean = statistics.geometric_mean(ratios)
    print(f"\n{mean:.1f} times as fast as autograd (at least {FASTER_AT_LEAST:g} is required)")
    return int(mean < FASTER_AT_LEAST)


if __name__ == "__main__":
    sys.exit(main())
