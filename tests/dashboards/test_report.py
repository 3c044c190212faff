"""A report holds what ran, on every scheduler; and where nobody asks, nobody is told."""

import asyncio
import itertools
import json
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import autograd.numpy as np
import dask
import numpy
import pytest
from clusters import cluster
from lengths import in_short
from numpy.testing import assert_array_equal
from probes import objective_of
from schedulers import SCHEDULERS
from small_models import EVIL, X, graph, term, total
from traces import problems
from waiting import wait_until

import daskgrad as dg
from daskgrad.dashboards.feeding import recording
from daskgrad.dashboards.recorder import CallRecord, Recorder, Task
from daskgrad.dashboards.report import trace_events
from daskgrad.tasks import observers

pytest.importorskip("bokeh")


def stages(records, model=None):
    """How many tasks of each stage ran."""
    return Counter([task.stage for task in records.tasks if model in (None, task.model)])


def files(tmp_path):
    return tmp_path / "run.html", tmp_path / "run.json"


@in_short("scheduler", SCHEDULERS, "threads", "cluster", indirect=True)
def test_a_report_counts_every_task_on_every_scheduler(scheduler, tmp_path):
    page, trace = files(tmp_path)
    with dg.report(page, trace=trace) as records:
        value, gradient = dg.value_and_grad(graph)(X)
    assert_array_equal(gradient, dg.grad(graph)(X))
    (found,) = records.evaluations.values()
    assert found.total == found.done == records.task_count == len(records.tasks)
    ran = stages(records)
    assert (ran["forward"], ran["backward"]) == (2, 2)
    assert found.counts["forward", "total"].done == 1
    assert EVIL in records.names.values()
    text = page.read_text()
    assert EVIL not in text
    assert "http://" not in text.partition("<body>")[0].replace("http://www.w3.org", "")
    (run,) = records.runs.values()
    assert (run.latest.value, run.count) == (value, 1)
    written = json.loads(trace.read_text())
    assert problems(written) == []
    require_arrows(written["traceEvents"], records)


def require_arrows(events, records):
    """One leads from each forward task to its backward task."""
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) == records.task_count
    assert f"forward {EVIL}" in {event["name"] for event in spans}
    starts, ends = ([event for event in events if event["ph"] == kind] for kind in "sf")
    assert len(starts) == len(ends) == 2
    at = {(event["pid"], event["tid"], round(event["ts"], 3)): event["cat"] for event in spans}
    for events, stage in ((starts, "forward"), (ends, "backward")):
        for event in events:
            assert at[event["pid"], event["tid"], round(event["ts"], 3)] == stage


def test_a_trace_is_what_viewers_demand():
    """Tasks of two threads of each worker, and calls of two sums at once, also of a worker whose
    clock is behind the scheduler's."""
    records = Recorder()
    for begin, worker in ((records.begin - 1.0, "tcp://a"), (records.begin + 1.0, "tcp://b")):
        for thread in (140_000_000_001, 140_000_000_002):
            place = ("m", "e", worker, thread)
            key = ("forward", worker, thread)
            records.add_task(Task(key, "forward", *place, begin, begin + 0.5))
            back = Task(("backward", *key), "backward", *place, begin + 0.5, begin + 1.0)
            records.add_task(back._replace(source=key))
        for model, start in (("s", 3.0), ("t", 3.1), ("s", 3.4)):
            times = (begin + start, begin + start + 0.4)
            records.add_call(CallRecord(model, worker, *times, 3, 6, 0.3))
    trace = json.loads(json.dumps(trace_events(records)))
    assert problems(trace) == []
    spans, *ends = ([e for e in trace["traceEvents"] if e["ph"] == kind] for kind in "Xsf")
    assert (len(spans), *map(len, ends)) == (14, 4, 4)
    assert (spans[0]["ts"], spans[0]["dur"]) == (0.0, pytest.approx(5e5)), "microseconds"


