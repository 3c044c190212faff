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
    if array.ndim == 0:
        return array.item() if isbox(array.item()) else array
    return anp.reshape(anp.array([as_array(each) for each in array.ravel()]), array.shape)


def depth_of(array: Any) -> int:
    """In how many traces a value is traced."""
    depth = 0
    while isbox(array):
        array = array._value
        depth += 1
    return depth


def traces_of(array: Any) -> set[int]:
    """The numbers of the traces in which a value is traced."""
    found = set()
    while isbox(array):
        found.add(array._trace)
        array = array._value
    return found


def number_at(fun: Callable, x: Any) -> Any:
    """What a function returns at a number, as one number."""
    found = as_array(fun(x))
    return np.reshape(found, ()) if np.ndim(found) else found


class PlainFunction:
    """A function that a model gives to SciPy, with its further arguments, for plain numbers.

    What the function closes over is replaced by plain numbers where it is found (``numbers``), so
    that nothing is recorded; elsewhere its results are. ``is_traced`` tells, once the function was
    called, whether it depends on traced values; ``holds_others`` whether on some not found.
    """

    def __init__(self, fun: Callable, args: Iterable = ()):
        self._given = fun, tuple(args)
        self.numbers: list[Any] = []
        self.boxes: list[Any] = []
        self._traces: set[int] = set()
        self.unchanged = self._with(self._plain_number)
        self.holds_others = False

    def __call__(self, *args: Any) -> Any:
        found = self.unchanged(*args)
        if type(found) is float or type(found) is np.float64:  # in a tenth of the time
            return found
        return map_leaves(self._plain, found)

    @property
    def is_traced(self) -> bool:
        return bool(self.numbers) or self.holds_others

    @property
    def depth(self) -> int:
        """By how many traces what was found is differentiated: the highest order there may be."""
        return len(self._traces)

    def bound_to(self, numbers: Iterable) -> Callable:
        """The function with others in the place of the ``numbers``."""
        others = iter(numbers)
        return self._with(lambda box: next(others))

    def along(self, slopes: np.ndarray) -> Any:
        """Zero, with these slopes by the numbers, which one trace has."""
        parts, start = [], 0
        for box, number in zip(self.boxes, self.numbers, strict=True):
            part = slopes[start : start + np.size(number)]
            step = box - number  # zero, so that the value is exact
            parts.append(anp.dot(part, step if np.ndim(number) == 1 else anp.ravel(step)))
            start += np.size(number)
        total = sum(parts[1:], parts[0])
        return anp.real(total) if np.iscomplexobj(slopes) else total

    def _with(self, replace: Callable) -> Callable:
        fun, args = self._given
        closures = Closures(replace)
        twin, others = closures.replaced(fun), [closures.replaced(each) for each in args]
        return lambda *first: twin(*first, *others)

    def _plain_number(self, box: Any) -> Any:
        self.boxes.append(box)
        self.numbers.append(number_in(box))
        self._traces |= traces_of(box)
        return self.numbers[-1]

    def _plain(self, leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray) and leaf.dtype.kind == "O":
            leaf = as_array(leaf)
        if isbox(leaf):
            self.holds_others = True
        return number_in(leaf)


def number_in(leaf: Any) -> Any:
    """The plain number in a box; one of a compiled model that is being recorded has none yet."""
    found = unboxed(leaf)
    if isbox(found):
        raise found.refusal("the model gives SciPy a function of traced values")
    return found


class Closures:
    """Copies functions that close over traced values, with others in their place.

    They are looked for in closures, defaults, partials and pytrees, and not in other objects.
    """

    def __init__(self, replace: Callable) -> None:
        self._replace = replace
        self._known: dict[int, Any] = {}

    def replaced(self, thing: Any) -> Any:
        """A function, partial, list or box without the traced values; others as they are."""
        if isbox(thing):
            return self._replace(thing)
        if isinstance(thing, types.FunctionType):
            if id(thing) not in self._known:
                self._known[id(thing)] = thing  # where it refers to itself
                self._known[id(thing)] = self._copy(thing)
            return self._known[id(thing)]
        if type(thing) is functools.partial:
            args, keywords = self.replaced(thing.args), self.replaced(thing.keywords)
            return functools.partial(self.replaced(thing.func), *args, **keywords)
        if type(thing) is np.ndarray and thing.dtype.kind == "O":
            joined = as_array(thing) if any(map(isbox, thing.ravel())) else thing
            return self.replaced(joined) if isbox(joined) else thing
        if isinstance(thing, types.MethodType):
            owner = self.replaced(thing.__self__)
            return thing if owner is thing.__self__ else types.MethodType(thing.__func__, owner)
        leaves = flatten(thing)[0]
        is_leaf = len(leaves) == 1 and leaves[0] is thing
        if not is_leaf and any(map(may_hold_boxes, leaves)):
            return map_leaves(self.replaced, thing)
        return thing

    def _copy(self, fun: types.FunctionType) -> types.FunctionType:
        cells = fun.__closure__ or ()
        closure = tuple(map(self._copy_cell, cells))
        defaults, keywords = self.replaced(fun.__defaults__), self.replaced(fun.__kwdefaults__)
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

    def _copy_cell(self, cell: types.CellType) -> types.CellType:
        if cell == EMPTY:
            return cell
        contents = self.replaced(cell.cell_contents)
        return cell if contents is cell.cell_contents else types.CellType(contents)


def may_hold_boxes(leaf: Any) -> bool:
    kinds = types.FunctionType | types.MethodType | functools.partial
    return isbox(leaf) or isinstance(leaf, kinds) or type(leaf) is np.ndarray
