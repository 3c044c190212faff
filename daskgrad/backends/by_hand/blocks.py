"""Blocks: the terms of a sum, without what a single call costs beside the function."""

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from operator import is_
from typing import Any

import numpy as np
from numpy import float64, ndarray

from daskgrad.backends.by_hand.gradients import Wanted, is_leaf
from daskgrad.backends.by_hand.reverse import evaluate
from daskgrad.backends.traced_call import SIDE_BY_SIDE, TermRun, TracedBlock
from daskgrad.values.protection import BARE, protect, read_only_leaf
from daskgrad.values.trees import LEAF, LEAF_TYPES, flatten, unflatten

AT_A_TIME = 512  # results that are held, at the most
HELD_BYTES = 2**20  # of gradients among them, unless one has more

Result = tuple[Any, Sequence[Any]]  # a value, and its gradient


def trace_block(block: TracedBlock) -> Iterator[list[Result | None] | TermRun]:
    """The values and gradients of runs of items (see ``backends.protocol``)."""
    groups: dict[Hashable, Group] = block.kept
    shared = tuple(map(shared_structure, block.fields))
    if None not in shared:
        group = group_of(shared, block, 0, groups)
        if group.is_plain:
            for start in range(0, block.count, group.at_a_time):
                stop = start + group.at_a_time
                yield group.run([field[start:stop] for field in block.fields])
            return
    results = []
    for number, item in enumerate(zip(*block.fields, strict=True)):
        flat = [flatten(each) for each in item]
        group = group_of(tuple([structure for _, structure in flat]), block, number, groups)
        results.append(group.result([leaves for leaves, _ in flat]))
        if len(results) >= group.at_a_time:
            yield results
            results = []
    if results:
        yield results


def shared_structure(field: Sequence[Any]) -> Any:
    """The structure of all items, if they are leaves, or tuples of one class of leaves."""
    if isinstance(field, np.ndarray) or LEAF_TYPES.issuperset(map(type, field)):
        return LEAF
    kind, *others = set(map(type, field))
    if others or not issubclass(kind, tuple) or len(set(map(len, field))) > 1:
        return None
    leaves, structure = flatten(field[0])
    is_flat = structure.type is kind and all(map(is_, leaves, field[0]))
    are_leaves = LEAF_TYPES.issuperset(map(type, itertools.chain.from_iterable(field)))
    return structure if is_flat and are_leaves and len(leaves) == len(field[0]) else None


def group_of(
    kind: Hashable, block: TracedBlock, number: int, groups: "dict[Hashable, Group]"
) -> "Group":
    """The group of an item."""
    if kind not in groups:
        groups[kind] = Group(block, number)
    return groups[kind]


