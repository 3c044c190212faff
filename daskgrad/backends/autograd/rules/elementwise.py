"""Functions of single entries."""

from collections.abc import Callable, Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.numpy.numpy_vjps import unbroadcast
from autograd.tracer import trace_primitives_map

from daskgrad.backends.autograd.rules.declaration import declare, equivalent, plain

# ------------------------------------------------------------------------------------ choices


def where_adjoint(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
    """autograd's rule, for arrays that are broadcast, too; the condition has no derivative."""
    condition = args[0]
    metas = {argnum: anp.metadata(args[argnum]) for argnum in argnums if argnum}

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


declare(trace_primitives_map[np.where], adjoint=where_adjoint)


@equivalent(anp.clip, arrays=3, keywords="a_min a_max min max")
def clip(a: Any, a_min: Any = None, a_max: Any = None, **kwargs: Any) -> Any:
    """At a bound the derivative is the bound's, as in autograd's rule."""
    low, high = kwargs.get("min", a_min), kwargs.get("max", a_max)
    if low is not None and low is not np._NoValue:
        a = anp.where(a > low, a, low)
    if high is not None and high is not np._NoValue:
        a = anp.where(a < high, a, high)
    return a


# ---------------------------------------------------------------------------------- functions


def tanh_tangent(argnums: tuple, tangents: Sequence, ans: Any, args: tuple, kwargs: dict) -> Any:
    """g / cosh(x)², for real x without its overflow, whose derivative is NaN."""
    if anp.iscomplexobj(args[0]):
        return tangents[0] / anp.cosh(args[0]) ** 2
    small = anp.exp(-2.0 * anp.abs(args[0]))
    return tangents[0] * (4.0 * small / (1.0 + small) ** 2)


declare(anp.tanh, tangent=tanh_tangent)

NEAR = 1e-3  # so near zero, autograd's rule cancels


@equivalent(anp.sinc, needed=lambda x: bool(np.any(np.abs(plain(x)) < NEAR)))
def sinc(x: Any) -> Any:
    near = np.abs(plain(x)) < NEAR
    square = (np.pi * x) ** 2
    far = np.pi * anp.where(near, 1.0, x)
    return anp.where(near, 1.0 - square / 6.0 + square**2 / 120.0, anp.sin(far) / far)


@equivalent(anp.angle, needed=lambda z, deg=False: bool(deg), keywords="deg")
def angle(z: Any, deg: bool = False) -> Any:
    """autograd's derivative is in radians."""
    return anp.angle(z) * (180.0 / np.pi)


@equivalent(anp.real_if_close, needed=lambda a, tol=100: tol != 100, keywords="tol")
def real_if_close(a: Any, tol: float = 100) -> Any:
    """autograd does not take ``tol``."""
    return a if np.iscomplexobj(np.real_if_close(plain(a), tol)) else anp.real(a)


@equivalent(anp.nan_to_num, keywords="nan posinf neginf")
def nan_to_num(x: Any, *args: Any, **kwargs: Any) -> Any:
    """autograd's rule does not take the numbers that are put in."""
    return anp.where(np.isfinite(plain(x)), x, 0.0)
