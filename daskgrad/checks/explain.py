"""Explain: the program of a compiled model, or why there is none."""

from collections.abc import Sequence
from typing import Any

from daskgrad.backends.by_hand.function import WithGradient
from daskgrad.backends.traced_call import Layout
from daskgrad.compiled.programs import way_of
from daskgrad.compiled.purity import impurity_of, impurity_of_containers
from daskgrad.compiled.signatures import signature_of
from daskgrad.compiled.steps import Unrecordable
from daskgrad.graph.delayed import as_model
from daskgrad.values import cotangents
from daskgrad.values.descriptions import describe
from daskgrad.values.trees import flatten


def explain(model: Any, *args: Any, **kwargs: Any) -> str:
    """Tells what becomes of calls with such arguments that are repeated often.

    All floating-point arguments are taken to be differentiated. The model runs twice; its errors
    are its own.

    Returns
    -------
    str
        the source of the program, and its constants, which are what the model refers to by name,
        and whether somebody must vouch for the model; or the reason, with file and line, why it is
        traced at each call.
    """
    made = as_model(model)
    made.fun(*args, **kwargs)
    if type(made.fun) is WithGradient:
        return f"{made.name!r} is not compiled: it brings its own gradient"
    leaves, structure = flatten((args, kwargs))
    layout = Layout(leaves, structure, numbers_of(leaves))
    signature = signature_of(layout)
    if signature is None:
        return f"{made.name!r} is not compiled: an argument is neither a number nor an array"
    try:
        program = way_of(made.fun, made.name, layout, signature).program
    except Unrecordable as error:
        return f"{made.name!r} is not compiled: {error}"
    constants = [
        f"{name} = {describe(value)}"
        for name, value in program.constants.items()
        if not callable(value)
    ]
    head = f"{made.name!r} is compiled to"
    impurity = impurity_of(made.fun) or impurity_of_containers(structure)
    if impurity:
        head = (
            f"{made.name!r} is not compiled unless you vouch for it with compile=True: {impurity}; "
            f"then to"
        )
    return "\n".join([head, "", program.source, *constants])


def numbers_of(leaves: Sequence[Any]) -> tuple[int | None, ...]:
    """A number for each leaf that may be differentiated."""
    numbers = iter(range(len(leaves)))
    return tuple([next(numbers) if cotangents.is_differentiable(leaf) else None for leaf in leaves])
