"""Arrays as bytes: pickles arrays with their strides, so that results keep their bits.

NumPy pickles an array that is neither in C nor in Fortran order as a copy in C order, and sums and
products of the copy may differ in the last bits. Here the array's memory is pickled, once for all
arrays that share it, together with shape, strides and offset.
"""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from daskgrad.values.memory import OWN_DTYPES, own_dtype


def reduce_array(array: np.ndarray) -> Any:
    """The result of a pickler's ``reducer_override`` for an array.

    Raises ``pickle.PicklingError`` if its entries have gaps or overlap in memory that no array
    owns; and for a strided array of a class derived from NumPy's.
    """
    if array.dtype.hasobject:
        return NotImplemented
    if type(array) is not np.ndarray:
        return as_numpy_does(array)
    owner = owner_of(array)
    if owner is not array:
        start = address(array) - address(owner)
        is_writeable = array.flags.writeable
        return show_memory, (owner, start, array.shape, array.strides, array.dtype, is_writeable)
    return NotImplemented if array.flags.forc else with_axes_in_order(array)


def with_axes_in_order(array: np.ndarray) -> tuple[Callable, tuple]:
    """An array as an array in C order, whose axes are then permuted back."""
    sequence = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    ordered = array.transpose(sequence)
    if not ordered.flags.c_contiguous:
        raise pickle.PicklingError(
            f"an array with strides {array.strides} cannot be pickled: it does not own its memory"
        )
    back = [sequence.index(axis) for axis in range(array.ndim)]
    return load_transposed, (*np.ndarray.__reduce_ex__(ordered, 5)[:2], back)


def load_transposed(load: Callable, args: tuple, sequence: list[int]) -> np.ndarray:
    return load(*args).transpose(sequence)


def as_numpy_does(array: np.ndarray) -> Any:
    """Leaves an array of a derived class to its own pickling, unless that loses strides."""
    if not array.flags.forc:
        kind = type(array).__name__
        raise pickle.PicklingError(
            f"a {kind} with strides {array.strides} cannot be pickled: it would lose them"
        )
    return NotImplemented


def show_memory(
    owner: np.ndarray, start: int, shape: tuple, strides: tuple, dtype: Any, is_writeable: bool
) -> np.ndarray:
    """An array on the memory of another one, from ``start`` bytes after its beginning."""
    memory = owner_of(owner).reshape(-1, order="A").view(np.uint8)
    array = np.ndarray(shape, dtype, memory, start, strides)
    array.flags.writeable &= is_writeable
    return array


def reduce_dtype(dtype: np.dtype) -> Any:
    """As ``reduce_array``, for a dtype: one equal to NumPy's own arrives as NumPy's own."""
    own = own_dtype(dtype)
    return (np.dtype, (own.str,)) if own is OWN_DTYPES.get(own.char) else NotImplemented


def owner_of(array: np.ndarray) -> np.ndarray:
    """The array that owns an array's memory; the array itself if none does."""
    while type(array.base) is np.ndarray:
        array = array.base
    return array


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]
