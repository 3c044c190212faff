"""The writer: a list of calls as LLVM's text, one function for an item and a loop over items.

A value is an array in memory, or a number in a register. Calls that make arrays entry by entry,
one after the other, share a loop over these; views are addresses. ``ENTRIES`` and ``FORMS`` have
the functions that the writer knows: a form gets the writer and the call, and returns the value. A
call without a form goes back to NumPy. Lengths are numbers, or one of them is the register ``%n``,
so that lists of several lengths have the same text.

Arithmetic is strict: LLVM may not reorder, contract or leave out a rounding. Arrays of constants
and addresses of functions are no part of the text, but entries of a table that it gets.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.programs.calls import (
    IN_PLACE,
    NumpyCall,
    calls_in,
    cut,
    guard,
    mapped,
    stay,
    value_of,
)

TYPES = {"float64": "double", "bool": "i8", "int64": "i64"}
SIZES = {"double": 8, "i8": 1, "i64": 8}
STACK, MOST_STACK = 64, 2**16  # entries of an array on the stack; bytes of all
MOST_BYTES = 2**27  # of scratch
DIVERGED, FAILED = 1, 2  # marks of an item

Length = int | str  # a number or a register


class Unwritable(Exception):
    """A list has no machine code; names the call, and its file and line if these are known."""

    def __init__(self, reason: str, call: Any = None):
        super().__init__(reason)
        self.call = call


@dataclass(frozen=True, slots=True)
class Value:
    """An array at an address, or a number in the register ``reg``; strides count entries. ``root``
    names the memory that it is in; nobody may write to that of an input."""

    type: str
    shape: tuple[Length, ...] = ()
    at: str = ""
    strides: tuple[Length, ...] = ()
    reg: str | None = None
    root: str = ""


class EntryForm(NamedTuple):
    """``make`` gets the writer, registers with their types, and the type of the result, and returns
    a register with its type; ``is_exact``: with the bits of NumPy's."""

    make: Callable
    is_exact: bool


class Form(NamedTuple):
    make: Callable[["TextWriter", NumpyCall], Any]
    is_exact: bool


class Callback(NamedTuple):
    """A call that goes back to NumPy: its function and arguments, in which ``Place`` stands for an
    operand; shapes and dtypes of operands and results."""

    fun: Any
    args: tuple
    kwargs: dict
    operands: Sequence[tuple]
    results: Sequence[tuple]
    is_several: bool


class Place(NamedTuple):
    number: int


ENTRIES: dict[Any, EntryForm] = {}
FORMS: dict[Any, Form] = {}


def form(*funs: Any, is_exact: bool = False) -> Callable:
    def enter(fun: Callable) -> Callable:
        FORMS.update(dict.fromkeys(funs, Form(fun, is_exact)))
        return fun

    return enter


def name_of(fun: Any) -> str:
    name = getattr(fun, "__name__", type(fun).__name__)
    owner = getattr(getattr(fun, "__self__", None), "__name__", "")
    return f"{owner}.{name}" if owner else name


def number(x: float) -> str:
    return f"0x{np.float64(x).view(np.uint64):016X}"


def type_of(value: Any) -> str:
    if not isinstance(value, np.ndarray | np.generic | int | float):
        raise Unwritable(f"a value is a {type(value).__name__}")
    kind = np.result_type(value)
    if kind.name not in TYPES or not kind.isnative:
        raise Unwritable(f"a value is of dtype {kind}")
    return TYPES[kind.name]


