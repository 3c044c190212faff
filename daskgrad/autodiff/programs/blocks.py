"""Blocks: the terms of a sum, by programs, without what a single call costs beside its program.

Items of one kind go in batches, once their program has run often enough to pay for one of many
items. The first batch is compared with it, row by row, and later ones now and then with the tape.
"""

from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.programs.batches import Parted
from daskgrad.autodiff.programs.purity import is_plain_class
from daskgrad.autodiff.programs.signatures import (
    Signature,
    are_same,
    in_order,
    kind_of_leaf,
    opened_layout,
    opened_origins,
    order_within,
    signature_of,
    sort_of_leaf,
    taken_apart,
    without_size,
)
from daskgrad.autodiff.programs.watch import slots_of
from daskgrad.autodiff.programs.ways import LEAST, BatchProgram, Way, make_batch
from daskgrad.autodiff.rules.declaration import Diverged
from daskgrad.autodiff.tape.traced_call import Pending, TermRun, TracedBlock
from daskgrad.autodiff.values.carriers import kept_or_made
from daskgrad.autodiff.values.trees import LEAF, LEAF_TYPES, unflatten

AT_A_TIME = 32  # results that are held, where items go one by one
RUN, RUN_BYTES = 4096, 2**22  # items in batches, and bytes of their gradients, that are held
SERVED = 256  # items of a kind by their program, before one of many is made: as recording takes
MOST_TRIED = 64  # items, to find one that goes a way
TRIALS = 16  # runs of a batch, after which it has to bring enough rows a run
MOST_KINDS = 1024  # of items that are known in later sums

Result = tuple[Any, Sequence[Any]]  # a value, and its gradient
Flat = list[tuple[list[Any], Any]]  # the leaves and the structure of each field of an item
Kind = tuple[tuple[Any, ...], ...]  # what items have in common that one program serves
Known = Any  # a ``programs.Entry``, or None for items that get no programs
Run = list[Result | Pending | None] | TermRun


def trace_block(block: TracedBlock) -> Iterator[Run]:
    """The values and gradients of runs of items (see ``autodiff.libraries.registry``)."""
    items, programs = block.kept.get(KnownItems), block.call(0)[0].fun.programs
    if items is None or not items.are_current:
        items = block.kept[KnownItems] = KnownItems(programs.looks)
    start = 0
    while start < block.count:
        stop = min(start + AT_A_TIME, block.count)
        if items.are_impure or programs.is_cold:
            yield [None] * (stop - start)
        else:
            run = items.run(block, start)
            stop = start + (len(run.values) if type(run) is TermRun else len(run))
            yield run
        start = stop


