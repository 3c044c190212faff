"""Item cotangents: the cotangents of a sum's items, if the items are differentiated themselves.

The pullback of a term returns the cotangents of its item, and then the cotangents of the shared
inputs. Shared inputs' cotangents are added up. Items' cotangents are joined, in a block and then
over all blocks, and scaled at the end, entry by entry: no bit depends on the cut.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from daskgrad.autodiff.models import finite
from daskgrad.autodiff.models.captured import Captured, Gradient
from daskgrad.autodiff.models.determinism import require_same_value, require_value_seen
from daskgrad.autodiff.models.model import Model
from daskgrad.autodiff.models.pullbacks import seed
from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.addition import Add, PairwiseSum, sum_of_rows
from daskgrad.autodiff.values.carriers import carrier
from daskgrad.autodiff.values.cotangents import Cotangent, Leaves, Seed
from daskgrad.autodiff.values.elsewhere import CotangentElsewhere
from daskgrad.autodiff.values.memory import row_major
from daskgrad.autodiff.values.rows import Rows, dense_leaf, final_leaf

Widths = tuple[int, ...]  # how many leaves each differentiated field of an item has


@carrier
class ItemGradient(Gradient):
    """The gradient of the real scalar terms of a block: by the shared inputs, added up, and for
    each differentiated field of the items the cotangents of the items side by side."""

    item_cotangents: tuple[Leaves, ...]

    def with_leaves(self, leaves: Leaves) -> "ItemGradient":
        return ItemGradient(leaves, self.item_cotangents)


class Gathered:
    """Takes the cotangents of terms as they come: adds up the shared inputs', keeps the items'.

    ``are_rows``: for each differentiated field of the items, whether it is an array of rows.
    """

    def __init__(self, are_rows: Sequence[bool], add: Add = cotangents.add):
        self._are_rows = are_rows
        self._shared = PairwiseSum(add)
        self._items: list[list[Leaves]] = [[] for _ in are_rows]  # of this run
        self._runs: list[list[Leaves]] = [[] for _ in are_rows]
        self._sizes: list[int] = []  # of the runs

    def push(self, leaves: Leaves, widths: Widths) -> None:
        if not widths:
            return self._shared.push(leaves)
        remaining = iter(leaves)
        for item, width in zip(self._items, widths, strict=True):
            item.append(tuple(map(dense_leaf, itertools.islice(remaining, width))))
        self._shared.push(tuple(remaining))

    def push_run(self, count: int, rows: Leaves, widths: Widths) -> None:
        """Adds the gradients of consecutive terms: rows of each leaf."""
        self.end_run()
        remaining = iter(rows)
        for run, are_rows, width in zip(self._runs, self._are_rows, widths, strict=True):
            item_leaves = tuple(
                [None if x is None else row_major(x) for x in itertools.islice(remaining, width)]
            )
            run.append(item_leaves if are_rows else of_items(item_leaves, count))
        self._sizes += [count] if widths else []
        shared = tuple(remaining)
        for part in self._shared.subtrees(count):
            total = tuple([None if x is None else sum_of_rows(x[part]) for x in shared])
            self._shared.push(total, part.stop - part.start)

    def end_run(self) -> None:
        """Puts the items' cotangents since the last run side by side, to save memory."""
        if not (self._items and self._items[0]):
            return
        self._sizes.append(len(self._items[0]))
        for run, items, are_rows in zip(self._runs, self._items, self._are_rows, strict=True):
            run.append(join(items, are_rows))
            items.clear()

    def gradient(self) -> Gradient:
        shared, item_cotangents = self.total()
        return ItemGradient(shared, item_cotangents) if item_cotangents else Gradient(shared)

    def total(self) -> tuple[Leaves, tuple[Leaves, ...]]:
        """The sum of the shared cotangents of at least one term, and the items', by field."""
        self.end_run()
        fields = zip(self._runs, self._are_rows, strict=True)
        return self._shared.total(), tuple([join(*field, self._sizes) for field in fields])


def of_items(rows: Sequence[Any], count: int) -> Leaves:
    """The leaves, item by item, from rows of each leaf."""
    return tuple([None if x is None else x[n] for n in range(count) for x in rows])


