"""References as inputs: large arrays to which a function refers are read at each call.

``watch`` finds the routes that lead to them from the function: variables, globals, attributes,
elements. To record a call, all that lies on these routes is made anew, with boxes at their ends;
nobody else sees it.
"""

import types
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from operator import attrgetter, is_
from typing import Any

import numpy as np

from daskgrad.autodiff.programs.boxes import GETITEM, Unrecordable
from daskgrad.autodiff.programs.calls import CallList, calls_in
from daskgrad.autodiff.programs.counters import NotedInt
from daskgrad.autodiff.programs.watch import (
    INPUTS,
    MISSING,
    MODELS,
    SMALL,
    References,
    content_of,
    slots_of,
    way_of,
)
from daskgrad.autodiff.tape.operands import owner_of
from daskgrad.autodiff.tape.traced_call import FlatArguments
from daskgrad.autodiff.values.locks import Lock

SYNTAX = {
    "cell": "{}.__closure__[{!r}].cell_contents",
    "element": "{}[{!r}]",
    "attribute": "{}.__dict__[{!r}]",
    "slot": "getattr({}, {!r})",
    "part": "getattr({}, {!r})",  # of a function, method, partial or model
}
MOST_READERS = 1024
MOST_COPIED = 2**20  # bytes of an array that a pullback keeps
GONE = (AttributeError, LookupError, TypeError, ValueError)  # of a route


def references_of(fun: Any, watch: References) -> list[Any] | None:
    """The arrays and numbers to which a function refers that are inputs; None if one is there no
    more."""
    count = len(watch.inputs)
    if not count:
        return []
    known, read = watch.reader
    if known != count:  # arguments have led to others
        read = reader_of(tuple(map(way_of, watch.inputs)))
        watch.reader = count, read
    try:
        values = read(fun)
    except GONE:
        return None
    return values if INPUTS.issuperset(map(type, values)) else None


class Referred:
    """The references of a function when its program ran; nobody writes into the ``arrays`` until
    this is gone."""

    __slots__ = ("_fun", "_lock", "_values", "_watch")

    def __init__(self, watch: References, fun: Any, values: Sequence[Any], arrays: Sequence[Any]):
        self._watch, self._fun, self._values, self._lock = watch, fun, values, Lock(arrays)

    def has_changed(self) -> bool:
        """Whether it refers to something else by now."""
        return self._watch.has_changed() or refers_to_others(self._fun, self._watch, self._values)


def kept(
    residuals: tuple, watch: References, fun: Any, values: Sequence[Any]
) -> tuple[tuple, Referred]:
    """Residuals of a program that stay as they are: small references among them are copied, and
    nobody writes into others."""
    owners = {id(owner_of(value)) for value in values if type(value) is np.ndarray}
    parts, arrays = list(residuals), []
    for number, part in enumerate(parts):
        if type(part) is np.ndarray and id(owner_of(part)) in owners:
            if part.nbytes <= MOST_COPIED:
                parts[number] = part.copy(order="K")
            else:
                arrays.append(part)
    return tuple(parts), Referred(watch, fun, values, arrays)


def refers_to_others(fun: Any, watch: References, values: Sequence[Any]) -> bool:
    """Whether a function refers to other inputs than these by now."""
    others = references_of(fun, watch)
    return others is None or not all(map(is_, others, values))


memory_of = attrgetter("shape", "dtype", "strides")


def kind_of_reference(value: Any) -> Any:
    """The facts of an input for which a program is made."""
    return memory_of(value) if type(value) is np.ndarray else type(value)


@lru_cache(MOST_READERS)
def reader_of(ways: Sequence[tuple]) -> Callable[[Any], list[Any]]:
    """A function that reads the things at the ends of ways, which start at its argument."""
    names: dict[tuple, str] = {(): "fun"}
    lines: list[str] = []

    def text(way: tuple) -> str:
        kind, key = way[-1]
        return SYNTAX[kind].format(name(way[:-1]), key)

    def name(way: tuple) -> str:
        if way not in names:
            line = text(way)
            names[way] = f"v{len(names)}"
            lines.append(f"    {names[way]} = {line}")
        return names[way]

    ends = ", ".join(map(text, ways))
    namespace: dict[str, Any] = {}
    exec("\n".join(["def read(fun):", *lines, f"    return [{ends}]"]), namespace)
    return namespace["read"]


