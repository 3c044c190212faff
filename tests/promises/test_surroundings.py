"""Derivatives asked for in odd places: in tasks, event loops, models, and where things have ended.

Each works, with the same bits, or is an error that says what to do; none hangs.
"""

import asyncio
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import autograd
import autograd.numpy as np
import dask
import numpy
import pytest
from clusters import cluster
from comparisons import bits
from distributed import Client, get_client, worker_client
from lengths import in_short
from numpy.testing import assert_allclose
from waiting import SLOW, wait_until

import daskgrad as dg
from daskgrad.tasks.clients import active_client

pytestmark = pytest.mark.timeout(90)

X = numpy.linspace(0.1, 1.0, 3)
ITEMS = [numpy.arange(3.0) + number for number in range(6)]


# ----------------------------------------------------------------------------- what is asked for


def wave(x):
    return np.sin(x)


def total(y):
    return np.sum(np.tanh(y))


def term(item, x):
    return np.sum(np.sin(item * x))


def graph(x):
    return dg.delayed(total)(dg.delayed(wave)(x))


def vector(x):
    return dg.delayed(wave)(x)


def held():
    value, pullback = dg.vjp(vector, X)
    return value, pullback(np.ones(3)), pullback(np.eye(3))


def placed():
    with dg.place(ITEMS) as shards:
        return dg.value_and_grad(lambda x: dg.map_sum(term, shards, x))(X)


def checked():
    dg.check_grads(graph)(X)
    return 1.0


ASKED = {
    "value_and_grad": lambda: dg.value_and_grad(graph)(X),
    "a held pullback": held,
    "jvp": lambda: dg.jvp(graph, (X,), (X,)),
    "hvp": lambda: dg.hvp(graph, (X,), (X,)),
    "jacobian": lambda: dg.jacobian(vector)(X),
    "per item": lambda: dg.per_item(term, ITEMS, gradient="full")(X),
    "a sum": lambda: dg.value_and_grad(lambda x: dg.map_sum(term, ITEMS, x))(X),
    "placed items": placed,
    "check_grads": checked,
}


QUICK = tuple([name for name in ASKED if name != "check_grads"])  # which evaluates very often


def everything(names=QUICK):
    """The bits of each result, or what the error says."""
    results = {}
    for name in names:
        try:
            results[name] = bits(ASKED[name]())
        except Exception as error:
            results[name] = "\n".join([repr(error), *getattr(error, "__notes__", [])])
    return results


@pytest.fixture(scope="module")
def expected():
    with dask.config.set(scheduler="sync"):
        results = everything(ASKED)
    assert not [error for error in results.values() if isinstance(error, str)]
    return results


def require(results, expected):
    """Those that there are, and all quick ones are there, are as expected."""
    assert set(results) >= set(QUICK)
    assert results == {name: expected[name] for name in results}


# ------------------------------------------------------------------------ in tasks of a cluster


def beside_worker_client(names):
    with worker_client():
        return everything(names)


def beside_get_client(names):
    with get_client().as_current():
        return everything(names)


@in_short("fun", [everything, beside_worker_client, beside_get_client], everything)
def test_inside_a_task_of_a_cluster(fun, client, expected):
    """The tasks that it waits for run on the same two threads."""
    assert client.submit(fun, tuple(ASKED), pure=False).result(timeout=60 * SLOW) == expected


FEW = ("value_and_grad", "a held pullback", "a sum", "placed items")


@in_short("names", [FEW, tuple(ASKED)], FEW)
def test_inside_as_many_tasks_as_there_are_threads(names, client, expected):
    futures = [client.submit(everything, names, pure=False) for _ in range(4)]
    assert client.gather(futures) == [{name: expected[name] for name in names}] * 4


def test_inside_a_delayed_function(every_scheduler, expected):
    for results in every_scheduler(lambda: dask.delayed(everything)().compute()).values():
        require(results, expected)


# ----------------------------------------------------------------------------- in an event loop


async def in_a_loop():
    return everything()


async def in_a_thread_of_a_loop():
    return await asyncio.to_thread(everything)


@pytest.mark.parametrize("main", [in_a_loop, in_a_thread_of_a_loop])
def test_in_a_running_event_loop(main, client, expected):
    """As in a notebook: its loop is in this thread, the client's is in another."""
    require(asyncio.run(main()), expected)


@pytest.mark.parametrize("name", ASKED)
def test_an_asynchronous_client_is_an_error(name, shared_cluster):
    async def main():
        async with Client(shared_cluster.scheduler_address, asynchronous=True):
            return everything([name])[name]

    said = asyncio.run(main())
    assert "asynchronous Client" in said
    assert "make a synchronous Client" in said or name == "check_grads"  # that is all of Dask's


