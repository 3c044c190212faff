"""Machine code: the functions of a list, compiled by LLVM, for one item or many.

A list's text is compiled once a process for all lists that have it. The object file, the constants
and the layout of inputs and outputs travel. Each call has scratch of its own. The items of a block
run one after the other, each by the same function, so that an item's bits depend on no other.
"""

import ctypes
import functools
import hashlib
import itertools
import platform
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from daskgrad.autodiff.native import forms_arrays, forms_entries, forms_linear, forms_loops
from daskgrad.autodiff.native.addresses import address_of
from daskgrad.autodiff.native.sums import HELPERS, flags
from daskgrad.autodiff.native.writer import (
    DIVERGED,
    SIZES,
    Callback,
    Place,
    TextWriter,
    Unwritable,
    Value,
    type_of,
)
from daskgrad.autodiff.programs.calls import CallList, mapped, value_of
from daskgrad.autodiff.rules.declaration import Diverged
from daskgrad.autodiff.values import clock
from daskgrad.autodiff.values.carriers import kept_or_made

IS_X86 = platform.machine().lower() in ("x86_64", "amd64")
CPU = "x86-64-v3" if IS_X86 else "generic"
CALLS_A_CALLBACK = 10  # of the list, which take as long as a call that goes back to NumPy
MOST_LOADED = 1024
DTYPES = {"double": np.dtype(np.float64), "i64": np.dtype(np.int64), "i8": np.dtype(np.bool_)}
FORMS = forms_arrays, forms_entries, forms_linear, forms_loops  # which enter what they write

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()


class Flagged(ArithmeticError):
    """Items are for NumPy, or for the model's tape: they have floating-point errors, an index out
    of bounds, or an error of linear algebra. ``items`` has their numbers."""

    def __init__(self, items: Sequence[int]):
        super().__init__(f"{len(items)} items are for NumPy")
        self.items = items


class DivergedItems(Diverged):
    """Some ``items`` take another way through the model."""

    def __init__(self, items: Sequence[int]):
        super().__init__(f"{len(items)} items take another way")
        self.items = items


class Shared(NamedTuple):
    """A column whose items are one array."""

    array: Any


class Stacked(NamedTuple):
    """A column whose items are the rows of an array."""

    array: np.ndarray


class Separate(NamedTuple):
    """A column whose items are arrays, which may differ in length if their input varies."""

    arrays: Sequence[np.ndarray]


Column = Shared | Stacked | Separate


class Kind(NamedTuple):
    """The Python type, LLVM's type and the shape of an input or output; ``None`` is any length."""

    python: Any
    type: str
    shape: tuple[Any, ...]


def compiled(calls: CallList, varying: Sequence[int] = ()) -> "MachineCode":
    """The machine code of a rolled and rewritten list; ``Unwritable`` if it has none.

    The inputs ``varying`` have one axis, of one length; lists of other lengths that have the same
    text and constants get the same object. So a block may have items of all ``lengths`` for which
    this function was called, and of no others.
    """
    begin = clock.processor_seconds()
    lengths = {np.shape(calls.inputs[place].value) for place in varying}
    text = None
    if len(lengths) == 1:
        (shape,) = lengths
        others = [np.shape(x.value) for n, x in enumerate(calls.inputs) if n not in varying]
        if len(shape) == 1 and shape[0] > 1 and not any([shape[0] in other for other in others]):
            try:
                text = text_of(calls, varying, shape[0])
            except Unwritable:  # with lengths that are registers
                text = None
    text = text or text_of(calls, (), None)
    key = text.digest()
    code = kept_or_made(_made, key, lambda: text.compiled(key, begin), MOST_LOADED)
    code.lengths.add(text.length)
    return code


class Layout(NamedTuple):
    """The ``table`` that code gets, its inputs and outputs, and the bytes of its scratch, the last
    ones for each of a length. ``is_exact``: each number is rounded as on the tape."""

    table: Sequence[Any]
    inputs: Sequence[Kind]
    outputs: Sequence[Kind | None]
    varying: frozenset[int]
    scratch: tuple[int, int]
    callbacks: Sequence[str]
    is_exact: bool


