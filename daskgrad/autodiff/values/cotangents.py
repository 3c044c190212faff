"""Cotangents: the derivative of the output with respect to a value, leaf by leaf.

A value is a pytree; its cotangent is a tuple with one entry a leaf, in ``optree``'s order: an array
of the leaf's shape and dtype, or ``None``. ``None`` is a symbolic zero, or the leaf has no
derivative (integers, booleans, strings). No function here changes an array argument.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from daskgrad.autodiff.values.carriers import carrier
from daskgrad.autodiff.values.descriptions import describe
from daskgrad.autodiff.values.elsewhere import CotangentElsewhere, Elsewhere
from daskgrad.autodiff.values.fingerprints import Fingerprint
from daskgrad.autodiff.values.memory import row_major
from daskgrad.autodiff.values.rows import Rows, dense_leaf, final_leaf, merge, no_rows
from daskgrad.autodiff.values.trees import BOXES, unflatten

Leaves = tuple[Any, ...]


@carrier
class Cotangent:
    """The cotangent of one value, and the fingerprint of the value that its consumer saw."""

    leaves: Leaves
    seen: Fingerprint | None = None

    def __repr__(self) -> str:
        return f"Cotangent({', '.join(map(describe, self.leaves))})"


class Seed(Cotangent):
    """The cotangent of a real scalar output before its dtype is known: the number ``times``.

    ``times`` is one for a gradient, and more if a sum uses the output several times.
    """

    __slots__ = ("times",)

    def __init__(self, times: int = 1):
        super().__init__(())
        self.times = times

    def __repr__(self) -> str:
        return f"Seed({self.times})"

    def __reduce__(self):
        return Seed, (self.times,)

    def as_like(self, leaf: Any) -> Any:
        """The number in a leaf's dtype."""
        if type(leaf) is np.float64:  # by far the most frequent, in a fifth of the time
            return np.float64(self.times)
        if type(leaf) in BOXES:
            return leaf.boxed(leaf.dtype.type(self.times))
        return np.asarray(leaf).dtype.type(self.times)


@carrier
class Unscaled(Cotangent):
    """The gradient of a block of a sum, to be scaled after all blocks have been added.

    If each block were scaled, the bits would depend on the cut of the sum.
    """

    factor: Any = 1.0


# ------------------------------------------------------------------------------------- leaves


def is_differentiable(leaf: Any) -> bool:
    """Whether a leaf is a float or complex number or array."""
    if type(leaf) is np.ndarray or isinstance(leaf, np.ndarray | np.generic):
        return leaf.dtype.kind in "fc"
    return isinstance(leaf, float | complex | Elsewhere)


def as_summand(leaf: Any) -> Any:
    """Booleans and short integers in 64 bits, as ``np.sum`` adds them; other leaves unchanged."""
    dtype = getattr(leaf, "dtype", None)
    if getattr(dtype, "kind", "") in ("b", "i", "u") and dtype.itemsize < 8:  # type: ignore[union-attr]
        return leaf.astype(np.uint64 if dtype.kind == "u" else np.int64)  # type: ignore[union-attr]
    return leaf


def nbytes(leaves: Sequence[Any]) -> int:
    """The bytes of the arrays among the leaves."""
    return sum([getattr(leaf, "nbytes", 8) for leaf in leaves])


SMALL = 2**16  # bytes: a smaller gradient is kept without counting the bytes of the tape


ONE_REAL_NUMBER = (
    "a gradient needs one real number: sum arrays up, return floats rather than integers, or use "
    "vjp or jacobian"
)


# --------------------------------------------------------------------------------- arithmetic


def is_zero(leaves: Sequence[Any]) -> bool:
    """Whether a cotangent is a symbolic zero: nothing arrived, or no leaf has a derivative."""
    for leaf in leaves:  # a loop: the first leaf decides nearly always
        if leaf is not None:
            return False
    return True


def zeros(leaf: Any) -> Any:
    """The zero cotangent of a leaf, or ``None`` where the leaf has no derivative."""
    if not is_differentiable(leaf):
        return None
    has_dtype = isinstance(leaf, Elsewhere | np.ndarray | np.generic)
    dtype = leaf.dtype if has_dtype else np.result_type(leaf)
    return np.zeros(np.shape(leaf), dtype)[()]


def add(first: Leaves, second: Leaves, owned: bool = False) -> Leaves:
    """The sum of two cotangents of one value, in new arrays.

    ``owned`` says that the first is a result of this function, and may be overwritten.
    """
    return tuple([_add_leaf(a, b, owned) for a, b in zip(first, second, strict=True)])


def _add_leaf(first: Any, second: Any, owned: bool) -> Any:
    if second is None:
        return first if owned or first is None else first.copy()
    if first is None:
        return second.copy()  # the second belongs to somebody else, and the result to the caller
    if type(first) is Rows or type(second) is Rows:
        if type(first) is type(second):
            return merge(first, second)
        first, second = dense_leaf(first), dense_leaf(second)
    if owned and type(first) is np.ndarray:
        return np.add(first, second, out=first)
    return first + second


def scale(leaves: Leaves, factor: Any) -> Leaves:
    """A cotangent times a number, in the cotangent's own dtypes."""
    if factor.is_one if type(factor) in BOXES else factor == 1.0:
        return leaves
    return tuple([None if leaf is None else scale_leaf(leaf, factor) for leaf in leaves])


