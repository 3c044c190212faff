"""Portions: cotangents of parts of a value that a model returned.

A node that takes one item out of a list, tuple or dict sends back a portion, the cotangent of that
item; a node that takes entries out of an array sends back a selection, the cotangents of these
entries as rows. Nodes of duals do likewise. Adders put portions and selections together, and make
the cotangent of the value once: n full cotangents with zeros would take n² space. No bit changes:
rows are added along the same tree as arrays (``autodiff.values.rows``).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from daskgrad.autodiff.models import finite
from daskgrad.autodiff.models.captured import Captured
from daskgrad.autodiff.models.determinism import (
    fingerprint_of,
    require_same_input,
    require_value_seen,
)
from daskgrad.autodiff.models.duals import Dual
from daskgrad.autodiff.models.failures import Blame
from daskgrad.autodiff.models.model import Call, Model
from daskgrad.autodiff.models.pullbacks import (
    add_cotangents,
    capture,
    each_of,
    evaluate,
    pull_back,
    seed,
)
from daskgrad.autodiff.models.tracing import Active, as_moved
from daskgrad.autodiff.values.addition import Add, pairwise
from daskgrad.autodiff.values.carriers import carrier
from daskgrad.autodiff.values.cotangents import Cotangent, Leaves, add, zeros
from daskgrad.autodiff.values.entries import entries_of
from daskgrad.autodiff.values.fingerprints import Fingerprint, fingerprint
from daskgrad.autodiff.values.memory import canonical, takes_as_arrived
from daskgrad.autodiff.values.protection import read_only_leaf
from daskgrad.autodiff.values.rows import (
    Rows,
    are_many,
    coalesce,
    disjoint_sum,
    final_leaf,
    is_small,
    loose_rows,
)
from daskgrad.autodiff.values.trees import BOXES, Children, flatten


@carrier
class Selected:
    """Cotangents of some entries of a value, leaf by leaf: rows, or arrays if these are quicker.

    ``seen``: pairs of an index and the fingerprint of the entries, if watched.
    """

    leaves: Leaves
    seen: tuple[tuple[Any, Fingerprint], ...] = ()

    def __repr__(self) -> str:
        return f"Selected({', '.join(map(repr, self.leaves))})"


def arrays_of(value: Any) -> Sequence[Any]:
    """The arrays of an array or of a dual of arrays; any other value has none."""
    arrays = (value.value, *value.tangents) if type(value) is Dual else (value,)
    first = arrays[0]
    if type(first) is not np.ndarray or not first.ndim or first.dtype.kind not in "fc":
        return ()
    return arrays if all([np.shape(array) == first.shape for array in arrays]) else ()


def is_most(item: Any, value: Any) -> bool:
    """Whether an array is the quicker cotangent of a large item."""
    (first, *_), (whole, *_) = arrays_of(item) or (None,), arrays_of(value)
    return first is not None and not is_small(first) and are_many(first.size, whole.shape)


def rows_at(index: Any, value: Any, leaves: Sequence[Any]) -> Leaves:
    """The cotangents of a value's arrays, from the cotangents of the entries at an index."""
    arrays = arrays_of(value)
    entries = entries_of(index, arrays[0].shape)
    cotangents: list[Any] = [None] * len(arrays)
    for number, (array, leaf) in enumerate(zip(arrays, leaves, strict=True)):
        if leaf is not None and entries is not None:
            rows = entries.rows(leaf)
            sums = coalesce(rows.indices, rows.values)  # of entries that were selected twice
            cotangents[number] = loose_rows(rows.shape, rows.axes, *sums, is_asked=False)
        elif leaf is not None:  # the index takes the whole array, once
            cotangents[number] = np.zeros(array.shape, array.dtype)
            cotangents[number][index] += leaf
    return tuple(cotangents)


def add_selected(terms: Sequence[Selected]) -> Selected:
    """The sum of selections, along the tree."""
    leaves = [_add_rows(column) for column in zip(*[term.leaves for term in terms], strict=True)]
    return Selected(tuple(leaves), tuple([pair for term in terms for pair in term.seen]))


