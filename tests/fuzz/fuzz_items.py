"""Random sums over items of mixed kinds: each term has the bits of the tape, in each evaluation.

What is at one place of an item differs from item to item: numbers of any type, and arrays of any
length, dtype, order and number of axes. So items have programs of many groups, also in later sums,
which know what earlier ones have found. Each item has a label, which the model may read, on some
branches.
"""

import datetime
import warnings

import autograd.numpy as np
import dask
import numpy
from comparisons import bits

import daskgrad as dg

KINDS = {
    "a float": lambda r: float(r.normal()),
    "an integer": lambda r: int(r.integers(-3, 4)),
    "a boolean": lambda r: bool(r.integers(2)),
    "a number of NumPy's": lambda r: numpy.float64(r.normal()),
    "in single precision": lambda r: numpy.float32(r.normal()),
    "no axes": lambda r: numpy.array(r.normal()),
    "an array": lambda r: r.normal(size=r.integers(1, 5)),
    "nothing": lambda r: numpy.zeros(0),
    "single precision": lambda r: r.normal(size=r.integers(1, 4)).astype(numpy.float32),
    "integers": lambda r: r.integers(-3, 4, r.integers(1, 4)),
    "booleans": lambda r: r.random(3) < 0.5,
    "a matrix": lambda r: r.normal(size=(2, r.integers(1, 4))),
    "Fortran's order": lambda r: numpy.asfortranarray(r.normal(size=(2, 3))),
    "every other entry": lambda r: r.normal(size=8)[::2],
    "backwards": lambda r: r.normal(size=4)[::-1],
    "another byte order": lambda r: r.normal(size=3).astype(">f8"),
    "read-only": lambda r: numpy.broadcast_to(r.normal(size=1), (3,)),
    "complex": lambda r: r.normal(size=2) + 1j * r.normal(size=2),
}
USES = {
    "a sum": lambda field, x: np.sum(field * x),
    "waves": lambda field, x: np.sum(np.sin(field * x)),
    "squares": lambda field, x: x * np.sum(np.abs(field + x) ** 2),
    "a branch": lambda field, x: np.sum(field) * x if np.sum(field * 1.0) > 0 else x**2,
}
LABELS = {
    "a name": lambda r: f"name {r.integers(6)}",
    "a name of bytes": lambda r: b"name %d" % r.integers(6),
    "a number": lambda r: int(r.integers(6)),
    "a day": lambda r: datetime.date(2020, 1, int(r.integers(1, 7))),
}


def in_names(label):
    try:
        return 2.0 if label in "name 1 name 2" else 1.0
    except TypeError:
        return 1.0


READS = {
    "not": lambda label: 1.0,
    "by value": lambda label: 2.0 if label in ("name 1", 2, b"name 3") else 1.0,
    "as a key": lambda label: {"name 1": 2.0, 3: 3.0}.get(label, 1.0),
    "its text": lambda label: float(len(f"{label}")),
    "in C": in_names,
    "in any way": lambda label: 2.0 if label else 1.0,
}
STRUCTURES = {
    "a tuple": tuple,
    "a list": list,
    "a dict": lambda fields: dict(zip(["label", *"abc"], fields, strict=False)),
}
SWEEPS = 4
X = numpy.array([0.3, -0.4, 0.7])


def differences(seed, counts):
    random = numpy.random.default_rng(seed)
    fields = int(random.integers(1, 4))
    kinds = [KINDS[name] for name in random.choice(list(KINDS), random.integers(1, 7))]
    uses = tuple([USES[name] for name in random.choice(list(USES), fields)])
    build = STRUCTURES[random.choice(list(STRUCTURES))]
    label_of, read = LABELS[random.choice(list(LABELS))], READS[random.choice(list(READS))]
    is_seldom = random.integers(2)
    items = [
        build([label_of(random), *[random.choice(kinds)(random) for _ in range(fields)]])
        for _ in range(random.integers(2, 60))
    ]
    grainsize = int(random.choice([1, 4, 64]))

    def model(item, x):
        names = ["label", *"abc"[:fields]]
        label, *own = [item[name] for name in names] if isinstance(item, dict) else item
        total = sum([np.real(uses[n](own[n], x[n])) for n in range(fields)])
        return total if is_seldom and total < 0.0 else total * read(label)

    def evaluate(choice):
        made = dg.delayed(model, compile=choice)
        total = dg.value_and_grad(lambda x: dg.map_sum(made, items, x, grainsize=grainsize))
        return [total(X * (1.0 + sweep)) for sweep in range(SWEEPS)]

    with warnings.catch_warnings(), dask.config.set({"scheduler": "synchronous"}):
        warnings.simplefilter("ignore")
        try:
            expected = evaluate(False)
        except (TypeError, ValueError):  # the model makes no sense of such items
            counts["senseless"] += 1
            return []
        found = evaluate(bool(random.integers(2)) or "auto")
    counts["compared"] += 1
    return [
        f"evaluation {number}: {one}, and on the tape {other}"
        for number, (one, other) in enumerate(zip(found, expected, strict=True))
        if bits(one) != bits(other)
    ]