class Group:
    """The items of one kind: the arguments that they share, and where their own leaves go.

    ``is_plain``: the arguments are numbers, arrays and whole items, and what is differentiated is
    a number or array.
    """

    def __init__(self, block: TracedBlock, number: int):
        call, self._arrays = block.call(number)
        layout, origins = call.layout(), call.origins()
        self._own = [
            (place, *origin)
            for place, origin in enumerate(origins)
            if origin is not None and origin[0] < len(block.fields)
        ]
        are_own = [layout.places[place] is not None for place, *_ in self._own]
        self._is_alone = any(are_own) or not self._arrays  # its arrays are other ones each time
        nbytes = sum([np.asarray(array).nbytes for array in self._arrays])
        self.at_a_time = max(1, min(AT_A_TIME, HELD_BYTES // max(nbytes, 1)))
        self.is_plain = False
        if self._is_alone:
            return
        self._fun = call.fun
        self._leaves = layout.leaves
        self._structure = layout.structure
        self._are_leaves = layout.structure == flatten(((0.0,) * len(layout.leaves), {}))[1]
        self._given = self._arguments()
        self._wanted = Wanted(call.fun, layout.structure, layout.places)
        are_known = (BARE | {np.ndarray}).issuperset(map(type, layout.leaves))
        self.is_plain = self._given is not None and are_known and nbytes <= SIDE_BY_SIDE

    def _arguments(self) -> list[tuple[Any, int | None]] | None:
        """For each argument the leaf that all calls share, or the number of the field that it is;
        None if one is neither."""
        positional, named = self._structure.children()
        if named.num_leaves:
            return None
        origins = {place: origin for place, *origin in self._own}
        found: list[tuple[Any, int | None]] = []
        place = 0
        for part in positional.children():
            own = [origins.get(n) for n in range(place, place + part.num_leaves)]
            field = own[0][0] if own and own[0] else None
            if field is not None and own == [[field, n] for n in range(part.num_leaves)]:
                found.append((None, field))
            elif own == [None] and is_leaf(part):
                found.append((self._leaves[place], None))
            else:
                return None
            place += part.num_leaves
        return found

    def result(self, fields: Sequence[Sequence[Any]]) -> Result | None:
        """Value and gradient of an item, or ``None`` if it is to be traced."""
        if self._is_alone:
            return None
        leaves = list(self._leaves)
        for place, field, leaf in self._own:
            leaves[place] = fields[field][leaf]
        leaves = protect(leaves)
        args, kwargs = (leaves, {}) if self._are_leaves else unflatten(self._structure, leaves)
        return evaluate(self._fun, args, kwargs, self._wanted, self._arrays)

    def run(self, fields: Sequence[Sequence[Any]]) -> TermRun | list[Result | None]:
        """Values and gradients of consecutive items that are numbers or arrays."""
        assert self._given is not None
        streams: list[Any] = [
            itertools.repeat(leaf) if field is None else read_only_items(fields[field])
            for leaf, field in self._given
        ]
        values, columns = self._call_each(streams)
        if len(values) < len(fields[0]):
            raise RuntimeError("a StopIteration of the model ended the calls")
        rows = list(map(side_by_side, columns, self._arrays))
        if set(map(type, values)) == {np.float64}:
            return TermRun(np.fromiter(values, np.float64, len(values)), rows)
        pairs = enumerate(values)
        return [(value, [column[number].copy() for column in rows]) for number, value in pairs]

    def _call_each(self, streams: Sequence[Iterable[Any]]) -> tuple[list[Any], list[list[bytes]]]:
        """The values, and the gradients as bytes, copied while they are in the cache: in a third
        of the time that it takes to fill a row."""
        fun, wanted, arrays = self._fun, self._wanted, self._arrays
        width, single = wanted.count, wanted.single
        values: list[Any] = []
        columns: list[list[bytes]] = [[] for _ in arrays]
        append_value, append = values.append, columns[0].append
        shape, dtype = np.shape(arrays[0]), np.asarray(arrays[0]).dtype
        for pair in map(fun.fun, *streams):
            if type(pair) is not tuple or type(pair[0]) is not float64:
                pair = fun.pair(pair)
            value, given = pair  # of another length it is an error, which is told of by one item
            append_value(value)
            gradient = given if width == 1 else None
            if width > 1 and single is not None and type(given) is tuple and len(given) == width:
                gradient = given[single]
            if type(gradient) is ndarray and gradient.shape == shape and gradient.dtype is dtype:
                append(gradient.tobytes())  # as nearly always
            else:
                found = wanted.of([given], arrays)
                for column, array, each in zip(columns, arrays, found, strict=True):
                    column.append(np.asarray(each, np.asarray(array).dtype).tobytes())
        return values, columns


def side_by_side(column: Sequence[bytes], array: Any) -> np.ndarray:
    """Gradients with respect to an array, in rows."""
    rows = np.frombuffer(bytearray().join(column), np.asarray(array).dtype)
    return rows.reshape(len(column), *np.shape(array))


def read_only_items(items: Sequence[Any]) -> list[Any]:
    """The items as a model may have them; the rows of an array are protected with it."""
    kinds = set(map(type, items))
    if any([issubclass(kind, tuple) for kind in kinds]):
        (kind,) = kinds
        columns = list(map(read_only_items, zip(*items, strict=True)))
        rows = zip(*columns, strict=True)
        return list(rows) if kind is tuple else list(map(maker_of(kind), rows))
    if isinstance(items, np.ndarray) or np.ndarray not in kinds:
        return list(items)
    if len(kinds) > 1:
        return list(map(read_only_leaf, items))
    views = list(map(ndarray.view, items))
    for view in views:
        view.setflags(False)
    return views


def maker_of(kind: type) -> Callable[[Iterable[Any]], Any]:
    """What makes an item of a class of tuples, without its Python code if that is a NamedTuple's
    own."""
    if getattr(kind.__new__, "__module__", "").startswith("namedtuple_"):
        return partial(tuple.__new__, kind)
    return lambda row: kind(*row)
