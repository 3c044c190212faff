"""Resident sums: no graph, the same bits, whatever becomes of the blocks and of their calls."""

import asyncio
import operator
import pickle
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import autograd.numpy as np
import dask
import numpy
import pytest
from clusters import tasks_run
from comparisons import assert_same
from distributed import Client
from distributed.core import Status
from lengths import in_short
from numpy.testing import assert_array_equal
from placed_programs import BIG, PROGRAMS, RAGGED, ROWS, X, dot, in_one_thread, ragged, slice_sum
from waiting import wait_until

import daskgrad as dg
from daskgrad.autodiff.values import clock as package_clock
from daskgrad.placed import call, connection, request, spread
from daskgrad.placed import worker as worker_plugin
from daskgrad.placed.connection import connection_of
from daskgrad.placed.messages import POINT, Work, key_of, pack
from daskgrad.placed.shards import MOST_A_THREAD
from daskgrad.placed.spread import Holdings

pytestmark = pytest.mark.timeout(120)


def nested(item, params):
    return np.sum(np.tanh(item[:, None] * params["w"])) + params["b"] ** 2


def summed(items, model=dot, **options):
    return dg.value_and_grad(lambda x: dg.map_sum(model, items, x, **options))


def test_parameters_in_a_dict_several_arguments_and_an_auxiliary(local):
    params = {"w": numpy.linspace(0.0, 1.0, 4), "b": 0.5}

    def objective(shards, params, x):
        value = dg.map_sum(nested, shards, params) + dg.map_sum(ragged, shards, x)
        return value, {"fit": value * 2.0, "sum": dg.map_sum(ragged, shards, x), "n": 3}

    both = dg.value_and_grad(objective, argnums=(1, 2), has_aux=True)
    expected = in_one_thread(both, dg.place(RAGGED), params, X)
    assert_same(both(dg.place(RAGGED), params, X), expected)


# -------------------------------------------------------------------- what is known of the calls


def time_passes(item, x):
    """A model in this process, for which the test's clock moves."""
    package_clock.seconds.__self__.move(10.0)
    return np.sum(item * x)


class SlowToPickle:
    def __reduce__(self):
        package_clock.seconds.__self__.move(10.0)
        return float, (2.0,)


SLOW = SlowToPickle()


@pytest.mark.parametrize("model", [time_passes, lambda item, x, c=SLOW: np.sum(item * x) * c])
def test_long_calls_and_models_that_take_long_to_pickle_make_no_tasks_either(model, local, clock):
    """Waiting for the workers is not the time of the small nodes that run here."""
    shards = dg.place(ROWS[:2])
    gradient = dg.value_and_grad(lambda x: dg.map_sum(model, shards, x) * 2.0)
    gradient(X)
    before, start = tasks_run(local), clock.now
    gradient(X)
    assert clock.now >= start + 10.0
    assert tasks_run(local) == before


def test_requests_are_on_their_way_before_anything_runs_beside_them(local, monkeypatch):
    asked, before = [], []
    call_worker, flush = call.call_worker, call.Attempt.flush

    def counted(pool, address, handler, **message):
        asked.append(address)
        return call_worker(pool, address, handler, **message)

    monkeypatch.setattr(call, "call_worker", counted)
    monkeypatch.setattr(call, "SENDING", 60.0)  # also on a busy machine
    monkeypatch.setattr(
        call.Attempt, "flush", lambda attempt: (flush(attempt), before.append(len(asked)))
    )
    shards, square = dg.place(ROWS), dg.delayed(lambda x: np.sum(x**2))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60.0)  # threads change where one of them waits
    try:
        dg.grad(lambda x: dg.map_sum(dot, shards, x) + square(x))(X)
    finally:
        sys.setswitchinterval(interval)
    assert before == [2]


