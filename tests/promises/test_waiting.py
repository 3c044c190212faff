"""Nothing is waited for without a limit, and the error says what was waited for."""

import asyncio
import concurrent.futures
import contextlib
import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from functools import partial
from types import SimpleNamespace

import autograd.numpy as np
import dask
import numpy
import pytest
from clusters import allowed_failures, cluster, free_port
from distributed import Client
from distributed.core import Status
from lengths import in_short
from numpy.testing import assert_array_equal
from waiting import wait_until

import daskgrad as dg
from daskgrad.tasks import supervision, waiting
from daskgrad.tasks.keys import task_label
from daskgrad.tasks.progress import standing
from daskgrad.tasks.settings import limit
from daskgrad.tasks.waiting import Together

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


def tasks_of(client):
    return client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))


# ----------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("given", "seconds"), [(3, 3.0), (0.5, 0.5), ("2 minutes", 120.0), (None, np.inf)]
)
def test_limits_are_seconds_durations_or_none(given, seconds):
    with dask.config.set({"daskgrad.wait.answers": given}):
        assert limit("answers") == seconds


@pytest.mark.parametrize("given", ["soon", -1, 0, [3], "nan"])
def test_a_limit_that_is_none_is_an_error(given):
    with (
        dask.config.set({"daskgrad.wait.placing": given}),
        pytest.raises(ValueError, match=r"daskgrad\.wait\.placing in .*'5 minutes', or None"),
    ):
        limit("placing")


@pytest.mark.parametrize("given", [{"wait": 5}, {"wait.workerz": 5}, {"wait": [1]}])
def test_a_limit_that_does_not_exist_is_an_error(given):
    (key, value), *_ = given.items()
    with (
        dask.config.set({f"daskgrad.{key}": value}),
        pytest.raises(ValueError, match=r"must hold the limits daskgrad\.wait\.workers, "),
    ):
        limit("answers")


def test_a_limit_that_is_not_set_has_its_default():
    with dask.config.set({"daskgrad.wait": {"workers": 5}}):
        assert (limit("workers"), limit("answers"), limit("evaluation")) == (5.0, 60.0, np.inf)
    with dask.config.set({"daskgrad.wait": None}):  # a heading of a YAML file without entries
        assert (limit("workers"), limit("answers"), limit("evaluation")) == (30.0, 60.0, np.inf)


# ------------------------------------------------------------------- nothing of it can be run


def test_a_graph_that_nobody_can_run_is_an_error_that_says_why(monkeypatch):
    monkeypatch.setattr(waiting, "PERIOD", 0.05)
    with threads_cluster({"daskgrad.wait.workers": 0.2}, resources={"GPU": 1}) as client:
        gradient()
        with pytest.raises(TimeoutError) as caught:
            in_place(workers=["tcp://127.0.0.1:1"])
        message = str(caught.value)
        assert "no task could run for 0.2 s (dask.config: daskgrad.wait.workers)" in message
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


def test_workers_that_come_late_are_waited_for():
    with threads_cluster({"daskgrad.wait.workers": 20.0}) as client:
        client.cluster.scale(0)
        wait_until(lambda: not client.ncores())
        client.loop.call_later(1.5, client.cluster.scale, 1)
        assert_right(gradient())


UNBROKEN = "without letting go of the interpreter"


@in_short("how", ["asleep", UNBROKEN], "asleep")
def test_a_long_model_is_no_reason_to_give_up(how):
    def long(x):
        if how == "asleep":
            time.sleep(2.0)
        else:
            ctypes.PyDLL(None).usleep(2_000_000)
        return np.sum(np.sin(x))

    options = {"processes": False, "host": None} if how == "asleep" else {}
    with cluster({"daskgrad.wait.workers": 0.6}, n_workers=1, **options):
        assert_right(dg.grad(dg.delayed(long))(X))


def test_a_cluster_that_is_busy_with_the_tasks_of_others_is_no_reason_to_give_up():
    with threads_cluster({"daskgrad.wait.workers": 0.6}, threads_per_worker=1) as client:
        with Client(client.cluster, set_as_default=False) as other:
            others = [other.submit(time.sleep, 1.0, pure=False) for _ in range(3)]
            assert_right(gradient())
            other.gather(others)


