"""The costs of many workers for their client: 1 to 512 workers that only answer.

    python benchmarks/many_workers.py [--quick] [--rounds N] [--results DIR] [--page]

Measured is processor time, of the client's process, the scheduler's and the workers', and
messages and bytes of the client (``scaling`` says how bytes are counted; a message is what Dask
reads or writes at once). Client and scheduler are processes of their own. The workers are Dask's,
with two threads each, and run in two processes, without Dask's profiler and monitors. Models take
no time, so that all of it is coordination (``scaling`` has 16 processes whose models wait). A
worker has 32 blocks of one item.

- place: ``dg.place`` of the items.
- call: value and gradient of a sum over the items with respect to 100 numbers; the median of nine
  calls. No block moves to balance loads: beside 512 workers on few cores, the times of blocks tell
  of these.
  It does not look which workers there are (look), as it does once a second otherwise, and while it
  waits for an answer for long.
- large: with respect to 10^5 numbers, which workers pass on to each other along a tree.
- step: value, gradient, and a step of Adam, over an attached array of 3 columns.
- loss: a call in which the client finds that a worker is gone, places its items elsewhere and asks
  for the sum of these. In the first one it opens a connection to each worker, to tell that it waits
  for no more. New worker: the first call after another one has come.
- graph: value and gradient of a sum of nodes, tasks on the scheduler of 16 workers.
- many items: 10^6 items in 7,813 blocks over 64 workers.

The cost model: the client's processor time of a call is ``c0 + c1 min(W, 16) + c2 W``, since it
sends up to 16 messages, and adds up what W workers return; the workers' is ``w W``; the bytes are
``b0 + b1 min(W, 16) + b2 W``. The constants are fitted at 1, 8, 64 and 128 workers, and checked at
2, 16 and 512; the workers' at 1 and 8, and at 2 and 16: of 512 workers, 256 share a process, where
they wait for Python's lock, and a call takes seconds, in which they tell the scheduler that they
are there. The client waits for these seconds, and looks several times: the looks that it has made
are counted, and added to the prediction. A call takes the client's time, the work, and the
workers' time along a tree, ``(1 + depth) w``.

Claims: from 64 to 512 workers no processor time of the client grows faster than the workers, and a
call over 512 takes at most 60 ms of it; the model's processor times and bytes are right within a
quarter. ``--page`` writes the tables into docs/scaling.md.
"""

import asyncio
import contextlib
import functools
import gc
import logging
import math
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import autograd.numpy as np
import dask
import numpy
import psutil
import scipy.optimize
from distributed import Client, Scheduler, Worker
from distributed.comm.tcp import TCP

import daskgrad as dg
import scaling
from daskgrad.placed import connection, spread
from daskgrad.tasks import supervision
from hosts import Program, hosted, spawn
from report import Claim, at_most, finish, machine, one_line, options, table

logging.getLogger("distributed").setLevel(logging.CRITICAL)  # lost items are errors


class Size(NamedTuple):
    """Numbers of workers for which the model is fitted and checked; for graphs of so many nodes,
    and for so many items."""

    fitted: Sequence[int]
    checked: Sequence[int]
    for_graphs: int
    nodes: Sequence[int]
    for_many: int
    many: int


FULL = Size((1, 8, 64, 128), (2, 16, 512), 16, (10**3, 10**4), 64, 10**6)
QUICK = Size((1, 4), (2,), 4, (10, 100), 4, 10**4)
MANY_IN_BLOCK = 128
THREADS = 2  # of a worker
BLOCKS = 32  # of a worker
NUMBERS, LARGE = 10**2, 10**5
WARM, CALLS = 4, 9
FLAT = 16  # messages that the client sends itself
PROCESSES = 2
THOUSAND = 1000
LIMIT = 60.0  # ms of the client's processor time, of a call over 512 workers
PAGE = Path(__file__).parent.parent / "docs" / "scaling.md"
BEGIN, END = "<!-- measured -->\n", "<!-- end -->"

# ---------------------------------------------------------------------------------- the cluster

IDLE = {  # what each worker does beside its work, for which a worker alone has a core
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "10s",
    "distributed.admin.tick.limit": "1h",
    "distributed.admin.system-monitor.interval": "1h",
    "distributed.scheduler.worker-ttl": None,
}


