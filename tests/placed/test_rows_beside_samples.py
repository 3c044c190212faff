"""Parameters of the items' own beside a sample: the rows of those that were drawn."""

import threading
from concurrent.futures import ThreadPoolExecutor

import autograd
import autograd.numpy as np
import dask
import numpy
import pytest
from clusters import tasks_run
from numpy.testing import assert_allclose, assert_array_equal

import daskgrad as dg
from daskgrad.placed import request as requests
from daskgrad.placed.attached import Attachment

pytestmark = pytest.mark.timeout(180)

COUNT, DRAWN = 300, 40
NUMBERS = numpy.random.default_rng(0)
ITEMS = NUMBERS.normal(size=(COUNT, 4))
Z = NUMBERS.normal(size=(COUNT, 3))
X = numpy.linspace(-1.0, 2.0, 4)


def term(pair, x):
    z, row = pair
    return np.sum(np.sin(row * x)) * np.sum(z**2) + np.sum(z[:1] * x)


def slice_term(pair, x):
    z, rows = pair
    return np.sum(np.sin(rows * x) * np.sum(z**2, axis=1)[:, None])


SUMS = {
    "map_sum": lambda zipped, x: dg.map_sum(term, zipped, x),
    "map_mean": lambda zipped, x: dg.map_mean(term, zipped, x),
    "reduce_sum": lambda zipped, x: dg.reduce_sum(slice_term, zipped, x),
    "compensated": lambda zipped, x: dg.map_sum(term, zipped, x, summation="compensated"),
}
WAYS = [(name, sparse) for name in SUMS for sparse in (False, "z")]


def evaluate(shards, z, name, sparse=False, count=DRAWN):
    batch = shards.sample(count, (count, 1))
    step = dg.value_and_grad(
        lambda x, z: SUMS[name](dg.zip(z, batch), x), argnums=(0, 1), sparse=sparse
    )
    return step(X, z)


def assert_same(found, wanted):
    assert found[0] == wanted[0]
    assert_array_equal(found[1][0], wanted[1][0])
    assert isinstance(found[1][1], dg.Rows) == isinstance(wanted[1][1], dg.Rows)
    assert_array_equal(as_array(found[1][1]), as_array(wanted[1][1]))


def as_array(gradient):
    return gradient.to_dense() if isinstance(gradient, dg.Rows) else numpy.asarray(gradient)


@pytest.fixture(scope="module")
def without_cluster():
    shards = dg.place(ITEMS, 16)
    return {
        (name, sparse, count): evaluate(shards, Z, name, sparse, count)
        for name, sparse in WAYS
        for count in (1, DRAWN, COUNT)
    }


@pytest.mark.parametrize("name", ["map_sum", "reduce_sum"])
def test_they_are_the_rows_of_the_items_that_were_drawn(name):
    shards = dg.place(ITEMS)
    indices = shards.sample(DRAWN, (DRAWN, 1)).indices

    def by_hand(x, z):
        return sum([term((z[n], ITEMS[n]), x) for n in indices]) * COUNT / DRAWN

    def by_slices(x, z):
        return slice_term((z[indices], ITEMS[indices]), x) * COUNT / DRAWN

    wanted = by_hand if name == "map_sum" else by_slices
    value, (of_x, of_z) = evaluate(shards, Z, name)
    assert_allclose(value, wanted(X, Z))
    assert_allclose(of_x, autograd.grad(wanted, 0)(X, Z))
    assert_allclose(of_z, autograd.grad(wanted, 1)(X, Z))
    rows = evaluate(shards, Z, name, "z")[1][1]
    assert_array_equal(rows.indices, indices)
    assert_array_equal(rows.to_dense(), of_z)


@pytest.mark.parametrize("on_cluster", [False, True])
@pytest.mark.parametrize(("name", "sparse"), WAYS)
def test_bits_are_those_without_a_cluster(name, sparse, on_cluster, without_cluster, request):
    client = request.getfixturevalue("client") if on_cluster else None
    before = client and tasks_run(client)
    with dg.place(ITEMS, 16) as shards:
        for z in (Z, shards.attach(Z)):
            for count in (1, DRAWN, COUNT):
                expected = without_cluster[name, sparse, count]
                assert_same(evaluate(shards, z, name, sparse, count), expected)
    assert (client and tasks_run(client)) == before


def term_sum(pairs, x):
    return dg.map_sum(term, pairs, x)


def constants(shards, z):
    batch = shards.sample(DRAWN, 1)
    return dg.grad(lambda x: term_sum(dg.zip(z, batch), x))(X)


def gradients(objective):
    """Of all arguments, as arrays and as rows of the last one."""

    def evaluation(shards, z):
        results = []
        for sparse in (False, "z"):
            value, (of_x, of_z) = dg.value_and_grad(objective, (1, 2), sparse=sparse)(shards, X, z)
            results += [value, of_x, of_z]
        return results

    return evaluation