class Text(NamedTuple):
    """A module's text, its layout, and the length that stands for any length."""

    lines: str
    layout: Layout
    length: int | None

    def digest(self) -> str:
        layout = self.layout
        parts = [f"{CPU} {llvmlite.__version__} {layout.inputs} {layout.outputs}".encode()]
        parts.append(self.lines.encode())
        for thing in layout.table:
            is_array = isinstance(thing, np.ndarray)
            if isinstance(thing, Callback):  # which names functions by identity
                parts.append(repr((id(thing), next(_unique))).encode())
            else:
                parts.append(thing.tobytes() if is_array else repr(thing).encode())
        return hashlib.sha256(b"\0".join(parts)).hexdigest()

    def compiled(self, key: str, begin: float) -> "MachineCode":
        content = object_of(self.lines)
        return MachineCode(key, content, self.layout, clock.processor_seconds() - begin)


_made: dict[str, "MachineCode"] = {}
_unique = itertools.count()


def text_of(calls: CallList, varying: Sequence[int], symbol: int | None) -> Text:
    """The module of a list: ``@item`` and ``@block``."""
    w = TextWriter(symbol)
    inputs, names = [], [f"%in{n}" for n in range(len(calls.inputs))]
    for call, name in zip(calls.inputs, names, strict=True):
        kind, shape = type_of(call.value), w.shape_of(call)
        if "%n" in shape and calls.inputs.index(call) not in varying:
            raise Unwritable("an input has the length of others that vary")
        if not np.size(call.value):
            raise Unwritable("an input has no entries")
        w.values[call] = w.loaded(Value(kind, shape, name, w.strides(shape)))
        fixed = tuple([None if n == "%n" else n for n in shape])
        inputs.append(Kind(type(call.value), kind, fixed))
    w.run(calls.calls, calls.outputs)
    if w.returns * CALLS_A_CALLBACK > w.steps:
        raise Unwritable(
            f"{w.returns} of {w.steps} calls go back to NumPy: {', '.join({*w.callbacks})}"
        )
    outputs: list[Kind | None] = []
    places = []
    for n, output in enumerate(calls.outputs):
        if output is None:
            outputs.append(None)
            continue
        if isinstance(output, list | tuple | dict):
            raise Unwritable("an output is a container")
        example = value_of(output)
        kind, shape = type_of(example), w.dims(np.shape(example))
        w.copy(w.operand(output), Value(kind, shape, f"%out{n}", w.strides(shape)))
        outputs.append(Kind(type(example), kind, tuple([None if k == "%n" else k for k in shape])))
        places.append(n)
    lines = [*item_of(w, names, places), *block_of(w, names, places, inputs, outputs)]
    lines += [f"declare {text}" for text in sorted(w.declared)]
    module = "\n".join([*lines, flags(IS_X86), HELPERS])
    layout = Layout(
        w.table,
        inputs,
        outputs,
        frozenset(varying if symbol else ()),
        (w.scratch, w.dynamic),
        w.callbacks,
        w.is_exact and not w.callbacks,
    )
    return Text(module, layout, symbol)


def item_of(w: TextWriter, names: Sequence[str], places: Sequence[int]) -> list[str]:
    params = [f"ptr noalias readonly {name}" for name in names]
    params += [f"ptr noalias %out{n}" for n in places]
    params += [f"ptr noalias readonly %t{n}" for n in range(len(w.table))]
    params += ["ptr noalias %scratch", "ptr noalias %any", "ptr noalias %marks", "i64 %n"]
    head = f"define internal void @item({', '.join(params)}) noinline {{"
    return [head, "entry:", *w.entry, *w.lines, "  ret void", "}"]


