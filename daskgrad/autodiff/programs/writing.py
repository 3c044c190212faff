"""Writing: Python source of a list of calls, a line for each, as one function or two."""

import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from daskgrad.autodiff.programs.calls import (
    IN_PLACE,
    OPERATORS,
    Call,
    CallList,
    Loop,
    calls_in,
    cut,
    guard,
    plus,
    replaced,
    stacked,
    stay,
    value_of,
)
from daskgrad.autodiff.programs.program import Program, Source, namespace_of
from daskgrad.autodiff.programs.steps import PYTHONS

TEXTS: dict[Any, str] = {fun: f"{{}} {sign} {{}}" for fun, sign in OPERATORS.items()}
TEXTS |= {operator.neg: "-{}", operator.invert: "~{}", operator.getitem: "{}[{}]"}
TEXTS[np.matmul] = "{} @ {}"
METHODS = {np.reshape: "reshape", np.transpose: "transpose", np.diagonal: "diagonal"}
METHODS |= {np.trace: "trace", np.cumsum: "cumsum", np.swapaxes: "swapaxes"}
ATTRIBUTES = {np.real: "real", np.imag: "imag"}
SMALL = {0.0, 1.0, 2.0, 0.5, -1.0}  # numbers that are written as they are


def written(program: CallList, name: str, examples: Sequence[Any]) -> Program:
    """The two functions of a list.

    ``forward`` returns the outputs and the residuals; ``backward`` takes these and the cotangents,
    of which there are ``examples``.
    """
    writer = Writer()
    names = list(map(writer.name, program.inputs))
    place = [call.fun for call in program.calls].index(cut)
    first, second = program.calls[:place], program.calls[place + 1 :]
    own = len(names) - program.seed_count
    outputs, pulled = program.outputs[: program.value_count], program.outputs[program.value_count :]
    there = {*program.inputs[:own], *first}
    taken = [*calls_in([(call.args, call.kwargs) for call in second]), *calls_in(pulled)]
    residuals = list(dict.fromkeys([call for call in taken if call in there]))
    forward = writer.function("forward", names[:own], first, [*outputs, *residuals])
    held = f"({', '.join([*map(writer.name, residuals), ''])})" if residuals else "()"
    forward.append((f"    return [{', '.join(map(writer.spell, outputs))}], {held}", None))
    backward = writer.function("backward", ["residuals", *names[own:]], second, pulled)
    if residuals:
        backward.insert(1, (f"    {held} = residuals", None))
    backward.append((f"    return [{', '.join(map(writer.spell, pulled))}]", None))
    lines, places = zip(*forward, ("", None), *backward, ("", None), strict=True)
    source = Source("\n".join(lines), *lines_of_model(places))
    return Program.of_source(name, source, examples, writer.constants, writer.copied)


def written_as_one(program: CallList) -> Callable:
    """The one function of a list, which returns its outputs."""
    writer = Writer()
    names = list(map(writer.name, program.inputs))
    calls = [call for call in program.calls if call.fun is not cut]
    function = writer.function("batch", names, calls, program.outputs)
    function.append((f"    return [{', '.join(map(writer.spell, program.outputs))}]", None))
    lines, places = zip(*function, ("", None), strict=True)
    source = Source("\n".join(lines), *lines_of_model(places))
    return namespace_of(source, writer.constants)["batch"]


def lines_of_model(places: Sequence[Any]) -> tuple[str, tuple[int, ...]]:
    """The file that most places are in, and for each place its line there, or the last one."""
    files = Counter([place[0] for place in places if place is not None])
    if not files:
        return "", ()
    (file, _), *_ = files.most_common(1)
    numbers, line = [], next(place[1] for place in places if place and place[0] == file)
    for place in places:
        line = place[1] if place and place[0] == file else line
        numbers.append(line)
    return file, tuple(numbers)


