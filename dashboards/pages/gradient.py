"""Gradient: how far the current evaluation is, by stage and by model, and a time line."""

import time
from typing import Any

from bokeh.models import FixedTicker

from daskgrad.autodiff.values import descriptions
from daskgrad.dashboards.pages import ranges, style
from daskgrad.dashboards.pages.view import DRAWN, MODELS, View, latest, replace, source_of
from daskgrad.dashboards.recorder import Evaluation

OTHERS = "(others)"
RECENT = 6  # evaluations in the table
HIGHEST = 800  # pixels of the time line
WINDOW = 30.0  # seconds of the time line that are seen on a page

CELLS: tuple[str, ...] = (
    "left",
    "right",
    "full",
    "bottom",
    "top",
    "colour",
    "pale",
    "text",
    "model",
    "stage",
)
CELLS += ("done", "total", "failed", "x", "y")
BARS = ("left", "right", "bottom", "top", "colour", "model", "what", "worker", "took", "size")


class GradientView(View):
    """The page *Gradient*."""

    def build(self) -> list[Any]:
        self.header, self.recent = style.text(), style.text()
        self.cells, self.bars = source_of(*CELLS), source_of(*BARS)
        self._lanes: dict[tuple[str, int], int] = {}
        of = "largest" if self.is_report else "current"
        self._title = f"Tasks done of total, {of} evaluation"
        self._seen_tasks = self._seen_calls = 0
        return [self.header, self._progress(), self._time_line(), self.recent]

    def _progress(self) -> Any:
        made = self.progress = style.plot(self._title, "stage", "", tools="save")
        ranges.show(made.x_range, -0.06, len(style.STAGES))
        made.xaxis.ticker = FixedTicker(ticks=[n + 0.47 for n in range(len(style.STAGES))])
        made.xaxis.major_label_overrides = {n + 0.47: stage for n, stage in enumerate(style.STAGES)}
        made.grid.visible = False
        box = {"top": "top", "bottom": "bottom", "left": "left", "source": self.cells}
        line = {"line_color": "colour", "line_width": 1}
        full = made.quad(right="full", fill_color="pale", fill_alpha=0.25, **box, **line)
        done = made.quad(right="right", fill_color="colour", line_color=None, **box)
        style.labels(made, self.cells, text_baseline="bottom", y_offset=1)
        rows = [("model", "@model"), ("stage", "@stage"), ("done", "@done of @total")]
        style.hover(made, [*rows, ("failed", "@failed")], [full, done])
        return made

    def _time_line(self) -> Any:
        made = self.time_line = style.plot(
            "Time line of the workers: forward light, backward dark, direct calls in full colour",
            "seconds since recording began (s)",
            "worker",
            height=280,
        )
        made.ygrid.visible = False
        bars = made.quad(
            left="left",
            right="right",
            bottom="bottom",
            top="top",
            fill_color="colour",
            line_color="colour",
            line_width=1,
            source=self.bars,
        )
        rows = [("model", "@model"), ("what", "@what"), ("took", "@took"), ("where", "@worker")]
        style.hover(made, [*rows, ("result", "@size")], [bars])
        return made

    # ---- progress

    def draw(self) -> None:
        current = self.current
        self.header.text = self._headline(current)
        self.progress.visible = current is not None
        if current is not None:
            self._draw_progress(current)
        self._draw_time_line()
        self.recent.text = self._tables()

    def _tables(self) -> str:
        """Direct calls by model, and the latest evaluations that were graphs."""
        recorder = self.recorder
        called = [(model, costs) for model, costs in recorder.models.items() if costs.calls]
        rows = [
            (
                recorder.called(model),
                f"{costs.calls:,}",
                descriptions.seconds(costs.stages["call"][1]),
            )
            for model, costs in called
        ]
        calls = descriptions.table(
            "", ("direct calls of workers", "calls", "time in the model"), rows
        )
        found = latest(recorder.evaluations.values(), RECENT)[::-1]
        head = ("latest evaluations by tasks", "tasks", "failed", "took", "state")
        return calls + descriptions.table("", head, map(recent_row, found))

    def _headline(self, current: Evaluation | None) -> str:
        parts = []
        if current is not None:
            told = f"<b>{current.done:,} of {current.total:,} tasks</b>"
            parts.append(f"{told} {state_of(current)}")
        recorder = self.recorder
        if recorder.evaluation_count:
            parts.append(f"{recorder.evaluation_count:,} evaluations by tasks")
        if recorder.call_count:
            parts.append(f"<b>{recorder.call_count:,} direct calls</b> of workers{self._rate()}")
        return " · ".join(parts)

    def _rate(self) -> str:
        calls = [call for call in latest(self.recorder.calls, 200) if time.time() - call.stop < 5]
        if not calls:
            return ""
        spent = time.time() - min([call.start for call in calls])
        return f", {sum([call.calls for call in calls]) / spent:,.0f} a second now"

    def _draw_progress(self, current: Evaluation) -> None:
        rows = rows_of(current)
        names = [self.recorder.called(model) for model in rows]
        count = max(len(rows), 1)
        self.progress.height = 90 + 40 * count
        ranges.show(self.progress.y_range, 0, count)
        self.progress.yaxis.ticker = FixedTicker(ticks=[count - n - 0.5 for n in range(count)])
        overrides = {count - n - 0.5: style.shortened(name) for n, name in enumerate(names)}
        self.progress.yaxis.major_label_overrides = overrides
        cells = []
        for n, (model, stages) in enumerate(rows.items()):
            y = count - n - 0.5
            for x, stage in enumerate(style.STAGES):
                done, total, failed = stages.get(stage, (0, 0, 0))
                if total:
                    share = 0.94 * min(done / total, 1.0)
                    colour = self.colour(model, stage)
                    box = (x, x + share, x + 0.94, y - 0.42, y + 0.08, colour, colour)
                    told = (f"{done:,} / {total:,}", self.recorder.called(model), stage)
                    cells.append((*box, *told, done, total, failed, x, y + 0.08))
        replace(self.cells, cells, CELLS)

    # ---- time line

    def _draw_time_line(self) -> None:
        recorder = self.recorder
        tasks = latest(recorder.tasks, min(recorder.task_count - self._seen_tasks, DRAWN))
        calls = latest(recorder.calls, min(recorder.calls_added - self._seen_calls, DRAWN))
        self._seen_tasks, self._seen_calls = recorder.task_count, recorder.calls_added
        if not (tasks or calls):
            return
        places = [*[(each.worker, each.thread) for each in tasks], *[(c.worker, 0) for c in calls]]
        if not set(places) <= self._lanes.keys():
            self._sort_lanes()
            tasks, calls = latest(recorder.tasks, DRAWN), latest(recorder.calls, DRAWN)
            self.bars.data = {name: [] for name in BARS}
        bars = [*map(self._task_bar, tasks), *map(self._call_bar, calls)]
        columns = zip(BARS, zip(*bars, strict=True), strict=True)
        self.bars.stream({name: list(each) for name, each in columns}, rollover=DRAWN)
        self._label_lanes()
        self._show_window()

    def _show_window(self) -> None:
        """All bars in a report; the latest ones on a page."""
        first, latest = min(self.bars.data["left"]), max(self.bars.data["right"])
        if not self.is_report:
            first = max(first, latest - WINDOW)
        ranges.show(self.time_line.x_range, *ranges.around([first, latest]))

    def _sort_lanes(self) -> None:
        """A lane for each thread that is drawn, worker by worker."""
        recorder = self.recorder
        places = {(call.worker, 0) for call in latest(recorder.calls, DRAWN)}
        places |= {(task.worker, task.thread) for task in latest(recorder.tasks, DRAWN)}
        self._lanes = {place: n for n, place in enumerate(sorted(places, reverse=True))}

    def _lane(self, worker: str, thread: int) -> int:
        return self._lanes[worker, thread]

    def _label_lanes(self) -> None:
        made, count = self.time_line, len(self._lanes)
        made.height = 110 + min(max(3, count) * (30 if count < 12 else 16), HIGHEST)
        ranges.show(made.y_range, 0, count)
        made.yaxis.ticker = FixedTicker(ticks=[n + 0.5 for n in range(count)])
        tops = {worker: n + 0.5 for (worker, _), n in self._lanes.items()}  # the last is the top
        labels = {n + 0.5: "" for n in range(count)}
        labels |= {place: style.shown_worker(worker) for worker, place in tops.items()}
        made.yaxis.major_label_overrides = labels

    def _task_bar(self, task: Any) -> tuple:
        lane, begin = self._lane(task.worker, task.thread), self.recorder.begin
        colour = style.FAILED if task.has_failed else self.colour(task.model, task.stage)
        what = f"{task.stage}, failed" if task.has_failed else task.stage
        size = descriptions.nbytes(task.nbytes) if task.nbytes else "unknown size"
        took = descriptions.seconds(task.stop - task.start)
        box = (task.start - begin, task.stop - begin, lane + 0.12, lane + 0.88)
        return (*box, colour, self.recorder.called(task.model), what, task.worker, took, size)

    def _call_bar(self, call: Any) -> tuple:
        lane, begin = self._lane(call.worker, 0), self.recorder.begin
        each = descriptions.seconds(call.seconds / max(call.calls, 1))
        what = f"{call.calls:,} direct calls, {call.blocks:,} blocks"
        box = (call.start - begin, call.stop - begin, lane + 0.12, lane + 0.88)
        named = (self.colour(call.model, "call"), self.recorder.called(call.model), what)
        return (*box, *named, call.worker, f"{each} a call in the model", "sent back at once")


