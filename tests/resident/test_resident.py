"""Resident sums: the bits of the graph, without one, whatever happens to the workers."""

import operator
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import autograd.numpy as np
import dask
import numpy
import pytest
from clusters import tasks_run
from distributed import Client
from lengths import in_short
from numpy.testing import assert_array_equal
from probes import in_threads, lines, write
from waiting import wait_until

import daskgrad as dg
from daskgrad.resident import balance, requests
from daskgrad.resident.connection import connection_of
from daskgrad.resident.holdings import Holdings
from daskgrad.resident.messages import key_of
from daskgrad.resident.parcels import Parcel
from daskgrad.resident.placing import MOST_A_THREAD
from daskgrad.resident.requests import summand_parcel

pytestmark = pytest.mark.timeout(120)

WEIGHTS = numpy.random.default_rng(1).standard_normal((40, 6))
RAGGED = [numpy.linspace(0.1, 1.0, 3 + number % 5) for number in range(37)]


def dot(row, x):
    return np.sum(np.sin(row * x) ** 2)


def scaled_dot(row, x, factor):
    return factor * np.sum(row * x)


def ragged(item, x):
    return np.sum(np.exp(-x[0] * item)) + x[1] * x[2]


def nested(item, params):
    return np.sum(np.tanh(item[:, None] * params["w"])) + params["b"] ** 2


def slice_sum(rows, x):
    return np.sum(np.cos(np.dot(rows, x)))


def prior(x):
    return -0.5 * np.sum(x**2)


def mixed(x):
    return np.concatenate([x[3:], x[:3]]) * 2.0


X = numpy.linspace(-1.0, 1.0, 6)

PROGRAMS = {
    "a sum": lambda place, x: dg.map_sum(dot, place(WEIGHTS), x),
    "a mean": lambda place, x: dg.map_mean(dot, place(WEIGHTS), x),
    "a sum over slices": lambda place, x: dg.reduce_sum(slice_sum, place(WEIGHTS, 7), x),
    "ragged items": lambda place, x: dg.map_sum(ragged, place(RAGGED), x),
    "one item": lambda place, x: dg.map_sum(dot, place(WEIGHTS[:1]), x),
    "with a prior": lambda place, x: dg.map_sum(dot, place(WEIGHTS), x) + dg.delayed(prior)(x),
    "two sums": lambda place, x: (
        dg.map_sum(dot, place(WEIGHTS), x) * 2.0 - dg.map_sum(ragged, place(RAGGED, 1), x)
    ),
    "a sum of what a node returns": lambda place, x: dg.map_sum(
        dot, place(WEIGHTS), dg.delayed(mixed)(x)
    ),
    "a sum that depends on a sum": lambda place, x: dg.map_sum(
        dot, place(WEIGHTS), x * dg.map_sum(ragged, place(RAGGED), x)
    ),
    "a power of a sum": lambda place, x: (dg.map_sum(dot, place(WEIGHTS), x) + 1.0) ** 2,
    "a function of a sum": lambda place, x: dg.delayed(np.log)(dg.map_sum(dot, place(WEIGHTS), x)),
    "a sum with constants": lambda place, x: dg.map_sum(
        lambda row, x, scale, big: scale * dot(row, x) + big[7], place(WEIGHTS), x, 2.0, BIG
    ),
    "a sum that x does not reach": lambda place, x: (
        dg.map_sum(dot, place(WEIGHTS), X) * dg.delayed(prior)(x)
    ),
    "a sum beside one over a list": lambda place, x: (
        dg.map_sum(dot, place(WEIGHTS), x) + dg.map_sum(ragged, RAGGED, x)
    ),
    "terms that are arrays": lambda place, x: dg.delayed(prior)(
        dg.map_sum(lambda row, x: row * x, place(WEIGHTS), x)
    ),
    "only gradients are kept": lambda place, x: dg.delayed(np.exp)(
        dg.map_sum(dg.delayed(ragged, keep="gradient"), place(RAGGED), x) * 0.01
    ),
    "tapes are kept": lambda place, x: dg.delayed(np.log)(
        dg.map_sum(dg.delayed(dot, keep="tape"), place(WEIGHTS), x)
    ),
}
BIG = numpy.arange(20_000.0)


