"""Batches: items of one kind go many at a time, with the bits of one after the other."""

import itertools
import operator
import warnings

import autograd.numpy as np
import dask
import numpy
import optree
import pytest

import daskgrad as dg
from daskgrad.autodiff.programs import batches, blocks
from daskgrad.autodiff.programs.signatures import are_same

COUNT = 96
RANDOM = numpy.random.default_rng(0)
ROWS = RANDOM.normal(size=(COUNT, 6))
P = numpy.array([0.4, -0.2])


class Station:
    def __init__(self, rows, weight):
        self.rows, self.weight = rows, weight


def misfit(x, p):
    return np.sum((x - p[0]) ** 2 * np.exp(p[1]))


def of_pair(item, p):
    return misfit(item[0], p) * item[1]


def of_dict(item, p):
    return misfit(item["rows"], p) * item["weight"]


def of_station(item, p):
    return misfit(item.rows, p) * item.weight


def by_branch(x, p):
    total = np.sum(x * p[0])
    if x[0] > 0.5:
        return total**2
    return np.exp(-total) if x[1] > 0.0 else np.sin(total) * p[1]


def by_row(row, p):
    return (p[row[0]] - p[row[1]]) ** 2


def ignoring(x, p):
    return np.sum(x) * p[0]


def of_number(x, p):
    return (x * p[0] - p[1]) ** 2


WEIGHTS = RANDOM.random(COUNT).tolist()
PAIRS = list(zip(ROWS, WEIGHTS, strict=True))
COUNTS = RANDOM.integers(1, 4, COUNT)


def of_length(item, p):
    x, count = item
    return np.sum(x[:count] * p[0]) + p[1]


SUMS = {
    "rows": (misfit, ROWS),
    "a list": (misfit, list(ROWS)),
    "single precision": (misfit, ROWS.astype("f")),
    "numbers": (of_number, WEIGHTS),
    "an array of numbers": (of_number, numpy.array(WEIGHTS)),
    "tuples": (of_pair, PAIRS),
    "dicts": (of_dict, [{"rows": x, "weight": w} for x, w in PAIRS]),
    "objects": (of_station, [Station(*pair) for pair in PAIRS]),
    "sizes": (misfit, [x[: 2 + n % 3] for n, x in enumerate(ROWS)]),
    "branches": (by_branch, ROWS),
    "integers": (by_row, RANDOM.integers(2, size=(COUNT, 2))),
    "an argument is not used": (ignoring, ROWS),
    "integers that are looked at": (of_length, dg.zip(ROWS, COUNTS)),
}


pytestmark = pytest.mark.usefixtures("soon")


@pytest.fixture
def filled(monkeypatch):
    """How many results batches have brought, one number a batch."""
    counts, side_by_side = [], blocks.side_by_side

    def counted(parts, count):
        counts.extend([len(places) for places, *_ in parts])
        return side_by_side(parts, count)

    monkeypatch.setattr(blocks, "side_by_side", counted)
    return counts


def evaluations(model, items, compile, **how):
    made = dg.delayed(model, compile=compile)
    total = dg.value_and_grad(lambda p: dg.map_sum(made, items, p, **{"grainsize": 32, **how}))
    return [total(P * (1.0 + n)) for n in range(6)]


@pytest.mark.parametrize("summation", ["pairwise", "compensated"])
@pytest.mark.parametrize("name", SUMS)
def test_all_kinds_of_items_go_in_batches_with_the_bits_of_the_tape(name, summation, filled):
    model, items = SUMS[name]
    expected = evaluations(model, items, False, summation=summation)
    results = evaluations(model, items, True, summation=summation)
    assert all(map(are_same, results, expected))
    assert sum(filled) > 3 * COUNT


@pytest.mark.parametrize("kind", [list, numpy.array])
def test_gradients_of_the_items_own_go_in_batches(kind, filled):
    own, data = RANDOM.normal(size=(COUNT, 2)), list(ROWS)

    def term(item, p):
        x, q = item
        return misfit(x, p + q)

    def evaluate(choice):
        model = dg.delayed(term, compile=choice)
        total = dg.value_and_grad(lambda q, p: dg.map_sum(model, dg.zip(data, q), p), (0, 1))
        return [optree.tree_leaves(total(kind(own), P)) for _ in range(5)]

    results = evaluate(True)
    assert all(map(are_same, results, evaluate(False)))
    assert sum(filled) > 2 * COUNT
    first, second = results[-1][1:3]
    first += 1.0  # each gradient has memory of its own
    assert not numpy.shares_memory(first, second)


def test_gradients_of_single_items_come_from_batches(filled):
    def evaluate(choice):
        made = dg.delayed(misfit, compile=choice)
        evaluate = dg.per_item(made, ROWS, gradient="full", grainsize=32)
        return [optree.tree_leaves(evaluate(P)) for _ in range(4)]

    assert all(map(are_same, evaluate(True), evaluate(False)))
    assert filled


def test_an_error_names_the_item(filled):
    def term(x, p):
        if x.shape[0] > 6:
            raise ValueError("too long")
        return np.sum(np.linalg.cholesky(np.reshape(x[:1], (1, 1)) * p[0]))

    made, items = dg.delayed(term, compile=True), [numpy.abs(x) + 0.1 for x in ROWS]
    total = dg.value_and_grad(lambda p: dg.map_sum(made, items, p))
    for _ in range(4):
        total(abs(P))
    assert filled
    items[41] = -items[41]
    with pytest.raises(numpy.linalg.LinAlgError) as caught:
        total(abs(P))
    assert any("item 41" in note for note in caught.value.__notes__)


