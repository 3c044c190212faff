"""Programs: the Python of a list of calls, a line for each, as two functions; and their tapes."""

import ast
import functools
import io
import operator
import pickle
import types
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from daskgrad.autodiff.programs.boxes import PYTHONS
from daskgrad.autodiff.programs.calls import (
    IN_PLACE,
    OPERATORS,
    CallList,
    ItemLoop,
    NumpyCall,
    TurnLoop,
    calls_in,
    cut,
    guard,
    kind_of,
    loop_of,
    plus,
    replaced,
    stacked,
    stay,
    value_of,
)
from daskgrad.autodiff.rules.declaration import Diverged
from daskgrad.autodiff.tape.pickling import TapePickler
from daskgrad.autodiff.tape.reverse import AutogradTape, arrays_within, trace
from daskgrad.autodiff.values.carriers import kept_or_made
from daskgrad.autodiff.values.descriptions import NondeterministicModelError, describe

Line = tuple[str, Any]  # of a program, and its place in the model

MOST_ARRIVED = 256
MOST_CODES = 1024

TEXTS: dict[Any, str] = {fun: f"{{}} {sign} {{}}" for fun, sign in OPERATORS.items()}
TEXTS |= {operator.neg: "-{}", operator.invert: "~{}", operator.getitem: "{}[{}]"}
TEXTS[np.matmul] = "{} @ {}"
METHODS = {np.reshape: "reshape", np.transpose: "transpose", np.diagonal: "diagonal"}
METHODS |= {np.trace: "trace", np.cumsum: "cumsum", np.swapaxes: "swapaxes"}
ATTRIBUTES = {np.real: "real", np.imag: "imag"}
SMALL = {0.0, 1.0, 2.0, 0.5, -1.0}  # numbers that stand in the text


class ProgramText(NamedTuple):
    """The text of a program; the file of the model, and for each line of the text the one there."""

    text: str
    file: str = ""
    lines: tuple[int, ...] = ()


class Program(NamedTuple):
    """``forward`` takes all arrays of a call and returns the outputs and the residuals;
    ``backward`` takes the residuals and cotangents, and returns cotangents of the traced arrays.

    ``examples`` are cotangents, one for each output, or ``None`` if ``backward`` takes none;
    ``seeds`` are the examples without ``None``; ``constants`` are the functions and other objects
    that the source names; ``nbytes``: of copied arrays among them; ``steps``: the lines that run.
    """

    name: str
    source: ProgramText
    forward: Callable[..., tuple]
    backward: Callable[..., list]
    examples: Sequence[Any]
    constants: Mapping[str, Any]
    seeds: Sequence[Any]
    steps: int
    nbytes: int

    @classmethod
    def of_source(
        cls,
        name: str,
        source: ProgramText,
        examples: Sequence[Any],
        constants: Mapping[str, Any],
        steps: int,
        nbytes: int = 0,
    ) -> "Program":
        namespace = namespace_of(source, constants)
        forward, backward = namespace["forward"], namespace["backward"]
        seeds = [example for example in examples if example is not None]
        return cls(name, source, forward, backward, examples, constants, seeds, steps, nbytes)

    def __reduce__(self) -> tuple:
        """As text, with its constants; a process that gets many tapes of it makes it once."""
        parts = self.name, self.source, self.examples, self.constants, self.steps
        packed = _packed.get(self.forward)
        if packed is None:
            packed = _packed[self.forward] = pickled(parts)
        return arrived_program, (packed,)

    @property
    def is_exact(self) -> bool:
        """Whether it has the tape's bits."""
        return True

    def pull_examples(self, residuals: tuple) -> list[Any]:
        return self.backward(residuals, *self.seeds)


def namespace_of(source: ProgramText, constants: Mapping[str, Any]) -> dict[str, Any]:
    """The functions of a source, by their names."""
    namespace = {"np": np, "Diverged": Diverged, "kind_of": kind_of, **constants}
    exec(code_of(source), namespace)
    return namespace


@functools.lru_cache(MOST_CODES)
def code_of(source: ProgramText) -> types.CodeType:
    """The code that defines the functions of a source; calls of other sizes have the same.

    Warnings and tracebacks name the model's file and line.
    """
    tree = ast.parse(source.text)
    nodes: Any = ast.walk(tree) if source.lines else ()
    for node in nodes:
        if hasattr(node, "lineno"):
            node.lineno = node.end_lineno = source.lines[node.lineno - 1]
            node.col_offset = node.end_col_offset = 0
    return compile(tree, source.file or "<compiled>", "exec")


