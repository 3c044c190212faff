"""Ctrl-C, and an exception in one model: what was not begun never runs, and nothing is left."""

import contextlib
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time

import autograd.numpy as np
import dask
import probes
import pytest
from lengths import in_short
from probes import lines, write
from schedulers import use_scheduler
from waiting import wait_until

import daskgrad as dg
from daskgrad.models import model as models
from daskgrad.models.finite import is_debugging
from daskgrad.values.trees import flatten

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(os.name == "nt", reason="signals to a thread are POSIX"),
]

N = 40  # models, or terms, of a program
X = np.linspace(0.1, 1.0, 4)
PAUSE = 0.05  # seconds that each takes while it is interrupted; 0 when results are compared
ITEMS = [float(number) for number in range(N)]
AT_ONCE = {  # tasks that may have begun, though their lines are not written yet
    "in line": 0,
    "sync": 0,
    "threads": dask.system.CPU_COUNT,
    "processes": 12,  # Dask hands each process six tasks at a time
    "cluster": 12,  # a worker hears of it late where the machine is busy
}


@pytest.fixture
def log(tmp_path):
    """A file that models in any process can write lines to."""
    path = tmp_path / "log"
    path.touch()
    return path


# ------------------------------------------------------------------------------- what is run


def piece(x, number, log, pause):
    """A model that says that it begins, and takes its time."""
    if pause:
        write(log, f"forward {os.getpid()}")
        time.sleep(pause)
    return np.sum(np.sin(x * number))


def piece_back(x, number, log, pause):
    """A model whose pullback says that it begins, and takes its time."""
    x = probes.slow_back(x, log, pause) if pause else x
    return np.array([1.0, 2.0]) * np.sum(np.sin(x * number))


def vector_piece(x, number, log, pause):
    return np.array([1.0, 2.0]) * piece(x, number, log, pause)


def term(item, x, log, pause):
    return piece(x, item, log, pause)


def many(x, log, pause):
    return dg.sum([dg.delayed(piece)(x, item, log, pause) for item in ITEMS])


def many_vectors(x, log, pause):
    return dg.sum([dg.delayed(vector_piece)(x, item, log, pause) for item in ITEMS])


def many_back(x, log, pause):
    return dg.sum([dg.delayed(piece_back)(x, item, log, pause) for item in ITEMS])


def first_of_many(x, log, pause):
    return many_back(x, log, pause)[0]


def value_and_grad(fun=many):
    return lambda *args: dg.value_and_grad(lambda x: fun(x, *args))(X)


def finite_difference(log, pause):
    model = dg.finite_difference(lambda x: piece(x, 1.0, log, pause))
    return dg.value_and_grad(lambda x: model(np.ones(20) * 0.1 * x))(0.5)


OPERATIONS = {  # name -> (of a log and a pause, the sign in the log at which it is interrupted)
    "forward": (value_and_grad(), "forward"),
    "backward": (value_and_grad(first_of_many), "backward"),
    "sum": (
        lambda *args: dg.value_and_grad(lambda x: dg.map_sum(term, ITEMS, x, *args, grainsize=1))(
            X
        ),
        "forward",
    ),
    "vjp": (lambda *args: dg.vjp(lambda x: many_vectors(x, *args), X)[0], "forward"),
    "jvp": (lambda *args: dg.jvp(lambda x: many(x, *args), (X,), (X,)), "forward"),
    "hvp": (lambda *args: dg.hvp(lambda x: many(x, *args), (X,), (X,)), "forward"),
    "jacobian": (lambda *args: dg.jacobian(lambda x: many_back(x, *args))(X), "backward"),
    "pushed jacobian": (
        lambda *args: dg.jacobian(lambda x: many_vectors(x, *args), mode="forward")(X),
        "forward",
    ),
    "finite difference": (finite_difference, "forward"),
    "per item": (
        lambda *args: dg.per_item(term, ITEMS, gradient="full", grainsize=1)(X, *args),
        "forward",
    ),
    "differentiate": (
        lambda *args: dask.compute(*dg.differentiate(many(v := dg.variable(X), *args), v)),
        "forward",
    ),
    "value": (lambda *args: many(dg.variable(X), *args).compute(), "forward"),
}
EVERYWHERE = ("forward", "backward", "sum")


def bits(tree):
    return [np.asarray(leaf).tobytes() for leaf in flatten(tree)[0] if leaf is not None]


