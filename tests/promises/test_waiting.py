"""Nothing is waited for without a limit, and the error says what was waited for."""

import asyncio
import concurrent.futures
import contextlib
import ctypes
import gc
import os
import re
import signal
import subprocess
import sys
import threading
import weakref
from functools import partial
from types import SimpleNamespace

import autograd.numpy as np
import dask
import distributed.scheduler
import numpy
import pytest
from clusters import allowed_failures, cluster, free_port
from distributed import Client, get_worker, secede
from distributed.core import Status
from lengths import in_short
from numpy.testing import assert_array_equal
from probes import tasks_of
from waiting import Gate, wait_until

import daskgrad as dg
from daskgrad.autodiff.values import clock as package_clock
from daskgrad.placed.connection import Connection
from daskgrad.tasks import supervision, waiting
from daskgrad.tasks.settings import limit
from daskgrad.tasks.supervision import LostError, is_busy
from daskgrad.tasks.waiting import all_or_first_error, in_loop

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:.*lost.*:UserWarning"),
]

X = numpy.linspace(-1.0, 1.0, 5)
ITEMS = [numpy.linspace(0.0, 1.0, 5) + number for number in range(8)]


@dg.delayed
def small_model(x):
    return np.sum(np.sin(x))


def gradient(x=X):
    return dg.grad(small_model)(x)


def term(item, x):
    return np.sum(np.sin(item * x))


def assert_right(found):
    assert_array_equal(found, np.cos(X))


def threads_cluster(config=None, **options):
    """Workers that are threads of this process: there in no time."""
    never_paused = {"distributed.worker.memory.pause": False}
    options = {"processes": False, "host": None, "n_workers": 1, **options}
    return cluster({**never_paused, **(config or {})}, **options)


def set_status(client, status):
    def set_on(dask_worker):
        dask_worker.status = status

    client.run(set_on)

    def statuses(dask_scheduler):
        return {ws.status for ws in dask_scheduler.workers.values()}

    wait_until(lambda: client.run_on_scheduler(statuses) == {status})


