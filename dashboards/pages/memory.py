"""Memory: bytes for gradients on each worker, and on all workers over time."""

from collections.abc import Iterable

from daskgrad.autodiff.values.descriptions import nbytes
from daskgrad.dashboards.pages import plots
from daskgrad.dashboards.palette import HUES, shade
from daskgrad.dashboards.recorder import MemorySample

SHOWN = 40  # workers
KINDS = {  # kinds of results, and the stage that gives the colour
    "pullbacks": "forward",
    "values": "value",
    "placed items": "call",
    "cotangents": "cotangent",
    "tangents": "tangent",
}
SIZES = [kind.replace(" ", "_") for kind in [*KINDS, "spilled to disk"]]  # columns
AREAS = {
    "stackers": SIZES[:-1],
    "color": [shade(0, stage) for stage in KINDS.values()],
    "legend_label": list(KINDS),
}
LINE = {"line_color": HUES[1], "line_dash": "dashed", "legend_label": "spilled to disk"}

WORKERS = plots.Plot(
    "workers",
    "Held on each worker now",
    plots.Axis("bytes", "right", plots.from_zero, ticks=plots.in_bytes),
    plots.Axis("worker"),
    [plots.bars("bars", line_color=None, legend_field="kind")],
    height=120,
    lane=36,
    has_legend=True,
)
OVER_TIME = plots.Plot(
    "over time",
    "Held by all workers over time",
    plots.Axis("seconds since recording began (s)", "after", plots.around),
    plots.Axis("bytes", "highest", plots.from_zero, ticks=plots.in_bytes),
    [
        plots.glyph("varea_stack", "times", x="after", **AREAS),
        plots.glyph("line", "times", x="after", y=SIZES[-1], **LINE),
    ],
    height=280,
    has_legend=True,
    hover_mode="vline",
)


def draw(view: plots.View) -> None:
    sample, begin = view.recorder.memory[-1], view.recorder.begin
    workers = list(sample.held)[:SHOWN]
    view.name_lanes(WORKERS, [about(sample, worker) for worker in workers])
    view.put("bars", plots.stacked(parts(sample, workers)))
    rows = []
    for record in view.recorder.memory:
        sizes = [held_in_all(record, kind) for kind in (*KINDS, "spilled")]
        rows.append((record.when - begin, *sizes, max(sum(sizes[:-1]), sizes[-1])))
    view.put("times", rows)
    for item, kind in zip(view.figures["over time"].legend[0].items, SIZES, strict=True):
        item.visible = any(view.sources["times"].data[kind])
    total = sum([held_in_all(sample, kind) for kind in KINDS])
    view.write(
        "header",
        f"<b>{nbytes(total)}</b> held for gradients · "
        f"{nbytes(held_in_all(sample, 'spilled'))} spilled to disk · "
        f"{sample.traced_again:,} traced again",
    )


def parts(sample: MemorySample, workers: list[str]) -> Iterable[tuple]:
    for lane, worker in enumerate(workers):
        for kind, stage in KINDS.items():
            size = sample.held[worker].get(kind, 0)
            if size:
                yield (lane, size, shade(0, stage), kind, nbytes(size), worker)


def about(sample: MemorySample, worker: str) -> str:
    """A label: the worker, the memory of its process, and its limit."""
    usage, limit = sample.held[worker].get("process", 0), sample.limits.get(worker, 0)
    return f"{plots.bare(worker)}\nuses {nbytes(usage)}{f' of {nbytes(limit)}' if limit else ''}"


def held_in_all(sample: MemorySample, kind: str) -> int:
    return sum([held.get(kind, 0) for held in sample.held.values()])


PAGE = plots.Page(
    "Memory",
    "gradient-memory",
    {
        "bars": "left right bottom top colour | kind size worker",
        "times": " ".join(
            ["after", *SIZES, "highest", "| after{0.0}", *[f"{k}{{0.0ib}}" for k in SIZES]]
        ),
    },
    ["header", WORKERS, OVER_TIME],
    draw,
    lambda recorder: bool(recorder.memory),
    (
        "No worker has held anything for a gradient yet. Local schedulers are not sampled: this "
        "page is for a cluster.",
        "dg.dashboards.mount(client)",
    ),
)