def serve(pipe: Connection, main: Callable[[Connection], Coroutine]) -> None:
    """A process of the cluster, until it is killed."""
    warnings.filterwarnings("ignore", "Creating scratch directories")
    dask.config.set(IDLE)
    asyncio.run(main(pipe))


async def serve_scheduler(pipe: Connection) -> None:
    options: dict[str, Any] = {"port": 0, "dashboard_address": "127.0.0.1:0"}
    async with Scheduler(host="127.0.0.1", dashboard=False, **options) as scheduler:
        pipe.send(scheduler.address)
        await asyncio.Event().wait()


async def serve_workers(scheduler: str, folder: str, pipe: Connection) -> None:
    """Opens as many workers as it is told, or closes as many; answers with its processor time."""
    options: dict[str, Any] = {"memory_limit": 0, "dashboard": False, "local_directory": folder}
    workers: list[Worker] = []
    while True:
        count = await asyncio.to_thread(pipe.recv)
        new = [
            Worker(scheduler, host="127.0.0.1", nthreads=THREADS, **options) for _ in range(count)
        ]
        await asyncio.gather(*new)
        workers += new
        for _ in range(-count):
            await workers.pop().close(executor_wait=False)
        pipe.send(time.process_time())


class Cluster:
    """Idle workers in few processes, and a client."""

    def __init__(self, stack: contextlib.ExitStack):
        self._stack = stack
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        process, pipe = self._start(serve_scheduler)
        self.scheduler, address = psutil.Process(process.pid), pipe.recv()
        main = functools.partial(serve_workers, address, folder)
        self._pipes = [self._start(main)[1] for _ in range(PROCESSES)]
        self.count = 0
        self.client = stack.enter_context(Client(address))

    def _start(self, main: Callable[[Connection], Coroutine]) -> tuple[Any, Connection]:
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=serve, args=(theirs, main))
        process.start()
        theirs.close()
        self._stack.callback(process.join)
        self._stack.callback(process.kill)
        return process, ours

    def grow(self, workers: int) -> None:
        """Opens workers until there are so many."""
        shares = [len(range(n, workers - self.count, PROCESSES)) for n in range(PROCESSES)]
        for pipe, share in zip(self._pipes, shares, strict=True):
            pipe.send(share)
        for pipe in self._pipes:
            pipe.recv()
        self.count = workers
        self.client.wait_for_workers(workers, timeout=60)

    def lose(self) -> None:
        """Closes a worker, which hands nothing on."""
        pipe = self._pipes[0]
        pipe.send(-1)
        pipe.recv()
        self.count -= 1

    def seconds(self) -> tuple[float, float]:
        """The processor time of the scheduler, and of the workers' processes."""
        for pipe in self._pipes:
            pipe.send(0)
        workers = sum([pipe.recv() for pipe in self._pipes])
        return self.client.run_on_scheduler(time.process_time), workers


@contextlib.contextmanager
def idle_cluster() -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        yield Cluster(stack)


# ----------------------------------------------------------------------------------- measuring


class Cost(NamedTuple):
    """One call: processor seconds, the client's messages, bytes and looks, and seconds."""

    client: float
    scheduler: float
    workers: float
    messages: float
    nbytes: float
    looks: float
    seconds: float


def count_messages() -> dict[str, int]:
    """From now on, the messages of this process, and its looks at which workers there are."""
    counts = {"messages": 0, "looks": 0}
    threads_of = supervision.threads_of

    def looking(*args: Any) -> dict[str, int]:
        counts["looks"] += 1
        return threads_of(*args)

    supervision.threads_of = looking

    def counted(method: Callable) -> Callable:
        @functools.wraps(method)
        async def counting(self, *args: Any, **options: Any) -> Any:
            result = await method(self, *args, **options)
            counts["messages"] += 1
            return result

        return counting

    for name in ("read", "write"):
        setattr(TCP, name, counted(getattr(TCP, name)))
    return counts


