"""Graph: the forward graph on the left, and its mirror, the backward graph, on the right."""

import functools
import itertools
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace

from daskgrad.autodiff.values import descriptions
from daskgrad.dashboards.pages import plots
from daskgrad.dashboards.pages.gradient import current_of
from daskgrad.dashboards.palette import INK
from daskgrad.dashboards.recorder import EvaluationRecord, GraphNode, Recorder

WIDEST = 24  # tasks side by side; of a wider graph a dot is a stage and model
LABELLED = 60  # names at most
DOWN = ("forward", "value", "tangent")  # the stages of the forward graph

STATES = {  # opacity of the filling, and width of the outline
    "waiting": (0.0, 1.2),
    "running": (0.35, 3.5),
    "done": (1.0, 1.2),
    "released": (0.45, 1.2),
    "failed": (1.0, 3.5),
}
LEGEND = (
    "<b>Left</b>: forward, downwards. <b>Right</b>: backward, upwards, each task at the height of "
    "the one that it pulls back. Hollow: waiting; thick outline: running; full: done; pale: done "
    "and released."
)
GROUPED = " One node stands for all tasks of a stage and model."

Nodes = Mapping[Hashable, GraphNode]
Places = Mapping[Hashable, tuple[float, float]]

SPAN = functools.partial(plots.around, margin=0.08)
EDGES = {"line_color": INK, "line_alpha": 0.55, "line_dash": "dash"}
NODES = {"fill_color": "fill", "fill_alpha": "alpha", "line_color": "line", "line_width": "width"}
GRAPH = plots.Plot(
    "graph",
    "",
    plots.Axis("", "x", SPAN, ticks=lambda axis: axis.update(visible=False)),
    plots.Axis("", "y", SPAN, ticks=lambda axis: axis.update(visible=False)),
    [
        plots.glyph("segment", "edges", "x0 y0 x1 y1", **EDGES),
        plots.glyph("scatter", "nodes", "x y", size=16, **NODES),
        plots.labels("names", x="x", y="y", text_align="center", y_offset="offset"),
    ],
    height=560,
    has_grid=False,
    tools="pan,wheel_zoom,reset,save",
)


def draw(view: plots.View) -> None:
    evaluation = current_of(view.recorder, view.is_report)
    assert evaluation is not None
    nodes = None if evaluation.nodes is None else drawn_tasks(evaluation.nodes)
    places = {} if nodes is None else places_of(nodes)
    widths = Counter([y for _, y in places.values()]).values()
    is_grouped = nodes is None or max(widths) > WIDEST
    if is_grouped:
        nodes = groups(view.recorder, evaluation)
        places = places_of(nodes)
    assert nodes is not None
    view.write("header", LEGEND + (GROUPED if is_grouped else ""))
    view.put("nodes", [dot(view, node, places[key]) for key, node in nodes.items()])
    view.put("names", names(view.recorder, nodes, places))
    pairs = [(s, key) for key, node in nodes.items() for s in node.inputs if s in nodes]
    edges = [
        (*places[source], *places[key], dash)
        for source, key in pairs
        if (dash := dash_of(nodes[source], nodes[key], places[source][1] == places[key][1]))
    ]
    view.put("edges", edges)


def dot(view: plots.View, node: GraphNode, place: tuple[float, float]) -> tuple:
    alpha, width = STATES[node.state]
    colour = view.colour(node.model, node.stage)
    fill = plots.FAILED if node.state == "failed" else colour
    model, took = view.recorder.called(node.model), descriptions.seconds(node.seconds)
    texts = (model, node.stage, node.state, took, node.worker, node.tasks or "1")
    return (*place, fill, colour, width, alpha, *texts)


def names(recorder: Recorder, nodes: Nodes, places: Places) -> list[tuple]:
    """One name for neighbours with one stage and model, above the first; of two close names
    the second is higher."""
    rows = []
    xs = [x for x, _ in places.values()]
    room = (max(xs, default=0.0) - min(xs, default=0.0)) / 6
    in_layers = sorted(nodes, key=lambda key: places[key][::-1])
    for y, layer in itertools.groupby(in_layers, lambda key: places[key][1]):
        kinds = itertools.groupby(layer, lambda key: (nodes[key].model, nodes[key].stage))
        last, is_higher = -math.inf, False
        for (model, _), neighbours in kinds:
            keys = list(neighbours)
            count = f" × {len(keys)}" if len(keys) > 1 else nodes[keys[0]].tasks
            name = f"{plots.shortened(recorder.called(model), 18)}{count}"
            x = places[keys[0]][0]
            is_higher, last = x - last < room and not is_higher, x
            rows.append((x, y, name, -24 if is_higher else -11))
    return rows if len(rows) <= LABELLED else []