class KnownItems:
    """What is known of the items of a sum: the programs for each kind of them."""

    def __init__(self, looks: bool) -> None:
        self._looks = looks  # see ``signature_of``
        self._groups: dict[Kind, ItemGroup] = {}
        self._found: dict[Hashable, tuple[ItemGroup, Known]] = {}
        self._have_order = False  # of keys in dicts

    @property
    def are_current(self) -> bool:
        """Whether nothing has changed to which the model refers."""
        return all([group.is_current for group in list(self._groups.values())[:1]])

    @property
    def are_impure(self) -> bool:
        """Whether no call of the model is compiled."""
        return any([group.is_impure for group in list(self._groups.values())[:1]])

    def run(self, block: TracedBlock, start: int) -> Run:
        """The results of the items from number ``start`` on: of many if they go in batches."""
        group, entry = self._look_up(block, start, flat_item(block, start))
        if entry is not None and entry.served >= SERVED:
            run = self._by_batches(block, start, min(start + group.most, block.count))
            if run is not None:
                return run
        stop = min(start + AT_A_TIME, block.count)
        return [self._result(block, number) for number in range(start, stop)]

    def _by_batches(self, block: TracedBlock, start: int, stop: int) -> Run | None:
        """The results of these items, if there are batches of them."""
        count = stop - start
        columns = [Column(f[start:stop], self._looks, self._have_order) for f in block.fields]
        run = Rowwise(count)
        for places in places_of_kinds([keys for column in columns for keys in column.keys], count):
            flat, had_order = flat_item(block, start + places[0]), self._have_order
            group, entry = self._look_up(block, start + places[0], flat)
            if self._have_order is not had_order:  # the items' kinds do not tell all
                return None
            if len(places) >= LEAST and entry is not None:
                items = Stacked(block, start, np.asarray(places), columns)
                group.run_batches(entry, items, run)
        if not run.are_done.any():
            return None
        if run.are_done.all():
            return TermRun(run.values, run.gradients)
        done = [self._result(block, start + n) for n in np.flatnonzero(~run.are_done).tolist()]
        rest = iter(done)
        each = TermRun(run.values, run.gradients).each()
        return [each[n] if run.are_done[n] else next(rest) for n in range(count)]

    def _result(self, block: TracedBlock, number: int) -> Result | Pending:
        """Value and gradient of an item, unless it is to be traced."""
        flat = flat_item(block, number)
        group, entry = self._look_up(block, number, flat)
        return group.result(entry, flat) or Pending(entry)

    def _look_up(self, block: TracedBlock, number: int, flat: Flat) -> tuple["ItemGroup", Known]:
        """The items that an item goes with, and what is known of those like it."""
        key_of = kind_of_item if self._have_order else memory_of_item
        key = key_of(flat, self._looks)
        return self._found.get(key) or self._look_further(block, number, flat, key)

    def _look_further(
        self, block: TracedBlock, number: int, flat: Flat, key: Hashable
    ) -> tuple["ItemGroup", Known]:
        for group in self._groups.values():
            if key in group.known:  # in another block, or in an earlier sum
                break
        else:
            family = family_of_item(flat, self._looks)
            if any([order for _, order, *_ in family]):
                self._have_order, key = True, kind_of_item(flat, self._looks)
            known = self._groups.get(family)
            if known is None or not known.serves_sizes:
                known = ItemGroup(block, number, flat, self._looks)
            group = known
            self._groups[family] = group
        found = self._found[key] = group, group.look_up(flat, key)
        return found


class Rowwise:
    """The results of consecutive items, as batches fill them in."""

    def __init__(self, count: int):
        self.values = np.empty(count)
        self.gradients: list[Any] = []
        self.are_done = np.zeros(count, bool)

    def fill(self, places: np.ndarray, values: np.ndarray, gradients: Sequence[Any]) -> bool:
        """Takes in results, unless they are of another kind than those of other items."""
        count = len(self.values)
        if len(places) == count:
            self.values, self.gradients = values, list(gradients)
        else:
            if not self.are_done.any():
                self.gradients = [
                    None if rows is None else np.empty((count, *rows.shape[1:]), rows.dtype)
                    for rows in gradients
                ]
            if list(map(kind_of_rows, gradients)) != list(map(kind_of_rows, self.gradients)):
                return False
            self.values[places] = values
            for rows, some in zip(self.gradients, gradients, strict=True):
                if rows is not None:
                    rows[places] = some
        self.are_done[places] = True
        return True


def kind_of_rows(rows: Any) -> Any:
    return None if rows is None else (rows.dtype, rows.shape[1:])


