"""Ctrl-C, and an exception in one model: what was not begun never runs, and nothing is left."""

import contextlib
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import threading

import autograd.numpy as np
import dask
import pytest
from lengths import in_short
from probes import Turnstile, gated_back, see_it_empty, tasks_of
from schedulers import use_scheduler
from waiting import Gate, wait_until

import daskgrad as dg
from daskgrad.autodiff.models import model as models
from daskgrad.autodiff.models.finite import is_debugging
from daskgrad.autodiff.values.trees import flatten
from daskgrad.placed.worker import SumsPlugin

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(os.name == "nt", reason="signals to a thread are POSIX"),
]

N = 40  # models, or terms, of a program
X = np.linspace(0.1, 1.0, 4)
ITEMS = [float(number) for number in range(N)]
AT_ONCE = {  # tasks that may begin yet once those that have begun end
    "in line": 0,
    "sync": 0,
    "threads": dask.system.CPU_COUNT,
    "processes": 2,
    "cluster": 2,  # one more each that the workers have
}


@pytest.fixture
def gate(tmp_path):
    """Lets two models pass and stops the others, until it is opened."""
    return Turnstile(tmp_path / "gate", free=2)


# ------------------------------------------------------------------------------- what is run


def piece(x, number, gate):
    if gate is not None:
        gate.wait()
    return np.sum(np.sin(x * number))


def piece_back(x, number, gate):
    return np.array([1.0, 2.0]) * np.sum(np.sin(gated_back(x, gate) * number))


def vector_piece(x, number, gate):
    return np.array([1.0, 2.0]) * piece(x, number, gate)


def term(item, x, gate):
    return piece(x, item, gate)


def many(x, gate, model=piece):
    return dg.sum([dg.delayed(model)(x, item, gate) for item in ITEMS])


def many_vectors(x, gate):
    return many(x, gate, vector_piece)


def many_back(x, gate):
    return many(x, gate, piece_back)


def items(x, gate, term=term):
    return dg.map_sum(term, ITEMS, x, gate, grainsize=1)


def finite_difference(gate):
    model = dg.finite_difference(lambda x: piece(x, 1.0, gate))
    return dg.value_and_grad(lambda x: model(np.ones(20) * 0.1 * x))(0.5)


OPERATIONS = {
    "forward": lambda gate: dg.value_and_grad(many)(X, gate),
    "backward": lambda gate: dg.value_and_grad(lambda x: many_back(x, gate)[0])(X),
    "sum": lambda gate: dg.value_and_grad(items)(X, gate),
    "vjp": lambda gate: dg.vjp(lambda x: many_vectors(x, gate), X)[0],
    "jvp": lambda gate: dg.jvp(lambda x: many(x, gate), (X,), (X,)),
    "hvp": lambda gate: dg.hvp(lambda x: many(x, gate), (X,), (X,)),
    "jacobian": lambda gate: dg.jacobian(lambda x: many_back(x, gate))(X),
    "pushed jacobian": lambda gate: dg.jacobian(lambda x: many_vectors(x, gate), mode="forward")(X),
    "finite difference": finite_difference,
    "per item": lambda gate: dg.per_item(term, ITEMS, gradient="full", grainsize=1)(X, gate),
    "differentiate": lambda gate: dask.compute(
        *dg.differentiate(many(v := dg.variable(X), gate), v)
    ),
    "value": lambda gate: many(dg.variable(X), gate).compute(),
}
EVERYWHERE = ("forward", "backward", "sum")


def bits(tree):
    return [np.asarray(leaf).tobytes() for leaf in flatten(tree)[0] if leaf is not None]


def bits_in_line(operation):
    with dask.config.set({"scheduler": "sync", "daskgrad.inline.seconds": 60}):
        return bits(operation(None))


# ---------------------------------------------------------------------------------- tools


