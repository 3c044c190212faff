"""Attached arrays: parameters of items learn where the items are, with the bits of arrays."""

import gc
import pickle
import threading
import types

import autograd.numpy as np
import dask
import numpy
import pytest
from autograd.extend import defvjp, primitive
from clusters import cluster, tasks_run
from distributed import Client, get_client
from numpy.testing import assert_array_equal
from probes import in_threads
from waiting import wait_until

import daskgrad as dg
from daskgrad.autodiff.values.rows import Rows
from daskgrad.derivatives import evaluation
from daskgrad.optim.optimiser import Optimiser
from daskgrad.placed import attached, messages
from daskgrad.placed.attached import Attached, AttachedGradient, Attachment
from daskgrad.placed.call import Attempt
from daskgrad.placed.messages import pack
from daskgrad.placed.updates import Blocks, Change, KeptCotangent, LatestSteps, VersionStep
from daskgrad.placed.worker_store import Store, ticket_of

pytestmark = pytest.mark.timeout(180)

COUNT, WIDTH = 50, 3
GENERATOR = numpy.random.default_rng(3)
ITEMS = [GENERATOR.standard_normal((2 + n % 3, WIDTH)) for n in range(COUNT)]
ROWS = GENERATOR.standard_normal((COUNT, WIDTH))
Z = GENERATOR.standard_normal((COUNT, WIDTH))
X = GENERATOR.standard_normal(WIDTH)
ADAM, SGD = dg.optim.Adam(1e-2), dg.optim.SGD(1e-2)


def term(pair, x):
    z, rows = pair
    return np.sum(np.tanh(rows @ (x + z)) ** 2)


def prior(pair, x):
    z, _ = pair
    return np.sum(z**2 * x**2)


def slice_term(pair, x):
    z, rows = pair
    return np.sum(np.tanh(np.sum(rows * (x + z), axis=1)) ** 2)


def loss_over(items):
    """Twice the same array, with factors: what workers keep is scaled and added."""

    def loss(x, z):
        likelihood = dg.map_sum(term, dg.zip(z, items), x)
        return -0.5 * likelihood + dg.map_sum(prior, dg.zip(z, items), x) / 3

    return loss


def gradient_over(items):
    return dg.value_and_grad(loss_over(items), (0, 1))


def prior_over(items):
    return dg.grad(lambda z: dg.map_sum(prior, dg.zip(z, items), X))


def slices_over(items):
    return dg.grad(lambda z: dg.reduce_sum(slice_term, dg.zip(z, items), X))


def start(shards):
    return {"x": X.copy(), "z": shards.attach(Z)}


def train(gradient, params, steps, optimiser=ADAM, state=None, between=lambda step: None):
    state = optimiser.init(params) if state is None else state
    values = []
    for step in range(steps):
        between(step)
        value, gradients = gradient(*params.values())
        optimiser.update(params, dict(zip(params, gradients, strict=True)), state)
        values.append(value)
    return values, state


def assert_learned(found, params, steps, optimiser=ADAM, gradient=None):
    """That values, parameters and state are those of arrays, in this process."""
    arrays = {"x": X.copy(), "z": Z.copy()}
    values, state = train(gradient or gradient_over(ITEMS), arrays, steps, optimiser)
    assert found[0] == values
    for left, right in ((params, arrays), (found[1], state)):
        assert left.keys() == right.keys()
        for name, array in right.items():
            assert_array_equal(numpy.asarray(left[name]), array)


def stores(dask_worker):
    plugins = dask_worker.plugins.values()
    return [plugin._store for plugin in plugins if hasattr(plugin, "_store")]


def held(client):
    """The numbers of blocks, and of calls of which cotangents are kept: the sum, and the most."""

    def look(dask_worker):
        copies = [copy for store in stores(dask_worker) for copy in store._entries.values()]
        blocks = [copy.value for copy in copies if isinstance(copy.value, dict)]
        tickets = [ticket for store in stores(dask_worker) for ticket in store._cotangents]
        return sum(map(len, blocks)), len({tuple(ticket.split("/")[:2]) for ticket in tickets})

    blocks, calls = zip(*client.run(look).values(), strict=True)
    return sum(blocks), max(calls)


