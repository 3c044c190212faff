"""Plots: tables that describe pages, and the view that draws a page from its table.

Figures are transparent, and their texts have a grey that reads equally well on white and on black,
so only the style sheet of the page knows whether it is dark. The server sets the ranges of axes: if
browsers set them, they would send each range back, and the server logs an error if such a message
arrives while its page closes.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from bokeh.core.properties import value
from bokeh.layouts import column, row
from bokeh.models import (
    AdaptiveTicker,
    ColumnDataSource,
    Div,
    FixedTicker,
    HoverTool,
    NoOverlap,
    NumeralTickFormatter,
    Range1d,
)
from bokeh.plotting import figure

from daskgrad.autodiff.values.descriptions import escaped, seconds
from daskgrad.dashboards.palette import INK, hue_of, shade
from daskgrad.dashboards.recorder import Recorder

MODELS = 12  # with a row of their own
DRAWN = 4_000  # tasks at most in a time line
SEEN = 1_024  # models whose hues are remembered
FAILED = "#111111"
FONT = "system-ui, Helvetica, Arial, sans-serif"
TEXTS = {"text_font": FONT, "text_font_size": "12px", "text_color": INK}
TALLEST = 800  # pixels of all lanes of a plot


@dataclass(frozen=True, eq=False)
class Axis:
    """An axis; plots that share this object share its range.

    ``columns`` are drawn along it. ``span`` makes a range of their numbers; without ``span`` the
    page's function sets the range. ``ticks`` changes Bokeh's axis.
    """

    label: str
    columns: str = ""
    span: Callable[[Sequence[float]], tuple[float, float]] | None = None
    scale: str = "linear"
    ticks: Callable[[Any], None] | None = None


class Glyph(NamedTuple):
    """A picture of each row of a source, by a method of Bokeh's figures with these arguments."""

    kind: str
    source: str
    look: Mapping[str, Any]


def glyph(kind: str, source: str, columns: str = "", **look: Any) -> Glyph:
    """A glyph; each of ``columns`` is the argument of its own name."""
    return Glyph(kind, source, {name: name for name in columns.split()} | look)


def bars(source: str, **look: Any) -> Glyph:
    """Boxes, in colours from a column."""
    look = {"fill_color": "colour", "line_color": "colour", **look}
    return glyph("quad", source, "left right bottom top", **look)


def labels(source: str, **look: Any) -> Glyph:
    """Texts, from a column."""
    return glyph("text", source, "text", **{**TEXTS, "text_font": value(FONT), **look})


class Plot(NamedTuple):
    """A figure of glyphs. ``lane``: its y axis has named lanes, and each has this many pixels."""

    name: str
    title: str
    x: Axis
    y: Axis
    glyphs: Sequence[Glyph]
    height: int = 110
    lane: int = 0
    has_legend: bool = False
    has_grid: bool = True
    tools: str = "xpan,xwheel_zoom,box_zoom,reset,save"
    hover_mode: str = "mouse"


class Page(NamedTuple):
    """A page: a table of its parts, from top to bottom, and a function that draws records.

    ``sources``: the columns of each data source. Columns after a bar are shown under the pointer,
    and may have a format in braces. A part is the name of a text, a plot, or plots side by side.
    Until ``is_something`` is true, the page shows ``nothing``, a sentence and code. ``prepare``
    changes figures before a browser has them: links between them are slow to add later.
    """

    name: str
    route: str
    sources: Mapping[str, str]
    parts: Sequence[str | Plot | Sequence[Plot]]
    draw: Callable[["View"], None]
    is_something: Callable[[Recorder], bool] = lambda recorder: not recorder.is_empty
    nothing: tuple[str, str] = (
        "Nothing has been evaluated yet. Call, for example:",
        "dg.value_and_grad(fun)(x)",
    )
    prepare: Callable[["View"], None] = lambda view: None


