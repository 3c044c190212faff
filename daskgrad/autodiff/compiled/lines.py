"""Lines: a program while it is written, one assignment after the other.

Each name has the value that it had when the model was recorded: the line is run as soon as it is
written, and types and shapes are read off that value.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.compiled.steps import Step

NAMES = re.compile(r"\b[cgpsv]\d+\b")


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


class Parameter:
    """A constant of one call that may be another in calls with other sizes."""

    __slots__ = ("number", "value")

    def __init__(self, number: int, value: Any):
        self.number, self.value = number, value


class Derived(NamedTuple):
    """A constant that follows from the sizes of a call: a function of its steps, parameters, and
    of what all calls have in common."""

    fun: Callable[..., Any]
    given: tuple[Any, ...]

    def value(self) -> Any:
        return self.fun(*map(value_of, self.given))


class Writer:
    """Writes lines; ``values`` has the value of every name.

    ``constants`` are the functions and objects that all calls have in common, ``parameters`` and
    ``derived`` those that go with the sizes of one.
    """

    def __init__(self) -> None:
        self.values: dict[str, Any] = {"np": np}
        self.constants: dict[str, Any] = {}
        self.parameters: dict[str, Parameter] = {}
        self.derived: dict[str, Derived] = {}
        self._names: dict[Any, str] = {}
        self._held: list[Any] = []  # so that no other object gets an identity that is named
        self._count = 0
        self.copied = 0  # bytes of constants

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
        if isinstance(thing, Parameter):
            found = self.new("c", snapshot(thing.value))
            self.parameters[found] = thing
            return found
        name = str(getattr(thing, "__name__", ""))
        value = snapshot(thing)
        self.copied += 0 if value is thing else getattr(value, "nbytes", 0)
        found = self.new(f"{name}_" if name.isidentifier() else "c", value)
        self.constants[found] = value
        return found

    def derive(self, fun: Callable[..., Any], *given: Any) -> str:
        """The name of a constant that follows from steps and parameters."""
        key = (fun, *map(id, given))
        if key not in self._names:
            self._held.append(given)
            found = Derived(fun, given)
            self._names[key] = self.new("s", found.value())
            self.derived[self._names[key]] = found
        return self._names[key]

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
        if isinstance(given, Step | Parameter):
            return self.name(given)
        if given is None or type(given) in (bool, int, str):
            return spell_number(given)
        if type(given) is float and math.isfinite(given):
            return spell_number(given)
        if not holds(given, Step | Parameter):
            return self.name(given)
        if isinstance(given, dict):
            items = [f"{name!r}: {self.spell(each)}" for name, each in given.items()]
            return "{" + ", ".join(items) + "}"
        parts = ", ".join(map(self.spell, given))
        return f"[{parts}]" if isinstance(given, list) else f"({parts},)"

    def operand(self, given: Any, other: Any) -> str:
        """A constant beside an array, in arithmetic: a number as an array without axes, which
        NumPy takes in half the time, with the same bits."""
        number = given.value if isinstance(given, Parameter) else given
        if not has_axes(other) or other.dtype.char not in "df":
            return self.spell(given)
        if type(number) in (int, float) or type(number) is other.dtype.type:
            return self.derive(without_axes, given, other.dtype)
        return self.spell(given)

    def spell_call(self, fun: Any, args: Sequence[Any], kwargs: dict) -> str:
        named = [f"{name}={self.spell(each)}" for name, each in kwargs.items()]
        return f"{self.name(fun)}({', '.join([*map(self.spell, args), *named])})"


def without_axes(number: Any, dtype: np.dtype) -> np.ndarray:
    array = np.asarray(number, dtype)
    array.flags.writeable = False
    return array


def spell_number(number: Any) -> str:
    text = repr(number)
    return f"({text})" if text.startswith("-") else text


def holds(given: Any, kinds: Any) -> bool:
    """Whether this is, or has in containers, something of these kinds."""
    if isinstance(given, dict):
        given = list(given.values())
    if isinstance(given, list | tuple):
        return any([holds(each, kinds) for each in given])
    return isinstance(given, kinds)


def value_of(given: Any) -> Any:
    return given.value if isinstance(given, Step | Parameter) else given


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


def has_axes(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim > 0


def released(lines: Sequence[Line], kept: Iterable[str], values: Mapping[str, Any]) -> list[Line]:
    """The lines, with one after the last use of each array that they make and nobody keeps."""
    arrays = {line.target for line in lines if has_axes(values.get(line.target))}
    dead = arrays - set(kept)
    found = []
    for line in reversed(lines):
        last = sorted(dead & (line.uses | {line.target}))
        dead -= set(last)
        if last:
            found.append(Line("", f"del {', '.join(last)}"))
        found.append(line)
    return found[::-1]
