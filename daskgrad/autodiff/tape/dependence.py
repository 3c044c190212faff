"""Dependence: which entries of a call's outputs depend on which columns of a Jacobian.

It follows from the record of the call, whatever its numbers: functions that work entry by entry
unite the columns of their arguments, functions that move entries move them, reductions unite them
along their axes, and every entry of any other value has all columns of its arguments.

The columns of an array are one frozen set for all entries, or an array of such sets, in its shape.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from autograd.numpy import numpy_boxes, numpy_wrapper

from daskgrad.autodiff.rules.declaration import class_of
from daskgrad.autodiff.tape.forward import Primitive, Push

Columns = Any  # a frozen set of columns, or an array of them
NONE: frozenset[int] = frozenset()

ENTRY_BY_ENTRY: set[Any] = {np.where, np.clip, np.real, np.imag, np.nan_to_num}
MOVING: set[Any] = {np.atleast_1d, np.atleast_2d, np.atleast_3d, np.ravel, np.reshape, np.transpose}
MOVING |= {np.swapaxes, np.moveaxis, np.rollaxis, np.rot90, np.squeeze, np.expand_dims, np.roll}
MOVING |= {np.flip, np.fliplr, np.flipud, np.repeat, np.tile, np.diagonal, np.broadcast_to, np.take}
MOVING |= {numpy_boxes.ArrayBox.__getitem__.fun}
REDUCTIONS: set[Any] = {np.sum, np.mean, np.prod, np.min, np.max, np.std, np.var}
# functions that join their arguments from that number on
JOINING = {numpy_wrapper.concatenate_args: 1, numpy_wrapper.array_from_args: 2}


class Dependence:
    """The columns of each value in a record, from the columns of its first arrays. ``outputs`` has
    the outputs' columns; ``None`` for a constant output."""

    def __init__(self, push: Push, arrays: Sequence[Columns]):
        columns = list(arrays)
        for primitive in push.record[push.arrays :]:
            columns.append(columns_of(primitive, [columns[parent] for parent in primitive.parents]))
        self._push = push
        self._all = list(map(united, columns))
        self.outputs = [None if end is None else columns[end] for end in push.ends]

    @staticmethod
    def moved(push: Push, places: Sequence[np.ndarray]) -> list[Any] | None:
        """The places from which each output's entries come, or None if the call also computes.

        ``places`` are the arrays' entries; a constant entry comes from -1.
        """
        origins: list[Any] = list(places)
        for primitive in push.record[push.arrays :]:
            rule = moving_rule(primitive)
            if rule is None:
                return None
            origins.append(rule(primitive, [origins[parent] for parent in primitive.parents], -1))
        return [None if end is None else origins[end] for end in push.ends]

    def push(self, tangents: Sequence[Any], columns: frozenset[int]) -> list[Any]:
        """Pushes tangents that are not zero in these columns alone."""
        return self._push(tangents, [not value.isdisjoint(columns) for value in self._all])


def united(columns: Columns) -> frozenset[int]:
    """The columns of all entries."""
    if type(columns) is frozenset:
        return columns
    return NONE.union(*set(columns.flat))


def columns_of(primitive: Primitive, arguments: list[Columns]) -> Columns:
    """The columns of a primitive's value, from its traced arguments' columns."""
    if not arguments:
        return NONE
    are_one = primitive.fun not in JOINING and all(
        [type(columns) is frozenset for columns in arguments]
    )
    moving = None if are_one else moving_rule(primitive)
    rule = None if are_one else rule_of(primitive)
    if moving is not None:
        columns = moving(primitive, arguments, NONE)
    elif rule is not None:
        columns = rule(primitive, arguments)
    else:
        return NONE.union(*map(united, arguments))
    if type(columns) is frozenset:
        return columns
    if columns.shape != primitive.value.shape:  # by a call that no rule here expects
        return united(columns)
    return columns[()]


def moving_rule(primitive: Primitive) -> Callable[[Primitive, list[Any], Any], Any] | None:
    """How a primitive moves entries of its traced arguments and constants, if it does."""
    if class_of(primitive.value) is not np.ndarray and not isinstance(primitive.value, np.generic):
        return None
    if primitive.fun in JOINING:
        return joined
    if primitive.fun is numpy_wrapper._array_from_scalar_or_array:
        return lambda primitive, arguments, _: np.reshape(arguments[0], primitive.value.shape)
    is_moving = getattr(primitive.fun, "fun", None) in MOVING and primitive.argnums == (0,)
    return moved if is_moving else None


def rule_of(primitive: Primitive) -> Callable[[Primitive, list[Columns]], Columns] | None:
    """How any other primitive unites columns, if some entries lack some of them."""
    fun = getattr(primitive.fun, "fun", None)  # NumPy's own
    is_ufunc = isinstance(fun, np.ufunc) and fun.signature is None and not primitive.kwargs
    if is_ufunc or fun in ENTRY_BY_ENTRY:
        return entry_by_entry if isinstance(primitive.value, np.ndarray) else None
    is_usual = primitive.kwargs.keys() <= {"axis", "keepdims"}
    return reduced if fun in REDUCTIONS and is_usual else None


def entry_by_entry(primitive: Primitive, arguments: list[Columns]) -> Columns:
    union = arguments[0]
    for columns in arguments[1:]:
        if columns is not union:
            union = np.bitwise_or(union, columns)
    return np.broadcast_to(union, primitive.value.shape)


def moved(primitive: Primitive, arguments: list[Any], constant: Any) -> Any:
    return filled(primitive.fun.fun(arguments[0], *primitive.args[1:], **primitive.kwargs))  # type: ignore[attr-defined]


def joined(primitive: Primitive, arguments: list[Any], constant: Any) -> Any:
    first = JOINING[primitive.fun]
    traced = dict(zip(primitive.argnums, arguments, strict=True))
    parts = [
        filled(traced.get(number, constant), np.shape(arg))
        for number, arg in enumerate(primitive.args[first:], first)
    ]
    if first == 1:
        return np.concatenate(parts, primitive.args[0])
    return np.stack(parts).reshape(primitive.value.shape)


def reduced(primitive: Primitive, arguments: list[Columns]) -> Columns:
    """The columns of each group of entries along the axes, united."""
    (columns,) = arguments
    axis = primitive.args[1] if len(primitive.args) > 1 else primitive.kwargs.get("axis")
    if axis is None or len(primitive.args) > 2:
        return united(columns)
    axes = {int(number) % columns.ndim for number in np.atleast_1d(axis)}
    kept = [number for number in range(columns.ndim) if number not in axes]
    rows = columns.transpose(*kept, *axes).reshape(*[columns.shape[n] for n in kept], -1)
    unions = np.empty(rows.shape[:-1], object)
    for place in np.ndindex(unions.shape):
        unions[place] = NONE.union(*rows[place])
    return unions.reshape(primitive.value.shape)


def filled(entries: Any, shape: Sequence[int] = ()) -> np.ndarray:
    """An array of entries; one of this shape where there is one for all entries."""
    if type(entries) is np.ndarray:
        return entries
    array = np.empty(shape, object)
    array[...] = entries
    return array
