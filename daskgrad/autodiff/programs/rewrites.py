"""Rewrites: from a list of calls to a shorter or quicker one with the same bits.

``rewritten`` goes through the calls once. ``RULES`` has, for each function, the rules that may put
something else in its place: a rule gets the call and ``emit``, which appends a call, and returns
what stands for the call, or ``None``. Calls of the very operands of an earlier one are left out as
they are appended; ``needed`` leaves out those whose value nobody takes.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from autograd.numpy.fft import truncate_pad

from daskgrad.autodiff.programs import kernels
from daskgrad.autodiff.programs.calls import (
    IN_PLACE,
    OF_ONE,
    REDUCE,
    STATEMENTS,
    CallList,
    NumpyCall,
    calls_in,
    cut,
    guard,
    kind_of,
    may_raise,
    replaced,
    value_of,
)
from daskgrad.autodiff.rules.declaration import import_after
from daskgrad.autodiff.rules.math_reductions import spread

import_after("autograd.scipy.special", "daskgrad.autodiff.programs.special_calls")
import_after("autograd.scipy.stats", "daskgrad.autodiff.programs.density_calls")

RULES: dict[Any, list[Callable]] = {}
VIEWS = {operator.getitem, np.reshape, np.transpose, np.real, np.imag, np.ravel, np.squeeze}
VIEWS |= {np.swapaxes, np.moveaxis, np.expand_dims, np.broadcast_to, np.diagonal, np.diag}
NUMBERS = (np.float64, np.float32)
REAL = (np.dtype(np.float64), np.dtype(np.float32))


def rule(*funs: Any) -> Callable:
    def enter(fun: Callable) -> Callable:
        for each in funs:
            RULES.setdefault(each, []).append(fun)
        return fun

    return enter


def rewritten(program: CallList, rules: dict[Any, list[Callable]] = RULES) -> CallList:
    made: dict[NumpyCall, Any] = {}
    calls: list[NumpyCall] = []
    known: dict[Any, NumpyCall] = {}
    alone = not_shared(program)
    place: Any = None

    def emit(
        fun: Any, args: Sequence[Any], options: dict | None = None, value: Any = NotImplemented
    ) -> Any:
        kwargs = options or {}
        if value is NotImplemented:
            with np.errstate(all="ignore"):
                value = fun(*map(value_of, args), **value_of(kwargs))
        return append(NumpyCall(fun, args, kwargs, value, place))

    def append(call: NumpyCall) -> NumpyCall:
        makes_new = call.fun in PURE or isinstance(call.fun, np.ufunc)  # the same one each time
        key = key_of(call) if makes_new and not is_alone else None
        if key in known:
            return known[key]
        calls.append(call)
        if key is not None:
            known[key] = call
        return call

    for call in program.calls:
        is_alone, place = call in alone, call.place
        args, kwargs = replaced((call.args, call.kwargs), made)
        new = NumpyCall(call.fun, args, kwargs, call.value, place)
        options = (new.args[1:] if call.fun in OF_ONE else (), new.kwargs)
        is_usual = next(calls_in(options), None) is None  # no axis or shape is data
        is_usual &= not (kwargs and isinstance(call.fun, np.ufunc))  # dtype=, order=
        other = folded(new) if not is_alone else None
        others = (each(new, emit) for each in rules.get(call.fun, ()) if is_usual)
        if other is None:
            other = next((each for each in others if each is not None), None)
        made[call] = append(new) if other is None else other
    return needed(program._replace(calls=calls, outputs=replaced(program.outputs, made)))


def folded(call: NumpyCall) -> Any:
    """A number that is computed of numbers alone, as of the cotangent one; or what is multiplied by
    one, in which no bit changes."""
    if not (call.fun in ARITHMETIC or isinstance(call.fun, np.ufunc)) or call.kwargs:
        return None
    operands = list(calls_in(call.args))
    if not operands and type(call.value) in NUMBERS:
        return call.value if np.isfinite(call.value) else None
    is_product = call.fun in (operator.mul, np.multiply) and len(operands) == 1
    if is_product and type(operands[0].value) is type(call.value):
        (one,) = [arg for arg in call.args if arg is not operands[0]] or (None,)
        is_one = type(one) in NUMBERS and one == 1.0
        if is_one and kind_of(operands[0].value) == kind_of(call.value):
            return operands[0]
    return None


def not_shared(program: CallList) -> set[NumpyCall]:
    """Calls whose value is changed in place later, or handed out, or a view of which is."""
    found = set(calls_in(program.outputs))
    for call in reversed(program.calls):
        if call.fun in IN_PLACE:
            found.add(call.args[0])
        if call in found and call.fun in VIEWS:
            found.update(calls_in(call.args[:1]))
    return found


def key_of(call: NumpyCall) -> Any:
    return (
        call.fun,
        key_of_argument(call.args),
        *call.kwargs,
        key_of_argument([*call.kwargs.values()]),
    )


def key_of_argument(given: Any) -> Any:
    if isinstance(given, tuple | list):
        return type(given), *map(key_of_argument, given)
    return repr(given) if type(given) in (int, float, bool, str, slice) else id(given)


def needed(program: CallList) -> CallList:
    """Without calls whose value nobody takes; but for those of the model that may raise."""
    wanted = set(calls_in(program.outputs))
    kept = []
    is_model = False
    for call in reversed(program.calls):
        is_model = is_model or call.fun is cut
        if call in wanted or call.fun in STATEMENTS or (is_model and may_raise(call)):
            kept.append(call)
            wanted.update(calls_in((call.args, call.kwargs)))
    return program._replace(calls=kept[::-1])


# ------------------------------------------------------------------------------------ operators


OPERATORS = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.divide: operator.truediv,
    np.negative: operator.neg,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.equal: operator.eq,
    np.not_equal: operator.ne,
}
ARITHMETIC = set(OPERATORS.values())
LIKE_ONE = {np.power, np.maximum, np.minimum, np.fmax, np.fmin, np.arctan2, np.hypot, np.logaddexp}
LIKE_ONE |= {np.remainder, np.floor_divide}
PURE = {
    operator.getitem,
    operator.matmul,
    np.reshape,
    np.transpose,
    np.count_nonzero,
    *ARITHMETIC,
    *REDUCE.values(),
    np.where,
    np.dot,
    operator.pow,
    spread.fun,
    np.sign,
}


@rule(np.multiply, operator.mul)
def times_one(call: NumpyCall, emit: Callable) -> Any:
    for one, other in (call.args, call.args[::-1]):
        is_one = type(one) in (float, np.float64) and one == 1.0  # no array without axes
        if is_one and is_alike(other, call.value) and call.value.dtype == np.float64:
            return other
    return None


def is_real(value: Any) -> bool:
    return type(value) in (np.ndarray, np.float64, np.float32) and value.dtype in REAL


def is_double(given: Any) -> bool:
    value = value_of(given)
    return type(value) in (np.ndarray, np.float64) and value.dtype == np.float64


def is_alike(given: Any, value: Any) -> bool:
    """Whether an operand has the value's type, shape, dtype and order in memory."""
    own: Any = given.value if isinstance(given, NumpyCall) else None
    return (
        isinstance(value, np.ndarray | np.generic)
        and type(own) is type(value)
        and (own.shape, own.dtype, own.strides) == (value.shape, value.dtype, value.strides)
    )


