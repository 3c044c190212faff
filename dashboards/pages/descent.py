"""Descent: value, gradient norm and step of recorded runs, by evaluation and by second."""

import math
from collections.abc import Sequence
from typing import Any

from bokeh.layouts import row

from daskgrad.autodiff.values import descriptions
from daskgrad.dashboards.pages import ranges, style
from daskgrad.dashboards.pages.view import View, replace, source_of
from daskgrad.dashboards.palette import HUES
from daskgrad.dashboards.recorder import Run

SHOWN = len(HUES)  # the latest runs
COLUMNS = ("number", "seconds", "value", "norm", "step", "run", "rate")
MARGIN = 1.2  # a factor, below and above decades
WHAT = {
    "value": ("Value", "linear"),
    "norm": ("Norm of the gradient", "log"),
    "step": ("Step", "log"),
}


class DescentView(View):
    """The page *Descent*."""

    nothing = (
        "No run is recorded. Put a loop, or a call of an optimiser, into:",
        'with dg.record("name"):',
    )

    @property
    def has_something(self) -> bool:
        return any(run.count for run in self.recorder.runs.values())

    def build(self) -> list[Any]:
        self.header = style.text()
        self.sources = [source_of(*COLUMNS) for _ in range(SHOWN)]
        axes = ["number", "seconds", *WHAT]
        self._ranges = {name: ranges.fixed(0.1, 10.0) for name in axes}
        return [self.header, *[self._pair(name, *look) for name, look in WHAT.items()]]

    def _pair(self, name: str, title: str, scale: str) -> Any:
        """One quantity by evaluation and by second, on one scale."""
        by_number = self._plot(name, f"{title} by evaluation", "number", "evaluation", scale)
        label = "seconds since the run began (s)"
        by_seconds = self._plot(name, f"{title} by second", "seconds", label, scale)
        return row(by_number, by_seconds, sizing_mode="stretch_width")

    def _plot(self, name: str, title: str, x: str, label: str, scale: str) -> Any:
        y = f"{name} (log scale)" if scale == "log" else name
        shown = {"x_range": self._ranges[x], "y_range": self._ranges[name]}
        made = style.plot(title, label, y, height=230, y_axis_type=scale, **shown)
        if scale == "linear":
            style.plain_numbers(made.yaxis)
        lines = []
        for source, colour in zip(self.sources, HUES, strict=True):
            line = made.line(x, name, source=source, line_color=colour, line_width=2)
            dots = made.scatter(x, name, source=source, size=4, color=colour)
            lines += [line, dots]
        rows = [("run", "@run"), ("evaluation", "@number"), ("after", "@seconds{0.000} s")]
        rows += [("value", "@value{0.00000e}"), ("gradient", "@norm{0.00e}")]
        style.hover(made, [*rows, ("step", "@step{0.00e}"), ("speed", "@rate")], lines)
        return made

    def draw(self) -> None:
        runs = [run for run in self.recorder.runs.values() if run.count][-SHOWN:]
        for source, run in zip(self.sources, runs, strict=False):
            rate = rate_of(run)
            rows = [(r.number, *map(plain, r[1:]), run.name, rate) for r in run.shown]
            replace(source, rows, COLUMNS)
        for source in self.sources[len(runs) :]:
            replace(source, [], COLUMNS)
        for name, shown in self._ranges.items():
            found = [each for source in self.sources for each in source.data[name]]
            is_log = name in WHAT and WHAT[name][1] == "log"
            ranges.show(shown, *(decades if is_log else ranges.around)(found))
        self.header.text = descriptions.table(
            "",
            ("run", "evaluations", "speed", "value", "norm of the gradient"),
            [self._about(run) for run in runs],
        ).replace("<td>", "<td class=run>")
        marks = "".join(
            [
                f"tr:nth-child({number + 2}) td.run::before {{ content: '● '; color: {colour}; }}"
                for number, (colour, _) in enumerate(zip(HUES, runs, strict=False))
            ]
        )
        sheets = [style.SHEET, marks]
        if self.header.stylesheets != sheets:
            self.header.stylesheets = sheets

    def _about(self, run: Run) -> tuple[str, ...]:
        assert run.latest is not None
        latest = run.latest
        return run.name, f"{run.count:,}", rate_of(run), f"{latest.value:.8g}", f"{latest.norm:.3g}"


def rate_of(run: Run) -> str:
    """Evaluations a second, since the run began."""
    assert run.latest is not None
    return f"{run.count / max(run.latest.seconds, 1e-9):,.3g} a second"


def decades(numbers: Sequence[float]) -> tuple[float, float]:
    """The powers of ten around the positive numbers, and a margin for the points there."""
    found = [number for number in numbers if 0.0 < number < math.inf] or [1.0]
    low, high = math.floor(math.log10(min(found))), math.ceil(math.log10(max(found)))
    return 10.0**low / MARGIN, 10.0 ** max(high, low + 1) * MARGIN


def plain(number: float) -> float:
    """A number for a logarithmic axis, which has no zero."""
    return float("nan") if number == 0.0 else number
