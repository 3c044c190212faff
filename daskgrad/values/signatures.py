"""Signatures: what functions and their arguments are called, for errors and for task keys."""

import functools
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np


def function_name(fun: Any) -> str:
    while isinstance(fun, functools.partial):
        fun = fun.func
    return getattr(fun, "__name__", None) or type(fun).__name__


def path_of(function: Any) -> str:
    """Where a function that NumPy hands over is found, as users write it: ``np.linalg.norm``."""
    name = function.__name__
    module = module_of(function, name)
    if module is None:
        return name
    return f"{module}.{name}".replace("numpy.", "np.", 1)


def module_of(function: Any, name: str) -> str | None:
    """The module of NumPy or SciPy that has a function; ufuncs do not tell where they are from."""
    if not isinstance(function, np.ufunc):
        return function.__module__
    modules = ("numpy", "scipy.special")
    return next((m for m in modules if getattr(sys.modules.get(m), name, None) is function), None)


def traceable(path: str) -> str:
    """The path of the function that takes the place of one of NumPy or SciPy in models."""
    if path.startswith("np."):
        return path.replace("np.", "autograd.numpy.", 1)
    return f"autograd.{path}" if path.startswith("scipy.") else "lambda x: ..."


def argument_name(fun: Callable, number: int) -> str:
    """The name of a positional argument; read off the code where that is at hand, for speed."""
    inner = fun if type(fun) is types.FunctionType else getattr(fun, "__wrapped__", None)
    if type(inner) is types.FunctionType and not OTHERS.intersection(vars(inner)):
        code = inner.__code__
        if number < code.co_argcount and not hasattr(fun, "__signature__"):
            return code.co_varnames[number]
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (ValueError, TypeError):
        return f"argument {number}"
    named = [each.name for each in parameters if each.kind in NAMED]
    return named[number] if number < len(named) else f"argument {number}"


OTHERS = {"__wrapped__", "__signature__"}  # where these say what the arguments are
NAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
