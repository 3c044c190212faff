"""Blocks: the terms of a sum by programs, without the cost of single calls.

Items of one kind go in batches, once their program has run often enough to pay for a program of
many items. The first batch is compared with the item's program, row by row, and later ones now and
then with the tape.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from daskgrad.autodiff.programs.batches import Parted
from daskgrad.autodiff.programs.counters import count_up, counting
from daskgrad.autodiff.programs.items import Column, ItemRun, Kind, kind_of_item
from daskgrad.autodiff.programs.reasons import note_steps
from daskgrad.autodiff.programs.references import refers_to_others
from daskgrad.autodiff.programs.signatures import (
    Signature,
    are_same,
    opened_origins,
    signature_of,
    sort_of_leaf,
    taken_apart,
)
from daskgrad.autodiff.programs.store import FIRST_WAYS, Entry, Programs
from daskgrad.autodiff.programs.watch import References
from daskgrad.autodiff.programs.ways import LEAST, BatchProgram, Way
from daskgrad.autodiff.rules.declaration import Diverged
from daskgrad.autodiff.tape.traced_call import Pending, TermRun, TracedBlock
from daskgrad.autodiff.values.trees import LEAF, unflatten

AT_A_TIME = 32  # results that are held, where items go one by one
RUN, RUN_BYTES = 4096, 2**22  # items in batches whose results are held, and bytes of gradients
SERVED = 256  # items by their program before a batch is made: they take as long as recording
MOST_TRIED = 64  # items, to find one that goes a way
MOST_HINTS = 2**16  # of one entry
TRIALS = 16  # runs of a batch, after which it must bring enough rows a run

Result = tuple[Any, Sequence[Any]]  # a value, and its gradient
Part = tuple[np.ndarray, np.ndarray, list[Any]]  # places in a run, values, gradients
Run = list[Result | Pending | None] | TermRun


def trace_block(block: TracedBlock) -> Iterator[Run]:
    """The values and gradients of runs of items (see ``autodiff.libraries.registry``)."""
    items, start = known_items(block), 0
    while start < block.count:
        if items.are_for_the_tape:
            run: Run = [None] * min(AT_A_TIME, block.count - start)
        else:
            run = items.run(block, start)
        yield run
        start += len(run.values) if type(run) is TermRun else len(run)


def is_batched(block: TracedBlock) -> bool:
    """Whether items like a block's first go in batches (see ``autodiff.libraries.registry``)."""
    items = known_items(block)
    return not items.are_for_the_tape and items.goes_in_batches(block, 0)


def known_items(block: TracedBlock) -> "KnownItems":
    """The programs for the items of a block's sum."""
    items = block.kept.get(KnownItems)
    if items is None or not items.are_current:
        items = block.kept[KnownItems] = KnownItems(block.call(0)[0].fun.programs)
    return items