def samples_and_all_items(shards, x, z):
    batches = [shards.sample(20, 1), shards.sample(50, 2), shards]
    one, two, whole = [term_sum(dg.zip(z, batch), x) for batch in batches]
    return one + 2.0 * two + whole


def not_all_rows(shards, x, z):
    """No cotangent of z where the item begins with a positive number."""

    def some(pair, x):
        z, row = pair
        return np.sum(row * x) if row[0] > 0 else np.sum(row * x * z[0])

    return dg.map_sum(some, dg.zip(z, shards.sample(DRAWN, 2)), x)


def learn(shards, z, steps=8, every=4):
    """Mini-batches, and now and then all items; values, the arrays and their optimiser's state."""
    params, optimiser = {"x": X.copy(), "z": z}, dg.optim.Adam(1e-2)
    state, values = optimiser.init(params), []

    def loss(x, z, batch):
        return term_sum(dg.zip(z, batch), x)

    some, whole = [dg.value_and_grad(loss, (0, 1), sparse=sparse) for sparse in ("z", False)]
    for step in range(steps):
        if step % every == every - 1:
            value, gradients = whole(*params.values(), shards)
        else:
            value, gradients = some(*params.values(), shards.sample(DRAWN, (1, step)))
        optimiser.update(params, dict(zip(params, gradients, strict=True)), state)
        values.append(value)
    return [*values, *params.values(), *state.values()]


EVALUATIONS = {
    "constants": constants,
    "samples and all items": gradients(samples_and_all_items),
    "not all rows": gradients(not_all_rows),
    "steps": learn,
}


@pytest.mark.parametrize("name", EVALUATIONS)
def test_evaluations_have_the_bits_of_arrays_in_this_process(name, client):
    with dask.config.set(scheduler="sync"):
        expected = EVALUATIONS[name](dg.place(ITEMS, 16), Z.copy())
    with dg.place(ITEMS, 16) as shards:
        for z in (Z.copy(), shards.attach(Z)):
            results = EVALUATIONS[name](shards, z)
            for result, array in zip(results, expected, strict=True):
                assert as_array(result).tobytes() == as_array(array).tobytes()


def test_rows_are_those_that_were_drawn_even_if_items_do_not_use_them(client):
    with dg.place(ITEMS, 16) as shards:
        rows = dg.grad(lambda z: not_all_rows(shards, X, z), sparse=True)(Z)
        indices = shards.sample(DRAWN, 2).indices
    assert_array_equal(rows.indices, indices)
    assert 0 < numpy.count_nonzero(ITEMS[indices, 0] > 0) < DRAWN


def test_other_derivatives_are_those_of_the_rows(client):
    with dg.place(ITEMS, 16) as shards:
        batch = shards.sample(DRAWN, 5)
        rows, directions = batch.indices, (X + 1.0, numpy.cos(Z))

        def over(x, z):
            return term_sum(dg.zip(z, batch), x)

        def of_rows(derivative):
            points = (X, Z[rows]), (directions[0], directions[1][rows])
            return derivative(lambda x, z: term_sum(dg.zip(z, ITEMS[rows]), x), *points)

        factor = COUNT / DRAWN
        tangent = dg.jvp(over, (X, Z), directions)
        assert_allclose(tangent, numpy.array(of_rows(dg.jvp)) * factor)
        (of_x, of_z), expected = dg.hvp(over, (X, Z), directions)[1], of_rows(dg.hvp)[1]
        assert_allclose(of_x, expected[0] * factor)
        assert_allclose(of_z[rows], expected[1] * factor)
        assert numpy.count_nonzero(numpy.any(of_z, axis=1)) == DRAWN
        _, pullback = dg.vjp(over, X, Z)
        assert_allclose(pullback(1.0)[1], dg.grad(over, argnums=1)(X, Z))


def test_only_the_rows_of_the_sample_travel(client, monkeypatch):
    sent, gathered = [], []
    pack_rows, gather = requests.pack_rows, Attachment._gather

    def measured(sums):
        packed = pack_rows(sums)
        sent.append(sum([memoryview(f).nbytes for frames in packed.values() for f in frames]))
        return packed

    monkeypatch.setattr(requests, "pack_rows", measured)
    monkeypatch.setattr(Attachment, "_gather", lambda self: gathered.append(1) or gather(self))
    wide = numpy.ones((COUNT, 1000))
    with dg.place(ITEMS, 16) as shards:
        learn(shards, shards.attach(wide), steps=4, every=9)
    assert not gathered  # it was here already
    assert len(sent) == 4
    assert max(sent) < 2 * DRAWN * wide[0].nbytes


# ------------------------------------------------------------------ arrays that are elsewhere


