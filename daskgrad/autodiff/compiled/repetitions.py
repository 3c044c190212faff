"""Repetitions: calls whose values the program has already.

Rules compute slopes anew for each direction, and a derivative within a model repeats what the model
computes. A call is left out if it makes a new array of the very operands of an earlier one, and
nobody could tell: neither array is changed in place later, or handed out.
"""

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np

from daskgrad.autodiff.compiled.boxes import IN_PLACE
from daskgrad.autodiff.compiled.functions import PYTHONS_OWN, REDUCTIONS, raw
from daskgrad.autodiff.compiled.steps import Guard, Recording, Step

MAKE_NEW = {anp.dot, anp.where, *REDUCTIONS, *PYTHONS_OWN}


def repeatable(recording: Recording) -> set[int]:
    """The identities of the steps that may stand for others, or others for them."""
    steps = [step for step in recording.steps if not isinstance(step, Guard)]
    used = {id(given) for step in steps for given in changed_by(step)}
    used |= set(map(id, recording.outputs))
    for step in reversed(steps):
        if id(step) in used and not makes_new(step):  # it may be a view of what it takes
            used |= set(map(id, steps_within((step.args, step.kwargs))))
    return {id(step) for step in steps if makes_new(step) and id(step) not in used}


def makes_new(step: Step) -> bool:
    """Whether the value of a call is a new array, and the same for the same operands."""
    is_ufunc = isinstance(raw(step.fun), np.ufunc) and not step.kwargs
    return is_ufunc or step.fun in MAKE_NEW


def changed_by(step: Step) -> Sequence[Any]:
    """The arguments that a call changes in place."""
    if step.fun in IN_PLACE:
        return step.args[1:2]
    return step.args[:1] if step.fun is operator.iadd else ()


def steps_within(given: Any) -> Iterable[Step]:
    if isinstance(given, Step):
        yield given
    elif isinstance(given, list | tuple | dict):
        for each in given.values() if isinstance(given, dict) else given:
            yield from steps_within(each)
