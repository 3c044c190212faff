"""Attached arrays: parameters of items learn where the items are, with the bits of arrays."""

import gc
import pickle
import threading
import time

import autograd.numpy as np
import numpy
import pytest
from clusters import come_and_go, kill
from distributed import Client
from numpy.testing import assert_array_equal
from probes import write
from waiting import wait_until

import daskgrad as dg
from daskgrad.resident import attachment, routes
from daskgrad.resident.attached import Attached, AttachedGradient
from daskgrad.resident.attached_steps import Change, Kept, Step
from daskgrad.resident.attachment import Attachment
from daskgrad.resident.worker_attached import AttachedBlocks, News

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore:.*lost.*:UserWarning"),
]

COUNT, WIDTH = 50, 3
GENERATOR = numpy.random.default_rng(3)
ITEMS = [GENERATOR.standard_normal((2 + n % 3, WIDTH)) for n in range(COUNT)]
ROWS = GENERATOR.standard_normal((COUNT, WIDTH))
Z = GENERATOR.standard_normal((COUNT, WIDTH))
X = GENERATOR.standard_normal(WIDTH)
OPTIMISERS = {
    "SGD": dg.optim.SGD(dg.optim.exponential(1e-2, 0.9)),
    "Nesterov": dg.optim.Nesterov(1e-3),
    "Adagrad": dg.optim.Adagrad(1e-2),
    "RMSprop": dg.optim.RMSprop(1e-2),
    "AdamW": dg.optim.AdamW(1e-2, decay=1e-3),
}
ADAM = dg.optim.Adam(1e-2)


def term(pair, x):
    z, rows = pair
    return np.sum(np.tanh(rows @ (x + z)) ** 2)


def prior(pair, x):
    z, _ = pair
    return np.sum(z**2 * x**2)


def slope(triple, x):
    z, w, rows = triple
    return np.sum(np.tanh(rows @ (x + z * w)) ** 2)


def slice_term(pair, x):
    z, rows = pair
    return np.sum(np.tanh(np.sum(rows * (x + z), axis=1)) ** 2)


def loss_over(items):
    """Twice the same array, with factors: what workers keep is scaled and added."""

    def loss(x, z):
        likelihood = dg.map_sum(term, dg.zip(z, items), x)
        return -0.5 * likelihood + dg.map_sum(prior, dg.zip(z, items), x) / 3

    return loss


def train(gradient, params, steps, optimiser=ADAM, state=None, between=lambda step: None):
    state = optimiser.init(params) if state is None else state
    values = []
    for step in range(steps):
        between(step)
        value, gradients = gradient(*params.values())
        optimiser.update(params, dict(zip(params, gradients, strict=True)), state)
        values.append(value)
    return values, state


def learned(steps, optimiser=ADAM, loss=None, z=Z):
    """The same with arrays, in this process."""
    params = {"x": X.copy(), "z": z.copy()}
    found = train(dg.value_and_grad(loss or loss_over(ITEMS), (0, 1)), params, steps, optimiser)
    return *found, params


def assert_learned(found, params, steps, optimiser=ADAM, loss=None):
    values, state, arrays = learned(steps, optimiser, loss)
    assert found[0] == values
    for name, array in arrays.items():
        assert_array_equal(numpy.asarray(params[name]), array)
    assert found[1].keys() == state.keys()
    for name, array in state.items():
        assert_array_equal(numpy.asarray(found[1][name]), array)


def start(shards):
    return {"x": X.copy(), "z": shards.attach(Z)}


def gradient_over(shards):
    return dg.value_and_grad(loss_over(shards), (0, 1))


@pytest.fixture
def counted(monkeypatch):
    """How often the arrays were brought here, and blocks made again."""
    found = {"gathered": 0, "repeated": 0}
    gather, repeat = Attachment._gather, Attachment._repeat

    def counted_gather(self):
        found["gathered"] += 1
        return gather(self)

    def counted_repeat(self, *args):
        found["repeated"] += 1
        return repeat(self, *args)

    monkeypatch.setattr(Attachment, "_gather", counted_gather)
    monkeypatch.setattr(Attachment, "_repeat", counted_repeat)
    return found


