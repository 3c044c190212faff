"""What coordination costs: models that wait instead of computing, on more and more workers.

    python benchmarks/scaling.py [--quick] [--rounds N] [--results DIR]

What is measured: one value and gradient of a sum with one item a worker, on clusters of 1, 2, 4, 8
and 16 worker processes with a thread each, all on this machine. A model waits 0.1 s, without the
GIL, and returns the sum of its point times its item. So each worker has 0.1 s of work a call,
however many there are (weak scaling), and what is left is coordination. The efficiency is 0.1 s
over the time of a call; a time is the median over the rounds of the mean over a round's calls.
Points have 10^2 and 10^6 numbers, and so have gradients; with the latter, the workers' own work on
arrays of that size, on all of this machine's cores, counts as well.

The waits need no core, but what surrounds them does. Where there are fewer cores than processes,
the processor time of one worker is waiting time of others, also that of Dask itself (each worker
samples its threads 100 times a second, and sends heartbeats). On a cluster every worker has a core
of its own, so the efficiencies here are lower bounds. How much of the rest is daskgrad's, two peers
tell:

- bare handlers: a handler on every worker that waits as long, in the worker's thread, and returns
  the point, called by the client directly, all at once. There is no model, no derivative and no
  sum: nothing that goes through Dask's connections takes less.
- handlers with autograd: a handler that runs autograd on the same model, in the worker's thread,
  and returns value and gradient as bytes; the client adds them up. No gradient by autograd that
  goes through Dask's connections takes less.

Client and scheduler are processes of their own, so that what is counted is the client's alone:

- bytes: what goes through the Python sockets of the client's process, counted where ``send``,
  ``recv_into`` and their kin return. (``/proc/self/io`` does not count ``send`` and ``recv``, and
  the network's counters do not tell processes apart.) Heartbeats within a call are included.
- processor time: ``time.process_time`` of the client's process, all threads.

All clusters run in every round, in random order, while the processes of the others are stopped
(``hosts``).

Claims, with 16 workers: for 10^2 numbers the efficiency is at least 0.9 (on two cores handlers with
autograd themselves reach 0.85 to 0.87), and so is the time of bare handlers over daskgrad's (the
median over the rounds); for 10^6 numbers, the client receives at most the bytes of 3 gradients a
call.
"""

import asyncio
import contextlib
import functools
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import autograd
import autograd.numpy as np
import numpy
from distributed import Client, Worker
from distributed.diagnostics.plugin import WorkerPlugin

import daskgrad as dg
from hosts import Measured, Program, cluster, hosted, in_rounds, spawn
from report import Claim, at_least, at_most, finish, options, ratio, table

WAIT = 0.1  # seconds
WORKERS, QUICK_WORKERS = (1, 2, 4, 8, 16), (1, 2)
NUMBERS = (10**2, 10**6)
OURS, HANDLERS, AUTOGRAD = "daskgrad", "bare handlers", "handlers with autograd"
PEERS = (
    (OURS, NUMBERS[0]),
    (HANDLERS, NUMBERS[0]),
    (AUTOGRAD, NUMBERS[0]),
    (OURS, NUMBERS[1]),
)


class Counts(NamedTuple):
    """Of one call."""

    received: float  # bytes
    sent: float
    processor: float  # seconds


# --------------------------------------------------------------------------- counting bytes

SOCKET_METHODS = {
    "recv": "received",
    "recv_into": "received",
    "recvmsg": "received",
    "send": "sent",
    "sendall": "sent",
    "sendmsg": "sent",
}


def count_bytes() -> dict[str, int]:
    """From now on, what this process receives and sends through Python's sockets."""
    counts = {"received": 0, "sent": 0}
    for name, direction in SOCKET_METHODS.items():
        setattr(socket.socket, name, counted(getattr(socket.socket, name), direction, counts))
    return counts


def counted(method: Callable, direction: str, counts: dict[str, int]) -> Callable:
    @functools.wraps(method)
    def counting(self, *args):
        result = method(self, *args)
        if result is None:  # sendall
            counts[direction] += memoryview(args[0]).nbytes
        elif isinstance(result, int):
            counts[direction] += result
        else:
            counts[direction] += len(result if isinstance(result, bytes) else result[0])
        return result

    return counting


# -------------------------------------------------------------------------------- the program


