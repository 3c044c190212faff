"""Style: figures that look alike, on light and on dark ground.

Figures are transparent, and their texts have the grey that reads equally well on white and on
black, so that the style sheet of the page alone knows whether it is dark.
"""

from collections.abc import Iterable
from typing import Any

from bokeh.core.properties import value
from bokeh.models import (
    AdaptiveTicker,
    BasicTickFormatter,
    Div,
    FixedTicker,
    HoverTool,
    LabelSet,
    NumeralTickFormatter,
)
from bokeh.plotting import figure

from daskgrad.autodiff.values.descriptions import escaped, seconds
from daskgrad.dashboards.pages import ranges
from daskgrad.dashboards.palette import INK

STAGES = ("forward", "value", "cotangent", "backward")  # as they run
KINDS = {  # what workers hold
    "pullbacks": "forward",
    "values": "value",
    "placed items": "call",
    "cotangents": "cotangent",
    "tangents": "tangent",
}
FAILED = "#111111"
FONT = "system-ui, Helvetica, Arial, sans-serif"


def plot(title: str, x: str, y: str, height: int = 260, **options: Any) -> Any:
    """An empty figure with labelled axes, as wide as there is room."""
    options = {"x_range": ranges.fixed(0.0, 1.0), "y_range": ranges.fixed(0.0, 1.0), **options}
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


def empty(what: str, code: str) -> Div:
    """What stands in the place of figures as long as there is nothing to draw."""
    return text(f'<div class="empty">{escaped(what)}<br><code>{escaped(code)}</code></div>')


def shortened(name: str, longest: int = 24) -> str:
    return name if len(name) <= longest else name[: longest - 1] + "…"


def shown_worker(address: str) -> str:
    """A worker's address without its protocol."""
    return shortened(address.partition("://")[2] or address)


def plain_numbers(axis: Any) -> None:
    axis.formatter = BasicTickFormatter(power_limit_high=7, power_limit_low=-4)


def byte_axis(axis: Any) -> None:
    axis.formatter = NumeralTickFormatter(format="0 ib")
    powers = [2**n for n in range(10)]
    axis.ticker = AdaptiveTicker(mantissas=powers, base=1024, num_minor_ticks=0)


def seconds_axis(axis: Any) -> None:
    """Ticks of a logarithmic axis at 1, 2 and 5 times the powers of ten, with their units."""
    ticks = [float(f"{digit}e{power}") for power in range(-9, 6) for digit in (1, 2, 5)]
    axis.ticker = FixedTicker(ticks=ticks)
    axis.major_label_overrides = {tick: seconds(tick) for tick in ticks}