@pytest.fixture
def unmoved(monkeypatch):
    """Blocks stay on their workers."""
    monkeypatch.setattr("daskgrad.resident.balance.rebalancing", lambda *args: None)


def held(client):
    """By worker: the blocks that it holds, and the calls of which it keeps cotangents."""

    def look(dask_worker):
        stores = [p._attached for p in dask_worker.plugins.values() if hasattr(p, "_attached")]
        blocks = sum([len(blocks) for store in stores for blocks in store._blocks.values()])
        return blocks, sum([len(calls) for store in stores for calls in store._cotangents.values()])

    return client.run(look)


# -------------------------------------------------------------------------------------- bits


@pytest.mark.parametrize("optimiser", OPTIMISERS.values(), ids=OPTIMISERS)
def test_without_a_cluster_they_learn_as_arrays_do(optimiser):
    with dg.place(ITEMS) as shards:
        params = start(shards)
        found = train(gradient_over(shards), params, 4, optimiser)
        assert_learned(found, params, 4, optimiser)


@pytest.mark.parametrize("optimiser", OPTIMISERS.values(), ids=OPTIMISERS)
def test_on_a_cluster_they_learn_as_arrays_do(client, counted, unmoved, optimiser):
    with dg.place(ITEMS) as shards:
        params = start(shards)
        found = train(gradient_over(shards), params, 6, optimiser)
        assert counted == {"gathered": 0, "repeated": 0}
        assert_learned(found, params, 6, optimiser)
        assert counted == {"gathered": 1, "repeated": 0}


def test_gradients_have_the_bits_of_arrays(client):
    with dg.place(ITEMS) as shards:
        z = shards.attach(Z)
        value, (of_x, of_z) = gradient_over(shards)(X, z)
        expected, (own_x, own_z) = dg.value_and_grad(loss_over(ITEMS), (0, 1))(X, Z)
        assert value == expected
        assert_array_equal(of_x, own_x)
        assert isinstance(of_z, AttachedGradient)
        assert of_z.shape == Z.shape
        assert_array_equal(of_z, own_z)
        assert_array_equal(of_z, own_z)  # any number of times


def test_single_precision_stays_single(client):
    z = Z.astype(np.float32)
    with dg.place(ITEMS) as shards:
        params = {"x": X.copy(), "z": shards.attach(z)}
        found = train(gradient_over(shards), params, 3)
        values, _, arrays = learned(3, z=z)
        assert found[0] == values
        assert np.asarray(params["z"]).dtype == np.float32
        assert_array_equal(params["z"], arrays["z"])


def test_several_arrays_are_attached_to_the_same_items(client, counted, unmoved):
    def loss_of(items):
        return lambda x, z, w: dg.map_sum(slope, dg.zip(z, w, items), x)

    with dg.place(ITEMS) as shards:
        w = Z**2
        params = {"x": X.copy(), "z": shards.attach(Z), "w": shards.attach(w)}
        values, _ = train(dg.value_and_grad(loss_of(shards), (0, 1, 2)), params, 5)
        assert counted["gathered"] == 0
        arrays = {"x": X.copy(), "z": Z.copy(), "w": w.copy()}
        assert values == train(dg.value_and_grad(loss_of(ITEMS), (0, 1, 2)), arrays, 5)[0]
        for name, array in arrays.items():
            assert_array_equal(params[name], array)


