"""Calls that are refused, since autograd's rule for a function does not look at all of a call."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.core import VJPNode
from autograd.tracer import notrace_primitives

from daskgrad.backends.autograd.rules import (
    ADJOINTS,
    KEYWORDS,
    KNOWN,
    REFUSED,
    settle,
)
from daskgrad.backends.autograd.rules.declaration import Refusal

INSTEAD = {
    "out": "take the value that the function returns",
    "where": "choose with np.where",
    "initial": "take np.maximum or np.minimum with it afterwards",
    "correction": "write ddof=",
    "mean": "leave it out",
    "dtype": "convert with .astype",
}


def require_seen(fun: Any, kwargs: dict) -> None:
    """The rule of a primitive of NumPy's or SciPy's looks at all keywords of the call."""
    settle()
    strange = kwargs.keys() - KEYWORDS.get(fun, ())
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
    """NumPy hands on some of these; ``where=True`` leaves nothing out."""
    if value is None or value is np._NoValue or (name == "where" and value is True):
        return True
    parameter = inspect.signature(fun.fun).parameters.get(name)
    return parameter is not None and value is parameter.default


def require_derivative(fun: Any, argnums: tuple) -> None:
    """No argument is differentiated whose derivative nobody knows."""
    for argnum in argnums:
        if argnum in REFUSED[fun]:
            raise Refusal(
                f"the derivative of {fun.__name__!r} with respect to {REFUSED[fun][argnum]}, is "
                f"not written; pass the plain number, dg.value(...), where it is none of what is "
                f"asked for, and else use dg.finite_difference"
            )


INTEGERS = frozenset("biu")  # a cast to them, or to booleans, is constant between its jumps


def kind_of(value: Any) -> str:
    """The kind of a value's dtype: "f" for real, "c" for complex ones; "" for a container."""
    if type(value) is np.float64:  # its dtype takes three times as long as an array's
        return "f"
    try:
        return value.dtype.kind
    except AttributeError:
        if isinstance(value, float):
            return "f"
        return "c" if isinstance(value, complex) else ""


def real_part(derivative: Any) -> Any:
    """A cotangent or tangent of a real value; rules of autograd's forget that the value is real."""
    return anp.real(derivative) if kind_of(derivative) == "c" else derivative


def integer_pullback(g: Any) -> tuple:
    """The pullback of a result without derivative; autograd's rules for casts pass ``g`` on."""
    return ()


def without_derivative() -> set[Callable]:
    """autograd's functions without derivative, as they are now, save those that have one."""
    return _of_these(len(notrace_primitives[VJPNode]))  # others may be added, and none taken away


@functools.lru_cache(maxsize=1)
def _of_these(count: int) -> set:
    return notrace_primitives[VJPNode] - ADJOINTS.keys()
