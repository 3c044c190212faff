"""Graph: the forward graph on the left, and its mirror, the backward graph, on the right."""

import itertools
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

from daskgrad.autodiff.values import descriptions
from daskgrad.dashboards.pages import ranges, style
from daskgrad.dashboards.pages.view import View, replace, source_of
from daskgrad.dashboards.palette import INK
from daskgrad.dashboards.recorder import Evaluation, GraphNode

MARGIN = 0.06  # of the figure, around the nodes
LABELLED = 60  # names at most: one for the tasks of a stage and model that are side by side
DOWN = ("forward", "value", "tangent")  # the stages of the forward graph
NAMES = ("x", "y", "text")
NODES: tuple[str, ...] = (
    "x",
    "y",
    "fill",
    "line",
    "width",
    "alpha",
    "model",
    "stage",
    "state",
    "took",
)
NODES += ("worker", "count")
EDGES = ("x0", "y0", "x1", "y1", "dash")

STATES = {  # opacity of the filling, and width of the outline
    "waiting": (0.0, 1.2),
    "running": (0.35, 3.5),
    "done": (1.0, 1.2),
    "released": (0.45, 1.2),
    "failed": (1.0, 3.5),
}


class Shown(NamedTuple):
    """A node as it is drawn: a task, or all tasks of a stage and model."""

    stage: str
    model: str
    state: str
    inputs: list[Hashable]
    took: str
    worker: str
    tasks: str


class GraphView(View):
    """The page *Graph*."""

    nothing = (
        "No graph has been evaluated yet: sums over placed items are called directly, and have "
        "none. Others have one, for example:",
        "dg.value_and_grad(lambda x: loss(layer(x)))(x)",
    )

    @property
    def has_something(self) -> bool:
        return bool(self.recorder.evaluations)

    def build(self) -> list[Any]:
        self.header = style.text()
        self.nodes, self.edges = source_of(*NODES), source_of(*EDGES)
        self.names = source_of(*NAMES)
        made = self.figure = style.plot("", "", "", height=560, tools="pan,wheel_zoom,reset,save")
        made.axis.visible = made.grid.visible = False
        made.segment(
            "x0",
            "y0",
            "x1",
            "y1",
            source=self.edges,
            line_color=INK,
            line_alpha=0.55,
            line_dash="dash",
        )
        nodes = self._circles = made.scatter(
            "x",
            "y",
            source=self.nodes,
            size=16,
            fill_color="fill",
            fill_alpha="alpha",
            line_color="line",
            line_width="width",
        )
        rows = [("model", "@model"), ("stage", "@stage"), ("state", "@state"), ("took", "@took")]
        style.hover(made, [*rows, ("where", "@worker"), ("tasks", "@count")], [nodes])
        style.labels(made, self.names, text_align="center", y_offset=11)
        return [self.header, made]

    def draw(self) -> None:
        current = self.current
        assert current is not None
        shown = self._tasks(current.nodes) if current.nodes is not None else self._groups(current)
        self.header.text = (
            "<b>Left</b>: forward, downwards. <b>Right</b>: backward, upwards, each task at the "
            "height of the one that it pulls back. Hollow: waiting; thick outline: running; "
            "full: done; pale: done and released."
        )
        if current.nodes is None:
            self.header.text += " One node stands for all tasks of a stage and model."
        self._draw(shown, places_of(shown))

    def _draw(self, shown: dict[Hashable, Shown], places: dict[Hashable, Any]) -> None:
        xs, ys = zip(*places.values(), strict=True)
        ranges.show(self.figure.x_range, *ranges.around(xs, MARGIN))
        ranges.show(self.figure.y_range, *ranges.around(ys, MARGIN))
        self._circles.glyph.size = 16 if len(shown) <= 120 else 9
        rows = []
        for key, node in shown.items():
            alpha, width = STATES[node.state]
            colour = self.colour(node.model, node.stage)
            model = self.recorder.called(node.model)
            fill = style.FAILED if node.state == "failed" else colour
            look = (fill, colour, width, alpha, model, node.stage, node.state)
            rows.append((*places[key], *look, node.took, node.worker, node.tasks or "1"))
        replace(self.nodes, rows, NODES)
        replace(self.names, self._names(shown, places), NAMES)
        edges = [
            (*places[source], *places[key], dash_of(shown[source], node))
            for key, node in shown.items()
            for source in node.inputs
            if source in shown and is_drawn(places[source], places[key], shown[source], node)
        ]
        replace(self.edges, edges, EDGES)

    def _names(self, shown: dict[Hashable, Shown], places: dict[Hashable, Any]) -> list[tuple]:
        """One name for neighbours in a layer that are of one stage and model."""

        def kind(key: Hashable) -> tuple[float, str, str]:
            return places[key][1], shown[key].stage, shown[key].model

        rows = []
        in_layers = sorted(shown, key=lambda key: places[key][::-1])
        for (y, _, model), neighbours in itertools.groupby(in_layers, kind):
            keys = list(neighbours)
            many = f" × {len(keys)}" if len(keys) > 1 else ""
            count = shown[keys[0]].tasks
            name = f"{style.shortened(self.recorder.called(model), 18)}{many} {count}".strip()
            rows.append(((places[keys[0]][0] + places[keys[-1]][0]) / 2, y, name))
        return rows if len(rows) <= LABELLED else []

    def _tasks(self, nodes: Mapping[Hashable, GraphNode]) -> dict[Hashable, Shown]:
        """All tasks but those that only hold a model, which several others take in."""
        models = {node.model for node in nodes.values() if node.stage == "forward"}
        return {
            key: Shown(
                node.stage,
                node.model,
                node.state,
                list(node.inputs),
                descriptions.seconds(node.seconds),
                node.worker,
                "",
            )
            for key, node in nodes.items()
            if node.stage != "value" or node.inputs or node.model not in models
        }

    def _groups(self, evaluation: Evaluation) -> dict[Hashable, Shown]:
        inputs: dict[Any, list[Hashable]] = {}
        for source, target in evaluation.edges:
            if source != target:
                inputs.setdefault(target, []).append(source)
        shown: dict[Hashable, Shown] = {}
        for kind, count in evaluation.counts.items():
            done = min(count.done, count.total)
            state = "running" if done else "waiting"
            state = "failed" if count.failed else "done" if done == count.total else state
            costs = self.recorder.models.get(kind[1])
            spent = [0, 0.0] if costs is None else costs.stages.get(kind[0], [0, 0.0])
            told = (descriptions.seconds(spent[1]), "all workers", f"{done:,} / {count.total:,}")
            stage, model = kind
            shown[kind] = Shown(stage, model, state, inputs.get(kind, []), *told)
        return shown


