"""The backend of models that bring their own gradient: the function returns value and gradient."""

import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import optree

from daskgrad.autodiff.libraries.registry import GradientTape
from daskgrad.autodiff.tape import run as run
from daskgrad.autodiff.tape.traced_call import SIDE_BY_SIDE, TermRun, TracedBlock
from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.descriptions import argument_name, describe
from daskgrad.autodiff.values.memory import owned
from daskgrad.autodiff.values.pickling import Pickles
from daskgrad.autodiff.values.protection import BARE, protect
from daskgrad.autodiff.values.trees import LEAF, LEAF_TYPES, flatten, unflatten

# -------------------------------------------------------------------------------------------------
# Functions that return value and gradient, as a model calls them, and as they travel.


class WithGradient:
    """A function that returns value and gradient, of the model ``name``; a call returns the value.

    A call whose arguments have a ``Mark`` adds its gradient to the marks' list.
    """

    __slots__ = ("__weakref__", "fun", "name")

    def __init__(self, fun: Callable, name: str):
        self.fun = fun
        self.name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, structure = flatten((args, kwargs))
        marks = [leaf for leaf in leaves if type(leaf) is Mark]
        if not marks:
            return self.pair(self.fun(*args, **kwargs))[0]
        arrays, gradients = marks[0].arrays, marks[0].gradients
        places = [leaf.number if type(leaf) is Mark else None for leaf in leaves]
        leaves = [arrays[leaf.number] if type(leaf) is Mark else leaf for leaf in leaves]
        value, gradient = evaluate(self, leaves, structure, places, arrays)
        gradients.append(gradient)
        return value

    def pair(self, result: Any) -> tuple[Any, Any]:
        """The pair that the function returned: one real number, and whatever the gradient is."""
        if type(result) is not tuple or len(result) != 2:
            raise TypeError(
                f"model {self.name!r} brings its own gradient (gradient=True), and must return a "
                f"pair (value, gradient); found {describe(result)}"
            )
        value, gradient = result
        if isinstance(value, float):
            return np.float64(value), gradient
        is_real = isinstance(value, np.floating | np.ndarray) and value.dtype.kind == "f"
        if not is_real or value.shape:
            raise TypeError(
                f"model {self.name!r} brings its own gradient (gradient=True), so its value must "
                f"be one real number; found {describe(value)}"
            )
        return value[()], gradient


def prepare(fun: Any) -> Callable:
    """A model's function, loaded if it was sent."""
    return fun.load() if hasattr(fun, "daskgrad_digest") else fun


_pickles = Pickles()


def dumps(fun: Any) -> bytes:
    """Pickles a function; the user's by itself, as its bytes are kept until it changes."""
    if type(fun) is WithGradient:
        return pickle.dumps((fun.name, _pickles.dumps(fun.fun)))
    return pickle.dumps((None, _pickles.dumps(fun)))


def loads(data: Any) -> Callable:
    name, function = pickle.loads(data)
    fun = pickle.loads(function)
    return fun if name is None else WithGradient(fun, name)


# -------------------------------------------------------------------------------------------------
# Gradients that a function returned: which entry belongs to which array, and whether it fits.