def in_one_thread(program):
    """Value and gradient of a program over the items themselves."""
    with dask.config.set({"scheduler": "sync", "daskgrad.inline.seconds": 0.0}):
        return dg.value_and_grad(lambda x: program(lambda items, g="auto": dg.place(items, g), x))(
            X
        )


def assert_same(found, expected):
    assert found[0] == expected[0]
    assert type(found[0]) is type(expected[0])
    assert_array_equal(found[1], expected[1])


SHORT = {  # the other programs run at length
    "a sum that depends on a sum",
    "terms that are arrays",
    "tapes are kept",
}


@in_short("name", PROGRAMS, *SHORT)
def test_the_bits_are_those_of_the_graph_and_of_one_process(name, client):
    program = PROGRAMS[name]
    expected = in_one_thread(program)
    kept = {}

    def place(items, grainsize="auto"):
        return kept.setdefault(id(items), dg.place(items, grainsize))

    gradient = dg.value_and_grad(lambda x: program(place, x))
    for _ in range(3):  # what was measured in the first call changes the second, and no bit
        assert_same(gradient(X), expected)
    with dask.config.set({"daskgrad.resident.enabled": False}):
        assert_same(gradient(X), expected)


@in_short("name", PROGRAMS, *SHORT)
def test_the_bits_are_the_same_where_what_is_around_the_sums_is_handed_over(
    name, client, monkeypatch
):
    expected = in_one_thread(PROGRAMS[name])
    monkeypatch.setattr("daskgrad.derivatives.in_line.CLUSTER_SECONDS", 1e-9)
    monkeypatch.setattr("daskgrad.derivatives.in_line.TASK_SECONDS", 0.0)
    assert_same(dg.value_and_grad(lambda x: PROGRAMS[name](dg.place, x))(X), expected)


def test_parameters_in_a_dict_several_arguments_and_an_auxiliary(client):
    params = {"w": numpy.linspace(0.0, 1.0, 4), "b": 0.5}

    def objective(shards, params, x):
        value = dg.map_sum(nested, shards, params) + dg.map_sum(ragged, shards, x)
        return value, {"fit": value * 2.0, "sum": dg.map_sum(ragged, shards, x), "n": 3}

    both = dg.value_and_grad(objective, argnums=(1, 2), has_aux=True)
    with dask.config.set(scheduler="sync"):
        expected = both(dg.place(RAGGED), params, X)
    (value, aux), (first, second) = both(dg.place(RAGGED), params, X)
    assert value == expected[0][0]
    assert aux == expected[0][1]
    assert_array_equal(first["w"], expected[1][0]["w"])
    assert first["b"] == expected[1][0]["b"]
    assert_array_equal(second, expected[1][1])


# ------------------------------------------------------------------------------ no graph at all


@pytest.mark.parametrize("over", [dg.map_sum, dg.map_mean])
def test_a_call_makes_no_tasks(over, client):
    shards = dg.place(WEIGHTS)
    gradient = dg.value_and_grad(lambda x: over(dot, shards, x) + dg.delayed(prior)(x))
    gradient(X)
    before = tasks_run(client)
    with dask.config.set({"daskgrad.inline.seconds": 60}):  # however busy the machine is
        for _ in range(5):
            gradient(X)
    assert tasks_run(client) == before
    with dask.config.set({"daskgrad.resident.enabled": False}):
        gradient(X)
    assert tasks_run(client) > before


def test_a_long_call_makes_no_tasks_either(client):
    """Waiting for the workers is not the time of the small nodes that run here."""

    def slow(item, x):
        import time

        time.sleep(0.2)
        return np.sum(item * x)

    shards = dg.place(WEIGHTS[:2])
    gradient = dg.value_and_grad(lambda x: dg.map_sum(slow, shards, x) * 2.0)
    gradient(X)
    before = tasks_run(client)
    gradient(X)
    assert tasks_run(client) == before


def test_a_model_that_takes_long_to_pickle_makes_no_tasks_either(client):
    class Slow:
        def __reduce__(self):
            time.sleep(0.2)
            return float, (2.0,)

    slow = Slow()

    def scaled(item, x):
        return np.sum(item * x) * slow

    shards = dg.place(WEIGHTS[:2])
    gradient = dg.value_and_grad(lambda x: dg.map_sum(scaled, shards, x) * 2.0)
    gradient(X)
    before = tasks_run(client)
    gradient(X)
    assert tasks_run(client) == before


