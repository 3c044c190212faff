"""Samples of placed items: the same items and bits anywhere, without bias, by one request."""

from collections import Counter

import autograd.numpy as np
import numpy
import pytest
from clusters import tasks_run
from comparisons import assert_same
from numpy.testing import assert_allclose, assert_array_equal

import daskgrad as dg
from daskgrad.placed import call, request
from daskgrad.placed.worker_sums import subtrees_of

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore:.*lost.*:UserWarning"),
]

COUNT = 300
NUMBERS = numpy.random.default_rng(0)
ROWS = NUMBERS.normal(size=(COUNT, 4))
RAGGED = [NUMBERS.normal(size=3 + n % 4) for n in range(COUNT)]
X = numpy.linspace(-1.0, 2.0, 4)
COLLECTIONS = {
    "rows": lambda: ROWS,
    "a list": lambda: RAGGED,
    "tuples": lambda: dg.zip(ROWS, numpy.arange(COUNT), RAGGED),
}


def term(item, x):
    first, *_ = item if isinstance(item, tuple) else (item,)
    return np.sum(np.sin(first[0] * x)) * np.sum(np.cos(first))


def slice_sum(part, x):
    rows = part[0] if isinstance(part, tuple) else part
    if isinstance(rows, list):
        return sum([term(row, x) for row in rows])
    return np.sum(np.sin(rows[:, :1] * x) * np.sum(np.cos(rows), axis=1)[:, None])


def weighted(item, x):
    return item[0] * term(item[1], x)


OBJECTIVES = {
    "map_sum": lambda items, x: dg.map_sum(term, items, x),
    "map_mean": lambda items, x: dg.map_mean(term, items, x),
    "reduce_sum": lambda items, x: dg.reduce_sum(slice_sum, items, x),
    "compensated": lambda items, x: dg.map_sum(term, items, x, summation="compensated"),
}


def evaluate(objective, batch):
    return dg.value_and_grad(lambda x: OBJECTIVES[objective](batch, x))(X)


def of_samples(kind, objective):
    with dg.place(COLLECTIONS[kind](), grainsize=16) as shards:
        counts = (1, 5, 64, COUNT)
        return [evaluate(objective, shards.sample(count, (count, 1))) for count in counts]


@pytest.fixture(scope="module")
def without_cluster():
    kinds = [(kind, objective) for kind in COLLECTIONS for objective in OBJECTIVES]
    return {kind: of_samples(*kind) for kind in kinds}


# ------------------------------------------------------------------------------ what is drawn


def test_indices_are_drawn_without_replacement_in_order():
    batch = dg.place(ROWS).sample(50, seed=3)
    assert repr(batch) == "<Sample: 50 of 300 placed items>"
    assert len(batch) == len(set(batch.indices.tolist())) == 50
    assert_array_equal(batch.indices, numpy.sort(batch.indices))
    assert 0 <= batch.indices[0]
    assert batch.indices[-1] < COUNT


def test_a_seed_draws_the_same_items_for_any_grainsize_and_others_draw_others():
    first, *others = [dg.place(ROWS, size).sample(20, (1, 2)).indices for size in ("auto", 1, 64)]
    for other in others:
        assert_array_equal(other, first)
    shards = dg.place(ROWS)
    assert set(shards.sample(20, (1, 3)).indices) != set(first)
    assert set(shards.sample(20).indices) != set(shards.sample(20).indices)


def test_sums_are_scaled_without_bias_and_means_are_not():
    shards = dg.place(ROWS)
    batch = shards.sample(30, 1)
    terms = numpy.array([term(ROWS[n], X) for n in batch.indices])
    assert_allclose(evaluate("map_sum", batch)[0], terms.sum() * 10.0)
    assert_allclose(evaluate("reduce_sum", batch)[0], terms.sum() * 10.0)
    assert_allclose(evaluate("map_mean", batch)[0], terms.mean())
    assert_same(evaluate("map_sum", shards.sample(COUNT, 2)), evaluate("map_sum", ROWS))
    assert_same(dg.per_item(term, batch)(X), dg.per_item(term, ROWS[batch.indices])(X))


@pytest.mark.parametrize("beside", [list, numpy.array, lambda w: dg.variable(numpy.array(w))])
def test_what_stands_beside_a_sample_changes_no_scale(beside):
    batch = dg.place(ROWS).sample(30, 1)
    weights = numpy.linspace(0.0, 1.0, 30)
    terms = numpy.array([w * term(ROWS[n], X) for w, n in zip(weights, batch.indices, strict=True)])
    zipped, other = dg.zip(beside(weights), batch), dg.zip(batch, beside(weights))
    assert_allclose(dg.map_sum(weighted, zipped, X).compute(), terms.sum() * 10.0)
    assert_allclose(dg.map_mean(weighted, zipped, X).compute(), terms.mean())
    total = dg.map_sum(lambda item, x: weighted(item[::-1], x), other, X)
    assert_allclose(total.compute(), terms.sum() * 10.0)


