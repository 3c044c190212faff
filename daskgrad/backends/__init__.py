"""Backends: the libraries that can differentiate one model.

A backend is a module with six functions. ``dumps(fun) -> bytes`` and ``loads(bytes) -> fun`` send
a model to another process, with what the library needs to differentiate it there. The third is ::

    trace(fun, arrays) -> outputs, tape

where ``fun`` takes as many positional arguments as there are ``arrays`` (float or complex NumPy
arrays or scalars, at least one) and returns a list of leaves. ``trace`` runs it once and returns
its outputs as NumPy values, and a tape with

- ``pull(cotangents)``: one cotangent (or ``None`` for zero) an output in, one (or ``None``) an
  array out; may be called any number of times, from any thread; changes none of its arguments;
- ``held_arrays()``: the arrays that the tape keeps alive, each once.

The fourth is ::

    linearize(fun, arrays) -> outputs, push

where ``push(tangents)`` takes one tangent (or ``None`` for zero) an array, and returns one an
output: zeros where none arrives, and ``None`` for an output without derivative. It may be called
any number of times. Both are written in the library's own functions, so that ``trace`` can go
through them.

Two more take one leaf of what a traced model works on, and return one that is not the library's own
as it is: ``stop_gradient(leaf)``, the same number without a derivative, and ``value(leaf)``, the
plain number, out of all nested traces.
"""

import importlib
import sys
from types import ModuleType

NAMES = ("autograd",)


def load(name: str) -> ModuleType:
    """The backend of that name.

    Raises
    ------
    ValueError
        where there is none; the message lists those there are.
    """
    if name not in NAMES:
        raise ValueError(f"unknown backend {name!r}; choose one of {', '.join(NAMES)}")
    return importlib.import_module(f"daskgrad.backends.{name}")


def imported() -> list[ModuleType]:
    """The backends whose library this process has imported: nothing can belong to the others."""
    return [load(name) for name in NAMES if name in sys.modules]