def model(item: int, x: Any) -> Any:
    time.sleep(WAIT)
    return 1.0 * item * np.sum(x)


class Handlers(WorkerPlugin):
    """What workers do for the peers, in their threads: wait, or differentiate the model."""

    name = "handlers"
    idempotent = True

    def setup(self, worker: Worker) -> None:
        self._executor = worker.executor
        worker.handlers["wait"] = self.wait
        worker.handlers["differentiate"] = self.differentiate

    async def wait(self, point: bytes) -> dict[str, bytes]:
        await asyncio.get_running_loop().run_in_executor(self._executor, time.sleep, WAIT)
        return {"point": point}

    async def differentiate(self, item: int, point: bytes) -> dict[str, Any]:
        loop, x = asyncio.get_running_loop(), numpy.frombuffer(point)
        value, gradient = await loop.run_in_executor(self._executor, value_and_grad, item, x)
        return {"value": float(value), "gradient": gradient.tobytes()}


value_and_grad = autograd.value_and_grad(model, 1)


def by_handlers(client: Client, handler: str) -> Program:
    """Calls a handler of all workers at once."""
    client.register_plugin(Handlers())
    workers = list(client.scheduler_info(n_workers=-1)["workers"])

    async def wait(x: Any) -> list[Any]:
        point = x.tobytes()
        return await asyncio.gather(*[client.rpc(worker).wait(point=point) for worker in workers])

    async def differentiate(x: Any) -> tuple[float, Any]:
        point = x.tobytes()
        calls = [
            client.rpc(worker).differentiate(item=item, point=point)
            for item, worker in enumerate(workers)
        ]
        replies = await asyncio.gather(*calls)
        gradients = [numpy.frombuffer(reply["gradient"]) for reply in replies]
        return sum([reply["value"] for reply in replies]), sum(gradients)

    return functools.partial(client.sync, {HANDLERS: wait, AUTOGRAD: differentiate}[handler])


def serve_cluster(pipe: Connection, workers: int) -> None:
    """A scheduler and its workers, until the other side closes the pipe."""
    with cluster(workers) as client:
        pipe.send(client.scheduler.address)
        with contextlib.suppress(EOFError):
            pipe.recv()


@contextlib.contextmanager
def cluster_elsewhere(workers: int) -> Iterator[Client]:
    """A client of a cluster whose scheduler is in another process than the client."""
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=serve_cluster, args=(theirs, workers))
    process.start()
    theirs.close()
    with Client(ours.recv()) as client:
        yield client
    ours.close()
    process.join()


@contextlib.contextmanager
def waiting(workers: int) -> Iterator[dict[str, Program]]:
    counts = count_bytes()
    with cluster_elsewhere(workers) as client:
        yield programs_on(client, workers, counts)


def programs_on(client: Client, workers: int, counts: dict[str, int]) -> dict[str, Program]:
    shards = dg.place(list(range(workers)), grainsize=1)
    gradient = dg.value_and_grad(lambda x: dg.map_sum(model, shards, x))
    programs = {
        OURS: gradient,
        **{name: by_handlers(client, name) for name in (HANDLERS, AUTOGRAD)},
    }
    require_same(gradient, programs[AUTOGRAD])
    return {
        program_name(workers, peer, numbers): functools.partial(
            calls, programs[peer], counts, numbers
        )
        for peer, numbers in PEERS
    }


def require_same(ours: Program, peer: Program) -> None:
    x = numpy.linspace(-1.0, 1.0, NUMBERS[0])
    (value, gradient), (other, other_gradient) = ours(x), peer(x)
    if not (numpy.isclose(value, other) and numpy.allclose(gradient, other_gradient)):
        raise ValueError("a value or gradient is wrong")


def program_name(workers: int, peer: str, numbers: int) -> str:
    return f"{workers} workers, {peer}, {numbers} numbers"


def calls(program: Program, counts: dict[str, int], numbers: int, count: int) -> Counts:
    """Calls the program ``count`` times, and returns what one call costs the client."""
    before, processor = dict(counts), time.process_time()
    for number in range(count):
        program(numpy.full(numbers, float(number)))
    return Counts(
        (counts["received"] - before["received"]) / count,
        (counts["sent"] - before["sent"]) / count,
        (time.process_time() - processor) / count,
    )


# -------------------------------------------------------------------------------- the results