def lose(client, count=None):
    def forget(dask_worker):
        for plugin in dask_worker.plugins.values():
            if hasattr(plugin, "_store"):
                plugin._store = Store()

    client.run(forget, workers=sorted(client.ncores())[:count])


OPTIMISERS = {
    "SGD": dg.optim.SGD(dg.optim.exponential(1e-2, 0.9)),
    "Nesterov": dg.optim.Nesterov(1e-3),
    "Adagrad": dg.optim.Adagrad(1e-2),
    "RMSprop": dg.optim.RMSprop(1e-2),
    "AdamW": dg.optim.AdamW(1e-2, decay=1e-3),
}


@pytest.fixture
def counted(monkeypatch):
    """How often the arrays were brought here, and blocks made again; blocks stay where they are."""
    counts = {"_gather": 0, "_repeat": 0}

    def count(name, method):
        def counting(self, *args):
            counts[name] += 1
            return method(self, *args)

        monkeypatch.setattr(Attachment, name, counting)

    for name in counts:
        count(name, getattr(Attachment, name))
    monkeypatch.setattr("daskgrad.placed.spread.rebalancing", lambda *args: None)
    return counts


@pytest.fixture(params=[True, False], ids=["on a cluster", "without one"])
def anywhere(request):
    if request.param:
        request.getfixturevalue("client")
    return request.param


# -------------------------------------------------------------------------------------- bits


@pytest.mark.parametrize("optimiser", OPTIMISERS.values(), ids=OPTIMISERS)
def test_they_learn_as_arrays_do(anywhere, counted, optimiser):
    with dg.place(ITEMS) as shards:
        params = start(shards)
        results = train(gradient_over(shards), params, 6, optimiser)
        assert counted["_gather"] == 0
        assert_learned(results, params, 6, optimiser)
        assert counted == {"_gather": int(anywhere), "_repeat": 0}


@pytest.mark.parametrize("how", ["passed on by workers", "in this process", "beside a replica"])
def test_they_learn_as_arrays_do_also(how, request, monkeypatch):
    if how == "passed on by workers":
        monkeypatch.setattr(messages, "FLAT", 1)  # the client calls one worker
    request.getfixturevalue("inside" if how == "in this process" else "client")
    with dg.place(ITEMS) as shards:
        params = start(shards)
        if how == "beside a replica":
            params["x"] = dg.replicate(X)
        assert_learned(train(gradient_over(shards), params, 5), params, 5)


@pytest.fixture
def inside():
    with cluster(processes=False, host=None):
        yield


def slope(triple, x):
    z, w, rows = triple
    return np.sum(np.tanh(rows @ (x + z * w)) ** 2)


def test_several_arrays_are_attached_to_the_same_items(client, counted):
    def gradient(items):
        return dg.value_and_grad(
            lambda x, z, w: dg.map_sum(slope, dg.zip(z, w, items), x), (0, 1, 2)
        )

    with dg.place(ITEMS) as shards:
        params = start(shards) | {"w": shards.attach(Z**2)}
        values, _ = train(gradient(shards), params, 5)
        assert counted["_gather"] == 0
        arrays = {"x": X.copy(), "z": Z.copy(), "w": Z**2}
        assert values == train(gradient(ITEMS), arrays, 5)[0]
        for name, array in arrays.items():
            assert_array_equal(params[name], array)


def test_whatever_else_takes_arrays_fetches_them(client):
    items, rows = ITEMS[:6], Z[:6]
    loss = loss_over(items)
    with dg.place(items) as shards:
        z, over = shards.attach(rows), loss_over(shards)
        assert_array_equal(dg.vjp(over, X, z)[1](1.0)[1], dg.vjp(loss, X, rows)[1](1.0)[1])
        tangents = np.ones(WIDTH), np.ones(rows.shape)
        assert_array_equal(dg.jvp(over, (X, z), tangents), dg.jvp(loss, (X, rows), tangents))
        assert_array_equal(dg.grad(dg.delayed(lambda z: np.sum(z**3)))(z), 3 * rows**2)
        assert_array_equal(dg.grad(lambda z: dg.map_sum(lambda z: np.sum(z**2), z))(z), 2 * rows)
        values, _ = dg.per_item(term, dg.zip(z, shards))(X)
        assert_array_equal(values, dg.per_item(term, dg.zip(rows, items))(X)[0])


