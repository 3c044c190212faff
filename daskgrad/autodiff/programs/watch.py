"""Watch: what a model refers to by name, whether that has changed, and whether it may be watched.

A program holds what the model found there when it was recorded: globals, variables of enclosing
functions, attributes, elements of small lists and dicts. They are compared by identity before each
call, and small arrays by their bytes. A function may get other code: IPython's autoreload replaces
it in place.
"""

import sys
import types
import weakref
from collections import deque, namedtuple
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np

from daskgrad.autodiff.programs.purity import (
    CHANGING,
    impurity_of_builtin,
    impurity_of_library,
    impurity_of_path,
    is_lasting,
    is_of_library,
    is_plain_class,
    is_primitive,
    is_read_only,
    path_of,
    read,
)
from daskgrad.autodiff.values.descriptions import function_name

SMALL = 4096  # bytes of an array that is always watched
FEW = 64  # elements of a list or dict
MOST = 256  # things that are compared before each call of a model that nobody vouched for
CONTAINERS = (list, tuple, dict, set, frozenset, deque)
PLAIN = (bool, int, float, complex, str, bytes, slice, range, type(None), type(...))
OF_NUMPY = (np.generic, np.dtype, np.ufunc)
MISSING = object()
MODELS: dict[type, Callable[[Any], tuple]] = {}  # of a model its function, and what else it is
PACKAGE = "daskgrad"
COMPARISONS = {"__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__"}
# methods that Python makes, or that a model does not call
OF_OBJECTS = {*vars(object), "_make", "_replace", "_asdict", "__replace__", "__getnewargs__"}
OF_OBJECTS -= COMPARISONS
MADE_BY = {"__init__", "__new__", "__post_init__"}  # of a class that may be called
OF_CLASSES = (
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
    type(vars(namedtuple("Pair", "x"))["x"]),
)


def layout_of(array: Any) -> tuple:
    return array.shape, array.dtype, array.strides, array.flags.writeable


def count_names(kind: type) -> int:
    return len(vars(kind)) - ("__slotnames__" in vars(kind))  # which a pickle puts there


def class_at(ref: Callable) -> type:
    return type(ref())