def with_references(layout: FlatArguments, values: Sequence[Any]) -> FlatArguments:
    """The arguments of a call, and the arrays and numbers to which its function refers."""
    if not values:
        return layout
    leaves, places = [*layout.leaves, *values], [*layout.places, *[None] * len(values)]
    return layout._replace(leaves=leaves, places=places)


def recorded_on(fun: Any, watch: References, arrays: Sequence[Any]) -> tuple[Any, "Remade"]:
    """A function that refers to other things in place of its inputs."""
    if watch.is_torn:  # by a function among the arguments
        raise Unrecordable("it may compare a thing with itself, made anew")
    base = fun.objective.watched if hasattr(fun, "take") else fun
    if watch.of() is not base:  # but of an equal function
        settings = watch.room, True, watch.ran, watch.least, watch.constants
        other = References(base, *settings)
        if list(map(way_of, other.inputs)) != list(map(way_of, watch.inputs)):
            raise Unrecordable("an equal function refers to other arrays")
        watch = other
    if len(arrays) != len(watch.inputs):
        raise Unrecordable("it refers to other arrays by now")
    remade = Remade(watch, arrays)
    function = remade.of(base)
    return (function if base is fun else fun.take(function)), remade


class Folded(Unrecordable):
    """A call takes nothing but references, at the ends of these ways: a program in which they are
    constants need not run it."""

    def __init__(self, ways: Sequence[tuple]):
        super().__init__("it computes something from its references alone")
        self.ways = ways


def require_used(calls: CallList, watch: References, first: int) -> None:
    """Raises ``Folded`` if a call takes nothing but references that have not changed yet, and are
    small enough to be compared; ``first``: the number of the first of them among the inputs."""
    if watch.least != SMALL:
        return
    inputs = calls.inputs[first : len(calls.inputs) - calls.seed_count]
    origins = {call: {number} for number, call in enumerate(inputs)}
    numbers = set[int]()
    for call in calls.calls:
        parts = [origins.get(part) for part in calls_in((call.args, call.kwargs))]
        if parts and None not in parts:
            origins[call] = set().union(*filter(None, parts))
            if call.fun is not GETITEM and getattr(call.value, "base", None) is None:
                numbers |= origins[call]  # else it is a view or a number, which takes no time
    ways = [way_of(watch.inputs[number]) for number in sorted(numbers)]
    if ways and sum([inputs[number].value.nbytes for number in numbers]) <= watch.left:
        raise Folded(ways)


