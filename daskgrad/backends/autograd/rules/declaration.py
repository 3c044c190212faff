"""Declarations: rules and refusals of one primitive, declared in one call.

autograd's rules hold for all primitives without a declaration. A declaration may have

``adjoint``, ``tangent``
    rules of our own: ``(argnums, ans, args, kwargs) -> pullback`` and ``(argnums, tangents, ans,
    args, kwargs) -> tangent``, as autograd's. Without a tangent, forward mode transposes the
    adjoint.
``program``
    a few lines of other functions that give the same value and whose rules are right; they are
    traced when a call is recorded, so that both modes and all orders follow from their rules. The
    program replaces calls for which it is ``needed``: those for which the adjoint and tangent,
    or autograd's own rule, are wrong or missing. The first ``arrays`` arguments have derivatives.
``keywords``
    the parameters that its rule uses and that may be passed by keyword; a call with any other
    keyword is refused.
``refused``
    positions and names of arguments whose derivative is not implemented; autograd returns zero.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import autograd.numpy as anp
import numpy as np
from autograd.numpy.numpy_boxes import ArrayBox as ArrayBox  # autograd's, before it is replaced
from autograd.tracer import isbox


class Refusal(NotImplementedError):
    """A call has no rule; the message tells what to write instead."""


def always(*args: Any, **kwargs: Any) -> bool:
    return True


class Declaration(NamedTuple):
    adjoint: Callable | None = None
    tangent: Callable | None = None
    program: Callable | None = None
    needed: Callable[..., bool] = always
    arrays: int = 1
    keywords: frozenset[str] = frozenset()
    refused: Mapping[int, str] = {}


DECLARED: dict[Callable, Declaration] = {}


def declare(*funs: Callable, keywords: str = "", **rules: Any) -> None:
    """Declares the rules of a primitive, or of several with the same rules."""
    for fun in funs:
        if fun in DECLARED:
            raise ValueError(f"the rules of {fun.__name__!r} are declared twice; declare them once")
        DECLARED[fun] = Declaration(keywords=frozenset(keywords.split()), **rules)


def equivalent(*funs: Callable, **rules: Any) -> Callable:
    """Declares the decorated function as the ``program`` of a primitive, with further rules."""

    def enter(program: Callable) -> Callable:
        declare(*funs, program=program, **rules)
        return program

    return enter


def each_of(rule: Callable) -> Callable:
    """The adjoint from the cotangent of one argument, ``rule(argnum, g, *args)``."""

    def adjoint(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
        return lambda g: tuple([rule(argnum, g, *args) for argnum in argnums])

    return adjoint


def sum_of(rule: Callable) -> Callable:
    """The tangent from that by one argument, ``rule(argnum, t, *args)``."""

    def tangent(argnums: tuple, tangents: Sequence, ans: Any, args: tuple, kwargs: dict) -> Any:
        parts = [rule(argnum, t, *args) for argnum, t in zip(argnums, tangents, strict=True)]
        return sum(parts[1:], parts[0])

    return tangent


def plain(value: Any) -> Any:
    """The value in a box, through all traces."""
    while isbox(value):
        if hasattr(value, "plain"):  # it is recorded, and stays so
            return value.plain()
        value = value._value
    return value


def namespace_of(*values: Any) -> Any:
    """The module whose functions take these values: NumPy, or autograd's for boxes."""
    return anp if any(map(isbox, values)) else np


def is_real_like(dtype: Any, *values: Any) -> bool:
    """Whether these are arrays and numbers of NumPy's, or boxes of them, of this dtype, which is
    real."""
    for value in values:
        is_known = type(value) in REAL or isinstance(value, ArrayBox)
        if not is_known or getattr(value, "dtype", None) != dtype:
            return False
    return dtype is not None and dtype.kind == "f"


def is_real(value: Any) -> bool:
    if type(value) is np.ndarray:  # in half the time
        return value.dtype.kind == "f"
    return is_real_like(getattr(value, "dtype", None), value)


REAL = {np.ndarray, np.float64, np.float32}


def is_plain(g: Any) -> bool:
    """Whether a cotangent is a NumPy array or number, not a box or a subclass."""
    return type(g) is np.ndarray or type(g) is np.float64