_packed: MutableMapping[Any, bytes] = weakref.WeakKeyDictionary()
_arrived: dict[bytes, Program] = {}


def pickled(parts: tuple) -> bytes:
    buffer = io.BytesIO()
    TapePickler(buffer, protocol=5).dump(parts)
    return buffer.getvalue()


def arrived_program(packed: bytes) -> Program:
    def load() -> Program:
        return Program.of_source(*pickle.loads(packed))

    return kept_or_made(_arrived, packed, load, MOST_ARRIVED)


@dataclass(slots=True, eq=False, repr=False)
class CompiledTape:
    """Residuals of a program's forward pass; ``tape_nbytes`` are the bytes of the tape itself.

    ``call`` of ``arrays`` gives the tape itself, for cotangents that the program was not made for,
    unless the ``watch`` has seen a change; a tape that came from another process has no call.
    """

    program: Program
    residuals: tuple
    tape_nbytes: int
    call: Callable | None = None
    arrays: Sequence[Any] = ()
    watch: Any = None

    pickler: ClassVar[Any] = TapePickler

    def __reduce__(self) -> tuple:
        program = self.program
        # the tape alone takes outputs without a cotangent, and answers where the program diverges
        if len(program.examples) > 1 or "Diverged" in program.backward.__code__.co_names:
            raise pickle.PicklingError("a compiled pullback that may need the tape stays there")
        return CompiledTape, (program, self.residuals, self.tape_nbytes)

    @property
    def steps(self) -> int:
        """The lines of the program, which take the place of the tape's operations."""
        return self.program.steps

    def pull_rows(
        self, cotangents: Sequence[Any], asked: Collection[int] = (), is_term: bool = False
    ) -> list[Any]:
        """Pulls with rows for the arrays ``asked``, for which the program was made."""
        chosen = []
        for cotangent, value in zip(cotangents, self.program.examples, strict=True):
            if value is not None:
                if not fits(cotangent, value):
                    return pull_as_asked(self._tape_for(cotangent, value), cotangents, asked)
                chosen.append(cotangent)
        try:
            return self.program.backward(self.residuals, *chosen)
        except Diverged:
            return pull_as_asked(self._tape_for(chosen[0], chosen[0]), cotangents, asked)

    def _tape_for(self, cotangent: Any, example: Any) -> AutogradTape:
        if self.call is None:
            raise TypeError(
                f"the pullback of model {self.program.name!r}, which is compiled and came from "
                f"another process, takes a cotangent like {describe(example)}; found "
                f"{describe(cotangent)}"
            )
        if self.watch is not None and self.watch.has_changed():
            raise NondeterministicModelError(
                f"something to which model {self.program.name!r} refers has changed since it ran, "
                f"and its pullback runs it again for the cotangent {describe(cotangent)}: pass it "
                f"as an argument, or say dg.delayed(model, compile=False)"
            )
        return trace(self.call, self.arrays)[1]

    pull = pull_rows  # see ``autodiff.libraries.registry``

    def held_arrays(self) -> list[np.ndarray]:
        """The arrays that the residuals keep alive, each once; a view counts as its owner."""
        return arrays_within(self.residuals)


def pull_as_asked(tape: Any, cotangents: Sequence[Any], asked: Collection[int]) -> list[Any]:
    """The cotangents of a tape's arrays; as rows for the numbers ``asked``."""
    return tape.pull_rows(cotangents, asked) if asked else tape.pull(cotangents)


def fits(cotangent: Any, example: Any) -> bool:
    """Whether a cotangent has the kind of the example that a program was written with."""
    return (
        type(cotangent) is type(example)
        and cotangent.shape == example.shape
        and cotangent.dtype == example.dtype
    )


# ------------------------------------------------------------------------------------- writing