def test_slices_and_items_take_turns(client):
    def loss_of(items):
        return lambda x, z: dg.reduce_sum(slice_term, dg.zip(z, items), x)

    with dg.place(ROWS, grainsize=16) as shards:
        params = start(shards)
        gradient = dg.value_and_grad(loss_of(shards), (0, 1))
        found = train(gradient, params, 3)
        plain = {"x": X.copy(), "z": Z.copy()}
        with dg.place(ROWS, grainsize=16) as here:
            expected = dg.value_and_grad(loss_of(here), (0, 1))
            assert found[0] == train(expected, plain, 3)[0]
        assert_array_equal(params["z"], plain["z"])
        both = dg.grad(lambda z: dg.map_sum(prior, dg.zip(z, shards), X) + loss_of(shards)(X, z))
        mine = dg.grad(lambda z: dg.map_sum(prior, dg.zip(z, ROWS), X) + loss_of(shards)(X, z))
        assert_array_equal(both(params["z"]), mine(plain["z"]))


def test_they_are_constants_where_nobody_differentiates_them(client, counted, unmoved):
    with dg.place(ITEMS) as shards:
        z = shards.attach(Z)
        gradient = dg.grad(lambda x: dg.map_sum(term, dg.zip(z, shards), x))
        expected = dg.grad(lambda x: dg.map_sum(term, dg.zip(Z, ITEMS), x))(X)
        assert_array_equal(gradient(X), expected)
        assert counted["gathered"] == 0


def test_workers_pass_them_on(client, monkeypatch):
    monkeypatch.setattr(routes, "FLAT", 1)  # the client calls one worker
    with dg.place(ITEMS) as shards:
        params = start(shards)
        assert_learned(train(gradient_over(shards), params, 4), params, 4)


def test_workers_in_the_process_of_the_client():
    options = {"processes": False, "dashboard_address": "127.0.0.1:0"}
    with Client(n_workers=2, threads_per_worker=1, **options), dg.place(ITEMS) as shards:
        params = start(shards)
        assert_learned(train(gradient_over(shards), params, 5), params, 5)


def test_whatever_else_takes_arrays_fetches_them(client):
    with dg.place(ITEMS) as shards:
        z = shards.attach(Z)
        loss, plain = loss_over(shards), loss_over(ITEMS)
        assert_array_equal(dg.vjp(loss, X, z)[1](1.0)[1], dg.vjp(plain, X, Z)[1](1.0)[1])
        tangents = (np.ones(WIDTH), np.ones((COUNT, WIDTH)))
        assert_array_equal(dg.jvp(loss, (X, z), tangents), dg.jvp(plain, (X, Z), tangents))
        model = dg.delayed(lambda z: np.sum(z**3))
        assert_array_equal(dg.grad(model)(z), 3 * Z**2)
        assert_array_equal(dg.grad(lambda z: dg.map_sum(lambda z: np.sum(z**2), z))(z), 2 * Z)
        found = dg.per_item(term, dg.zip(z, shards))(X)
        assert_array_equal(found[0], dg.per_item(term, dg.zip(Z, ITEMS))(X)[0])


# --------------------------------------------------------------------------------- what travels


def test_neither_they_nor_their_gradients_travel(client, counted, unmoved, monkeypatch):
    sent = []
    monkeypatch.setattr(
        "daskgrad.resident.call.unpack", lambda frames: sent.append(frames) or pickle_of(frames)
    )
    wide = numpy.zeros((COUNT, 4_000))

    def loss(x, z):
        return dg.map_sum(lambda pair, x: np.sum(pair[0]) * np.sum(x) + x[0], dg.zip(z, shards), x)

    with dg.place(ITEMS) as shards:
        params = {"x": X.copy(), "z": shards.attach(wide)}
        gradient = dg.value_and_grad(loss, (0, 1))
        train(gradient, params, 3)
        assert counted["gathered"] == 0
        came = sum([memoryview(frame).nbytes for frames in sent for frame in frames])
        assert 0 < came < wide.nbytes / 20


def pickle_of(frames):
    return pickle.loads(bytes(frames[0]), buffers=frames[1:])


