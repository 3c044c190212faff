"""Random loops over time, compiled with ``for`` statements: the bits of the tape.

Turns update one to three states by the operations of ``fuzz_operations``. They may depend on their
number, on branches and on states of two turns ago; loops may have others within them, ``dg.scan``
among them, end early, and keep values of some turns or of all. Small loops are rolled, too.
"""

import autograd
import fuzz_programs
import numpy as np
import pytest
from fuzz_batches import COUNTS, PARTS, differences_of_rows
from fuzz_derivatives import SENSELESS
from fuzz_operations import N, are_compatible
from fuzz_programs import compared, points, result, silence

from daskgrad.autodiff.programs import rolling
from daskgrad.autodiff.programs.batches import batched
from daskgrad.autodiff.programs.boxes import Unrecordable
from daskgrad.autodiff.programs.calls import TurnLoop
from daskgrad.autodiff.programs.program import written, written_as_one
from daskgrad.autodiff.programs.recording import record
from daskgrad.autodiff.programs.rewrites import rewritten
from daskgrad.autodiff.programs.rolling import rolled
from daskgrad.graph.delayed import as_model
from daskgrad.loops.nested import NestedLoop
from daskgrad.loops.schedules import AUTO

KINDS = "operation data number index slice lag branch gradient rare kept total swap scan".split()
KINDS += ["inner"] * 4


def steps_of(random, depth=0):
    """A turn: kinds of statements, each with two states and a number to choose by."""
    count = int(random.integers(1, 4 if depth else 6))
    steps = []
    for _ in range(count):
        kind = KINDS[random.integers(len(KINDS))] if random.random() < 0.6 else "operation"
        i, j, choice = random.integers([3, 3, 1 << 30]).tolist()
        within = steps_of(random, depth + 1) if kind == "inner" and depth < 2 else []
        steps.append((kind, i, j, choice, within))
    return steps


def mixed(state, value):
    """A value in the shape of the state."""
    if are_compatible(np.shape(state), np.shape(value)):
        if np.broadcast_shapes(np.shape(state), np.shape(value)) == np.shape(state):
            return 0.7 * state + 0.3 * value
    return 0.9 * state + 0.1 * np.sum(value)


def scanned(x, y, choice):
    """The last state of a loop of the package's, with or without rows and outputs."""
    count, outputs = 2 + choice % 5, [None, "sum", "stack"][choice % 3]
    has_rows = choice % 2 == 1

    def step(state, *others):
        *rows, y = others
        value = np.sin(y) if choice % 7 and np.sum(state) > 0.0 else y * y
        new = mixed(state, value * rows[0] if rows else value)
        return (new, np.sum(new * y)) if outputs else new

    loop = NestedLoop(as_model(step), count, has_rows, outputs, AUTO)
    value = loop(x, *[np.cos(np.arange(float(count)))] * has_rows, y)
    return value[0] + np.sum(value[1]) if outputs else value


def turn_of(steps, turn, states, before, data, lists):
    for kind, i, j, choice, within in steps:
        i, j = i % len(states), j % len(states)
        x, y = states[i], states[j]
        if kind == "operation":
            value = result((choice % len(fuzz_programs.OPERATIONS), 0, 0, choice), [x], data)
        elif kind == "data":
            value = data[choice % 2][turn % N] * y
        elif kind == "number":
            value = [0.1 * turn * y, turn * y, y + turn, y * 1.0 if turn else 2.0 * y][choice % 4]
        elif kind == "index":
            flat = np.ravel(y)
            value = [flat[turn % len(flat)], flat[-1 - turn % 3], data[0][turn % N :]][choice % 3]
        elif kind == "slice":
            value = np.ravel(y)[turn % 3 : turn % 3 + 4]
        elif kind == "lag":
            value = x - before[j] if choice % 2 else before[j] * 0.5
        elif kind == "branch":
            value = np.sin(y) if np.sum(x) > 0.1 * (choice % 5) else y * data[0][0]
        elif kind == "gradient":
            value = autograd.grad(lambda z: np.sum(np.sin(z) * np.mean(z)))(y)
        elif kind == "scan":
            value = scanned(x, y, choice)
        elif kind == "rare":
            value = y * y if turn == choice % 7 else np.cos(y)
        elif kind == "kept":
            lists[choice % 2].append(np.sum(y))
            continue
        elif kind == "total":
            lists[2] = lists[2] + np.sum(x * 0.5)
            continue
        elif kind == "swap":
            states[i], states[j] = states[j], states[i]
            continue
        else:
            for number in range(2 + choice % 6):
                turn_of(within, number, states, before, data, lists)
            continue
        states[i] = mixed(x, value)


def program(seed):
    """A function of arrays."""
    random = np.random.default_rng(seed)
    steps, last = steps_of(random), int(random.integers(5))
    turns, first = random.integers([5, 5], [24, 10]).tolist()
    order = [range(turns), range(turns)[::-1], range(first, first + turns)][random.integers(3)]
    ends, count = int(random.integers(4)), int(random.integers(1, 4))

    def fun(a, b, *data):
        states, before, lists = [a, b, np.sum(a)][:count], [a, b, np.sum(b)], [[], [], 0.0]
        for turn in order:
            old = [*states]
            turn_of(steps, turn, states, before, data, lists)
            before = [*old, *before[len(old) :]]
            if ends == 0 and turn > 4 and np.sum(states[0]) > 1.0:
                break
        if last == 0:
            return [np.sum(states[0])]
        if last == 1:
            return [*states]
        if last == 2:
            return [sum(lists[0], lists[2]) + np.sum(states[-1]), states[0]]
        if last == 3 and lists[0]:
            return [np.stack(lists[0]), np.sum(states[0]) * lists[0][len(lists[0]) // 2]]
        return [lists[2] * np.sum(states[-1]), *before[:1]]

    return fun


def differences(seed, counts):
    random, fun = np.random.default_rng(seed + 3), program(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rolling, "LEAST", 20)
        patch.setattr(rolling, "LEAST_TURNS", int(random.integers(2, 5)))
        patch.setattr(rolling, "LEAST_CALLS", [4, 20, 80][random.integers(3)])
        patch.setattr(rolling, "KEPT", [0, 2**16][random.integers(2)])
        dtype = "df"[seed % 5 == 4]
        found = compared(fun, points(seed + 1, dtype=dtype), (0, 1), SENSELESS)
        if found is None:
            counts["not recorded"] += 1
            return []
        first = next(points(seed + 1, dtype=dtype))
        with silence():
            calls, examples = record(fun, first, (0, 1))
            item = rewritten(rolled(calls))
            counts[depth_of(item.calls)] += 1
            texts = [f"{found[1]} results differ"] * bool(found[1])
            return texts + differences_of_batch(random, item, examples, first, counts)


def differences_of_batch(random, item, examples, first, counts):
    """Rows of a batch against the item's program; loops of Python's objects have none."""
    own = [(2, 3), (0, 1, 2, 3), (1, 3)][random.integers(3)]
    try:
        many, _ = batched(item, own)
    except Unrecordable:
        counts["without batch"] += 1
        return []
    counts[f"batches {depth_of(many.calls)}"] += 1
    single, run = written(item, "item", examples), written_as_one(many)
    part = PARTS[random.integers(3)]
    return differences_of_rows(random, single, run, first, own, COUNTS[random.integers(3)], part)


def depth_of(calls):
    """How many loops are within each other."""
    loops = [call.fun for call in calls if type(call.fun) is TurnLoop]
    depth = max([0, *[1 + int(depth_of(loop.body).split()[0]) for loop in loops]])
    return f"{depth} deep"
