"""Evaluations on threads: in the calling thread only where Dask's threads get no more done."""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import autograd.numpy as np
import dask
import numpy
import pytest
from numpy.testing import assert_allclose
from probes import peak_bytes

import daskgrad as dg
from daskgrad.autodiff.values import clock
from daskgrad.derivatives import in_line
from daskgrad.derivatives.in_line import LARGE, NODE_TASKS, TASK_SECONDS, gains_always

N = 64
X = numpy.linspace(0.2, 1.3, 4)
STEP = 5.0 * NODE_TASKS * TASK_SECONDS  # seconds of a model: more than threads cost
NUMBERS = LARGE // 8  # of a large array


class Models:
    """Clocks that models alone move on, and the threads in which they ran.

    ``busy``: how much of a second of the clock is one of the calling thread's processor;
    ``preempted``: others take its processor in each model.
    """

    def __init__(self, monkeypatch, busy=1.0, preempted=False):
        self.busy, self.clock, self.processor = busy, 0.0, 0.0
        self.preempted, self.preemptions = preempted, 0
        self._lock, self._threads = threading.Lock(), []
        monkeypatch.setattr(clock, "seconds", lambda: self.clock)
        for name in ("thread_seconds", "processor_seconds"):
            monkeypatch.setattr(clock, name, lambda: self.processor)
        monkeypatch.setattr(clock, "preemptions", lambda: self.preemptions)

    def run(self):
        with self._lock:
            self._threads.append(threading.get_ident())
            self.clock += STEP
            self.processor += self.busy * STEP
            self.preemptions += self.preempted

    def runs_here(self):
        """How many ran in this thread since the last question, and whether these were all."""
        found, self._threads = self._threads, []
        count = found.count(threading.get_ident())
        return count, count == len(found)


def ways(models, evaluate, times):
    """A letter for each evaluation: H if its models ran in this thread, D on others."""
    letters = ""
    for _ in range(times):
        evaluate()
        count, are_all = models.runs_here()
        assert are_all or not count, "nothing changes in the middle"
        letters += "H" if are_all else "D"
    return letters


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    for known in ("_measured", "_latest"):
        monkeypatch.setattr(in_line, known, {})
    with dask.config.set({"daskgrad.inline.seconds": 0.02, "num_workers": 2}):
        yield


def gradients(models, grainsize=1):
    def term(item, x):
        models.run()
        return item * np.sum(x**2)

    node = dg.delayed(term, compile=False)
    return {
        "a sum": dg.grad(lambda x: dg.map_sum(node, list(range(N)), x, grainsize=grainsize)),
        "a graph": dg.grad(lambda x: dg.sum([node(item, x) for item in range(N)])),
    }


@pytest.mark.parametrize("of", ["a sum", "a graph"])
@pytest.mark.parametrize("scheduler", [None, "threads"])
@pytest.mark.parametrize(("busy", "preempted"), [(0.5, False), (1.0, False), (0.1, True)])
def test_models_of_small_arrays_stay_in_the_calling_thread(
    of, scheduler, busy, preempted, monkeypatch
):
    """They hold Python's lock, also on a machine that others keep busy."""
    models = Models(monkeypatch, busy, preempted)
    gradient = gradients(models)[of]
    with dask.config.set(scheduler=scheduler):
        assert ways(models, lambda: gradient(X), 4) == "DHHH", "the first is not measured yet"
        assert_allclose(gradient(X), N * (N - 1) * X)


@pytest.mark.parametrize("of", ["a sum", "a graph"])
@pytest.mark.parametrize("busy", [0.0, 0.4])
def test_models_that_wait_run_on_threads(of, busy, monkeypatch):
    """As long as they do."""
    models = Models(monkeypatch, busy)
    gradient = gradients(models)[of]
    assert ways(models, lambda: gradient(X), 20) == "DH" + 18 * "D"
    models.busy = 1.0
    assert ways(models, lambda: gradient(X), 4) == "DHHH"


def test_waiting_is_seen_while_another_thread_computes(monkeypatch):
    """The clock of the calling thread counts, not that of the process."""
    monkeypatch.setattr(clock, "preemptions", lambda: 0)
    done = threading.Event()

    def compute():
        begin = time.thread_time()
        while time.thread_time() - begin < 0.05:
            pass
        done.set()

    watch = in_line.Stopwatch(clock.thread_seconds)
    thread = threading.Thread(target=compute)
    thread.start()
    assert done.wait(60)
    assert watch.waits()
    thread.join(60)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells them apart")
def test_waits_are_no_preemptions(monkeypatch):
    usage = SimpleNamespace(ru_nivcsw=5, ru_nvcsw=2)
    monkeypatch.setattr(clock.resource, "getrusage", {clock.resource.RUSAGE_THREAD: usage}.get)
    assert clock.preemptions() == 3


