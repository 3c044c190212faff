"""Watch: the things to which a model refers by name, and whether they have changed.

A program holds the globals, variables of enclosing functions, attributes, and elements of lists and
dicts that the model found when it was recorded. Before each call they are compared by identity, and
small arrays by their bytes. Larger arrays are inputs of programs (``references``). A function may
get other code: IPython's autoreload replaces it in place.
"""

import builtins
import dataclasses
import datetime
import dis
import enum
import gc
import os
import re
import sys
import types
import weakref
from abc import get_cache_token
from collections import deque, namedtuple
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache, partial, singledispatch
from inspect import getattr_static, unwrap
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.programs.counters import Counter
from daskgrad.autodiff.programs.paths import Path
from daskgrad.autodiff.programs.purity import (
    CHANGING,
    COMPARISONS,
    OF_C,
    SEEDED,
    Ran,
    impurity_of_builtin,
    impurity_of_library,
    impurity_of_path,
    is_lasting,
    is_of_dataclass,
    is_of_library,
    is_plain_class,
    is_primitive,
    is_read_only,
    makes_object,
    merge,
    parts_that_ran,
    path_of,
    read,
)
from daskgrad.autodiff.tape.operands import is_open
from daskgrad.autodiff.tape.rule_calls import RecordedRun
from daskgrad.autodiff.values.descriptions import function_name
from daskgrad.autodiff.values.trees import codes_in, flatten

SMALL = 2**14  # bytes of an array that is always compared
MOST = 256  # comparisons before each call of a model that nobody vouched for
ELEMENTS = 8  # of a list or dict, which are compared as quickly as a few attributes
MOST_INPUTS = 4096  # that are no arguments
KINDS = "fciub"  # of dtypes
INPUTS = {np.ndarray, float, complex, np.float64, np.float32, np.complex128}
CONTAINERS = (list, tuple, dict, set, frozenset, deque)
PLAIN = (bool, int, float, complex, str, bytes, slice, range, type(None), type(...))
DATES = (datetime.date, datetime.datetime, datetime.timedelta)
OF_NUMPY = (np.generic, np.dtype, np.ufunc)
MISSING = object()
ABSENT = "?"  # before a name: it need not be there
# takes a model apart: its function, whether it is compiled and vouched for, and all else
MODELS: dict[type, Callable[[Any], tuple]] = {}
CACHE = type(lru_cache(len))
# code of functions of Python's own that call a function of the user's
WRAPPERS: Any = contextmanager, singledispatch
IN_CONTEXT, BY_CLASS = [wrap(len).__code__ for wrap in WRAPPERS]
PACKAGE = "daskgrad"
LASTING = (*PLAIN, *OF_NUMPY, types.ModuleType, types.BuiltinFunctionType, type)
CODE = (types.FunctionType, types.ModuleType, types.BuiltinFunctionType, np.ufunc, type(np.sum))
HELD = (types.FunctionType, types.MethodType, types.ModuleType, type)
# methods that Python makes, or that a model does not call
OF_OBJECTS = {*vars(object), "_make", "_replace", "_asdict", "__replace__", "__getnewargs__"}
OF_OBJECTS |= {"__class_getitem__"}
OF_OBJECTS -= {*COMPARISONS, "__hash__", "__subclasshook__"}
MADE_BY = {"__init__", "__new__", "__post_init__"}  # of a class that may be called
OF_CLASSES = (
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
    type(vars(namedtuple("Pair", "x"))["x"]),
)


def is_input(value: Any, least: float) -> bool:
    """Whether programs may take a thing as an input: an array of more bytes, or a floating-point
    number if no array is too small."""
    kind = type(value)
    if kind is not np.ndarray:
        return kind in INPUTS and not least
    return value.dtype.kind in KINDS and value.nbytes > least and not is_read_only(value)


def layout_of(array: Any) -> tuple:
    return array.shape, array.dtype, array.strides, is_open(array)


LATER = {"__slotnames__", "__annotations_cache__"}  # which Python adds when it needs them


def has_names(kind: type, names: list[str]) -> bool:
    """Whether a class has these attributes of its own, and no others."""
    found = [*vars(kind)]
    count = len(names)
    return found == names or (found[:count] == names and LATER.issuperset(found[count:]))


class Step(NamedTuple):
    """A step from a thing to one of its parts: an attribute, element, variable, default ..."""

    owner: int  # the thing's identity
    kind: str
    key: Any


Route = tuple[Step, ...]  # from the function on; None for a thing that cannot be made anew