def test_steps_that_all_workers_took_are_told_once(client, unmoved):
    with dg.place(ITEMS) as shards:
        params = start(shards)
        found = params["z"].attachment
        told = []
        train(
            gradient_over(shards), params, 5, between=lambda _: told.append(len(found.news().steps))
        )
        assert told == [0, 1, 1, 1, 1]


def test_what_is_remembered_is_bounded(client, unmoved, counted, monkeypatch):
    monkeypatch.setattr(attachment, "STEPS", 4)
    with dg.place(ITEMS) as shards:
        params = start(shards)
        found = train(gradient_over(shards), params, 10)
        assert counted["gathered"] == 2
        assert len(params["z"].attachment._log) <= 4
        assert_learned(found, params, 10)


def test_large_arguments_are_not_remembered(client, unmoved, monkeypatch, counted):
    monkeypatch.setattr(attachment, "LEAST", 0)
    large = numpy.ones(2 * Z.size)

    def loss_of(items):
        return lambda x, z: dg.map_sum(
            lambda pair, x, large: term(pair, x * large[0]), dg.zip(z, items), x, large
        )

    def both_of(items):
        return dg.value_and_grad(lambda x, z: loss_of(items)(x, z), (0, 1))

    def with_large(x, z, large):
        return dg.map_sum(lambda p, x, large: term(p, x * large[0]), dg.zip(z, shards), x, large)

    with dg.place(ITEMS) as shards:
        params = start(shards) | {"large": large.copy()}
        values, _ = train(dg.value_and_grad(with_large, (0, 1, 2)), params, 4)
        shards_of, arrays = ITEMS, {"x": X.copy(), "z": Z.copy(), "large": large.copy()}

        def plain(x, z, large):
            return dg.map_sum(
                lambda p, x, large: term(p, x * large[0]), dg.zip(z, shards_of), x, large
            )

        assert values == train(dg.value_and_grad(plain, (0, 1, 2)), arrays, 4)[0]
        assert_array_equal(params["z"], arrays["z"])
        assert not params["z"].attachment._log


def test_replicated_arrays_may_stand_beside_them(client):
    def loss_of(items):
        return lambda w, z: dg.map_sum(
            lambda pair, w: np.sum(np.tanh(pair[1] @ (w + pair[0])) ** 2), dg.zip(z, items), w
        )

    with dg.place(ITEMS) as shards:
        params = {"x": dg.replicate(X), "z": shards.attach(Z)}
        found = train(dg.value_and_grad(loss_of(shards), (0, 1)), params, 4)
        assert_learned(found, params, 4, loss=loss_of(ITEMS))


# ------------------------------------------------------------------------------------ losses


def test_workers_may_be_killed_new_or_retired(frail, counted):
    with dg.place(ITEMS) as shards:
        params = start(shards)
        assert_learned(
            train(gradient_over(shards), params, 9, between=come_and_go(frail, shards)), params, 9
        )
    assert counted["repeated"] > 0


def test_all_workers_may_be_killed(frail, counted, unmoved):
    def between(step):
        if step == 3:
            for address in list(frail.ncores()):
                kill(frail, address)
            frail.wait_for_workers(2, timeout=60)

    with dg.place(ITEMS) as shards:
        params = start(shards)
        assert_learned(train(gradient_over(shards), params, 6, between=between), params, 6)
    assert counted["repeated"] > 0


def test_a_gradient_is_made_again_where_its_worker_was_lost(frail, counted, unmoved):
    with dg.place(ITEMS) as shards:
        params = start(shards)
        gradient = gradient_over(shards)
        _, state = train(gradient, params, 3)
        _, (_, of_z) = gradient(*params.values())
        kill(frail, sorted(frail.ncores())[0])
        fetched = numpy.asarray(of_z)
        assert counted["repeated"] > 0
        _, _, arrays = learned(3)
        plain = dg.value_and_grad(loss_over(ITEMS), (0, 1))
        assert_array_equal(fetched, plain(*arrays.values())[1][1])
        assert state["step"] == 3


