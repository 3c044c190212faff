"""Functions that a model gives to a solver of SciPy's, which calls them with plain numbers."""

import functools
import types
from collections.abc import Callable, Iterable
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.tracer import isbox

from daskgrad.backends.autograd.unboxing import unboxed
from daskgrad.values.closures import EMPTY
from daskgrad.values.trees import flatten, map_leaves


def as_array(given: Any) -> Any:
    """An array, a list, or an array of objects that holds traced numbers, as one array."""
    if isbox(given) or (type(given) in (np.ndarray, np.float64) and given.dtype.kind != "O"):
        return given
    if isinstance(given, list | tuple):
        return anp.array([as_array(each) for each in given]) if given else np.array(given)
    array = np.asarray(given)
    if array.dtype.kind != "O":
        return array
    return anp.reshape(anp.array([as_array(each) for each in array.ravel()]), array.shape)


def depth_of(array: Any) -> int:
    """In how many traces a value is traced."""
    depth = 0
    while isbox(array):
        array = array._value
        depth += 1
    return depth


class PlainFunction:
    """A function that a model gives to SciPy, with its further arguments, for plain numbers.

    What the function closes over is replaced by plain numbers where it is found, so that nothing is
    recorded; elsewhere its results are. ``is_traced`` tells, once the function was called, whether
    it depends on traced values.
    """

    def __init__(self, fun: Callable, args: Iterable = ()):
        self._closures = Closures()
        self._fun = self._closures.plain(fun)
        self._args = tuple([self._closures.plain(each) for each in args])
        self.is_traced = self._closures.had_boxes

    def __call__(self, *args: Any) -> Any:
        found = self.unchanged(*args)
        return map_leaves(self._plain, found)

    def unchanged(self, *args: Any) -> Any:
        """The function's own result, in which what it holds may still be traced."""
        return self._fun(*args, *self._args)

    def _plain(self, leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray) and leaf.dtype.kind == "O":
            leaf = as_array(leaf)
        if isbox(leaf):
            self.is_traced = True
        return unboxed(leaf)


class Closures:
    """Copies functions that close over traced values, with plain numbers in their place."""

    def __init__(self) -> None:
        self.had_boxes = False
        self._known: dict[int, Any] = {}

    def plain(self, thing: Any) -> Any:
        """A function, partial, pytree or box without traced values; others as they are."""
        if isbox(thing):
            self.had_boxes = True
            return unboxed(thing)
        if isinstance(thing, types.FunctionType):
            if id(thing) not in self._known:
                self._known[id(thing)] = thing  # where it refers to itself
                self._known[id(thing)] = self._plain_function(thing)
            return self._known[id(thing)]
        if type(thing) is functools.partial:
            args, keywords = self.plain(thing.args), self.plain(thing.keywords)
            return functools.partial(self.plain(thing.func), *args, **keywords)
        if type(thing) is np.ndarray and thing.dtype.kind == "O":
            joined = as_array(thing) if any(map(isbox, thing.ravel())) else thing
            return self.plain(joined) if isbox(joined) else thing
        if type(thing) in (list, tuple, dict) and any(map(may_hold_boxes, flatten(thing)[0])):
            return map_leaves(self.plain, thing)
        return thing

    def _plain_function(self, fun: types.FunctionType) -> types.FunctionType:
        cells = fun.__closure__ or ()
        closure = tuple(map(self._plain_cell, cells))
        defaults, keywords = self.plain(fun.__defaults__), self.plain(fun.__kwdefaults__)
        parts = zip(
            (*closure, defaults, keywords),
            (*cells, fun.__defaults__, fun.__kwdefaults__),
            strict=True,
        )
        if all(mine is theirs for mine, theirs in parts):
            return fun
        twin = types.FunctionType(fun.__code__, fun.__globals__, fun.__name__, defaults, closure)
        twin.__kwdefaults__ = keywords
        return twin

    def _plain_cell(self, cell: types.CellType) -> types.CellType:
        if cell == EMPTY:
            return cell
        plain = self.plain(cell.cell_contents)
        return cell if plain is cell.cell_contents else types.CellType(plain)


def may_hold_boxes(leaf: Any) -> bool:
    kinds = types.FunctionType | functools.partial
    return isbox(leaf) or isinstance(leaf, kinds) or type(leaf) is np.ndarray