@pytest.mark.parametrize("leaves_its_thread", [False, True])
def test_a_paused_worker_ends_what_it_began(leaves_its_thread):
    def pausing(x):
        from distributed import get_worker, secede

        if leaves_its_thread:  # as one that waits for tasks of its own
            secede()
        get_worker().loop.add_callback(setattr, get_worker(), "status", Status.paused)
        time.sleep(1.6)
        get_worker().loop.add_callback(setattr, get_worker(), "status", Status.running)
        return np.sum(np.sin(x))

    with threads_cluster({"daskgrad.wait.workers": 0.4}):
        assert_right(dg.grad(dg.delayed(pausing))(X))


def test_tasks_that_move_are_seen_without_a_look_at_the_others():
    """The walk over what is wanted ends at the first task that a worker has."""

    class Worker:
        status = Status.running

    class State:
        worker_restrictions = host_restrictions = resource_restrictions = None

        def __init__(self, state, waiting_on=()):
            self.key, self.state, self.processing_on = object(), state, Worker
            self.waiting_on = set(waiting_on)

    tasks = {"wanted": State("waiting", [State("processing")]), "other": State("memory")}
    scheduler = SimpleNamespace(tasks=tasks, running=(), workers={})
    assert standing(["wanted", "other"], scheduler) == {"can_progress": True}
    assert standing(["other"], scheduler)["can_progress"]
    assert standing(["unknown"], scheduler)["can_progress"]
    tasks["wanted"].state = "queued"
    tasks["wanted"].waiting_on = set()
    assert not standing(["wanted", "other"], scheduler)["can_progress"]
    scheduler.running = (Worker,)
    assert standing(["wanted", "other"], scheduler)["can_progress"]
    tasks["wanted"].state = "processing"
    Worker.status = Status.paused
    Worker.metrics, Worker.long_running = {"task_counts": {"executing": 0}}, set()
    assert not standing(["wanted", "other"], scheduler)["can_progress"]


# ------------------------------------------------------------------------------- a time limit


def test_an_evaluation_may_have_a_limit():
    def endless(item, x):
        time.sleep(0.4)
        return term(item, x)

    with threads_cluster({"daskgrad.wait.evaluation": 1.0}) as client:
        shards = dg.place(ITEMS)
        with pytest.raises(TimeoutError, match=r"sum over 'endless' took longer than 1 s \(dask"):
            dg.grad(lambda x: dg.map_sum(endless, shards, x))(X)
        with pytest.raises(TimeoutError, match=r"the value of .* took longer than 1 s"):
            dg.grad(lambda x: dg.map_sum(endless, ITEMS, x))(X)
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


def slow(x, path):
    """A model that says that it has begun."""
    with open(path, "a") as file:
        file.write("began\n")
    time.sleep(3.0)
    return np.sum(np.sin(x))


@pytest.mark.filterwarnings("ignore")
@in_short("what", ["graph", "placed items"], "graph")
def test_a_scheduler_that_dies_is_an_error_that_says_so(what, tmp_path):
    path = tmp_path / "log"
    path.touch()
    with cluster_of_commands() as (client, scheduler, _):
        if what == "graph":
            call = dg.grad(lambda x: dg.delayed(slow)(x, str(path)))
        else:
            shards = dg.place(ITEMS)
            call = dg.grad(
                lambda x: dg.map_sum(lambda item, x: slow(x * item, str(path)), shards, x)
            )
        client.loop.add_callback(kill_when_begun, client.loop, scheduler, path)
        with pytest.raises((ConnectionError, RuntimeError), match=LOST[what]):
            call(X)


LOST = {
    "graph": "the scheduler at tcp.*, was lost while the value of 'slow'",
    "placed items": r"the scheduler at tcp.* cannot be reached|the client is closed",
}


def kill_when_begun(loop, process, path):
    if path.read_text():
        process.kill()
    else:
        loop.call_later(0.02, kill_when_begun, loop, process, path)


SHORT = {f"daskgrad.wait.{of}": 1.0 for of in ("answers", "placing", "evaluation")}


@contextlib.contextmanager
def too_late(kind, match):
    """Limits of a second, of which one is the reason for an error."""
    with dask.config.set(SHORT), pytest.raises(kind, match=match):
        yield