# ----------------------------------------------------------------- schedulers, clients, threads


@pytest.mark.parametrize("scheduler", ["sync", "threads", "processes"])
def test_a_configured_scheduler_counts_beside_a_client(scheduler, client, pool, expected):
    with dask.config.set(scheduler=scheduler, pool=pool if scheduler == "processes" else None):
        require(everything(), expected)
    assert not client.futures


def test_in_a_thread_of_its_own(client, expected):
    """A client is the whole process's, unless a context says otherwise."""
    with ThreadPoolExecutor(1) as executor:
        require(executor.submit(everything).result(60 * SLOW), expected)


def sum_over(shards):
    return bits(dg.value_and_grad(lambda x: dg.map_sum(term, shards, x))(X))


def test_items_that_another_client_has_placed(client, shared_cluster, expected):
    _, pullback = dg.vjp(vector, X)
    shards = dg.place(ITEMS)
    with Client(shared_cluster):
        assert sum_over(shards) == expected["placed items"]
        assert bits(pullback(np.ones(3))) == bits(held()[1])
    with client.as_current():
        assert sum_over(shards) == expected["placed items"]


# ------------------------------------------------------------------------------ what has ended


@pytest.mark.parametrize("also_placed_on_another", [False, True])
def test_after_the_client_closed(also_placed_on_another, shared_cluster, expected):
    """Everything is then done in this process; the client has the items, and the graph."""
    with Client(shared_cluster):
        shards = dg.place(ITEMS)
        sum_over(shards)
        _, pullback = dg.vjp(vector, X)
    if also_placed_on_another:
        with Client(shared_cluster):
            assert sum_over(shards) == expected["placed items"]
            assert bits(pullback(np.ones(3))) == bits(held()[1])
    assert sum_over(shards) == expected["placed items"]
    assert bits(pullback(np.ones(3))) == bits(held()[1])
    require(everything(), expected)
    assert "6 items" in repr(shards), "the client has forgotten its scheduler's address"
    shards.close()


ENDED = r"clos|lost|reach"


CLOSING = {"distributed.comm.timeouts.connect": "2s"}


def test_after_the_cluster_closed_under_its_client():
    with cluster(CLOSING, processes=False, protocol="tcp://") as client:
        shards = dg.place(ITEMS)
        sum_over(shards)
        _, pullback = dg.vjp(vector, X)
        client.cluster.close()
        for ask in (
            ASKED["value_and_grad"],
            held,
            lambda: sum_over(shards),
            lambda: pullback(np.ones(3)),
        ):
            with pytest.raises((ConnectionError, RuntimeError, OSError), match=ENDED):
                ask()


LARGE = partial(np.dot, numpy.ones((2**12, 3)))  # a model that goes to a cluster apart


@pytest.mark.parametrize(
    ("send", "ask"),
    [
        ("get", ASKED["value_and_grad"]),
        ("get", held),
        ("submit", lambda: dg.vjp(dg.delayed(LARGE), X)),
    ],
)
def test_the_cluster_closes_as_a_graph_is_sent(send, ask, monkeypatch):
    sent = getattr(Client, send)

    def closing(client, *args, **kwargs):
        client.cluster.close()
        wait_until(lambda: client.status == "closed")
        return sent(client, *args, **kwargs)

    monkeypatch.setattr(Client, send, closing)
    with cluster(CLOSING, processes=False, protocol="tcp://"):
        with pytest.raises(ConnectionError, match="client is closed"):
            ask()


# --------------------------------------------------------------------------------- in a model


CONSTANT = [name for name in ASKED if name not in ("per item", "a sum")]


@in_short("name", CONSTANT, *[name for name in CONSTANT if name in QUICK])
@in_short("in_line", [0.0, 60.0], 0.0)
def test_inside_a_model_with_constants(name, in_line, every_scheduler, expected):
    """Derivatives of what does not depend on the model's arguments are constants."""

    def model(x):
        return np.sum(x) * (1.0 if bits(ASKED[name]()) == expected[name] else np.nan)

    with dask.config.set({"daskgrad.inline.seconds": in_line}):
        result = every_scheduler(lambda: bits(dg.value_and_grad(dg.delayed(model))(X)))
    assert all(entry == bits((np.sum(X), np.ones(3))) for entry in result.values())


def square(y):
    return np.sum(y * y * y)


def product(y, x):
    return np.sum(y * x * x)