def test_a_warning_points_to_the_line_of_the_model(filled):
    def term(x, p):
        return np.sum(np.log(x * p[0]))

    line = term.__code__.co_firstlineno + 1
    made, items = dg.delayed(term, compile=True), numpy.abs(ROWS) + 0.1
    total = dg.value_and_grad(lambda p: dg.map_sum(made, items, p))
    for _ in range(4):
        total(abs(P))
    before = len(filled)
    items = items.copy()
    items[50, 2] = -1.0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        total(abs(P))
    places = {(warning.filename, warning.lineno) for warning in caught}
    assert places == {(__file__, line)}
    assert len(filled) > before


def test_a_batch_is_compared_with_the_tape(filled):
    """A model that nobody can watch is found out, as in calls of one item."""
    calls = itertools.count()

    def term(x, p):
        return np.sum(x * p[0]) * (1.0 if next(calls) < 200 else 2.0)

    made = dg.delayed(term, compile=True)
    total = dg.value_and_grad(lambda p: dg.map_sum(made, ROWS, p, grainsize=32))

    def evaluate(count):
        for _ in range(count):
            total(P)

    evaluate(2)
    assert filled
    for _ in range(200):
        next(calls)
    with pytest.raises(dg.NondeterministicModelError, match="different values or gradients"):
        evaluate(1000)


@pytest.mark.parametrize("shift", [1e-12, 1.0])
def test_a_wrong_form_is_found_out_by_the_first_batch(shift, monkeypatch, filled):
    def term(x, p):
        return misfit(x, p) * 1.0

    def form(call, batch):
        return batch.emit(operator.add, (batches.elementwise(call, batch), shift))

    expected = evaluations(term, ROWS, False)
    monkeypatch.setitem(batches.FORMS, operator.sub, form)
    assert all(map(are_same, evaluations(term, ROWS, True), expected))
    assert not filled


@pytest.mark.parametrize(
    ("model", "items", "at"),
    [
        (lambda x, p: x * x * p[0], numpy.full(COUNT, 10, numpy.int8), 100),
        (
            lambda x, p: x // (x - 3.0) * p[0] + np.sum(np.exp(np.sin(p) * np.cos(p)) * p),
            [1.0 + n / COUNT for n in range(COUNT)],
            3.0,
        ),
    ],
)
def test_errors_of_numbers_are_not_lost(model, items, at, filled):
    """Arrays of integers overflow without a word, and division by zero is an error of floats."""
    made = dg.delayed(model, compile=True)
    for _ in range(4):
        dg.value_and_grad(lambda p: dg.map_sum(made, items, p, grainsize=32))(P)
    assert filled
    items = items.copy()
    items[50] = at
    with numpy.errstate(all="raise"), pytest.raises(ArithmeticError) as caught:
        dg.value_and_grad(lambda p: dg.map_sum(made, items, p, grainsize=32))(P)
    assert any("item 50" in note for note in caught.value.__notes__)


def test_a_batch_that_brings_nothing_is_given_up(monkeypatch):
    """Each item takes another number of entries, which no row can have."""
    monkeypatch.setattr(blocks, "TRIALS", 3)
    made = dg.delayed(lambda x, p: np.sum(x[x > 0.0] * p[0]), compile=True)
    total = dg.value_and_grad(lambda p: dg.map_sum(made, ROWS, p, grainsize=32))
    runs, run = [], blocks.ItemGroup._by_way

    def counted(self, *args):
        runs.append(args)
        return run(self, *args)

    monkeypatch.setattr(blocks.ItemGroup, "_by_way", counted)
    for _ in range(12):
        total(P)
    count = len(runs)
    total(P)
    assert len(runs) == count > 0


def test_results_that_are_held_are_bounded(monkeypatch):
    monkeypatch.setattr(blocks, "RUN_BYTES", 40 * P.nbytes)
    counts, make = [], blocks.ItemRun.__init__

    def counted(self, block, start, stop, *others):
        counts.append(stop - start)
        make(self, block, start, stop, *others)

    monkeypatch.setattr(blocks.ItemRun, "__init__", counted)
    made = dg.delayed(misfit, compile=True)
    total = dg.value_and_grad(lambda p: dg.map_sum(made, ROWS, p, grainsize=COUNT))
    for _ in range(8):
        total(P)
    assert max(counts) == 40


def test_large_items_go_one_by_one(filled):
    items = RANDOM.normal(size=(8, 40_000))
    expected = evaluations(misfit, items, False)
    assert all(map(are_same, evaluations(misfit, items, True), expected))
    assert not filled


def test_placed_items_go_in_batches(client):
    expected = evaluations(misfit, list(ROWS), False)
    with dg.place(list(ROWS), 32) as shards:
        results = evaluations(misfit, shards, True, grainsize="auto")
    assert all(map(are_same, results, expected))


def test_threads_make_batches_side_by_side(filled):
    expected = evaluations(misfit, ROWS, False)
    with dask.config.set({"scheduler": "threads", "daskgrad.inline.seconds": 0}):
        results = evaluations(misfit, ROWS, True)
    assert all(map(are_same, results, expected))
    assert filled
