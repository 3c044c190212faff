"""What goes to the workers: the point once, rows to those who need them, large values once."""

import pytest
from comparisons import assert_same
from placed_programs import (
    BIG,
    GENERATOR,
    PROGRAMS,
    RAGGED,
    ROWS,
    WIDE,
    X,
    alone,
    dot,
    everything,
    in_one_thread,
    keeping,
    ragged,
    weighted,
)

import daskgrad as dg
from daskgrad.placed import spread as balance
from daskgrad.placed.connection import connection_of
from daskgrad.placed.spread import Spread

pytestmark = pytest.mark.timeout(120)


def watch(client):
    """Makes the workers keep what they are sent: lists, as they come."""
    name = connection_of(client).name

    def wrap(dask_worker):
        handler = dask_worker.handlers[name]
        dask_worker.seen = []

        async def evaluate(call, work, sent, **others):
            sent = {address: dict(entries) for address, entries in sent.items()}
            of_all = dict(sent[""])
            rows = {address: each["rows"] for address, each in sent.items() if "rows" in each}
            point = of_all.pop("point")
            dask_worker.seen.append((of_all, rows, work, point))
            return await handler(call, work, sent, **others)

        dask_worker.handlers[name] = evaluate

    client.run(wrap)


def seen(client, what):
    """By worker, what a function makes of each message since the workers were watched or asked."""

    def take(dask_worker):
        messages, dask_worker.seen = dask_worker.seen, []
        return [what(dask_worker.address, *message) for message in messages]

    return client.run(take)


def nbytes(frames):
    return sum(map(len, frames))


def sizes_of_rows(messages):
    """The bytes of rows, message by message and receiver by receiver; each worker got one."""
    return [nbytes(frames) for ((rows, _),) in messages.values() for frames in rows.values()]


def test_the_point_goes_out_once_a_worker_and_what_stays_the_same_only_once(client):
    """Two sums and a large constant: one message a worker; the constant is in the first alone."""
    shards, others = dg.place(ROWS), dg.place(RAGGED)

    def objective(x):
        first = dg.map_sum(lambda row, x, big: dot(row, x) * big[1], shards, x, BIG)
        return first + dg.map_sum(ragged, others, x)

    def count(address, parcels, rows, work, point):
        import pickle

        return len(pickle.loads(work).jobs), len(parcels), sum(map(len, point)) < 1000

    gradient = dg.value_and_grad(objective)
    gradient(X)
    watch(client)
    for _ in range(3):
        gradient(X + 1.0)
    assert list(seen(client, count).values()) == [[(2, 0, True)] * 3] * 2


def test_a_worker_is_sent_its_own_rows_alone(client):
    p = GENERATOR.standard_normal((64, 2000))
    gradient = dg.value_and_grad(lambda p, x: dg.map_sum(dot, p, x), (0, 1))
    gradient(p[:, :4], X)  # the plugin is there
    watch(client)
    gradient(p[:, :1], X)
    addresses = seen(client, lambda address, parcels, rows, *_: (address, list(rows)))
    assert len(addresses) == 2
    assert all(calls == [(address, [address])] for address, calls in addresses.items())
    dg.value_and_grad(lambda p: dg.map_sum(alone, p))(p)
    messages = seen(client, lambda address, parcels, rows, *rest: (rows, rest[-1]))
    sent = sizes_of_rows(messages)
    assert len(sent) == 2
    assert p.nbytes <= sum(sent) < 1.01 * p.nbytes, "each row once"
    assert all(nbytes(point) < 100 for ((_, point),) in messages.values())


def test_rows_beside_placed_items_go_to_those_who_hold_the_items(client):
    with dg.place(ROWS) as shards:
        gradient = dg.grad(lambda p: dg.map_sum(weighted, dg.zip(shards, p), X))
        gradient(WIDE)
        watch(client)
        gradient(WIDE + 1.0)
        sent = sizes_of_rows(seen(client, lambda address, parcels, rows, *rest: (rows, rest[-1])))
        assert len(sent) == 2
        assert WIDE.nbytes <= sum(sent) < 1.01 * WIDE.nbytes


def test_large_columns_that_stay_the_same_are_sent_once(client, monkeypatch):
    monkeypatch.setattr(balance, "rebalancing", lambda *args: None)
    gradient = dg.value_and_grad(
        lambda p, x: PROGRAMS["rows beside a large array"](None, p, x), (0, 1)
    )
    gradient(ROWS, X)
    watch(client)
    for number in range(3):
        gradient(ROWS + number, X)
    messages = seen(
        client, lambda address, parcels, rows, work, point: (len(parcels), rows[address])
    )
    for calls in messages.values():
        assert len(calls) == 3
        for parcels, rows in calls:
            assert parcels == 0
            assert nbytes(rows) < 0.1 * WIDE.nbytes


# --------------------------------------------------------------------------------- blocks move


def test_blocks_that_move_take_their_rows_along(local, monkeypatch):
    """Also where a worker has several runs of them, with gaps."""
    name = "rows beside a large array"
    expected = in_one_thread(everything, name, keeping())
    assert_same(everything(name, None), expected)
    first, second = sorted(local.ncores())
    patterns = iter([[second, first], [first, first, second], [second], [first, second, second]])

    def rebalancing(costs, holders, workers, measured, uneven):
        pattern = next(patterns, [first])
        return [pattern[number % len(pattern)] for number in range(len(holders))]

    monkeypatch.setattr(balance, "rebalancing", rebalancing)
    for _ in range(20):
        assert_same(everything(name, None), expected)
    assert next(patterns, None) is None, "else nothing has moved"


def measure(spread, seconds):
    """A call of which each worker's blocks take so many seconds."""
    if spread.is_measured_now():
        blocks = spread.assigned().items()
        times = {a: (of.numbers, [seconds[a]] * len(of.numbers)) for a, of in blocks}
        spread.record_times(times)


def test_a_change_of_workers_moves_no_runs_of_others():
    spread = Spread([1] * 96)
    spread.settle({"a": 1, "b": 1, "c": 1})
    spread.settle({"a": 1, "c": 1})
    assert spread.work() == {"a": [*range(48)], "c": [*range(48, 96)]}
    spread.settle({"a": 1, "b": 1, "c": 1})
    assert {*range(32)} <= {*spread.work()["a"]}
    assert {*range(48, 80)} <= {*spread.work()["c"]}


def test_slow_calls_move_no_blocks_for_good():
    """Two blocks on each of two workers: the one that has been slow by chance would keep one."""
    spread = Spread([1] * 4)
    spread.settle({"a": 1, "b": 1})
    for call in range(1, 65):
        measure(spread, {"a": 2e-2 if call in (2, 4, 6, 8, 16, 32) else 2e-3, "b": 2e-3})
        if call >= 4:
            assert [len(of.numbers) for of in spread.assigned().values()] == [2, 2], call


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
    assert set(spread.assigned()) == {"b"}
