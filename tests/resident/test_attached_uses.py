"""Attached arrays in unusual uses: late gradients, other cuts, own optimisers, what goes when."""

import gc
import threading
import time

import autograd.numpy as np
import dask
import numpy
import pytest
from autograd.extend import defvjp, primitive
from distributed import get_client
from numpy.testing import assert_array_equal
from probes import write
from waiting import wait_until

import daskgrad as dg
from daskgrad.derivatives import in_line
from daskgrad.optim.optimiser import Optimiser
from daskgrad.resident import attachment
from daskgrad.resident.attachment import Attachment
from daskgrad.resident.call import Attempt
from daskgrad.resident.worker_attached import AttachedBlocks, News
from daskgrad.values.rows import Rows

pytestmark = pytest.mark.timeout(180)

COUNT, WIDTH = 50, 3
GENERATOR = numpy.random.default_rng(3)
ROWS = GENERATOR.standard_normal((COUNT, WIDTH))
Z = GENERATOR.standard_normal((COUNT, WIDTH))
X = GENERATOR.standard_normal(WIDTH)


def prior(pair, x):
    return np.sum(pair[0] ** 2 * x**2)


def slice_term(pair, x):
    z, rows = pair
    return np.sum(np.tanh(np.sum(rows * (x + z), axis=1)) ** 2)


@primitive
def half_square(z):
    return 0.5 * numpy.sum(z**2)


defvjp(half_square, lambda ans, z: lambda g: z)  # the argument itself


class Own(Optimiser):
    """An optimiser that is no dataclass of its own, and that changes while it is used."""

    def __init__(self, alpha):
        object.__setattr__(self, "rate", alpha)
        object.__setattr__(self, "factor", {"now": 1.0})

    def rule(self, g, rate, steps, *slots):
        return rate * self.factor["now"] * g


class Wrong(Own):
    def rule(self, g, rate, steps, *slots):
        return rate * g[:, 7]


def lose(dask_worker):
    for plugin in dask_worker.plugins.values():
        if hasattr(plugin, "_attached"):
            plugin._attached = AttachedBlocks()


def kept_calls(client):
    """How many calls workers keep cotangents of."""

    def look(dask_worker):
        stores = [p._attached for p in dask_worker.plugins.values() if hasattr(p, "_attached")]
        return sum([len(calls) for store in stores for calls in store._cotangents.values()])

    return max(client.run(look).values())


def gradient_over(items):
    return dg.grad(lambda z: dg.map_sum(prior, dg.zip(z, items), X))


@pytest.fixture
def repeated(monkeypatch):
    """The blocks that were made again."""
    found, repeat = [], Attachment._repeat

    def counted(self, *args):
        found.append(args)
        return repeat(self, *args)

    monkeypatch.setattr(Attachment, "_repeat", counted)
    return found


def assert_same_bits(fit, *args):
    """That a fit of attached arrays is one of arrays; ``fit`` gets the shards and the array."""
    with dg.place(ROWS, *args) as shards:
        found = numpy.asarray(fit(shards, shards.attach(Z)))
        assert found.tobytes() == numpy.asarray(fit(shards, Z.copy())).tobytes()


def test_a_rule_that_fails_is_an_error_at_once_and_changes_nothing(client):
    with dg.place(ROWS) as shards:
        z = shards.attach(Z)
        gradient, wrong, right = gradient_over(shards), Wrong(1e-2), dg.optim.SGD(1e-2)
        found, state = gradient(z), right.init(z)
        with pytest.raises(IndexError):
            wrong.update(z, found, wrong.init(z))
        assert numpy.asarray(z).tobytes() == Z.tobytes()
        right.update(z, found, state)
        right.update(z, gradient(z), state)
        assert int(state["step"]) == 2


