"""Writing: makes a program of a recording.

Steps whose values nobody needs are left out.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.compiled import (
    complex_calls,  # noqa: F401  their rules are entered
    library_calls,  # noqa: F401  their rules are entered
)
from daskgrad.autodiff.compiled.backward import Backward
from daskgrad.autodiff.compiled.forward import line_of, shape_check
from daskgrad.autodiff.compiled.lines import (
    NAMES,
    Line,
    Parameter,
    Writer,
    needed,
    released,
    snapshot,
)
from daskgrad.autodiff.compiled.program import Program, Source, code_of
from daskgrad.autodiff.compiled.repetitions import repeatable
from daskgrad.autodiff.compiled.steps import Recording, Step
from daskgrad.autodiff.compiled.structures import generalize


class Reference(NamedTuple):
    """A step or a parameter of whichever recording there is."""

    kind: type
    number: int


def write(recording: Recording, name: str, order: Sequence[int]) -> Program:
    """The program of a recording; ``order`` has the number of each traced input on the tape."""
    generalize(recording, tuple(order))
    return program_of(source_of(recording, name, order), recording)


def source_of(recording: Recording, name: str, order: Sequence[int]) -> Source:
    """The source for a recording, and for all that have its structure."""
    writer = Writer()
    inputs = [writer.name(step) for step in recording.inputs]
    lines = forward_lines(writer, recording)
    ends = list(filter(is_active, recording.outputs))
    seeds = [writer.new("g", example_cotangent(end.value)) for end in ends]
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
    run_lines = released(run_lines, [*outputs, *residuals], writer.values)
    pull_lines = [*unpacking(residuals), *released(pull_lines, pulled, writer.values)]
    run = function("forward", inputs, run_lines, f"[{', '.join(outputs)}], {held(residuals)}")
    pull = function("backward", ["residuals", *seeds], pull_lines, f"[{', '.join(pulled)}]")
    text = "\n".join([*run, *pull])
    names = set(NAMES.findall(text))
    return Source(
        name,
        text,
        code_of(name, text),
        writer.constants,
        {name: each.number for name, each in writer.parameters.items() if name in names},
        {
            name: (each.fun, list(map(reference, each.given)))
            for name, each in writer.derived.items()
            if name in names
        },
        writer.copied,
    )


def reference(given: Any) -> Any:
    if isinstance(given, Step | Parameter):
        return Reference(type(given), given.number)
    return given


def program_of(source: Source, recording: Recording) -> Program:
    """The functions of a source, with the constants of a recording that has its structure."""
    constants = {**source.constants, **constants_of(source, recording)}
    examples = [
        example_cotangent(output.value) if is_active(output) else None
        for output in recording.outputs
    ]
    return Program.of_code(source.name, source.text, source.code, examples, constants)


def own_nbytes(program: Program, recording: Recording) -> int:
    """The bytes of arrays that a program keeps beside its source: examples, and copies."""
    constants = [parameter.value for parameter in recording.parameters]
    copies = [each for each in constants if isinstance(each, np.ndarray) and each.flags.writeable]
    examples = [each for each in program.examples if each is not None]
    return sum([each.nbytes for each in (*copies, *examples)])


def constants_of(source: Source, recording: Recording) -> dict[str, Any]:
    """The constants that a recording has its own of."""
    copies: dict[int, Any] = {}  # what is used twice stays one object
    found = {}
    for name, number in source.parameters.items():
        value = recording.parameters[number].value
        if id(value) not in copies:
            copies[id(value)] = snapshot(value)
        found[name] = copies[id(value)]
    things = {Step: recording.numbered, Parameter: recording.parameters}
    for name, (fun, given) in source.derived.items():
        found[name] = fun(
            *[
                things[each.kind][each.number].value if type(each) is Reference else each
                for each in given
            ]
        )
    return found


def forward_lines(writer: Writer, recording: Recording) -> list[Line]:
    lines: list[Line] = []
    known: dict[str, Step] = {}
    there = repeatable(recording)
    for step in recording.steps:
        line = line_of(writer, step)
        if isinstance(step, Step) and id(step) in there:
            earlier = known.setdefault(line.value, step)
            if earlier is not step:
                writer.rename(step, earlier)
                continue
        lines.append(line)
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