# ------------------------------------------------------- fits of shards and an array, or rows
#
# Each has the bits that it has where ``z`` is an array in this process.


def slices_and_items_in_turn(shards, z):
    slices, gradient, optimiser = slices_over(shards), prior_over(shards), dg.optim.Adam(1e-1)
    state = optimiser.init(z)
    for _ in range(2):
        first, second = gradient(z), slices(z)
        optimiser.update(z, first, state)
        optimiser.update(z, second, state)  # late
    return z


def several_cuts_added(shards, z):
    return prior_over(shards)(z) + slices_over(shards)(z)


@primitive
def half_square(z):
    return 0.5 * numpy.sum(z**2)


defvjp(half_square, lambda ans, z: lambda g: z)  # the argument itself


def gradients_that_are_the_array(shards, z):
    gradient = dg.grad(lambda z: dg.reduce_sum(lambda p: half_square(p[0]), dg.zip(z, shards)))
    optimiser = dg.optim.AdamW(1e-1, decay=0.5)  # which changes the array first
    state, old = optimiser.init(z), gradient(z)
    for _ in range(3):
        optimiser.update(z, gradient(z), state)
    optimiser.update(z, old, state)
    return z


def zeros_without_a_sign(shards, z):
    return dg.grad(lambda z: -dg.map_sum(lambda p: np.sum(p[1]), dg.zip(z, shards)))(z)


def some_rows_between(shards, z):
    gradient, optimiser = prior_over(shards), dg.optim.Adam(1e-1)
    state = optimiser.init(z)
    rows = Rows(Z.shape, (0,), numpy.array([3, 7]), numpy.ones((2, WIDTH)))
    for _ in range(2):
        optimiser.update(z, gradient(z), state)
        optimiser.update(z, rows, state)
    optimiser.update(z, gradient(z), state)  # rows have taken steps of their own by now
    return z


def constants(shards, z):
    return dg.grad(lambda x: dg.map_sum(term, dg.zip(z, shards), x))(X)


def gradients_late_and_twice(shards, z):
    gradient, state = gradient_over(shards), ADAM.init(z)
    _, (_, first) = gradient(X, z)
    _, (_, second) = gradient(2 * X, z)
    ADAM.update(z, second, state)
    ADAM.update(z, first, state)
    numpy.asarray(z)  # what is older than this cannot be made again
    ADAM.update(z, first, state)
    ADAM.update(z, gradient(X, z)[1][1], state)
    return z


def clipped(shards, z):
    of_x, of_z = dg.optim.clip_by_norm(gradient_over(shards)(X, z)[1], 0.1)
    dg.optim.SGD(0.1).update(z, of_z, dg.optim.SGD(0.1).init(z))
    return numpy.vstack([z, of_x])


def arguments_of_others(shards, z):
    first = dg.delayed(lambda x, p: np.sum(x * p["z"][1]), name="first")

    def fun(x):
        return first(x, {"z": z}) + dg.map_sum(lambda row, x, z: row @ (x * z[2]), shards, x, z)

    return dg.grad(fun)(X)


class Own(Optimiser):
    """An optimiser that is no dataclass of its own, and that changes while it is used."""

    def __init__(self, alpha):
        object.__setattr__(self, "rate", alpha)
        object.__setattr__(self, "factor", {"now": 1.0})

    def rule(self, g, rate, steps, *slots):
        return rate * self.factor["now"] * g


def optimiser_of_ones_own(shards, z, optimiser=None, halve=1.0):
    gradient, optimiser = prior_over(shards), optimiser or Own(0.1)
    state = optimiser.init(z)
    for _ in range(3):
        optimiser.update(z, gradient(z), state)
        optimiser.factor["now"] *= halve
    return z