class Meter:
    """Measures calls on a cluster."""

    def __init__(self, cluster: Cluster, counts: Sequence[Mapping[str, int]]):
        self._cluster, self._counts = cluster, counts

    def _state(self) -> tuple[float, ...]:
        counts = {name: count for of in self._counts for name, count in of.items()}
        traffic = counts["messages"], counts["received"] + counts["sent"], counts["looks"]
        return time.process_time(), *traffic, time.perf_counter()

    def once(self, program: Callable[[], Any]) -> Cost:
        """The cost of a call."""
        gc.collect()
        (scheduler, workers), before = self._cluster.seconds(), self._state()
        program()
        after, (scheduled, worked) = self._state(), self._cluster.seconds()
        client, *others = [b - a for a, b in zip(before, after, strict=True)]
        return Cost(client, scheduled - scheduler, worked - workers, *others)

    def median(self, program: Callable[[], Any], count: int) -> Cost:
        return medians([self.once(program) for _ in range(count)])


# ---------------------------------------------------------------------------------- the programs


def model(item: float, x: Any) -> Any:
    return item * np.sum(x)


def attached_model(fields: tuple[Any, float], x: Any) -> Any:
    return model(fields[1], x) * np.sum(fields[0] ** 2)


def node(x: Any, factor: float) -> Any:
    return factor * np.sum(x)


class Sum:
    """A sum over placed items; each call requires the right value and gradient."""

    def __init__(self, shards: Any, items: Sequence[float]):
        self._total = sum(items)
        self._gradient = dg.value_and_grad(lambda x: dg.map_sum(model, shards, x))

    def __call__(self, numbers: int = NUMBERS) -> None:
        x = numpy.linspace(0.0, 1.0, numbers)
        value, gradient = self._gradient(x)
        require(numpy.isclose(value, self._total * numpy.sum(x)))
        require(numpy.allclose(gradient, self._total))


def require(is_right: bool) -> None:
    if not is_right:
        raise ValueError("a value or gradient is wrong")


def stepping(shards: Any, count: int) -> Callable[[], None]:
    """A program that evaluates, and takes a step of Adam."""
    z = shards.attach(numpy.ones((count, 3)))
    params = {"x": numpy.linspace(0.0, 1.0, NUMBERS), "z": z}
    gradient = dg.value_and_grad(
        lambda x, z: dg.map_sum(attached_model, dg.zip(z, shards), x), (0, 1)
    )
    optimiser = dg.optim.Adam(1e-6)
    state = optimiser.init(params)

    def step() -> None:
        _, (of_x, of_z) = gradient(params["x"], params["z"])
        optimiser.update(params, {"x": of_x, "z": of_z}, state)

    return step


@contextlib.contextmanager
def seldom_looking() -> Iterator[None]:
    """A context in which calls do not look which workers there are."""
    looking, connection.LOOK_EVERY = connection.LOOK_EVERY, math.inf
    try:
        yield
    finally:
        connection.LOOK_EVERY = looking


def lose(cluster: Cluster, call: Callable[[], None]) -> None:
    """Loses a worker, and calls."""
    cluster.lose()
    with seldom_looking():
        call()


def losses(
    cluster: Cluster, meter: Meter, call: Callable[[], None], rounds: int
) -> dict[str, Cost]:
    """The costs of the first loss, of further ones, and of a new worker."""

    async def disconnect() -> None:
        cluster.client.rpc.collect()

    lost, joined = [], []
    cluster.client.sync(disconnect)
    for _ in range(rounds):
        call()
        lost.append(meter.once(functools.partial(lose, cluster, call)))
        cluster.grow(cluster.count + 1)
        time.sleep(connection.LOOK_EVERY)  # the call looks who is there
        joined.append(meter.once(call))
    return {"first loss": lost[0], "loss": medians(lost), "new worker": medians(joined)}


def medians(costs: Sequence[Cost]) -> Cost:
    return Cost(*[statistics.median(of) for of in zip(*costs, strict=True)])


def on_workers(size: Size, rounds: int, _: Any) -> dict[str, Any]:
    """The cost of each program for each number of workers; of graphs and many items for one."""
    counts, found = [scaling.count_bytes(), count_messages()], {"workers": [], "graphs": []}
    spread.Spread.rebalance = lambda self: None
    with idle_cluster() as cluster:
        meter = Meter(cluster, counts)
        for workers in sorted({*size.fitted, *size.checked}):
            cluster.grow(workers)
            costs = costs_of_programs(cluster, meter, rounds)
            found["workers"].append({"workers": workers, "costs": costs})
            print(f"{workers} workers: {costs}", file=sys.stderr, flush=True)
            if workers == size.for_graphs:
                found["graphs"] = [of_nodes(meter, count) for count in size.nodes]
            if workers == size.for_many:
                found["many items"] = of_many_items(cluster, meter, size.many)
    return found