def bits_in_line(operation, log):
    with dask.config.set({"scheduler": "sync", "daskgrad.inline.seconds": 60}):
        return bits(operation(log, 0))


# ---------------------------------------------------------------------------------- tools


@pytest.fixture(autouse=True)
def interrupts_are_errors():
    """An import of dask-jobqueue, anywhere before, has made them exits."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def began(log, sign="forward"):
    return len([line for line in lines(log) if line.startswith(sign)])


def interrupted(call, when, seconds=30):
    """Calls, sends this thread a SIGINT once ``when()`` holds, and sees that it arrives."""
    lock, me, calling = threading.Lock(), threading.get_ident(), True

    def watch():
        deadline = time.monotonic() + seconds
        while not when() and calling and time.monotonic() < deadline:
            time.sleep(0.002)
        with lock:
            if calling:
                signal.pthread_kill(me, signal.SIGINT)

    def call_and_say_so():
        nonlocal calling
        try:
            call()
        finally:
            with lock:
                calling = False

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            call_and_say_so()
    finally:
        watcher.join()


def tasks_of(client):
    return client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))


def keys_on_workers(client):
    return sum(client.run(lambda dask_worker: len(dask_worker.data)).values())


def see_it_empty(client, tasks=0):
    """Waits until scheduler and workers hold no more than so many tasks."""
    wait_until(lambda: tasks_of(client) <= tasks and keys_on_workers(client) <= tasks, 20)


def see_nothing_begin(log, scheduler, sign="forward"):
    """What was under way runs on; no more than that."""
    then = began(log, sign)
    time.sleep(6 * PAUSE)
    later = began(log, sign)
    assert later - then <= AT_ONCE[scheduler]
    assert later < N, "the test needs something that does not run"


def threads_of_ours():
    """The running threads but those that Dask keeps, and gives work again."""
    kept = (
        "ThreadPoolExecutor",
        "Dask",
        "IO loop",
        "QueueFeeder",
        "ExecutorManager",
        "AsyncProcess",
    )
    names = [thread.name for thread in threading.enumerate()]
    return sorted([name for name in names if not name.startswith(kept)])


@contextlib.contextmanager
def nothing_left(request, scheduler):
    """No thread, no process, and on the cluster no task are there that were not there before."""
    processes = {process.pid for process in multiprocessing.active_children()}
    threads = threads_of_ours()
    client = request.getfixturevalue("client") if scheduler == "cluster" else None
    tasks = 0 if client is None else tasks_of(client)
    yield
    assert {process.pid for process in multiprocessing.active_children()} <= processes
    wait_until(lambda: threads_of_ours() == threads, 10)
    if client is not None:
        see_it_empty(client, tasks)


@contextlib.contextmanager
def on(scheduler, request):
    if scheduler == "in line":
        with dask.config.set({"scheduler": "sync", "daskgrad.inline.seconds": 60}):
            yield
    else:
        with use_scheduler(scheduler, request):
            yield


# --------------------------------------------------------------------------------- Ctrl-C


SHORT = {  # the others are long
    ("in line", "forward"),
    ("threads", "sum"),
    ("processes", "forward"),
    ("cluster", "sum"),
}


CASES = [("cluster", name) for name in OPERATIONS] + [
    (scheduler, name)
    for scheduler in ("in line", "sync", "threads", "processes")
    for name in EVERYWHERE
]


@in_short(("scheduler", "name"), CASES, *SHORT)
def test_an_interrupt_ends_it(scheduler, name, request, log):
    operation, sign = OPERATIONS[name]
    expected = bits_in_line(operation, log)
    with on(scheduler, request):
        operation(log, 0)  # starts what Dask keeps
        with nothing_left(request, scheduler):
            interrupted(lambda: operation(log, PAUSE), lambda: began(log, sign) >= 3)
            see_nothing_begin(log, scheduler, sign)
        assert bits(operation(log, 0)) == expected


def test_an_interrupt_ends_a_sum_over_placed_items(client, log):
    with dask.config.set(scheduler="sync"):
        expected = bits(dg.value_and_grad(lambda x: dg.map_sum(term, ITEMS, x, log, 0))(X))
    shards = dg.place(ITEMS, grainsize=1)

    def objective(pause):
        return dg.value_and_grad(lambda x: dg.map_sum(term, shards, x, log, pause))(X)

    assert bits(objective(0)) == expected
    tasks, threads = tasks_of(client), threads_of_ours()
    interrupted(lambda: objective(PAUSE), lambda: began(log) >= 3)
    see_nothing_begin(log, "cluster")
    assert threads_of_ours() == threads
    assert bits(objective(0)) == expected
    see_it_empty(client, tasks)
    shards.close()
    see_it_empty(client)


def test_an_interrupt_in_a_pullback_leaves_it_usable(client, log):
    def fun(x):
        return many_back(x, log, PAUSE)

    cotangents = [np.array([0.3, -1.0]), np.array([[0.3, -1.0], [1.0, 0.0]])]
    with dask.config.set(scheduler="sync"):
        plain = dg.vjp(lambda x: many_back(x, log, 0), X)[1]
        expected = [bits(plain(cotangent)) for cotangent in cotangents]
    _, pullback = dg.vjp(fun, X)
    tasks = tasks_of(client)
    for cotangent in cotangents:
        log.write_text("")
        interrupted(lambda c=cotangent: pullback(c), lambda: began(log, "backward") >= 2)
        see_nothing_begin(log, "cluster", "backward")
        wait_until(lambda: tasks_of(client) == tasks, 20)
    assert [bits(pullback(cotangent)) for cotangent in cotangents] == expected


def test_an_interrupt_in_the_forward_pass_of_a_pullback_releases_it(client, log):
    """It was persisted: its results would stay as long as their futures."""
    interrupted(lambda: dg.vjp(lambda x: many_vectors(x, log, PAUSE), X), lambda: began(log) >= 3)
    see_it_empty(client)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in a destructor
def test_interrupts_at_any_moment_leave_the_cluster_clean_and_right(client, log):
    """Also between the scheduler's taking of placed items and the client's getting of futures."""
    numbers = random.Random(5)

    def whole_life():
        with dg.place(ITEMS, grainsize=1) as shards:
            return dg.value_and_grad(lambda x: dg.map_sum(term, shards, x, log, 0))(X)

    def place():
        return len(dg.place(ITEMS, grainsize=1))

    def graph():
        return dg.value_and_grad(lambda x: many(x, log, 0))(X)

    for operation in (place, whole_life, graph):
        begin = time.monotonic()
        expected = bits(operation())
        took = time.monotonic() - begin
        for _ in range(6):
            delay = numbers.uniform(0.0, took)
            with contextlib.suppress(KeyboardInterrupt):
                in_a_moment(operation, delay)
        assert bits(operation()) == expected
        see_it_empty(client)


def in_a_moment(call, delay):
    """Calls, and sends this thread a SIGINT after so many seconds, whatever it does then."""
    me = threading.get_ident()
    timer = threading.Timer(delay, lambda: signal.pthread_kill(me, signal.SIGINT))
    timer.start()
    try:
        call()
        timer.join()
        time.sleep(0.01)  # it arrives here at the latest
    finally:
        timer.join()


# ----------------------------------------------------------------- in this thread, bytecode by


class Interrupting:
    """A context variable whose setting is interrupted just as it returns, once."""

    def __init__(self, variable):
        self._variable = variable
        self._armed = True
        self.get = variable.get
        self.reset = variable.reset

    def set(self, value):
        token = self._variable.set(value)
        if self._armed:
            self._armed = False
            raise KeyboardInterrupt
        return token


@pytest.mark.parametrize("derivative", [dg.value_and_grad, dg.delayed])
def test_an_interrupt_as_a_model_begins_leaves_no_model_running(derivative, monkeypatch, log):
    """Later sums in this thread would take themselves for sums inside a model."""
    monkeypatch.setattr(models, "_RUNNING", Interrupting(models._RUNNING))
    with dask.config.set({"scheduler": "sync"}), pytest.raises(KeyboardInterrupt):
        dask.compute(derivative(dg.delayed(piece))(X, 1.0, log, 0))
    assert not models.inside_model()


def test_an_interrupt_as_nans_begin_to_be_watched_leaves_nothing_watched(monkeypatch):
    from daskgrad.models import finite

    monkeypatch.setattr(finite, "_DEBUGGING", Interrupting(finite._DEBUGGING))
    with pytest.raises(KeyboardInterrupt), dg.debug_nans():
        pass
    assert not is_debugging()


# ------------------------------------------------------------------ a whole process, a terminal


SCRIPT = """
import sys
import dask, numpy
import test_interrupts as t
import daskgrad as dg

