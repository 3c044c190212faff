"""Rewrites: from a list of calls to a shorter or quicker one with the same bits.

``rewritten`` goes through the calls once. ``RULES`` has, for each function, the rules that may put
something else in place of a call: a rule gets the call and ``emit``, which makes a call by these
rules, and returns what stands for the first one, or ``None``. A call with the operands of an
earlier one is left out; ``needed`` leaves out calls whose value nobody takes.
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
    TurnLoop,
    arguments_of,
    calls_in,
    cut,
    loop_of,
    may_raise,
    replaced,
    value_of,
)
from daskgrad.autodiff.rules.declaration import import_after
from daskgrad.autodiff.rules.math_reductions import spread

import_after("autograd.scipy.special", "daskgrad.autodiff.programs.special_calls")
import_after("autograd.scipy.stats", "daskgrad.autodiff.programs.density_calls")

RULES: dict[Any, list[Callable]] = {}
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
PURE = {operator.getitem, operator.matmul, operator.pow, *ARITHMETIC, *REDUCE.values()}
PURE |= {np.reshape, np.transpose, np.count_nonzero, np.where, np.dot, np.sign, spread.fun}
VIEWS = {operator.getitem, np.reshape, np.transpose, np.real, np.imag, np.ravel, np.squeeze}
VIEWS |= {np.swapaxes, np.moveaxis, np.expand_dims, np.broadcast_to, np.diagonal, np.diag}
NUMBERS = (np.float64, np.float32)
REAL = (np.dtype(np.float64), np.dtype(np.float32))


def rule(*funs: Any) -> Callable:
    def enter(fun: Callable) -> Callable:
        for key in funs:
            RULES.setdefault(key, []).append(fun)
        return fun

    return enter


def rewritten(program: CallList, rules: dict[Any, list[Callable]] = RULES) -> CallList:
    rewriting = Rewriting(rules)
    rewriting.add(program.calls, not_shared(program))
    outputs = replaced(program.outputs, rewriting.made)
    return needed(program._replace(calls=rewriting.calls, outputs=outputs))


class Rewriting:
    """The ``calls`` of the new list so far, which stand for others (``made``)."""

    def __init__(self, rules: dict[Any, list[Callable]]):
        self._rules = rules
        self.calls: list[NumpyCall] = []
        self.made: dict[NumpyCall, Any] = {}
        self._known: dict[Any, NumpyCall] = {}
        self.is_alone, self.place = False, None  # of the call that is rewritten

    def add(self, calls: Sequence[NumpyCall], alone: set[NumpyCall]) -> None:
        """Rewrites calls; ``alone`` has those that are ``not_shared``."""
        for call in calls:
            self.is_alone, self.place = call in alone, call.place
            args, kwargs = replaced((call.args, call.kwargs), self.made)
            new = NumpyCall(call.fun, args, kwargs, call.value, call.place)
            options = (new.args[1:] if call.fun in OF_ONE else (), new.kwargs)
            is_usual = next(calls_in(options), None) is None  # no axis or shape is data
            is_usual &= not (kwargs and isinstance(call.fun, np.ufunc))  # dtype=, order=
            if type(call.fun) is TurnLoop:
                self.calls.append(self._with_body(new, alone))
                self.made[call] = self.calls[-1]
            elif loop_of(new) is not None:
                self.made[call] = self._result(new)
            else:
                self.made[call] = self.by_rules(new) if is_usual else self.append(new)

    def _with_body(self, call: NumpyCall, alone: set[NumpyCall]) -> NumpyCall:
        """A loop with a body that is rewritten."""
        loop, inner = call.fun, Rewriting(self._rules)
        known, passed = dict[Any, NumpyCall](), dict[NumpyCall, Any]()
        for parameter, thing in arguments_of(call):
            stays = parameter in loop.fixed
            if stays and not isinstance(thing, NumpyCall):
                inner.made[parameter] = thing
                continue
            is_own = parameter in alone or parameter not in (*loop.fixed, *loop.rows)
            key = parameter if is_own else (stays, id(thing))
            if key not in known:
                known[key] = NumpyCall(parameter.fun, (), {}, parameter.value)
                passed[known[key]] = thing
            inner.made[parameter] = known[key]
        inner.add(loop.body, alone)
        carried = replaced(loop.carried, inner.made)
        rows, fixed = (
            list(dict.fromkeys([inner.made[x] for x in part if inner.made[x] in passed]))
            for part in (loop.rows, loop.fixed)
        )
        outputs = replaced(loop.outputs, inner.made)
        new = TurnLoop(loop.turns, inner.calls, carried, rows, fixed, outputs, loop.lasts)
        parts = [x for x, _ in carried], rows, fixed
        args = [[passed[x] for x in part] for part in parts]
        return NumpyCall(new, args, {}, call.value, call.place)

    def _result(self, call: NumpyCall) -> Any:
        """A result of a loop: a constant, or the first of equal results."""
        (source, number), outputs = call.args, call.args[0].fun.outputs
        is_last = number < source.fun.lasts
        if is_last and not isinstance(outputs[number], NumpyCall):
            return outputs[number]
        same = range(0 if is_last else source.fun.lasts, number if not self.is_alone else 0)
        first = next((n for n in same if outputs[n] is outputs[number]), number)
        return self.append(NumpyCall(call.fun, (source, first), {}, call.value, call.place))

    def emit(
        self,
        fun: Any,
        args: Sequence[Any],
        options: dict | None = None,
        value: Any = NotImplemented,
    ) -> Any:
        kwargs = options or {}
        if value is NotImplemented:
            with np.errstate(all="ignore"):
                value = fun(*map(value_of, args), **value_of(kwargs))
        return self.by_rules(NumpyCall(fun, args, kwargs, value, self.place))

    def by_rules(self, call: NumpyCall) -> Any:
        other = folded(call) if not self.is_alone else None
        others = (make(call, self.emit) for make in self._rules.get(call.fun, ()))
        if other is None:
            other = next((x for x in others if x is not None), None)
        return self.append(call) if other is None else other

    def append(self, call: NumpyCall) -> NumpyCall:
        key = key_of(call) if makes_new(call) and not self.is_alone else None
        if key in self._known:
            return self._known[key]
        self.calls.append(call)
        if key is not None:
            self._known[key] = call
        return call


def makes_new(call: NumpyCall) -> bool:
    """Whether a call has the same value each time."""
    return call.fun in PURE or isinstance(call.fun, np.ufunc)


def folded(call: NumpyCall) -> Any:
    """The number that a call computes of numbers alone, as of the cotangent one; or the operand
    that is multiplied by one, in which no bit changes."""
    if not (call.fun in ARITHMETIC or isinstance(call.fun, np.ufunc)) or call.kwargs:
        return None
    if type(call.value) in NUMBERS and next(calls_in(call.args), None) is None:
        return call.value if np.isfinite(call.value) else None
    if call.fun in (operator.mul, np.multiply) and is_real(call.value):
        for one, other in (call.args, call.args[::-1]):
            if type(one) in (float, *NUMBERS) and one == 1.0 and is_alike(other, call.value):
                return other
    return None


def not_shared(program: CallList) -> set[NumpyCall]:
    """Calls whose value, or a view of it, is changed in place later, or handed out."""
    alone = set(calls_in(program.outputs))
    add_not_shared(program.calls, alone)
    return alone


def add_not_shared(calls: Sequence[NumpyCall], alone: set[NumpyCall]) -> None:
    for call in reversed(calls):
        if type(call.fun) is TurnLoop:
            count = -1
            while count != len(alone):  # from turn to turn
                count = len(alone)
                alone.update([x for parameter, x in call.fun.carried if parameter in alone])
                add_not_shared(call.fun.body, alone)
            for parameter, thing in arguments_of(call):
                alone.update(calls_in(thing) if parameter in alone else ())
        if call.fun in IN_PLACE:
            alone.add(call.args[0])
        if call in alone and call.fun in VIEWS:
            alone.update(calls_in(call.args[:1]))
            loop = loop_of(call)
            if loop is not None:
                alone.update(calls_in(loop.outputs[call.args[1]]))


def key_of(call: NumpyCall) -> Any:
    options = key_of_argument([*call.kwargs.values()])
    return call.fun, key_of_argument(call.args), *call.kwargs, options


def key_of_argument(argument: Any) -> Any:
    if isinstance(argument, tuple | list):
        return type(argument), *map(key_of_argument, argument)
    is_constant = type(argument) in (int, float, bool, str, slice)
    return repr(argument) if is_constant else id(argument)


def needed(program: CallList) -> CallList:
    """The list without calls whose value nobody takes; calls of the model that may raise stay."""
    return program._replace(calls=needed_calls(program.calls, program.outputs))


def needed_calls(calls: Sequence[NumpyCall], outputs: Any, is_model: bool = False) -> list:
    wanted, kept = set(calls_in(outputs)), list[NumpyCall]()
    for call in reversed(calls):
        is_model = is_model or call.fun is cut
        if call in wanted or must_stay(call, is_model):
            if type(call.fun) is TurnLoop:
                leave_out(call, kept, is_model)
            kept.append(call)
            wanted.update(calls_in((call.args, call.kwargs)))
    return kept[::-1]


def must_stay(call: NumpyCall, is_model: bool) -> bool:
    if type(call.fun) is TurnLoop:
        return any([must_stay(part, is_model) for part in call.fun.body])
    return call.fun in STATEMENTS or (is_model and may_raise(call))


def leave_out(call: NumpyCall, users: Sequence[NumpyCall], is_model: bool) -> None:
    """Leaves out of a loop what nobody takes."""
    loop = call.fun
    taken = {user.args[1] for user in users if loop_of(user) is loop}
    outputs = [x if number in taken else None for number, x in enumerate(loop.outputs)]
    wanted, count = set(calls_in(outputs)), -1
    while count != len(wanted):  # from turn to turn
        count = len(wanted)
        wanted.update(calls_in([x for parameter, x in loop.carried if parameter in wanted]))
        for part in reversed(loop.body):
            if part in wanted or must_stay(part, is_model):
                wanted.update(calls_in((part.args, part.kwargs)))
    carried = [pair for pair in loop.carried if pair[0] in wanted]
    body = needed_calls(loop.body, (outputs, [x for _, x in carried]), is_model)
    rows = [parameter for parameter in loop.rows if parameter in wanted]
    fixed = [parameter for parameter in loop.fixed if parameter in wanted]
    passed = dict(arguments_of(call))
    places = [parameter for parameter, _ in carried], rows, fixed
    call.args = tuple([[passed[parameter] for parameter in part] for part in places])
    call.fun = TurnLoop(loop.turns, body, carried, rows, fixed, outputs, loop.lasts)


# ------------------------------------------------------------------------------------ operators


def is_real(value: Any) -> bool:
    return type(value) in (np.ndarray, *NUMBERS) and value.dtype in REAL


def is_double(operand: Any) -> bool:
    value = value_of(operand)
    return type(value) in (np.ndarray, np.float64) and value.dtype == np.float64


def is_alike(operand: Any, value: Any) -> bool:
    """Whether an operand has the value's type, shape, dtype and order in memory."""
    one: Any = operand.value if isinstance(operand, NumpyCall) else None
    return (
        isinstance(value, np.ndarray | np.generic)
        and type(one) is type(value)
        and (one.shape, one.dtype, one.strides) == (value.shape, value.dtype, value.strides)
    )


