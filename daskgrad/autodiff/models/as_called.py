"""As called: what a call has seen of the user's things, which may change before it runs.

Models run after the user's function has recorded them. So a call copies its small arrays, and notes
what its function refers to: variables of enclosing functions, globals, defaults, attributes,
elements of containers, arrays. If these have changed when the function is to run, it is made again
with what the call has seen; if that cannot be (attributes of objects, large arrays), there is an
error. Nobody can write into large arrays while the user's function runs.
"""

import copy
import dis
import functools
import gc
import itertools
import sys
import types
import weakref
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from functools import lru_cache, partial
from operator import attrgetter, is_
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.libraries.by_hand import WithGradient
from daskgrad.autodiff.models.model import Model, inside_model
from daskgrad.autodiff.programs.purity import is_lasting, is_read_only, read
from daskgrad.autodiff.programs.watch import (
    MISSING,
    content_of,
    elements_of,
    function_of,
    is_rule,
    namespaces_of,
    operators_of,
    slots_of,
)
from daskgrad.autodiff.tape.boxes import place_here
from daskgrad.autodiff.tape.operands import forget_references, note_references
from daskgrad.autodiff.values.carriers import drop_oldest, kept_or_made
from daskgrad.autodiff.values.elsewhere import replicated_of
from daskgrad.autodiff.values.locks import Lock
from daskgrad.autodiff.values.pickling import copy_of
from daskgrad.autodiff.values.trees import BOXES, codes_in, flatten, map_leaves, usual_leaves
from daskgrad.random import STATEFUL

TINY = 2**10  # bytes of an array that each call copies
SMALL = 2**16  # bytes of arrays in closures, and of all arrays in a list, that are copied
COPIED = 2**18  # bytes of an array among arguments or items that is copied
JOINED = 2**22  # bytes of many arrays that are compared
SAMPLES = 512  # entries of a locked array that are compared: views of it may be written into
FEW = 64  # elements of a container that are followed
MANY = 4096  # elements of a container that are compared
MOST_CODES = 1024

NUMBERS = frozenset((bool, int, float, complex, str, bytes, np.float64))
OF_ITEMS = NUMBERS | {np.ndarray}
BARE = NUMBERS | {type(None), type(...), slice, range, np.dtype}
BARE |= {types.BuiltinFunctionType, np.ufunc, type(np.sum)}
CONTAINERS = {list, tuple, dict, set, frozenset, deque}
COPYABLE = (set, bytearray, deque, np.void)

PACKAGES = ("site-packages", "dist-packages")
operators = lru_cache(MOST_CODES)(operators_of)
IS_ARRAY, NBYTES = partial(is_, np.ndarray), attrgetter("nbytes")  # of thousands of items

# -------------------------------------------------------------------------------------------------
# Arrays: small ones are copied; large ones are locked while the user's function runs.

_copies: dict[int, tuple[Callable, Callable, tuple[int, ...]]] = {}  # weak; arrays' strides


def copy_now(array: np.ndarray) -> np.ndarray:
    """A copy of an array, in its layout; all calls have one of a larger array until it changes."""
    if array.nbytes <= TINY:
        return copy_of(array)
    key = id(array)
    original, latest, strides = _copies.get(key, (lambda: None, lambda: None, ()))
    copied = latest() if original() is array and array.strides == strides else None
    if copied is None or not are_equal(copied, array):
        copied = copy_of(array)
        original = weakref.ref(array, lambda _: _copies.pop(key, None))
        _copies[key] = original, weakref.ref(copied), array.strides
    return copied


