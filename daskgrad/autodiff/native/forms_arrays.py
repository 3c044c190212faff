"""Forms of arrays: views, indices, arrays put together, sums and products."""

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.native.writer import (
    FAILED,
    NO_CALLBACKS,
    Length,
    TextWriter,
    Unwritable,
    Value,
    form,
    name_of,
    type_of,
)
from daskgrad.autodiff.programs.calls import REDUCE, NumpyCall, add_to, plus, value_of
from daskgrad.autodiff.rules.math_reductions import pull_extreme, spread

MOST_PRODUCTS = 2**20  # of a product of arrays; BLAS is quicker for more
Index = Sequence[Length]

# ---------------------------------------------------------------------------------------- views


@form(np.reshape, np.ravel, np.squeeze, np.expand_dims, np.atleast_1d, np.atleast_2d, is_exact=True)
def reshaped(w: TextWriter, call: NumpyCall) -> Value:
    order = call.kwargs.get("order", call.args[2] if len(call.args) > 2 else "C")
    if order not in ("C", None) or (call.fun is np.ravel and len(call.args) > 1):
        raise Unwritable(f"{name_of(call.fun)} in order {order!r}")
    x = w.array(call.args[0])
    x, shape = w.contiguous(x), w.shape_of(call)
    return w.loaded(replace(x, shape=shape, strides=w.strides(shape)))


@form(np.transpose, np.swapaxes, np.moveaxis, is_exact=True)
def turned(w: TextWriter, call: NumpyCall) -> Value:
    x, *options = call.args
    order = call.fun(np.empty(range(np.ndim(value_of(x)))), *options, **call.kwargs).shape
    x = w.array(x)
    shape, strides = [tuple([part[n] for n in order]) for part in (x.shape, x.strides)]
    return w.loaded(replace(x, shape=shape, strides=strides))


@form(spread.fun, np.broadcast_to, is_exact=True)
def spread_out(w: TextWriter, call: NumpyCall) -> Value:
    x = w.operand(call.args[0])
    if not np.shape(call.value):
        return w.in_register(x.type, w.number_as(x, x.type))
    out = w.made(call)
    w.copy(x, out)
    return out


@form(np.diag, np.diagonal, np.trace, is_exact=True)
def diagonal(w: TextWriter, call: NumpyCall) -> Value:
    x = w.array(call.args[0])
    if len(call.args) > 1 or call.kwargs:
        raise Unwritable(f"{name_of(call.fun)} with options")
    if len(x.shape) == 2:
        count = min([n for n in x.shape if isinstance(n, int)], default=0)
        if not all([isinstance(n, int) for n in x.shape]):
            raise Unwritable("a diagonal of any length")
        view = replace(x, shape=(count,), strides=(w.plus(*x.strides),))
        w.is_exact &= call.fun is not np.trace
        return total(w, view, "fadd", type_of(call.value)) if call.fun is np.trace else view
    out = w.made(call)
    fill(w, out, "0.0" if out.type == "double" else "0")
    with w.loop(x.shape[0]) as i:
        w.write(out, (i, i), w.entry_as(x, out.type, (i,)))
    return out


class SlicedAxis(NamedTuple):
    """A part of an index with slices: from the start on, by steps."""

    start: Any
    length: Length
    step: int


def slice_of(w: TextWriter, part: slice, n: Length) -> SlicedAxis:
    if isinstance(n, int):
        start, stop, step = part.indices(n)
        return SlicedAxis(start, len(range(start, stop, step)), step)
    start, stop = part.start or 0, part.stop
    if part == slice(None, None, -1):
        return SlicedAxis(w.plus(n, -1), n, -1)
    if part.step not in (None, 1) or start < 0 or (stop is not None and stop >= 0):
        raise Unwritable(f"{part} of an axis of any length")
    return SlicedAxis(start, w.plus(n, (stop or 0) - start), 1)


