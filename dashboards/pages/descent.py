"""Descent: value, gradient norm and step of recorded runs, by evaluation and by second."""

import itertools
import math

from bokeh.core.properties import value

from daskgrad.autodiff.values.descriptions import table
from daskgrad.dashboards.pages import plots
from daskgrad.dashboards.palette import HUES
from daskgrad.dashboards.recorder import RunRecord

RUNS = {f"run {n}": hue for n, hue in enumerate(HUES[:6])}  # sources of the latest runs
NUMBER = plots.Axis("evaluation", "number", plots.around)
SECONDS = plots.Axis("seconds since the run began (s)", "seconds", plots.around)


def pair(quantity: str, title: str, label: str) -> tuple[plots.Plot, plots.Plot]:
    """One quantity by evaluation and by second, on one logarithmic scale."""
    y = plots.Axis(f"{label} (log scale)", quantity, plots.decades, scale="log")

    def plot(x: plots.Axis, title: str) -> plots.Plot:
        has_legend = x is NUMBER and quantity == "above"  # it hides runs in all plots
        glyphs = []
        for run, hue in RUNS.items():
            look = {"x": x.columns, "y": quantity, "color": hue}
            label = {"legend_label": run} if has_legend else {}
            glyphs.append(plots.glyph("line", run, line_width=2, **look, **label))
            glyphs.append(plots.glyph("scatter", run, size=4, **look))
        return plots.Plot(title, title, x, y, glyphs, height=230, has_legend=has_legend)

    return plot(NUMBER, f"{title} by evaluation"), plot(SECONDS, f"{title} by second")


PLOTS = [
    pair("above", "Value above the lowest of all runs", "value - lowest"),
    pair("norm", "Norm of the gradient", "norm"),
    pair("step", "Step", "step"),
]
FIRST = PLOTS[0][0].name


def draw(view: plots.View) -> None:
    runs = [run for run in view.recorder.runs.values() if run.count][-len(RUNS) :]
    values = [row.value for run in runs for row in run.shown if math.isfinite(row.value)]
    for source, run in itertools.zip_longest(RUNS, runs):
        view.put(source, [] if run is None else rows_of(run, min(values, default=0.0)))
    legend = view.figures[FIRST].legend[0]
    for item, run in itertools.zip_longest(legend.items, runs):
        item.update(visible=run is not None, label=value("" if run is None else run.name))
    head = ("run", "evaluations", "speed", "value", "norm of the gradient")
    view.write("runs", table("", head, map(about, runs)))


def prepare(view: plots.View) -> None:
    """A run that the legend hides is hidden in all plots, and no range is made for it."""
    legend = view.figures[FIRST].legend[0]
    legend.click_policy = "hide"
    drawn = [glyph for made in view.figures.values() for glyph in made.renderers]
    for item, run in zip(legend.items, RUNS, strict=True):
        (line,) = item.renderers
        for other in [glyph for glyph in drawn if glyph.name == run and glyph is not line]:
            line.js_link("visible", other, "visible")
        if not view.is_report:
            line.on_change("visible", lambda attr, old, new: view.fit())


def rows_of(run: RunRecord, lowest: float) -> list[tuple]:
    """Zeros are left out: a logarithmic axis has none."""
    rows = []
    for number, seconds, height, *lengths in run.shown:
        logarithmic = [length or math.nan for length in (*lengths, height - lowest)]
        rows.append((number, seconds, *logarithmic, run.name, height, rate_of(run)))
    return rows


def rate_of(run: RunRecord) -> str:
    """Evaluations a second, since the run began."""
    assert run.latest is not None
    return f"{run.count / max(run.latest.seconds, 1e-9):,.3g} a second"


def about(run: RunRecord) -> tuple[str, ...]:
    assert run.latest is not None
    latest = run.latest
    return run.name, f"{run.count:,}", rate_of(run), f"{latest.value:.8g}", f"{latest.norm:.3g}"


COLUMNS = "number seconds norm step above | run number seconds{0.000} value{0.00000e} "
COLUMNS += "norm{0.00e} step{0.00e} speed"

PAGE = plots.Page(
    "Descent",
    "gradient-descent",
    dict.fromkeys(RUNS, COLUMNS),
    ["runs", *PLOTS],
    draw,
    lambda recorder: any(run.count for run in recorder.runs.values()),
    (
        "No run is recorded. Put a loop, or a call of an optimiser, into:",
        'with dg.record("name"):',
    ),
    prepare,
)