def stacked(parts: Iterable[tuple]) -> Iterator[tuple]:
    """Rows of bars that stand side by side. A part has a lane, a length, and further columns."""
    ends: defaultdict[int, float] = defaultdict(float)
    for lane, length, *others in parts:
        left = ends[lane]
        ends[lane] += length
        yield (left, ends[lane], lane + 0.85, lane + 0.15, *others)


# -------------------------------------------------------------------------------------------------
# Spans and ticks of axes.


def around(numbers: Iterable[float], margin: float = 0.03) -> tuple[float, float]:
    """The least and the largest finite number, with a margin; around zero without numbers."""
    finite = [number for number in numbers if math.isfinite(number)] or [0.0]
    low, high = min(finite), max(finite)
    width = (high - low) or max(abs(high), 1.0)
    return low - margin * width, high + margin * width


def from_zero(numbers: Sequence[float]) -> tuple[float, float]:
    return 0.0, 1.04 * (max(numbers, default=0.0) or 1.0)


def decades(numbers: Sequence[float]) -> tuple[float, float]:
    """The powers of ten around the positive numbers, and a margin for points there."""
    positive = [number for number in numbers if 0.0 < number < math.inf] or [1.0]
    low, high = math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive)))
    return 10.0**low / 1.2, 10.0 ** max(high, low + 1) * 1.2


def fixed(start: float, end: float) -> Range1d:
    """A range that the tool *reset* comes back to."""
    return Range1d(start, end, reset_start=start, reset_end=end)


def show(bounds: Range1d, start: float, end: float) -> None:
    """Sets a range, unless somebody has moved it; the tool *reset* lets it follow again."""
    is_moved = (bounds.start, bounds.end) != (bounds.reset_start, bounds.reset_end)
    bounds.update(reset_start=start, reset_end=end)
    if not is_moved:
        bounds.update(start=start, end=end)


def name_ticks(axis: Any, names: Mapping[float, str]) -> None:
    axis.update(ticker=FixedTicker(ticks=list(names)), major_label_overrides=dict(names))


def in_bytes(axis: Any) -> None:
    powers = [2**n for n in range(10)]
    axis.ticker = AdaptiveTicker(mantissas=powers, base=1024, num_minor_ticks=0)
    axis.formatter = NumeralTickFormatter(format="0[.]0 ib")


def in_seconds(axis: Any) -> None:
    """Ticks of a logarithmic axis at 1, 2 and 5 times the powers of ten, with their units."""
    ticks = [float(f"{digit}e{power}") for power in range(-9, 6) for digit in (1, 2, 5)]
    name_ticks(axis, {tick: seconds(tick) for tick in ticks})


# -------------------------------------------------------------------------------------------------
# Drawing.


