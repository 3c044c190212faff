"""Signatures: which calls one program serves."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.tape.traced_call import Layout, TracedCall
from daskgrad.autodiff.values.rows import Rows
from daskgrad.autodiff.values.trees import exactly

NUMBERS = (float, complex, np.generic)
CONSTANT = "constant"
STATIC = (bool, int, str, bytes, type(None))
MOST_STRUCTURES = 1024


class Signature(NamedTuple):
    """What calls have in common that one program serves: ``key``; and ``places``, those of the
    leaves that are its inputs, in the ``structure`` of the arguments. ``asked``: the numbers of
    the traced arrays whose cotangents should be rows."""

    key: Any
    places: list[int]
    structure: Any
    asked: Sequence[int]


class Arguments:
    """The arguments of a call, taken apart when they are asked for: of a call that is known, a
    program or the recorder asks."""

    __slots__ = ("_call", "_layout")

    def __init__(self, call: TracedCall):
        self._call = call
        self._layout: Layout | None = None

    @property
    def layout(self) -> Layout:
        if self._layout is None:
            self._layout = self._call.layout()
        return self._layout

    def inputs(self, signature: Signature) -> list[Any]:
        """Those of a program."""
        return [self.layout.leaves[place] for place in signature.places]


def signature_of(layout: Layout) -> Signature | None:
    """The signature of a call, or ``None`` if an argument is neither number, array nor constant.

    Arrays and floating-point numbers are inputs of a program; Python's integers, strings and such
    are a part of the signature.
    """
    kinds = list(map(kind_of_leaf, layout.leaves))
    order = order_of(layout.structure)
    if None in kinds or order is None:
        return None
    first: dict[int, int] = {}  # by the number of a traced array, which may be several arguments
    places = [
        place
        for place, (kind, number) in enumerate(zip(kinds, layout.places, strict=True))
        if kind
        and kind[0] is not CONSTANT
        and (number is None or first.setdefault(number, place) == place)
    ]
    numbered = tuple(layout.places), tuple(layout.asked)
    key = layout.structure, order, numbered, tuple(kinds)
    return Signature(key, places, layout.structure, layout.asked)


def family_of(key: Any) -> Any:
    """What a key has in common with those of calls with arrays of other sizes, and other integers
    of Python's."""
    *others, kinds = key
    return (*others, tuple(map(without_size, kinds)))


def without_size(kind: tuple | None) -> tuple | None:
    if kind is None:
        return None
    if kind[0] is CONSTANT:
        return kind[:2] if kind[1] is int else kind
    return (len(kind[0]), kind[1]) if isinstance(kind[0], tuple) else kind


def order_of(structure: Any) -> bytes | None:
    """Tells structures of arguments apart that are equal but for the order of a dict's keys; None
    if that cannot be told."""
    return exactly(structure) if call_has_order(structure) else b""


def order_within(structure: Any) -> bytes | None:
    """The same of any structure; nothing for arrays in lists and tuples, as most are."""
    return exactly(structure) if has_keys(structure) else b""


@lru_cache(MOST_STRUCTURES)
def call_has_order(structure: Any) -> bool:
    return structure.child(1).num_leaves > 1 or has_keys(structure.child(0))


@lru_cache(MOST_STRUCTURES)
def has_keys(structure: Any) -> bool:
    """Whether there may be a dict within."""
    kind = structure.type
    if not (kind is None or kind is list or issubclass(kind, tuple)):
        return True
    return any(map(has_keys, structure.children()))


def kind_of_leaf(leaf: Any) -> tuple | None:
    """All that a program knows of an argument, or ``None`` if it can have no such argument."""
    kind = type(leaf)
    if kind is np.ndarray and leaf.dtype.kind in "fcbiu":
        return leaf.shape, leaf.dtype, leaf.strides if leaf.ndim > 1 else ()
    if kind in STATIC:
        return CONSTANT, kind, leaf
    return (kind,) if issubclass(kind, NUMBERS) and kind is not np.void else None


def sort_of_leaf(leaf: Any) -> tuple | None:
    """The same, whatever its size."""
    if type(leaf) is np.ndarray and leaf.dtype.kind in "fcbiu":
        return leaf.ndim, leaf.dtype
    return without_size(kind_of_leaf(leaf))


def are_same(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Whether leaves are the same in type, dtype, shape and every bit; all NaNs are the same."""
    return len(first) == len(second) and all(map(is_same, first, second))


def is_same(first: Any, second: Any) -> bool:
    if first is None or second is None:
        return first is second
    if type(first) is type(second) is np.ndarray and have_same_bytes(first, second):
        return True
    if type(first) is type(second) is np.float64 and first == second and first:
        return True
    if type(first) is type(second) is Rows:
        are_alike = (first.shape, first.axes) == (second.shape, second.axes)
        return are_alike and are_same(first.arrays, second.arrays)
    one, other = np.asarray(first), np.asarray(second)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype.kind not in "fc":
        return bool(np.all(one == other))
    return have_same_parts(one.real, other.real) and have_same_parts(one.imag, other.imag)


def have_same_bytes(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether arrays of the same kind have the same bytes, as most have that are compared."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return one.tobytes() == other.tobytes()


def have_same_parts(one: np.ndarray, other: np.ndarray) -> bool:
    equal = (one == other) & (np.signbit(one) == np.signbit(other))
    return bool(np.all(equal | (np.isnan(one) & np.isnan(other))))
