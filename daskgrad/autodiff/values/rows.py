"""Rows: the cotangent of an array that was used only in part; all other entries are zero.

A term of a sum that indexes a shared array uses few of its rows, and so does a model that looks
some rows up. Their cotangents are kept and added as rows. The bits are those of arrays: an entry
was added to zeros, so it is never -0.0, and x + 0.0 is x for other entries.
"""

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from daskgrad.autodiff.values.carriers import carrier
from daskgrad.autodiff.values.descriptions import describe, imported
from daskgrad.autodiff.values.fingerprints import norm
from daskgrad.autodiff.values.trees import LEAF_TYPES

# -------------------------------------------------------------------------------------------------
# Coalescing: values of repeated places are added up, with the bits of a loop over them.

TURNS = 8  # entries of a place that are added together with other places' entries


def coalesce(
    indices: np.ndarray, values: np.ndarray, dtype: np.dtype | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Sorted unique indices, and for each the sum of its values, in their order, in ``dtype``, as
    if added to zeros; in new arrays."""
    dtype = dtype or values.dtype
    order = indices.argsort(kind="stable")
    ordered = indices[order]
    is_new = ordered[1:] != ordered[:-1]
    if np.count_nonzero(is_new) == len(is_new):
        sums = values[order].astype(dtype, copy=False)
        if sums.dtype.kind in "fc":
            sums += 0.0  # no -0.0
        return ordered, sums
    is_first = np.concatenate([[True], is_new])
    places = np.empty(len(indices), np.intp)
    places[order] = np.cumsum(is_first) - 1
    total = np.zeros((np.count_nonzero(is_first), *values.shape[1:]), dtype)
    add_at(total, places, values)
    return ordered[is_first], total


def add_at(array: np.ndarray, places: np.ndarray, values: np.ndarray) -> None:
    """``np.add.at(array, places, values)``, which is slow for rows, with the same bits.

    The first values of all places are added, then the second ones, and so on; then the further
    values of a place that has many, one after the other, as NumPy adds up rows.
    """
    if values.dtype != array.dtype:  # rounded after each addition
        return np.add.at(array, places, values)
    if values.size == len(values):  # numbers, also in rows of one
        return np.add.at(array.reshape(-1), places, values.reshape(-1))
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    stops = np.append(starts[1:], len(ordered))
    for turn in range(TURNS):
        present = starts[starts + turn < stops] + turn
        if not len(present):
            return
        array[ordered[present]] += values[order[present]]
    for start, stop in zip(starts + TURNS, stops, strict=True):
        if start < stop:
            place, further = ordered[start], values[order[start:stop]]
            array[place] = np.add.reduce(np.concatenate([array[place][np.newaxis], further]))


# -------------------------------------------------------------------------------------------- rows

SMALL = 2**16  # bytes: a smaller array is added as quickly as its rows are found
MANY = 4  # if the array has fewer than this many times the rows, an array is as quick


def are_many(count: int, shape: Sequence[int]) -> bool:
    """Whether an array of this shape is as quick as so many rows."""
    return MANY * count > math.prod(shape)


def is_small(array: Any) -> bool:
    """Whether the cotangent of an array is kept as rows only if somebody asked for rows."""
    return math.prod(array.shape) * array.dtype.itemsize <= SMALL


@carrier
class Rows:
    """An array of the given shape that is zero but for some rows: a gradient of looked-up entries.

    ``values[n]`` stands at entry ``indices[n]`` of the indexed ``axes``, counted in C order. For
    ``W[S]`` of a matrix, ``axes=(0,)`` and the indices are numbers of rows; for ``W[:, T]``,
    ``axes=(1,)`` and numbers of columns; for single entries, ``axes=(0, 1)``, and ``values`` has no
    axes but the first. ``places`` gives the indices axis by axis.

    Indices need not be sorted and may repeat: values of one index are added in their order, with
    the bits of a loop. Then they are sorted and unique. Arrays are copied only if necessary, and
    must not be written into afterwards.

    It is added to rows and arrays of its shape, and multiplied and divided by numbers; rows plus
    rows are rows, and rows plus an array an array. NumPy's functions do not take it: use
    ``to_dense()``, or its ``values``.

    Raises
    ------
    TypeError
        if the indices are not integers, or the values not numbers.
    ValueError
        if axes, indices or values do not fit the shape.

    See Also
    --------
    value_and_grad, replicate, optim.SGD

    Examples
    --------
    >>> table, chosen = np.ones((1_000_000, 2)), np.array([7, 3, 7])
    >>> rows = dg.grad(lambda W: dg.delayed(lambda W: np.sum(W[chosen]))(W), sparse=True)(table)
    >>> rows.indices, rows.values
    (array([3, 7]), array([[1., 1.],
           [2., 2.]]))
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    indices: np.ndarray
    values: np.ndarray
    is_asked: bool = True  # by the user; others become an array as soon as that is quicker

    __array_ufunc__ = None  # so that array + rows is rows' own addition

    def __post_init__(self) -> None:
        for array in self.arrays:
            if isinstance(array, np.ma.MaskedArray):
                raise TypeError(
                    f"rows got a masked array, {describe(array)}, whose mask would be lost"
                )
        self.shape = as_numbers(self.shape, "the shape of rows")
        self.axes = as_numbers(self.axes, "the axes of rows")
        self.indices, self.values = np.asarray(self.indices), np.asarray(self.values)
        if not self.indices.size:
            self.indices = self.indices.astype(np.intp)
        require_fitting(self)
        self.indices = self.indices.astype(np.intp, copy=False)
        if not (self.indices[1:] > self.indices[:-1]).all():
            self.indices, self.values = coalesce(self.indices, self.values)

    @property
    def dtype(self) -> np.dtype:
        return self.values.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return self.indices.nbytes + self.values.nbytes

    @property
    def places(self) -> tuple[np.ndarray, ...]:
        """The indices as one array of numbers for each of the axes."""
        return np.unravel_index(self.indices, self._dims)

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        return self.indices, self.values

    @property
    def _dims(self) -> tuple[int, ...]:
        return tuple([self.shape[axis] for axis in self.axes])

    def __repr__(self) -> str:
        along = ", ".join(map(str, self.axes))
        axes = f"axis {along}" if len(self.axes) == 1 else f"axes {along}"
        return f"Rows({len(self.indices)} of {self.dtype}{list(self.shape)} along {axes})"

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"{self!r} is no array; call its to_dense(), or use its values")

    def copy(self) -> "Rows":
        return self._loose(self.indices.copy(), self.values.copy())

    def blocks(self, nbytes: int) -> Iterator["Rows"]:
        """The rows in their order, as views of some rows each, with values of so many bytes, or of
        one row."""
        if self.values.nbytes <= nbytes:
            yield self
            return
        size = max(1, nbytes * len(self.indices) // self.values.nbytes)
        for begin in range(0, len(self.indices), size):
            part = slice(begin, begin + size)
            yield self._loose(self.indices[part], self.values[part])

    def _loose(self, indices: np.ndarray, values: np.ndarray) -> "Rows":
        return loose_rows(self.shape, self.axes, indices, values, self.is_asked)

    # ---- as arrays

    def to_dense(self) -> np.ndarray:
        """The array, with all its zeros."""
        array = np.zeros(self.shape, self.dtype)
        self.scatter(array, self.values)
        return array

    def to_scipy(self) -> Any:
        """A SciPy sparse array of two axes: by rows, by columns, or by entries in COO format.

        ValueError if it has another number of axes.
        """
        sparse = imported("scipy.sparse", "scipy", "to_scipy makes a sparse array of SciPy's")
        if self.ndim != 2:
            raise ValueError(f"SciPy's sparse arrays have two axes; {self!r} has {self.ndim}")
        entries = self.expand((0, 1))
        matrix = sparse.coo_array((entries.values, entries.places), shape=self.shape)
        kinds = {(0,): matrix.tocsr, (1,): matrix.tocsc}
        return kinds[self.axes]() if self.axes in kinds else matrix

    def expand(self, axes: Sequence[int]) -> "Rows":
        """The rows with further indexed axes."""
        axes = as_numbers(axes, "the axes of rows")
        if not set(axes) <= set(range(self.ndim)):
            raise ValueError(f"axes of {self!r} are 0 to {self.ndim - 1}; found {axes}")
        loose = expand_loose(self, axes)
        if loose is self:
            return self
        return Rows(loose.shape, loose.axes, loose.indices, loose.values, loose.is_asked)

    def gather(self, array: np.ndarray) -> np.ndarray:
        """The entries of an array at these places, in a new array.

        The array is as long as the rows along the indexed axes; other axes may be of any length.
        """
        view, index = self.locate(np.asarray(array))
        return view[index]

    def scatter(self, array: np.ndarray, values: Any) -> None:
        """Writes values into an array, at these places."""
        view, index = self.locate(array)
        view[index] = values

    def change(
        self,
        array: np.ndarray,
        values: np.ndarray,
        change: Callable[[Iterable[tuple[np.ndarray, np.ndarray]]], None],
    ) -> None:
        """Changes an array at these places.

        ``change`` gets pairs of entries of the array, which it changes in place, entry by entry,
        and of values: all rows together, or each row in its place, if the entries of a row are so
        far apart that reaching them once more takes longer.
        """
        view, index = self.locate(array)
        if len(self.axes) == 1 and are_far_apart(view):
            change(zip(map(view.__getitem__, index.tolist()), values, strict=True))
        else:
            entries = view[index]
            change([(entries, values)])
            view[index] = entries

    def locate(self, array: Any) -> tuple[np.ndarray, Any]:
        """An array with the indexed axes first, as one axis if possible, and the rows' index."""
        if array.ndim != self.ndim or any(array.shape[n] != self.shape[n] for n in self.axes):
            raise ValueError(f"{self!r} does not fit an array of shape {array.shape}")
        others = [axis for axis in range(self.ndim) if axis not in self.axes]
        view, count = array.transpose(*self.axes, *others), len(self.axes)
        if count == 1:
            return view, self.indices
        if not view.flags.c_contiguous:
            return view, self.places
        return view.reshape(math.prod(self._dims), *view.shape[count:]), self.indices

    # ---- arithmetic

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Rows):
            return merge(self, other)
        if isinstance(other, np.ndarray) and other.ndim:
            require_shape(self, other)
            total = other + np.zeros((), self.dtype)
            self.scatter(total, self.gather(total) + self.values)
            return total
        return self if is_number(other) and other == 0 else NotImplemented

    __radd__ = __add__

    def __neg__(self) -> "Rows":
        return self.with_values(-self.values)

    def __sub__(self, other: Any) -> Any:
        is_known = isinstance(other, Rows | np.ndarray) or is_number(other)
        return self + opposite(other, self) if is_known else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return opposite(self, other) + other

    def __mul__(self, factor: Any) -> Any:
        return self.with_values(self.values * factor) if is_number(factor) else NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> Any:
        return self.with_values(self.values / divisor) if is_number(divisor) else NotImplemented

    def with_values(self, values: np.ndarray) -> "Rows":
        """Rows at these places, with other values."""
        return Rows(self.shape, self.axes, self.indices, values, self.is_asked)

    def norm(self) -> float:
        """The 2-norm of all entries, in double precision."""
        return norm(np.ravel(self.values).astype(np.result_type(self.values, np.float64)))

    def dot(self, other: Any) -> Any:
        """The sum of the products with the entries of an array, or of rows, of its shape."""
        if not isinstance(other, Rows):
            array = np.asarray(other)
            require_shape(self, array)
            return np.vdot(self.values.conj(), self.gather(array))
        one, two = alike(self, other)
        _, first, second = np.intersect1d(one.indices, two.indices, True, return_indices=True)
        return np.vdot(one.values[first].conj(), two.values[second])


