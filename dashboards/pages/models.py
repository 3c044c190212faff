"""Models: the time of each model, forward and backward, by item and by worker."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from daskgrad.autodiff.values.descriptions import seconds, table
from daskgrad.dashboards.pages import plots
from daskgrad.dashboards.palette import INK
from daskgrad.dashboards.recorder import BlockCost, Costs

SLOWEST = 10
STAGES = ("forward", "value", "tangent", "cotangent", "backward", "call")
BINS = 4  # of the histogram, a factor of ten
WORKERS = 20  # in the picture of the balance

TIMES = plots.Plot(
    "times",
    "Time by model: forward light, backward dark, direct calls (both) in full colour",
    plots.Axis("seconds in tasks and calls, all workers (s)", "right", plots.from_zero),
    plots.Axis("model"),
    [plots.bars("times")],
    lane=30,
)
ITEM = plots.Axis(
    "an item takes (log scale)",
    "left right",
    lambda ends: (min(ends, default=1e-6) / 2, 2 * max(ends, default=1.0)),
    scale="log",
    ticks=plots.in_seconds,
)
COSTS = plots.Plot(
    "costs",
    "Cost of an item or a step in the latest evaluation",
    ITEM,
    plots.Axis("items", "top", plots.from_zero),
    [plots.bars("costs", line_color=INK, fill_alpha=0.75, legend_field="model")],
    height=260,
    has_legend=True,
)
BALANCE = plots.Plot(
    "balance",
    "Balance: time on each worker",
    plots.Axis("seconds in tasks and calls (s)", "right", plots.from_zero),
    plots.Axis("worker"),
    [plots.bars("balance")],
    lane=30,
)


def draw(view: plots.View) -> None:
    models = view.recorder.models
    names = sorted(models, key=lambda model: -sum(models[model].seconds.values()))[: plots.MODELS]
    costs = {model: models[model] for model in names}
    view.name_lanes(TIMES, list(map(view.recorder.called, costs)))
    view.put("times", plots.stacked(times(view, costs)))
    workers = list(dict.fromkeys([w for cost in costs.values() for w in cost.workers]))[:WORKERS]
    view.name_lanes(BALANCE, list(map(plots.bare, workers)))
    view.put("balance", plots.stacked(shares(view, costs, workers)))
    view.put("costs", histogram(view, costs))
    view.hide(COSTS, not any([cost.blocks for cost in costs.values()]))
    view.write("slowest", slowest(view, costs) + in_programs(view, costs))


def times(view: plots.View, costs: Mapping[str, Costs]) -> Iterable[tuple]:
    for lane, (model, cost) in enumerate(costs.items()):
        for stage in [stage for stage in STAGES if stage in cost.seconds]:
            spent, count = cost.seconds[stage], cost.counts[stage]
            names = (view.colour(model, stage), view.recorder.called(model), stage)
            yield (lane, spent, *names, seconds(spent), f"{count:,}", seconds(spent / count))


def shares(view: plots.View, costs: Mapping[str, Costs], workers: list[str]) -> Iterable[tuple]:
    for model, cost in costs.items():
        names = (view.colour(model, "call"), view.recorder.called(model))
        for lane, worker in enumerate(workers):
            if worker in cost.workers:
                spent = cost.workers[worker]
                yield (lane, spent, *names, plots.bare(worker), seconds(spent))


def histogram(view: plots.View, costs: Mapping[str, Costs]) -> Iterable[tuple]:
    for model, cost in costs.items():
        counts: Counter[int] = Counter()
        for block in cost.blocks.values():
            counts[math.floor(BINS * math.log10(max(item_seconds(block), 1e-9)))] += block.items
        for place, count in counts.items():
            left, right = 10 ** (place / BINS), 10 ** ((place + 1) / BINS)
            between = f"{seconds(left)} to {seconds(right)}"
            names = (view.colour(model, "call"), view.recorder.called(model), between)
            yield (left, right, 0, count, *names, f"{count:,}")


def slowest(view: plots.View, costs: Mapping[str, Costs]) -> str:
    blocks = [(block, model) for model, cost in costs.items() for block in cost.blocks.values()]
    blocks.sort(key=lambda entry: -item_seconds(entry[0]))
    rows = [
        (
            view.recorder.called(model),
            items_of(block),
            seconds(item_seconds(block)),
            plots.bare(block.worker),
        )
        for block, model in blocks[:SLOWEST]
    ]
    head = ("model", "items", "an item takes", "worker")
    return table("The slowest items and steps in the latest evaluation", head, rows)


def in_programs(view: plots.View, costs: Mapping[str, Costs]) -> str:
    rows = [
        (view.recorder.called(model), f"{cost.counts['program']:,}")
        for model, cost in costs.items()
        if cost.counts["program"]
    ]
    return table("Models within programs, which have one time for all", ("model", "calls"), rows)


def item_seconds(block: BlockCost) -> float:
    return block.seconds / block.items


def items_of(block: BlockCost) -> str:
    last = block.first + block.items - 1
    return f"{block.first}" if block.items == 1 else f"{block.first} to {last}"


PAGE = plots.Page(
    "Models",
    "gradient-models",
    {
        "times": "left right bottom top colour | model stage took tasks_or_calls each",
        "costs": "left right bottom top colour | model an_item_takes items",
        "balance": "left right bottom top colour | model worker took",
    },
    [TIMES, COSTS, BALANCE, "slowest"],
    draw,
    lambda recorder: bool(recorder.models),
)
