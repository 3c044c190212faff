"""Explain: the program of a compiled model, or why there is none."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from daskgrad.autodiff.compiled.lines import spell_number
from daskgrad.autodiff.compiled.program import Program
from daskgrad.autodiff.compiled.purity import impurity_of, impurity_of_containers
from daskgrad.autodiff.compiled.signatures import Signature, signature_of
from daskgrad.autodiff.compiled.steps import Unrecordable
from daskgrad.autodiff.compiled.ways import recorded
from daskgrad.autodiff.compiled.writing import program_of, source_of
from daskgrad.autodiff.libraries import registry
from daskgrad.autodiff.libraries.by_hand import WithGradient
from daskgrad.autodiff.models.model import Model, run_as_model
from daskgrad.autodiff.tape.traced_call import Layout
from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.descriptions import describe
from daskgrad.autodiff.values.trees import flatten
from daskgrad.graph.delayed import as_model


def explain(model: Any, *args: Any, **kwargs: Any) -> str:
    """Tells what becomes of calls with such arguments that are repeated often.

    What ``dg.delayed`` was told counts: ``compile``, ``backend``, ``gradient``. All floating-point
    arguments are taken to be differentiated. The model runs twice; its errors are its own.

    Returns
    -------
    str
        the source of the program, and its constants, which are what the model refers to by name,
        and whether somebody must vouch for the model; or the reason, with file and line, why it is
        traced at each call.

    Examples
    --------
    >>> print(dg.explain(lambda x: np.sum(np.exp(x)), np.ones(3)))
    '<lambda>' is compiled to
    ...
    """
    made = as_model(model)
    registry.load("compiled")  # and its rules
    run_as_model(partial(made.fun, **kwargs), *args)
    asked = other_way(made)
    if asked:
        return f"{made.name!r} is not compiled: {asked}"
    leaves, structure = flatten((args, kwargs))
    layout = Layout(leaves, structure, numbers_of(leaves))
    signature = signature_of(layout)
    if signature is None:
        return f"{made.name!r} is not compiled: an argument is neither a number nor an array"
    try:
        found = run_as_model(recorded, made.fun, layout, signature)
        program = program_of(source_of(found.recording, made.name, found.order), found.recording)
    except Unrecordable as error:
        return f"{made.name!r} is not compiled: {error}"
    head = f"{made.name!r} is compiled to"
    impurity = impurity_of(made.fun) or impurity_of_containers(structure)
    if impurity and made.backend != "compiled":
        head = (
            f"{made.name!r} is not compiled unless you vouch for it with compile=True: {impurity}; "
            f"then to"
        )
    return "\n".join([head, "", *lines_of(program), *sizes_of(made.fun, signature)])


def other_way(model: Model) -> str | None:
    """Why this package does not even try to compile a model."""
    if type(model.fun) is WithGradient:
        return "it brings its own gradient"
    if model.backend == "autograd":
        return "compile=False asks for that, of this model or in dask.config (daskgrad.compile)"
    if not registry.is_compiled(model.backend):
        return f"only models of autograd are, and this one's backend is {model.backend!r}"
    return None


NUMBERS = (int, float)
NAME = re.compile(r"\b[cs]\d+\b")


def lines_of(program: Program) -> list[str]:
    """The source, with its numbers, and its constants."""
    named = {name: number_of(value) for name, value in program.constants.items()}
    numbers = {
        name: spell_number(value)
        for name, value in named.items()
        if type(value) in NUMBERS and NAME.fullmatch(name)
    }
    source = NAME.sub(lambda found: numbers.get(found[0], found[0]), program.source)
    constants = [
        f"{name} = {value if isinstance(value, SHOWN) else describe(value)}"
        for name, value in program.constants.items()
        if not callable(value) and name not in numbers
    ]
    return [source, *constants]


def number_of(value: Any) -> Any:
    """The number that an array without axes stands for."""
    return value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value


SHOWN = (int, tuple, slice)


def sizes_of(fun: Any, signature: Signature) -> list[str]:
    """What is known of calls that differ from this one in sizes alone."""
    backends: list[Any] = list(map(registry.load, ("compiled", "cautious")))
    known = [backend.prepare(fun).programs for backend in backends]
    counts = [programs.count_sizes(signature) for programs in known]
    sizes, served, sources = map(sum, zip(*counts, strict=True))
    if sizes < 2:
        return []
    return [
        "",
        f"Numbers, shapes and other constants are those of this call; calls of another size that "
        f"are alike have the same source. Of {sizes} sizes that there were, {served} have "
        f"programs, of {sources} {'source' if sources == 1 else 'sources'}.",
    ]


def numbers_of(leaves: Sequence[Any]) -> tuple[int | None, ...]:
    """A number for each leaf that may be differentiated."""
    numbers = iter(range(len(leaves)))
    return tuple([next(numbers) if cotangents.is_differentiable(leaf) else None for leaf in leaves])
