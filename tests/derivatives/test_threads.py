"""Evaluations on threads: handed over only where Dask's threads get more done than this one."""

import contextlib
import threading
import types
from concurrent.futures import ThreadPoolExecutor

import autograd.numpy as np
import dask
import numpy
import pytest
from numpy.testing import assert_allclose
from probes import peak_bytes

import daskgrad as dg
from daskgrad.autodiff.values import clock
from daskgrad.derivatives import in_line
from daskgrad.derivatives import in_line as threads
from daskgrad.derivatives.in_line import CHANGE, DOUBT, LITTLE_GAIN, MUCH_GAIN, SAMPLE, Kind

N = 64
X = numpy.linspace(0.2, 1.3, 4)
STEP = 5e-3  # seconds of a model
# seconds of the clock and of the processors that a model takes on threads, over STEP
LOCKED, SOMEWHAT_LOCKED = (1.5, 1.6), (1.3, 1.95)
SOMEWHAT_FREE, FREE, WAITING = (0.8, 1.28), (0.5, 1.0), (0.5, 0.1)
FREE_BUT_UNSEEN = (0.125, 0.15)
WAITING_IN_TURN = (1.5, 0.1)


class Models:
    """Clocks that models alone move on, and the threads in which they ran.

    In the calling thread a second of the clock is one of the processors, or a tenth where a model
    waits for something else.
    """

    def __init__(self, kind, monkeypatch):
        self.kind, self.clock, self.processor = kind, 0.0, 0.0
        self._lock, self._threads = threading.Lock(), []
        monkeypatch.setattr(clock, "seconds", lambda: self.clock)
        monkeypatch.setattr(clock, "processor_seconds", lambda: self.processor)

    def run(self):
        here = threading.get_ident()
        alone = (1.0, 0.1 if self.kind in (WAITING, WAITING_IN_TURN) else 1.0)
        clock, processor = alone if here == threading.main_thread().ident else self.kind
        with self._lock:
            self._threads.append(here)
            self.clock += clock * STEP
            self.processor += processor * STEP

    @contextlib.contextmanager
    def alone(self):
        """Here nothing runs beside a model, wherever it runs."""
        kind, self.kind = self.kind, (1.0, 1.0)
        yield
        self.kind = kind

    def are_all_here(self):
        """Whether all that ran since the last question ran in this thread."""
        found, self._threads = self._threads, []
        assert found
        return set(found) == {threading.get_ident()}


@pytest.fixture(autouse=True)
def two_threads():
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


def ways(gradient, models, count):
    """For so many evaluations: "h", if all of it ran here, or "t" for Dask's threads."""
    found = ""
    for _ in range(count):
        assert_allclose(gradient(X), N * (N - 1) * X)
        found += "h" if models.are_all_here() else "t"
    return found


@pytest.mark.parametrize(
    ("of", "scheduler", "kind"),
    [
        ("a sum", None, LOCKED),
        ("a graph", None, SOMEWHAT_LOCKED),
        ("a sum", "threads", SOMEWHAT_LOCKED),
    ],
)
def test_models_that_hold_the_lock_stay_in_the_calling_thread(of, scheduler, kind, monkeypatch):
    """Threads are tried first, and then twice after 4, 8 ... evaluations."""
    models = Models(kind, monkeypatch)
    with dask.config.set(scheduler=scheduler):
        found = ways(gradients(models)[of], models, 19)
    assert found == "t" + "h" + "hhhh" + "tt" + "hhhhhhhh" + "tt" + "h"


@pytest.mark.parametrize("of", ["a sum", "a graph"])
def test_models_that_threads_run_sooner_are_handed_over(of, monkeypatch):
    """The calling thread is tried second, and then twice after 4, 8 ... evaluations."""
    models = Models(SOMEWHAT_FREE, monkeypatch)
    found = ways(gradients(models)[of], models, 19)
    assert found == "t" + "h" + "tttt" + "hh" + "tttttttt" + "hh" + "t"


