"""A trace is what Perfetto demands."""

import json

import pytest
from traces import problems

from daskgrad.dashboards.recorder import CallRecord, Recorder, Task
from daskgrad.dashboards.report import trace_events


@pytest.fixture
def trace():
    """Two workers with two tasks and their mirrors each, and calls of two sums at once."""
    records = Recorder()
    records.begin = 100.0
    for number, worker in enumerate(["tcp://a", "tcp://b"]):
        for thread in (140_000_000_001, 140_000_000_002):
            key, start = ("forward", number, thread), 100.0 + number
            records.add_task(Task(key, "forward", "m", "e", worker, thread, start, start + 0.5))
            back = ("backward", number, thread)
            task = Task(back, "backward", "m", "e", worker, thread, start + 0.5, start + 1.0)
            records.add_task(task._replace(source=key))
        for model, start in (("s", 103.0), ("t", 103.1), ("s", 103.4)):
            records.add_call(CallRecord(model, worker, start, start + 0.4, 3, 6, 0.3))
    return json.loads(json.dumps(trace_events(records)))


def test_a_trace_is_what_viewers_demand(trace):
    assert problems(trace) == []
    phases = [event["ph"] for event in trace["traceEvents"]]
    assert (phases.count("X"), phases.count("s"), phases.count("f")) == (14, 4, 4)


def test_times_are_microseconds(trace):
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert spans[0]["ts"] == 0.0
    assert spans[0]["dur"] == pytest.approx(5e5)


def test_clocks_that_differ_give_no_negative_times():
    """A worker's clock may be behind that of the scheduler."""
    records = Recorder()
    records.begin = 100.0
    records.add_task(Task("k", "forward", "m", "e", "w", 1, 99.0, 99.5))
    assert problems(trace_events(records)) == []
