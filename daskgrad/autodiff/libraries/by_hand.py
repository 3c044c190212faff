"""The backend of models that bring their own gradient: the function returns value and gradient."""

import itertools
import pickle
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from functools import partial
from operator import is_
from sys import getrefcount
from typing import Any

import numpy as np
import optree
from numpy import float64, ndarray

from daskgrad.autodiff.tape.traced_call import SIDE_BY_SIDE, TermRun, TracedBlock
from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.carriers import carrier
from daskgrad.autodiff.values.descriptions import argument_name, describe
from daskgrad.autodiff.values.pickling import Pickles
from daskgrad.autodiff.values.protection import BARE, protect, read_only_leaf
from daskgrad.autodiff.values.trees import LEAF, LEAF_TYPES, flatten, unflatten

# -------------------------------------------------------------------------------------------------
# Functions that return value and gradient, as a model calls them, and as they travel.


class WithGradient:
    """A function that returns value and gradient; called, it returns the value.

    ``name`` is that of its model.
    """

    __slots__ = ("__weakref__", "fun", "name")

    def __init__(self, fun: Callable, name: str):
        self.fun = fun
        self.name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        watching = WATCHING.get()
        if watching is not None:
            return watching(self, args, kwargs)
        return self.pair(self.fun(*args, **kwargs))[0]

    def pair(self, given: Any) -> tuple[Any, Any]:
        """The pair that the function returned: one real number, and whatever the gradient is."""
        if type(given) is not tuple or len(given) != 2:
            raise TypeError(
                f"model {self.name!r} brings its own gradient (gradient=True), and must return a "
                f"pair (value, gradient); found {describe(given)}"
            )
        value = given[0]
        if type(value) is np.float64:
            return given
        return self._number(value), given[1]

    def _number(self, value: Any) -> Any:
        if isinstance(value, float):
            return np.float64(value)
        is_real = isinstance(value, np.floating | np.ndarray) and value.dtype.kind == "f"
        if not is_real or value.shape:
            raise TypeError(
                f"model {self.name!r} brings its own gradient (gradient=True), so its value must "
                f"be one real number; found {describe(value)}"
            )
        return value[()]


# what gets the calls of such functions in the place of the function, while one is linearized
WATCHING: ContextVar[Callable | None] = ContextVar("calls are watched", default=None)


def prepare(fun: Any) -> Callable:
    """A model's function, loaded if it was sent."""
    return fun.load() if hasattr(fun, "daskgrad_digest") else fun


def run(fun: Callable, args: tuple, kwargs: dict) -> Any:
    """The value of a call."""
    return fun(*args, **kwargs)


# -------------------------------------------------------------------------------------- as bytes

_pickles = Pickles()


def dumps(fun: Any) -> bytes:
    """Pickles a function; that of the user's by itself, which is kept if it has not changed."""
    if type(fun) is not WithGradient:
        return b"f" + _pickles.dumps(fun)
    name = fun.name.encode()
    return b"g%d:" % len(name) + name + _pickles.dumps(fun.fun)


def loads(data: Any) -> Callable:
    view = memoryview(data)
    if bytes(view[:1]) == b"f":
        return pickle.loads(view[1:])
    digits = bytes(view[1:32]).split(b":")[0]
    start = 2 + len(digits)
    stop = start + int(digits)
    return WithGradient(pickle.loads(view[stop:]), str(view[start:stop], "utf-8"))


# -------------------------------------------------------------------------------------------------
# Gradients that a function returned: which entry belongs to which array, and whether it fits.