class TextWriter:
    """``symbol``: the length that stands for any length."""

    def __init__(self, symbol: int | None = None):
        self.symbol = symbol
        self.lines: list[str] = []
        self.entry: list[str] = []  # of the function's first block
        self.declared: set[str] = set()
        self.table: list[Any] = []  # constants, callbacks and names of functions
        self.callbacks: list[str] = []
        self.is_exact = True
        self.values: dict[NumpyCall, Any] = {}
        self.users: dict[NumpyCall, set[Any]] = {}
        self.places: dict[NumpyCall, Value] = {}  # of values that are made in a certain place
        self.stack = self.scratch = self.dynamic = 0  # bytes; the last ones for each of a length
        self.turns = 1  # of the loops around
        self.returns = self.steps = 0  # callbacks and calls, with those of all turns
        self._pending: list[NumpyCall] = []
        self._shape: tuple[Length, ...] = ()
        self._count = 0
        self._known: dict[Any, Any] = {}

    # ------------------------------------------------------------------------------------- text

    def new(self, name: str = "v") -> str:
        self._count += 1
        return f"%{name}{self._count}"

    def put(self, text: str) -> str:
        reg = self.new()
        self.lines.append(f"  {reg} = {text}")
        return reg

    def do(self, text: str) -> None:
        self.lines.append("  " + text)

    def slot(self, type: str, count: int = 1) -> str:
        """Memory on the stack."""
        reg = self.new("a")
        self.entry.append(f"  {reg} = alloca {type}, i64 {count}, align 32")
        return reg

    def call(self, name: str, *regs: str, type: str = "double") -> str:
        """A function of libm, or of LLVM's, of numbers. LLVM may put nothing in place of libm's, so
        that a constant has the bits of an input."""
        known = "" if name.startswith("llvm.") else " nobuiltin"
        kinds = ", ".join([type] * len(regs))
        self.declared.add(f"{type} @{name}({kinds}) willreturn memory(none){known}")
        args = ", ".join([f"{type} {reg}" for reg in regs])
        return self.put(f"call {type} @{name}({args}){known}")

    @contextmanager
    def loop(self, count: Length) -> Iterator[Length]:
        """A loop; gives the index."""
        if count == 1:
            yield 0
            return
        counter = self.slot("i64")
        name = counter[1:]
        self.do(f"store i64 0, ptr {counter}")
        self.do(f"br label %head{name}")
        self.lines.append(f"head{name}:")
        index = self.put(f"load i64, ptr {counter}")
        test = self.put(f"icmp slt i64 {index}, {count}")
        self.do(f"br i1 {test}, label %body{name}, label %end{name}")
        self.lines.append(f"body{name}:")
        yield index
        after = self.put(f"add nuw nsw i64 {index}, 1")
        self.do(f"store i64 {after}, ptr {counter}")
        self.do(f"br label %head{name}")
        self.lines.append(f"end{name}:")

    @contextmanager
    def loops(self, shape: Sequence[Length]) -> Iterator[tuple[Length, ...]]:
        if not shape:
            yield ()
            return
        with self.loop(shape[0]) as first, self.loops(shape[1:]) as others:
            yield (first, *others)

    def times(self, a: Length, b: Length) -> Length:
        if a == 0 or b == 0:
            return 0
        if a == 1 or b == 1:
            return b if a == 1 else a
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        return self.put(f"mul nsw i64 {a}, {b}")

    def plus(self, a: Length, b: Length) -> Length:
        if a == 0 or b == 0:
            return b if a == 0 else a
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        return self.put(f"add nsw i64 {a}, {b}")

    def moved(self, at: str, offset: Length, type: str) -> str:
        return at if offset == 0 else self.put(f"getelementptr {type}, ptr {at}, i64 {offset}")

    def mark(self, bit: int, test: str) -> None:
        """Marks the item if the test is true."""
        old = self.put("load i64, ptr %marks")
        bits = self.put(f"select i1 {test}, i64 {bit}, i64 0")
        self.do(f"store i64 {self.put(f'or i64 {old}, {bits}')}, ptr %marks")

    def from_table(self, thing: Any, key: Any) -> str:
        """The address of a thing: an array, a callback, or the name of a function."""
        if key not in self._known:
            self._known[key] = len(self.table), thing
            self.table.append(thing)
        return f"%t{self._known[key][0]}"

    # ----------------------------------------------------------------------------------- memory

    def dims(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(["%n" if size == self.symbol else size for size in shape])

    def shape_of(self, call: Any) -> tuple[Any, ...]:
        return self.dims(np.shape(call.value))

    def size(self, shape: Sequence[Length]) -> Length:
        total: Length = 1
        for length in shape:
            total = self.times(total, length)
        return total

    def strides(self, shape: Sequence[Length]) -> tuple[Length, ...]:
        steps: list[Length] = []
        step: Length = 1
        for length in reversed(shape):
            steps.append(step)
            step = self.times(step, length)
        return tuple(steps[::-1])

    def is_contiguous(self, value: Value) -> bool:
        steps = zip(value.shape, value.strides, self.strides(value.shape), strict=True)
        return all([length == 1 or step == usual for length, step, usual in steps])

    def room(self, type: str, shape: tuple[Length, ...]) -> Value:
        """A new array: on the stack, or in scratch."""
        fixed = int(np.prod([n for n in shape if isinstance(n, int)], dtype=np.int64))
        symbols = [n for n in shape if not isinstance(n, int)]
        if not fixed:
            raise Unwritable("an array has no entries")
        if symbols:
            if symbols != ["%n"]:
                raise Unwritable("an array has two axes of any length, or a part of one")
            offset = self.times(self.dynamic // 8, "%n")
            at = self.put(f"getelementptr double, ptr %any, i64 {offset}")
            self.dynamic += fixed * 8
        elif fixed <= STACK and self.stack < MOST_STACK:
            at = self.slot(type, fixed)
            self.stack += fixed * 8
        else:
            at = self.put(f"getelementptr i8, ptr %scratch, i64 {self.scratch}")
            self.scratch += (fixed * SIZES[type] + 63) // 64 * 64
            if self.scratch > MOST_BYTES:
                raise Unwritable(f"its arrays take more than {MOST_BYTES:,} bytes")
        return Value(type, shape, at, self.strides(shape), root=at)

    def made(self, call: NumpyCall) -> Value:
        """The place of a call's value."""
        if call in self.places:
            return self.places.pop(call)
        return self.room(type_of(call.value), self.shape_of(call))

    def address(self, value: Value, index: Sequence[Length]) -> str:
        offset: Length = 0
        for place, step, length in zip(index, value.strides, value.shape, strict=True):
            offset = self.plus(offset, 0 if length == 1 else self.times(place, step))
        return self.moved(value.at, offset, value.type)

    def read(self, value: Value, index: Sequence[Length] = ()) -> str:
        """An entry; the index may be of an array with more axes."""
        if value.reg is not None:
            return value.reg
        at = self.address(value, index[len(index) - len(value.shape) :])
        return self.put(f"load {value.type}, ptr {at}")

    def write(self, value: Value, index: Sequence[Length], reg: str) -> None:
        self.do(f"store {value.type} {reg}, ptr {self.address(value, index)}")

    def as_type(self, reg: str, old: str, new: str) -> str:
        if old == new:
            return reg
        if new == "double":
            return self.put(f"{'sitofp' if old == 'i64' else 'uitofp'} {old} {reg} to double")
        if new == "i1":
            compared = (
                f"fcmp une double {reg}, 0.0" if old == "double" else f"icmp ne {old} {reg}, 0"
            )
            return self.put(compared)
        if new == "i8":
            return self.put(f"zext i1 {self.as_type(reg, old, 'i1')} to i8")
        if old == "double":
            name = "llvm.fptosi.sat.i64.f64"
            self.declared.add(f"i64 @{name}(double) willreturn memory(none)")
            return self.put(f"call i64 @{name}(double {reg})")
        return self.put(f"zext {old} {reg} to i64")

    def entry_as(self, value: Value, type: str, index: Sequence[Length] = ()) -> str:
        return self.as_type(self.read(value, index), value.type, type)

    def number_as(self, value: Value, type: str) -> str:
        """A number, or the one entry of an array."""
        return self.entry_as(value, type, (0,) * len(value.shape))

    def in_register(self, type: str, reg: str) -> Value:
        return Value(type, reg=reg)

    def loaded(self, value: Value) -> Value:
        """The number at an address without axes."""
        if value.shape == () and value.reg is None:
            return Value(value.type, reg=self.put(f"load {value.type}, ptr {value.at}"))
        return value

    def operand(self, arg: Any) -> Value:
        """A call's value, or a constant."""
        if isinstance(arg, NumpyCall):
            value = self.values.get(arg)
            if not isinstance(value, Value):
                raise Unwritable(f"several values of {name_of(arg.fun)} are one operand")
            return value
        if isinstance(arg, bool | np.bool_):
            return Value("i8", reg=str(int(arg)))
        if isinstance(arg, int | np.int64) and -(2**63) <= arg < 2**63:
            return Value("i64", reg="%n" if arg == self.symbol else str(int(arg)))
        if isinstance(arg, float | np.float64):
            if self.symbol is not None and arg == self.symbol:
                return Value("double", reg=self.put("sitofp i64 %n to double"))
            return Value("double", reg=number(float(arg)))
        if not isinstance(arg, np.ndarray | list | tuple):
            raise Unwritable(f"an operand is a {type(arg).__name__}")
        array = np.asarray(arg)
        if array.ndim == 0:
            return self.operand(array[()])
        return self.constant(array, type_of(array), id(arg))

    def constant(self, array: np.ndarray, type: str, key: Any) -> Value:
        """An array of the table, as it is now."""
        dtype = {"double": np.float64, "i64": np.int64, "i8": np.bool_}[type]
        if not array.size:
            raise Unwritable("an array has no entries")
        at = self.from_table(np.array(array, dtype, order="C"), (key, type))
        self._known["held", key] = array  # so that no other array has its identity
        return Value(type, array.shape, at, self.strides(array.shape))

    def array(self, arg: Any) -> Value:
        """An operand in memory."""
        value = self.operand(arg)
        if value.reg is None:
            return value
        new = self.room(value.type, ())
        self.write(new, (), value.reg)
        return new

    def copy(self, x: Value, out: Value) -> None:
        if out.shape and self.is_contiguous(out) and x.shape == out.shape and self.is_contiguous(x):
            x, out = self.flat(x), self.flat(out)
        with self.loops(out.shape) as index:
            self.write(out, index, self.entry_as(x, out.type, index))

    def flat(self, x: Value) -> Value:
        return replace(x, shape=(self.size(x.shape),), strides=(1,))

    def copied(self, x: Value) -> Value:
        out = self.room(x.type, x.shape)
        self.copy(x, out)
        return out

    def contiguous(self, x: Value) -> Value:
        return x if self.is_contiguous(x) else self.copied(x)

    # ------------------------------------------------------------------------------------ calls

    def run(self, calls: Sequence[NumpyCall], outputs: Any) -> None:
        """Writes calls; the outputs will be read."""
        outer, self.users = self.users, {}
        for call in calls:
            for part in calls_in((call.args, call.kwargs)):
                self.users.setdefault(part, set()).add(call)
        for part in calls_in(outputs):
            self.users.setdefault(part, set()).add(None)
        for call in calls:
            try:
                self.add(call)
            except Unwritable as error:
                error.call = error.call or call
                raise
        self.flush()
        self.users = outer

    def add(self, call: NumpyCall) -> None:
        fun = call.fun
        if fun is cut or fun is stay:  # dtypes and shapes follow from those of the inputs
            return
        self.steps += self.turns
        if fun in ENTRIES and has_entries(call):
            self.is_exact &= ENTRIES[fun].is_exact
            if np.shape(call.value):
                if self._shape != np.shape(call.value):
                    self.flush()
                self._shape = np.shape(call.value)
                self._pending.append(call)
                return
            if any([part in self._pending for part in calls_in(call.args)]):
                self.flush()
            args = [self.operand(arg) for arg in operands_of(call)]
            entries = [(self.read(x, (0,) * len(x.shape)), x.type) for x in args]
            kind = type_of(call.value)
            reg, old = ENTRIES[fun].make(self, entries, kind)
            self.values[call] = Value(kind, reg=self.as_type(reg, old, kind))
            return
        self.flush()
        if fun is guard:
            test = self.number_as(self.operand(call.args[0]), "i1")
            self.mark(DIVERGED, self.put(f"xor i1 {test}, {'true' if call.args[1] else 'false'}"))
            return
        made = FORMS.get(fun) or FORMS.get(type(fun))
        before = len(self.lines), {**self.places}
        try:
            if made is None:
                raise Unwritable(f"{name_of(fun)} has no machine code")
            self.is_exact &= made.is_exact
            self.values[call] = made.make(self, call)
        except Unwritable:
            if self.symbol is not None or fun in IN_PLACE or (made and made.make in NO_CALLBACKS):
                raise
            del self.lines[before[0] :]
            self.places = before[1]
            self.values[call] = self._by_numpy(call)

    def flush(self) -> None:
        """Writes the loop that the pending calls share."""
        group, shape = self._pending, self.dims(self._shape)
        self._pending, self._shape = [], ()
        if not group:
            return
        inside = {*group}
        prepared = []
        for call in group:
            parts = operands_of(call)
            args = [
                arg if isinstance(arg, NumpyCall) and arg in inside else self.operand(arg)
                for arg in parts
            ]
            is_needed = bool(self.users.get(call, set()) - inside) or call in self.places
            prepared.append((call, args, self.made(call) if is_needed else None))
        arrays = [x for _, args, out in prepared for x in (*args, out) if isinstance(x, Value)]
        arrays = [x for x in arrays if x.reg is None]
        is_flat = all([x.shape == shape and self.is_contiguous(x) for x in arrays])
        registers: dict[NumpyCall, tuple[str, str]] = {}
        with self.loops((self.size(shape),) if is_flat else shape) as index:
            for call, args, out in prepared:
                entries = []
                for x in args:
                    if isinstance(x, NumpyCall):
                        entries.append(registers[x])
                    else:
                        x = self.flat(x) if is_flat and x.reg is None else x
                        entries.append((self.read(x, index), x.type))
                kind = type_of(call.value)
                reg, old = ENTRIES[call.fun].make(self, entries, kind)
                registers[call] = reg, old
                if kind != "i8" or old != "i1":
                    registers[call] = self.as_type(reg, old, kind), kind
                if out is not None:
                    place = self.flat(out) if is_flat else out
                    self.write(place, index, self.as_type(reg, old, out.type))
        self.values |= {call: out for call, _, out in prepared if out is not None}

    def _by_numpy(self, call: NumpyCall) -> Any:
        """A call that goes back to NumPy, on arrays in the memory of the machine code."""
        parts = list(dict.fromkeys(calls_in((call.args, call.kwargs))))
        is_several = isinstance(call.value, list | tuple)
        values = [*call.value] if is_several else [call.value]
        results = [self.room(type_of(x), np.shape(x)) for x in values]
        operands = [self.contiguous(self.array(part)) for part in parts]
        kinds = [kind_of_operand(part.value) for part in parts]
        numbers = {part: Place(n) for n, part in enumerate(parts)}
        args, kwargs = mapped((call.args, call.kwargs), numbers.__getitem__)
        shapes = [(np.shape(x), np.result_type(x).str) for x in values]
        back = Callback(call.fun, args, kwargs, kinds, shapes, is_several)
        table = self.slot("ptr", len(operands) + len(results))
        for n, x in enumerate([*operands, *results]):
            self.do(f"store ptr {x.at}, ptr {self.moved(table, n, 'ptr')}")
        with self.foreign():
            failed = self.put(f"call i64 {self.from_table(back, id(call))}(ptr {table})")
        self.mark(FAILED, self.put(f"icmp ne i64 {failed}, 0"))
        self.callbacks.append(name_of(call.fun))
        self.returns += self.turns
        self.is_exact = False
        loaded = [self.loaded(x) for x in results]
        return tuple(loaded) if is_several else loaded[0]

    @contextmanager
    def foreign(self) -> Iterator[None]:
        """Code of others, which may raise or clear floating-point flags."""
        self.do("call void @keep_flags(ptr %marks)")
        yield
        self.do("call void @clear_flags()")

    def lapack(self, name: str, *args: str) -> None:
        """Calls a function of LAPACK, whose last argument, which tells of failure, is added."""
        info = self.whole(0)
        with self.foreign():
            address = self.from_table(name, name)
            self.do(f"call void {address}({', '.join([f'ptr {x}' for x in (*args, info)])})")
        self.mark(FAILED, self.put(f"icmp ne i32 {self.put(f'load i32, ptr {info}')}, 0"))

    def whole(self, n: int, count: int = 1) -> str:
        """Whole numbers of LAPACK's."""
        at = self.slot("i32", count)
        self.do(f"store i32 {n}, ptr {at}")
        return at

    def letter(self, text: str) -> str:
        at = self.slot("i8")
        self.do(f"store i8 {ord(text)}, ptr {at}")
        return at


NO_CALLBACKS: set[Any] = set()  # forms of what NumPy has not


def has_entries(call: NumpyCall) -> bool:
    """Whether the entry of its function can be written for these types."""
    if call.kwargs.keys() - {"casting", "copy"} or type(call.value) is int:
        return False
    try:
        args = [("%x", type_of(value_of(arg))) for arg in operands_of(call)]
        ENTRIES[call.fun].make(TextWriter(), args, type_of(call.value))
    except Unwritable:
        return False
    return True


def kind_of_operand(value: Any) -> tuple:
    type_of(value)
    return np.shape(value), np.result_type(value).str, type(value)


def operands_of(call: NumpyCall) -> Sequence[Any]:
    return call.args[:1] if call.fun in OF_FIRST else call.args


OF_FIRST: set[Any] = set()  # functions whose other arguments are options
