"""Addition: sums of values, in an order that never changes, plain or compensated."""

import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import optree

from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.carriers import Structure, carrier
from daskgrad.autodiff.values.cotangents import Leaves, as_summand, cast, is_differentiable
from daskgrad.autodiff.values.descriptions import describe
from daskgrad.autodiff.values.rows import Rows, aligned, dense_leaf, final_leaf
from daskgrad.autodiff.values.trees import flatten

# -------------------------------------------------------------------------------------------------
# Summation: the order in which many values or cotangents are added.
#
# A sum of n terms is added along one binary tree over 0 ... n-1: split at the largest power of two
# below n, then each half in the same way (pairwise summation; N. J. Higham, "The accuracy of
# floating point summation", SIAM J. Sci. Comput. 14, 1993, section 3: the error grows with log n).
# A block of 2**k terms that starts at a multiple of 2**k is a subtree. So the bits of a sum do not
# depend on the cut of the terms into blocks of this kind, nor on who adds which block or when.

FAN_IN = 8  # partial sums that one task adds: must be a power of two, or the tree would change

Add = Callable[[Any, Any, bool], Any]
Place = tuple[int, int]


class Addition(NamedTuple):
    """The functions of a kind of summation that add two values, and two cotangents."""

    values: Add
    cotangents: Add


class PairwiseSum:
    """Adds terms as they come, along the tree; holds one partial sum per level.

    ``add(a, b, owned)`` returns a + b; ``owned``: ``a`` is a result of ``add``, and may be
    overwritten.
    """

    def __init__(self, add: Add):
        self._add = add
        self._partials: list[Any] = []  # largest first: one for every bit of the count
        self._count = 0

    def push(self, term: Any, size: int = 1) -> None:
        """Adds a term, or the sum of ``size`` terms of a subtree: see ``subtrees``."""
        count, owned = self._count // size, size > 1
        while count & 1:
            term = self._add(self._partials.pop(), term, owned)
            count, owned = count >> 1, True
        self._partials.append(term)
        self._count += size

    def subtrees(self, count: int) -> Iterator[slice]:
        """The next ``count`` terms as subtrees, each to be pushed at once."""
        start = 0
        while start < count:
            size = power_of_two(count - start)
            size = min(size, self._count & -self._count or size)
            yield slice(start, start + size)
            start += size

    def total(self) -> Any:
        """The sum so far, of at least one term; nothing can be pushed afterwards."""
        total = self._partials.pop()
        while self._partials:
            total = self._add(self._partials.pop(), total, True)  # larger ones are sums
        return total


def sum_of_rows(rows: Any) -> Any:
    """The sum of an array's rows, a power of two of them, along the tree: level by level.

    Rows are sorted first, so that each level adds one half to the other: one long addition is
    quicker than one a row.
    """
    count = len(rows)
    rows = rows.take(halving(count), 0)
    while count > 1:
        count //= 2
        rows = rows[:count] + rows[count:]
    return rows[0]