@pytest.fixture(autouse=True)
def interrupts_are_errors():
    """An import of dask-jobqueue, anywhere before, has made them exits."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(call, when):
    """Calls, sends this thread a SIGINT once ``when()`` holds, and sees that it arrives."""
    lock, me, calling = threading.Lock(), threading.get_ident(), True

    def watch():
        wait_until(lambda: when() or not calling)
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


def running_tasks(dask_worker):
    return len(dask_worker.state.executing)


def see_none_to_come(client, tasks):
    """Waits until scheduler and workers know that nobody wants more than so many tasks."""

    def ready_tasks(dask_worker):
        return len(dask_worker.state.ready)

    wait_until(lambda: tasks_of(client) <= tasks and not any(client.run(ready_tasks).values()))


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
def ended(request, scheduler, gate, again):
    """What is ended within runs no more than was under way then, and leaves nothing.

    No thread, no process, and on the cluster no task are there that were not there before.
    """
    processes = {process.pid for process in multiprocessing.active_children()}
    threads = threads_of_ours()
    client = request.getfixturevalue("client") if scheduler == "cluster" else None
    tasks = 0 if client is None else tasks_of(client)
    yield
    if client is not None:
        see_none_to_come(client, tasks)
    then = gate.count()
    gate.open()
    again()  # behind what had begun
    if client is not None:
        see_it_empty(client, tasks)
    assert gate.count() - then <= AT_ONCE[scheduler]
    assert gate.count() < N, "the test needs something that does not run"
    assert {process.pid for process in multiprocessing.active_children()} <= processes
    wait_until(lambda: threads_of_ours() == threads)


@contextlib.contextmanager
def on(scheduler, request):
    if scheduler == "in line":
        with dask.config.set({"scheduler": "sync", "daskgrad.inline.seconds": 60}):
            yield
    else:
        # a process would get six models as one task, which ends after the last of them
        with use_scheduler(scheduler, request), dask.config.set(chunksize=1):
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
def test_an_interrupt_ends_it(scheduler, name, request, gate):
    operation = OPERATIONS[name]
    expected = bits_in_line(operation)

    def again():
        assert bits(operation(None)) == expected

    with on(scheduler, request):
        again()  # starts what Dask keeps
        with ended(request, scheduler, gate, again):
            interrupted(lambda: operation(gate), gate.arrived)


def is_idle(client):
    """Whether the workers know that nobody waits for a sum over placed items."""

    def calls(dask_worker):
        plugins = dask_worker.plugins.values()
        return sum([len(each._running) for each in plugins if isinstance(each, SumsPlugin)])

    return not any(client.run(calls).values())


def test_an_interrupt_ends_a_sum_over_placed_items(client, gate):
    with dask.config.set(scheduler="sync"):
        expected = bits(dg.value_and_grad(items)(X, None))
    shards = dg.place(ITEMS, grainsize=1)
    objective = dg.value_and_grad(lambda x, gate: dg.map_sum(term, shards, x, gate))
    for _ in range(20):  # terms without a gate go in batches
        assert bits(objective(X, None)) == expected
    tasks, threads = tasks_of(client), threads_of_ours()
    interrupted(lambda: objective(X, gate), gate.arrived)
    wait_until(lambda: is_idle(client))
    then = gate.count()
    gate.open()
    assert bits(objective(X, None)) == expected
    assert gate.count() == then < N
    assert threads_of_ours() == threads
    see_it_empty(client, tasks)
    shards.close()
    see_it_empty(client)


def test_an_interrupt_in_a_pullback_leaves_it_usable(client, gate):
    cotangents = [np.array([0.3, -1.0]), np.array([[0.3, -1.0], [1.0, 0.0]])]
    with dask.config.set(scheduler="sync"):
        plain = dg.vjp(lambda x: many_back(x, None), X)[1]
        expected = [bits(plain(cotangent)) for cotangent in cotangents]
    _, pullback = dg.vjp(lambda x: many_back(x, gate), X)
    tasks = tasks_of(client)
    for cotangent in cotangents:
        gate.close()
        interrupted(lambda c=cotangent: pullback(c), gate.arrived)
        see_none_to_come(client, tasks)
        then = gate.count()
        gate.open()
        wait_until(lambda: not any(client.run(running_tasks).values()))
        assert gate.count() - then <= AT_ONCE["cluster"]
    assert [bits(pullback(cotangent)) for cotangent in cotangents] == expected


def test_an_interrupt_in_the_forward_pass_of_a_pullback_releases_it(client, gate):
    """It was persisted: its results would stay as long as their futures."""
    interrupted(lambda: dg.vjp(lambda x: many_vectors(x, gate), X), gate.arrived)
    gate.open()
    see_it_empty(client)


PACKAGE = str(pathlib.Path(dg.__file__).parent)


def functions_called(call):
    """How many calls of the package's functions this thread has made as each begins first."""
    firsts, count = {}, 0

    def on_call(code):
        nonlocal count
        firsts.setdefault(code, count)
        count += 1

    profiled(call, on_call)
    return list(firsts.values())


