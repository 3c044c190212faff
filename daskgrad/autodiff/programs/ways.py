"""Ways: programs for the ways of calls through a model's branches."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from daskgrad.autodiff.programs.program import Program
from daskgrad.autodiff.programs.recording import record
from daskgrad.autodiff.programs.rewrites import rewritten
from daskgrad.autodiff.programs.signatures import Signature, has_changed
from daskgrad.autodiff.programs.steps import Unrecordable
from daskgrad.autodiff.programs.writing import written
from daskgrad.autodiff.tape.traced_call import Layout
from daskgrad.autodiff.values.trees import LEAF, flatten, substitute, unflatten


class Way(NamedTuple):
    """A program for one way through the model's branches, and the structure of its value.

    ``tape_nbytes``: of the arrays that the tape holds for such a call.
    """

    program: Program
    structure: Any
    tape_nbytes: int = 0


def make_way(fun: Callable, layout: Layout, signature: Signature, name: str) -> Way:
    """Records a call, and writes its program; Unrecordable, or the model's own error."""
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
        if has_changed(layout.structure, leaves, (args, kwargs)):
            raise Unrecordable("the model changes an object that is an argument")
        structures.append(structure)
        return outputs

    order = {number: place for place, number in enumerate(numbers) if number is not None}
    active = [order[number] for number in sorted(order)]
    inputs = [layout.leaves[place] for place in signature.places]
    program = program_of(leaves_of_value, inputs, active, layout.asked, name)
    return Way(program, LEAF if structures[0] == LEAF else structures[0])


def program_of(
    fun: Callable[..., Sequence[Any]],
    leaves: Sequence[Any],
    active: Sequence[int],
    asked: Sequence[int] = (),
    name: str = "model",
) -> Program:
    """The program of a function of leaves (see ``record``)."""
    calls, examples = record(fun, leaves, active, asked)
    return written(rewritten(calls), name, examples)