@rule(np.conjugate)
def of_real(call: NumpyCall, emit: Callable) -> Any:
    return call.args[0] if is_real(call.value) and is_alike(call.args[0], call.value) else None


@rule(np.power)
def small_power(call: NumpyCall, emit: Callable) -> Any:
    """NumPy's loop multiplies where the exponent is two."""
    x, exponent = call.args
    if type(exponent) not in (int, float) or not is_real(value_of(x)):
        return None
    if exponent == 1 and is_alike(x, call.value):
        return x
    if exponent == 2:
        return again(NumpyCall(operator.mul, (x, x), {}, call.value), emit)
    args = x, exponent + 0.0
    return again(NumpyCall(np.power, args, {}, call.value), emit) if type(exponent) is int else None


@rule(np.add, operator.add)
def plus_zeros(call: NumpyCall, emit: Callable) -> Any:
    """Zeros of a larger shape spread out what they are added to."""
    for zeros, x in (call.args, call.args[::-1]):
        if type(zeros) is np.ndarray and zeros.shape == np.shape(call.value):
            if not (is_zero_of(value_of(x), zeros) and is_ordered(call.value)):
                continue
            if not zeros.ndim:
                return emit(operator.add, (x, 0.0), {}, call.value)
            shape = np.shape(value_of(x))
            if np.prod(shape) == 1 or shape != zeros.shape:
                small = again(NumpyCall(operator.add, (x, 0.0), {}, value_of(x)), emit)
                return emit(spread.fun, (small, zeros.shape), {}, call.value)
    return None