def written(program: CallList, name: str, examples: Sequence[Any]) -> "Program":
    """The two functions of a list.

    ``forward`` returns the outputs and the residuals; ``backward`` takes these and cotangents like
    the ``examples``.
    """
    writer = Writer()
    names = list(map(writer.name, program.inputs))
    place = [call.fun for call in program.calls].index(cut)
    first, second = program.calls[:place], program.calls[place + 1 :]
    own = len(names) - program.seed_count
    outputs, pulled = program.outputs[: program.value_count], program.outputs[program.value_count :]
    before = {*program.inputs[:own], *first}
    taken = calls_in([*[(call.args, call.kwargs) for call in second], pulled])
    residuals = list(dict.fromkeys([call for call in taken if call in before]))
    forward = writer.function("forward", names[:own], first, outputs, residuals)
    backward = writer.function("backward", ["residuals", *names[own:]], second, pulled)
    if residuals:
        backward.insert(1, (f"    {writer.spell(tuple(residuals))} = residuals", None))
    source = source_of([*forward, *backward])
    steps = source.text.count("\n") + writer.more
    return Program.of_source(name, source, examples, writer.constants, steps, writer.copied)


def written_as_one(program: CallList) -> Callable:
    """The one function of a list, which returns its outputs."""
    writer = Writer()
    names = list(map(writer.name, program.inputs))
    calls = [call for call in program.calls if call.fun is not cut]
    source = source_of(writer.function("batch", names, calls, program.outputs))
    return namespace_of(source, writer.constants)["batch"]


def source_of(lines: Sequence[Line]) -> ProgramText:
    texts, places = zip(*lines, strict=True)
    return ProgramText("\n".join(texts), *lines_of_model(places))


