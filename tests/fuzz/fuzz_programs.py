"""Random programs of the operations in ``fuzz_operations``, compiled: the bits of the tape.

Value and cotangents are compared at several points: of a program alone, and of calls of a model
with dicts of arguments and results, into which the caller writes.
"""

import contextlib
import warnings

import numpy as np
from captured_calls import derivatives, is_same, model_of, ones_like, overwrite
from fuzz_operations import OPERATIONS, M, N
from recorded import program_of

import daskgrad as dg
from daskgrad.autodiff.programs.boxes import Unrecordable
from daskgrad.autodiff.programs.signatures import are_same
from daskgrad.autodiff.rules.declaration import Diverged, Refusal
from daskgrad.autodiff.tape.reverse import trace

CALLS = 12  # of a model, which is compiled at the third
SENSELESS = (ValueError, IndexError, TypeError, np.linalg.LinAlgError, NotImplementedError)


@contextlib.contextmanager
def silence():
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Chooser:
    """Chooses numbers, the same ones from the same seed."""

    def __init__(self, seed):
        self._seed = seed
        self._count = 0

    def __call__(self, n):
        self._count += 1
        return hash((self._seed, self._count)) % n


def program(seed):
    """A random function of two traced arrays and two of data, which returns a list of arrays; its
    operations make sense to NumPy."""
    random = np.random.default_rng(seed)
    steps, last = [], int(random.integers(5))
    a, b, *data = next(points(seed))
    pool, length = [a, b], random.integers(5, 27)
    while len(pool) < length:
        i, j, kind = random.integers([len(pool), len(pool), len(OPERATIONS)])
        step = (kind, i if random.random() < 0.5 else -1, j, int(random.integers(1 << 30)))
        try:
            with silence():
                pool.append(result(step, pool, data))
        except SENSELESS:
            continue
        steps.append(step)

    def fun(a, b, *data):
        pool = [a, b]
        for step in steps:
            pool.append(result(step, pool, data))
        final, middle = pool[-1], pool[len(pool) // 2]
        results = [
            [np.sum(final)],
            [final],
            [final * np.sum(pool[-2]), middle],
            [final, final, a, middle],  # that share memory
            [np.ravel(final)[::-1], final.T if np.ndim(final) else final, np.ravel(final)],
        ]
        return results[last]

    return fun


def result(step, pool, data):
    kind, i, j, choice = step
    value = OPERATIONS[kind](pool[i], pool[j], data, Chooser(choice))
    return value if np.size(value) <= 500 else np.ravel(value)[:N]


def points(seed, count=4, dtype="d"):
    random = np.random.default_rng(seed)
    for _ in range(count):
        a, b = random.normal(size=N), random.normal(size=(N, M))
        arrays = a, b, random.normal(size=N), random.random(N)
        yield tuple([array.astype(dtype) for array in arrays])


def compared(fun, points, traced, senseless=SENSELESS):
    """The program of a function, and how many of its results at the points differ from the tape's;
    None if it cannot be recorded, or what it raises says that it makes no sense."""
    program, found = None, 0
    for arrays in points:

        def of_traced(*boxes, arrays=arrays):
            mixed = dict(zip(traced, boxes, strict=True))
            return fun(*[mixed.get(n, array) for n, array in enumerate(arrays)])

        with silence():
            try:
                outputs, tape = trace(of_traced, [arrays[n] for n in traced])
                pull(tape.pull, list(map(ones_like, outputs)))
                program = program or program_of(fun, arrays, traced)
            except (Unrecordable, *senseless):
                return None
            try:
                own, residuals = program.forward(*arrays)
                before = [np.array(each) for each in own]
                pulled = pull(program.pull_examples, residuals)
            except Diverged:
                continue
            found += not (
                are_same(own, outputs)
                and are_same(pulled, pull(tape.pull, program.examples))
                and are_same(before, own)  # pulling back changes no value
                and are_same(pulled, pull(program.pull_examples, residuals))
            )
    return program, found


def pull(pull_back, *args):
    """What is pulled back, or why there is no derivative where the program came to."""
    try:
        return pull_back(*args)
    except Refusal as refusal:
        return [np.array(str(refusal))]


def differences_of_calls(seed):
    """How many calls of a model differ from the tape; its arguments and results are in dicts."""
    fun = program(seed)

    def model(given, data):
        results = fun(given["a"], given["b"][0], data["c"], *data["d"])
        return {f"result {n}": [each] for n, each in enumerate(results)}

    compiled, plain = model_of(model, True), model_of(model, False)
    found = 0
    for a, b, c, d in points(seed + 1, CALLS):
        arguments = {"a": a, "b": [b]}, {"c": c, "d": (d,)}
        before = [each.copy() for each in (a, b, c, d)]
        with silence():
            expected = derivatives(plain, arguments)
            try:
                own = derivatives(compiled, arguments)
            except dg.NondeterministicModelError:
                found += 1
                continue
        found += not (is_same(own, expected) and are_same(before, [a, b, c, d]))
        overwrite(own)
    return found


def differences(seed, counts):
    result = compared(program(seed), points(seed + 1, dtype="df"[seed % 5 == 4]), (0, 1))
    called = differences_of_calls(seed) if seed % 4 < 2 else 0
    counts["not recorded" if result is None else "compared"] += 1
    found = result[1] if result else 0
    return [f"{found} results and {called} calls differ"] * bool(found or called)