def is_zero_of(x: Any, zeros: np.ndarray) -> bool:
    is_like = is_real(x) and x.dtype == zeros.dtype
    return is_like and not zeros.any() and not np.signbit(zeros).any()


@rule(np.add, operator.add)
def through_reshape(call: NumpyCall, emit: Callable) -> Any:
    """A number is reshaped after something is added to it."""
    x, other = call.args
    is_number = np.ndim(other) == 0 and not isinstance(other, NumpyCall)
    if is_shaped_number(x) and is_number and is_alike(x, call.value):
        inner = again(
            NumpyCall(operator.add, (x.args[0], float(other)), {}, value_of(x.args[0])), emit
        )
        return emit(np.reshape, (inner, call.value.shape), {}, call.value)
    return None


def is_shaped_number(given: Any) -> bool:
    is_reshape = isinstance(given, NumpyCall) and given.fun is np.reshape and is_real(given.value)
    return is_reshape and np.ndim(value_of(given.args[0])) == 0


@rule(*OPERATORS, *ARITHMETIC, *LIKE_ONE, np.where)
def without_spread(call: NumpyCall, emit: Callable) -> Any:
    """Nothing is spread out to a shape that another operand has, in C order."""
    for number, arg in enumerate(call.args):
        thin = thinner(arg)
        if thin is not None:
            rest = [value_of(each) for n, each in enumerate(call.args) if n != number]
            dtypes = {each.dtype for each in rest if isinstance(each, np.ndarray | np.generic)}
            if dtypes <= {value_of(arg).dtype, np.dtype(bool)} and serve(rest, call.value):
                args = list(call.args)
                args[number] = thin
                return again(NumpyCall(call.fun, args, call.kwargs, call.value), emit)
    return None


@rule(np.add, np.subtract, np.multiply, np.divide, np.negative)
@rule(operator.add, operator.sub, operator.mul, operator.truediv, operator.neg)
def within_spread(call: NumpyCall, emit: Callable) -> Any:
    """Arithmetic of what is spread out, and numbers, comes before it is."""
    spreads = [arg for arg in call.args if isinstance(arg, NumpyCall) and arg.fun is spread.fun]
    others = [value_of(arg) for arg in call.args if not any([arg is each for each in spreads])]
    are_numbers = all([is_real(each) or type(each) in (int, float) for each in others])
    if len(spreads) != 1 or not are_numbers or any(map(np.ndim, others)):
        return None
    args = [arg.args[0] if arg is spreads[0] else arg for arg in call.args]
    with np.errstate(all="ignore"):
        value = call.fun(*map(value_of, args))
    inner = again(NumpyCall(call.fun, args, {}, value), emit)
    return emit(spread.fun, (inner, spreads[0].args[1]), {}, call.value)


