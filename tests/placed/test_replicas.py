"""Replicated arrays: the workers' copies have their bits, whatever happens, and travel once."""

import gc
import threading

import autograd.numpy as np
import numpy
import pytest
from clusters import cluster
from numpy.testing import assert_array_equal
from waiting import wait_until

import daskgrad as dg
from daskgrad.placed import messages
from daskgrad.placed.connection import connection_of
from daskgrad.placed.messages import copy_frames
from daskgrad.placed.replicas import LOGGED, Replicated, replicated_of
from daskgrad.placed.worker_store import Store

pytestmark = pytest.mark.timeout(180)

SGD = dg.optim.SGD(1.0)
LENGTH = 10_000  # rows of 16 numbers: 1.3 MB
ITEMS = [(numpy.array([n, 7 * n + 1, LENGTH - 1 - n]), float(n % 3)) for n in range(32)]


def term(item, weights, bias):
    rows, wanted = item
    return np.sum((np.sum(weights[rows], axis=0) + bias - wanted) ** 2)


def start():
    weights = numpy.linspace(-1.0, 1.0, LENGTH * 16).reshape(LENGTH, 16)
    return weights, numpy.linspace(0.0, 1.0, 16)


def gradient_over(items, sparse=True):
    def loss(params):
        return dg.map_sum(term, items, *params)

    return dg.value_and_grad(loss, sparse=("params.0",) if sparse else False)


def train(items, params, steps, between=lambda step: None, sparse=True):
    optimiser = dg.optim.Adam(0.01)
    state, values = optimiser.init(params), []
    step_of = gradient_over(items, sparse)
    for step in range(steps):
        between(step)
        value, gradients = step_of(params)
        optimiser.update(params, gradients, state)
        values.append(value)
    return values


def replicated():
    weights, bias = start()
    return dg.replicate(weights), bias


def assert_trains(items, params, steps, between=lambda step: None, sparse=True):
    arrays = start()
    assert train(items, params, steps, between, sparse) == train(
        ITEMS, arrays, steps, sparse=sparse
    )
    for replica, array in zip(params, arrays, strict=True):
        assert_array_equal(replica, array)


def replicas(dask_worker):
    """The entries of stores, and the names of the arrays among them."""
    plugins = dask_worker.plugins.values()
    stores = [plugin._store._entries for plugin in plugins if hasattr(plugin, "_store")]
    return [
        (entries, [n for n, each in entries.items() if isinstance(each.value, numpy.ndarray)])
        for entries in stores
    ]


def copies(client):
    """By worker, the copies that it keeps, and their versions."""

    def look(dask_worker):
        return [tuple(kept[name]) for kept, names in replicas(dask_worker) for name in names]

    return client.run(look)


@pytest.fixture
def sent(monkeypatch):
    """The bytes of the updates that each request brings."""
    found = []
    update = Replicated.update

    def counted(self, since):
        oldest, frames = update(self, since)
        found.append(sum([memoryview(frame).nbytes for frame in frames]))
        return oldest, frames

    monkeypatch.setattr(Replicated, "update", counted)
    return found


def test_without_a_cluster_it_is_an_array():
    params = replicated()
    assert type(params[0]) is numpy.ndarray
    assert_trains(ITEMS, params, 4)


@pytest.mark.parametrize("sparse", [True, False])
def test_a_replicated_array_learns_as_another_one_does(client, sparse):
    with dg.place(ITEMS) as shards:
        params = replicated()
        assert_trains(shards, params, 5, sparse=sparse)
        gradient_over(shards)(params)
        for ((version, array),) in copies(client).values():
            assert version == replicated_of(params[0]).version
            assert_array_equal(array, params[0])


def test_workers_in_the_process_of_the_client(monkeypatch):
    with cluster(processes=False, host=None) as inside, dg.place(ITEMS) as shards:
        assert_trains(shards, replicated(), 4)
        monkeypatch.setattr(messages, "FLAT", 1)
        connection_of(inside)._book.clear()
        assert_trains(shards, replicated(), 4)


def test_the_array_travels_once_and_then_its_new_rows(client, sent):
    with dg.place(ITEMS) as shards:
        params = replicated()
        train(shards, params, 3)
    first, others = sent[:2], sent[2:]
    assert len(others) == 4
    assert min(first) >= params[0].nbytes
    rows = len(numpy.unique(numpy.concatenate([rows for rows, _ in ITEMS])))
    assert max(others) < 1.1 * rows * (16 + 1) * 8 + 1000
    assert max(others) < params[0].nbytes / 50