@form(operator.getitem, is_exact=True)
def indexed(w: TextWriter, call: NumpyCall) -> Any:
    x, index = call.args
    source = w.values.get(x) if isinstance(x, NumpyCall) else None
    if isinstance(source, tuple):  # of several values
        return source[index]
    if source is not None and not isinstance(source, Value):  # the values of a loop's turns
        if not isinstance(index, NumpyCall):
            return source[index]
        return source.of_turn(checked(w, w.number_as(w.operand(index), "i64"), len(source)))
    x = w.array(x)
    shape, at, view = places_of(w, x, index)
    if view is not None:
        return w.loaded(view)
    if shape == ():
        return w.loaded(Value(x.type, at=at(())))
    if shape != w.shape_of(call):
        raise Unwritable("an index whose shape is not told by its parts")
    out = w.made(call)
    with w.loops(shape) as n:
        w.write(out, n, w.put(f"load {x.type}, ptr {at(n)}"))
    return out


@form(plus, is_exact=True)
def plus_in_place(w: TextWriter, call: NumpyCall) -> Value:
    x, g = map(w.operand, call.args)
    if x.reg is not None:
        return w.in_register("double", w.put(f"fadd double {x.reg}, {w.number_as(g, 'double')}"))
    require_writable(x)
    add_entries(w, x.shape, lambda index: w.address(x, index), g)
    return x


@form(add_to, is_exact=True)
def add_to_entries(w: TextWriter, call: NumpyCall) -> Value:
    array, index, g, _ = call.args
    x = w.array(array)
    require_writable(x)
    shape, at, _ = places_of(w, x, index)
    add_entries(w, shape, at, w.operand(g))
    return x


NO_CALLBACKS |= {plus_in_place, add_to_entries}


def require_writable(x: Value) -> None:
    if x.type != "double" or not x.root:
        raise Unwritable("something is added to an input, or to integers")


def add_entries(w: TextWriter, shape: Index, at: Callable[[Index], str], g: Value) -> None:
    with w.loops(shape) as index:
        place = at(index)
        old = w.put(f"load double, ptr {place}")
        new = w.put(f"fadd double {old}, {w.entry_as(g, 'double', index)}")
        w.do(f"store double {new}, ptr {place}")


def places_of(w: TextWriter, x: Value, index: Any) -> tuple[tuple, Callable[[Index], str], Any]:
    """The shape of an indexed array, a function from its indices to addresses, and the view that it
    is, if it is one. Places that are data are in bounds, or the item is marked."""
    index = index_of(w, index)
    parts = list(index) if isinstance(index, tuple) else [index]
    if any([part is ... for part in parts]):
        n = [part is ... for part in parts].index(True)
        taken = len([part for part in parts if part is not None and part is not ...])
        parts[n : n + 1] = [slice(None)] * (len(x.shape) - taken)
    parts += [slice(None)] * (len(x.shape) - len([part for part in parts if part is not None]))
    arrays = [
        n
        for n, part in enumerate(parts)
        if not (part is None or isinstance(part, slice | SlicedAxis))
    ]
    is_view = all([isinstance(parts[n], int | np.integer) for n in arrays])
    is_view &= not any([isinstance(parts[n], bool | np.bool_) for n in arrays])
    if not is_view and arrays != list(range(arrays[0], arrays[-1] + 1)):
        raise Unwritable("an index of parts that are not together")
    operands: dict[int, Any] = {} if is_view else {n: places(w, parts[n]) for n in arrays}
    shapes: set[Any] = {value.shape for value in operands.values() if value.shape}
    if len(shapes) > 1 and not all([isinstance(n, int) for n in chain(*shapes)]):
        raise Unwritable("indices of any length and of others")
    common = np.broadcast_shapes(*shapes) if len(shapes) != 1 else next(iter(shapes))
    shape, axes, axis = list[Length](), list[tuple[int, Length]](), 0
    offset: Length = 0
    for n, part in enumerate(parts):
        if n in operands and n == arrays[0]:
            first = len(shape)
            shape += common
        if part is None:
            shape.append(1)
            axes.append((len(shape) - 1, 0))
            continue
        if axis == len(x.shape):
            raise Unwritable(f"an index {index!r} of an array of {x.shape}")
        length, stride = x.shape[axis], x.strides[axis]
        axis += 1
        if isinstance(part, slice | SlicedAxis):
            start, count, step = slice_of(w, part, length) if isinstance(part, slice) else part
            start = start if not isinstance(start, Value) else str(start.reg)
            offset = w.plus(offset, w.times(start, stride))
            shape.append(count)
            axes.append((len(shape) - 1, w.times(step, stride)))
        elif n not in operands:
            place: Length = (
                int(part) % length if isinstance(length, int) else fixed_place(w, int(part), length)
            )
            offset = w.plus(offset, w.times(place, stride))
        else:
            operands[n] = operands[n], length, stride
    base = w.moved(x.at, offset, x.type)
    if not operands:
        strides = [step for _, step in axes]
        view = replace(x, shape=tuple(shape), strides=tuple(strides), at=base)
        return view.shape, lambda n: w.address(view, n), view

    def at(index: Index) -> str:
        far: Length = 0
        for n, step in axes:
            far = w.plus(far, w.times(index[n], step))
        for value, length, stride in operands.values():
            place = checked(w, w.entry_as(value, "i64", index[first : first + len(common)]), length)
            far = w.plus(far, w.times(place, stride))
        return w.moved(base, far, x.type)

    return tuple(shape), at, None


