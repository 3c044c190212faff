"""Refusals: raises for calls whose rule would be wrong, and explains errors of rules."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from daskgrad.backends.autograd.rules.declaration import DECLARED, Declaration, Refusal
from daskgrad.backends.autograd.rules.known import KNOWN, settle
from daskgrad.values.descriptions import function_name

NOTHING = Declaration()

INSTEAD = {
    "out": "take the value that the function returns",
    "where": "choose with np.where",
    "dtype": "convert with .astype",
}


def require_seen(fun: Any, kwargs: dict) -> None:
    """Raises unless the rule of a primitive of NumPy or SciPy uses all keywords of the call."""
    settle()
    strange = kwargs.keys() - DECLARED.get(fun, NOTHING).keywords
    if not strange or fun not in KNOWN:
        return
    unseen = sorted([name for name in strange if not is_default(fun, name, kwargs[name])])
    if unseen:
        instead = [INSTEAD[name] for name in unseen if name in INSTEAD] or ["write it without"]
        raise Refusal(
            f"autograd's rule for {fun.__name__!r} does not look at {'=, '.join(unseen)}=, and its "
            f"derivative would be wrong; {', '.join(instead)}"
        )


def is_default(fun: Any, name: str, value: Any) -> bool:
    """Whether a keyword has no effect; NumPy itself passes some with their defaults."""
    if value is None or value is np._NoValue or (name == "where" and value is True):
        return True
    parameter = inspect.signature(fun.fun).parameters.get(name)
    return parameter is not None and value is parameter.default


def require_derivative(fun: Any, argnums: tuple) -> None:
    """Raises if an argument is differentiated whose derivative is not implemented."""
    refused = DECLARED[fun].refused
    for argnum in argnums:
        if argnum in refused:
            raise Refusal(
                f"the derivative of {fun.__name__!r} with respect to {refused[argnum]}, is not "
                f"implemented; pass the plain number, dg.value(...), if you do not need this "
                f"derivative; otherwise use dg.finite_difference"
            )


def missing(fun: Callable, argnums: tuple) -> Callable:
    raise NotImplementedError(missing_rule(fun, argnums))


def explain(error: Exception, fun: Callable, argnums: tuple) -> None:
    """Raises a clearer error if a rule has failed because it does not support the call."""
    if isinstance(error, Refusal):
        return
    if isinstance(error, NotImplementedError) and not str(error).startswith(UNDEFINED):
        raise NotImplementedError(narrow_rule(fun, error)) from error
    if isinstance(error, NotImplementedError) or (
        isinstance(error, KeyError) and error.args[0] in argnums
    ):
        raise NotImplementedError(missing_rule(fun, argnums)) from error
    if isinstance(error, TypeError) and "argument" in str(error):
        raise TypeError(narrow_rule(fun, error)) from error  # np.clip(box) falls back on TypeError


UNDEFINED = ("VJP of ", "JVP of ")  # autograd's messages for missing rules begin so


def missing_rule(fun: Callable, argnums: tuple) -> str:
    return (
        f"the primitive {function_name(fun)!r} has no derivative rule for its argument "
        f"{', '.join(map(str, argnums))}; write the model without it, or define the rule with "
        f"autograd.extend.defvjp"
    )


def narrow_rule(fun: Callable, error: Exception) -> str:
    name = function_name(fun)
    return f"the rule of the primitive {name!r} does not take all arguments of this call: {error}"
