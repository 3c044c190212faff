"""Progress shows what runs on every scheduler, and leaves terminals and files as they should be."""

import codecs
import io
import os
import pty
import queue
import select
import signal
import subprocess
import sys
import threading
import types

import autograd.numpy as np
import dask
import numpy
import pytest
from clusters import cluster
from lengths import in_short
from small_models import X, term, total, wave
from waiting import wait_until

import daskgrad as dg
from daskgrad.dashboards import progress
from daskgrad.dashboards.progress import Bar, Standing, standing, together
from daskgrad.dashboards.recorder import Recorder, Task

pytest.importorskip("rich")

ESCAPE = "\x1b"
HIDDEN, SHOWN = f"{ESCAPE}[?25l", f"{ESCAPE}[?25h"  # the cursor


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    assert [t.name for t in threading.enumerate() if t.name == "daskgrad-progress"] == []


class Kept(progress.Screen):
    """A screen that keeps what it shows."""

    def __init__(self):
        self.shown, self.last = [], None

    def show(self, standing, calls, is_last=False):
        if is_last:
            self.last = (standing, calls)
        else:
            self.shown.append((standing, calls))


@pytest.fixture
def screen(monkeypatch):
    monkeypatch.setattr(progress, "SHORT", 0.0)
    made = Kept()
    monkeypatch.setattr(progress, "make_screen", lambda: made)
    return made


def graph(x):
    return dg.delayed(total)(dg.delayed(wave)(x))


# -------------------------------------------------------------------------------- what is shown


def test_evaluations_that_take_no_time_have_no_bars(synchronous, screen, monkeypatch):
    monkeypatch.setattr(progress, "SHORT", 30.0)
    with dg.progress():
        dg.grad(graph)(X)
    found, calls = screen.last
    assert found is None
    assert "1 call" in calls


def test_bars_are_full_at_the_end_on_every_scheduler(scheduler, screen):
    with dg.progress():
        for _ in range(2):
            value, gradient = dg.value_and_grad(graph)(X)
    assert value == dg.value_and_grad(graph)(X)[0]
    found, calls = screen.last
    assert list(found.bars) == ["forward", "backward"]
    assert found.is_done
    for bar in found.bars.values():
        assert bar.done == bar.total >= 2
        assert bar.left == bar.failed == 0
    norm = numpy.linalg.norm(gradient)
    assert calls.startswith("graph: 2 calls · ")
    assert calls.endswith(f" a second · value {value:.8g} · gradient norm {norm:.3g}")


@pytest.fixture
def wait_for_look(monkeypatch):
    """A function for a model that waits until progress has been shown while it runs."""
    looks, look = queue.SimpleQueue(), progress.ProgressWatch.look  # a call copies no queue
    monkeypatch.setattr(progress, "DRAW_EVERY", 0.001)
    monkeypatch.setattr(progress, "SHORT", 0.0)

    def counted(watch):
        looks.put(1)
        return look(watch)

    monkeypatch.setattr(progress.ProgressWatch, "look", counted)

    def wait():
        seen = looks.qsize()
        wait_until(lambda: looks.qsize() > seen + 2)  # the first may have begun before

    return wait


def test_bars_move_while_models_run(synchronous, screen, wait_for_look):
    def model(x):
        wait_for_look()
        return np.sin(x)

    def chain(x):
        for _ in range(6):
            x = dg.delayed(model)(x)
        return dg.delayed(total)(x)

    with dg.progress():
        dg.grad(chain)(X)
    done = [standing.bars["forward"].done for standing, _ in screen.shown if standing is not None]
    assert done == sorted(done)
    assert set(done) >= set(range(6))