def test_a_changed_constant_and_a_changed_function_are_seen(local):
    """What is kept on the workers goes by content."""
    shards = dg.place(ROWS)
    state = {"factor": 1.0}
    big = BIG.copy()

    def scaled(row, x, big):
        return state["factor"] * dot(row, x) + big[3]

    gradient = dg.value_and_grad(lambda x: dg.map_sum(scaled, shards, x, big))
    value, _ = gradient(X)
    state["factor"] = 2.0
    big[3] += 100.0
    changed, _ = gradient(X)
    assert changed - 103.0 * len(ROWS) == pytest.approx(2.0 * (value - 3.0 * len(ROWS)))


def test_what_a_worker_of_this_process_keeps_does_not_change_with_the_users_array(local):
    with dg.place(ROWS) as shards:

        def value(big):
            return dg.value_and_grad(
                lambda x: dg.map_sum(lambda row, x, big: dot(row, x) * big[3], shards, x, big)
            )(X)[0]

        big = numpy.ones(len(BIG))
        expected = value(big)
        big[:] = 2.0
        assert value(numpy.ones(len(BIG))) == expected


def test_the_order_of_a_dicts_keys_is_a_part_of_it(local):
    """Models may go by it; structures that differ in nothing else are equal."""
    shards = dg.place(ROWS)

    def one_after_the_other(row, x, steps):
        y = row * x
        for name, factor in steps.items():
            y = np.sin(factor * y) if name == "sin" else y * y + factor
        return np.sum(y)

    for steps in ({"sin": 2.0, "square": 3.0}, {"square": 3.0, "sin": 2.0}):
        result, expected = [
            dg.value_and_grad(lambda x, i=items, s=steps: dg.map_sum(one_after_the_other, i, x, s))
            for items in (shards, ROWS)
        ]
        assert_same(result(X), in_one_thread(expected, X))


@pytest.mark.parametrize("name", ["a sum with constants", "rows beside a large array"])
def test_workers_that_forgot_or_lost_their_plugin_are_sent_everything_again(name, local):
    shards = dg.place(ROWS)
    gradient = dg.value_and_grad(lambda p: PROGRAMS[name](lambda items: shards, p, p[0]))
    expected = gradient(ROWS)
    plugin = connection_of(local).name
    local.run(lambda dask_worker: dask_worker.plugins[plugin]._store._entries.clear())
    assert_same(gradient(ROWS), expected)
    local.unregister_worker_plugin(plugin)
    assert_same(gradient(ROWS), expected)


def test_what_is_remembered_of_workers_does_not_grow_with_calls_that_differ(local, monkeypatch):
    """A number that is no variable is a part of what is sent once."""
    monkeypatch.setattr("daskgrad.placed.connection.PARCELS", 8)

    def scaled(row, x, factor):
        return factor * np.sum(row * x)

    with dg.place(ROWS) as shards:

        def gradient(items, factor):
            return dg.grad(lambda x: dg.map_sum(scaled, items, x, factor))(X)

        for number in range(20):
            assert_array_equal(gradient(shards, float(number)), gradient(ROWS, float(number)))
        book = connection_of(local)._book
        assert {len(book[plan.worker]) for plan in shards.plan} == {8}
        assert len(shards.holdings.plans) <= request.PLANS


# -------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("error", [KeyError, StopIteration, SystemExit])
def test_an_error_of_a_model_is_the_users_with_a_note(error, client):
    def fails(item, x):
        if item[0] == 3.0:
            raise error("no such station")
        return np.sum(item * x)

    shards = dg.place([numpy.full(4, float(number)) for number in range(8)])
    with pytest.raises(error, match="no such station") as caught:
        dg.grad(lambda x: dg.map_sum(fails, shards, x))(X)
    if error is not SystemExit:
        (note,) = caught.value.__notes__
        assert "in the forward pass of model 'fails', item 3, called with (float64[4]" in note
    assert summed(shards)(X)[1].shape == (4,)


