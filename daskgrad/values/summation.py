"""Summation: the order in which many values or cotangents are added.

A sum of n terms is added along one binary tree over 0 ... n-1: split at the largest power of two
below n, then each half in the same way (pairwise summation; N. J. Higham, "The accuracy of floating
point summation", SIAM J. Sci. Comput. 14, 1993, section 3: the error grows with log n). A block of
2**k terms that starts at a multiple of 2**k is a subtree. So the bits of a sum do not depend on how
the terms are cut into blocks of this kind, nor on who adds which block or when.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

FAN_IN = 8  # partial sums that one task adds: must be a power of two, or the tree would change

Add = Callable[[Any, Any, bool], Any]
Place = tuple[int, int]


class Addition(NamedTuple):
    """How a kind of summation adds two values, and two cotangents."""

    values: Add
    cotangents: Add


class PairwiseSum:
    """Adds terms as they come, along the tree; holds one partial sum per level.

    ``add(a, b, owned)`` returns a + b; ``owned`` says that an earlier ``add`` of this sum made
    ``a``, so it may be overwritten.
    """

    def __init__(self, add: Add):
        self._add = add
        self._partials: list[Any] = []  # largest first: one for every bit of the count
        self._count = 0

    def push(self, term: Any, size: int = 1) -> None:
        """Adds a term; or the sum of ``size`` terms that are a subtree: see ``subtrees``."""
        count, owned = self._count // size, size > 1
        while count & 1:
            term = self._add(self._partials.pop(), term, owned)
            count, owned = count >> 1, True
        self._partials.append(term)
        self._count += size

    def subtrees(self, count: int) -> Iterator[slice]:
        """The next ``count`` terms in runs that are subtrees; each is to be pushed at once."""
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

    Wide rows are sorted first, so that those that are added are in two halves: one long addition a
    level is quicker than one a row.
    """
    count = len(rows)
    if rows.ndim == 1:
        while count > 1:
            rows, count = rows[0::2] + rows[1::2], count // 2
        return rows[0]
    rows = rows.take(halving(count), 0)
    while count > 1:
        count //= 2
        rows = rows[:count] + rows[count:]
    return rows[0]


@functools.lru_cache(None)
def halving(count: int) -> np.ndarray:
    """The numbers 0 to ``count`` - 1, a power of two, such that those of siblings are as far apart
    as half of them, and so on in each half."""
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
    """Partial sums of ``count`` terms, put in in any order; siblings are added when both are here.

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

    ``add(group, is_last)`` returns the sum of two to ``FAN_IN`` terms, or a task for it. Every
    group starts at a multiple of ``FAN_IN`` on its level, so it is a subtree.
    """
    while len(terms) > 1:
        is_last = len(terms) <= FAN_IN
        groups = [terms[start : start + FAN_IN] for start in range(0, len(terms), FAN_IN)]
        terms = [add(group, is_last) if len(group) > 1 else group[0] for group in groups]
    return terms[0]


def power_of_two(number: int) -> int:
    """The largest power of two that is at most ``number`` (which is at least 1)."""
    return 1 << (number.bit_length() - 1)
