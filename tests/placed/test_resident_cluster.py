"""Resident sums on clusters whose workers join, leave, are slow, idle or many.

Losses in calls are in ``promises/test_survival.py``.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import autograd.numpy as np
import dask
import numpy
import pytest
from clusters import allowed_failures, cluster, whole_again
from distributed import Client
from lengths import in_short
from numpy.testing import assert_array_equal
from probes import lines, write
from waiting import wait_until

import daskgrad as dg
from daskgrad.autodiff.values import clock as package_clock
from daskgrad.placed import connection, spread
from daskgrad.placed.attached import Attachment
from daskgrad.placed.connection import LINGER

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore:.*lost.*:UserWarning"),
]

X = numpy.linspace(-1.0, 1.0, 5)
ITEMS = [numpy.linspace(0.0, 1.0, 5) + number for number in range(64)]
IN_PROCESS = {"processes": False, "host": None}


def term(item, x):
    return np.sum(np.sin(item * x))


def expected(x=X, model=term, items=ITEMS):
    with dask.config.set(scheduler="sync"):
        return dg.value_and_grad(lambda x: dg.map_sum(model, items, x))(x)


def assert_right(found, x=X, **kwargs):
    value, gradient = expected(x, **kwargs)
    assert found[0] == value
    assert_array_equal(found[1], gradient)


def placed(model=term, items=ITEMS):
    shards = dg.place(items)
    return shards, dg.value_and_grad(lambda x: dg.map_sum(model, shards, x))


def holders(shards):
    return {plan.worker: plan.items for plan in shards.plan}


# ------------------------------------------------------------------- workers come and go


def test_a_model_that_kills_its_worker_is_an_error_that_names_it(frail):
    def deadly(item, x):
        if item[0] == 5.0:
            os.kill(os.getpid(), signal.SIGKILL)
        return term(item, x)

    shards = dg.place(ITEMS)
    with (
        allowed_failures(frail, 1),
        pytest.raises(
            RuntimeError,
            match=r"2 workers died while they evaluated.*'deadly'.* items among 5 to 5,",
        ),
    ):
        dg.grad(lambda x: dg.map_sum(deadly, shards, x))(X)
    frail.wait_for_workers(2, timeout=60)
    assert_right(dg.value_and_grad(lambda x: dg.map_sum(term, shards, x))(X))


def runs_of(path):
    return Counter(lines(path))


def kills_once(tmp_path, deadly):
    """A model that writes down its items, and of which some kill their workers the first time."""

    def model(item, x):
        name = str(int(dg.value(item)[0]))
        if name in deadly and name not in lines(tmp_path / "killed"):
            write(tmp_path / "killed", name)
            write(tmp_path / "dead", str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        write(tmp_path / "runs", name)
        write(tmp_path / "where", f"{name} {os.getpid()}")
        return term(item, x)

    (tmp_path / "killed").touch()
    return model


def own_and_item(model):
    return lambda pair, x: model(pair[1], x) + np.sum(pair[0] * x)


OWN = numpy.stack(ITEMS) / 64.0
KINDS = ["placed", "attached", "sample", "each item"]


def evaluated(kind, model, x=X):
    """The values of a sum's derivatives, by some way of placing its items."""
    shards = ITEMS if dask.config.get("scheduler", None) == "sync" else dg.place(ITEMS)
    if kind == "placed":
        return dg.value_and_grad(lambda x: dg.map_sum(model, shards, x))(x)
    if kind == "each item":
        return dg.per_item(model, shards)(x)
    if kind == "sample":
        batch = ITEMS if shards is ITEMS else shards.sample(len(ITEMS), seed=1)
        return dg.value_and_grad(lambda x: dg.map_sum(model, batch, x))(x)
    both = own_and_item(model)
    gradient = dg.value_and_grad(lambda x, z: dg.map_sum(both, dg.zip(z, shards), x), (0, 1))
    value, (slope, own) = gradient(x, OWN if shards is ITEMS else shards.attach(OWN))
    return value, slope, numpy.asarray(own)