@pytest.mark.long
def test_what_stands_still_is_not_waited_for():
    """First the worker, then the scheduler: both are there and say nothing."""
    with cluster_of_commands() as (client, scheduler, worker):
        (address,) = client.ncores()
        os.kill(worker.pid, signal.SIGSTOP)
        with too_late(TimeoutError, rf"8 blocks of items .* worker at {address}.* 1 s"):
            dg.place(ITEMS)
        os.kill(worker.pid, signal.SIGCONT)

        shards = dg.place(ITEMS)
        call = dg.grad(lambda x: dg.map_sum(term, shards, x))
        os.kill(worker.pid, signal.SIGSTOP)
        with too_late(TimeoutError, r"the plugins were sent to the cluster: .* 1 s"):
            call(X)
        os.kill(worker.pid, signal.SIGCONT)
        right = call(X)

        os.kill(worker.pid, signal.SIGSTOP)
        with too_late(TimeoutError, "the sum over 'term' took longer than 1 s"):
            call(X)
        with too_late(TimeoutError, r"'small_model'.* took longer than 1 s"):
            gradient()
        os.kill(worker.pid, signal.SIGCONT)
        assert_array_equal(call(X), right)

        os.kill(scheduler.pid, signal.SIGSTOP)
        with dask.config.set({**SHORT, "daskgrad.wait.evaluation": None}):
            with pytest.raises(ConnectionError, match=r"the scheduler at tcp.* not answered for 1"):
                gradient()
            with pytest.raises(TimeoutError, match=r"scheduler at tcp.* for its workers: .* 1 s"):
                dg.place(ITEMS)
        os.kill(scheduler.pid, signal.SIGCONT)
        assert_right(gradient())


def test_workers_that_die_while_something_is_sent_to_them_are_passed_over(frail):
    """They stand still until then, so that it is just then."""
    pids = frail.run(os.getpid)

    def dies_soon(address):
        os.kill(pids[address], signal.SIGSTOP)
        timer = threading.Timer(0.7, os.kill, (pids[address], signal.SIGKILL))
        timer.start()
        return timer

    timer = dies_soon(min(pids))
    shards = dg.place(ITEMS)
    timer.join()
    frail.wait_for_workers(2, timeout=60)
    timer = dies_soon(max(pids))
    found = dg.grad(lambda x: dg.map_sum(term, shards, x))(X)
    timer.join()
    with dask.config.set(scheduler="sync"):
        assert_array_equal(found, dg.grad(lambda x: dg.map_sum(term, ITEMS, x))(X))


# ------------------------------------------------------------------------ where it is called


@pytest.mark.parametrize("kind", ["graph", "placed items", "pullback"])
def test_a_gradient_in_a_task_leaves_its_thread_to_its_models(kind):
    """There is one thread in all."""

    def in_task():
        if kind == "graph":
            return dg.grad(dg.delayed(lambda x: np.sum(np.sin(x))))(X)
        if kind == "pullback":
            return dg.vjp(dg.delayed(lambda x: np.sum(np.sin(x))), X)[1](1.0)[0]
        shards = dg.place([1.0] * 4)
        summed = dg.grad(lambda x: dg.map_sum(lambda item, x: item * np.sum(np.sin(x)), shards, x))
        return sum([summed(X) for _ in range(3)]) / 12.0

    with threads_cluster(threads_per_worker=1) as client:
        found = client.submit(in_task).result(timeout=60)
    numpy.testing.assert_allclose(found, np.cos(X))


def test_a_gradient_in_a_model_of_placed_items_leaves_its_thread_to_its_models():
    """Direct calls are no tasks; here their client is that of the models, too."""

    def model(item, x):
        return item * np.sum(x) * dg.grad(dg.delayed(lambda y: y * y))(3.0)

    with threads_cluster({"daskgrad.wait.evaluation": 30}, threads_per_worker=1):
        shards = dg.place([1.0] * 4)
        found = dg.grad(lambda x: dg.map_sum(model, shards, x))(X)
    assert_array_equal(found, numpy.full(5, 24.0))


def test_an_asynchronous_client_is_an_error_that_says_what_to_do():
    import asyncio

    async def compute():
        async with Client(processes=False, asynchronous=True, dashboard_address=":0"):
            return gradient()

    with pytest.raises(RuntimeError, match="asynchronous Client") as caught:
        asyncio.run(compute())
    assert "make a synchronous Client" in caught.value.__notes__[0]


# -------------------------------------------------------------------- a model that kills workers


