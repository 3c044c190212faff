"""Items: the leaves of a sum's items, column by column, and facts of leaves seen before."""

import weakref
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np

from daskgrad.autodiff.programs.purity import is_plain_class
from daskgrad.autodiff.programs.references import memory_of
from daskgrad.autodiff.programs.signatures import (
    in_order,
    is_carried,
    is_leaf_class,
    kind_in_item,
    order_within,
    taken_apart,
)
from daskgrad.autodiff.programs.watch import slots_of
from daskgrad.autodiff.tape.traced_call import TracedBlock
from daskgrad.autodiff.values.trees import LEAF

NESTED = 2  # containers in the items' containers that are taken apart together
IMMUTABLE = {float, int, complex, bool, str, bytes, type(None), np.float64, np.float32}
LOOKED_AT = 64  # items that are looked at anew each time
MOST_KNOWN = 2**20  # leaves of lists of items; each takes some hundred bytes
MOST_SEEN = 4096  # lists of items that were seen once

DTYPE = attrgetter("dtype")
Flat = list[tuple[list[Any], Any]]  # the leaves and the structure of each field of an item
Kind = tuple[tuple[Any, ...], ...]  # a key of items: one program serves all that have it


# -------------------------------------------------------------------------------------------------
# Facts of leaves, as long as these objects live.


class Facts:
    """The ``types`` of some leaves, and in ``known`` whatever follows from their kinds.

    ``kept``: weak references to arrays, and immutable leaves: no other object gets an identity.
    """

    def __init__(self, columns: Sequence[Sequence[Any]]):
        self.types = {kind for column in columns for kind in set(map(type, column))}
        self.count = sum(map(len, columns))
        self.known: dict[Any, Any] = {}
        self.kept: list[Any] = []

    def keep(self, columns: Sequence[Sequence[Any]], forget: Callable) -> bool:
        """Keeps the identities until an array goes, and calls ``forget`` then; False if no column
        has arrays, or a leaf may change."""
        are_arrays = [{np.ndarray}.issuperset(map(type, column)) for column in columns]
        pairs = list(zip(columns, are_arrays, strict=True))
        others = [column for column, has_arrays in pairs if not has_arrays]
        if not any(are_arrays) or any([not IMMUTABLE.issuperset(map(type, c)) for c in others]):
            return False
        for column, has_arrays in pairs:
            self.kept += [weakref.ref(leaf, forget) for leaf in column] if has_arrays else column
        return True


_known: dict[Any, Facts] = {}  # by the identities of the leaves
_held = 0  # leaves in it
_seen: set[int] = set()  # hashes of such identities


def facts_of(columns: Sequence[Sequence[Any]]) -> Facts:
    """The facts of the leaves of items; they are kept from the second time on."""
    global _held
    parts = [np.fromiter(map(id, column), np.intp, len(column)).tobytes() for column in columns]
    key = len(columns), b"".join(parts)
    facts = _known.get(key)
    if facts is not None:
        return facts
    facts, number = Facts(columns), hash(key)
    if number not in _seen:  # lists that are made anew for each evaluation are not worth it
        if len(_seen) >= MOST_SEEN:
            _seen.clear()
        _seen.add(number)
    elif facts.count <= MOST_KNOWN and facts.keep(columns, lambda _: forget(key)):
        if _held + facts.count > MOST_KNOWN:
            _known.clear()
            _held = 0
        _known[key] = facts
        _held += facts.count
    return facts


def forget(key: Any) -> None:
    global _held
    facts = _known.pop(key, None)
    _held -= 0 if facts is None else facts.count


class ItemList(list):
    """Items as they are now. ``columns``: their leaves, a column for each number; None of items of
    more than one structure. ``facts``: of these leaves. A slice is a plain list."""

    __slots__ = ("columns", "facts")

    def __init__(self, items: Sequence[Any]):
        super().__init__(items)
        self.columns = columns_of(self)
        self.facts = None if self.columns is None else facts_of(self.columns)

    def __reduce__(self) -> tuple:
        return list, (list(self),)


def columns_of(items: Sequence[Any], depth: int = 0) -> list[Any] | None:
    """The leaves of items, a column for each number, if the items are leaves, or tuples, dicts or
    objects of one structure, that hold leaves or a few more of these; None for others."""
    kinds = set(map(type, items))
    if all(map(is_leaf_class, kinds)):
        return [items]
    columns: Any = None
    kind, *others = kinds
    if others or depth > NESTED:
        return None
    is_tuple = kind is tuple or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    if is_tuple and len(set(map(len, items))) == 1:
        columns = (
            [list(map(itemgetter(number), items)) for number in range(len(items[0]))]
            if kind is tuple  # a named one may have methods of its own
            else list(zip(*items, strict=True))
        )
    elif kind is dict or is_openable(kind):
        dicts = items if kind is dict else list(map(vars, items))
        names, *rest = set(map(tuple, dicts))
        order: Any = None if rest else in_order(names) if kind is dict else names
        columns = order and [list(map(itemgetter(name), dicts)) for name in order]
    parts = [columns_of(column, depth + 1) for column in columns or ()]
    return None if None in parts else [leaves for part in parts for leaves in part or ()] or None


def is_openable(kind: Any) -> bool:
    """Whether objects of a class are their attributes, and nothing that Dask computes."""
    is_plain = is_plain_class(kind) and not slots_of(kind)
    return is_plain and not hasattr(kind, "__dask_graph__")