def optimiser_that_changes(shards, z):
    z = optimiser_of_ones_own(shards, z, halve=0.5)
    if not isinstance(z, numpy.ndarray):
        lose(get_client())
    return z


def optimiser_that_cannot_be_sent(shards, z):
    optimiser = Own(0.1)
    object.__setattr__(optimiser, "lock", threading.Lock())
    return optimiser_of_ones_own(shards, z, optimiser)


FITS = [
    slices_and_items_in_turn,
    several_cuts_added,
    gradients_that_are_the_array,
    zeros_without_a_sign,
    some_rows_between,
    constants,
    gradients_late_and_twice,
    clipped,
    arguments_of_others,
    optimiser_of_ones_own,
    optimiser_that_changes,
    optimiser_that_cannot_be_sent,
]


@pytest.mark.filterwarnings("ignore:.*does not depend on 'z':UserWarning")
@pytest.mark.parametrize("fit", FITS)
def test_fits_have_the_bits_of_arrays(client, fit):
    assert_same_bits(fit)


def assert_same_bits(fit, z=Z, **how):
    with dg.place(ROWS, **how) as shards:
        array = numpy.asarray(fit(shards, shards.attach(z)))
        expected = numpy.asarray(fit(shards, z.copy()))
    assert array.dtype == expected.dtype
    assert array.tobytes() == expected.tobytes()


def test_slices_may_be_the_blocks(client):
    assert_same_bits(slices_and_items_in_turn, grainsize=16)


def test_single_precision_stays_single(client):
    def fit(shards, z):
        train(gradient_over(shards), {"x": X.copy(), "z": z}, 3)
        assert numpy.asarray(z).dtype == np.float32
        return z

    assert_same_bits(fit, Z.astype(np.float32))


def test_gradients_from_before_the_arrays_came_here_are_no_steps_to_repeat(client, monkeypatch):
    monkeypatch.setattr(attached, "STEPS", 1)

    def fit(shards, z):
        gradient, state = prior_over(shards), ADAM.init(z)
        for of_z in [gradient(z) for _ in range(2)]:
            ADAM.update(z, of_z, state)
        lose(client)
        return z

    assert_same_bits(fit)


def test_the_cluster_runs_what_is_around_them(client, monkeypatch):
    def gradient(shards, z):
        square = dg.delayed(np.square)
        return dg.grad(lambda z: square(square(dg.map_sum(prior, dg.zip(z, shards), X))))(z)

    monkeypatch.setattr(evaluation, "spares_cluster", lambda *_: False)
    before = tasks_run(client)
    assert_same_bits(gradient)
    assert tasks_run(client) > before


ARITHMETIC = {
    "twice": lambda g, h: 2 * g,
    "a mean": lambda g, h: (g + h) / 2,
    "a difference": lambda g, h: 1.5 * g - h,
    "from an array": lambda g, h: Z - g,
    "minus": lambda g, h: -g,
    "a sum": lambda g, h: sum([g, h]),
    "a product": lambda g, h: g * h,
}


def test_arithmetic_with_gradients_is_that_of_arrays(anywhere):
    def gradients(items, z):
        gradient = dg.grad(lambda x, z: dg.map_sum(prior, dg.zip(z, items), x), 1)
        return gradient(X, z), gradient(2.0 * X, z)

    with dg.place(ROWS) as shards:
        z = shards.attach(Z)
        for name, combine in ARITHMETIC.items():
            combined = numpy.asarray(combine(*gradients(shards, z)))
            assert_array_equal(combined, combine(*gradients(ROWS, Z)), err_msg=name)


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


def test_they_outlive_the_shards_and_the_client(client):
    with Client(client.scheduler.address) as other:
        with dg.place(ITEMS) as shards:
            params = start(shards)
            results = train(gradient_over(shards), params, 3)
        others = dg.place(ITEMS)
        rest = start(others)
        again = train(gradient_over(others), rest, 3)
        other.close()
        numpy.asarray(rest["z"])
    assert_learned(results, params, 3)
    assert_learned(again, rest, 3)


