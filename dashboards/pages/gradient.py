"""Gradient: how far the current evaluation is, by pass and by model, and a time line."""

import math
import time
from collections import Counter
from collections.abc import Mapping

from daskgrad.autodiff.values import descriptions
from daskgrad.dashboards.pages import plots
from daskgrad.dashboards.recorder import CallRecord, Count, EvaluationRecord, Recorder, Task

STAGES = {"forward": "forward", "value": "forward", "tangent": "tangent", "backward": "backward"}
PASSES = ("forward", "tangent", "backward")  # of the stages that call models, as they run
OTHERS = "(others)"
RECENT = 6  # evaluations in the table
WINDOW = 30.0  # seconds of the time line that are seen on a page
SPEED = 5.0  # seconds over which direct calls are counted for their speed
CALLS = math.inf  # direct calls have the lane of a thread with this number

PASS = plots.Axis("pass")
SECONDS = plots.Axis("seconds since recording began (s)")
PROGRESS = plots.Plot(
    "progress",
    "",
    PASS,
    plots.Axis(""),
    [
        plots.bars("cells", right="full", fill_alpha=0.25),
        plots.bars("cells", line_color=None),
        plots.labels("cells", x="left", y="top"),
    ],
    lane=40,
    has_grid=False,
    tools="save",
)
TIME_LINE = plots.Plot(
    "time line",
    "Time line of the workers: forward light, backward dark, direct calls in full colour",
    SECONDS,
    plots.Axis("worker"),
    [plots.bars("bars")],
    lane=30,
)


def draw(view: plots.View) -> None:
    evaluation = current_of(view.recorder, view.is_report)
    view.write("header", headline(view.recorder, evaluation))
    view.hide(PROGRESS, evaluation is None)
    if evaluation is not None:
        draw_progress(view, evaluation)
    draw_time_line(view)
    view.write("tables", tables(view.recorder))


def current_of(recorder: Recorder, is_report: bool) -> EvaluationRecord | None:
    """The evaluation that runs or was the latest; in a report the largest.

    Values that are fetched by themselves are one only if there is no other.
    """
    records = list(recorder.evaluations.values())
    records = [r for r in records if any(stage != "value" for stage, _ in r.counts)] or records
    if is_report:
        return max(records, key=lambda record: record.total, default=None)
    running = [record for record in records if not record.is_done]
    return (running or records or [None])[-1]


# ---------------------------------------------------------------------------------------- progress


def draw_progress(view: plots.View, evaluation: EvaluationRecord) -> None:
    which = "largest" if view.is_report else "current"
    title = f"Items of sums and other calls of models, done of total, {which} evaluation"
    view.write("progress", f"<h3>{title}</h3>")
    has_tangents = any(stage == "tangent" for stage, _ in evaluation.counts)
    passes = [name for name in PASSES if has_tangents or name != "tangent"]
    if view.seen["passes"] != len(passes):
        view.seen["passes"] = len(passes)
        view.show(PASS, -0.06, len(passes))
        ticks = {n + 0.47: name for n, name in enumerate(passes)}
        plots.name_ticks(view.figures[PROGRESS.name].xaxis[0], ticks)
    by_model = counts_of(evaluation)
    called = view.recorder.called
    view.name_lanes(PROGRESS, list(map(called, by_model)))
    cells = []
    for n, (model, stages) in enumerate(by_model.items()):
        for stage, count in stages.items():
            x, (done, total) = passes.index(STAGES[stage]), count.shown
            box = (x, x + 0.94 * done / total, x + 0.94, n + 0.92, n + 0.42)
            names = (view.colour(model, stage), f"{done:,} / {total:,}", called(model), stage)
            cells.append((*box, *names, done, total, count.failed))
    view.put("cells", cells)


def counts_of(evaluation: EvaluationRecord) -> Mapping[str, Mapping[str, Count]]:
    """Counts by model and stage, of the models with most calls, and of the others together."""
    counts = {kind: count for kind, count in evaluation.counts.items() if count.calls}
    totals: Counter[str] = Counter()
    for (_, model), count in counts.items():
        totals[model] += count.calls
    busiest = dict(totals.most_common(plots.MODELS))
    by_model: dict[str, dict[str, Count]] = {}
    for (stage, model), count in counts.items():
        stages = by_model.setdefault(model if model in busiest else OTHERS, {})
        stages.setdefault(stage, Count()).add(count)
    return by_model


# --------------------------------------------------------------------------------------- time line


