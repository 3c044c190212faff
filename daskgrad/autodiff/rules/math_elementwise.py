"""Elementwise: functions of single entries, and functions that fill arrays with numbers."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.core import primitive_jvps, primitive_vjps
from autograd.extend import defvjp_argnums, primitive
from autograd.numpy import numpy_wrapper
from autograd.numpy.numpy_vjps import unbroadcast
from autograd.tracer import trace_primitives_map

from daskgrad.autodiff.rules.declaration import (
    added,
    adjoint_of,
    declare,
    equivalent,
    is_plain,
    is_real,
    is_real_like,
    kernel,
    numpys,
    on_numpys,
    plain,
    refusing,
    shape_of,
)
from daskgrad.autodiff.rules.twins import recorded

# ------------------------------------------------------------------------------------ choices


@adjoint_of(trace_primitives_map[np.where])
def where_adjoint(argnums, ans, args, kwargs):
    """autograd's rule, for arrays that are broadcast, too; the condition has no derivative."""
    condition = args[0]
    metas = {argnum: anp.metadata(args[argnum]) for argnum in argnums if argnum}

    def where_pullback(g):
        zeros = np.zeros(anp.shape(g))
        parts = {1: (g, zeros), 2: (zeros, g)}
        pulled = {n: unbroadcast(anp.where(condition, *parts[n]), metas[n]) for n in metas}
        return tuple([pulled.get(argnum) for argnum in argnums])

    return where_pullback


@equivalent(anp.clip, arrays=3, keywords="a_min a_max min max")
def clip(a, a_min=None, a_max=None, **kwargs):
    """At a bound each has a half of the derivative, as of ``np.maximum``."""
    low, high = kwargs.get("min", a_min), kwargs.get("max", a_max)
    if low is not None and low is not np._NoValue:
        a = anp.maximum(a, low)
    if high is not None and high is not np._NoValue:
        a = anp.minimum(a, high)
    return a


# ---------------------------------------------------------------------------------- functions


def slopes_adjoint(*slopes: Any) -> Callable:
    """The adjoint from the derivative at each entry by each argument, ``slope(ans, *args)``."""

    def adjoint(argnums, ans, args, kwargs):
        chosen = [(slopes[argnum], anp.metadata(args[argnum])) for argnum in argnums]

        def slopes_pullback(g):
            return tuple([unbroadcast(times(g, slope(ans, *args)), meta) for slope, meta in chosen])

        return slopes_pullback

    return adjoint


def times(g, slope):
    """A cotangent times a slope, added up over several results; an infinite slope of a result that
    nobody uses adds nothing."""
    if not isinstance(slope, tuple):
        return g * slope
    total: Any = 0.0
    for n, part in enumerate(slope):
        counts = np.isfinite(plain(part)) | (plain(g[n]) != 0)
        total = total + g[n] * anp.where(counts, part, 0.0)
    return total


@adjoint_of(anp.sqrt, tangent=primitive_jvps[anp.sqrt])
def sqrt_adjoint(argnums, ans, args, kwargs):
    """By the root, which is there, in place of a power."""
    return lambda g: (g * 0.5 / ans,)


@adjoint_of(anp.abs, tangent=primitive_jvps[anp.abs])
def abs_adjoint(argnums, ans, args, kwargs):
    (x,) = args
    if anp.iscomplexobj(x):
        if np.all(plain(ans)):
            return lambda g: (g * anp.conj(x) / ans,)
        return primitive_vjps[anp.abs](argnums, ans, args, kwargs)
    return lambda g: (g * anp.sign(x),)


def larger_adjoint(fun: Callable) -> Callable:
    """The rule of the larger or smaller of two, for real arrays; autograd's for all else."""
    autograds = primitive_vjps[fun]

    def adjoint(argnums, ans, args, kwargs):
        is_usual = isinstance(ans, np.ndarray) and ans.ndim > 0 and ans.dtype == np.float64
        if not is_usual or len(args) != 2 or kwargs:
            return autograds(argnums, ans, args, kwargs)
        metas = {argnum: anp.metadata(args[argnum]) for argnum in argnums}

        def larger_pullback(g):
            if not is_plain(g):
                return autograds(argnums, ans, args, kwargs)(g)
            parts = {n: pull_chosen(g, args[n], ans, args[1 - n]) for n in argnums}
            return tuple([unbroadcast(part, metas[n]) for n, part in parts.items()])

        return larger_pullback

    return adjoint