LINE = 64  # bytes of memory that are fetched together
LONG = 512  # entries of a row that take longer to reach than a call of NumPy's
LARGE = 2**27  # bytes of an array that caches, also of addresses, hold only small parts of


def are_far_apart(rows: np.ndarray) -> bool:
    """Whether an array is large, its rows are long, and a row's entries do not stand together."""
    is_long = rows.nbytes >= LARGE and math.prod(rows.shape[1:]) >= LONG
    return is_long and min(map(abs, rows.strides[1:])) >= LINE


LEAF_TYPES.add(Rows)


def is_number(factor: Any) -> bool:
    is_array = isinstance(factor, np.ndarray) and factor.ndim == 0
    return is_array or isinstance(factor, int | float | complex | np.number | np.bool_)


def opposite(term: Any, other: Any) -> Any:
    """Minus the term, in the type of its sum with another: unsigned ones would wrap."""
    dtypes = [summand.dtype for summand in (term, other) if isinstance(summand, Rows | np.ndarray)]
    if isinstance(term, Rows):
        return term.with_values(-term.values.astype(np.result_type(*dtypes)))
    return -term.astype(np.result_type(*dtypes)) if isinstance(term, np.ndarray) else -term


def require_shape(rows: Rows, array: np.ndarray) -> None:
    if array.shape != rows.shape:
        raise ValueError(f"{rows!r} does not fit an array of shape {array.shape}")