def assert_as_in_one_thread(found, kind):
    with dask.config.set(scheduler="sync"):
        expected = evaluated(kind, term)
    for left, right in zip(found, expected, strict=True):
        assert_array_equal(left, right)


# Items in one block, or task, die of each other.
DEADLY = [("placed", 1), ("attached", 1), ("sample", 1), ("list", 13), ("rows", 13)]


@in_short(("where", "apart"), DEADLY, DEADLY[1])
def test_more_workers_may_die_in_a_call_than_of_one_block(where, apart, frail, tmp_path):
    """Each kills one, so no block has killed many, though others waited there."""
    whole_again(frail)
    model = kills_once(tmp_path, [str(apart * number) for number in range(5)])
    with allowed_failures(frail, 3):
        if where in KINDS:
            found = evaluated(where, model)
        elif where == "rows":
            rows = numpy.stack(ITEMS)
            both = dg.value_and_grad(lambda rows, x: dg.map_sum(model, rows, x), (0, 1))
            value, (_, slope) = both(rows, X)
            found = value, slope
        else:
            found = dg.value_and_grad(lambda x: dg.map_sum(model, ITEMS, x))(X)
    assert_as_in_one_thread(found, where if where in KINDS else "placed")
    assert len(lines(tmp_path / "killed")) == 5


def test_a_worker_of_whose_death_the_scheduler_learns_late_dies_once(monkeypatch, frail, tmp_path):
    """It is asked once more, where that is between two questions of the client."""
    whole_again(frail)
    known, is_late = {}, [True]

    def late(ask):
        def assigned(client):
            if not lines(tmp_path / "killed"):
                known.update(ask(client))
            elif is_late:
                is_late.clear()
                return {**known}
            else:
                wait_until(lambda: {*known} - {*ask(client)})
            return ask(client)

        return assigned

    for name in ("workers_of", "present_workers"):
        monkeypatch.setattr(connection, name, late(getattr(connection, name)))
    model = kills_once(tmp_path, ["3"])
    gradient = dg.value_and_grad(lambda rows, x: dg.map_sum(model, rows, x), (0, 1))
    with allowed_failures(frail, 1):
        value, (_, slope) = gradient(numpy.stack(ITEMS), X)
    assert_right((value, slope))
    assert not is_late


@pytest.mark.parametrize("kind", KINDS)
def test_what_other_workers_have_evaluated_stays_when_one_dies(kind, frail, tmp_path, gate):
    """No item is evaluated twice by workers that live."""
    whole_again(frail)
    written = kills_once(tmp_path, ["40"])

    def model(item, x):
        if dg.value(item)[0] in (16.0, 40.0) and not lines(tmp_path / "killed"):
            gate.wait()
        return written(item, x)

    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(evaluated, kind, model)
        gate.wait_for(2)
        gate.open()
        assert_as_in_one_thread(found.result(), kind)
    (dead,) = lines(tmp_path / "dead")
    runs = [run.split() for run in lines(tmp_path / "where")]
    by_the_living = Counter([name for name, worker in runs if worker != dead])
    assert by_the_living == dict.fromkeys(map(str, range(64)), 1)
    assert len(runs) > 64


def test_cotangents_that_a_worker_kept_before_it_died_in_a_later_attempt(
    monkeypatch, frail, tmp_path, gate
):
    """Other workers evaluate them again: the client could not."""
    whole_again(frail)
    monkeypatch.setattr(Attachment, "limit", -1)
    written = kills_once(tmp_path, ["40", "20"])

    def model(item, x):
        if dg.value(item)[0] == 17.0:
            gate.wait()
        return written(item, x)

    found = stopped_at(gate, frail, lambda: evaluated("attached", model))
    assert_as_in_one_thread(found, "attached")
    assert sorted(lines(tmp_path / "killed")) == ["20", "40"]