@pytest.mark.parametrize("grainsize", [1, 3])
@pytest.mark.parametrize("keep", ["auto", "tape"])
def test_items_are_counted_in_both_passes(scheduler, screen, grainsize, keep):
    """And no additions, and no tasks that pass values on."""
    model = dg.delayed(term, keep=keep)
    items = [float(n) for n in range(8)]

    def fun(x):
        return dg.map_sum(model, items, x, grainsize=grainsize) + dg.delayed(total)(x)

    with dg.progress():
        dg.grad(fun)(X)
    bars = {name: bar[:3] for name, bar in screen.last[0].bars.items()}
    assert bars == {"forward": (10, 10, 0), "backward": (10, 10, 0)}, "8 items, total, and +"


def test_calls_of_placed_sums_are_counted(client, screen):
    with dg.place([1.0, 2.0, 3.0, 4.0], grainsize=1) as shards, dg.progress():
        gradient = dg.grad(lambda x: dg.map_sum(term, shards, x))
        with dask.config.set({"daskgrad.inline.seconds": 1.0}):
            for _ in range(7):
                gradient(X)
    assert screen.last[1].startswith("term: 7 calls · "), "a lambda has the names of its models"


def jvp(fun):
    return lambda x: dg.jvp(fun, (x,), (x,))


@pytest.mark.parametrize(
    ("derivative", "bars"),
    [(dg.grad, {"forward", "backward"}), (jvp, {"tangent"})],
)
def test_evaluations_in_line_are_shown(screen, derivative, bars):
    with dask.config.set({"daskgrad.inline.seconds": 60}), dg.progress():
        derivative(graph)(X)
    standing, calls = screen.last
    assert standing.is_done
    assert set(standing.bars) >= bars
    assert ("graph: 1 call ·" in calls) == (derivative is dg.grad)


def test_what_others_run_on_the_scheduler_is_not_shown():
    records = Recorder()
    planned = [("k", "forward", "a", ())]
    records.plan("mine-1", planned)
    records.plan("theirs", planned)
    assert standing(records, "mine").evaluation == "mine-1"
    assert standing(records, "nobody") is None


def test_an_inner_progress_leaves_all_to_the_outer_one(synchronous, screen):
    with dg.progress(), dg.record("fit"):
        with dg.progress():
            dg.grad(graph)(X)
        assert screen.last is None
        dg.grad(graph)(X)
    assert screen.last[1].startswith("fit: 2 calls"), "under the name of what is recorded"


def test_the_scheduler_keeps_no_plugin_and_a_closed_client_is_no_error(screen):
    def plugins(dask_scheduler):
        return [name for name in dask_scheduler.plugins if name.startswith("daskgrad-report")]

    left_by_dask = dask.config.set(scheduler=None)  # a client that is closed within its context
    with left_by_dask, cluster(processes=False, protocol="tcp://") as client:
        with dg.progress():
            dg.grad(graph)(X)
            assert len(client.run_on_scheduler(plugins)) == 1
        assert client.run_on_scheduler(plugins) == []
        with dg.progress():
            dg.grad(graph)(X)
            client.close()


# ------------------------------------------------------------------------------- time left


def task(number, stage, seconds):
    return Task(number, stage, "a", "e", "w", 1, 0.0, seconds)


def ten_forward(done):
    """Records of ten tasks, of which so many took a second each."""
    records = Recorder()
    records.plan("e", [(n, "forward", "a", ()) for n in range(10)])
    for number in range(done):
        records.add_task(task(number, "forward", 1.0))
    return records


def test_time_left_follows_from_what_the_models_took():
    """Ten forward tasks of which four took a second each, two at a time; nothing backward yet."""
    records = ten_forward(4)
    records.plan("e", [(n + 10, "backward", "a", ()) for n in range(10)])
    records.plan("e", [(n + 20, "value", "a", ()) for n in range(10)])
    found = standing(records, "e")._replace(age=2.0)
    assert found.bars["forward"] == Bar(4, 10, 0, 4.0, 6.0), "values call no model"
    assert found.bars["backward"] == Bar(0, 10, 0, 0.0, 10.0), "as long as forward, as yet"
    assert found.seconds_left("forward") == 3.0
    assert found.seconds_left("backward") == 8.0
    records.add_task(task(10, "backward", 3.0))
    assert standing(records, "e").bars["backward"] == Bar(1, 10, 0, 3.0, 27.0)