class Wanted:
    """Which gradients are wanted of calls whose arguments have one structure.

    ``structure`` is that of (args, kwargs), and ``places`` has for each leaf the number of the
    array that is differentiated there, or None; one array may be at several places. ``count`` is
    the number of positional arguments, and ``single`` that of the only one that is differentiated,
    if it is no container.
    """

    def __init__(
        self, fun: WithGradient, structure: optree.PyTreeSpec, places: Sequence[int | None]
    ):
        args = structure.child(0).children()
        self._name = fun.name
        self._fun = fun.fun
        self.count = len(args)
        self._parts: list[tuple[int, Any, list[tuple[int, int]]]] = []
        start = 0
        for number, part in enumerate(args):
            stop = start + part.num_leaves
            own = [(n, at) for n, at in enumerate(places[start:stop]) if at is not None]
            if own:
                self._parts.append((number, part, own))
            start = stop
        if any(place is not None for place in places[start:]):
            raise TypeError(
                f"model {self._name!r} brings the gradient by its positional arguments "
                f"(gradient=True), and a keyword argument is differentiated; pass it by position"
            )
        self.single = None
        if len(self._parts) == 1 and is_leaf(self._parts[0][1]):
            self.single = self._parts[0][0]

    def of(self, given: Any, arrays: Sequence[Any]) -> list[Any]:
        """The gradient of each array, in an array that nobody else holds.

        Empties ``given``, a list with what the function returned as gradient.
        """
        entries = given if self.count == 1 else self._entries(given.pop())
        if self.single is not None:  # as nearly always
            cell = [entries[self.single]]
            del entries, given[:]
            if fits(cell[0], arrays[0]):
                return [owned(cell)]
            (number, part, _), *_ = self._parts
            return [self._checked(self._leaves(cell[0], part, number)[0], arrays[0], number)]
        found: list[Any] = [None] * len(arrays)
        for number, part, own in self._parts:
            leaves = self._leaves(entries[number], part, number)
            for place, at in own:
                each = self._checked(leaves[place], arrays[at], number)
                found[at] = each if found[at] is None else found[at] + each  # it is used twice
        return found

    def _entries(self, given: Any) -> Sequence[Any]:
        if type(given) is tuple and len(given) == self.count:
            return given
        raise TypeError(
            f"the gradient of model {self._name!r} must be a tuple with an entry for each of its "
            f"{self.count} positional arguments, None where it has no derivative; found "
            f"{describe(given)}"
        )

    def _leaves(self, entry: Any, part: Any, number: int) -> list[Any]:
        leaves, structure = flatten(entry)
        if structure != part and entry is not None:
            raise ValueError(
                f"{self._what(number)} must have the argument's structure, {part}; found "
                f"{describe(entry)}"
            )
        return [None] * part.num_leaves if entry is None else leaves

    def _checked(self, gradient: Any, array: Any, number: int) -> Any:
        what = self._what(number)
        if gradient is None:
            raise TypeError(
                f"{what} was asked for, and the model returned None: it has no such derivative"
            )
        checked = cotangents.check(gradient, array, what)
        return checked.copy() if isinstance(checked, np.ndarray) else checked

    def _what(self, number: int) -> str:
        argument = argument_name(self._fun, number)
        return f"the gradient of model {self._name!r} with respect to {argument!r}"


def is_leaf(part: optree.PyTreeSpec) -> bool:
    return bool(optree.treespec_is_leaf(part))


def fits(gradient: Any, array: Any) -> bool:
    """Whether a gradient needs no conversion."""
    return (
        type(gradient) is np.ndarray
        and type(array) is np.ndarray
        and gradient.shape == array.shape
        and gradient.dtype is array.dtype
    )


def owned(cell: list[Any]) -> Any:
    """The array in a list, or a copy if anybody else holds it: it may be the function's own, which
    the next call writes into."""
    array = cell.pop()
    if getrefcount(array) != ALONE or array.base is not None or not array.flags.carray:
        return array.copy()
    return array


def count_references(cell: list[Any]) -> int:
    array = cell.pop()
    return getrefcount(array)


ALONE = count_references([np.zeros(2)])  # in this version of Python


# -------------------------------------------------------------------------------------------------
# Reverse mode of a model that brings its gradient: the tape is that gradient.