def test_small_evaluations_are_reported_where_they_ran(tmp_path):
    """In line, with the bits and in the tasks of an evaluation that nobody looks at."""
    page, trace = files(tmp_path)
    sum_of_terms = dg.value_and_grad(lambda x: dg.map_sum(term, [1.0, 2.0, 3.0], x))
    with dask.config.set({"daskgrad.inline.seconds": 60}):
        value, gradient = dg.value_and_grad(graph)(X)
        sum_of_terms(X)  # from now on it is known to be quick
        with dg.report(page, trace=trace) as records:
            again, same = dg.value_and_grad(graph)(X)
            dg.value_and_grad(dg.delayed(total))(X)
            sum_of_terms(X)
    assert again == value
    assert_array_equal(same, gradient)
    assert stages(records, "total") == {"forward": 2, "backward": 2}
    assert stages(records, "term") == {"forward": 1, "backward": 1}
    assert {task.thread for task in records.tasks} == {records.tasks[0].thread}
    assert [run.name for run in records.runs.values()] == ["graph", "total", "term"]


@pytest.mark.parametrize("watched", [dg.record, dg.report, dg.progress])
def test_a_program_runs_as_one_while_somebody_watches(watched, tmp_path):
    """It is one event, with the numbers of its models' calls."""
    gradient = dg.value_and_grad(
        lambda x: dg.map_sum(term, [1.0, 2.0, 3.0], x) + dg.delayed(total)(x)
    )
    with dask.config.set({"daskgrad.inline.seconds": 60}):
        before = [gradient(X) for _ in range(40)][-1]
        programs = objective_of(gradient).programs()
        count = programs.calls
        with watched(
            *{dg.record: ["fit"], dg.report: files(tmp_path)[:1]}.get(watched, [])
        ) as records:
            after = [gradient(X) for _ in range(5)][-1]
    assert programs.calls == count + 5 > 5
    assert_array_equal(after[1], before[1])
    if watched is dg.record:
        assert [row.value for row in records.shown] == [before[0]] * 5
    if watched is dg.report:
        assert not records.tasks
        assert records.call_count == 5
        assert {name: costs.counts["program"] for name, costs in records.models.items()} == {
            "term-total": 0,
            "term": 15,
            "total": 5,
        }
        assert [run.name for run in records.runs.values()] == ["term, total"]


@pytest.mark.parametrize("seconds", [0, 60.0])
def test_an_evaluation_is_one_in_line_and_on_threads(seconds, tmp_path):
    items = [float(n) for n in range(8)]
    gradient = dg.grad(lambda x: dg.map_sum(term, items, x, grainsize=2) + dg.delayed(total)(x))
    with dask.config.set({"daskgrad.inline.seconds": seconds}):
        with dg.report(files(tmp_path)[0]) as records:
            for _ in range(3):
                gradient(X)
    assert records.evaluation_count == len(records.evaluations) == 3
    for evaluation in records.evaluations.values():
        assert evaluation.is_done
        shown = {kind: count.shown for kind, count in evaluation.counts.items() if count.calls}
        assert shown == {
            (stage, model): (calls, calls)
            for stage in ("forward", "backward")
            for model, calls in {"term": 8, "total": 1, "add": 1}.items()
        }
    assert "3 calls of gradients" in files(tmp_path)[0].read_text()


def test_direct_calls_of_workers_are_in_a_report(mounted, tmp_path, monkeypatch):
    page, trace = files(tmp_path)
    waits = []

    def counted():
        plugins = mounted.cluster.scheduler.plugins.items()
        return [p.recorder.call_count for name, p in plugins if name.startswith("daskgrad-report")]

    def wait_for_events(client):
        waits.append(client)
        wait_until(lambda: counted() == [10])

    monkeypatch.setattr(observers, "late_events", [wait_for_events])
    with dg.place([1.0, 2.0, 3.0, 4.0], grainsize=1) as shards:
        gradient = dg.grad(lambda x: dg.map_sum(term, shards, x, name="likely"))
        with (
            dask.config.set({"daskgrad.inline.seconds": 1.0}),
            dg.report(page, trace=trace) as found,
        ):
            for _ in range(5):
                gradient(X)
    assert waits == [mounted]
    assert found.models["likely"].counts["call"] == 10, "five of each of two workers"
    assert sorted(found.models["likely"].blocks) == [0, 1, 2, 3]
    assert {block.items for block in found.models["likely"].blocks.values()} == {1}
    written = json.loads(trace.read_text())
    assert problems(written) == []
    assert any("calls of likely" in event["name"] for event in written["traceEvents"])


def test_a_report_of_nothing_says_what_to_do(tmp_path):
    page, _ = files(tmp_path)
    with dg.report(page):
        pass
    assert "Nothing was evaluated in this context." in page.read_text()