def profiled(call, on_call):
    def profile(frame, event, arg):
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            on_call(frame.f_code)

    sys.setprofile(profile)
    try:
        return call()
    finally:
        sys.setprofile(None)


def interrupted_at(call, number):
    """Calls, and interrupts as so many functions of the package have begun."""
    left = number

    def on_call(code):
        nonlocal left
        left -= 1
        if left == -1:
            sys.setprofile(None)
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        profiled(call, on_call)


def whole_life():
    with dg.place(ITEMS, grainsize=1) as shards:
        return dg.value_and_grad(lambda x: dg.map_sum(term, shards, x, None))(X)


def placed():
    return len(dg.place(ITEMS, grainsize=1))


def graph():
    return dg.value_and_grad(many)(X, None)


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.long), 20])
@pytest.mark.parametrize("operation", [whole_life, placed, graph])
def test_interrupts_at_any_moment_leave_the_cluster_clean_and_right(
    operation, step, client, monkeypatch
):
    """Also between the scheduler's taking of placed items and the client's getting of futures."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # some come in a destructor
    expected = bits(operation())
    for number in functions_called(operation)[::step]:
        interrupted_at(operation, number)
    assert bits(operation()) == expected
    see_it_empty(client)


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
def test_an_interrupt_as_a_model_begins_leaves_no_model_running(derivative, monkeypatch):
    """Later sums in this thread would take themselves for sums inside a model."""
    monkeypatch.setattr(models, "_RUNNING", Interrupting(models._RUNNING))
    with dask.config.set({"scheduler": "sync"}), pytest.raises(KeyboardInterrupt):
        dask.compute(derivative(dg.delayed(piece))(X, 1.0, None))
    assert not models.inside_model()


def test_an_interrupt_as_nans_begin_to_be_watched_leaves_nothing_watched(monkeypatch):
    from daskgrad.autodiff.models import finite

    monkeypatch.setattr(finite, "_DEBUGGING", Interrupting(finite._DEBUGGING))
    with pytest.raises(KeyboardInterrupt), dg.debug_nans():
        pass
    assert not is_debugging()


# ------------------------------------------------------------------ a whole process, a terminal


SCRIPT = """
import sys
import dask
import test_interrupts as t
import daskgrad as dg
from probes import Turnstile

ran = dg.value_and_grad(t.many)

def main(folder, scheduler):
    first, second = (Turnstile(f"{folder}/{name}", free=2) for name in ("first", "second"))
    if scheduler != "cluster":
        ran(t.X, None)  # imports all: an interrupt in a callback of an import is dropped by Python
        try:
            ran(t.X, first)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        first.open()
        print("again", ran(t.X, None)[0].hex(), flush=True)
    ran(t.X, second)