def index_of(w: TextWriter, index: Any) -> Any:
    """An index in which parts of a loop's turn stand for themselves."""
    if isinstance(index, tuple):
        return tuple([index_of(w, part) for part in index])
    is_turns = isinstance(index, NumpyCall) and isinstance(index.value, tuple | slice)
    return w.values[index] if is_turns else index


def fixed_place(w: TextWriter, place: int, length: Length) -> Length:
    if place < 0:
        return w.plus(length, place)
    raise Unwritable("a number names an entry of an axis of any length")


def places(w: TextWriter, part: Any) -> Value:
    """Numbers of entries, as an operand."""
    if isinstance(part, Value):
        return part
    kind = np.asarray(value_of(part)).dtype
    if kind.kind not in "iu":
        raise Unwritable("a mask" if kind.kind == "b" else f"an index of dtype {kind}")
    if not isinstance(part, NumpyCall) and np.ndim(part):
        return w.constant(np.asarray(part, np.int64), "i64", id(part))
    return w.operand(part)


def checked(w: TextWriter, place: str, length: Length) -> str:
    """The place of an entry, counted from the end if it is negative; marks the item if there is
    none, and then takes the first one."""
    back = w.put(f"add i64 {place}, {length}")
    place = w.put(f"select i1 {w.put(f'icmp slt i64 {place}, 0')}, i64 {back}, i64 {place}")
    is_out = w.put(f"icmp uge i64 {place}, {length}")
    w.mark(FAILED, is_out)
    return w.put(f"select i1 {is_out}, i64 0, i64 {place}")


# --------------------------------------------------------------------------------- put together


def fill(w: TextWriter, out: Value, reg: str) -> None:
    out = w.flat(out) if w.is_contiguous(out) else out
    with w.loops(out.shape) as index:
        w.write(out, index, reg)


@form(np.zeros, np.zeros_like, np.empty, np.ones, np.ones_like, is_exact=True)
def filled(w: TextWriter, call: NumpyCall) -> Value:
    kind = type_of(call.value)
    one = call.fun in (np.ones, np.ones_like)
    reg = f"{int(one)}.0" if kind == "double" else str(int(one))
    if not np.shape(call.value):
        return w.in_register(kind, reg)
    out = w.made(call)
    fill(w, out, reg)
    return out


@form(np.array, np.stack, is_exact=True)
def stacked(w: TextWriter, call: NumpyCall) -> Value:
    parts, *options = call.args
    axis = call.kwargs.get("axis", options[0] if options else 0)
    if call.fun is np.array and (options or call.kwargs):
        raise Unwritable("an array with options")
    if not isinstance(parts, list | tuple):
        return spread_out(w, call)
    out = w.made(call)

    def put(parts: Sequence[Any], view: Value, axis: int) -> None:
        shape, strides = [part[:axis] + part[axis + 1 :] for part in (view.shape, view.strides)]
        for n, part in enumerate(parts):
            at = w.moved(view.at, w.times(n, view.strides[axis]), view.type)
            inner = replace(view, shape=shape, strides=strides, at=at)
            if isinstance(part, list | tuple):
                put(part, inner, 0)
            else:
                w.copy(w.operand(part), inner)

    put(parts, out, axis % len(out.shape))
    return out