@rule(spread.fun)
def number_spread(call: NumpyCall, emit: Callable) -> Any:
    x, shape = call.args
    return emit(spread.fun, (x.args[0], shape), {}, call.value) if is_shaped_number(x) else None


def thinner(arg: Any) -> Any:
    """What an operand repeats, if it does."""
    if isinstance(arg, NumpyCall):
        return arg.args[0] if arg.fun is spread.fun or is_shaped_number(arg) else None
    if type(arg) is np.ndarray and arg.dtype == np.float64 and arg.ndim and arg.size:
        first = arg.flat[0]
        is_same = first == first and (arg == first).all() and (first or not np.signbit(arg).any())
        return first if is_same else None
    return None


def serve(others: Sequence[Any], value: Any) -> bool:
    """Whether operands have the shape and the order of the value."""
    shapes = [np.shape(each) for each in others]
    are_ordered = all(map(is_ordered, [*others, value]))
    return are_ordered and np.broadcast_shapes(*shapes) == np.shape(value)


def is_ordered(value: Any) -> bool:
    return np.ndim(value) < 2 or value.flags.c_contiguous


@rule(np.add.reduce)
def reduced(call: NumpyCall, emit: Callable) -> Any:
    """All axes are kept by giving a number its shape."""
    if call.kwargs != {"axis": None, "keepdims": True} or not is_real(call.value):
        return None
    total = emit(np.add.reduce, call.args, {"axis": None})
    return emit(np.reshape, (total, call.value.shape), {}, call.value)


@rule(np.add.reduce)
def counted(call: NumpyCall, emit: Callable) -> Any:
    """How many are true, as a number."""
    x = call.args[0]
    if x.value.dtype != bool or call.kwargs["axis"] is not None:
        return None
    count = emit(np.count_nonzero, (x,))
    return (
        emit(np.reshape, (count, call.value.shape), {}, call.value) if np.ndim(call.value) else None
    )


def again(call: NumpyCall, emit: Callable) -> Any:
    """The call, as further rules have it."""
    for each in RULES.get(call.fun, ()):
        other = each(call, emit)
        if other is not None:
            return other
    return emit(call.fun, call.args, call.kwargs, call.value)


@rule(*OPERATORS)
def by_operator(call: NumpyCall, emit: Callable) -> Any:
    """An operator takes less time than the ufunc, and has its bits for real numbers, of which one
    is NumPy's."""
    values = list(map(value_of, call.args))
    are_real = all([is_real(each) or type(each) in (int, float) for each in values])
    if not are_real or not any(map(is_real, values)):
        return None
    return again(NumpyCall(OPERATORS[call.fun], call.args, {}, call.value), emit)


@rule(*ARITHMETIC, *LIKE_ONE)
def beside_arrays(call: NumpyCall, emit: Callable) -> Any:
    """A number beside an array is an array without axes, which NumPy takes in half the time."""
    arrays = [value_of(each) for each in call.args if np.ndim(value_of(each))]
    dtypes = {each.dtype for each in arrays if hasattr(each, "dtype")}
    if len(dtypes) > 1 or not dtypes <= set(REAL):
        return None
    if not dtypes:
        return of_numbers(call, emit)
    (dtype,) = dtypes
    kinds = (int, float, dtype.type, np.int64 if dtype == np.float64 else int)
    numbers = [type(each) in kinds for each in call.args]
    if not any(numbers):
        return None
    args = [
        constant(each, dtype) if is_number else each
        for each, is_number in zip(call.args, numbers, strict=True)
    ]
    return emit(call.fun, args, {}, call.value)