@pytest.mark.parametrize(
    ("of", "kind"), [("a sum", WAITING), ("a graph", WAITING_IN_TURN), ("a graph", FREE)]
)
def test_threads_that_are_busy_side_by_side_are_not_doubted(of, kind, monkeypatch):
    models = Models(kind, monkeypatch)
    assert ways(gradients(models)[of], models, 9) == "t" * 9


def test_a_sum_that_takes_far_longer_than_threads_does_not_stay_to_the_end(monkeypatch):
    models, took = Models(FREE_BUT_UNSEEN, monkeypatch), []
    gradient = gradients(models)["a sum"]
    for _ in range(4):
        begin = models.clock
        assert ways(gradient, models, 1) == "t"
        took.append(models.clock - begin)
    assert took[0] < took[1] < 4 * took[0], "tried; 64 models here would take five times as long"
    assert took[2:] == pytest.approx(took[:1] * 2)


def test_all_that_threads_do_in_an_evaluation_counts(monkeypatch):
    """Not the last part alone: here a chain, of which threads run one model after the other."""
    models = Models(FREE, monkeypatch)

    def term(item, x):
        models.run()
        return item * np.sum(x**2)

    def link(x):
        with models.alone():
            models.run()
        return 0.5 * x

    items, node = list(range(N)), dg.delayed(link, compile=False)

    def objective(x):
        total = dg.map_sum(dg.delayed(term, compile=False), items, x, grainsize=1)
        end = dg.delayed(np.sum)(x)
        for _ in range(12):
            end = node(end)
        return total + end

    took = []
    for _ in range(4):
        begin = models.clock
        dg.grad(objective)(X)
        took.append(models.clock - begin)
    assert took == pytest.approx([took[0]] * 4), "it is not tried here"


def test_what_is_known_is_of_the_same_models_and_about_as_much(monkeypatch):
    models = Models(LOCKED, monkeypatch)

    def one(item, x, constant=0.0):
        models.run()
        return item * np.sum(x)

    def other(item, x):
        models.run()
        return item * np.sum(x)

    def is_known(model, count=N, x=X, constants=()):
        node = dg.delayed(model, name="model", compile=False)
        dg.grad(lambda x: dg.map_sum(node, list(range(count)), x, *constants, grainsize=1))(x)
        return models.are_all_here()

    assert not is_known(one)
    assert is_known(one, count=N + 1)
    assert not is_known(one, count=4 * N)
    assert not is_known(one, x=numpy.ones(1000))
    assert not is_known(one, constants=[numpy.zeros(20_000)])
    assert is_known(one, constants=[numpy.ones(20_000)])
    assert not is_known(one, constants=[numpy.zeros(200_000)])
    assert not is_known(other)


def test_all_parts_of_a_list_of_parameters_are_alike(monkeypatch):
    models = Models(LOCKED, monkeypatch)

    def term(item, x):
        models.run()
        return item * x**2

    node, parameters = dg.delayed(term, compile=False), [1.0] * 100
    for start in (0, 10, 20):
        dg.grad(lambda x, start=start: dg.sum([node(n, x[start + n]) for n in range(32)]))(
            parameters
        )
    assert len(threads._kinds) == 1


def test_nothing_is_compared_unless_dask_would_use_threads(pool):
    assert threads.uses_threads()
    with ThreadPoolExecutor(2) as executor, dask.config.set(pool=executor):
        assert threads.uses_threads()
    for way in ({"pool": pool}, {"scheduler": "processes"}, {"scheduler": "sync"}):
        with dask.config.set(way):
            assert not threads.uses_threads()


def test_observers_see_the_tasks_of_a_graph(monkeypatch):
    models = Models(LOCKED, monkeypatch)
    gradient = gradients(models)["a sum"]
    assert ways(gradient, models, 2) == "th"
    with dg.progress():
        assert ways(gradient, models, 1) == "t"


