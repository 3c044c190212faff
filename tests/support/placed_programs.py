"""Programs with sums that workers evaluate where the items are: placed, sent along, or beside.

Each takes ``place``, which places items (or does not), ``p``, parameters of the items' own, and
``x``, which all share.
"""

import autograd.numpy as np
import dask
import numpy

import daskgrad as dg
from daskgrad.autodiff.values.trees import flatten

COUNT = 75
GENERATOR = numpy.random.default_rng(3)
ROWS, OF_ROWS = GENERATOR.standard_normal((2, COUNT, 4))
NEAR = GENERATOR.standard_normal(COUNT)
RAGGED = [GENERATOR.standard_normal(2 + number % 5) for number in range(COUNT)]
LIST = [
    {"a": GENERATOR.standard_normal(), "b": GENERATOR.standard_normal(1 + number % 3)}
    for number in range(COUNT)
]
WIDE = GENERATOR.standard_normal((COUNT, 600))  # a parcel for each worker where it is no variable
HUGE = GENERATOR.standard_normal((COUNT, 1000))  # passed on from worker to worker, as the point is
BIG = numpy.arange(20_000.0)
X = numpy.linspace(-0.5, 1.0, 4)

# -------------------------------------------------------------------------------- summands


def dot(row, x):
    return np.sum(np.sin(row * x) ** 2)


def ragged(item, x):
    return np.sum(np.exp(-x[0] * item)) + x[1] * x[2]


def fields(item, x):
    return np.sum(np.exp(0.1 * x * item["a"])) + np.sum(item["b"] ** 2) * x[1]


def slice_sum(rows, x):
    return np.sum(np.cos(np.dot(rows, x)))


def weighted(pair, x):
    return np.sum(np.sin(pair[0] * x)) * np.sum(pair[1])


def wide(pair, x):
    return np.sum(np.sin(pair[0] * x[0])) * np.sum(pair[1])


def effect(pair, x):
    of_item, row = pair
    return np.sum(np.tanh(of_item * row) * x)


def ragged_effect(pair, x):
    of_item, item = pair
    return np.sum(np.exp(0.1 * item * of_item["a"])) * x[0] + np.sum(of_item["b"] ** 2) * x[1]


def slice_effect(pair, x):
    of_items, rows = pair
    return np.sum(np.cos(of_items * rows) @ x)


def noisy(pair, x):
    return np.sum(np.sin(pair[0] * x)) * pair[1].normal()


def both(triple, x):
    return np.sum(triple[0] * triple[2] * x) + np.sum(np.sin(triple[0] * triple[1]))


def alone(row):
    return np.sum(row**2) ** 0.5


def with_constants(row, x, scale, big):
    return scale * dot(row, x) + big[7]


def wave(row, x):
    return row * np.sin(x)


def prior(p):
    return -0.5 * np.sum(p**2)


def mixed(x):
    return np.concatenate([x[2:], x[:2]]) * 2.0


def single(x):
    return x.astype(np.float32)


def keeping_gradient(model):
    return dg.delayed(model, keep="gradient")


def keeping_tape(model):
    return dg.delayed(model, keep="tape")


# -------------------------------------------------------------------------------- programs

