"""Progress: bars of both passes, and the calls of a fit, while somebody waits; rich draws them.

rich keeps several bars in place below the output of a script, and puts the cursor back. Its own
output in notebooks needs widgets; here it is HTML that any notebook can show and keep.
"""

import contextlib
import operator
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from distributed import Client

from daskgrad.autodiff.values import clock
from daskgrad.autodiff.values.descriptions import imported
from daskgrad.dashboards.feeding import recording
from daskgrad.dashboards.local import LocalObserver, logger
from daskgrad.dashboards.palette import INK, shade
from daskgrad.dashboards.recorder import Recorder
from daskgrad.tasks import observers
from daskgrad.tasks.clients import CONNECTED, active_client
from daskgrad.tasks.keys import PROCESS
from daskgrad.tasks.observers import observed_by
from daskgrad.tasks.waiting import has_result, in_loop

DRAW_EVERY = 0.25  # seconds
ANSWER = 2.0  # how long an answer of the scheduler is waited for
SHORT = 0.5  # shorter evaluations have no bars: they would flicker
WINDOW = 10.0  # seconds over which calls are counted for their speed
LINE_EVERY = 30.0  # between two lines in a file
WIDTH = 40  # of a bar, in characters


@contextlib.contextmanager
def progress() -> Iterator[None]:
    """A context that shows how far gradients are: in a terminal and in Jupyter.

    A bar for the forward pass and one for the backward pass of the latest evaluation, with items
    of sums and other calls of models done of total, and the time left, which is estimated from what
    the models took so far; and the number of calls of gradients, calls a second, the latest value
    and norm of the gradient. It holds for every scheduler of Dask, for small evaluations in the
    calling thread and for sums over placed items; on a cluster, for the client that is active at
    the start.

    It writes to standard error: bars if that is a terminal; to a file a line of plain text every
    half a minute, and one at the end. Within another one it leaves everything to that one.

    Raises
    ------
    ModuleNotFoundError
        if rich is not installed (``pip install "daskgrad[progress]"``).

    See Also
    --------
    report, dashboards.mount

    Examples
    --------
    >>> with dg.progress():
    ...     gradient = dg.grad(lambda x: dg.delayed(np.sum)(x**2))(np.ones(3))
    """
    if any(isinstance(observer, ProgressObserver) for observer in observers.observers):
        yield
        return
    screen = make_screen()
    observer, client = ProgressObserver(Recorder()), active_client()
    with contextlib.ExitStack() as stack:
        stack.enter_context(observed_by(observer))
        plugin = "" if client is None else stack.enter_context(recording(client))
        stack.enter_context(shown_by(screen, ProgressWatch(observer, client, plugin)))
        yield


# -------------------------------------------------------------------------------------------------
# Bars: they can be added, since a cluster runs one part of an evaluation, and the client another.

PASSES = ("forward", "tangent", "backward")  # as they run; their models run in stages so called
PASS_OF = {"forward": "forward", "value": "forward", "tangent": "tangent"}
PASS_OF |= {"backward": "backward", "cotangent": "backward"}


class Bar(NamedTuple):
    """Calls of models in one pass, an item of a sum being one, and failed tasks; seconds ``spent``
    on what is done, ``left`` for the others."""

    done: int = 0
    total: int = 0
    failed: int = 0
    spent: float = 0.0
    left: float = 0.0

    def plus(self, other: "Bar") -> "Bar":
        return Bar(*map(operator.add, self, other))


class Standing(NamedTuple):
    """How far an evaluation is, by pass, ``age`` seconds after it began.

    ``dropped`` tasks never ran: another one failed, or nobody wants them any more.
    """

    evaluation: str
    age: float
    bars: dict[str, Bar]
    dropped: int = 0
    is_done: bool = False

    def seconds_left(self, until: str) -> float | None:
        """Until the end of a pass, at the speed of the tasks done so far; None if none is done."""
        spent = sum([bar.spent for bar in self.bars.values()])
        before = PASSES[: PASSES.index(until) + 1]
        left = sum([self.bars[name].left for name in before if name in self.bars])
        return self.age * left / spent if spent > 0.0 else None


