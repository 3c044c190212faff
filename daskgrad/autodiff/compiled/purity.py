"""Purity: whether the code of a model says that it is a function of its arguments alone.

A model that nobody vouched for is compiled only if all that it refers to by name stays as it is:
modules of known libraries, numbers, strings, tuples of these, functions of the same kind, and
arrays that are read-only or small enough to be compared before each call. An object has attributes
that may change, a file or a clock is read anew, and what is printed is printed each time: a model
with any of these is traced. The code is only read here, and nothing of it runs.
"""

import builtins
import dis
import types
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from daskgrad.autodiff.compiled.boxes import BY_CONSTANTS, BY_PRIMITIVES
from daskgrad.autodiff.compiled.watch import (
    COMPARISONS,
    MISSING,
    OF_OBJECTS,
    SMALL,
    content_of,
    is_of_library,
    is_rule,
    modules_of,
)
from daskgrad.autodiff.values.descriptions import function_name

STANDARD = frozenset("math cmath operator itertools functools collections typing numbers".split())
PLAIN = (bool, int, float, complex, str, bytes, slice, range, type(None), type(...))
OF_NUMPY = (np.generic, np.dtype, np.ufunc)
FUNCTIONS = (types.BuiltinFunctionType, type(np.sum))  # of libraries, beside those in Python
BUILTINS = {
    *("abs all any bool bytes complex dict divmod enumerate filter float frozenset int".split()),
    *("isinstance issubclass iter len list map max min next pow range reversed round set".split()),
    *("slice sorted str sum tuple zip NotImplemented Ellipsis".split()),
}
# what a library has that changes, or that changes something, or that reaches any attribute
CHANGING = {
    *("random default_rng load loadtxt genfromtxt fromfile fromregex memmap open_memmap".split()),
    *("DataSource datasets io seterr seterrcall setbufsize set_printoptions ctypeslib".split()),
    *("attrgetter methodcaller cache lru_cache cached_property save savez savetxt".split()),
}
DRAWING = {"rvs"}  # methods of objects of libraries that draw random numbers
HARMLESS = {"__name__", "__len__", "__doc__"}  # attributes with names of this kind
CHANGES = {"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR", "LOAD_BUILD_CLASS"}
METHODS = (types.FunctionType, property, staticmethod, classmethod, types.MemberDescriptorType)
STORES = ("STORE_DEREF", "DELETE_DEREF")
NAMES = ("LOAD_GLOBAL", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")
ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM")


class Impure(Exception):
    """Calls of a model may differ though their arguments are the same; the message says why."""


def impurity_of(fun: Any) -> str | None:
    """What makes a function more than a function of its arguments; ``None`` if there is nothing."""
    try:
        Reader().follow(fun, function_name(fun))
    except Impure as found:
        return str(found)
    return None


def impurity_of_containers(structure: Any) -> str | None:
    """The same of the methods that the containers in the arguments have."""
    try:
        Reader().follow_containers(structure)
    except Impure as found:
        return str(found)
    return None


class Reader:
    """Reads the code of functions, and of all functions that they refer to."""

    def __init__(self) -> None:
        self._seen: dict[int, Any] = {}

    def follow(self, thing: Any, name: str) -> None:
        is_constant = isinstance(thing, PLAIN + OF_NUMPY) and not isinstance(thing, np.void)
        if id(thing) in self._seen or is_constant:
            return
        self._seen[id(thing)] = thing
        if isinstance(thing, types.FunctionType):
            self._follow_function(thing)
        elif type(thing) in (tuple, frozenset) or is_named_tuple(type(thing)):
            self._follow_all(thing, name)
            self._follow_class(type(thing))
        elif isinstance(thing, partial):
            self._follow_all([thing.func, *thing.args, *thing.keywords.values()], name)
        elif isinstance(thing, type):
            self._follow_class(thing)
        elif type(thing) is np.ndarray:
            require_constant(thing, name)
        elif is_rule(thing):
            self.follow(thing.fun, name)  # its rules are called as they are
        elif not is_function_of_library(thing):
            raise Impure(f"it refers to {name!r}, an object of type {type(thing).__qualname__}")
        else:
            require_lasting(path_of(thing))

    def follow_containers(self, structure: Any) -> None:
        """The classes of containers, and their methods, which a model may call."""
        kind = structure.type
        for each in () if kind is None else kind.__mro__:
            if not is_lasting(each.__module__):
                self._follow_attributes(each)
        for child in structure.children():
            self.follow_containers(child)

    def _follow_all(self, things: Any, name: str) -> None:
        for each in things:
            self.follow(each, name)

    def _follow_class(self, kind: type) -> None:
        """A class that may be called; of the user's those of named tuples, with their methods."""
        if kind.__module__ == "builtins":
            if kind.__name__ not in BUILTINS and not issubclass(kind, BaseException):
                raise Impure(f"it refers to the class {kind.__name__!r}")
        elif is_named_tuple(kind):
            self._follow_attributes(kind)
        elif not is_lasting(kind.__module__):
            raise Impure(f"it refers to the class {kind.__name__!r}, whose attributes may change")
        else:
            require_lasting(path_of(kind))

    def _follow_attributes(self, kind: type) -> None:
        """The methods of a container's class; Impure if it has other attributes than fields."""
        fields = {*getattr(kind, "_fields", ()), *getattr(kind, "__dataclass_fields__", ())}
        known = OF_OBJECTS | COMPARISONS if hasattr(kind, "__dataclass_fields__") else OF_OBJECTS
        for name, value in vars(kind).items():
            if isinstance(value, METHODS):
                if name not in known:
                    self._follow_method(value, name)
            elif not (name in fields or name.startswith("_")):
                raise Impure(f"the class {kind.__name__!r} has the attribute {name!r}")

    def _follow_method(self, method: Any, name: str) -> None:
        if isinstance(method, property):
            method = method.fget
        elif isinstance(method, staticmethod | classmethod):
            method = method.__func__
        if isinstance(method, types.FunctionType):
            self.follow(method, name)

    def _follow_function(self, fun: types.FunctionType) -> None:
        if is_primitive(fun):
            return
        if all(map(is_lasting, modules_of(fun))):
            return require_lasting(path_of(fun))
        self._follow_all(fun.__defaults__ or (), fun.__name__)
        self._follow_all((fun.__kwdefaults__ or {}).values(), fun.__name__)
        cells = map(content_of, fun.__closure__ or ())
        outer = dict(zip(fun.__code__.co_freevars, cells, strict=True))
        for code in codes_in(fun.__code__):
            steps = list(dis.get_instructions(code))
            require_no_changes(steps, outer)
            for number, step in enumerate(steps):
                if step.opname in NAMES and step.argval in outer:
                    self._follow_path(outer[step.argval], step.argval, steps, number)
                elif step.opname == "LOAD_GLOBAL":
                    self._follow_global(fun, steps, number)

    def _follow_global(
        self, fun: types.FunctionType, steps: Sequence[dis.Instruction], number: int
    ) -> None:
        name = steps[number].argval
        if name in fun.__globals__:
            self._follow_path(fun.__globals__[name], name, steps, number)
        elif not (name in BUILTINS or is_exception(getattr(builtins, name, None))):
            raise Impure(f"it calls {name!r}")

    def _follow_path(
        self, thing: Any, name: str, steps: Sequence[dis.Instruction], number: int
    ) -> None:
        """What a name stands for at a step, and what the next steps take out if it is a module."""
        for step in map(steps.__getitem__, range(number + 1, len(steps))):
            if not isinstance(thing, types.ModuleType | types.FunctionType):
                break
            is_attribute = step.opname in ATTRIBUTES
            if isinstance(thing, types.ModuleType) and is_attribute:
                is_known = is_lasting(thing.__name__)
                if is_known:
                    require_lasting(f"{thing.__name__}.{step.argval}")
                name = f"{name}.{step.argval}"
                thing = getattr(thing, step.argval, MISSING)
                if is_known and not isinstance(thing, types.ModuleType):
                    return  # what a library has does not change
            elif is_attribute and step.argval in vars(thing):
                raise Impure(f"it refers to an attribute of the function {name!r}")
            else:
                break
        self.follow(thing, name)


def require_no_changes(steps: Sequence[dis.Instruction], outer: Collection[str]) -> None:
    """Impure if code changes what is not its own, or asks what is the same object as what."""
    imports = any([step.opname == "IMPORT_NAME" for step in steps])
    for before, step in zip([None, *steps], steps, strict=False):
        name = step.argval
        if step.opname in CHANGES or (step.opname in STORES and name in outer):
            raise Impure(f"it assigns or deletes {name!r}, which is not a variable of its own")
        if step.opname == "IS_OP" and not (before and before.opname == "LOAD_CONST"):
            raise Impure("it asks with 'is' whether two objects are the same one")
        if step.opname == "IMPORT_NAME":
            if not is_lasting(name):
                raise Impure(f"it imports {name!r}")
            require_lasting(name)
        if step.opname in ATTRIBUTES:
            if is_private(name) or name in DRAWING or (imports and name in CHANGING):
                raise Impure(f"it uses {name!r}")


def path_of(thing: Any) -> str:
    """The module and the name of a function or class; objects of libraries have those of theirs."""
    named = thing if hasattr(thing, "__name__") else type(thing)
    return f"{named.__module__}.{named.__name__}"


def require_lasting(path: str) -> None:
    """Impure if what is reached through modules of a library changes, whatever these are called
    where they are used."""
    if not CHANGING.isdisjoint(path.split(".")):
        raise Impure(f"it uses {path}")


def codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_in(constant)


def require_constant(array: np.ndarray, name: str) -> None:
    """Impure if an array may change without notice; small ones are watched."""
    if array.dtype.kind not in "biufcSU":
        raise Impure(f"it refers to {name!r}, an array of objects")
    if array.nbytes > SMALL and not is_read_only(array):
        raise Impure(
            f"it refers to the array {name!r}, of {array.nbytes:,} bytes, which may change in "
            f"place: pass it as an argument"
        )


def is_read_only(array: Any) -> bool:
    """Whether nobody can write into an array, through its bases neither."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return False
        array = array.base
    return array is None or isinstance(array, bytes)


def is_function_of_library(thing: Any) -> bool:
    """Whether this is a function of a known library that belongs to no object."""
    if type(thing).__module__.startswith("daskgrad.scipy."):
        return True  # distributions
    owner = getattr(thing, "__self__", None)
    if type(thing) not in FUNCTIONS or not (owner is None or isinstance(owner, types.ModuleType)):
        return False
    module = getattr(thing, "__module__", None)
    if module == "builtins":
        return getattr(thing, "__name__", None) in BUILTINS
    return is_lasting(module)


def is_lasting(module: str | None) -> bool:
    """Whether a module is of a library that does not change, or of Python's own of that kind."""
    return is_of_library(module) or (module or "").split(".")[0] in STANDARD


def is_primitive(fun: types.FunctionType) -> bool:
    """Whether autograd records calls of this function: the programs call it, too."""
    return fun.__code__ in (BY_PRIMITIVES, BY_CONSTANTS)


def is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def is_exception(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, BaseException)


def is_private(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name not in HARMLESS
