"""Calls for which autograd's own rules give a wrong gradient and no error: refused, or put right.

Found by comparing the functions of ``autograd.numpy`` and their optional arguments to differences.
"""

import functools
from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.core import VJPNode
from autograd.numpy.numpy_vjps import unbroadcast
from autograd.tracer import notrace_primitives, trace_primitives_map

REDUCTIONS = (  # functions, and the arguments that autograd's rules for them do not look at
    ((np.sum, np.mean, np.prod), {"where", "out"}),
    ((np.var, np.std), {"where", "out", "correction", "mean"}),
    ((np.max, np.min), {"where", "out", "initial"}),
)
DEFAULTS = (None, True, np._NoValue)  # NumPy hands these on; where=True leaves nothing out
UNSEEN = {fun: unseen for funs, unseen in REDUCTIONS for fun in funs}


def require_seen(fun: Any, kwargs: dict) -> None:
    """The rule of a primitive looks at all arguments of the call."""
    unseen = UNSEEN.get(fun.fun, set()).intersection(kwargs)
    unseen = {name for name in unseen if not any(kwargs[name] is default for default in DEFAULTS)}
    if unseen:
        raise NotImplementedError(
            f"autograd's rule for {fun.__name__!r} does not look at {', '.join(sorted(unseen))}=, "
            f"and its gradient would be wrong; write it without, for example with np.where"
        )


def is_integer(value: Any) -> bool:
    """Whether a result is of integers or booleans: a cast to them is constant between its jumps."""
    dtype = getattr(value, "dtype", None)
    return dtype is not None and dtype.kind in "biu"


def integer_pullback(g: Any) -> tuple:
    """The pullback of a result without derivative; autograd's rules for casts pass ``g`` on."""
    return ()


def full_like_rule(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
    fill = anp.metadata(args[1]) if 1 in argnums else None

    def full_like_pullback(g: Any) -> tuple:
        return tuple([unbroadcast(g, fill) if argnum == 1 else None for argnum in argnums])

    return full_like_pullback


def where_rule(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
    """autograd's rule, for arrays that are broadcast, too; the condition has no derivative."""
    condition = args[0]
    metas = [anp.metadata(arg) for arg in args]

    def where_pullback(g: Any) -> tuple:
        zeros = np.zeros(anp.shape(g))
        chosen = {0: None, 1: (g, zeros), 2: (zeros, g)}
        return tuple(
            [
                part and unbroadcast(anp.where(condition, *part), metas[argnum])
                for argnum, part in [(argnum, chosen[argnum]) for argnum in argnums]
            ]
        )

    return where_pullback


RULES = {anp.full_like: full_like_rule, trace_primitives_map[np.where]: where_rule}


def without_derivative() -> set:
    """autograd's functions without derivative, as they are now, save those that have one."""
    return _of_these(len(notrace_primitives[VJPNode]))  # others may be added, and none taken away


@functools.lru_cache(maxsize=1)
def _of_these(count: int) -> set:
    return notrace_primitives[VJPNode] - RULES.keys()