def is_drawn(start: Any, stop: Any, source: Shown, target: Shown) -> bool:
    """Of what goes from the forward to the backward graph, only a task's own pullback."""
    is_across = source.stage in DOWN and target.stage not in DOWN
    return not is_across or (start[1] == stop[1] and source.model == target.model)


def dash_of(source: Shown, target: Shown) -> str:
    """Dashed is what goes from the forward graph to the backward graph: pullbacks."""
    is_across = source.stage in DOWN and target.stage not in DOWN
    return "4 4" if is_across else "solid"


def places_of(shown: Mapping[Hashable, Shown]) -> dict[Hashable, tuple[float, float]]:
    """Where each node is: forward ones in layers downwards, backward ones mirrored on the right."""
    depths = depths_of(shown)
    forward = {key: depths[key] for key, node in shown.items() if node.stage in DOWN}
    backward = {key: depth for key, depth in depths.items() if key not in forward}
    left = spread(forward, shown)
    right = spread(backward, shown)
    wide = max([abs(x) for x in [*left.values(), *right.values()]], default=0.0)
    places = {key: (x - wide - 1.0, -depths[key]) for key, x in left.items()}
    return places | {key: (wide + 1.0 - x, -depths[key]) for key, x in right.items()}


def depths_of(shown: Mapping[Hashable, Shown]) -> dict[Hashable, float]:
    """The layer of each node: a backward task's is that of its forward task."""
    depths: dict[Hashable, float] = {}
    for key in sorted_nodes(shown):
        node = shown[key]
        known = [source for source in node.inputs if source in depths]
        down = [depths[source] for source in known if shown[source].stage in DOWN]
        up = [depths[source] for source in known if shown[source].stage not in DOWN]
        if node.stage in DOWN:
            depths[key] = max(down, default=-1.0) + 1.0
        elif node.stage == "backward" and down:
            depths[key] = max(down)
        else:
            depths[key] = min(up, default=max(down, default=0.0)) - 0.5
    return depths


def sorted_nodes(shown: Mapping[Hashable, Shown]) -> list[Hashable]:
    """The nodes, each after those that it refers to."""
    done: dict[Hashable, None] = {}
    for first in shown:
        stack, open_nodes = [first], set()
        while stack:
            key = stack[-1]
            waiting = [
                s for s in shown[key].inputs if s in shown and s not in done and s not in open_nodes
            ]
            open_nodes.add(key)
            if waiting:
                stack.extend(waiting)
            else:
                done[stack.pop()] = None
    return list(done)


def spread(
    depths: Mapping[Hashable, float], shown: Mapping[Hashable, Shown]
) -> dict[Hashable, float]:
    """The place of each node in its layer, near those that it refers to."""
    layers: dict[float, list[Hashable]] = {}
    for key, depth in depths.items():
        layers.setdefault(depth, []).append(key)
    places: dict[Hashable, float] = {}
    for depth in sorted(layers, reverse=shown_is_backward(depths, shown)):

        def wanted(key: Hashable) -> float:
            near = [places[source] for source in shown[key].inputs if source in places]
            return sum(near) / len(near) if near else 0.0

        ordered = sorted(layers[depth], key=wanted)
        for number, key in enumerate(ordered):
            places[key] = number - (len(ordered) - 1) / 2
    return places


def shown_is_backward(depths: Mapping[Hashable, float], shown: Mapping[Hashable, Shown]) -> bool:
    return bool(depths) and shown[next(iter(depths))].stage not in DOWN
