"""Watch: notices that something has changed to which a model refers by name.

A program holds what the model found there when it was recorded: globals, variables of enclosing
functions, attributes. They are compared by identity before each call, and arrays of up to 4 kB by
their bytes; whether a larger array has changed in place is found when the program is checked.
"""

import types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

SMALL = 4096  # bytes
LIBRARIES = ("numpy", "scipy", "autograd", "daskgrad", "builtins")
MISSING = object()


class Watch:
    """What a function, and the functions that it calls, refer to."""

    def __init__(self, fun: Callable):
        self._cells: list[tuple[types.CellType, Any]] = []
        self._entries: list[tuple[dict, str, Any]] = []
        self._arrays: list[tuple[np.ndarray, bytes]] = []
        self._seen: set[int] = set()
        self._follow(fun)

    def has_changed(self) -> bool:
        """Whether a name refers to another object, or a small array has other entries."""
        for cell, value in self._cells:
            if cell.cell_contents is not value:
                return True
        for names, name, value in self._entries:
            if names.get(name, MISSING) is not value:
                return True
        return any([array.tobytes() != before for array, before in self._arrays])

    def _follow(self, thing: Any) -> None:
        if id(thing) in self._seen:
            return
        self._seen.add(id(thing))
        if isinstance(thing, np.ndarray):
            if thing.nbytes <= SMALL and thing.dtype.kind != "O":
                self._arrays.append((thing, thing.tobytes()))
        elif isinstance(thing, partial):
            self._follow_all([thing.func, *thing.args, *thing.keywords.values()])
        elif isinstance(thing, types.MethodType):
            self._follow_all([thing.__func__, thing.__self__])
        elif isinstance(thing, types.FunctionType):
            self._follow_function(thing)
        elif isinstance(thing, list | tuple):
            self._follow_all(thing)
        elif isinstance(thing, dict):
            self._follow_all(thing.values())

    def _follow_all(self, things: Any) -> None:
        for thing in list(things):
            self._follow(thing)

    def _follow_function(self, fun: types.FunctionType) -> None:
        if (fun.__module__ or "").split(".")[0] in LIBRARIES:
            return
        self._follow_all([*(fun.__defaults__ or ()), *(fun.__kwdefaults__ or {}).values()])
        for cell in fun.__closure__ or ():
            self._cells.append((cell, cell.cell_contents))
            self._follow(cell.cell_contents)
        names = set(names_in(fun.__code__))
        for name in names & fun.__globals__.keys():
            value = fun.__globals__[name]
            self._entries.append((fun.__globals__, name, value))
            self._follow(value)
        held = [*[cell.cell_contents for cell in fun.__closure__ or ()]]
        held += [fun.__globals__[name] for name in names & fun.__globals__.keys()]
        for thing in held:
            self._follow_attributes(thing, names)

    def _follow_attributes(self, thing: Any, names: set[str]) -> None:
        """The attributes of an object, or of a module of the user's, that the code may mean."""
        if isinstance(thing, types.ModuleType) and thing.__name__.split(".")[0] in LIBRARIES:
            return
        own = getattr(thing, "__dict__", None)
        if isinstance(own, dict) and not isinstance(thing, types.FunctionType | type):
            for name in names & own.keys():
                self._entries.append((own, name, own[name]))
                self._follow(own[name])


def names_in(code: types.CodeType) -> Iterator[str]:
    """The names of globals and attributes in a function's code, functions in it included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)