def test_gradients_outlive_the_shards(client):
    def descend(items, z):
        gradient, state, gradients = gradient_over(items), ADAM.init(z), []
        for _ in range(2):
            gradients.append(gradient(X, z)[1][1])
            ADAM.update(z, gradients[-1], state)
        return [*gradients, gradient(X, z)[1][1]]

    with dg.place(ITEMS) as shards:
        z = shards.attach(Z)
        gradients = descend(shards, z)
        assert {(type(each), each.shape) for each in gradients} == {(AttachedGradient, Z.shape)}
    array = Z.copy()
    expected = descend(ITEMS, array)
    for gradient, of_array in zip(2 * gradients, 2 * expected, strict=True):
        assert_array_equal(gradient, of_array)
    dg.optim.SGD(0.1).update(z, gradients[-1], dg.optim.SGD(0.1).init(z))
    assert_array_equal(z, array - 0.1 * expected[-1])


def test_threads_may_evaluate_at_once(client):
    with dg.place(ITEMS) as shards:
        z, gradient, gradients = shards.attach(Z), gradient_over(shards), {}

        def evaluate(thread, number):
            gradients[thread] = gradient((thread + 1) * X, z)[1][1]

        in_threads(evaluate, threads=3, times=5)
        for thread in range(3):
            assert_array_equal(gradients[thread], gradient_over(ITEMS)((thread + 1) * X, Z)[1][1])


def test_a_task_may_attach_arrays_to_what_it_places(client):
    def fit():
        with get_client().as_current(), dg.place(ROWS) as shards:
            z = shards.attach(Z)
            SGD.update(z, prior_over(shards)(z), SGD.init(z))
            return numpy.asarray(z)

    for array in client.gather([client.submit(fit, pure=False) for _ in range(2)]):
        assert_array_equal(array, Z - 1e-2 * prior_over(ROWS)(Z))


def test_sums_that_outlive_the_call_keep_the_array_as_it_was(anywhere):
    square = dg.delayed(lambda z: np.sum(z**2), name="square")
    kept = []

    def fun(z):
        kept[:] = [dg.map_sum(prior, dg.zip(z, items), X) for items in (shards, batch)]
        kept.append(dg.map_sum(square, z))
        return kept[0] + kept[1]

    with dg.place(ROWS[:10]) as shards:
        z, batch = shards.attach(Z[:10]), shards.sample(7, seed=1)
        SGD.update(z, dg.grad(fun)(z), SGD.init(z))
        values = dask.compute(*kept)
        dg.grad(fun)(Z[:10])
        assert values == dask.compute(*kept)


# --------------------------------------------------------------------------------- what travels


def test_neither_they_nor_their_gradients_travel(client, counted, monkeypatch):
    came = []

    def unpack(frames):
        came.append(sum([memoryview(frame).nbytes for frame in frames]))
        return pickle.loads(bytes(frames[0]), buffers=frames[1:])

    monkeypatch.setattr("daskgrad.placed.call.unpack", unpack)
    wide = numpy.zeros((COUNT, 4_000))

    def loss(x, z):
        return dg.map_sum(lambda pair, x: np.sum(pair[0]) * np.sum(x) + x[0], dg.zip(z, shards), x)

    with dg.place(ITEMS) as shards:
        params = {"x": X.copy(), "z": shards.attach(wide)}
        train(dg.value_and_grad(loss, (0, 1)), params, 3)
        dg.grad(lambda x: loss(x, params["z"]))(X)  # a constant
        assert counted["_gather"] == 0
        assert 0 < sum(came) < wide.nbytes / 20


def test_steps_that_all_workers_took_are_sent_once(client, counted):
    with dg.place(ITEMS) as shards:
        params, sent = start(shards), []

        def between(step):
            sent.append(len(params["z"].attachment.steps().steps))

        train(gradient_over(shards), params, 5, between=between)
    assert sent == [0, 1, 1, 1, 1]


