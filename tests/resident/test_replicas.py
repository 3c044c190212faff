"""Replicated arrays: the workers' copies have their bits, whatever happens, and travel once."""

import gc
import threading
import time

import autograd.numpy as np
import numpy
import pytest
from clusters import kill, wait_until
from numpy.testing import assert_array_equal
from probes import write

import daskgrad as dg
from daskgrad.resident import routes
from daskgrad.resident.connection import connection_of
from daskgrad.resident.replicas import Replicated, StandIn, replicated_of, with_stand_ins
from daskgrad.resident.worker_replicas import Replicas

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore:.*lost.*:UserWarning"),
]

LENGTH = 20_000  # rows of 16 numbers: 2.5 MB
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


def expected(steps, sparse=True):
    params = start()
    return train(ITEMS, params, steps, sparse=sparse), params


def replicated():
    weights, bias = start()
    return dg.replicate(weights), bias


def assert_trained(values, params, steps, **options):
    wanted, arrays = expected(steps, **options)
    assert values == wanted
    for found, array in zip(params, arrays, strict=True):
        assert_array_equal(found, array)


def copies(client):
    """By worker, the copies that it keeps, and their versions."""

    def look(dask_worker):
        plugins = [p for p in dask_worker.plugins.values() if hasattr(p, "_replicas")]
        return [(each.version, each.array) for p in plugins for each in p._replicas._kept.values()]

    return client.run(look)


@pytest.fixture
def sent(monkeypatch):
    """The bytes of the updates that each request brings."""
    found = []
    updates = Replicated.updates

    def counted(self, since):
        answer = updates(self, since)
        found.append(sum([memoryview(f).nbytes for each in answer for f in each.frames]))
        return answer

    monkeypatch.setattr(Replicated, "updates", counted)
    return found


def test_without_a_cluster_it_is_an_array():
    params = replicated()
    assert type(params[0]) is numpy.ndarray
    assert_trained(train(ITEMS, params, 4), params, 4)


@pytest.mark.parametrize("sparse", [True, False])
def test_a_replicated_array_learns_as_another_one_does(client, sparse):
    with dg.place(ITEMS) as shards:
        params = replicated()
        assert_trained(train(shards, params, 5, sparse=sparse), params, 5, sparse=sparse)
        gradient_over(shards)(params)
        for (found,) in copies(client).values():
            assert found[0] == replicated_of(params[0]).version
            assert_array_equal(found[1], params[0])


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


def test_a_constant_array_stays_behind_too(client, sent, monkeypatch):
    weights, bias = replicated()
    with dg.place(ITEMS) as shards:
        gradient = dg.value_and_grad(lambda bias: dg.map_sum(term, shards, weights, bias))
        found = [gradient(bias + n) for n in range(3)]
        gradients = [dg.value_and_grad(lambda b: dg.map_sum(term, ITEMS, start()[0], b))]
        for n, (value, of_bias) in enumerate(found):
            wanted, of = gradients[0](bias + n)
            assert value == wanted
            assert_array_equal(of_bias, of)
    assert [each > 0 for each in sent] == [True, True, False, False, False, False]


def test_workers_may_be_killed_new_or_retired(frail):
    with dg.place(ITEMS) as shards:
        params = replicated()

        def between(step):
            if step in (2, 4):
                kill(frail, shards.plan[0].worker)
            if step == 5:
                frail.wait_for_workers(2, timeout=60)
                time.sleep(1.1)  # until the connection looks which workers there are
            if step == 6:
                assert len(shards.plan) == 2
                frail.retire_workers([shards.plan[0].worker], close_workers=True)

        assert_trained(train(shards, params, 8, between), params, 8)


def test_a_copy_that_was_lost_or_is_another_version_is_made_good(client):
    def lose(dask_worker):
        (plugin,) = [p for p in dask_worker.plugins.values() if hasattr(p, "_replicas")]
        plugin._replicas._kept.clear()

    def turn_back(dask_worker):
        (plugin,) = [p for p in dask_worker.plugins.values() if hasattr(p, "_replicas")]
        kept = plugin._replicas._kept
        for name, replica in kept.items():
            kept[name] = replica._replace(version=replica.version - 1)

    with dg.place(ITEMS) as shards:
        params = replicated()

        def between(step):
            if step in (2, 4):
                worker = shards.plan[0].worker
                client.run(lose if step == 2 else turn_back, workers=[worker])

        assert_trained(train(shards, params, 6, between), params, 6)


def test_a_worker_that_missed_many_changes_gets_the_array(client, sent):
    with dg.place(ITEMS) as shards, dg.place(ITEMS[:1]) as one:
        params = replicated()
        train(shards, params, 1)
        del sent[:]
        train(one, params, 5)  # one worker alone
        train(shards, params, 1)
        assert max(sent) < params[0].nbytes / 2  # the changes of five steps
        rows = dg.Rows(params[0].shape, (0,), numpy.arange(15_000), numpy.zeros((15_000, 16)))
        for _ in range(2):  # more than the array holds
            dg.optim.SGD(0.1).update(params, (rows, None), dg.optim.SGD(0.1).init(params))
        del sent[:]
        gradient_over(shards)(params)
        assert params[0].nbytes <= min(sent) <= max(sent) < 1.01 * params[0].nbytes


def test_an_error_of_a_model_leaves_copies_as_they_are(client, sent):
    def broken(item, weights, bias):
        if item[1] == 1.0:
            raise ZeroDivisionError("one")
        return term(item, weights, bias)

    with dg.place(ITEMS) as shards:
        params = replicated()
        train(shards, params, 2)
        with pytest.raises(ZeroDivisionError):
            dg.grad(lambda params: dg.map_sum(broken, shards, *params))(params)
        del sent[:]
        gradient_over(shards)(params)
        assert max(sent) < params[0].nbytes / 50


