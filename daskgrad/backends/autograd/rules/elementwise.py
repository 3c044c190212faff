"""Elementwise: functions of single entries, and functions that fill arrays with numbers."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.core import primitive_jvps, primitive_vjps
from autograd.extend import defvjp_argnums, primitive
from autograd.numpy import numpy_wrapper
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


def slopes_adjoint(*slopes: Any) -> Callable:
    """The adjoint of a function with the derivative at each entry, ``slope(ans, *args)``.

    There is a slope for each argument that has one; they are computed when it is pulled back.
    """

    def adjoint(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
        chosen = [(slopes[argnum], anp.metadata(args[argnum])) for argnum in argnums]

        def slopes_pullback(g: Any) -> tuple:
            return tuple([unbroadcast(times(g, slope(ans, *args)), meta) for slope, meta in chosen])

        return slopes_pullback

    return adjoint


def times(g: Any, slope: Any) -> Any:
    """A cotangent times a slope, added up over several results.

    A result that nobody uses has the cotangent zero, and nothing comes of an infinite slope.
    """
    if not isinstance(slope, tuple):
        return g * slope
    total: Any = 0.0
    for n, part in enumerate(slope):
        there = np.isfinite(plain(part)) | (plain(g[n]) != 0)
        total = total + g[n] * anp.where(there, part, 0.0)
    return total


def sqrt_adjoint(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
    """By the root, which is there, in place of a power."""
    return lambda g: (g * 0.5 / ans,)


declare(anp.sqrt, adjoint=sqrt_adjoint, tangent=primitive_jvps[anp.sqrt])


def abs_adjoint(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
    (x,) = args
    if anp.iscomplexobj(x):
        return primitive_vjps[anp.abs](argnums, ans, args, kwargs)
    return lambda g: (g * anp.sign(x),)


declare(anp.abs, adjoint=abs_adjoint, tangent=primitive_jvps[anp.abs])


def tanh_tangent(argnums: tuple, tangents: Sequence, ans: Any, args: tuple, kwargs: dict) -> Any:
    """g / cosh(x)², for real x without its overflow, whose derivative is NaN."""
    if anp.iscomplexobj(args[0]):
        return tangents[0] / anp.cosh(args[0]) ** 2
    small = anp.exp(-2.0 * anp.abs(args[0]))
    return tangents[0] * (4.0 * small / (1.0 + small) ** 2)


declare(anp.tanh, tangent=tanh_tangent)


def sign_adjoint(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
    """Of a complex number z the sign is z / abs(z), which is not constant."""
    if not anp.iscomplexobj(args[0]):
        return lambda g: (None,)
    size = anp.abs(args[0])
    return lambda g: ((g - anp.conj(g * ans**2)) / (2.0 * size),)


recorded_sign = anp.sign
declare(recorded_sign, adjoint=sign_adjoint)


def sign(x: Any, *args: Any, **kwargs: Any) -> Any:
    """The sign; that of a real number is constant, and so a plain number, as autograd's."""
    others = kwargs.keys() - {"called_by_autograd_dispatcher"}  # are refused
    is_constant = not (args or others or anp.iscomplexobj(x))
    return recorded_sign(plain(x) if is_constant else x, *args, **kwargs)


sign.fun = np.sign  # type: ignore[attr-defined]
anp.sign = trace_primitives_map[np.sign] = sign


@primitive
def share(x: Any, y: Any, total: Any) -> Any:
    """exp(x) of exp(x) + exp(y), of which ``total`` is the logarithm."""
    return np.exp(x - total)


@primitive
def share2(x: Any, y: Any, total: Any) -> Any:
    return 2 ** (x - total)


def declare_shares(fun: Callable, part: Callable, factor: float) -> None:
    """The rules of the logarithm of a sum of two exponentials, and of the share of one of them.

    Both shares add up to one, so that none is lost where the other one is nearly one.
    """

    def steep(ans: Any, x: Any, y: Any, total: Any) -> Any:
        return factor * ans * part(y, x, total)

    of_shares = slopes_adjoint(steep, lambda *args: -steep(*args))
    declare(part, adjoint=of_shares)
    defvjp_argnums(part, of_shares)
    declare(
        fun,
        adjoint=slopes_adjoint(
            lambda ans, x, y: part(x, y, plain(ans)), lambda ans, x, y: part(y, x, plain(ans))
        ),
    )


declare_shares(anp.logaddexp, share, 1.0)
declare_shares(anp.logaddexp2, share2, math.log(2.0))

NEAR = 1e-3  # nearer to zero, autograd's rule suffers from cancellation


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
    """autograd's rule does not take the replacement numbers."""
    return anp.where(np.isfinite(plain(x)), x, 0.0)


# ------------------------------------------------------------------------------- filled arrays


def full_adjoint(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
    """Sums over broadcast axes, as autograd does not; it takes ``full_like`` for a constant."""
    fill = anp.metadata(args[1]) if 1 in argnums else None

    def full_pullback(g: Any) -> tuple:
        return tuple([unbroadcast(g, fill) if argnum == 1 else None for argnum in argnums])

    return full_pullback


declare(anp.full, adjoint=full_adjoint, keywords="dtype order")
declare(anp.full_like, adjoint=full_adjoint, keywords="dtype order subok shape device")


def astype_adjoint(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
    """autograd keeps the imaginary part of the cotangent of a real array."""
    is_real, dtype = not anp.iscomplexobj(args[0]), plain(args[0]).dtype

    def astype_pullback(g: Any) -> tuple:
        return (numpy_wrapper._astype(anp.real(g) if is_real else g, dtype),)

    return astype_pullback


declare(numpy_wrapper._astype, adjoint=astype_adjoint, keywords="copy order casting subok")


@equivalent(anp.linspace, arrays=2, keywords="num endpoint retstep dtype axis")
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    """A line between two points for each entry of the ends."""
    shape = np.broadcast_shapes(np.shape(plain(start)), np.shape(plain(stop)))
    places, step = np.linspace(0.0, 1.0, num, endpoint, retstep=True)
    places = places.reshape((num,) + (1,) * len(shape))
    line = anp.moveaxis(start * (1.0 - places) + stop * places, 0, axis)
    return [line, (stop - start) * step] if retstep else line
