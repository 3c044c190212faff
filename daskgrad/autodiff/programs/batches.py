"""Batches: from the calls of one item to a list for many, stacked along a new first axis.

``FORMS`` tells, for each function, how one call serves all items with the bits of a call for each:
a form gets the item's call and the batch, and appends calls, or returns ``None``. A call without a
form, or with another kind or order in memory by its form, is looped over. A call that does not
depend on the item stays as it is.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from autograd.numpy import numpy_wrapper

from daskgrad.autodiff.programs import kernels
from daskgrad.autodiff.programs.boxes import Unrecordable
from daskgrad.autodiff.programs.calls import (
    NUMBERS,
    REDUCE,
    STATEMENTS,
    CallList,
    ItemLoop,
    NumpyCall,
    TurnLoop,
    add_to,
    all_calls,
    arguments_of,
    calls_in,
    chained,
    constant_of_turn,
    guard,
    loop_of,
    order_of,
    plus,
    replaced,
    stacked,
    stay,
    value_of,
)
from daskgrad.autodiff.programs.rewrites import ARITHMETIC, needed
from daskgrad.autodiff.rules.declaration import Diverged
from daskgrad.autodiff.rules.math_elementwise import pull_chosen
from daskgrad.autodiff.rules.math_reductions import pull_extreme, spread

EXAMPLES = 2  # items of the example, on which each form is tried
EVERY = slice(None)
FORMS: dict[Any, Callable] = {}


class Parted(Exception):
    """The items go different ways; ``mask`` has the items that go this one."""

    def __init__(self, mask: np.ndarray):
        self.mask = mask


def form(*funs: Any) -> Callable:
    def enter(fun: Callable) -> Callable:
        FORMS.update(dict.fromkeys(funs, fun))
        return fun

    return enter


class Batching:
    """The calls of a batch: ``made`` maps the item's calls to them, and ``rows`` has the calls with
    an axis of items."""

    def __init__(self, program: CallList, own: Sequence[int]):
        self.calls: list[NumpyCall] = []
        self.made: dict[NumpyCall, Any] = {}
        self.rows: set[NumpyCall] = set()
        self.inputs: list[NumpyCall] = []
        self.place: Any = None
        self.results: dict[NumpyCall, list[bool]] = {}  # of loops: which have rows
        self.indices: dict[NumpyCall, NumpyCall] = {}  # of rows, by parameters for an item's
        for number, item in enumerate(program.inputs):
            new = item
            if number in own:
                new = NumpyCall(None, (), {}, np.stack([np.asarray(item.value)] * EXAMPLES))
                self.rows.add(new)
            self.inputs.append(new)
            self.made[item] = new
        self.count = self.emit(len, (self.inputs[own[0]],))

    def emit(self, fun: Callable, args: Sequence[Any], kwargs: dict | None = None) -> NumpyCall:
        kwargs = kwargs or {}
        value = fun(*map(value_of, args), **value_of(kwargs))
        self.calls.append(NumpyCall(fun, args, kwargs, value, self.place))
        return self.calls[-1]

    def is_own(self, argument: Any) -> bool:
        """Whether an argument of the item's call depends on the item."""
        return any([self.made[call] in self.rows for call in calls_in(argument)])

    def new(self, argument: Any) -> Any:
        return replaced(argument, self.made)

    def shape(self, *shape: Any) -> tuple:
        return (self.count, *shape)

    def lift(self, argument: Any, ndim: int) -> Any:
        """An operand beside others with so many axes."""
        missing = ndim - np.ndim(value_of(argument)) if self.is_own(argument) else 0
        if missing <= 0:
            return self.new(argument)
        return self.emit(operator.getitem, (self.new(argument), (EVERY, *[None] * missing)))

    def repeated(self, argument: Any) -> Any:
        """An argument with an axis of items."""
        if self.is_own(argument):
            return self.new(argument)
        value = np.asarray(value_of(argument))
        if isinstance(argument, NumpyCall) and argument.fun is np.zeros:
            return self.emit(np.zeros, (self.shape(*value.shape), value.dtype))
        return self.emit(repeat, (self.new(argument), self.shape(*value.shape)))

    def add(self, call: NumpyCall) -> None:
        """Makes the batch's call for one call of the item."""
        self.place, source = call.place, call.args[0] if loop_of(call) else None
        if source is not None and self.made[source] in self.results:
            new = self.made[call] = self.emit(operator.getitem, self.new(call.args))
            self.rows |= {new} if self.results[self.made[source]][call.args[1]] else set()
        elif not self.is_own((call.args, call.kwargs)):
            args, kwargs = self.new((call.args, call.kwargs))
            self.made[call] = NumpyCall(call.fun, args, kwargs, call.value, call.place)
            self.calls.append(self.made[call])
        elif type(call.fun) is TurnLoop:
            self.made[call] = add_loop(self, call)
        elif call.fun in OF_ROWS:  # of a loop's turn, there is no value to look at
            args = self.new(call.args)
            self.calls.append(NumpyCall(OF_ROWS[call.fun], args, {}, None, call.place))
        else:
            new = self.made[call] = self.new_rows(call)
            self.rows.add(new)

    def new_rows(self, call: NumpyCall) -> NumpyCall:
        before = len(self.calls)
        make = FORMS.get(call.fun) or (elementwise if isinstance(call.fun, np.ufunc) else None)
        values = [part.value for part in calls_in((call.args, call.kwargs))]
        backwards = [isinstance(x, np.ndarray) and min(x.strides, default=0) < 0 for x in values]
        is_usual = make in OF_VIEWS or not any(backwards)  # for which NumPy has another loop
        is_usual = is_usual and (make in OF_ANY or all([isinstance(x, NUMBERS) for x in values]))
        if make and is_usual:
            try:
                new = make(call, self)
            except Exception:  # these numbers, or a kind of arguments, are not for it
                new = None
            if new is not None and fits(new.value, call.value):
                return new
            is_alike = new is not None and fits(new.value, call.value, in_order=False)
            if is_alike and np.asarray(call.value).flags.c_contiguous:
                return self.emit(np.ascontiguousarray, (new,))
            del self.calls[before:]
        parts = list(dict.fromkeys(calls_in((call.args, call.kwargs))))
        are_own = [self.made[part] in self.rows for part in parts]
        rows = [self.made[part] for part in parts]
        own = [row.value for row in rows if row in self.rows]
        if any([isinstance(value, tuple | list) for value in own]):
            raise Unrecordable("a function takes several values of an item at once")
        is_quick = type(call.value) is float
        loop = ItemLoop(call.fun, (call.args, call.kwargs), parts, are_own, is_quick)
        self.calls.append(NumpyCall(loop, rows, {}, stacked([call.value] * EXAMPLES), self.place))
        return self.calls[-1]