def test_without_bokeh_errors_say_what_to_install(tmp_path, monkeypatch, synchronous):
    with cluster(n_workers=0) as client:
        monkeypatch.setitem(sys.modules, "bokeh", None)
        with pytest.raises(ModuleNotFoundError, match=r"pages .* with Bokeh.*\[dashboards\]"):
            dg.dashboards.mount(client)
    with pytest.raises(ModuleNotFoundError, match=r"dg.report draws with Bokeh.*\[dashboards\]"):
        dg.report(tmp_path / "run.html").__enter__()


def test_an_error_leaves_nobody_observing(tmp_path, synchronous):
    page, _ = files(tmp_path)

    def fails(x):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"), dg.report(page):
        dg.grad(dg.delayed(fails))(X)


# ------------------------------------------------------------------------------------- record


def test_a_run_has_a_row_for_each_evaluation(synchronous):
    points = [X, X + 3.0, 2.0 * X]
    with dg.record("fit") as run:
        found = [dg.value_and_grad(graph)(point) for point in points]
    dg.grad(graph)(X)
    rows = run.shown
    assert [row.number for row in rows] == [0, 1, 2]
    assert [row.value for row in rows] == [value for value, _ in found]
    assert [row.norm for row in rows] == pytest.approx([np.linalg.norm(g) for _, g in found])
    assert numpy.isnan(rows[0].step)
    assert rows[1].step == pytest.approx(3.0 * np.sqrt(3.0))
    assert rows[2].step == pytest.approx(np.linalg.norm(X - 3.0))
    assert all(a.seconds <= b.seconds for a, b in itertools.pairwise(rows))


def test_runs_are_in_the_report_that_is_open(tmp_path, synchronous):
    page, _ = files(tmp_path)
    with dg.report(page) as records:
        for name in ("one", "two"):
            with dg.record(name):
                dg.value_and_grad(lambda p: graph(p["x"]) + graph(p["y"]), 0)({"x": X, "y": X})
    assert [(run.name, run.count) for run in records.runs.values()] == [("one", 1), ("two", 1)]


def test_a_recorded_evaluation_has_the_same_bits(synchronous):
    compiled = dg.delayed(total, compile=True)
    value, gradient = dg.value_and_grad(compiled)(X)
    with dg.record("fit"):
        again, same = dg.value_and_grad(compiled)(X)
    assert (again, list(same)) == (value, list(gradient))


def test_a_recorded_run_does_not_slow_tasks_down(monkeypatch):
    """Nobody sees the tasks, so that evaluations in line take their usual way."""
    monkeypatch.setattr(observers, "run_observed", None)
    with dask.config.set({"daskgrad.inline.seconds": 60}), dg.record("fit") as run:
        dg.grad(graph)(X)
        dg.grad(dg.delayed(total))(X)
    assert run.count == 2
    assert observers.of_tasks() == ()


def test_a_recording_ends_after_its_plugin_has_gone(client):
    """As after a cut between client and scheduler, or a restart of the scheduler."""
    with recording(client) as name:
        client.unregister_scheduler_plugin(name)


def fails(x):
    raise ValueError("the mesh is degenerate")


def of_failure(x):
    return dg.delayed(np.sum, name="after")(dg.delayed(np.square)(x) * dg.delayed(fails)(x))


@pytest.mark.parametrize("scheduler", SCHEDULERS, indirect=True)
def test_a_program_that_fails_has_a_report_that_says_so(scheduler, tmp_path):
    page, trace = files(tmp_path)
    with pytest.raises(ValueError, match="mesh"), dg.report(page, trace) as records:
        dg.value_and_grad(of_failure)(X)
    (found,) = records.evaluations.values()
    assert (found.failed, found.is_done) == (1, True)
    assert found.counts["forward", "fails"].failed == 1
    assert [task.model for task in records.tasks if task.has_failed] == ["fails"]
    assert "ValueError: the mesh is degenerate daskgrad: in the forward pass of" in records.end
    assert "the mesh is degenerate" in page.read_text()
    assert json.loads(trace.read_text())["traceEvents"]


def test_an_interrupted_program_has_a_report(tmp_path, synchronous):
    page, _ = files(tmp_path)

    def interrupted(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), dg.report(page) as records:
        dg.grad(lambda x: interrupted(graph(x)))(X)
    assert "KeyboardInterrupt" in records.end
    assert "KeyboardInterrupt" in page.read_text()


