"""Memory: what the workers hold for gradients, worker by worker and over time, and their limits."""

from typing import Any

from bokeh.models import FixedTicker

from daskgrad.autodiff.values import descriptions
from daskgrad.dashboards.pages import ranges, style
from daskgrad.dashboards.pages.view import View, replace, source_of
from daskgrad.dashboards.palette import HUES, INK, shade

SHOWN = 40  # workers
KINDS = tuple(style.KINDS)
BARS = ("left", "right", "y", "colour", "kind", "size", "worker")
MARKS = ("x", "y", "worker", "size")
TIMES = ("when", *KINDS, "spilled", "process", *[f"{kind} size" for kind in (*KINDS, "spilled")])


class MemoryView(View):
    """The page *Memory*."""

    nothing = (
        "No worker has held anything for a gradient yet. Local schedulers are not sampled: this "
        "page is for a cluster.",
        "dg.dashboards.mount(client)",
    )

    @property
    def has_something(self) -> bool:
        return bool(self.recorder.memory)

    def build(self) -> list[Any]:
        self.header = style.text()
        self.bars, self.used, self.limits = source_of(*BARS), source_of(*MARKS), source_of(*MARKS)
        self.times = source_of(*TIMES)
        return [self.header, self._workers(), self._over_time()]

    def _workers(self) -> Any:
        made = self.workers = style.plot("Held on each worker now", "bytes", "worker", height=240)
        made.ygrid.visible = False
        style.byte_axis(made.xaxis)
        bars = made.hbar(
            y="y",
            left="left",
            right="right",
            height=0.6,
            fill_color="colour",
            line_color=None,
            source=self.bars,
            legend_field="kind",
        )
        used = made.scatter(
            "x",
            "y",
            marker="diamond",
            size=12,
            fill_color=None,
            line_color=INK,
            line_width=2,
            source=self.used,
            legend_label="used by the process",
        )
        style.hover(made, [("kind", "@kind"), ("size", "@size"), ("worker", "@worker")], [bars])
        style.hover(made, [("process uses", "@size"), ("worker", "@worker")], [used])
        self._limits(made)
        style.legend(made)
        return made

    def _limits(self, made: Any) -> None:
        limits = made.scatter(
            "x",
            "y",
            marker="dash",
            size=26,
            angle=1.5708,
            line_color=HUES[1],
            line_width=3,
            source=self.limits,
            legend_label="limit",
        )
        style.hover(made, [("limit", "@size"), ("worker", "@worker")], [limits])

    def _over_time(self) -> Any:
        made = self.over_time = style.plot(
            "Held by all workers over time",
            "seconds since recording began (s)",
            "bytes",
            height=280,
        )
        style.byte_axis(made.yaxis)
        colours = [shade(0, style.KINDS[kind]) for kind in KINDS]
        areas = made.varea_stack(
            KINDS, x="when", source=self.times, color=colours, legend_label=list(KINDS)
        )
        spilled = made.line(
            "when",
            "spilled",
            source=self.times,
            line_color=HUES[1],
            line_width=2,
            line_dash="dashed",
            legend_label="spilled to disk",
        )
        sizes = [(kind, f"@{{{kind} size}}") for kind in (*KINDS, "spilled")]
        style.hover(made, [("at", "@when{0.0} s"), *sizes], [spilled])
        made.hover.mode = "vline"
        style.legend(made)
        assert areas
        return made

    def draw(self) -> None:
        sample, begin = self.recorder.memory[-1], self.recorder.begin
        self._draw_workers(sample)
        rows = []
        for each in self.recorder.memory:
            sums = [sum([held.get(kind, 0) for held in each.held.values()]) for kind in KINDS]
            spilled = sum([held.get("spilled", 0) for held in each.held.values()])
            process = sum([held.get("process", 0) for held in each.held.values()])
            told = map(descriptions.nbytes, (*sums, spilled))
            rows.append((each.when - begin, *sums, spilled, process, *told))
        replace(self.times, rows, TIMES)
        ranges.show(self.over_time.x_range, *ranges.around([row[0] for row in rows]))
        highest = max([max(sum(row[1 : 1 + len(KINDS)]), row[1 + len(KINDS)]) for row in rows])
        ranges.show(self.over_time.y_range, 0, 1.06 * max(highest, 1))
        spilled = sum([held.get("spilled", 0) for held in sample.held.values()])
        self.header.text = (
            f"<b>{descriptions.nbytes(sum(rows[-1][1 : 1 + len(KINDS)]))}</b> held for gradients · "
            f"{descriptions.nbytes(spilled)} spilled to disk · {sample.traced_again:,} traced again"
        )

    def _draw_workers(self, sample: Any) -> None:
        bars, used, limits = [], [], []
        for y, (address, held) in enumerate(list(sample.held.items())[:SHOWN]):
            left = 0
            for kind in KINDS:
                size = held.get(kind, 0)
                if size:
                    colour = shade(0, style.KINDS[kind])
                    told = (colour, kind, descriptions.nbytes(size), address)
                    bars.append((left, left + size, y + 0.5, *told))
                    left += size
            process, limit = held.get("process", 0), sample.limits.get(address, 0)
            used.append((process, y + 0.5, address, descriptions.nbytes(process)))
            if limit:
                limits.append((limit, y + 0.5, address, descriptions.nbytes(limit)))
        made, count = self.workers, max(len(used), 1)
        made.height = 150 + 30 * count
        widest = max([1, *[each[0] for each in (*used, *limits)]])
        ranges.show(made.x_range, 0, 1.06 * widest)
        ranges.show(made.y_range, 0, count)
        made.yaxis.ticker = FixedTicker(ticks=[n + 0.5 for n in range(count)])
        made.yaxis.major_label_overrides = {
            y: style.shown_worker(address) for _, y, address, _ in used
        }
        replace(self.bars, bars, BARS)
        replace(self.used, used, MARKS)
        replace(self.limits, limits, MARKS)