def stopped_at(gate, client, call):
    """The result of a call; one of its workers waits at a gate until it hears that it may stop."""

    def has_heard(dask_worker):
        return any(getattr(plugin, "_over", ()) for plugin in dask_worker.plugins.values())

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(call)
        gate.wait_for(1)
        wait_until(lambda: any(client.run(has_heard, on_error="ignore").values()))
        gate.open()
        return result.result()


def test_a_sample_whose_blocks_are_evaluated_in_part(frail, tmp_path, gate):
    """A worker stops between two subtrees of the drawn items, in the middle of a block."""
    whole_again(frail)
    batch = dg.place(ITEMS, 8).sample(48, seed=2)
    drawn = batch.indices.tolist()
    assert drawn[15] // 8 == drawn[16] // 8, "the end of the first subtree"
    written = kills_once(tmp_path, [str(drawn[40])])

    def model(item, x):
        if item[0] == drawn[2]:
            gate.wait()
        return written(item, x)

    def value_and_slope(model, batch):
        return dg.value_and_grad(lambda x: dg.map_sum(model, batch, x))(X)

    value, slope = stopped_at(gate, frail, lambda: value_and_slope(model, batch))
    (dead,) = lines(tmp_path / "dead")
    runs = [run.split() for run in lines(tmp_path / "where")]
    by_the_living = Counter([name for name, worker in runs if worker != dead])
    assert by_the_living == dict.fromkeys(map(str, drawn), 1)
    with dask.config.set(scheduler="sync"):
        expected = value_and_slope(term, batch)
    assert value == expected[0]
    assert_array_equal(slope, expected[1])


def test_what_workers_below_a_lost_one_or_above_it_have_evaluated(monkeypatch, frail, tmp_path):
    """A large point goes from worker to worker."""
    monkeypatch.setattr("daskgrad.placed.request.LARGE_POINT", 0)
    monkeypatch.setattr("daskgrad.placed.connection.LOOK_EVERY", -1.0)
    for number, deadly in enumerate(("3", "60")):
        whole_again(frail)
        (folder := tmp_path / str(number)).mkdir()
        _, gradient = placed(kills_once(folder, [deadly]))
        assert_right(gradient(X))
        assert lines(folder / "killed") == [deadly]
    runs = runs_of(folder / "runs")
    assert {runs[str(number)] for number in range(32)} == {1}, "of the one above"


@contextlib.contextmanager
def worker_without_nanny(client):
    """A worker that nobody kills when the scheduler gives it up; its process."""
    before = len(client.ncores())
    command = [sys.executable, "-m", "distributed.cli.dask_worker", client.scheduler.address]
    options = ["--no-nanny", "--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1"]
    paths = os.pathsep.join(filter(None, sys.path))  # where these tests can be imported, too
    with subprocess.Popen(
        [*command, *options], stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": paths}
    ) as process:
        try:
            client.wait_for_workers(before + 1, timeout=60)
            yield process
        finally:
            process.kill()


@pytest.mark.long
def test_a_silent_worker_that_the_scheduler_gave_up_is_not_waited_for():
    """A stopped process holds its connections open and answers nothing."""
    with (
        cluster({"distributed.scheduler.worker-ttl": "3s"}, n_workers=1) as client,
        worker_without_nanny(client) as process,
    ):
        shards, gradient = placed()
        gradient(X)
        assert len(holders(shards)) == 2
        os.kill(process.pid, signal.SIGSTOP)
        with ThreadPoolExecutor(1) as pool:
            placing = pool.submit(plan_of_direct_client, client.scheduler.address)
            found = gradient(X + 2.0)
            assert len(placing.result()) == 1
        assert_right(found, X + 2.0)


def test_items_on_a_new_worker_stay_there(frail, monkeypatch):
    """A call after the placing has not looked again which workers there are."""
    monkeypatch.setattr(connection, "LOOK_EVERY", numpy.inf)
    _, gradient = placed()
    gradient(X)
    with worker_without_nanny(frail):
        shards, gradient = placed()
        before = holders(shards)
        assert_right(gradient(X))
        assert holders(shards) == before
        assert len(before) == 3