class View:
    """A page of one recorder. Browsers show its ``layout``; ``update`` draws new records.

    ``is_report``: the page is drawn once, when everything has ended. ``seen``: how many records of
    a kind the page's function has drawn.
    """

    def __init__(self, page: Page, recorder: Recorder, is_report: bool = False):
        self.page, self.recorder, self.is_report = page, recorder, is_report
        self.seen: Counter[str] = Counter()
        self.sources: dict[str, ColumnDataSource] = {}
        self.figures: dict[str, Any] = {}
        self.texts: dict[str, Div] = {}
        self._hovers: dict[str, tuple[tuple[str, str], ...]] = {}
        for name, columns in page.sources.items():
            entries = [entry.partition("{") for entry in columns.replace("|", " ").split()]
            self.sources[name] = ColumnDataSource({column: [] for column, *_ in entries})
            hovers = [entry.partition("{") for entry in columns.partition("|")[2].split()]
            self._hovers[name] = tuple((h[0].replace("_", " "), f"@{''.join(h)}") for h in hovers)
        self._lanes: dict[str, Sequence[str]] = {}
        self._hues: dict[str, int] = {}
        self._ranges: defaultdict[Axis, Range1d] = defaultdict(lambda: fixed(0.1, 1.0))
        self._along: defaultdict[Axis, list[Any]] = defaultdict(list)
        self._version = -1
        self.empty = empty(*page.nothing)
        parts = [self._build(part) for part in page.parts]
        self.drawn = column(*parts, sizing_mode="stretch_width", visible=False)
        self.layout = column(self.empty, self.drawn, sizing_mode="stretch_width")
        page.prepare(self)
        self.update()

    def update(self) -> None:
        if self.recorder.version == self._version:
            return
        self._version = self.recorder.version
        is_something = self.page.is_something(self.recorder)
        self.drawn.visible, self.empty.visible = is_something, not is_something
        if is_something:
            self.page.draw(self)
            self.fit()

    def fit(self) -> None:
        """Fits the ranges of axes to the visible columns along them."""
        for axis, glyphs in self._along.items():
            if axis.span is not None:
                sources = dict.fromkeys([g.data_source for g in glyphs if g.visible])
                columns = [s.data.get(name, ()) for s in sources for name in axis.columns.split()]
                self.show(axis, *axis.span([number for column in columns for number in column]))

    # ---- methods for the functions of pages

    def put(self, name: str, rows: Iterable[tuple], is_more: bool = False) -> None:
        """Replaces the rows of a source if they differ; if ``is_more``, adds these rows."""
        source = self.sources[name]
        columns = list(map(list, zip(*rows, strict=True))) or [[] for _ in source.data]
        data = dict(zip(source.data, columns, strict=True))
        if is_more:
            source.stream(data, rollover=DRAWN)
        elif data != source.data:
            source.data = data

    def write(self, name: str, markup: str) -> None:
        """Replaces a text, or the title of a plot."""
        self.texts[name].text = markup

    def hide(self, plot: Plot, is_hidden: bool) -> None:
        self.figures[plot.name].visible = self.texts[plot.name].visible = not is_hidden

    def show(self, axis: Axis, start: float, end: float) -> None:
        show(self._ranges[axis], start, end)

    def name_lanes(self, plot: Plot, labels: Sequence[str]) -> bool:
        """Names lanes from the top: lane n has y from n to n + 1. Tells whether a name changed."""
        if self._lanes.get(plot.name) == labels:
            return False
        self._lanes[plot.name] = labels
        drawing, count = self.figures[plot.name], max(len(labels), 1)
        drawing.height = plot.height + min(plot.lane * count, TALLEST)
        self.show(plot.y, count, 0)
        lines = ["\n".join(map(shortened, label.split("\n"))) for label in labels]
        name_ticks(drawing.yaxis[0], {n + 0.5: label for n, label in enumerate(lines)})
        return True

    def colour(self, model: str, stage: str) -> str:
        if model not in self._hues:
            if len(self._hues) > SEEN:
                self._hues = {}
            for name in [*self.recorder.names, model]:  # in one order on all pages
                hue_of(name, self._hues)
        return shade(self._hues[model], stage)

    # ---- building

    def _build(self, part: str | Plot | Sequence[Plot]) -> Any:
        if isinstance(part, str):
            self.texts[part] = text()
            return self.texts[part]
        if isinstance(part, Plot):
            return self._figure(part)
        pair = map(self._figure, part)
        return row(*pair, sizing_mode="stretch_width", styles={"flex-wrap": "wrap"})

    def _figure(self, plot: Plot) -> Any:
        """A title, and below it an empty figure, which is as wide as the page lets it be."""
        drawing = figure(
            x_range=self._ranges[plot.x],
            y_range=self._ranges[plot.y],
            x_axis_type=plot.x.scale,
            y_axis_type=plot.y.scale,
            height=plot.height + plot.lane,
            tools=plot.tools,
            sizing_mode="stretch_width",
            min_width=280,
            background_fill_alpha=0,
            border_fill_alpha=0,
            outline_line_color=None,
        )
        drawing.toolbar.logo, drawing.toolbar.autohide = None, True
        drawing.grid.grid_line_color, drawing.grid.grid_line_alpha = INK, 0.2
        drawing.xgrid.visible = plot.has_grid
        drawing.ygrid.visible = plot.has_grid and not plot.lane
        dress(drawing.xaxis[0], plot.x)
        dress(drawing.yaxis[0], plot.y)
        self.figures[plot.name] = drawing
        by_tooltips: defaultdict[Any, list[Any]] = defaultdict(list)
        for kind, name, look in plot.glyphs:
            result = getattr(drawing, kind)(source=self.sources[name], name=name, **look)
            renderers = result if isinstance(result, list) else [result]
            by_tooltips[self._hovers[name]] += [] if kind == "text" else renderers
            for axis in (plot.x, plot.y):
                self._along[axis] += renderers
        for tooltips, renderers in by_tooltips.items():
            if tooltips:
                look = {"point_policy": "follow_mouse", "mode": plot.hover_mode}
                drawing.add_tools(HoverTool(tooltips=list(tooltips), renderers=renderers, **look))
        if plot.has_legend:
            legend = drawing.legend[0]
            drawing.add_layout(legend, "above")
            legend.update(orientation="horizontal", padding=0, margin=2, spacing=12, ncols=3)
            legend.update(background_fill_alpha=0, border_line_alpha=0)
            legend.update(**{f"label_{name}": look for name, look in TEXTS.items()})
        self.texts[plot.name] = text(f"<h3>{plot.title}</h3>")
        return column(self.texts[plot.name], drawing, sizing_mode="stretch_width", min_width=280)