class Writer:
    """Names of calls and of ``constants``; ``copied``: bytes of these."""

    def __init__(self) -> None:
        self.constants: dict[str, Any] = {}
        self.copied = 0
        self._names: dict[Any, str] = {}
        self._held: list[Any] = []  # so that no other object gets an identity that is named
        self._count = 0

    def name(self, call: Call) -> str:
        if call not in self._names:
            self._count += 1
            self._names[call] = f"v{self._count}"
        return self._names[call]

    def constant(self, thing: Any) -> str:
        """The name of a constant; a number or a shape has one for each use, since it may go with
        the size of the data: calls of other sizes have the same text, and so the same code."""
        key = len(self._held) if type(thing) in (int, tuple) else id(thing)
        if key not in self._names:
            self._held.append(thing)
            name = getattr(thing, "__name__", "c")
            name = f"{name if name.isidentifier() else 'c'}_{len(self._held)}"
            self._names[key], self.constants[name] = name, snapshot(thing)
            is_copy = self.constants[name] is not thing
            self.copied += getattr(thing, "nbytes", 0) if is_copy else 0
        return self._names[key]

    def spell(self, given: Any) -> str:
        if isinstance(given, Call):
            return self.name(given)
        if given is None or type(given) in (bool, str):
            return repr(given)
        if type(given) is float and math.isfinite(given) and given in SMALL:
            return f"({given!r})"
        if next(calls_in(given), None) is None:
            return self.constant(given)
        parts = ", ".join(map(self.spell, given))
        return f"[{parts}]" if isinstance(given, list) else f"({parts},)"

    def line(self, call: Call) -> str:
        fun, args = call.fun, call.args
        if fun is guard:
            return f"if {'not ' if args[1] else ''}{self.spell(args[0])}: raise Diverged"
        if fun is stay:
            return f"if kind_of({self.name(args[0])}) != {self.constant(args[1])}: raise Diverged"
        if fun in IN_PLACE:
            return self._change(call)
        return f"{self.name(call)} = {self._text(call)}"

    def _change(self, call: Call) -> str:
        """The statement that changes an array in place, which goes by its name from then on."""
        name = self._names[call] = self.name(call.args[0])
        if call.fun is plus:
            return f"{name} += {self.spell(call.args[1])}"
        _, index, g, distinct = call.args
        if distinct or not isinstance(value_of(index), np.ndarray | list | tuple):
            return f"{name}[{self.spell(index)}] += {self.spell(g)}"
        return f"np.add.at({name}, {self.spell(index)}, {self.spell(g)})"

    def _loop(self, call: Call) -> str:
        """A comprehension over the rows, in the model's line."""
        loop, rows, names = call.fun, [], list[str]()
        inner = dict(zip(loop.parts, call.args, strict=True))
        for part, own in zip(loop.parts, loop.are_own, strict=True):
            if own:
                is_python = type(part.value) in PYTHONS  # which NumPy's numbers are not
                rows.append(self.name(inner[part]) + ".tolist()" * is_python)
                names.append(f"x{len(names)}")
                inner[part] = Call(None, (), {}, part.value)
                self._names[inner[part]] = names[-1]
        args, kwargs = replaced(loop.args, inner)
        text = self._text(Call(loop.fun, args, kwargs, None))
        each = f"for {', '.join(names)}, in zip({', '.join(rows)}, strict=True)"
        return f"{self.constant(stacked)}([{text} {each}])"

    def _text(self, call: Call) -> str:
        if type(call.fun) is Loop:
            return self._loop(call)
        fun, args = call.fun, list(map(self.spell, call.args))
        if fun in TEXTS and not call.kwargs:
            return TEXTS[fun].format(*args)
        if fun in ATTRIBUTES and args and type(value_of(call.args[0])) is np.ndarray:
            return f"{args[0]}.{ATTRIBUTES[fun]}"
        named = [f"{name}={self.spell(each)}" for name, each in call.kwargs.items()]
        is_method = fun in METHODS and call.kwargs.keys() <= {"axis", "order"}  # no others' names
        has_order = fun is np.reshape and len(args) > 2  # which the method takes by name alone
        if is_method and not has_order and type(value_of(call.args[0])) is np.ndarray:
            return f"{args[0]}.{METHODS[fun]}({', '.join([*args[1:], *named])})"
        return f"{self.constant(fun)}({', '.join([*args, *named])})"

    def function(
        self, name: str, inputs: Sequence[str], calls: Sequence[Call], outputs: Iterable[Any]
    ) -> list[tuple[str, Any]]:
        """The lines of a function, and their places in the model; arrays are let go of after
        their last use."""
        pairs = [(self.line(call), call) for call in calls]
        seen = set()
        for call in calls_in(list(outputs)):
            while call.fun in IN_PLACE:  # it has the name of its first argument
                call = call.args[0]
            seen.add(self.name(call))
        lines: list[tuple[str, Any]] = []
        for line, call in reversed(pairs):
            used = [*calls_in((call.args, call.kwargs)), call]
            arrays = {self._names[each] for each in used if has_axes(each.value)}
            last = sorted(arrays - seen)
            seen |= arrays
            lines += [(f"    del {', '.join(last)}", call.place)] if last else []
            lines.append((f"    {line}", call.place))
        return [(f"def {name}({', '.join(inputs)}):", None), *lines[::-1]]


def has_axes(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim > 0


def snapshot(thing: Any) -> Any:
    """A constant as it is now; nobody can change the copy of an array."""
    if isinstance(thing, tuple):
        return tuple(map(snapshot, thing))
    if not (isinstance(thing, np.ndarray) and thing.flags.writeable and thing.flags.forc):
        return thing  # sums over a copy of a view with gaps would have other bits
    copy = thing.copy(order="K")
    copy.flags.writeable = False
    return copy