def test_what_stays_runs_in_steps_of_the_time_there_was(monkeypatch):
    """So it holds no more items at a time, and errors come as early."""
    models = Models(LOCKED, monkeypatch)
    comparison = types.SimpleNamespace(stays=lambda: True, gives_up=lambda: False)
    runs = []
    for start, stop in in_line.runs_here(1001, in_line.Budget(0.02), comparison):
        runs.append(stop - start)
        models.clock += STEP * (stop - start)
    assert sum(runs) == 1001
    assert runs[:4] == [1, 1, 2, 4]
    assert set(runs[3:-1]) == {4}


def test_times_are_of_an_item(monkeypatch):
    """Here more items took longer than fewer on threads."""
    models = Models(SOMEWHAT_LOCKED, monkeypatch)

    def term(item, x):
        models.run()
        return item * np.sum(x)

    node, stayed = dg.delayed(term, compile=False), []
    for count in (64, 120, 64):
        dg.grad(lambda x, n=count: dg.map_sum(node, list(range(n)), x, grainsize=1))(X)
        stayed.append(models.are_all_here())
    assert stayed == [False, True, True]


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
        peaks.append(peak_bytes(lambda: gradient(x)) / x.nbytes)
        stayed = models.are_all_here()
    assert stayed
    assert peaks[1] < N, "each node makes four arrays"


def compared(gain=1.5, threads=2.0, here=1.0):
    """What is known of a kind after one evaluation each way."""
    kind = Kind()
    kind.gain = gain
    kind.learn(stayed=False, seconds=threads)
    kind.learn(stayed=True, seconds=here)
    return kind


def test_the_other_way_is_tried_again_soon_after_a_change():
    kind = compared()
    assert [kind.choose() for _ in range(16)].count(False) == 4
    kind.learn(stayed=False, seconds=0.5)
    assert [kind.choose() for _ in range(16)].count(True) == 4


def test_pauses_do_not_grow_for_ever():
    kind = compared()
    chosen = [kind.choose() for _ in range(3000)]
    assert chosen[1000:].count(False) > 10


def test_a_way_is_not_left_for_one_that_is_hardly_quicker():
    kind = compared()
    for seconds, stays in ((2.0, True), (0.99, True), (1.0 / CHANGE - 0.01, False)):
        kind.learn(stayed=False, seconds=seconds)
        assert kind.choose() is stays


def test_one_slow_evaluation_changes_nothing_and_several_do():
    kind = compared(threads=1.25)
    assert kind.choose()
    kind.learn(stayed=True, seconds=2.0)
    assert kind.choose()
    kind.learn(stayed=True, seconds=2.0)
    kind.learn(stayed=True, seconds=2.0)
    assert not kind.choose()
    kind.learn(stayed=False, seconds=3.0)
    kind.learn(stayed=True, seconds=1.0)
    assert kind.choose(), "a quick one counts at once"


KNOWN = {  # gain, seconds on threads and here, whether it stays
    "little gain": (LITTLE_GAIN - 0.01, 1.0, DOUBT - 0.01, True),
    "little gain, far slower": (LITTLE_GAIN - 0.01, 1.0, DOUBT + 0.01, False),
    "some gain, quicker": (LITTLE_GAIN, CHANGE + 0.01, 1.0, True),
    "some gain, hardly quicker": (LITTLE_GAIN, CHANGE - 0.01, 1.0, False),
    "much gain, quicker": (MUCH_GAIN, CHANGE + 0.01, 1.0, True),
}


@pytest.mark.parametrize(("gain", "threads", "here", "stays"), KNOWN.values(), ids=KNOWN)
def test_times_decide_where_both_are_known(gain, threads, here, stays):
    assert compared(gain, threads, here).choose() is stays


def test_too_little_is_no_measurement(monkeypatch):
    models = Models(LOCKED, monkeypatch)
    gradient = gradients(models)["a sum"]
    with dask.config.set({"daskgrad.inline.seconds": SAMPLE / 10}):
        monkeypatch.setattr("test_threads.STEP", SAMPLE / 10)
        for _ in range(3):
            gradient(X)
            assert not models.are_all_here()
