"""Explain: the program of a compiled model, or why there is none."""

import math
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from daskgrad.autodiff.libraries import registry
from daskgrad.autodiff.libraries.by_hand import WithGradient
from daskgrad.autodiff.models.model import Model, run_as_model
from daskgrad.autodiff.programs.boxes import Unrecordable
from daskgrad.autodiff.programs.carried import Read
from daskgrad.autodiff.programs.counters import counting
from daskgrad.autodiff.programs.paths import Path
from daskgrad.autodiff.programs.program import Program
from daskgrad.autodiff.programs.references import Folded, references_of, with_references
from daskgrad.autodiff.programs.signatures import (
    Signature,
    carried_places,
    classes_in,
    code_in,
    constant_of,
    kind_of_leaf,
    may_look,
    opened_layout,
    signature_of,
    with_read,
)
from daskgrad.autodiff.programs.store import Programs
from daskgrad.autodiff.programs.watch import References
from daskgrad.autodiff.programs.ways import BatchProgram, Way
from daskgrad.autodiff.tape.boxes import advice_about
from daskgrad.autodiff.tape.traced_call import FlatArguments
from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.descriptions import Report, describe
from daskgrad.autodiff.values.trees import flatten
from daskgrad.derivatives.checks import explain_objectives
from daskgrad.derivatives.gradient import value_and_grad
from daskgrad.graph.delayed import DelayedModel, as_model
from daskgrad.graph.nodes import Node

NOTHING: Mapping[int, Any] = {}
SUMS = {"map_sum", "map_mean", "reduce_sum"}  # in an objective, unless it is a model


def explain(model: Any, *args: Any, **kwargs: Any) -> Any:
    """Tells whether calls with such arguments are compiled in this process, or when they will be.

    The options of ``dg.delayed`` count: ``compile``, ``backend``, ``gradient``. All floating-point
    arguments are taken to be differentiated, unless such calls have a program already. The model
    runs once or twice; its errors are raised.

    A function that calls models is explained by its value and gradient, and what ``value_and_grad``
    or ``grad`` returned, by itself: it is called a few times, with such arguments, and the report
    has the times. Without arguments it tells of the calls so far; for any other function it returns
    one of these arguments, ``dg.explain(fun)(x)``.

    Returns
    -------
    Report
        a string that shows as it prints: whether there is a program, or when there will be one, its
        source, its constants (the values that the model refers to by name), and whether somebody
        must vouch for the model; or the reason, with file and line, why the model is traced at each
        call, and what to write instead.

    See Also
    --------
    delayed, visualize

    Examples
    --------
    >>> dg.explain(lambda x: np.sum(np.exp(x)), np.ones(3))
    '<lambda>' will be compiled after 10 calls of a kind, of which there were 0 ...
    """
    objective = explain_objectives.objective_of(model)
    if objective is None and not (args or kwargs):
        return partial(explain, model)
    if objective is not None:
        return Report(explain_objectives.explained(model, objective, args, kwargs))
    made = as_model(model)
    registry.load("compiled")  # and its rules
    try:
        with Path() as path:
            value = run_as_model(partial(made.fun, **kwargs), *args)
    except Exception as error:
        advice = advice_about(error)
        if advice:
            error.add_note(f"daskgrad: {advice}")
        raise
    has_sums = type(model) is not DelayedModel and not SUMS.isdisjoint(
        References(made.fun, is_vouched=True).of_package
    )
    if has_sums or any([isinstance(leaf, Node) for leaf in flatten(value)[0]]):
        gradient = value_and_grad(model)
        objective = explain_objectives.objective_of(gradient)
        return Report(explain_objectives.explained(gradient, objective, args, kwargs))
    try:
        return Report("\n".join(described_program(made, args, kwargs, path)))
    except Unrecordable as reason:
        return Report(f"{made.name!r} is not compiled: {reason}")


def described_program(made: Model, args: tuple, kwargs: dict, path: Path) -> list[str]:
    """The state of a program, its lines, and a line about sums; Unrecordable if there is none."""
    require_compiled(made)
    leaves, structure = flatten((args, kwargs))
    backend: Any = registry.load(made.backend)
    programs = backend.prepare(made.fun).programs
    watch = programs.watch or programs.watch_over(made.fun)
    arguments = opened_layout(FlatArguments(leaves, structure, numbers_of(leaves)))
    layout = with_references(arguments, references_of(made.fun, watch) or ())
    signature = signature_of(layout, programs.looks)
    if signature is None:
        raise Unrecordable(odd_argument(layout.leaves))
    in_sum = signature_of(layout, programs.looks, in_sum=True)
    entries = {id(e): e for sign in (signature, in_sum) if sign for e in programs.alike(sign)}
    alike = [programs.finest(entry, layout.leaves) for entry in entries.values()]
    if None in alike:
        raise Unrecordable(odd_argument(layout.leaves, carried_places(signature)))
    impurity = impurity_of_call(made, programs, signature, path)
    for refusal in (programs.impurity, *[entry.refusal for entry in alike if not entry.ways]):
        if refusal not in (None, impurity):
            raise Unrecordable(refusal)
    ways = [way for entry in alike if not entry.watch.has_changed() for way in entry.ways]
    way = ways[0] if ways else way_of_call(programs, made, arguments, watch, programs.looks)
    sums = [line for entry in alike for line in map(line_of_batch, entry.batches.values())]
    if made.backend == registry.NATIVE:
        return [*lines_of_machine_code(made.name, programs, bool(ways), way), *dict.fromkeys(sums)]
    if impurity and made.backend != "compiled":
        state = f"is not compiled unless you vouch for it with compile=True: {impurity}; then to"
    elif ways:
        state = "is compiled to"
    else:
        calls = max([entry.calls for entry in alike], default=programs.cold_calls)
        others = " (with other types or shapes it is compiled)" if programs.has_programs() else ""
        state = (
            f"will be compiled after {programs.price} calls of a kind, of which there were {calls} "
            f"in this process{others}, to"
        )
    return [f"{made.name!r} {state}", "", *lines_of(way.program), *dict.fromkeys(sums)]


