"""Digests of code: whether another process has the code that a function goes by name for.

A function of a module is pickled as its name. If the module was edited and loaded again here, a
process that imported it before has other code under that name. So digests go with the function: of
its code, and of the functions, methods and numbers of the user's modules that it reaches by name.
"""

import functools
import hashlib
import importlib.machinery
import importlib.util
import inspect
import re
import sys
import types
from collections.abc import Iterator
from operator import is_
from typing import Any

import cloudpickle

from daskgrad.autodiff.values.carriers import drop_oldest
from daskgrad.autodiff.values.pickling import digest
from daskgrad.autodiff.values.trees import codes_in, held_by

MOST = 256  # things that a function reaches
FEW = 64  # elements of a container that is looked into
NUMBERS = (bool, int, float, complex)
VERSION = importlib.util.MAGIC_NUMBER, sys.flags.optimize  # of code that can be compared
INSTALLED = ("site-packages", "dist-packages")
NUMBER = r"\s*(:[^=\n]+)?=\s*([-+]?[\d.][\w.+-]*|True|False)\s*(#.*)?$"

REPLACED: dict[types.CodeType, types.CodeType] = {}  # code as its author wrote it, by later code

Name = tuple[str, str]  # of a module, and of a thing in it
Digests = dict[Name, bytes]


MOST_KEPT = 128  # pickles
_kept: dict[bytes, tuple[dict[Name, list[Any]], Digests]] = {}


def digests_of(fun: Any, pickled: bytes) -> Digests:
    """Digests of what the pickle of a function leaves to the other process."""
    key = digest(pickled)
    marks, digests = _kept.get(key, (None, {}))
    if marks is None or any([not all(map(is_, mark_of(named(n)), m)) for n, m in marks.items()]):
        digests = found_from(fun)
        marks = {name: mark_of(named(name)) for name in digests}
        _kept[key] = marks, digests
        drop_oldest(_kept, MOST_KEPT)
    return digests


def mark_of(thing: Any) -> list[Any]:
    """The objects that a change of the thing replaces, one at least."""
    function = inspect.unwrap(thing) if isinstance(thing, types.FunctionType) else thing
    return [thing, getattr(function, "__code__", None), getattr(function, "__defaults__", None)]


def found_from(fun: Any) -> Digests:
    digests: Digests = {}
    waiting: list[Any] = [fun]
    seen: dict[int, Any] = {}
    while waiting and len(seen) < MOST:
        thing = waiting.pop()
        if type(thing) in NUMBERS or id(thing) in seen or is_foreign(module_of(thing)):
            continue
        seen[id(thing)] = thing
        name = name_of(thing)
        if name is not None:
            digests[name] = digest_of(thing)
        waiting += parts_of(thing)
        for known, number in numbers_of(thing, name is not None):
            digests[known] = digest_of(number)
    return digests


def differing(digests: Digests) -> Name | None:
    """The first thing for which this process has other code or another number."""
    for name, before in digests.items():
        thing = named(name)
        if thing is not None and digest_of(thing) != before:
            return name
    return None


def named(name: Name) -> Any:
    """The thing of a name, if its module is imported; of a property, its function."""
    thing: Any = sys.modules.get(name[0])
    for part in name[1].split("."):
        thing = getattr(thing, "__dict__", {}).get(part)
    return function_in(thing)


def name_of(thing: Any) -> Name | None:
    """The name by which a function of a user's module is pickled."""
    module, path = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if isinstance(thing, type) or not (isinstance(module, str) and isinstance(path, str)):
        return None
    return (module, path) if named((module, path)) is thing and is_users(module) else None


def module_of(thing: Any) -> str:
    """The module of a function or class."""
    module = getattr(thing, "__module__", None)
    return module if isinstance(module, str) and hasattr(thing, "__qualname__") else "__main__"


@functools.lru_cache(1024)
def is_foreign(module: str) -> bool:
    """Whether a module is Python's, this package's or an installed one."""
    path = getattr(sys.modules.get(module), "__file__", None) or ""
    is_known = module.split(".")[0] in (*sys.stdlib_module_names, "daskgrad", "numpy")
    return module != "__main__" and (is_known or any([part in path for part in INSTALLED]))


def is_users(module: str) -> bool:
    """Whether a module goes by name, is no foreign one, and its code is that of its file."""
    loader: Any = getattr(getattr(sys.modules.get(module), "__spec__", None), "loader", None)
    if type(loader) is not importlib.machinery.SourceFileLoader:  # another one may rewrite code
        return False
    by_value = [
        m for m in cloudpickle.list_registry_pickle_by_value() if f"{module}.".startswith(f"{m}.")
    ]
    return not (is_foreign(module) or by_value)


