"""Functions as bytes: pickles functions, and reuses a pickle if the function has not changed.

A model's function is sent with every evaluation, since objects that it refers to may have changed;
pickling a script's function takes longer than a small gradient. But most functions refer only to
objects that cannot change in place: modules, numbers, and functions of this kind. These references
are compared by identity, which takes some microseconds.
"""

import hashlib
import io
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from daskgrad.backends.pickling.pickler import Pickler
from daskgrad.values.caches import drop_oldest
from daskgrad.values.closures import held_by, is_named

FIXED = (
    types.ModuleType,
    types.BuiltinFunctionType,
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
)

Parts = list[Any]

MOST_KEPT = 128  # pickles of functions


class Pickles:
    """Pickles functions, again only if a function may have changed since."""

    def __init__(self, pickler: type[Pickler] = Pickler):
        self._pickler = pickler
        self._kept: dict[types.CodeType, tuple[Parts, bytes]] = {}

    def __reduce__(self) -> tuple:  # a backend of a user's own may bring ``dumps`` along
        return Pickles, (self._pickler,)

    def dumps(self, fun: Callable) -> bytes:
        parts = parts_of(fun)
        if parts is None:
            return self._pickle(fun)
        code = fun.__code__
        kept = self._kept.get(code)
        if kept is None or not are_same(kept[0], parts):
            kept = self._kept[code] = parts, self._pickle(fun)
            drop_oldest(self._kept, MOST_KEPT)
        return kept[1]

    def _pickle(self, fun: Callable) -> bytes:
        buffer = io.BytesIO()
        self._pickler(buffer, protocol=5).dump(fun)
        return buffer.getvalue()


def digest(pickled: bytes) -> bytes:
    """A key of a function's pickle, different after each change of the function."""
    return hashlib.blake2b(pickled, digest_size=16).digest()


def parts_of(fun: Callable) -> Parts | None:
    """All objects in a function's pickle, or None if one of them can change in place."""
    waiting, seen = [fun], {id(fun)}
    parts: Parts = [len(sys.modules)]  # a submodule that was imported since belongs to the pickle
    while waiting:
        current = waiting.pop()
        if not is_plain_function(current):
            return None
        parts.extend(own_parts(current))
        for value in references(current):
            parts.append(value)
            if isinstance(value, FIXED) or id(value) in seen:
                continue
            if isinstance(value, types.FunctionType | type) and is_named(value):
                continue  # it is sent as its name
            seen.add(id(value))
            waiting.append(value)
    return parts


def are_same(first: Parts, second: Parts) -> bool:
    return len(first) == len(second) and all(map(is_same, first, second))


def is_same(first: Any, second: Any) -> bool:
    return first is second or (type(first) is type(second) is int and first == second)


def is_plain_function(value: Any) -> bool:
    return type(value) is types.FunctionType and not value.__dict__ and not value.__kwdefaults__


def own_parts(fun: Any) -> Parts:
    names = [fun.__name__, fun.__qualname__, fun.__module__, fun.__doc__]
    return [fun.__code__, fun.__globals__, *names, *fun.__annotations__.values()]


def references(fun: Any) -> Iterator[Any]:
    """The values of its defaults, its closure and the globals that it may use."""
    yield from held_by(fun)
    for name in names_in(fun.__code__):
        if name in fun.__globals__:
            yield fun.__globals__[name]


def names_in(code: types.CodeType) -> Iterator[str]:
    """The names in a function's code and in those within it: of globals, and of attributes too."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)