def test_a_first_call_that_fails_sends_the_array_again(client, sent):
    def broken(item, weights, bias):
        raise ZeroDivisionError("at once")

    with dg.place(ITEMS) as shards:
        params = replicated()
        with pytest.raises(ZeroDivisionError):
            dg.grad(lambda params: dg.map_sum(broken, shards, *params))(params)
        del sent[:]
        assert_trained(train(shards, params, 2), params, 2)
        assert min(sent[:2]) >= params[0].nbytes


def test_workers_pass_the_array_and_its_changes_on(client, sent, monkeypatch):
    monkeypatch.setattr(routes, "FLAT", 1)  # the client calls one worker
    with dg.place(ITEMS) as shards:
        params = replicated()
        assert_trained(train(shards, params, 4), params, 4)
    assert len(sent) == 4
    assert max(sent[1:]) < params[0].nbytes / 50


def test_an_array_on_its_way_may_change_when_the_call_is_given_up(client, monkeypatch):
    monkeypatch.setattr(routes, "FLAT", 1)
    is_broken = dg.delayed(broken_when_asked, compile=False)
    connection, items = connection_of(client), [(*item, True) for item in ITEMS]
    good, params = [(*item, False) for item in ITEMS], replicated()
    with dg.place(good) as shards, dg.place(items) as broken:
        dg.grad(lambda params: dg.map_sum(is_broken, shards, *params))(params)
        first, second = [plan.worker for plan in shards.plan]
        connection.forget_versions([first])  # as if it were new
        with pytest.raises(ZeroDivisionError):
            dg.grad(lambda params: dg.map_sum(is_broken, broken, *params))(params)
        assert connection.version(second, replicated_of(params[0]).name) is None


def broken_when_asked(item, weights, bias):
    *item, is_broken = item
    if is_broken:
        raise ZeroDivisionError("when asked")
    return term(item, weights, bias)


def test_copies_go_with_the_array(client):
    with dg.place(ITEMS) as shards:
        params = replicated()
        gradient_over(shards)(params)
        assert all(copies(client).values())
        del params
        gc.collect()
        wait_until(lambda: not any(copies(client).values()))


def test_an_array_is_not_updated_while_it_is_used(client, tmp_path):
    path = tmp_path / "log"

    def slow(item, weights, bias):
        write(path, "begun")
        time.sleep(0.05)
        return term(item, weights, bias)

    params = replicated()
    optimiser = dg.optim.SGD(0.1)
    state, zero = optimiser.init(params), (None, numpy.zeros(16))
    rows = dg.Rows(params[0].shape, (0,), [0], numpy.ones((1, 16)))
    with dg.place(ITEMS) as shards:
        step = dg.value_and_grad(lambda params: dg.map_sum(slow, shards, *params))
        thread = threading.Thread(target=step, args=(params,))
        thread.start()
        wait_until(path.exists)
        with pytest.raises(RuntimeError, match=r"a replicated array, float64\[20000"):
            optimiser.update(params, (rows, None), state)
        assert state["step"] == 0
        optimiser.update(params, zero, state)  # of the other one
        thread.join()
        optimiser.update(params, (rows, None), state)
    assert_array_equal(params[0][0], start()[0][0] - 0.1)


def test_nobody_writes_into_a_replicated_array():
    weights, _ = replicated()
    with pytest.raises(ValueError, match="read-only"):
        weights[0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        weights[:5][0] = 1.0


def test_an_update_that_fails_counts_as_a_change_of_everything():
    class Broken(dg.optim.SGD):
        def rule(self, x, g, rate, steps, *slots):
            x += 1.0
            raise ZeroDivisionError("in the middle")

    params = replicated()
    rows = dg.Rows(params[0].shape, (0,), [3], numpy.ones((1, 16)))
    known = replicated_of(params[0])
    dg.optim.SGD().update(params, (rows, None), dg.optim.SGD().init(params))
    assert [update.since for update in known.updates(0)] == [0]
    with pytest.raises(ZeroDivisionError):
        Broken().update(params, (rows, None), Broken().init(params))
    assert [update.since for update in known.updates(0)] == [None]
    assert not params[0].flags.writeable


def test_a_replica_takes_each_update_once_and_none_out_of_turn():
    array = dg.replicate(numpy.zeros(4))
    known, replicas = replicated_of(array), Replicas()
    optimiser = dg.optim.SGD(1.0)

    def change(entry):
        rows = dg.Rows((4,), (0,), [entry], [-1.0])
        optimiser.update(array, rows, optimiser.init(array))

    def receive(version, updates):
        return replicas.receive({known.name: (version, updates)}, is_shared=True)

    whole = known.updates(None)
    change(0)
    first = known.updates(0)
    change(1)
    both = known.updates(0)
    assert not receive(2, both)  # there is nothing to bring up to date
    assert receive(0, whole)
    assert not receive(2, both[1:])  # the first one is missing
    assert receive(1, first)
    assert receive(2, both)
    assert receive(2, both)
    assert receive(2, [*whole, *both])  # late messages
    assert not receive(1, first)
    (found,) = replicas.fill([{"a": StandIn(known.name), "b": 1.0}])
    assert_array_equal(found["a"], [1.0, 1.0, 0.0, 0.0])
    assert not found["a"].flags.writeable


def test_what_is_sent_has_stand_ins_at_any_depth():
    weights, bias = replicated()
    sent = with_stand_ins({"layers": [weights, (bias, 3)]})
    assert sent["layers"][0] == StandIn(replicated_of(weights).name)
    assert sent["layers"][1] == (bias, 3)
    other = {"b": bias}
    assert with_stand_ins(other) is other
