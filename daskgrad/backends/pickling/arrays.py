"""Layouts: arrays as bytes, which become arrays with the same strides, and so the same bits.

NumPy pickles an array that is neither in C nor in Fortran order as a copy in C order, and sums and
products of the copy may differ in the last bits. Here the memory that an array shows is pickled,
once for all arrays that show it, and how the array looks at it.
"""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from daskgrad.values.memory import OWN_DTYPES, own_dtype


def reduce_array(array: np.ndarray) -> Any:
    """What a pickler's ``reducer_override`` returns for an array.

    Raises ``pickle.PicklingError`` where its entries lie in memory with gaps or overlaps, and no
    other array owns that; and for a strided one of a class derived from NumPy's.
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
    """An array as one in C order, whose axes are then put back into their sequence."""
    sequence = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    ordered = array.transpose(sequence)
    if not ordered.flags.c_contiguous:
        raise pickle.PicklingError(f"an array with strides {array.strides} does not own its memory")
    back = [sequence.index(axis) for axis in range(array.ndim)]
    return load_transposed, (*np.ndarray.__reduce_ex__(ordered, 5)[:2], back)


def load_transposed(load: Callable, args: tuple, sequence: list[int]) -> np.ndarray:
    return load(*args).transpose(sequence)


def as_numpy_does(array: np.ndarray) -> Any:
    """An array of a class of its own, whose pickle is its own matter, unless it loses strides."""
    if not array.flags.forc:
        kind = type(array).__name__
        raise pickle.PicklingError(
            f"the pickle of a {kind} with strides {array.strides} has others"
        )
    return NotImplemented


def show_memory(
    owner: np.ndarray, start: int, shape: tuple, strides: tuple, dtype: Any, is_writeable: bool
) -> np.ndarray:
    """The array that shows the memory of another one, ``start`` bytes from its beginning."""
    memory = owner_of(owner).reshape(-1, order="A").view(np.uint8)
    array = np.ndarray(shape, dtype, memory, start, strides)
    array.flags.writeable &= is_writeable
    return array


def reduce_dtype(dtype: np.dtype) -> Any:
    """As ``reduced``, for a dtype: one that is equal to NumPy's own arrives as NumPy's own."""
    own = own_dtype(dtype)
    return (np.dtype, (own.str,)) if own is OWN_DTYPES.get(own.char) else NotImplemented


def owner_of(array: np.ndarray) -> np.ndarray:
    """The array whose memory an array shows; itself where that is no array's."""
    while type(array.base) is np.ndarray:
        array = array.base
    return array


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]