class References:
    """What a function, and the functions that it calls, refer to.

    ``impurity`` tells why two calls with the same arguments may differ, though nothing of this has
    changed; where nobody vouched for the function, no more is followed then. ``room``: of how many
    bytes larger arrays may be, that are compared, too.
    """

    def __init__(self, fun: Callable, room: float = 0, is_vouched: bool = False):
        self.impurity: str | None = None
        self.of, self.room = weakly(fun), room
        self._same: list[tuple[Callable, Any]] = []  # what returns the same object
        self._equal: list[tuple[Callable, Any]] = []  # what returns an equal one
        self._kept: list[Any] = []  # so that no other object has its id
        self._room, self._stops = room, not is_vouched
        self._functions = 0
        self.names: set[str] = set()  # attributes that the code may mean
        self._holders: list[tuple[Callable, set[str]]] = []  # objects, and those that were followed
        self._has_modules = False  # that are passed on
        self.of_package: set[str] = set()  # names of this package that the code means
        self._seen: dict[int, Any] = {}
        self._itself: Any = fun  # which a recursive function refers to; it is not to be kept alive
        self._walk([(fun, function_name(fun))])
        self._itself = self  # from now on nothing that is followed

    def has_changed(self) -> bool:
        """Whether a name refers to another object, a function has other code or defaults, a list
        other elements, or a small array other entries."""
        for get, value in self._same:
            if get() is not value:
                return True
        for get, value in self._equal:
            if get() != value:
                return True
        return False

    def follow_arguments(self, classes: Iterable[Any], constants: Iterable[Any]) -> str | None:
        """The methods of classes in a call's arguments, their attributes that the code may mean,
        and functions and modules that are passed; the impurity."""
        for kind in classes:
            if not is_lasting(kind.__module__):
                self._hold(kind)
        self._walk([(each, "an argument") for each in constants])
        return self.impurity

    def _walk(self, things: Iterable[tuple[Any, str]]) -> None:
        for thing, name in things:
            self._follow(thing, name)
        before = None
        while before != (before := (len(self._holders), len(self.names))):
            for holder, done in list(self._holders):
                names = self.names - done
                done |= names
                self._follow_attributes(holder(), names)
        self._seen = {}
        if self._has_modules and not self.names.isdisjoint(CHANGING):
            self._refuse(f"it uses {min(self.names & CHANGING)!r}")
        if len(self._same) + len(self._equal) > MOST:
            self._refuse(f"it refers to more than {MOST} objects that may change")

    def _refuse(self, reason: str | None) -> None:
        self.impurity = self.impurity or reason

    def _follow(self, thing: Any, name: str) -> None:
        kind: Any = type(thing)
        is_over = self._stops and self.impurity is not None
        is_constant = kind in PLAIN or (isinstance(thing, OF_NUMPY) and kind is not np.void)
        if id(thing) in self._seen or is_constant or is_over:
            return
        self._seen[id(thing)] = thing
        if kind is np.ndarray or kind is np.void:  # a row is a view
            self._follow_array(thing, name)
        elif kind in MODELS:
            self._follow_model(thing)
        elif isinstance(thing, partial):
            self._follow_all([thing.func, thing.args, thing.keywords], name)
        elif isinstance(thing, types.MethodType):
            self._follow_all([thing.__func__, thing.__self__], thing.__func__.__name__)
        elif isinstance(thing, types.FunctionType):
            self._follow_function(thing)
        elif isinstance(thing, CONTAINERS):
            self._follow_container(thing, name)
        elif is_rule(thing):  # its rules are called as they are
            self._same += [
                (partial(vars(thing).get, *each), each[1]) for each in vars(thing).items()
            ]
            self._follow(thing.fun, name)
        elif isinstance(thing, types.ModuleType):
            self._follow_module(thing, name)
        elif isinstance(thing, type) and not is_lasting(thing.__module__):
            self._hold(thing)
            if not issubclass(thing, tuple):
                self._follow_attributes(thing, MADE_BY)
        elif is_plain_class(kind):
            self._hold(thing)
        else:
            self._refuse(impurity_of_library(thing, name))
            self.names.add(getattr(thing, "__name__", name))
            if not is_lasting(kind.__module__):
                self._hold(thing)

    def _follow_all(self, things: Iterable[Any], name: str) -> None:
        for thing in list(things):
            self._follow(thing, name)

    def _follow_model(self, model: Any) -> None:
        """A model that is called: its function has a watch of its own kind."""
        fun, is_compiled, is_vouched, *_ = MODELS[type(model)](model)
        if not is_compiled:
            return self._refuse(f"it calls the model {function_name(fun)!r}, which is not compiled")
        if hasattr(model, "model"):
            self._same.append((partial(attribute_of, weakly(model), "model", MISSING), model.model))
        inner = References(fun, self._room, is_vouched)
        self._room = inner._room
        self.names |= inner.names  # of what it takes in, which is followed here
        self._same += inner._same
        self._equal += inner._equal
        self._kept.append(inner)
        return self._refuse(None if is_vouched else inner.impurity)

    def _follow_array(self, array: Any, name: str) -> None:
        if array.dtype.hasobject:
            return self._refuse(f"it refers to {name!r}, an array of objects")
        self._equal.append((partial(layout_of, array), layout_of(array)))
        if array.nbytes > SMALL:
            if is_read_only(array):
                return None
            if array.nbytes > self._room:
                return self._refuse(
                    f"it refers to the array {name!r}, of {array.nbytes:,} bytes, which may change "
                    f"in place: pass it as an argument"
                )
            self._room -= array.nbytes
        return self._equal.append((array.tobytes, array.tobytes()))

    def _follow_container(self, thing: Any, name: str) -> None:
        kind = type(thing)
        if not isinstance(thing, tuple | frozenset):
            if len(thing) > FEW:
                what = f"a {kind.__name__} of more than {FEW} elements"
                return self._refuse(f"it refers to {name!r}, {what}")
            self._kept.append(elements_of(thing))
            self._equal.append((partial(ids_of, thing), ids_of(thing)))
        self._follow_all(elements_of(thing), name)
        if kind not in CONTAINERS:
            if not hasattr(kind, "_fields"):
                self._refuse(f"it refers to {name!r}, an object of type {kind.__qualname__}")
            self._hold(kind)
        return None

    def _follow_module(self, module: types.ModuleType, name: str) -> None:
        if is_lasting(module.__name__):
            self._has_modules = True
            return self._refuse(impurity_of_path(module.__name__))
        if module.__name__ not in sys.stdlib_module_names:
            self._hold(module)
        return self._refuse(f"it refers to the module {name!r}")

    def _follow_function(self, fun: types.FunctionType) -> None:
        if is_primitive(fun):
            return None
        if all(map(is_lasting, modules_of(fun))):
            self.names.add(fun.__name__)  # NumPy's functions call methods of their name
            if fun.__module__.split(".")[0] == PACKAGE:
                self.of_package.add(fun.__name__)
            return self._refuse(impurity_of_path(path_of(fun)))
        self._functions += 1
        if self._functions > MOST:
            return self._refuse(f"it refers to more than {MOST} functions")
        self._kept += [fun.__code__, fun.__defaults__, fun.__kwdefaults__]
        parts = parts_of(lambda: fun, [])
        self._equal.append((partial(parts_of, weakref.ref(fun), parts), parts))
        self._follow_all([fun.__defaults__, fun.__kwdefaults__], fun.__name__)
        if vars(fun):
            self._holders.append((weakly(fun), set()))
        code = read(fun.__code__)
        self.names |= code.attributes
        self._refuse(code.impurity)
        self._has_modules |= code.imports
        for number, (name, cell) in enumerate(
            zip(fun.__code__.co_freevars, fun.__closure__ or (), strict=True)
        ):
            value = content_of(cell)
            if value is not self._itself:
                is_there = partial(is_content, weakref.ref(fun), number, weakly(value))
                self._equal.append((is_there, True))
                self._follow_paths(value, name, code.outer.get(name, ()))
        for name, paths in code.globals.items():
            value = fun.__globals__.get(name, MISSING)
            get = partial(fun.__globals__.get, name, MISSING)
            if value is self._itself:
                self._equal.append((partial(is_still, get, weakly(value)), True))
                continue
            self._same.append((get, value))
            self._follow_paths(value, name, paths)
            if value is MISSING:
                self._refuse(impurity_of_builtin(name))
        return None

    def _follow_paths(self, start: Any, name: str, paths: Iterable[tuple[str, ...]]) -> None:
        """What a name stands for; or what is taken out of it if it is a module."""
        for path in paths:
            thing, known = start, name
            for attribute in path:
                if not isinstance(thing, types.ModuleType):
                    break
                known = f"{known}.{attribute}"
                if is_lasting(thing.__name__):
                    self._refuse(impurity_of_path(f"{thing.__name__}.{attribute}"))
                    if thing.__name__ == PACKAGE:
                        self.of_package.add(attribute)
                    thing = getattr(thing, attribute, MISSING)
                    if not isinstance(thing, types.ModuleType):
                        thing = MISSING  # what a library has does not change
                else:
                    get = partial(vars(thing).get, attribute, MISSING)
                    thing = get()
                    self._same.append((get, thing))
                    if thing is MISSING:
                        self._refuse(f"it refers to {known!r}, which is not there")
            if thing is not MISSING:
                self._follow(thing, known)

    def _hold(self, thing: Any) -> None:
        """Follows attributes from now on that the code may mean, and at once the operators."""
        kind: Any = thing if isinstance(thing, type) else type(thing)
        self._holders.append((weakly(thing), set()))
        if not isinstance(thing, types.ModuleType):
            self._same.append((partial(getattr, kind, "__mro__"), kind.__mro__))
            if kind is not thing:
                self._same.append((partial(class_at, weakly(thing)), kind))
            for base in kind.__mro__:  # into which an attribute may be put that hides another one
                if not is_of_library(base.__module__):
                    self._equal.append((partial(count_names, base), count_names(base)))
            if not is_plain_class(kind) and not issubclass(kind, CONTAINERS):
                self._refuse(f"it refers to the class {kind.__name__!r}, which is no plain one")
            self._follow_attributes(thing, operators_of(kind))

    def _follow_attributes(self, thing: Any, names: set[str]) -> None:
        """Attributes of an object, of a class, of a function or of a module of the user's."""
        hiding: list[Any] = []  # the object's own and its class's, where others may be put later
        for own in namespaces_of(thing):
            for name in names & own.keys():
                value, get = own[name], partial(own.get, name, MISSING)
                fun = function_of(value)
                if isinstance(value, types.MemberDescriptorType) and not isinstance(thing, type):
                    get = partial(attribute_of, weakly(thing), name, MISSING)
                    value = get()
                elif isinstance(value, OF_CLASSES):
                    continue
                elif fun is None and hasattr(type(value), "__get__") and type(own) is not dict:
                    self._refuse(f"it refers to {name!r}, an object of type {type(value).__name__}")
                self._same.append((get, value))
                self._same += [
                    (partial(other.get, name, MISSING), MISSING)
                    for other in hiding
                    if name not in other
                ]
                if value is not self._itself and value is not MISSING:
                    self._follow(value if fun is None else fun, name)
            if len(hiding) < 2:
                hiding.append(own)