def scale_leaf(leaf: Any, factor: Any) -> Any:
    leaf = final_leaf(leaf)
    if isinstance(leaf, CotangentElsewhere):
        return leaf.scaled(factor)
    if isinstance(leaf, Rows):
        return leaf.with_values(cast(factor * leaf.values, leaf.values) + 0.0)
    return cast(factor * leaf, leaf)  # zeros, too, have signs


def cast(cotangent: Any, leaf: Any) -> Any:
    """A cotangent in its leaf's dtype: the real part where the leaf is real."""
    dtype = leaf.dtype if isinstance(leaf, np.ndarray | np.generic) else np.result_type(leaf)
    if cotangent.dtype == dtype:
        return cotangent
    if cotangent.dtype.kind == "c" and dtype.kind != "c":
        cotangent = cotangent.real
    return cotangent.astype(dtype)


def in_dtype(cotangent: Any, dtype: np.dtype | None) -> Any:
    """A cotangent in another dtype; ``None`` for a leaf without derivative."""
    if cotangent is None or dtype is None:
        return None
    like = np.empty(0, dtype)
    if type(cotangent) is Rows:
        return cotangent.with_values(cast(cotangent.values, like))
    return cast(cotangent, like)


def project(cotangent: Any, leaf: Any) -> Any:
    """A cotangent in its leaf's shape and dtype; ``None`` stays ``None``.

    A backend may return a Python number, or an array of as many entries in another shape.
    """
    if cotangent is None or type(cotangent) is Rows:  # of the leaf's dtype
        return cotangent
    if type(cotangent) is type(leaf) is np.ndarray and cotangent.shape == leaf.shape:
        if cotangent.dtype == leaf.dtype and cotangent.flags.c_contiguous:
            return cotangent
        return row_major(cast(cotangent, leaf))
    if type(cotangent) in BOXES:
        if isinstance(cotangent, Rows):
            return cotangent
        if not isinstance(cotangent, np.ndarray | np.generic):
            cotangent = cotangent.record_call(np.asarray, (cotangent,))
    else:
        cotangent = np.asarray(cotangent)
    if cotangent.shape != np.shape(leaf):
        cotangent = cotangent.reshape(np.shape(leaf))
    projected = row_major(cast(cotangent, leaf))
    is_array = isinstance(projected, np.ndarray)
    return projected[()] if not projected.ndim and is_array else projected


def seed(cotangent: Any, leaf: Any) -> Any:
    """A cotangent in its leaf's shape and dtype; ``None`` where the leaf has no derivative."""
    return project(cotangent, leaf) if is_differentiable(leaf) else None


def assemble(
    leaves: Sequence[Any], parts: Sequence[tuple[int, Cotangent]], are_owned: bool = False
) -> Leaves:
    """The cotangent of a value from the cotangents of its parts: (first leaf's number, cotangent).

    Parts are added in this order; leaves that nothing reached are ``None``. The result has its own
    arrays; ``are_owned``: the parts' arrays belong to the caller, and are reused.
    """
    total: list[Any] = [None] * len(leaves)
    for start, part in parts:
        arrived = (part.as_like(leaves[start]),) if isinstance(part, Seed) else part.leaves
        for place, leaf in enumerate(arrived, start):
            is_first = are_owned and total[place] is None
            total[place] = leaf if is_first else _add_leaf(total[place], leaf, are_owned)
    return tuple(total)


def gradient(
    leaves: Sequence[Any], structure: Any, cotangent: Leaves, row_leaves: Sequence[int] = ()
) -> Any:
    """A cotangent in its value's structure, with zeros for symbolic zeros: as arrays, or as rows
    for the numbers in ``row_leaves``."""
    gradients = []
    for number, (leaf, arrived) in enumerate(zip(leaves, cotangent, strict=True)):
        if arrived is None:
            arrived = no_rows(leaf) if number in row_leaves else zeros(leaf)
        is_dense = isinstance(arrived, np.ndarray)
        is_elsewhere = isinstance(leaf, Elsewhere)
        gradients.append(leaf.gradient_of(arrived) if is_elsewhere and is_dense else arrived)
    return unflatten(structure, gradients)


def check(derivative: Any, leaf: Any, name: str) -> Any:
    """A derivative from outside, in its leaf's dtype; ``name``: its name in errors.

    Raises
    ------
    ValueError
        if the shape differs from the leaf's.
    TypeError
        if the leaf has no derivative, or the dtype cannot be cast to the leaf's (complex to real,
        or not numbers).
    """
    if derivative is None:
        return None
    if type(derivative) in BOXES and type(leaf) in BOXES:
        if (derivative.shape, derivative.dtype) == (leaf.shape, leaf.dtype):
            return derivative
    if hasattr(derivative, "__dask_graph__"):
        raise TypeError(f"{name}: {describe(derivative)} has no value yet; get it with .compute()")
    if not is_differentiable(leaf):
        raise TypeError(f"{name}: {describe(leaf)} has no derivative; pass None for it")
    if isinstance(derivative, np.ma.MaskedArray):
        raise TypeError(f"{name}: found a masked array, whose mask would be lost; fill it first")
    array, dtype = np.asarray(dense_leaf(derivative)), np.asarray(leaf).dtype
    if array.shape != np.shape(leaf):
        raise ValueError(f"{name}: expected shape {np.shape(leaf)}, found {array.shape}")
    if array.dtype.kind not in "biufc" or not np.can_cast(array.dtype, dtype, "same_kind"):
        raise TypeError(
            f"{name}: expected dtype {dtype}, found {array.dtype}; convert it first, with .real if "
            f"it is complex"
        )
    return array.astype(dtype, copy=False)[()]