@form(np.concatenate, is_exact=True)
def joined(w: TextWriter, call: NumpyCall) -> Value:
    parts, axis, *_ = *call.args, call.kwargs.get("axis", 0)
    if not isinstance(parts, list | tuple) or axis is None or call.kwargs.keys() - {"axis"}:
        raise Unwritable("concatenate with options")
    out, axis = w.made(call), int(axis) % np.ndim(call.value)
    offset: Length = 0
    for part in parts:
        x = w.operand(part)
        at = w.moved(out.at, w.times(offset, out.strides[axis]), out.type)
        w.copy(x, replace(out, shape=x.shape, at=at))
        offset = w.plus(offset, x.shape[axis])
    return out


@form(np.cumsum, is_exact=True)
def sums_so_far(w: TextWriter, call: NumpyCall) -> Value:
    x = w.array(call.args[0])
    if len(x.shape) != 1 or type_of(call.value) != "double" or x.type != "double":
        raise Unwritable("cumsum along an axis")
    out, at = w.made(call), w.slot("double")
    w.do(f"store double -0.0, ptr {at}")
    with w.loop(x.shape[0]) as i:
        new = w.put(f"fadd double {w.put(f'load double, ptr {at}')}, {w.read(x, (i,))}")
        w.do(f"store double {new}, ptr {at}")
        w.write(out, (i,), new)
    return out


# ----------------------------------------------------------------------------------- reductions

HOWS = {REDUCE[np.add]: "fadd", np.sum: "fadd", REDUCE[np.multiply]: "fmul", np.prod: "fmul"}
HOWS |= {REDUCE[np.maximum]: "oge", np.max: "oge", REDUCE[np.minimum]: "ole", np.min: "ole"}
HOWS |= {np.count_nonzero: "count", np.all: "and", np.any: "or"}
FIRST = {"fadd": 0.0, "fmul": 1.0, "oge": -np.inf, "ole": np.inf, "count": 0, "and": 1, "or": 0}


@form(*HOWS, is_exact=True)
def reduced(w: TextWriter, call: NumpyCall) -> Value:
    how, x = HOWS[call.fun], w.array(call.args[0])
    axes, kind = axes_of(call), type_of(call.value)
    if how in ("oge", "ole") and kind != "double":
        raise Unwritable("an extreme integer")
    if how == "fmul" and kind != "double":
        raise Unwritable("a product of integers")
    if how == "count":
        kind = "i64"
    w.is_exact &= how in ("and", "or", "count") or (how == "fadd" and has_numpys_order(call, axes))
    if not np.shape(call.value):
        return total(w, x, how, kind)
    kept = [n for n in range(len(x.shape)) if n not in axes]
    out = w.made(call)
    is_kept = len(out.shape) == len(x.shape)

    def slots(index: Index) -> list[Length]:
        return [index[n] if n in kept else 0 for n in range(len(x.shape))]

    if axes[-1] == len(x.shape) - 1 and kept == list(range(len(kept))):  # a sum for each entry
        with w.loops([x.shape[n] for n in kept]) as index:
            at = w.address(x, [*index, *[0] * len(axes)])
            row = Value(x.type, x.shape[len(kept) :], at, x.strides[len(kept) :])
            reg = total(w, row, how, kind).reg
            assert reg is not None
            w.write(out, [*index, *[0] * len(axes)] if is_kept else index, reg)
        return out
    fill(w, out, first_of(how, kind))
    with w.loops([x.shape[n] for n in axes]) as inner, w.loops([x.shape[n] for n in kept]) as index:
        place = dict(zip([*axes, *kept], [*inner, *index], strict=True))
        entry = w.read(x, [place[n] for n in range(len(x.shape))])
        at = w.address(out, slots([place[n] for n in range(len(x.shape))]) if is_kept else index)
        new = step_of(w, how, kind, w.put(f"load {kind}, ptr {at}"), entry, x.type)
        w.do(f"store {kind} {new}, ptr {at}")
    return out


def axes_of(call: NumpyCall) -> list[int]:
    options = {k: v for k, v in call.kwargs.items() if v is not np._NoValue}
    if len(call.args) > 1:
        options["axis"] = call.args[1]
    ndim = np.ndim(value_of(call.args[0]))
    if len(call.args) > 2 or options.keys() - {"axis", "keepdims"}:
        raise Unwritable(f"{name_of(call.fun)} with options")
    axis = options.get("axis", 0 if call.fun in REDUCE.values() else None)
    return sorted(
        {n % ndim for n in range(ndim)}
        if axis is None
        else {int(a) % ndim for a in np.atleast_1d(axis)}
    )