@rule(np.power)
def small_power(call: NumpyCall, emit: Callable) -> Any:
    """NumPy's loop multiplies where the exponent is two."""
    x, exponent = call.args
    if type(exponent) not in (int, float) or not is_real(value_of(x)):
        return None
    if exponent == 1 and is_alike(x, call.value):
        return x
    if exponent == 2:
        return emit(operator.mul, (x, x), {}, call.value)
    return emit(np.power, (x, float(exponent)), {}, call.value) if type(exponent) is int else None


@rule(np.add, operator.add)
def through_reshape(call: NumpyCall, emit: Callable) -> Any:
    """A number is reshaped after something is added to it."""
    x, other = call.args
    is_number = np.ndim(other) == 0 and not isinstance(other, NumpyCall)
    if is_shaped_number(x) and is_number and is_alike(x, call.value):
        number = x.args[0]
        total = emit(operator.add, (number, float(other)), {}, value_of(number))
        return emit(np.reshape, (total, call.value.shape), {}, call.value)
    return None


def is_shaped_number(operand: Any) -> bool:
    is_reshape = isinstance(operand, NumpyCall) and operand.fun is np.reshape
    return is_reshape and is_real(operand.value) and np.ndim(value_of(operand.args[0])) == 0


@rule(*OPERATORS, *ARITHMETIC, *LIKE_ONE, np.where)
def without_spread(call: NumpyCall, emit: Callable) -> Any:
    """Nothing is spread out to a shape that another operand has, in C order."""
    for number, arg in enumerate(call.args):
        thin = thinner(arg)
        if thin is not None:
            args = [*call.args]
            del args[number]
            others = list(map(value_of, args))
            dtypes = {x.dtype for x in others if isinstance(x, np.ndarray | np.generic)}
            if dtypes <= {value_of(arg).dtype, np.dtype(bool)} and serve(others, call.value):
                args.insert(number, thin)
                return emit(call.fun, args, call.kwargs, call.value)
    return None


