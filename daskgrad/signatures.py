"""Signatures: what functions and their arguments are called, for errors and for task keys."""

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any


def function_name(fun: Any) -> str:
    while isinstance(fun, functools.partial):
        fun = fun.func
    return getattr(fun, "__name__", None) or type(fun).__name__


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