@kernel
def pull_chosen(g, x, ans, y):
    """A cotangent where x was chosen, and half of it where both are equal."""
    chosen, equal = x == ans, x == y
    return g * (chosen / (1.0 + equal)) if np.count_nonzero(equal) else g * chosen


for fun in (anp.maximum, anp.minimum):
    declare(fun, adjoint=larger_adjoint(fun), tangent=primitive_jvps[fun])


def tanh_tangent(argnums, tangents, ans, args, kwargs):
    """g / cosh(x)²; for real x without the overflow of cosh, whose derivative is NaN."""
    if anp.iscomplexobj(args[0]):
        return tangents[0] / anp.cosh(args[0]) ** 2
    small = anp.exp(-2.0 * anp.abs(args[0]))
    return tangents[0] * (4.0 * small / (1.0 + small) ** 2)


declare(anp.tanh, tangent=tanh_tangent)


recorded_sign = anp.sign


@adjoint_of(recorded_sign)
def sign_adjoint(argnums, ans, args, kwargs):
    """The sign of a complex number z is z / abs(z), which is not constant."""
    if not anp.iscomplexobj(args[0]):
        return lambda g: (None,)
    size = anp.abs(args[0])
    return lambda g: ((g - anp.conj(g * ans**2)) / (2.0 * size),)


def sign(x, *args, **kwargs):
    """The sign; for a real number it is constant, and so a plain number, as autograd's."""
    others = kwargs.keys() - {"called_by_autograd_dispatcher"}  # are refused
    is_constant = not (args or others or anp.iscomplexobj(x))
    return recorded_sign(plain(x) if is_constant else x, *args, **kwargs)


sign.fun = np.sign  # type: ignore[attr-defined]
anp.sign = trace_primitives_map[np.sign] = sign


@primitive
def share(x, y, total):
    """exp(x) of exp(x) + exp(y), whose logarithm is ``total``."""
    return np.exp(x - total)


@primitive
def share2(x, y, total):
    return 2 ** (x - total)


def declare_shares(fun: Callable, part: Callable, factor: float) -> None:
    """The rules of the logarithm of a sum of two exponentials, and of their shares, which add up to
    one: so none is lost if the other one is nearly one."""

    def steep(ans, x, y, total):
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
def sinc(x):
    near = np.abs(plain(x)) < NEAR
    square = (np.pi * x) ** 2
    far = np.pi * anp.where(near, 1.0, x)
    return anp.where(near, 1.0 - square / 6.0 + square**2 / 120.0, anp.sin(far) / far)


declare(  # autograd's derivative is in radians
    anp.angle,
    program=lambda z, deg=False: anp.angle(z) * (180.0 / np.pi),
    needed=lambda z, deg=False: bool(deg),
    keywords="deg",
)
declare(  # autograd does not take ``tol``
    anp.real_if_close,
    program=lambda a, tol=100: (
        a if np.iscomplexobj(np.real_if_close(plain(a), tol)) else anp.real(a)
    ),
    needed=lambda a, tol=100: tol != 100,
    keywords="tol",
)
declare(  # autograd's rule does not take the replacement numbers
    anp.nan_to_num,
    program=lambda x, *args, **kwargs: anp.where(np.isfinite(plain(x)), x, 0.0),
    keywords="nan posinf neginf",
)


# ------------------------------------------------------------------------------- filled arrays


def full_adjoint(argnums, ans, args, kwargs):
    """Sums over broadcast axes, as autograd does not; it takes ``full_like`` for a constant."""
    fill = anp.metadata(args[1]) if 1 in argnums else None
    return lambda g: tuple([unbroadcast(g, fill) if n == 1 else None for n in argnums])


declare(anp.full, adjoint=full_adjoint, keywords="dtype order")
declare(anp.full_like, adjoint=full_adjoint, keywords="dtype order subok shape device")


@adjoint_of(numpy_wrapper._astype, keywords="copy order casting subok")
def astype_adjoint(argnums, ans, args, kwargs):
    """autograd keeps the imaginary part of the cotangent of a real array."""
    is_real, dtype = not anp.iscomplexobj(args[0]), plain(args[0]).dtype

    def astype_pullback(g):
        if type(g) in (float, complex):  # some rules of autograd's return Python's numbers
            g = np.asarray(g)[()]
        return (numpy_wrapper._astype(anp.real(g) if is_real else g, dtype),)

    return astype_pullback