if __name__ == "__main__":
    folder, scheduler = sys.argv[1:]
    dask.config.set({"daskgrad.inline.seconds": 0, "num_workers": 2})
    if scheduler == "cluster":
        from clusters import cluster
        with cluster():
            main(folder, scheduler)
    else:
        with dask.config.set(scheduler=scheduler):
            main(folder, scheduler)
"""


@in_short("scheduler", ["cluster", "processes", "threads"], "threads")
def test_ctrl_c_in_a_terminal(scheduler, tmp_path):
    """It reaches every process of the group. The first is caught, the second ends the program.

    Where the cluster's workers belong to the terminal, too, the first one ends them and all else.
    """
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    process = started(script, tmp_path, scheduler)
    try:
        for name in ["second"] if scheduler == "cluster" else ["first", "second"]:
            stopped = Gate(tmp_path / name)
            wait_until(lambda g=stopped: g.arrived() or process.poll() is not None)
            os.killpg(process.pid, signal.SIGINT)
        stopped.open()  # threads end before the process
        out, errors = process.communicate(timeout=60)  # all that could write have ended
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise AssertionError(process.communicate(timeout=30)) from None
    with dask.config.set(scheduler="sync"):
        went_on = ["interrupted", f"again {graph()[0].hex()}"]
    assert out.splitlines() == ([] if scheduler == "cluster" else went_on), errors
    assert "KeyboardInterrupt" in errors
    assert process.returncode == -signal.SIGINT


def started(script, folder, scheduler):
    """The script in a group of processes of its own, as a terminal's."""
    here = os.path.dirname(__file__)
    return subprocess.Popen(
        [sys.executable, str(script), str(folder), scheduler],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([here, *sys.path[1:]])},
    )


# ------------------------------------------------------------------- an exception in one model


class BadModelError(Exception):
    pass


def bad_piece(x, number, gate):
    """A model that fails if it is the fourth to come to a gate."""
    if gate is not None and gate.wait() == 3:
        raise BadModelError(f"number {number}")
    return piece(x, number, None)


def bad_term(item, x, gate):
    return bad_piece(x, item, gate)


FAILING = {
    "value_and_grad": lambda gate: dg.value_and_grad(many)(X, gate, bad_piece),
    "sum": lambda gate: dg.value_and_grad(items)(X, gate, bad_term),
    "vjp": lambda gate: dg.vjp(lambda x: many(x, gate, bad_piece), X)[0],
}


FAILURES = [
    (scheduler, name)
    for scheduler in ("in line", "sync", "threads", "processes", "cluster")
    for name in FAILING
]


@in_short(("scheduler", "name"), FAILURES, ("threads", "value_and_grad"), ("cluster", "sum"))
def test_an_exception_in_one_model_ends_the_others(scheduler, name, request, gate):
    operation, model = FAILING[name], "bad_term" if name == "sum" else "bad_piece"
    expected = bits_in_line(operation)
    gate.free = 4

    def again():
        assert bits(operation(None)) == expected

    with on(scheduler, request):
        again()
        with ended(request, scheduler, gate, again):
            with pytest.raises(BadModelError) as caught:
                operation(gate)
            assert any(f"model {model!r}" in note for note in caught.value.__notes__)
            del caught


def test_an_exception_in_one_term_ends_a_sum_over_placed_items(client, gate):
    gate.free = 4
    shards = dg.place(ITEMS, grainsize=1)
    objective = dg.value_and_grad(lambda x, *args: dg.map_sum(bad_term, shards, x, *args))
    expected = bits(objective(X, None))
    tasks = tasks_of(client)
    with pytest.raises(BadModelError) as caught:
        objective(X, gate)
    assert any("model 'bad_term', item" in note for note in caught.value.__notes__)
    del caught
    wait_until(lambda: is_idle(client))
    then = gate.count()
    gate.open()
    assert bits(objective(X, None)) == expected
    assert gate.count() == then < N
    see_it_empty(client, tasks)
