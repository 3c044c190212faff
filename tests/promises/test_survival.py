"""Whatever happens to workers, in either pass or between, the bits are those of a quiet run."""

import random
from concurrent.futures import ThreadPoolExecutor

import autograd.numpy as np
import dask
import numpy
import pytest
from clusters import client_of, cluster, whole_again
from distributed import Future
from lengths import in_short
from numpy.testing import assert_array_equal
from survivors import (
    DERIVATIVE,
    EVENTS,
    FETCH,
    FORWARD,
    GENTLE,
    ITEMS,
    PROGRAMS,
    ROUND,
    V,
    Watch,
    X,
    happens,
    report_to,
    same_bits,
    undisturbed,
    vector,
    vector_sum,
)
from waiting import wait_until

import daskgrad as dg
from daskgrad.autodiff.models.determinism import NondeterministicModelError

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore"),  # Dask's words about workers that are lost
]


@pytest.fixture(scope="module", autouse=True)
def taped():
    """A compiled model leaves reports out."""
    with dask.config.set({"daskgrad.compile": False}):
        yield


@pytest.fixture(scope="module")
def frail(frail_cluster):
    """One client for all tests, which see to it themselves that the cluster is whole."""
    with client_of(frail_cluster) as client:
        yield client


@pytest.fixture
def threads():
    """Workers in this process, for what kills none."""
    with cluster(processes=False, host=None) as client:
        yield client


# ------------------------------------------------------------------------------------ losses

LOSSES = [  # all events in programs of tasks, over items and that learn; all at each moment
    ("graph", "cluster restarted", DERIVATIVE),
    ("loop", "one killed", DERIVATIVE),
    ("domain", "all killed", FORWARD),
    ("vjp of a graph", "one killed", ROUND),
    ("vjp of a graph", "restarted", DERIVATIVE),
    ("hvp of a graph", "new worker", DERIVATIVE),
    ("jvp of a graph", "retired", FORWARD),
    ("hvp of a loop", "paused", DERIVATIVE),
    ("vjp of a graph", "stopped", DERIVATIVE),
    ("nodes", "one killed", ROUND),
    ("placed", "all killed", DERIVATIVE),
    ("vjp over placed items", "cluster restarted", ROUND),
    ("sent", "one killed", FORWARD),
    ("zip", "restarted", FORWARD),
    ("each item", "new worker", FORWARD),
    ("samples", "retired", DERIVATIVE),
    ("columns", "paused", ROUND),
    ("columns", "stopped", FORWARD),
    ("attached", "one killed", DERIVATIVE),
    ("attached", "all killed", ROUND),
    ("attached", "one killed", FETCH),
    ("attached", "new worker", ROUND),
    ("attached", "restarted", ROUND),
    ("replicas", "restarted", ROUND),
    ("replicas", "paused", FORWARD),
    ("rows", "cluster restarted", FORWARD),
    ("rows", "retired", ROUND),
]


@pytest.mark.parametrize(("program", "event", "moment"), LOSSES)
def test_what_happens_to_workers_costs_only_time(program, event, moment, request, tmp_path):
    client = request.getfixturevalue("threads" if event in GENTLE else "frail")
    assert survives(client, tmp_path / "gate", program, event, moment, part=0.6)


@pytest.mark.long
@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_whatever_happens_costs_only_time(program, event, frail, tmp_path):
    for moment in undisturbed(program)[1]:
        assert survives(frail, tmp_path / moment, program, event, moment, part=0.6)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_at_any_moment_costs_only_time(seed, frail, tmp_path):
    chance = random.Random(seed)
    program, event = chance.choice([*PROGRAMS]), chance.choice([*EVENTS])
    moment = chance.choice([*undisturbed(program)[1]])
    survives(frail, tmp_path / "gate", program, event, moment, part=chance.random())


def survives(client, path, program, event, moment, part):
    """Lets an event happen when a part of a program's reports has come; whether so many came."""
    expected, counts = undisturbed(program)
    watch = Watch(path, moment, max(1, int(part * counts[moment])))
    whole_again(client)
    client.run(report_to, watch)
    report_to(watch)
    with ThreadPoolExecutor(1) as pool:
        try:
            result = pool.submit(PROGRAMS[program])
            happens(client, event, watch, result, is_over=program == "nodes")
        finally:
            watch.gate.open()
            report_to(None)
        assert same_bits(result.result(), expected)
    return bool(watch.gate.arrived())


def test_bits_are_told_apart():
    value, gradient = undisturbed("graph")[0][0]
    assert same_bits((value, gradient), (value, gradient.copy()))
    assert not same_bits((value, gradient), (value, gradient * (1.0 + 1e-15)))
    assert not same_bits(value, gradient)


# ---------------------------------------------------------------------------- held pullbacks


@in_short("program", ["vjp of a graph", "vjp over placed items"], "vjp over placed items")
def test_a_pullback_outlives_its_client(program):
    """It is pulled back on another cluster, on none, and where it is back on the first one."""
    expected = undisturbed(program)[0][1][0]
    threads = {"processes": False, "host": None, "n_workers": 1}
    with cluster(**threads) as first:
        items = dg.place(ITEMS)
        _, pullback = dg.vjp(lambda x: PULLED[program](items, x), X)
        with cluster(**threads):
            assert_array_equal(pullback(V)[0], expected)
        with first.as_current():
            assert_array_equal(pullback(V)[0], expected)
    assert_array_equal(pullback(V)[0], expected)
    with dask.config.set(scheduler="threads"):
        assert_array_equal(pullback(V)[0], expected)


PULLED = {"vjp of a graph": vector, "vjp over placed items": vector_sum}


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
    with cluster(processes=False, host=None, n_workers=1) as client:
        _, pullback = dg.vjp(lambda x: vector(None, x), X)
        client.cluster.scale(0)
        wait_until(lambda: not client.ncores())
        with (
            dask.config.set({"daskgrad.wait.workers": 0.1}),
            pytest.raises(TimeoutError, match=r"no task could run.*has no worker"),
        ):
            pullback(V)
        client.cluster.scale(1)
        assert_array_equal(pullback(V)[0], undisturbed("vjp of a graph")[0][1][0])


def test_tasks_that_somebody_cancels_are_an_error_that_says_so(threads, tmp_path):
    """Not values: Dask's scheduler stumbles where what depends on a key is wanted by nobody."""
    watch = Watch(tmp_path / "gate", DERIVATIVE, 1)
    report_to(watch)
    with ThreadPoolExecutor(1) as pool:
        try:
            result = pool.submit(PROGRAMS["graph"])
            watch.gate.wait_for(1)
            last = [key for key in threads.futures if key[0].startswith(("backward", "cotangent"))]
            threads.cancel([Future(key, threads) for key in last])
        finally:
            watch.gate.open()
            report_to(None)
        with pytest.raises(RuntimeError, match=r"could not be computed at .*somebody cancelled it"):
            result.result()