PLACED = {
    "a mean": lambda place, p, x: dg.map_mean(dot, place(ROWS), x),
    "a sum over slices": lambda place, p, x: dg.reduce_sum(slice_sum, place(ROWS, 7), x),
    "ragged items": lambda place, p, x: dg.map_sum(ragged, place(RAGGED), x),
    "two sums": lambda place, p, x: (
        dg.map_sum(dot, place(ROWS), x) * 2.0 - dg.map_sum(ragged, place(RAGGED, 1), x)
    ),
    "a sum of what a node returns": lambda place, p, x: dg.map_sum(
        dot, place(ROWS), dg.delayed(mixed)(x)
    ),
    "a sum that depends on a sum": lambda place, p, x: dg.map_sum(
        dot, place(ROWS), x * dg.map_sum(ragged, place(RAGGED), x)
    ),
    "a sum with constants": lambda place, p, x: dg.map_sum(
        with_constants, place(ROWS), x, 2.0, BIG
    ),
    "a sum that x does not reach": lambda place, p, x: (
        dg.map_sum(dot, place(ROWS), X) * dg.delayed(prior)(x)
    ),
    "only gradients are kept": lambda place, p, x: dg.delayed(np.exp)(
        dg.map_sum(keeping_gradient(ragged), place(RAGGED), x) * 0.01
    ),
}
SENT = {
    "rows": lambda place, p, x: dg.map_sum(dot, p, x),
    "rows and their prior": lambda place, p, x: dg.map_sum(dot, p, x) + dg.delayed(prior)(p),
    "items of a list": lambda place, p, x: dg.map_sum(fields, p, x),
    "rows beside a large array": lambda place, p, x: dg.map_sum(weighted, dg.zip(p, WIDE), x),
    "rows twice": lambda place, p, x: dg.map_sum(dot, p, x) * dg.map_sum(weighted, dg.zip(p, p), x),
    "slices of rows": lambda place, p, x: dg.reduce_sum(slice_sum, p, x, grainsize=7),
    "rows behind stop_gradient": lambda place, p, x: (
        dg.map_sum(dot, p, x) * dg.stop_gradient(dg.map_sum(alone, p))
    ),
    "rows and placed items": lambda place, p, x: (
        dg.map_sum(dot, p, x) * dg.map_sum(dot, place(ROWS), x)
    ),
}
ZIPPED = {
    "a large array": lambda place, p, x: dg.map_sum(wide, dg.zip(WIDE, place(ROWS)), x),
    "numbers that are drawn": lambda place, p, x: dg.map_sum(
        noisy, dg.zip(place(ROWS), dg.random.generators(7, COUNT)), x
    ),
    "slices": lambda place, p, x: dg.reduce_sum(
        slice_effect, dg.zip(OF_ROWS, place(ROWS, 4)), x, grainsize=4
    ),
    "beside a sum that is evaluated here": lambda place, p, x: (
        dg.map_sum(weighted, dg.zip(place(ROWS), NEAR), x)
        + dg.map_sum(effect, dg.zip(OF_ROWS, ROWS), x)
    ),
    "effects": lambda place, p, x: dg.map_sum(effect, dg.zip(p, place(ROWS)), x),
    "effects twice": lambda place, p, x: (
        dg.map_sum(effect, dg.zip(p, place(ROWS)), x)
        - dg.map_sum(effect, dg.zip(place(ROWS), p), x)
    ),
    "effects side by side": lambda place, p, x: dg.map_sum(both, dg.zip(p, place(ROWS), p), x),
    "effects in slices": lambda place, p, x: dg.reduce_sum(
        slice_effect, dg.zip(p, place(ROWS, 4)), x, grainsize=4
    ),
    "effects in single precision": lambda place, p, x: dg.delayed(np.exp)(
        dg.map_sum(effect, dg.zip(p, place(ROWS.astype(np.float32))), dg.delayed(single)(x)) * 0.01
    ),
    "effects in exact sums": lambda place, p, x: dg.map_sum(
        effect, dg.zip(p, place(ROWS)), x, summation="compensated"
    ),
    "effects with their gradients kept": lambda place, p, x: (
        dg.map_sum(keeping_gradient(effect), dg.zip(p, place(ROWS)), x) * 2.0
    ),
    "large effects": lambda place, p, x: dg.map_sum(wide, dg.zip(p, place(ROWS)), x),
    "ragged effects": lambda place, p, x: dg.map_sum(ragged_effect, dg.zip(p, place(RAGGED)), x),
}
PROGRAMS = PLACED | SENT | ZIPPED
GRAPHS = {  # sums that become tasks
    "terms that are arrays": lambda place, p, x: dg.delayed(prior)(
        dg.map_sum(wave, place(ROWS), x)
    ),
    "tapes are kept": lambda place, p, x: dg.delayed(np.log)(
        dg.map_sum(keeping_tape(dot), place(ROWS), x)
    ),
    "rows beside a sum over a list": lambda place, p, x: (
        dg.map_sum(dot, p, x) + dg.map_sum(dot, list(ROWS), x)
    ),
    "both placed": lambda place, p, x: dg.map_sum(weighted, dg.zip(place(ROWS), place(NEAR)), x),
    "effects in terms that are arrays": lambda place, p, x: dg.delayed(prior)(
        dg.map_sum(lambda pair, x: pair[0] * pair[1] * x, dg.zip(p, place(ROWS)), x)
    ),
    "effects whose tapes are kept": lambda place, p, x: dg.delayed(np.exp)(
        dg.map_sum(keeping_tape(effect), dg.zip(p, place(ROWS)), x) * 0.01
    ),
    "beside a list of Delayed": lambda place, p, x: dg.map_sum(
        weighted, dg.zip(place(ROWS), [dask.delayed(float)(number) for number in NEAR]), x
    ),
}
OWN = {  # the parameters of the items' own, where they are no rows
    "items of a list": LIST,
    "ragged effects": LIST,
    "large effects": HUGE,
    "effects in single precision": OF_ROWS.astype(np.float32),
}


def program_of(name, place):
    """A program of ``p`` and ``x``, and its ``p``."""
    program = (PROGRAMS | GRAPHS)[name]
    return lambda p, x: program(place, p, x), OWN.get(name, OF_ROWS)


def everything(name, place):
    """The value, and the gradients with respect to ``p`` and ``x``."""
    program, p = program_of(name, place)
    value, gradients = dg.value_and_grad(program, (0, 1))(p, X)
    return value, flatten(gradients)[0]


def in_one_thread(compute, *args):
    """What a function returns where all runs in this thread, as the tasks of a graph."""
    with dask.config.set({"scheduler": "sync", "daskgrad.inline.seconds": 0.0}):
        return compute(*args)


def keeping():
    """``place``, which places a collection only once."""
    kept = {}

    def place(items, grainsize="auto"):
        if id(items) not in kept:
            kept[id(items)] = items, dg.place(items, grainsize)
        return kept[id(items)][1]

    return place