@lru_cache(1024)
def slots_of(kind: Any) -> list[str]:
    return [
        name
        for each in kind.__mro__
        if not is_of_library(each.__module__)
        for name, value in vars(each).items()
        if isinstance(value, types.MemberDescriptorType) and name != "__dict__"
    ]


def function_of(attribute: Any) -> Any:
    """The function of a method or property in a class; ``None`` for anything else."""
    if isinstance(attribute, property):
        attribute = attribute.fget
    elif isinstance(attribute, cached_property):
        attribute = attribute.func
    elif isinstance(attribute, classmethod | staticmethod):
        attribute = attribute.__func__
    return attribute if isinstance(attribute, types.FunctionType) else None


def operators_of(kind: Any) -> set[str]:
    """The names of the user's methods that Python calls."""
    namespaces = [vars(each) for each in kind.__mro__ if not is_of_library(each.__module__)]
    names = {name for own in namespaces for name in own if function_of(own[name])}
    known = OF_OBJECTS | MADE_BY
    if hasattr(kind, "__dataclass_fields__"):
        known = known | COMPARISONS
    return {name for name in names - known if name.startswith("__")}


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


def is_content(fun: Callable[[], Any], number: int, reference: Callable[[], Any]) -> bool:
    """Whether a variable of a function refers to the same thing; neither is kept alive."""
    found, value = fun(), reference()
    is_gone = value is None and type(reference) is weakref.ref
    return found is None or (content_of(found.__closure__[number]) is value and not is_gone)