def test_an_old_gradient_that_was_lost_is_an_error(frail, unmoved):
    with dg.place(ITEMS) as shards:
        z = shards.attach(Z)
        gradient = dg.grad(lambda z: dg.map_sum(prior, dg.zip(z, shards), X))
        old = gradient(z)
        dg.optim.SGD(1e-2).update(z, gradient(z), dg.optim.SGD(1e-2).init(z))
        numpy.asarray(z)
        kill(frail, sorted(frail.ncores())[0])
        with pytest.raises(RuntimeError, match="gradient of an attached array is not there any"):
            numpy.asarray(old)


def test_a_constant_that_was_changed_in_place_is_an_error_where_it_matters(frail, unmoved):
    constant = numpy.ones(5_000)  # more than what is copied into a message

    def scaled(pair, constant):
        return np.sum(pair[0] ** 2) * constant[0]

    with dg.place(ITEMS) as shards:
        z = shards.attach(Z)
        gradient = dg.grad(lambda z: dg.map_sum(scaled, dg.zip(z, shards), constant))
        optimiser = dg.optim.SGD(1e-2)
        state = optimiser.init(z)
        optimiser.update(z, gradient(z), state)
        constant[:] = 2.0
        kill(frail, sorted(frail.ncores())[0])
        with pytest.raises(RuntimeError, match=r"'scaled'.*changed in place; pass a new array"):
            numpy.asarray(z)
        constant[:] = 1.0
        assert_array_equal(z, Z - 0.02 * Z)


def test_a_worker_that_lost_its_blocks_gets_them_again(client, counted, unmoved):
    def lose(dask_worker):
        for plugin in dask_worker.plugins.values():
            if hasattr(plugin, "_attached"):
                plugin._attached = AttachedBlocks()

    def between(step):
        if step == 3:
            client.run(lose, workers=sorted(client.ncores())[:1])

    with dg.place(ITEMS) as shards:
        params = start(shards)
        assert_learned(train(gradient_over(shards), params, 6, between=between), params, 6)
    assert counted["repeated"] > 0


def test_they_outlive_the_shards_and_the_client(client):
    with Client(client.scheduler.address) as own:
        with dg.place(ITEMS) as shards:
            params = start(shards)
            found = train(gradient_over(shards), params, 3)
        others = dg.place(ITEMS)
        rest = start(others)
        again = train(gradient_over(others), rest, 3)
        own.close()
        numpy.asarray(rest["z"])
    assert_learned(found, params, 3)
    assert_learned(again, rest, 3)


# ------------------------------------------------------------------------------------ their use


def test_they_are_saved_and_loaded(client, tmp_path):
    path = tmp_path / "fit.npz"
    with dg.place(ITEMS) as shards:
        params = start(shards)
        first, state = train(gradient_over(shards), params, 3)
        numpy.savez(path, x=params["x"], z=params["z"], **state)
    kept = dict(numpy.load(path))
    with dg.place(ITEMS) as shards:
        params = {"x": kept.pop("x"), "z": shards.attach(kept.pop("z"))}
        second, state = train(gradient_over(shards), params, 3, state=kept)
        assert_learned(([*first, *second], state), params, 6)


def test_gradients_may_be_used_late_or_twice(client):
    def descend(items, z):
        gradient, optimiser = gradient_over(items), ADAM
        state = optimiser.init(z)
        _, (_, first) = gradient(X, z)
        _, (_, second) = gradient(2 * X, z)
        optimiser.update(z, second, state)
        optimiser.update(z, first, state)
        numpy.asarray(z)  # what is older than this cannot be made again
        optimiser.update(z, first, state)
        _, (_, third) = gradient(X, z)
        optimiser.update(z, third, state)
        return numpy.asarray(z)

    with dg.place(ITEMS) as shards:
        assert_array_equal(descend(shards, shards.attach(Z)), descend(ITEMS, Z.copy()))


