"""Samples of placed items: the same items and bits anywhere, without bias, by one request."""

import autograd.numpy as np
import numpy
import pytest
from clusters import kill, tasks_run
from numpy.testing import assert_allclose, assert_array_equal

import daskgrad as dg
from daskgrad.resident import requests
from daskgrad.resident.drawing import DrawnRun
from daskgrad.resident.worker_samples import subtrees_of
from daskgrad.tasks.waiting import Together

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore:.*lost.*:UserWarning"),
]

COUNT = 300
NUMBERS = numpy.random.default_rng(0)
ROWS = NUMBERS.normal(size=(COUNT, 4))
LABELS = NUMBERS.integers(0, 3, COUNT)
RAGGED = [NUMBERS.normal(size=3 + n % 4) for n in range(COUNT)]
X = numpy.linspace(-1.0, 2.0, 4)
COLLECTIONS = {
    "rows": lambda: ROWS,
    "a list": lambda: RAGGED,
    "tuples": lambda: dg.zip(ROWS, LABELS, RAGGED),
}


def term(item, x):
    first, *_ = item if isinstance(item, tuple) else (item,)
    return np.sum(np.sin(first[0] * x)) * np.sum(np.cos(first))


def slice_sum(part, x):
    rows = part[0] if isinstance(part, tuple) else part
    if isinstance(rows, list):
        return sum([term(row, x) for row in rows])
    return np.sum(np.sin(rows[:, :1] * x) * np.sum(np.cos(rows), axis=1)[:, None])


OBJECTIVES = {
    "map_sum": lambda items, x, **options: dg.map_sum(term, items, x, **options),
    "map_mean": lambda items, x, **options: dg.map_mean(term, items, x, **options),
    "reduce_sum": lambda items, x, **options: dg.reduce_sum(slice_sum, items, x, **options),
    "compensated": lambda items, x: dg.map_sum(term, items, x, summation="compensated"),
}


def evaluate(objective, batch, x=X):
    return dg.value_and_grad(lambda x: OBJECTIVES[objective](batch, x))(x)


def assert_same(found, wanted):
    assert found[0] == wanted[0]
    assert_array_equal(found[1], wanted[1])


def here(items, objective, count, seed, grainsize="auto", monkeypatch=None):
    """What it is without a cluster."""
    return evaluate(objective, dg.place(items, grainsize).sample(count, seed))


@pytest.fixture(scope="module")
def without_cluster():
    """The same, of all collections and objectives, before a cluster is there."""
    return {
        (kind, objective, count): here(COLLECTIONS[kind](), objective, count, (count, 1), 16)
        for kind in COLLECTIONS
        for objective in OBJECTIVES
        for count in (1, 5, 64, COUNT)
    }


# ------------------------------------------------------------------------------ what is drawn


def test_indices_are_drawn_without_replacement_in_order():
    batch = dg.place(ROWS).sample(50, seed=3)
    assert len(batch) == len(set(batch.indices.tolist())) == 50
    assert_array_equal(batch.indices, numpy.sort(batch.indices))
    assert 0 <= batch.indices[0]
    assert batch.indices[-1] < COUNT


def test_a_seed_draws_the_same_items_for_any_grainsize_and_others_draw_others():
    draws = [dg.place(ROWS, size).sample(20, (1, 2)).indices for size in ("auto", 1, 64)]
    for each in draws[1:]:
        assert_array_equal(each, draws[0])
    shards = dg.place(ROWS)
    assert set(shards.sample(20, (1, 3)).indices) != set(draws[0])
    assert set(shards.sample(20).indices) != set(shards.sample(20).indices)


def test_sums_are_scaled_without_bias_and_means_are_not():
    shards = dg.place(ROWS)
    batch = shards.sample(30, 1)
    terms = numpy.array([term(ROWS[n], X) for n in batch.indices])
    assert_allclose(evaluate("map_sum", batch)[0], terms.sum() * 10.0)
    assert_allclose(evaluate("reduce_sum", batch)[0], terms.sum() * 10.0)
    assert_allclose(evaluate("map_mean", batch)[0], terms.mean())
    everything = shards.sample(COUNT, 2)
    assert_same(evaluate("map_sum", everything), evaluate("map_sum", ROWS))


def weighted(item, x):
    return item[0] * term(item[1], x)


@pytest.mark.parametrize("beside", ["a list", "an array", "a variable"])
def test_what_stands_beside_a_sample_changes_no_scale(beside):
    shards = dg.place(ROWS)
    batch = shards.sample(30, 1)
    weights = numpy.linspace(0.0, 1.0, 30)
    terms = numpy.array([w * term(ROWS[n], X) for w, n in zip(weights, batch.indices, strict=True)])
    of = {"a list": weights.tolist(), "an array": weights, "a variable": dg.variable(weights)}
    zipped = dg.zip(of[beside], batch)
    assert_allclose(dg.map_sum(weighted, zipped, X).compute(), terms.sum() * 10.0)
    assert_allclose(dg.map_mean(weighted, zipped, X).compute(), terms.mean())
    other = dg.zip(batch, of[beside])
    total = dg.map_sum(lambda item, x: weighted(item[::-1], x), other, X)
    assert_allclose(total.compute(), terms.sum() * 10.0)


