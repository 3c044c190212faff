"""Kinds of numbers: real, complex, and without derivative."""

from typing import Any

import autograd.numpy as anp
import numpy as np

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
