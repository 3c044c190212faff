"""What coordination costs: models that wait instead of computing, on more and more workers.

    python benchmarks/scaling.py [--quick] [--rounds N] [--results DIR]

What is measured: one value and gradient of a sum with one item a worker, on clusters of 1, 2, 4, 8
and 16 worker processes with a thread each, all on this machine. A model waits 0.1 s, without the
GIL, and returns one number of its point times its item. So each worker has 0.1 s of work a call,
however many there are (weak scaling), the machine's cores do not limit it, and what is left is
coordination. The efficiency is 0.1 s over the time of a call; a time is the median over the rounds
of the mean over a round's calls. Points have 10^2 and 10^6 numbers, and so have gradients; with the
latter, the workers' own work on zeros of that size, on all of this machine's cores, counts as well.

Client and scheduler are processes of their own, so that what is counted is the client's alone:

- bytes: what goes through the Python sockets of the client's process, counted where ``send``,
  ``recv_into`` and their kin return. (``/proc/self/io`` does not count ``send`` and ``recv``, and
  the network's counters do not tell processes apart.) Heartbeats within a call are included.
- processor time: ``time.process_time`` of the client's process, all threads.

All clusters run in every round, in random order, while the processes of the others are stopped
(``hosts``).

Claims, with 16 workers: the efficiency for 10^2 numbers is at least 0.9; for 10^6 numbers, the
client receives at most the bytes of 3 gradients a call.
"""

import contextlib
import functools
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy
from distributed import Client

import daskgrad as dg
from hosts import Measured, Program, cluster, hosted, in_rounds, spawn
from report import Claim, at_least, at_most, finish, options, table

WAIT = 0.1  # seconds
WORKERS, QUICK_WORKERS = (1, 2, 4, 8, 16), (1, 2)
NUMBERS = (10**2, 10**6)


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
    return 1.0 * item * x[item]


def serve_cluster(pipe: Connection, workers: int) -> None:
    """A scheduler and its workers, until the other side closes the pipe."""
    with cluster(workers) as client:
        pipe.send(client.scheduler.address)
        with contextlib.suppress(EOFError):
            pipe.recv()


@contextlib.contextmanager
def cluster_elsewhere(workers: int) -> Iterator[None]:
    """A client of a cluster whose scheduler is in another process than the client."""
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=serve_cluster, args=(theirs, workers))
    process.start()
    theirs.close()
    with Client(ours.recv()):
        yield
    ours.close()
    process.join()


@contextlib.contextmanager
def waiting(workers: int) -> Iterator[dict[str, Program]]:
    counts = count_bytes()
    with cluster_elsewhere(workers):
        yield programs_on(workers, counts)


def programs_on(workers: int, counts: dict[str, int]) -> dict[str, Program]:
    shards = dg.place(list(range(workers)), grainsize=1)
    gradient = dg.value_and_grad(lambda x: dg.map_sum(model, shards, x))
    return {
        program_name(workers, numbers): functools.partial(calls, gradient, counts, numbers)
        for numbers in NUMBERS
    }


def program_name(workers: int, numbers: int) -> str:
    return f"{workers} workers, {numbers} numbers"


def calls(gradient: Program, counts: dict[str, int], numbers: int, count: int) -> Counts:
    """Calls the gradient ``count`` times, and returns what one call costs the client."""
    before, processor = dict(counts), time.process_time()
    for number in range(count):
        gradient(numpy.full(numbers, float(number)))
    return Counts(
        (counts["received"] - before["received"]) / count,
        (counts["sent"] - before["sent"]) / count,
        (time.process_time() - processor) / count,
    )


# -------------------------------------------------------------------------------- the results


def summary(workers: int, numbers: int, measured: list[Measured], count: int) -> dict[str, Any]:
    seconds = [once.seconds / count for once in measured]
    received, sent, processor = map(
        statistics.median, zip(*[once.result for once in measured], strict=True)
    )
    return {
        "workers": workers,
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
    header = ("numbers", "workers", "a call", "efficiency", "received", "sent", "client's CPU")
    return table(
        header,
        [
            (
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
    small, large = [[row for row in rows if row["numbers"] == numbers][-1] for numbers in NUMBERS]
    many = f"{small['workers']} workers"
    received = large["gradients received"]
    return [
        at_least(f"efficiency, {many}, {NUMBERS[0]:,} numbers", small["efficiency"], 0.9),
        at_most(f"gradients received a call, {many}, {NUMBERS[1]:,} numbers", received, 3.0),
    ]


def draw(rows: list[dict[str, Any]], stated: str) -> Any:
    from plots import lines, page  # here: processes that a benchmark starts do not need Bokeh

    workers = sorted({row["workers"] for row in rows})

    def column(field: str, numbers: int) -> list[float]:
        return [row[field] for row in rows if row["numbers"] == numbers]

    def curves(field: str) -> dict[str, list[float]]:
        return {f"{numbers:,} numbers": column(field, numbers) for numbers in NUMBERS}

    axis = "worker processes"
    large = NUMBERS[-1]
    bytes_sent_and_received = {
        "sent": column("points sent", large),
        "received": column("gradients received", large),
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
        summary(workers, numbers, measured[program_name(workers, numbers)], count)
        for numbers in NUMBERS
        for workers in counts
    ]
    print(printed(rows))
    drawing = functools.partial(draw, rows)
    return finish("scaling", arguments, {"measured": rows}, make_claims(rows), drawing)


if __name__ == "__main__":
    sys.exit(main())