@rule(np.where)
def chosen_number(call: NumpyCall, emit: Callable) -> Any:
    numbers = [type(each) in (float, call.value.dtype.type) for each in call.args[1:]]
    if not any(numbers) or not is_real(call.value) or not np.ndim(call.value):
        return None
    pairs = zip(call.args[1:], numbers, strict=True)
    args = [constant(each, call.value.dtype) if is_number else each for each, is_number in pairs]
    return emit(np.where, (call.args[0], *args), {}, call.value)


def of_numbers(call: NumpyCall, emit: Callable) -> Any:
    """Constants without axes beside numbers are numbers."""
    args = [float(each) if is_zero_dim(each) else each for each in call.args]
    are_numbers = any(type(value_of(each)) is np.float64 for each in args)
    if not are_numbers or args == list(call.args):
        return None
    return emit(call.fun, args, {}, call.value)


def is_zero_dim(given: Any) -> bool:
    return type(given) is np.ndarray and given.ndim == 0 and given.dtype == np.float64


_constants: dict[Any, np.ndarray] = {}


def constant(number: Any, dtype: np.dtype) -> np.ndarray:
    key = repr(float(number)), dtype
    if key not in _constants:
        array = _constants[key] = np.asarray(number, dtype)
        array.flags.writeable = False
    return _constants[key]


# ----------------------------------------------------------------------- what others are made of


@rule(np.reshape)
def reshaped(call: NumpyCall, emit: Callable) -> Any:
    return call.args[0] if is_alike(call.args[0], call.value) and len(call.args) == 2 else None


@rule(np.transpose)
def turned(call: NumpyCall, emit: Callable) -> Any:
    return call.args[0] if np.ndim(call.value) < 2 and is_alike(call.args[0], call.value) else None


@rule(np.squeeze, np.ravel, np.expand_dims, np.atleast_1d, np.atleast_2d)
def as_reshaped(call: NumpyCall, emit: Callable) -> Any:
    x = call.args[0]
    is_usual = type(x.value) is np.ndarray and not isinstance(call.value, list | tuple)
    if not is_usual or (
        call.fun is np.ravel and ([*call.args[1:], *call.kwargs] or not x.value.flags.c_contiguous)
    ):
        return None
    return again(NumpyCall(np.reshape, (x, call.value.shape), {}, call.value), emit)


def axis_of(call: NumpyCall, *others: str) -> Any:
    """The axis of a call with this keyword and others alone, and of one real array; or "other"."""
    given = dict(zip(["axis"], call.args[1:], strict=False)) | call.kwargs
    value = value_of(call.args[0])
    is_usual = type(value) is np.ndarray and value.dtype == np.float64 and value.ndim > 0
    if not is_usual or len(call.args) > 2 or given.keys() - {"axis", *others}:
        return "other"
    return given.get("axis")


def terms(shape: Sequence[int], axis: Any) -> int:
    axes = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return int(np.prod([shape[n] for n in axes], dtype=int))


def mean_of(x: Any, axis: Any, keep: bool, emit: Callable) -> Any:
    options = {"axis": axis, "keepdims": True} if keep else {"axis": axis}
    total = emit(np.add.reduce, (x,), options)
    return again(
        NumpyCall(operator.truediv, (total, terms(x.value.shape, axis)), {}, total.value), emit
    )


@rule(np.mean)
def mean(call: NumpyCall, emit: Callable) -> Any:
    axis, x = axis_of(call, "keepdims"), call.args[0]
    if isinstance(axis, str) or not x.value.size:
        return None
    return mean_of(x, axis, np.ndim(call.value) == x.value.ndim, emit)


@rule(np.var, np.std)
def variance(call: NumpyCall, emit: Callable) -> Any:
    axis, x = axis_of(call, "ddof", "keepdims"), call.args[0]
    ddof = call.kwargs.get("ddof", 0)
    if isinstance(axis, str) or type(ddof) is not int or terms(x.value.shape, axis) <= max(ddof, 0):
        return None
    gaps = emit(operator.sub, (x, mean_of(x, axis, axis is not None, emit)))
    keep = np.ndim(call.value) == x.value.ndim
    options = {"axis": axis, "keepdims": True} if keep else {"axis": axis}
    total = emit(np.add.reduce, (emit(np.square, (gaps,)),), options)
    rest = terms(x.value.shape, axis) - ddof
    found = again(NumpyCall(operator.truediv, (total, rest), {}, total.value), emit)
    return found if call.fun is np.var else emit(np.sqrt, (found,))