def test_a_constant_array_stays_behind_too(client, sent):
    weights, bias = replicated()

    def gradient(items, weights):
        return dg.value_and_grad(lambda bias: dg.map_sum(term, items, weights, bias))

    with dg.place(ITEMS) as shards:
        for n in range(3):
            value, of_bias = gradient(shards, weights)(bias + n)
            expected, of_array = gradient(ITEMS, start()[0])(bias + n)
            assert value == expected
            assert_array_equal(of_bias, of_array)
    assert len(sent) == 2


def test_no_model_writes_into_a_copy(client):
    def writes(item, weights, bias):
        weights[0] = 1.0
        return np.sum(bias)

    weights, bias = replicated()
    with dg.place(ITEMS) as shards, pytest.raises(ValueError, match="read-only"):
        dg.grad(lambda bias: dg.map_sum(writes, shards, weights, bias))(bias)


def test_a_copy_that_was_lost_or_is_another_version_is_made_good(client):
    def lose(dask_worker):
        ((kept, _),) = replicas(dask_worker)
        kept.clear()

    def turn_back(dask_worker):
        ((kept, names),) = replicas(dask_worker)
        for name in names:
            kept[name] = kept[name]._replace(version=kept[name].version - 1)

    def between(step):
        if step in (2, 4):
            client.run(lose if step == 2 else turn_back, workers=[shards.plan[0].worker])

    with dg.place(ITEMS) as shards:
        assert_trains(shards, replicated(), 6, between)


def test_a_worker_that_missed_many_changes_gets_the_array(client, sent):
    with dg.place(ITEMS) as shards, dg.place(ITEMS[:1]) as one:
        params = replicated()
        train(shards, params, 1)
        del sent[:]
        train(one, params, 5)  # one worker alone
        train(shards, params, 1)
        assert max(sent) < params[0].nbytes / 2  # the changes of five steps
        rows = dg.Rows(params[0].shape, (0,), numpy.arange(7_500), numpy.zeros((7_500, 16)))
        for _ in range(2):  # more than the array holds
            SGD.update(params, (rows, None), SGD.init(params))
        del sent[:]
        gradient_over(shards)(params)
        assert params[0].nbytes <= min(sent) <= max(sent) < 1.01 * params[0].nbytes


def broken(item, weights, bias):
    if item[1] == 1.0:
        raise ZeroDivisionError("one")
    return term(item, weights, bias)


@pytest.mark.parametrize("is_first", [False, True])
def test_after_an_error_of_a_model_copies_are_as_they_were(client, sent, is_first):
    with dg.place(ITEMS) as shards:
        params = replicated()
        if not is_first:
            train(shards, params, 2)
        with pytest.raises(ZeroDivisionError):
            dg.grad(lambda params: dg.map_sum(broken, shards, *params))(params)
        del sent[:]
        if is_first:
            assert_trains(shards, params, 2)
            assert min(sent[:2]) >= params[0].nbytes
        else:
            gradient_over(shards)(params)
            assert max(sent) < params[0].nbytes / 50


def test_workers_pass_the_array_and_its_changes_on(client, sent, monkeypatch):
    monkeypatch.setattr(messages, "FLAT", 1)  # the client calls one worker
    with dg.place(ITEMS) as shards:
        params = replicated()
        assert_trains(shards, params, 4)
    assert len(sent) == 4
    assert max(sent[1:]) < params[0].nbytes / 50


def test_an_array_on_its_way_may_change_when_the_call_is_given_up(client, monkeypatch):
    monkeypatch.setattr(messages, "FLAT", 1)
    is_broken = dg.delayed(broken_when_asked, compile=False)
    connection, items = connection_of(client), [(*item, True) for item in ITEMS]
    good, params = [(*item, False) for item in ITEMS], replicated()
    with dg.place(good) as shards, dg.place(items) as broken:
        dg.grad(lambda params: dg.map_sum(is_broken, shards, *params))(params)
        first, second = [plan.worker for plan in shards.plan]
        connection.note(first, {replicated_of(params[0]).name: None})  # as if it were new
        with pytest.raises(ZeroDivisionError):
            dg.grad(lambda params: dg.map_sum(is_broken, broken, *params))(params)
        assert connection.version(second, replicated_of(params[0]).name) is None


def broken_when_asked(item, weights, bias):
    *item, is_broken = item
    if is_broken:
        raise ZeroDivisionError("when asked")
    return term(item, weights, bias)