def rows_of(evaluation: Evaluation) -> dict[str, dict[str, tuple[int, int, int]]]:
    """By model and stage: done, total and failed; the models with most tasks, and the others."""
    totals: dict[str, int] = {}
    for (_, model), count in evaluation.counts.items():
        totals[model] = totals.get(model, 0) + count.total
    busiest = sorted(totals, key=lambda model: -totals[model])[:MODELS]
    rows: dict[str, dict[str, tuple[int, int, int]]] = {}
    for (stage, model), count in evaluation.counts.items():
        row = rows.setdefault(model if model in busiest else OTHERS, {})
        stage = stage if stage in style.STAGES else "value"
        done, total, failed = row.get(stage, (0, 0, 0))
        more = min(count.done, count.total)
        row[stage] = (done + more, total + count.total, failed + count.failed)
    return rows


def state_of(each: Evaluation) -> str:
    if each.failed:
        return "failed"
    if not each.is_done:
        return "running"
    return "given up" if each.dropped else "done"


def recent_row(each: Evaluation) -> tuple[str, str, str, str, str]:
    when = time.strftime("%H:%M:%S", time.localtime(each.start))
    took = descriptions.seconds(max(each.stop - each.start, 0.0))
    return when, f"{each.done:,} / {each.total:,}", f"{each.failed:,}", took, state_of(each)
