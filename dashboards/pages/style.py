"""Style: the one palette, and figures that look alike, on light and on dark ground.

A model has a hue, and a stage a shade of it: forward light, backward dark. The hues are those of
Okabe and Ito that stay apart for the colour-blind in light and dark shades. Figures are
transparent, and their texts have the grey that reads equally well on white and on black, so that
the style sheet of the page alone knows whether it is dark.
"""

import html
from collections.abc import Iterable
from typing import Any

from bokeh.core.properties import value
from bokeh.models import (
    AdaptiveTicker,
    BasicTickFormatter,
    Div,
    HoverTool,
    LabelSet,
    NumeralTickFormatter,
)
from bokeh.plotting import figure

HUES = ("#0072B2", "#D55E00", "#009E73", "#AA4499", "#B8860B", "#6B6B6B")
SHADES = {  # of a hue: how much white (> 0) or black (< 0) is mixed in
    "value": 0.72,
    "forward": 0.45,
    "tangent": 0.20,
    "call": 0.0,
    "backward": -0.25,
    "cotangent": -0.50,
}
STAGES = ("forward", "value", "cotangent", "backward")  # as they run
KINDS = {  # what workers hold
    "pullbacks": "forward",
    "values": "value",
    "placed items": "call",
    "cotangents": "cotangent",
    "tangents": "tangent",
}
INK = "#7B7B7B"
FAILED = "#111111"
FONT = "system-ui, Helvetica, Arial, sans-serif"


def shade(number: int, stage: str) -> str:
    """The colour of a stage of the model with this number."""
    base = HUES[number % len(HUES)]
    amount = SHADES[stage]
    target = 255 if amount > 0 else 0
    mixed = [
        round(part + (target - part) * abs(amount))
        for part in (int(base[place : place + 2], 16) for place in (1, 3, 5))
    ]
    return "#{:02X}{:02X}{:02X}".format(*mixed)


def plot(title: str, x: str, y: str, height: int = 260, **options: Any) -> Any:
    """An empty figure with labelled axes, as wide as there is room."""
    made = figure(
        title=title,
        height=height,
        sizing_mode="stretch_width",
        min_width=280,
        toolbar_location="right",
        background_fill_alpha=0,
        border_fill_alpha=0,
        outline_line_color=None,
        output_backend="canvas",
        **{"tools": "xpan,xwheel_zoom,box_zoom,reset,save", **options},
    )
    made.toolbar.logo = None
    made.toolbar.autohide = True
    made.title.text_color, made.title.text_font_size = INK, "14px"
    made.title.text_font = FONT
    for axis, label in ((made.xaxis, x), (made.yaxis, y)):
        axis.axis_label = label or None
        axis.axis_label_text_color = axis.major_label_text_color = INK
        axis.axis_label_text_font = axis.major_label_text_font = FONT
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_font_size, axis.major_label_text_font_size = "12px", "12px"
        axis.axis_line_color = axis.major_tick_line_color = INK
        axis.minor_tick_line_color = None
    made.grid.grid_line_color, made.grid.grid_line_alpha = INK, 0.2
    return made


def hover(made: Any, rows: Iterable[tuple[str, str]], renderers: Any) -> None:
    made.add_tools(HoverTool(tooltips=list(rows), renderers=renderers, point_policy="follow_mouse"))


def labels(made: Any, source: Any, **options: Any) -> None:
    """Writes the column ``text`` of a source at its ``x`` and ``y``."""
    look = {"text_font": value(FONT), "text_font_size": "12px", "text_color": INK}
    made.add_layout(LabelSet(x="x", y="y", text="text", source=source, **look, **options))


def legend(made: Any, place: str = "above") -> None:
    """Puts the legend beside the figure, in its colours."""
    box = made.legend[0]
    made.add_layout(box, place)
    box.orientation = "horizontal" if place in ("above", "below") else "vertical"
    box.background_fill_alpha = box.border_line_alpha = 0
    box.label_text_color, box.label_text_font, box.label_text_font_size = INK, FONT, "12px"
    box.padding, box.margin, box.spacing = 0, 2, 12


def text(markup: str = "", css: str = "") -> Div:
    """A piece of HTML, which the caller has escaped; what is in it is no mathematics."""
    return Div(
        text=markup,
        disable_math=True,
        sizing_mode="stretch_width",
        css_classes=["daskgrad", *css.split()],
        stylesheets=[SHEET],
    )


SHEET = f"""
:host {{ color: light-dark(#222, #E4E4E4); font: 14px/1.45 {FONT}; }}
table {{ border-collapse: collapse; }}
th {{ text-align: left; font-weight: 600; opacity: .75; }}
th, td {{ padding: 2px 18px 2px 0; font-variant-numeric: tabular-nums; }}
td.number, th.number {{ text-align: right; }}
h3 {{ margin: 8px 0 4px; font-size: 14px; color: {INK}; }}
.empty {{ padding: 48px 16px; text-align: center; opacity: .8; }}
code {{ font-size: 13px; }}
"""


def escaped(what: Any) -> str:
    return html.escape(str(what))


def table(title: str, head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """An HTML table of escaped entries; all columns but the first are numbers."""
    lines = [[*map(escaped, row)] for row in rows]
    if not lines:
        return ""

    def cells(tag: str, entries: Iterable[str]) -> str:
        kinds = [
            f"<{tag}{'' if not n else ' class=number'}>{e}</{tag}>" for n, e in enumerate(entries)
        ]
        return f"<tr>{''.join(kinds)}</tr>"

    body = "".join([cells("td", line) for line in lines])
    return f"<h3>{escaped(title)}</h3><table>{cells('th', map(escaped, head))}{body}</table>"


def empty(what: str, code: str) -> Div:
    """What stands in the place of figures as long as there is nothing to draw."""
    return text(f'<div class="empty">{escaped(what)}<br><code>{escaped(code)}</code></div>')


def seconds(number: float) -> str:
    """A time in the unit that fits."""
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if number >= size:
            return f"{number / size:,.3g} {unit}"
    return f"{number * 1e9:,.3g} ns" if number > 0 else "0 s"


def nbytes(number: float) -> str:
    for size, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "kiB")):
        if number >= size:
            return f"{number / size:,.3g} {unit}"
    return f"{number:,.0f} B"


def plain_numbers(axis: Any) -> None:
    axis.formatter = BasicTickFormatter(power_limit_high=7, power_limit_low=-4)


def byte_axis(axis: Any) -> None:
    axis.formatter = NumeralTickFormatter(format="0 ib")
    powers = [2**n for n in range(10)]
    axis.ticker = AdaptiveTicker(mantissas=powers, base=1024, num_minor_ticks=0)