class BodyBatching(Batching):
    """The calls of a loop's body; parameters in ``values`` have such rows."""

    def __init__(self, outer: Batching, loop: TurnLoop, values: Mapping[NumpyCall, Any]):
        self.calls, self.place, self.results, self.indices = [], outer.place, {}, {}
        parameters = [*[x for x, _ in loop.carried], *loop.rows, *loop.fixed]
        self.made = {x: NumpyCall(x.fun, (), {}, values.get(x, x.value)) for x in parameters}
        self.rows = {self.made[x] for x in values}
        self.count = NumpyCall(None, (), {}, outer.count.value)


def add_loop(batch: Batching, call: NumpyCall) -> NumpyCall:
    """The batch's call for a loop: its body is the batch of the item's body."""
    loop, passed = call.fun, dict(arguments_of(call))
    own, count = {x for x, thing in passed.items() if batch.is_own(thing)}, -1
    while count != len(own):  # from turn to turn
        count, marked = len(own), set(own)
        for part in loop.body:
            if not marked.isdisjoint(calls_in((part.args, part.kwargs))):
                marked.add(part)
        own |= {x for x, thing in loop.carried if thing in marked}
    first, values = [x for x, _ in loop.carried], dict[NumpyCall, Any]()
    for x, thing in passed.items():
        if x not in own:
            passed[x] = batch.new(thing)
        elif x in loop.rows:
            passed[x] = sequence_of_rows(thing, batch)
            values[x], *others = value_of(passed[x])
            if not all([fits(value, x.value) for value in (values[x], *others)]):
                raise Unrecordable("rows of a loop's turns have several orders in memory")
        else:
            passed[x] = in_order(thing, x.value, batch) if x in first else batch.new(thing)
            values[x] = value_of(passed[x])
    inner = BodyBatching(batch, loop, values)
    for part in loop.body:
        inner.add(part)
    nexts = [
        in_order(thing, x.value, inner) if x in own else inner.new(thing)
        for x, thing in loop.carried
    ]
    indices = {new: indices_of_rows(passed[x]) for x, new in inner.indices.items()}
    outputs = inner.new(loop.outputs)
    new = TurnLoop(
        loop.turns,
        inner.calls,
        list(zip([inner.made[x] for x in first], nexts, strict=True)),
        [*[inner.made[x] for x in loop.rows], *indices],
        [*[inner.made[x] for x in loop.fixed], inner.count],
        outputs,
        loop.lasts,
    )
    args = [[passed[x] for x in part] for part in (first, loop.rows, loop.fixed)]
    args[1] += indices.values()
    args[2].append(batch.count)
    value = [
        value_of(x) if n < loop.lasts else [value_of(x)] * loop.turns for n, x in enumerate(outputs)
    ]
    batch.calls.append(NumpyCall(new, args, {}, tuple(value), call.place))
    batch.results[batch.calls[-1]] = list(map(inner.is_own, loop.outputs))
    return batch.calls[-1]


