"""Whatever happens to workers, in either pass or between, the bits are those of a quiet run."""

import random

import autograd.numpy as np
import dask
import numpy
import pytest
from clusters import client_of, cluster, whole_again
from distributed import Client
from lengths import in_short
from numpy.testing import assert_array_equal
from survivors import (
    ITEMS,
    PROGRAMS,
    V,
    X,
    happens,
    kill_all,
    kill_one,
    retire_one,
    same_bits,
    undisturbed,
    vector,
    vector_sum,
)
from waiting import wait_until

import daskgrad as dg
from daskgrad.models.determinism import NondeterministicModelError

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore"),  # Dask's words about workers that are lost
]


@pytest.fixture(scope="module")
def frail(frail_cluster):
    """One client for all tests, which see to it themselves that the cluster is whole."""
    with client_of(frail_cluster) as client:
        yield client


@pytest.fixture(scope="module")
def placed(frail):
    """Items that are placed once, and lost again and again."""
    return dg.place(ITEMS)


# ------------------------------------------------------------------------------- in either pass


@in_short("name", PROGRAMS, "hvp over placed items")
def test_a_worker_that_is_killed_costs_only_time(name, frail, placed):
    assert_survived(name, ["one killed"], frail, placed)


@in_short("name", ["graph", "placed", "zip", "attached", "loop", "domain", "vjp of a graph"], "zip")
def test_workers_that_are_all_killed_cost_only_time(name, frail, placed):
    assert_survived(name, ["all killed"], frail, placed)


@in_short(
    "name", ["graph", "placed", "attached", "loop", "domain", "vjp over placed items"], "placed"
)
def test_workers_that_leave_rest_and_join_cost_nothing(name, frail, placed):
    events = ["one retired", "one paused", "one joins", "one restarted"]
    assert_survived(name, events, frail, placed)


def assert_survived(name, events, client, items):
    whole_again(client)
    chance = random.Random(f"{name} {events}")
    happening = happens(client, events, chance, within=0.4)
    try:
        found = PROGRAMS[name](items)
    finally:
        happening.join()
    assert same_bits(found, undisturbed(name))


def test_bits_are_told_apart():
    value, gradient = undisturbed("graph")
    assert same_bits((value, gradient), (value, gradient.copy()))
    assert not same_bits((value, gradient), (value, gradient * (1.0 + 1e-15)))
    assert not same_bits(value, gradient)


# ---------------------------------------------------------------------------- held pullbacks


def restart(client, chance):
    client.restart(timeout=60)


EVENTS = (retire_one, kill_one, kill_all, restart)
TWO = (kill_one, restart)


@in_short(
    ("objective", "events"), [(vector, TWO), (vector, EVENTS), (vector_sum, EVENTS)], (vector, TWO)
)
def test_a_pullback_that_is_held_survives_its_workers(objective, events, frail):
    """And the cluster's restart; the value comes from the time before."""
    items, chance = dg.place(ITEMS), random.Random(0)
    value, pullback = dg.vjp(lambda x: objective(items, x), X)
    expected = quiet_gradient(objective)
    for event in events:
        whole_again(frail)
        event(frail, chance)
        assert_array_equal(pullback(V)[0], expected)
    many = pullback(numpy.stack([V, V]))[0]
    assert_array_equal(many, [expected, expected])
    assert same_bits(value, undisturbed(WITH[objective])[0])


WITH = {vector: "vjp of a graph", vector_sum: "vjp over placed items"}


def quiet_gradient(objective):
    """What the cotangent ``V`` is pulled back to."""
    return undisturbed(WITH[objective])[1]


@in_short("objective", [vector, vector_sum], vector_sum)
def test_a_pullback_outlives_its_client(objective):
    """It is pulled back on another cluster, on none, and where it is back on the first one."""
    expected = quiet_gradient(objective)
    threads = {"processes": False, "host": None, "n_workers": 1}
    with cluster(**threads) as first:
        items = dg.place(ITEMS)
        _, pullback = dg.vjp(lambda x: objective(items, x), X)
        with Client(processes=False, n_workers=1, dashboard_address=":0"):
            assert_array_equal(pullback(V)[0], expected)
        with first.as_current():
            assert_array_equal(pullback(V)[0], expected)
    assert_array_equal(pullback(V)[0], expected)
    with dask.config.set(scheduler="threads"):
        assert_array_equal(pullback(V)[0], expected)


def drawing(x):
    return x * np.sin(x) * numpy.random.default_rng().normal()


def seeded(x, generator):
    return x * np.sin(x) * generator.normal()


def test_a_forward_pass_that_runs_again_must_have_the_same_value(frail):
    """One that has not is an error at every call from then on, and no other gradient."""
    whole_again(frail)
    (generator,) = dg.random.generators(3, 1)
    kept, right = dg.vjp(lambda x: dg.delayed(seeded)(x, generator), X)
    _, wrong = dg.vjp(lambda x: dg.delayed(drawing)(x), X)
    before = right(V)[0]
    frail.restart(timeout=60)
    for _ in range(2):
        with pytest.raises(
            NondeterministicModelError, match="forward pass of 'drawing' is not deterministic"
        ):
            wrong(V)
    assert_array_equal(right(V)[0], before)
    assert_array_equal(dg.vjp(lambda x: dg.delayed(seeded)(x, generator), X)[0], kept)


def test_a_pullback_without_any_worker_is_an_error_that_says_so():
    with cluster({"daskgrad.wait.workers": 0.4}, processes=False, host=None, n_workers=1) as client:
        _, pullback = dg.vjp(lambda x: vector(None, x), X)
        client.cluster.scale(0)
        wait_until(lambda: not client.ncores())
        with pytest.raises(TimeoutError, match=r"no task could run.*has no worker"):
            pullback(V)
        client.cluster.scale(1)
        assert_array_equal(pullback(V)[0], quiet_gradient(vector))


def test_a_restart_in_the_middle_of_a_gradient_costs_only_time(frail):
    whole_again(frail)
    frail.loop.call_later(0.2, lambda: frail.loop.add_callback(frail.restart, timeout=60))
    assert same_bits(PROGRAMS["graph"](ITEMS), undisturbed("graph"))


def test_tasks_that_somebody_cancels_are_an_error_that_says_so(frail):
    whole_again(frail)

    before = set(frail.futures)

    def cancel_new():
        from distributed import Future

        # not the value: Dask's scheduler stumbles where what depends on a key is wanted by nobody
        last = ("backward", "cotangent")
        new = [key for key in frail.futures if key not in before and key[0].startswith(last)]
        if not new:
            frail.loop.call_later(0.02, cancel_new)
        else:
            frail.loop.add_callback(frail.cancel, [Future(key, frail) for key in new])

    frail.loop.add_callback(cancel_new)
    with pytest.raises(RuntimeError, match=r"could not be computed at tcp.*somebody cancelled it"):
        PROGRAMS["graph"](ITEMS)
