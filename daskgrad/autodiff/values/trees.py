"""Trees: flattens and unflattens pytrees, by ``optree`` in the namespace "daskgrad"."""

import functools
import itertools
import pickle
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import optree

NAMESPACE = "daskgrad"
LEAF = optree.treespec_leaf(none_is_leaf=True, namespace=NAMESPACE)
BOXES: set[type] = set()  # classes of boxes that stand for arrays while a program is recorded
LEAF_TYPES = {np.ndarray, np.float64, float, int, str, type(None)}  # and boxes of arrays


def flatten(value: Any) -> tuple[list[Any], optree.PyTreeSpec]:
    """The leaves of a pytree and its structure; ``None`` counts as a leaf."""
    if type(value) in LEAF_TYPES:  # most values are leaves: a tenth of the time
        return [value], LEAF
    if type(value) is tuple and LEAF_TYPES.issuperset(map(type, value)):
        return list(value), tuple_of_leaves(len(value))
    try:
        return optree.tree_flatten(value, none_is_leaf=True, namespace=NAMESPACE)
    except RecursionError:
        raise too_deep(value) from None


def too_deep(value: Any) -> RecursionError:
    return RecursionError(
        f"a {type(value).__name__} cannot be flattened: it is nested too deep, or holds itself; a "
        f"pytree of arrays should be some levels deep"
    )


@functools.lru_cache(64)
def tuple_of_leaves(count: int) -> optree.PyTreeSpec:
    """The structure of a tuple of so many leaves."""
    leaves: Any = (0,) * count
    return optree.tree_flatten(leaves, none_is_leaf=True, namespace=NAMESPACE)[1]


def usual_leaves(items: Sequence[Any]) -> Iterable[Any] | None:
    """The leaves of items that are leaves or tuples of leaves, of the usual types; None for other
    items. Most items are usual, and this takes a tenth of the time."""
    kinds = set(map(type, items))
    if kinds <= LEAF_TYPES:
        return items
    if not all([issubclass(kind, tuple) for kind in kinds]):
        return None
    is_usual = LEAF_TYPES.issuperset(map(type, itertools.chain.from_iterable(items)))
    return itertools.chain.from_iterable(items) if is_usual else None


def unflatten(structure: optree.PyTreeSpec, leaves: Sequence[Any]) -> Any:
    """The pytree of this structure and these leaves."""
    return leaves[0] if structure is LEAF else structure.unflatten(leaves)


def map_leaves(fun: Callable, value: Any, *others: Any) -> Any:
    """The pytree of a function's results for each leaf and the others' corresponding leaves."""
    leaves, structure = flatten(value)
    columns = [leaves, *[flatten(other)[0] for other in others]]
    return unflatten(structure, [fun(*row) for row in zip(*columns, strict=True)])


def substitute(leaves: Iterable[Any], places: Iterable[int], others: Iterable[Any]) -> list[Any]:
    """The leaves, with others at these places."""
    result = list(leaves)
    for place, other in zip(places, others, strict=True):
        result[place] = other
    return result


class Children(NamedTuple):
    """The children of a container: numbers by entry, first leaves, and structures."""

    numbers: dict[Any, int]
    firsts: Sequence[int]
    structures: Sequence[optree.PyTreeSpec]

    @classmethod
    def of(cls, structure: optree.PyTreeSpec) -> "Children":
        children = [LEAF if child.is_leaf() else child for child in structure.children()]
        firsts = itertools.accumulate([child.num_leaves for child in children], initial=0)
        numbers = {entry: number for number, entry in enumerate(structure.entries())}
        return cls(numbers, list(firsts), children)


def exactly(structure: optree.PyTreeSpec) -> bytes | None:
    """Bytes that tell equal structures apart; None if a structure cannot be pickled.

    Equal structures may differ in the order of a dict's keys, which a model may use, and in keys
    like 1 and True. Compare structures, too: two classes of one name may have the same bytes.
    """
    for dumps in (pickle.dumps, cloudpickle.dumps):  # cloudpickle pickles more
        try:
            return dumps(structure)
        except Exception:
            continue
    return None


# -------------------------------------------------------------------------------------------------
# Closures: the objects in a function, and objects that a module has by name.

EMPTY = types.CellType()


def held_by(function: types.FunctionType) -> list[Any]:
    """The objects in a function's defaults and closure."""
    if not (function.__defaults__ or function.__kwdefaults__ or function.__closure__):
        return []
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    cells = function.__closure__ or ()
    return [*defaults, *[cell.cell_contents for cell in cells if cell != EMPTY]]


def codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of a function, and of functions within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_in(constant)


def is_named(value: Any) -> bool:
    """Whether a module that other processes can import has an object under its name."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if module in (None, "__main__"):
        return False
    return getattr(sys.modules.get(str(module)), str(name), None) is value