@contextlib.contextmanager
def in_thread(function, *args):
    """Runs a function beside the context; its errors are the test's."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(function, *args)
        yield
    running.result()


@pytest.fixture
def flying(clock, monkeypatch):
    """A function for a context in which the clock moves on with each look at it."""
    monkeypatch.setattr(waiting, "PERIOD", 0.01)

    @contextlib.contextmanager
    def flies(seconds=1.0):
        with monkeypatch.context() as patched:
            patched.setattr(package_clock, "seconds", lambda: clock.move(seconds) or clock.now)
            yield

    return flies


@pytest.fixture
def wait_for_long(clock, monkeypatch):
    """A function that moves the clock on by ten minutes, while somebody waits and looks."""
    looks, take = [], supervision.Supervisor._take
    monkeypatch.setattr(waiting, "PERIOD", 0.01)
    monkeypatch.setattr(
        supervision.Supervisor, "_take", lambda *args: (take(*args), looks.append(args))[0]
    )

    def move_on(times=20, seconds=30.0):
        for _ in range(times):
            before = len(looks)
            clock.move(seconds)
            wait_until(lambda before=before: len(looks) > before)

    return move_on


# ----------------------------------------------------------------------------------- settings


LIMITS = [  # what ``daskgrad.wait`` is, and the limits for workers, answers and evaluations
    ({"answers": 3}, (30.0, 3.0, np.inf)),
    ({"answers": 0.5, "evaluation": "2 minutes"}, (30.0, 0.5, 120.0)),
    ({"workers": 5, "answers": None}, (5.0, np.inf, np.inf)),
    (None, (30.0, 60.0, np.inf)),  # a heading of a YAML file without entries
]


@pytest.mark.parametrize(("wait", "limits"), LIMITS)
def test_limits_are_seconds_durations_or_none_and_have_defaults(wait, limits):
    with dask.config.set({"daskgrad.wait": wait}):
        assert tuple(map(limit, ("workers", "answers", "evaluation"))) == limits


NO_LIMIT = r"daskgrad\.wait\.placing in .*'5 minutes', or None"
NO_NAME = r"must hold the limits daskgrad\.wait\.workers, "
WRONG = [({"wait.placing": value}, NO_LIMIT) for value in ("soon", "", -1, 0, [3], "nan")]
WRONG += [(wrong, NO_NAME) for wrong in ({"wait": 5}, {"wait.workerz": 5}, {"wait": [1]})]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_a_limit_that_is_none_or_does_not_exist_is_an_error(wrong, message):
    ((key, value),) = wrong.items()
    with dask.config.set({f"daskgrad.{key}": value}), pytest.raises(ValueError, match=message):
        limit("placing")


# ------------------------------------------------------------------- nothing of it can be run


def test_a_graph_that_nobody_can_run_is_an_error_that_says_why(flying):
    with (
        threads_cluster({"daskgrad.wait.answers": None}, resources={"GPU": 1}) as client,
        flying(),
    ):
        gradient()
        with pytest.raises(TimeoutError) as caught:
            in_place(workers=["tcp://127.0.0.1:1"])
        message = str(caught.value)
        assert "no task could run for 30 s (dask.config: daskgrad.wait.workers)" in message
        assert "while the value of 'small_model'" in message
        assert "tasks wait, first of all the forward of 'small_model'" in message
        assert "asks for {'workers': ['tcp://127.0.0.1:1']}" in message
        assert "(running): change the annotation" in message
        with pytest.raises(TimeoutError, match=r"asks for \{'resources': \{'GPU': 2"):
            in_place(resources={"GPU": 2})
        assert_right(in_place(resources={"GPU": 1}))

        set_status(client, Status.paused)
        with pytest.raises(TimeoutError, match=r"No worker at .* takes work: .* is paused"):
            gradient()
        with pytest.raises(TimeoutError, match=r"all of them \(.*\) are paused or closing"):
            dg.place(ITEMS)
        set_status(client, Status.running)
        assert_right(gradient())

        client.cluster.scale(0)
        wait_until(lambda: not client.ncores())
        with pytest.raises(TimeoutError, match=r"has no worker: .*scale the cluster up"):
            gradient()
        with pytest.raises(TimeoutError, match="has no worker"):
            dg.vjp(small_model, X)
        with pytest.raises(TimeoutError, match=r"no worker of .* it has none"):
            dg.place(ITEMS)
        wait_until(lambda: tasks_of(client) == 0)


def in_place(**annotations):
    def objective(x):
        with dask.annotate(**annotations):
            return small_model(x)

    return dg.grad(objective)(X)


def test_workers_that_come_late_are_waited_for(wait_for_long):
    with threads_cluster() as client:
        client.cluster.scale(0)
        wait_until(lambda: not client.ncores())

        def come():
            wait_for_long(times=2, seconds=14.5)  # of 30
            client.cluster.scale(1)

        with in_thread(come):
            assert_right(gradient())


def test_placing_lets_a_cluster_start_its_first_worker():
    """One that adapts, to tasks alone."""
    with threads_cluster(n_workers=0) as client:
        client.cluster.adapt(minimum=0, maximum=1, interval="10ms")
        assert len(dg.place(ITEMS)) == len(ITEMS)
        wait_until(lambda: tasks_of(client) == len(ITEMS))


def test_a_long_model_is_no_reason_to_give_up(gate, wait_for_long):
    """Nor tasks of others, which fill the cluster."""

    def long(x):
        gate.wait()
        return np.sum(np.sin(x))

    def end():
        gate.wait_for()
        wait_for_long()
        gate.open()

    with threads_cluster(threads_per_worker=1) as client:
        with in_thread(end):
            assert_right(dg.grad(dg.delayed(long))(X))
        with Client(client.cluster, set_as_default=False) as other:
            gate = Gate(f"{gate._path}-of-others")
            others = [other.submit(gate.wait, pure=False) for _ in range(3)]
            with in_thread(end):
                assert_right(gradient())
            other.gather(others)


@pytest.mark.long
def test_a_model_that_does_not_let_go_of_the_interpreter_is_no_reason_to_give_up(
    tmp_path, wait_for_long
):
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)

    def long(x):
        ctypes.PyDLL(None).read(os.open(pipe, os.O_RDONLY), ctypes.create_string_buffer(1), 1)
        return np.sum(np.sin(x))

    def end():
        file = os.open(pipe, os.O_WRONLY)  # waits until it is opened for reading
        wait_for_long()
        os.write(file, b"!")

    with cluster(n_workers=1), in_thread(end):
        assert_right(dg.grad(dg.delayed(long))(X))


@pytest.mark.parametrize("leaves_its_thread", [False, True])
def test_a_paused_worker_ends_what_it_began(leaves_its_thread, gate, wait_for_long):
    def pausing(x):
        if leaves_its_thread:  # as one that waits for tasks of its own
            secede()
        get_worker().loop.add_callback(setattr, get_worker(), "status", Status.paused)
        gate.wait()
        get_worker().loop.add_callback(setattr, get_worker(), "status", Status.running)
        return np.sum(np.sin(x))

    def is_paused(dask_scheduler):
        (worker,) = dask_scheduler.workers.values()
        return worker.status == Status.paused and is_busy(worker)

    def end(client):
        wait_until(lambda: client.run_on_scheduler(is_paused))
        wait_for_long()
        gate.open()

    with threads_cluster() as client, in_thread(end, client):
        assert_right(dg.grad(dg.delayed(pausing))(X))


# ------------------------------------------------------------------------------- a time limit


def test_an_evaluation_may_have_a_limit(gate, clock):
    def endless(item, x, gate):
        gate.wait()
        return term(item, x)

    def too_late(gate):
        gate.wait_for()
        clock.move(101.0)

    with threads_cluster({"daskgrad.wait.evaluation": 100.0}) as client:
        shards = dg.place(ITEMS)
        for place, (items, match) in enumerate(
            [
                (shards, r"sum over 'endless' took longer than 100 s \(dask"),
                (ITEMS, r"the value of .* took longer than 100 s"),
            ]
        ):
            gate = Gate(f"{gate._path}{place}")
            with in_thread(too_late, gate), pytest.raises(TimeoutError, match=match):
                dg.grad(lambda x, items=items, gate=gate: dg.map_sum(endless, items, x, gate))(X)
            gate.open()
        assert_right(gradient())
        shards.close()
        wait_until(lambda: tasks_of(client) == 0)


# ------------------------------------------------------------------------- stopped, and killed


@contextlib.contextmanager
def running(*command):
    """A dask command that is killed at the end; it can import these tests."""
    paths = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "dask", *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def cluster_of_commands():
    """A scheduler and a worker that are processes of their own, and a client."""
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    worker = ("worker", address, "--nthreads", "1", "--no-dashboard", "--no-nanny")
    with (
        running("scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard") as first,
        running(*worker, "--host", "127.0.0.1") as second,
        Client(address, timeout="60s") as client,
    ):
        client.wait_for_workers(1, timeout=60)
        client._timeout = 2  # or closing it would take as long as connecting may
        yield client, first, second


LOST = {
    "graph": "the scheduler at tcp.*, was lost while the value of 'waiting_model'",
    "placed items": r"the scheduler at tcp.* cannot be reached|the client is closed",
}


@pytest.mark.filterwarnings("ignore")
@in_short("what", LOST, "graph")
def test_a_scheduler_that_dies_is_an_error_that_says_so(what, gate):
    def waiting_model(x):
        gate.wait()
        return np.sum(np.sin(x))

    with cluster_of_commands() as (_, scheduler, _):
        if what == "graph":
            call = dg.grad(dg.delayed(waiting_model))
        else:
            shards = dg.place(ITEMS)
            call = dg.grad(lambda x: dg.map_sum(lambda item, x: waiting_model(x * item), shards, x))

        def kill():
            gate.wait_for()
            scheduler.kill()

        with in_thread(kill), pytest.raises((ConnectionError, RuntimeError), match=LOST[what]):
            call(X)


@pytest.mark.long
def test_what_stands_still_is_not_waited_for(flying, monkeypatch):
    """First the worker, then the scheduler: both are there and say nothing."""

    @contextlib.contextmanager
    def stopped(process):
        os.kill(process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(process.pid, signal.SIGCONT)

    @contextlib.contextmanager
    def too_late(limited, kind, match):
        """A limit of a second, which is the reason for an error."""
        limits = dict.fromkeys(["answers", "placing", "evaluation", "workers"]) | {limited: 1.0}
        with (
            dask.config.set({f"daskgrad.wait.{name}": limit for name, limit in limits.items()}),
            pytest.raises(kind, match=match),
        ):
            yield

    send = Connection._send

    def send_late(connection, plugin):
        with flying():
            send(connection, plugin)

    with cluster_of_commands() as (client, scheduler, worker):
        (address,) = client.ncores()
        blocks = rf"8 blocks of items .* worker at {address}.* 1 s"
        with stopped(worker), flying(), too_late("placing", TimeoutError, blocks):
            dg.place(ITEMS)

        shards = dg.place(ITEMS)
        call = dg.grad(lambda x: dg.map_sum(term, shards, x))
        with stopped(worker), monkeypatch.context() as patched:
            patched.setattr(Connection, "_send", send_late)
            with too_late("answers", TimeoutError, r"the plugins were sent to the cluster: .* 1 s"):
                call(X)
        right = call(X)

        with stopped(worker), flying(0.1):
            with too_late("evaluation", TimeoutError, "the sum over 'term' took longer than 1 s"):
                call(X)
            with too_late("evaluation", TimeoutError, r"'small_model'.* took longer than 1 s"):
                gradient()
        assert_array_equal(call(X), right)

        with stopped(scheduler), flying(0.1):
            with too_late("answers", ConnectionError, r"the scheduler at tcp.* answered for 1"):
                gradient()
            workers = r"scheduler at tcp.* for its workers: .* 1 s"
            with too_late("answers", TimeoutError, workers):
                dg.place(ITEMS)
        assert_right(gradient())


def test_workers_that_die_while_something_is_sent_to_them_are_passed_over(frail):
    """They stand still until then, so that it is just then."""
    pids = frail.run(os.getpid)
    pools = [frail.rpc, frail.cluster.scheduler.rpc]

    def is_called(address):
        return any(pool.occupied.get(address) or pool._connecting.get(address) for pool in pools)

    def dies(address):
        wait_until(lambda: is_called(address))
        os.kill(pids[address], signal.SIGKILL)

    def stop(address):
        os.kill(pids[address], signal.SIGSTOP)
        return address

    with in_thread(dies, stop(min(pids))):
        shards = dg.place(ITEMS)
    frail.wait_for_workers(2, timeout=60)
    with in_thread(dies, stop(max(pids))):
        summed = dg.grad(lambda x: dg.map_sum(term, shards, x))(X)
    with dask.config.set(scheduler="sync"):
        assert_array_equal(summed, dg.grad(lambda x: dg.map_sum(term, ITEMS, x))(X))


# ------------------------------------------------------------------------ where it is called


def test_a_gradient_in_a_model_of_placed_items_leaves_its_thread_to_its_models():
    """Direct calls are no tasks; here their client is that of the models, too."""

    def model(item, x):
        return item * np.sum(x) * dg.grad(dg.delayed(lambda y: y * y))(3.0)

    with threads_cluster({"daskgrad.wait.evaluation": 30}, threads_per_worker=1):
        shards = dg.place([1.0] * 4)
        found = dg.grad(lambda x: dg.map_sum(model, shards, x))(X)
    assert_array_equal(found, numpy.full(5, 24.0))


# -------------------------------------------------------------------- a model that kills workers


def test_a_model_that_kills_its_worker_in_a_graph_is_an_error_that_names_it(frail):
    def deadly_model(x):
        if np.sum(x) < 1e9:
            os._exit(1)
        return np.sum(x)

    killed = pytest.raises(Exception, match=r"KilledWorker|died while running it")
    with allowed_failures(frail, 0), killed as caught:
        dg.grad(lambda x: dg.delayed(deadly_model)(dg.delayed(lambda x: x * np.ones(2**17))(x)))(
            1.0
        )
    (note,) = caught.value.__notes__
    assert "the task is the forward of 'deadly_model'" in note
    assert re.search(r"its inputs take \S+ MiB, and a worker may use \S+ GiB", note)
    assert_right(gradient())


# ------------------------------------------------------------- a scheduler that does not answer


@pytest.fixture
def watched(monkeypatch, clock):
    """A watch, the time, and the questions that it asks a scheduler."""
    asked = []

    def in_loop(client, ask):
        asked.append(concurrent.futures.Future())
        return asked[-1]

    monkeypatch.setattr(supervision, "in_loop", in_loop)
    scheduler = SimpleNamespace(address="nowhere")
    client = SimpleNamespace(status="running", run_on_scheduler=None, scheduler=scheduler)
    future = SimpleNamespace(key=("value-slow-1", 0), status="pending")
    return supervision.Supervisor(client, [future]), clock, asked


LOOKS = [  # a limit, and when the client looked; each time there is an answer
    (60.0, (100.0, 1000.0)),  # a model in this process held the global lock, or Ctrl-Z
    (0.1, np.arange(0.5, 5.0, 0.5)),
]


@pytest.mark.parametrize(("seconds", "times"), LOOKS)
def test_a_client_that_looks_seldom_does_not_blame_the_scheduler(seconds, times, watched):
    watch, clock, asked = watched
    with dask.config.set({"daskgrad.wait.answers": seconds}):
        for clock.now in times:
            watch.look()
            asked[-1].set_result({"can_progress": True})


def test_a_client_that_was_stopped_waits_for_the_answer(watched):
    watch, clock, asked = watched
    watch.look()
    clock.now = 1000.0
    watch.look()
    asked[-1].set_result({"can_progress": True})
    watch.look()


def test_a_scheduler_that_is_silent_is_an_error_whatever_it_is_asked_again(watched):
    watch, clock, asked = watched
    watch.look()
    asked[-1].set_exception(OSError("lost"))
    for clock.now in np.arange(0.0, 60.0, 10.0):
        watch.look()
    clock.now = 61.0
    with pytest.raises(ConnectionError, match="nowhere has not answered for 60 s"):
        watch.look()


UNKNOWN = {"can_progress": True, "are_known": False, "were_known": False}
GONE = {**UNKNOWN, "were_known": True}  # as its log says
FORGOTTEN = [  # what the scheduler answers minute after minute, and the limit that this reaches
    ([{"can_progress": True}, UNKNOWN, UNKNOWN], LostError, "nowhere has forgotten the value of"),
    ([GONE, GONE], LostError, "nowhere has forgotten the value of"),
    ([UNKNOWN] * 11, TimeoutError, "graph has not arrived at the scheduler at nowhere for 600 s"),
]


@pytest.mark.parametrize(("answers", "kind", "message"), FORGOTTEN)
def test_tasks_that_the_scheduler_does_not_know_are_not_waited_for(answers, kind, message, watched):
    """A restart that failed half way, or a graph that never arrives."""
    watch, clock, asked = watched
    watch.look()
    for number, answer in enumerate(answers):
        clock.now = 60.0 * (number + 1)
        asked[-1].set_result(answer)
        if number + 1 < len(answers):
            watch.look()
    with pytest.raises(kind, match=message):
        watch.look()


@pytest.mark.parametrize("looks", [1, 0])
def test_tasks_that_the_scheduler_forgets_are_computed_again(
    looks, wait_for_long, clock, gate, monkeypatch
):
    """Also before the client has looked once whether they are there."""
    is_blind, look = [True] * (not looks), supervision.Supervisor.look
    monkeypatch.setattr(supervision.Supervisor, "look", lambda s: is_blind or look(s))

    def slow(x):
        gate.wait()
        return np.sum(np.sin(x))

    def forget(dask_scheduler, client):
        dask_scheduler.client_releases_keys(keys=[*dask_scheduler.tasks], client=client)

    def lose():
        gate.wait_for()
        wait_for_long(times=looks)
        client.run_on_scheduler(forget, client=client.id)
        is_blind.clear()
        wait_for_long(times=looks + 1)
        clock.move(61.0)
        gate.open()

    with threads_cluster() as client, in_thread(lose):
        assert_right(dg.grad(dg.delayed(slow))(X))


def test_a_worker_that_leaves_while_items_are_sent_to_it_leaves_no_key(monkeypatch):
    """Dask's scheduler would keep those of which it learns when the worker is gone."""
    send, leaving = distributed.scheduler.scatter_to_workers, [True]

    async def sent_as_it_leaves(workers, *args, **kwargs):
        sent = await send(workers, *args, **kwargs)
        if leaving:
            leaving.clear()
            await scheduler.remove_worker(workers[0], stimulus_id="test")
        return sent

    with threads_cluster(n_workers=2) as client:
        scheduler = client.cluster.scheduler
        monkeypatch.setattr(distributed.scheduler, "scatter_to_workers", sent_as_it_leaves)
        shards = dg.place(ITEMS)
        assert not leaving
        wait_until(lambda: all(task.who_wants for task in scheduler.tasks.values()))
        assert_array_equal(
            dg.grad(lambda x: dg.map_sum(term, shards, x))(X),
            dg.grad(lambda x: dg.map_sum(term, ITEMS, x))(X),
        )
        shards.close()
        wait_until(lambda: tasks_of(client) == 0)