@rule(np.add, np.subtract, np.multiply, np.divide, np.negative)
@rule(operator.add, operator.sub, operator.mul, operator.truediv, operator.neg)
def within_spread(call: NumpyCall, emit: Callable) -> Any:
    """An operand is spread out after the arithmetic with numbers."""
    spreads = [arg for arg in call.args if isinstance(arg, NumpyCall) and arg.fun is spread.fun]
    others = [value_of(arg) for arg in call.args if not any([arg is one for one in spreads])]
    are_numbers = all([is_real(x) or type(x) in (int, float) for x in others])
    if len(spreads) != 1 or not are_numbers or any(map(np.ndim, others)):
        return None
    args = [arg.args[0] if arg is spreads[0] else arg for arg in call.args]
    return emit(spread.fun, (emit(call.fun, args), spreads[0].args[1]), {}, call.value)


@rule(spread.fun)
def number_spread(call: NumpyCall, emit: Callable) -> Any:
    x, shape = call.args
    return emit(spread.fun, (x.args[0], shape), {}, call.value) if is_shaped_number(x) else None


def thinner(arg: Any) -> Any:
    """The number or array that an operand repeats, if it does."""
    if isinstance(arg, NumpyCall):
        return arg.args[0] if arg.fun is spread.fun or is_shaped_number(arg) else None
    if type(arg) is np.ndarray and arg.dtype == np.float64 and arg.ndim and arg.size:
        first = arg.flat[0]
        is_same = first == first and (arg == first).all() and (first or not np.signbit(arg).any())
        return first if is_same else None
    return None