def test_before_the_first_task_nobody_knows_how_long_it_takes():
    assert standing(ten_forward(0), "e").seconds_left("forward") is None
    assert progress.mean_seconds(ten_forward(0), "backward", "unknown") == 0.0


def test_an_evaluation_that_is_given_up_is_over():
    records = ten_forward(4)
    for _ in range(5):
        records.drop_task("e")
    assert not standing(records, "e").is_done
    records.drop_task("e")
    assert standing(records, "e").is_done
    assert "given up after 0:00:0" in progress.about(standing(records, "e"))


def test_parts_of_an_evaluation_are_added_and_of_two_the_later_one_is_shown():
    here = Standing("e1", 2.0, {"forward": Bar(1, 2, 0, 1.0, 1.0)})
    there = Standing("e1", 3.0, {"forward": Bar(3, 4), "backward": Bar(0, 5)}, dropped=2)
    both = together(here, there)
    assert both.bars == {"forward": Bar(4, 6, 0, 1.0, 1.0), "backward": Bar(0, 5)}
    assert (both.age, both.dropped) == (3.0, 2)
    later = here._replace(evaluation="e2")
    assert together(later, there) is together(there, later) is later
    assert together(None, here) is together(here, None) is here


# --------------------------------------------------------------------- files and terminals


def test_a_file_gets_plain_lines(synchronous, capsys, monkeypatch):
    monkeypatch.setattr(progress, "SHORT", 0.0)
    with dg.progress():
        for _ in range(3):
            dg.grad(graph)(X)
    written = capsys.readouterr()
    assert written.out == ""
    (line,) = written.err.splitlines()
    assert line.startswith("forward 2/2 · backward 2/2 · 0:00:00 · graph: 3 calls · ")
    assert all(letter.isprintable() for letter in line)


def test_a_file_gets_lines_from_time_to_time(synchronous, capsys, clock, wait_for_look):
    def slow(x):
        wait_for_look()
        wait_for_look()
        clock.move(progress.LINE_EVERY + 1.0)
        wait_for_look()
        return np.sin(x)

    with dg.progress():
        dg.grad(lambda x: graph(dg.delayed(slow)(dg.delayed(slow)(x))))(X)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" · ")[0] for line in lines] == [
        f"forward {done}/4" for done in (0, 1, 4)
    ]


def test_names_cannot_control_a_terminal(synchronous, capsys):
    with dg.progress(), dg.record(f"a{ESCAPE}[2J[red]b\n"):
        dg.grad(graph)(X)
    assert "a?[2J[red]b?: 1 call" in capsys.readouterr().err


def test_where_nothing_runs_nothing_is_written(capsys):
    with dg.progress():
        pass
    assert capsys.readouterr() == ("", "")


def test_a_notebook_gets_one_output_that_is_replaced(synchronous, monkeypatch):
    shown = []

    class Handle:
        def update(self, what):
            shown.append(what._repr_mimebundle_([], [])["text/html"])

    def display(what, display_id):
        Handle().update(what)
        return Handle()

    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    module = types.ModuleType("IPython.display")
    module.display = display
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr(progress, "make_screen", progress.Notebook)
    monkeypatch.setattr(progress, "SHORT", 0.0)
    with dg.progress(), dg.record("<b>fit</b>"):
        dg.grad(graph)(X)
    assert "forward" in shown[-1]
    assert "&lt;b&gt;fit&lt;/b&gt;: 1 call" in shown[-1]


def test_without_rich_an_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich", None)
    with pytest.raises(ModuleNotFoundError, match=r"dg.progress draws with rich.*\[progress\]"):
        dg.progress().__enter__()