def elements_of(container: Any) -> list:
    """The elements of a list, or the keys and values of a dict."""
    return [*container, *container.values()] if isinstance(container, dict) else list(container)


def ids_of(container: Any) -> list[int]:
    return list(map(id, elements_of(container)))


def parts_of(reference: Callable[[], Any], otherwise: list[int]) -> list[int]:
    fun = reference()
    if fun is None:
        return otherwise
    return [id(fun.__code__), id(fun.__defaults__), id(fun.__kwdefaults__)]


def attribute_of(reference: Callable[[], Any], name: str, otherwise: Any) -> Any:
    return getattr(reference(), name, otherwise)


def is_still(get: Callable[[], Any], reference: Callable[[], Any]) -> bool:
    return get() is reference()


def is_rule(thing: Any) -> bool:
    """Whether this is a function with rules of its own (``daskgrad.rules``)."""
    return hasattr(type(thing), "is_first_order")


def modules_of(fun: types.FunctionType) -> tuple[str | None, str | None]:
    """The module that a function names, and that of its code: ``functools.wraps`` takes over the
    name of what is wrapped, and autograd has the code of primitives."""
    return fun.__module__, fun.__globals__.get("__name__")


def namespaces_of(thing: Any) -> Iterator[Any]:
    """Where the attributes of an object, class or module are found."""
    if isinstance(thing, types.ModuleType):
        if not is_of_library(thing.__name__):
            yield vars(thing)
        return
    own = getattr(thing, "__dict__", None)
    if isinstance(own, dict):
        yield own
    for kind in (thing if isinstance(thing, type) else type(thing)).__mro__:
        if not is_of_library(kind.__module__):
            yield vars(kind)