def summary(
    workers: int, peer: str, numbers: int, measured: list[Measured], count: int
) -> dict[str, Any]:
    seconds = [once.seconds / count for once in measured]
    received, sent, processor = map(
        statistics.median, zip(*[once.result for once in measured], strict=True)
    )
    return {
        "workers": workers,
        "peer": peer,
        "numbers": numbers,
        "seconds": statistics.median(seconds),
        "efficiency": WAIT / statistics.median(seconds),
        "bytes received": received,
        "bytes sent": sent,
        "gradients received": received / (8 * numbers),
        "points sent": sent / (8 * numbers),
        "client processor seconds": processor,
        "all seconds": seconds,
    }


def printed(rows: list[dict[str, Any]]) -> str:
    header = (
        "peer",
        "numbers",
        "workers",
        "a call",
        "efficiency",
        "received",
        "sent",
        "client's CPU",
    )
    return table(
        header,
        [
            (
                row["peer"],
                f"{row['numbers']:,}",
                str(row["workers"]),
                f"{row['seconds'] * 1e3:.1f} ms",
                f"{row['efficiency']:.3f}",
                f"{row['bytes received'] / 1e3:,.1f} kB",
                f"{row['bytes sent'] / 1e3:,.1f} kB",
                f"{row['client processor seconds'] * 1e3:.1f} ms",
            )
            for row in rows
        ],
    )


def make_claims(rows: list[dict[str, Any]]) -> list[Claim]:
    small, bare, _, large = [rows_of(rows, *peer)[-1] for peer in PEERS]
    many = f"{small['workers']} workers"
    received = large["gradients received"]
    of_bare = ratio(bare["all seconds"], small["all seconds"])
    return [
        at_least(f"efficiency, {many}, {NUMBERS[0]:,} numbers", small["efficiency"], 0.9),
        at_least(f"bare handlers' time over ours, {many}, {NUMBERS[0]:,} numbers", of_bare, 0.9),
        at_most(f"gradients received a call, {many}, {NUMBERS[1]:,} numbers", received, 3.0),
    ]


def rows_of(rows: list[dict[str, Any]], peer: str, numbers: int) -> list[dict[str, Any]]:
    return [row for row in rows if (row["peer"], row["numbers"]) == (peer, numbers)]


def draw(rows: list[dict[str, Any]], stated: str) -> Any:
    from plots import lines, page  # here: processes that a benchmark starts do not need Bokeh

    workers = sorted({row["workers"] for row in rows})

    def column(field: str, peer: str, numbers: int) -> list[float]:
        return [row[field] for row in rows_of(rows, peer, numbers)]

    def curves(field: str) -> dict[str, list[float]]:
        return {f"{peer}, {n:,} numbers": column(field, peer, n) for peer, n in PEERS}

    axis = "worker processes"
    large = NUMBERS[-1]
    bytes_sent_and_received = {
        "sent": column("points sent", OURS, large),
        "received": column("gradients received", OURS, large),
    }
    return page(
        f"Models that wait {WAIT} s, one a worker",
        stated,
        lines(
            "Efficiency",
            workers,
            curves("efficiency"),
            (axis, f"{WAIT} s / time of a call"),
            y_range=(0.0, 1.05),
        ),
        lines(
            f"What the client sends and receives, {large:,} numbers",
            workers,
            bytes_sent_and_received,
            (axis, f"bytes / {8 * large / 1e6:g} MB, a point's or a gradient's"),
        ),
        lines(
            "The client's processor time",
            workers,
            curves("client processor seconds"),
            (axis, "processor time of a call (s)"),
        ),
    )


def main() -> int:
    arguments = options(__doc__).parse_args()
    arguments.rounds = arguments.rounds or (2 if arguments.quick else 9)
    counts = QUICK_WORKERS if arguments.quick else WORKERS
    count = 2 if arguments.quick else 10
    with hosted(*[functools.partial(waiting, workers) for workers in counts]) as programs:
        measured = in_rounds(programs, arguments.rounds, lambda number: count)
    rows = [
        summary(workers, peer, numbers, measured[program_name(workers, peer, numbers)], count)
        for peer, numbers in PEERS
        for workers in counts
    ]
    print(printed(rows))
    drawing = functools.partial(draw, rows)
    return finish("scaling", arguments, {"measured": rows}, make_claims(rows), drawing)


if __name__ == "__main__":
    sys.exit(main())
