"""Bokeh figures of the benchmarks' results, in one style."""

from collections.abc import Mapping, Sequence
from typing import Any

from bokeh.layouts import column
from bokeh.models import Div, Legend, NumeralTickFormatter
from bokeh.palettes import Colorblind
from bokeh.plotting import figure

WIDTH = 960  # pixels
MARKERS = ("circle", "square", "triangle", "diamond")


def page(title: str, stated: str, *figures: Any) -> Any:
    """Figures under a title and a line that states the machine."""
    heading = f"<h2 style='margin-bottom:4px'>{title}</h2>"
    small = f"<div style='font-size:13px;color:#555;max-width:{WIDTH}px'>{stated}</div>"
    return column(Div(text=heading + small, width=WIDTH), *figures)


def bars(names: Sequence[str], lengths: Sequence[float], label: str, x_axis_type: str) -> Any:
    """A horizontal bar for each name, the first one on top, with its length beside it."""
    logarithmic = x_axis_type == "log"
    left = min(lengths) / 2.0 if logarithmic else 0.0
    right = max(lengths) * (3.0 if logarithmic else 1.12)
    plot = figure(
        width=WIDTH,
        height=90 + 42 * len(names),
        x_range=(left, right),
        x_axis_type=x_axis_type,
        y_range=list(reversed(names)),
        x_axis_label=label,
        toolbar_location=None,
    )
    plot.hbar(y=names, left=left, right=lengths, height=0.65, color=Colorblind[3][0])
    texts = [f"{length:.3g}" for length in lengths]
    plot.text(lengths, names, texts, x_offset=6, text_baseline="middle", text_font_size="14px")
    plot.ygrid.grid_line_color = None
    return readable(plot)


def lines(
    title: str,
    xs: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    labels: tuple[str, str],
    **scales: Any,
) -> Any:
    """A curve for each name over the same xs; a curve may end before the others.

    The y axis begins at zero; the legend is below the plot, where it covers no data.
    """
    plot = figure(
        title=title,
        width=WIDTH,
        height=450,
        x_axis_type="log",
        x_axis_label=labels[0],
        y_axis_label=labels[1],
        toolbar_location=None,
        **scales,
    )
    plot.y_range.start = 0.0
    plot.xaxis.ticker = list(xs)
    entries = []
    for number, (name, ys) in enumerate(curves.items()):
        color = Colorblind[8][(0, 6, 3, 5)[number % 4]]
        line = plot.line(xs[: len(ys)], ys, color=color, line_width=2.5)
        points = plot.scatter(
            xs[: len(ys)], ys, marker=MARKERS[number % 4], size=9, color=color, fill_alpha=0.6
        )
        entries.append((name, [line, points]))
    plot.add_layout(Legend(items=entries, label_text_font_size="14px", ncols=2), "below")
    return readable(plot)


def points(
    title: str,
    clouds: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    labels: tuple[str, str],
) -> Any:
    """A point for each pair of coordinates, the second one positive and on a logarithmic axis, in a
    colour and a shape for each name."""
    plot = figure(
        title=title,
        y_axis_type="log",
        width=WIDTH,
        height=450,
        x_axis_label=labels[0],
        y_axis_label=labels[1],
        toolbar_location=None,
    )
    entries = []
    for number, (name, (xs, ys)) in enumerate(clouds.items()):
        color, marker = Colorblind[8][(0, 6, 3, 5)[number % 4]], MARKERS[number % 4]
        scattered = plot.scatter(xs, ys, marker=marker, size=9, color=color, fill_alpha=0.6)
        entries.append((name, [scattered]))
    plot.add_layout(Legend(items=entries, label_text_font_size="14px", ncols=4), "below")
    return readable(plot)


def readable(plot: Any) -> Any:
    plot.xaxis.formatter = NumeralTickFormatter(format="0,0.[000]")  # else powers of ten
    plot.title.text_font_size = "16px"
    plot.axis.axis_label_text_font_size = "15px"
    plot.axis.axis_label_text_font_style = "normal"
    plot.axis.major_label_text_font_size = "14px"
    return plot