def standing(recorder: Recorder, process: str) -> Standing | None:
    """The latest evaluation of a process, with whose token the evaluation's name begins."""
    names = [name for name in recorder.evaluations if name.startswith(process)]
    if not names:
        return None
    record = recorder.evaluations[names[-1]]
    bars: dict[str, Bar] = {}
    for (stage, model), count in record.counts.items():
        done = min(count.done, count.total)
        left = max(count.total - done - count.failed, 0)
        mean = mean_seconds(recorder, stage, model)
        called = min(count.called, count.calls)
        bar = Bar(called, count.calls, count.failed, mean * done, mean * left)
        bars[PASS_OF[stage]] = bars.get(PASS_OF[stage], Bar()).plus(bar)
    stop = record.stop if record.is_done else time.time()
    in_order = {name: bars[name] for name in PASSES if name in bars and bars[name].total}
    return Standing(names[-1], stop - record.start, in_order, record.dropped, record.is_done)


def mean_seconds(recorder: Recorder, stage: str, model: str) -> float:
    """The mean time of a task; before the first one, of other passes of the model, or of all."""
    of_model = [recorder.models[model]] if model in recorder.models else []
    choices: list[Any] = [(of_model, [stage])]
    if stage in PASSES:
        choices += [(of_model, PASSES), (recorder.models.values(), PASSES)]
    for costs, stages in choices:
        count = sum([cost.counts[name] for cost in costs for name in stages])
        if count:
            return sum([cost.seconds.get(name, 0.0) for cost in costs for name in stages]) / count
    return 0.0


def together(one: Standing | None, other: Standing | None) -> Standing | None:
    """Both parts of an evaluation, or the later one of two."""
    if one is None or other is None:
        return one or other
    if one.evaluation != other.evaluation:
        return max(one, other, key=lambda standing: standing.evaluation)
    passes = [name for name in PASSES if name in one.bars or name in other.bars]
    bars = {name: one.bars.get(name, Bar()).plus(other.bars.get(name, Bar())) for name in passes}
    dropped = one.dropped + other.dropped
    is_done = one.is_done and other.is_done
    return Standing(one.evaluation, max(one.age, other.age), bars, dropped, is_done)


# -------------------------------------------------------------------------------------------------
# Watching: a thread asks this process's recorder, and one on the scheduler.


class ProgressObserver(LocalObserver):
    """Records for one ``progress``."""


class CallRate:
    """Counts the calls of the latest run of evaluations, and how many there are a second."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, str, int]] = deque()

    def text(self, recorder: Recorder) -> str:
        """One line; empty without a run."""
        runs = [run for run in recorder.runs.values() if run.latest is not None]
        run = max(runs, key=lambda run: run.start + run.latest.seconds, default=None)
        if run is None or run.latest is None:
            return ""
        now, samples = clock.seconds(), self._samples
        if samples and samples[-1][1] != run.name:
            samples.clear()
        samples.append((now, run.name, run.count))
        while len(samples) > 2 and samples[1][0] < now - WINDOW:
            samples.popleft()
        then, _, before = samples[0]
        rate = (run.count - before) / (now - then) if run.count > before else 0.0
        rate = rate or run.count / max(time.time() - run.start, 1e-9)
        calls = "1 call" if run.count == 1 else f"{run.count:,} calls"
        result = f"value {run.latest.value:.8g} · gradient norm {run.latest.norm:.3g}"
        return f"{run.name}: {calls} · {rate:.3g} a second · {result}"


class ProgressWatch:
    """Looks at the standing of the latest evaluation, and makes a line on calls.

    A cluster's part of the standing comes from a plugin of its scheduler.
    """

    def __init__(self, observer: ProgressObserver, client: Client | None, plugin: str):
        self._observer, self._client, self._plugin = observer, client, plugin
        self._remote: Standing | None = None
        self._rate = CallRate()
        self._has_bars = False

    def look(self) -> tuple[Standing | None, str]:
        if self._client is not None and self._client.status in CONNECTED:
            self._ask(self._client)
        whole = together(self._observer.ask(standing, PROCESS), self._remote)
        self._has_bars |= whole is not None and whole.age >= SHORT
        return whole if self._has_bars else None, self._observer.ask(self._rate.text)

    def _ask(self, client: Client) -> None:
        """Takes the scheduler's answer; keeps the one before if none comes in time."""
        question = {"name": self._plugin, "process": PROCESS}
        future = in_loop(client, lambda: client.run_on_scheduler(remote_standing, **question))
        if has_result(future, ANSWER):
            self._remote = future.result()
        else:
            logger.info("the scheduler did not tell how far the evaluations are")


def remote_standing(name: str, process: str, dask_scheduler: Any) -> Standing | None:
    plugin = dask_scheduler.plugins.get(name)
    return None if plugin is None else standing(plugin.recorder, process)


