"""Protection: arguments for one run of a model, which cannot change anybody else's.

Arrays are shared by the terms of a sum, by threads, and by a later run that traces a pullback
again. So a run sees read-only views of them; the arrays' own flags stay as they are, since other
threads read them. Lists and dicts are new; sets, rows of structured arrays, and sparse matrices
that SciPy would sort are copied. Tables of pandas are shallow copies, which copy a column when it
is written to. Random generators are copied in their current state.

NumPy's flag does not stop ``np.add.at``, LAPACK behind ``overwrite_a=True``, or C code that ignores
it; objects inside the user's own classes, and the Python objects in an array, are not protected.
"""

import copy
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import optree

from daskgrad.autodiff.values.trees import BOXES, flatten, too_deep
from daskgrad.random import STATEFUL

# Classes of leaves that nobody can write into and that hold no objects. Classes of the libraries,
# with the boxes of their traces, are added when the first object of each arrives.
BARE: set[type] = {np.float64, float, int, bool, str, bytes, complex, type(None)}
LIBRARIES = ("numpy", "autograd", "jax", "jaxlib", "torch")

USED_UP = "which one run of the model uses up, and models may run again; pass a list"


def protect(leaves: list[Any], are_writeable: bool = False) -> list[Any]:
    """The arguments of one run of a model.

    ``are_writeable``: arrays are not protected, since the backend itself finds writes.
    """
    # the dict has one copy of each generator, wherever it stands
    try:
        return protect_all(leaves, {}, as_it_is if are_writeable else read_only)
    except RecursionError:  # which needs two calls for a level
        raise too_deep(leaves) from None


def protect_all(leaves: Iterable[Any], memo: dict[int, Any], array: Any) -> list[Any]:
    return [leaf if type(leaf) in BARE else protect_leaf(leaf, memo, array) for leaf in leaves]


def read_only(array: np.ndarray) -> np.ndarray:
    """A read-only view of an array; the array itself if it is read-only."""
    if array.flags.writeable:
        if type(array) in BOXES:
            return array.read_only()  # type: ignore[attr-defined]
        array = array.view()
        array.setflags(write=False)
        if type(array) is not np.ndarray:
            mask = np.ma.getmask(array)  # a view's mask is a view, too
            if mask is not np.ma.nomask:
                mask.setflags(write=False)
    return array


def read_only_leaf(leaf: Any) -> Any:
    """A read-only view of a leaf that is an array; any other leaf unchanged."""
    return read_only(leaf) if isinstance(leaf, np.ndarray) else leaf


def as_it_is(leaf: Any) -> Any:
    return leaf


def protect_leaf(argument: Any, memo: dict[int, Any], array: Any) -> Any:
    """An argument as one run sees it; ``array`` is applied to each array in it."""
    kind = type(argument)
    if kind is np.ndarray:
        return array(argument)
    if kind is list or kind is tuple:
        return kind(protect_all(argument, memo, array))
    if kind is dict:
        return dict(zip(argument, protect_all(argument.values(), memo, array), strict=True))
    if isinstance(argument, np.ndarray):
        return array(argument)
    if isinstance(argument, STATEFUL):
        return copy.deepcopy(argument, memo)
    if kind is set or kind is bytearray or isinstance(argument, np.void):  # a row is a view
        return argument.copy()
    if kind.__module__.partition(".")[0] in LIBRARIES:
        BARE.add(kind)
        return argument
    leaves, structure = flatten(argument)
    if len(leaves) == 1 and leaves[0] is argument:
        return protect_object(argument, array)
    return optree.tree_unflatten(structure, protect_all(leaves, memo, array))


def protect_object(argument: Any, array: Any) -> Any:
    """A table or a sparse matrix as one run sees it; other objects unchanged."""
    kind = type(argument)
    if isinstance(argument, Iterator):
        raise TypeError(f"an argument holds a {kind.__name__}, {USED_UP}")
    if hasattr(kind, "iloc"):
        return argument.copy(deep=False)
    is_sparse = kind.__module__.startswith("scipy.sparse") and hasattr(kind, "tocsr")
    return protect_matrix(argument, array) if is_sparse else argument


def protect_matrix(matrix: Any, array: Any) -> Any:
    """A sparse matrix with read-only entries; a copy if SciPy would sort the entries in place."""
    data = getattr(matrix, "data", None)
    has_array = isinstance(data, np.ndarray) and data.dtype.kind != "O"  # no lists, no dict
    if not has_array or (hasattr(matrix, "indptr") and not matrix.has_canonical_format):
        return matrix.copy()
    other = copy.copy(matrix)
    other.data = array(data)
    return other


# ------------------------------------------------------------------------- the value of a model


def release_view(leaf: np.ndarray) -> np.ndarray:
    """An array of a model's value; a copy if it is a read-only view of the run's argument.

    So a user may write into it, and it does not keep the whole argument in memory.
    """
    memory = leaf.base
    if leaf.flags.writeable or not isinstance(memory, np.ndarray) or not memory.flags.writeable:
        return leaf  # it has its own memory, or was read-only before
    return leaf.copy()
