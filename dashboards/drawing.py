"""Drawing: the boxes of a forward graph and its mirror, and the text of a flowchart of them."""

import pathlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from daskgrad.dashboards.palette import channels, hue_of, shade
from daskgrad.tasks.keys import dashboard_name, key_parts, known_name

SEVERAL = 60  # tasks; of a larger graph, tasks with one model, result and inputs are one box
BACK = ("backward", "cotangent")  # the stages of the backward graph


class Box(NamedTuple):
    """A task, or several that do the same with the same inputs."""

    stage: str
    model: str
    result: str
    inputs: frozenset[int]  # the numbers of boxes
    source: int | None = None  # the forward task that a backward task pulls back
    is_end: bool = False  # a variable, or its cotangent


def draw_as_text(
    inputs: Mapping[Any, Sequence[Any]],
    pairs: Mapping[Any, Any],
    results: Mapping[Any, str],
    filename: str | None,
) -> "Mermaid":
    """The boxes as the text of a flowchart."""
    boxes, texts, _ = boxed(inputs, pairs, results)
    hues = hues_of(boxes)
    lines = ["flowchart TD"]
    for name in ("forward", "backward"):
        lines.append(f"  subgraph {name}")
        for number, box in boxes.items():
            if (box.stage in BACK) == (name == "backward"):
                text = "<br>".join([ESCAPED.sub(as_entity, line) for line in texts[number]])
                left, right = ("([", "])") if box.is_end else ("[", "]")
                lines.append(f'    {number}{left}"{text}"{right}')
        lines.append("  end")
    for number, box in boxes.items():
        for source in sorted(box.inputs):
            if box.stage not in BACK or boxes[source].stage in BACK:
                lines.append(f"  {source} --> {number}")
        if box.source is not None:
            lines.append(f"  {box.source} -.- {number}")
    for number, box in boxes.items():
        colour = shade(hues[box.model], box.stage)
        ink = "#000000" if is_light(colour) else "#FFFFFF"
        lines.append(f"  style {number} fill:{colour},color:{ink}")
    text = Mermaid("\n".join(lines) + "\n")
    if filename is not None:
        pathlib.Path(filename).write_text(text, encoding="utf-8")
    return text


class Mermaid(str):
    """The text of a flowchart of Mermaid's, which JupyterLab draws."""

    __slots__ = ()

    __repr__ = str.__str__

    @property
    def source(self) -> str:
        return str(self)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/vnd.mermaid": str(self), "text/plain": str(self)}


ESCAPED = re.compile(r"[^\w ,.()×…-]")


def as_entity(match: re.Match) -> str:
    return f"#{ord(match[0])};"


def boxed(
    inputs: Mapping[Any, Sequence[Any]], pairs: Mapping[Any, Any], results: Mapping[Any, str]
) -> tuple[dict[int, Box], dict[int, list[str]], dict[int, int]]:
    """The boxes by number, their texts, and each variable's box with its cotangent's."""
    numbers = numbered(inputs, pairs, results)
    boxes = dict(numbers.values())
    counts = Counter([number for number, _ in numbers.values()])
    ends = dict(ended(numbers, pairs, boxes))
    texts = {}
    for number, box in boxes.items():
        stage = stage_of(box) + (f" × {counts[number]:,}" if counts[number] > 1 else "")
        texts[number] = [line for line in (box.model, stage, box.result) if line]
    return boxes, texts, ends


def stage_of(box: Box) -> str:
    return "variable" if box.is_end and box.stage == "value" else box.stage


def hues_of(boxes: Mapping[int, Box]) -> dict[str, int]:
    """The number of each model's hue, as on pages."""
    models, hues = sorted({box.model for box in boxes.values()}), dict[str, int]()
    return {model: hue_of(dashboard_name(model), hues) for model in models}


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


def is_light(colour: str) -> bool:
    red, green, blue = channels(colour)
    return 0.299 * red + 0.587 * green + 0.114 * blue > 140
