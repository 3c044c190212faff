"""Sums of many small items: in batches, in a loop by hand, and by JAX.

    python benchmarks/batches.py [--quick]

Value and gradient of a sum over 10,000 items (2,000 of the dear ones), rows of an array, in the
calling thread, with one BLAS thread. Against it, in turns: a loop over the items in NumPy whose
gradients are written by hand, and with JAX installed, ``jit`` of ``vmap(value_and_grad)`` over all
of them, in double precision. A time is the least processor time over the rounds, once all have been
called some times, for one item; gradients are compared with those by hand. Beside them stand items
of other kinds, over rows of the same numbers, and rows that are placed on two workers, by the
clock. The claims: geometric means of at most 0.2 of the loop's time, and of at most 2 of JAX's.
"""

# ruff: noqa: E402  the number of threads is set before NumPy is imported

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import autograd.numpy as anp
import dask
import numpy as np
from distributed import Client

import daskgrad as dg
from report import at_most, judged

AT_MOST, OF_JAX = 0.2, 2.0
CALLS = 6  # before any time is taken
RANDOM = np.random.default_rng(0)
normal, uniform = RANDOM.standard_normal, RANDOM.random


class Case(NamedTuple):
    """``model(xp, item, p)``; ``by_hand(item, p)`` returns its value and gradient."""

    model: Callable
    by_hand: Callable
    items: Callable[[int], np.ndarray]
    p: np.ndarray
    part: int = 1  # of the items


def density(xp, x, p):
    r = xp.sum(xp.exp(-p[0] * (x + p[1])))
    return r**2 + 0.25 * r**4


def density_by_hand(x, p):
    y = x + p[1]
    e = np.exp(-p[0] * y)
    r = np.sum(e)
    slope = 2.0 * r + r**3
    return r**2 + 0.25 * r**4, np.array([-slope * np.dot(e, y), -slope * p[0] * r])


def logistic(xp, item, w):
    features, signs = item[:, :5], item[:, 5]
    return xp.sum(xp.log1p(xp.exp(-signs * xp.dot(features, w))))


def logistic_by_hand(item, w):
    features, signs = item[:, :5], item[:, 5]
    e = np.exp(-signs * (features @ w))
    return np.sum(np.log1p(e)), (-signs * e / (1.0 + e)) @ features


STEPS, STEP = 20, 0.05


def prey(xp, item, p):
    x, y = item[0], item[1]
    for _ in range(STEPS):
        x, y = x + STEP * x * (p[0] - p[1] * y), y + STEP * y * (p[2] * x - p[3])
    return (x - item[2]) ** 2 + (y - item[3]) ** 2


def prey_by_hand(item, p):
    a, b, c, d = p.tolist()
    x, y, at_end, other = item.tolist()
    states = []
    for _ in range(STEPS):
        states.append((x, y))
        x, y = x + STEP * x * (a - b * y), y + STEP * y * (c * x - d)
    value, gx, gy = (x - at_end) ** 2 + (y - other) ** 2, 2.0 * (x - at_end), 2.0 * (y - other)
    slope = [0.0, 0.0, 0.0, 0.0]
    for x, y in reversed(states):
        u, v = STEP * gx, STEP * gy
        slope = [slope[0] + u * x, slope[1] - u * x * y, slope[2] + v * x * y, slope[3] - v * y]
        gx, gy = gx + u * (a - b * y) + v * y * c, gy - u * x * b + v * (c * x - d)
    return value, np.array(slope)


def log_sum(xp, a, axis):
    most = xp.max(a, axis=axis, keepdims=True)
    return xp.log(xp.sum(xp.exp(a - most), axis=axis)) + xp.squeeze(most, axis=axis)


def chain(xp, item, p):
    """A hidden Markov model of three states."""
    moves = xp.reshape(p[:9], (3, 3))
    moves = moves - xp.reshape(log_sum(xp, moves, 1), (3, 1))
    a = -0.5 * (item[0] - p[9:]) ** 2
    for t in range(1, 8):
        a = log_sum(xp, xp.reshape(a, (3, 1)) + moves, 0) - 0.5 * (item[t] - p[9:]) ** 2
    return -log_sum(xp, a, 0)


def chain_by_hand(item, p):
    raw, means = p[:9].reshape(3, 3), p[9:]
    moves = raw - np.log(np.exp(raw).sum(1))[:, None]
    a, shares = -0.5 * (item[0] - means) ** 2, []
    for t in range(1, 8):
        e = np.exp(a[:, None] + moves)
        total = e.sum(0)
        shares.append(e / total)
        a = np.log(total) - 0.5 * (item[t] - means) ** 2
    e = np.exp(a)
    total = e.sum()
    g, of_moves, of_means = -e / total, np.zeros((3, 3)), np.zeros(3)
    for t in range(7, 0, -1):
        of_means += g * (item[t] - means)
        step = shares[t - 1] * g
        of_moves += step
        g = step.sum(1)
    of_means += g * (item[0] - means)
    of_moves -= np.exp(moves) * of_moves.sum(1)[:, None]
    return -np.log(total), np.concatenate([of_moves.ravel(), of_means])


