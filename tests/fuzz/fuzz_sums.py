"""Random sums: the same bits for every grainsize, and in each place that evaluates them."""

import autograd.numpy as np
import dask.array
import numpy
from samples import decades

import daskgrad as dg


def waves(item, x):
    return np.sum(np.sin(item * x))


def products(item, x):
    return np.dot(item, x) ** 2


def arrays(item, x):
    return item * np.cos(x)


TERMS = {"waves": waves, "products": products, "arrays": arrays}
ITEMS = {
    "a list": lambda rows, _: list(rows),
    "an array": lambda rows, _: rows,
    "placed": lambda rows, grainsize: dg.place(list(rows), grainsize),
    "a dask Array": lambda rows, _: dask.array.from_array(rows, chunks=(7, -1)),
}
PLACES = {
    "sync": {"scheduler": "sync", "daskgrad.inline.seconds": 0},
    "threads": {"scheduler": "threads", "daskgrad.inline.seconds": 0},
    "in line": {"scheduler": "sync", "daskgrad.inline.seconds": 60},
}


def evaluate(term, items, x, grainsize, summation, place):
    def total(x):
        grain = {} if hasattr(items, "close") else {"grainsize": grainsize}
        made = dg.map_sum(term, items, x, summation=summation, **grain)
        return dg.delayed(np.sum)(made) if term is arrays else made

    both = dg.value_and_grad(total)
    with dask.config.set(place):
        for _ in range(2):  # in line without a graph then
            value, gradient = both(x)
    return numpy.asarray(value).tobytes(), gradient.tobytes()


def differences(seed, counts):
    random = numpy.random.default_rng(seed)
    count, length = random.integers(1, 100), random.integers(1, 5)
    rows, x = decades(count, length, seed=seed), random.normal(size=length)
    term = TERMS[random.choice(list(TERMS))]
    summation = str(random.choice(["pairwise", "compensated"]))
    expected = evaluate(term, list(rows), x, 1, summation, PLACES["sync"])
    texts = []
    for place, setting in PLACES.items():
        kind, grainsize = random.choice(list(ITEMS)), int(random.choice([1, 2, 3, 8, 64, 256]))
        found = evaluate(term, ITEMS[kind](rows, grainsize), x, grainsize, summation, setting)
        if found != expected:
            case = f"{count} terms, {term.__name__}, {kind}, {summation}, grainsize {grainsize}"
            texts.append(f"other bits, {place}: {case}")
        counts[kind] += 1
    return texts