def test_an_array_is_not_updated_while_it_is_used(client, gate):
    def waiting(item, weights, bias):
        gate.wait()
        return term(item, weights, bias)

    params = replicated()
    state, zero = SGD.init(params), (None, numpy.zeros(16))
    rows = dg.Rows(params[0].shape, (0,), [0], numpy.ones((1, 16)))
    with dg.place(ITEMS) as shards:
        step = dg.value_and_grad(lambda params: dg.map_sum(waiting, shards, *params))
        thread = threading.Thread(target=step, args=(params,))
        thread.start()
        gate.wait_for()
        with pytest.raises(RuntimeError, match=r"a replicated array, float64\[10000"):
            SGD.update(params, (rows, None), state)
        assert state["step"] == 0
        SGD.update(params, zero, state)  # of the other one
        gate.open()
        thread.join()
        SGD.update(params, (rows, None), state)
    assert_array_equal(params[0][0], start()[0][0] - 1.0)


EVALUATIONS = {
    "per_item": lambda model, W: dg.per_item(model, [1.0])(1.0, W),
    "a sum": lambda model, W: dg.grad(lambda x: dg.map_sum(model, [1.0], x, W))(1.0),
    "a model": lambda model, W: dg.grad(lambda x: model(1.0, x, [W]))(1.0),
    "a small array": lambda model, W: dg.hvp(
        lambda x: dg.map_sum(model, [1.0], x, W), (1.0,), (1.0,)
    ),
    "a small array in a loop": lambda model, W: dg.grad(
        lambda x: model(1.0, dg.scan(lambda x, W: x * W[0], x, 3, W), None)
    )(1.0),
}


@pytest.mark.parametrize("kind", EVALUATIONS)
def test_an_array_that_is_a_constant_is_not_updated_while_it_is_used(synchronous, kind):
    W = dg.replicate(numpy.ones(9 if "small" in kind else LENGTH))
    state = SGD.init(W)

    def model(item, x, _):
        with pytest.raises(RuntimeError, match="when that evaluation has ended"):
            SGD.update(W, numpy.ones(W.shape), state)
        return x

    EVALUATIONS[kind](dg.delayed(model, compile=False), W)
    assert numpy.all(W == 1.0)
    SGD.update(W, numpy.ones(W.shape), state)


def test_nobody_writes_into_a_replicated_array():
    weights, _ = replicated()
    for view in (weights, weights[:5]):
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 1.0


def test_an_update_that_fails_counts_as_a_change_of_everything():
    class Broken(dg.optim.SGD):
        def take(self, pairs, rate):
            for x, _ in pairs:
                x += 1.0
            raise ZeroDivisionError("in the middle")

    params = replicated()
    rows = dg.Rows(params[0].shape, (0,), [3], numpy.ones((1, 16)))
    known = replicated_of(params[0])
    known.update(None)
    SGD.update(params, (rows, None), SGD.init(params))
    assert known.update(0)[0] == 0
    with pytest.raises(ZeroDivisionError):
        Broken().update(params, (rows, None), Broken().init(params))
    assert known.update(0)[0] is None
    assert not params[0].flags.writeable


def change(array, *entries, axis=0):
    """Adds 1 to entries, rows or columns."""
    ones = numpy.ones((len(entries), *array.shape[1:]))
    SGD.update(array, dg.Rows(array.shape, (axis,), [*entries], -ones), SGD.init(array))


def test_a_replica_takes_each_update_once_and_none_out_of_turn():
    array = dg.replicate(numpy.zeros(1000))
    known, store = replicated_of(array), Store()

    def receive(version, update):
        _, frames = update
        store.update({known.name: version}, [(known.name, copy_frames(frames))] if frames else [])
        return not store.missing({known.name: version}, {})

    whole = known.update(None)[0], copy_frames(known.update(None)[1])
    change(array, 0)
    first = known.update(0)
    change(array, 1)
    both, second = known.update(0), known.update(1)
    assert [both[0], second[0]] == [0, 1]
    assert not receive(2, both)  # there is nothing to bring up to date
    assert receive(0, whole)
    assert not receive(2, second)  # the first one is missing
    assert receive(1, first)
    assert receive(2, both)  # a copy may have had some of it
    assert receive(2, both)
    assert not receive(0, whole)  # a late message
    assert not receive(1, first)
    assert receive(2, [None, []])
    (copy,) = store.entries([known.name]).values()
    assert_array_equal(copy[:3], [1.0, 1.0, 0.0])
    assert_array_equal(copy, array)