def serve(operands: Sequence[Any], value: Any) -> bool:
    """Whether operands have the shape and the order of the value."""
    are_ordered = all([np.ndim(x) < 2 or x.flags.c_contiguous for x in (*operands, value)])
    return are_ordered and np.broadcast_shapes(*map(np.shape, operands)) == np.shape(value)


@rule(*OPERATORS)
def by_operator(call: NumpyCall, emit: Callable) -> Any:
    """An operator takes less time than the ufunc, and has its bits for real numbers, of which one
    is NumPy's."""
    values = list(map(value_of, call.args))
    are_real = all([is_real(x) or type(x) in (int, float) for x in values])
    if not are_real or not any(map(is_real, values)):
        return None
    return emit(OPERATORS[call.fun], call.args, {}, call.value)


@rule(*ARITHMETIC, *LIKE_ONE)
def beside_arrays(call: NumpyCall, emit: Callable) -> Any:
    """A number beside an array is an array without axes, which NumPy takes in half the time; beside
    numbers alone it is a number."""
    values = list(map(value_of, call.args))
    dtypes = {x.dtype for x in values if np.ndim(x) and hasattr(x, "dtype")}
    if len(dtypes) > 1 or not dtypes <= set(REAL):
        return None
    if dtypes:
        (dtype,) = dtypes
        kinds = (int, float, dtype.type, np.int64 if dtype == np.float64 else int)
        args = [constant(arg, dtype) if type(arg) in kinds else arg for arg in call.args]
    else:
        args = [float(arg) if is_constant(arg) else arg for arg in call.args]
        if not any([type(value_of(arg)) is np.float64 for arg in args]):
            return None
    are_same = all([one is other for one, other in zip(args, call.args, strict=True)])
    return None if are_same else emit(call.fun, args, {}, call.value)


def is_constant(arg: Any) -> bool:
    return type(arg) is np.ndarray and arg.ndim == 0 and arg.dtype == np.float64


_constants: dict[Any, np.ndarray] = {}


def constant(number: Any, dtype: np.dtype) -> np.ndarray:
    """A number as an array without axes, always the same one."""
    key = repr(float(number)), dtype
    if key not in _constants:
        array = _constants[key] = np.asarray(number, dtype)
        array.flags.writeable = False
    return _constants[key]


# ------------------------------------------------------------------- calls in place of functions


@rule(np.reshape, truncate_pad.fun)
def reshaped(call: NumpyCall, emit: Callable) -> Any:
    return call.args[0] if is_alike(call.args[0], call.value) and len(call.args) == 2 else None