def costs_of_programs(cluster: Cluster, meter: Meter, rounds: int) -> dict[str, dict[str, float]]:
    items = list(map(float, range(BLOCKS * cluster.count)))
    placed: list[Any] = []
    costs = {"place": meter.once(lambda: placed.append(dg.place(items, grainsize=1)))}
    (shards,) = placed
    with shards:
        call = Sum(shards, items)
        with seldom_looking():
            costs |= costs_of_calls(meter, call, stepping(shards, len(items)))
        costs["look"] = meter.median(lambda: supervision.workers_of(cluster.client), 3)
        if cluster.count > 1:
            costs |= losses(cluster, meter, call, rounds)
    return {name: cost._asdict() for name, cost in costs.items()}


def costs_of_calls(meter: Meter, call: Sum, step: Callable[[], None]) -> dict[str, Cost]:
    large = functools.partial(call, LARGE)
    for program in (*[call] * WARM, large, step):
        program()
    return {
        "call": meter.median(call, CALLS),
        "large": meter.median(large, 3),
        "step": meter.median(step, 3),
    }


def of_nodes(meter: Meter, count: int) -> dict[str, Any]:
    """The cost of a graph."""
    recorded, x = dg.delayed(node), numpy.ones(4)
    gradient = dg.value_and_grad(
        lambda x: dg.sum([recorded(x, float(number)) for number in range(count)])
    )
    return {"nodes": count, **meter.once(lambda: gradient(x))._asdict()}


def of_many_items(cluster: Cluster, meter: Meter, count: int) -> dict[str, Any]:
    """The costs of many items, and the memory that they take."""
    items, placed = list(map(float, range(count))), []
    processes = {"client": psutil.Process(), "scheduler": cluster.scheduler}

    def memory() -> dict[str, float]:
        gc.collect()
        return {name: process.memory_info().rss for name, process in processes.items()}

    before = memory()
    costs = {"place": meter.once(lambda: placed.append(dg.place(items, grainsize=MANY_IN_BLOCK)))}
    (shards,), after = placed, memory()
    with shards:
        call = Sum(shards, items)
        for _ in range(WARM):
            call()
        costs["call"] = meter.median(call, CALLS)
        costs |= losses(cluster, meter, call, 1)
        blocks = len(shards.blocks)
    return {
        "items": count,
        "blocks": blocks,
        "workers": cluster.count,
        "costs": {name: cost._asdict() for name, cost in costs.items()},
        "memory": {name: after[name] - before[name] for name in processes},
    }


# -------------------------------------------------------------------------------- the cost model


TERMS: Sequence[Callable[[int], float]] = (
    lambda workers: 1.0,
    lambda workers: min(workers, FLAT),
    lambda workers: workers,
)
QUANTITIES = {"client": TERMS, "workers": TERMS[2:], "nbytes": TERMS}


class CostModel(NamedTuple):
    """The constants of a call, by quantity: none is negative, and relative errors are least."""

    constants: Mapping[str, Any]

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> "CostModel":
        constants = {}
        for name, terms in QUANTITIES.items():
            used = [r for r in rows if name != "workers" or r["workers"] <= FLAT]
            costs = [row["costs"]["call"][name] for row in used]
            parts = [
                [term(row["workers"]) / cost for term in terms]
                for row, cost in zip(used, costs, strict=True)
            ]
            constants[name] = scipy.optimize.nnls(numpy.array(parts), numpy.ones(len(used)))[0]
        return cls(constants)

    def predicted(self, name: str, workers: int) -> float:
        terms = [term(workers) for term in QUANTITIES[name]]
        return float(numpy.dot(self.constants[name], terms))

    def seconds(self, workers: int, work: float) -> float:
        """The time of a call with so many seconds of work for each worker."""
        depth = math.ceil(math.log2(max(1.0, workers / FLAT)))
        of_workers = (1 + depth) * self.predicted("workers", 1)
        return self.predicted("client", workers) + of_workers + work


# -------------------------------------------------------------------------------- the results