def dress(axis: Any, table: Axis) -> None:
    """Gives Bokeh's axis its label, texts and ticks."""
    for part in ("axis_label", "major_label"):
        axis.update(**{f"{part}_{name}": look for name, look in TEXTS.items()})
    axis.update(axis_label=table.label or None, axis_label_text_font_style="normal")
    axis.update(
        major_label_policy=NoOverlap(),
        axis_line_color=INK,
        major_tick_line_color=INK,
        minor_tick_line_color=None,
    )
    if table.ticks is not None:
        table.ticks(axis)


def latest(records: Any, count: int) -> list[Any]:
    """The latest records of a sequence or deque, oldest first."""
    return list(islice(reversed(records), max(count, 0)))[::-1]


def text(markup: str = "") -> Div:
    """A piece of HTML, which the caller has escaped; nothing in it is mathematics."""
    look: Any = {"css_classes": ["daskgrad"], "stylesheets": [SHEET]}
    return Div(text=markup, disable_math=True, sizing_mode="stretch_width", **look)


SHEET = f"""
:host {{ color: light-dark(#222, #E4E4E4); font: 14px/1.45 {FONT}; }}
.bk-clearfix {{ display: block !important; overflow-x: auto; }}
table {{ border-collapse: collapse; }}
th {{ text-align: left; font-weight: 600; opacity: .75; }}
th, td {{ padding: 2px 18px 2px 0; font-variant-numeric: tabular-nums; white-space: nowrap; }}
td.number, th.number {{ text-align: right; }}
h3 {{ margin: 8px 0 4px; font-size: 14px; color: {INK}; }}
.empty {{ padding: 48px 16px; text-align: center; opacity: .8; }}
code {{ font-size: 13px; }}
"""


def empty(sentence: str, code: str) -> Div:
    """A text in the place of the figures until there is something to draw."""
    lines = f"{escaped(sentence)}<br><code>{escaped(code)}</code>"
    return text(f'<div class="empty">{lines}</div>')


def shortened(name: str, longest: int = 26) -> str:
    return name if len(name) <= longest else name[: longest - 1] + "…"


def bare(address: str) -> str:
    """A worker's address without its protocol."""
    return address.partition("://")[2] or address