def block_of(
    w: TextWriter,
    names: Sequence[str],
    places: Sequence[int],
    inputs: Sequence[Kind],
    outputs: Sequence[Kind | None],
) -> list[str]:
    """The loop over items. A column has a step of bytes; or one of -1, if it is a table of
    addresses."""
    body = TextWriter()
    args = []
    for n in range(len(names)):
        step = body.put(f"load i64, ptr {body.moved('%steps', n, 'i64')}")
        column = body.put(f"load ptr, ptr {body.moved('%ins', n, 'ptr')}")
        offset = body.put(f"mul i64 {step}, %i")
        direct = body.put(f"getelementptr i8, ptr {column}, i64 {offset}")
        is_table = body.put(f"icmp slt i64 {step}, 0")
        slot = body.put(f"getelementptr ptr, ptr {column}, i64 %i")
        slot = body.put(f"select i1 {is_table}, ptr {slot}, ptr {body.moved('%ins', n, 'ptr')}")
        at = body.put(f"load ptr, ptr {slot}")
        args.append("ptr " + body.put(f"select i1 {is_table}, ptr {at}, ptr {direct}"))
    for k, n in enumerate(places):
        kind = outputs[n]
        assert kind is not None
        at = body.put(f"load ptr, ptr {body.moved('%outs', k, 'ptr')}")
        fixed = int(np.prod([m for m in kind.shape if m is not None], dtype=int)) * SIZES[kind.type]
        place = "%first" if None in kind.shape else "%i"
        args.append(
            "ptr " + body.put(f"getelementptr i8, ptr {at}, i64 {body.times(place, fixed)}")
        )
    for n in range(len(w.table)):
        args.append("ptr " + body.put(f"load ptr, ptr {body.moved('%table', n, 'ptr')}"))
    params = ", ".join([*args, "ptr %scratch", "ptr %any", "ptr %marks", "i64 %n"])
    return [
        "define void @block(i64 %count, ptr %ins, ptr %steps, ptr %outs, ptr %scratch, ptr %any,"
        " ptr %all, ptr %sizes, ptr %table) {",
        "entry:",
        "  call void @clear_flags()",
        "  br label %head",
        "head:",
        "  %i = phi i64 [0, %entry], [%next, %body]",
        "  %first = phi i64 [0, %entry], [%after, %body]",
        "  %test = icmp slt i64 %i, %count",
        "  br i1 %test, label %body, label %end",
        "body:",
        "  %na = getelementptr i64, ptr %sizes, i64 %i",
        "  %n = load i64, ptr %na",
        "  %after = add i64 %first, %n",
        "  %marks = getelementptr i64, ptr %all, i64 %i",
        *body.lines,
        f"  call void @item({params})",
        "  call void @keep_flags(ptr %marks)",
        "  call void @clear_flags()",
        "  %next = add i64 %i, 1",
        "  br label %head",
        "end:",
        "  ret void",
        "}",
    ]


@functools.cache
def machine() -> Any:
    triple = llvm.Target.from_triple(llvm.get_process_triple())
    return triple.create_target_machine(cpu=CPU, features="", opt=3)


def object_of(text: str) -> bytes:
    """The object file of a module's text."""
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = machine().triple, str(machine().target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = True
    builder = llvm.create_pass_builder(machine(), options)
    builder.getModulePassManager().run(module, builder)
    return machine().emit_object(module)


def loaded(key: str, content: bytes) -> Any:
    """The function of an object file; the engine stays with it."""
    triple = llvm.Target.from_triple(llvm.get_process_triple())
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), triple.create_target_machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(content))
    engine.finalize_object()
    return engine, BLOCK(engine.get_function_address("block"))


BLOCK = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * 8)
_loaded: dict[str, tuple] = {}