def test_samples_side_by_side_are_of_the_same_items():
    one, two = dg.place(ROWS), dg.place(ROWS + 1.0)
    pairs = dg.zip(one.sample(30, 1), two.sample(30, 1))
    places = one.sample(30, 1).indices
    found = dg.map_mean(lambda pair, x: np.sum(pair[1] - pair[0]) * x, pairs, 1.0).compute()
    assert_allclose(found, numpy.mean(numpy.sum(ROWS[places] + 1.0 - ROWS[places], axis=1)))
    for other in (two.sample(30, 2), dg.place(ROWS[:40]).sample(30, 1)):
        with pytest.raises(ValueError, match=r"zipped samples <Sample: 30 of 300.*one seed"):
            dg.map_sum(weighted, dg.zip(one.sample(30, 1), other), X)


def test_an_error_counts_the_items_of_the_sample(client):
    with dg.place(ROWS) as shards:
        batch = shards.sample(30, 4)
        wrong = ROWS[batch.indices[7]]

        def broken(row, x):
            if row[0] == wrong[0]:
                raise ZeroDivisionError
            return term(row, x)

        with pytest.raises(ZeroDivisionError) as caught:
            dg.grad(lambda x: dg.map_sum(broken, batch, x))(X)
        assert "item 7" in caught.value.__notes__[0]


def test_records_are_what_they_were(client):
    numbers = numpy.arange(90.0)
    records = numpy.rec.fromarrays([numbers, numbers**2], names="a,b")

    def of_record(record, x):
        return record.a * record.b * x

    with dg.place(records, grainsize=8) as shards:
        batch = shards.sample(30, 3)
        found = dg.grad(lambda x: dg.map_sum(of_record, batch, x))(1.0)
        assert_allclose(found, numpy.sum(numbers[batch.indices] ** 3) * 3)


def test_the_mean_over_all_samples_is_the_sum():
    shards = dg.place(ROWS[:4])
    found = {}
    for seed in range(200):
        batch = shards.sample(2, seed)
        found[tuple(batch.indices)] = evaluate("map_sum", batch)[0]
    assert len(found) == 6
    assert_allclose(numpy.mean([*found.values()]), evaluate("map_sum", ROWS[:4])[0])


# ------------------------------------------------------------------------------ the same bits


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("kind", COLLECTIONS)
def test_bits_are_those_without_a_cluster(kind, objective, without_cluster, client):
    before = tasks_run(client)
    with dg.place(COLLECTIONS[kind](), grainsize=16) as shards:
        for count in (1, 5, 64, COUNT):
            found = evaluate(objective, shards.sample(count, (count, 1)))
            assert_same(found, without_cluster[kind, objective, count])
    assert tasks_run(client) == before


def test_bits_of_map_sum_do_not_depend_on_the_grainsize(client):
    wanted = evaluate("map_sum", dg.place(ROWS, 4).sample(70, 9))
    for size in (1, 32, COUNT):
        assert_same(evaluate("map_sum", dg.place(ROWS, size).sample(70, 9)), wanted)


def test_several_threads_give_the_same_bits(without_cluster, client):
    def several(dask_worker):
        from concurrent.futures import ThreadPoolExecutor

        dask_worker.state.nthreads = 3
        dask_worker._before = dask_worker.executors["default"]
        dask_worker.executors["default"] = ThreadPoolExecutor(3)

    def one(dask_worker):
        dask_worker.state.nthreads = 1
        dask_worker.executors["default"] = dask_worker._before

    client.run(several)
    try:
        with dg.place(RAGGED, grainsize=16) as shards:
            found = evaluate("map_sum", shards.sample(64, (64, 1)))
    finally:
        client.run(one)
    assert_same(found, without_cluster["a list", "map_sum", 64])


def test_a_zip_goes_item_by_item_over_the_sample(client):
    def scaled(item, x):
        factor, row = item
        return factor * term(row, x)

    factors = numpy.linspace(1.0, 2.0, 40)

    def gradients(shards):
        batch = shards.sample(40, 4)

        def objective(factors, x):
            return dg.map_sum(scaled, dg.zip(factors, batch), x)

        return dg.value_and_grad(objective, argnums=(0, 1))(factors, X)

    with dg.place(RAGGED, 16) as shards:
        value, (of_factors, of_x) = gradients(shards)
        indices = shards.sample(40, 4).indices
    terms = [term(RAGGED[n], X) for n in indices]
    assert_allclose(value, numpy.dot(factors, terms) * COUNT / 40)
    assert_allclose(of_factors, numpy.array(terms) * COUNT / 40)
    pairs = [(factors[n], RAGGED[index]) for n, index in enumerate(indices)]
    plain = dg.grad(lambda x: dg.map_sum(scaled, pairs, x))
    assert_allclose(of_x, plain(X) * COUNT / 40)