class Column:
    """One field of consecutive items, leaf by leaf; ``keys`` tell the items' kinds apart."""

    def __init__(self, items: Any, looks: bool, have_order: bool):
        self.keys: list[list[Any]] = []
        self._leaves: list[Any] = [items]
        self._flats: list[Any] = []
        if isinstance(items, np.ndarray):
            is_whole = items.dtype.kind in "biu" and (items.ndim > 1 or not looks)
            if is_whole or items.dtype.kind in "fc":
                return
            items = list(items)  # constants
        columns = columns_of(items)
        if columns is not None:
            self._leaves = columns
            self.keys = [keys for keys in [keys_of(leaves, looks) for leaves in columns] if keys]
        else:
            self._flats = list(map(taken_apart, items))
            key_of = kind_of_item if have_order else memory_of_item
            self.keys = [[key_of([flat], looks) for flat in self._flats]]

    def leaf(self, place: int, number: int) -> Any:
        """The leaf of that number of the item at a place."""
        return self._flats[place][0][number] if self._flats else self._leaves[number][place]

    def rows(self, places: np.ndarray, number: int) -> np.ndarray:
        """The leaves of that number of some items of one kind, side by side."""
        leaves = None if self._flats else self._leaves[number]
        if isinstance(leaves, np.ndarray):
            are_all = len(places) == places[-1] - places[0] + 1
            return leaves[places[0] : places[-1] + 1] if are_all else leaves[places]
        return np.array([self.leaf(place, number) for place in places.tolist()])


def columns_of(items: Sequence[Any]) -> list[Any] | None:
    """The leaves of each number, of items that are leaves themselves, or tuples, dicts or objects
    of one structure with nothing but leaves in them; None of others."""
    kinds = set(map(type, items))
    if kinds <= LEAF_TYPES:
        return [items]
    columns: Any = None
    kind, *others = kinds
    is_tuple = kind is tuple or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    if not others and is_tuple and len(set(map(len, items))) == 1:
        columns = list(zip(*items, strict=True))
    elif not others and (kind is dict or (is_plain_class(kind) and not slots_of(kind))):
        dicts = items if kind is dict else list(map(vars, items))
        names, *rest = set(map(tuple, dicts))
        order: Any = None if rest else in_order(names) if kind is dict else names
        columns = order and [[item[name] for item in dicts] for name in order]
    if columns and all([LEAF_TYPES.issuperset(map(type, leaves)) for leaves in columns]):
        return columns
    return None


def keys_of(leaves: Sequence[Any], looks: bool) -> list[Any]:
    """Keys that tell kinds of leaves apart; none where all are of one kind."""
    kinds = set(map(type, leaves))
    if kinds in ({float}, {np.float64}):
        return []
    keys: list[Any] = []
    if kinds == {np.ndarray}:
        keys = list(map(memory_of_array, leaves))
    else:
        keys = [
            memory_of_array(x) if type(x) is np.ndarray else kind_of_leaf(x, looks) for x in leaves
        ]
    return [] if keys.count(keys[0]) == len(keys) else keys


def places_of_kinds(keys: Sequence[list[Any]], count: int) -> Iterator[Sequence[int]]:
    """The places of the items of each kind, which has keys of its own."""
    if not keys:
        return iter([range(count)])
    kinds: dict[Any, list[int]] = {}
    for place, key in enumerate(keys[0] if len(keys) == 1 else zip(*keys, strict=True)):
        kinds.setdefault(key, []).append(place)
    return iter(kinds.values())


def flat_item(block: TracedBlock, number: int) -> Flat:
    return [taken_apart(field[number]) for field in block.fields]


def kind_of_item(flat: Flat, looks: bool) -> Kind:
    return tuple(
        [
            (structure, order_within(structure), *[kind_of_leaf(leaf, looks) for leaf in leaves])
            for leaves, structure in flat
        ]
    )


def family_of_item(flat: Flat, looks: bool) -> Kind:
    """The same, whatever its size."""
    return tuple(
        [
            (structure, order_within(structure), *[sort_of_leaf(leaf, looks) for leaf in leaves])
            for leaves, structure in flat
        ]
    )


def memory_of_item(flat: Flat, looks: bool) -> tuple:
    """The same where no dict has an order, in less time: strides tell more kinds apart."""
    if len(flat) == 1:  # most items are one array
        ((leaves, structure),) = flat
        if structure is LEAF and type(leaves[0]) is np.ndarray:
            return memory_of_array(leaves[0])
    parts = [structure for _, structure in flat]
    for leaves, _ in flat:
        if {np.ndarray}.issuperset(map(type, leaves)):
            parts += map(memory_of_array, leaves)
        else:
            parts += [
                memory_of_array(leaf) if type(leaf) is np.ndarray else kind_of_leaf(leaf, looks)
                for leaf in leaves
            ]
    return tuple(parts)


