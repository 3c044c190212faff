"""Compensation: sums that add up their rounding errors separately, and add them at the very end.

The rounding error of adding two floats is itself a float, and six additions find it (TwoSum:
D. E. Knuth, "The Art of Computer Programming", vol. 2, section 4.2.2, theorem B). Plain addition
sums the errors of all additions along the same tree. So a sum is as accurate as if it were computed
in twice the precision and rounded once (Sum2: T. Ogita, S. M. Rump and S. Oishi, "Accurate sum and
dot product", SIAM J. Sci. Comput. 26, 2005, algorithms 3.1 and 4.4).
Their bound, proposition 4.5, is for a loop. Along a tree of L = ceil(log2 n) levels a term passes
through L additions, whose errors are at most γ(L) Σ|x| together, and an error passes through 2L
(N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., 2002, equation 4.6 and
lemma 3.1), so that for the sum s of n terms x, with γ(k) = k u / (1 - k u),

    |result - s|  <=  u |s| + (1 + u) γ(L) γ(2L) Σ|x|  <=  u |s| + O(log²n u²) Σ|x|,

for real and imaginary parts each, in any float dtype, as long as nothing overflows.
"""

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import optree

from daskgrad.values.carriers import carrier
from daskgrad.values.cotangents import Leaves, as_summand, cast, is_differentiable
from daskgrad.values.registrations import Structure
from daskgrad.values.rows import Rows, aligned, dense_leaf, final_leaf
from daskgrad.values.trees import flatten


@carrier
class Unrounded:
    """A sum of numbers or arrays as plain addition rounds it, and the sum of its rounding errors.

    A single term, or a sum of integers, is not wrapped.
    """

    high: Any
    low: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return np.shape(self.high)

    def rounded(self) -> Any:
        return self.high + self.low


@carrier
class UnroundedValue:
    """A sum of values, leaf by leaf: the user's containers may not take unrounded leaves."""

    leaves: Sequence[Any]
    structure: Structure


# ---------------------------------------------------------------------------------- rounding


def final_leaves(leaves: Leaves) -> Leaves:
    """A complete cotangent: each leaf rounded once, and rows that nobody asked for as arrays."""
    return tuple([x.rounded() if isinstance(x, Unrounded) else final_leaf(x) for x in leaves])


def rounded_value(value: Any) -> Any:
    """A value with each leaf rounded once; a value that is not an unrounded sum is unchanged."""
    if isinstance(value, UnroundedValue):
        return value.structure.unflatten(list(final_leaves(tuple(value.leaves))))
    return value


def flatten_sum(value: Any) -> tuple[Sequence[Any], optree.PyTreeSpec]:
    """The leaves and the structure of a value or of a sum of values."""
    if isinstance(value, UnroundedValue):
        return value.leaves, value.structure.spec
    return flatten(value)


# ------------------------------------------------------------------------------------ adding


def add(first: Leaves, second: Leaves, owned: bool = False) -> Leaves:
    """The sum of two cotangents of one value; nothing is overwritten, ``owned`` or not."""
    return tuple([add_leaf(a, b) for a, b in zip(first, second, strict=True)])


def add_leaf(first: Any, second: Any) -> Any:
    """The sum of two leaves, each of them a term or a sum; ``None`` is a symbolic zero."""
    if first is None or second is None:
        return second if first is None else first
    high, error = two_sum_of(_high(first), _high(second))
    if error is None:
        return high
    lows = [leaf.low for leaf in (first, second) if isinstance(leaf, Unrounded)]
    return Unrounded(high, functools.reduce(operator.add, [*lows, error]))


def two_sum_of(first: Any, second: Any) -> tuple[Any, Any]:
    """``two_sum`` of leaves, which may be rows."""
    if isinstance(first, Rows) and isinstance(second, Rows) and first.is_asked:
        first, second = aligned(first, second)
        return tuple(map(first.with_values, two_sum(first.values, second.values)))
    return two_sum(dense_leaf(first), dense_leaf(second))


def _high(leaf: Any) -> Any:
    return leaf.high if isinstance(leaf, Unrounded) else as_summand(leaf)


def two_sum(first: Any, second: Any) -> tuple[Any, Any]:
    """``first + second``, rounded, and the rounding error.

    The error is exact, also among subnormals. It is zero where the sum is not finite, so that the
    result is that of plain addition, and ``None`` for a sum of integers.
    """
    total = first + second
    if not is_differentiable(total):
        return total, None
    if isinstance(total, float):  # Python's own floats take a third of the time, and never warn
        error = _rounding_error(float(first), float(second), float(total))
        if math.isfinite(error):
            return total, type(total)(error)
    if isinstance(total, np.ndarray | np.generic):
        first, second = cast(np.asarray(first), total), cast(np.asarray(second), total)
    with np.errstate(all="ignore"):
        error = _rounding_error(first, second, total)
        if not np.all(np.isfinite(error)):
            error = _finite(error, _rounding_error(second, first, total))
    return total, error


def _rounding_error(first: Any, second: Any, total: Any) -> Any:
    """TwoSum; ``total - first`` overflows for a finite total only where the second is the largest
    float: S. Boldo, S. Graillat and J.-M. Muller, "On the robustness of the 2Sum and Fast2Sum
    algorithms", ACM Trans. Math. Softw. 44, 2017.
    """
    back = total - first
    return (first - (total - back)) + (second - back)


def _finite(error: Any, swapped: Any) -> Any:
    """An error; where it is not finite that of the swapped operands, or zero if neither is."""
    if np.iscomplexobj(error):
        return _finite(error.real, swapped.real) + 1j * _finite(error.imag, swapped.imag)
    error = np.where(np.isfinite(error), error, swapped)
    return np.where(np.isfinite(error), error, np.zeros_like(error))[()]