def in_order(argument: Any, item: Any, batch: Batching) -> Any:
    """Rows of what a loop carries, in the order in memory of the item's."""
    rows = batch.repeated(argument)
    if not fits(rows.value, item) and fits(rows.value, item, in_order=False):
        rows = batch.emit(np.ascontiguousarray, (rows,))
    if not fits(rows.value, item):
        raise Unrecordable("a loop carries rows in several orders in memory")
    return rows


def sequence_of_rows(argument: Any, batch: Batching) -> Any:
    """A sequence of a loop's values, with rows."""
    if not isinstance(argument, NumpyCall):
        return tuple(map(batch.repeated, argument))
    if not batch.is_own(argument):
        raise Unrecordable("a loop takes values with rows, and others without")
    return batch.new(argument)


def indices_of_rows(indices: Sequence[Any]) -> tuple:
    return tuple([(EVERY, *(x if isinstance(x, tuple) else (x,))) for x in indices])


def batched(program: CallList, own: Sequence[int]) -> tuple[CallList, list[ItemLoop]]:
    """The calls of a batch, with the inputs ``own`` stacked, and the loops among them. The outputs
    are rows or ``None``."""
    batch = Batching(program, own)
    for call in program.calls:
        batch.add(call)
    outputs = [None if output is None else batch.repeated(output) for output in program.outputs]
    calls = needed(program._replace(inputs=batch.inputs, calls=batch.calls, outputs=outputs))
    return calls, [call.fun for call in all_calls(calls.calls) if type(call.fun) is ItemLoop]


def fits(rows: Any, item: Any, in_order: bool = True) -> bool:
    """Whether rows have the dtype, shape and order in memory of the item's value."""
    if isinstance(item, tuple | list):
        is_alike = type(rows) is type(item) and len(rows) == len(item)
        return is_alike and all(map(fits, rows, item))
    if not isinstance(rows, np.ndarray) or not isinstance(item, NUMBERS):
        return False
    if rows.dtype != np.result_type(item) or rows.shape != (EXAMPLES, *np.shape(item)):
        return False
    return not in_order or order_of(rows) == [0, *[axis + 1 for axis in order_of(item)]]


# -------------------------------------------------------------------- functions of batches alone


def repeat(value: Any, shape: tuple) -> np.ndarray:
    return spread.fun(np.asarray(value), shape)


def guard_rows(rows: np.ndarray, answer: bool) -> None:
    are_so = np.asarray(rows, bool) == answer
    are_so = are_so.reshape(len(are_so), -1).all(1)
    if not are_so.all():
        raise Parted(are_so)


def stay_rows(rows: Any, kind: Any) -> None:
    expected = kind[1:] if isinstance(kind, tuple) else ((), np.result_type(kind))
    if isinstance(rows, np.ndarray) and (rows.shape[1:], rows.dtype) != expected:
        raise Diverged


OF_ROWS: dict[Any, Callable] = {guard: guard_rows, stay: stay_rows}
STATEMENTS |= {guard_rows, stay_rows}

