"""Watch: notices that something has changed to which a model refers by name.

A program holds what the model found there when it was recorded: globals, variables of enclosing
functions, attributes, elements of small lists and dicts. They are compared by identity before each
call, and arrays of up to 4 kB by their bytes; whether a larger array has changed in place is found
when the program is checked. A function may get other code: IPython's autoreload replaces it in
place.
"""

import builtins
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from operator import is_
from typing import Any

import numpy as np

SMALL = 4096  # bytes
FEW = 64  # elements of a list or dict
CONTAINERS = (list, tuple, dict, set, frozenset, deque)
LIBRARIES = ("numpy", "scipy", "autograd", "daskgrad", "builtins", "collections", "_operator")
MISSING = object()
COMPARISONS = {"__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__"}
# methods that Python makes, or that a model does not call
OF_OBJECTS = {*vars(object), "_make", "_replace", "_asdict", "__replace__", "__getnewargs__"}
OF_OBJECTS -= COMPARISONS


class Watch:
    """What a function, and the functions that it calls, refer to."""

    def __init__(self, fun: Callable):
        self._functions: list[tuple[weakref.ref, types.CodeType, tuple | None, dict | None]] = []
        self._cells: list[tuple[types.CellType, Any]] = []
        self._entries: list[tuple[Any, str, Any]] = []
        self._elements: list[tuple[Any, list]] = []
        self._arrays: list[tuple[np.ndarray | np.void, bytes]] = []
        self._recursive: list[tuple[dict, str, Callable]] = []  # names of the function itself
        self._seen: set[Any] = {id(fun)}
        self._itself: Any = fun  # which a recursive function refers to; it is not to be kept alive
        self._follow_fields(fun)
        self._itself = self  # from now on nothing that is followed

    def has_changed(self) -> bool:
        """Whether a name refers to another object, a function has other code or defaults, or a
        small array other entries."""
        for reference, code, defaults, by_name in self._functions:
            fun = reference()
            if fun is None:
                continue
            now = fun.__defaults__
            if fun.__code__ is not code or fun.__kwdefaults__ is not by_name:
                return True
            if not (now is defaults or hold_the_same(now, defaults)):
                return True
        for cell, value in self._cells:
            if content_of(cell) is not value:
                return True
        for names, name, value in self._entries:
            if names.get(name, MISSING) is not value:
                return True
        for names, name, itself in self._recursive:
            if names.get(name, MISSING) is not itself():
                return True
        for container, before in self._elements:
            if not hold_the_same(elements_of(container), before):
                return True
        for array, entries in self._arrays:
            if array.tobytes() != entries:
                return True
        return False

    def follow_containers(self, structure: Any) -> None:
        """The methods of the containers in a call's arguments, and their classes' attributes that
        the code may mean."""
        kind = structure.type
        if kind is not None:
            names = [names_in(code) for _, code, *_ in self._functions]
            self._follow_attributes(kind, methods_of(kind).union(*names))
        for child in structure.children():
            self.follow_containers(child)

    def _follow(self, thing: Any) -> None:
        if id(thing) not in self._seen:
            self._seen.add(id(thing))
            self._follow_fields(thing)

    def _follow_fields(self, thing: Any) -> None:
        if type(thing) is np.ndarray or isinstance(thing, np.void):  # a row is a view
            if thing.nbytes <= SMALL and thing.dtype.kind != "O":
                self._arrays.append((thing, thing.tobytes()))
        elif isinstance(thing, partial):
            self._elements.append((thing.keywords, elements_of(thing.keywords)))
            self._follow_all([thing.func, *thing.args, *thing.keywords.values()])
            self._follow_attributes(
                [*thing.args, *thing.keywords.values()], names_of_call(thing.func)
            )
        elif isinstance(thing, types.MethodType):
            self._follow_method(thing.__func__, thing.__self__)
        elif isinstance(thing, types.FunctionType):
            self._follow_function(thing)
        elif isinstance(thing, CONTAINERS):
            if not isinstance(thing, tuple) and len(thing) <= FEW:
                self._elements.append((thing, elements_of(thing)))
            self._follow_all(thing.values() if isinstance(thing, dict) else thing)
        elif callable(thing) and not isinstance(thing, type):
            self._follow_method(type(thing).__call__, thing)

    def _follow_all(self, things: Any) -> None:
        for thing in list(things):
            self._follow(thing)

    def _follow_method(self, fun: Any, owner: Any) -> None:
        self._follow(fun)
        kind = owner if isinstance(owner, type) else type(owner)
        if is_rule(owner):
            for name, value in vars(owner).items():
                self._entries.append((vars(owner), name, value))
                self._follow(value)
        elif not is_of_library(kind.__module__):
            self._follow_attributes(owner, frozenset(names_of_methods(kind)))

    def _follow_function(self, fun: types.FunctionType) -> None:
        if all(map(is_of_library, modules_of(fun))):
            return
        self._functions.append(
            (weakref.ref(fun), fun.__code__, fun.__defaults__, fun.__kwdefaults__)
        )
        if fun.__kwdefaults__:
            self._elements.append((fun.__kwdefaults__, elements_of(fun.__kwdefaults__)))
        defaults = [*(fun.__defaults__ or ()), *(fun.__kwdefaults__ or {}).values()]
        self._follow_all(defaults)
        names = names_of_call(fun)
        held = [*defaults]
        for cell in fun.__closure__ or ():
            value = content_of(cell)
            if value is not self._itself:
                self._cells.append((cell, value))
                held.append(value)
        for name in names & fun.__globals__.keys():
            value = fun.__globals__[name]
            if value is self._itself:
                self._recursive.append((fun.__globals__, name, weakly(value)))
            else:
                self._entries.append((fun.__globals__, name, value))
                held.append(value)
        for name in names & vars(builtins).keys() - fun.__globals__.keys():
            self._entries.append((fun.__globals__, name, MISSING))  # a global may hide it
        self._follow_all(held)
        self._follow_attributes([fun, *held], names)

    def _follow_attributes(self, thing: Any, names: frozenset[str]) -> None:
        """The attributes of an object, of a class, or of a module of the user's, that the code may
        mean, and those of its elements and attributes."""
        kind = thing if isinstance(thing, type) else type(thing)
        if issubclass(kind, CONTAINERS):  # a named tuple has operators, too
            names |= {name for name in methods_of(kind) if name.startswith("__")}
        if (id(thing), names) in self._seen:
            return
        self._seen.add((id(thing), names))
        if isinstance(thing, CONTAINERS):
            if names and not is_of_library(kind.__module__):
                self._follow_attributes(kind, names)
            if len(thing) <= FEW:
                for each in elements_of(thing):
                    self._follow_attributes(each, names)
            return
        hiding: list[Any] = []  # the object's own and its class's, where others may be put later
        for own in namespaces_of(thing):
            for name in names & own.keys():
                value = own.get(name, MISSING)
                self._entries.append((own, name, value))
                self._entries += [(other, name, MISSING) for other in hiding if name not in other]
                self._follow(value)
                self._follow_attributes(value, names)
                method = function_of(value)
                if method is not None and not isinstance(thing, types.ModuleType):
                    self._follow(method)
                    self._follow_attributes(thing, names_of_call(method))
            if not isinstance(own, Slots) and len(hiding) < 2:
                hiding.append(own)