def test_gradients_from_before_the_arrays_came_here_are_no_steps_to_repeat(client, monkeypatch):
    monkeypatch.setattr(attachment, "STEPS", 1)

    def fit(shards, z):
        gradient, optimiser = gradient_over(shards), dg.optim.Adam(1e-2)
        state, gradients = optimiser.init(z), [gradient(z) for _ in range(2)]
        for each in gradients:
            optimiser.update(z, each, state)
        client.run(lose)
        return z

    assert_same_bits(fit)


def test_gradients_of_sums_that_are_cut_otherwise_may_be_used_late(client):
    def fit(shards, z):
        slices = dg.grad(lambda z: dg.reduce_sum(slice_term, dg.zip(z, shards), X))
        gradient, optimiser = gradient_over(shards), dg.optim.Adam(1e-1)
        state = optimiser.init(z)
        for _ in range(2):
            first, second = gradient(z), slices(z)
            optimiser.update(z, first, state)
            optimiser.update(z, second, state)
        return z

    assert_same_bits(fit)


def test_gradients_of_several_cuts_are_added(client):
    def fit(shards, z):
        slices = dg.grad(lambda z: dg.reduce_sum(slice_term, dg.zip(z, shards), X))
        return numpy.asarray(gradient_over(shards)(z) + slices(z))

    assert_same_bits(fit)


def test_gradients_outlive_the_shards(client):
    with dg.place(ROWS) as shards:
        z = shards.attach(Z)
        gradient = gradient_over(shards)(z)
    expected = gradient_over(ROWS)(Z)
    assert_array_equal(gradient, expected)
    dg.optim.SGD(0.1).update(z, gradient, dg.optim.SGD(0.1).init(z))
    assert_array_equal(z, Z - 0.1 * expected)


def test_a_gradient_that_is_the_array_does_not_change_with_it(client):
    def fit(shards, z):
        gradient = dg.grad(lambda z: dg.reduce_sum(lambda p: half_square(p[0]), dg.zip(z, shards)))
        optimiser = dg.optim.AdamW(1e-1, decay=0.5)  # which changes the array first
        state = optimiser.init(z)
        old = gradient(z)
        for _ in range(3):
            optimiser.update(z, gradient(z), state)
        optimiser.update(z, old, state)
        return z

    assert_same_bits(fit)


@pytest.mark.filterwarnings("ignore:.*does not depend on 'z':UserWarning")
def test_a_zero_gradient_has_no_sign(client):
    def gradient(shards, z):
        without = dg.grad(lambda z: -dg.map_sum(lambda p: np.sum(p[1]), dg.zip(z, shards)))
        return without(z)

    assert_same_bits(gradient)


def test_rows_of_a_gradient_are_the_only_ones_that_change(client):
    def fit(shards, z):
        gradient, optimiser = gradient_over(shards), dg.optim.Adam(1e-1)
        state, rows = (
            optimiser.init(z),
            Rows(Z.shape, (0,), numpy.array([3, 7]), numpy.ones((2, WIDTH))),
        )
        for _ in range(2):
            optimiser.update(z, gradient(z), state)
            optimiser.update(z, rows, state)
        optimiser.update(z, gradient(z), state)  # rows have taken steps of their own by now
        return z

    assert_same_bits(fit)


@pytest.mark.parametrize("what", ["as it is", "changed", "unsendable"])
def test_optimisers_of_ones_own(client, what):
    def fit(shards, z):
        gradient, optimiser = gradient_over(shards), Own(0.1)
        state = optimiser.init(z)
        if what == "unsendable":
            object.__setattr__(optimiser, "lock", threading.Lock())
        for _ in range(3):
            optimiser.update(z, gradient(z), state)
            if what == "changed":
                optimiser.factor["now"] *= 0.5
        if what == "changed":
            client.run(lose)
        return z

    assert_same_bits(fit)