@functools.lru_cache(None)
def halving(count: int) -> np.ndarray:
    """The numbers 0 to ``count`` - 1, a power of two, in an order in which siblings are half of all
    apart, and so on in each half."""
    if count == 1:
        return np.zeros(1, np.intp)
    parents = 2 * halving(count // 2)
    return np.concatenate([parents, parents + 1])


def pairwise(terms: Iterable[Any], add: Add) -> Any:
    """The sum of at least one term along the tree."""
    running = PairwiseSum(add)
    for term in terms:
        running.push(term)
    return running.total()


class Subtrees:
    """Partial sums of ``count`` terms, put in in any order; two siblings are added at once.

    The partial sum at a place (level, index) is of the next 2**level terms from index * 2**level
    on, or of the remaining ones. ``add(a, b, owned)`` is as in ``PairwiseSum``.
    """

    def __init__(self, count: int, add: Add):
        self._count = count
        self._add = add
        self._sums: dict[Place, tuple[Any, bool]] = {}

    def put(self, place: Place, partial: Any) -> None:
        level, index = place
        owned = False
        while (1 << level) < self._count:
            sibling = index ^ 1
            if (level, sibling) in self._sums:
                other, other_owned = self._sums.pop((level, sibling))
                if index < sibling:
                    partial = self._add(partial, other, owned)
                else:
                    partial = self._add(other, partial, other_owned)
                owned = True
            elif index > sibling or (sibling << level) < self._count:
                break  # the sibling is still to come
            level, index = level + 1, index // 2
        self._sums[level, index] = (partial, owned)

    def sums(self) -> dict[Place, Any]:
        """The partial sums so far, in as few subtrees as possible."""
        return {place: partial for place, (partial, _) in self._sums.items()}

    def total(self) -> Any:
        """The sum of all terms; each must have been put in once."""
        places = list(self._sums)
        if len(places) != 1 or (1 << places[0][0]) < self._count:
            raise RuntimeError(f"{self._count} terms must be added up; found the sums {places}")
        return self._sums[places[0]][0]


def in_groups(terms: Sequence[Any], add: Callable[[Sequence[Any], bool], Any]) -> Any:
    """Adds many terms level by level along the tree, at most ``FAN_IN`` at a time.

    ``add(group, is_last)`` returns the sum of two to ``FAN_IN`` terms, or a task for it. A group
    starts at a multiple of ``FAN_IN`` on its level, so it is a subtree.
    """
    while len(terms) > 1:
        is_last = len(terms) <= FAN_IN
        groups = [terms[start : start + FAN_IN] for start in range(0, len(terms), FAN_IN)]
        terms = [add(group, is_last) if len(group) > 1 else group[0] for group in groups]
    return terms[0]


def power_of_two(number: int) -> int:
    """The largest power of two that is at most ``number`` (which is at least 1)."""
    return 1 << (number.bit_length() - 1)


# -------------------------------------------------------------------------------------------------
# Compensation: sums that add up their rounding errors apart, and add them at the very end.
#
# The rounding error of adding two floats is itself a float, and six additions find it (TwoSum: D.
# E. Knuth, "The Art of Computer Programming", vol. 2, section 4.2.2, theorem B). Plain addition
# sums the errors of all additions along the same tree. So a sum is as accurate as if it were
# computed in twice the precision and rounded once (Sum2: T. Ogita, S. M. Rump and S. Oishi,
# "Accurate sum and dot product", SIAM J. Sci. Comput. 26, 2005, algorithms 3.1 and 4.4). Their
# bound, proposition 4.5, is for a loop. Along a tree of L = ceil(log2 n) levels a term passes
# through L additions, whose errors are at most γ(L) Σ|x| together, and an error passes through 2L
# (N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., 2002, equation 4.6 and
# lemma 3.1), so that for the sum s of n terms x, with γ(k) = k u / (1 - k u),
#
#     |result - s|  <=  u |s| + (1 + u) γ(L) γ(2L) Σ|x|  <=  u |s| + O(log²n u²) Σ|x|,
#
# for real and imaginary parts each, in any float dtype, as long as nothing overflows.


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
    """A complete cotangent: each leaf rounded once, and rows as arrays unless asked for."""
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
    """The sum of two leaves, each a term or a sum; ``None`` is a symbolic zero."""
    if first is None or second is None:
        return second if first is None else first
    a, b = [x.high if isinstance(x, Unrounded) else as_summand(x) for x in (first, second)]
    if isinstance(a, Rows) and isinstance(b, Rows) and a.is_asked:
        a, b = aligned(a, b)
        high, error = map(a.with_values, two_sum(a.values, b.values))
    else:
        high, error = two_sum(dense_leaf(a), dense_leaf(b))
    if error is None:
        return high
    lows = [leaf.low for leaf in (first, second) if isinstance(leaf, Unrounded)]
    return Unrounded(high, functools.reduce(operator.add, [*lows, error]))


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
    """An error; where it is not finite, the swapped operands' error, or zero if neither is."""
    if np.iscomplexobj(error):
        return _finite(error.real, swapped.real) + 1j * _finite(error.imag, swapped.imag)
    error = np.where(np.isfinite(error), error, swapped)
    return np.where(np.isfinite(error), error, np.zeros_like(error))[()]


# ---------------------------------------------------------------------------------------- addition


def add_values(first: Any, second: Any, owned: bool = False) -> Any:
    """The sum of two values, leaf by leaf, of one structure and shape.

    ``owned``: the first is a result of this function, and may be overwritten.
    """
    if type(first) is np.float64 and type(second) is np.float64:
        return first + second
    leaves, others, structure = flatten_pair(first, second, flatten)
    pairs = zip(leaves, others, strict=True)
    return optree.tree_unflatten(structure, [_add_leaf(a, b, owned) for a, b in pairs])


def add_anew(first: Any, second: Any, owned: bool = False) -> Any:
    """As ``add_values``, in new arrays; also for a trace's boxes."""
    leaves, others, structure = flatten_pair(first, second, flatten)
    sums = map(operator.add, map(as_summand, leaves), map(as_summand, others))
    return optree.tree_unflatten(structure, list(sums))


def add_compensated(first: Any, second: Any, owned: bool = False) -> Any:
    """As ``add_values``, of values and unrounded sums; overwrites nothing."""
    leaves, others, structure = flatten_pair(first, second, flatten_sum)
    require_numbers([*leaves, *others])
    return UnroundedValue(list(map(add_leaf, leaves, others)), Structure(structure))


ADDITIONS = {
    "pairwise": Addition(add_values, cotangents.add),
    "compensated": Addition(add_compensated, add),
}


def flatten_pair(first: Any, second: Any, flatten: Callable) -> tuple[Sequence, Sequence, Any]:
    """The leaves of two values, and the structure of both."""
    (leaves, structure), (others, other) = flatten(first), flatten(second)
    if structure != other or list(map(np.shape, leaves)) != list(map(np.shape, others)):
        raise StructureError(
            f"the terms of a sum must have one structure and shape; found "
            f"{describe(rounded_value(first))} and {describe(rounded_value(second))}"
        )
    return leaves, others, structure


class StructureError(ValueError):
    """Two terms of a sum cannot be added."""


def are_alike(first: Any, second: Any) -> bool:
    """Whether two terms have one structure and shape."""
    try:
        flatten_pair(first, second, flatten)
    except StructureError:
        return False
    return True


OBJECTS = np.dtype(object)
NUMBERS = (np.ndarray, np.generic, int, float, complex, Unrounded)


def require_numbers(leaves: Sequence[Any]) -> None:
    for leaf in leaves:
        if not isinstance(leaf, NUMBERS) or getattr(leaf, "dtype", OBJECTS).kind in "USMV":
            raise TypeError(f"the terms of a sum must be numbers; found {describe(leaf)}")
        if isinstance(leaf, np.ma.MaskedArray):
            raise TypeError(
                f"the terms of a sum must be numbers; found a masked array, {describe(leaf)}, "
                f"whose mask would be lost; fill it, or sum the entries that are not masked"
            )


def _add_leaf(first: Any, second: Any, owned: bool) -> Any:
    require_numbers((first, second))
    first, second = as_summand(first), as_summand(second)
    if owned and type(first) is np.ndarray and first.dtype == getattr(second, "dtype", None):
        return np.add(first, second, out=first)
    return first + second
