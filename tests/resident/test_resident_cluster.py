"""Resident sums on clusters that lose workers, gain them, are slow, idle or large."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import autograd.numpy as np
import dask
import numpy
import pytest
from clusters import allowed_failures, cluster, kill, kill_when
from distributed import Client, LocalCluster
from lengths import in_short
from numpy.testing import assert_array_equal
from probes import write
from waiting import wait_until

import daskgrad as dg

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore:.*lost.*:UserWarning"),
]

X = numpy.linspace(-1.0, 1.0, 5)
ITEMS = [numpy.linspace(0.0, 1.0, 5) + number for number in range(64)]


def term(item, x):
    return np.sum(np.sin(item * x))


def expected(x=X, model=term, items=ITEMS):
    with dask.config.set(scheduler="sync"):
        return dg.value_and_grad(lambda x: dg.map_sum(model, items, x))(x)


def assert_right(found, x=X, **kwargs):
    value, gradient = expected(x, **kwargs)
    assert found[0] == value
    assert_array_equal(found[1], gradient)


def any_lost(futures):
    return any([each.status != "finished" for each in futures])


def holders(shards):
    return {plan.worker: plan.items for plan in shards.plan}


# ------------------------------------------------------------------- workers die, come and go


def test_a_worker_killed_between_calls_costs_only_time(frail):
    shards = dg.place(ITEMS)
    gradient = dg.value_and_grad(lambda x: dg.map_sum(term, shards, x))
    assert_right(gradient(X))
    first, second = holders(shards)
    for victim in (first, second):
        kill(frail, victim)
        assert_right(gradient(X + 1.0), X + 1.0)
        frail.wait_for_workers(2, timeout=60)
        wait_until(lambda: gradient(X) and len(holders(shards)) == 2)
    assert set(holders(shards)) == set(frail.ncores()) != {first, second}
    assert min(holders(shards).values()) > 8


def test_a_node_is_computed_after_a_worker_was_killed(frail):
    with dg.place(ITEMS) as shards:
        nodes = [dg.map_sum(term, shards, X)]
        value = nodes[0].compute()
        nodes.append(dg.map_sum(term, shards, X))  # it has no graph yet
        for node in nodes:
            futures = shards.holdings.references()
            kill(frail, next(iter(holders(shards))))
            wait_until(partial(any_lost, futures))
            assert node.compute() == value == expected()[0]
            frail.wait_for_workers(2, timeout=60)


@in_short("after", [0.0, 0.1], 0.0)
def test_a_worker_killed_in_a_call_costs_only_time(after, tmp_path, frail):
    path = tmp_path / "log"
    path.touch()

    def slow(item, x):
        write(path, f"term {os.getpid()}")
        time.sleep(0.02)
        return term(item, x)

    shards = dg.place(ITEMS)
    gradient = dg.value_and_grad(lambda x: dg.map_sum(slow, shards, x))
    for _ in range(2):
        path.write_text("")
        killer = kill_when(path, "term", after)
        start = time.monotonic()
        found = gradient(X)
        assert time.monotonic() - start < 60
        killer.join()
        assert_right(found)
        frail.wait_for_workers(2, timeout=60)


def test_a_model_that_kills_its_worker_is_an_error_that_names_it(frail):
    def deadly(item, x):
        if item[0] == 5.0:
            os.kill(os.getpid(), signal.SIGKILL)
        return term(item, x)

    shards = dg.place(ITEMS)
    with (
        allowed_failures(frail, 1),
        pytest.raises(RuntimeError, match=r"2 workers died while they evaluated.*'deadly'"),
    ):
        dg.grad(lambda x: dg.map_sum(deadly, shards, x))(X)
    frail.wait_for_workers(2, timeout=60)
    assert_right(dg.value_and_grad(lambda x: dg.map_sum(term, shards, x))(X))


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
        shards = dg.place(ITEMS)
        gradient = dg.value_and_grad(lambda x: dg.map_sum(term, shards, x))
        gradient(X)
        assert len(holders(shards)) == 2
        os.kill(process.pid, signal.SIGSTOP)
        start = time.monotonic()
        with ThreadPoolExecutor(1) as pool:
            placing = pool.submit(plan_of_direct_client, client.scheduler.address)
            found = gradient(X + 2.0)
            assert len(placing.result()) == 1
        assert time.monotonic() - start < 60
        assert_right(found, X + 2.0)


def plan_of_direct_client(address):
    """Who holds items that were placed by a client that talks with the workers itself."""
    with Client(address, direct_to_workers=True, set_as_default=False) as client:
        with client.as_current():
            return holders(dg.place(ITEMS))


def test_blocks_that_somebody_cancelled_are_placed_again(client):
    shards = dg.place(ITEMS)
    gradient = dg.value_and_grad(lambda x: dg.map_sum(term, shards, x))
    gradient(X)
    client.cancel(shards.holdings.futures[5:9], force=True)
    wait_until(lambda: sum(map(len, client.has_what().values())) < len(shards.blocks))
    assert_right(gradient(X))


def test_workers_that_join_get_their_share_and_those_that_leave_give_it_back():
    with cluster(n_workers=1, processes=False, host=None) as client:
        shards = dg.place(ITEMS)
        gradient = dg.value_and_grad(lambda x: dg.map_sum(term, shards, x))
        assert_right(gradient(X))
        client.cluster.scale(2)
        client.wait_for_workers(2, timeout=60)
        wait_until(lambda: gradient(X) and len(holders(shards)) == 2)
        assert_right(gradient(X))
        wait_until(lambda: gradient(X) and min(holders(shards).values()) > 8)
        client.retire_workers([next(iter(holders(shards)))], close_workers=True)
        assert_right(gradient(X))  # the retired worker may still answer, until it is closed
        wait_until(lambda: gradient(X) and list(holders(shards).values()) == [64])
        assert_right(gradient(X))
        assert set(holders(shards)) == set(client.ncores())


@pytest.mark.long
def test_a_restarted_cluster_is_placed_on_again(frail):
    shards = dg.place(ITEMS)
    gradient = dg.value_and_grad(lambda x: dg.map_sum(term, shards, x))
    assert_right(gradient(X))
    frail.restart(timeout=60)
    assert_right(gradient(X))


def test_a_cluster_without_workers_is_an_error():
    in_process = {"processes": False, "host": None, "n_workers": 1}
    with cluster({"daskgrad.wait.workers": 1.0}, **in_process) as client:
        shards = dg.place(ITEMS)
        gradient = dg.value_and_grad(lambda x: dg.map_sum(term, shards, x))
        assert_right(gradient(X))
        client.cluster.scale(0)
        wait_until(lambda: not client.ncores())
        with pytest.raises(TimeoutError, match="no worker"):
            gradient(X)


@pytest.mark.long
def test_hundreds_of_calls_with_workers_dying_are_all_right(frail):
    shards = dg.place(ITEMS)
    gradient = dg.value_and_grad(lambda x: dg.map_sum(term, shards, x))
    right = [expected(X + 0.01 * number) for number in range(150)]
    for number in range(150):
        if number in (40, 90):
            pids = frail.run(os.getpid)
            os.kill(next(iter(pids.values())), signal.SIGKILL)
        value, found = gradient(X + 0.01 * number)
        assert value == right[number][0]
        assert_array_equal(found, right[number][1])


# --------------------------------------------------------------------------------- even loads


def test_blocks_move_to_where_there_is_time(client):
    """One worker is five times slower: it ends up with far fewer items, and no bit changes."""

    def uneven(item, x):
        time.sleep(0.015 if os.getpid() == slow else 0.003)
        return term(item, x)

    slow = min(client.run(os.getpid).values())
    shards = dg.place(ITEMS)
    gradient = dg.value_and_grad(lambda x: dg.map_sum(uneven, shards, x))
    for _ in range(9):
        found = gradient(X)
    assert_right(found)
    few, many = sorted(holders(shards).values())
    assert few + many == 64
    assert many > 2 * few


def test_uneven_items_are_spread_by_what_they_cost(client):
    items = [numpy.full(5, 0.012 if number < 16 else 0.0) for number in range(64)]

    def uneven(item, x):
        time.sleep(item[0])
        return term(item, x)

    shards = dg.place(items)
    assert sorted(holders(shards).values()) == [32, 32]
    gradient = dg.value_and_grad(lambda x: dg.map_sum(uneven, shards, x))
    for _ in range(5):
        gradient(X)
    few, many = sorted(holders(shards).values())
    assert few <= 14
    seconds = [plan.seconds for plan in shards.plan]
    assert max(seconds) < 1.5 * min(seconds)
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

    with cluster(n_workers=count, processes=False, host=None):
        shards = dg.place(ITEMS)
        gradient = dg.value_and_grad(lambda x: dg.map_sum(wide, shards, x))
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
    from daskgrad.resident import call

    received = []
    original = call.Attempt.results

    def results(self, deadline):
        found = original(self, deadline)
        received.append(len(found))
        return found

    monkeypatch.setattr(call.Attempt, "results", results)
    return received


# --------------------------------------------------------------------------- a sign of life


def short_lived():
    """A cluster that closes when it is idle for two seconds."""
    idle = {"distributed.scheduler.idle-timeout": "2s"}
    return cluster(idle, processes=False, host=None)


@pytest.mark.long
def test_an_idle_timeout_does_not_take_the_cluster_away_during_a_fit():
    """The workers are called directly, of which the scheduler knows nothing."""

    def slow(item, x):
        time.sleep(0.05)
        return term(item, x)

    with short_lived() as client:
        shards = dg.place(ITEMS[:2], grainsize=1)  # one block a worker: none is moved
        gradient = dg.value_and_grad(lambda x: dg.map_sum(slow, shards, x))
        long = dg.value_and_grad(lambda x: dg.map_sum(lambda i, x: slow(i, x * 1.0), shards, x))
        deadline = time.monotonic() + 4.0
        while time.monotonic() < deadline:
            assert gradient(X)[1].shape == (5,)
            long(X)
        assert client.status == "running"
        assert len(client.ncores()) == 2


@pytest.mark.long
def test_one_long_call_outlives_an_idle_timeout():
    def endless(item, x):
        time.sleep(2.0)
        return term(item, x)

    with short_lived():
        shards = dg.place(ITEMS[:6], grainsize=1)
        found = dg.value_and_grad(lambda x: dg.map_sum(endless, shards, x))(X)
    assert_right(found, items=ITEMS[:6])


def test_adaptive_scaling_leaves_the_workers_of_a_fit_alone():
    with cluster(processes=False, host=None) as client:
        shards = dg.place(ITEMS)
        gradient = dg.value_and_grad(lambda x: dg.map_sum(term, shards, x))
        gradient(X)
        before = set(client.ncores())
        client.cluster.adapt(minimum=0, maximum=2, interval="100ms", wait_count=2)
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            assert_right(gradient(X))
            time.sleep(0.05)
        assert set(client.ncores()) == before


# ------------------------------------------------------------------------------------- memory


def memory(client):
    def rss():
        import psutil

        return psutil.Process().memory_info().rss

    on_scheduler = client.run_on_scheduler(rss)
    return [rss(), on_scheduler, *client.run(rss).values()]


def test_calls_in_a_row_leave_nothing_behind(client):
    """100 calls with a point of 400 kB, each with a constant of its own: 40 MB if any stayed."""
    shards = dg.place(ITEMS[:4])
    big = numpy.linspace(0.0, 1.0, 50_000)

    def wide(item, x, scale):
        return np.sum(np.sin(x) * item[0]) * scale

    def call(number):
        dg.value_and_grad(lambda x: dg.map_sum(wide, shards, x, 1.0 + number))(big)

    for number in range(50):
        call(number)
    before = memory(client)
    for number in range(50, 150):
        call(number)
    after = memory(client)
    for was, is_now in zip(before, after, strict=True):
        assert is_now - was < 16e6, (before, after)


# ----------------------------------------------------------------------- in one process, too


def test_threads_of_one_process_as_workers():
    with LocalCluster(
        n_workers=2,
        threads_per_worker=2,
        processes=False,
        dashboard_address="127.0.0.1:0",
    ) as local:
        with Client(local):
            shards = dg.place(ITEMS)
            gradient = dg.value_and_grad(lambda x: dg.map_sum(term, shards, x))
            for _ in range(3):
                assert_right(gradient(X))
            assert {plan.threads for plan in shards.plan} == {2}