@dataclass(eq=False)
class MachineCode:
    """The machine code of lists that have one text. ``seconds``: the processor time of writing and
    compiling; ``lengths``: those that it serves."""

    key: str
    content: bytes
    layout: Layout
    seconds: float
    lengths: set[int | None] = field(default_factory=set)

    def __post_init__(self) -> None:
        make = functools.partial(loaded, self.key, self.content)
        self._engine, self._function = kept_or_made(_loaded, self.key, make, MOST_LOADED)
        self._held = [
            back_to_numpy(thing) if isinstance(thing, Callback) else thing
            for thing in self.layout.table
        ]
        self._table = np.array([*map(address, self._held), 0], np.int64)
        self._zeros = np.zeros(
            len(self.layout.inputs) + 1, np.int64
        )  # steps of inputs, and a length
        self._free: deque[np.ndarray] = deque()  # scratch of calls that have ended

    def __reduce__(self) -> tuple:
        parts = self.key, self.content, self.layout, self.seconds
        return arrived, (CPU, llvmlite.__version__, parts, self.lengths)

    @property
    def has_tape_bits(self) -> bool:
        return self.layout.is_exact

    @property
    def callbacks(self) -> Sequence[str]:
        """The names of calls that go back to NumPy."""
        return self.layout.callbacks

    def one(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs for one item, as the list's values are."""
        held = []
        for x, kind in zip(inputs, self.layout.inputs, strict=True):
            array = as_input(x, DTYPES[kind.type])
            if array.shape != kind.shape:  # of any length, or an error
                rows = self.block(1, [Shared(part) for part in inputs])
                pairs = zip(rows, self.layout.outputs, strict=True)
                return self._as_values(
                    [x if k is None or None in k.shape else x[0] for x, k in pairs]
                )
            held.append(array)
        results = [
            None if k is None else np.empty(k.shape, DTYPES[k.type]) for k in self.layout.outputs
        ]
        outs = [place_of(x) for x in results if x is not None]
        words = np.array([*map(place_of, held), *outs, 0], np.int64)  # the last one has the marks
        begin, zeros = place_of(words), place_of(self._zeros)
        memory, scratch = self._scratch(0)
        try:
            places = (
                begin,
                zeros,
                begin + 8 * len(held),
                scratch,
                scratch,
                begin + 8 * len(words) - 8,
            )
            self._function(1, *places, zeros, place_of(self._table))
        finally:
            self._free.append(memory)
        if words[-1]:
            raise DivergedItems([0]) if words[-1] & DIVERGED else Flagged([0])
        return self._as_values(results)

    def _as_values(self, results: Sequence[Any]) -> list[Any]:
        return [
            None if kind is None else as_python(kind, x)
            for kind, x in zip(self.layout.outputs, results, strict=True)
        ]

    def block(
        self, count: int, columns: Sequence[Column], outputs: Sequence[Any] | None = None
    ) -> list[Any]:
        """The outputs of items, stacked; those of any length one after the other. ``outputs`` are
        arrays for them. Raises ``Diverged`` if a guard fails, else ``Flagged``."""
        reading = Reading(self, count, columns)
        results = self._results(count, reading.lengths, outputs)
        outs = np.array([place_of(x) for x in results if x is not None] or [0], np.int64)
        marks = np.zeros(count, np.int64)
        memory, scratch = self._scratch(int(reading.lengths.max(initial=0)))
        try:
            self._function(
                count,
                place_of(reading.addresses),
                place_of(reading.steps),
                place_of(outs),
                scratch,
                scratch + self.layout.scratch[0],
                place_of(marks),
                place_of(reading.lengths),
                place_of(self._table),
            )
        finally:
            self._free.append(memory)
        if marks.any():
            diverged = np.flatnonzero(marks & DIVERGED).tolist()
            if diverged:
                raise DivergedItems(diverged)
            raise Flagged(np.flatnonzero(marks).tolist())
        return results

    def _results(self, count: int, lengths: np.ndarray, outputs: Any) -> list[Any]:
        results: list[Any] = []
        for n, kind in enumerate(self.layout.outputs):
            if kind is None:
                results.append(None)
                continue
            shape: tuple = (count, *[k for k in kind.shape if k is not None])
            if None in kind.shape:
                shape = (int(lengths.sum()) * int(np.prod(shape[1:], dtype=int)),)
            x = np.empty(shape, DTYPES[kind.type]) if outputs is None else outputs[n]
            if x.shape != shape or x.dtype != DTYPES[kind.type] or not x.flags.carray:
                raise ValueError(f"output {n} takes an array of shape {shape}; found {x.shape}")
            results.append(x)
        return results

    def _scratch(self, length: int) -> tuple[np.ndarray, int]:
        """Memory that no other call has meanwhile, and the address of its use."""
        fixed, dynamic = self.layout.scratch
        size = fixed + dynamic * length + 128
        try:
            memory = self._free.pop()
        except IndexError:
            memory = np.empty(size, np.uint8)
        if memory.nbytes < size:
            memory = np.empty(size, np.uint8)
        return memory, -(-place_of(memory) // 64) * 64


def arrived(cpu: str, version: str, parts: tuple, lengths: set[int | None]) -> MachineCode:
    if (cpu, version) != (CPU, llvmlite.__version__):
        raise RuntimeError(
            f"machine code for {cpu} by llvmlite {version} came to a process with {CPU} and "
            f"llvmlite {llvmlite.__version__}: install the same on all workers"
        )
    code = kept_or_made(_made, parts[0], lambda: MachineCode(*parts), MOST_LOADED)
    code.lengths |= lengths
    return code


def as_python(kind: Kind, x: Any) -> Any:
    """A result as the list's value is: a number of Python's or NumPy's, or an array."""
    if issubclass(kind.python, np.ndarray):
        return np.asarray(x)
    return kind.python(x)


# --------------------------------------------------------------------------------------- inputs


class Reading:
    """Addresses and steps of columns, and lengths of items; it holds the arrays."""

    def __init__(self, code: MachineCode, count: int, columns: Sequence[Column]):
        self.held: list[Any] = []
        self.lengths = np.zeros(count, np.int64)
        self._is_set = False
        self.addresses = np.zeros(len(columns) + 1, np.int64)
        self.steps = np.zeros(len(columns) + 1, np.int64)
        for n, (column, kind) in enumerate(zip(columns, code.layout.inputs, strict=True)):
            if isinstance(column, Separate):
                self._read_items(n, column.arrays, kind)
                continue
            is_rows = isinstance(column, Stacked)
            x = as_input(column.array, DTYPES[kind.type])
            shape = x.shape[1:] if is_rows else x.shape
            require(kind, shape, n)
            if is_rows and len(x) < count:
                raise ValueError(f"input {n} has {len(x)} rows; {count} items were asked for")
            if None in kind.shape:
                self._set_lengths(np.full(count, shape[0], np.int64))
            self.held.append(x)
            self.addresses[n] = place_of(x)
            self.steps[n] = x.strides[0] if is_rows and count > 1 else 0
        unknown = {*self.lengths.tolist()} - code.lengths if code.layout.varying else set()
        if unknown:
            raise ValueError(f"no list of the lengths {sorted(unknown)} had this machine code")

    def _read_items(self, n: int, arrays: Sequence[Any], kind: Kind) -> None:
        if len(arrays) < len(self.lengths):
            raise ValueError(f"input {n} has {len(arrays)} arrays for {len(self.lengths)} items")
        dtype, items, places, lengths = DTYPES[kind.type], [], [], []
        for array in arrays[: len(self.lengths)]:
            x = as_input(array, dtype)
            require(kind, x.shape, n)
            items.append(x)
            places.append(place_of(x))
            if None in kind.shape:
                lengths.append(x.shape[0])
        if lengths:
            self._set_lengths(np.array(lengths, np.int64))
        table = np.array(places, np.int64)
        self.held += (items, table)
        self.addresses[n], self.steps[n] = place_of(table), -1

    def _set_lengths(self, lengths: np.ndarray) -> None:
        if self._is_set and not (lengths == self.lengths).all():
            raise ValueError("the arrays of an item differ in length")
        self.lengths, self._is_set = lengths, True


def place_of(array: np.ndarray) -> int:
    """The address of an array's data; ``ctypes.data`` takes several times as long."""
    return array.__array_interface__["data"][0]


def as_input(x: Any, dtype: np.dtype) -> np.ndarray:
    """An array in one piece; a copy only if it is not."""
    array = np.asarray(x)
    if array.dtype != dtype:
        raise ValueError(f"machine code for {dtype} got numbers of {array.dtype}")
    return (
        array if (array.flags.c_contiguous and array.flags.aligned) else np.ascontiguousarray(array)
    )


def require(kind: Kind, shape: tuple[int, ...], n: int) -> None:
    is_alike = len(shape) == len(kind.shape)
    if not is_alike or any(
        [m is not None and m != k for m, k in zip(kind.shape, shape, strict=True)]
    ):
        raise ValueError(f"input {n} takes an array of shape {kind.shape}; found {shape}")


# ------------------------------------------------------------------------------------ callbacks


def address(thing: Any) -> int:
    if isinstance(thing, np.ndarray):
        return place_of(thing)
    if isinstance(thing, str):
        return address_of(thing)
    return ctypes.cast(thing, ctypes.c_void_p).value or 0


def back_to_numpy(back: Callback) -> Any:
    """A function for machine code, which gets the addresses of operands and results, and tells
    whether it failed; it holds Python's lock."""
    count = len(back.operands) + len(back.results)
    results = [(shape, np.dtype(dtype)) for shape, dtype in back.results]

    def run(table: int) -> int:
        try:
            places = (ctypes.c_void_p * count).from_address(table)
            values = []
            for (shape, dtype, kind), at in zip(back.operands, places, strict=False):
                x = memory(at or 0, shape, np.dtype(dtype))
                x.flags.writeable = False
                values.append(x if issubclass(kind, np.ndarray) else kind(x[()]))
            pick = lambda place: values[place.number]  # noqa: E731
            args, kwargs = mapped((back.args, back.kwargs), pick, Place)
            with np.errstate(divide="raise", over="raise", invalid="raise", under="ignore"):
                made = back.fun(*args, **kwargs)
            made = made if back.is_several else [made]
            for x, (shape, dtype), at in zip(made, results, places[len(values) :], strict=True):
                if np.shape(x) != shape or np.result_type(x) != dtype:
                    return 1
                memory(at or 0, shape, dtype)[...] = x
        except Exception:  # the program runs the call again, and raises it
            return 1
        return 0

    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(run)


def memory(at: int, shape: tuple, dtype: np.dtype) -> np.ndarray:
    size = int(np.prod(shape, dtype=int)) * dtype.itemsize
    held: Any = (ctypes.c_char * size).from_address(at)
    return np.frombuffer(held, dtype).reshape(shape)