def plan_of_direct_client(address):
    """Who holds items that were placed by a client that talks with the workers itself."""
    with Client(address, direct_to_workers=True, set_as_default=False) as client:
        with client.as_current():
            return holders(dg.place(ITEMS))


def test_blocks_that_somebody_cancelled_are_placed_again(client):
    shards, gradient = placed()
    gradient(X)
    keys = {future.key for future in shards.holdings.futures[5:9]}
    client.cancel(shards.holdings.futures[5:9], force=True)
    wait_until(lambda: not keys & {key for there in client.has_what().values() for key in there})
    assert_right(gradient(X))


def test_workers_that_join_get_their_share_and_those_that_leave_give_it_back(clock):
    with cluster(n_workers=1, **IN_PROCESS) as client:
        shards, gradient = placed()
        assert_right(gradient(X))
        client.cluster.scale(2)
        client.wait_for_workers(2, timeout=60)
        clock.move(2.0)  # then the connection looks which workers there are
        assert_right(gradient(X))
        assert [*holders(shards).values()] == [32, 32]
        client.retire_workers([next(iter(holders(shards)))], close_workers=True)
        assert_right(gradient(X))  # the retired worker may still answer, until it is closed
        wait_until(lambda: len(client.ncores()) == 1)
        clock.move(2.0)
        assert_right(gradient(X))
        assert holders(shards) == dict.fromkeys(client.ncores(), 64)


def test_a_cluster_without_workers_is_an_error(clock, monkeypatch):
    with cluster(n_workers=1, **IN_PROCESS) as client:
        _, gradient = placed()
        assert_right(gradient(X))
        client.cluster.scale(0)
        wait_until(lambda: not client.ncores())
        monkeypatch.setattr(package_clock, "seconds", lambda: clock.move(1.0) or clock.now)
        with pytest.raises(TimeoutError, match="no worker"):
            gradient(X)


# --------------------------------------------------------------------------------- even loads


class OwnClocks(threading.local):
    """A clock for each thread, which models move; a worker here has one thread."""

    now = 0.0
    threads = []  # noqa: RUF012

    def seconds(self):
        return self.now

    def move(self, seconds):
        self.now += float(seconds)  # events are sent

    def is_first(self):
        """Whether this is the first thread that asks."""
        name = threading.get_ident()
        self.threads[:] = self.threads or [name]
        return self.threads == [name]


clocks = OwnClocks()


@pytest.fixture
def two_clocks(monkeypatch):
    monkeypatch.setattr(package_clock, "seconds", clocks.seconds)
    clocks.threads.clear()
    with cluster(**IN_PROCESS):
        yield


def slow_in_one_thread(item, x):
    clocks.move(0.015 if clocks.is_first() else 0.003)
    return term(item, x)


def test_blocks_move_to_where_there_is_time(two_clocks):
    """One worker is five times slower: it ends up with far fewer items, and no bit changes."""
    shards, gradient = placed(slow_in_one_thread)
    for _ in range(9):
        found = gradient(X)
    assert_right(found)
    few, many = sorted(holders(shards).values())
    assert few + many == 64
    assert many > 3 * few


def as_slow_as_it_says(item, x):
    clocks.move(item[0])
    return term(item, x)


def test_uneven_items_are_spread_by_what_they_cost(two_clocks):
    items = [numpy.full(5, 0.012 if number < 16 else 0.001) for number in range(64)]
    shards = dg.place(items)
    assert sorted(holders(shards).values()) == [32, 32]
    gradient = dg.value_and_grad(lambda x: dg.map_sum(as_slow_as_it_says, shards, x))
    for _ in range(5):
        gradient(X)
    few, many = sorted(holders(shards).values())
    assert few <= 14
    seconds = [plan.seconds for plan in shards.plan]
    assert max(seconds) < 1.1 * min(seconds)
    text = repr(shards)
    assert "64 items, 64 blocks of 1" in text
    assert f"{many} items in {many} blocks" in text
    assert "s a call" in text