class Slots:
    """The attributes of an object in slots, as a dict has others."""

    def __init__(self, thing: Any):
        self._thing = thing

    def keys(self) -> set[str]:
        return {
            name
            for kind in type(self._thing).__mro__
            if not is_of_library(kind.__module__)
            for name, value in vars(kind).items()
            if isinstance(value, types.MemberDescriptorType)
        }

    def get(self, name: str, otherwise: Any) -> Any:
        return getattr(self._thing, name, otherwise)


def function_of(attribute: Any) -> Any:
    """The function of a method or property in a class; ``None`` for anything else."""
    if isinstance(attribute, property):
        attribute = attribute.fget
    elif isinstance(attribute, cached_property):
        attribute = attribute.func
    elif isinstance(attribute, classmethod | staticmethod):
        attribute = attribute.__func__
    return attribute if isinstance(attribute, types.FunctionType) else None


def methods_of(kind: type) -> frozenset[str]:
    """The names of methods that are the user's."""
    namespaces = [vars(each) for each in kind.__mro__ if not is_of_library(each.__module__)]
    names = {name for own in namespaces for name in own if function_of(own[name])}
    return frozenset(names - OF_OBJECTS)


def weakly(thing: Any) -> Callable[[], Any]:
    """A reference that does not keep a thing alive, if there is such."""
    try:
        return weakref.ref(thing)
    except TypeError:
        return lambda: thing


def content_of(cell: types.CellType) -> Any:
    """What a variable refers to; MISSING before it is assigned."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def elements_of(container: Any) -> list:
    """The elements of a list, or the keys and values of a dict."""
    return [*container, *container.values()] if isinstance(container, dict) else list(container)


def hold_the_same(first: Any, second: Any) -> bool:
    """Whether two sequences, or None, hold the same objects."""
    first, second = first or (), second or ()
    return len(first) == len(second) and all(map(is_, first, second))


def is_rule(thing: Any) -> bool:
    """Whether this is a function with rules of its own (``daskgrad.rules``)."""
    return hasattr(type(thing), "is_first_order")


def modules_of(fun: types.FunctionType) -> tuple[str | None, str | None]:
    """The module that a function names, and that of its code: ``functools.wraps`` takes over the
    name of what is wrapped, and autograd has the code of primitives."""
    return fun.__module__, fun.__globals__.get("__name__")


def is_of_library(module: str | None) -> bool:
    return (module or "").split(".")[0] in LIBRARIES


def namespaces_of(thing: Any) -> Iterator[Any]:
    """Where the attributes of an object, class or module are found."""
    if isinstance(thing, types.ModuleType):
        if not is_of_library(thing.__name__):
            yield vars(thing)
        return
    own = getattr(thing, "__dict__", None)
    if isinstance(own, dict):
        yield own
    if not isinstance(thing, type):
        yield Slots(thing)
    for kind in (thing if isinstance(thing, type) else type(thing)).__mro__:
        if not is_of_library(kind.__module__):
            yield vars(kind)


def names_of_call(fun: Any) -> frozenset[str]:
    """The names in the code of a function; of another callable, those in its class."""
    if isinstance(fun, types.MethodType):
        fun = fun.__func__
    if isinstance(fun, types.FunctionType):
        return frozenset(names_in(fun.__code__))
    return frozenset(names_of_methods(type(fun)))


def names_of_methods(kind: type) -> Iterator[str]:
    for each in kind.__mro__:
        for value in vars(each).values():
            fun = function_of(value)
            if fun is not None:
                yield from names_in(fun.__code__)


def names_in(code: types.CodeType) -> Iterator[str]:
    """The names of globals and attributes in a function's code, functions in it included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)