def has_numpys_order(call: NumpyCall, axes: Sequence[int]) -> bool:
    """Whether entries are added in NumPy's order: of rows in one piece, or row to row."""
    x = value_of(call.args[0])
    is_usual = isinstance(x, np.ndarray) and x.dtype == np.float64 and x.flags.c_contiguous
    return is_usual and (len(axes) == x.ndim or (x.ndim == 2 and min(x.shape) > 1))


def first_of(how: str, kind: str) -> str:
    return (
        repr(float(FIRST[how]))
        if kind == "double" and np.isfinite(FIRST[how])
        else (
            {-np.inf: "0xFFF0000000000000", np.inf: "0x7FF0000000000000"}.get(FIRST[how])
            or str(int(FIRST[how]))
        )
    )


def step_of(w: TextWriter, how: str, kind: str, old: str, entry: str, type: str) -> str:
    if how in ("and", "or", "count"):
        new = w.as_type(w.as_type(entry, type, "i1"), "i1", kind)
        return w.put(f"{'add' if how == 'count' else how} {kind} {old}, {new}")
    new = w.as_type(entry, type, kind)
    if how in ("oge", "ole"):
        is_so = w.put(f"fcmp {how} double {old}, {new}")
        is_so = w.put(f"or i1 {is_so}, {w.put(f'fcmp uno double {old}, {old}')}")
        return w.put(f"select i1 {is_so}, double {old}, double {new}")
    return w.put(f"{how if kind == 'double' else how[1:]} {kind} {old}, {new}")


def total(w: TextWriter, x: Value, how: str, kind: str) -> Value:
    """All entries in one number."""
    if how == "fadd" and x.type == kind == "double" and (len(x.shape) == 1 or w.is_contiguous(x)):
        x = x if len(x.shape) == 1 else w.flat(x)
        text = f"ptr {x.at}, i64 {x.strides[0]}, i64 {x.shape[0]}"
        rest = w.put(f"call double @sum({text})")
        return w.in_register("double", w.put(f"fadd double 0.0, {rest}"))
    at = w.slot(kind)
    w.do(f"store {kind} {first_of(how, kind)}, ptr {at}")
    with w.loops(x.shape) as index:
        new = step_of(w, how, kind, w.put(f"load {kind}, ptr {at}"), w.read(x, index), x.type)
        w.do(f"store {kind} {new}, ptr {at}")
    return w.in_register(kind, w.put(f"load {kind}, ptr {at}"))


@form(pull_extreme.fun)
def of_extreme(w: TextWriter, call: NumpyCall) -> Value:
    g, ans, x = map(w.array, call.args[:3])
    axis, ndim = call.args[3], len(x.shape)
    axes = (
        list(range(ndim))
        if axis is None
        else sorted({a % ndim for a in np.atleast_1d(axis).tolist()})
    )
    kept = [n for n in range(ndim) if n not in axes]
    out, count = w.made(call), w.slot("double")

    def small(value: Value, index: Index) -> str:  # with or without the axes
        full = [index[kept.index(n)] if n in kept else 0 for n in range(ndim)]
        return w.entry_as(value, "double", full if len(value.shape) == ndim else index)

    def is_chosen(place: Index, most: str) -> str:
        return w.as_type(w.put(f"fcmp oeq double {w.read(x, place)}, {most}"), "i1", "double")

    with w.loops([x.shape[n] for n in kept]) as index:
        most, share = small(ans, index), small(g, index)
        w.do(f"store double 0.0, ptr {count}")
        for is_last in (False, True):
            with w.loops([x.shape[n] for n in axes]) as inner:
                both = dict(zip([*kept, *axes], [*index, *inner], strict=True))
                place = [both[n] for n in range(ndim)]
                one = is_chosen(place, most)
                if is_last:
                    w.write(out, place, w.put(f"fmul double {one}, {share}"))
                else:
                    old = w.put(f"load double, ptr {count}")
                    w.do(f"store double {w.put(f'fadd double {old}, {one}')}, ptr {count}")
            if not is_last:
                share = w.put(f"fadd double {share}, 0.0")
                share = w.put(f"fdiv double {share}, {w.put(f'load double, ptr {count}')}")
    return out


# ------------------------------------------------------------------------------------- products