def test_a_file_that_cannot_be_written_is_an_error_at_the_start(tmp_path):
    for files in ((tmp_path,), (tmp_path / "run.html", tmp_path)):
        with pytest.raises(IsADirectoryError), dg.report(*files):
            raise AssertionError("it began")


@pytest.mark.parametrize("count", [2, 8])
def test_each_fit_has_its_own_record(count, synchronous):
    runs, together = {}, threading.Barrier(count)

    def fit(number):
        with dg.record(f"fit {number}") as runs[number]:
            together.wait(60)
            for _ in range(number + 1):
                dg.value_and_grad(graph)(X)
            together.wait(60)

    with dg.record("around") as around, ThreadPoolExecutor(count) as pool:
        list(pool.map(fit, range(count)))
        pool.submit(dg.value_and_grad(graph), X).result()  # of a thread without a run
    assert [runs[number].count for number in range(count)] == list(range(1, count + 1))
    assert around.count == 1


def test_a_run_within_a_run_counts_for_both(synchronous):
    with dg.record("outer") as outer:
        with dg.record("inner") as inner:
            dg.value_and_grad(graph)(X)
        dg.value_and_grad(graph)(X)
    assert (inner.count, outer.count) == (1, 2)


def test_steps_of_a_loop_are_counted(tmp_path, synchronous):
    page, _ = files(tmp_path)

    with dg.report(page) as records:
        dg.value_and_grad(lambda x: dg.delayed(np.sum)(dg.scan(step, x, 40, 1.1)))(X)
    (found,) = records.evaluations.values()
    for stage in ("forward", "backward"):
        assert found.counts[stage, "step"].shown == (40, 40)


def step(state, rate):
    return np.sin(state * rate)


@pytest.mark.parametrize("scheduler", SCHEDULERS, indirect=True)
def test_items_of_a_list_have_costs(scheduler, tmp_path):
    page, _ = files(tmp_path)
    items = [numpy.full(3, float(n)) for n in range(20)]
    with dask.config.set({"daskgrad.inline.seconds": 0}), dg.report(page) as records:
        dg.value_and_grad(lambda x: dg.map_sum(term, items, x, grainsize=4))(X[:3])
    blocks = records.models["term"].blocks.values()
    assert sorted([(block.first, block.items) for block in blocks]) == [
        (first, 4) for first in range(0, 20, 4)
    ]
    assert all([block.seconds > 0.0 for block in blocks])


class OfUser(Exception):
    def __str__(self):
        raise IndexError("it has no text")


def test_the_users_error_comes_out_whatever_fails_after_it(client, tmp_path, monkeypatch):
    page, _ = files(tmp_path)

    def lost(*args, **options):
        raise OSError("the scheduler is gone")

    def fails_with(client):
        monkeypatch.setattr(client, "run_on_scheduler", lost)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught, dg.report(page):
        fails_with(client)
    assert any(["no records of the scheduler" in note for note in caught.value.__notes__])
    assert page.exists()


def test_an_error_without_a_text_comes_out(tmp_path, synchronous):
    page, _ = files(tmp_path)
    with pytest.raises(OfUser), dg.report(page) as records:
        raise OfUser
    assert "OfUser" in records.end


def test_a_record_that_has_ended_hides_no_later_one(synchronous):
    """A task of asyncio keeps the context in which it was made."""

    async def main():
        with dg.record("first") as first:
            worker = asyncio.create_task(evaluated())
            await asyncio.sleep(0)
        with dg.record("second") as second:
            gate.set()
            await worker
        return first.count, second.count

    async def evaluated():
        dg.value_and_grad(graph)(X)
        await gate.wait()
        dg.value_and_grad(graph)(X)

    gate = asyncio.Event()
    assert asyncio.run(main()) == (1, 1)


def test_costs_are_of_the_latest_items(tmp_path):
    page, _ = files(tmp_path)
    with dask.config.set({"daskgrad.inline.seconds": 0}), dg.report(page) as records:
        for items in (list(range(5)), list(range(2))):
            dg.value_and_grad(lambda x, items=items: dg.map_sum(term, items, x, grainsize=2))(X[:3])
    blocks = [(block.first, block.items) for block in records.models["term"].blocks.values()]
    assert blocks == [(0, 2)]
