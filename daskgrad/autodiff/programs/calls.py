"""Calls: a model and its pullback as a list of calls of NumPy.

A call refers to its arguments by the calls that made them. ``record`` runs the package's own tape
on boxes, so that the list has the very calls of the tape, in their order, and a program has its
bits. The list knows no derivative.
"""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import autograd.numpy as anp
import numpy as np
from autograd.builtins import ContainerVSpace, container_take, container_untake
from autograd.core import VSpace, sparse_add
from autograd.numpy import linalg, numpy_wrapper
from autograd.numpy.numpy_vjps import untake

from daskgrad.autodiff.programs.boxes import GETITEM, PYTHONS, Guard, RecordedCall, Recording, same
from daskgrad.autodiff.rules.declaration import Diverged
from daskgrad.autodiff.rules.indexing import add_at, names_no_entry_twice
from daskgrad.autodiff.rules.math_reductions import spread
from daskgrad.autodiff.tape.rule_calls import RecordedRun, call_rule


class NumpyCall:
    """``fun(*args, **kwargs)``; or an input, which has no ``fun``.

    ``value`` is the recorded run's; it has the kind, shape and order in memory of all runs.
    ``place`` is a file and line of the model.
    """

    __slots__ = ("args", "fun", "kwargs", "place", "value")

    def __init__(self, fun: Any, args: Sequence[Any], kwargs: dict, value: Any, place: Any = None):
        self.fun, self.args, self.kwargs, self.value = fun, tuple(args), kwargs, value
        self.place = place

    def __repr__(self) -> str:
        shape = getattr(self.value, "shape", type(self.value).__name__)
        return f"{getattr(self.fun, '__name__', type(self.fun).__name__)}:{shape}"


class CallList(NamedTuple):
    """Inputs, calls in order, and outputs, which are calls or constants.

    The first ``value_count`` outputs are the model's, all others cotangents; the last
    ``seed_count`` inputs are the cotangents of the values.
    """

    inputs: list[NumpyCall]
    calls: list[NumpyCall]
    outputs: list[Any]
    value_count: int
    seed_count: int


# ------------------------------------------------------- functions of the list that NumPy has not


def guard(value: Any, answer: bool) -> None:
    """Ends the program where the data takes another way."""
    if bool(value) is not answer:
        raise Diverged


def cut() -> None:
    """The end of the model, and the beginning of its pullback."""


def stay(value: Any, kind: Any) -> None:
    """Ends the program where a value has another shape or dtype than when it was recorded."""
    if kind_of(value) != kind:
        raise Diverged


def plus(array: Any, other: Any) -> Any:
    """``array += other``, for an array of the list that nobody needs any more."""
    array = np.copy(array)
    array += other
    return array


def add_to(array: Any, index: Any, g: Any, distinct: bool) -> Any:
    """``array[index] += g``, for an array of the list that nobody needs any more."""
    return add_at.fun(np.copy(array), index, g, distinct)


STATEMENTS: set[Any] = {guard, cut, stay}  # they have no value, and are never left out
IN_PLACE: set[Any] = {plus, add_to}  # calls that change their first argument