class Results(NamedTuple):
    rows: Sequence[dict[str, Any]]  # one for each number of workers
    model: CostModel
    size: Size
    graphs: Sequence[dict[str, Any]]
    many: dict[str, Any]

    def cost(self, workers: int, program: str) -> dict[str, float]:
        (row,) = [row for row in self.rows if row["workers"] == workers]
        return row["costs"][program]

    def checks(self) -> list[tuple[str, int, float, float]]:
        """A quantity and workers, predicted and measured; with the looks that calls made."""
        return [
            (
                name,
                workers,
                self.model.predicted(name, workers)
                + self.cost(workers, "call")["looks"] * self.cost(workers, "look")[name],
                self.cost(workers, "call")[name],
            )
            for name in QUANTITIES
            for workers in self.size.checked
            if name != "workers" or workers <= FLAT
        ]

    def growth(self) -> dict[str, tuple[float, float]]:
        """For each program how much faster than the workers the client's time grows from the last
        number but two to the last one, and the time that each further worker adds."""
        few, many = self.rows[-3], self.rows[-1]
        found = {}
        for name, cost in few["costs"].items():
            before, after = cost["client"], many["costs"][name]["client"]
            more = many["workers"] - few["workers"]
            faster = after / before * few["workers"] / many["workers"]
            found[name] = faster, (after - before) / more
        return found


def tables(results: Results) -> str:
    """The tables of docs/scaling.md."""
    programs = list(results.rows[-1]["costs"])
    costs = [
        (
            f"{row['workers']}",
            *[milliseconds(row["costs"].get(name), "client") for name in programs],
        )
        for row in results.rows
    ]
    further = {name: f"{added * 1e3:.3f}" for name, (_, added) in results.growth().items()}
    costs.append(("each further one", *[further.get(name, "") for name in programs]))
    traffic = [
        (
            f"{row['workers']}",
            *[sent(row["costs"].get(name)) for name in programs],
            milliseconds(row["costs"]["call"], "workers"),
        )
        for row in results.rows
    ]
    graphs = [
        (f"{row['nodes']:,}", *[milliseconds(row, of) for of in ("client", "scheduler", "workers")])
        for row in results.graphs
    ]
    many = results.many
    of_many = [
        (
            name,
            *[milliseconds(cost, of) for of in ("client", "scheduler", "workers")],
            sent(cost),
        )
        for name, cost in many["costs"].items()
    ]
    memory = ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in many["memory"].items())
    constants = results.model.constants
    c0, c1, c2 = constants["client"] * 1e3
    b0, b1, b2 = constants["nbytes"] / 1e3
    (w,) = constants["workers"] * 1e3
    calls = [(row["workers"], row["costs"]["call"]) for row in results.rows[-3:]]
    scheduler = statistics.median(c["scheduler"] / c["seconds"] / workers for workers, c in calls)
    checks = [
        (*SHOWN[name](workers, predicted, found), f"{predicted / found:.2f}")
        for name, workers, predicted, found in results.checks()
    ]
    seconds = (1e-3, 1e-2, 1e-1)
    efficiency = [
        (
            f"{items:,}",
            *[f"{items * of / results.model.seconds(THOUSAND, items * of):.2f}" for of in seconds],
        )
        for items in (1, 10, 100, 1000)
    ]
    mark = functools.partial(table, markdown=True)
    split = ("client", "scheduler", "workers")
    of_items = (
        f"{many['items']:,} items in {many['blocks']:,} blocks over {many['workers']} workers"
    )
    of_client = f"{c0:.2f} + {c1:.3f} min(W, {FLAT}) + {c2:.4f} W ms"
    of_bytes = f"{b0:.1f} + {b1:.2f} min(W, {FLAT}) + {b2:.3f} W kB"
    return "\n\n".join(
        [
            "The client's processor time in ms:",
            mark(("workers", *programs), costs),
            "The client's messages, and kB; and all workers' processor time of a call, in ms:",
            mark(("workers", *programs, "workers' time"), traffic),
            f"A gradient of a sum of nodes, on {results.size.for_graphs} workers, in ms:",
            mark(("nodes", *split), graphs),
            f"{of_items}, in ms; when they are placed, memory grows: {memory}:",
            mark(("program", *split, "messages, kB"), of_many),
            f"Constants of a call: the client takes {of_client}, each worker {w:.2f} ms; the "
            f"client sends and receives {of_bytes}; while calls run, the scheduler takes "
            f"{scheduler * 1e3:.2f} ms a second and worker.",
            mark(("checked", "workers", "predicted", "measured", "ratio"), checks),
            f"Efficiency, predicted for {THOUSAND:,} workers with a core each:",
            mark(("items a worker", *[f"{of * 1e3:g} ms an item" for of in seconds]), efficiency),
        ]
    )