LARGE_ARRAYS = {  # whether they go to threads
    "large items": (lambda node: node.over([numpy.ones(NUMBERS)] * N, 1.0), True),
    "rows": (lambda node: node.over(numpy.ones((N, NUMBERS)), 1.0), True),
    "slices": (lambda node: node.over_slices(numpy.ones((16 * N, NUMBERS // 16)), 1.0), True),
    "items in a tuple": (lambda node: node.over([(numpy.ones(NUMBERS), 1)] * N, 1.0), True),
    "smaller ones": (lambda node: node.over([numpy.ones(NUMBERS - 1)] * N, 1.0), False),
    "smaller rows": (lambda node: node.over(numpy.ones((N, NUMBERS - 1)), 1.0), False),
    "a large shared argument": (lambda node: node.over([1.0] * N, numpy.ones(NUMBERS)), True),
    "a large constant": (lambda node: node.nodes(numpy.ones(NUMBERS), 1.0), True),
    "a large variable": (lambda node: node.nodes(1.0, numpy.ones(NUMBERS)), True),
    "a small variable": (lambda node: node.nodes(1.0, numpy.ones(NUMBERS - 1)), False),
    "a large value": (lambda node: node.nodes(1.0, 1.0, makes=numpy.ones(NUMBERS)), True),
}


class Calls:
    """Gradients with respect to ``x``."""

    def __init__(self, models):
        self.models = models

    def term(self, item, x, makes=1.0):
        self.models.run()
        first = item[0] if isinstance(item, (tuple, list)) else item
        return np.sum(first) * np.sum(x) * makes

    def over(self, items, x):
        node = dg.delayed(self.term, compile=False)
        dg.grad(lambda x: dg.map_sum(node, items, x, grainsize=1))(x)

    def over_slices(self, items, x):
        node = dg.delayed(self.term, compile=False)
        dg.grad(lambda x: dg.reduce_sum(node, items, x, grainsize=16))(x)

    def nodes(self, constant, x, makes=1.0):
        node, total = dg.delayed(self.term, compile=False), dg.delayed(np.sum)
        dg.grad(lambda x: dg.sum([total(node(constant, x, makes)) for _ in range(N)]))(x)


@pytest.mark.parametrize("name", LARGE_ARRAYS)
def test_models_of_large_arrays_run_on_threads(name, monkeypatch):
    """They release Python's lock."""
    run, are_large = LARGE_ARRAYS[name]
    models = Models(monkeypatch)
    assert ways(models, lambda: run(Calls(models)), 3) == ("DDD" if are_large else "DHH")


@pytest.mark.parametrize("seconds", [0.02, 60.0])
def test_a_short_evaluation_stays_in_the_calling_thread(seconds, monkeypatch):
    """However large its arrays are."""
    models = Models(monkeypatch)
    with dask.config.set({"daskgrad.inline.seconds": seconds}):
        over = ways(models, lambda: Calls(models).over([numpy.ones(NUMBERS)] * N, 1.0), 3)
    assert over == ("DHH" if seconds == 60.0 else "DDD")


def test_other_data_are_expected_to_take_as_long_for_each_item(monkeypatch):
    models = Models(monkeypatch)
    node = Calls(models)

    def over(count):
        return ways(models, lambda: node.over([numpy.ones(NUMBERS)] * count, 1.0), 1)

    with dask.config.set({"daskgrad.inline.seconds": 2.5 * STEP}):
        assert [over(count) for count in (2, 2, 3, 64)] == ["D", "H", "H", "D"]


def test_a_chain_stays_in_the_calling_thread(monkeypatch):
    models = Models(monkeypatch)

    def model(x):
        models.run()
        return np.sin(x)

    wave, total = dg.delayed(model, compile=False), dg.delayed(np.sum)
    x = numpy.ones(NUMBERS)
    assert ways(models, lambda: dg.grad(lambda x: total(wave(wave(x))))(x), 1) == "H"


def test_who_gains_from_dask_always(pool):
    assert not gains_always()
    with ThreadPoolExecutor(2) as executor, dask.config.set(pool=executor):
        assert not gains_always()
    with dask.config.set(scheduler="sync"):
        assert not gains_always()
    for way in ({"pool": pool}, {"scheduler": "processes"}):
        with dask.config.set(way):
            assert gains_always()


@pytest.mark.parametrize("scheduler", [None, "sync"])
def test_a_graph_of_large_arrays_holds_few_results(scheduler, monkeypatch):
    """Dask drops each as soon as it is used."""
    models, x = Models(monkeypatch), numpy.ones(100_000)

    def model(x):
        models.run()
        return np.sin(x) * x

    wave, total = dg.delayed(model, compile=False), dg.delayed(np.sum)
    gradient = dg.grad(lambda x: dg.sum([total(wave(x * (1.0 + k))) for k in range(N)]))
    with dask.config.set(scheduler=scheduler):
        for _ in range(2):
            assert peak_bytes(lambda: gradient(x)) / x.nbytes < N, "each node makes four arrays"