def main(log, scheduler):
    ran = lambda pause: dg.value_and_grad(lambda x: t.many(x, log, pause))(t.X)
    with dask.config.set({"scheduler": scheduler} if scheduler != "cluster" else {}):
        if scheduler != "cluster":
            try:
                ran(t.PAUSE)
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            print("again", ran(0)[0].hex(), flush=True)
            open(log, "w").close()
        ran(t.PAUSE)

if __name__ == "__main__":
    log, scheduler = sys.argv[1:]
    dask.config.set({"daskgrad.inline.seconds": 0, "num_workers": 2})
    if scheduler == "cluster":
        from clusters import cluster
        with cluster():
            main(log, scheduler)
    else:
        main(log, scheduler)
"""


@in_short("scheduler", ["cluster", "processes", "threads"], "threads")
def test_ctrl_c_in_a_terminal(scheduler, log, tmp_path):
    """It reaches every process of the group. The first is caught, the second ends the program.

    Where the cluster's workers belong to the terminal, too, the first one ends them and all else.
    """
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    process = started(script, log, scheduler)
    try:
        for _ in range(1 if scheduler == "cluster" else 2):
            wait_until(lambda: began(log) >= 3 or process.poll() is not None, 60)
            os.killpg(process.pid, signal.SIGINT)
            wait_until(lambda: began(log) < 3 or process.poll() is not None, 60)
        out, errors = process.communicate(timeout=60)  # all that could write have ended
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise AssertionError(process.communicate(timeout=30)) from None
    with dask.config.set(scheduler="sync"):
        expected = dg.value_and_grad(lambda x: many(x, log, 0))(X)[0]
    went_on = ["interrupted", f"again {expected.hex()}"]
    assert out.splitlines() == ([] if scheduler == "cluster" else went_on), errors
    assert "KeyboardInterrupt" in errors
    assert process.returncode == -signal.SIGINT


def started(script, log, scheduler):
    """The script in a group of processes of its own, as a terminal's."""
    here = os.path.dirname(__file__)
    return subprocess.Popen(
        [sys.executable, str(script), str(log), scheduler],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([here, *sys.path[1:]])},
    )