def test_other_derivatives_are_those_of_the_same_sum(client):
    with dg.place(ROWS, 16) as shards:
        batch = shards.sample(33, 5)
        rows, factor = ROWS[batch.indices], COUNT / 33

        def over(items):
            return lambda x: dg.map_sum(term, items, x)

        value, tangent = dg.jvp(over(batch), (X,), (X + 1.0,))
        plain = dg.jvp(over(rows), (X,), (X + 1.0,))
        assert_allclose([value, tangent], numpy.array(plain) * factor)
        of_batch, of_rows = [dg.hvp(over(items), (X,), (X,)) for items in (batch, rows)]
        assert_allclose(of_batch, numpy.array(of_rows) * factor)
        value, pullback = dg.vjp(over(batch), X)
        assert_allclose(pullback(1.0)[0], dg.grad(over(rows))(X) * factor)
        values, norms = dg.per_item(term, batch)(X)
        for found, wanted in zip((values, norms), dg.per_item(term, rows)(X), strict=True):
            assert_array_equal(found, wanted)


def test_terms_that_are_arrays_are_a_graph(client):
    def vector(item, x):
        return item[0] * x

    def objective(items):
        return lambda x: dg.delayed(np.sum)(dg.map_sum(vector, items, x) ** 2)

    with dg.place(ROWS, 16) as shards:
        batch = shards.sample(20, 6)
        found = dg.value_and_grad(objective(batch))(X)
    wanted = dg.value_and_grad(objective(ROWS[batch.indices]))(X)
    assert_allclose(found[0], wanted[0] * 225.0)
    assert_allclose(found[1], wanted[1] * 225.0)


# ------------------------------------------------------------------------------ what it costs


def test_a_call_is_one_request_a_worker_that_holds_indices_alone(client, monkeypatch):
    calls, sent = [], []
    begin, pack_rows = Together.__init__, requests.pack_rows

    def counted(self, client, questions):
        calls.append(len(questions))
        begin(self, client, questions)

    def measured(sums):
        found = pack_rows(sums)
        sent.extend([sum([memoryview(f).nbytes for f in frames]) for frames in found.values()])
        return found

    monkeypatch.setattr(Together, "__init__", counted)
    monkeypatch.setattr(requests, "pack_rows", measured)
    with dg.place([numpy.zeros(10_000) + n for n in range(64)]) as shards:
        gradient = dg.value_and_grad(lambda x, batch: dg.map_sum(term, batch, x))
        for seed in range(3):
            gradient(X, shards.sample(16, seed))
    assert calls == [2, 2, 2]
    assert max(sent) < 1500


def test_workers_that_are_killed_cost_only_time(without_cluster, frail):
    with dg.place(RAGGED, grainsize=16) as shards:
        for _ in range(3):
            found = evaluate("map_sum", shards.sample(64, (64, 1)))
            assert_same(found, without_cluster["a list", "map_sum", 64])
            kill(frail, shards.plan[0].worker)
    frail.wait_for_workers(2, timeout=60)


@pytest.mark.parametrize("most", [1, 4, 64])
@pytest.mark.parametrize(("rank", "count"), [(0, 13), (5, 27), (8, 8), (63, 2), (7, 0)])
def test_a_run_is_cut_into_subtrees(rank, count, most):
    parts = [*subtrees_of(DrawnRun(rank, 0, numpy.arange(count)), most)]
    bounds = [(start, stop) for _, start, stop in parts]
    assert [*range(rank, rank + count)] == [n for start, stop in bounds for n in range(start, stop)]
    for (level, index), start, stop in parts:
        assert stop - start == 1 << level <= most
        assert start == index << level


# ------------------------------------------------------------------------------ errors


@pytest.mark.parametrize("count", [0, 301, 2.0, None, True])
def test_a_sample_has_some_of_the_items(count):
    with pytest.raises(ValueError, match=r"a sample of 300 placed items has between 1 and 300"):
        dg.place(ROWS).sample(count)


def test_a_seed_is_integers():
    with pytest.raises(TypeError, match=r"the seed of Shards.sample must be an integer"):
        dg.place(ROWS).sample(3, seed=1.5)
    with pytest.raises(ValueError, match="zero or more"):
        dg.place(ROWS).sample(3, seed=-1)


def test_closed_shards_have_no_samples():
    shards = dg.place(ROWS)
    batch = shards.sample(3)
    shards.close()
    with pytest.raises(RuntimeError, match="closed"):
        shards.sample(3)
    with pytest.raises(RuntimeError, match="closed"):
        evaluate("map_sum", batch)


def test_a_sample_inside_a_model_is_refused():
    batch = dg.place(ROWS).sample(3)

    def model(x):
        return dg.map_sum(term, batch, x)

    with pytest.raises(TypeError, match=r"<Sample: 3 of 300 placed items>.*outside of models"):
        dg.grad(dg.delayed(model))(X)


def test_its_description():
    shards = dg.place(ROWS)
    batch = shards.sample(3)
    shards.close()
    assert repr(batch) == "<Sample: 3 of 300 placed items>"
    assert repr(dg.place(ROWS).sample(3)) == "<Sample: 3 of 300 placed items>"
