"""Drawing: a forward graph on the left and its mirror on the right, laid out by Graphviz.

A backward task stands beside its forward task: in the text of the picture the edges of the backward
graph go the other way round, so that both graphs have the same ranks.
"""

import pathlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import graphviz

from daskgrad.dashboards.palette import INK, channels, shade
from daskgrad.tasks.keys import key_parts, known_name

SEVERAL = 60  # tasks; of a larger graph, tasks with one model, result and inputs are one box
BACK = ("backward", "cotangent")  # the stages of the backward graph
FONT = "Helvetica"


class Box(NamedTuple):
    """A task, or several that do the same with the same inputs."""

    stage: str
    model: str
    result: str
    inputs: frozenset[int]  # the numbers of boxes
    source: int | None = None  # the forward task that a backward task pulls back
    is_end: bool = False  # a variable, or its cotangent


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
    numbers = numbered(inputs, pairs, results)
    boxes = dict(numbers.values())
    counts = Counter([number for number, _ in numbers.values()])
    ends = dict(ended(numbers, pairs, boxes))
    looks = {"newrank": "true", "nodesep": "0.3", "ranksep": "0.35", "bgcolor": "transparent"}
    picture = DrawnGraph(
        graph_attr=looks,
        node_attr={"fontname": FONT, "fontsize": "11", "style": "filled", "margin": "0.12,0.05"},
        edge_attr={"color": INK, "arrowsize": "0.7"},
    )
    picture.count = sum(counts.values())
    models = list(dict.fromkeys([box.model for box in boxes.values()]))
    for name in ("forward", "backward"):
        with picture.subgraph(name=f"cluster_{name}", graph_attr={"color": "transparent"}) as side:
            for number, box in boxes.items():
                if (box.stage in BACK) == (name == "backward"):
                    add_box(side, number, box, counts[number], models.index(box.model))
    add_edges(picture, boxes)
    add_mirror(picture, boxes, ends)
    if filename is not None:
        path = pathlib.Path(filename)
        path.write_bytes(picture.pipe(format=path.suffix[1:]))
    return picture


def numbered(
    inputs: Mapping[Any, Sequence[Any]], pairs: Mapping[Any, Any], results: Mapping[Any, str]
) -> dict[Any, tuple[int, Box]]:
    """The box of each task, and its number; in a large graph equal boxes are one."""
    boxes: dict[Any, tuple[int, Box]] = {}
    known: dict[Any, int] = {}
    for number, (key, sources) in enumerate(inputs.items()):
        parts = key_parts(key)
        if parts is None:
            continue
        forward = [boxes[s][0] for s in sources if s in boxes and boxes[s][1].stage == "forward"]
        is_pulled = parts.stage == "backward" and forward
        box = Box(
            parts.stage,
            known_name(parts.model),
            results.get(key, ""),
            frozenset([boxes[source][0] for source in sources if source in boxes]),
            forward[0] if is_pulled else None,
            key in pairs,
        )
        is_alone = len(inputs) <= SEVERAL or box.is_end
        boxes[key] = known.setdefault(key if is_alone else box, number), box
    return boxes


def ended(
    numbers: Mapping[Any, tuple[int, Box]], pairs: Mapping[Any, Any], boxes: dict[int, Box]
) -> Iterator[tuple[int, int]]:
    """Each variable and its cotangent, which has a box below the task that returns it."""
    for variable, cotangent in pairs.items():
        if variable not in numbers or cotangent not in numbers:
            continue
        (start, box), (stop, last) = numbers[variable], numbers[cotangent]
        if last.stage == "cotangent":
            boxes[stop] = last._replace(is_end=True)
        else:
            stop, inputs = len(numbers) + len(boxes), frozenset([stop])
            boxes[stop] = Box("cotangent", box.model, last.result, inputs, is_end=True)
        yield start, stop


def add_box(picture: graphviz.Digraph, number: int, box: Box, count: int, hue: int) -> None:
    stage = "variable" if box.is_end and box.stage == "value" else box.stage
    colour = shade(hue, box.stage)
    lines = [box.model, stage if count < 2 else f"{stage} × {count:,}", box.result]
    picture.node(
        str(number),
        label=graphviz.nohtml(r"\n".join([graphviz.escape(line) for line in lines if line])),
        shape="ellipse" if box.is_end else "box",
        fillcolor=colour,
        color=shade(hue, "backward"),
        fontcolor="#000000" if is_light(colour) else "#FFFFFF",
        tooltip=graphviz.escape(f"{stage} of {box.model}"),
    )


def is_light(colour: str) -> bool:
    red, green, blue = channels(colour)
    return 0.299 * red + 0.587 * green + 0.114 * blue > 140


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