def join(parts: Sequence[Leaves], are_rows: bool, sizes: Sequence[int] | None = None) -> Leaves:
    """The cotangents of items as one: as an array of rows, or leaf after leaf.

    A part is one item, or a block with as many items as ``sizes`` says.
    """
    is_whole = sizes is not None and len(parts) == 1  # as it was elsewhere, too
    if not are_rows or is_whole or isinstance(parts[0][0], CotangentElsewhere):
        return tuple(itertools.chain.from_iterable(parts))
    arrays = [array for (array,) in parts]
    like = next((array for array in arrays if array is not None), None)
    if like is None:
        return (None,)
    if sizes is None:
        return (np.stack([np.zeros_like(like) if row is None else row for row in arrays]),)
    filled = [
        np.zeros((size, *like.shape[1:]), like.dtype) if block is None else block
        for block, size in zip(arrays, sizes, strict=True)
    ]
    return (np.concatenate(filled),)


def without_items(captured: Captured) -> Captured:
    """A block's value and the gradient by the shared inputs, which are added up over blocks."""
    gradient = captured.pullback
    if not isinstance(gradient, ItemGradient):
        return captured
    return Captured(captured.value, Gradient(gradient.leaves), captured.seen, captured.fingerprint)


def item_cotangents_of(
    captured: Captured, number: int, summed: Captured, model: Model
) -> Leaves | None:
    """As ``item_cotangents_in``; they must belong to the value that was ``summed``, as the forward
    task may have run again."""
    require_same_value(captured, summed.fingerprint, model)
    return item_cotangents_in(captured, number)


def with_item_cotangents(captured: Captured, blocks: Sequence[tuple[Leaves, ...]]) -> Captured:
    """A sum that was added up, with the item cotangents of all its blocks."""
    if not blocks:
        return captured
    gradient = ItemGradient(captured.pullback.leaves, tuple(zip(*blocks, strict=True)))
    return Captured(captured.value, gradient, captured.seen, captured.fingerprint)


def item_cotangents_in(captured: Captured, number: int) -> Any:
    """The unscaled cotangents of a block's items, or of a sum's block by block, in the field of
    that number; ``None`` if the terms are not scalars, which is an error of the sum."""
    gradient = captured.pullback
    return gradient.item_cotangents[number] if isinstance(gradient, ItemGradient) else None


def pull_back_items(
    blocks: Sequence[Leaves],
    sizes: Sequence[int],
    are_rows: bool,
    captured: Captured,
    cotangent: Cotangent,
    model: Model,
    value_elsewhere: Any,
) -> Cotangent:
    """The cotangents of all items of a sum, joined and scaled once."""
    require_value_seen(captured, cotangent, value_elsewhere, model)
    factor = factor_of_terms(cotangent, seed(cotangent, captured.value, model))
    joined = scale_items(join(blocks, are_rows, sizes), factor)
    if finite.is_required():
        finite.require_sum(f"sum over {model.name!r}: the cotangent of its items", joined)
    return Cotangent(joined)


def concatenate_items(
    blocks: Sequence[Cotangent], sizes: Sequence[int], are_rows: bool
) -> Cotangent:
    """The cotangents of all items of a sum, from the cotangents of its blocks."""
    return Cotangent(join([block.leaves for block in blocks], are_rows, sizes))


def place_items(
    cotangent: Cotangent, shape: tuple[int, ...], indices: np.ndarray, asked: bool
) -> Cotangent:
    """The cotangent of an array, from the cotangents of the items that are rows of it."""
    (leaf,) = cotangent.leaves
    if leaf is None:
        return cotangent
    rows = Rows(shape, (0,), indices.copy(), leaf, asked)  # the sample's own must not be changed
    return Cotangent((final_leaf(rows),))


def scale_items(leaves: Leaves, factor: Any) -> Leaves:
    if cotangents.is_zero(leaves):  # also where the terms are arrays, and there is no one factor
        return leaves
    return (None,) * len(leaves) if factor is None else cotangents.scale(leaves, factor)


def items_of(gradient: Gradient, factor: Any) -> tuple[Leaves, ...]:
    """The scaled cotangents of a block's items, field by field."""
    if not isinstance(gradient, ItemGradient):
        return ()
    return tuple([scale_items(field, factor) for field in gradient.item_cotangents])


def factor_of_terms(cotangent: Cotangent, seeded: Leaves) -> Any:
    """The factor of terms that are real scalars, from the cotangent of the sum of all blocks.

    ``seeded`` is the cotangent in the dtype of a block's value: with terms of several dtypes, the
    bits of a factor of that dtype would depend on the cut.
    """
    if isinstance(cotangent, Seed) or seeded[0] is None:
        return seeded[0]
    factor = cotangent.leaves[0]
    return np.real(factor) if np.iscomplexobj(factor) else factor