def draw_time_line(view: plots.View) -> None:
    """Adds the new tasks and calls; draws all again where a thread has come or gone."""
    recorder, seen = view.recorder, view.seen
    tasks = plots.latest(recorder.tasks, plots.DRAWN)
    calls = plots.latest(recorder.calls, plots.DRAWN)
    if not (tasks or calls):
        return
    threads = {(task.worker, task.thread) for task in tasks}
    threads |= {(call.worker, CALLS) for call in calls}
    lanes = {place: n for n, place in enumerate(sorted(threads))}
    is_more = not view.name_lanes(TIME_LINE, lane_names(list(lanes)))
    if is_more:
        tasks = plots.latest(tasks, recorder.task_count - seen["tasks"])
        calls = plots.latest(calls, recorder.calls_added - seen["calls"])
    seen["tasks"], seen["calls"] = recorder.task_count, recorder.calls_added
    rows = [task_bar(view, task, lanes[task.worker, task.thread]) for task in tasks]
    rows += [call_bar(view, call, lanes[call.worker, CALLS]) for call in calls]
    view.put("bars", rows, is_more)
    drawn = view.sources["bars"].data
    first, last = min(drawn["left"]), max(drawn["right"])
    first = first if view.is_report else max(first, last - WINDOW)
    view.show(SECONDS, *plots.around([first, last]))


def lane_names(places: list[tuple[str, int]]) -> list[str]:
    """The worker at its first lane; its direct calls by name, below its threads."""
    names, above = [], ""
    for worker, thread in places:
        name = "" if worker == above else plots.bare(worker)
        names.append(f"{name}\ndirect calls".strip() if thread == CALLS else name)
        above = worker
    return names


def task_bar(view: plots.View, task: Task, lane: int) -> tuple:
    begin = view.recorder.begin
    colour = plots.FAILED if task.has_failed else view.colour(task.model, task.stage)
    stage = f"{task.stage}, failed" if task.has_failed else task.stage
    size = descriptions.nbytes(task.nbytes) if task.nbytes else "unknown size"
    took = descriptions.seconds(task.stop - task.start)
    box = (task.start - begin, task.stop - begin, lane + 0.88, lane + 0.12)
    return (*box, colour, view.recorder.called(task.model), stage, task.worker, took, size)


def call_bar(view: plots.View, call: CallRecord, lane: int) -> tuple:
    begin = view.recorder.begin
    mean = descriptions.seconds(call.seconds / max(call.calls, 1))
    blocks = f", {call.blocks:,} blocks" if call.blocks else ", by a program"
    calls = f"{call.calls:,} direct calls{blocks}"
    box = (call.start - begin, call.stop - begin, lane + 0.88, lane + 0.12)
    names = (view.colour(call.model, "call"), view.recorder.called(call.model), calls)
    return (*box, *names, call.worker, f"{mean} a call in the model", "sent back at once")


# ------------------------------------------------------------------------------------------- texts


def headline(recorder: Recorder, evaluation: EvaluationRecord | None) -> str:
    parts = []
    if evaluation is not None:
        state = "" if state_of(evaluation) == "done" else f", {state_of(evaluation)}"
        parts.append(f"<b>{progress_of(evaluation)}</b>{state}")
    if recorder.evaluation_count:
        parts.append(f"{recorder.evaluation_count:,} evaluations")
    if recorder.call_count:
        parts.append(f"<b>{recorder.call_count:,} direct calls</b>{speed(recorder)}")
    return " · ".join(parts)


def progress_of(evaluation: EvaluationRecord) -> str:
    """Calls of models done of total, by pass."""
    passes = {name: Count() for name in PASSES}
    for (stage, _), count in evaluation.counts.items():
        if count.calls:
            passes[STAGES[stage]].add(count)
    shown = [(name, *count.shown) for name, count in passes.items() if count.calls]
    return ", ".join([f"{name} {done:,} of {total:,}" for name, done, total in shown])


def speed(recorder: Recorder) -> str:
    now = time.time()
    calls = [call for call in plots.latest(recorder.calls, 200) if now - call.stop < SPEED]
    if not calls:
        return ""
    spent = now - min([call.start for call in calls])
    return f", {sum([call.calls for call in calls]) / spent:,.0f} a second now"


def tables(recorder: Recorder) -> str:
    """Direct calls by model, and the latest evaluations."""
    calls = [
        (recorder.called(model), f"{count:,}", descriptions.seconds(costs.seconds["call"]))
        for model, costs in recorder.models.items()
        if (count := costs.counts["call"])
    ]
    head = ("direct calls", "calls", "time in the model")
    rows = map(recent_row, plots.latest(recorder.evaluations.values(), RECENT)[::-1])
    recent = ("latest evaluations", "items and calls", "failed", "took", "state")
    return descriptions.table("", head, calls) + descriptions.table("", recent, rows)


def state_of(evaluation: EvaluationRecord) -> str:
    if evaluation.failed:
        return "failed"
    if not evaluation.is_done:
        return "running"
    return "given up" if evaluation.dropped else "done"


def recent_row(evaluation: EvaluationRecord) -> tuple[str, ...]:
    when = time.strftime("%H:%M:%S", time.localtime(evaluation.start))
    took = descriptions.seconds(max(evaluation.stop - evaluation.start, 0.0))
    return when, progress_of(evaluation), f"{evaluation.failed:,}", took, state_of(evaluation)


PAGE = plots.Page(
    "Gradient",
    "gradient",
    {
        "cells": "left right full bottom top colour text | model stage done total failed",
        "bars": "left right bottom top colour | model what where took result",
    },
    ["header", PROGRESS, TIME_LINE, "tables"],
    draw,
)