def as_numbers(value: Any, name: str) -> tuple[int, ...]:
    try:
        return tuple(map(operator.index, value))
    except TypeError:
        raise TypeError(f"{name} must be a tuple of integers; found {describe(value)}") from None


def require_fitting(rows: Rows) -> None:
    axes, dims = rows.axes, range(len(rows.shape))
    if min(rows.shape, default=0) < 0:
        raise ValueError(f"the shape of rows has a negative length: {rows.shape}")
    if not axes or list(axes) != sorted(set(axes)) or not set(axes) <= set(dims):
        raise ValueError(
            f"the axes of rows must be increasing numbers of axes of the shape {rows.shape}; "
            f"found {axes}"
        )
    if rows.indices.ndim != 1 or rows.indices.dtype.kind not in "iu":
        raise TypeError(
            f"indices of rows must be a vector of integers; found {describe(rows.indices)}"
        )
    if rows.values.dtype.kind not in "fciub":
        raise TypeError(f"values of rows must be numbers; found {describe(rows.values)}")
    expected = (len(rows.indices), *[rows.shape[axis] for axis in dims if axis not in axes])
    if rows.values.shape != expected:
        raise ValueError(
            f"values of rows must have the shape {expected}, for {len(rows.indices)} indices along "
            f"axes {axes} of {rows.shape}; found {rows.values.shape}"
        )
    count = math.prod([rows.shape[axis] for axis in axes])
    if len(rows.indices) and not 0 <= rows.indices.min() <= rows.indices.max() < count:
        raise ValueError(
            f"indices of rows must be from 0 to {count - 1}; found "
            f"{rows.indices.min()} to {rows.indices.max()}"
        )


