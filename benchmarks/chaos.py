"""Random programs while workers are killed, stopped and replaced, and the client is interrupted.

    python benchmarks/chaos.py [--hours H | --seed S] [--quick] [--results DIR]

Done: random programs (``chaos_models``) run on a cluster of three worker processes, whose
scheduler is a process of its own. A program has six to twelve rounds over items of its own: value
and gradient, ``jvp``, ``hvp`` and ``per_item`` of graphs, loops, grids and sums over placed items;
forward passes and, rounds later, their pullbacks; steps of attached and replicated arrays. In most
rounds something happens at the k-th model, pullback or tangent that begins in them (EVENTS): these
wait at a gate, it happens, the gate opens. Round, k, event and worker are drawn from the
program's seed. Two pullbacks and an attached array are held for the whole run, and used once after
each program.

Compared: each round's result, bit by bit, with that of the same program without a cluster.
Beside it only a documented error may come (DOCUMENTED); the round is then called again, and must be
right. A round that takes more than LIMIT seconds is a hang: the stacks of client, scheduler and
workers are printed, and another cluster goes on. After each program the cluster must hold no task
of it, and workers no array.

Measured: after each program the memory, file descriptors and threads of client (with the
workers' nannies), scheduler and workers, and the package's objects in the client: distributed
keeps the nannies of closed workers, some 130 objects each. The first quarter is warm-up; a line
through the rest must not rise (LEAKS). Workers that are killed are young, so the oldest one is
spared in every second BLOCK of programs; a worker's memory counts from the time when it was WARM,
against its own mean.

The exit code is 1 if anything is wrong, also of a quick run. ``--seed`` replays one program.
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import asyncio
import builtins
import contextlib
import datetime
import faulthandler
import functools
import gc
import itertools
import math
import operator
import pickle
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import dask
import numpy
import psutil
from distributed import Client, KilledWorker, Nanny, SpecCluster
from distributed.deploy.subprocess import SubprocessScheduler
from distributed.utils import get_mp_context

sys.path.append(str(Path(__file__).parent.parent / "tests" / "support"))

import clusters
import survivors
from waiting import SLOW, wait_until

import chaos_models
from hosts import plain_environment
from report import Claim, at_least, at_most, finish, options, table

LIMIT = 120.0 * SLOW  # seconds, of a round and of each wait between rounds
WORKERS = 3
EVENTS = {  # and how often each is drawn
    "one killed": 10,
    "interrupted": 6,
    "stopped": 3,
    "paused": 2,
    "restarted": 2,
    "retired": 2,
    "new worker": 2,
    "all killed": 1,
    "cluster restarted": 1,
}
OF_ALL = ("all killed", "cluster restarted")
NEED_ANOTHER = ("stopped", "paused", "retired")  # a worker that goes on meanwhile
IN_A_ROUND = (2, 5, 3)  # how often none, one and two are drawn
BLOCK = 50  # programs; every second block spares one worker
TRIES = 5  # for a round
FRAMES = 6  # of an error are shown
MOST = 10  # troubles, after which a run ends
QUICK = 3  # programs
DOCUMENTED = (  # types and first words, as in docs/troubleshooting.md
    (KeyboardInterrupt, ""),
    (KilledWorker, "Attempted to run task"),
    (TimeoutError, "no task could run for"),
    (TimeoutError, "no worker of"),
)
LEAKS = {  # the most that may be added by 1,000 events
    "client MB": 2.0,
    "scheduler MB": 2.0,
    "workers MB": 2.0,
    "client files": 2.0,
    "scheduler files": 2.0,
    "client threads": 2.0,
    "scheduler threads": 2.0,
    "client objects": 20.0,
}
BATCH = 10  # programs
WARM = 10  # programs that a worker has run before its memory counts
ROOMS = ["daskgrad.arrays.map_overlap", "daskgrad.derivatives.vjp", "daskgrad.loops.scan"]
CALM = {
    **clusters.FRAIL,
    "daskgrad.compile": False,  # a compiled model leaves reports out
    "daskgrad.wait.workers": f"{60 * SLOW:g}s",
    "daskgrad.wait.answers": f"{60 * SLOW:g}s",
    "distributed.worker.multiprocessing-method": "forkserver",  # workers begin in half the time
    "distributed.worker.profile.enabled": False,
    # what Dask keeps for a while would grow all the time
    "distributed.deploy.lost-worker-timeout": "2 minutes",
    "distributed.scheduler.events-cleanup-delay": "5s",
    "distributed.admin.low-level-log-length": 100,
    "distributed.admin.log-length": 100,
    "distributed.admin.system-monitor.log-length": 20,
    "logging.distributed": "critical",
}

# ----------------------------------------------------------------------------------- the cluster


class Scheduler(SubprocessScheduler):
    """Reads its output, or it would wait for a reader."""

    async def _start(self) -> None:
        await super()._start()
        self._reading = asyncio.ensure_future(self.process.stderr.read())

    async def close(self) -> None:
        self._reading.cancel()
        await super().close()


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Client]:
    """A client of a new cluster; all processes can write their stacks to the folder."""
    os.environ["DASK_INTERNAL_INHERIT_CONFIG"] = dask.config.serialize(dask.config.global_config)
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    get_mp_context().set_forkserver_preload(["distributed.nanny", "chaos_models", *ROOMS])
    address = {"host": "127.0.0.1", "dashboard": False}
    own = {**address, "scheduler_file": str(folder / "scheduler")}
    scheduler = {"cls": Scheduler, "options": {"scheduler_kwargs": own, "timeout": LIMIT}}
    options = {"nthreads": 1, "memory_limit": 0, "local_directory": str(folder), **address}
    worker = {"cls": Nanny, "options": options}
    spec = SpecCluster(scheduler=scheduler, worker=worker, workers={}, silence_logs=50)
    elsewhere = dask.config.set({"daskgrad.inline.seconds": 0})  # small graphs are tasks, too
    with spec, Client(spec) as client, elsewhere:
        spec.scale(WORKERS)
        client.wait_for_workers(WORKERS, timeout=LIMIT)
        client.register_plugin(chaos_models.Reporter(folder))
        client.run_on_scheduler(chaos_models.write_stacks_to, folder)
        client.run_on_scheduler(without_spans)
        yield client


def without_spans(dask_scheduler: Any) -> None:
    """Dask keeps the spans of all graphs, with their groups of tasks, as long as the scheduler."""
    spans = dask_scheduler.extensions["spans"]
    spans.observe_tasks, spans.heartbeat = lambda *_, **__: {}, lambda *_: None


def tasks_left(dask_scheduler: Any) -> int:
    """How many tasks there are. Work stealing keeps workers that have gone, with their tasks,
    until the next theft."""
    stealing = dask_scheduler.extensions["stealing"]
    if not stealing.in_flight:
        stealing.in_flight_occupancy.clear()
    return len(dask_scheduler.tasks)


def processes(client: Client) -> dict[str, int]:
    """The processes of the workers that there are, by address, the oldest first."""
    alive = {}
    for nanny in list(client.cluster.workers.values()):
        with contextlib.suppress(psutil.Error):
            if nanny.pid and nanny.worker_address:
                alive[nanny.worker_address] = psutil.Process(nanny.pid)
    return {a: p.pid for a, p in sorted(alive.items(), key=lambda each: each[1].create_time())}


def print_stacks(client: Client, folder: Path) -> None:
    """The stacks of all threads of client, scheduler and workers."""
    pids = {**processes(client), "the scheduler": client.cluster.scheduler.process.pid}
    for pid in pids.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
            os.kill(pid, signal.SIGUSR1)
    time.sleep(1.0)
    print("--- the client", flush=True)
    faulthandler.dump_traceback(sys.stdout)
    for name, pid in pids.items():
        path = folder / f"stacks.{pid}"
        text = path.read_text() if path.exists() else "?"
        print(f"--- {name}, process {pid}\n{text}", flush=True)


# ------------------------------------------------------------------------------------- the events


class Plan(NamedTuple):
    """The event of a round, at the number-th report of the moment."""

    event: str
    moment: str
    number: int
    chance: random.Random


def plans(seed: int, counts: list[Counter]) -> list[list[Plan]]:
    """The event of each round, from the numbers of its reports."""
    chance = random.Random(seed + 2)

    def plan(count: Counter) -> Plan:
        (event,), moment = chance.choices([*EVENTS], [*EVENTS.values()]), chance.choice(list(count))
        if is_spared(seed) and event in OF_ALL:
            event = "one killed"
        number = chance.randint(1, count[moment])
        return Plan(event, moment, number, random.Random(chance.random()))

    return [
        [plan(count) for _ in range(chance.choices(range(3), IN_A_ROUND)[0] if count else 0)]
        for count in counts
    ]


def is_spared(seed: int) -> bool:
    return seed // BLOCK % 2 == 1


class Hang(BaseException):
    """No library code may take it for an error of its own."""


# --------------------------------------------------------------------------------------- the runs


class Trouble(NamedTuple):
    seed: int
    round: int
    events: str
    text: str


class Tally:
    """The results of a run so far."""

    def __init__(self) -> None:
        self.start = self._printed = time.monotonic()
        self.programs = self.rounds = self.missed = 0
        self.events: Counter = Counter()
        self.errors: Counter = Counter()  # documented ones
        self.troubles: list[Trouble] = []
        self.samples: list[dict[str, Any]] = []

    @property
    def count(self) -> int:
        return sum(self.events.values())

    @property
    def minutes(self) -> float:
        return (time.monotonic() - self.start) / 60.0

    def trouble(self, *what: Any) -> None:
        self.troubles.append(Trouble(*what))
        print("WRONG: --seed {}, round {} ({}): {}".format(*what), flush=True)

    def progress(self) -> None:
        """A line every minute."""
        if time.monotonic() - self._printed >= 60.0:
            self._printed += 60.0
            print(self.line(), flush=True)

    def line(self) -> str:
        last = self.samples[-1:]
        sizes = ", ".join(f"{sample[name]:.0f} {name}" for sample in last for name in LEAKS)
        return (
            f"{self.minutes:5.1f} min: {self.programs} programs, {self.rounds} rounds, "
            f"{self.count} events, {len(self.troubles)} wrong; {sizes}"
        )


class Chaos:
    """Programs on one cluster, to which things happen."""

    def __init__(self, client: Client, folder: Path, tally: Tally):
        self._client, self._folder, self._tally = client, folder, tally
        self._seed, self._round, self._names = -1, 0, "nothing"
        self._watches, self._ages = 0, Counter[int]()
        self._is_interruptible = False
        signal.signal(signal.SIGUSR2, self._interrupt)
        signal.signal(signal.SIGALRM, self._give_up)
        self._watch("nothing", 1)

    def start(self) -> None:
        """Makes what is held from now on, and its twin without a cluster."""
        with dask.config.set(scheduler="sync"):
            self._twins = chaos_models.Keepsakes(lambda call: call())
        with self._limited():
            self._keepsakes = chaos_models.Keepsakes(self._attempt)
            for _ in range(2):  # the cotangents of a step are dropped with the next call but one
                self._use_keepsakes()
            self._held = self._left()

    def trouble(self, text: str) -> None:
        self._tally.trouble(self._seed, self._round, self._names, text)

    def program(self, seed: int) -> None:
        """Runs a program with its events, compares, and looks at what is left."""
        self._seed, self._round = seed, 0
        try:
            with self._limited():
                undisturbed = expected(seed)
            self._run_rounds(*undisturbed)
            self._names += ", then the keepsakes"
            with self._limited():
                self._use_keepsakes()
        except Exception as error:
            self.trouble("".join(traceback.format_exception(error, limit=-FRAMES)))
            self.start()
        with self._limited():
            self._settle()
        self._tally.programs += 1
        self._tally.progress()

    def close(self) -> None:
        """Compares what has learned since the beginning."""
        with self._limited():
            self._compare(self._keepsakes.learned(), self._twins.learned())

    def _run_rounds(self, results: list[Any], counts: list[Counter]) -> None:
        running = chaos_models.Run(self._seed, self._attempt).results(self._seed)
        todo = plans(self._seed, counts)
        for self._round, (right, events) in enumerate(zip(results, todo, strict=True)):
            self._names = ", ".join([f"{e.event} at {e.moment} {e.number}" for e in events])
            with self._limited(), self._happening(events):
                result = next(running)
            self._compare(result, right)
            self._tally.rounds += 1

    def _compare(self, result: Any, right: Any) -> None:
        if not survivors.same_bits(result, right):
            self.trouble("other bits")

    def _use_keepsakes(self) -> None:
        with dask.config.set(scheduler="sync"):
            right = self._twins.results()
        self._compare(self._keepsakes.results(), right)

    # ---- calls

    def _attempt(self, call: Callable[[], Any]) -> Any:
        """Calls a function, again after an interrupt and other documented errors."""
        for attempt in range(TRIES):
            try:
                try:
                    self._is_interruptible = True
                    return call()
                finally:
                    self._is_interruptible = False
            except tuple({kind for kind, _ in DOCUMENTED}) as error:
                if attempt == TRIES - 1 or not is_documented(error):
                    raise
                self._tally.errors[type(error).__name__] += 1

    def _interrupt(self, *_: Any) -> None:
        if self._is_interruptible:
            self._is_interruptible = False
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def _limited(self) -> Iterator[None]:
        """Ends what takes too long; and, by the same timer, what is done to clean up after that."""
        signal.setitimer(signal.ITIMER_REAL, LIMIT, LIMIT)
        try:
            yield
        except Hang:
            raise
        except BaseException:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            raise
        signal.setitimer(signal.ITIMER_REAL, 0.0)

    def _give_up(self, *_: Any) -> None:
        print_stacks(self._client, self._folder)
        raise Hang(f"a wait of more than {LIMIT:g} s")

    # ---- events

    @contextlib.contextmanager
    def _happening(self, events: list[Plan]) -> Iterator[None]:
        over: Future = Future()
        happening = threading.Thread(target=self._happen_all, args=(events, over))
        happening.start()
        try:
            yield
        finally:
            over.set_result(None)
            happening.join()

    def _happen_all(self, events: list[Plan], over: Future) -> None:
        try:
            for plan in events:
                self._happen(plan, over)
        except Exception as error:
            self.trouble("".join(traceback.format_exception(error, limit=-FRAMES)))
        finally:
            self._watch("nothing", 1)

    def _happen(self, plan: Plan, over: Future) -> None:
        """Lets an event happen when a model waits; these go on, until one has come further."""
        watch = self._watch(plan.moment, plan.number)

        def has_gone_on() -> bool:
            return watch.count() > before or over.done()

        try:
            wait_until(lambda: watch.gate.arrived() or over.done(), 2 * LIMIT)
            if not watch.gate.arrived():
                self._tally.missed += 1
                return
            is_last = len(wait_until(lambda: clusters.running(self._client))) == 1
            if is_last and plan.event in NEED_ANOTHER:  # some were retired
                plan = plan._replace(event="new worker")
            self._tally.events[plan.event] += 1
            before = watch.count()
            if plan.event == "interrupted":
                if plan.chance.random() < 0.5:  # else while the call goes on
                    watch.gate.open()
                    time.sleep(0.02 * plan.chance.random())
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR2)
                return
            address = self._victim(plan, watch)
            with survivors.happening(self._client, plan.event, address, is_over=False):
                watch.gate.open()
                wait_until(has_gone_on, LIMIT)
        finally:
            watch.gate.open()

    def _watch(self, moment: str, number: int) -> survivors.Watch:
        """Sets the receiver of reports, in all processes."""
        self._watches += 1
        watch = survivors.Watch(self._folder / f"watch.{self._watches}", moment, number)
        path = self._folder / "next"
        path.write_bytes(pickle.dumps(watch))
        path.replace(self._folder / "watch")
        return watch

    def _victim(self, plan: Plan, watch: survivors.Watch) -> str:
        """A worker whose model waits, if there is one that is not spared; else any."""
        running = wait_until(lambda: clusters.running(self._client))
        found = {a: pid for a, pid in processes(self._client).items() if a in running}
        if is_spared(self._seed) and len(found) > 1:
            del found[next(iter(found))]
        pids = {pid for _, pid in watch.gate.arrived()}
        waiting = [address for address, pid in found.items() if pid in pids]
        return plan.chance.choice(waiting or list(found))

    # ---- what is left

    def _settle(self) -> None:
        """Waits until the cluster is whole and empty, and notes what its processes take."""
        cluster = self._client.cluster
        if too_many := list(processes(self._client))[WORKERS:]:
            self._client.retire_workers(too_many, close_workers=True)
        try:
            clusters.whole_again(self._client, WORKERS)
        except AssertionError:
            nannies = {n: (w.worker_address, w.status.name) for n, w in cluster.workers.items()}
            workers = self._client.scheduler_info(n_workers=-1)["workers"]
            statuses = {address: worker["status"] for address, worker in workers.items()}
            self.trouble(f"no {WORKERS} workers: nannies {nannies}, workers {statuses}")
            self._give_up()
        gc.collect()
        try:
            wait_until(lambda: all(map(operator.le, self._left(), self._held)))
        except AssertionError:
            text = "{} tasks, {} arrays and {} cotangents are left, after {}, {} and {}"
            self.trouble(text.format(*self._left(), *self._held))
            self._held = self._left()
        for path in self._folder.glob("watch.*"):
            path.unlink()
        self._tally.samples.append(self._sample())

    def _left(self) -> tuple[int, int, int]:
        """Tasks, arrays and cotangents that the cluster holds."""
        tasks = self._client.run_on_scheduler(tasks_left)
        kept = self._client.run(chaos_models.kept, on_error="ignore").values()
        return tasks, max(n for n, _ in kept), max(n for _, n in kept)

    def _sample(self) -> dict[str, Any]:
        workers = list(processes(self._client).values())
        self._ages.update(workers)
        sample: dict[str, Any] = {"minutes": self._tally.minutes, "events": self._tally.count}
        pids = {"client": os.getpid(), "scheduler": self._client.cluster.scheduler.process.pid}
        for name, pid in pids.items():
            process = psutil.Process(pid)
            sample[f"{name} MB"] = process.memory_info().rss / 1e6
            sample[f"{name} files"] = process.num_fds()
            sample[f"{name} threads"] = process.num_threads()
        sizes = {pid: psutil.Process(pid).memory_info().rss / 1e6 for pid in workers}
        sample["workers MB"] = statistics.mean(sizes.values())
        sample["old workers"] = {p: size for p, size in sizes.items() if self._ages[p] > WARM}
        # a script's own "type" needs the values of nodes, as soon as it has objectives
        kinds = map(builtins.type, gc.get_objects())
        classes = [getattr(kind, "__module__", "") for kind in kinds]
        ours = [name for name in classes if str(name).startswith("daskgrad.")]
        return sample | {"client objects": len(ours)}


def expected(seed: int) -> tuple[list[Any], list[Counter]]:
    """The results of a program's rounds in this thread, and how many reports come in each."""
    counts = [Counter[str]()]
    survivors.report_to(lambda moment: counts[-1].update([moment]))
    results = []
    try:
        with dask.config.set(scheduler="sync"):
            for result in chaos_models.Run(seed, lambda call: call()).results(seed):
                results.append(result)
                counts.append(Counter())
    finally:
        survivors.report_to(None)
    return results, counts[:-1]


