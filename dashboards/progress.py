"""Progress: forward and backward bars, and the calls of a fit, while somebody waits."""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from distributed import Client

from daskgrad.autodiff.values import clock
from daskgrad.autodiff.values.descriptions import imported
from daskgrad.dashboards.bars import Standing, latest_run, standing, together
from daskgrad.dashboards.feeding import recording
from daskgrad.dashboards.local import LocalObserver, logger
from daskgrad.dashboards.recorder import Recorder
from daskgrad.tasks import observers
from daskgrad.tasks.clients import CONNECTED, active_client
from daskgrad.tasks.keys import PROCESS
from daskgrad.tasks.observers import observed_by
from daskgrad.tasks.waiting import in_loop, is_done

DRAW_EVERY = 0.25  # seconds
ASK_EVERY = 0.5  # between two questions to the scheduler
LAST_ANSWER = 2.0  # is waited for so long at the end
SHORT = 0.5  # before an evaluation has taken so long there are no bars: they would flicker
WINDOW = 10.0  # seconds over which calls are counted for their speed


@contextlib.contextmanager
def progress() -> Iterator[None]:
    """A context that shows how far gradients are: in a terminal and in Jupyter.

    A bar for the forward pass and one for the backward pass of the latest evaluation, with tasks
    done of total and the time left, which is estimated from what the models took so far; and the
    number of calls of gradients, calls a second, the latest value and norm of the gradient. It
    holds for every scheduler of Dask, for small evaluations in the calling thread and for sums over
    placed items; on a cluster, for the client that is active at the start.

    It writes to standard error: bars where that is a terminal; in a file a line of plain text every
    half a minute, and one at the end. Within another one it leaves everything to that one.

    Raises
    ------
    ModuleNotFoundError
        if rich is not installed (``pip install "daskgrad[progress]"``).

    Examples
    --------
    >>> with dg.progress():
    ...     gradient = dg.grad(lambda x: dg.delayed(np.sum)(x**2))(np.ones(3))
    """
    if any(isinstance(each, Watching) for each in observers.observers):
        yield
        return
    screen = make_screen()
    observer, client = Watching(Recorder()), active_client()
    with contextlib.ExitStack() as stack:
        stack.enter_context(observed_by(observer))
        remote = None if client is None else Remote(client, stack.enter_context(recording(client)))
        stack.enter_context(shown_by(screen, Watch(observer, remote)))
        yield


def make_screen() -> Any:
    """What shows progress here; ModuleNotFoundError without rich."""
    imported("rich", "progress", "dg.progress draws with rich")
    from daskgrad.dashboards.screens import screen

    return screen()


class Watching(LocalObserver):
    """Records for one ``progress``."""

    def ask(self, question: Callable[..., Any], *args: Any) -> Any:
        """The answer to a question to the recorder, to which nobody writes meanwhile."""
        with self._lock:
            return question(self.recorder, *args)


class Remote:
    """The standing of evaluations on a scheduler: asked for without waiting for the answer."""

    def __init__(self, client: Client, name: str):
        self._client, self._name = client, name
        self._future: Future | None = None
        self._asked = 0.0
        self.latest: Standing | None = None

    def look(self) -> None:
        """Takes in an answer, and asks again."""
        if self._future is not None and self._future.done():
            self._take(self._future)
            self._future = None
        is_due = clock.seconds() - self._asked > ASK_EVERY
        if self._future is None and is_due and self._client.status in CONNECTED:
            self._ask()

    def finish(self) -> None:
        """Waits a while for a last answer."""
        if self._client.status in CONNECTED:
            self._ask()
            if self._future is not None and is_done(self._future, LAST_ANSWER):
                self._take(self._future)

    def _ask(self) -> None:
        self._asked = clock.seconds()
        run = self._client.run_on_scheduler
        question = {"name": self._name, "process": PROCESS}
        self._future = in_loop(self._client, lambda: run(remote_standing, **question))

    def _take(self, answered: Future) -> None:
        if answered.cancelled() or answered.exception() is not None:
            logger.info("the scheduler did not tell how far the evaluations are")
        else:
            self.latest = answered.result()


def remote_standing(name: str, process: str, dask_scheduler: Any) -> Standing | None:
    plugin = dask_scheduler.plugins.get(name)
    return None if plugin is None else standing(plugin.recorder, process)


class Calls:
    """The calls of a run of evaluations, and how many there are a second."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, str, int]] = deque()

    def text(self, recorder: Recorder) -> str:
        """One line on the latest run; empty without one."""
        run = latest_run(recorder)
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
        found = f"value {run.latest.value:.8g} · gradient norm {run.latest.norm:.3g}"
        return f"{run.name}: {calls} · {rate:.3g} a second · {found}"


class Watch:
    """What is shown: the standing of the latest evaluation, and a line on calls."""

    def __init__(self, observer: Watching, remote: Remote | None):
        self._observer, self._remote = observer, remote
        self._calls = Calls()
        self._has_bars = False

    def look(self) -> tuple[Standing | None, str]:
        if self._remote is not None:
            self._remote.look()
        return self._now()

    def last_look(self) -> tuple[Standing | None, str]:
        if self._remote is not None:
            self._remote.finish()
        return self._now()

    def _now(self) -> tuple[Standing | None, str]:
        there = None if self._remote is None else self._remote.latest
        here = self._observer.ask(standing, PROCESS)
        found = together(here, there)
        self._has_bars |= found is not None and found.age >= SHORT
        return found if self._has_bars else None, self._observer.ask(self._calls.text)


@contextlib.contextmanager
def shown_by(screen: Any, watch: Watch) -> Iterator[None]:
    """A context in which a thread draws, and at whose end the screen is left as it should be."""
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
            screen.show_last(*watch.last_look())