def axis_of(call: NumpyCall, *others: str) -> Any:
    """The axis of a call with this keyword and others alone, and of one real array; or "other"."""
    options = dict(zip(["axis"], call.args[1:], strict=False)) | call.kwargs
    x = call.args[0]
    is_usual = is_double(x) and np.ndim(value_of(x)) > 0
    if not is_usual or len(call.args) > 2 or options.keys() - {"axis", *others}:
        return "other"
    return options.get("axis")


@rule(np.mean, np.var, np.std)
def moment(call: NumpyCall, emit: Callable) -> Any:
    """Means and variances by sums, as NumPy computes them."""
    x, ddof = call.args[0], call.kwargs.get("ddof", 0)
    axis = axis_of(call, *["ddof"] * (call.fun is not np.mean), "keepdims")
    if isinstance(axis, str) or type(ddof) is not int:
        return None
    shape = x.value.shape
    axes = range(len(shape)) if axis is None else np.atleast_1d(axis)
    count = int(np.prod([shape[n] for n in axes], dtype=int))
    if count <= max(ddof, 0) or not x.value.size:
        return None

    def mean(array: Any, keepdims: bool, count: int) -> Any:
        options = {"axis": axis, **({"keepdims": True} if keepdims else {})}
        return emit(operator.truediv, (emit(np.add.reduce, (array,), options), count))

    is_kept = np.ndim(call.value) == len(shape)
    if call.fun is np.mean:
        return mean(x, is_kept, count)
    gaps = emit(operator.sub, (x, mean(x, axis is not None, count)))
    variance = mean(emit(np.square, (gaps,)), is_kept, count - ddof)
    return variance if call.fun is np.var else emit(np.sqrt, (variance,))


def is_vector(operand: Any) -> bool:
    return is_double(operand) and np.ndim(value_of(operand)) == 1


@rule(np.roll)
def rolled(call: NumpyCall, emit: Callable) -> Any:
    x, *options = call.args
    options += [call.kwargs[name] for name in ("shift", "axis") if name in call.kwargs]
    shift, axis = (*options, None)[:2]
    array = value_of(x)
    if not (is_double(array) and type(array) is np.ndarray and array.flags.c_contiguous):
        return None
    if axis is None and array.ndim == 1:
        axis = 0
    if type(shift) is not int or type(axis) is not int:
        return None
    axis %= array.ndim
    place, before = -shift % max(array.shape[axis], 1), (slice(None),) * axis
    ends = slice(place, None), slice(0, place)
    parts = [emit(operator.getitem, (x, (*before, end) if before else end)) for end in ends]
    return emit(np.concatenate, (tuple(parts), axis), {}, call.value)


@rule(np.diff)
def differences(call: NumpyCall, emit: Callable) -> Any:
    x = call.args[0]
    is_usual = is_double(x) and len(call.args) == 1 and call.kwargs in ({}, {"axis": -1})
    if not is_usual:
        return None
    ends = slice(1, None), slice(None, -1)
    return emit(operator.sub, [emit(operator.getitem, (x, (..., end))) for end in ends])


@rule(np.linalg.norm)
def length(call: NumpyCall, emit: Callable) -> Any:
    (x, *others) = call.args
    is_usual = is_vector(x) and x.value.flags.c_contiguous  # of others NumPy makes a copy
    if others or call.kwargs or not is_usual:
        return None
    return emit(np.sqrt, (emit(np.dot, (x, x)),))


@rule(*kernels.KERNELS)
def by_kernel(call: NumpyCall, emit: Callable) -> Any:
    arrays = [value_of(arg) for arg in call.args if not isinstance(arg, str)]
    kinds = (np.float64, np.complex128)
    is_usual = all([type(x) is np.ndarray and x.dtype in kinds for x in arrays])
    if call.fun in (np.linalg.inv, np.linalg.solve, np.linalg.cholesky):
        is_usual = is_usual and arrays[0].ndim == 2 and arrays[-1].ndim < 3
        is_usual = is_usual and arrays[0].dtype == np.float64
    else:  # whose results have the order of their arguments
        is_usual = is_usual and len(arrays) == 1 and arrays[0].flags.c_contiguous
    if call.kwargs or not is_usual:
        return None
    return emit(kernels.KERNELS[call.fun], call.args, {}, call.value)
