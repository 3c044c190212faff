"""Local Jacobians: models that take and return values with slopes, by the chain rule.

A model's Jacobian takes as few products as its structure allows. Columns share a tangent if no
entry of the value has two of them (A. R. Curtis, M. J. D. Powell and J. K. Reid, "On the estimation
of sparse Jacobian matrices", 1974); a value with fewer entries is pulled back, entry by entry.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from daskgrad.autodiff.libraries import registry
from daskgrad.autodiff.models.duals import Dual, DualArguments, linearized
from daskgrad.autodiff.models.model import Model
from daskgrad.autodiff.models.tracing import require_numbers
from daskgrad.autodiff.values.carriers import carrier
from daskgrad.autodiff.values.cotangents import is_differentiable
from daskgrad.autodiff.values.slopes import (
    NO_COLUMNS,
    Left,
    Slopes,
    UnitSlopes,
    as_matrix,
    chained,
    stacked,
    taken_rows,
    widths,
    with_zeros,
)
from daskgrad.autodiff.values.trees import flatten, unflatten
from daskgrad.autodiff.values.vectors import unit

PER_PRODUCT = 1000  # columns: to find their structure takes as long as one product
Parts = list[tuple[Slopes, np.ndarray]]  # the inputs' slopes, and their columns' places


def unit_slopes(value: Any, first: int) -> Dual:
    """A value with its slopes by its entries, which are the columns from ``first`` on."""
    leaves, structure = flatten(value)
    slopes: list[Any] = [None] * len(leaves)
    for place, leaf in enumerate(leaves):
        if is_differentiable(leaf):
            shape, last = np.shape(leaf), first + np.size(leaf)
            slopes[place] = UnitSlopes(np.arange(first, last).reshape(shape))
            first = last
    return Dual(value, (unflatten(structure, slopes),))


@carrier
class LocalJacobian:
    """The function of a model on values with slopes; it leaves out slopes that take more than
    ``most`` products."""

    model: Model
    most: int

    def __call__(self, *args: Any, **kwargs: Any) -> Dual:
        arguments = DualArguments(args, kwargs)
        inner: list[Any] = arguments.directions[0]
        products = [slopes.products for slopes in inner if type(slopes) is Left]
        if products:
            structures: list[Any] = []
            outputs = arguments.function_of(self.model, structures)(*arguments.values)
            structure, slopes = structures[0], left(outputs, max(products))
        else:
            outputs, push, structure = linearized(self.model, arguments.renewed())
            slopes = LocalCall(self, arguments, outputs, push).slopes(inner)
        value = unflatten(structure, outputs)
        require_numbers(outputs, value, self.model)
        return Dual(value, (unflatten(structure, slopes),))


def left(outputs: Sequence[Any], products: int) -> list[Any]:
    return [Left(np.shape(leaf), products) if is_differentiable(leaf) else None for leaf in outputs]


class LocalCall:
    """One call of a model, with the map of its tangents."""

    def __init__(
        self, local: LocalJacobian, arguments: DualArguments, outputs: list[Any], push: Callable
    ):
        self._local, self._arguments, self._push = local, arguments, push
        self._backend: Any = registry.load(local.model.backend)
        self._inputs, self._outputs = arguments.values, outputs
        self._places = [n for n, leaf in enumerate(outputs) if is_differentiable(leaf)]
        leaves = [*self._inputs, *[outputs[place] for place in self._places]]
        self._is_real = not any(map(np.iscomplexobj, leaves))

    def slopes(self, inner: Sequence[Any]) -> list[Any]:
        """The slopes of the outputs, from the inputs' slopes."""
        matrices = list(map(as_matrix, inner, self._inputs))
        moved = self._moved(matrices)
        if moved is not None:
            return moved
        columns = np.unique(np.concatenate([NO_COLUMNS, *[m.columns for m in matrices]]))
        if len(columns) > PER_PRODUCT * self._local.most:
            return left(self._outputs, self._local.most + 1)
        sizes = [len(matrix.ends) for matrix in matrices]
        if not (self._is_real and sum(sizes) < len(columns)):
            return self._by_columns(matrices, columns)
        units = [
            as_matrix(unit_slopes(leaf, first).tangents[0], leaf)
            for leaf, first in zip(self._inputs, accumulate(sizes, initial=0), strict=False)
        ]
        outer, below = self._by_columns(units, np.arange(sum(sizes))), stacked(matrices)
        return [chained(slopes, below) if type(slopes) is Slopes else slopes for slopes in outer]

    def _moved(self, matrices: list[Slopes]) -> list[Any] | None:
        """The slopes without a product, if the model only moves entries; else None."""
        ends = accumulate([len(matrix.ends) for matrix in matrices])
        places = [
            np.arange(end - len(matrix.ends), end).reshape(matrix.shape)
            for end, matrix in zip(ends, matrices, strict=True)
        ]
        origins = self._backend.Dependence.moved(self._push, places)
        if origins is None:
            return None
        inner = stacked(matrices)
        slopes: list[Any] = [None] * len(self._outputs)
        for place in self._places:
            leaf = self._outputs[place]
            rows = np.full(np.size(leaf), -1) if origins[place] is None else origins[place]
            slopes[place] = inner.taken(np.shape(leaf), np.ravel(rows).astype(int))
            slopes[place].values = slopes[place].values.astype(np.result_type(leaf), copy=False)
        return slopes

    def _by_columns(self, matrices: list[Slopes], columns: np.ndarray) -> list[Any]:
        """The slopes by products with these columns."""
        local = [np.searchsorted(columns, matrix.columns) for matrix in matrices]
        depends = self._backend.Dependence(self._push, list(map(sets_of_rows, matrices, local)))
        sizes = [np.size(self._outputs[place]) for place in self._places]
        patterns = Patterns([depends.outputs[place] for place in self._places])
        colours = colours_of(patterns.sets, len(columns))
        pushes = int(colours.max(initial=-1)) + 1
        pulls = sum(sizes) if self._is_real else pushes
        products = min(pushes, pulls)
        if products > self._local.most:
            return left(self._outputs, products)
        parts = list(zip(matrices, local, strict=True))
        if pulls < pushes:
            colours, dense = np.arange(len(columns)), self._pulled(parts, len(columns))
        else:
            try:
                dense = self._pushed(parts, colours, pushes, depends.push)
            except NotImplementedError:  # no rule, or one for gradients alone
                colours, dense = np.arange(len(columns)), self._pulled(parts, len(columns))
        slopes: list[Any] = [None] * len(self._outputs)
        for number, place in enumerate(self._places):
            ends, taken, values = patterns.filled(number, dense[number], colours)
            slopes[place] = Slopes(np.shape(self._outputs[place]), ends, columns[taken], values)
        return slopes

    def _pushed(self, parts: Parts, colours: np.ndarray, count: int, push: Callable) -> list[Any]:
        """For each output an array with a row a colour, the sum of that colour's columns."""
        seeds = []
        for (matrix, local), leaf in zip(parts, self._inputs, strict=True):
            used = colours[local] >= 0
            places = colours[local][used], matrix.rows[used]
            dense = with_zeros(matrix.values[used], places, (count, len(matrix.ends)))
            seeds.append(dense.astype(np.result_type(leaf)).reshape(count, *matrix.shape))
        rows: list[list[Any]] = [[] for _ in self._places]
        for colour in range(count):
            columns = frozenset(np.flatnonzero(colours == colour).tolist())
            tangents = push([dense[colour] for dense in seeds], columns)
            for products, place in zip(rows, self._places, strict=True):
                products.append(np.ravel(tangents[place]))
        leaves = [self._outputs[place] for place in self._places]
        none = [np.empty((0, np.size(leaf)), np.result_type(leaf)) for leaf in leaves]
        return [np.stack(r) if r else empty for r, empty in zip(rows, none, strict=True)]

    def _pulled(self, parts: Parts, count: int) -> list[Any]:
        """For each output an array with a row a column, by its pullback."""
        function = self._arguments.function_of(self._local.model, [])
        _, tape = self._backend.trace(function, self._inputs)
        matrices = []
        for place in self._places:
            leaf = self._outputs[place]
            dtype, rows = np.result_type(leaf), []
            for row in range(np.size(leaf)):
                cotangents: list[Any] = [None] * len(self._outputs)
                (cotangents[place],) = unit([leaf], row)
                slopes: Any = np.zeros(count, dtype)
                for (matrix, local), pulled in zip(parts, tape.pull(cotangents), strict=True):
                    if pulled is not None:
                        terms = matrix.values * np.ravel(pulled)[matrix.rows]
                        slopes = (slopes + np.bincount(local, terms, count)).astype(dtype)
                rows.append(slopes)
            matrices.append(np.stack(rows, axis=1) if rows else np.zeros((count, 0), dtype))
        return matrices