@pytest.mark.parametrize("order", [1, -1])
def test_arrays_of_other_shards_take_no_cotangents_along(client, repeated, order):
    with dg.place(ROWS) as shards, dg.place(ROWS) as others:
        z, constant = shards.attach(Z), others.attach(Z)

        def loss(z):
            zips = [dg.zip(z, shards), dg.zip(constant, others)][::order]
            first, second = [dg.map_sum(prior, each, X) for each in zips]
            return first + second

        optimiser = dg.optim.SGD(1e-2)
        state, gradient = optimiser.init(z), dg.grad(loss)
        for _ in range(4):
            optimiser.update(z, gradient(z), state)
        assert not repeated


def test_an_update_of_several_shards_is_all_or_nothing(client, tmp_path):
    path = str(tmp_path / "began")

    def slow(pair):
        write(path, "began")
        time.sleep(0.2)
        return np.sum(pair[0])

    with dg.place(ROWS[:4]) as shards, dg.place(ROWS[:4]) as others:
        params = [shards.attach(Z[:4]), others.attach(Z[:4])]
        evaluate = dg.grad(lambda z: dg.map_sum(slow, dg.zip(z, others)))
        thread = threading.Thread(target=evaluate, args=(params[1],))
        thread.start()
        wait_until((tmp_path / "began").exists)
        optimiser = dg.optim.SGD(1.0)
        with pytest.raises(RuntimeError, match="is being evaluated"):
            optimiser.update(params, [Z[:4], Z[:4]], optimiser.init(params))
        thread.join()
        assert_array_equal(params[0], Z[:4])


def test_a_task_may_attach_arrays_to_what_it_places(client):
    def fit():
        with get_client().as_current(), dg.place(ROWS) as shards:
            z, optimiser = shards.attach(Z), dg.optim.SGD(0.1)
            state = optimiser.init(z)
            optimiser.update(z, gradient_over(shards)(z), state)
            return numpy.asarray(z)

    with dask.config.set({"daskgrad.wait.answers": "20 s"}):
        found = client.gather([client.submit(fit, pure=False) for _ in range(2)])
    for each in found:
        assert_array_equal(each, Z - 0.1 * gradient_over(ROWS)(Z))


def test_cotangents_go_with_their_shards(client):
    others = dg.place(ROWS)
    kept = others.attach(Z)
    gradient = gradient_over(others)
    gradient(kept)
    with dg.place(ROWS) as shards:
        z = shards.attach(Z)
        gradient_over(shards)(z)
        found = gradient_over(shards)(z)
        del found
    del z, shards
    gc.collect()
    gradient(kept)
    wait_until(lambda: kept_calls(client) == 1)


def test_arrays_that_nobody_has_go(client):
    with dg.place(ROWS) as shards:
        z, gradient = shards.attach(Z), gradient_over(shards)
        for _ in range(4):
            optimiser = dg.optim.Adam(1e-2)
            state = optimiser.init(z)
            optimiser.update(z, gradient(z), state)
            gradient(z)
        shards.attach(Z)
        numpy.asarray(z)
        assert z.attachment._arrays.keys() == {z.name, state["m"].name, state["v"].name}


def test_what_is_kept_of_a_call_after_its_end_goes_with_the_next(client, monkeypatch):
    abandoned, abandon = [], Attempt.abandon

    def noted(self):
        abandoned.append(self.name)
        abandon(self)

    def keep(layout, call, dask_worker):  # as a request would that came after its abandonment
        for plugin in dask_worker.plugins.values():
            if hasattr(plugin, "_attached"):
                plugin._attached.keep(layout, call, {"a": {0: numpy.ones(2)}})

    def failing(pair, x):
        if x > 1.0:
            raise ArithmeticError("too large")
        return np.sum(pair[0]) * x

    monkeypatch.setattr(Attempt, "abandon", noted)
    with dg.place(ROWS) as shards:
        z = shards.attach(Z)
        gradient = dg.grad(lambda z, x: dg.map_sum(failing, dg.zip(z, shards), x))
        with pytest.raises(ArithmeticError):
            gradient(z, 2.0)
        client.run(keep, z.attachment._layout.name, abandoned[0])
        gradient(z, 1.0)
        wait_until(lambda: kept_calls(client) == 1)