class References:
    """All things to which a function, and the functions that it calls, refer.

    ``impurity`` tells why two calls with the same arguments may differ though no reference has
    changed; it ends the walk if nobody vouched for the function. ``room``: bytes of larger arrays
    that may be compared, too. ``ran``: the instructions that count, if not all do; a function that
    did not run may have run in another thread: all of it counts, and all to which it refers.

    ``inputs``: the routes to arrays of more bytes than ``least``, which are not compared, but for
    the ``constants`` among them, named by their ways; ``remade``: the things on these routes, which
    a recording makes anew. ``outer``: the walk that has come to the function of a model, on a
    ``route``.
    """

    def __init__(
        self,
        fun: Callable,
        room: float = 0,
        is_vouched: bool = False,
        ran: Ran | None = None,
        least: float = SMALL,
        constants: frozenset[Any] = frozenset(),
        outer: "References | None" = None,
        route: Route | None = (),
    ):
        self.impurity: str | None = None
        self.of, self.room, self.ran = weakly(fun), room, ran
        self.least, self.constants = least, constants
        self.inputs: list[Route] = outer.inputs if outer else []
        self.reader: tuple[int, Any] = 0, None  # what reads so many inputs (``references``)
        self._numbers: dict[Any, int] = outer._numbers if outer else {}
        self._holding: set[int] = outer._holding if outer else set()  # things with inputs
        self._parents: dict[int, set[int]] = outer._parents if outer else {}
        self._bare: set[int] = outer._bare if outer else set()  # things that no route reaches
        self.read: Ran = {}  # all instructions that were read
        self._same: list[tuple[Callable, Any]] = []  # a function, and the object that it returns
        self._alike: list[tuple[Callable, weakref.ref]] = []  # ..., which is not kept alive
        self._equal: list[tuple[Callable, Any]] = []  # a function, and an equal of its value
        self._kept: list[Any] = []  # so that no other object gets the id
        self._passed: dict[Any, tuple[list[weakref.ref], References]] = {}  # functions, arguments
        self.left, self._stops = room, not is_vouched
        self.has_constants = False  # arrays and numbers that are no inputs
        self.is_doubtful = False  # somebody vouched for impure code that it calls
        self._functions = 0
        self.names: set[str] = set()  # attributes that the code may mean
        self._counting: dict[types.CodeType, set[str]] = {}  # code, and attributes it counts up
        self._owners: dict[types.CodeType, list[Any]] = {}  # whose method code is; None for others
        self._globals: list[tuple[dict, set[str], set[str]]] = []  # which are read, and counted
        self._holders: list[tuple[Callable, set[str], Any]] = []  # objects, and followed names
        self._elements = 0  # that are compared
        self._has_modules = False  # which the code passes on
        self.of_package: set[str] = set()  # names of this package in the code
        self._builtins: set[str] = set()  # names of Python's own in the code
        self.compared: set[type] = set()  # classes of things with which ``is`` compares
        self._seen: dict[tuple[int, bool], Any] = {}
        self._asked: set[str] = set()  # attributes that need not be there
        self._set: set[str] = set()  # attributes that the code sets
        self._asks = self._hides = False  # for such, and whether a thing may have any
        self._replaces = False  # fields of dataclasses
        self._replaced: set[Any] = set()  # their classes
        self._unrun: list[types.FunctionType] = []
        self._itself: Any = fun  # a recursive function refers to it; it is not to be kept alive
        self._walk([(fun, function_name(fun))], route)
        self._itself = object()  # no thing that is followed later
        if self._builtins:
            get_all = partial(itemgetter(*self._builtins), vars(builtins))
            self._equal.append((get_all, get_all()))

    def has_changed(self) -> bool:
        """Whether a name refers to another object, a function has other code or defaults, a list
        other elements, or a small array other entries."""
        for get, value in self._same:
            if get() is not value:
                return True
        for get, reference in self._alike:
            value = reference()
            if value is None or get() is not value:
                return True
        for get, value in self._equal:
            if get() != value:
                return True
        return bool(self._passed) and any([inner.has_changed() for inner in self._of_passed()])

    def place_of(self, reason: str) -> tuple[str, int] | None:
        """A file and a line where the code that was read has the name that a reason quotes."""
        named = re.search(r"'([^']+)'", reason)
        name = named[1].split(".")[-1] if named else None
        for code in self.read if named else ():
            for op in dis.get_instructions(code):
                if op.argval == name and op.positions and op.positions.lineno:
                    return code.co_filename, op.positions.lineno
        return None

    def with_place(self, reason: str) -> str:
        place = self.place_of(reason)
        return f"{reason}, in {place[0]}:{place[1]}" if place else reason

    def follow_arguments(self, classes: Iterable[Any], constants: Sequence[Any]) -> str | None:
        """Follows methods and attributes of classes in a call's arguments, and things that are
        passed, functions by weak references; returns the impurity."""
        for kind in classes:
            if not is_lasting(kind.__module__):
                self._hold(kind, None)
        others = [thing for thing in constants if type(thing) is not weakref.ref]
        self._walk([(thing, "an argument") for thing in others], None)
        functions: list[Any] = [fun() for fun in constants if type(fun) is weakref.ref]
        if functions and None not in functions:  # else nobody calls them again
            self._follow_passed(functions)
        return self.impurity

    def _follow_passed(self, functions: Sequence[types.FunctionType]) -> None:
        """Follows functions that are arguments; their references go with them."""
        key, passed = object(), self._passed
        together: Any = tuple(functions)
        inner = References(together, self.left, not self._stops, self.ran, outer=self, route=None)
        inner.of = lambda: None  # the tuple would keep them
        forget = lambda _: passed.pop(key, None)  # noqa: E731
        passed[key] = [weakref.ref(fun, forget) for fun in functions], inner
        before = None
        while before != (before := len(self.names)):
            self._share(inner)
            self._walk((), None)
            inner.names |= self.names
            inner._walk((), None)
        self.has_constants |= inner.has_constants
        self.of_package |= inner.of_package
        self._refuse(inner.impurity)

    @property
    def is_long(self) -> bool:
        """Whether there is too much to compare."""
        return self._count() > MOST

    @property
    def remade(self) -> set[int]:
        """The identities of the things on the routes to the inputs."""
        remade, new = set[int](), self._holding
        while new:
            remade |= new
            new = set().union(*[self._parents.get(thing, ()) for thing in new]) - remade
        return remade

    @property
    def is_torn(self) -> bool:
        """Whether a thing would be made anew in one place and not in another, where code may
        compare the two."""
        return bool(self.inputs) and not self.remade.isdisjoint(self._bare)

    def number_of(self, owner: Any, kind: str, key: Any) -> int | None:
        """The number of the input that is a part of a thing."""
        return self._numbers.get(place_of(owner, kind, key))

    def _lift(self, owner: Any, kind: str, key: Any, value: Any, route: Route | None) -> bool:
        """Whether a part of a thing is an input, which is read at each call."""
        is_full = len(self.inputs) == MOST_INPUTS
        if route is None or is_full or not is_input(value, self.least):
            return False
        end = (*route, Step(id(owner), kind, key))
        if way_of(end) in self.constants and getattr(value, "nbytes", 0) <= self.left:
            return False
        self._holding.add(id(owner))
        place = place_of(owner, kind, key)
        if place not in self._numbers:
            self._numbers[place] = len(self.inputs)
            self.inputs.append(end)
        return True

    def knows(self, path: Path) -> bool:
        """Whether all that ran on a path was read."""
        return (
            path.ran is not None
            and path.called <= self.read.keys()
            and all(
                [
                    known is None or (offsets is not None and offsets <= known)
                    for code, offsets in path.ran.items()
                    for known in [self.read.get(code)]
                ]
            )
        )

    def impurity_of(self, path: Path) -> str | None:
        """Why calls on a path that was new may differ."""
        unread = min([code.co_qualname for code in path.called - self.read.keys()], default=None)
        reason = unread and f"it calls {unread!r}, to which it refers by no name"
        return self.impurity or path.impurity or reason

    def _walk(self, things: Iterable[tuple[Any, str]], route: Route | None) -> None:
        for thing, name in things:
            self._follow(thing, name, route)
        before = None
        while before != (before := (len(self._holders), len(self.names))):
            things = [holder() for holder, *_ in self._holders if self._replaces]
            kinds = {thing if isinstance(thing, type) else type(thing) for thing in things}
            for kind in filter(dataclasses.is_dataclass, kinds - self._replaced):
                self._replaced.add(kind)
                self.names |= kind.__dataclass_fields__.keys()
                self._follow_attributes(kind, MADE_BY, None)
            for holder, done, route in list(self._holders):
                names = self.names - done
                done |= names
                self._follow_attributes(holder(), names, route)
            if self._unrun:
                unrun, self._unrun = tuple(self._unrun), []
                inner = References(unrun, self.left, outer=self, route=None)  # type: ignore[arg-type]
                self._include(inner)
                self.of_package |= inner.of_package
                self._refuse(inner.impurity)
            if self._stops:
                counted = self._read_counters()
                self._set |= counted
                self.names |= counted
        self._seen = {}
        self._require_counters()
        self._require_plain_attributes()
        if self._asks and self._hides:
            self._refuse("it calls 'hasattr' or 'getattr'")
        if self._has_modules and not self.names.isdisjoint(CHANGING):
            self._refuse(f"it uses {min(self.names & CHANGING)!r}")
        if self.is_long:
            self._refuse(f"it refers to more than {MOST} objects that may change")

    def _count(self) -> int:
        """The number of comparisons before each call; weak references take next to no time."""
        passed = [inner._count() for inner in self._of_passed()]
        own = len(self._same) + len(self._equal) + self._elements // ELEMENTS
        return own + sum(passed)

    def _of_passed(self) -> list["References"]:
        return [inner for _, inner in list(self._passed.values())]

    def _all_globals(self) -> list[tuple[dict, set[str], set[str]]]:
        return [*self._globals, *[part for inner in self._of_passed() for part in inner._globals]]

    def _require_counters(self) -> None:
        """Refuses globals that are counted up and read, and attributes of nobody knows whom."""
        read, counted = set(), set()
        for namespace, names, counters in self._all_globals():
            read |= {(id(namespace), name) for name in names}
            counted |= {(id(namespace), name) for name in counters}
        names = {name for _, name in read & counted}
        for owner, attributes in self._counting_methods():
            names |= attributes if owner is None else set()
        if names:
            self._refuse(f"it counts in {min(names)!r}, and may read it, or in several objects")

    def _read_counters(self) -> set[str]:
        """Attributes that methods count up, and that are read, or in several objects or new ones:
        they are watched as any that code sets."""
        return {
            name
            for owner, attributes in self._counting_methods()
            for name in (attributes if isinstance(owner, type) else attributes & self.names)
        }

    def _require_plain_attributes(self) -> None:
        """Refuses attributes that are set by the user's code."""
        things = [holder() for holder, *_ in self._holders if self._set]
        for kind in {thing if isinstance(thing, type) else type(thing) for thing in things}:
            if may_run_at_set(kind, self._set):
                self._refuse(f"it sets attributes of {kind.__name__!r}, whose code may run")

    def counters(self) -> list[Counter]:
        """The counters of all code that is watched."""
        counters = {
            (id(namespace), name): Counter(weakly(namespace), name)
            for namespace, _, names in self._all_globals()
            for name in names
        }
        for owner, attributes in self._counting_methods():
            is_one = owner is not None and not isinstance(owner, type)
            for name in attributes - self.names if is_one else ():
                counters[id(owner), name] = Counter(weakly(owner), name)
        return list(counters.values())

    def _counting_methods(self) -> Iterator[tuple[Any, set[str]]]:
        """The object of each method that counts, here and in models, and the attributes; a class if
        there are several objects or new ones, None if nobody knows them."""
        for code, attributes in self._counting.items():
            owner, *others = owners = [owner and owner() for owner in self._owners[code]]
            several = None if None in owners else object
            yield owner if all([other is owner for other in others]) else several, attributes
        for inner in (*self._kept, *self._of_passed()):
            if type(inner) is References:
                yield from inner._counting_methods()

    def _refuse(self, reason: str | None) -> None:
        self.impurity = self.impurity or reason

    def _follow(self, thing: Any, name: str, route: Route | None = None, owner: Any = None) -> None:
        """Follows a thing; ``owner``: it is the function of a method of this object or class."""
        kind: Any = type(thing)
        if kind is types.FunctionType:
            owners = self._owners.setdefault(thing.__code__, [])
            owners.append(None if owner is None else weakly(owner))
        self.has_constants |= is_input(thing, 0)
        is_over = self._stops and self.impurity is not None
        is_constant = kind in PLAIN or (isinstance(thing, OF_NUMPY) and kind is not np.void)
        is_constant &= not (kind is np.ufunc and is_of_users(thing))
        is_constant |= kind in DATES or kind is object
        is_constant |= thing is types.SimpleNamespace  # which cannot change
        if is_constant or is_over:
            return
        self._reach(thing, route)
        if (id(thing), route is None) in self._seen:
            return
        self._seen[id(thing), route is None] = thing
        self._hides |= hasattr(thing, "__dict__") and not (
            isinstance(thing, HELD) or is_plain_class(kind)
        )
        if is_of_enum(thing) and not is_lasting(thing.__module__):
            self._hold(thing, None)
            self._follow_container(thing._member_map_, name, None)
        elif is_of_enum(kind) and not is_lasting(kind.__module__):
            self._follow(kind, name)
            self._follow_container(vars(thing), name, None)
        elif kind is np.ndarray or kind is np.void:  # a row is a view
            self._follow_array(thing, name)
        elif kind in MODELS:
            self._follow_model(thing, route)
        elif kind is partial:
            for part in ("func", "args", "keywords"):
                self._follow(getattr(thing, part), name, onward(route, thing, "part", part))
        elif isinstance(thing, types.MethodType):
            known, steps = thing.__func__.__name__, onward(route, thing, "part", "__func__")
            self._follow(thing.__func__, known, steps, thing.__self__)
            self._follow(thing.__self__, known, onward(route, thing, "part", "__self__"))
        elif isinstance(thing, types.FunctionType):
            self._follow_function(thing, route)
        elif isinstance(thing, CONTAINERS):
            self._follow_container(thing, name, route)
        elif kind is CACHE:
            self._follow_cache(thing, name)
        elif hasattr(kind, "tocsr") and is_of_library(kind.__module__):  # a sparse matrix
            self._follow_container(vars(thing), name, None)
        elif thing is os.environ:
            self._equal.append((partial(getattr, thing, "_data"), vars(thing)["_data"].copy()))
        elif is_rule(thing):
            self._same += [
                (partial(vars(thing).get, *item), item[1]) for item in vars(thing).items()
            ]
            self._follow_all([thing.fun, *thing.rules()], name)
        elif isinstance(thing, types.ModuleType):
            self._follow_module(thing, name)
        elif isinstance(thing, type) and not is_lasting(thing.__module__):
            self._hold(thing, None)
            if not issubclass(thing, tuple):
                self._follow_attributes(thing, MADE_BY, None)
        elif is_plain_class(kind):
            self._hold(thing, route)
        else:
            self._refuse(impurity_of_library(thing, name))
            self.names.add(str(getattr(thing, "__name__", name)))
            if not is_lasting(kind.__module__):
                self._hold(thing, None)

    def _reach(self, thing: Any, route: Route | None) -> None:
        """Notes how a thing is reached."""
        if route:
            self._parents.setdefault(id(thing), set()).add(route[-1].owner)
        elif route is None:
            self._bare.add(id(thing))

    def _follow_all(self, things: Sequence[Any], name: str) -> None:
        for thing in things:
            self._follow(thing, name)

    def _follow_model(self, model: Any, route: Route | None) -> None:
        """Follows the function of a model that is called, by its own vouching."""
        fun, is_compiled, is_vouched, *_ = MODELS[type(model)](model)
        if not is_compiled:
            return self._refuse(f"it calls the model {function_name(fun)!r}, which is not compiled")
        is_same = partial(is_model, weakly(model), weakly(fun), model.model[1:])
        self._equal.append((is_same, True))
        ran = None if is_vouched else self.ran
        route = onward(onward(route, model, "part", "model"), model, "part", "fun")
        settings = self.least, self.constants, self, route
        inner = References(fun, self.left, is_vouched, ran, *settings)
        self._include(inner)
        return self._refuse(None if is_vouched else inner.impurity)

    def _include(self, inner: "References") -> None:
        """Watches what another walk has found."""
        self.left = inner.left
        self._share(inner)
        self._same += inner._same
        self._alike += inner._alike
        self._equal += inner._equal
        self._globals += inner._globals
        self.has_constants |= inner.has_constants
        self._kept.append(inner)

    def _share(self, inner: "References") -> None:
        """Takes over what another walk has found about code."""
        self.names |= inner.names  # of its arguments, which are followed outside
        self._asked |= inner._asked
        self._set |= inner._set
        self.compared |= inner.compared
        merge(self.read, inner.read)
        self.is_doubtful |= inner.is_doubtful or inner.impurity is not None

    def _follow_array(self, array: Any, name: str) -> None:
        if array.dtype.hasobject:
            return self._refuse(f"it refers to {name!r}, an array of objects")
        self._equal.append((partial(layout_of, array), layout_of(array)))
        if array.nbytes > SMALL:
            if is_read_only(array):
                return None
            if array.nbytes > self.left and self._stops:
                return self._refuse(
                    f"it refers to the array {name!r}, of {array.nbytes:,} bytes, which may change "
                    f"in place: pass it as an argument"
                )
            self.left -= array.nbytes
        return self._equal.append((array.tobytes, array.tobytes()))

    def _follow_container(self, thing: Any, name: str, route: Route | None) -> None:
        kind = type(thing)
        elements, inputs = elements_of(thing), set[int]()
        for number, (key, element) in enumerate(zip(keys_of(thing), elements, strict=True)):
            steps = None if key is None else route
            if self._lift(thing, "element", key, element, steps):
                inputs.add(number)
            else:
                self._follow(element, name, onward(steps, thing, "element", key))
        if not isinstance(thing, tuple | frozenset):
            self._elements += len(elements)
            self._kept.append([x for number, x in enumerate(elements) if number not in inputs])
            get = partial(ids_of, thing, inputs)
            self._equal.append((get, get()))
        if kind not in CONTAINERS:
            if not hasattr(kind, "_fields"):
                self._refuse(f"it refers to {name!r}, an object of type {kind.__qualname__}")
            self._hold(kind, None)
        return None

    def _follow_cache(self, cache: Any, name: str) -> None:
        """Follows the results of a function of ``functools.cache``: as long as there is nothing
        else, it does not run."""
        self._elements += 2 * cache.cache_info().currsize
        parts, place = parts_and_table(cache)
        self._kept.append([parts, elements_of(parts[place])])
        self._equal.append((partial(contents_of, cache), contents_of(cache)))
        is_bounded = cache.cache_info().maxsize is not None
        return self._follow_all(parts[:place] if is_bounded else elements_of(parts[place]), name)

    def _follow_module(self, module: types.ModuleType, name: str) -> None:
        if is_lasting(module.__name__):
            self._has_modules = True
            return self._refuse(impurity_of_path(module.__name__))
        if module.__name__ not in sys.stdlib_module_names:
            self._hold(module, None)
        return self._refuse(f"it refers to the module {name!r}")

    def _follow_function(self, fun: types.FunctionType, route: Route | None) -> None:
        if is_primitive(fun):
            return None
        # they differ where ``functools.wraps`` took over a name, and for autograd's primitives
        if is_lasting(fun.__module__) and is_lasting(fun.__globals__.get("__name__")):
            self.names.add(fun.__name__)  # NumPy's functions call methods of their name
            if fun.__module__.split(".")[0] == PACKAGE:
                self.of_package.add(fun.__name__)
            return self._refuse(impurity_of_path(path_of(fun)))
        self._holders.append((weakly(fun), set(), None))
        if self.ran is not None and fun.__code__ not in self.ran:
            self._unrun.append(fun)
            return None
        if fun.__code__ is IN_CONTEXT:
            return self._follow_all([*map(content_of, fun.__closure__ or ())], fun.__name__)
        if fun is dataclasses.replace:  # it takes all fields, and makes an object of the class
            self._replaces = True
            return None
        if fun.__code__ is BY_CLASS:
            registry = partial(ids_of_registry, weakly(fun))
            self._equal += [(registry, registry()), (get_cache_token, get_cache_token())]
            return self._follow_all([*fun.registry.values()], fun.__name__)  # type: ignore[attr-defined]
        self._functions += 1
        if self._functions > MOST:
            return self._refuse(f"it refers to more than {MOST} functions")
        self._kept += [fun.__code__, fun.__defaults__, fun.__kwdefaults__]
        parts = parts_of(lambda: fun, [])
        self._equal.append((partial(parts_of, weakref.ref(fun), parts), parts))
        for part in ("__defaults__", "__kwdefaults__"):
            self._follow(getattr(fun, part), fun.__name__, onward(route, fun, "part", part))
        code = read(fun.__code__, self.ran)
        merge(self.read, dict(parts_that_ran(fun.__code__, self.ran)))
        self.names |= code.attributes | code.asked | code.others
        self.names |= {f"{ABSENT}{name}" for name in code.asked | code.others}
        self._asked |= code.asked
        self._asks |= bool(code.asked)
        self._set |= code.set
        attributes, names = code.counters
        if attributes:
            self._counting[fun.__code__] = attributes
        self._globals.append((fun.__globals__, {*code.globals}, names))
        self._refuse(code.impurity)
        self._has_modules |= code.imports
        for number, (name, cell) in enumerate(
            zip(fun.__code__.co_freevars, fun.__closure__ or (), strict=True)
        ):
            value = content_of(cell)
            paths, steps = code.outer.get(name, ()), onward(route, fun, "cell", number)
            if value is self._itself:
                self._reach(value, steps)
            elif not (paths and self._lift(fun, "cell", number, value, route)):
                is_there = partial(is_content, weakref.ref(fun), number, weakly(value))
                self._equal.append((is_there, True))
                self._follow_paths(value, name, paths, steps)
        namespace, route = fun.__globals__, onward(route, fun, "part", "__globals__")
        if route is not None:
            self._reach(namespace, route)
        for name, paths in code.globals.items():
            get = partial(namespace.get, name, MISSING)
            value, steps = get(), onward(route, namespace, "element", name)
            if value is self._itself:
                self._reach(value, steps)
                self._equal.append((partial(is_still, get, weakly(value)), True))
                continue
            if self._lift(namespace, "element", name, value, route):
                continue
            self._require_same(get, value)
            if name in code.classes and type(value) is type and not is_lasting(value.__module__):
                self._hold(value, None)  # nobody calls it
            else:
                self._follow_paths(value, name, paths, steps)
            if value is MISSING:
                if not (name in ("hasattr", "getattr") and code.asked):
                    self._refuse(impurity_of_builtin(name, fun.__code__.co_name))
                self._builtins |= {name} & vars(builtins).keys()
        for path in code.identities:
            thing = thing_at(fun, path)
            kind: Any = type(thing)
            self.compared.add(kind)
            if not (isinstance(thing, (*CODE, type)) or kind is object or is_of_enum(kind)):
                self._refuse("it asks with 'is' whether two objects are the same one")
        return None

    def _follow_paths(
        self, start: Any, name: str, paths: Iterable[tuple[str, ...]], route: Route | None
    ) -> None:
        """Follows the thing behind a name; of a module, the attributes that the code takes."""
        for path in paths:
            if path[-1:] == SEEDED and is_generator(start, path[:-1]):
                continue
            thing, known, steps = start, name, route
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
                        thing = MISSING  # things of libraries do not change
                else:
                    module, get = thing, partial(vars(thing).get, attribute, MISSING)
                    thing = get()
                    self._reach(module, steps)
                    if self._lift(module, "attribute", attribute, thing, steps):
                        thing = MISSING
                        continue
                    self._require_same(get, thing)
                    steps = onward(steps, module, "attribute", attribute)
                    if thing is MISSING:
                        self._refuse(f"it refers to {known!r}, which is not there")
            if thing is not MISSING:
                self._follow(thing, known, steps)

    def _require_same(self, get: Callable, value: Any) -> None:
        """Compares what a function returns with an object of the user's, which may go."""
        reference = None if isinstance(value, LASTING) else weakly(value)
        if isinstance(reference, weakref.ref):
            self._alike.append((get, reference))
        else:
            self._same.append((get, value))

    def _hold(self, thing: Any, route: Route | None) -> None:
        """Follows attributes from now on that the code may mean; operators at once."""
        kind: Any = thing if isinstance(thing, type) else type(thing)
        self._holders.append((weakly(thing), set(), route))
        if not isinstance(thing, types.ModuleType):
            self._same.append((partial(getattr, kind, "__mro__"), kind.__mro__))
            if kind is not thing:
                self._same.append((partial(attribute_of, weakly(thing), "__class__", None), kind))
            for base in kind.__mro__:  # a new attribute may hide another one
                if not is_of_library(base.__module__):
                    self._equal.append((partial(has_names, base, [*vars(base)]), True))
            is_plain: Any = is_plain_class.__wrapped__  # the class may have changed
            is_known = is_of_enum(kind) or issubclass(kind, (*CONTAINERS, BaseException))
            if not (is_known or is_plain(kind)):
                self._refuse(f"it refers to the class {kind.__name__!r}, which is no plain one")
            self._follow_attributes(thing, operators_of(kind), None)

    def _follow_attributes(self, thing: Any, names: set[str], route: Route | None) -> None:
        """Follows attributes of an object, class, function or module of the user's."""
        hiding: list[Any] = []  # looks into the object's own namespace, which hides its class's
        nearer: set[str] = set()  # names in classes that hide others of a base
        for namespace in namespaces_of(thing):
            is_of_class = type(namespace) is not dict
            look = namespace.get
            if not is_of_class and not isinstance(thing, types.ModuleType):
                look = partial(attribute_in, weakly(thing))  # the dict may lead back to it
            if not is_of_class:
                may_lack = {name[1:] for name in names if name.startswith(ABSENT)}
                self._same += [
                    (partial(look, name, MISSING), MISSING) for name in may_lack - namespace.keys()
                ]
            for name in sorted(names & namespace.keys()):
                value, get = namespace[name], partial(look, name, MISSING)
                fun, kind = function_of(value), type(value)
                if isinstance(value, types.MemberDescriptorType) and not isinstance(thing, type):
                    get = partial(attribute_of, weakly(thing), name, MISSING)
                    value = get()
                elif isinstance(value, OF_C) and type(thing) is types.SimpleNamespace:
                    self.names |= vars(thing).keys()
                    count = partial(count_attributes, weakly(thing))
                    self._equal.append((count, count()))
                    continue
                elif isinstance(value, OF_CLASSES) or is_member(thing, name):
                    continue
                elif isinstance(value, property | cached_property) and name in self._asked:
                    self._refuse(f"it asks for {name!r}, which is computed")
                elif fun is None and hasattr(kind, "__get__") and is_of_class and kind is not CACHE:
                    self._refuse(f"it refers to {name!r}, an object of type {kind.__name__}")
                is_slot = value is not namespace[name]
                steps = route if is_slot or not is_of_class else None
                part = "slot" if is_slot else "attribute"
                if self._lift(thing, part, name, value, steps):
                    continue
                self._require_same(get, value)
                self._same += [
                    (partial(other, name, MISSING), MISSING)
                    for other in hiding
                    if other(name, MISSING) is MISSING
                ]
                if isinstance(value, classmethod) and fun is not None and makes_object(fun):
                    self._follow_attributes(type(thing), MADE_BY, None)
                if is_generated(fun) and name not in MADE_BY:
                    self.names |= read(unwrap(fun).__code__).attributes  # the fields
                    continue
                steps = onward(steps, thing, part, name)
                if value is self._itself:
                    self._reach(value, steps)
                is_there = value is not self._itself and value is not MISSING
                if is_there and self._may_run(fun, name in nearer):
                    is_method = isinstance(value, types.FunctionType | property) and is_of_class
                    owner = thing if is_method else None
                    self._follow(value if fun is None else fun, name, steps, owner)
            if is_of_class:
                nearer |= namespace.keys()
            else:
                hiding.append(look)

    def _may_run(self, method: Any, is_hidden: bool) -> bool:
        """Whether a method may have run: code that names one like it need not mean Python's, nor
        one that another method hides."""
        if self.ran is None or method is None or method.__code__ in self.ran:
            return True
        return not is_hidden and method.__globals__.get("__name__") not in sys.stdlib_module_names


