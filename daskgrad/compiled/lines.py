"""Lines: a program while it is written, one assignment after the other.

Each name has the value that it had when the model was recorded: the line is run as soon as it is
written, and types and shapes are read off that value.
"""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.compiled.steps import Step

NAMES = re.compile(r"\b[cgpv]\d+\b")


class Line(NamedTuple):
    """A statement; ``target`` is the name that it assigns, or changes in place."""

    target: str
    text: str

    @property
    def value(self) -> str:
        """The expression that is assigned."""
        return self.text.partition(" = ")[2]

    @property
    def uses(self) -> set[str]:
        return set(NAMES.findall(self.text))


class Writer:
    """Writes lines; ``values`` has the value of every name, ``constants`` included."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {"np": np}
        self.constants: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._held: list[Any] = []  # so that no other object gets an identity that is named
        self._count = 0

    def new(self, kind: str, value: Any) -> str:
        """A new name for a value."""
        self._count += 1
        name = f"{kind}{self._count}"
        self.values[name] = value
        return name

    def name(self, thing: Any) -> str:
        """The name of a step, or of a constant."""
        if id(thing) not in self._names:
            self._held.append(thing)
            self._names[id(thing)] = self._new_name(thing)
        return self._names[id(thing)]

    def rename(self, step: Step, other: Step) -> None:
        """Has a step go by the name of another one, which has the same value."""
        self._names[id(step)] = self.name(other)

    def _new_name(self, thing: Any) -> str:
        if isinstance(thing, Step):
            return self.new("v", thing.value)
        name = str(getattr(thing, "__name__", ""))
        value = snapshot(thing)
        found = self.new(f"{name}_" if name.isidentifier() else "c", value)
        self.constants[found] = value
        return found

    def assign(self, text: str, kind: str = "g") -> tuple[str, Line]:
        """A new name for the value of an expression, which is computed now."""
        name = self.new(kind, eval(text, self.values))
        return name, Line(name, f"{name} = {text}")

    def run(self, target: str, text: str) -> Line:
        """A statement that changes the value of a name, which is done now."""
        exec(text, self.values)
        return Line(target, text)

    def spell(self, given: Any) -> str:
        """An argument as it is written in a line."""
        if isinstance(given, Step):
            return self.name(given)
        if given is None or type(given) in (bool, int, str):
            return spell_number(given)
        if type(given) is float and math.isfinite(given):
            return spell_number(given)
        if not has_steps(given):
            return self.name(given)
        if isinstance(given, dict):
            items = [f"{name!r}: {self.spell(each)}" for name, each in given.items()]
            return "{" + ", ".join(items) + "}"
        parts = ", ".join(map(self.spell, given))
        return f"[{parts}]" if isinstance(given, list) else f"({parts},)"

    def spell_call(self, fun: Any, args: Sequence[Any], kwargs: dict) -> str:
        named = [f"{name}={self.spell(each)}" for name, each in kwargs.items()]
        return f"{self.name(fun)}({', '.join([*map(self.spell, args), *named])})"


def spell_number(number: Any) -> str:
    text = repr(number)
    return f"({text})" if text.startswith("-") else text


def has_steps(given: Any) -> bool:
    if isinstance(given, dict):
        given = list(given.values())
    if isinstance(given, list | tuple):
        return any(map(has_steps, given))
    return isinstance(given, Step)


def snapshot(thing: Any) -> Any:
    """A constant as it is now; nobody can change the copy of an array."""
    if isinstance(thing, tuple):
        return tuple(map(snapshot, thing))
    if not (isinstance(thing, np.ndarray) and thing.flags.writeable and thing.flags.forc):
        return thing  # sums over a copy of a view with gaps would have other bits
    copy = thing.copy(order="K")
    copy.flags.writeable = False
    return copy


def needed(lines: Sequence[Line], wanted: Iterable[str]) -> tuple[list[Line], set[str]]:
    """The lines that the wanted names need, in order, and all names that these lines use."""
    names = set(wanted)
    found = []
    for line in reversed(lines):
        if line.target in names or not line.target:
            found.append(line)
            names |= line.uses
    return found[::-1], names
