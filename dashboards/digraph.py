"""Digraph: a forward graph on the left and its mirror on the right, laid out by Graphviz.

A backward task stands beside its forward task: in the text of the picture the edges of the backward
graph go the other way round, so that both graphs have the same ranks.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import graphviz

from daskgrad.dashboards.drawing import BACK, Box, boxed, hues_of, is_light, stage_of
from daskgrad.dashboards.palette import INK, shade

FONT = "Helvetica"


class DrawnGraph(graphviz.Digraph):
    """A picture; ``count`` tasks are drawn."""

    count = 0

    def __str__(self) -> str:
        return f"<picture of {self.count:,} tasks: notebooks show it, .source is its text>"


def draw(
    inputs: Mapping[Any, Sequence[Any]],
    pairs: Mapping[Any, Any],
    results: Mapping[Any, str],
    filename: str | None,
) -> graphviz.Digraph:
    """The picture of tasks and variables, from their inputs, which come first, and their results.

    ``pairs``: for each variable the task that returns its cotangent, if there is one.
    """
    boxes, texts, ends = boxed(inputs, pairs, results)
    looks = {"newrank": "true", "nodesep": "0.3", "ranksep": "0.35", "bgcolor": "transparent"}
    picture = DrawnGraph(
        graph_attr=looks,
        node_attr={"fontname": FONT, "fontsize": "11", "style": "filled", "margin": "0.12,0.05"},
        edge_attr={"color": INK, "arrowsize": "0.7"},
    )
    picture.count = len(inputs)
    hues = hues_of(boxes)
    for name in ("forward", "backward"):
        with picture.subgraph(name=f"cluster_{name}", graph_attr={"color": "transparent"}) as side:
            for number, box in boxes.items():
                if (box.stage in BACK) == (name == "backward"):
                    add_box(side, number, box, texts[number], hues[box.model])
    add_edges(picture, boxes)
    add_mirror(picture, boxes, ends)
    if filename is not None:
        path = pathlib.Path(filename)
        path.write_bytes(picture.pipe(format=path.suffix[1:]))
    return picture


def add_box(
    picture: graphviz.Digraph, number: int, box: Box, text: Sequence[str], hue: int
) -> None:
    colour = shade(hue, box.stage)
    picture.node(
        str(number),
        label=graphviz.nohtml(r"\n".join(map(graphviz.escape, text))),
        shape="ellipse" if box.is_end else "box",
        fillcolor=colour,
        color=shade(hue, "backward"),
        fontcolor="#000000" if is_light(colour) else "#FFFFFF",
        tooltip=graphviz.escape(f"{stage_of(box)} of {box.model}"),
    )


def add_edges(picture: graphviz.Digraph, boxes: Mapping[int, Box]) -> None:
    for number, box in boxes.items():
        for source in sorted(box.inputs):
            if box.stage not in BACK:
                picture.edge(str(source), str(number))
            elif boxes[source].stage in BACK:
                picture.edge(str(number), str(source), dir="back")


def add_mirror(
    picture: graphviz.Digraph, boxes: Mapping[int, Box], ends: Mapping[int, int]
) -> None:
    """Puts backward beside forward tasks, and cotangents beside their variables."""
    sources = {number: box.source for number, box in boxes.items() if box.source is not None}
    pairs = {(source, number): "dashed" for number, source in sources.items()}
    for (left, right), style in (pairs | dict.fromkeys(ends.items(), "invis")).items():
        with picture.subgraph(graph_attr={"rank": "same"}) as row:
            row.edge(str(left), str(right), style=style, color=INK)
