"""Entries: the entries of an array that an index names, without an array of its size."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.values.rows import Rows, loose_rows

WHOLE = slice(None)


class Entries(NamedTuple):
    """The entries that an index names: of the indexed ``axes``, with all other axes whole.

    ``numbers`` are flat, in C order over the indexed axes. They have the axes of the result of
    indexing, with length one for axes of the array that are taken whole; ``whole`` lists these: the
    axis of the result, and of the array.
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    numbers: np.ndarray
    whole: tuple[tuple[int, int], ...]

    @property
    def picked(self) -> tuple[int, ...]:
        """The axes of the result that are not axes of the array."""
        taken = {axis for axis, _ in self.whole}
        return tuple([axis for axis in range(self.numbers.ndim) if axis not in taken])

    def rows(self, cotangent: Any) -> Rows:
        """The cotangent of the array as loose rows, from the cotangent of the result."""
        order = (*self.picked, *[axis for axis, _ in self.whole])
        values = np.transpose(np.asarray(cotangent), order)
        lengths = [self.shape[axis] for _, axis in self.whole]
        values = values.reshape(self.numbers.size, *lengths)
        return loose_rows(self.shape, self.axes, self.numbers.ravel(), values)

    def rows_of_rows(self, rows: Rows) -> Rows:
        """The cotangent of the array as loose rows, from rows of the result."""
        rows = rows.expand(self.picked)
        places = dict(zip(rows.axes, rows.places, strict=True))
        index = [places[axis] if axis in self.picked else 0 for axis in range(self.numbers.ndim)]
        dims = [self.shape[axis] for axis in self.axes]
        indices = np.unravel_index(self.numbers[tuple(index)], dims)
        by_axis = dict(zip(self.axes, indices, strict=True))
        by_axis |= {axis: places[number] for number, axis in self.whole if number in places}
        return rows_at(self.shape, by_axis, rows.values)


def rows_at(shape: Sequence[int], places: dict[int, np.ndarray], values: np.ndarray) -> Rows:
    """Loose rows, from the numbers of their entries, axis by axis."""
    axes = tuple(sorted(places))
    dims = [shape[axis] for axis in axes]
    indices = np.ravel_multi_index([places[axis] for axis in axes], dims)
    return loose_rows(tuple(shape), axes, indices, values)


def transpose(rows: Rows, axes: Sequence[int]) -> Rows:
    """The cotangent of an array as loose rows, from rows of ``np.transpose(array, axes)``."""
    places = {axes[axis]: indices for axis, indices in zip(rows.axes, rows.places, strict=True)}
    shape = [0] * rows.ndim
    for axis, size in zip(axes, rows.shape, strict=True):
        shape[axis] = size
    others = [axes[axis] for axis in range(rows.ndim) if axis not in rows.axes]
    order = [1 + place for place in np.argsort(others)]
    return rows_at(shape, places, np.transpose(rows.values, (0, *order)))


def entries_of(index: Any, shape: Sequence[int]) -> Entries | None:
    """The entries of ``array[index]`` in an array of this shape; None if all axes are taken whole.

    ``:`` takes an axis whole, and another slice of the same length does not, so that the shape does
    not decide the kind of result. None, too, for a mask without axes.
    """
    parts = spelled_out(index, len(shape))
    named = [part for part in parts if part is not None and part is not Ellipsis]
    axes = tuple([axis for axis, part in enumerate(named) if not is_whole(part)])
    if not axes or any(isinstance(part, bool | np.bool_) for part in named):
        return None
    dims = [shape[axis] for axis in axes]  # steps: how far apart, in C order, neighbours are
    steps = {axis: math.prod(dims[place + 1 :]) for place, axis in enumerate(axes)}
    if [type(part) for part in parts if not isinstance(part, slice)] == [np.ndarray]:
        return entries_of_array(named, shape, steps)  # the usual case, in half of the time
    of_arrays = along_arrays(named, shape, steps)
    inner: list[Any] = []
    numbers, wide = np.zeros((), np.intp), []
    for axis, part in enumerate(named):
        along_axis, instead = of_arrays.get(axis) or along(part, shape[axis], steps.get(axis))
        numbers = numbers[..., np.newaxis] + along_axis
        inner.append(instead)
        wide.append(len(along_axis) if axis in steps else 2)
    others = iter(inner)
    index = tuple([part if part is None or part is Ellipsis else next(others) for part in parts])
    chosen = np.asarray(numbers[index])
    marked = np.broadcast_to(np.int8(0), wide)[index].shape if len(axes) < len(shape) else ()
    results = [place for place, size in enumerate(marked) if size != chosen.shape[place]]
    whole = [axis for axis in range(len(shape)) if axis not in steps]
    return Entries(tuple(shape), axes, chosen, tuple(zip(results, whole, strict=True)))