class GradientReader:
    """Reads the gradients that a function returns for arguments of one structure.

    ``places`` has for each leaf of (args, kwargs) the index of the array that is differentiated
    there, or None; one array may be at several places. ``count`` is the number of positional
    arguments; ``single`` is the index of the one that is differentiated, if it is the only one and
    no container.
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
            pairs = [(n, at) for n, at in enumerate(places[start:stop]) if at is not None]
            if pairs:
                self._parts.append((number, part, pairs))
            start = stop
        if any(place is not None for place in places[start:]):
            raise TypeError(
                f"model {self._name!r} brings the gradient by its positional arguments "
                f"(gradient=True), and a keyword argument is differentiated; pass it by position"
            )
        is_single = len(self._parts) == 1 and self._parts[0][1].is_leaf()
        self.single = self._parts[0][0] if is_single else None

    def read(self, cell: list[Any], arrays: Sequence[Any]) -> list[Any]:
        """The gradient of each array, in arrays that nobody else holds: the function may write into
        its own again. Empties ``cell``, which has the gradient as the function returned it."""
        entries: Sequence[Any] = tuple(cell) if self.count == 1 else self._entries(cell[0])
        if self.single is not None and fits(entries[self.single], arrays[0]):  # as nearly always
            cell[0] = entries[self.single]
            del entries
            return [owned(cell, 0)]
        cell.clear()
        summed: list[Any] = [None] * len(arrays)
        for number, part, pairs in self._parts:
            leaves = self._leaves(entries[number], part, number)
            for place, at in pairs:
                term = self._checked(leaves[place], arrays[at], number)
                summed[at] = term if summed[at] is None else summed[at] + term  # it is used twice
        return summed

    def _entries(self, gradient: Any) -> Sequence[Any]:
        if type(gradient) is tuple and len(gradient) == self.count:
            return gradient
        raise TypeError(
            f"the gradient of model {self._name!r} must be a tuple with an entry for each of its "
            f"{self.count} positional arguments, None where it has no derivative; found "
            f"{describe(gradient)}"
        )

    def _leaves(self, entry: Any, part: Any, number: int) -> list[Any]:
        leaves, structure = flatten(entry)
        if structure != part and entry is not None:
            raise ValueError(
                f"{self._subject(number)} must have the argument's structure, {part}; found "
                f"{describe(entry)}"
            )
        return [None] * part.num_leaves if entry is None else leaves

    def _checked(self, gradient: Any, array: Any, number: int) -> Any:
        subject = self._subject(number)
        if gradient is None:
            raise TypeError(
                f"{subject} was asked for, and the model returned None: it has no such derivative"
            )
        checked = cotangents.check(gradient, array, subject)
        return checked.copy() if isinstance(checked, np.ndarray) else checked

    def _subject(self, number: int) -> str:
        argument = argument_name(self._fun, number)
        return f"the gradient of model {self._name!r} with respect to {argument!r}"


def fits(gradient: Any, array: Any) -> bool:
    """Whether a gradient needs no conversion."""
    are_arrays = type(gradient) is np.ndarray and type(array) is np.ndarray
    return are_arrays and gradient.shape == array.shape and gradient.dtype is array.dtype


def evaluate(
    fun: WithGradient,
    leaves: Sequence[Any],
    structure: optree.PyTreeSpec,
    places: Sequence[int | None],
    arrays: Sequence[Any],
) -> tuple[Any, list[Any]]:
    """The value of the call on these leaves, and the gradient of each array."""
    reader = GradientReader(fun, structure, places)
    args, kwargs = unflatten(structure, leaves)
    pair = fun.pair(fun.fun(*args, **kwargs))
    value, cell = pair[0], [pair[1]]
    del pair  # references to the gradient are counted
    return value, reader.read(cell, arrays)


# -------------------------------------------------------------------------------------------------
# Both modes: the gradient is the only residual, to be scaled by cotangents and tangents.


def trace(fun: Any, arrays: Sequence[Any]) -> tuple[list[Any], GradientTape]:
    """The value of a call, and its gradient (see ``autodiff.libraries.registry``)."""
    if type(fun.fun) is not WithGradient:  # a model on duals, with tangents by a gradient
        raise NotImplementedError(
            "a second derivative was asked for of a model that brings its own gradient "
            "(gradient=True): there is no rule for that gradient; leave gradient=True out, and "
            "write the model in NumPy, or take differences of gradients, dg.grad(fun)(x + h)"
        )
    layout = fun.layout()
    value, gradient = evaluate(fun.fun, layout.leaves, layout.structure, layout.places, arrays)
    fun.structure = LEAF
    return [value], GradientTape(gradient)


class Mark:
    """Stands for the array of that number while a call is linearized."""

    __slots__ = ("arrays", "gradients", "number")

    def __init__(self, number: int, arrays: Sequence[Any], gradients: list[Any]):
        self.number = number
        self.arrays = arrays
        self.gradients = gradients


def linearize(
    fun: Callable[..., Sequence[Any]], arrays: Sequence[Any]
) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
    """Runs ``fun`` once; returns its outputs and the map of tangents (``libraries.registry``).

    ``fun`` calls one function that brings its gradient, and passes its arguments on to it.
    """
    gradients: list[list[Any]] = []
    (value,) = fun(*[Mark(number, arrays, gradients) for number in range(len(arrays))])
    (gradient,) = gradients

    def push(tangents: Sequence[Any]) -> list[Any]:
        pairs = zip(gradient, tangents, strict=True)
        products = [np.sum(g * t).real for g, t in pairs if t is not None]
        return [np.sum(products, dtype=value.dtype)]

    return [value], push


# -------------------------------------------------------------------------------------------------
# Blocks: the terms of a sum, without the cost of a single call beside the function.

AT_A_TIME = 512  # results that are held, at the most
HELD_BYTES = 2**20  # of gradients among them, unless one has more

Term = tuple[Any, list[Any]]  # a value, and the gradient of each array


def trace_block(block: TracedBlock) -> Iterator[list[Term | None] | TermRun]:
    """The values and gradients of runs of items (see ``autodiff.libraries.registry``)."""
    terms = block.kept.get(TermCalls)
    if terms is None:
        terms = block.kept[TermCalls] = TermCalls(block)
    for start in range(0, block.count, terms.at_a_time):
        yield terms.run([field[start : start + terms.at_a_time] for field in block.fields])


class TermCalls:
    """The calls of a sum's terms; the first argument is the item.

    How items are built does not matter to gradients. If items are differentiated themselves, or
    arguments are objects that a run may change, the terms are traced one by one.
    """

    def __init__(self, block: TracedBlock):
        call, self._arrays = block.call(0)
        layout = call.layout()
        self._fun = call.fun
        self._nbytes = sum([np.asarray(array).nbytes for array in self._arrays])
        self.at_a_time = max(1, min(AT_A_TIME, HELD_BYTES // max(self._nbytes, 1)))
        positional, named = layout.structure.children()
        item, *shared = positional.children()
        fields = [flatten(field[0])[1] for field in block.fields]
        self._is_zip = item.type is tuple and item.children() == fields
        are_items = (self._is_zip or fields == [item]) and not named.num_leaves
        are_shared = all([place is None for place in layout.places[: item.num_leaves]])
        are_plain = (BARE | {np.ndarray}).issuperset(map(type, layout.leaves))
        self._is_together = bool(self._arrays) and are_items and are_shared and are_plain
        if self._is_together:
            self._reader = GradientReader(call.fun, layout.structure, layout.places)
            leaves = iter(layout.leaves[item.num_leaves :])
            self._shared = [(part, [*itertools.islice(leaves, part.num_leaves)]) for part in shared]

    def run(self, fields: Sequence[Sequence[Any]]) -> TermRun | list[Term | None]:
        """Values and gradients of consecutive items, which have these fields."""
        count = len(fields[0])
        if not self._is_together:
            return [None] * count
        items: Any = list(map(read_only_items, fields))
        items = zip(*items, strict=True) if self._is_zip else items[0]
        pairs = map(self._fun.fun, items, *itertools.starmap(repeated, self._shared))
        if self._nbytes > SIDE_BY_SIDE:
            results: list[Term | None] = []
            for pair in map(self._fun.pair, pairs):
                value, cell = pair[0], [pair[1]]
                del pair  # references to the gradient are counted
                results.append((value, self._reader.read(cell, self._arrays)))
            return self._require_all(results, count)
        values, columns = self._read_each(pairs)
        self._require_all(values, count)
        rows = list(map(rows_of, columns, self._arrays))
        if set(map(type, values)) == {np.float64}:
            return TermRun(np.fromiter(values, np.float64, count), rows)
        return [(v, [column[number].copy() for column in rows]) for number, v in enumerate(values)]

    def _require_all(self, results: list[Any], count: int) -> list[Any]:
        if len(results) < count:
            raise RuntimeError("a StopIteration of the model ended the calls")
        return results

    def _read_each(self, pairs: Iterable[Any]) -> tuple[list[Any], list[list[bytes]]]:
        """The values, and the gradients as bytes, copied while they are in the cache: in a third
        of the time that it takes to fill a row."""
        fun, reader, arrays = self._fun, self._reader, self._arrays
        width, single = reader.count, reader.single
        values: list[Any] = []
        columns: list[list[bytes]] = [[] for _ in arrays]
        append_value, append = values.append, columns[0].append
        shape, dtype = np.shape(arrays[0]), np.asarray(arrays[0]).dtype
        float64, ndarray = np.float64, np.ndarray
        for pair in pairs:
            if type(pair) is not tuple or type(pair[0]) is not float64:
                pair = fun.pair(pair)
            value, entries = pair  # of another length it is an error, which one item tells of
            append_value(value)
            is_usual = single is not None and type(entries) is tuple and len(entries) == width
            gradient = entries[single] if is_usual else None
            if type(gradient) is ndarray and gradient.shape == shape and gradient.dtype is dtype:
                append(gradient.tobytes())  # as nearly always
            else:
                gradients = reader.read([entries], arrays)
                for column, array, leaf in zip(columns, arrays, gradients, strict=True):
                    column.append(np.asarray(leaf, np.asarray(array).dtype).tobytes())
        return values, columns


def rows_of(column: Sequence[bytes], array: Any) -> np.ndarray:
    """Gradients with respect to an array, in rows."""
    rows = np.frombuffer(bytearray().join(column), np.asarray(array).dtype)
    return rows.reshape(len(column), *np.shape(array))


def repeated(part: optree.PyTreeSpec, leaves: list[Any]) -> Iterator[Any]:
    """An argument that all calls share; its lists and dicts are each call's own."""
    if part.is_leaf():
        return itertools.repeat(leaves[0])
    return (unflatten(part, leaves) for _ in itertools.repeat(None))


def read_only_items(items: Sequence[Any]) -> Iterable[Any]:
    """The items, protected from the model; the rows of an array are protected with it."""
    kinds = set(map(type, items))
    if isinstance(items, np.ndarray) or BARE.issuperset(kinds):
        return list(items)
    if kinds == {np.ndarray}:
        views = list(map(np.ndarray.view, items))
        for view in views:
            view.setflags(False)
        return views
    kind, *others = kinds
    is_tuple = kind is tuple or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    if is_tuple and not others and len(set(map(len, items))) == 1 and len(items[0]):
        if LEAF_TYPES.issuperset(map(type, itertools.chain.from_iterable(items))):
            columns = map(read_only_items, zip(*items, strict=True))
            rows = zip(*columns, strict=True)
            return rows if kind is tuple else itertools.starmap(kind, rows)
    return (protect([item])[0] for item in items)


# --------------------------------------------- the backend of models that bring their own gradient

finds_writes = False
