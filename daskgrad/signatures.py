"""Signatures: what functions and their arguments are called, for errors and for task keys."""

import functools
import inspect
from collections.abc import Callable
from typing import Any


def function_name(fun: Any) -> str:
    while isinstance(fun, functools.partial):
        fun = fun.func
    return getattr(fun, "__name__", None) or type(fun).__name__


def argument_name(fun: Callable, number: int) -> str:
    """The name of a positional argument; read off the code where that is at hand, for speed."""
    code = getattr(fun, "__code__", None)
    if code is not None and number < code.co_argcount and not hasattr(fun, "__wrapped__"):
        return code.co_varnames[number]
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (ValueError, TypeError):
        return f"argument {number}"
    named = [each.name for each in parameters if each.kind in NAMED]
    return named[number] if number < len(named) else f"argument {number}"


NAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