def _add_rows(terms: Sequence[Any]) -> Any:
    if all([type(term) is Rows for term in terms]):
        total = disjoint_sum(terms)
        if total is not None:
            return total
    (leaf,) = pairwise([(term,) for term in terms], add)
    return leaf


CONTAINERS = (list, tuple, dict)


@carrier
class Portion:
    """Cotangents of some items of a container, by the items' keys or indices."""

    items: dict[Any, Cotangent]

    def __repr__(self) -> str:
        return f"Portion({self.items})"


@carrier
class Strips:
    """Cotangents of parts of a value's arrays: pairs of slices and leaves."""

    parts: Any

    def __repr__(self) -> str:
        return f"Strips({len(self.parts)})"


def is_entry(value: Any, index: Any) -> bool:
    """Whether an index stands for an item of a container, or of a container's dual."""
    container = value.value if type(value) is Dual else value
    return type(container) in CONTAINERS and isinstance(index, int | str | np.integer)


@takes_as_arrived
def evaluate_item(model: Model, call: Call, inputs: Sequence[Any]) -> Any:
    """The value of a node that takes an item; traces nothing."""
    index = index_in(call, inputs)
    if arrays_of(inputs[0]) or is_entry(inputs[0], index):
        return item_of(index, Blame("value", model, call, inputs))
    return evaluate(model, call, canonical(inputs))


@takes_as_arrived
def capture_item(
    model: Model, call: Call, active: Sequence[Active], inputs: Sequence[Any]
) -> Captured:
    """Takes an item out of a value without reading the others; any other call as ``capture``."""
    value, index = inputs[0], index_in(call, inputs)
    if arrays_of(value) and not active[0].asked:  # rows that are asked for come from a tape
        item = item_of(index, Blame("forward", model, call, inputs))
        if not is_most(item, value):
            return Captured(item, None, ())
    elif is_entry(value, index):
        return Captured(item_of(index, Blame("forward", model, call, inputs)), None, ())
    elif type(value) in BOXES and value.ndim and not active[0].asked:
        model = model._replace(keep="tape")  # a tape adds to zeros, as selections do
    return capture(model, call, active, canonical(inputs))


def item_of(index: Any, where: Blame) -> Any:
    """The item of a call's first input; errors get the notes of ``where``."""
    with where:
        value = picked(where.inputs[0], index)
    if finite.is_required():
        finite.require(where, "the value", value)
    return value


def picked(value: Any, index: Any) -> Any:
    """An item of a value; for a dual, the dual of an item."""
    if type(value) is Dual:
        return Dual(picked(value.value, index), tuple([picked(t, index) for t in value.tangents]))
    is_array = type(value) is np.ndarray
    return canonical(as_moved(read_only_leaf(value)[index]) if is_array else value[index])


@takes_as_arrived
def pull_back_item(
    captured: Captured,
    cotangent: Cotangent,
    model: Model,
    call: Call,
    active: Sequence[Active],
    inputs: Sequence[Any],
    value_elsewhere: Any = None,
    is_alone: bool = False,
) -> Any:
    """The cotangent that an item's node sends back: a part, or the result of ``pull_back``.

    ``is_alone``: no other node sends a cotangent back, so this one is the whole value's.
    """
    value, index = inputs[0], index_in(call, inputs)
    part: Portion | Selected
    if captured.pullback is not None:
        args = (model, call, active, canonical(inputs), value_elsewhere)
        result = pull_back(captured, cotangent, *args)
        is_whole = is_alone or not arrays_of(value)
        if is_whole:
            return result
        (total,) = each_of(result)  # to be added to selections
        prints = () if total.seen is None else ((..., total.seen),)
        return Selected(total.leaves, prints)
    with Blame("backward", model, call, inputs):
        require_value_seen(captured, cotangent, value_elsewhere, model)
        leaves = seed(cotangent, captured.value, model)
    if arrays_of(value):
        prints = ((index, captured.fingerprint),) if active[0].watched else ()
        part = Selected(rows_at(index, value, leaves), prints)
    else:
        entry = entry_of(index, value.value if type(value) is Dual else value)
        part = Portion({entry: Cotangent(leaves, captured.fingerprint)})
    return as_cotangent(part, value, model.name) if is_alone else part