# --------------------------------------------------------------------------------- elementwise

LOGICAL = {operator.invert, operator.and_, operator.or_, operator.xor, operator.abs}
BY_ENTRIES = {np.where, np.real, np.imag, np.copy, np.asarray, np.nan_to_num, np.angle, np.clip}
BY_ENTRIES |= {np.zeros_like, np.ones_like, numpy_wrapper._astype.fun, pull_chosen.fun}
SINGLE = np.dtype(np.float32)
EXACT = {operator.add, operator.sub, operator.mul, operator.neg, operator.abs}  # with NumPy's bits


@form(*ARITHMETIC, *LOGICAL, *BY_ENTRIES, operator.pow)
def elementwise(call: NumpyCall, batch: Batching) -> Any:
    fun, ndim = call.fun, np.ndim(call.value)
    if isinstance(fun, np.ufunc) and (fun.signature or fun.nout > 1 or fun in (np.fmax, np.fmin)):
        return None
    if fun in (np.power, operator.pow):
        base, exponent = map(value_of, call.args)
        is_whole = np.shape(exponent) == np.shape(call.value) and np.size(exponent) > 1
        if batch.is_own(call.args[1]) and not is_whole:  # NumPy looks at the number
            return None
        if fun is operator.pow and not np.ndim(base):  # C's power of a number
            return None
    is_odd = ndim == 0 and isinstance(call.value, complex | np.integer)
    if is_odd or (type(call.value) is float and fun not in EXACT):
        return None  # other bits, and errors of overflow and of a division by zero
    args, values = [batch.lift(arg, ndim) for arg in call.args], list(map(value_of, call.args))
    if {x.dtype for x in values if isinstance(x, np.ndarray | np.generic)} == {SINGLE}:
        for number, arg in enumerate(call.args):
            if type(values[number]) is float and batch.is_own(arg):  # which is weak
                args[number] = batch.emit(np.asarray, (args[number], SINGLE))
    return batch.emit(fun, args, call.kwargs)


@form(np.outer)
def outer(call: NumpyCall, batch: Batching) -> Any:
    x, y = map(batch.repeated, call.args)
    rows = batch.emit(operator.getitem, (x, (EVERY, EVERY, None)))
    return batch.emit(operator.mul, (rows, batch.emit(operator.getitem, (y, (EVERY, None)))))


@form(spread.fun, np.broadcast_to)
def spread_rows(call: NumpyCall, batch: Batching) -> Any:
    shape = np.shape(call.value)
    return batch.emit(call.fun, (batch.lift(call.args[0], len(shape)), batch.shape(*shape)))


@form(plus)
def plus_rows(call: NumpyCall, batch: Batching) -> Any:
    array, other = call.args
    return batch.emit(plus, (batch.repeated(array), batch.lift(other, np.ndim(call.value))))


# -------------------------------------------------------------------------------- along an axis

OVER_ALL = {np.sum, np.prod, np.max, np.min, np.all, np.any, np.mean}
OVER_ALL |= set(REDUCE.values()) | {np.count_nonzero}  # where no axis stands for all
AXES: dict[Any, tuple[str, Any]] = {  # names of arguments after the first, and the default axis
    **dict.fromkeys(OVER_ALL, ("axis", None)),
    **dict.fromkeys(REDUCE.values(), ("axis", 0)),
    **dict.fromkeys((np.cumsum, np.cumprod, np.argmax, np.argmin, np.flip), ("axis", None)),
    **dict.fromkeys((np.sort, np.argsort), ("axis", -1)),
    **{np.take: ("indices axis", None), np.repeat: ("repeats axis", None)},
    **{np.take_along_axis: ("indices axis", None), np.add.accumulate: ("axis", 0)},
    **{np.roll: ("shift axis", None), np.diff: ("n axis", -1)},
}


@form(*AXES)
def along(call: NumpyCall, batch: Batching) -> Any:
    text, axis = AXES[call.fun]
    names = text.split()
    (x, *others), ndim = call.args, np.ndim(value_of(call.args[0]))
    options = {"axis": axis, **dict(zip(names, others, strict=False)), **call.kwargs}
    options = {name: option for name, option in options.items() if option is not np._NoValue}
    if len(others) > len(names) or set(options) - {*names, "keepdims"}:
        return None
    if batch.is_own([*options.values()]) != (call.fun is np.take_along_axis):
        return None
    if options["axis"] is None and call.fun not in OVER_ALL and ndim != 1:
        return None
    every = tuple(range(ndim)) if call.fun in OVER_ALL else 0
    options["axis"] = shifted(every if options["axis"] is None else options["axis"], ndim)
    return batch.emit(call.fun, (batch.repeated(x),), batch.new(options))