def loose_rows(
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    indices: np.ndarray,
    values: np.ndarray,
    is_asked: bool = True,
) -> Rows:
    """Rows that wait to be added up: indices are in any order, and may repeat."""
    rows: Rows = object.__new__(Rows)
    rows.shape, rows.axes, rows.indices, rows.values = shape, axes, indices, values
    rows.is_asked = is_asked
    return rows


def expand_loose(rows: Rows, axes: Sequence[int]) -> Rows:
    """Rows with further indexed axes, in the order of these rows."""
    wanted = tuple(sorted({*rows.axes, *axes}))
    added = [axis for axis in wanted if axis not in rows.axes]
    if not added:
        return rows
    grids = np.ix_(np.arange(len(rows.indices)), *[np.arange(rows.shape[a]) for a in added])
    known = dict(zip(rows.axes, [place[grids[0]] for place in rows.places], strict=True))
    known |= dict(zip(added, grids[1:], strict=True))
    places = np.broadcast_arrays(*[known[axis] for axis in wanted])
    indices = np.ravel_multi_index(places, [rows.shape[axis] for axis in wanted])
    others = [axis for axis in range(rows.ndim) if axis not in rows.axes]
    sources = [1 + others.index(axis) for axis in added]
    values = np.moveaxis(rows.values, sources, range(1, 1 + len(added)))
    values = values.reshape(indices.size, *values.shape[1 + len(added) :])
    return loose_rows(rows.shape, wanted, indices.ravel(), values, rows.is_asked)


