"""A sum of small JAX models: value and gradient, against what one writes in JAX by hand.

    python benchmarks/jax_sums.py [--quick]

What is measured: the value and the gradient of a sum over items, with respect to two parameters
that all items share, in this process and one BLAS thread. Peers:

- daskgrad: ``map_sum`` of a model of backend "jax", in line.
- calls: ``jax.value_and_grad``, compiled once a shape, called once an item, and added up.
- lax.map: one compiled program over all items, which must have one shape; for information.

The items are rows of 100 numbers, or ragged: arrays of four lengths in turn. Times are processor
times of this process, since XLA's threads and daskgrad's work at once; rounds are interleaved, and
a ratio is the median over the rounds. Before any time is taken the bits of daskgrad's result are
compared for several grainsizes; the script fails where they differ.

Claimed is that daskgrad takes at most half of the time of the calls for rows, and at most 0.8 of it
for ragged items. Without JAX there is nothing to measure, and the script says so.
"""

# ruff: noqa: E402  the number of BLAS threads is set before NumPy is imported

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import functools
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import dask
import numpy

import daskgrad as dg
from report import at_most, finish, options, ratio, table

POINT = numpy.array([3.0, 1.0])
ROWS_AT_MOST, RAGGED_AT_MOST = 0.5, 0.8

Program = Callable[[], tuple[Any, Any]]


def density(x: Any, p: Any) -> Any:
    """An energy of an atom, of its distances to others."""
    import jax.numpy as jnp

    r = jnp.sum(jnp.exp(-p[0] * (x + p[1])))
    return r**2 + r**3 + 0.25 * r**4


def by_daskgrad(items: Any, grainsize: int | str = "auto") -> Program:
    model = dg.delayed(density, backend="jax")
    evaluate = dg.value_and_grad(lambda p: dg.map_sum(model, items, p, grainsize=grainsize))
    return lambda: evaluate(POINT)


def by_calls(items: Any) -> Program:
    import jax

    one = jax.jit(jax.value_and_grad(density, 1))

    def evaluate() -> tuple[Any, Any]:
        value, gradient = 0.0, numpy.zeros(2)
        for item in items:
            term, pulled = one(item, POINT)
            value, gradient = value + float(term), gradient + numpy.asarray(pulled)
        return value, gradient

    return evaluate


def by_map(rows: numpy.ndarray) -> Program:
    import jax

    def terms(rows: Any, p: Any) -> Any:
        return jax.lax.map(lambda row: jax.value_and_grad(density, 1)(row, p), rows)

    compiled = jax.jit(terms)

    def evaluate() -> tuple[Any, Any]:
        values, gradients = map(numpy.asarray, compiled(rows, POINT))
        return values.sum(), gradients.sum(0)

    return evaluate


def peers_of(items: Any) -> dict[str, Program]:
    peers = {"daskgrad": by_daskgrad(items), "calls": by_calls(items)}
    return {**peers, "lax.map": by_map(items)} if isinstance(items, numpy.ndarray) else peers


def require_right(items: Any, peers: dict[str, Program]) -> None:
    """All peers agree, and daskgrad's bits are the same for any grainsize."""
    value, gradient = peers["daskgrad"]()
    for program in peers.values():
        other_value, other = program()
        if not (numpy.isclose(value, other_value) and numpy.allclose(gradient, other)):
            raise SystemExit("a value or gradient is wrong")
    for grainsize in (1, 16, len(items)):
        found = by_daskgrad(items, grainsize)()
        if found[0] != value or found[1].tobytes() != gradient.tobytes():
            raise SystemExit(f"other bits with grainsize {grainsize}")


def measure(peers: dict[str, Program], rounds: int, calls: int) -> dict[str, list[float]]:
    """Processor seconds of a call, round by round."""
    seconds: dict[str, list[float]] = {name: [] for name in peers}
    for number in range(rounds):
        for name in list(peers)[:: -1 if number % 2 else 1]:
            start = time.process_time()
            for _ in range(calls):
                peers[name]()
            seconds[name].append((time.process_time() - start) / calls)
    return seconds


def summary(kind: str, seconds: dict[str, list[float]]) -> list[dict[str, Any]]:
    return [
        {
            "items": kind,
            "peer": name,
            "processor seconds": statistics.median(times),
            "ratio to calls": ratio(times, seconds["calls"]),
            "all seconds": times,
        }
        for name, times in seconds.items()
    ]


def draw(peers: Sequence[dict[str, Any]], stated: str) -> Any:
    from plots import bars, page

    names = [f"{peer['items']}: {peer['peer']}" for peer in peers]
    times = [peer["processor seconds"] * 1e3 for peer in peers]
    plot = bars(names, times, "processor time of a value and gradient (ms, logarithmic)", "log")
    return page("A sum of small JAX models", stated, plot)


def main() -> int:
    arguments = options(__doc__).parse_args()
    if importlib.util.find_spec("jax") is None:
        print('nothing is measured: JAX is not installed; pip install "daskgrad[jax]"')
        return 0
    import jax

    jax.config.update("jax_enable_x64", True)
    arguments.rounds = arguments.rounds or (3 if arguments.quick else 15)
    count, calls = (64, 1) if arguments.quick else (1_000, 5)
    random = numpy.random.default_rng(0)
    kinds = {
        "rows": random.random((count, 100)),
        "ragged": [random.random(60 + 20 * (n % 4)) for n in range(count)],
    }
    found: list[dict[str, Any]] = []
    with dask.config.set(scheduler="synchronous"):
        for kind, items in kinds.items():
            peers = peers_of(items)
            require_right(items, peers)
            found.extend(summary(kind, measure(peers, arguments.rounds, calls)))
    print(printed(found))
    (rows, ragged) = [each["ratio to calls"] for each in found if each["peer"] == "daskgrad"]
    claims = [
        at_most("daskgrad's time over that of the calls, rows", rows, ROWS_AT_MOST),
        at_most("daskgrad's time over that of the calls, ragged items", ragged, RAGGED_AT_MOST),
    ]
    content = {"items": count, "jax": jax.__version__, "peers": found}
    return finish("jax_sums", arguments, content, claims, functools.partial(draw, found))


def printed(peers: Sequence[dict[str, Any]]) -> str:
    rows = [
        (
            f"{peer['items']}: {peer['peer']}",
            f"{peer['processor seconds'] * 1e3:.2f} ms",
            f"{peer['ratio to calls']:.2f}",
        )
        for peer in peers
    ]
    return table(("peer", "processor time", "calls = 1"), rows)


if __name__ == "__main__":
    sys.exit(main())
