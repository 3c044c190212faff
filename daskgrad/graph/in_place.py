"""In place: ``a += b`` and its like between models, where other names or views show the same array.

A node has one value. So ``a += b`` gives ``a`` a new node, which is all that it does to a number.
An array changes for its other names and views, too: using one of them afterwards is an error.
"""

import operator
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.models.as_called import running
from daskgrad.autodiff.models.model import Model, Operator
from daskgrad.autodiff.tape.boxes import place_here
from daskgrad.autodiff.values.carriers import carrier
from daskgrad.autodiff.values.descriptions import is_integer

OPERATORS = {
    "+=": operator.add,
    "-=": operator.sub,
    "*=": operator.mul,
    "/=": operator.truediv,
    "//=": operator.floordiv,
    "%=": operator.mod,
    "**=": operator.pow,
    "@=": operator.matmul,
}

# functions and methods of NumPy whose result may show its argument's memory
VIEWS = frozenset(
    "T array_split asanyarray asarray ascontiguousarray asfortranarray atleast_1d atleast_2d "
    "atleast_3d broadcast_arrays broadcast_to diagonal dsplit expand_dims flip fliplr flipud "
    "hsplit imag matrix_transpose moveaxis permute_dims ravel real reshape rollaxis rot90 split "
    "squeeze swapaxes transpose unstack vsplit".split()
)


class ChangeInPlace(NamedTuple):
    """An array that was changed in place: the node of its old value, the operator, and its line."""

    node: Any
    symbol: str
    place: tuple[str, int] | None

    def error(self, name: str) -> str:
        where = "" if self.place is None else f" in {self.place[0]}, line {self.place[1]},"
        return (
            f"{self.symbol}{where} changes an array in place, and {name!r}, which was used "
            f"afterwards, is that array under another name, or a view shows both; between models "
            f"this is not recorded. Write a = a {self.symbol.rstrip('=')} b for a new array, or "
            f"put parts together with np.concatenate or np.where"
        )


@carrier
class Unchanged:
    """A value, once it is known that an operator has changed no array in place, but a number."""

    message: str

    def __call__(self, value: Any, changed: Any = None) -> Any:
        if np.ndim(value if changed is None else changed):
            raise TypeError(self.message)
        return value


def in_place(symbol: str) -> Callable:
    """The method of an operator, as ``+=``: it records what ``+`` does."""

    def method(self: Any, other: Any) -> Any:
        if getattr(type(other), "takes_nodes", False):
            return NotImplemented
        result = OPERATORS[symbol](self, other)
        note_change(self, symbol)
        return result

    return method


class InPlaceOperators:
    """The operators that change an array in place, for nodes."""

    __iadd__, __isub__, __imul__ = in_place("+="), in_place("-="), in_place("*=")
    __itruediv__, __ifloordiv__ = in_place("/="), in_place("//=")
    __imod__, __ipow__, __imatmul__ = in_place("%="), in_place("**="), in_place("@=")


def note_change(node: Any, symbol: str) -> None:
    """Notes that a node's array, and all that shares memory with it, has other entries now."""
    primal = getattr(node, "primal", None)
    if primal is not None and not np.ndim(primal):
        return
    change, recording = ChangeInPlace(node, symbol, place_here()), running()
    for other in (node, *relatives(node)):
        other.changed = (*other.changed, change)
        if recording is not None:
            recording.closing.append(partial(setattr, other, "changed", ()))


def note_view(view: Any, source: Any, index: Any = None) -> None:
    """Notes that a node's value may be a view of another one's: its entries at an index."""
    view.view_of = source, index
    if not source.views:
        source.views = []
    source.views.append(weakref.ref(view))


def relatives(node: Any) -> Iterator[Any]:
    """The nodes whose values may share memory with a node's."""
    yield from views_below(node)
    while node.view_of is not None:
        source, index = node.view_of
        yield source
        yield from views_below(source, index)
        node = source
    yield from getattr(node, "containers", ())


def views_below(node: Any, index: Any = None) -> Iterator[Any]:
    """The views of a node's value, but for those that have no entry at the index."""
    for reference in node.views:
        view = reference()
        if view is not None and not are_disjoint(view.view_of[1], index):
            yield view
            yield from views_below(view)


def usable(node: Any, index: Any = None) -> Any:
    """A node, or its entries at an index, unless it is an array that was changed in place.

    Raises
    ------
    TypeError
        if it is; when it runs if its value is not known before.
    """
    changes, node.changed = node.changed, ()
    try:
        result = node
        for change in changes:
            old = change.node
            if old.view_of is not None and old.view_of[0] is node and index is not None:
                if are_disjoint(old.view_of[1], index):
                    continue
            message = change.error(node.name)
            if not old.is_here:
                args = (result,) if old is node else (result, old)
                elementwise = Operator(signs=(1,)) if old is node else None
                model = Model(Unchanged(message), "unchanged", operator=elementwise)
                result = result.record(model, args)
            elif np.ndim(old.value_here()):
                raise TypeError(message)
        return result
    finally:
        node.changed = changes


def is_basic(index: Any) -> bool:
    """Whether the entries at an index are a view."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(
        [x is None or x is ... or isinstance(x, slice | str) or is_integer(x) for x in parts]
    )


def are_disjoint(first: Any, second: Any) -> bool:
    """Whether two basic indices of one array, whatever its shape, have no entry in common."""
    if first is None or second is None:
        return False
    firsts = first if isinstance(first, tuple) else (first,)
    seconds = second if isinstance(second, tuple) else (second,)
    for one, other in zip(firsts, seconds, strict=False):
        if one is None or other is None or one is ... or other is ...:
            return False
        if isinstance(one, str) or isinstance(other, str):
            return one != other
        if ends_before(one, other) or ends_before(other, one):
            return True
    return False


def ends_before(one: Any, other: Any) -> bool:
    """Whether all places of an index come before those of another one."""
    (_, stop), (start, _) = bounds(one), bounds(other)
    return stop is not None and start is not None and (stop < 0) == (start < 0) and stop <= start


def bounds(index: Any) -> tuple[Any, Any]:
    """The first place and the end of an index; None where they depend on the length."""
    if not isinstance(index, slice):
        return index, None if index == -1 else index + 1
    if index.step is not None and index.step < 0:
        return None, None
    return 0 if index.start is None else index.start, index.stop