def merge(first: Rows, second: Rows) -> Any:
    """The sum of two: rows, or an array if the rows are many and nobody asked for rows."""
    is_asked = first.is_asked or second.is_asked
    first, second = alike(first, second)
    indices = np.concatenate([first.indices, second.indices])
    order = np.argsort(indices, kind="stable")
    ordered = indices[order]
    is_second = np.zeros(len(ordered), bool)  # of two of one index
    np.equal(ordered[1:], ordered[:-1], out=is_second[1:])
    places = np.flatnonzero(is_second)
    if not is_asked and are_many(len(ordered) - len(places), first._dims):
        return first.to_dense() + second.to_dense()
    dtype = np.result_type(first.dtype, second.dtype)
    values = np.concatenate([first.values, second.values], dtype=dtype)
    if not len(places):
        return loose_rows(first.shape, first.axes, ordered, values[order], is_asked)
    both = values[order[~is_second]]
    both[places - np.arange(1, len(places) + 1)] += values[order[places]]
    return loose_rows(first.shape, first.axes, ordered[~is_second], both, is_asked)


def disjoint_sum(terms: Sequence[Rows]) -> Any:
    """The sum of many, at once, with the bits of ``merge``; None if two share an entry."""
    shape, axes = terms[0].shape, terms[0].axes
    if any([term.shape != shape or term.axes != axes for term in terms]):
        return None
    indices = np.concatenate([term.indices for term in terms])
    order = indices.argsort()
    ordered = indices[order]
    if not (ordered[1:] > ordered[:-1]).all():
        return None
    values = np.concatenate([term.values for term in terms])[order]
    is_asked = any([term.is_asked for term in terms])
    total = loose_rows(shape, axes, ordered, values, is_asked)
    return total if is_asked or not are_many(len(ordered), total._dims) else total.to_dense()


def alike(first: Rows, second: Rows) -> tuple[Rows, Rows]:
    """Both with the axes of either."""
    if first.shape != second.shape:
        raise ValueError(f"{first!r} and {second!r} have different shapes")
    axes = (*first.axes, *second.axes)
    return first.expand(axes), second.expand(axes)


def aligned(first: Rows, second: Rows) -> tuple[Rows, Rows]:
    """Both with the axes and indices of either, and zeros for missing rows."""
    is_asked = first.is_asked or second.is_asked
    first, second = alike(first, second)
    indices = np.union1d(first.indices, second.indices)
    both = []
    for rows in (first, second):
        values = np.zeros((len(indices), *rows.values.shape[1:]), rows.dtype)
        values[np.searchsorted(indices, rows.indices)] = rows.values
        both.append(Rows(rows.shape, rows.axes, indices, values, is_asked))
    return both[0], both[1]


def dense_leaf(leaf: Any) -> Any:
    """Rows as an array; other leaves unchanged."""
    return leaf.to_dense() if isinstance(leaf, Rows) else leaf


def final_leaf(leaf: Any) -> Any:
    """Rows as an array unless somebody asked for rows; other leaves unchanged."""
    return leaf if isinstance(leaf, Rows) and leaf.is_asked else dense_leaf(leaf)


def no_rows(leaf: Any) -> Any:
    """The zero cotangent of an array, as rows."""
    array = np.asarray(leaf)
    nothing = np.zeros(0, np.intp)
    return Rows(array.shape, (0,), nothing, np.zeros((0, *array.shape[1:]), array.dtype))
