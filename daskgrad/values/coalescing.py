"""Coalescing: values of repeated places are added up, with the bits of a loop over them."""

import numpy as np

TURNS = 8  # entries of a place that are added together with those of other places


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
        found = values[order].astype(dtype, copy=False)
        if found.dtype.kind in "fc":
            found += 0.0  # no -0.0
        return ordered, found
    is_first = np.concatenate([[True], is_new])
    places = np.empty(len(indices), np.intp)
    places[order] = np.cumsum(is_first) - 1
    total = np.zeros((np.count_nonzero(is_first), *values.shape[1:]), dtype)
    add_at(total, places, values)
    return ordered[is_first], total


def add_at(array: np.ndarray, places: np.ndarray, values: np.ndarray) -> None:
    """``np.add.at(array, places, values)``, which is slow for rows, with the same bits.

    First those are added that come first in their place, then those that come second, and so on;
    and where a place has many, the others one after the other, as NumPy adds up rows.
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
        here = starts[starts + turn < stops] + turn
        if not len(here):
            return
        array[ordered[here]] += values[order[here]]
    for start, stop in zip(starts + TURNS, stops, strict=True):
        if start < stop:
            place, rest = ordered[start], values[order[start:stop]]
            array[place] = np.add.reduce(np.concatenate([array[place][np.newaxis], rest]))