class KnownItems:
    """The programs for each kind of a sum's items."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._looks = programs.looks  # see ``signature_of``
        self._watch: References | None = None
        self._groups: dict[Kind, ItemGroup] = {}
        self._known: dict[Kind, tuple[ItemGroup, Entry | None]] = {}

    @property
    def are_current(self) -> bool:
        """Whether nothing has changed to which the model refers."""
        watch = self._watch
        if watch is None:
            return True
        if watch is not self._programs.watch or watch.has_changed():
            return False
        return not any([group.refers_to_others() for group in self._groups.values()])

    @property
    def are_for_the_tape(self) -> bool:
        """Whether no call of the model is compiled, or not yet."""
        is_impure = self._watch is not None and self._programs.impurity is not None
        return is_impure or self._programs.is_cold

    def run(self, block: TracedBlock, start: int) -> Run:
        """The results of items from ``start`` on: of many if the first goes in batches."""
        group, entry = self.look_up(block, start)
        is_in_batches = self.goes_in_batches(block, start)
        stop = min(start + (group.most if is_in_batches else AT_A_TIME), block.count)
        items = ItemRun(block, start, stop, self._looks, is_in_batches)
        kinds = [(places, *self.look_up(block, start + places[0])) for places in items.kinds()]
        parts: list[Part] = []
        for places, group, entry in kinds if is_in_batches else ():
            if len(places) >= LEAST and entry is not None:
                parts += group.by_batches(entry, items, np.asarray(places))
        whole = side_by_side(parts, items.count)
        if whole is not None:
            return whole
        count = items.count if parts else min(items.count, AT_A_TIME)
        results: list[Any] = [None] * count
        for done, values, gradients in parts:
            for place, result in zip(done, TermRun(values, gradients).each(), strict=True):
                results[place] = result
        for places, group, entry in kinds:
            for place in places:
                if place < count and results[place] is None:
                    if is_in_batches:  # it may have got another shape since it was known
                        group, entry = self.look_up(block, start + place)
                    results[place] = group.result(entry, items, place)
        return results

    def goes_in_batches(self, block: TracedBlock, number: int) -> bool:
        """Whether an item's program, by what the model reads, has served often enough."""

        def leaf_of(field: int, leaf: int) -> Any:
            return taken_apart(block.fields[field][number])[0][leaf]

        group, entry = self.look_up(block, number)
        served = SERVED if self._programs.is_exact else 0
        while entry is not None and not (entry.served >= served and entry.may_have_batches):
            if not entry.reads:
                return False
            entry = group.finer(entry, leaf_of)
        return entry is not None

    def look_up(self, block: TracedBlock, number: int) -> tuple["ItemGroup", Entry | None]:
        """The items that an item goes with, and the entry of its kind, if it gets programs."""
        flat = [taken_apart(field[number]) for field in block.fields]
        kind = kind_of_item(flat, self._looks)
        known = self._known.get(kind)
        if known is None:
            family = kind_of_item(flat, self._looks, sort_of_leaf)
            group = self._groups.get(family)
            if group is None or not group.serves_sizes:
                group = self._groups[family] = ItemGroup(block, number, kind, self._looks)
                self._watch = self._watch or group.watch
            known = self._known[kind] = group, group.entry_of(kind)
        return known


def side_by_side(parts: Sequence[Part], count: int) -> TermRun | None:
    """The results of batches in the order of their items, if these are all items, of one kind."""
    if not parts or sum([len(places) for places, *_ in parts]) < count:
        return None
    if len(parts) == 1:
        return TermRun(*parts[0][1:])
    columns = zip(*[gradients for *_, gradients in parts], strict=True)
    kinds = [{x if x is None else (x.shape[1:], x.dtype) for x in column} for column in columns]
    if any([len(kind) > 1 for kind in kinds]):
        return None
    of_rows = [next(iter(kind)) for kind in kinds]
    rows = [kind if kind is None else np.empty((count, *kind[0]), kind[1]) for kind in of_rows]
    run = TermRun(np.empty(count), rows)
    for places, values, gradients in parts:
        run.values[places] = values
        for rows, some in zip(run.gradients, gradients, strict=True):
            if rows is not None:
                rows[places] = some
    return run