def shifted(axis: Any, ndim: int) -> Any:
    if isinstance(axis, tuple):
        return tuple([n % ndim + 1 for n in axis])
    return int(axis) % max(ndim, 1) + 1


@form(pull_extreme.fun)
def of_extreme(call: NumpyCall, batch: Batching) -> Any:
    *arrays, axis = call.args
    ndim = np.ndim(value_of(arrays[2]))
    axes = shifted(tuple(range(ndim)) if axis is None else axis, ndim)
    return batch.emit(call.fun, (*map(batch.repeated, arrays), axes))


# ------------------------------------------------------------------------------------ indexing


@form(operator.getitem)
def indexed(call: NumpyCall, batch: Batching) -> Any:
    x, index = call.args
    if isinstance(value_of(x), tuple | list):  # one of several values
        return batch.emit(operator.getitem, batch.new(call.args))
    place = index_of_rows(index, batch)
    if place is None:
        return None
    return batch.emit(operator.getitem, (batch.new(x), place if batch.is_own(x) else place[1:]))


def index_of_rows(index: Any, batch: Batching) -> Any:
    """The index of rows, or None if NumPy would put the axes elsewhere."""
    if isinstance(index, NumpyCall) and index.fun is constant_of_turn:
        place = index_of_rows(index.value, batch)
        if place is None:
            return None
        return batch.indices.setdefault(index, NumpyCall(constant_of_turn, (), {}, place))
    if batch.is_own(index):
        return own_index(index, batch)
    parts = index if isinstance(index, tuple) else (index,)
    arrays = [n for n, part in enumerate(parts) if isinstance(value_of(part), np.ndarray | list)]
    if arrays:
        numbers = [n for n, x in enumerate(parts) if isinstance(value_of(x), int | np.integer)]
        places = sorted(arrays + numbers)
        are_together = places == list(range(places[0], places[-1] + 1))
        if not are_together or any([part is None or part is ... for part in parts]):
            return None
    return (EVERY, *batch.new(parts))


def own_index(index: Any, batch: Batching) -> Any:
    """The index of rows by each item's own numbers, before parts that take axes whole."""
    first, *others = index if isinstance(index, tuple) else (index,)
    is_first = isinstance(first, NumpyCall) and np.result_type(first.value).kind in "iu"
    if not is_first or not all([x is None or x is ... or x == EVERY for x in others]):
        return None
    items = batch.emit(np.arange, (batch.count,))
    axes = (EVERY, *[None] * np.ndim(first.value))
    return batch.emit(operator.getitem, (items, axes)), batch.new(first), *others


@form(add_to)
def added(call: NumpyCall, batch: Batching) -> Any:
    array, index, g, distinct = call.args
    place, ndim = index_of_rows(index, batch), np.ndim(array.value[value_of(index)])
    if place is None:
        return None
    args = batch.repeated(array), place, batch.lift(g, ndim), distinct or not ndim
    return batch.emit(add_to, args)


# -------------------------------------------------------------------------------- arrangements


@form(np.reshape, np.squeeze, np.expand_dims, np.ravel, np.atleast_1d, np.atleast_2d)
def reshaped(call: NumpyCall, batch: Batching) -> Any:
    has_order = len(call.args) > 1 + (call.fun is not np.ravel) or "order" in call.kwargs
    if has_order:
        return None
    return batch.emit(np.reshape, (batch.new(call.args[0]), batch.shape(*np.shape(call.value))))


@form(np.transpose, np.swapaxes, np.moveaxis)
def turned(call: NumpyCall, batch: Batching) -> Any:
    x, *options = call.args
    order = call.fun(np.empty(range(np.ndim(x.value))), *options, **call.kwargs).shape
    return batch.emit(np.transpose, (batch.new(x), (0, *[axis + 1 for axis in order])))


