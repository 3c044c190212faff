"""Selections: cotangents of entries of an array that a model returned, as rows.

A node that selects entries of an array, or of a dual of arrays, sends back rows: these entries, and
where they stand. Adders add them as rows, along the tree of arrays, and the last one makes an array
of them once: n selections with an array each would take n times its size. No bit changes: see
``values.rows``.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from daskgrad.models.duals import Dual
from daskgrad.values.carriers import carrier
from daskgrad.values.coalescing import coalesce
from daskgrad.values.cotangents import Cotangent, Leaves, add
from daskgrad.values.entries import entries_of
from daskgrad.values.fingerprints import Fingerprint
from daskgrad.values.rows import Rows, are_many, disjoint_sum, is_small, loose_rows
from daskgrad.values.summation import pairwise


@carrier
class Selected:
    """Cotangents of some entries of a value, as rows, leaf by leaf; an array where that is quicker.

    ``seen``: pairs of an index and the fingerprint of what it selected, where that is watched.
    """

    leaves: Leaves
    seen: tuple[tuple[Any, Fingerprint], ...] = ()

    def __repr__(self) -> str:
        return f"Selected({', '.join(map(repr, self.leaves))})"


def arrays_of(value: Any) -> Sequence[Any]:
    """The arrays of a value of which a node may select entries; none if it is another value."""
    arrays = (value.value, *value.tangents) if type(value) is Dual else (value,)
    first = arrays[0]
    if type(first) is not np.ndarray or not first.ndim or first.dtype.kind not in "fc":
        return ()
    return arrays if all([np.shape(array) == first.shape for array in arrays]) else ()


def is_most(item: Any, value: Any) -> bool:
    """Whether the cotangent of a large item is as quick as an array of the value's shape."""
    (first, *_), (whole, *_) = arrays_of(item) or (None,), arrays_of(value)
    return first is not None and not is_small(first) and are_many(first.size, whole.shape)


def as_selected(cotangent: Cotangent) -> Selected:
    """The cotangent of all of a value, to be added to those of its entries."""
    return Selected(cotangent.leaves, () if cotangent.seen is None else ((..., cotangent.seen),))


def rows_at(index: Any, value: Any, leaves: Sequence[Any]) -> Leaves:
    """The cotangents of a value's arrays from those of what an index selects."""
    arrays = arrays_of(value)
    entries = entries_of(index, arrays[0].shape)
    found: list[Any] = [None] * len(arrays)
    for number, (array, leaf) in enumerate(zip(arrays, leaves, strict=True)):
        if leaf is not None and entries is not None:
            found[number] = added_up(entries.rows(leaf))
        elif leaf is not None:  # all of the array, once
            found[number] = np.zeros(array.shape, array.dtype)
            found[number][index] += leaf
    return tuple(found)


def added_up(rows: Rows) -> Rows:
    """Loose rows, with those of one entry added up in their order."""
    found = coalesce(rows.indices, rows.values)
    return loose_rows(rows.shape, rows.axes, *found, is_asked=False)


def add_selected(terms: Sequence[Selected]) -> Selected:
    """The sum of some terms, along the tree."""
    leaves = [_add_rows(each) for each in zip(*[term.leaves for term in terms], strict=True)]
    return Selected(tuple(leaves), tuple([pair for term in terms for pair in term.seen]))


def _add_rows(terms: Sequence[Any]) -> Any:
    if all([type(term) is Rows for term in terms]):
        total = disjoint_sum(terms)
        if total is not None:
            return total
    (leaf,) = pairwise([(term,) for term in terms], add)
    return leaf