@contextlib.contextmanager
def shown_by(screen: Any, watch: ProgressWatch) -> Iterator[None]:
    """A context in which a thread draws; it leaves the screen as it should be."""
    ended = threading.Event()

    def draw() -> None:
        while not ended.wait(DRAW_EVERY):
            screen.show(*watch.look())

    thread = threading.Thread(target=draw, name="daskgrad-progress", daemon=True)
    with screen:
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            screen.show(*watch.look(), is_last=True)


# -------------------------------------------------------------------------------------------------
# Screens: rich is imported when one is made.


def make_screen() -> "Screen":
    """The screen of this process; ModuleNotFoundError without rich."""
    imported("rich", "progress", "dg.progress draws with rich")
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_jupyter:
        return Notebook()
    if sys.stderr.isatty() and not console.is_dumb_terminal:
        return Terminal(console)
    return Lines()


class Screen:
    """Shows how far an evaluation is, and a line on calls; a context manager.

    Nothing is shown before there is something to show. ``is_last``: it is the end.
    """

    def __enter__(self) -> "Screen":
        return self

    def __exit__(self, *_: Any) -> None: ...

    def show(self, standing: Standing | None, calls: str, is_last: bool = False) -> None:
        if standing is not None or calls:
            # no character may control the terminal
            safe = "".join([letter if letter.isprintable() else "?" for letter in calls])
            self.draw(standing, safe, is_last)

    def draw(self, standing: Standing | None, calls: str, is_last: bool) -> None:
        raise NotImplementedError


class Terminal(Screen):
    """Bars that stay below later output of the script; standard output in a file stays there."""

    def __init__(self, console: Any):
        self._console = console
        self._live: Any = None
        self._is_closed = False  # after an interrupt the drawing thread may come later

    def draw(self, standing: Standing | None, calls: str, is_last: bool) -> None:
        from rich.live import Live

        if self._is_closed:
            return
        if self._live is None:
            options = {"console": self._console, "redirect_stdout": sys.stdout.isatty()}
            self._live = Live(auto_refresh=False, **options)
            self._live.start()
        self._live.update(picture(standing, calls), refresh=True)

    def __exit__(self, *_: Any) -> None:
        self._is_closed = True
        if self._live is not None:
            self._live.stop()


class Notebook(Screen):
    """One output of a cell, which is replaced."""

    def __init__(self) -> None:
        self._shown: Any = None

    def draw(self, standing: Standing | None, calls: str, is_last: bool) -> None:
        from IPython.display import display  # here: it is there in notebooks alone

        if self._shown is None:
            self._shown = display(picture(standing, calls), display_id=True)
        else:
            self._shown.update(picture(standing, calls))


class Lines(Screen):
    """Lines of plain text: one every half a minute while something happens, and one at the end."""

    def __init__(self) -> None:
        self._next, self._last = clock.seconds() + LINE_EVERY, ""

    def draw(self, standing: Standing | None, calls: str, is_last: bool) -> None:
        if not is_last and clock.seconds() <= self._next:
            return
        parts = [] if standing is None else [about(standing)]
        text = " · ".join([*parts, *([calls] if calls else [])])
        if text != self._last:
            print(text, file=sys.stderr, flush=True)
        self._next, self._last = clock.seconds() + LINE_EVERY, text


def picture(standing: Standing | None, calls: str) -> Any:
    """Bars and the line on calls, for rich to draw."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    if standing is not None:
        for name, bar in standing.bars.items():
            styles = dict.fromkeys(["complete_style", "finished_style"], shade(0, name))
            drawn = ProgressBar(max(bar.total, 1), bar.done, width=WIDTH, style=INK, **styles)
            table.add_row(name, drawn, counted(bar), time_left(standing, name))
    whole = Table.grid()
    whole.add_row(table)
    if calls:
        whole.add_row(Text(calls))
    return whole


def about(standing: Standing) -> str:
    """The bars in words."""
    bars = [f"{name} {counted(bar)}" for name, bar in standing.bars.items()]
    left = time_left(standing, list(standing.bars)[-1])
    return " · ".join([*bars, left] if left else bars)


def counted(bar: Bar) -> str:
    failed = f", {bar.failed:,} failed" if bar.failed else ""
    return f"{bar.done:,}/{bar.total:,}{failed}"


def time_left(standing: Standing, name: str) -> str:
    """The time until a pass ends; when all have ended, the last one has the time of all."""
    bar = standing.bars[name]
    if standing.is_done:
        whole = ("given up after " if standing.dropped else "") + duration(standing.age)
        return whole if name == list(standing.bars)[-1] else ""
    if bar.done + bar.failed >= bar.total:
        return ""
    left = standing.seconds_left(name)
    return "" if left is None else f"{duration(left)} left"


def duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"