def milliseconds(cost: Mapping[str, float] | None, of: str) -> str:
    return "" if cost is None else f"{cost[of] * 1e3:,.1f}"


def sent(cost: Mapping[str, float] | None) -> str:
    return "" if cost is None else f"{cost['messages']:,.0f}, {cost['nbytes'] / 1e3:,.0f}"


def shown(name: str, unit: str, scale: float) -> Callable:
    def texts(workers: int, predicted: float, found: float) -> tuple[str, ...]:
        return f"{name}, {unit}", f"{workers}", f"{predicted * scale:.1f}", f"{found * scale:.1f}"

    return texts


SHOWN = {
    "client": shown("client's processor time", "ms", 1e3),
    "workers": shown("workers' processor time", "ms", 1e3),
    "nbytes": shown("bytes", "kB", 1e-3),
}


def make_claims(results: Results) -> list[Claim]:
    most = results.rows[-1]["workers"]
    growth = results.growth()
    errors = [abs(predicted / found - 1.0) for _, _, predicted, found in results.checks()]
    call = results.cost(most, "call")["client"] * 1e3
    graphs = [row["client"] / row["nodes"] for row in results.graphs]
    scheduled = [row["scheduler"] / row["nodes"] for row in results.graphs]
    return [
        at_most(f"client's ms of a call over {most} workers", call, LIMIT),
        *[
            at_most(f"growth of the client's time of {name} over the workers'", found, 1.1)
            for name, (found, _) in growth.items()
            if name != "first loss"  # there is one
        ],
        at_most(
            "client's time of a node, the largest graph over the smallest",
            graphs[-1] / graphs[0],
            1.5,
        ),
        at_most("scheduler's time of a node, too", scheduled[-1] / scheduled[0], 1.5),
        at_most("largest error of the cost model", max(errors), 0.25),
    ]


def draw(results: Results, stated: str) -> Any:
    from plots import lines, page  # here: processes that a benchmark starts do not need Bokeh

    workers = [row["workers"] for row in results.rows]
    curves = {
        name: [results.cost(w, name)["client"] * 1e3 for w in workers]
        for name in ("call", "large", "step")
    }
    curves["call, predicted"] = [results.model.predicted("client", w) * 1e3 for w in workers]
    axes = ("workers", "processor time of the client (ms)")
    return page(
        "Many workers", stated, lines("What one call costs the client", workers, curves, axes)
    )


def measure(arguments: Any) -> Results:
    size = QUICK if arguments.quick else FULL
    found = alone(functools.partial(on_workers, size, arguments.rounds))
    model = CostModel.of([row for row in found["workers"] if row["workers"] in size.fitted])
    return Results(found["workers"], model, size, found["graphs"], found["many items"])


def alone(program: Program) -> Any:
    """The results of a program in a new process."""
    with hosted(functools.partial(contextlib.nullcontext, {"": program})) as programs:
        return programs[""](None).result


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--page", action="store_true", help="write the tables into docs/scaling.md")
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (1 if arguments.quick else 3)
    results = measure(arguments)
    text = tables(results)
    print(text)
    if arguments.page:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        settings = {"quick": arguments.quick, "rounds": arguments.rounds}
        stated = f"{one_line(machine(), settings)}."
        PAGE.write_text(f"{before}{BEGIN}{stated}\n\n{text}\n{END}{rest.partition(END)[2]}")
    found = {
        "workers": results.rows,
        "constants": {name: list(of) for name, of in results.model.constants.items()},
        "checks": results.checks(),
        "graphs": results.graphs,
        "many items": results.many,
    }
    drawing = functools.partial(draw, results)
    return finish("many_workers", arguments, found, make_claims(results), drawing)


if __name__ == "__main__":
    sys.exit(main())
