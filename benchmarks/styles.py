"""Whether one model takes as long however it is written.

    python benchmarks/styles.py [--quick]

The value and the gradient of a sum over 1,024 items, each a misfit of 30 numbers (Student's t, with
place, scale and degrees of freedom), in line, with one BLAS thread. Nobody asks for it to be
compiled. The model is written in twenty-five styles, which take turns in rounds; a time is the
least processor time of an evaluation over the rounds, once all have been called some times, for one
item. A loop over the items, with the gradient written by hand, takes its turn. Gradients are
compared with its own first. The claim: each style takes at most half of the loop's time.
"""

# ruff: noqa: E402  the number of threads is set before NumPy is imported

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import autograd.numpy as anp
import dask
import numpy as np
from numpy import exp, log1p

import daskgrad as dg
from report import at_most, judged

AT_MOST = 0.5  # of the loop's time
LOOP = "a loop by hand"
CALLS = 8  # before any time is taken
SIZE = 30
P = np.array([0.1, 0.2, 4.0])
NAMED = dict(zip(("place", "scale", "freedom"), P, strict=True))


def plain(y, p):
    t = (y - p[0]) * np.exp(-p[1])
    return np.sum(0.5 * (p[2] + 1.0) * np.log1p(t * t / p[2])) + SIZE * p[1]


def by_hand(items, p):
    value, slope = 0.0, np.zeros(3)
    for y in items:
        scale = np.exp(-p[1])
        t = (y - p[0]) * scale
        q = t * t / p[2]
        logs, g = np.sum(np.log1p(q)), (p[2] + 1.0) * t / (p[2] + t * t)
        value += 0.5 * (p[2] + 1.0) * logs + SIZE * p[1]
        freedom = 0.5 * (logs - (p[2] + 1.0) / p[2] * np.sum(q / (1.0 + q)))
        slope += [-scale * np.sum(g), SIZE - np.dot(g, t), freedom]
    return value, slope


def residual(y, p):
    return (y - p[0]) * np.exp(-p[1])


def misfit(t, p):
    return 0.5 * (p[2] + 1.0) * np.log1p(t * t / p[2])


def of_helpers(y, p):
    return np.sum(misfit(residual(y, p), p)) + SIZE * p[1]


def closure(half, size):
    def model(y, p):
        t = (y - p[0]) * np.exp(-p[1])
        return np.sum(half * (p[2] + 1.0) * np.log1p(t * t / p[2])) + size * p[1]

    return model


def with_extra(y, p, half, size):
    t = (y - p[0]) * np.exp(-p[1])
    return np.sum(half * (p[2] + 1.0) * np.log1p(t * t / p[2])) + size * p[1]


def with_default(y, p, half=0.5, size=SIZE):
    return with_extra(y, p, half, size)


def of_namespace(xp, y, p):
    t = (y - p[0]) * xp.exp(-p[1])
    return xp.sum(0.5 * (p[2] + 1.0) * xp.log1p(t * t / p[2])) + SIZE * p[1]


def of_imported(y, p):
    t = (y - p[0]) * exp(-p[1])
    return (0.5 * (p[2] + 1.0) * log1p(t * t / p[2])).sum() + SIZE * p[1]


def of_autograds(y, p):
    t = (y - p[0]) * anp.exp(-p[1])
    return anp.sum(0.5 * (p[2] + 1.0) * anp.log1p(t * t / p[2])) + SIZE * p[1]


def of_methods(y, p):
    t = (y - p[0]) * np.exp(-p[1])
    return (0.5 * (p[2] + 1.0) * np.log1p(t * t / p[2])).sum() + y.size * p[1]


def unpacked(y, p):
    place, scale, freedom = p
    t = (y - place) * np.exp(-scale)
    return np.sum(0.5 * (freedom + 1.0) * np.log1p(t * t / freedom)) + SIZE * scale


def of_dict(y, p):
    t = (y - p["place"]) * np.exp(-p["scale"])
    return np.sum(0.5 * (p["freedom"] + 1.0) * np.log1p(t * t / p["freedom"])) + SIZE * p["scale"]


class Student:
    def __init__(self, half, size):
        self.half, self.size = half, size

    def misfit(self, y, p):
        t = (y - p[0]) * np.exp(-p[1])
        return np.sum(self.half * (p[2] + 1.0) * np.log1p(t * t / p[2])) + self.size * p[1]

    def __call__(self, y, p):
        return self.misfit(y, p)


class Pair(NamedTuple):
    y: np.ndarray
    size: float


@dataclass
class Station:
    y: np.ndarray
    size: float


class Molecule:
    def __init__(self, y, size):
        self.y, self.size = y, size

    def away(self, place):
        return self.y - place


def of_pair(item, p):
    y, size = item
    return with_extra(y, p, 0.5, size)


def of_fields(item, p):
    return with_extra(item.y, p, 0.5, item.size)


def of_entries(item, p):
    return with_extra(item["y"], p, 0.5, item["size"])


