"""Memory: arrays as NumPy makes them, in C order, aligned, with NumPy's own dtypes."""

from collections.abc import Callable
from typing import Any

import numpy as np

from daskgrad.values.descriptions import describe
from daskgrad.values.trees import flatten, map_leaves, unflatten

OWN_DTYPES = {code: np.dtype(code) for code in "?" + np.typecodes["AllInteger"] + "efdgFDG"}


def canonical(value: Any) -> Any:
    """A pytree with its arrays as NumPy makes them, which those that came in a message are not.

    Such an array begins wherever in the message it stood: NumPy adds it up in another order, and
    SciPy refuses some. And its dtype is equal to NumPy's own, but another object, as is that of all
    arrays that are computed from it: ``np.add.at`` takes 25 times as long. What begins at a
    multiple of its items is not copied.
    """
    leaves, structure = flatten(value)
    if all(map(is_canonical, leaves)):
        return value
    return unflatten(structure, list(map(canonical_leaf, leaves)))


def canonical_leaf(leaf: Any) -> Any:
    if type(leaf) is not np.ndarray:
        return leaf
    array = leaf if leaf.flags.aligned else leaf.copy()
    dtype = own_dtype(array.dtype)
    return array if dtype is array.dtype else array.view(dtype)


def is_canonical(leaf: Any) -> bool:
    if type(leaf) is not np.ndarray:
        return True
    dtype = leaf.dtype
    return leaf.flags.aligned and dtype is OWN_DTYPES.get(dtype.char, dtype)


def of_its_own(value: Any) -> Any:
    """A copy for the caller, who may write into it; a pullback may hold the array itself."""
    return map_leaves(lambda x: canonical_leaf(x).copy() if isinstance(x, np.ndarray) else x, value)


def without_memory(leaf: Any) -> Any:
    """A leaf of one shape and dtype with this one, which is all that its cotangent must fit."""
    if isinstance(leaf, np.ndarray):
        return np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape)
    return leaf


def own_dtype(dtype: np.dtype) -> np.dtype:
    """NumPy's own object for a dtype; the same where there is none that says as much."""
    own = OWN_DTYPES.get(dtype.char, dtype)
    return own if own == dtype and dtype.metadata is None else dtype


def takes_as_arrived(fun: Callable) -> Callable:
    """Marks the function of a task that makes those parts of its arguments canonical that it uses.

    Looking through all of a large container for each of its items would take the square of its
    size.
    """
    fun.takes_as_arrived = True  # type: ignore[attr-defined]
    return fun


def canonical_for(fun: Callable, args: tuple) -> tuple:
    """The arguments of a task, canonical unless its function sees to that itself."""
    return args if getattr(fun, "takes_as_arrived", False) else canonical(args)


def row_major(leaf: Any) -> Any:
    """A leaf in C order, a copy where need be: so it arrives in another process.

    Strided arrays give other bits in BLAS and in sums than their copies.
    """
    if isinstance(leaf, np.ndarray):
        flags = leaf.flags
        if not (flags.c_contiguous and flags.aligned):
            require_room(leaf)
            return leaf.copy(order="C")
    return leaf


def contiguous(leaf: Any, what: str = "an array") -> Any:
    """A leaf in C or Fortran order, both of which survive a move; a C copy where need be."""
    if isinstance(leaf, np.ndarray):
        flags = leaf.flags
        if not (flags.forc and flags.aligned):
            require_room(leaf, what)
            return leaf.copy(order="A")
    return leaf


BROADCAST = 2**30  # bytes that the copy of a broadcast array may take


def require_room(array: np.ndarray, what: str = "an array") -> None:
    """A broadcast array, which takes no memory, is not copied into more than there may be."""
    if array.nbytes > BROADCAST and 0 in array.strides:
        raise ValueError(
            f"{what} is {describe(array)}, broadcast from fewer numbers, and would be copied to "
            f"{array.nbytes / 2**30:.0f} GiB; pass the numbers, and broadcast them in the model"
        )