def index_in(call: Call, inputs: Sequence[Any]) -> Any:
    """The index of an item's node: its second argument."""
    return call.arguments(inputs)[0][1]


def entry_of(index: Any, container: Any) -> Any:
    """The key of a container's item, from an index that may be negative."""
    return index if type(container) is dict else range(len(container))[index]


@takes_as_arrived
def add_sent_back(
    terms: Sequence[Any], saw_value: Sequence[bool], add: Add, name: str, value: Any = None
) -> Any:
    """The sum of the cotangents, or of parts of them, from the consumers of one value.

    ``value``: the value, if the sum must be a whole cotangent.
    """
    strips = [term for term in terms if type(term) is Strips]
    if strips:
        return add_strips(terms, strips, saw_value, add, name, value)
    parts = [term for term in terms if isinstance(term, Portion | Selected)]
    if parts and len(parts) == len(terms):
        total = add_parts(parts, name)
        return total if value is None else as_cotangent(total, value, name)
    dense = [
        as_cotangent(term, value, name) if isinstance(term, Portion | Selected) else term
        for term in terms
    ]
    return add_cotangents(dense, saw_value, add, name)


def add_parts(parts: Sequence[Any], name: str) -> Portion | Selected:
    """The sum of parts, along the tree."""
    kinds = [(type(part).__name__,) for part in parts]
    for kind in kinds[1:]:
        require_same_input(kinds[0], kind, name)
    if type(parts[0]) is Selected:
        return add_selected(parts)
    return pairwise(parts, lambda first, second, _: merge(first, second, name))


def add_strips(
    terms: Sequence[Any],
    strips: Sequence[Strips],
    saw_value: Sequence[bool],
    add: Add,
    name: str,
    value: Any,
) -> Any:
    """The sum of cotangents and strips: first the cotangents, then strip by strip."""
    union = Strips([part for term in strips for part in term.parts])
    if len(strips) == len(terms) and value is None:
        return union
    leaves = flatten(value)[0]
    others = [pair for pair in zip(terms, saw_value, strict=True) if type(pair[0]) is not Strips]
    total = Cotangent((None,) * len(leaves))
    if others:
        total = add_cotangents([term for term, _ in others], [saw for _, saw in others], add, name)
    pairs = zip(total.leaves, leaves, strict=True)
    dense = [zeros(leaf) if array is None else array.copy() for array, leaf in pairs]
    for place, part in union.parts:
        for leaf, cotangent in zip(dense, part, strict=True):
            if cotangent is not None:
                leaf[place] += cotangent
    return Cotangent(tuple(dense), total.seen)


def merge(first: Portion, second: Portion, name: str) -> Portion:
    items = dict(first.items)
    for entry, part in second.items.items():
        if entry in items:
            part = add_cotangents((items[entry], part), (True, True), name=name)
        items[entry] = part
    return Portion(items)


def as_cotangent(part: Portion | Selected, value: Any, name: str) -> Cotangent:
    """The cotangent of a value from the cotangents of parts, with symbolic zeros elsewhere; checks
    that consumers saw these parts."""
    leaves = flatten(value)[0]
    prints = fingerprint(leaves)
    if isinstance(part, Portion):
        return Cotangent(put_in_places(part, value, prints, name), prints)
    for index, seen in part.seen:
        require_same_input(fingerprint_of(picked(value, index)), seen, name)
    return Cotangent(tuple(map(final_leaf, part.leaves)), prints)


def put_in_places(portion: Portion, value: Any, prints: Fingerprint, name: str) -> Leaves:
    """The leaves of a container's cotangent; a dual's item has places in value and tangents."""
    structure = flatten(value.value if type(value) is Dual else value)[1]
    children, width = Children.of(structure), max(1, structure.num_leaves)
    total: list[Any] = [None] * len(prints)
    for entry, part in portion.items.items():
        number = children.numbers.get(entry)
        first, stop = (0, 0) if number is None else children.firsts[number : number + 2]
        places = [start + n for start in range(0, len(prints), width) for n in range(first, stop)]
        if part.seen is not None:
            require_same_input(tuple([prints[place] for place in places]), part.seen, name)
        for place, leaf in zip(places, part.leaves, strict=True):
            total[place] = leaf
    return tuple(total)