def are_equal(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays have the same entries, bit by bit."""
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


class LargeArrays:
    """Arrays that are too large to copy, and how they were when they were called.

    Many small arrays are compared byte by byte, and so are arrays while nothing is recorded. A
    large array is locked: nobody can write into it but through a view, which samples and a sum
    tell, unless entries between the samples change places.
    """

    __slots__ = ("_looks", "_name", "_place", "_seen", "arrays")

    def __init__(self, arrays: Sequence[np.ndarray], name: str):
        self.arrays, self._name, self._place = arrays, name, place_here()
        recording, nbytes = running(), sum(map(NBYTES, arrays))
        self._looks: Callable[[Sequence[Any]], Any] = samples_of
        if nbytes <= JOINED and len(arrays) > 1:
            self._looks = bytes_of
        elif recording is None and len(arrays) == 1:
            self._looks = checksum_of
        elif recording is None:
            self.arrays = arrays[:: len(arrays) // FEW + 1]
        else:
            recording.lock(arrays)
            self.arrays = arrays[:: len(arrays) // FEW + 1]
        self._seen = self._looks(self.arrays)

    def has_changed(self) -> bool:
        return self._looks(self.arrays) != self._seen

    def require_unchanged(self) -> None:
        if self.has_changed():
            instead = "pass a copy of the array: array.copy()"
            raise changed_error([self._name], self._place, instead)


def bytes_of(arrays: Sequence[Any]) -> bytes:
    try:
        return b"".join(arrays)  # a sixth of a loop's time
    except (TypeError, ValueError):  # arrays of dates, or with strides
        return b"".join([array.tobytes() for array in arrays if not array.dtype.hasobject])


def checksum_of(arrays: Sequence[Any]) -> Any:
    (array,) = arrays
    return (
        zlib.crc32(array.reshape(-1).view(np.uint8))
        if array.flags.c_contiguous
        else samples_of(arrays)
    )


def samples_of(arrays: Sequence[np.ndarray]) -> list[Any]:
    """Some entries of each array, and the sum of all bits of one in order, at 30 GB a second."""
    plain = [array for array in arrays if not array.dtype.hasobject]
    samples: list[Any] = [array.flat[:: max(1, array.size // SAMPLES)].tobytes() for array in plain]
    ordered = [array.ravel("K") for array in plain if array.flags.forc]
    words = [array.view(np.uint8) for array in ordered]
    sums = [np.add.reduce(w[: len(w) // 8 * 8].view(np.uint64)).tobytes() for w in words]
    return samples + sums + [w[len(w) // 8 * 8 :].tobytes() for w in words]


def changed_error(names: Sequence[str], place: tuple[str, int] | None, instead: str) -> TypeError:
    """The error of a call that cannot run any more with what it has seen."""
    where = "" if place is None else f" in {place[0]}, line {place[1]},"
    things = ", ".join(dict.fromkeys(names))
    verb = "have" if len(set(names)) > 1 else "has"
    return TypeError(
        f"{things} {verb} changed after the call{where} that uses it, and before that ran: models "
        f"run when the function that calls them has returned; {instead}"
    )


def stays(array: Any) -> bool:
    """Whether nobody writes into an array, or optimisers alone, between evaluations that use it."""
    return is_read_only(array) or replicated_of(array) is not None


def taken_array(array: Any, name: str) -> tuple[Any, LargeArrays | None]:
    """An array as it is now, for a call that runs later."""
    if type(array) in BOXES or stays(array):
        return array, None
    if type(array) is np.ndarray and array.nbytes <= COPIED:
        return copy_now(array), None
    return array, LargeArrays([array], name)


def taken_items(
    items: Any, name: str, runs_now: bool = False
) -> tuple[Any, Sequence[LargeArrays], Sequence[Any]]:
    """The items of a sum as they are now, the large arrays among them, and other objects; many
    items are not looked at if the sum ``runs_now``."""
    if isinstance(items, np.ndarray):
        array, large = taken_array(items, name)
        return array, () if large is None else (large,), ()
    if not isinstance(items, list) or NUMBERS.issuperset(map(type, items)):
        return items, (), ()
    if runs_now and len(items) > FEW:
        return items, (), ()
    leaves = usual_leaves(items)
    leaves = flatten(list(items))[0] if leaves is None else list(leaves)
    arrays = list(itertools.compress(leaves, map(IS_ARRAY, map(type, leaves))))
    objects: Sequence[Any] = ()
    if not OF_ITEMS.issuperset(map(type, leaves)):
        objects = [leaf for leaf in leaves if type(leaf) not in OF_ITEMS][:FEW]
    if len(leaves) <= FEW and sum(map(NBYTES, arrays)) <= SMALL:
        if {np.ndarray}.issuperset(map(type, items)):
            return [copy_of(array) for array in arrays], (), ()
        return map_leaves(taken, items), (), objects
    return items, [LargeArrays(arrays, name)] if arrays else (), objects


def taken(leaf: Any) -> Any:
    """A leaf of the arguments as it is now; any other object is itself."""
    if type(leaf) is np.ndarray:
        return copy_now(leaf) if replicated_of(leaf) is None else leaf
    if isinstance(leaf, STATEFUL):
        return copy.deepcopy(leaf)
    return leaf.copy() if isinstance(leaf, COPYABLE) else leaf


# -------------------------------------------------------------------------------------------------
# Recordings: while one runs, nobody writes into large arrays that a call has seen.


class UsersRun:
    """One run of a user's function that calls models.

    ``functions``: what they have referred to last. ``closing``: is called when it ends.
    ``eager``: runs models when they are called; None if calls are recorded. ``has_computed``: a
    value was asked for meanwhile; ``values``: of nodes in this process that were.
    """

    __slots__ = ("_locks", "closing", "eager", "functions", "has_computed", "values")

    def __init__(self, eager: Any = None) -> None:
        self.eager, self.has_computed = eager, False
        self._locks: list[Lock] = []
        self.functions: dict[int, Seen] = {}
        self.closing: list[Callable[[], None]] = []
        self.values: dict[Any, Any] = {}

    def run(self, fun: Callable[[], Any]) -> Any:
        """The result of the function, which begins and ends the recording."""
        token = _RUNNING.set(self)
        try:
            return fun()
        except ValueError as error:
            if self._locks and "read-only" in str(error):
                error.add_note(
                    "daskgrad: a model was called with a large array, or refers to one, and runs "
                    "when the function that calls it has returned; until then nobody can write "
                    "into the array: make a new one, or pass the model a copy, array.copy()"
                )
            raise
        finally:
            _RUNNING.reset(token)
            for close in self.closing:
                close()
            for lock in reversed(self._locks):
                lock.release()

    def lock(self, arrays: Iterable[Any]) -> None:
        """Locks arrays until the recording ends."""
        self._locks.append(Lock(arrays))


_RUNNING: ContextVar[UsersRun | None] = ContextVar("a user's function is recorded", default=None)

running = _RUNNING.get


def eager_tape() -> Any:
    """The tape of an eager evaluation, which runs models now; None if calls are recorded."""
    recording = running()
    tape = None if recording is None else recording.eager
    return None if tape is None or inside_model() else tape


# -------------------------------------------------------------------------------------------------
# Functions: what they refer to.


@lru_cache(MOST_CODES)
def is_users(module: Any) -> bool:
    """Whether a module is the user's own: of no library, which does not change."""
    if not isinstance(module, str) or module == "__main__":
        return True
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    is_standard = module.split(".")[0] in sys.stdlib_module_names
    return not (is_standard or is_lasting(module) or any([name in file for name in PACKAGES]))


def module_of(thing: Any) -> Any:
    """The name of a module, or of the module of a class, a function or an object's class."""
    if isinstance(thing, types.ModuleType):
        return thing.__name__
    return (thing if isinstance(thing, type | types.FunctionType) else type(thing)).__module__


class NamesInCode(NamedTuple):
    """The names in the code of a function: variables of enclosing functions with their numbers,
    globals, attributes. None is there that the code itself assigns."""

    code: types.CodeType  # a key is its id
    outer: tuple[tuple[int, str], ...]
    globals: tuple[str, ...]
    attributes: frozenset[str]
    assigns_globals: bool


def names_in(code: types.CodeType) -> NamesInCode:
    def make() -> NamesInCode:
        every = [op for part in codes_in(code) for op in dis.get_instructions(part)]
        assigned = {op.argval for op in every if op.opname in ("STORE_DEREF", "DELETE_DEREF")}
        of_module = {op.argval for op in every if op.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")}
        attributes = {op.argval for op in every if op.opname in ("STORE_ATTR", "DELETE_ATTR")}
        known = read(code)
        return NamesInCode(
            code,
            tuple([(n, name) for n, name in enumerate(code.co_freevars) if name not in assigned]),
            tuple(sorted(known.globals.keys() - of_module)),
            known.attributes - attributes,
            bool(of_module),
        )

    return kept_or_made(_names, id(code), make, MOST_CODES)


_names: dict[int, NamesInCode] = {}


class Reference(NamedTuple):
    """A value that ``get(key)`` has returned; ``is_fixed``: nobody can put it back there."""

    get: Callable[..., Any]
    key: Any
    value: Any
    name: str
    is_fixed: bool

    def has_changed(self) -> bool:
        now = self.get(self.key, MISSING)
        return now is not self.value and not are_one(now, self.value)


class Elements(NamedTuple):
    """The elements of a container, as they were."""

    container: Any
    elements: list[Any]
    name: str
    is_fixed: bool

    def has_changed(self) -> bool:
        now = elements_of(self.container)
        return len(now) != len(self.elements) or not all(map(is_, now, self.elements))


class FunctionParts(NamedTuple):
    """The references of a function: contents of cells by number, globals, and defaults."""

    fun: Any
    cells: dict[int, Any]
    known: dict[str, Any]
    defaults: Any
    by_name: Any
    may_change: bool  # globals

    @property
    def has_data(self) -> bool:
        return bool(self.cells or self.defaults or self.by_name or self.may_change)

    def has_other_globals(self) -> bool:
        names = self.fun.__globals__
        return any([names.get(name, MISSING) is not value for name, value in self.known.items()])


class Again(NamedTuple):
    """One making of things as they were: by id, and functions that are to be filled."""

    made: dict[int, Any]
    waiting: list[tuple[FunctionParts, Any]]


class SmallArray(NamedTuple):
    """An array and its copy."""

    array: np.ndarray
    copied: np.ndarray
    name: str
    is_fixed: bool

    def has_changed(self) -> bool:
        return not are_equal(self.array, self.copied)


def are_one(now: Any, value: Any) -> bool:
    kind = type(now)
    return kind is type(value) and kind in NUMBERS and repr(now) == repr(value)


def content(cell: types.CellType, *_: Any) -> Any:
    return content_of(cell)


class Seen:
    """All to which a function referred when it was called, at any depth.

    ``things``: further objects that the call has seen.
    """

    def __init__(self, fun: Any, name: str, things: Sequence[Any] = ()):
        self.fun, self.name = fun, name
        self._shares_containers = False
        self._notes: Sequence[tuple[int, int, list[None]]] = ()
        self._references: list[Reference] = []
        self._parts: dict[int, Any] = {}  # of functions and containers
        self._arrays: dict[int, SmallArray] = {}
        self._large: list[LargeArrays] = []
        self._attributes: set[str] = set()
        self._holders: list[tuple[Any, str, set[str]]] = []
        self._visited: dict[int, tuple[Any, bool]] = {}
        self._waiting = deque([(fun, name, False)])
        self._waiting += [(thing, type(thing).__name__, True) for thing in things]
        self._follow_all()
        before = -1
        while self._holders and before != (before := len(self._attributes) + len(self._holders)):
            for holder, holder_name, done in list(self._holders):
                names = self._attributes - done
                done |= names
                self._follow_attributes(holder, holder_name, names)
            self._follow_all()
        del self._visited, self._waiting
        self._mark_functions()
        if self._large:
            self._notes = self._noted_references()
        self._entries: list[Any] = [*self._references, *self._arrays.values()]
        self._entries += [part for part in self._parts.values() if type(part) is Elements]
        self.place = place_here() if self else None

    def __bool__(self) -> bool:
        return bool(self._entries or self._large)

    def changes(self) -> list[Any]:
        """All that has changed since, but for large arrays."""
        return [entry for entry in self._entries if entry.has_changed()]

    def has_changed(self) -> bool:
        return any([entry.has_changed() for entry in (*self._entries, *self._large)])

    def function(self, is_kept: bool) -> Any:
        """The function as it was called; ``is_kept``: also if things change from now on."""
        for large in self._large:
            large.require_unchanged()
        changes = self.changes()
        fixed = [entry.name for entry in changes if entry.is_fixed]
        if fixed:
            names = [f"{name!r}, to which model {self.name!r} refers," for name in fixed]
            raise changed_error(
                names, self.place, f"pass it as an argument, {self.name}(..., {fixed[0]})"
            )
        self._shares_containers = not changes  # the function may change them itself
        if not (changes or is_kept):
            return self.fun
        again = Again({}, [])
        fun = self._as_it_was(self.fun, again)
        while again.waiting:
            self._fill(*again.waiting.pop(), again)
        return fun

    def __del__(self) -> None:
        for note in self._notes:
            forget_references(*note)

    # ------------------------------------------------------------------------------- looking

    def _follow(self, thing: Any, name: str, is_fixed: bool) -> None:
        if type(thing) not in BARE:
            self._waiting.append((thing, name, is_fixed))

    def _follow_all(self) -> None:
        while self._waiting:
            self._look_at(*self._waiting.popleft())

    def _look_at(self, thing: Any, name: str, is_fixed: bool) -> None:
        kind = type(thing)
        before = self._visited.get(id(thing))
        if before is not None and before[1] >= is_fixed:
            return
        self._visited[id(thing)] = thing, is_fixed
        if kind is types.FunctionType:
            self._follow_function(thing, is_fixed)
        elif kind is np.ndarray or kind is np.void:
            self._follow_array(thing, name, is_fixed)
        elif kind in CONTAINERS:
            self._follow_container(thing, name, is_fixed)
        elif kind is types.MethodType:
            self._follow(thing.__func__, name, is_fixed)
            self._follow(thing.__self__, name, True)
        elif issubclass(kind, partial):
            for part in (thing.func, thing.args, thing.keywords):
                self._follow(part, name, is_fixed)
        elif kind is WithGradient:
            self._follow(thing.fun, name, is_fixed)
        elif is_model(thing):
            self._follow(thing.model.fun, name, is_fixed)
        elif is_rule(thing):
            for key, value in vars(thing).items():
                if callable(value):
                    self._references.append(Reference(vars(thing).get, key, value, key, True))
                    self._follow(value, key, is_fixed)
        elif hasattr(kind, "tocsr"):
            for array in vars(thing).values():
                self._follow(array, name, True)
        elif isinstance(thing, tuple(CONTAINERS)):
            self._follow_container(thing, name, True)
        elif kind is types.SimpleNamespace or is_users(module_of(thing)):
            self._holders.append((thing, name, set()))
            if kind is not types.ModuleType:
                names = operators(thing if isinstance(thing, type) else kind)
                self._follow_attributes(thing, name, names)

    def _follow_function(self, fun: types.FunctionType, is_fixed: bool) -> None:
        if not is_users(fun.__module__):
            return
        names, defaults = names_in(fun.__code__), fun.__defaults__
        self._attributes |= names.attributes
        cells: dict[int, Any] = {}
        for number, name in names.outer:
            cell = fun.__closure__[number]  # type: ignore[index]
            value = cells[number] = content_of(cell)
            self._references.append(Reference(partial(content, cell), 0, value, name, is_fixed))
            self._follow(value, name, is_fixed)
        known: dict[str, Any] = {}
        for name in names.globals:
            value = fun.__globals__.get(name, MISSING)
            is_library = type(value) is types.ModuleType and not is_users(value.__name__)
            if value is MISSING or is_library:
                continue
            known[name] = value
            stays = is_fixed or names.assigns_globals
            self._references.append(Reference(fun.__globals__.get, name, value, name, stays))
            self._follow(value, name, stays)
        if defaults or fun.__kwdefaults__:
            for attribute in ("__defaults__", "__kwdefaults__"):
                value = getattr(fun, attribute)
                get = partial(getattr, fun)
                self._references.append(Reference(get, attribute, value, fun.__name__, is_fixed))
                self._follow(value, fun.__name__, is_fixed)
        if vars(fun):
            self._holders.append((fun, fun.__name__, set()))
        if cells or known or defaults or fun.__kwdefaults__:
            by_name = fun.__kwdefaults__
            self._parts[id(fun)] = FunctionParts(fun, cells, known, defaults, by_name, False)

    def _mark_functions(self) -> None:
        """Marks the functions whose globals may change, through those that they call, too."""
        before, marked = -1, 0
        while before != marked:
            before = marked
            for key, parts in reversed(self._parts.items()):
                if type(parts) is FunctionParts and not parts.may_change:
                    if any(map(self._may_change, parts.known.values())):
                        self._parts[key] = parts._replace(may_change=True)
                        marked += 1

    def _may_change(self, value: Any) -> bool:
        """Whether the thing behind a global is data, or a function that refers to data."""
        parts = self._parts.get(id(value))
        if type(parts) is FunctionParts:
            return parts.has_data
        return parts is not None or type(value) in NUMBERS or id(value) in self._arrays

    def _follow_array(self, array: Any, name: str, is_fixed: bool) -> None:
        if array.dtype.hasobject or stays(array):
            return
        if array.nbytes <= SMALL:
            copied = copy_now(array) if type(array) is np.ndarray else array.copy()
            self._arrays[id(array)] = SmallArray(array, copied, name, is_fixed)
        else:
            subject = f"{name!r}, to which model {self.name!r} refers,"
            self._large.append(LargeArrays([array], subject))

    def _noted_references(self) -> list[tuple[int, int, list[None]]]:
        """Tells traces how often this refers to large arrays: nobody writes into one by that."""
        holders: list[Any] = [*self._references, *[large.arrays for large in self._large]]
        for parts in self._parts.values():
            is_elements = type(parts) is Elements
            holders += [parts.elements] if is_elements else [parts.cells, parts.known]
        counts = Counter(map(id, gc.get_referents(*holders)))
        keys = {id(array) for large in self._large for array in large.arrays}
        return [(key, counts[key], note_references(key, counts[key])) for key in keys]

    def _follow_container(self, thing: Any, name: str, is_fixed: bool) -> None:
        if len(thing) > MANY:
            return
        elements = elements_of(thing)
        is_large = len(thing) > FEW
        if elements:
            self._parts[id(thing)] = Elements(thing, elements, name, is_fixed)
        for element in () if is_large else elements:
            self._follow(element, name, is_fixed)

    def _follow_attributes(self, thing: Any, of: str, names: set[str]) -> None:
        for namespace in namespaces_of(thing):
            for name in names & namespace.keys():
                self._follow_attribute(namespace.get, name, namespace[name], f"{of}.{name}")
        for name in names & set(slots_of(thing if isinstance(thing, type) else type(thing))):
            if not isinstance(thing, type):
                get = partial(getattr, thing)
                self._follow_attribute(get, name, get(name, MISSING), f"{of}.{name}")

    def _follow_attribute(self, get: Callable, name: str, value: Any, known: str) -> None:
        fun = function_of(value)
        if fun is None and isinstance(
            value, types.MemberDescriptorType | types.GetSetDescriptorType
        ):
            return
        self._references.append(Reference(get, name, value, known, True))
        self._follow(value if fun is None else fun, known, True)

    # ------------------------------------------------------------------------------ restoring

    def _as_it_was(self, thing: Any, run: Again) -> Any:
        """A thing with all that it referred to; functions among it wait to be filled."""
        made = run.made
        if id(thing) in made:
            return made[id(thing)]
        kind, again = type(thing), partial(self._as_it_was, run=run)
        parts = self._parts.get(id(thing))
        if kind is np.ndarray and id(thing) in self._arrays:
            return self._arrays[id(thing)].copied
        if kind is types.FunctionType and parts is not None:
            return self._function_again(parts, run)
        if type(parts) is Elements and not (parts.is_fixed or self._shares_containers):
            elements = list(map(again, parts.elements))
            if kind is dict:
                half = len(elements) // 2
                result: Any = dict(zip(elements[:half], elements[half:], strict=True))
            else:
                result = kind(elements)
            made[id(thing)] = result
            return result
        if kind is types.MethodType:
            return types.MethodType(again(thing.__func__), thing.__self__)
        if kind is partial:
            return partial(again(thing.func), *again(thing.args), **again(thing.keywords))
        if kind is WithGradient:
            return WithGradient(again(thing.fun), thing.name)
        if is_model(thing):
            return kind(thing.model._replace(fun=again(thing.model.fun)))
        if is_rule(thing):
            result = made[id(thing)] = copy.copy(thing)
            for name, value in vars(thing).items():
                if callable(value):
                    setattr(result, name, again(value))
            return result
        return thing

    def _function_again(self, parts: FunctionParts, run: Again) -> Any:
        fun = parts.fun
        names, closure = fun.__globals__, list(fun.__closure__ or ())
        if parts.may_change or parts.has_other_globals():
            names = dict(names)
        elif not parts.has_data:
            return fun
        for number in parts.cells:
            closure[number] = types.CellType()
        result = types.FunctionType(fun.__code__, names, fun.__name__, None, tuple(closure) or None)
        functools.update_wrapper(result, fun)
        result.__dict__ = dict(vars(fun))
        run.made[id(fun)] = result
        run.waiting.append((parts, result))
        return result

    def _fill(self, parts: FunctionParts, result: Any, run: Again) -> None:
        """Gives a function that was made again what it referred to."""
        again = partial(self._as_it_was, run=run)
        for number, value in parts.cells.items():
            if value is not MISSING:
                result.__closure__[number].cell_contents = again(value)
        if result.__globals__ is not parts.fun.__globals__:
            result.__globals__.update({name: again(value) for name, value in parts.known.items()})
        result.__defaults__, result.__kwdefaults__ = again(parts.defaults), again(parts.by_name)


def is_model(thing: Any) -> bool:
    """Whether it is what ``dg.delayed`` returns."""
    is_ours = type(thing).__module__.startswith("daskgrad.graph.")
    return is_ours and isinstance(getattr(thing, "model", None), Model)


def seen_by(model: Model, things: Sequence[Any] = ()) -> Seen | None:
    """All to which a model refers now; None if nothing could change."""
    fun = model.fun
    if not things:
        if type(fun) in BARE:
            return None
        if type(fun) is types.FunctionType and id(fun.__code__) in _bare:
            return None
    recording = running()
    seen = None if things or recording is None else recording.functions.get(id(fun))
    if seen is None or seen.has_changed():
        seen = Seen(fun, model.name, things)
        if recording is not None and not things:
            recording.functions[id(fun)] = seen
        if not seen and type(fun) is types.FunctionType and is_bare(fun):
            _bare[id(fun.__code__)] = fun.__code__
            drop_oldest(_bare, MOST_CODES)
    return seen or None


_bare: dict[int, types.CodeType] = {}  # of functions that refer to libraries alone, by id


def is_bare(fun: types.FunctionType) -> bool:
    """Whether a function's code refers to nothing but libraries, whoever made the function."""
    return not (fun.__closure__ or fun.__defaults__ or fun.__kwdefaults__ or vars(fun))


def as_called(nodes: Iterable[Any], is_kept: bool = False) -> None:
    """Gives nodes their models as they were when they were called, before these run.

    ``is_kept``: the nodes run at a time that nobody knows. Then functions have their own variables
    and arrays, but share lists and dicts with the user, whom they may tell something.

    Raises
    ------
    TypeError
        if something has changed that nobody can put back.
    """
    made: dict[tuple[int, int], Any] = {}
    for node in nodes:
        for large in node.large:
            large.require_unchanged()
        seen = node.seen
        if seen is None:
            continue
        key = id(seen), id(node.model)
        if key not in made:
            fun = seen.function(is_kept)
            made[key] = node.model if fun is seen.fun else node.model._replace(fun=fun)
        node.model = made[key]
