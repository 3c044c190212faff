"""Programs in processes of their own, of which one runs at a time.

A host is a freshly started process with one BLAS thread and malloc's default settings. It sets
programs up (pools, clusters, data) and runs one of them whenever it is asked to. Meanwhile the
other hosts, with all processes that they have started, are stopped by SIGSTOP: idle pools and
clusters take no time from the one that is measured. Should the benchmark be killed, the kernel ends
the stopped process groups with it (SIGHUP, as a shell's jobs).
"""

import contextlib
import functools
import gc
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import dask
from distributed import Client, LocalCluster

Program = Callable[[Any], Any]
Setup = Callable[[], contextlib.AbstractContextManager[Mapping[str, Program]]]

BLAS_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
SETTLE = 0.2  # seconds in which a host that was stopped does what has become due
CLOSE = 60.0  # seconds in which a host ends by itself

spawn = multiprocessing.get_context("spawn")


class Measured(NamedTuple):
    seconds: float
    result: Any


def in_rounds(
    programs: Mapping[str, Callable[[Any], Measured]],
    rounds: int,
    argument: Callable[[int], Any],
) -> dict[str, list[Measured]]:
    """Runs every program once a round, in a random order, with the round's argument.

    A round before the first one, whose times are not kept, warms everything up.
    """
    shuffle = random.Random(0)
    measured: dict[str, list[Measured]] = {name: [] for name in programs}
    for number in range(-1, rounds):
        for name in shuffle.sample(list(programs), len(programs)):
            once = programs[name](argument(number))
            if number >= 0:
                measured[name].append(once)
    return measured


@contextlib.contextmanager
def hosted(*setups: Setup) -> Iterator[dict[str, Callable[[Any], Measured]]]:
    """A host for each setup; gives their programs by name, to be called from here."""
    plain_environment()
    started: list[Host] = []
    try:
        for setup in setups:
            started.append(Host(setup))
        yield {name: functools.partial(host.run, name) for host in started for name in host.ready()}
    finally:
        for host in started:
            host.wake()
        time.sleep(SETTLE)
        for host in started:
            host.close()
        for host in started:
            host.join()


def plain_environment() -> None:
    """What the hosts inherit: one BLAS thread, and malloc's defaults."""
    for name in BLAS_THREADS:
        os.environ[name] = "1"
    for name in [name for name in os.environ if name.startswith("MALLOC_")]:
        del os.environ[name]


@contextlib.contextmanager
def cluster(workers: int) -> Iterator[Client]:
    """A client of a new cluster of worker processes with a thread each, on this machine."""
    with (
        dask.config.set({"distributed.scheduler.worker-ttl": None}),  # no heartbeats while stopped
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as local,
        Client(local) as client,
    ):
        yield client


class Host:
    """The caller's side of a host."""

    def __init__(self, setup: Setup):
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=serve, args=(theirs, setup))
        self._process.start()
        theirs.close()

    def ready(self) -> list[str]:
        """Waits until the programs are set up, stops the host, and returns their names."""
        names = self._answer()
        self._signal(signal.SIGSTOP)
        return names

    def run(self, name: str, argument: Any) -> Measured:
        self.wake()
        time.sleep(SETTLE)
        self._pipe.send((name, argument))
        measured = self._answer()
        self._signal(signal.SIGSTOP)
        return measured

    def wake(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended, or not yet begun
            self._signal(signal.SIGCONT)

    def close(self) -> None:
        """Tells the host to end."""
        self._pipe.close()

    def join(self) -> None:
        self._process.join(CLOSE)
        if self._process.is_alive():
            self._signal(signal.SIGKILL)

    def _answer(self) -> Any:
        try:
            return self._pipe.recv()
        except EOFError:
            raise SystemExit("a host has failed; its error is printed above") from None

    def _signal(self, number: int) -> None:
        os.killpg(self._process.pid, number)


def serve(pipe: Connection, setup: Setup) -> None:
    """A host's main function: it and all that it starts are one process group."""
    os.setpgid(0, 0)
    with setup() as programs:
        pipe.send(list(programs))
        answer(pipe, programs)
        del programs  # with what they hold, such as items on a cluster that is closed next
        gc.collect()


def answer(pipe: Connection, programs: Mapping[str, Program]) -> None:
    """Runs what the other side asks for, until it closes the pipe."""
    with contextlib.suppress(EOFError):
        while True:
            name, argument = pipe.recv()
            pipe.send(timed(programs[name], argument))


def timed(program: Program, argument: Any) -> Measured:
    gc.collect()
    start = time.perf_counter()
    result = program(argument)
    return Measured(time.perf_counter() - start, result)
