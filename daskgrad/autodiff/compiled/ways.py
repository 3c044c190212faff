"""Ways: programs for the ways of calls through a model's branches."""

from collections.abc import Callable
from typing import Any, NamedTuple

from daskgrad.autodiff.compiled.program import Program
from daskgrad.autodiff.compiled.recording import record
from daskgrad.autodiff.compiled.signatures import Signature
from daskgrad.autodiff.compiled.steps import Recording
from daskgrad.autodiff.compiled.structures import generalize
from daskgrad.autodiff.tape.traced_call import Layout
from daskgrad.autodiff.values.trees import LEAF, flatten, substitute, unflatten


class Way(NamedTuple):
    """A program for one way through the model's branches, and the structure of its value.

    ``tape_nbytes``: of the arrays that the tape holds for such a call.
    """

    program: Program
    structure: Any
    tape_nbytes: int = 0


class Recorded(NamedTuple):
    """A call that was recorded: the way that it took."""

    recording: Recording
    order: list[int]  # the number of each traced input on the tape
    structure: Any  # of the value


def recorded(fun: Callable, layout: Layout, signature: Signature) -> Recorded:
    """Records a call; Unrecordable, or the model's own error."""
    numbers = [layout.places[place] for place in signature.places]
    structures = []

    def leaves_of_value(*boxes: Any) -> list[Any]:
        leaves = substitute(layout.leaves, signature.places, boxes)
        traced = dict(zip(numbers, boxes, strict=True))
        for place, number in enumerate(layout.places):
            if number is not None:  # an array may be passed twice
                leaves[place] = traced[number]
        args, kwargs = unflatten(layout.structure, leaves)
        outputs, structure = flatten(fun(*args, **kwargs))
        structures.append(structure)
        return outputs

    inputs = [layout.leaves[place] for place in signature.places]
    are_asked = [number in layout.asked for number in numbers]
    recording = record(
        leaves_of_value, inputs, [number is not None for number in numbers], are_asked
    )
    order = [number for number in numbers if number is not None]
    generalize(recording, tuple(order))
    structure = structures[0]
    return Recorded(recording, order, LEAF if structure == LEAF else structure)