def fails_for_another_reason(item, x):
    try:
        raise KeyError("no such station")
    except KeyError as error:
        if item[1] > 0.0:
            raise ValueError("the explicit one") from error
        raise ValueError("the implicit one")  # noqa: B904  that is what is tested


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_error_of_a_model_brings_its_reasons_along(sign, client):
    items = numpy.array([[3.0, sign]])
    reasons = []
    for gradient in (
        summed(dg.place(items), fails_for_another_reason),
        summed(items, fails_for_another_reason),
    ):
        with pytest.raises(ValueError, match="plicit") as caught:
            gradient(X[:2])
        error = caught.value
        assert isinstance(error.__context__, KeyError)
        reasons.append([repr(error.__cause__), repr(error.__context__), error.__suppress_context__])
    assert reasons[0] == reasons[1]


def fails_deep(item, x, depth):
    if depth == 0:
        raise KeyError("no such station")
    return fails_deep(item, x, depth - 1)


def test_a_deep_error_shows_where_in_the_model_it_was(client):
    """Dask leaves the tracebacks of such out of its messages."""
    shards = dg.place(ROWS)
    with pytest.raises(KeyError) as caught:
        dg.grad(lambda x: dg.map_sum(fails_deep, shards, x, 150))(X)
    names = [frame.name for frame in traceback.extract_tb(caught.tb)]
    assert names.count("fails_deep") == 151
    assert names[0] == "test_a_deep_error_shows_where_in_the_model_it_was"


def test_a_model_that_cannot_be_loaded_is_an_error_and_not_a_hang(client):
    class Unloadable:
        def __reduce__(self):
            return operator.truediv, (1, 0)

        def __call__(self, item, x):
            return np.sum(item * x)

    shards = dg.place(ROWS)
    with pytest.raises(ZeroDivisionError):
        summed(shards, Unloadable())(X)
    assert summed(shards)(X)[1].shape == (4,)


# ------------------------------------------------------------------------------------- closing


def held(client, key="value-shard"):
    return [k for keys in client.has_what().values() for k in keys if str(k).startswith(key)]


def plugins(client, name):
    """Where a client's plugins are: on the workers, and on the scheduler."""
    workers = client.run(lambda dask_worker: name in dask_worker.plugins)
    scheduler = client.run_on_scheduler(lambda dask_scheduler: name in dask_scheduler.plugins)
    return [*workers.values(), scheduler]


def test_closing_releases_the_workers_memory_and_takes_the_plugins_away(local):
    with dg.place(ROWS) as shards:
        name = connection_of(local).name
        summed(shards)(X)
        assert held(local)
        assert plugins(local, name) == [True, True, True]
    wait_until(lambda: not held(local))
    assert plugins(local, name) == [False, False, False]
    assert repr(shards) == "<Shards: closed>"
    with pytest.raises(RuntimeError, match="closed; place the items again"):
        dg.map_sum(dot, shards, X)
    shards.close()


@pytest.mark.parametrize("of", [lambda shards: shards, lambda shards: shards.sample(2, 0)])
def test_models_that_refer_to_placed_items_cannot_be_sent(of, client):
    with dg.place(ROWS) as shards:
        items = of(shards)

        def with_closure(item, x):
            return dot(item, x) * len(items)

        for model, others in ((with_closure, ROWS), (dot, [(items, 1)])):
            with pytest.raises(TypeError, match=r"cannot be sent .* placed items .* one process"):
                dg.grad(lambda x, m=model, rows=others: dg.map_sum(m, rows, x))(X)


def test_a_request_that_comes_after_its_abandonment_is_not_evaluated(local):
    """Two messages may take two connections; nobody would end the call."""

    key = connection_of(local).name

    async def late(dask_worker):
        plugin = dask_worker.plugins[key]
        await plugin.abandon("a call")
        work, sent = pickle.dumps(Work(dask_worker.address, ())), {"": {POINT: pack(())}}
        replies = [await plugin.evaluate(name, work, sent) for name in ("a call", "another")]
        return [reply["status"] for reply in replies]

    with dg.place(ROWS) as shards:
        dg.grad(lambda x: dg.map_sum(dot, shards, x))(X)
        statuses = local.run(late)
    assert [*statuses.values()] == [["abandoned", "OK"]] * len(statuses)