def kind_of(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return type(value), value.shape, value.dtype
    return type(value)


NUMBERS = (np.ndarray, np.generic, int, float, complex)


@dataclass(eq=False)
class ItemLoop:
    """A call for each item, which is written as a comprehension; ``parts`` are the calls in its
    arguments, ``are_own`` tells which differ for each item, and ``is_quick`` whether it gives
    Python floats, in a tenth of a microsecond each."""

    fun: Callable
    args: tuple
    parts: Sequence[NumpyCall]
    are_own: Sequence[bool]
    is_quick: bool


@dataclass(eq=False)
class TurnLoop:
    """Calls that are made ``turns`` times, as a ``for`` statement does.

    Its ``body`` refers to parameters, which are calls without arguments. One that is ``carried``
    stands in a pair with what it is in the next turn; one of ``rows`` is an entry of a sequence;
    ``fixed`` ones stay. The loop's arguments are lists of the first carried values, of the
    sequences, and of what stays. It returns the ``outputs``: the last values of the first
    ``lasts`` of them, and lists of the values of all turns of the others. An output that nobody
    takes is ``None``.
    """

    turns: int
    body: list[NumpyCall]
    carried: list[tuple[NumpyCall, Any]]
    rows: list[NumpyCall]
    fixed: list[NumpyCall]
    outputs: list[Any]
    lasts: int


def constant_of_turn() -> None:
    """The function of a loop's parameter that is a constant in each turn, though not the same."""


def loop_of(call: Any) -> TurnLoop | None:
    """The loop whose result a call takes, if it takes one."""
    if not isinstance(call, NumpyCall) or call.fun is not operator.getitem:
        return None
    source = call.args[0]
    is_result = isinstance(source, NumpyCall) and type(source.fun) is TurnLoop
    return source.fun if is_result else None


def arguments_of(call: NumpyCall) -> Iterator[tuple[NumpyCall, Any]]:
    """The parameters of a loop, and what a call passes for them."""
    loop, (first, rows, fixed) = call.fun, call.args
    carried = [parameter for parameter, _ in loop.carried]
    yield from zip([*carried, *loop.rows, *loop.fixed], [*first, *rows, *fixed], strict=True)


def chained(*parts: Sequence[Any]) -> list[Any]:
    """Sequences one after the other."""
    values: list[Any] = []
    for part in parts:
        values += part
    return values


def all_calls(calls: Sequence[NumpyCall]) -> Iterator[NumpyCall]:
    """Calls, and those in the bodies of loops."""
    for call in calls:
        yield call
        yield from all_calls(call.fun.body) if type(call.fun) is TurnLoop else ()


def stacked(results: Sequence[Any]) -> Any:
    if isinstance(results[0], tuple | list):  # several values of each item
        return tuple(map(stacked, zip(*results, strict=True)))
    if not isinstance(results[0], NUMBERS):
        return results
    if type(results[0]) is float:
        return np.array(results)
    arrays = list(map(np.asarray, results))
    first = arrays[0]
    if any([kind_of(array)[1:] != kind_of(first)[1:] for array in arrays]):
        raise Diverged
    order = order_of(first)
    order += [axis for axis in range(first.ndim) if axis not in order]
    rows = np.array([np.transpose(array, order) for array in arrays])
    return rows.transpose(0, *[order.index(axis) + 1 for axis in range(first.ndim)])


def order_of(array: Any) -> list[int]:
    """The axes by their strides, without axes of length one."""
    array = np.asarray(array)
    axes = [axis for axis, size in enumerate(array.shape) if size > 1]
    return sorted(axes, key=lambda axis: -abs(array.strides[axis]))


# -------------------------------------------------------------------------------- from recordings


def calls_of(recording: Recording, end: int, count: int, seeds: int) -> CallList:
    """The calls of a recording in NumPy's terms; the pullback begins at call ``end``."""
    made: dict[Any, Any] = {}
    for recorded in recording.inputs:
        made[recorded] = NumpyCall(None, (), {}, recorded.value)
    calls: list[NumpyCall] = []
    place: Any = None

    def emit(fun: Callable, args: Sequence[Any], kwargs: dict, value: Any) -> NumpyCall:
        calls.append(NumpyCall(fun, args, kwargs, value, place))
        return calls[-1]

    recorded_calls: list[Any] = [*recording.calls, None]
    for number, recorded in enumerate(recorded_calls):
        if number == end:
            emit(cut, (), {}, None)
        if recorded is None:
            break
        if isinstance(recorded, Guard):
            emit(guard, (made[recorded.call], recorded.answer), {}, None)
            continue
        place = recorded.place
        args, kwargs = replaced((recorded.args, recorded.kwargs), made, RecordedCall)
        for part in calls_in((args, kwargs)):
            if part.fun in PARTS and recorded.fun is not sparse_add and part not in calls:
                calls.append(part)
        call = made[recorded] = translated(recorded, args, kwargs, emit)
        is_new = bool(calls) and call is calls[-1]
        if is_new and (may_vary(call) if number < end else is_masked(call)):
            emit(stay, (call, kind_of(call.value)), {}, None)
    inputs = [made[recorded] for recorded in recording.inputs]
    outputs = replaced(recording.outputs, made, RecordedCall)
    return CallList(inputs, calls, outputs, count, seeds)


def translated(recorded: Any, args: Sequence[Any], kwargs: dict, emit: Callable) -> Any:
    """A recorded call as a call of the function that a primitive of autograd's wraps."""
    fun = recorded.fun
    if fun is same:
        return args[0]
    if fun is call_rule:
        return args[1]
    if fun is tuple:
        return tuple(args)
    if fun in (GETITEM, container_take, operator.getitem):
        if isinstance(args[0], tuple | dict):  # the cotangents of several values
            return args[0][args[1]]
        return emit(operator.getitem, args, {}, recorded.value)
    if fun in (operator.iadd, VSpace.mut_add, VSpace.add):
        first, *rest = args if fun is operator.iadd else args[1:]
        if first is None:  # zeros, of which autograd makes a copy that may be changed
            first = zeros_of(emit, args[0], recorded.value)
        if isinstance(first, tuple | dict) or not isinstance(first, NumpyCall):
            return sum_of(emit, fun is not VSpace.add, first, *rest)
        is_fresh = fun is not VSpace.add and type(first.value) is np.ndarray
        return emit(plus if is_fresh else np.add, (first, *rest), {}, recorded.value)
    if fun is add_at.fun:
        first, index, g, distinct = args
        if not isinstance(first, NumpyCall):
            is_zero = not (first.any() or np.signbit(first.real).any())
            zeros = np.zeros, (first.shape, first.dtype)
            first = emit(*(zeros if is_zero else (np.array, (first,))), {}, recorded.value)
        return emit(add_to, (first, index, g, distinct), {}, recorded.value)
    if fun in PARTS:
        return NumpyCall(fun, args, {}, recorded.value)  # a part of the next one
    if fun is sparse_add and isinstance(args[0], ContainerVSpace):
        return with_part(emit, *args)
    if fun is sparse_add:
        space, previous, piece = args
        if not isinstance(piece, NumpyCall):
            dense = space.zeros() if previous is None else previous
            add = piece.mut_add if previous is None else partial(add_sparse, piece)
            return add(dense) if previous is None else emit(add, (dense,), {}, recorded.value)
        g, index, _ = piece.args
        if previous is None:
            previous = zeros_of(emit, space, recorded.value)
        elif not isinstance(previous, NumpyCall):
            previous = emit(np.array, (previous,), {}, recorded.value)
        distinct = names_no_entry_twice(value_of(index))
        return emit(add_to, (previous, index, g, distinct), {}, recorded.value)
    if fun in REDUCTIONS and not set(kwargs) - {"axis", "keepdims"} and len(args) <= 2:
        options = {"axis": None, **dict(zip(("axis",), args[1:], strict=False)), **kwargs}
        if options.get("keepdims") in (np._NoValue, False):
            options.pop("keepdims", None)
        if type(value_of(args[0])) is np.ndarray and value_of(args[0]).dtype.kind in "fcb":
            return emit(REDUCTIONS[fun], args[:1], options, recorded.value)
    if kwargs.get("order", "") in (None, "C") and raw(fun) in (np.reshape, np.ravel):
        kwargs = {name: value for name, value in kwargs.items() if name != "order"}
    if fun is numpy_wrapper._array_from_scalar_or_array and args[:2] == ((), {}):
        return emit(np.array, args[2:], {}, recorded.value)
    if fun is numpy_wrapper.array_from_args and args[:2] == ((), {}):
        return emit(np.array, (list(args[2:]),), {}, recorded.value)
    if fun is numpy_wrapper.concatenate_args:
        return emit(np.concatenate, (args[1:], args[0]), {}, recorded.value)
    if type(fun).__name__ == "builtin_function_or_method" and hasattr(fun, "__self__"):
        ufunc = fun.__self__
        if isinstance(ufunc, np.ufunc) and fun.__name__ == "reduce" and "axis" not in kwargs:
            kwargs = {"axis": args[1] if len(args) > 1 else 0, **kwargs}
            args = args[:1]
            fun = REDUCE.get(ufunc, fun)
    return emit(raw(fun), args, kwargs, recorded.value)


PARTS = {untake, container_untake}  # the next call, a sum, makes them anew


def with_part(emit: Callable, space: Any, previous: Any, piece: NumpyCall) -> Any:
    """The cotangents of several values, after one has arrived."""
    g, key, _ = piece.args
    previous = zeros_of(emit, space, None) if previous is None else previous
    parts = dict(previous) if isinstance(previous, dict) else list(previous)
    parts[key] = sum_of(emit, True, parts[key], g)
    return parts if isinstance(parts, dict) else tuple(parts)


def zeros_of(emit: Callable, space: Any, value: Any) -> Any:
    if isinstance(space, ContainerVSpace):
        return of_parts(lambda part: part.zeros(), space.shape)
    return emit(np.zeros, (space.shape, space.dtype), {}, value)


def of_parts(fun: Callable, *trees: Any) -> Any:
    """A function of the parts of dicts or sequences, as a dict or tuple."""
    if isinstance(trees[0], dict):
        return {key: fun(*[tree[key] for tree in trees]) for key in trees[0]}
    return tuple(map(fun, *trees))


def sum_of(emit: Callable, is_in_place: bool, first: Any, second: Any) -> Any:
    """The sum of arrays, or of the parts of containers; in place the dtype is the first's."""
    if isinstance(first, tuple | list | dict):
        return of_parts(partial(sum_of, emit, is_in_place), first, second)
    fun: Callable = np.add
    one, other = value_of(first), value_of(second)
    if is_in_place and type(one) is np.ndarray and one.dtype != np.result_type(other):
        fun, first = plus, emit(np.array, (first,), {}, np.array(one))
    with np.errstate(all="ignore"):
        return emit(fun, (first, second), {}, fun(one, other))


def add_sparse(piece: Any, array: Any) -> Any:
    return piece.mut_add(np.copy(array))


def raw(fun: Any) -> Any:
    """The function that a primitive wraps."""
    return fun.fun if hasattr(fun, "_is_autograd_primitive") else fun


REDUCE: dict[Any, Any] = {
    ufunc: ufunc.reduce for ufunc in (np.add, np.multiply, np.maximum, np.minimum)
}
REDUCTIONS = {
    anp.sum: REDUCE[np.add],
    anp.prod: REDUCE[np.multiply],
    anp.max: REDUCE[np.maximum],
    anp.min: REDUCE[np.minimum],
}
REDUCTIONS |= {fun.fun: method for fun, method in REDUCTIONS.items()}


# ------------------------------------------------------------------------- what other data may do


SIGNS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%"}
SIGNS |= {"pow": "**", "matmul": "@", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "=="}
SIGNS |= {"ne": "!=", "and_": "&", "or_": "|", "xor": "^"}
OPERATORS = {getattr(operator, name): sign for name, sign in SIGNS.items()}
RAISING = {operator.pow, operator.truediv, operator.floordiv, operator.mod, operator.abs}
SHAPED = {  # functions whose values have shapes that follow from the arguments' shapes
    *(*OPERATORS, operator.neg, operator.invert, plus, add_to, spread.fun),
    *(np.array, np.clip, np.dot, np.einsum, np.outer, np.where, np.copy, np.zeros),
    *map(raw, (np.ndarray.copy, linalg.cholesky, linalg.inv, linalg.solve)),
}
OF_ONE = {  # such functions of one array, and of other arguments that decide on the shape
    *(*REDUCE.values(), np.cumsum, np.diag, np.diff, np.imag, np.real, np.reshape, np.roll),
    *(np.trace, np.ravel, np.transpose, np.expand_dims, np.sort, np.squeeze, np.zeros_like),
    *(np.ones_like, np.linalg.det, np.linalg.slogdet, np.linalg.norm, np.fft.fft, np.fft.ifft),
    *(np.concatenate, np.mean, np.std, np.var, np.all, np.any, np.argsort),
}
FAILING = {np.linalg.cholesky, np.linalg.inv, np.linalg.solve}


def may_vary(call: NumpyCall) -> bool:
    """Whether other data may give a value another shape or dtype."""
    if isinstance(call.value, list | tuple) or type(call.fun) is RecordedRun:
        return False
    if type(call.value) in PYTHONS:
        return call.fun is operator.pow  # (-8.0) ** 0.5 is complex
    if isinstance(call.fun, np.ufunc) or call.fun in SHAPED:
        return False
    if call.fun in OF_ONE:
        return next(calls_in((call.args[1:], call.kwargs)), None) is not None
    if call.fun is operator.getitem:
        several = call.args[0]
        if isinstance(several, NumpyCall) and isinstance(several.value, list | tuple):
            return type(several.fun) is not RecordedRun and several.fun not in OF_ONE
    return call.fun is not operator.getitem or is_masked(call)


def is_masked(call: NumpyCall) -> bool:
    """Whether an index has data other than integers, so that the number of entries may vary."""
    if call.fun is not operator.getitem:
        return False
    return any([np.result_type(part.value).kind not in "iu" for part in calls_in(call.args[1:])])


def may_raise(call: NumpyCall) -> bool:
    """Whether a call may be an error for other data."""
    if type(call.fun) is TurnLoop:
        return any([part.fun in STATEMENTS or may_raise(part) for part in call.fun.body])
    if call.fun is operator.getitem:
        return any([part.fun is not constant_of_turn for part in calls_in(call.args[1:])])
    is_number = type(call.value) in PYTHONS and call.fun in RAISING
    is_known = isinstance(call.fun, np.ufunc) or call.fun in SHAPED or call.fun in OF_ONE
    return is_number or not is_known or call.fun in FAILING


# ------------------------------------------------------------------------------------ arguments


def mapped(tree: Any, fun: Callable, kind: type = NumpyCall) -> Any:
    """Arguments with ``fun(call)`` in the places of calls, in containers, too."""
    if isinstance(tree, kind):
        return fun(tree)
    if type(tree) in (list, tuple):
        return type(tree)([mapped(part, fun, kind) for part in tree])
    if type(tree) is dict:
        return {name: mapped(part, fun, kind) for name, part in tree.items()}
    return tree


def replaced(tree: Any, by: Mapping[Any, Any], kind: type = NumpyCall) -> Any:
    return mapped(tree, lambda call: by.get(call, call), kind)


def value_of(tree: Any) -> Any:
    """Arguments with the values of their calls."""
    return mapped(tree, attrgetter("value"))


def calls_in(tree: Any) -> Iterator[NumpyCall]:
    if isinstance(tree, NumpyCall):
        yield tree
    elif isinstance(tree, list | tuple | dict):
        for part in tree.values() if isinstance(tree, dict) else tree:
            yield from calls_in(part)