def is_documented(error: BaseException) -> bool:
    return any(isinstance(error, kind) and str(error).startswith(text) for kind, text in DOCUMENTED)


# --------------------------------------------------------------------------------- the results


class Growth(NamedTuple):
    """The growth by 1,000 events, by a line, and its standard error."""

    slope: float
    error: float


def growth(runs: Iterable[Sequence[tuple[float, float]]]) -> Growth:
    """One slope for some runs of points; means of BATCH points are taken to be independent."""
    parts = []
    for run in runs:
        count = len(run) // BATCH
        if count >= 2:
            means = numpy.array(run[: count * BATCH]).reshape(count, BATCH, 2).mean(1)
            parts.append(means - means.mean(0))
    x, y = numpy.concatenate(parts).T if parts else numpy.zeros((2, 0))
    free = len(x) - len(parts) - 1
    if free < 1:
        return Growth(math.nan, math.nan)
    slope, rest = float(x @ y / (x @ x)), float(numpy.sum((y - x * (x @ y / (x @ x))) ** 2))
    return Growth(1e3 * slope, 1e3 * math.sqrt(rest / free / float(x @ x)))


def warm(samples: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    return samples[len(samples) // 4 :]


def growths(samples: Sequence[dict[str, Any]]) -> dict[str, Growth]:
    late = warm(samples)
    runs = {name: [[(s["events"], s[name]) for s in late]] for name in LEAKS}
    pids = {pid for sample in late for pid in sample["old workers"]}
    runs["workers MB"] = [
        [(s["events"], s["old workers"][pid]) for s in late if pid in s["old workers"]]
        for pid in pids
    ]
    return {name: growth(points) for name, points in runs.items()}


def printed(tally: Tally, found: dict[str, Growth]) -> str:
    a_minute = tally.count / tally.minutes
    events = [(name, str(tally.events[name])) for name in EVENTS]
    errors = [(name, str(count)) for name, count in sorted(tally.errors.items())]
    rows = [
        (
            name,
            f"{first[name]:.1f}",
            f"{last[name]:.1f}",
            f"{each.slope:.2f} ± {each.error:.2f}",
            f"{each.slope * a_minute:.2f} ± {each.error * a_minute:.2f}",
        )
        for first, last in zip(warm(tally.samples)[:1], tally.samples[-1:], strict=True)
        for name, each in found.items()
    ]
    header = ("", "warm", "at the end", "1,000 events add", "a minute adds, in thousandths (kB)")
    troubles = ["--seed {}, round {} ({}): {}".format(*each) for each in tally.troubles]
    parts = [
        tally.line(),
        table(("event", "times"), [*events, ("came too late", str(tally.missed))]),
        table(("documented errors", ""), errors),
        table(header, rows),
        *(troubles or ["nothing is wrong"]),
    ]
    return "\n\n".join(parts)


def make_claims(tally: Tally, found: dict[str, Growth]) -> list[Claim]:
    claims = [
        at_least("events", tally.count, 1),
        at_most("other bits, errors, hangs and things left", len(tally.troubles), 0),
    ]
    for name, (slope, error) in found.items():
        if not math.isnan(error):
            text = f"{name} that 1,000 events add, less twice the standard error"
            claims.append(at_most(text, slope - 2.0 * error, LEAKS[name]))
    return claims


def draw(tally: Tally, stated: str) -> Any:
    from plots import page, points  # here: processes that a benchmark starts do not need Bokeh

    minutes = [sample["minutes"] for sample in tally.samples]
    sizes = [name for name in LEAKS if name.endswith("MB")]
    clouds = {name: (minutes, [sample[name] for sample in tally.samples]) for name in sizes}
    plot = points("Memory", clouds, ("minutes", "MB"))
    return page(f"{tally.count} events", stated, plot)


def run_all(seeds: Iterator[int], tally: Tally) -> None:
    """Runs programs, on another cluster after a hang."""
    for seed in seeds:
        try:
            with tempfile.TemporaryDirectory() as folder, cluster(Path(folder)) as client:
                chaos = Chaos(client, Path(folder), tally)
                chaos.start()
                for number in itertools.chain([seed], seeds):
                    chaos.program(number)
                chaos.close()
                signal.setitimer(signal.ITIMER_REAL, LIMIT, LIMIT)  # for what is closed, too
        except Hang as hang:
            chaos.trouble(f"hang: {hang}")
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def seeds_of(arguments: Any, tally: Tally) -> Iterator[int]:
    """Runs programs until the time is up or too much is wrong."""
    if arguments.seed is not None:
        yield arguments.seed
        return
    count = (arguments.rounds or 1) * QUICK if arguments.quick else sys.maxsize
    first = int(f"{datetime.date.today():%Y%m%d}") * 10_000
    for seed in range(first, first + count):
        if tally.minutes > 60.0 * arguments.hours or len(tally.troubles) >= MOST:
            return
        yield seed


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--seed", type=int, help="of the only program; else the date's")
    arguments = parser.parse_args()
    plain_environment()
    tally = Tally()
    with dask.config.set(CALM), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*lost.*", UserWarning)  # what a kill makes Dask say
        warnings.filterwarnings("ignore", "the .* items of the sum")
        run_all(seeds_of(arguments, tally), tally)
    found = growths(tally.samples)
    text = printed(tally, found)
    print(f"\n{text}")
    content = {
        "minutes": tally.minutes,
        "programs": tally.programs,
        "rounds": tally.rounds,
        "events": tally.events,
        "documented errors": tally.errors,
        "wrong": [trouble._asdict() for trouble in tally.troubles],
        "growth": {name: each._asdict() for name, each in found.items()},
        "samples": tally.samples,
    }
    claims = make_claims(tally, found)
    code = finish("chaos", arguments, content, claims, functools.partial(draw, tally))
    (arguments.results / "chaos.txt").write_text(f"{text}\n")
    faulthandler.dump_traceback_later(LIMIT, exit=True)  # the process may wait as it ends
    return code or int(bool(tally.troubles))


if __name__ == "__main__":
    sys.exit(main())