@recorded(np.linspace, arrays=2, keywords="num endpoint retstep dtype axis")
def linspace(start, stop, num=50, endpoint=True, retstep=False, dtype=None, axis=0, *, device=None):
    """A line between two points for each entry of the ends."""
    shape = np.broadcast_shapes(shape_of(start), shape_of(stop))
    places, step = np.linspace(0.0, 1.0, num, endpoint, retstep=True)
    places = places.reshape((num,) + (1,) * len(shape))
    line = anp.moveaxis(start * (1.0 - places) + stop * places, 0, axis)
    return [line, (stop - start) * step] if retstep else line


# -------------------------------------------------------------------------------------------------
# Ufuncs without a rule in autograd.

declare(anp.cbrt, adjoint=slopes_adjoint(lambda ans, x: 1.0 / (3.0 * ans**2)))
declare(anp.positive, adjoint=slopes_adjoint(lambda ans, x: 1.0))
declare(anp.ldexp, program=lambda x1, x2: x1 * np.ldexp(np.ones((), plain(x1).dtype), x2))
declare(
    anp.float_power,
    program=lambda x1, x2: anp.power(x1 * np.float64(1.0), x2 * np.float64(1.0)),
    arrays=2,
)
declare(  # at x1 = 0 it jumps, and the derivative with respect to x1 is zero, too
    anp.heaviside,
    program=lambda x1, x2: anp.where(plain(x1) == 0.0, x2, np.heaviside(plain(x1), 0.0)),
    arrays=2,
)
declare(  # at x1 = 0 the derivative is the one on the side of its sign
    anp.copysign,
    program=lambda x1, x2: x1 * (np.copysign(1.0, plain(x1)) * np.copysign(1.0, plain(x2))),
    arrays=2,
)
declare(
    anp.nextafter,
    program=refusing(
        "np.nextafter has no derivative rule for x1 and x2: it differs from x1 by rounding alone; "
        "write x1"
    ),
    arrays=2,
)
declare(
    anp.frexp,
    program=refusing(
        "np.frexp has no derivative rule for x; find the exponent from dg.value(x), and write "
        "np.ldexp(x, -exponent) for the mantissa"
    ),
)


@equivalent(anp.fmod, arrays=2)
def fmod(x1, x2):
    """No multiple of an infinite x2 is in x1."""
    remainder = np.fmod(plain(x1), plain(x2))
    with np.errstate(all="ignore"):
        multiple = np.round((plain(x1) - remainder) / plain(x2))
    return x1 - x2 * np.where(np.isinf(plain(x2)), 0.0, multiple)


@equivalent(anp.divmod, arrays=2)
def divmod(x1, x2):
    return [np.floor_divide(plain(x1), plain(x2)), anp.remainder(x1, x2)]


@equivalent(anp.modf)
def modf(x):
    whole = np.trunc(plain(x))
    return [anp.where(np.isinf(plain(x)), 0.0, x - whole), whole]


@equivalent(anp.vecdot, arrays=2, keywords="axis keepdims")
def vecdot(x1, x2, *, axis=-1, keepdims=False):
    x1, x2 = anp.moveaxis(x1, axis, -1), anp.moveaxis(x2, axis, -1)
    total = anp.sum(anp.conj(x1) * x2, axis=-1)
    return anp.moveaxis(total[..., None], -1, axis) if keepdims else total


if hasattr(anp, "matvec"):  # since NumPy 2.2

    @equivalent(anp.matvec, arrays=2)
    def matvec(x1, x2):
        return anp.matmul(x1, x2[..., None])[..., 0]

    @equivalent(anp.vecmat, arrays=2)
    def vecmat(x1, x2):
        return anp.matmul(anp.conj(x1)[..., None, :], x2)[..., 0, :]


# -------------------------------------------------------------------------------------------------
# Arithmetic: quick adjoints between real arrays.
#
# autograd's rules for ``+ - * / **`` find out shape, dtype and kind of both operands when a call is
# recorded, and again when it is pulled back, which on small arrays takes longer than the
# arithmetic. If the operands have the result's dtype, only the sums over broadcast axes are left,
# and often not even these. The expressions are autograd's, but for the denominator's cotangent,
# which is made of the numerator's and the quotient; several axes are summed over at once.

FIRST, SECOND, BOTH = (0,), (1,), (0, 1)


