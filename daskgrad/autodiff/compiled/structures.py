"""Structures: which recordings have one source.

A recording has the same source as another one if it makes the same calls of the same steps, with
values of the same kinds. Kinds are what the writer looks at: types, dtypes, the number of axes and
which of them have no or one entry, and the order in memory. All other sizes, and the numbers and
arrays that the model made of them, are constants of the functions that are made of the source:
``parameters``, of which ``generalize`` makes a list.
"""

from collections.abc import Hashable
from typing import Any

import numpy as np
from autograd.numpy.numpy_vspaces import ArrayVSpace

from daskgrad.autodiff.compiled.adjoints import ADJOINTS, FREE
from daskgrad.autodiff.compiled.lines import Parameter, holds
from daskgrad.autodiff.compiled.steps import Guard, Recording, Step
from daskgrad.autodiff.values.rows import is_small

NUMBERS = (int, float, complex)
NAMED = (bool, str, bytes, type(None), type(Ellipsis), type, np.dtype)


def generalize(recording: Recording, order: tuple[int, ...]) -> None:
    """Takes the constants of a recording apart into its structure and its parameters."""
    found = Structure([order])
    steps = [step for step in recording.steps if not isinstance(step, Guard)]
    recording.numbered = [*recording.inputs, *steps]
    for number, step in enumerate(recording.numbered):
        step.number = number
    for each in recording.inputs:
        found.key.append((each.is_traced, kind_of(each.value), is_small_input(each)))
    for step_or_guard in recording.steps:
        found.add(step_or_guard)
    recording.outputs = [found.split(output) for output in recording.outputs]
    recording.structure, recording.parameters = tuple(found.key), found.parameters


def is_small_input(step: Step) -> bool:
    return not isinstance(step.value, np.ndarray) or is_small(step.value)


class Structure:
    """The structure of a recording, as far as it is known; ``key`` has a number for each step that
    is an argument, and no other numbers."""

    def __init__(self, key: list[Hashable]):
        self.key = key
        self.parameters: list[Parameter] = []
        self._places: dict[int, int] = {}  # of parameters, by the identity of their values

    def add(self, step: Step | Guard) -> None:
        key = self.key
        if isinstance(step, Guard):
            key.extend((Guard, step.answer, step.step.number))
            return
        fun = step.fun
        key.append((fun, step.argnums, len(step.args), *step.kwargs, kind_of(step.value)))
        if fun in ADJOINTS:
            free = FREE[fun]
            step.args = tuple(
                [
                    self.split(arg) if number in free else self.keep(arg)
                    for number, arg in enumerate(step.args)
                ]
            )
            for each in step.kwargs.values():
                self.keep(each)
            return
        step.args = tuple(map(self.split, step.args))
        if step.kwargs:
            step.kwargs = {name: self.split(each) for name, each in step.kwargs.items()}

    def split(self, given: Any) -> Any:
        """An argument with parameters in the places of constants."""
        kind = type(given)
        if kind is Step:
            self.key.append(given.number)
            return given
        if has_steps(given):
            self.key.append(container(given))
            if isinstance(given, dict):
                return {name: self.split(each) for name, each in given.items()}
            parts = list(map(self.split, given))
            return parts if isinstance(given, list) else tuple(parts)
        self.key.append(kind_of(given))
        if isinstance(given, NAMED) or not isinstance(given, SIZED):
            return given
        number = len(self.parameters)
        if kind is not int:  # of which Python has one object, whatever it stands for
            number = self._places.setdefault(id(given), number)
        if number < len(self.parameters):
            self.key.append((Parameter, number))
        else:
            self.parameters.append(Parameter(number, given))
        return self.parameters[number]

    def keep(self, given: Any) -> Any:
        """An argument whose constants are a part of the structure."""
        kind = type(given)
        if kind is Step:
            self.key.append(given.number)
        elif isinstance(given, list | tuple | dict):
            self.key.append(container(given))
            for each in given.values() if isinstance(given, dict) else given:
                self.keep(each)
        elif kind in NUMBERS or isinstance(given, np.generic):
            self.key.append((kind, repr(given)))
        elif isinstance(given, np.ndarray):
            self.key.append(Identity(given))
        else:
            self.key.append(kind_of(given))
        return given


def container(given: Any) -> tuple:
    return (type(given), *given) if isinstance(given, dict) else (type(given), len(given))


def has_steps(given: Any) -> bool:
    return isinstance(given, list | tuple | dict) and holds(given, Step)


SIZED = (np.ndarray, np.generic, *NUMBERS, list, tuple, dict, slice, ArrayVSpace)


def kind_of(value: Any) -> Any:
    """All that a source depends on in a value or constant."""
    kind = type(value)
    if kind is np.ndarray:
        if value.dtype.kind == "O":
            return Identity(value)
        flags = value.flags
        return value.dtype, few_of(value.shape), flags.c_contiguous, flags.f_contiguous
    if kind in NUMBERS or isinstance(value, np.generic):
        return kind
    if isinstance(value, NAMED):
        return kind, value
    if kind is list and value and all([type(each) is int for each in value]):  # an index
        return kind, int
    if isinstance(value, list | tuple):
        return (kind, *map(kind_of, value))
    if kind is dict:
        return (kind, *value, *map(kind_of, value.values()))
    if isinstance(value, ArrayVSpace):
        return kind, value.dtype, few_of(value.shape)
    if kind is slice:
        return kind, type(value.start), type(value.stop), type(value.step)
    return Identity(value)


def few_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([size if size < 2 else 2 for size in shape])


class Identity:
    """Equal to itself, and to what stands for the same object, which it keeps alive."""

    __slots__ = ("thing",)

    def __init__(self, thing: Any):
        self.thing = thing

    def __eq__(self, other: Any) -> bool:
        return type(other) is Identity and other.thing is self.thing

    def __hash__(self) -> int:
        return id(self.thing)
