"""Signatures: the calls that one program serves, and when their results are the same."""

import enum
import types
import weakref
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from operator import is_
from typing import Any, NamedTuple

import numpy as np
import optree

from daskgrad.autodiff.programs.carried import CARRIED, TEXT, may_carry
from daskgrad.autodiff.programs.purity import is_plain_class
from daskgrad.autodiff.programs.watch import CODE, is_date, is_of_enum, slots_of
from daskgrad.autodiff.tape.traced_call import FlatArguments
from daskgrad.autodiff.values.rows import Rows
from daskgrad.autodiff.values.trees import LEAF_TYPES, NAMESPACE, exactly, flatten, unflatten

NUMBERS = (float, complex, np.generic)
CONSTANT = "constant"
STATIC = (bool, int, type(None))
READABLE = {int, *TEXT}  # a program for each value of those that are carried
ENUMS = (enum.Enum, enum.IntEnum, enum.StrEnum)
EQUALITIES = {(kind.__eq__, kind.__hash__) for kind in ENUMS}
LOOKED_AT = (np.integer, np.bool_)  # inputs, unless a model looks at one
MOST_STRUCTURES = 1024
DEEPEST = 8  # objects in objects


class Signature(NamedTuple):
    """The calls that one program serves. ``key`` identifies them; ``places`` are the leaves that
    are its inputs, in the ``structure`` of the arguments. ``asked``: the numbers of the traced
    arrays that get rows as cotangents."""

    key: Any
    places: list[int]
    structure: Any
    asked: Sequence[int]


def inputs_of(layout: FlatArguments, signature: Signature) -> list[Any]:
    """The inputs of a program for a call."""
    return [layout.leaves[place] for place in signature.places]


def signature_of(
    layout: FlatArguments, looks: bool = False, in_sum: bool = False
) -> Signature | None:
    """The signature of a call, or ``None`` if no program takes an argument.

    Arrays and floating-point numbers are inputs of a program; Python's integers are a part of the
    signature, and so are NumPy's integers if the model ``looks`` at one. Strings and other objects
    are carried, until the model reads one (see ``with_read``), and so are Python's integers in a
    sum: items may be numbered.
    """
    kind_of = kind_in_item if in_sum else kind_of_leaf
    kinds = [kind_of(leaf, looks) for leaf in layout.leaves]
    # structures may be equal but for the order of a dict's keys; None if it is unknown
    order = exactly(layout.structure) if call_has_order(layout.structure) else b""
    if order is None or None in kinds:
        return None
    if any([is_carried(k) and n is not None for k, n in zip(kinds, layout.places, strict=True)]):
        return None  # it has no derivative
    first: dict[int, int] = {}  # by the number of a traced array, which may be several arguments
    places = [
        place
        for place, (kind, number) in enumerate(zip(kinds, layout.places, strict=True))
        if kind
        and kind[0] is not CONSTANT
        and not is_carried(kind)
        and (number is None or first.setdefault(number, place) == place)
    ]
    numbered = tuple(layout.places), tuple(layout.asked)
    key = layout.structure, order, numbered, tuple(kinds)
    return Signature(key, places, layout.structure, layout.asked)


def is_carried(kind: tuple | None) -> bool:
    return kind is not None and kind[0] is CARRIED


def carried_places(signature: Signature) -> list[int]:
    return [place for place, kind in enumerate(signature.key[-1]) if is_carried(kind)]


def with_read(signature: Signature, read: Mapping[int, tuple | None]) -> Signature | None:
    """The signature of calls that have these constants at these places."""
    *parts, kinds = signature.key
    kinds = tuple([read.get(place, kind) for place, kind in enumerate(kinds)])
    return None if None in kinds else signature._replace(key=(*parts, kinds))


def may_look(key: Any) -> bool:
    """Whether there are integers of NumPy's among the inputs."""
    return any([isinstance(kind[0], type) and issubclass(kind[0], LOOKED_AT) for kind in key[-1]])


def code_in(key: Any) -> list[Any]:
    """The functions, by weak references, and modules that are arguments, and members of
    enumerations."""
    constants = [kind[1:] for kind in key[-1] if kind[0] is CONSTANT]
    return [constant for kind, constant in constants if kind in CODE or is_of_enum(kind)]