def sets_of_rows(matrix: Slopes, columns: np.ndarray) -> Any:
    """The columns of each row as frozen sets, in the leaf's shape; one set if all are equal."""
    count = len(matrix.ends)
    first = columns[: matrix.ends[0]] if count else columns
    if columns.size == count * first.size and np.all(columns.reshape(count, first.size) == first):
        return frozenset(first.tolist())
    numbers, start, sets = columns.tolist(), 0, np.empty(count, object)
    known: dict[tuple[int, ...], frozenset[int]] = {}
    for row, end in enumerate(matrix.ends.tolist()):
        key = tuple(numbers[start:end])
        sets[row] = known.setdefault(key, frozenset(key))
        start = end
    return sets.reshape(matrix.shape)


class Patterns:
    """The columns of the entries of some leaves; ``sets`` has each set of columns once."""

    def __init__(self, columns: Sequence[Any]):
        numbers: dict[frozenset[int], int] = {}
        self._numbers: list[Any] = []  # the sets' numbers, entry by entry, or one for all entries
        for leaf in columns:
            if isinstance(leaf, np.ndarray):
                of_entries = [numbers.setdefault(entry, len(numbers)) for entry in leaf.flat]
                self._numbers.append(np.array(of_entries, np.intp))
            else:
                constant: frozenset[int] = frozenset()
                entry = constant if leaf is None else leaf
                self._numbers.append(numbers.setdefault(entry, len(numbers)))
        self.sets = list(numbers)
        self._ends = np.cumsum(list(map(len, self.sets)), dtype=np.intp)
        ascending = [column for pattern in self.sets for column in sorted(pattern)]
        self._columns = np.array(ascending, np.intp)

    def filled(
        self, number: int, products: np.ndarray, colours: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The ends of the rows of a leaf's matrix, and the columns and values of its entries, from
        ``products`` with a row a colour."""
        rows, size = self._numbers[number], products.shape[1]
        if type(rows) is int:  # in a tenth of the time
            shared = self._columns[self._ends[rows] - len(self.sets[rows]) : self._ends[rows]]
            ends = shared.size * np.arange(1, size + 1)
            return ends, np.tile(shared, size), products[colours[shared]].T.ravel()
        taken, ends = taken_rows(self._ends, rows)
        columns, places = self._columns[taken], np.repeat(np.arange(size), widths(ends))
        return ends, columns, products[colours[columns], places]


def colours_of(sets: Sequence[frozenset[int]], count: int) -> np.ndarray:
    """A colour for each column, the first that is free in all its sets; -1 if it is in no set."""
    sets_with: list[list[int]] = [[] for _ in range(count)]
    for number, columns in enumerate(sets):
        for column in columns:
            sets_with[column].append(number)
    used: list[set[int]] = [set() for _ in sets]
    free = [0] * len(sets)  # the first colour that is not used
    colours = np.full(count, -1)
    for column, numbers in enumerate(sets_with):
        if numbers:
            colour = max([free[number] for number in numbers])
            while any([colour in used[number] for number in numbers]):
                colour += 1
            colours[column] = colour
            for number in numbers:
                used[number].add(colour)
                while free[number] in used[number]:
                    free[number] += 1
    return colours