EYE = np.eye(6)


def process(xp, item, p):
    """A Gaussian process at six places."""
    gaps = (xp.reshape(item[0], (6, 1)) - item[0]) ** 2
    factor = xp.linalg.cholesky(xp.exp(p[0] - gaps * xp.exp(p[1])) + xp.exp(p[2]) * EYE)
    white = xp.linalg.solve(factor, item[1])
    return 0.5 * xp.sum(white**2) + xp.sum(xp.log(xp.diag(factor)))


def process_by_hand(item, p):
    gaps = (item[0][:, None] - item[0]) ** 2
    scale, noise = np.exp(p[1:])
    smooth = np.exp(p[0] - gaps * scale)
    factor = np.linalg.cholesky(smooth + noise * EYE)
    inverse = np.linalg.inv(factor)
    inverse = inverse.T @ inverse
    solved = inverse @ item[1]
    slope = 0.5 * (inverse - np.outer(solved, solved))
    parts = [
        np.sum(slope * smooth),
        -np.sum(slope * smooth * gaps) * scale,
        np.trace(slope) * noise,
    ]
    return 0.5 * item[1] @ solved + np.sum(np.log(np.diag(factor))), np.array(parts)


def student(xp, x, p):
    t = (x - p[0]) * xp.exp(-p[1])
    return xp.sum(2.5 * xp.log1p(t * t / 4.0)) + 30.0 * p[1]


def student_by_hand(x, p):
    scale = np.exp(-p[1])
    t = (x - p[0]) * scale
    slope = 5.0 * t / (4.0 + t * t)
    value = np.sum(2.5 * np.log1p(t * t / 4.0)) + 30.0 * p[1]
    return value, np.array([-scale * np.sum(slope), 30.0 - np.dot(slope, t)])


def wave(xp, item, p):
    return xp.sum((item[1] - p[0] * xp.sin(p[1] * item[0] + p[2])) ** 2)


def wave_by_hand(item, p):
    angle = p[1] * item[0] + p[2]
    sine = np.sin(angle)
    gap = item[1] - p[0] * sine
    slope = -2.0 * gap
    turned = slope * p[0] * np.cos(angle)
    return np.sum(gap**2), np.array([slope @ sine, turned @ item[0], np.sum(turned)])


def counts(xp, item, p):
    rate = xp.dot(item[:, :3], p)
    return xp.sum(xp.exp(rate) - item[:, 3] * rate)


def counts_by_hand(item, p):
    rate = item[:, :3] @ p
    e = np.exp(rate)
    return np.sum(e - item[:, 3] * rate), (e - item[:, 3]) @ item[:, :3]


def quadratic(xp, x, p):
    y = xp.dot(xp.reshape(p, (4, 8)), x)
    return xp.dot(y, y)


def quadratic_by_hand(x, p):
    y = p.reshape(4, 8) @ x
    return y @ y, 2.0 * np.outer(y, x).ravel()


def of_size(size: int, part: int = 1) -> Case:
    return Case(density, density_by_hand, lambda n: uniform((n, size)), np.array([3.0, 1.0]), part)


def of_shape(model: Callable, by_hand: Callable, shape: tuple, *p: float, part: int = 1) -> Case:
    return Case(model, by_hand, lambda n: np.abs(normal((n, *shape))), np.array(p), part)


CASES = {
    "densities of 10": of_size(10),
    "densities of 100": of_size(100),
    "densities of 1,000": of_size(1000, 5),
    "logistic regression": of_shape(logistic, logistic_by_hand, (20, 6), *(0.3 * normal(5))),
    "predator and prey": of_shape(prey, prey_by_hand, (4,), 1.1, 0.8, 0.6, 0.9, part=5),
    "hidden Markov model": of_shape(chain, chain_by_hand, (8,), *(0.3 * normal(12)), part=5),
    "Gaussian process": of_shape(process, process_by_hand, (2, 6), 0.1, 0.2, -1.0, part=5),
    "Student's t": of_shape(student, student_by_hand, (30,), 0.1, 0.2),
    "waves": of_shape(wave, wave_by_hand, (2, 15), 1.0, 2.0, 0.3),
    "counts": of_shape(counts, counts_by_hand, (12, 4), *(0.2 * normal(3))),
    "a matrix": of_shape(quadratic, quadratic_by_hand, (8,), *normal(32)),
}


def ours(case: Case, items: Any) -> Callable:
    model = partial(case.model, anp)
    return dg.value_and_grad(lambda p: dg.map_sum(model, items, p))


def loop(case: Case, items: Any) -> Callable:
    def evaluate(p):
        value, slope = 0.0, np.zeros(len(p))
        for item in items:
            term, of_term = case.by_hand(item, p)
            value += term
            slope += of_term
        return value, slope

    return evaluate


