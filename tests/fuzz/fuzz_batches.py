"""Random programs run on many items at once: each row has the bits of the item's own program.

Items are tame numbers, with a few special ones among them, or full of these; what is stacked is the
data alone, or the traced arrays, too. Sums over such items, with gradients of the items' own, have
the bits of the tape.
"""

import autograd.numpy as anp
import dask
import numpy as np
import optree
from fuzz_programs import SENSELESS, points, program, silence

import daskgrad as dg
from daskgrad.autodiff.programs.batches import Parted, batched
from daskgrad.autodiff.programs.boxes import Unrecordable
from daskgrad.autodiff.programs.program import written, written_as_one
from daskgrad.autodiff.programs.recording import record
from daskgrad.autodiff.programs.rewrites import rewritten
from daskgrad.autodiff.programs.signatures import are_same
from daskgrad.autodiff.rules.declaration import Diverged

SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 2.0, np.inf, -np.inf, np.nan, 1e-310, 1e300, 0.5])
COUNTS = 2, 3, 17
PARTS = 0.0, 0.03, 0.6  # of the entries, that are special


def differences(seed, counts):
    random = np.random.default_rng(seed)
    dtype = "df"[seed % 5 == 4]
    fun, first = program(seed), next(points(seed + 1, dtype=dtype))
    if seed % 3 == 0:
        counts["sums"] += 1
        return differences_of_sum(fun, random, dtype)
    with silence():
        try:
            calls, examples = record(fun, first, [0, 1])
        except (Unrecordable, *SENSELESS):
            counts["not recorded"] += 1
            return []
        item = rewritten(calls)
        single = written(item, "item", examples)
        own = [(2, 3), (0, 1, 2, 3), (1, 3)][random.integers(3)]
        calls_of_many, loops = batched(item, own)
        counts["with loops" if loops else "without"] += 1
        run = written_as_one(calls_of_many)
        return [
            text
            for count, part in zip(COUNTS, random.permutation(PARTS), strict=True)
            for text in differences_of_rows(random, single, run, first, own, count, part)
        ]


def differences_of_sum(fun, random, dtype):
    count, part = int(random.integers(65, 90)), PARTS[random.integers(3)]
    items = list(points(int(random.integers(1 << 30)), count, dtype))
    data = [tuple([special(random, x, part) for x in arrays[2:]]) for arrays in items]
    own = np.stack([arrays[0] for arrays in items])
    own, shared = own if random.integers(2) else list(own), items[0][1]

    def term(item, b):
        (c, d), a = item
        return sum([anp.sum(anp.real(each) * 1.0) for each in fun(a, b, c, d)])

    def evaluate(choice):
        model = dg.delayed(term, compile=choice)
        total = dg.value_and_grad(lambda a, b: dg.map_sum(model, dg.zip(data, a), b), (0, 1))
        return [optree.tree_leaves(total(own, shared * k)) for k in (1.0, 1.1, 1.2)]

    with silence(), dask.config.set(scheduler="synchronous"):
        try:
            expected = evaluate(False)
        except SENSELESS:
            return []
        found = evaluate(True)
    pairs = zip(found, expected, strict=True)
    return [f"evaluation {n} differs" for n, pair in enumerate(pairs) if not are_same(*pair)]


def differences_of_rows(random, single, run, first, own, count, part):
    rows, expected = [], []
    for arrays in points(int(random.integers(1 << 30)), 4 * count, first[0].dtype):
        row = [special(random, x, part) if n in own else first[n] for n, x in enumerate(arrays)]
        try:
            outputs, residuals = single.forward(*row)
            expected.append([*outputs, *single.pull_examples(residuals)])
        except Exception:  # the tape's
            continue
        rows.append(row)
        if len(rows) == count:
            break
    if not rows:
        return []
    stacked = [np.stack(x) if n in own else x[0] for n, x in enumerate(zip(*rows, strict=True))]
    before = [x.copy() for x in stacked]
    try:
        results = run(*stacked, *single.seeds)
    except (Diverged, Parted):  # they go one by one
        return []
    found = [[y if y is None else y[n] for y in results] for n in range(len(rows))]
    wrong = sum([not are_same(*pair) for pair in zip(found, expected, strict=True)])
    texts = [f"{wrong} of {len(rows)} rows differ, with {own} stacked"] if wrong else []
    return texts + ["an argument has changed"] * (not are_same(before, stacked))


def special(random, array, part):
    numbers = random.choice(SPECIAL, array.shape)
    with np.errstate(over="ignore"):
        numbers = numbers.astype(array.dtype)
    return np.where(random.random(array.shape) < part, numbers, array)
