"""Workers killed at random moments of the backward pass: the same bits, and what a kill costs.

    python benchmarks/chaos.py [--quick] [--kills N] [--rounds N] [--results DIR]

What is done: on a cluster of two worker processes with nannies, one worker is killed (SIGKILL) at a
random moment of the backward pass of a program, a hundred times, in programs that take turns:

- graph: value and gradient of a graph of models; every model's pullback waits for all models;
- pullback: of ``dg.vjp``, called after the forward pass has ended; what the worker held of that is
  lost, too;
- loop: value and gradient of a loop of ``dg.scan``, in pieces that each keep some of four states;
- domain: value and gradient of blocks of a grid that exchange their edges (``dg.map_overlap``);
- placed sum: value and gradient of a sum over items that are on the workers, by direct calls; the
  models of a sum are pulled back one by one, so a kill hits forward passes as well.

The moment is drawn uniformly from what the backward pass takes without a kill, from the first line
that a pullback writes (``chaos_models``); the worker is drawn, too; both from a fixed seed. A kill
after which no pullback wrote a line came too late: it does not count, and is repeated.

What is compared: every result, bit by bit, with that of the same program without a cluster. Any
other bits, an error, or a run that takes more than LIMIT seconds make the exit code 1, also of a
quick run.

What is measured: the time of a run with a kill, beyond the median time of the same program without
one. Before each kill, the restarted worker is waited for, and the program runs twice undisturbed;
the second time is taken. The restart itself takes processor time from the worker that is left.
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import contextlib
import functools
import itertools
import logging
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import dask
import numpy
from distributed import Client

import daskgrad as dg
from chaos_models import Line, array_graph, domain, graph, loop, point, read, sum_of_terms
from hosts import cluster, plain_environment
from report import Claim, at_least, at_most, finish, options, table

LIMIT = 120.0  # seconds, of one run and of the wait for a worker
POLL = 0.002  # seconds between two looks at the file
TRIES = 5  # for each kill: some come too late
CALM = {
    "distributed.deploy.lost-worker-timeout": "1h",  # else LocalCluster gives lost workers up
    "distributed.scheduler.no-workers-timeout": f"{LIMIT:g}s",
}

Run = Callable[[], Any]

# -------------------------------------------------------------------------------- the programs


class Program(NamedTuple):
    """``prepared`` does what is not timed, and returns what is; its pullbacks write to the path."""

    name: str
    prepared: Callable[[Any, Path], Run]


def gradient_of_graph(numbers: Sequence[int], path: Path) -> Run:
    return lambda: dg.value_and_grad(lambda x: graph(numbers, x, path))(point())


def pullback_of_graph(numbers: Sequence[int], path: Path) -> Run:
    value, pullback = dg.vjp(lambda x: array_graph(numbers, x, path), point())
    return lambda: pullback(numpy.ones_like(value))


def gradient_of_loop(numbers: Sequence[int], path: Path) -> Run:
    return lambda: dg.value_and_grad(lambda x: loop(numbers, x, path))(point())


def gradient_of_domain(numbers: Sequence[int], path: Path) -> Run:
    return lambda: dg.value_and_grad(lambda x: domain(numbers, x, path))(point())


def gradient_of_sum(numbers: Any, path: Path) -> Run:
    return lambda: dg.value_and_grad(lambda x: sum_of_terms(numbers, x, path))(point())


PROGRAMS = (
    Program("graph", gradient_of_graph),
    Program("pullback", pullback_of_graph),
    Program("loop", gradient_of_loop),
    Program("domain", gradient_of_domain),
    Program("placed sum", gradient_of_sum),
)


def bits(result: Any) -> tuple[bytes, ...]:
    return tuple([numpy.asarray(leaf).tobytes() for leaf in result])


# ----------------------------------------------------------------------------------- the kills


class Hang(BaseException):
    """No library code may take it for an error of its own."""


@contextlib.contextmanager
def limited(what: str) -> Iterator[None]:
    """Ends what takes too long; and, by the same timer, what is done to clean up after that."""

    def end(*_: Any) -> None:
        raise Hang(f"{what} took more than {LIMIT:g} s")

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, LIMIT, LIMIT)
    try:
        yield
    except Hang:
        raise
    except BaseException:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        raise
    signal.setitimer(signal.ITIMER_REAL, 0.0)


class Killer(threading.Thread):
    """Kills a process some seconds after the first pullback began, unless it is told to stop."""

    def __init__(self, path: Path, process: int, seconds: float):
        super().__init__(daemon=True)
        self._path, self._process, self._seconds = path, process, seconds
        self._done = threading.Event()
        self.killed: float | None = None  # when

    def run(self) -> None:
        while not self._path.stat().st_size:
            if self._done.wait(POLL):
                return
        if not self._done.wait(self._seconds):
            os.kill(self._process, signal.SIGKILL)
            self.killed = time.monotonic()

    def stop(self) -> None:
        self._done.set()
        self.join()


class Outcome(NamedTuple):
    """What became of a run. ``hit``: the killed worker was within a pullback."""

    program: str
    seconds: float
    killed_at: float  # seconds from the first pullback's beginning
    hit: bool
    verdict: str

    @property
    def is_right(self) -> bool:
        return self.verdict == "equal"


class Undisturbed(NamedTuple):
    seconds: float
    backward: float  # seconds of it, from the first pullback's beginning


class Chaos:
    """Programs on a cluster whose workers are killed."""

    def __init__(self, client: Client, folder: Path, count: int):
        self._client = client
        self._paths = (folder / str(number) for number in itertools.count())
        self._random = random.Random(0)
        self._numbers: dict[str, Any] = {p.name: list(range(count)) for p in PROGRAMS}
        with dask.config.set(scheduler="sync"):
            self._right = {p.name: bits(self._prepared(p)[1]()) for p in PROGRAMS}
        self._numbers["placed sum"] = dg.place(list(range(count)), grainsize=1)
        self.undisturbed: dict[str, list[Undisturbed]] = {p.name: [] for p in PROGRAMS}
        self.late = 0  # kills that came after the result, and do not count

    def _prepared(self, program: Program) -> tuple[Path, Run]:
        path = next(self._paths)
        path.touch()
        return path, program.prepared(self._numbers[program.name], path)

    def outcome(self, program: Program) -> Outcome:
        """Of one run with a kill that came before the result."""
        for _ in range(TRIES):
            self._run_undisturbed(program)
            outcome = self._disturbed(program)
            if outcome is not None:
                return outcome
            self.late += 1
        raise SystemExit(f"{program.name}: {TRIES} kills in a row came too late")

    def _run_undisturbed(self, program: Program) -> None:
        """The second of two runs is taken: a worker that was restarted is cold."""
        for _ in range(2):
            path, run = self._prepared(program)
            start = time.monotonic()
            with limited(f"{program.name}, undisturbed,"):
                result = run()
            end = time.monotonic()
            if bits(result) != self._right[program.name]:
                raise SystemExit(f"{program.name}: other bits than without a cluster, and no kill")
        backward = end - next(read(path)).when
        self.undisturbed[program.name].append(Undisturbed(end - start, backward))

    def _disturbed(self, program: Program) -> Outcome | None:
        path, run = self._prepared(program)
        process = self._random.choice(self._processes())
        takes = statistics.median(once.backward for once in self.undisturbed[program.name])
        killer = Killer(path, process, self._random.random() * takes)
        killer.start()
        start = time.monotonic()
        try:
            with limited(f"{program.name}, with a killed worker,"):
                verdict = "equal" if bits(run()) == self._right[program.name] else "other bits"
        except Exception as error:  # counted, and told, as wrong bits are
            verdict = f"{type(error).__name__}: {error}"
        end = time.monotonic()
        killer.stop()
        if killer.killed is None:
            if verdict != "equal":
                raise SystemExit(f"{program.name}, before any kill: {verdict}")
            return None
        self._wait_for_restart(process)
        told = list(read(path))
        if verdict == "equal" and told[-1].when < killer.killed:
            return None
        killed_at = killer.killed - told[0].when
        return Outcome(program.name, end - start, killed_at, is_hit(told, process), verdict)

    def _processes(self) -> list[int]:
        """The workers' process ids, in an order that a seed can draw from."""
        by_address = self._client.run(os.getpid, on_error="return")
        return sorted(found for found in by_address.values() if isinstance(found, int))

    def _wait_for_restart(self, killed: int) -> None:
        with limited("the restart of a killed worker"):
            while True:
                alive = self._processes()
                if len(alive) == 2 and killed not in alive:
                    return
                time.sleep(0.05)


