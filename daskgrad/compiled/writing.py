"""Writing: makes a program of a recording.

Steps whose values nobody needs are left out.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from daskgrad.compiled import functions  # noqa: F401  its rules are entered
from daskgrad.compiled.backward import Backward
from daskgrad.compiled.forward import line_of, shape_check
from daskgrad.compiled.lines import Line, Writer, needed
from daskgrad.compiled.program import Program
from daskgrad.compiled.steps import Recording, Step


def write(recording: Recording, name: str, order: Sequence[int]) -> Program:
    """The program of a recording; ``order`` has the number of each traced input on the tape."""
    writer, backward = Writer(), None
    inputs = [writer.name(step) for step in recording.inputs]
    lines = forward_lines(writer, recording)
    ends = list(filter(is_active, recording.outputs))
    examples = [
        example_cotangent(output.value) if is_active(output) else None
        for output in recording.outputs
    ]
    seeds = [writer.new("g", example) for example in examples if example is not None]
    backward = Backward(writer)
    traced = [step for step in recording.inputs if step.is_traced]
    with np.errstate(all="ignore"):
        pulled = backward.write(ends, seeds, traced)
    outputs = [writer.name(each) for each in recording.outputs]
    pulled = [each for _, each in sorted(zip(order, pulled, strict=True))]
    pull_lines, used = needed(backward.lines, pulled)
    lines = [*lines, *backward.pullbacks]
    residuals = sorted(used & {*inputs, *[line.target for line in lines]})
    run_lines, _ = needed(lines, [*outputs, *residuals])
    source = "\n".join(
        [
            *function("forward", inputs, run_lines, f"[{', '.join(outputs)}], {held(residuals)}"),
            *function(
                "backward",
                ["residuals", *seeds],
                [*unpacking(residuals), *pull_lines],
                f"[{', '.join(pulled)}]",
            ),
        ]
    )
    return Program.of_source(name, source, examples, writer.constants)


def forward_lines(writer: Writer, recording: Recording) -> list[Line]:
    lines = []
    for step in recording.steps:
        lines.append(line_of(writer, step))
        check = shape_check(writer, step)
        lines.extend([check] if check else [])
    return lines


def function(name: str, arguments: Sequence[str], lines: Sequence[Line], result: str) -> list[str]:
    body = [f"    {line.text}" for line in lines]
    return [f"def {name}({', '.join(arguments)}):", *body, f"    return {result}", ""]


def held(residuals: Sequence[str]) -> str:
    """The tuple of the residuals."""
    return f"({', '.join([*residuals, ''])})" if residuals else "()"


def unpacking(residuals: Sequence[str]) -> list[Line]:
    return [Line("", f"{held(residuals)} = residuals")] if residuals else []


def is_active(output: Any) -> bool:
    """Whether the tape takes a cotangent of an output."""
    return isinstance(output, Step) and output.is_traced and output.kind in ("f", "c")


def example_cotangent(value: Any) -> Any:
    """A cotangent of the value's type and shape; its entries are irrational, so that no sum of
    them vanishes."""
    if isinstance(value, float):
        return np.float64(1.0)
    numbers = 1.0 + np.sqrt(np.arange(2.0, 2.0 + value.size)) % 1.0
    typed = numbers.reshape(value.shape).astype(value.dtype)
    return typed if isinstance(value, np.ndarray) else typed[()]