# ------------------------------------------------------------------ several coroutines at a time


@pytest.fixture
def loop():
    """An event loop in a thread of its own, as a client has one."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    try:
        wait_until(lambda: not asyncio.all_tasks(loop))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()


def together(loop, *questions):
    client = SimpleNamespace(loop=SimpleNamespace(asyncio_loop=loop))
    return in_loop(client, lambda: all_or_first_error([ask() for ask in questions]))


async def endless(name, log):
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        log.append(name)
        raise


def test_what_is_answered_together_is_in_their_order(loop):
    is_second = asyncio.Event()

    async def ask(name):
        if name == "a":
            await is_second.wait()
        is_second.set()
        return name

    both = together(loop, partial(ask, "a"), partial(ask, "b"))
    assert both.result(60) == ["a", "b"]
    assert not both.cancel()


async def fails():
    await asyncio.sleep(0.0)
    raise KeyError("first")


def test_the_first_error_ends_those_that_still_run(loop):
    log = []
    with pytest.raises(KeyError, match="first"):
        together(loop, partial(endless, "a", log), fails, partial(endless, "b", log)).result(60)
    wait_until(lambda: sorted(log) == ["a", "b"])


def test_to_cancel_what_runs_together_ends_all_of_it(loop):
    log = []
    both = together(loop, partial(endless, "a", log), partial(endless, "b", log))
    wait_until(lambda: len([t for t in asyncio.all_tasks(loop) if t.get_coro().cr_await]) == 3)
    assert both.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        both.result(60)
    wait_until(lambda: sorted(log) == ["a", "b"])


def test_an_error_that_nobody_asks_for_goes_with_its_future(loop):
    gc.disable()
    try:
        both = together(loop, fails, partial(endless, "a", []))
        concurrent.futures.wait([both], 60)
        wait_until(lambda: not asyncio.all_tasks(loop))
        ended = weakref.ref(both)
        del both
        wait_until(lambda: ended() is None)
    finally:
        gc.enable()