class Remade:
    """The parts of a function, made anew with other things in place of its inputs."""

    def __init__(self, watch: References, inputs: Sequence[Any]):
        self._number_of, self._remade, self._inputs = watch.number_of, watch.remade, inputs
        self._made: dict[int, Any] = {}
        self._cells: dict[int, types.CellType] = {}
        self._before: list[tuple[dict | list, dict | list, dict | list]] = []
        self._slots: list[tuple[Any, str, Any]] = []

    def of(self, thing: Any) -> Any:
        """A thing anew; itself, if it does not lead to an input."""
        if id(thing) not in self._remade or id(thing) in self._made:
            return self._made.get(id(thing), thing)
        kind: Any = type(thing)
        made: Any
        if kind is types.FunctionType:
            return self._function(thing)
        if kind is list:
            self._made[id(thing)] = made = []
            made += [self._part(thing, "element", n, x) for n, x in enumerate(thing)]
            self._note(thing, made)
        elif kind is dict:
            self._made[id(thing)] = made = {}
            made |= {key: self._part(thing, "element", key, x) for key, x in thing.items()}
            self._note(thing, made)
        elif isinstance(thing, tuple):
            parts = [self._part(thing, "element", n, x) for n, x in enumerate(thing)]
            made = tuple(parts) if kind is tuple else kind._make(parts)
        elif isinstance(thing, types.MethodType):
            made = types.MethodType(self.of(thing.__func__), self.of(thing.__self__))
        elif kind is partial:
            made = partial(self.of(thing.func), *self.of(thing.args), **self.of(thing.keywords))
        elif kind in MODELS:
            made = kind(thing.model._replace(fun=self.of(thing.model.fun)))
        else:
            made = self._object(thing)
        self._made[id(thing)] = made
        return made

    def _part(self, owner: Any, kind: str, key: Any, part: Any) -> Any:
        number = self._number_of(owner, kind, key)
        return self.of(part) if number is None else self._inputs[number]

    def _function(self, fun: types.FunctionType) -> Any:
        """A function with variables of its own, and globals that others of its module share."""
        names = self._namespace(fun.__globals__)
        if id(fun) in self._made:  # it is among these
            return self._made[id(fun)]
        cells = [self._cells.setdefault(id(x), types.CellType()) for x in fun.__closure__ or ()]
        made = types.FunctionType(fun.__code__, names, fun.__name__, None, tuple(cells) or None)
        self._made[id(fun)] = made
        made.__defaults__ = self.of(fun.__defaults__)
        made.__kwdefaults__ = self.of(fun.__kwdefaults__)
        made.__module__, made.__qualname__ = fun.__module__, fun.__qualname__
        vars(made).update(vars(fun))
        self._note(vars(fun), vars(made))
        for number, (old, new) in enumerate(zip(fun.__closure__ or (), cells, strict=True)):
            content = content_of(old)
            if content is not MISSING:
                new.cell_contents = self._part(fun, "cell", number, content)
        return made

    def _namespace(self, names: dict[str, Any]) -> dict[str, Any]:
        made = self._made.get(id(names))
        if made is None:
            made = self._made[id(names)] = dict(names)
            for name, thing in list(names.items()):
                made[name] = self._part(names, "element", name, thing)
            self._note(names, made)
        return made

    def _object(self, thing: Any) -> Any:
        kind: Any = type(thing)
        is_module = isinstance(thing, types.ModuleType)
        if is_module:
            made: Any = types.ModuleType(thing.__name__)
        else:
            made = kind() if kind is types.SimpleNamespace else object.__new__(kind)
        self._made[id(thing)] = made
        for name, part in getattr(thing, "__dict__", {}).items():
            vars(made)[name] = self._part(thing, "attribute", name, part)
        for name in () if is_module else slots_of(kind):
            if hasattr(thing, name):
                part = self._part(thing, "slot", name, getattr(thing, name))
                object.__setattr__(made, name, part)
                self._slots.append((made, name, part))
        if hasattr(made, "__dict__"):
            self._note(vars(thing), vars(made))
        return made

    def _note(self, old: Any, made: Any) -> None:
        self._before.append((old, made, made.copy()))

    def hand_back(self) -> None:
        """Adds the counts of the function to the counters of the things themselves."""
        for old, made, before in self._before:
            for key, number in items_of(made):
                first = before[key] if type(number) is NotedInt else number
                if number is not first:
                    sum_of_both = int(old[key]) + int(number) - int(first)
                    old[key] = NotedInt.of(sum_of_both, number.notes, number.thread)

    def require_unchanged(self) -> None:
        """Raises if the function has changed a list, dict or object that was made anew."""
        for _, made, before in self._before:
            if len(made) != len(before) or (type(made) is dict and [*made] != [*before]):
                raise Unrecordable("it changes a list, dict or object to which it refers")
            for (key, part), (_, first) in zip(items_of(made), items_of(before), strict=True):
                if part is not first and type(part) is not NotedInt:
                    raise Unrecordable(f"it changes {key!r}, to which it refers")
        for made, name, part in self._slots:
            if getattr(made, name, None) is not part:
                raise Unrecordable(f"it changes {name!r}, to which it refers")


def items_of(container: dict | list) -> list[tuple[Any, Any]]:
    return list(container.items() if isinstance(container, dict) else enumerate(container))