def test_gradients_may_be_fetched_after_the_shards_were_closed(client):
    def descend(items, z):
        gradient, optimiser = gradient_over(items), ADAM
        state = optimiser.init(z)
        found = []
        for _ in range(2):
            _, (_, of_z) = gradient(X, z)
            optimiser.update(z, of_z, state)
            found.append(of_z)
        return [*found, gradient(X, z)[1][1]]

    with dg.place(ITEMS) as shards:
        found = descend(shards, shards.attach(Z))
        assert all([isinstance(each, AttachedGradient) for each in found])
    for gradient, array in zip(found, descend(ITEMS, Z.copy()), strict=True):
        assert_array_equal(gradient, array)


def test_gradients_that_are_clipped_are_arrays(client):
    with dg.place(ITEMS) as shards:
        z = shards.attach(Z)
        _, gradients = gradient_over(shards)(X, z)
        _, plain = dg.value_and_grad(loss_over(ITEMS), (0, 1))(X, Z)
        of_x, of_z = dg.optim.clip_by_norm(gradients, 0.1)
        own_x, own_z = dg.optim.clip_by_norm(plain, 0.1)
        assert_array_equal(of_x, own_x)
        assert_array_equal(of_z, own_z)
        dg.optim.SGD(0.1).update(z, of_z, dg.optim.SGD(0.1).init(z))
        assert_array_equal(z, Z - 0.1 * own_z)