def test_workers_hear_that_a_call_is_abandoned_before_their_plugins_go(local, monkeypatch):
    """The messages are held up until closing asks for them, or else until the plugins are gone."""
    heard, ended, may_go = [], [], asyncio.Event()
    call_worker, take_away = connection.call_worker, connection.take_away
    present_workers, abandon = connection.present_workers, worker_plugin.SumsPlugin.abandon

    async def hear(self, call, number=0):
        heard.append(call)
        await abandon(self, call, number)

    async def call_late(*args, **message):
        await may_go.wait()
        try:
            return await call_worker(*args, **message)
        finally:
            ended.append(message)

    def leave(client, name):
        take_away(client, name)
        local.loop.add_callback(may_go.set)

    def ask_who_is_there(client):
        local.loop.add_callback(may_go.set)
        return present_workers(client)

    def fail(item, x):
        raise ArithmeticError

    monkeypatch.setattr(worker_plugin.SumsPlugin, "abandon", hear)
    with dg.place(ROWS) as shards:
        monkeypatch.setattr(connection, "call_worker", call_late)
        with pytest.raises(ArithmeticError):
            summed(shards, fail)(X)
        monkeypatch.setattr(connection, "present_workers", ask_who_is_there)
        monkeypatch.setattr(connection, "take_away", leave)
    wait_until(lambda: len(ended) == 2)
    assert len(heard) == 2


def test_shards_that_nobody_has_any_more_are_released(local):
    assert summed(dg.place(ROWS))(X)
    wait_until(lambda: not held(local))


def test_a_client_takes_its_plugins_with_it(local_cluster, monkeypatch):
    monkeypatch.setattr(connection, "GRACE", 0.0)
    with Client(local_cluster) as client:
        shards = dg.place(ROWS)
        name = connection_of(client).name
        summed(shards)(X)
        assert plugins(client, name) == [True, True, True]
    with Client(local_cluster) as other:
        wait_until(lambda: plugins(other, name) == [False, False, False])
        assert in_one_thread(summed(shards), X)[1].shape == (4,)  # the items are here, too


def test_workers_of_a_cluster_that_closes_are_not_asked_to_remove_plugins(monkeypatch):
    """Dask has tracebacks on each of them."""
    monkeypatch.setattr(connection, "GRACE", 0.0)
    removed = []

    async def remove(comm, name):
        removed.append(name)

    async def leave():
        plugin = connection.PresencePlugin("name", "client")
        scheduler = SimpleNamespace(
            status=Status.running,
            workers={"a": 1, "b": 2},
            running={1},
            plugins={},
            worker_plugins={"name": b""},
            unregister_worker_plugin=remove,
        )
        leaving = asyncio.ensure_future(plugin._leave_workers(scheduler))
        for _ in range(9):
            await asyncio.sleep(0)
        assert not removed
        scheduler.running = {1, 2}  # one was paused
        await leaving
        assert removed == ["name"]
        scheduler.running, scheduler.status = {1}, Status.closing
        await plugin._leave_workers(scheduler)
        assert removed == ["name"]

    asyncio.run(leave())


def test_shards_that_another_thread_closes_in_a_call_are_an_error_that_says_so(local):
    expected = summed(ROWS)(X)

    def call_until_closed(shards, results):
        while True:
            results.append(summed(shards)(X))

    for number in range(6):
        shards, results = dg.place(ROWS, 1), []
        with dask.config.set({"daskgrad.resident.enabled": number % 3 > 0}):
            with ThreadPoolExecutor(1) as pool:
                calls = pool.submit(call_until_closed, shards, results)
                wait_until(lambda results=results, number=number: len(results) > number)
                shards.close()
                with pytest.raises(RuntimeError, match="these shards are closed"):
                    calls.result(60)
        for result in results:
            assert_same(result, expected)


# ------------------------------------------------------------------------------------- events