def lines_of_model(places: Sequence[Any]) -> tuple[str, tuple[int, ...]]:
    """The file of most places, and for each place its line in that file, or the last one."""
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
    """Writes calls; ``copied``: bytes of copies among the ``constants``; ``more``: lines that run
    in later turns of loops."""

    def __init__(self) -> None:
        self.constants: dict[str, Any] = {}
        self.copied = self.more = 0
        self._names: dict[Any, str] = {}
        self._held: list[Any] = []  # so that no other object gets an identity that is named
        self._count = 0

    def name(self, call: NumpyCall) -> str:
        if call not in self._names:
            self._names[call] = self._new_name()
        return self._names[call]

    def _new_name(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def constant(self, thing: Any) -> str:
        """The name of a constant; each use of a number or a shape has its own, since it may depend
        on the data's size: calls of other sizes then have the same text, and so the same code."""
        key = len(self._held) if type(thing) in (int, tuple) else id(thing)
        if key not in self._names:
            self._held.append(thing)
            name = getattr(thing, "__name__", "c")
            name = f"{name if name.isidentifier() else 'c'}_{len(self._held)}"
            self._names[key], self.constants[name] = name, snapshot(thing)
            self.copied += nbytes_of_copies(thing, self.constants[name])
        return self._names[key]

    def spell(self, thing: Any) -> str:
        if isinstance(thing, NumpyCall):
            return self.name(thing)
        if thing is None or type(thing) in (bool, str):
            return repr(thing)
        if type(thing) is float and thing in SMALL:
            return f"({thing!r})"
        if next(calls_in(thing), None) is None:
            return self.constant(thing)
        parts = ", ".join(map(self.spell, thing))
        return f"[{parts}]" if isinstance(thing, list) else f"({parts},)"

    def line(self, call: NumpyCall) -> str:
        fun, args = call.fun, call.args
        if fun is guard:
            return f"if {'not ' if args[1] else ''}{self.spell(args[0])}: raise Diverged"
        if fun is stay:
            return f"if kind_of({self.name(args[0])}) != {self.constant(args[1])}: raise Diverged"
        if fun in IN_PLACE:
            return self._change(call)
        return f"{self.name(call)} = {self._text(call)}"

    def _statement(self, call: NumpyCall, indent: str) -> list[Line]:
        """The lines of a call; a result of a loop has the name that it has there."""
        if type(call.fun) is TurnLoop:
            return self._for(call, indent)
        if loop_of(call) is not None:
            self._names[call] = self._names[call.args]
            return []
        return [(indent + self.line(call), call.place)]

    def _for(self, call: NumpyCall, indent: str) -> list[Line]:
        """The ``for`` statement of a loop."""
        loop, (first, rows, fixed), inner = call.fun, call.args, indent + "    "
        self._names |= {x: self.spell(thing) for x, thing in zip(loop.fixed, fixed, strict=True)}
        carried = [self.name(parameter) for parameter, _ in loop.carried]
        begin = [f"{x} = {self.spell(y)}" for x, y in zip(carried, first, strict=True)]
        turns = "" if rows else self.constant(loop.turns)
        names, sequences = (", ".join(map(self.spell, part)) for part in (loop.rows, rows))
        if len(rows) > 1:
            head = f"for {names} in zip({sequences}):"
        else:
            head = f"for {names} in {sequences}:" if rows else f"for _ in range({turns}):"
        nexts, more = [x for _, x in loop.carried], self.more
        self._names |= {x: self.name(parameter) for parameter, x in in_place_of_carried(loop)}
        groups = self._groups(loop.body, inner)
        staying = {self.name(x) for x in (*loop.fixed, *loop.rows)}
        live = staying | {self.name(x) for x in calls_in((nexts, loop.outputs))}
        body = let_go(groups, live, inner, self._names)
        moves = [(x, y) for x, y in zip(carried, map(self.spell, nexts), strict=True) if x != y]
        moved = {x for x, _ in moves}
        end, results = [], set[str]()
        for number, output in enumerate(loop.outputs):
            if output is None:
                continue
            name = self.spell(output)
            if number >= loop.lasts:
                kept = self._new_name()
                begin.append(f"{kept} = []")
                end.append(f"{kept}.append({name})")
                name = kept
            elif name in moved or not isinstance(output, NumpyCall):
                end.append(f"{(copy := self._new_name())} = {name}")
                name = copy
            results.add(name)
            self._names[call, number] = name
        at_once = [(x, y) for x, y in moves if y in carried]
        one_by_one = [[move] for move in moves if move[1] not in carried]
        for pairs in [at_once, *one_by_one] if at_once else one_by_one:
            end.append(" = ".join([", ".join(names) for names in zip(*pairs, strict=True)]))
        held = {self.name(x) for x in calls_in((nexts, loop.outputs)) if is_held(x.value)}
        held -= {*carried, *results} | staying
        end += [f"del {', '.join(sorted(held))}"] if held else []
        parameters = [*[x for x, _ in loop.carried], *loop.rows]
        left = sorted({self.name(x) for x in parameters if is_held(x.value)} - results)
        body += [(inner + text, call.place) for text in end]
        self.more = more + loop.turns * (self.more - more) + (loop.turns - 1) * len(body)
        after = [f"del {', '.join(left)}"] if left else []
        around = [[(indent + text, call.place) for text in part] for part in (begin, [head], after)]
        return [*around[0], *around[1], *body, *around[2]]

    def _change(self, call: NumpyCall) -> str:
        """The statement that changes an array in place; the call gets the array's name."""
        name = self._names[call] = self.name(call.args[0])
        if call.fun is plus:
            return f"{name} += {self.spell(call.args[1])}"
        _, index, g, distinct = call.args
        if distinct or not isinstance(value_of(index), np.ndarray | list | tuple):
            return f"{name}[{self.spell(index)}] += {self.spell(g)}"
        return f"np.add.at({name}, {self.spell(index)}, {self.spell(g)})"

    def _loop(self, call: NumpyCall) -> str:
        """A comprehension over the rows, in the model's line."""
        loop, rows, names = call.fun, [], list[str]()
        inner = dict(zip(loop.parts, call.args, strict=True))
        for part, own in zip(loop.parts, loop.are_own, strict=True):
            if own:
                column = self.name(inner[part])
                if type(part.value) in PYTHONS:  # which NumPy's numbers are not
                    column += ".tolist()"
                elif isinstance(part.value, np.ndarray) and not part.value.ndim:
                    column = f"map({self.constant(np.asarray)}, {column})"
                rows.append(column)
                names.append(f"x{len(names)}")
                inner[part] = NumpyCall(None, (), {}, part.value)
                self._names[inner[part]] = names[-1]
        args, kwargs = replaced(loop.args, inner)
        text = self._text(NumpyCall(loop.fun, args, kwargs, None))
        loop_over = f"for {', '.join(names)}, in zip({', '.join(rows)}, strict=True)"
        return f"{self.constant(stacked)}([{text} {loop_over}])"

    def _text(self, call: NumpyCall) -> str:
        if type(call.fun) is ItemLoop:
            return self._loop(call)
        fun, args = call.fun, list(map(self.spell, call.args))
        if fun in TEXTS and not call.kwargs:
            return TEXTS[fun].format(*args)
        if fun in ATTRIBUTES and args and type(value_of(call.args[0])) is np.ndarray:
            return f"{args[0]}.{ATTRIBUTES[fun]}"
        named = [f"{name}={self.spell(option)}" for name, option in call.kwargs.items()]
        is_method = fun in METHODS and call.kwargs.keys() <= {"axis", "order"}  # no others' names
        has_order = fun is np.reshape and len(args) > 2  # which the method takes by name alone
        if is_method and not has_order and type(value_of(call.args[0])) is np.ndarray:
            return f"{args[0]}.{METHODS[fun]}({', '.join([*args[1:], *named])})"
        return f"{self.constant(fun)}({', '.join([*args, *named])})"

    def function(
        self,
        name: str,
        inputs: Sequence[str],
        calls: Sequence[NumpyCall],
        outputs: Sequence[Any],
        residuals: Sequence[NumpyCall] | None = None,
    ) -> list[Line]:
        """The lines of a function."""
        groups = self._groups(calls, "    ")
        returned = f"[{', '.join(map(self.spell, outputs))}]"
        if residuals is not None:
            returned += f", {self.spell(tuple(residuals)) if residuals else ()}"
        live = set(map(self.name, calls_in([outputs, residuals])))
        lines = let_go(groups, live, "    ", self._names)
        head = f"def {name}({', '.join(inputs)}):"
        return [(head, None), *lines, (f"    return {returned}", None), ("", None)]

    def _groups(self, calls: Sequence[NumpyCall], indent: str) -> list[tuple[list[Line], Any]]:
        return [(self._statement(call, indent), call) for call in calls]


def in_place_of_carried(loop: TurnLoop) -> list[tuple[NumpyCall, NumpyCall]]:
    """Carried parameters, and calls that may have their names, since they are used no more."""
    calls = enumerate(loop.body)
    places = {call: n for n, call in calls if call.fun not in IN_PLACE and not loop_of(call)}
    last = {x: n for n, call in enumerate(loop.body) for x in calls_in((call.args, call.kwargs))}
    last |= {x: len(loop.body) for x in calls_in((loop.outputs, [x for _, x in loop.carried]))}
    last |= {call.args[0]: len(loop.body) for call in loop.body if call.fun in IN_PLACE}
    pairs, taken = [], set[NumpyCall]()
    for parameter, x in loop.carried:
        if x in places and x not in taken and last.get(parameter, -1) <= places[x]:
            pairs.append((parameter, x))
            taken.add(x)
    return pairs


def let_go(groups: Sequence[Any], live: set[str], indent: str, names: Mapping) -> list[Line]:
    """The lines of calls; arrays are let go of after their last use, unless they are ``live``."""
    lines, seen = list[Line](), set(live)
    for group, call in reversed(groups):
        used = [*calls_in((call.args, call.kwargs)), call]
        arrays = {names[part] for part in used if is_held(part.value)}
        last = sorted(arrays - seen)
        seen |= arrays
        lines += [(f"{indent}del {', '.join(last)}", call.place)] if last else []
        lines += group[::-1]
    return lines[::-1]


def is_held(value: Any) -> bool:
    """Whether it takes memory: an array, or the list of a loop's values."""
    return isinstance(value, list) or (isinstance(value, np.ndarray) and value.ndim > 0)


def nbytes_of_copies(thing: Any, constant: Any) -> int:
    if isinstance(thing, tuple):
        return sum(map(nbytes_of_copies, thing, constant))
    is_copy = constant is not thing or type(getattr(thing, "base", 0)) is bytes
    return getattr(thing, "nbytes", 0) if is_copy else 0


def snapshot(thing: Any) -> Any:
    """A constant as it is now; nobody can change the copy of an array."""
    if isinstance(thing, tuple):
        return tuple(map(snapshot, thing))
    if not (isinstance(thing, np.ndarray) and thing.flags.writeable and thing.flags.forc):
        return thing  # sums over a copy of a view with gaps would have other bits
    copy = thing.copy(order="K")
    copy.flags.writeable = False
    return copy