def parts_of(thing: Any) -> Iterator[Any]:
    """The functions, classes and objects to which a thing refers."""
    if isinstance(thing, types.FunctionType):
        for value in references(thing):
            is_module = isinstance(value, types.ModuleType)
            yield from [member for _, member in members_of(thing, value)] if is_module else [value]
    elif isinstance(thing, types.MethodType):
        yield from (thing.__func__, thing.__self__)
    elif isinstance(thing, functools.partial):
        yield from (thing.func, *thing.args, *thing.keywords.values())
    elif isinstance(thing, type):
        bases = [base for base in thing.__mro__ if is_users(base.__module__)]
        yield from [function_in(value) for base in bases for value in vars(base).values()]
    elif isinstance(thing, list | tuple | dict):
        elements = list(thing.values()) if isinstance(thing, dict) else thing
        yield from elements if len(elements) <= FEW else ()
    elif not isinstance(thing, types.ModuleType):
        yield from (type(thing), *getattr(thing, "__dict__", {}).values())
    yield getattr(thing, "__wrapped__", None)


def references(fun: types.FunctionType) -> list[Any]:
    """The values of defaults, of outer variables and of globals."""
    names = [name for name in names_in(fun.__code__) if name in fun.__globals__]
    return [*held_by(fun), *[fun.__globals__[name] for name in names]]


def members_of(fun: types.FunctionType, module: types.ModuleType) -> list[tuple[str, Any]]:
    """The things in a user's module that the code of a function may mean."""
    if not is_users(module.__name__):
        return []
    return [(n, vars(module)[n]) for n in names_in(fun.__code__) if n in vars(module)]


@functools.lru_cache(1024)
def names_in(code: types.CodeType) -> list[str]:
    return sorted({name for part in codes_in(code) for name in part.co_names})


def numbers_of(thing: Any, is_by_name: bool) -> Iterator[tuple[Name, Any]]:
    """Constants of user's modules that a function reads; a function that goes by value takes its
    own along."""
    if not isinstance(thing, types.FunctionType):
        return
    modules = [value for value in references(thing) if isinstance(value, types.ModuleType)]
    own = [sys.modules[thing.__module__]] if is_by_name else []
    for module in (*own, *modules):
        for name, value in members_of(thing, module):
            if type(value) in NUMBERS and is_constant(module.__name__, name, repr(value)):
                yield (module.__name__, name), value


@functools.lru_cache(1024)
def is_constant(module: str, name: str, value: str) -> bool:
    """Whether the source of a module sets a name to a number, and no function sets it."""
    text = inspect.getsource(sys.modules[module])
    is_set = re.search(rf"^{name}{NUMBER}", text, re.MULTILINE)
    return is_set is not None and not re.search(rf"\bglobal\b.*\b{name}\b", text)


def function_in(member: Any) -> Any:
    """The function of a method or property in a class; any other thing itself."""
    if isinstance(member, property):
        return member.fget
    if isinstance(member, classmethod | staticmethod):
        return member.__func__
    return member.func if isinstance(member, functools.cached_property) else member


# ---------------------------------------------------------------------------------------- digests


def digest_of(thing: Any) -> bytes:
    return hashlib.blake2b(repr(key_of(thing, 0)).encode(), digest_size=8).digest()


def key_of(thing: Any, depth: int) -> Any:
    """Equal for functions of equal code and defaults, and for equal numbers, in all processes."""
    if depth > FEW:
        return None
    if isinstance(thing, types.FunctionType):
        held = [key_of(value, depth + 1) for value in held_by(thing) if name_of(value) is None]
        inner = key_of(vars(thing).get("__wrapped__"), depth + 1)
        return key_of_code(thing.__code__, thing.__doc__), held, inner
    if type(thing) in (*NUMBERS, str, type(None)):
        return repr(thing)
    inner = getattr(thing, "__wrapped__", None)
    return key_of(inner, depth + 1) if isinstance(inner, types.FunctionType) else None


@functools.lru_cache(1024)
def key_of_code(code: types.CodeType, documentation: str | None = None) -> str:
    """The instructions, constants and names; neither places nor the text of a docstring."""
    code = REPLACED.get(code, code)
    constants = [key_of_constant(c) for c in code.co_consts if c is None or c != documentation]
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_flags
    return repr((code.co_code, constants, *names))


def key_of_constant(constant: Any) -> str:
    if isinstance(constant, types.CodeType):
        return key_of_code(constant)
    if isinstance(constant, tuple):
        return repr(list(map(key_of_constant, constant)))
    if isinstance(constant, frozenset):  # their order differs between processes
        return repr(sorted(map(key_of_constant, constant)))
    return repr(constant)