def is_hit(told: Sequence[Line], process: int) -> bool:
    """Whether the last that a process wrote is that a pullback begins."""
    own = [line.what for line in told if line.process == process]
    return bool(own) and own[-1] == "begin"


# --------------------------------------------------------------------------------- the results


def summary(chaos: Chaos, outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    rows = []
    for name, runs in chaos.undisturbed.items():
        own = [outcome for outcome in outcomes if outcome.program == name]
        base = statistics.median(once.seconds for once in runs)
        extra = [outcome.seconds - base for outcome in own]
        low, middle, high = quartiles(extra)
        rows.append(
            {
                "program": name,
                "kills": len(own),
                "within a pullback": sum(outcome.hit for outcome in own),
                "right": sum(outcome.is_right for outcome in own),
                "undisturbed seconds": base,
                "undisturbed seconds of the backward pass": statistics.median(
                    once.backward for once in runs
                ),
                "extra seconds": middle,
                "quartiles": [low, high],
                "worst": max(extra, default=0.0),
                "all extra seconds": extra,
                "all kills at": [outcome.killed_at for outcome in own],
            }
        )
    return rows


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    if not values:
        return 0.0, 0.0, 0.0
    low, middle, high = numpy.quantile(values, [0.25, 0.5, 0.75])
    return float(low), float(middle), float(high)


def printed(rows: Sequence[dict[str, Any]]) -> str:
    header = ("program", "kills", "in a pullback", "right", "undisturbed")
    costs = ("a kill costs", "quartiles", "worst")
    lines = [
        (
            row["program"],
            str(row["kills"]),
            str(row["within a pullback"]),
            str(row["right"]),
            f"{row['undisturbed seconds']:.2f} s",
            f"{row['extra seconds']:.2f} s",
            "{:.2f} to {:.2f} s".format(*row["quartiles"]),
            f"{row['worst']:.2f} s",
        )
        for row in rows
    ]
    return table((*header, *costs), lines)


def draw(rows: Sequence[dict[str, Any]], stated: str) -> Any:
    from plots import page, points  # here: processes that a benchmark starts do not need Bokeh

    clouds = {row["program"]: (row["all kills at"], taken(row)) for row in rows if row["kills"]}
    labels = ("the kill, after the first pullback began (s)", "the run with a kill (s)")
    plot = points(f"What a killed worker costs ({without_kills(rows)})", clouds, labels)
    return page("A worker killed in the backward pass, of two", stated, plot)


def taken(row: dict[str, Any]) -> list[float]:
    """The seconds of all runs with a kill."""
    return [row["undisturbed seconds"] + extra for extra in row["all extra seconds"]]


def without_kills(rows: Sequence[dict[str, Any]]) -> str:
    each = [f"{row['program']} {row['undisturbed seconds']:.2f} s" for row in rows]
    return f"undisturbed: {', '.join(each)}"


def make_claims(outcomes: Sequence[Outcome], kills: int) -> list[Claim]:
    wrong = sum(not outcome.is_right for outcome in outcomes)
    return [
        at_least("kills before the backward pass had ended", len(outcomes), kills),
        at_most("results with other bits, and errors", wrong, 0),
    ]


def run_all(kills: int, count: int) -> tuple[Chaos, list[Outcome]]:
    outcomes: list[Outcome] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        dask.config.set(CALM),
        cluster(2) as client,
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", ".*lost.*", UserWarning)  # what a kill makes Dask say
        chaos = Chaos(client, Path(folder), count)
        for program in itertools.islice(itertools.cycle(PROGRAMS), kills):
            outcomes.append(chaos.outcome(program))
            if not outcomes[-1].is_right:
                print(f"kill {len(outcomes)}, {program.name}: {outcomes[-1].verdict}", flush=True)
    return chaos, outcomes


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--kills", type=int, help="how many, in all programs together")
    arguments = parser.parse_args()
    in_a_round = len(PROGRAMS)
    if arguments.kills is None:
        arguments.kills = (arguments.rounds or 1) * in_a_round if arguments.quick else 100
    arguments.rounds = arguments.rounds or -(-arguments.kills // in_a_round)
    plain_environment()
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # nannies tell of every restart
    try:
        chaos, outcomes = run_all(arguments.kills, 8 if arguments.quick else 32)
    except Hang as hang:
        print(f"chaos.py: {hang}", file=sys.stderr)
        return 1
    rows = summary(chaos, outcomes)
    print(printed(rows))
    claims = make_claims(outcomes, arguments.kills)
    found = {"kills": len(outcomes), "late": chaos.late, "programs": rows}
    code = finish("chaos", arguments, found, claims, functools.partial(draw, rows))
    return code or int(not all(outcome.is_right for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