def test_the_changes_that_are_remembered_are_few():
    array = dg.replicate(numpy.zeros(1000))
    known = replicated_of(array)
    for entry in range(10):
        change(array, entry)
    assert not known._log  # nobody has a copy
    known.update(None)
    for entry in range(100):
        change(array, entry)
        assert sum([LOGGED + each.indices.nbytes for each in known._log]) < array.nbytes
    assert len(known._log) > 20
    version = known.version
    change(array)  # nothing
    assert known.version == version
    assert known.update(version - 10)[0] == version - 10
    assert known.update(version - 90)[0] is None
    change(array, *range(900))
    assert known.update(version)[0] is None


def test_changes_along_other_axes_are_the_whole_array():
    array = dg.replicate(numpy.zeros((100, 100)))
    known = replicated_of(array)
    known.update(None)
    change(array, 3)
    assert known.update(0)[0] == 0
    change(array, 3, axis=1)
    assert known.update(0)[0] is None


# --------------------------------------------------------- arrays that change where others do not


def test_a_program_reads_a_replicated_array_anew_at_each_call():
    array = dg.replicate(numpy.linspace(0.0, 1.0, 50_000))
    rows = array[:40_000]

    def model(x):
        return np.sum(x * array[:3]) + np.sum(rows)

    items = [numpy.ones(3)] * 10
    loss = dg.grad(lambda x: dg.map_sum(lambda item, x: model(item * x), items, x))
    gradient = dg.grad(dg.delayed(model))
    for _ in range(20):
        assert_array_equal(gradient(numpy.ones(3)), array[:3])
        assert_array_equal(loss(numpy.ones(3)), 10 * array[:3])
        change(array, 0, 1, 2)
    assert "is compiled to" in str(dg.explain(model, numpy.ones(3)))


@pytest.mark.parametrize("model", [lambda w: w, lambda w: w[2:], lambda w: {"a": w.T}])
def test_a_value_that_is_the_array_does_not_change_with_it(model):
    array = dg.replicate(numpy.zeros((4, 4)))
    call = dg.delayed(model)(array)
    values = [call.compute(scheduler="synchronous"), call.compute(scheduler="threads")]
    values.append(dg.vjp(lambda w: dg.delayed(model)(w), array)[0])
    SGD.update(array, numpy.ones((4, 4)), SGD.init(array))
    for value in values:
        (found,) = value.values() if isinstance(value, dict) else [value]
        assert_array_equal(found, numpy.zeros_like(found))


# ------------------------------------------------------------------------------ memory of workers


def array_of_item(item, weights, bias):
    return weights[item[0]]


CALLS = {
    "a gradient": lambda shards, params: gradient_over(shards)(params),
    "one that fails": lambda shards, params: failing(shards, params),
    "a sum of arrays": lambda shards, params: dg.vjp(
        lambda params: dg.map_sum(array_of_item, shards, *params), params
    )[0],
}


def failing(shards, params):
    with pytest.raises(ZeroDivisionError):
        dg.grad(lambda params: dg.map_sum(broken, shards, *params))(params)


@pytest.mark.parametrize("call", CALLS)
def test_copies_go_with_the_array(client, call):
    with dg.place(ITEMS) as shards:
        params, others = replicated(), replicated()
        gradient_over(shards)(others)
        CALLS[call](shards, params)
        assert all(copies(client).values())
        del params, others
        gc.collect()
        wait_until(lambda: not any(copies(client).values()))


def test_an_array_may_outlive_the_package(monkeypatch):
    """As Python ends: a warning, which is an error here, would be the end of a user's script."""
    table = dg.replicate(numpy.ones(3))
    monkeypatch.setattr("daskgrad.placed.replicas.replicated", None)
    del table


def test_an_update_of_several_arrays_is_whole_or_refused(client):
    one, two = dg.replicate(numpy.zeros(9)), dg.replicate(numpy.zeros(9))
    params = {"one": one, "again": one, "two": two}
    state, gradients = SGD.init(params), dict.fromkeys(params, numpy.ones(9))
    for used in (one, two):
        with (
            replicated_of(used).reading(),
            pytest.raises(RuntimeError, match=r"float64\[9\].*when that evaluation has ended"),
        ):
            SGD.update(params, gradients, state)
        assert not numpy.any([one, two])
        assert [replicated_of(each).version for each in (one, two)] == [0, 0]
        assert state["step"] == 0
    SGD.update(params, gradients, state)
    assert_array_equal(one, numpy.full(9, -2.0))
    assert_array_equal(two, numpy.full(9, -1.0))