# -------------------------------------------------------------------------------------------------
# Runs of items, whose kinds go in batches.


class ItemRun:
    """Consecutive items of a block, field by field. The kinds of known leaves serve batches
    alone, which notice where an array has got another shape."""

    def __init__(self, block: TracedBlock, start: int, stop: int, looks: bool, in_batches: bool):
        self.block, self.start, self.count = block, start, stop - start
        self.columns = [Column(field, start, stop, looks, in_batches) for field in block.fields]

    def kinds(self) -> Iterable[Sequence[int] | np.ndarray]:
        """The places of the items of each kind, which has keys of its own."""
        columns = [column for column in self.columns if column.keys]
        if not columns:
            return [range(self.count)]
        if len(columns) == 1:
            return columns[0].places()
        return places_of([keys for column in columns for keys in column.keys])

    def key_of(self, place: int) -> int | None:
        """A number that most likely is of the item at a place alone, for as long as it lives."""
        items = self.block.fields[0]
        if isinstance(items, np.ndarray):
            return None
        item = items[self.start + place]
        return item if type(item) is int else id(item)

    def call(self, place: int) -> Any:
        """The call on the item at a place, and its traced arrays."""
        return self.block.call(self.start + int(place))


def places_of(keys: Sequence[Sequence[Any]]) -> list[np.ndarray]:
    """The places of equal keys, side by side."""
    kinds: dict[Any, list[int]] = {}
    for place, key in enumerate(keys[0] if len(keys) == 1 else zip(*keys, strict=True)):
        kinds.setdefault(key, []).append(place)
    return list(map(np.asarray, kinds.values()))


class Column:
    """One field of consecutive items, leaf by leaf; ``keys`` tell the items' kinds apart."""

    def __init__(self, items: Any, start: int, stop: int, looks: bool, in_batches: bool):
        self.keys: list[list[Any]] = []
        self._flats: list[Any] = []
        self._known: dict[Any, Any] = {}
        self._at: Any = start, stop, looks
        if isinstance(items, np.ndarray):
            self._leaves: list[Any] = [items[start:stop]]
            is_whole = items.dtype.kind in "biu" and (items.ndim > 1 or not looks)
            if is_whole or items.dtype.kind in "fc":
                return
            items, start, stop = list(items[start:stop]), 0, stop - start  # constants
        if type(items) is not ItemList:
            items, start, stop = ItemList(items[start:stop]), 0, stop - start
        if items.columns is None:
            self._flats = list(map(taken_apart, items[start:stop]))
            self.keys = [[kind_of_item([flat], looks) for flat in self._flats]]
            return
        are_all = stop - start == len(items)
        columns = items.columns
        self._leaves = columns if are_all else [column[start:stop] for column in columns]
        if in_batches:
            self._known = items.facts.known
        keys = self._known.get(self._at)
        if keys is None:
            parts = [keys_of(leaves, looks) for leaves in self._leaves]
            keys = self._known[self._at] = [part for part in parts if part]
        self.keys = keys

    def places(self) -> list[np.ndarray]:
        """The places of the items of each kind."""
        places = self._known.get(("places", *self._at))
        if places is None:
            places = self._known["places", *self._at] = places_of(self.keys)
        return places

    def leaf(self, place: int, number: int) -> Any:
        """The leaf of that number of the item at a place."""
        return self._flats[place][0][number] if self._flats else self._leaves[number][place]

    def rows(self, places: np.ndarray, number: int) -> np.ndarray:
        """The leaves of that number of some items of one kind, side by side."""
        are_all = len(places) == places[-1] - places[0] + 1
        chosen = slice(places[0], places[-1] + 1) if are_all else places
        if self._flats:
            return np.array([self._flats[place][0][number] for place in places.tolist()])
        leaves = self._leaves[number]
        if isinstance(leaves, np.ndarray):
            return leaves[chosen]
        some = leaves[chosen] if are_all else itemgetter(*places.tolist())(leaves)
        first = some[0]
        if type(first) is not np.ndarray or not first.ndim:
            return np.array(some)
        if len(set(map(len, some))) > 1 or len(set(map(DTYPE, some))) > 1:
            raise ValueError("an array has got another length or dtype since it was known")
        rows = np.concatenate(some)  # in less than half of the time of ``np.array``
        return rows.reshape(len(some), *first.shape)


def keys_of(leaves: Sequence[Any], looks: bool) -> list[Any]:
    """A key of each leaf's kind; none if all leaves have one kind."""
    kinds = set(map(type, leaves))
    (kind, *others) = kinds
    if kind in (float, np.float64) and not others:
        return []
    if not others and kind is not np.ndarray and is_carried(kind_in_item(leaves[0], looks)):
        return []
    keys = [memory_of(x) if type(x) is np.ndarray else kind_in_item(x, looks) for x in leaves]
    shared: dict[Any, Any] = {}  # one object for equal keys
    keys = [shared.setdefault(key, key) for key in keys]
    return keys if len(shared) > 1 else []


def kind_of_item(flat: Flat, looks: bool, kind: Callable = kind_in_item) -> Kind:
    """A key of an item; ``kind`` is that of a leaf."""
    return tuple(
        [
            (None, b"", kind(leaves[0], looks))  # as most are; its hash takes less time
            if structure is LEAF
            else (structure, order_within(structure), *[kind(leaf, looks) for leaf in leaves])
            for leaves, structure in flat
        ]
    )