def is_vector(given: Any) -> bool:
    value = value_of(given)
    return type(value) is np.ndarray and value.ndim == 1 and value.dtype == np.float64


@rule(np.roll)
def rolled(call: NumpyCall, emit: Callable) -> Any:
    x, *options = call.args
    if call.kwargs or list(map(type, options)) != [int] or not is_vector(x):
        return None
    (shift,) = options
    place = -shift % max(len(x.value), 1)
    parts = [emit(operator.getitem, (x, part)) for part in (slice(place, None), slice(0, place))]
    return emit(np.concatenate, (tuple(parts), 0), {}, call.value)


@rule(np.diff)
def differences(call: NumpyCall, emit: Callable) -> Any:
    x = call.args[0]
    if (
        call.args[1:] not in ((), (1,))
        or call.kwargs.keys() - {"axis"}
        or call.kwargs.get("axis", 0) not in (0, -1)
        or not is_vector(x)
    ):
        return None
    parts = [emit(operator.getitem, (x, part)) for part in (slice(1, None), slice(None, -1))]
    return emit(operator.sub, parts, {}, call.value)


@rule(np.linalg.norm)
def length(call: NumpyCall, emit: Callable) -> Any:
    if len(call.args) > 1 or call.kwargs or not is_vector(call.args[0]):
        return None
    if not call.args[0].value.flags.c_contiguous:  # of others NumPy makes a copy
        return None
    return emit(np.sqrt, (emit(np.dot, (call.args[0], call.args[0])),))


@rule(guard)
def of_number(call: NumpyCall, emit: Callable) -> Any:
    """A branch on ``np.all`` of one number is one on the number."""
    (asked, answer) = call.args
    is_usual = asked.fun in (np.all, np.any) and len(asked.args) == 1 and not asked.kwargs
    if is_usual and np.ndim(value_of(asked.args[0])) == 0:
        return emit(guard, (asked.args[0], answer), {}, None)
    return None


@rule(truncate_pad.fun)
def not_padded(call: NumpyCall, emit: Callable) -> Any:
    return call.args[0] if is_alike(call.args[0], call.value) else None


QUICKER = {
    np.linalg.inv: kernels.inverted,
    np.linalg.solve: kernels.solved,
    np.linalg.cholesky: kernels.factor,
    np.einsum: kernels.einsum,
    np.clip: kernels.clip,
    np.fft.fft: kernels.transform,
    np.fft.ifft: kernels.inverse_transform,
}


@rule(*QUICKER)
def by_kernel(call: NumpyCall, emit: Callable) -> Any:
    arrays = [value_of(each) for each in call.args if not isinstance(each, str)]
    are_double = all(
        type(x) is np.ndarray and x.dtype in (np.float64, np.complex128) for x in arrays
    )
    if call.fun is np.clip:
        are_double = type(arrays[0]) is np.ndarray and len(arrays) == 3
        are_double = are_double and not any([each is None for each in arrays])
    elif call.fun not in (np.fft.fft, np.fft.ifft, np.einsum):
        are_double = are_double and arrays[0].ndim == 2 and arrays[-1].ndim < 3
        are_double = are_double and arrays[0].dtype == np.float64
    if call.fun in (np.fft.fft, np.fft.ifft):  # whose results have the order of their arguments
        are_double = are_double and len(arrays) == 1 and arrays[0].flags.c_contiguous
    if call.kwargs or not are_double:
        return None
    return emit(QUICKER[call.fun], call.args, {}, call.value)