def trace(fun: Any, arrays: Sequence[Any]) -> tuple[list[Any], "Tape"]:
    """The value of a call, and its gradient (see ``autodiff.libraries.registry``)."""
    if type(fun.fun) is not WithGradient:  # what takes tangents, which come from a gradient
        raise NotImplementedError(
            "a second derivative was asked for of a model that brings its own gradient "
            "(gradient=True): there is no rule for that gradient; leave gradient=True out, and "
            "write the model in NumPy, or take differences of gradients, dg.grad(fun)(x + h)"
        )
    layout = fun.layout()
    args, kwargs = unflatten(layout.structure, layout.leaves)
    wanted = Wanted(fun.fun, layout.structure, layout.places)
    value, gradient = evaluate(fun.fun, args, kwargs, wanted, arrays)
    fun.structure = LEAF
    return [value], Tape(gradient)


def evaluate(
    fun: WithGradient, args: Sequence[Any], kwargs: dict, wanted: Wanted, arrays: Sequence[Any]
) -> tuple[Any, list[Any]]:
    """The value of a call, and the gradient of each array."""
    pair = fun.pair(fun.fun(*args, **kwargs))
    value, cell = pair[0], [pair[1]]
    del pair  # whose references are counted
    return value, wanted.of(cell, arrays)


@carrier
class Tape:
    """The gradient of one real number, to be scaled by the cotangent. It stays in its process: it
    is as large as the arguments, and the model may run again."""

    gradient: list[Any]

    def pull(self, cotangents: Sequence[Any]) -> list[Any]:
        """Maps the cotangent (or None) to one (or None) per array."""
        (factor,) = cotangents
        if factor is None:
            return [None] * len(self.gradient)
        if factor == 1.0:
            return list(self.gradient)
        return [g.dtype.type(factor) * g for g in self.gradient]

    def held_arrays(self) -> list[np.ndarray]:
        return [g for g in self.gradient if isinstance(g, np.ndarray)]


# -------------------------------------------------------------------------------------------------
# Blocks: the terms of a sum, without what a single call costs beside the function.

AT_A_TIME = 512  # results that are held, at the most
HELD_BYTES = 2**20  # of gradients among them, unless one has more

Result = tuple[Any, Sequence[Any]]  # a value, and its gradient


def trace_block(block: TracedBlock) -> Iterator[list[Result | None] | TermRun]:
    """The values and gradients of runs of items (see ``autodiff.libraries.registry``)."""
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


# -------------------------------------------------------------------------------------------------
# Forward mode of a model that brings its gradient: tangents by the dot product.


class Mark:
    """Stands for an array, of which ``number`` is one."""

    __slots__ = ("number",)

    def __init__(self, number: int):
        self.number = number


def linearize(
    fun: Callable[..., Sequence[Any]], arrays: Sequence[Any]
) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
    """Runs ``fun`` once; returns its outputs and the map of tangents (``libraries.registry``).

    ``fun`` calls one function that brings its gradient, and passes its arguments on to it.
    """
    gradients: list[list[Any]] = []

    def watch(called: WithGradient, args: tuple, kwargs: dict) -> Any:
        leaves, structure = flatten((args, kwargs))
        places = [leaf.number if type(leaf) is Mark else None for leaf in leaves]
        leaves = [arrays[leaf.number] if type(leaf) is Mark else leaf for leaf in leaves]
        args, kwargs = unflatten(structure, leaves)
        before = WATCHING.set(None)
        try:
            wanted = Wanted(called, structure, places)
            value, gradient = evaluate(called, args, kwargs, wanted, arrays)
        finally:
            WATCHING.reset(before)
        gradients.append(gradient)
        return value

    before = WATCHING.set(watch)
    try:
        (value,) = fun(*map(Mark, range(len(arrays))))
    finally:
        WATCHING.reset(before)
    (gradient,) = gradients

    def push(tangents: Sequence[Any]) -> list[Any]:
        there = [
            np.sum(g * t).real for g, t in zip(gradient, tangents, strict=True) if t is not None
        ]
        return [np.sum(there, dtype=value.dtype)]

    return [value], push


# --------------------------------------------- the backend of models that bring their own gradient

finds_writes = False
