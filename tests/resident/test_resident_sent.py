"""Sums over variables' items: each worker is sent its own with the request; nothing is a task."""

import os
import time

import autograd.numpy as np
import dask
import numpy
import pytest
from clusters import cluster, kill, kill_when, tasks_run
from lengths import in_short
from numpy.testing import assert_array_equal
from probes import write

import daskgrad as dg
from daskgrad.resident import balance
from daskgrad.resident.connection import connection_of
from daskgrad.resident.messages import unpack
from daskgrad.resident.requests import WorkerItems, pack_rows
from daskgrad.resident.spread import Spread, split_into_runs
from daskgrad.values.trees import flatten

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:the output of .* does not depend on '[px]'"),
]

COUNT = 75
GENERATOR = numpy.random.default_rng(4)
ROWS = GENERATOR.standard_normal((COUNT, 4))
LIST = [
    {"a": GENERATOR.standard_normal(), "b": GENERATOR.standard_normal(1 + number % 3)}
    for number in range(COUNT)
]
NEAR = GENERATOR.standard_normal(COUNT)
WIDE = GENERATOR.standard_normal((COUNT, 600))  # a parcel for each worker where it is no variable
X = numpy.linspace(-0.5, 1.0, 4)
BIG = numpy.linspace(0.0, 1.0, 50_000)  # is passed on from worker to worker


def effect(row, x):
    return np.sum(np.tanh(row * x) * x[0])


def ragged(item, x):
    return np.sum(np.exp(0.1 * x * item["a"])) + np.sum(item["b"] ** 2) * x[1]


def weighted(pair, x):
    return np.sum(np.sin(pair[0] * x)) * np.sum(pair[1])


def slice_effect(rows, x):
    return np.sum(np.cos(rows @ x))


def alone(row):
    return np.sum(row**2) ** 0.5


def prior(p):
    return -0.5 * np.sum(p**2)


def wave(row, x):
    return row * np.sin(x)


PROGRAMS = {
    "rows": lambda p, x: dg.map_sum(effect, p, x),
    "rows alone": lambda p, x: dg.map_sum(alone, p) + dg.delayed(prior)(x),
    "rows and their prior": lambda p, x: dg.map_sum(effect, p, x) + dg.delayed(prior)(p),
    "items of a list": lambda p, x: dg.map_sum(ragged, p, x),
    "beside a list": lambda p, x: dg.map_sum(weighted, dg.zip(p, list(NEAR)), x),
    "beside a large array": lambda p, x: dg.map_sum(weighted, dg.zip(p, WIDE), x),
    "twice": lambda p, x: dg.map_sum(effect, p, x) * dg.map_sum(weighted, dg.zip(p, p), x),
    "slices": lambda p, x: dg.reduce_sum(slice_effect, p, x, grainsize=7),
    "one item a task": lambda p, x: dg.map_sum(effect, p, x, grainsize=1),
    "one task": lambda p, x: dg.map_sum(effect, p, x, grainsize=128),
    "exact sums": lambda p, x: dg.map_sum(effect, p, x, summation="compensated"),
    "gradients are kept": lambda p, x: dg.delayed(np.exp)(
        dg.map_sum(dg.delayed(effect, keep="gradient"), p, x) * 0.01
    ),
    "a sum that depends on a sum": lambda p, x: dg.map_sum(effect, p, x * dg.map_sum(effect, p, x)),
    "a function of a sum": lambda p, x: dg.delayed(np.tanh)(dg.map_sum(effect, p, x)),
    "behind stop_gradient": lambda p, x: (
        dg.map_sum(effect, p, x) * dg.stop_gradient(dg.map_sum(alone, p))
    ),
    "beside placed items": lambda p, x: (
        dg.map_sum(effect, p, x) * dg.map_sum(effect, dg.place(ROWS), x)
    ),
}
TASKS = {
    "terms that are arrays": lambda p, x: dg.delayed(prior)(dg.map_sum(wave, p, x)),
    "beside a sum over a list": lambda p, x: (
        dg.map_sum(effect, p, x) + dg.map_sum(effect, list(ROWS), x)
    ),
}