LETTERS = "abcdefgh"
TERMS = {(1, 1): "i,i,", (2, 1): "ij,j,i", (1, 2): "i,ij,j", (2, 2): "ij,jk,ik"}


@form(np.dot, np.matmul, operator.matmul, np.outer)
def product_of_two(w: TextWriter, call: NumpyCall) -> Value:
    x, y = [np.ndim(value_of(arg)) for arg in call.args[:2]]
    terms = "i,j,ij" if call.fun is np.outer and (x, y) == (1, 1) else TERMS.get((x, y))
    if call.fun is np.dot and 0 in (x, y):
        terms = f"{LETTERS[:x]},{LETTERS[:y]},{LETTERS[: max(x, y)]}"
    if call.fun is np.outer and (x, y) != (1, 1):
        terms = None
    if terms is None or len(call.args) > 2 or call.kwargs:
        raise Unwritable(f"a product of arrays with {x} and {y} axes")
    return product(w, call, terms.split(","), call.args)


@form(np.einsum)
def einsum(w: TextWriter, call: NumpyCall) -> Value:
    text, *operands = call.args
    if not isinstance(text, str) or call.kwargs.keys() - {"optimize"} or "." in text:
        raise Unwritable("einsum with options")
    inputs, arrow, output = text.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if not arrow:
        letters = inputs.replace(",", "")
        output = "".join([k for k in sorted({*letters}) if letters.count(k) == 1])
    return product(w, call, [*terms, output], operands)


def product(w: TextWriter, call: NumpyCall, terms: Sequence[str], operands: Sequence[Any]) -> Value:
    """Sums of products over all letters that the output has not. The letter with the shortest steps
    is the innermost loop; sums are in an order that NumPy's are not."""
    if type_of(call.value) != "double":
        raise Unwritable("a product of integers")
    *inputs, output = terms
    arrays = list(map(w.array, operands))
    sizes = {
        k: n
        for text, x in zip(inputs, arrays, strict=True)
        for k, n in zip(text, x.shape, strict=True)
    }
    count = np.prod([n for n in sizes.values() if isinstance(n, int)], dtype=float)
    if count > MOST_PRODUCTS or any([len(set(text)) < len(text) for text in inputs]):
        raise Unwritable("a product of many numbers, or of a diagonal")
    for text, x in zip(inputs, arrays, strict=True):
        if any([sizes[k] != n for k, n in zip(text, x.shape, strict=True)]):
            raise Unwritable("a product that repeats an axis of length one")
    out = w.made(call) if np.shape(call.value) else w.room("double", ())
    steps = [
        dict(zip(text, x.strides, strict=True))
        for text, x in zip([*inputs, output], [*arrays, out], strict=True)
    ]

    def weight(k: str) -> int:
        return sum([n if isinstance(n, int) else 2**20 for n in [step.get(k, 0) for step in steps]])

    order = sorted(sizes, key=lambda k: (-weight(k), k in output))
    is_sum = bool(order) and order[-1] not in output and len(arrays) == 2
    is_sum &= all([x.type == "double" for x in arrays])
    if set(order) > set(output) and set(order[:-1] if is_sum else order) - set(output):
        fill(w, out, "0.0")
    outer = order[:-1] if is_sum else order
    is_first = not set(outer) - set(output)  # each entry of the output is reached once
    with w.loops([sizes[k] for k in outer]) as numbers:
        at = dict(zip(outer, numbers, strict=True))
        if is_sum:
            k, parts = order[-1], []
            for text, x, step in zip(inputs, arrays, steps, strict=False):
                place = w.address(x, [at.get(name, 0) for name in text])
                parts.append(f"ptr {place}, i64 {step.get(k, 0)}")
            new = w.put(f"call double @dot({', '.join(parts)}, i64 {sizes[k]})")
        else:
            regs = [
                w.entry_as(x, "double", [at[k] for k in text])
                for text, x in zip(inputs, arrays, strict=True)
            ]
            new = regs[0]
            for reg in regs[1:]:
                new = w.put(f"fmul double {new}, {reg}")
        place = w.address(out, [at[k] for k in output])
        if not is_first:
            new = w.put(f"fadd double {w.put(f'load double, ptr {place}')}, {new}")
        w.do(f"store double {new}, ptr {place}")
    return w.loaded(out)