def of_object(item, p):
    t = item.away(p[0]) * np.exp(-p[1])
    return np.sum(0.5 * (p[2] + 1.0) * np.log1p(t * t / p[2])) + item.size * p[1]


def made_inside(items):
    def objective(p):
        def model(y, q):
            t = (y - q[0]) * np.exp(-q[1])
            return np.sum(0.5 * (q[2] + 1.0) * np.log1p(t * t / q[2])) + SIZE * q[1]

        return dg.map_sum(model, items, p)

    return objective


def in_two_sums(items):
    half = len(items) // 2
    first, second = items[:half], items[half:]
    return lambda p: dg.map_sum(plain, first, p) + dg.map_sum(plain, second, p)


def prior(p):
    return 0.0 * np.sum(p**2)


def styles_of(items: list[np.ndarray]) -> dict[str, Callable[[Any], Any]]:
    """The sum of the model over the items, in each style."""
    model = Student(0.5, SIZE)
    sizes = [float(SIZE)] * len(items)
    pairs = list(zip(items, sizes, strict=True))
    entries = [{"y": y, "size": size} for y, size in pairs]
    named, stations, objects = (
        [kind(*pair) for pair in pairs] for kind in (Pair, Station, Molecule)
    )
    rows, by_lambda = np.stack(items), lambda y, p: plain(y, p)

    return {
        "plain": lambda p: dg.map_sum(plain, items, p),
        "helper functions": lambda p: dg.map_sum(of_helpers, items, p),
        "lambda": lambda p: dg.map_sum(by_lambda, items, p),
        "closure": lambda p: dg.map_sum(closure(0.5, SIZE), items, p),
        "extra argument": lambda p: dg.map_sum(with_extra, items, p, 0.5, SIZE),
        "default argument": lambda p: dg.map_sum(with_default, items, p),
        "functools.partial": lambda p: dg.map_sum(
            partial(with_extra, half=0.5, size=SIZE), items, p
        ),
        "namespace argument": lambda p: dg.map_sum(lambda y, q: of_namespace(np, y, q), items, p),
        "from numpy import exp": lambda p: dg.map_sum(of_imported, items, p),
        "autograd's NumPy": lambda p: dg.map_sum(of_autograds, items, p),
        "methods of arrays": lambda p: dg.map_sum(of_methods, items, p),
        "unpacked parameters": lambda p: dg.map_sum(unpacked, items, p),
        "dictionary of parameters": lambda p: dg.map_sum(of_dict, items, p),
        "method": lambda p: dg.map_sum(model.misfit, items, p),
        "callable object": lambda p: dg.map_sum(model, items, p),
        "made inside the objective": made_inside(items),
        "items: tuples": lambda p: dg.map_sum(of_pair, pairs, p),
        "items: rows": lambda p: dg.map_sum(plain, rows, p),
        "items: dicts": lambda p: dg.map_sum(of_entries, entries, p),
        "items: named tuples": lambda p: dg.map_sum(of_fields, named, p),
        "items: dataclasses": lambda p: dg.map_sum(of_fields, stations, p),
        "items: objects": lambda p: dg.map_sum(of_object, objects, p),
        "items: zips": lambda p: dg.map_sum(of_pair, dg.zip(items, sizes), p),
        "with a prior": lambda p: dg.map_sum(plain, items, p) + dg.delayed(prior)(p),
        "in two sums": in_two_sums(items),
    }


def time_of(call: Callable[[], Any]) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin


def numbers_of(found: tuple[Any, Any]) -> list[float]:
    """Value and gradient."""
    value, slope = found
    return [value, *(slope.values() if isinstance(slope, dict) else slope)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer items and rounds")
    quick = parser.parse_args().quick
    count, rounds = (128, 2) if quick else (1024, 9)
    items = list(np.random.default_rng(0).standard_normal((count, SIZE)))
    with dask.config.set(scheduler="synchronous"):
        calls = {
            name: partial(dg.value_and_grad(style), NAMED if "dictionary" in name else P)
            for name, style in styles_of(items).items()
        }
        calls[LOOP] = partial(by_hand, items, P)
        expected = numbers_of(calls[LOOP]())
        for name, call in calls.items():
            for _ in range(CALLS):
                np.testing.assert_allclose(numbers_of(call()), expected, 1e-12, err_msg=name)
        found = [[time_of(call) for call in calls.values()] for _ in range(rounds)]
    seconds = dict(zip(calls, np.min(found, axis=0) / count, strict=True))
    loop = seconds[LOOP]
    print(f"{'style':<28}{'an item':>12}{'over the loop':>20}")
    for name, each in seconds.items():
        print(f"{name:<28}{1e6 * each:>9.1f} µs{each / loop:>20.2f}")
    slowest = max(calls.keys() - {LOOP}, key=lambda name: seconds[name])
    text = f"the slowest style ({slowest}) over the loop"
    return judged([at_most(text, seconds[slowest] / loop, AT_MOST)], quick)


if __name__ == "__main__":
    sys.exit(main())