def given(name):
    return LIST if name == "items of a list" else ROWS


def everything(program, p):
    """The value and the gradients of a program with respect to ``p`` and ``x``."""
    value, gradients = dg.value_and_grad(program, (0, 1))(p, X)
    return value, flatten(gradients)[0]


def in_one_thread(program, p):
    with dask.config.set({"scheduler": "sync"}):
        return everything(program, p)


def assert_same(found, expected):
    assert found[0] == expected[0]
    for one, other in zip(found[1], expected[1], strict=True):
        assert_array_equal(one, other)
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None)


SHORT = {  # the other programs run at length
    "rows and their prior",
    "beside a large array",
    "beside placed items",
}


@in_short("name", PROGRAMS, *SHORT)
def test_items_of_variables_make_no_tasks_and_the_same_bits(name, client):
    program, p = PROGRAMS[name], given(name)
    expected = in_one_thread(program, p)
    assert_same(everything(program, p), expected)
    before = tasks_run(client)
    for _ in range(2):
        assert_same(everything(program, p), expected)
    assert tasks_run(client) == before
    with dask.config.set({"daskgrad.resident.enabled": False}):
        assert_same(everything(program, p), expected)
    assert tasks_run(client) > before


@in_short("name", TASKS, *list(TASKS)[:1])
def test_other_sums_over_variables_are_evaluated_by_a_graph(name, client):
    before = tasks_run(client)
    assert_same(everything(TASKS[name], ROWS), in_one_thread(TASKS[name], ROWS))
    assert tasks_run(client) > before


@in_short("name", ["rows", "items of a list", "beside a list", "slices"], "rows")
def test_second_derivatives_tangents_and_pullbacks(name, client):
    p, program = given(name), PROGRAMS[name]

    def derivatives():
        value, pullback = dg.vjp(program, p, X)
        pushed = dg.jvp(program, (p, X), (p, X)), dg.hvp(program, (p, X), (p, X))
        return flatten((value, pullback(1.5), pushed))[0]

    with dask.config.set({"scheduler": "sync"}):
        expected = derivatives()
    for one, other in zip(derivatives(), expected, strict=True):
        assert_array_equal(one, other)


def test_arrays_in_the_place_of_numbers_are_the_error_that_a_graph_raises(client):
    gradient = dg.grad(lambda p, x: dg.map_sum(wave, p, x), (0, 1))
    with pytest.raises(TypeError, match="a gradient needs one real number"):
        gradient(ROWS, X)


def test_an_error_names_the_item(client):
    def fails(row, x):
        if float(dg.value(row[0])) == ROWS[57, 0]:
            raise ArithmeticError("no")
        return np.sum(row * x)

    with pytest.raises(ArithmeticError) as raised:
        dg.grad(lambda p: dg.map_sum(fails, p, X))(ROWS)
    assert "item 57" in " ".join(raised.value.__notes__)


# -------------------------------------------------------------------------------- what is sent


def watch(client):
    """Makes the workers keep what they are sent: lists, as they come."""
    name = connection_of(client).name

    def wrap(dask_worker):
        handler = dask_worker.handlers[name]
        dask_worker.seen = []

        async def evaluate(call, work, point, parcels=(), rows=()):
            rows = dict(rows)
            dask_worker.seen.append((dict(parcels), rows, len(work), point))
            return await handler(call, work, point, dict(parcels), rows)

        dask_worker.handlers[name] = evaluate

    client.run(wrap)


def seen(client, what):
    """What a function makes of what the workers have been sent since they were asked last."""

    def take(dask_worker):
        found, dask_worker.seen = dask_worker.seen, []
        return [what(dask_worker.address, *each) for each in found]

    return client.run(take)


def nbytes(frames):
    return sum(map(len, frames))


