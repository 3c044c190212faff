"""The tape of a recording: what the tape's rules make of the calls that were recorded."""

from collections.abc import Sequence
from typing import Any

from daskgrad.autodiff.compiled.lines import Parameter
from daskgrad.autodiff.compiled.steps import Recording, Step
from daskgrad.autodiff.tape.boxes import live
from daskgrad.autodiff.tape.reverse import Tape, TapeNode


def tape_of(recording: Recording, order: Sequence[int]) -> tuple[list[Any], Tape]:
    """The outputs of a recording, and their tape, without a second run of the model; ``order`` has
    the number of each traced input on it."""
    nodes: dict[Step, TapeNode] = {}
    live.add(recording.number)
    try:
        for step in recording.numbered:
            if step.fun is None and step.is_traced:
                nodes[step] = TapeNode.new_root(step.value, recording.number)
            elif step.is_traced:
                args = tuple(map(values_in, step.args))
                kwargs = values_in(step.kwargs) if step.kwargs else {}
                parents = tuple([nodes[parent] for parent in step.parents])
                nodes[step] = TapeNode(step.value, step.fun, args, kwargs, step.argnums, parents)
    finally:
        live.discard(recording.number)
    roots = [nodes[step] for step in recording.inputs if step.is_traced]
    roots = [root for _, root in sorted(zip(order, roots, strict=True), key=lambda pair: pair[0])]
    ends = [nodes.get(output) for output in recording.outputs]
    return [values_in(output) for output in recording.outputs], Tape(roots, ends)


def values_in(given: Any) -> Any:
    """Arguments with the values of their steps and parameters."""
    kind = type(given)
    if kind is Step or kind is Parameter:
        return given.value
    if kind is tuple:
        return tuple(map(values_in, given))
    if kind is dict:
        return {name: values_in(each) for name, each in given.items()}
    return list(map(values_in, given)) if kind is list else given