def test_what_is_remembered_is_bounded(client, counted, monkeypatch):
    monkeypatch.setattr(attached, "STEPS", 4)
    with dg.place(ITEMS) as shards:
        params = start(shards)
        results = train(gradient_over(shards), params, 10)
        assert counted["_gather"] == 2
        assert len(params["z"].attachment._log) <= 4
        assert_learned(results, params, 10)


def test_large_arguments_are_not_remembered(client, counted, monkeypatch):
    monkeypatch.setattr(attached, "LEAST", 0)
    large = numpy.ones(2 * Z.size)

    def scaled(pair, x, large):
        return term(pair, x * large[0])

    def gradient(items):
        return dg.value_and_grad(
            lambda x, z, large: dg.map_sum(scaled, dg.zip(z, items), x, large), (0, 1, 2)
        )

    with dg.place(ITEMS) as shards:
        params = start(shards) | {"large": large.copy()}
        values, _ = train(gradient(shards), params, 4)
        assert (counted["_gather"], len(params["z"].attachment._log)) == (2, 1)
        arrays = {"x": X.copy(), "z": Z.copy(), "large": large.copy()}
        assert values == train(gradient(ITEMS), arrays, 4)[0]
        assert_array_equal(params["z"], arrays["z"])


# ------------------------------------------------ what is lost (and promises/test_survival.py)


def lose_a_block(client):
    """Has a worker forget a block of attached arrays, which it still has in their version."""

    def forget(dask_worker):
        for store in stores(dask_worker):
            for copy in store._entries.values():
                if isinstance(copy.value, dict):
                    del copy.value[next(iter(copy.value))]

    client.run(forget, workers=sorted(client.ncores())[:1])


@pytest.mark.parametrize("lose", [lambda client: lose(client, 1), lose_a_block], ids=["all", "one"])
def test_a_worker_that_lost_blocks_gets_them_again(client, counted, lose):
    def between(step):
        if step == 3:
            lose(client)

    with dg.place(ITEMS) as shards:
        params = start(shards)
        assert_learned(train(gradient_over(shards), params, 6, between=between), params, 6)
    assert counted["_repeat"] > 0


def test_a_gradient_that_was_lost_is_made_again_unless_the_arrays_came_here_since(client, counted):
    with dg.place(ITEMS) as shards:
        params = start(shards)
        gradient = gradient_over(shards)
        train(gradient, params, 3)
        old = gradient(*params.values())[1][1]
        lose(client, 1)
        arrays = {"x": X.copy(), "z": Z.copy()}
        train(gradient_over(ITEMS), arrays, 3)
        assert_array_equal(old, gradient_over(ITEMS)(*arrays.values())[1][1])
        assert counted["_repeat"] > 0
        z = shards.attach(Z)
        old = prior_over(shards)(z)
        SGD.update(z, prior_over(shards)(z), SGD.init(z))
        numpy.asarray(z)
        lose(client, 1)
        with pytest.raises(RuntimeError, match="gradient of an attached array is not there any"):
            numpy.asarray(old)


def test_an_array_that_was_changed_in_place_is_right_or_an_error_where_it_matters(client, counted):
    """Steps that are repeated see copies of arrays; objects with arrays are compared."""
    constant, held = numpy.ones(5_000), numpy.ones(5_000)  # more than what is copied into a message
    holder = types.SimpleNamespace(array=held)

    def scaled(pair, constant):
        return np.sum(pair[0] ** 2) * constant[0]

    def holding(pair, holder):
        return np.sum(pair[0] ** 2) * holder.array[0]

    def stepped(shards, model, argument):
        z = shards.attach(Z)
        gradient = dg.grad(lambda z: dg.map_sum(model, dg.zip(z, shards), argument))
        SGD.update(z, gradient(z), SGD.init(z))
        return z

    with dg.place(ITEMS) as shards, dg.place(ITEMS) as others:
        one, other = stepped(shards, scaled, constant), stepped(others, holding, holder)
        constant[:], held[:] = 2.0, 2.0
        lose(client, 1)
        assert_array_equal(one, Z - 0.02 * Z)
        with pytest.raises(RuntimeError, match=r"'holding'.*; pass the array itself"):
            numpy.asarray(other)
        held[:] = 1.0
        assert_array_equal(other, Z - 0.02 * Z)