def test_threads_may_evaluate_at_once(client):
    with dg.place(ITEMS) as shards:
        z = shards.attach(Z)
        gradient = gradient_over(shards)
        found = {}

        def evaluate(number):
            for _ in range(5):
                found[number] = gradient((number + 1) * X, z)[1][1]

        threads = [threading.Thread(target=evaluate, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        plain = dg.value_and_grad(loss_over(ITEMS), (0, 1))
        for number, each in found.items():
            assert_array_equal(each, plain((number + 1) * X, Z)[1][1])


def test_they_are_not_updated_while_they_are_used(client, tmp_path):
    def slow(pair, x, path):
        write(path, "began")
        time.sleep(0.1)
        return np.sum(pair[0] * x)

    with dg.place(ITEMS[:4]) as shards:
        z = shards.attach(Z[:4])
        path = str(tmp_path / "began")
        gradient = dg.grad(lambda z: dg.map_sum(slow, dg.zip(z, shards), X, path))
        optimiser = dg.optim.SGD(0.1)
        state = optimiser.init(z)
        thread = threading.Thread(target=gradient, args=(z,))
        thread.start()
        wait_until((tmp_path / "began").exists)
        with pytest.raises(RuntimeError, match="attached to its items is being evaluated"):
            optimiser.update(z, numpy.ones_like(z), state)
        thread.join()
        assert state["step"] == 0
        assert_array_equal(z, Z[:4])


def test_what_nobody_needs_goes(client, unmoved):
    with dg.place(ITEMS) as shards:
        params = start(shards)
        gradient = gradient_over(shards)
        train(gradient, params, 5)
        gradient(*params.values())
        gradient(*params.values())
        assert max([calls for _, calls in held(client).values()]) <= 3
        count = len(shards.blocks)  # when those of earlier clients have gone
        wait_until(lambda: sum([blocks for blocks, _ in held(client).values()]) == count)
    wait_until(lambda: not any([blocks for blocks, _ in held(client).values()]))
    with dg.place(ITEMS) as shards:
        params = start(shards)
        train(gradient_over(shards), params, 2)
        del params, shards
    gc.collect()
    wait_until(lambda: not any([blocks for blocks, _ in held(client).values()]))


def test_an_error_of_a_model_changes_nothing(client):
    def failing(pair, x):
        if x[0] > 1e6:
            raise ArithmeticError("too large")
        return np.sum(pair[0] * x)

    with dg.place(ITEMS) as shards:
        z = shards.attach(Z)
        gradient = dg.grad(lambda z, x: dg.map_sum(failing, dg.zip(z, shards), x))
        optimiser = dg.optim.SGD(0.1)
        state = optimiser.init(z)
        optimiser.update(z, gradient(z, X), state)
        with pytest.raises(ArithmeticError, match="too large"):
            gradient(z, 1e9 * numpy.ones(WIDTH))
        optimiser.update(z, gradient(z, X), state)
        assert_array_equal(z, Z - 0.1 * X - 0.1 * X)


# ------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("array", "kind", "message"),
    [
        (numpy.zeros((COUNT, 2), int), TypeError, "takes a plain array of floats"),
        (Z.tolist(), TypeError, "takes a plain array of floats"),
        (Z[1:], ValueError, f"a row for each of the {COUNT} items; found float64\\[49, 3\\]"),
        (numpy.ones(()), ValueError, "a row for each"),
    ],
)
def test_only_rows_of_floats_are_attached(array, kind, message):
    with dg.place(ITEMS) as shards, pytest.raises(kind, match=message):
        shards.attach(array)


def test_what_does_not_fit_is_refused():
    with dg.place(ITEMS) as shards:
        z = shards.attach(Z)
        with pytest.raises(TypeError, match=r"<Attached: float64\[50, 3\]> belongs to one process"):
            pickle.dumps(z)
        with pytest.raises(ValueError, match="cannot be had without a copy"):
            numpy.asarray(z, copy=False)
        state = ADAM.init(z)
        with pytest.raises(ValueError, match="must be a real floating-point array or Rows"):
            ADAM.update(z, Z[1:], state)
        state["m"] = Z[1:].copy()
        with pytest.raises(ValueError, match="needs a writeable array 'm'"):
            ADAM.update(z, Z, state)
    with pytest.raises(RuntimeError, match="these shards are closed"):
        shards.attach(Z)


# ------------------------------------------------------------------------- the blocks of a worker


def step_to(version, ticket="a"):
    steps = numpy.array(version)
    change = Change("z", Kept(ticket), dg.optim.SGD(1.0), 1.0, steps, ())
    return Step(version, [change])


def store_with(call="c", ticket="a"):
    store = AttachedBlocks()
    store.put("l", 0, {0: {"z": numpy.zeros(2)}, 1: {"z": numpy.ones(2)}})
    store.keep("l", call, {ticket: {0: numpy.ones(2)}})
    return store


def test_a_block_takes_each_step_once_and_none_out_of_turn():
    store = store_with()
    store.receive("l", News(2, [step_to(2)], []))  # the first is missing
    assert not store.has("l", 2, [0])
    assert store.has("l", 0, [0])
    for _ in range(2):
        store.receive("l", News(1, [step_to(1)], []))
        assert_array_equal(store.rows("l", "z", 0), [-1.0, -1.0])
    assert store.has("l", 1, [0])
    assert not store.has("l", 1, [1])  # without a cotangent it is gone
    assert not store.has("l", 0, [1])


def test_cotangents_go_after_the_steps_that_need_them():
    store = store_with()
    store.receive("l", News(1, [step_to(1)], ["c"]))
    assert store.has("l", 1, [0])
    assert store.kept("l", "c", "a") == {}


def test_a_step_that_fails_half_way_leaves_no_block():
    class Failing(dg.optim.SGD):
        def take(self, pairs, rate):
            for x, _ in pairs:
                x += 1
            raise ArithmeticError("half-way")

    store = store_with()
    change = step_to(1).changes[0]._replace(optimiser=Failing(1.0))
    with pytest.raises(ArithmeticError, match="half-way"):
        store.receive("l", News(1, [Step(1, [change])], []))
    assert not store.has("l", 0, [0])
    assert not store.has("l", 1, [0])


def test_an_attached_array_says_what_it_is():
    with dg.place(ITEMS) as shards:
        z = shards.attach(Z)
        assert repr(z) == "<Attached: float64[50, 3]>"
        assert isinstance(z, Attached)
        assert (z.ndim, len(z), z.nbytes) == (2, COUNT, Z.nbytes)