def watch_requests(client, name, path):
    """Makes every worker write what it is sent and what it replies."""

    def wrap(dask_worker):
        import pickle

        handler = dask_worker.handlers[name]

        async def evaluate(call, work, point, parcels=(), rows=()):
            reply = await handler(call, work, point, dict(parcels), dict(rows))
            jobs = len(pickle.loads(work).jobs)
            write(path, f"{jobs} {len(parcels)} {sum(map(len, point))}")
            return reply

        dask_worker.handlers[name] = evaluate

    client.run(wrap)


def test_the_point_goes_out_once_a_worker_and_what_stays_the_same_only_once(client, tmp_path):
    """Two sums and a large constant: one message a worker; the constant is in the first alone."""
    shards, others = dg.place(WEIGHTS), dg.place(RAGGED)
    path = tmp_path / "log"

    def objective(x):
        first = dg.map_sum(lambda row, x, big: dot(row, x) * big[1], shards, x, BIG)
        return first + dg.map_sum(ragged, others, x)

    gradient = dg.value_and_grad(objective)
    gradient(X)
    watch_requests(client, connection_of(client).name, path)
    for _ in range(3):
        gradient(X + 1.0)
    assert len(lines(path)) == 6
    for line in lines(path):
        jobs, parcels, point = map(int, line.split())
        assert (jobs, parcels) == (2, 0)
        assert point < 1000


def test_a_changed_constant_and_a_changed_function_are_seen(client):
    """What is kept on the workers goes by content."""
    shards = dg.place(WEIGHTS)
    state = {"factor": 1.0}
    big = BIG.copy()

    def scaled(row, x, big):
        return state["factor"] * dot(row, x) + big[3]

    gradient = dg.value_and_grad(lambda x: dg.map_sum(scaled, shards, x, big))
    value, _ = gradient(X)
    state["factor"] = 2.0
    big[3] += 100.0
    found, _ = gradient(X)
    assert found - 4100.0 + (value - 40 * 3.0) * 0 == pytest.approx(2.0 * (value - 120.0) + 20.0)


def test_the_order_of_a_dicts_keys_is_a_part_of_it(client):
    """Models may go by it; structures that differ in nothing else are equal."""
    shards = dg.place(WEIGHTS)

    def one_after_the_other(row, x, steps):
        y = row * x
        for name, factor in steps.items():
            y = np.sin(factor * y) if name == "sin" else y * y + factor
        return np.sum(y)

    for steps in ({"sin": 2.0, "square": 3.0}, {"square": 3.0, "sin": 2.0}):
        gradient = [
            dg.value_and_grad(lambda x, i=items, s=steps: dg.map_sum(one_after_the_other, i, x, s))
            for items in (shards, WEIGHTS)
        ]
        value, found = gradient[0](X)
        with dask.config.set(scheduler="sync"):
            expected = gradient[1](X)
        assert value == expected[0]
        assert_array_equal(found, expected[1])


def test_a_worker_that_forgot_is_sent_everything_again(client):
    shards = dg.place(WEIGHTS)
    gradient = dg.value_and_grad(lambda x: dg.map_sum(dot, shards, x))
    expected = gradient(X)
    name = connection_of(client).name
    client.run(lambda dask_worker: dask_worker.plugins[name]._parcels._kept.clear())
    assert_same(gradient(X), expected)


def test_a_worker_that_lost_its_plugin_gets_it_again(client):
    shards = dg.place(WEIGHTS)
    gradient = dg.value_and_grad(lambda x: dg.map_sum(dot, shards, x))
    expected = gradient(X)
    client.unregister_worker_plugin(connection_of(client).name)
    assert_same(gradient(X), expected)


# -------------------------------------------------------------------------------------- errors


def fails_at(item, x):
    if item[0] == 3.0:
        raise KeyError("no such station")
    return np.sum(item * x)