# ------------------------------------------------------------------------------ many workers


@in_short("count", [3, 5, 8], 5)
def test_partial_sums_are_merged_between_the_workers(count, monkeypatch):
    """A large point goes to one worker, which passes it on; one gradient comes back."""
    big = numpy.linspace(0.0, 1.0, 50_000)

    def wide(item, x):
        return np.sum(np.sin(x) * item[0]) + np.sum(item) * x[7]

    with cluster(n_workers=count, **IN_PROCESS):
        shards, gradient = placed(wide)
        right = expected(big, wide)
        received = count_calls(monkeypatch)
        for _ in range(3):
            value, found = gradient(big)
            assert value == right[0]
            assert_array_equal(found, right[1])
        assert received == [1, 1, 1]
        assert len(shards.plan) == count


def count_calls(monkeypatch):
    """How many replies each call of the client gets."""
    from daskgrad.placed import call

    received = []
    original = call.Attempt.results

    def results(self, deadline):
        found = original(self, deadline)
        received.append(len(found))
        return found

    monkeypatch.setattr(call.Attempt, "results", results)
    return received


def test_workers_do_not_try_to_reach_a_lost_one_below_them(monkeypatch):
    """It was lost after the client had looked which workers there are."""
    monkeypatch.setattr("daskgrad.placed.request.LARGE_POINT", 0)
    patient = {"distributed.comm.timeouts.connect": "1h", "daskgrad.wait.answers": "1h"}
    with cluster(n_workers=3, processes=False, protocol="tcp") as client, dask.config.set(patient):
        shards, gradient = placed()
        gradient(X)
        client.retire_workers([[*holders(shards)][-1]], close_workers=True)
        wait_until(lambda: len(client.ncores()) == 2)
        with ThreadPoolExecutor(1) as pool:
            result = pool.submit(gradient, X + 1.0)
            try:
                wait_until(result.done)
            finally:
                client.cluster.scale(0)  # ends a call that still waits
            assert_right(result.result(), X + 1.0)


# ------------------------------------------------------------------------- what is gone


def cut_off(client, monkeypatch):
    """The scheduler takes the plugins of a client that has left; it comes back."""
    monkeypatch.setattr(connection, "GRACE", 0.0)
    (name,) = [name for name in plugins_of(client) if name.startswith("daskgrad-")]
    client.loop.add_callback(client.scheduler_comm.comm.abort)
    wait_until(lambda: name not in plugins_of(client) and client.status == "running")


def plugins_of(client):
    scheduler = client.cluster.scheduler  # in this process
    return {*scheduler.plugins} | {*scheduler.worker_plugins}


def end_scheduler(client, monkeypatch):
    client.cluster.sync(client.cluster.scheduler.close)


@pytest.mark.parametrize("event", [cut_off, end_scheduler])
def test_shards_close_after_the_scheduler_has_gone(event, monkeypatch):
    def own_term(pair, x):
        return np.sum(np.sin(pair[1] * x)) * pair[0]

    patience = {"daskgrad.wait.answers": "0.1s", "distributed.comm.timeouts.connect": "1s"}
    with cluster({**patience}, n_workers=1, processes=False, protocol="tcp") as client:
        with dg.place(ITEMS) as shards:
            own = shards.attach(numpy.ones(64))
            gradient = dg.grad(lambda own: dg.map_sum(own_term, dg.zip(own, shards), X))
            optimiser = dg.optim.SGD(0.5)
            optimiser.update(own, gradient(own), optimiser.init(own))
            event(client, monkeypatch)
        slopes = [numpy.sum(numpy.sin(item * X)) for item in ITEMS]
        numpy.testing.assert_allclose(numpy.asarray(own), 1.0 - 0.5 * numpy.array(slopes))