memory_of_array = attrgetter("shape", "dtype", "strides")


class ItemGroup:
    """The items that differ in sizes alone: the inputs that they share, and where their own leaves
    go. ``known``: of items that this sum or an earlier one has met, by their keys."""

    def __init__(self, block: TracedBlock, number: int, flat: Flat, looks: bool):
        self._looks = looks
        call, arrays = block.call(number)
        nbytes = sum([getattr(array, "nbytes", 0) for array in arrays])
        self.most = max(AT_A_TIME, min(RUN, RUN_BYTES // max(nbytes, 1)))  # results that are held
        passed = call.layout()
        layout = opened_layout(passed)
        self._fun = call.fun
        self._signature = signature_of(layout, looks) if arrays else None
        self._leaves = [
            (place, *origin)
            for place, origin in enumerate(opened_origins(passed.leaves, call.origins()))
            if origin is not None and origin[0] < len(block.fields)
        ]
        places = [] if self._signature is None else self._signature.places
        self._inputs = [layout.leaves[place] for place in places]
        at = {place: number for number, place in enumerate(places)}
        self._own = [(at[each[0]], *each[1:]) for each in self._leaves if each[0] in at]
        self.serves_sizes = self._signature_for(kind_of_item(flat, looks)) == self._signature
        self._programs = self._fun.programs
        self._programs.look_at(self._fun.fun)
        self._watch = self._programs.watch
        self.known: dict[Hashable, Known] = {}
        if self._signature is not None and self.serves_sizes:
            self.known = self._programs.known_items(self._shared())

    @property
    def is_current(self) -> bool:
        watch = self._watch
        return watch is self._programs.watch and watch is not None and not watch.has_changed()

    @property
    def is_impure(self) -> bool:
        return self._programs.impurity is not None

    def _signature_for(self, kind: Kind) -> Signature | None:
        if self._signature is None:
            return None
        (*others, kinds), places, structure, asked = self._signature
        own = list(kinds)
        for place, field, leaf in self._leaves:
            own[place] = kind[field][2 + leaf]
        return Signature((*others, tuple(own)), places, structure, asked)

    def _shared(self) -> Hashable:
        """What tells groups apart: by their programs where items have the same keys, and by the
        inputs of these, which items of other sorts have at other places."""
        assert self._signature is not None
        *others, kinds = self._signature.key
        own = {place for place, *_ in self._leaves}
        shared = [without_size(kind) if n in own else kind for n, kind in enumerate(kinds)]
        return (*others, tuple(shared), tuple(self._leaves))

    def look_up(self, flat: Flat, key: Hashable) -> Known:
        """What is known of items like this one. Nothing has changed since the block began."""

        def find() -> Known:
            signature = self._signature
            if self.serves_sizes:
                signature = self._signature_for(kind_of_item(flat, self._looks))
            return self._programs.known_entry(signature)

        return kept_or_made(self.known, key, find, MOST_KINDS)

    def result(self, entry: Known, flat: Flat) -> Result | None:
        """Value and gradient of an item, or ``None`` if it is to be traced."""
        if entry is None or not entry.ways or self._programs.is_due:
            return None
        found = self._programs.run(entry, self._inputs_of(flat))
        entry.served += 1
        if found is None or type(found[1][0]) is not np.float64 or len(found[1]) > 1:
            return None
        way, outputs, residuals = found
        value = outputs[0] if way.structure is LEAF else unflatten(way.structure, outputs)
        try:
            return value, way.program.pull_examples(residuals)
        except Diverged:
            return None

    def _inputs_of(self, flat: Flat) -> list[Any]:
        """The inputs of an item's program."""
        inputs = self._inputs.copy()
        for at, field, leaf in self._own:
            inputs[at] = flat[field][0][leaf]
        return inputs

    def run_batches(self, entry: Any, items: "Stacked", run: Rowwise) -> None:
        """Evaluates items of one kind, as far as they go in batches."""
        firsts = [items.columns[field].leaf(items.places[0], leaf) for _, field, leaf in self._own]
        if not firsts or not all([x.flags.c_contiguous for x in firsts if type(x) is np.ndarray]):
            return
        own, rest = tuple([at for at, *_ in self._own]), np.arange(len(items.places))
        for number, way in enumerate(entry.ways):
            if len(rest) < LEAST:
                return
            if (number, own) not in entry.batches:
                self._make_batch(entry, number, own, items, rest)
            batch = entry.batches.get((number, own))
            if batch is not None:
                rest = self._run_way(batch, way, items, rest, run)
                runs, rows = batch.tally
                if runs > TRIALS and rows < LEAST * runs:
                    entry.batches[number, own] = None

    def _rows_of(self, items: "Stacked", rows: np.ndarray) -> list[Any]:
        """The inputs of many items' program."""
        inputs = self._inputs.copy()
        for at, field, leaf in self._own:
            inputs[at] = items.columns[field].rows(items.places[rows], leaf)
        return inputs

    def _make_batch(
        self, entry: Any, number: int, own: Sequence[int], items: "Stacked", rest: np.ndarray
    ) -> None:
        """Makes the program of many items that go the way of that number, if there is one; it is
        compared with the program of one of them, row by row."""
        way = entry.ways[number]
        expected, those = [], []
        with np.errstate(all="ignore"):
            for row in rest[:MOST_TRIED].tolist():
                try:
                    flat = flat_item(items.block, items.number(row))
                    outputs, residuals = way.program.forward(*self._inputs_of(flat))
                    expected.append([*outputs, *way.program.pull_examples(residuals)])
                    those.append(row)
                except Exception:  # it goes another way, or is for the tape
                    continue
            if not those:
                return
            call, _ = items.block.call(items.number(those[0]))
            try:
                layout = opened_layout(call.layout())
                batch = make_batch(self._fun.fun, layout, entry.signature, own)
                some = [] if batch is None else self._rows_of(items, np.array(those))
                rows = [] if batch is None else batch.run(*some, *way.program.seeds)
            except Exception:  # no error of the model's: its program has run
                batch = None
        if batch is not None:
            results = [[x if x is None else x[n] for x in rows] for n in range(len(those))]
            batch = batch if all(map(are_same, results, expected)) else None
        entry.batches[number, own] = batch

    def _run_way(
        self, batch: BatchProgram, way: Way, items: "Stacked", rest: np.ndarray, run: Rowwise
    ) -> np.ndarray:
        """Evaluates the ``rest`` of some items by batches; those are left that go other ways."""
        left, programs = [rest[:0]], self._programs
        for first in range(0, len(rest), batch.size):
            part, results = rest[first : first + batch.size], None
            while len(part) >= LEAST and results is None:
                batch.tally[0] += 1
                try:
                    results = batch.run(*self._rows_of(items, part), *way.program.seeds)
                except Parted as parted:
                    left.append(part[~parted.mask])
                    part = part[parted.mask]
                except Exception:  # the items raise it one by one
                    break
            if results is not None and run.fill(items.places[part], results[0], results[1:]):
                batch.tally[1] += len(part)
                is_due, programs.calls = programs.is_due, programs.calls + 1
                if is_due:
                    value, *gradient = [x if x is None else x[0] for x in results]
                    called = items.block.call(items.number(part[0]))
                    programs.check(self._fun.fun, way, called, [value], partial(list, gradient))
        return np.concatenate(left)


class Stacked(NamedTuple):
    """Items of one kind: their places in a run of a block that begins with item ``start``, and the
    fields of the run."""

    block: TracedBlock
    start: int
    places: np.ndarray
    columns: Sequence[Column]

    def number(self, row: int) -> int:
        return self.start + int(self.places[row])