def test_events_tell_what_was_evaluated(local, monkeypatch):
    """One event a worker for all calls since the last ones."""
    monkeypatch.setattr(worker_plugin, "EVENTS_EVERY", 3600)
    monkeypatch.setattr(spread, "rebalancing", lambda *args: None)
    shards = dg.place(ROWS)
    events = []
    local.subscribe_topic("daskgrad", lambda event: events.append(event[1]))
    gradient = summed(shards, name="told")
    for _ in range(10):
        gradient(X)
    name = connection_of(local).name
    local.run(lambda dask_worker: dask_worker.plugins[name]._log._tell())

    def of_the_model():
        return [event for event in events if event.get("model") == "told"]

    wait_until(lambda: len(of_the_model()) == 2)
    local.unsubscribe_topic("daskgrad")
    assert {event["worker"]: event["blocks"] for event in of_the_model()} == {
        plan.worker: 10 * plan.blocks for plan in shards.plan
    }
    for event in of_the_model():
        assert (event["action"], event["calls"]) == ("evaluate", 10)
        assert event["start"] <= event["stop"]


# ---------------------------------------------------------------------------------- blocks move


def test_blocks_that_move_while_a_request_is_made_are_asked_for_where_they_were(local, monkeypatch):
    held = dg.place(ROWS).holdings
    plain, movers = Holdings._assignment_of, []

    def move(address):
        with held._lock:
            held._move([address] * len(held.blocks))

    def asked_of(self, address, numbers):
        numbered = plain(self, address, numbers)
        if not movers:
            with ThreadPoolExecutor(1) as pool:  # a move is not to get through
                assert not pool.submit(held._lock.acquire, blocking=False).result()
            movers.append(threading.Thread(target=move, args=(address,)))
            movers[0].start()
        return numbered

    def keys():
        return [
            (number, key_of(held.key, run.move, number))
            for worker in held.assigned().values()
            for run in worker.runs
            for number in range(run.start, run.stop)
        ]

    monkeypatch.setattr(Holdings, "_assignment_of", asked_of)
    assert len(held.work()) == 2
    before = [future.key for future in held.futures]
    assert sorted(keys()) == list(enumerate(before))
    movers[0].join(60)
    after = [future.key for future in held.futures]
    assert after != before
    assert sorted(keys()) == list(enumerate(after))
    assert held.assigned() is held.assigned()


def test_a_worker_that_has_gone_when_blocks_are_to_be_moved_to_it(local, monkeypatch):
    """The call has its result by then."""
    shards = dg.place(ROWS)
    expected = summed(shards)(X)
    attempts = []

    def rebalancing(costs, holders, workers, measured, uneven):
        attempts.append(workers)
        return ["tcp://127.0.0.1:1"] * len(holders)

    monkeypatch.setattr(spread, "rebalancing", rebalancing)
    for _ in range(8):
        assert_same(summed(shards)(X), expected)
    assert len(attempts) > 1, "else this cannot fail"
    assert {plan.worker for plan in shards.plan} <= set(local.ncores())


def test_a_node_is_computed_again_where_blocks_have_moved(local):
    with dg.place(ROWS) as shards:
        blocks, values = shards.holdings, []
        node = dg.map_sum(dot, shards, X)
        other = node + 0.0
        for address in local.ncores():
            blocks._move([address] * len(blocks.blocks))
            wait_until(lambda: len(held(local, blocks.key)) == len(blocks.blocks))
            values += dask.compute(node, other)
        assert set(values) == {dg.map_sum(dot, ROWS, X).compute()}
    with pytest.raises(RuntimeError, match="these shards are closed"):
        node.compute()


def test_who_is_asked_what_is_planned_again_only_where_it_has_changed(local):
    shards = dg.place(ROWS, 1)
    held = shards.holdings
    gradient = summed(shards)
    for _ in range(20):  # after some of the first calls units are chosen, and blocks move
        gradient(X)
    (plan,) = held.plans.values()
    gradient(2.0 * X)
    assert list(held.plans.values()) == [plan]
    summed(shards, slice_sum)(X)
    assert len(held.plans) == 2
    held._calls = 64  # a power of two: units are chosen anew
    held.record_times({})
    assert not held.plans
    gradient(X)
    with held._lock:
        held._move([held.holders[0]] * len(held.blocks))
    assert not held.plans
    assert_same(gradient(X), summed(ROWS)(X))
    (plan,) = held.plans.values()
    assert [tree.address for tree in plan.trees] == [held.holders[0]]
    shards.close()
    assert not held.plans


