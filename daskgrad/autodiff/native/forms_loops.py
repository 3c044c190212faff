"""Loops of a list: their turns, what these carry, and the values of all turns side by side."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daskgrad.autodiff.native.forms_arrays import SlicedAxis
from daskgrad.autodiff.native.writer import (
    NO_CALLBACKS,
    Length,
    TextWriter,
    Unwritable,
    Value,
    form,
    type_of,
)
from daskgrad.autodiff.programs.calls import NumpyCall, TurnLoop, arguments_of, chained, value_of


@dataclass(frozen=True, slots=True)
class Kept:
    """Values of turns from an address on, each ``step`` entries after the one before; these are
    arrays or numbers, or the kept values of a loop within (``inner``)."""

    w: TextWriter
    at: str
    step: int
    count: int
    type: str
    shape: tuple[int, ...]
    inner: Any = None
    root: str = ""

    def place(self, turn: Length) -> Any:
        """The address of the value of a turn."""
        w = self.w
        at = w.moved(self.at, w.times(turn, self.step), self.type)
        if self.inner is not None:
            return replace(self.inner, at=at)
        return Value(self.type, self.shape, at, w.strides(self.shape), root=self.root)

    def of_turn(self, turn: Length) -> Any:
        place = self.place(turn)
        return place if self.inner is not None else self.w.loaded(place)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            start, stop, step = index.indices(self.count)
            at = self.w.moved(self.at, start * self.step, self.type)
            return replace(self, at=at, step=step * self.step, count=len(range(start, stop, step)))
        return self.of_turn(int(index) % self.count)

    def __len__(self) -> int:
        return self.count


def kept_like(w: TextWriter, value: Any, count: int) -> Kept:
    """Room for so many values; those of a loop within stand side by side."""
    if isinstance(value, list):
        inner = template(w, value)
        size, type = inner.count * inner.step, inner.type
    else:
        inner, type = None, type_of(value)
        size = int(np.prod(np.shape(value), dtype=int))
    room = w.room(type, (count * size,))
    shape = () if inner else np.shape(value)
    return Kept(w, room.at, size, count, type, shape, inner, room.root)


def template(w: TextWriter, values: list) -> Kept:
    first = values[0]
    if isinstance(first, list):
        inner = template(w, first)
        return Kept(w, "", inner.count * inner.step, len(values), inner.type, (), inner)
    size = int(np.prod(np.shape(first), dtype=int))
    return Kept(w, "", size, len(values), type_of(first), np.shape(first))


def copy_kept(source: Any, out: Kept) -> None:
    """Copies the values of turns, or one of them."""
    w = out.w
    if not isinstance(source, Kept) or source.count != out.count:
        raise Unwritable("values of turns that are not in one piece")
    with w.loop(out.count) as turn:
        x, place = source.place(turn), out.place(turn)
        if out.inner is None:
            w.copy(x, place)
        else:
            copy_kept(x, place)


@form(chained, is_exact=True)
def one_after_the_other(w: TextWriter, call: NumpyCall) -> Kept:
    out = kept_like(w, call.value[0], len(call.value))
    start = 0
    for part in call.args:
        source = w.values[part] if isinstance(part, NumpyCall) else part
        count = len(source)
        view = out[start : start + count]
        if isinstance(source, Kept):
            copy_kept(source, view)
        else:
            for n, thing in enumerate(source):
                put_in(w, thing, view.place(n))
        start += count
    return out


def put_in(w: TextWriter, thing: Any, place: Any) -> None:
    if isinstance(place, Kept):
        copy_kept(w.values[thing], place)
    else:
        w.copy(w.operand(thing), place)


@form(TurnLoop, is_exact=True)
def turns(w: TextWriter, call: NumpyCall) -> Any:
    if w.symbol is not None:
        raise Unwritable("a loop beside axes of any length")
    loop, passed = call.fun, dict(arguments_of(call))
    params = []
    for param, _ in loop.carried:
        room = w.room(type_of(param.value), np.shape(param.value))
        w.copy(w.operand(passed[param]), room)
        params.append(room)
    rows = [sequence(w, param, passed[param], loop.turns) for param in loop.rows]
    for param in loop.fixed:
        thing = passed[param]
        w.values[param] = w.values[thing] if isinstance(thing, NumpyCall) else w.operand(thing)
    kept = [
        None
        if output is None or number < loop.lasts
        else kept_like(w, value_of(output), loop.turns)
        for number, output in enumerate(loop.outputs)
    ]
    lasts = {
        number: w.room(type_of(value_of(output)), np.shape(value_of(output)))
        for number, output in enumerate(loop.outputs[: loop.lasts])
        if output is not None
    }
    outer, w.places = w.places, {}
    w.turns *= loop.turns
    with w.loop(loop.turns) as turn:
        for (param, _), room in zip(loop.carried, params, strict=True):
            w.values[param] = w.loaded(room)
        for param, row in zip(loop.rows, rows, strict=True):
            w.values[param] = row.of_turn(turn)
        slots = {n: part.place(turn) for n, part in enumerate(kept) if part is not None}
        for number, slot in slots.items():
            output = loop.outputs[number]
            if isinstance(slot, Value) and isinstance(output, NumpyCall) and output in loop.body:
                w.places.setdefault(output, slot)
        nexts = [x for _, x in loop.carried]
        w.run(loop.body, (loop.outputs, nexts))
        for number, slot in slots.items():
            output = loop.outputs[number]
            value = w.values[output] if isinstance(output, NumpyCall) else w.operand(output)
            if not (isinstance(value, Value) and value.at == slot.at):
                put_in(w, output, slot)
        for number, room in lasts.items():
            w.copy(w.operand(loop.outputs[number]), room)
        carry(w, [w.operand(x) for x in nexts], params)
    w.places = outer
    w.turns //= loop.turns
    results = [w.loaded(lasts[n]) if n in lasts else part for n, part in enumerate(kept)]
    return tuple(results)


NO_CALLBACKS |= {turns, one_after_the_other}


def carry(w: TextWriter, nexts: list[Value], params: list[Value]) -> None:
    """Puts what the next turn gets in its place; what is in another's place is moved first."""
    roots = {room.root for room in params}
    moved = []
    for x, room in zip(nexts, params, strict=True):
        if x.reg is None and x.root in roots and x != room:
            x = w.copied(x)
        moved.append(x)
    for x, room in zip(moved, params, strict=True):
        if x != room:
            w.copy(x, room)


