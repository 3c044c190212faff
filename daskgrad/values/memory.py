"""Memory: arrays as NumPy makes them, in C order, aligned, with NumPy's own dtypes."""

from collections.abc import Callable
from typing import Any

import numpy as np

from daskgrad.values.descriptions import describe
from daskgrad.values.sealed import Sent
from daskgrad.values.trees import flatten, map_leaves, unflatten

OWN_DTYPES = {code: np.dtype(code) for code in "?" + np.typecodes["AllInteger"] + "efdgFDG"}


def canonical(value: Any) -> Any:
    """A pytree with its arrays aligned and in NumPy's own dtypes, unlike arrays from a message.

    An array from a message may start at any byte: NumPy adds it up in a different order, and SciPy
    refuses some. Its dtype is an object of its own, as are those of all arrays that are computed
    from it: ``np.add.at`` takes 25 times as long. Aligned arrays are not copied. What was sealed to
    be sent is opened.
    """
    leaves, structure = flatten(value)
    if all(map(is_canonical, leaves)):
        return value
    return unflatten(structure, list(map(canonical_leaf, leaves)))


def canonical_leaf(leaf: Any) -> Any:
    if type(leaf) is not np.ndarray:
        return leaf.load() if type(leaf) is Sent else leaf
    array = leaf if leaf.flags.aligned else leaf.copy(order="A")
    dtype = own_dtype(array.dtype)
    return array if dtype is array.dtype else array.view(dtype)


def is_canonical(leaf: Any) -> bool:
    if type(leaf) is not np.ndarray:
        return type(leaf) is not Sent
    dtype = leaf.dtype
    return leaf.flags.aligned and dtype is OWN_DTYPES.get(dtype.char, dtype)


def of_its_own(value: Any) -> Any:
    """A copy that the caller may write into; a pullback may hold the original arrays."""

    def own(leaf: Any) -> Any:
        return canonical_leaf(leaf).copy(order="A") if isinstance(leaf, np.ndarray) else leaf

    return map_leaves(own, value)


def without_memory(leaf: Any) -> Any:
    """A leaf of the same shape and dtype that takes no memory."""
    if isinstance(leaf, np.ndarray):
        return np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape)
    return leaf


def own_dtype(dtype: np.dtype) -> np.dtype:
    """NumPy's own object for a dtype; the dtype itself if NumPy has no equal one."""
    own = OWN_DTYPES.get(dtype.char, dtype)
    return own if own == dtype and dtype.metadata is None else dtype


def takes_as_arrived(fun: Callable) -> Callable:
    """Marks a task's function that makes what it uses of its arguments canonical itself.

    To look through a large container for each of its items would take the square of its size.
    """
    fun.takes_as_arrived = True  # type: ignore[attr-defined]
    return fun


def takes_as_it_arrives(fun: Callable) -> bool:
    return getattr(fun, "takes_as_arrived", False)


def canonical_for(fun: Callable, args: tuple) -> tuple:
    """The arguments of a task, made canonical unless its function does so itself."""
    return args if takes_as_it_arrives(fun) else canonical(args)


def row_major(leaf: Any) -> Any:
    """A leaf in C order, as it would arrive in another process; a copy if necessary.

    BLAS and sums give different bits for strided arrays than for their copies.
    """
    if isinstance(leaf, np.ndarray):
        flags = leaf.flags
        if not (flags.c_contiguous and flags.aligned):
            require_room(leaf)
            return leaf.copy(order="C")
    return leaf


def contiguous(leaf: Any, what: str = "an array") -> Any:
    """A leaf in C or Fortran order, both of which survive a move; a copy if necessary."""
    if isinstance(leaf, np.ndarray):
        flags = leaf.flags
        if not (flags.forc and flags.aligned):
            require_room(leaf, what)
            return leaf.copy(order="A")
    return leaf


BROADCAST = 2**30  # bytes that the copy of a broadcast array may take


def require_room(array: np.ndarray, what: str = "an array") -> None:
    """Raises if the copy of a broadcast array, which itself takes no memory, would be huge."""
    if array.nbytes > BROADCAST and 0 in array.strides:
        raise ValueError(
            f"{what} is {describe(array)}, broadcast from fewer numbers, and would be copied to "
            f"{array.nbytes / 2**30:.0f} GiB; pass the numbers, and broadcast them in the model"
        )