# ------------------------------------------------------------------------ terms that are arrays


@pytest.mark.parametrize("where", ["stopped", "aux", "below another sum"])
def test_terms_that_are_arrays_where_they_are_not_differentiated(local, where):
    def tripled(row, x):
        return 3.0 * row * x

    def program(x, items):
        if where == "aux":
            return dg.map_sum(dot, items, x), dg.map_sum(tripled, items, x)
        if where == "stopped":
            return dg.map_sum(dot, items, dg.stop_gradient(dg.map_sum(tripled, items, x)) + x), 0.0
        return dg.map_sum(dot, items, dg.map_sum(tripled, items, X)) * dg.map_sum(dot, items, x), 0

    gradient, shards = dg.value_and_grad(program, has_aux=True), dg.place(ROWS)
    for _ in range(2):
        assert_same(gradient(X, shards), gradient(X, ROWS))


def test_a_sum_of_arrays_leaves_another_of_its_name_the_direct_way(local):
    """Two lambdas, which are made anew in each call, and the arrays of one are no news then."""

    def program(x, items):
        arrays = dg.map_sum(lambda row, x: row * x, items, x)
        return dg.map_sum(lambda row, x: np.dot(row, x), items, arrays), arrays

    gradient, shards = dg.value_and_grad(program, has_aux=True), dg.place(ROWS)
    for _ in range(2):
        assert_same(gradient(X, shards), gradient(X, ROWS))
        total, arrays = program(dg.variable(X), shards)
        assert arrays.has_array_terms
        assert not total.has_array_terms


# ---------------------------------------------------------------------------- many small items


def cube(item, x):
    return x * item**3


def cubes(slice_, x):
    return sum([cube(item, x) for item in slice_])


def test_requests_and_keys_do_not_grow_with_the_number_of_blocks_that_are_asked_for(local):
    sent = {}
    for count in (128, 4096):
        with dg.place(list(map(float, range(count))), grainsize=1) as shards:
            for _ in range(3):  # plans are forgotten after the calls number 1, 2, 4 ...
                summed(shards, cube)(1.0)
            (plan,) = shards.holdings.plans.values()
            sent[count] = sum([len(tree.work) for tree in plan.trees])
            wait_until(lambda s=shards: len(held(local)) == len(s.blocks))  # if some have moved
            assert len(shards.blocks) <= MOST_A_THREAD * 4
            assert len(shards) == count
    assert sent[4096] < sent[128] + 40


@in_short("enabled", [True, False], True)
def test_small_items_are_summed_to_the_same_bits_in_larger_blocks(enabled, local):
    items = list(numpy.random.default_rng(5).standard_normal(900))

    def slices(items, grainsize):
        return dg.value_and_grad(lambda x: dg.reduce_sum(cubes, items, x, grainsize=grainsize))

    expected = in_one_thread(summed(items, cube, grainsize=1), 0.3)
    expected_of_slices = in_one_thread(slices(items, 3), 0.3)
    with dask.config.set({"daskgrad.resident.enabled": enabled}), dg.place(items, 3) as shards:
        assert shards.grainsize > shards.slice_size == 3
        for grainsize in ("auto", 3):
            assert_same(summed(shards, cube, grainsize=grainsize)(0.3), expected)
            assert_same(slices(shards, grainsize)(0.3), expected_of_slices)
        assert_same(summed(shards, cube, grainsize=2)(0.3), expected)
        with pytest.raises(ValueError, match=r"placed in blocks of \d+, and grainsize=64"):
            dg.map_sum(cube, shards, 0.3, grainsize=64)
    wait_until(lambda: not held(local))
    with pytest.raises(RuntimeError, match="closed"):
        dg.reduce_sum(cubes, shards, 0.3)