def test_a_worker_is_sent_its_own_rows_alone(client):
    p = GENERATOR.standard_normal((64, 2000))
    gradient = dg.value_and_grad(lambda p, x: dg.map_sum(effect, p, x), (0, 1))
    gradient(p[:, :4], X)  # the plugin is there
    watch(client)
    gradient(p[:, :1], X)
    found = seen(client, lambda own, parcels, rows, work, point: (own, list(rows)))
    assert len(found) == 2
    assert all(calls == [(own, [own])] for own, calls in found.items())
    dg.value_and_grad(lambda p: dg.map_sum(alone, p))(p)
    found = seen(client, lambda own, parcels, rows, work, point: (rows, point))
    sent = [nbytes(frames) for ((rows, _),) in found.values() for frames in rows.values()]
    assert len(sent) == 2
    assert p.nbytes <= sum(sent) < 1.01 * p.nbytes, "each row once"
    assert all(nbytes(point) < 100 for ((_, point),) in found.values())


def test_rows_beside_placed_items_go_to_those_who_hold_the_items(client):
    with dg.place(ROWS) as shards:
        gradient = dg.grad(lambda p: dg.map_sum(weighted, dg.zip(shards, p), X))
        gradient(WIDE)
        watch(client)
        gradient(WIDE + 1.0)
        found = seen(client, lambda own, parcels, rows, work, point: (rows, point))
        sent = [nbytes(frames) for ((rows, _),) in found.values() for frames in rows.values()]
        assert len(sent) == 2
        assert WIDE.nbytes <= sum(sent) < 1.01 * WIDE.nbytes


def test_large_columns_that_stay_the_same_are_sent_once(client, monkeypatch):
    monkeypatch.setattr(balance, "rebalancing", lambda *args: None)
    gradient = dg.value_and_grad(PROGRAMS["beside a large array"], (0, 1))
    gradient(ROWS, X)
    watch(client)
    for number in range(3):
        gradient(ROWS + number, X)
    found = seen(client, lambda own, parcels, rows, work, point: (len(parcels), rows[own]))
    for calls in found.values():
        for parcels, rows in calls:
            assert parcels == 0
            assert nbytes(rows) < 0.1 * WIDE.nbytes


def test_a_worker_that_forgot_is_sent_its_rows_again(client):
    program = PROGRAMS["beside a large array"]
    expected = in_one_thread(program, ROWS)
    assert_same(everything(program, ROWS), expected)
    name = connection_of(client).name
    client.run(lambda dask_worker: dask_worker.plugins[name]._parcels._kept.clear())
    assert_same(everything(program, ROWS), expected)


# ------------------------------------------------------------------- blocks move, workers die


def test_blocks_that_move_take_their_rows_along(client, monkeypatch):
    """Also where a worker has several runs of them, with gaps."""
    program = PROGRAMS["beside a large array"]
    expected = in_one_thread(program, ROWS)
    assert_same(everything(program, ROWS), expected)
    first, second = sorted(client.ncores())
    wanted = iter([[second, first], [first, first, second], [second], [first, second, second]])

    def rebalancing(costs, holders, workers, measured):
        pattern = next(wanted, [first])
        return [pattern[number % len(pattern)] for number in range(len(holders))]

    monkeypatch.setattr(balance, "rebalancing", rebalancing)
    for _ in range(20):
        assert_same(everything(program, ROWS), expected)
    assert next(wanted, None) is None, "else nothing has moved"


def test_a_slow_worker_gets_fewer_blocks():
    spread = Spread([1] * 64)
    spread.settle({"slow": 1, "quick": 1})
    assert spread.asked()["slow"].runs == [(0, 32, 0)]
    seconds = {"slow": 0.005, "quick": 0.001}
    for _ in range(8):
        spread.is_measured_now()
        asked = spread.asked().items()
        times = {a: (of.numbers, [seconds[a]] * len(of.numbers)) for a, of in asked}
        spread.record_times(times)
    few, many = [len(of.numbers) for of in spread.asked().values()]
    assert few + many == 64
    assert many > 2 * few
    spread.settle({"quick": 1})
    assert spread.asked()["quick"].runs == [(0, 64, 0)]