def test_an_array_of_other_shards_may_have_a_row_for_each_drawn_item(client):
    def loss(params, batch):
        terms = dg.map_sum(
            lambda pair: np.sum(pair[0] ** 2) * pair[1][0], dg.zip(params["z"], batch)
        )
        return terms + dg.delayed(lambda b: np.sum(b**2))(params["b"])

    few, b = Z[:20], numpy.ones((1, 3))
    with dg.place(ITEMS, 16) as shards, dg.place(few) as others:
        batch = shards.sample(20, 3)
        gradient = dg.grad(lambda params: loss(params, batch))
        wanted, found = gradient({"z": few, "b": b}), gradient({"z": others.attach(few), "b": b})
    assert_array_equal(found["z"], wanted["z"])
    assert_array_equal(found["b"], wanted["b"])
    assert_allclose(wanted["z"], 2.0 * few * ITEMS[batch.indices, :1] * COUNT / 20)


def test_a_gradient_that_is_elsewhere_is_an_array_like_others(client):
    with dg.place(ITEMS[:20]) as shards:
        of_z = dg.grad(lambda z: dg.map_sum(term, dg.zip(z, shards), X))(shards.attach(Z[:20]))
        there = numpy.asarray(of_z)
        for items in (shards, shards.sample(20, 1), shards.sample(5, 1)):

            def total(x, g, items=items):
                return dg.map_sum(term, dg.zip(g, items), x)

            found = dg.grad(total, (0, 1))(X, of_z)
            wanted = dg.grad(total, (0, 1))(X, there)
            assert_array_equal(found[0], wanted[0])
            assert_array_equal(numpy.asarray(found[1]), wanted[1])
            constant = dg.grad(lambda x, total=total: total(x, of_z))(X)
            assert_array_equal(constant, wanted[0])


@pytest.mark.parametrize("on_cluster", [False, True])
def test_all_sums_of_an_evaluation_see_one_version(on_cluster, request):
    if on_cluster:
        request.getfixturevalue("client")
    optimiser = dg.optim.SGD(1.0)
    with dg.place(ITEMS, 16) as shards:
        z = shards.attach(numpy.zeros((COUNT, 3)))
        state = optimiser.init(z)

        def loss(x):
            def sizes(pair, x):
                return x * pair[0][0] ** 2

            some = dg.map_sum(sizes, dg.zip(z, shards.sample(DRAWN, 1)), x)
            optimiser.update(z, numpy.ones((COUNT, 3)), state)
            return some + dg.map_sum(sizes, dg.zip(z, shards), x)

        assert dg.value_and_grad(loss)(1.0)[0] == 2.0 * COUNT


def test_they_are_not_updated_while_they_are_used_in_this_process(synchronous):
    """On threads, a block that has begun runs on when another failed and ended the evaluation."""
    optimiser = dg.optim.SGD(1.0)
    shards = dg.place(ITEMS)
    z = shards.attach(Z)
    state = optimiser.init(z)

    def updates(pair, x):
        optimiser.update(z, numpy.ones((COUNT, 3)), state)
        return term(pair, x)

    for items in (shards, shards.sample(5, 1)):
        with pytest.raises(RuntimeError, match="update it when that evaluation has ended"):
            dg.grad(lambda x, items=items: dg.map_sum(updates, dg.zip(z, items), x))(X)
    assert_array_equal(z, Z)


def is_held(lock):
    """Whether no other thread can take it."""

    def take():
        return lock.acquire(blocking=False) and lock.release() is None

    with ThreadPoolExecutor(1) as pool:
        return not pool.submit(take).result()


class Watched(numpy.ndarray):
    """Whoever copies it must hold the lock."""

    lock: threading.RLock

    def copy(self, *_):
        return self[...]

    def __getitem__(self, index):
        assert is_held(self.lock)
        return numpy.array(self)[index]


def test_nobody_reads_while_another_thread_changes_it():
    shards = dg.place(ITEMS)
    z = shards.attach(Z)
    lock = z.attachment._lock
    with z.attachment.rewriting() as arrays:
        assert is_held(lock)
        arrays[z.name] = Z.view(Watched)
        arrays[z.name].lock = lock
    assert not is_held(lock)
    assert_array_equal(z.fetch(), Z)
    assert_array_equal(z.rows(numpy.arange(3)), Z[:3])


# -------------------------------------------------------------------------------- refusals


def test_the_rows_of_a_gradient_are_not_the_sample_itself():
    shards = dg.place(ITEMS)
    batch = shards.sample(DRAWN, 1)
    drawn = batch.indices.copy()
    rows = dg.grad(lambda z: dg.map_sum(term, dg.zip(z, batch), X), sparse=True)(Z)
    rows.indices[:] = 0
    assert_array_equal(batch.indices, drawn)
