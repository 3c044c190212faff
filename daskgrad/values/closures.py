"""Closures: the objects that a function holds, and whether a module has an object by name."""

import sys
import types
from typing import Any

EMPTY = types.CellType()


def held_by(function: types.FunctionType) -> list[Any]:
    """The objects in a function's defaults and closure."""
    if not (function.__defaults__ or function.__kwdefaults__ or function.__closure__):
        return []
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    cells = function.__closure__ or ()
    return [*defaults, *[cell.cell_contents for cell in cells if cell != EMPTY]]


def is_named(value: Any) -> bool:
    """Whether a module that other processes can import has an object under its name."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if module in (None, "__main__"):
        return False
    return getattr(sys.modules.get(str(module)), str(name), None) is value
