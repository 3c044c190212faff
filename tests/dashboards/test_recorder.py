"""Records are bounded, whatever runs, and what they tell of it is right."""

import itertools
import pickle
import sys

import pytest
from lengths import in_short

from daskgrad.dashboards import recorder
from daskgrad.dashboards.feeding import Feed
from daskgrad.dashboards.recorder import CallRecord, Recorder, Row, Task
from daskgrad.tasks.keys import Names


def task(number, stage="forward", model="a", evaluation="e", worker="w", **more):
    return Task((stage, number), stage, model, evaluation, worker, 1, 0.0, 0.5, **more)


def size_of(records):
    """The number of all objects in a recorder, in bytes."""
    return len(pickle.dumps(records))


@pytest.fixture
def small(monkeypatch):
    """Limits that a short loop reaches."""
    limits = {"TASKS": 200, "CALLS": 50, "EVALUATIONS": 8, "MODELS": 6, "BLOCKS": 20}
    limits |= {"WORKERS": 5, "SAMPLES": 9, "RUNS": 3, "ROWS": 32, "NODES": 30}
    for name, limit in limits.items():
        monkeypatch.setattr(recorder, name, limit)
    return Recorder()


def test_a_recorder_takes_no_more_memory_for_more_models_workers_and_runs(small):
    sizes = []
    for number in range(6000):
        model, worker, evaluation = (f"{kind}{number:06d}" for kind in "mwe")
        small.learn_name(model, model)
        planned = [((n, number), "forward", model, [(0, 0)]) for n in range(20)]
        small.plan(evaluation, planned)
        small.set_state(evaluation, (0, number), "running", worker)
        small.add_task(task(number, model=model, evaluation=evaluation, worker=worker))
        small.add_task(task(number, model="m", evaluation=evaluation, worker=worker))
        small.add_call(CallRecord(model, worker, 0.0, 1.0, 1, 1, 0.5))
        small.add_block_costs("m", worker, 2, [(number, number + 1)], [0.5])
        small.add_rows(evaluation, "name", 0.0, [Row(number, 0.0, 1.0, 1.0, 1.0)])
        small.add_rows("long", "name", 0.0, [Row(number, 0.0, 1.0, 1.0, 1.0)])
        if number % 1000 == 999:
            sizes.append(size_of(small))
    assert max(sizes[1:]) < 1.1 * sizes[0]
    assert small.task_count == 12000
    assert small.call_count == 6000


@pytest.mark.timeout(300)
@in_short("count", [5_000, 100_000], 5_000)
def test_many_evaluations_of_ten_tasks_each_are_counted_and_not_kept(count):
    """At length a million tasks."""
    records = Recorder()
    for number in range(count):
        evaluation = f"{number:032x}"
        planned = [((evaluation, n), "forward", "a", ()) for n in range(10)]
        records.plan(evaluation, planned)
        for key, *_ in planned:
            records.add_task(Task(key, "forward", "a", evaluation, "w", 1, 0.0, 0.5))
        records.add_rows("run", "run", 0.0, [Row(number, float(number), 1.0, 1.0, 1.0)])
    assert records.task_count == 10 * count
    assert records.evaluation_count == count
    costs = records.models["a"]
    assert (costs.counts["forward"], costs.seconds["forward"]) == (10 * count, 5.0 * count)
    assert len(records.tasks) == recorder.TASKS
    assert len(records.evaluations) == recorder.EVALUATIONS
    run = records.runs["run"]
    assert run.count == count
    assert len(run.rows) <= recorder.ROWS
    assert run.shown[-1].number == count - 1
    assert sys.getsizeof(records.tasks) < 1_000_000


def test_an_evaluation_counts_its_tasks_by_stage_and_model():
    records = Recorder()
    keys = [("forward", n) for n in range(3)]
    records.plan("e", [(key, "forward", "a", ()) for key in keys])
    records.plan("e", [(("backward", 0), "backward", "a", [keys[0]])])
    records.add_task(task(0))
    records.add_task(task(1, has_failed=True))
    found = records.evaluations["e"]
    count = found.counts["forward", "a"]
    assert (count.total, count.done, count.failed) == (3, 1, 1)
    assert (found.total, found.done, found.is_done) == (4, 1, True)  # it has failed
    assert [node.state for node in found.nodes.values()] == ["done", "failed", "waiting", "waiting"]


def test_a_task_that_runs_again_is_done_once():
    """A worker that dies takes results with it, which others compute again."""
    records = Recorder()
    records.plan("e", [(("forward", 0), "forward", "a", ()), (("forward", 1), "forward", "a", ())])
    for _ in range(3):
        records.add_task(task(0))
    assert records.evaluations["e"].done <= 2


def test_a_large_graph_is_kept_as_edges_between_stages_and_models(small):
    keys = [(f"forward-a-{0:032x}", 1, n) for n in range(40)]
    planned = [(key, "forward", "a", ()) for key in keys]
    small.plan("e", [*planned, (("value", 0), "value", "sum", keys)])
    found = small.evaluations["e"]
    assert found.nodes is None
    assert found.edges == {(("forward", "a"), ("value", "sum"))}
    assert found.total == 41


def test_what_is_absorbed_is_counted_with_the_rest():
    one, other = Recorder(), Recorder()
    for records, number in ((one, 0), (other, 1)):
        records.plan("e", [(("forward", number), "forward", "a", ())])
        records.add_task(task(number, worker=f"w{number}"))
        records.add_call(CallRecord("a", "w", 0.0, 1.0, 7, 7, 0.5))
    one.absorb(other)
    assert (one.task_count, one.call_count, len(one.tasks)) == (2, 14, 2)
    assert one.evaluations["e"].total == one.evaluations["e"].done == 2
    costs = one.models["a"]
    assert (costs.counts["forward"], costs.seconds["forward"]) == (2, 1.0)
    assert (costs.counts["call"], costs.seconds["call"]) == (14, 1.0)
    assert costs.workers == {"w0": 0.5, "w1": 0.5, "w": 1.0}


def test_a_run_is_thinned_evenly_and_keeps_its_end(small):
    small.add_rows("r", "r", 0.0, [Row(n, float(n), 0.0, 0.0, 0.0) for n in range(1001)])
    shown = [row.number for row in small.runs["r"].shown]
    assert shown[-1] == 1000
    assert len(shown) <= 34
    steps = [b - a for a, b in itertools.pairwise(shown[:-1])]
    assert set(steps) == {small.runs["r"].stride}


def test_costs_of_direct_calls_stay_while_the_next_evaluation_is_planned():
    """Workers tell of them from time to time."""
    records, names = Recorder(), Names()
    feed = Feed(records)
    records.add_block_costs("term", "worker", 10, [(0, 3)], [0.1, 0.2, 0.3])
    feed.plan([(names.key("forward", "term", 30), ())])
    blocks = [(b.first, b.items, b.seconds) for b in records.models["term"].blocks.values()]
    assert blocks == [(0, 10, 0.1), (10, 10, 0.2), (20, 10, 0.3)]