def impurity_of_call(
    made: Model, programs: Programs, signature: Signature, path: Path
) -> str | None:
    """Why such calls may differ: by the text, and if it may, by what ran of it."""
    impurity = None
    for ran in (None, path.ran):
        if ran is None or impurity:
            watch = programs.watch_over(made.fun, ran)
            watch.follow_arguments(classes_in(signature.structure), code_in(signature.key))
            impurity = watch.impurity if ran is None else watch.impurity_of(path)
            impurity = impurity and watch.with_place(impurity)
    return impurity


def lines_of_machine_code(name: str, programs: Any, is_there: bool, way: Way) -> list[str]:
    """The state of a model in machine code, or the reason why it is a program."""
    program: Any = way.program
    if program.is_exact:
        reasons = "; ".join(programs.unwritten)
        return [
            f"{name!r} has no machine code: {reasons}; it is compiled to",
            "",
            *lines_of(program),
        ]
    state = "is machine code since" if is_there else "will be machine code from"
    back = ", ".join(program.callbacks) or "none"
    bits = "with the bits of NumPy" if program.has_tape_bits else "within 1e-12 of NumPy's"
    return [
        f"{name!r} {state} its first call of a kind in this process, {bits}; compiling took "
        f"{program.seconds:.2g} s of processor time.",
        f"Calls that go back to NumPy: {back}.",
    ]


def way_of_call(
    programs: Programs,
    made: Model,
    arguments: FlatArguments,
    watch: References,
    looks: bool,
    read: Mapping[int, tuple | None] = NOTHING,
) -> Way:
    """Makes a program for a call, which counts nothing: with constants where the model reads its
    arguments, or computes something from references alone, and if there is none else."""
    layout = with_references(arguments, references_of(made.fun, watch) or ())
    signature = signature_of(layout, looks)
    signature = signature and with_read(signature, read)
    if signature is None:
        raise Unrecordable(odd_argument(layout.leaves, [*read]))
    least, ways = math.inf, frozenset[Any]()
    try:
        with counting(watch.counters()):
            return run_as_model(programs.make_way, made.fun, layout, signature, made.name, watch)
    except Read as error:
        constants = {place: constant_of(layout.leaves[place]) for place in error.places}
        return way_of_call(programs, made, arguments, watch, looks, {**read, **constants})
    except Folded as error:
        least, ways = watch.least, watch.constants | {*error.ways}
    except Unrecordable:
        if not watch.inputs and (looks or not may_look(signature.key)):
            raise
    looks = looks or not watch.inputs
    watch = References(made.fun, math.inf, True, watch.ran, least, ways)
    return way_of_call(programs, made, arguments, watch, looks, read)


def line_of_batch(batch: BatchProgram | None) -> str:
    """How a sum evaluates its items."""
    if batch is None:
        return "Items of a sum go one by one."
    names = ", ".join(dict.fromkeys(batch.loops))
    but = f", but for {names}, which has no form for many" if names else ""
    return f"Items of a sum go up to {batch.size} at once{but}."


def odd_argument(leaves: Sequence[Any], read: Sequence[int] = ()) -> str:
    """Names an argument that no program takes, or that the model reads."""
    odd_ones = [leaf for leaf in leaves if kind_of_leaf(leaf) is None]
    odd_ones += [leaves[place] for place in read if constant_of(leaves[place]) is None]
    odd = describe(odd_ones[0]) if odd_ones else "a dict"
    return (
        f"among the arguments is {odd}; pass numbers, arrays, strings, functions, and objects of "
        f"plain classes with such attributes"
    )


def require_compiled(model: Model) -> None:
    """Raises if the package does not try to compile a model."""
    if type(model.fun) is WithGradient:
        raise Unrecordable("it brings its own gradient")
    if model.backend == "autograd":
        raise Unrecordable(
            "compile=False asks for that, of this model or in dask.config (daskgrad.compile)"
        )
    if not registry.is_compiled(model.backend):
        raise Unrecordable(
            f"only models of autograd are, and this one's backend is {model.backend!r}"
        )


NUMBERS = (int, float)
NAME = re.compile(r"\bc_\d+\b")  # of a constant
SHOWN = (int, tuple, slice)
MOST_SHOWN = 8  # entries: a tuple of more has a constant for each turn of a loop


def lines_of(program: Program) -> list[str]:
    """The source, with its numbers, and its constants."""
    named = {  # an array without axes stands for a number
        name: value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
        for name, value in program.constants.items()
    }
    numbers = {
        name: repr(value) if value >= 0 else f"({value})"
        for name, value in named.items()
        if type(value) in NUMBERS and NAME.fullmatch(name)
    }
    source = NAME.sub(lambda match: numbers.get(match[0], match[0]), program.source.text)
    constants = [
        f"{name} = {value if is_shown(value) else describe(value)}"
        for name, value in program.constants.items()
        if not callable(value) and name not in numbers
    ]
    return [source, *constants]


def is_shown(constant: Any) -> bool:
    is_long = isinstance(constant, tuple) and len(constant) > MOST_SHOWN
    return isinstance(constant, SHOWN) and not is_long


def numbers_of(leaves: Sequence[Any]) -> tuple[int | None, ...]:
    """Counts the leaves that may be differentiated."""
    numbers = iter(range(len(leaves)))
    return tuple([next(numbers) if cotangents.is_differentiable(leaf) else None for leaf in leaves])