def test_samples_side_by_side_are_of_the_same_items():
    one, two = dg.place(ROWS), dg.place(ROWS + 1.0)
    pairs = dg.zip(one.sample(30, 1), two.sample(30, 1))
    places = one.sample(30, 1).indices
    mean = dg.map_mean(lambda pair, x: np.sum(pair[1] - pair[0]) * x, pairs, 1.0).compute()
    assert_allclose(mean, numpy.mean(numpy.sum(ROWS[places] + 1.0 - ROWS[places], axis=1)))
    for other in (two.sample(30, 2), dg.place(ROWS[:40]).sample(30, 1)):
        with pytest.raises(ValueError, match=r"zipped samples <Sample: 30 of 300.*one seed"):
            dg.map_sum(weighted, dg.zip(one.sample(30, 1), other), X)


def test_records_are_what_they_were(local):
    numbers = numpy.arange(90.0)
    records = numpy.rec.fromarrays([numbers, numbers**2], names="a,b")

    def of_record(record, x):
        return record.a * record.b * x

    with dg.place(records, grainsize=8) as shards:
        batch = shards.sample(30, 3)
        gradient = dg.grad(lambda x: dg.map_sum(of_record, batch, x))(1.0)
        assert_allclose(gradient, numpy.sum(numbers[batch.indices] ** 3) * 3)


def test_the_mean_over_all_samples_is_the_sum():
    shards = dg.place(ROWS[:4])
    values = {}
    for seed in range(200):
        batch = shards.sample(2, seed)
        if tuple(batch.indices) not in values:
            values[tuple(batch.indices)] = evaluate("map_sum", batch)[0]
    assert len(values) == 6
    assert_allclose(numpy.mean([*values.values()]), evaluate("map_sum", ROWS[:4])[0])


# ------------------------------------------------------------------------------ the same bits


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("kind", COLLECTIONS)
def test_bits_are_those_without_a_cluster(kind, objective, without_cluster, local):
    before = tasks_run(local)
    assert_same(of_samples(kind, objective), without_cluster[kind, objective])
    assert tasks_run(local) == before


def test_bits_of_map_sum_do_not_depend_on_the_grainsize(local):
    first, *others = [
        evaluate("map_sum", dg.place(ROWS, size).sample(70, 9)) for size in (4, 1, 32, COUNT)
    ]
    for other in others:
        assert_same(other, first)


def test_terms_that_are_arrays_are_a_graph(local):
    def vector(item, x):
        return item[0] * x

    def objective(items):
        return lambda x: dg.delayed(np.sum)(dg.map_sum(vector, items, x) ** 2)

    with dg.place(ROWS, 16) as shards:
        batch = shards.sample(20, 6)
        result = dg.value_and_grad(objective(batch))(X)
    expected = dg.value_and_grad(objective(ROWS[batch.indices]))(X)
    assert_allclose(result[0], expected[0] * 225.0)
    assert_allclose(result[1], expected[1] * 225.0)


# ------------------------------------------------------------------------------ what it costs


def test_a_call_is_one_request_a_worker_that_holds_indices_alone(local, monkeypatch):
    calls, sent = [], []
    call_worker, pack_rows = call.call_worker, request.pack_rows

    def counted(pool, address, handler, **message):
        calls.append(address)
        return call_worker(pool, address, handler, **message)

    def measured(sums):
        packed = pack_rows(sums)
        sent.extend([sum([memoryview(f).nbytes for f in frames]) for frames in packed.values()])
        return packed

    monkeypatch.setattr(call, "call_worker", counted)
    monkeypatch.setattr(request, "pack_rows", measured)
    with dg.place([numpy.zeros(10_000) + n for n in range(64)]) as shards:
        gradient = dg.value_and_grad(lambda x, batch: dg.map_sum(term, batch, x))
        for seed in range(3):
            gradient(X, shards.sample(16, seed))
    assert Counter(calls) == dict.fromkeys(local.ncores(), 3)
    assert max(sent) < 1500


@pytest.mark.parametrize("most", [1, 4, 64])
@pytest.mark.parametrize(("rank", "count"), [(0, 13), (5, 27), (8, 8), (63, 2), (7, 0)])
@pytest.mark.parametrize("more", [0, 3])
def test_a_run_is_cut_into_subtrees(rank, count, most, more):
    parts = [*subtrees_of(rank, rank + count, most, rank + count + more)]
    bounds = [(start, stop) for _, start, stop in parts]
    assert [*range(rank, rank + count)] == [n for start, stop in bounds for n in range(start, stop)]
    for (level, index), start, stop in parts:
        is_last = stop == rank + count and not more
        assert stop - start <= 1 << level <= most if is_last else stop - start == 1 << level <= most
        assert start == index << level