def by_jax(case: Case, items: Any) -> Callable:
    import jax

    jax.config.update("jax_enable_x64", True)
    each = jax.vmap(jax.value_and_grad(partial(case.model, jax.numpy), 1), (0, None))
    summed = jax.jit(lambda items, p: jax.tree.map(lambda rows: rows.sum(0), each(items, p)))
    there = jax.numpy.asarray(items)
    return lambda p: jax.tree.map(np.asarray, summed(there, p))


def ragged(count: int, sizes: int) -> list[np.ndarray]:
    return [uniform(5 + (7919 * n) % sizes) for n in range(count)]


def by_branch(x, p):
    total = np.sum(x * p[0])
    if x[0] > 0.5:
        return total**2 + p[1]
    return np.exp(-total) if x[1] > 0.5 else np.sin(total)


def of_pair(item, p):
    return density(anp, item[0], p) * item[1]


def with_own(item, p):
    x, q = item
    return density(anp, x, p + q)


def kinds(count: int) -> dict[str, tuple[Callable, tuple]]:
    """Sums over items of other kinds than rows of an array, and their arguments."""
    model, rows, p = partial(density, anp), uniform((count, 10)), CASES["densities of 10"].p
    pairs = [(row, float(n % 7)) for n, row in enumerate(rows)]
    own = 0.1 * uniform((count, 2))
    sums: dict[str, tuple[Callable, tuple]] = {
        "a list of arrays": (lambda p: dg.map_sum(model, list(rows), p), (p,)),
        **{
            f"of {sizes} sizes": (partial(dg.map_sum, model, ragged(count, sizes)), (p,))
            for sizes in (2, 8, 32, 128)
        },
        "three branches": (lambda p: dg.map_sum(by_branch, rows, p), (p,)),
        "tuples": (lambda p: dg.map_sum(of_pair, pairs, p), (p,)),
        "numbers": (lambda p: dg.map_sum(lambda x, p: (x * p[0] - p[1]) ** 2, rows[:, 0], p), (p,)),
        "gradients of their own": (
            lambda p, q: dg.map_sum(with_own, dg.zip(rows, q), p),
            (p, own),
        ),
    }
    return {
        name: (dg.value_and_grad(fun, tuple(range(len(args)))), args)
        for name, (fun, args) in sums.items()
    }


def time_of(call: Callable[[], Any], clock: Callable[[], float]) -> float:
    begin = clock()
    call()
    return clock() - begin


def least(calls: list[Callable[[], Any]], rounds: int, clock: Any = time.process_time) -> list:
    for call in calls:
        for _ in range(CALLS):
            call()
    found = [[time_of(call, clock) for call in calls] for _ in range(rounds)]
    return np.min(found, axis=0).tolist()


def placed_on_workers(count: int, rounds: int) -> float:
    """Seconds of an evaluation over rows that two workers hold."""
    case = CASES["densities of 10"]
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        with dg.place(case.items(count)) as shards:
            call = partial(ours(case, shards), case.p)
            return least([call], rounds, time.perf_counter)[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer items and rounds")
    quick = parser.parse_args().quick
    count, rounds = (500, 1) if quick else (10_000, 5)
    has_jax = importlib.util.find_spec("jax") is not None
    peers = [ours, loop, *[by_jax] * has_jax]
    ratios = []
    print(
        f"{'an item, in µs':<24}{'batches':>10}{'loop':>10}{'ratio':>8}"
        + f"{'JAX':>10}{'ratio':>8}" * has_jax
    )
    with dask.config.set(scheduler="synchronous"):
        for name, case in CASES.items():
            items = case.items(count // case.part)
            functions = [peer(case, items) for peer in peers]
            expected = functions[1](case.p)[1]
            for function in functions:
                np.testing.assert_allclose(function(case.p)[1], expected, 1e-8, 1e-8, err_msg=name)
            seconds = [
                1e6 * s / len(items) for s in least([partial(f, case.p) for f in functions], rounds)
            ]
            ratios.append([seconds[0] / other for other in seconds[1:]])
            columns = [f"{s:>10.3f}{r:>8.2f}" for s, r in zip(seconds[1:], ratios[-1], strict=True)]
            print(f"{name:<24}{seconds[0]:>10.3f}{''.join(columns)}", flush=True)
        print("\nitems of other kinds, in µs an item")
        for name, (call, args) in kinds(count).items():
            (seconds_of_all,) = least([partial(call, *args)], rounds)
            print(f"{name:<24}{1e6 * seconds_of_all / count:>10.3f}", flush=True)
    seconds = placed_on_workers(count, rounds)
    print(f"{'on two workers':<24}{1e6 * seconds / count:>10.3f}")
    means = np.exp(np.mean(np.log(ratios), axis=0)).tolist()
    texts = ["batches over a loop by hand", "batches over jit(vmap)"]
    limits = [AT_MOST, OF_JAX]
    return judged([at_most(*each) for each in zip(texts, means, limits, strict=False)], quick)


if __name__ == "__main__":
    sys.exit(main())