# ------------------------------------------------------------------- objects of the user's classes


class Opened:
    """An object of a plain class, as a container of its attributes: a recorded model gets another
    object of the class, with boxes in place of numbers."""

    __slots__ = ("kind", "names", "values")

    def __init__(self, thing: Any, depth: int):
        kind: Any = type(thing)
        attributes = getattr(thing, "__dict__", {})
        slots = [name for name in slots_of(kind) if hasattr(thing, name)]
        self.kind = kind
        self.names = (*attributes, *slots)
        self.values = [opened(value, depth) for value in attributes.values()]
        self.values += [opened(getattr(thing, name), depth) for name in slots]

    def flatten(self) -> tuple:
        return self.values or [None], (self.kind, self.names), [self.kind] * max(len(self.names), 1)

    @staticmethod
    def unflatten(meta: tuple, values: Sequence[Any]) -> Any:
        kind: Any = meta[0]
        made = kind() if kind is types.SimpleNamespace else object.__new__(kind)
        slots = slots_of(kind)
        for name, value in zip(meta[1], values, strict=False):
            if name in slots:
                object.__setattr__(made, name, value)
            else:
                vars(made)[name] = value
        return made


register: Any = optree.register_pytree_node
register(Opened, Opened.flatten, Opened.unflatten, namespace=NAMESPACE)


def is_plain(thing: Any) -> bool:
    kind: Any = type(thing)
    return is_plain_class(kind)


def opened(value: Any, depth: int = 0) -> Any:
    """A value with its objects of plain classes taken apart."""
    kind = type(value)
    if kind in LEAF_TYPES or depth > DEEPEST:
        return value
    leaves, structure = flatten(value)
    parts = [Opened(x, depth + 1) if is_plain(x) else x for x in leaves]
    return unflatten(structure, parts)


def is_leaf_class(kind: Any) -> bool:
    """Whether objects of a class are leaves, which are not taken apart."""
    is_known = kind in LEAF_TYPES or kind in NUMBERS
    return is_known or (
        may_carry(kind)
        and not is_plain_class(kind)
        and optree.register_pytree_node.get(kind, namespace=NAMESPACE) is None
    )


def taken_apart(item: Any) -> tuple[list[Any], Any]:
    """The leaves of an item and of its objects, and their structure."""
    leaves, structure = flatten(item)
    if LEAF_TYPES.issuperset(map(type, leaves)) or not any([is_plain(leaf) for leaf in leaves]):
        return leaves, structure
    return flatten(opened(item))


@lru_cache(MOST_STRUCTURES)
def in_order(names: tuple) -> list[str] | None:
    """The keys of a dict in the order of its leaves, if they are strings."""
    return sorted(names) if all([type(name) is str for name in names]) else None


def opened_layout(layout: FlatArguments) -> FlatArguments:
    """A call's arguments with their objects taken apart."""
    parts = list(map(opened, layout.leaves))
    if all(map(is_, parts, layout.leaves)):
        return layout
    leaves, structure = flatten(unflatten(layout.structure, parts))
    widths = [len(flatten(part)[0]) for part in parts]
    places = [p for place, n in zip(layout.places, widths, strict=True) for p in [place] * n]
    return FlatArguments(leaves, structure, places, layout.asked)


def opened_origins(
    leaves: Sequence[Any], origins: Sequence[tuple[int, int] | None]
) -> list[tuple[int, int] | None]:
    """For each leaf of an ``opened_layout``, the number of its input, and of the leaf in it; made
    of the layout's leaves and their origins."""
    opened_ones: list[tuple[int, int] | None] = []
    stop = 0
    for leaf, origin in zip(leaves, origins, strict=True):
        width = len(taken_apart(leaf)[0])
        if origin is None:
            opened_ones += [None] * width
            continue
        start = stop if origin[1] else 0
        stop = start + width
        opened_ones += [(origin[0], number) for number in range(start, stop)]
    return opened_ones


def has_changed(structure: Any, leaves: Sequence[Any], arguments: Any) -> bool:
    """Whether a model has set an attribute of an object in its arguments, or changed a list in it;
    ``arguments`` were made of leaves and structure."""
    if not has_objects(structure):
        return False
    leaves_after, after = flatten(opened(arguments))
    return after != structure or not all(map(is_, leaves_after, leaves))


