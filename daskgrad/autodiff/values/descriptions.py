"""Descriptions: values in words, for errors, keys and HTML; imports of optional libraries."""

import functools
import html
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from daskgrad.autodiff.values.trees import BOXES


def describe(value: Any, depth: int = 8) -> str:
    """A value in a few words, for an error: dtype and shape, or the structure of a container."""
    if not depth:
        return "..."
    if isinstance(value, np.ndarray | np.generic) or type(value) in BOXES:
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, dict):
        items = [f"{key!r}: {describe(item, depth - 1)}" for key, item in value.items()]
        return f"{{{_shorten(items)}}}"
    if isinstance(value, list | tuple):
        items = [describe(item, depth - 1) for item in value]
        return f"{type(value).__name__}({_shorten(items)})"
    if isinstance(value, bool | int | float | complex | str | type(None)):
        text = repr(value)
        return text if len(text) <= 40 else text[:37] + "..."
    return type(value).__name__


def _shorten(words: list[str]) -> str:
    return ", ".join(words if len(words) <= 6 else [*words[:6], f"... {len(words) - 6} more"])


def function_name(fun: Any) -> str:
    while isinstance(fun, functools.partial):
        fun = fun.func
    return getattr(fun, "__name__", None) or type(fun).__name__


class Report(str):
    """A text that shows as it prints, in Python's prompt and in notebooks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self)}</pre>"


def path_of(function: Any) -> str:
    """The path of a function of NumPy or SciPy, as users write it: ``np.linalg.norm``."""
    name = function.__name__
    module = module_of(function, name)
    if module is None:
        return name
    return f"{module}.{name}".replace("numpy.", "np.", 1)


def module_of(function: Any, name: str) -> str | None:
    """The module of NumPy or SciPy that has a function; ufuncs do not know their module."""
    if not isinstance(function, np.ufunc):
        return function.__module__
    modules = ("numpy", "scipy.special")
    return next((m for m in modules if getattr(sys.modules.get(m), name, None) is function), None)


def argument_name(fun: Callable, number: int) -> str:
    """The name of a positional argument, read from the function's code if possible, for speed."""
    called: Any = fun
    place = number
    while type(called) is functools.partial and not (called.keywords or vars(called)):
        called, place = called.func, place + len(called.args)
    inner = called if type(called) is types.FunctionType else getattr(called, "__wrapped__", None)
    if type(inner) is types.FunctionType and not OTHERS.intersection(vars(inner)):
        code = inner.__code__
        if place < code.co_argcount and not hasattr(called, "__signature__"):
            return code.co_varnames[place]
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (ValueError, TypeError):
        return f"argument {number}"
    named = [parameter.name for parameter in parameters if parameter.kind in NAMED]
    return named[number] if number < len(named) else f"argument {number}"


OTHERS = {"__wrapped__", "__signature__"}  # these name the arguments instead
NAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def require_pair(value: Any, demand: str) -> tuple[Any, Any]:
    if not (isinstance(value, tuple) and len(value) == 2):
        raise TypeError(f"{demand}; found {describe(value)}")
    return value


def is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether a value is a real number, of Python's or NumPy's."""
    return is_integer(value) or isinstance(value, float | np.floating)


def require_number(value: Any, argument: str, is_positive: bool = False) -> None:
    """Raises a ``ValueError`` unless a value is a finite number >= 0, or > 0."""
    if not (is_number(value) and 0 <= value < np.inf and (value or not is_positive)):
        least = "a positive number" if is_positive else "a number, zero or more"
        raise ValueError(f"{argument} must be {least}; found {describe(value)}")


def require_choice(value: Any, choices: Iterable[str], argument: str) -> None:
    """Raises a ``ValueError`` that lists the choices unless a value is one of them."""
    words = list(choices)
    if not (isinstance(value, str) and value in words):
        listed = ", ".join(map(repr, words))
        raise ValueError(f"{argument} must be one of {listed}; found {describe(value)}")


# -------------------------------------------------------------------------------------------------
# Errors that several rooms raise.


class NondeterministicModelError(RuntimeError):
    """A model that ran again on the same arguments returned another value.

    Examples
    --------
    >>> draws = iter(range(10))
    >>> def model(x):
    ...     return np.sum(x) * next(draws)
    >>> with dask.config.set(scheduler="sync"):
    ...     dg.grad(dg.delayed(model, keep="recompute"))(np.ones(2))
    Traceback (most recent call last):
        ...
    daskgrad.autodiff.values.descriptions.NondeterministicModelError: ...
    """


# -------------------------------------------------------------------------------------------------
# Extras: libraries that only some parts of this package use.


def imported(library: str, extra: str, purpose: str) -> Any:
    """The library's module; a ModuleNotFoundError that says how to install a missing one."""
    try:
        return importlib.import_module(library)
    except ModuleNotFoundError as error:
        package = library.partition(".")[0]
        if error.name != package:  # the library is there, and lacks a module of its own
            raise
        raise ModuleNotFoundError(
            f'{purpose}, which is not installed: run pip install "daskgrad[{extra}]"', name=package
        ) from None


# -------------------------------------------------------------------------------------------------
# Markup: HTML tables for notebooks, pages and reports, escaped; times and sizes in words.


def escaped(value: Any) -> str:
    return html.escape(str(value))


def table(title: str, head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """An HTML table of escaped entries; all columns but the first are numbers."""
    lines = [[*map(escaped, row)] for row in rows]
    if not lines:
        return ""
    above = f"<h3>{escaped(title)}</h3>" if title else ""

    def cells(tag: str, entries: Iterable[str]) -> str:
        kinds = [
            f"<{tag}{'' if not n else ' class=number'}>{e}</{tag}>" for n, e in enumerate(entries)
        ]
        return f"<tr>{''.join(kinds)}</tr>"

    body = "".join([cells("td", line) for line in lines])
    return f"{above}<table>{cells('th', map(escaped, head))}{body}</table>"


def seconds(number: float) -> str:
    """A time in the unit that fits."""
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if number >= size:
            return f"{number / size:,.3g} {unit}"
    return f"{number * 1e9:,.3g} ns" if number > 0 else "0 s"


def nbytes(number: float) -> str:
    for size, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "kiB")):
        if number >= size:
            return f"{number / size:,.3g} {unit}"
    return f"{number:,.0f} B"
