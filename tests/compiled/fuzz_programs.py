"""Random programs for the compiler: slices, fancy indices, scattered writes, views, reductions,
broadcasts, branches, functions with and without a rule of the compiler's.

    python tests/compiled/fuzz_programs.py --minutes 10 --seed 0

compares value and cotangents of compiled programs with the tape's, bit by bit, at several points.
"""

import argparse
import time

import autograd.numpy as anp
import numpy as np

from daskgrad.backends.autograd.reverse import trace
from daskgrad.compiled.program import Diverged
from daskgrad.compiled.recording import record
from daskgrad.compiled.signatures import are_same
from daskgrad.compiled.steps import Unrecordable
from daskgrad.compiled.writing import write

N, M = 10, 9
TABLE = np.asfortranarray(np.cos(np.arange(N * M)).reshape(N, M))
INDICES = [np.array([0, 2, 2, 1]), [1, 1], slice(1, None), slice(None, None, -1), Ellipsis, 0]

UNARY = [np.sin, np.cos, np.tanh, np.exp, np.abs, np.square, anp.sin, np.negative, np.arctan]
UNARY += [lambda x: np.sqrt(1.0 + x * x), lambda x: x**3, lambda x: 1.5 - x, lambda x: x / 3.0]
UNARY += [lambda x: np.log1p(np.exp(-x)), lambda x: np.clip(x, -0.5, 0.5), lambda x: x * x * x]
UNARY += [
    lambda x: np.where(x > 0.0, x, 0.1 * x),
    lambda x: np.cumsum(x),
    lambda x: np.sort(np.ravel(x)),
]
BINARY = [np.add, np.subtract, np.multiply, np.maximum, np.minimum, np.arctan2, np.hypot]
BINARY += [
    lambda x, y: x / (2.0 + y * y),
    lambda x, y: x * y + y,
    lambda x, y: np.where(x < y, x, y),
]


def matrices(random, pool):
    """An operation on values of any shapes: a function of all values so far."""
    kind = random.integers(12)
    i, j = random.integers(len(pool), size=2)
    return kind, int(i), int(j), int(random.integers(100))


def apply(step, pool, data):
    kind, i, j, choice = step
    x, y = pool[i], pool[j]
    shape = np.shape(x)
    if kind <= 2:
        return UNARY[choice % len(UNARY)](x)
    if kind <= 5:
        fun = BINARY[choice % len(BINARY)]
        return fun(x, y) if compatible(shape, np.shape(y)) else fun(x, np.sum(y))
    if kind == 6 and len(shape):
        return [np.sum, np.mean, np.max][choice % 3](
            x, axis=choice % len(shape), keepdims=choice > 50
        )
    if kind == 7 and len(shape):
        index = INDICES[choice % len(INDICES)]
        return x[index] if shape[0] >= 3 else x[:1]
    if kind == 8:
        return [lambda x: np.reshape(x, -1), lambda x: x.T, lambda x: np.ravel(x)][choice % 3](x)
    if kind == 9:
        return np.concatenate([np.ravel(x), np.ravel(y), data[0]])[:N] * data[choice % len(data)]
    if kind == 10:
        return np.dot(TABLE.T, x) if shape[:1] == (N,) else np.sin(np.mean(x) * TABLE)
    if kind == 11 and choice % 3 == 0:
        return x if np.sum(x) > 0.3 else 2.0 * x
    return np.stack([np.sum(x), np.sum(y), np.mean(x)])


def compatible(first, second):
    try:
        np.broadcast_shapes(first, second)
    except ValueError:
        return False
    return True


def program(seed):
    """A random function of two traced arrays and two of data."""
    random = np.random.default_rng(seed)
    steps = [matrices(random, range(2 + n)) for n in range(random.integers(3, 25))]
    last = int(random.integers(3))

    def fun(a, b, c, d):
        pool = [a, b]
        for step in steps:
            pool.append(apply(step, pool, [c, d]))
        outputs = [np.sum(pool[-1]), pool[-1], pool[-1] * np.sum(pool[-2])]
        return [outputs[last]] if last < 2 else [outputs[2], pool[len(pool) // 2]]

    return fun


def points(seed):
    random = np.random.default_rng(seed)
    yield from (
        (random.normal(size=N), random.normal(size=(N, M)), random.normal(size=N), random.random(N))
        for _ in range(4)
    )


def differences(seed):
    """How many results of a program differ from the tape's; None if it cannot be recorded."""
    fun, program_of = program(seed), None
    found = 0
    for arrays in points(seed + 1):
        traced, data = arrays[:2], arrays[2:]
        with np.errstate(all="ignore"):
            try:
                outputs, tape = trace(lambda *xs, data=data: fun(*xs, *data), traced)
            except (ValueError, IndexError, TypeError):  # NumPy's: a program that makes no sense
                return None
            if program_of is None:
                try:
                    recording = record(fun, arrays, [True, True, False, False])
                    program_of = write(recording, "fuzz", [0, 1])
                except Unrecordable:
                    return None
            try:
                own, residuals = program_of.forward(*arrays)
            except Diverged:
                continue
            before = [np.array(each) for each in own]
            pulled = program_of.pull_examples(residuals)
            found += not (
                are_same(own, outputs)
                and are_same(pulled, tape.pull(program_of.examples))
                and are_same(before, own)  # pulling back changes no value
                and are_same(pulled, program_of.pull_examples(residuals))
            )
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    end = time.monotonic() + 60.0 * given.minutes
    seed, counts = given.seed, {"same": 0, "different": 0, "not recorded": 0}
    while time.monotonic() < end:
        found = differences(seed)
        counts["not recorded" if found is None else "different" if found else "same"] += 1
        if found:
            print(f"seed {seed}: {found} results differ", flush=True)
        seed += 1
    print(counts)
    raise SystemExit(counts["different"] > 0)


if __name__ == "__main__":
    main()
