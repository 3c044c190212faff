"""Models: what each model costs: forward and backward, item by item, worker by worker."""

import math
from typing import Any

from bokeh.models import FactorRange

from daskgrad.autodiff.values import descriptions
from daskgrad.dashboards.grains import grains
from daskgrad.dashboards.pages import ranges, style
from daskgrad.dashboards.pages.view import MODELS, View, replace, source_of
from daskgrad.dashboards.palette import INK
from daskgrad.dashboards.recorder import BlockCost, Costs

SLOWEST = 10
STAGES = ("forward", "value", "cotangent", "backward", "call")
BINS = 4  # of the histogram, a factor of ten
LONGEST_LANE = 20  # workers in the picture of the balance

TIMES = ("left", "right", "model", "colour", "name", "stage", "took", "count", "each")
COSTS = ("left", "right", "bottom", "top", "colour", "model", "range", "items")
LOADS = ("left", "right", "worker", "colour", "model", "took")


class ModelsView(View):
    """The page *Models*."""

    @property
    def has_something(self) -> bool:
        return bool(self.recorder.models)

    def build(self) -> list[Any]:
        self.times, self.costs, self.balance = map(source_of_all, (TIMES, COSTS, LOADS))
        self.slowest, self.grains = style.text(), style.text()
        return [self._time_plot(), self._cost_plot(), self._load_plot(), self.slowest, self.grains]

    def _time_plot(self) -> Any:
        made = self.time_plot = style.plot(
            "Time by model: forward light, backward dark, direct calls (both) in full colour",
            "seconds in tasks and calls, all workers (s)",
            "model",
            y_range=FactorRange(),
        )
        made.ygrid.visible = False
        bars = made.hbar(
            y="model",
            left="left",
            right="right",
            height=0.7,
            fill_color="colour",
            line_color="colour",
            source=self.times,
        )
        rows = [("model", "@name"), ("stage", "@stage"), ("took", "@took in all, @each each")]
        style.hover(made, [*rows, ("tasks or calls", "@count")], [bars])
        return made

    def _cost_plot(self) -> Any:
        made = self.cost_plot = style.plot(
            "Cost of an item in the latest direct calls",
            "an item takes (log scale)",
            "items",
            x_range=ranges.fixed(1e-6, 1.0),
            x_axis_type="log",
        )
        style.seconds_axis(made.xaxis)
        bars = made.quad(
            left="left",
            right="right",
            bottom="bottom",
            top="top",
            fill_color="colour",
            line_color=INK,
            fill_alpha=0.75,
            source=self.costs,
            legend_field="model",
        )
        style.legend(made)
        rows = [("model", "@model"), ("an item takes", "@range"), ("items", "@items")]
        style.hover(made, rows, [bars])
        return made

    def _load_plot(self) -> Any:
        made = self.load_plot = style.plot(
            "Balance: time on each worker",
            "seconds in tasks and calls (s)",
            "worker",
            y_range=FactorRange(),
        )
        made.ygrid.visible = False
        bars = made.hbar(
            y="worker",
            left="left",
            right="right",
            height=0.7,
            fill_color="colour",
            line_color="colour",
            source=self.balance,
        )
        rows = [("worker", "@worker"), ("model", "@model"), ("took", "@took")]
        style.hover(made, rows, [bars])
        return made

    def draw(self) -> None:
        models = self.recorder.models
        shown = sorted(models, key=lambda model: -seconds_of(models[model]))[:MODELS]
        self._draw_times(shown)
        self._draw_loads(shown)
        measured = {model: models[model] for model in shown if models[model].blocks}
        self.cost_plot.visible = bool(measured)
        self._draw_costs(measured)
        self.slowest.text = self._slowest_table(measured)
        self.grains.text = "".join([self._grain_table(*each) for each in measured.items()])

    def _draw_times(self, shown: list[str]) -> None:
        bars = []
        for model in shown:
            left, name = 0.0, self.recorder.called(model)
            for stage in (stage for stage in STAGES if stage in self.recorder.models[model].stages):
                count, spent, _ = self.recorder.models[model].stages[stage]
                told = (
                    stage,
                    descriptions.seconds(spent),
                    f"{count:,}",
                    descriptions.seconds(spent / count),
                )
                colour = self.colour(model, stage)
                bars.append((left, left + spent, style.shortened(name), colour, name, *told))
                left += spent
        made = self.time_plot
        made.y_range.factors = list(dict.fromkeys([bar[2] for bar in bars]))[::-1]
        made.height = 110 + 30 * len(shown)
        ranges.show(made.x_range, 0, 1.03 * max([bar[1] for bar in bars], default=1.0))
        replace(self.times, bars, TIMES)

    def _draw_loads(self, shown: list[str]) -> None:
        by_worker: dict[str, list[tuple[str, float]]] = {}
        for model in shown:
            for spent in self.recorder.models[model].workers.values():
                for worker, seconds in spent.items():
                    by_worker.setdefault(worker, []).append((model, seconds))
        bars = []
        for worker, spent_by_model in list(by_worker.items())[:LONGEST_LANE]:
            left = 0.0
            for model, seconds in spent_by_model:
                told = (self.recorder.called(model), descriptions.seconds(seconds))
                place = (left, left + seconds, style.shown_worker(worker))
                bars.append((*place, self.colour(model, "call"), *told))
                left += seconds
        made = self.load_plot
        made.y_range.factors = list(dict.fromkeys([bar[2] for bar in bars]))[::-1]
        made.height = 110 + 30 * len(made.y_range.factors)
        ranges.show(made.x_range, 0, 1.03 * max([bar[1] for bar in bars], default=1.0))
        replace(self.balance, bars, LOADS)

    def _draw_costs(self, measured: dict[str, Costs]) -> None:
        bars = []
        for model, costs in measured.items():
            counts: dict[int, int] = {}
            for block in costs.blocks.values():
                place = math.floor(BINS * math.log10(max(item_seconds(block), 1e-9)))
                counts[place] = counts.get(place, 0) + block.items
            for place, count in counts.items():
                left, right = 10 ** (place / BINS), 10 ** ((place + 1) / BINS)
                between = f"{descriptions.seconds(left)} to {descriptions.seconds(right)}"
                named = (self.colour(model, "call"), self.recorder.called(model), between)
                bars.append((left, right, 0, count, *named, f"{count:,}"))
        if bars:
            fastest, slowest = min([bar[0] for bar in bars]), max([bar[1] for bar in bars])
            ranges.show(self.cost_plot.x_range, fastest / 2, slowest * 2)
            ranges.show(self.cost_plot.y_range, 0, 1.06 * max([bar[3] for bar in bars]))
        replace(self.costs, bars, COSTS)

    def _slowest_table(self, measured: dict[str, Costs]) -> str:
        found = [
            (block, model) for model, costs in measured.items() for block in costs.blocks.values()
        ]
        found.sort(key=lambda each: -item_seconds(each[0]))
        rows = [
            (
                self.recorder.called(model),
                items_of(block),
                descriptions.seconds(item_seconds(block)),
                style.shown_worker(block.worker),
            )
            for block, model in found[:SLOWEST]
        ]
        head = ("model", "items", "an item takes", "worker")
        return descriptions.table("The slowest items, in the latest direct calls", head, rows)

    def _grain_table(self, model: str, costs: Costs) -> str:
        found = grains(costs.blocks.values(), self.recorder.workers)
        first = next(iter(costs.blocks.values()))
        rows = [
            (
                f"{each.unit * first.items:,}" + (" (chosen)" if each.unit == costs.unit else ""),
                descriptions.seconds(each.seconds),
            )
            for each in found
        ]
        name = self.recorder.called(model)
        title = f"{name}: items in one go of a thread, and the estimated time of a call"
        return descriptions.table(title, ("items", "a call takes"), rows)


def source_of_all(names: tuple[str, ...]) -> Any:
    return source_of(*names)


def seconds_of(costs: Costs) -> float:
    return sum([spent for _, spent, _ in costs.stages.values()])


def item_seconds(block: BlockCost) -> float:
    return block.seconds / block.items


def items_of(block: BlockCost) -> str:
    last = block.first + block.items - 1
    return f"{block.first}" if block.items == 1 else f"{block.first} to {last}"