@lru_cache(1024)
def slots_of(kind: Any) -> list[str]:
    return [
        name
        for base in kind.__mro__
        if not is_of_library(base.__module__)
        for name, value in vars(base).items()
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
    """The names of the user's methods that Python calls, whatever the code is."""
    namespaces = [vars(base) for base in kind.__mro__ if not is_of_library(base.__module__)]
    members = [(name, value) for space in namespaces for name, value in space.items()]
    return {
        name
        for name, value in members
        if name.startswith("__")
        and name not in OF_OBJECTS | MADE_BY
        and (callable(value) or hasattr(type(value), "__get__"))
        and not (isinstance(value, (*OF_CLASSES, *OF_C)) or is_generated(value))
    }


def may_run_at_set(kind: Any, names: set[str]) -> bool:
    """Whether the user's code runs when one of these attributes of an object is set, or gives the
    object that ``__init__`` gets."""
    members: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        members |= {} if is_of_library(base.__module__) else vars(base)
    setter, setters = members.get("__setattr__"), map(members.get, names)
    has_code = not (setter is None or isinstance(setter, OF_C) or is_generated(setter))
    is_given = function_of(members.get("__new__")) is not None and "__init__" in members
    descriptors = [x for x in setters if hasattr(type(x), "__set__") and type(x) not in OF_CLASSES]
    return has_code or is_given or any([getattr(x, "fset", x) is not None for x in descriptors])


def is_generated(fun: Any) -> bool:
    """Whether ``dataclass`` made a method: it compares, hashes or shows the fields."""
    code = getattr(getattr(fun, "__wrapped__", fun), "__code__", None)
    return code is not None and is_of_dataclass(code)


def is_of_users(ufunc: np.ufunc) -> bool:
    """Whether ``np.frompyfunc`` made a ufunc, of a function of Python's."""
    return all([set(types) <= {"O", "-", ">"} for types in ufunc.types])


def weakly(thing: Any) -> Callable[[], Any]:
    """A weak reference; a strong one if the class forbids weak ones."""
    try:
        return weakref.ref(thing)
    except TypeError:
        return lambda: thing


def is_date(thing: Any) -> bool:
    """Whether a thing is a date, and all that are equal to it are like it."""
    has_more = getattr(thing, "tzinfo", None) or getattr(thing, "fold", 0)
    return type(thing) in DATES and not has_more


def is_of_enum(kind: Any) -> bool:
    return isinstance(kind, enum.EnumMeta)


def is_member(kind: Any, name: str) -> bool:
    """Whether a class is an enumeration that has a member of this name."""
    return is_of_enum(kind) and name in kind._member_map_


def thing_at(fun: types.FunctionType, path: Sequence[str]) -> Any:
    """A global of a function, or a variable of an enclosing one, or an attribute of it; None if it
    is not known without running the code."""
    if not path or any([path[0] in code.co_cellvars for code in codes_in(fun.__code__)]):
        return None
    contents = map(content_of, fun.__closure__ or ())
    variables = dict(zip(fun.__code__.co_freevars, contents, strict=True))
    names = fun.__globals__ | variables
    thing: Any = names.get(path[0], getattr(builtins, path[0], None))
    for name in path[1:]:
        is_there = is_member(thing, name)
        thing = thing._member_map_[name] if is_there else getattr_static(thing, name, None)
    return thing


def is_generator(start: Any, path: Sequence[str]) -> bool:
    """Whether a name and attributes lead to NumPy's generators of random numbers."""
    for name in path:
        start = getattr(start, name, None) if start in (np, np.random) else None
    return start in (np.random.default_rng, np.random.RandomState)


def content_of(cell: types.CellType) -> Any:
    """The thing in a variable; MISSING before it is assigned."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def is_content(fun: Callable[[], Any], number: int, reference: Callable[[], Any]) -> bool:
    """Whether a variable of a function holds the same thing; neither is kept alive."""
    function, value = fun(), reference()
    is_gone = value is None and type(reference) is weakref.ref
    is_there = function is None or content_of(function.__closure__[number]) is value
    return is_there and not (function is not None and is_gone)


def elements_of(container: Any) -> list:
    """The elements of a list, or the keys and values of a dict."""
    return [*container, *container.values()] if isinstance(container, dict) else list(container)


def keys_of(container: Any) -> list[Any]:
    """The key of each element; None for a dict's own keys, and if nobody takes them out by keys."""
    take_out = getattr(type(container), "__getitem__", None)
    if take_out in (list.__getitem__, tuple.__getitem__):
        return [*range(len(container))]
    is_plain = type(container) is dict and all([type(key) in (str, int) for key in container])
    keys = container if is_plain else [None] * (len(elements_of(container)) - len(container))
    return [*[None] * len(container), *keys]


def ids_of(container: Any, inputs: Collection[int]) -> list[int]:
    """The identities of a container's elements, but for the inputs among them."""
    if not inputs:
        return list(map(id, elements_of(container)))
    elements = [None if n in inputs else x for n, x in enumerate(elements_of(container))]
    return list(map(id, elements))


def onward(route: Route | None, owner: Any, kind: str, key: Any) -> Route | None:
    return None if route is None else (*route, Step(id(owner), kind, key))


def place_of(owner: Any, kind: str, key: Any) -> Any:
    """The place of a part of a thing; functions share variables."""
    return id(owner.__closure__[key]) if kind == "cell" else (id(owner), kind, key)


def way_of(route: Route) -> tuple:
    """A route that an equal function has, too."""
    return tuple([(kind, key) for _, kind, key in route])


def ids_of_registry(reference: Callable[[], Any]) -> list[int] | None:
    """Identities of the functions from which ``functools.singledispatch`` chooses."""
    fun = reference()
    return None if fun is None else ids_of(dict(fun.registry), ())


def parts_and_table(cache: Any) -> tuple[list[Any], int]:
    """All that a cached function refers to, and the place of its table; the results are in the
    table, or before it if their number is bounded."""
    parts = gc.get_referents(cache)
    dicts = [n for n, x in enumerate(parts) if type(x) is dict and x is not vars(cache)]
    return parts, dicts[-1]


def contents_of(cache: Any) -> tuple:
    """A key of the results that a cached function gives without running; each result that it gives
    moves to another place, so their order is no part of it."""
    parts, place = parts_and_table(cache)
    return cache.cache_info()[1:], sorted(map(id, parts)), ids_of(parts[place], ())


def parts_of(reference: Callable[[], Any], otherwise: list[int]) -> list[int]:
    fun = reference()
    if fun is None:
        return otherwise
    return [id(fun.__code__), id(fun.__defaults__), id(fun.__kwdefaults__)]


def attribute_of(reference: Callable[[], Any], name: str, otherwise: Any) -> Any:
    return getattr(reference(), name, otherwise)


def attribute_in(reference: Callable[[], Any], name: str, otherwise: Any) -> Any:
    """An attribute in an object's own namespace."""
    return getattr(reference(), "__dict__", {}).get(name, otherwise)


def count_attributes(reference: Callable[[], Any]) -> int:
    return len(getattr(reference(), "__dict__", ()))


def impurity_of_called(constants: Any) -> str | None:
    """Why a program may differ from its model if it calls functions of the user's, which take any
    way at each call."""
    leaves = [x.function if type(x) is RecordedRun else x for x in flatten(constants)[0]]
    called = list(filter(has_code_of_users, leaves))
    return next(filter(None, [References(thing).impurity for thing in called]), None)


def has_code_of_users(thing: Any) -> bool:
    """Whether a function, or an object, runs code of the user's where it is an operand."""
    if type(thing) is partial:
        return any(map(has_code_of_users, flatten((thing.func, thing.args, thing.keywords))[0]))
    is_named = isinstance(thing, types.FunctionType | types.MethodType | type)
    return is_rule(thing) or not is_lasting((thing if is_named else type(thing)).__module__)


def is_model(reference: Callable[[], Any], fun: Callable[[], Any], settings: tuple) -> bool:
    """Whether a model has still this function and these settings; neither is kept alive."""
    parts = getattr(reference(), "model", None)
    return parts is None or (parts[0] is fun() and parts[1:] == settings)


def is_still(get: Callable[[], Any], reference: Callable[[], Any]) -> bool:
    return get() is reference()


def is_rule(thing: Any) -> bool:
    """Whether this is a function with rules of its own (``daskgrad.rules``)."""
    return hasattr(type(thing), "is_first_order")


def namespaces_of(thing: Any) -> Iterator[Any]:
    """The dicts in which Python looks for attributes of an object, class or module."""
    if isinstance(thing, types.ModuleType):
        if not is_of_library(thing.__name__):
            yield vars(thing)
        return
    attributes = getattr(thing, "__dict__", None)
    if isinstance(attributes, dict):
        yield attributes
    for kind in (thing if isinstance(thing, type) else type(thing)).__mro__:
        if not is_of_library(kind.__module__):
            yield vars(kind)