# ----------------------------------------------------------------------------------- what goes


def test_what_nobody_needs_goes(client, counted):
    with dg.place(ITEMS) as shards:
        params = start(shards)
        gradient = gradient_over(shards)
        train(gradient, params, 5)
        gradient(*params.values())
        gradient(*params.values())
        assert held(client)[1] <= 3
        count = len(shards.blocks)
        wait_until(lambda: held(client)[0] == count)  # not those of earlier clients
    wait_until(lambda: held(client)[0] == 0)
    with dg.place(ITEMS) as shards:
        params = start(shards)
        train(gradient_over(shards), params, 2)
        del params, shards
    gc.collect()
    wait_until(lambda: held(client)[0] == 0)


def test_cotangents_go_with_their_shards(client):
    others = dg.place(ROWS)
    kept = others.attach(Z)
    gradient = prior_over(others)
    gradient(kept)
    with dg.place(ROWS) as shards:
        z = shards.attach(Z)
        for _ in range(2):
            prior_over(shards)(z)
    del z, shards
    gc.collect()
    gradient(kept)
    wait_until(lambda: held(client)[1] == 1)


def test_arrays_that_nobody_has_go(client):
    with dg.place(ROWS) as shards:
        z, gradient = shards.attach(Z), prior_over(shards)
        for _ in range(4):
            state = ADAM.init(z)
            ADAM.update(z, gradient(z), state)
            gradient(z)
        shards.attach(Z)
        numpy.asarray(z)
        assert z.attachment._arrays.keys() == {z.name, state["m"].name, state["v"].name}


def test_what_is_kept_of_a_call_after_its_end_goes_with_the_next(client, monkeypatch):
    abandoned, abandon = [], Attempt.abandon

    def noted(self):
        abandoned.append(self._call)
        abandon(self)

    def keep(layout, call, dask_worker):  # as a request would that came after its abandonment
        for store in stores(dask_worker):
            store.keep(ticket_of(layout, call, 0, 0), {0: numpy.ones(2)})

    monkeypatch.setattr(Attempt, "abandon", noted)
    with dg.place(ROWS) as shards:
        z = shards.attach(Z)
        gradient = dg.grad(lambda z, x: dg.map_sum(failing, dg.zip(z, shards), x))
        with pytest.raises(ArithmeticError):
            gradient(z, 2.0)
        client.run(keep, z.attachment._layout.name, abandoned[0])
        gradient(z, 1.0)
        wait_until(lambda: held(client)[1] == 1)


@pytest.mark.parametrize("order", [1, -1])
def test_arrays_of_other_shards_take_no_cotangents_along(client, counted, order):
    with dg.place(ROWS) as shards, dg.place(ROWS) as others:
        z, constant = shards.attach(Z), others.attach(Z)

        def loss(z):
            zips = [dg.zip(z, shards), dg.zip(constant, others)][::order]
            first, second = [dg.map_sum(prior, pairs, X) for pairs in zips]
            return first + second

        state, gradient = SGD.init(z), dg.grad(loss)
        for _ in range(4):
            SGD.update(z, gradient(z), state)
        assert counted["_repeat"] == 0


# ------------------------------------------------------------------------------------ errors


def failing(pair, x):
    if x > 1.0:
        raise ArithmeticError("too large")
    return np.sum(pair[0]) * x


def test_an_error_of_a_model_changes_nothing(client):
    with dg.place(ITEMS) as shards:
        z, state = shards.attach(Z), SGD.init(Z)
        gradient = dg.grad(lambda z, x: dg.map_sum(failing, dg.zip(z, shards), x))
        SGD.update(z, gradient(z, 1.0), state)
        with pytest.raises(ArithmeticError, match="too large"):
            gradient(z, 2.0)
        SGD.update(z, gradient(z, 1.0), state)
        assert_array_equal(z, Z - 1e-2 - 1e-2)


class Wrong(dg.optim.SGD):
    def rule(self, g, rate, steps, *slots):
        return rate * g[:, 7]