def entries_of_array(
    parts: Sequence[Any], shape: Sequence[int], steps: Mapping[int, int]
) -> Entries:
    """The entries of an index with one array of integers, and slices."""
    numbers: Any = None
    whole, axis = [], 0
    (array,) = [part for part in parts if type(part) is np.ndarray]
    ndim = len(parts) - 1 + array.ndim
    for place, part in enumerate(parts):
        if place in steps:
            size, step = shape[place], steps[place]
            along_axis = counted(part, size) * step if part is array else along(part, size, step)[0]
            along_axis = along_axis.reshape(
                (1,) * axis + along_axis.shape + (1,) * (ndim - axis - along_axis.ndim)
            )
            numbers = along_axis if numbers is None else numbers + along_axis
        else:
            whole.append((axis, place))
        axis += array.ndim if part is array else 1
    return Entries(tuple(shape), tuple(steps), numbers, tuple(whole))


def along_arrays(
    named: Sequence[Any], shape: Sequence[int], steps: Mapping[int, int]
) -> dict[int, tuple[np.ndarray, Any]]:
    """For each axis with an array of integers: numbers, and an index into them. The first axis has
    all numbers, since arrays are indexed together."""
    arrays = [axis for axis, part in enumerate(named) if isinstance(part, np.ndarray)]
    if not arrays:
        return {}
    flat = [counted(named[axis], shape[axis]) * steps[axis] for axis in arrays]
    total = np.asarray(sum(flat[1:], flat[0]))
    by_axis: dict[int, tuple[np.ndarray, Any]] = dict.fromkeys(arrays, (np.zeros(1, np.intp), 0))
    by_axis[arrays[0]] = (total.ravel(), np.arange(total.size).reshape(total.shape))
    return by_axis


def along(part: Any, size: int, step: int | None) -> tuple[np.ndarray, Any]:
    """The numbers along an axis with a slice or an integer, and an index into them."""
    if step is None:
        return np.zeros(1, np.intp), WHOLE
    if isinstance(part, slice):
        return np.arange(*part.indices(size)) * step, WHOLE
    return counted(np.asarray([part]), size) * step, 0


def spelled_out(index: Any, ndim: int) -> list[Any]:
    """An index as slices, integers, arrays of integers and ``None``, for every axis; and an
    Ellipsis that stands for no axis."""
    parts: list[Any] = []
    for part in index if isinstance(index, tuple) else (index,):
        if isinstance(part, list | tuple | range):
            part = np.asarray(part, None if len(part) else np.intp)
        if isinstance(part, np.ndarray) and part.dtype == bool and part.ndim:
            parts.extend(part.nonzero())
        elif isinstance(part, np.ndarray) and part.ndim == 0:
            parts.append(part.item())
        else:
            parts.append(part)
    count = sum([part is not None and part is not Ellipsis for part in parts])
    missing = [WHOLE] * (ndim - count)
    for place, part in enumerate(parts):
        if part is Ellipsis and missing:  # an empty one still keeps arrays of integers apart
            return [*parts[:place], *missing, *parts[place + 1 :]]
    return [*parts, *missing]


def is_whole(part: Any) -> bool:
    return isinstance(part, slice) and part == WHOLE


def counted(numbers: np.ndarray, size: int) -> np.ndarray:
    """Numbers of entries, counted from the first."""
    return numbers.astype(np.intp) % size