@dataclass(frozen=True, slots=True)
class Turned:
    """Results of ``of_turn``, turn by turn."""

    of_turn: Callable[[Length], Any]


def index_of_turn(w: TextWriter, indices: Sequence[Any]) -> Turned:
    """Indices that differ from turn to turn in numbers alone; a slice moves."""
    first = indices[0]
    if any([type(index) is not type(first) for index in indices]):
        raise Unwritable("an index has other parts in other turns")
    if isinstance(first, tuple):
        parts = [index_of_turn(w, part) for part in zip(*indices, strict=True)]
        return Turned(lambda turn: tuple([part.of_turn(turn) for part in parts]))
    if isinstance(first, slice):
        starts = [index.start for index in indices]
        others = {(index.step, *ends_of(index)) for index in indices}
        if len(others) > 1 or any([type(start) is not int or start < 0 for start in starts]):
            if any([index != first for index in indices]):
                raise Unwritable("a slice has other lengths in other turns")
            return Turned(lambda turn: first)
        start = index_of_turn(w, starts)
        return Turned(lambda turn: SlicedAxis(start.of_turn(turn), first.stop - first.start, 1))
    if type(first) is not int:
        if any([index is not first for index in indices]):
            raise Unwritable("an index has other parts in other turns")
        return Turned(lambda turn: first)
    table = w.constant(np.array(indices), "i64", ("turns", tuple(indices)))
    numbers = Kept(w, table.at, 1, len(indices), "i64", ())
    return Turned(numbers.of_turn)


def ends_of(index: slice) -> tuple:
    """The length of a slice between two numbers, by steps of one."""
    are_numbers = type(index.start) is type(index.stop) is int and index.step in (None, 1)
    if are_numbers and 0 <= index.start < index.stop:
        return (index.stop - index.start,)
    return index.start, index.stop, -1


def sequence(w: TextWriter, param: NumpyCall, thing: Any, count: int) -> Any:
    """The values of a parameter in all turns."""
    if isinstance(thing, NumpyCall):
        source = w.values[thing]
        if not isinstance(source, Kept):
            raise Unwritable("a loop goes over an array")
        return source
    value = value_of(thing[0])
    if isinstance(value, tuple | slice):
        return index_of_turn(w, thing)
    if not any([isinstance(part, NumpyCall) for part in thing]):
        kinds = {(type_of(part), np.shape(part)) for part in thing}
        if len(kinds) > 1:
            raise Unwritable("a loop goes over constants of several kinds")
        ((type, shape),) = kinds
        table = w.constant(np.array([*thing]), type, id(thing)) if shape or len(thing) else None
        assert table is not None
        size = int(np.prod(shape, dtype=int))
        return Kept(w, table.at, size, count, type, shape)
    out = kept_like(w, value, count)
    for n, part in enumerate(thing):
        put_in(w, part, out.place(n))
    return out