def test_a_terminal_that_is_left_is_not_drawn_to():
    """An interrupt may end the wait for the thread that draws."""
    console = pytest.importorskip("rich.console").Console(file=io.StringIO(), force_terminal=True)
    with progress.Terminal(console) as screen:
        assert console.file.getvalue() == ""
    screen.show(None, "fit: 1 call")
    assert console.file.getvalue() == "", "the cursor would be hidden for good"


SCRIPT = """
import queue
import sys
import autograd.numpy as np
import dask, numpy
import daskgrad as dg
from daskgrad.dashboards import progress
from waiting import Gate, wait_until

how, scheduler, gate = sys.argv[1], sys.argv[2], Gate(sys.argv[3])
looks, look = queue.SimpleQueue(), progress.ProgressWatch.look  # a call copies no queue
progress.SHORT, progress.DRAW_EVERY = 0.0, 0.01
progress.ProgressWatch.look = lambda watch: (looks.put(1), look(watch))[1]

def slow(x):
    seen = looks.qsize()
    wait_until(lambda: looks.qsize() > seen + 2)  # until there are bars
    if how == "fails":
        raise ValueError("no")
    if how == "is interrupted":
        gate.wait()
    return np.sin(x)

def fun(x):
    for _ in range(10):
        x = dg.delayed(slow)(x)
    return dg.delayed(np.sum)(x)

dask.config.set({"scheduler": scheduler, "daskgrad.inline.seconds": 0})
print("begun", flush=True)
with dg.progress():
    print("within", flush=True)
    try:
        dg.grad(fun)(numpy.ones(2))
    finally:
        gate.open()
print("ended")
"""


def shown_by(gate, how, scheduler, **streams):
    """What a process writes to a terminal, interrupted as a model waits; the process."""
    ours, theirs = pty.openpty()
    paths = os.pathsep.join(sys.path)
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, how, scheduler, str(gate._path)],
        **{"stdin": theirs, "stdout": theirs, "stderr": theirs, **streams},
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "PYTHONPATH": paths}
        | {"PYTHON_COLORS": "0"},
        start_new_session=True,
    )
    os.close(theirs)
    text, is_told = "", how != "is interrupted"
    decoder = codecs.getincrementaldecoder("utf-8")()  # a character may come in two parts
    while select.select([ours], [], [], 60)[0]:
        try:
            read = os.read(ours, 4096)
        except OSError:  # the other side is closed
            break
        text += decoder.decode(read)
        if not is_told and gate.arrived():
            is_told = True
            process.send_signal(signal.SIGINT)
        if not read:
            break
    os.close(ours)
    return text, process


SHORT = [("fails", "threads"), ("is interrupted", "sync")]
WAYS = [("ends", "sync"), *SHORT, ("is interrupted", "threads")]


@pytest.mark.skipif(os.name == "nt", reason="terminals of Windows are no files")
@in_short(("how", "scheduler"), WAYS, *SHORT)
def test_the_terminal_is_clean_at_the_end(how, scheduler, gate):
    """The cursor is shown again, and what comes next stands on a line of its own."""
    shown, process = shown_by(gate, how, scheduler)
    assert (process.wait() == 0) == (how == "ends")
    assert "forward" in shown
    assert HIDDEN in shown
    before, _, after = shown.rpartition(SHOWN)
    assert HIDDEN not in after
    expected = {"ends": "ended", "fails": "ValueError: no", "is interrupted": "KeyboardInterrupt"}
    assert expected[how] in after
    assert before.endswith("\n"), "the bars' line has ended"


@pytest.mark.long
def test_output_that_goes_to_a_file_stays_there(gate, tmp_path):
    """Standard error is a terminal, standard output a file."""
    out = tmp_path / "out"
    with out.open("w") as file:
        _, process = shown_by(gate, "ends", "threads", stdout=file)
    assert process.wait() == 0
    assert out.read_text() == "begun\nwithin\nended\n"