def arithmetic_rule(fun: Callable, pullbacks: Mapping[tuple, Callable]) -> Callable:
    """The rule with the pullback ``pullbacks[argnums](ans, x, y)``, or autograd's without one."""
    autograds = primitive_vjps[fun]

    def rule(argnums, ans, args, kwargs):
        operands = [args[argnum] for argnum in argnums]
        pullback = None
        if len(args) == 2 and not kwargs and is_real_like(ans.dtype, *operands):
            pullback = pullbacks[argnums](ans, *args)
        if pullback is None:
            if float in map(type, operands):
                return rule(argnums, ans, numpys(argnums, ans, args), kwargs)
            return on_numpys(autograds)(argnums, ans, args, kwargs)
        shapes = [operand.shape for operand in operands]
        if 1 not in ans.shape and shapes.count(ans.shape) == len(shapes):
            return pullback
        return lambda g: tuple(
            [fit(c, shape) for c, shape in zip(pullback(g), shapes, strict=True)]
        )

    return rule


def fit(cotangent, shape):
    """Sums a cotangent over broadcast axes, and, as autograd does, over all of length one."""
    if not is_real(cotangent) or cotangent.ndim < len(shape):
        return unbroadcast(cotangent, (shape, len(shape), None, False))
    is_array = isinstance(cotangent, np.ndarray)
    add = np.add.reduce if is_array else anp.sum  # np.sum, in half its time
    if not shape:
        return add(cotangent, axis=None) if cotangent.ndim else cotangent
    count = cotangent.ndim - len(shape)
    if count:
        cotangent = add(cotangent, axis=tuple(range(count)))
    if 1 not in shape or (count and cotangent.shape == shape):  # no zero of a sum is negative
        return cotangent
    axes = tuple([axis for axis, size in enumerate(shape) if size == 1])
    return add(cotangent, axis=axes, keepdims=True)


def quotient(ans, y):
    def quotient_pullback(g):
        by_x = g / y
        return by_x, -by_x * ans

    return quotient_pullback


def number_power(x, y):
    exponent = float(y - 1) if y else 1.0
    return lambda g: (g * y * (x if exponent == 1.0 else np.power(x, exponent)),)


ARITHMETIC: dict[
    Callable, dict[tuple, Callable]
] = {  # by the operands that have cotangents: the pullback; none holds more than it needs
    anp.add: {
        FIRST: lambda ans, x, y: lambda g: (g,),
        SECOND: lambda ans, x, y: lambda g: (g,),
        BOTH: lambda ans, x, y: lambda g: (g, g),
    },
    anp.subtract: {
        FIRST: lambda ans, x, y: lambda g: (g,),
        SECOND: lambda ans, x, y: lambda g: (-g,),
        BOTH: lambda ans, x, y: lambda g: (g, -g),
    },
    anp.multiply: {
        FIRST: lambda ans, x, y: lambda g: (y * g,),
        SECOND: lambda ans, x, y: lambda g: (x * g,),
        BOTH: lambda ans, x, y: lambda g: (y * g, x * g),
    },
    anp.divide: {  # and ``true_divide``, which is the same
        FIRST: lambda ans, x, y: lambda g: (g / y,),
        SECOND: lambda ans, x, y: lambda g: (-(g / y) * ans,),
        BOTH: lambda ans, x, y: quotient(ans, y),
    },
    anp.power: {
        FIRST: lambda ans, x, y: number_power(x, y) if type(y) in (int, float) else None,
        SECOND: lambda ans, x, y: None,
        BOTH: lambda ans, x, y: None,
    },
}


def power_tangent(argnums, tangents, ans, args, kwargs):
    """autograd's, with the exponent y - 1 also where y is zero, or its derivative is wrong."""
    x, y = args
    is_number = type(y) in (int, float) and type(x) not in (int, float, complex)
    if argnums == FIRST and is_number and y:  # as in the adjoint
        return tangents[0] * (y * x ** float(y - 1))
    one = np.where(np.logical_or(plain(x), plain(y)), 1.0, 0.0)[()]  # 0 · 0 ** -1 is NaN
    slopes = {0: lambda: y * x ** (y - one)}
    slopes[1] = lambda: anp.log(anp.where(x, x, 1.0)) * ans
    return added([t * slopes[argnum]() for argnum, t in zip(argnums, tangents, strict=True)])


for fun, pullbacks in ARITHMETIC.items():
    tangent = power_tangent if fun is anp.power else primitive_jvps[fun]
    declare(fun, adjoint=arithmetic_rule(fun, pullbacks), tangent=tangent)
