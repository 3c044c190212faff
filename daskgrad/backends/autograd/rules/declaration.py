"""The declaration of a rule: all that is known of one primitive, in one call.

autograd's rules hold where nothing else is declared. A primitive may have

``adjoint``, ``tangent``
    rules of our own: ``(argnums, ans, args, kwargs) -> pullback`` and ``(argnums, tangents, ans,
    args, kwargs) -> tangent``, as autograd's. Without a tangent, forward mode transposes the
    adjoint.
``program``
    a few lines in other functions, which give the same value and whose rules are right; they are
    traced when a call is recorded, so that both modes and all orders follow from theirs. They stand
    for the calls that are ``needed``, where autograd's own rule is wrong or missing. The first
    ``arrays`` arguments have derivatives.
``keywords``
    the parameters that its rule looks at, and that may be given by keyword; a call with any other
    one is refused.
``refused``
    positions of arguments whose derivative nobody knows, each with its name; autograd has zero.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from autograd.tracer import getval, isbox


class Refusal(NotImplementedError):
    """A call has no rule, and the message says what to write instead."""


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
    """Enters all that is known of a primitive, or of some to which the same applies."""
    for fun in funs:
        if fun in DECLARED:
            raise ValueError(f"the rules of {fun.__name__!r} stand in two places; keep them in one")
        DECLARED[fun] = Declaration(keywords=frozenset(keywords.split()), **rules)


def equivalent(*funs: Callable, **rules: Any) -> Callable:
    """Declares the decorated function as the ``program`` of a primitive, and what else is known."""

    def enter(program: Callable) -> Callable:
        declare(*funs, program=program, **rules)
        return program

    return enter


def plain(value: Any) -> Any:
    """What is in a box, through all traces."""
    while isbox(value):
        value = getval(value)
    return value


def is_plain(g: Any) -> bool:
    """Whether a cotangent is an array or number of NumPy's that nobody differentiates."""
    return type(g) is np.ndarray or type(g) is np.float64