def test_slow_calls_move_no_blocks_for_good():
    """Two blocks on each of two workers: the one that has been slow by chance would keep one."""
    spread = Spread([1] * 4)
    spread.settle({"a": 1, "b": 1})
    for call in range(1, 65):
        slow = {"a": 10.0 if call in (2, 4, 6, 8, 16, 32) else 1.0, "b": 1.0}
        if spread.is_measured_now():
            asked = spread.asked().items()
            times = {a: (of.numbers, [2e-3 * slow[a]] * len(of.numbers)) for a, of in asked}
            spread.record_times(times)
        if call >= 4:
            assert [len(of.numbers) for of in spread.asked().values()] == [2, 2], call


def test_runs_of_blocks_end_where_others_lie_between_or_they_came_by_another_move():
    assert list(split_into_runs([], [])) == []
    assert list(split_into_runs([3], [0])) == [(3, 4, 0)]
    assert list(split_into_runs([0, 1, 2, 5, 6, 7], [0, 0, 1, 1, 1, 0])) == [
        (0, 2, 0),
        (2, 3, 1),
        (5, 7, 1),
        (7, 8, 0),
    ]


@pytest.mark.long
def test_workers_killed_between_and_in_calls_cost_only_time(tmp_path, frail):
    path = tmp_path / "log"
    path.touch()
    expected = in_one_thread(PROGRAMS["rows"], ROWS)

    def slow(row, x):
        if float(dg.value(row[0])) == ROWS[30, 0]:
            write(path, f"term {os.getpid()}")
            time.sleep(0.3)
        return effect(row, x)

    assert_same(everything(PROGRAMS["rows"], ROWS), expected)
    kill(frail, next(iter(frail.ncores())))
    assert_same(everything(PROGRAMS["rows"], ROWS), expected)
    frail.wait_for_workers(2, timeout=60)
    killer = kill_when(path, "term", 0.05)
    found = everything(lambda p, x: dg.map_sum(slow, p, x), ROWS)
    killer.join()
    assert_same(found, expected)


@in_short("count", [1, 3, 5], 3)
def test_rows_are_passed_on_with_a_large_point(count):
    def program(p, x):
        return dg.map_sum(lambda row, x: np.sum(np.sin(x) * row[0]) + row[1] * x[7], p, x)

    def found():
        value, gradients = dg.value_and_grad(program, (0, 1))(ROWS, BIG)
        return value, list(gradients)

    with dask.config.set({"scheduler": "sync"}):
        expected = found()
    with cluster(n_workers=count, processes=False, host=None):
        for _ in range(3):
            assert_same(found(), expected)


def test_several_sums_of_one_model_are_told_apart_by_their_blocks(client):
    """And what is remembered of them does not grow."""
    for count in (3, 40, 75):
        assert_same(
            everything(PROGRAMS["rows"], ROWS[:count]),
            in_one_thread(PROGRAMS["rows"], ROWS[:count]),
        )
    spreads = connection_of(client)._spreads
    assert len({spread.count for spread in spreads.values()}) >= 3


def test_rows_frames_are_those_of_the_columns():
    kept = WorkerItems([None], [], ((0, "digest"),))
    frames = pack_rows([{"a": WorkerItems([[ROWS]], [], ())}, {"b": kept}])
    (fields, drawn), (others, _) = unpack(frames["a"])
    assert_array_equal(fields[0][0], ROWS)
    assert not drawn
    assert not others
    assert unpack(frames["b"])[1] == ([None], [])


def test_a_spread_that_was_interrupted_settles_again(monkeypatch):
    """So that no call goes to nobody."""
    spread = Spread([1] * 8)
    spread.settle({"a": 1})
    give, interrupts = Spread._give, [KeyboardInterrupt]

    def interrupted(self, address, numbers):
        if interrupts:
            raise interrupts.pop()
        give(self, address, numbers)

    monkeypatch.setattr(Spread, "_give", interrupted)
    with pytest.raises(KeyboardInterrupt):
        spread.settle({"b": 1})
    assert spread.workers != {"b": 1}  # by which a call tells whether to settle
    spread.settle({"b": 1})
    assert set(spread.asked()) == {"b"}