def test_a_rule_that_fails_is_an_error_at_once_and_changes_nothing(client):
    with dg.place(ROWS) as shards:
        z = shards.attach(Z)
        gradient, state = prior_over(shards), SGD.init(z)
        of_z = gradient(z)
        with pytest.raises(IndexError):
            Wrong(1e-2).update(z, of_z, Wrong(1e-2).init(z))
        assert numpy.asarray(z).tobytes() == Z.tobytes()
        SGD.update(z, of_z, state)
        SGD.update(z, gradient(z), state)
        assert int(state["step"]) == 2


def test_they_are_not_updated_while_they_are_used_nor_are_others_then(client, gate):
    def waiting(pair):
        gate.wait()
        return np.sum(pair[0])

    with dg.place(ROWS) as shards, dg.place(ROWS) as others:
        z, used = shards.attach(Z), others.attach(Z)
        evaluate = dg.grad(lambda z: dg.map_sum(waiting, dg.zip(z, others)))
        thread = threading.Thread(target=evaluate, args=(used,))
        thread.start()
        gate.wait_for()
        for params in (used, [z, used]):
            state, gradients = SGD.init(params), [Z, Z] if params is not used else Z
            with pytest.raises(RuntimeError, match="attached to its items is being evaluated"):
                SGD.update(params, gradients, state)
            assert state["step"] == 0
        gate.open()
        thread.join()
        assert_array_equal(z, Z)
        assert_array_equal(used, Z)


def test_what_does_not_fit_is_refused():
    with dg.place(ITEMS) as shards:
        z = shards.attach(Z)
        assert isinstance(z, Attached)
        assert (z.ndim, len(z), z.nbytes) == (2, COUNT, Z.nbytes)
        assert repr(z) == f"<Attached: float64[50, {WIDTH}]>"
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


TICKET = ticket_of("l", "c", 0, 0)


def step_to(version, optimiser=dg.optim.SGD(1.0)):  # noqa: B008
    steps = numpy.array(version)
    return VersionStep(version, [Change("z", KeptCotangent(TICKET), optimiser, 1.0, steps, ())])


def receive(store, version, *steps):
    """The blocks that are there in this version, after the steps."""
    store.update({"l": version}, [("l", pack(LatestSteps(steps)))])
    return [] if store.missing({"l": version}, {}) else [*store.entries("l")["l"]]


@pytest.fixture
def store():
    """Two blocks, and a cotangent of the first."""
    store = Store()
    blocks = {0: {"z": numpy.zeros(2)}, 1: {"z": numpy.ones(2)}}
    store.update({"l": 0}, [("l", pack(Blocks(blocks)))])
    store.keep(TICKET, {0: numpy.ones(2)})
    return store


def test_a_block_takes_each_step_once_and_none_out_of_turn(store):
    assert receive(store, 2, step_to(2)) == []  # the first is missing
    assert receive(store, 0) == [0, 1]
    for _ in range(2):
        assert receive(store, 1, step_to(1)) == [0]  # without a cotangent the other is gone
        assert_array_equal(store.rows("l", "z", 0), [-1.0, -1.0])
    assert receive(store, 0) == []


def test_a_step_that_fails_half_way_leaves_no_block(store):
    class Failing(dg.optim.SGD):
        def take(self, pairs, rate):
            for x, _ in pairs:
                x += 1
            raise ArithmeticError("half-way")

    with pytest.raises(ArithmeticError, match="half-way"):
        receive(store, 1, step_to(1, Failing(1.0)))
    assert receive(store, 0) == receive(store, 1) == []


def test_blocks_come_in_the_place_of_older_ones_and_never_of_newer_ones(store):
    def put(version, number):
        blocks = {number: {"z": numpy.full(2, 7.0 * version)}}
        store.update({"l": version}, [("l", pack(Blocks(blocks)))])

    put(0, 1)
    assert receive(store, 0) == [0, 1]
    put(2, 0)
    assert receive(store, 2) == [0]
    put(1, 0)  # a late message
    assert receive(store, 2) == [0]
    assert_array_equal(store.rows("l", "z", 0), [14.0, 14.0])
