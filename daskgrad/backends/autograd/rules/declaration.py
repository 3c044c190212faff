"""The tables of corrections, and how one is entered.

A function whose rule in autograd is wrong, or missing, for some calls has an *equivalent* for them:
a program of other functions that gives the same values, and whose derivatives, in both modes
and of every order, follow from theirs. Where a formula of its own is shorter, it has an *adjoint*
(the pullback) and, beside it, a *tangent*; without a tangent, forward mode transposes the adjoint.
"""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from autograd.tracer import getval, isbox


class Refusal(NotImplementedError):
    """A call has no rule, and the message says what to write instead."""


class Equivalent(NamedTuple):
    """``program`` takes the function's arguments; the first ``arrays`` have derivatives."""

    program: Callable
    needed: Callable[..., bool]
    arrays: int


EQUIVALENTS: dict[Callable, Equivalent] = {}
ADJOINTS: dict[Callable, Callable] = {}  # as autograd's: (argnums, ans, args, kwargs) -> pullback
TANGENTS: dict[Callable, Callable] = {}  # so too: (argnums, tangents, ans, args, kwargs) -> tangent
KEYWORDS: dict[Callable, Collection[str]] = {}  # parameters that may be given by keyword


def always(*args: Any, **kwargs: Any) -> bool:
    return True


def equivalent(*funs: Callable, needed: Callable[..., bool] = always, arrays: int = 1) -> Callable:
    """Enters a program; ``needed`` tells whether autograd's rule is wrong for a call."""

    def enter(program: Callable) -> Callable:
        for fun in funs:
            EQUIVALENTS[fun] = Equivalent(program, needed, arrays)
        return program

    return enter


def keywords(names: str, *funs: Callable) -> None:
    for fun in funs:
        KEYWORDS[fun] = frozenset(names.split())


REFUSED: dict[Callable, dict[int, str]] = {}  # positions that are differentiated in vain


def refuse(fun: Callable, argnum: int, what: str) -> None:
    """Makes derivatives with respect to an argument an error; autograd's are zero or missing."""
    REFUSED.setdefault(fun, {})[argnum] = what


def plain(value: Any) -> Any:
    """What is in a box, through all traces."""
    while isbox(value):
        value = getval(value)
    return value