def test_a_model_that_kills_its_worker_in_a_graph_is_an_error_that_names_it(frail):
    def deadly_model(x):
        if np.sum(x) < 100.0:
            os._exit(1)
        return np.sum(x)

    killed = pytest.raises(Exception, match=r"KilledWorker|died while running it")
    with allowed_failures(frail, 0), killed as caught:
        dg.grad(dg.delayed(deadly_model))(X)
    assert "the task is the forward of 'deadly_model'" in caught.value.__notes__[0]
    assert_right(gradient())


def test_keys_are_told_as_stages_of_models():
    assert task_label(small_model(dg.variable(X)).key) == "value of 'small_model'"
    assert task_label("other-key") == "task 'other-key'"
    assert task_label(("value", 3)) == "value of ''"


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
    return supervision.Watch(client, [("value-slow-1", 0)]), clock, asked


def test_a_client_that_itself_stood_still_does_not_blame_the_scheduler(watched):
    """A model in this process that holds the global lock, or Ctrl-Z."""
    watch, clock, asked = watched
    for seconds in (100.0, 1000.0):
        clock.now = seconds
        watch.look()
        asked[-1].set_result({"can_progress": True})


def test_a_limit_below_the_time_between_two_looks_is_no_error_by_itself(watched):
    watch, clock, asked = watched
    with dask.config.set({"daskgrad.wait.answers": 0.1}):
        for number in range(1, 10):
            clock.now = 0.5 * number
            watch.look()
            asked[-1].set_result({"can_progress": True})


def test_a_scheduler_that_is_silent_is_an_error_whatever_it_is_asked_again(watched):
    watch, clock, asked = watched
    watch.look()
    asked[-1].set_exception(OSError("lost"))
    clock.now = 59.0
    watch.look()
    clock.now = 61.0
    with pytest.raises(ConnectionError, match="nowhere has not answered for 60 s"):
        watch.look()


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
    return Together(client, questions)


async def later(value, log, seconds=0.0):
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        log.append(value)
        raise
    return value


def test_what_is_answered_together_is_in_their_order(loop):
    both = together(loop, partial(later, "a", [], 0.05), partial(later, "b", []))
    assert both.result(60) == ["a", "b"]
    assert not both.cancel()


def test_questions_that_are_flushed_are_on_their_way(loop, monkeypatch):
    monkeypatch.setattr(waiting, "SENDING", 60.0)  # also on a busy machine
    sent = []

    async def ask(number):
        sent.append(number)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(60.0)  # threads change where one of them waits
    try:
        both = together(loop, partial(ask, 1), partial(ask, 2))
        both.flush()
        found = sent.copy()
    finally:
        sys.setswitchinterval(interval)
    assert found == [1, 2]
    both.result(60)


def test_the_first_error_ends_those_that_still_run(loop):
    async def fails():
        await asyncio.sleep(0.0)
        raise KeyError("first")

    log = []
    with pytest.raises(KeyError, match="first"):
        together(
            loop, partial(later, "a", log, 600.0), fails, partial(later, "b", log, 600.0)
        ).result(60)
    wait_until(lambda: sorted(log) == ["a", "b"])


def test_what_has_not_begun_when_another_fails_never_does(loop):
    async def fails():
        raise KeyError("at once")

    with pytest.raises(KeyError, match="at once"):
        together(loop, fails, partial(later, "a", [], 600.0)).result(60)
    wait_until(lambda: not asyncio.all_tasks(loop))
    gc.collect()  # a coroutine that nobody awaits would be a warning


def test_to_cancel_what_runs_together_ends_all_of_it(loop):
    log = []
    both = together(loop, partial(later, "a", log, 600.0), partial(later, "b", log, 600.0))
    wait_until(lambda: len([t for t in asyncio.all_tasks(loop) if t.get_coro().cr_await]) == 2)
    assert both.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        both.result(60)
    wait_until(lambda: sorted(log) == ["a", "b"])


def test_an_error_that_nobody_asks_for_goes_with_its_future(loop):
    async def fails():
        await asyncio.sleep(0.0)
        raise KeyError("unasked")

    gc.disable()
    try:
        both = together(loop, fails, partial(later, "a", [], 600.0))
        concurrent.futures.wait([both], 60)
        wait_until(lambda: not asyncio.all_tasks(loop))
        ended = weakref.ref(both)
        del both
        wait_until(lambda: ended() is None)
    finally:
        gc.enable()
