"""Primitives and files that tell tests where and how often something ran.

Workers that the tests start import this module: the rule of a primitive is not sent by value.
"""

import gc
import os
import pathlib
import sys
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import autograd.numpy as np
from autograd.extend import defvjp, primitive
from distributed import get_worker
from waiting import Gate, wait_until

import daskgrad as dg
from daskgrad.derivatives import eager, in_line
from daskgrad.derivatives.objectives import Objective


def write(path, line):
    with open(path, "a") as file:  # one short line: appended whole
        file.write(line + "\n")


def lines(path):
    return pathlib.Path(path).read_text().split("\n")[:-1]


def tasks_of(client):
    """How many tasks the scheduler knows."""
    return client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))


def see_it_empty(client, tasks=0, collects=False):
    """Waits until scheduler and workers hold no more than so many tasks."""

    def on_workers():
        return sum(client.run(lambda dask_worker: len(dask_worker.state.tasks)).values())

    def is_empty():
        if collects:
            gc.collect()  # again and again: the event loop may have held the latest exception
        return max(tasks_of(client), on_workers()) <= tasks

    wait_until(is_empty)


def functions_run(fun, *args):
    """The names of the functions written in Python that a call runs.

    The collector waits meanwhile: it would run finalizers of what earlier calls have left.
    """
    names = []

    def called(frame, event, arg):
        if event == "call":
            names.append(frame.f_code.co_qualname)

    gc.disable()
    sys.setprofile(called)
    try:
        fun(*args)
    finally:
        sys.setprofile(None)
        gc.enable()
    return names


def in_threads(call, threads=8, times=2000):
    """Calls ``call(thread, number)`` in several threads at once; raises the first error."""

    def loop(thread):
        for number in range(times):
            call(thread, number)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(loop, range(threads)))


def peak_bytes(call):
    """The most bytes that a call holds at once beyond those that there were."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


class Turnstile(Gate):
    """A gate that lets so many models pass while it is closed, and counts who comes."""

    def __init__(self, path, free=0):
        super().__init__(path)
        self.free = free
        self.log = f"{path}.log"
        self.close()

    def close(self):
        for file in self._path.parent.glob(f"{self._path.name}*"):
            file.unlink()
        pathlib.Path(self.log).touch()

    def wait(self, name=""):
        """Says that a model is here, and how many were before; waits unless it may pass."""
        rank = 0
        while not self._is_mine(rank):
            rank += 1
        write(self.log, f"{name} {os.getpid()}")
        if rank >= self.free:
            super().wait(name)
        return rank

    def count(self):
        """How many models have come."""
        return len(lines(self.log))

    def _is_mine(self, rank):
        try:
            os.close(os.open(f"{self._path}.{rank}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


@primitive
def gated_back(x, gate, name="backward"):
    """The identity, whose pullback waits at a gate, if there is one."""
    return x


def gated_back_vjp(ans, x, gate, name="backward"):
    def gated_back_pullback(g):
        if gate is not None:
            gate.wait(name)
        return g

    return gated_back_pullback


@primitive
def watched(x, path, label):
    """The identity, which writes on which worker its pullback ran."""
    return x


def watched_vjp(ans, x, path, label):
    def watched_pullback(g):
        write(path, f"{label} {get_worker().address}")
        return g

    return watched_pullback


@primitive
def holding(x, thing):
    """The identity, whose tape holds a thing and uses it."""
    return x


def holding_vjp(ans, x, thing):
    def holding_pullback(g):
        assert thing is None or repr(thing)
        return g

    return holding_pullback


def counting():
    """A generator that has begun."""
    numbers = iter(number for number in range(3))
    next(numbers)
    return numbers


THINGS = {
    "nothing": lambda: None,
    "a lock": threading.Lock,
    "a generator": counting,
    "a file": lambda: open(__file__, "rb"),
}


defvjp(gated_back, gated_back_vjp, None, None)
defvjp(holding, holding_vjp, None)
defvjp(watched, watched_vjp, None, None)


def holds_lock(x, log):
    """A model whose tape cannot be pickled."""
    write(log, "ran")
    return holding(np.sin(x), threading.Lock()) ** 2


def deep_chain(x, log):
    """A chain of 10,000 primitives."""
    write(log, "ran")
    for _ in range(5_000):
        x = np.sin(x) * 1.0001
    return x


@dg.custom_vjp
def ruled(x):
    """The identity; a test gives it rules."""
    return x


def forget_evaluations(monkeypatch):
    """No evaluation of another test is known."""
    for module, names in ((eager, ("_known", "_refused")), (in_line, ("_measured", "_latest"))):
        for name in names:
            monkeypatch.setattr(module, name, {})


def objective_of(gradient):
    """What ``dg.value_and_grad`` keeps of the function that it differentiates; None where that is
    left to its graph."""
    held = [cell.cell_contents for cell in gradient.__closure__]
    return next((thing for thing in held if type(thing) is Objective), None)


def whole_programs(gradient):
    """The programs of value and gradient, and why there is none for some calls."""
    programs = objective_of(gradient).programs()
    entries = list(programs._entries.values())
    return [way for entry in entries for way in entry.ways], [
        programs.impurity or programs.impurity_of_path or programs.reason,
        *[entry.refusal for entry in entries],
    ]
