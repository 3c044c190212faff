"""Evaluations on threads: handed over only where Dask's threads get more done than this one."""

import threading
import tracemalloc
import types

import autograd.numpy as np
import dask
import numpy
import pytest
from numpy.testing import assert_allclose

import daskgrad as dg
from daskgrad.derivatives import in_line, threads
from daskgrad.derivatives.threads import GAIN, PAUSE, SAMPLE, Kind

N = 64
X = numpy.linspace(0.2, 1.3, 4)
STEP = 5e-3  # seconds of a model
LOCKED, FREE, WAITING = "holds the lock", "releases the lock", "waits for others"


class Models:
    """Clocks that models alone move on, and the threads in which they ran.

    In the calling thread a second of the clock is one of the processors, or a tenth where a model
    waits. On Dask's threads models that are FREE or WAITING run two at a time.
    """

    def __init__(self, kind, monkeypatch):
        self.kind, self.clock, self.processor = kind, 0.0, 0.0
        self._lock, self._threads = threading.Lock(), []
        fake = types.SimpleNamespace(
            perf_counter=lambda: self.clock, process_time=lambda: self.processor
        )
        monkeypatch.setattr(threads, "time", fake)
        monkeypatch.setattr(in_line, "time", fake)

    def run(self):
        here = threading.get_ident()
        with self._lock:
            self._threads.append(here)
            is_alone = here == threading.main_thread().ident or self.kind == LOCKED
            self.clock += STEP if is_alone else STEP / 2
            self.processor += STEP / 10 if self.kind == WAITING else STEP

    def are_all_here(self):
        """Whether all that ran since the last question ran in this thread."""
        found, self._threads = self._threads, []
        assert found
        return set(found) == {threading.get_ident()}


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch):
    monkeypatch.setattr(threads, "_kinds", {})
    with dask.config.set({"daskgrad.inline.seconds": 0.02, "num_workers": 2}):
        yield


def gradients(models):
    """The gradient of a sum over items, and of a graph of as many nodes."""

    def term(item, x):
        models.run()
        return item * np.sum(x**2)

    node = dg.delayed(term, compile=False)
    return {
        "a sum": dg.grad(lambda x: dg.map_sum(node, list(range(N)), x, grainsize=1)),
        "a graph": dg.grad(lambda x: dg.sum([node(item, x) for item in range(N)])),
    }


@pytest.mark.parametrize("scheduler", [None, "threads"])
@pytest.mark.parametrize("of", ["a sum", "a graph"])
def test_models_that_hold_the_lock_stay_in_the_calling_thread(of, scheduler, monkeypatch):
    models = Models(LOCKED, monkeypatch)
    gradient = gradients(models)[of]
    found = []
    with dask.config.set(scheduler=scheduler):
        for _ in range(3 + PAUSE):
            assert_allclose(gradient(X), N * (N - 1) * X)
            found.append(models.are_all_here())
    assert found == [False, *[True] * PAUSE, False, True], "tried again after a while"


@pytest.mark.parametrize("kind", [FREE, WAITING])
@pytest.mark.parametrize("of", ["a sum", "a graph"])
def test_models_that_threads_run_side_by_side_are_handed_over(of, kind, monkeypatch):
    models = Models(kind, monkeypatch)
    gradient = gradients(models)[of]
    for _ in range(3):
        gradient(X)
        assert not models.are_all_here()


def test_what_is_known_is_of_the_same_models_and_about_as_many(monkeypatch):
    models = Models(LOCKED, monkeypatch)

    def gradient(count, name):
        def term(item, x):
            models.run()
            return item * np.sum(x)

        node = dg.delayed(term, name=name, compile=False)
        dg.grad(lambda x: dg.map_sum(node, list(range(count)), x, grainsize=1))(X)
        return models.are_all_here()

    assert not gradient(N, "one")
    assert gradient(N + 1, "one")
    assert not gradient(4 * N, "one")
    assert not gradient(N, "other")


def test_what_is_known_of_threads_is_not_of_processes(monkeypatch, pool):
    models = Models(LOCKED, monkeypatch)
    gradient = gradients(models)["a sum"]
    gradient(X)

    def hand_over(*args):
        raise InterruptedError("handed over")

    monkeypatch.setattr(in_line, "capture_with_dask", hand_over)
    with dask.config.set(scheduler="processes", pool=pool), pytest.raises(InterruptedError):
        gradient(X)


def test_a_sum_in_one_thread_is_no_graph(monkeypatch):
    models = Models(LOCKED, monkeypatch)
    monkeypatch.setattr(in_line, "capture_with_dask", None)
    with dask.config.set(scheduler="sync"):
        assert_allclose(gradients(models)["a sum"](X), N * (N - 1) * X)


def test_a_graph_that_stays_holds_no_more_results_than_one_on_threads(monkeypatch):
    """Dask drops each as soon as it is used."""
    models, x = Models(LOCKED, monkeypatch), numpy.ones(100_000)

    def model(x):
        models.run()
        return np.sin(x) * x

    wave, total = dg.delayed(model, compile=False), dg.delayed(np.sum)
    gradient = dg.grad(lambda x: dg.sum([total(wave(x * (1.0 + k))) for k in range(N)]))
    peaks = []
    for _ in range(2):
        tracemalloc.start()
        gradient(x)
        peaks.append(tracemalloc.get_traced_memory()[1] / x.nbytes)
        tracemalloc.stop()
        stayed = models.are_all_here()
    assert stayed
    assert peaks[1] < N, "each node makes four arrays"


def test_the_pauses_between_trials_grow_until_threads_gain():
    kind, pauses = Kind(), []
    for _ in range(3):
        kind.learn(GAIN - 0.01)
        pauses.append(next(n for n in range(1000) if not kind.stays()))
    assert pauses == [PAUSE, 2 * PAUSE, 4 * PAUSE]
    kind.learn(GAIN)
    assert not kind.stays()
    kind.learn(1.0)
    assert sum([kind.stays() for _ in range(100)]) == PAUSE


def test_too_little_is_no_measurement(monkeypatch):
    models = Models(LOCKED, monkeypatch)
    gradient = gradients(models)["a sum"]
    with dask.config.set({"daskgrad.inline.seconds": SAMPLE / 10}):
        monkeypatch.setattr("test_threads.STEP", SAMPLE / 10)
        for _ in range(3):
            gradient(X)
            assert not models.are_all_here()
