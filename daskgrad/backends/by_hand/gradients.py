"""Gradients that a function returned: which entry belongs to which array, and whether it fits."""

from collections.abc import Sequence
from sys import getrefcount
from typing import Any

import numpy as np
import optree

from daskgrad.backends.by_hand.function import WithGradient
from daskgrad.values import cotangents
from daskgrad.values.descriptions import argument_name, describe
from daskgrad.values.trees import flatten


class Wanted:
    """Which gradients are wanted of calls whose arguments have one structure.

    ``structure`` is that of (args, kwargs), and ``places`` has for each leaf the number of the
    array that is differentiated there, or None; one array may be at several places. ``count`` is
    the number of positional arguments, and ``single`` that of the only one that is differentiated,
    if it is no container.
    """

    def __init__(
        self, fun: WithGradient, structure: optree.PyTreeSpec, places: Sequence[int | None]
    ):
        args = structure.child(0).children()
        self._name = fun.name
        self._fun = fun.fun
        self.count = len(args)
        self._parts: list[tuple[int, Any, list[tuple[int, int]]]] = []
        start = 0
        for number, part in enumerate(args):
            stop = start + part.num_leaves
            own = [(n, at) for n, at in enumerate(places[start:stop]) if at is not None]
            if own:
                self._parts.append((number, part, own))
            start = stop
        if any(place is not None for place in places[start:]):
            raise TypeError(
                f"model {self._name!r} brings the gradient by its positional arguments "
                f"(gradient=True), and a keyword argument is differentiated; pass it by position"
            )
        self.single = None
        if len(self._parts) == 1 and is_leaf(self._parts[0][1]):
            self.single = self._parts[0][0]

    def of(self, given: Any, arrays: Sequence[Any]) -> list[Any]:
        """The gradient of each array, in an array that nobody else holds.

        Empties ``given``, a list with what the function returned as gradient.
        """
        entries = given if self.count == 1 else self._entries(given.pop())
        if self.single is not None:  # as nearly always
            cell = [entries[self.single]]
            del entries, given[:]
            if fits(cell[0], arrays[0]):
                return [owned(cell)]
            (number, part, _), *_ = self._parts
            return [self._checked(self._leaves(cell[0], part, number)[0], arrays[0], number)]
        found: list[Any] = [None] * len(arrays)
        for number, part, own in self._parts:
            leaves = self._leaves(entries[number], part, number)
            for place, at in own:
                each = self._checked(leaves[place], arrays[at], number)
                found[at] = each if found[at] is None else found[at] + each  # it is used twice
        return found

    def _entries(self, given: Any) -> Sequence[Any]:
        if type(given) is tuple and len(given) == self.count:
            return given
        raise TypeError(
            f"the gradient of model {self._name!r} must be a tuple with an entry for each of its "
            f"{self.count} positional arguments, None where it has no derivative; found "
            f"{describe(given)}"
        )

    def _leaves(self, entry: Any, part: Any, number: int) -> list[Any]:
        leaves, structure = flatten(entry)
        if structure != part and entry is not None:
            raise ValueError(
                f"{self._what(number)} must have the argument's structure, {part}; found "
                f"{describe(entry)}"
            )
        return [None] * part.num_leaves if entry is None else leaves

    def _checked(self, gradient: Any, array: Any, number: int) -> Any:
        what = self._what(number)
        if gradient is None:
            raise TypeError(
                f"{what} was asked for, and the model returned None: it has no such derivative"
            )
        checked = cotangents.check(gradient, array, what)
        return checked.copy() if isinstance(checked, np.ndarray) else checked

    def _what(self, number: int) -> str:
        argument = argument_name(self._fun, number)
        return f"the gradient of model {self._name!r} with respect to {argument!r}"


def is_leaf(part: optree.PyTreeSpec) -> bool:
    return bool(optree.treespec_is_leaf(part))


def fits(gradient: Any, array: Any) -> bool:
    """Whether a gradient needs no conversion."""
    return (
        type(gradient) is np.ndarray
        and type(array) is np.ndarray
        and gradient.shape == array.shape
        and gradient.dtype is array.dtype
    )


def owned(cell: list[Any]) -> Any:
    """The array in a list, or a copy if anybody else holds it: it may be the function's own, which
    the next call writes into."""
    array = cell.pop()
    if getrefcount(array) != ALONE or array.base is not None or not array.flags.carray:
        return array.copy()
    return array


def count_references(cell: list[Any]) -> int:
    array = cell.pop()
    return getrefcount(array)


ALONE = count_references([np.zeros(2)])  # in this version of Python