def has_objects(structure: Any) -> bool:
    return structure.type is Opened or any(map(has_objects, structure.children()))


def classes_in(structure: Any) -> Iterator[type]:
    """The classes of containers and of objects."""
    if structure.type is Opened:
        yield structure.entries()[0]
    elif structure.type is not None:
        yield structure.type
    for child in structure.children():
        yield from classes_in(child)


# ------------------------------------------------------------------------------------------- order


def order_within(structure: Any) -> bytes | None:
    """Tells equal structures apart by the order of a dict's keys; empty without dicts."""
    return exactly(structure) if has_keys(structure) else b""


@lru_cache(MOST_STRUCTURES)
def call_has_order(structure: Any) -> bool:
    return structure.child(1).num_leaves > 1 or has_keys(structure.child(0))


@lru_cache(MOST_STRUCTURES)
def has_keys(structure: Any) -> bool:
    """Whether there may be a dict within."""
    kind = structure.type
    if not (kind is None or kind is list or kind is Opened or issubclass(kind, tuple)):
        return True
    return any(map(has_keys, structure.children()))


def kind_of_leaf(leaf: Any, looks: bool = False) -> tuple | None:
    """The facts of an argument for which a program is made; ``None`` if programs take none."""
    kind: Any = type(leaf)
    if kind is np.ndarray and leaf.dtype.kind in "fcbiu":
        return leaf.shape, leaf.dtype, leaf.strides if leaf.ndim > 1 else leaf.flags.forc
    if kind is types.FunctionType:
        return CONSTANT, kind, weakref.ref(leaf)  # whose arrays go with it
    if kind in STATIC or kind in CODE or (looks and issubclass(kind, LOOKED_AT)):
        return CONSTANT, kind, leaf
    if issubclass(kind, NUMBERS) and kind is not np.void and kind not in TEXT:
        return (kind,)
    return (CARRIED, kind) if may_carry(kind) else None


def kind_in_item(leaf: Any, looks: bool) -> tuple | None:
    """The kind of an argument in a sum."""
    return (CARRIED, int) if type(leaf) is int else kind_of_leaf(leaf, looks)


def constant_of(leaf: Any) -> tuple | None:
    """The kind of a leaf that the model reads; ``None`` if programs take none."""
    return (CONSTANT, type(leaf), leaf) if is_readable(leaf) else None


def is_readable(leaf: Any) -> bool:
    """Whether a leaf, and all that are equal to it, are the same for any code."""
    kind: Any = type(leaf)
    is_member = is_of_enum(kind) and (kind.__eq__, kind.__hash__) in EQUALITIES
    return kind in READABLE or is_member or is_date(leaf)


def sort_of_leaf(leaf: Any, looks: bool) -> tuple | None:
    """The kind of a leaf without its size."""
    if type(leaf) is np.ndarray and leaf.dtype.kind in "fcbiu":
        return leaf.ndim, leaf.dtype
    kind = kind_in_item(leaf, looks)
    if kind is None or kind[0] is not CONSTANT:
        return kind
    return kind[:2] if issubclass(kind[1], np.integer) else kind


def are_same(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Whether leaves are the same in type, dtype, shape and every bit; all NaNs are the same."""
    return len(first) == len(second) and all(map(is_same, first, second))


def is_same(first: Any, second: Any) -> bool:
    if first is None or second is None:
        return first is second
    if type(first) is type(second) is Rows:
        are_alike = (first.shape, first.axes) == (second.shape, second.axes)
        return are_alike and are_same(first.arrays, second.arrays)
    one, other = np.asarray(first), np.asarray(second)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.tobytes() == other.tobytes():  # nearly always
        return not one.dtype.hasobject or bool(np.all(one == other))
    if one.dtype.kind not in "fc":
        return bool(np.all(one == other))
    return have_same_parts(one.real, other.real) and have_same_parts(one.imag, other.imag)


def have_same_parts(one: np.ndarray, other: np.ndarray) -> bool:
    equal = (one == other) & (np.signbit(one) == np.signbit(other))
    return bool(np.all(equal | (np.isnan(one) & np.isnan(other))))