# --------------------------------------------------------------------------- a sign of life


def test_dask_does_not_close_what_is_given_items(monkeypatch):
    """These workers have no tasks, and Dask may have started them for one that has ended."""
    may_be_closed, as_sent = [], spread.as_sent

    def closing(dask_scheduler):
        return dask_scheduler.workers_to_close(n=2, minimum=0)

    def sent(items, address):
        may_be_closed.append(address in client.run_on_scheduler(closing))
        return as_sent(items, address)

    monkeypatch.setattr(spread, "as_sent", sent)
    with cluster(**IN_PROCESS) as client:
        dg.place(ITEMS)
    assert may_be_closed == [False] * len(ITEMS)


def test_dask_does_not_close_what_evaluates(clock, gate):
    """The workers are called directly, of which the scheduler knows nothing."""

    def slow(item, x):
        gate.wait()
        return term(item, x)

    def may_be_closed(dask_scheduler):
        return len(dask_scheduler.workers_to_close(n=2, minimum=0))

    def become_idle(dask_scheduler):
        dask_scheduler.idle_since = 0.0

    def is_idle(dask_scheduler):
        return dask_scheduler.idle_since == 0.0

    with cluster(**IN_PROCESS) as client, ThreadPoolExecutor(1) as pool:
        shards, gradient = placed()
        clock.move(LINGER + 1.0)
        assert client.run_on_scheduler(may_be_closed) == 2
        assert_right(gradient(X))
        wait_until(lambda: client.run_on_scheduler(may_be_closed) == 0)
        clock.move(LINGER + 1.0)
        assert client.run_on_scheduler(may_be_closed) == 2
        long = pool.submit(dg.value_and_grad(lambda x: dg.map_sum(slow, shards, x)), X)
        gate.wait_for(2)
        for _ in range(2):
            clock.move(LINGER + 1.0)
            client.run_on_scheduler(become_idle)
            wait_until(lambda: not client.run_on_scheduler(is_idle))
            wait_until(lambda: client.run_on_scheduler(may_be_closed) == 0)
        gate.open()
        assert_right(long.result())


def test_a_cluster_that_adapts_grows_for_what_it_evaluates(two_clocks):
    """As for tasks of as many seconds, for a while, and for no more threads than blocks."""
    client = Client.current()

    def target(duration="1s"):
        return client.run_on_scheduler(
            lambda dask_scheduler: dask_scheduler.handlers["adaptive_target"](duration)
        )

    items = [numpy.full(5, 0.5) for _ in range(64)]
    _, gradient = placed(as_slow_as_it_says, items)
    assert target() <= 2
    gradient(X)
    wait_until(lambda: target() == 32)
    assert target("8s") == 4
    assert target("1ms") == 64
    client.cluster.loop.add_callback(clocks.move, LINGER + 1.0)
    wait_until(lambda: target() <= 2)


# ------------------------------------------------------------------------------------- memory


def memory(client):
    def rss():
        import psutil

        return psutil.Process().memory_info().rss

    on_scheduler = client.run_on_scheduler(rss)
    return [rss(), on_scheduler, *client.run(rss).values()]


def test_calls_in_a_row_leave_nothing_behind(client):
    """60 calls with a point of 800 kB, each with a constant of its own: 48 MB if any stayed."""
    shards = dg.place(ITEMS[:4])
    big = numpy.linspace(0.0, 1.0, 100_000)

    def wide(item, x, scale):
        return np.sum(np.sin(x) * item[0]) * scale

    def call(number):
        dg.value_and_grad(lambda x: dg.map_sum(wide, shards, x, 1.0 + number))(big)

    for number in range(30):
        call(number)
    before = memory(client)
    for number in range(30, 90):
        call(number)
    after = memory(client)
    for was, is_now in zip(before, after, strict=True):
        assert is_now - was < 16e6, (before, after)