ONES = numpy.ones(3)
OF_THE_ARGUMENT = {  # inside a model, of x: these would have to be derivatives of derivatives
    "grad": lambda x: np.sum(dg.grad(dg.delayed(square))(x)),
    "value": lambda x: dg.value_and_grad(dg.delayed(square))(x)[0],
    "vjp": lambda x: np.sum(dg.vjp(dg.delayed(square), x)[1](1.0)[0]),
    "cotangent": lambda x: np.sum(dg.vjp(vector, ONES)[1](x)[0]),
    "jvp": lambda x: dg.jvp(dg.delayed(square), (x,), (ONES,))[1],
    "tangent": lambda x: dg.jvp(dg.delayed(square), (ONES,), (x,))[1],
    "jacobian": lambda x: np.sum(dg.jacobian(lambda y: dg.delayed(product)(y, x))(ONES)),
    "argument": lambda x: np.sum(dg.grad(lambda y: dg.delayed(product)(y, x))(ONES)),
    "closure": lambda x: np.sum(dg.grad(dg.delayed(lambda y: product(y, x)))(ONES)),
    "shared": lambda x: np.sum(
        dg.grad(lambda y: dg.map_sum(lambda i, y, x: i * product(y, x), [1.0, 2.0], y, x))(ONES)
    ),
    "items": lambda x: np.sum(dg.grad(lambda y: dg.map_sum(product, [x * x, x], y))(ONES)),
}


@pytest.mark.parametrize("name", OF_THE_ARGUMENT)
@pytest.mark.parametrize("in_line", [0.0, 60.0])
def test_inside_a_model_of_its_own_arguments_is_an_error(name, in_line):
    """Never a number without the outer derivative."""
    with (
        dask.config.set({"scheduler": "sync", "daskgrad.inline.seconds": in_line}),
        pytest.raises(TypeError) as caught,
    ):
        dg.grad(dg.delayed(OF_THE_ARGUMENT[name]))(X)
    said = "\n".join([str(caught.value), *caught.value.__notes__])
    assert "autograd.grad, not dg.grad" in said
    assert "returned ArrayBox" not in said
    assert "is ArrayBox" not in said


def test_what_the_error_advises_works():
    outer = dg.delayed(lambda x: np.sum(autograd.grad(square)(x)))
    with dask.config.set(scheduler="sync"):
        assert_allclose(dg.grad(outer)(X), 6.0 * X)


def test_per_item_inside_a_model_is_an_error():
    model = dg.delayed(lambda x: np.sum(ASKED["per item"]()[0] * x))
    with dask.config.set(scheduler="sync"), pytest.raises(TypeError, match="inside a model"):
        dg.grad(model)(X)


# ------------------------------------------------------------------------- ends of processes


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_parents_client_in_a_forked_process_is_an_error_at_once(client):
    """Its event loop runs in a thread that the child has not: nobody would ever answer."""
    output, into = os.pipe()
    child = os.fork()
    if not child:
        try:
            active_client()
        except RuntimeError as error:
            os.write(into, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(into)
    with os.fdopen(output) as file:
        assert "was forked from one that has a distributed.Client" in file.read()
    assert active_client() is client


PROGRAM = """
import atexit, os, sys, warnings
warnings.simplefilter("ignore")
import dask
import test_surroundings as t
dask.config.set({"daskgrad.inline.seconds": float(sys.argv[1]), "scheduler": "sync"})
expected = t.everything()
with dask.config.set({"scheduler": "threads", "daskgrad.inline.seconds": 0}):
    assert t.everything() == expected
child = os.fork() if hasattr(os, "fork") else None
assert t.everything() == expected
if child == 0:
    os._exit(0)
assert child is None or os.waitpid(child, 0)[1] == 0

def exiting():
    dask.config.set({"daskgrad.inline.seconds": float(sys.argv[2]), "scheduler": sys.argv[3]})
    print(t.everything(["value_and_grad", "a sum"]).items() <= expected.items())

atexit.register(exiting)
print("done")
"""


@in_short("args", [("0", "60", "threads"), ("60", "0", "sync")], ("0", "60", "threads"))
def test_in_a_forked_process_and_at_the_interpreters_exit(args):
    """The parent has threads of Dask's, which are not in the child.

    There, ``dask.compute`` hangs on the threaded scheduler, whatever it computes: its pool takes
    threads of the parent for its own.
    """
    here = os.path.dirname(__file__)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *args],
        capture_output=True,
        text=True,
        timeout=60 * SLOW,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([here, *sys.path[1:]])},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["done", "True"]