# ------------------------------------------------------------------- an exception in one model


class BadModelError(Exception):
    pass


def bad_piece(x, number, log, pause):
    value = piece(x, number, log, pause)
    if pause and began(log) > 3:
        raise BadModelError(f"number {number}")
    return value


def bad_term(item, x, log, pause):
    return bad_piece(x, item, log, pause)


def bad_many(x, log, pause):
    return dg.sum([dg.delayed(bad_piece)(x, item, log, pause) for item in ITEMS])


FAILING = {
    "value_and_grad": (value_and_grad(bad_many), "bad_piece"),
    "sum": (
        lambda *args: dg.value_and_grad(
            lambda x: dg.map_sum(bad_term, ITEMS, x, *args, grainsize=1)
        )(X),
        "bad_term",
    ),
    "vjp": (lambda *args: dg.vjp(lambda x: bad_many(x, *args), X)[0], "bad_piece"),
}


FAILURES = [
    (scheduler, name)
    for scheduler in ("in line", "sync", "threads", "processes", "cluster")
    for name in FAILING
]


@in_short(("scheduler", "name"), FAILURES, ("threads", "value_and_grad"), ("cluster", "sum"))
def test_an_exception_in_one_model_ends_the_others(scheduler, name, request, log):
    operation, model = FAILING[name]
    expected = bits_in_line(operation, log)
    with on(scheduler, request):
        operation(log, 0)
        with nothing_left(request, scheduler):
            with pytest.raises(BadModelError) as caught:
                operation(log, PAUSE)
            assert any(f"model {model!r}" in note for note in caught.value.__notes__)
            del caught
            see_nothing_begin(log, scheduler)
        assert bits(operation(log, 0)) == expected


def test_an_exception_in_one_term_ends_a_sum_over_placed_items(client, log):
    shards = dg.place(ITEMS, grainsize=1)
    objective = dg.value_and_grad(lambda x, *args: dg.map_sum(bad_term, shards, x, *args))
    expected = bits(objective(X, log, 0))
    tasks = tasks_of(client)
    with pytest.raises(BadModelError) as caught:
        objective(X, log, PAUSE)
    assert any("model 'bad_term', item" in note for note in caught.value.__notes__)
    del caught
    see_nothing_begin(log, "cluster")
    assert bits(objective(X, log, 0)) == expected
    see_it_empty(client, tasks)