class ItemGroup:
    """Items that differ in sizes alone: their shared inputs, and the places of their own leaves."""

    def __init__(self, block: TracedBlock, number: int, kind: Kind, looks: bool):
        call, arrays = block.call(number)
        nbytes = sum([getattr(array, "nbytes", 0) for array in arrays])
        self.most = max(AT_A_TIME, min(RUN, RUN_BYTES // max(nbytes, 1)))  # results that are held
        self._fun, self._programs = call.fun.fun, call.fun.programs
        self._programs.look_at(self._fun)
        passed, layout = call.layout(), self._programs.layout_of(self._fun, call)
        self.watch = self._programs.watch
        self._references = self._programs.references(self._fun)
        self._signature = signature_of(layout, looks, in_sum=True) if arrays else None
        self._origins = {
            place: origin
            for place, origin in enumerate(opened_origins(passed.leaves, call.origins()))
            if origin is not None and origin[0] < len(block.fields)
        }
        places = [] if self._signature is None else self._signature.places
        self._shared = layout.leaves
        self._inputs = [layout.leaves[place] for place in places]
        at = {place: number for number, place in enumerate(places)}
        self._own = [(at[n], *origin) for n, origin in self._origins.items() if n in at]
        self.serves_sizes = self._signature_for(kind) == self._signature

    def refers_to_others(self) -> bool:
        """Whether the model refers to other inputs by now."""
        return bool(self._references) and refers_to_others(
            self._fun, self._programs.watch, self._references
        )

    def _signature_for(self, kind: Kind) -> Signature | None:
        if self._signature is None:
            return None
        (*parts, kinds), places, structure, asked = self._signature
        kinds = list(kinds)
        for place, (field, leaf) in self._origins.items():
            kinds[place] = kind[field][2 + leaf]
        return Signature((*parts, tuple(kinds)), places, structure, asked)

    def entry_of(self, kind: Kind) -> Entry | None:
        """The entry of items of a kind. Nothing has changed since the block began."""
        signature = self._signature_for(kind) if self.serves_sizes else self._signature
        return self._programs.known_entry(signature)

    def result(self, entry: Entry | None, items: ItemRun, place: int) -> Result | Pending:
        """Value and gradient of an item, if it is not to be traced."""
        if entry is None:
            return Pending(None)
        key, answer = items.key_of(place), None
        hint = entry.hints.get(key, 0)
        pending = Pending((entry, hint))
        if self._programs.is_due:
            return pending
        if entry.ways:
            answer = self._programs.run(entry, self._inputs_of(items, place), hint)
            if answer is None:
                pending = Pending((entry, -len(entry.ways)))
            elif answer[-1] != hint and key is not None:
                if len(entry.hints) >= MOST_HINTS:
                    entry.hints.clear()
                entry.hints[key] = answer[-1]
        if answer is None and entry.reads:
            finer = self._entry_of_item(entry, items, place)
            return pending if finer is None else self.result(finer, items, place)
        if answer is None or not isinstance(answer[1][0], float) or len(answer[1]) > 1:
            return pending
        way, outputs, residuals, _ = answer
        value = outputs[0] if way.structure is LEAF else unflatten(way.structure, outputs)
        try:
            gradient = way.program.pull_examples(residuals)
        except Diverged:
            return pending
        if way.counted:
            count_up(way.counted)
        return value, gradient

    def _inputs_of(self, items: ItemRun, place: Any, taken: Callable = Column.leaf) -> list[Any]:
        """The inputs of an item's program; of many items', at places, with ``Column.rows``."""
        inputs = self._inputs.copy()
        for at, field, leaf in self._own:
            inputs[at] = taken(items.columns[field], place, leaf)
        return inputs

    def finer(self, entry: Entry, leaf_of: Callable[[int, int], Any]) -> Entry | None:
        """The entry of an item by what the model reads; ``leaf_of`` field and number."""
        leaves = {}
        for place in entry.reads:
            origin = self._origins.get(place)
            leaves[place] = self._shared[place] if origin is None else leaf_of(*origin)
        return self._programs.finer(entry, leaves)

    def _entry_of_item(self, entry: Entry, items: ItemRun, place: int) -> Entry | None:
        return self.finer(entry, lambda field, leaf: items.columns[field].leaf(place, leaf))

    def by_batches(self, entry: Entry, items: ItemRun, places: np.ndarray) -> Iterator[Part]:
        """The results of items of one kind, as far as they go in batches."""
        own = tuple([at for at, *_ in self._own])
        firsts = [items.columns[field].leaf(places[0], leaf) for _, field, leaf in self._own]
        if not firsts or not all([x.flags.c_contiguous for x in firsts if type(x) is np.ndarray]):
            entry.batches[0, own] = None
            return
        if len(entry.ways) > FIRST_WAYS:  # too many to try them all on all items
            hints = np.array([entry.hints.get(items.key_of(place), 0) for place in places.tolist()])
            for number in np.flatnonzero(np.bincount(hints) >= SERVED).tolist():
                yield from self._by_number(entry, number, own, items, places[hints == number])
            return
        for number in range(len(entry.ways)):
            if len(places) < LEAST:
                return
            places = yield from self._by_number(entry, number, own, items, places)
        kinds: dict[Entry | None, list[int]] = {}
        for place in places.tolist() if entry.reads else ():
            kinds.setdefault(self._entry_of_item(entry, items, place), []).append(place)
        for finer, some in kinds.items():
            if finer is not None and len(some) >= LEAST:
                yield from self.by_batches(finer, items, np.array(some))

    def _by_number(
        self, entry: Entry, number: int, own: Sequence[int], items: ItemRun, places: np.ndarray
    ) -> Generator[Part, None, np.ndarray]:
        """The results of items by the batch of the way of that number; returns the places of items
        that go other ways."""
        if (number, own) not in entry.batches:
            self._make_batch(entry, number, own, items, places)
        batch = entry.batches.get((number, own))
        if batch is not None:
            places = yield from self._by_way(batch, entry.ways[number], items, places)
            runs, rows = batch.tally
            if runs > TRIALS and rows < LEAST * runs:
                entry.batches[number, own] = None
        return places

    def _make_batch(
        self, entry: Entry, number: int, own: Sequence[int], items: ItemRun, places: np.ndarray
    ) -> None:
        """Makes the program of many items that go the way of that number, if there is one; it is
        compared with the program of one of them, row by row."""
        way, batch = entry.ways[number], None
        expected, tried = [], []
        with np.errstate(all="ignore"):
            for place in places[:MOST_TRIED].tolist():
                try:
                    outputs, residuals = way.program.forward(*self._inputs_of(items, place))
                    expected.append([*outputs, *way.program.pull_examples(residuals)])
                    tried.append(place)
                except Exception:  # it goes another way, or is for the tape
                    continue
            if not tried:
                return
            try:
                layout = self._programs.layout_of(self._fun, items.call(tried[0])[0])
                with counting(entry.watch.counters()):
                    settings = self._fun, layout, entry.signature, own, entry.watch
                    batch = self._programs.make_batch(way, *settings)
                if batch is not None:
                    inputs = self._inputs_of(items, np.array(tried), Column.rows)
                    rows = batch.run(*inputs, *way.program.seeds)
                    results = [[x if x is None else x[n] for x in rows] for n in range(len(tried))]
                    batch = batch if all(map(are_same, results, expected)) else None
            except Exception:  # no error of the model's: its program has run
                batch = None
        entry.batches[number, own] = batch

    def _by_way(
        self, batch: BatchProgram, way: Way, items: ItemRun, places: np.ndarray
    ) -> Generator[Part, None, np.ndarray]:
        """The results of items by batches; returns the places of items that go other ways."""
        left, programs = [places[:0]], self._programs
        for first in range(0, len(places), batch.size):
            part, results = places[first : first + batch.size], None
            while len(part) >= LEAST and results is None:
                batch.tally[0] += 1
                try:
                    inputs = self._inputs_of(items, part, Column.rows)
                    results = batch.run(*inputs, *way.program.seeds)
                except Parted as parted:
                    left.append(part[~parted.mask])
                    part = part[parted.mask]
                except Exception:  # the items raise it one by one
                    break
            if results is not None:
                batch.tally[1] += len(part)
                note_steps(way.program.steps * len(part))
                is_due, programs.calls = programs.is_due, programs.calls + 1
                if is_due:
                    value, *gradient = [x if x is None else x[0] for x in results]
                    called = items.call(part[0])
                    programs.check(self._fun, way, called, [value], partial(list, gradient))
                count_up(way.counted, len(part) - is_due)
                yield part, results[0], results[1:]
        return np.concatenate(left)