@pytest.mark.parametrize("error", [KeyError, StopIteration, SystemExit])
def test_an_error_of_a_model_is_the_users_with_a_note(error, client):
    def fails(item, x):
        if item[0] == 3.0:
            raise error("no such station")
        return np.sum(item * x)

    shards = dg.place([numpy.full(6, float(number)) for number in range(8)])
    with pytest.raises(error, match="no such station") as caught:
        dg.grad(lambda x: dg.map_sum(fails, shards, x))(X)
    if error is not SystemExit:
        (note,) = caught.value.__notes__
        assert "in the forward pass of model 'fails', item 3, called with (float64[6]" in note
    assert dg.grad(lambda x: dg.map_sum(dot, shards, x))(X).shape == (6,)


def fails_for_another_reason(item, x):
    try:
        fails_at(item, x)
    except KeyError as error:
        if item[1] > 0.0:
            raise ValueError("the explicit one") from error
        raise ValueError("the implicit one")  # noqa: B904  that is what is tested


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_error_of_a_model_brings_its_reasons_along(sign, client):
    items = numpy.array([[3.0, sign]])
    gradients = [
        dg.grad(lambda x, i=items: dg.map_sum(fails_for_another_reason, i, x))
        for items in (dg.place(items), items)
    ]
    reasons = []
    for gradient in gradients:
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
    shards = dg.place(WEIGHTS)
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

    shards = dg.place(WEIGHTS)
    with pytest.raises(ZeroDivisionError):
        dg.grad(lambda x: dg.map_sum(Unloadable(), shards, x))(X)
    assert dg.grad(lambda x: dg.map_sum(dot, shards, x))(X).shape == (6,)


def test_terms_of_two_kinds_are_an_error(client):
    shards = dg.place(WEIGHTS, grainsize=2)
    with pytest.raises(TypeError, match="a gradient needs one real number"):
        dg.grad(lambda x: dg.map_sum(lambda row, x: row * x, shards, x))(X)


def test_an_interrupted_call_stops_the_workers_after_the_current_blocks(client, tmp_path):
    path = tmp_path / "log"

    def slow(item, x):
        import time

        write(path, "term")
        time.sleep(0.05)
        return np.sum(item * x)

    shards = dg.place(WEIGHTS, grainsize=1)
    gradient = dg.value_and_grad(lambda x: dg.map_sum(slow, shards, x))
    interrupt_when(lambda: path.exists())
    with pytest.raises(KeyboardInterrupt):
        gradient(X)
    assert_same(
        dg.value_and_grad(lambda x: dg.map_sum(dot, shards, x))(X), in_one_thread(PROGRAMS["a sum"])
    )
    assert len(lines(path)) < len(WEIGHTS)


def interrupt_when(condition):
    import _thread
    import time

    def watch():
        while not condition():
            time.sleep(0.01)
        _thread.interrupt_main()

    threading.Thread(target=watch, daemon=True).start()


# ------------------------------------------------------------------------------------- closing


def held(client, key="value-shard"):
    return [k for keys in client.has_what().values() for k in keys if str(k).startswith(key)]


def test_closing_releases_the_workers_memory_and_takes_the_plugins_away(client):
    from clusters import wait_until

    with dg.place(WEIGHTS) as shards:
        name = connection_of(client).name
        dg.grad(lambda x: dg.map_sum(dot, shards, x))(X)
        assert held(client)
        assert all(client.run(lambda dask_worker: name in dask_worker.plugins).values())
    wait_until(lambda: not held(client))
    assert not any(client.run(lambda dask_worker: name in dask_worker.plugins).values())
    assert not client.run_on_scheduler(lambda dask_scheduler: name in dask_scheduler.plugins)
    assert repr(shards) == "<Shards: closed>"
    with pytest.raises(RuntimeError, match="closed; place the items again"):
        dg.map_sum(dot, shards, X)
    shards.close()


def test_shards_that_nobody_has_any_more_are_released(client):
    from clusters import wait_until

    def call():
        shards = dg.place(WEIGHTS)
        return dg.grad(lambda x: dg.map_sum(dot, shards, x))(X)

    assert call().shape == X.shape
    wait_until(lambda: not held(client))


def test_a_client_takes_its_plugins_with_it(shared_cluster):
    from clusters import wait_until

    with Client(shared_cluster) as own:
        shards = dg.place(WEIGHTS)
        name = connection_of(own).name
        dg.grad(lambda x: dg.map_sum(dot, shards, x))(X)
        assert all(own.run(lambda dask_worker: name in dask_worker.plugins).values())
    with Client(shared_cluster) as other:
        wait_until(
            lambda: not any(other.run(lambda dask_worker: name in dask_worker.plugins).values())
        )
        assert not other.run_on_scheduler(lambda dask_scheduler: name in dask_scheduler.plugins)
        with dask.config.set(scheduler="sync"):  # the items are here, too
            assert dg.grad(lambda x: dg.map_sum(dot, shards, x))(X).shape == (6,)