@form(np.diag, np.diagonal, np.trace)
def diagonal(call: NumpyCall, batch: Batching) -> Any:
    x = call.args[0]
    if len(call.args) > 1 or call.kwargs or np.ndim(x.value) != 2:
        return None
    return batch.emit(np.trace if call.fun is np.trace else np.diagonal, (batch.new(x), 0, 1, 2))


@form(np.concatenate)
def joined(call: NumpyCall, batch: Batching) -> Any:
    parts, axis, *_ = *call.args, call.kwargs.get("axis", 0)
    if not isinstance(parts, list | tuple) or axis is None:
        return None
    axis = shifted(axis, np.ndim(call.value))
    return batch.emit(np.concatenate, (tuple(map(batch.repeated, parts)), axis))


@form(chained)
def chained_rows(call: NumpyCall, batch: Batching) -> Any:
    return batch.emit(chained, [sequence_of_rows(part, batch) for part in call.args])


@form(np.array)
def array_of(call: NumpyCall, batch: Batching) -> Any:
    parts, *options = call.args
    if isinstance(parts, NumpyCall):
        return batch.emit(np.array, (batch.new(parts), *options), call.kwargs)
    if any([isinstance(part, list | tuple) for part in parts]) or call.kwargs or options:
        return None
    return batch.emit(np.stack, (tuple(map(batch.repeated, parts)), 1))


OF_ANY = {
    indexed,
    array_of,
    joined,
    chained_rows,
}  # forms of calls that take more than arrays
OF_VIEWS = {*OF_ANY, reshaped, turned, diagonal, spread_rows}  # forms that compute nothing

# ------------------------------------------------------------------ products and linear algebra

PRODUCTS = {(1, 1): np.vecdot, (2, 1): np.matvec, (1, 2): np.vecmat, (2, 2): np.matmul}


@form(np.dot, np.matmul, operator.matmul)
def product(call: NumpyCall, batch: Batching) -> Any:
    x, y = map(value_of, call.args)
    are_arrays = type(x) is type(y) is np.ndarray and x.dtype == y.dtype and x.dtype.kind == "f"
    fun = PRODUCTS.get((x.ndim, y.ndim)) if are_arrays and not call.kwargs else None
    if call.fun is not np.dot:
        if fun is None and are_arrays and not call.kwargs and min(x.ndim, y.ndim) > 1:
            operands = [batch.lift(arg, np.ndim(call.value)) for arg in call.args]
            return batch.emit(np.matmul, operands)
        return fun and batch.emit(fun, batch.new(call.args))
    if fun is None or x.size == 1 or y.size == 1:
        return None
    if x.shape[-1] == 1:  # BLAS adds to zero
        return batch.emit(operator.add, (batch.emit(operator.mul, batch.new(call.args)), 0.0))
    args = [in_one_piece(arg, batch) for arg in call.args]
    return None if any([arg is None for arg in args]) else batch.emit(fun, args)


def in_one_piece(item: Any, batch: Batching) -> Any:
    """The copy that ``np.dot`` makes of a matrix in several pieces; None for a row or column."""
    value = value_of(item)
    if value.ndim < 2 or value.flags.c_contiguous or value.flags.f_contiguous:
        return batch.new(item)
    if 1 in value.shape:
        return None
    return batch.emit(np.ascontiguousarray, (batch.new(item),)) if batch.is_own(item) else None


OF_STACKS = {kernels.inverted, kernels.factor, kernels.transform, kernels.inverse_transform}
for name in ("inv", "det", "cholesky", "eigh", "eigvalsh", "svd", "slogdet", "qr"):
    OF_STACKS.add(getattr(np.linalg, name))


@form(*OF_STACKS, np.tril, np.triu)
def of_stack(call: NumpyCall, batch: Batching) -> Any:
    return batch.emit(call.fun, batch.new(call.args), call.kwargs)


@form(kernels.solved, np.linalg.solve)
def solved(call: NumpyCall, batch: Batching) -> Any:
    matrix, b = map(value_of, call.args)
    if (matrix.dtype, b.dtype) != (np.float64, np.float64) or matrix.ndim != 2:
        return None
    return batch.emit(solve_vectors if b.ndim == 1 else np.linalg.solve, batch.new(call.args))


def solve_vectors(matrix: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.linalg.solve(matrix, b[..., None])[..., 0]