def test_what_takes_long_beside_them_is_done_by_the_cluster(client, monkeypatch):
    monkeypatch.setattr(in_line, "CLUSTER_SECONDS", 1e-9)

    def gradient(shards, z):
        slow = dg.delayed(lambda x: x**2)
        return dg.grad(lambda z: slow(slow(dg.map_sum(prior, dg.zip(z, shards), X))))(z)

    assert_same_bits(gradient)


def test_a_store_forgets_what_is_released():
    store = AttachedBlocks()
    store.put("l", 0, {0: {"z": numpy.zeros(2)}})
    store.keep("l", "c", {"a": {0: numpy.ones(2)}})
    store.keep("m", "c", {"b": {0: numpy.ones(2)}})
    store.receive("m", News(0, [], ["c"]))
    store.release("l")
    assert not store.has("l", 0, [0])
    assert_array_equal(store.kept("l", "c", "a")[0], [1.0, 1.0])
    assert store.kept("m", "c", "b") == {}
    store.forget("l")
    assert store.kept("l", "c", "a") == {}


ARITHMETIC = {
    "twice": lambda g, h: 2 * g,
    "a mean": lambda g, h: (g + h) / 2,
    "a difference": lambda g, h: 1.5 * g - h,
    "from an array": lambda g, h: Z - g,
    "minus": lambda g, h: -g,
    "a sum": lambda g, h: sum([g, h]),
    "a product": lambda g, h: g * h,
}


@pytest.mark.parametrize("name", ARITHMETIC)
@pytest.mark.parametrize("on_cluster", [True, False])
def test_arithmetic_with_gradients_is_that_of_arrays(request, name, on_cluster):
    if on_cluster:
        request.getfixturevalue("client")

    def of(items, z):
        gradient = dg.grad(lambda x, z: dg.map_sum(prior, dg.zip(z, items), x), 1)
        return ARITHMETIC[name](gradient(X, z), gradient(2.0 * X, z))

    with dg.place(ROWS) as shards:
        assert_array_equal(numpy.asarray(of(shards, shards.attach(Z))), of(ROWS, Z))


@pytest.mark.parametrize("on_cluster", [True, False])
def test_what_is_not_differentiated_is_an_argument_like_any_array(request, on_cluster):
    if on_cluster:
        request.getfixturevalue("client")
    first = dg.delayed(lambda x, p: np.sum(x * p["z"][1]), name="first")

    def of(items, z):
        def fun(x):
            return first(x, {"z": z}) + dg.map_sum(lambda row, x, z: row @ (x * z[2]), items, x, z)

        return dg.grad(fun)(X)

    with dg.place(ROWS) as shards:
        assert_array_equal(of(shards, shards.attach(Z)), of(shards, Z))


@pytest.mark.parametrize("on_cluster", [True, False])
def test_sums_that_outlive_the_call_keep_the_array_as_it_was(request, on_cluster):
    if on_cluster:
        request.getfixturevalue("client")
    square = dg.delayed(lambda z: np.sum(z**2), name="square")
    kept = []

    def fun(z, shards, batch):
        zipped = [dg.zip(z, shards), dg.zip(z, batch)]
        kept[:] = [dg.map_sum(prior, each, X) for each in zipped]
        kept.append(dg.map_sum(square, z))
        return kept[0] + kept[1]

    with dg.place(ROWS) as shards:
        given = shards, shards.sample(7, seed=1)
        z, optimiser = shards.attach(Z), dg.optim.SGD(1e-2)
        optimiser.update(z, dg.grad(fun)(z, *given), optimiser.init(z))
        found = dask.compute(*kept)
        dg.grad(fun)(Z, *given)
        assert found == dask.compute(*kept)