def test_several_threads_may_call(client):
    shards = dg.place(WEIGHTS)
    gradient = dg.value_and_grad(lambda x: dg.map_sum(dot, shards, x) + dg.delayed(prior)(x))
    points = [X + number for number in range(6)]
    expected = [gradient(x) for x in points]
    found = {}

    def work(number):
        for _ in range(5):
            found[number] = gradient(points[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, each in enumerate(expected):
        assert_same(found[number], each)


def test_events_tell_what_was_evaluated(client):
    from clusters import wait_until

    shards = dg.place(WEIGHTS)
    seen = []
    client.subscribe_topic("daskgrad", lambda event: seen.append(event[1]))

    def told(model):
        return [e for e in seen if e["action"] == "evaluate" and e["model"] == model]

    gradient = dg.grad(lambda x: dg.map_sum(dot, shards, x, name="told"))
    for _ in range(10):
        gradient(X)
    blocks = sum(plan.blocks for plan in shards.plan)
    wait_until(lambda: sum(event["calls"] for event in told("told")) == 20)
    client.unsubscribe_topic("daskgrad")
    assert sum(event["blocks"] for event in told("told")) == 10 * blocks
    assert {event["worker"] for event in told("told")} == {plan.worker for plan in shards.plan}
    assert all(event["start"] <= event["stop"] for event in told("told"))
    assert len(told("told")) < 20, "not one event a call"


def test_blocks_that_move_while_a_request_is_made_are_asked_for_where_they_were(
    client, monkeypatch
):
    held = dg.place(WEIGHTS).holdings
    plain, movers = Holdings._asked_of, []

    def move(address):
        with held._lock:
            held._move([address] * len(held.blocks))

    def asked_of(self, address, numbers):
        found = plain(self, address, numbers)
        if not movers:
            movers.append(threading.Thread(target=move, args=(address,)))
            movers[0].start()
            movers[0].join(0.5)  # it is not to get through
        return found

    def asked():
        return [
            (number, key_of(held.key, run.move, number))
            for each in held.asked().values()
            for run in each.runs
            for number in range(run.start, run.stop)
        ]

    monkeypatch.setattr(Holdings, "_asked_of", asked_of)
    assert len(held.work()) == 2
    before = [future.key for future in held.futures]
    assert sorted(asked()) == list(enumerate(before))
    movers[0].join(60)
    after = [future.key for future in held.futures]
    assert after != before
    assert sorted(asked()) == list(enumerate(after))
    assert held.asked() is held.asked()


@pytest.mark.long
def test_what_is_remembered_of_workers_does_not_grow_with_calls_that_differ(client, monkeypatch):
    """A number that is no variable is a part of what is sent once."""
    monkeypatch.setattr("daskgrad.resident.connection.PARCELS", 8)
    with dg.place(WEIGHTS) as shards:

        def gradient(items, factor):
            return dg.grad(lambda x: dg.map_sum(scaled_dot, items, x, factor))(X)

        for number in range(20):
            assert_array_equal(gradient(shards, float(number)), gradient(WEIGHTS, float(number)))
        known = connection_of(client).known
        assert {len(known(plan.worker)) for plan in shards.plan} == {8}
        assert len(shards.holdings.plans) <= requests.PLANS


def test_a_worker_that_has_gone_when_blocks_are_to_be_moved_to_it(client, monkeypatch):
    """The call has its result by then."""
    shards = dg.place(WEIGHTS)
    gradient = dg.value_and_grad(lambda x: dg.map_sum(dot, shards, x))
    expected = gradient(X)
    asked = []

    def rebalancing(costs, holders, workers, measured):
        asked.append(workers)
        return ["tcp://127.0.0.1:1"] * len(holders)

    monkeypatch.setattr(balance, "rebalancing", rebalancing)
    for _ in range(8):
        assert_same(gradient(X), expected)
    assert len(asked) > 1, "else this cannot fail"
    assert set(holders_of(shards)) <= set(client.ncores())


def test_a_node_is_computed_again_where_blocks_have_moved(client):
    def keys_of(held):
        keys = [key for each in client.has_what().values() for key in each]
        return [key for key in keys if str(key).startswith(held.key)]

    with dg.place(WEIGHTS) as shards:
        held, found = shards.holdings, []
        node = dg.map_sum(dot, shards, X)
        other = node + 0.0
        for address in client.ncores():
            held._move([address] * len(held.blocks))
            wait_until(lambda: len(keys_of(held)) == len(held.blocks))
            found += dask.compute(node, other)
        assert set(found) == {dg.map_sum(dot, WEIGHTS, X).compute()}
    with pytest.raises(RuntimeError, match="these shards are closed"):
        node.compute()


def holders_of(shards):
    return [plan.worker for plan in shards.plan]


def test_who_is_asked_what_is_planned_again_only_where_it_has_changed(client):
    shards = dg.place(WEIGHTS, 1)
    held = shards.holdings

    def gradient(x, model=dot, items=shards):
        return dg.grad(lambda x: dg.map_sum(model, items, x))(x)

    for _ in range(20):  # after some of the first calls units are chosen, and blocks move
        gradient(X)
    (plan,) = held.plans.values()
    gradient(2.0 * X)
    assert list(held.plans.values()) == [plan]
    gradient(X, slice_sum)
    assert len(held.plans) == 2
    held._calls = 64  # a power of two: units are chosen anew
    held.record_times({})
    assert not held.plans
    gradient(X)
    with held._lock:
        held._move([held.holders[0]] * len(held.blocks))
    assert not held.plans
    assert_array_equal(gradient(X), gradient(X, items=WEIGHTS))
    (plan,) = held.plans.values()
    assert [tree.address for tree in plan.trees] == [held.holders[0]]
    shards.close()
    assert not held.plans


def test_shards_that_another_thread_closes_in_a_call_are_an_error_that_says_so(client):
    expected = dg.grad(lambda x: dg.map_sum(dot, WEIGHTS, x))(X)

    def call_until_closed(shards, found):
        while True:
            found.append(dg.grad(lambda x: dg.map_sum(dot, shards, x))(X))

    for number in range(6):
        shards, found = dg.place(WEIGHTS, 1), []
        with dask.config.set({"daskgrad.resident.enabled": number % 3 > 0}):
            with ThreadPoolExecutor(1) as pool:
                calls = pool.submit(call_until_closed, shards, found)
                wait_until(lambda found=found, number=number: len(found) > number)
                shards.close()
                with pytest.raises(RuntimeError, match="these shards are closed"):
                    calls.result(60)
        for gradient in found:
            assert_array_equal(gradient, expected)


def test_released_blocks_are_not_asked_for(client):
    held = dg.place(WEIGHTS).holdings
    held.asked()
    held.release()
    for ask in (held.asked, held.references, held.restore):
        with pytest.raises(RuntimeError, match="these shards are closed"):
            ask()


@in_short("where", ["stopped", "aux", "below another sum"], "below another sum")
def test_terms_that_are_arrays_where_they_are_not_differentiated(client, where):
    def tripled(row, x):
        return 3.0 * row * x

    def program(x, items):
        if where == "aux":
            return dg.map_sum(dot, items, x), dg.map_sum(tripled, items, x)
        if where == "stopped":
            return dg.map_sum(dot, items, dg.stop_gradient(dg.map_sum(tripled, items, x)) + x), 0.0
        return dg.map_sum(dot, items, dg.map_sum(tripled, items, X)) * dg.map_sum(dot, items, x), 0

    shards = dg.place(WEIGHTS)
    for _ in range(2):
        (value, aux), gradient = dg.value_and_grad(program, has_aux=True)(X, shards)
        (value_here, aux_here), here = dg.value_and_grad(program, has_aux=True)(X, WEIGHTS)
        assert value == value_here
        assert_array_equal(aux, aux_here)
        assert_array_equal(gradient, here)


def test_a_sum_of_arrays_leaves_another_of_its_name_the_direct_way(client):
    """Two lambdas, which are made anew in each call, and the arrays of one are no news then."""

    def program(x, items):
        arrays = dg.map_sum(lambda row, x: row * x, items, x)
        return dg.map_sum(lambda row, x: np.dot(row, x), items, arrays), arrays

    shards = dg.place(WEIGHTS)
    for _ in range(2):
        (value, _), gradient = dg.value_and_grad(program, has_aux=True)(X, shards)
        (value_here, _), here = dg.value_and_grad(program, has_aux=True)(X, WEIGHTS)
        assert value == value_here
        assert_array_equal(gradient, here)
        sum_, arrays = program(dg.variable(X), shards)
        assert arrays.has_array_terms
        assert not sum_.has_array_terms


def test_threads_that_keep_more_summands_than_there_is_room_for(monkeypatch, quick_switches):
    monkeypatch.setattr(requests, "MOST_KEPT", 8)
    monkeypatch.setattr(requests, "summand_key", lambda *key: key)
    monkeypatch.setattr(requests.Parcel, "of", staticmethod(lambda key: Parcel(str(key), [])))
    monkeypatch.setattr(requests, "_parcels", {})
    in_threads(lambda thread, number: summand_parcel(thread, number))
    assert 0 < len(requests._parcels) <= 8 + 8


# ---------------------------------------------------------------------------- many small items


def cube(item, x):
    return x * item**3


def cubes(slice_, x):
    return sum([cube(item, x) for item in slice_])


def test_requests_and_keys_do_not_grow_with_the_number_of_blocks_that_are_asked_for(client):
    sent = {}
    for count in (128, 4096):
        with dg.place(list(map(float, range(count))), grainsize=1) as shards:
            for _ in range(3):  # plans are forgotten after the calls number 1, 2, 4 ...
                dg.grad(lambda x, s=shards: dg.map_sum(cube, s, x))(1.0)
            (plan,) = shards.holdings.plans.values()
            sent[count] = sum([len(tree.work) for tree in plan.trees])
            wait_until(lambda s=shards: len(held(client)) == len(s.blocks))  # if some have moved
            assert len(shards.blocks) <= MOST_A_THREAD * 2
            assert len(shards) == count
    assert sent[4096] < sent[128] + 40


@in_short("enabled", [True, False], True)
def test_small_items_are_summed_to_the_same_bits_in_larger_blocks(enabled, client):
    items = list(numpy.random.default_rng(5).standard_normal(900))
    with dask.config.set(scheduler="sync"):
        expected = dg.value_and_grad(lambda x: dg.map_sum(cube, items, x, grainsize=1))(0.3)
        of_slices = dg.value_and_grad(lambda x: dg.reduce_sum(cubes, items, x, grainsize=2))(0.3)
    with dask.config.set({"daskgrad.resident.enabled": enabled}), dg.place(items, 3) as shards:
        assert shards.grainsize > shards.slice_size == 2
        for grainsize in ("auto", 3, 2):
            summed = dg.value_and_grad(
                lambda x, g=grainsize: dg.map_sum(cube, shards, x, grainsize=g)
            )
            assert summed(0.3) == expected
            sliced = dg.value_and_grad(
                lambda x, g=grainsize: dg.reduce_sum(cubes, shards, x, grainsize=g)
            )
            assert sliced(0.3) == of_slices
        with pytest.raises(ValueError, match="placed with grainsize 2, and grainsize=4"):
            dg.map_sum(cube, shards, 0.3, grainsize=4)
    wait_until(lambda: not held(client))
    with pytest.raises(RuntimeError, match="closed"):
        dg.reduce_sum(cubes, shards, 0.3)


def test_a_run_of_blocks_is_named_by_two_numbers_until_some_of_them_move(client):
    with dg.place(WEIGHTS, 1) as shards:
        asked = shards.holdings.asked()
        assert [len(each.runs) for each in asked.values()] == [1, 1]
        client.cancel(shards.holdings.futures[5:9], force=True)
        wait_until(lambda: len(held(client)) == len(shards.blocks) - 4)
        shards.restore()
        asked = shards.holdings.asked()
        assert sum([len(each.runs) for each in asked.values()]) in (3, 4)
        assert sorted(n for each in asked.values() for n in each.numbers) == list(range(40))
        gradient = dg.value_and_grad(lambda x: dg.map_sum(dot, shards, x))
        assert_same(gradient(X), in_one_thread(PROGRAMS["a sum"]))