def drawn_tasks(nodes: Nodes) -> Nodes:
    """Leaves out tasks that only hold a model, which several others take in."""
    models = {node.model for node in nodes.values() if node.stage == "forward"}
    return {
        key: node
        for key, node in nodes.items()
        if node.stage != "value" or node.inputs or node.model not in models
    }


def groups(recorder: Recorder, evaluation: EvaluationRecord) -> Nodes:
    """A node for all tasks of a stage and model."""
    nodes = {}
    for kind, count in evaluation.counts.items():
        stage, model = kind
        done, total = count.shown
        state = "done" if done == total else "running" if done else "waiting"
        node = GraphNode(stage, model, [], "failed" if count.failed else state, "all workers")
        node.tasks = f" {done:,} / {total:,}"
        if model in recorder.models:
            node.seconds = recorder.models[model].seconds.get(stage, 0.0)
        nodes[kind] = node
    for source, target in sorted(evaluation.edges):
        if source != target:
            nodes[target] = replace(nodes[target], inputs=[*nodes[target].inputs, source])
    return nodes


def dash_of(source: GraphNode, target: GraphNode, is_beside: bool) -> str | None:
    """Dashed is the edge from a forward task to its backward task; no other edge goes across."""
    if source.stage not in DOWN or target.stage in DOWN:
        return "solid"
    return "4 4" if is_beside and source.model == target.model else None


# ------------------------------------------------------------------------------------------ layout


def places_of(nodes: Nodes) -> dict[Hashable, tuple[float, float]]:
    """Forward nodes in layers downwards, backward ones mirrored on the right."""
    depths = depths_of(nodes)
    down = [key for key in nodes if nodes[key].stage in DOWN]
    up = [key for key in nodes if nodes[key].stage not in DOWN]
    left = spread(nodes, sorted(down, key=depths.__getitem__), depths)
    right = spread(nodes, sorted(up, key=depths.__getitem__, reverse=True), depths)
    width = max([abs(x) for x in [*left.values(), *right.values()]], default=0.0)
    rows = {depth: -float(row) for row, depth in enumerate(sorted({*depths.values()}))}
    places = {key: (x - width - 1.0, rows[depths[key]]) for key, x in left.items()}
    return places | {key: (width + 1.0 - x, rows[depths[key]]) for key, x in right.items()}


def depths_of(nodes: Nodes) -> dict[Hashable, float]:
    """The layer of each node: a backward task is beside its forward task."""
    depths: dict[Hashable, float] = {}
    for key in inputs_first(nodes):
        node = nodes[key]
        known = [source for source in node.inputs if source in depths]
        down = [depths[source] for source in known if nodes[source].stage in DOWN]
        up = [depths[source] for source in known if nodes[source].stage not in DOWN]
        if node.stage in DOWN:
            depths[key] = max(down, default=-1.0) + 1.0
        elif node.stage == "backward" and down:
            depths[key] = max(down)
        else:
            depths[key] = min(up, default=max(down, default=0.0)) - 0.5
    return depths


def inputs_first(nodes: Nodes) -> list[Hashable]:
    """The nodes, each after its inputs; groups may be inputs of each other, in a circle."""
    ordered: dict[Hashable, None] = {}
    for first in nodes:
        stack, begun = [first], set()
        while stack:
            key = stack[-1]
            begun.add(key)
            inputs = nodes[key].inputs
            missing = [s for s in inputs if s in nodes and s not in ordered and s not in begun]
            if missing:
                stack.extend(missing)
            else:
                ordered[stack.pop()] = None
    return list(ordered)


def spread(
    nodes: Nodes, keys: Iterable[Hashable], depths: Mapping[Hashable, float]
) -> dict[Hashable, float]:
    """The place of each node in its layer, near its inputs; layers come after their inputs'."""
    places: dict[Hashable, float] = {}

    def wanted(key: Hashable) -> float:
        near = [places[source] for source in nodes[key].inputs if source in places]
        return sum(near) / len(near) if near else 0.0

    for _, neighbours in itertools.groupby(keys, depths.__getitem__):
        layer = sorted(neighbours, key=wanted)
        places |= {key: n - (len(layer) - 1) / 2 for n, key in enumerate(layer)}
    return places


PAGE = plots.Page(
    "Graph",
    "gradient-graph",
    {
        "nodes": "x y fill line width alpha | model stage state took where tasks",
        "edges": "x0 y0 x1 y1 dash",
        "names": "x y text offset",
    },
    ["header", GRAPH],
    draw,
    lambda recorder: bool(recorder.evaluations),
    (
        "No graph has been evaluated yet. Call, for example:",
        "dg.value_and_grad(lambda x: loss(layer(x)))(x)",
    ),
)
