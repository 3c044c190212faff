"""Arithmetic: quick adjoints between real arrays.

autograd's rules for ``+ - * / **`` find out shape, dtype and kind of both operands when a call is
recorded, and again when it is pulled back, which on small arrays takes longer than the arithmetic.
Where the operands have the result's dtype only the sums over broadcast axes are left, and often not
even those. The expressions are autograd's, but for the denominator's cotangent, which is made of
the numerator's and the quotient; several axes are summed over at once.
"""

from collections.abc import Callable, Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.core import primitive_jvps, primitive_vjps
from autograd.numpy.numpy_vjps import unbroadcast

from daskgrad.backends.autograd.rules.declaration import (
    declare,
    is_real,
    is_real_like,
    plain,
)

Argnums = tuple[int, ...]
BOTH = (0, 1)


def arithmetic_rule(fun: Callable, pullback_of: Callable[..., Any]) -> Callable:
    """The rule with ``pullback_of(argnums, x, y)`` where that holds, otherwise autograd's."""
    autograds = primitive_vjps[fun]

    def rule(argnums: Argnums, ans: Any, args: tuple, kwargs: dict) -> Any:
        operands = [args[argnum] for argnum in argnums]
        pullback = None
        if len(args) == 2 and not kwargs and is_real_like(ans.dtype, *operands):
            pullback = pullback_of(argnums, ans, *args)
        if pullback is None:
            return autograds(argnums, ans, args, kwargs)
        shapes = [operand.shape for operand in operands]
        if 1 not in ans.shape and shapes.count(ans.shape) == len(shapes):
            return pullback
        return unbroadcast_after(pullback, shapes)

    return rule


def unbroadcast_after(pullback: Callable, shapes: Sequence[tuple]) -> Callable:
    """A pullback followed by the sums over broadcast axes."""

    def summed_pullback(g: Any) -> tuple:
        return tuple([fit(c, shape) for c, shape in zip(pullback(g), shapes, strict=True)])

    return summed_pullback


def fit(cotangent: Any, shape: tuple) -> Any:
    """Sums a cotangent over broadcast axes, and, as autograd does, over all of length one."""
    if not is_real(cotangent) or cotangent.ndim < len(shape):
        return unbroadcast(cotangent, (shape, len(shape), None, False))
    add = np.add.reduce if type(cotangent) is np.ndarray else anp.sum  # np.sum, in half its time
    if not shape:
        return add(cotangent, axis=None) if cotangent.ndim else cotangent
    count = cotangent.ndim - len(shape)
    if count:
        cotangent = add(cotangent, axis=tuple(range(count)))
    if 1 not in shape or (count and cotangent.shape == shape):  # no zero of a sum is negative
        return cotangent
    axes = tuple([axis for axis, size in enumerate(shape) if size == 1])
    return add(cotangent, axis=axes, keepdims=True)


def add_pullback(argnums: Argnums, ans: Any, x: Any, y: Any) -> Callable:
    return both_pullback if argnums == BOTH else identity_pullback


def identity_pullback(g: Any) -> tuple:
    return (g,)


def both_pullback(g: Any) -> tuple:
    return g, g


def subtract_pullback(argnums: Argnums, ans: Any, x: Any, y: Any) -> Callable:
    if argnums == BOTH:
        return difference_pullback
    return identity_pullback if argnums == (0,) else negative_pullback


def difference_pullback(g: Any) -> tuple:
    return g, -g


def negative_pullback(g: Any) -> tuple:
    return (-g,)


def multiply_pullback(argnums: Argnums, ans: Any, x: Any, y: Any) -> Callable:
    if argnums == BOTH:

        def product_pullback(g: Any) -> tuple:
            return y * g, x * g

        return product_pullback
    factor = y if argnums == (0,) else x

    def factor_pullback(g: Any) -> tuple:
        return (factor * g,)

    return factor_pullback


def divide_pullback(argnums: Argnums, ans: Any, x: Any, y: Any) -> Callable:
    def numerator_pullback(g: Any) -> tuple:
        return (g / y,)

    def denominator_pullback(g: Any) -> tuple:
        return (-(g / y) * ans,)

    def quotient_pullback(g: Any) -> tuple:
        quotient = g / y
        return quotient, -quotient * ans

    if argnums == BOTH:
        return quotient_pullback
    return numerator_pullback if argnums == (0,) else denominator_pullback


def power_pullback(argnums: Argnums, ans: Any, x: Any, y: Any) -> Callable | None:
    """For powers that are plain numbers."""
    if argnums != (0,) or type(y) not in (int, float):
        return None
    exponent = float(y - 1) if y else 1.0

    def number_power_pullback(g: Any) -> tuple:
        return (g * y * x**exponent,)

    return number_power_pullback


def power_tangent(argnums: Argnums, tangents: Sequence, ans: Any, args: tuple, kwargs: dict) -> Any:
    """autograd's, with the exponent y - 1 also where y is zero, or its derivative is wrong."""
    x, y = args
    is_number = type(y) in (int, float) and type(x) not in (int, float, complex)
    if argnums == (0,) and is_number and y:  # as in the adjoint
        return tangents[0] * (y * x ** float(y - 1))
    one = np.where(np.logical_or(plain(x), plain(y)), 1.0, 0.0)[()]  # 0 · 0 ** -1 is NaN
    slopes = {0: lambda: y * x ** (y - one)}
    slopes[1] = lambda: anp.log(anp.where(x, x, 1.0)) * ans
    parts = [t * slopes[argnum]() for argnum, t in zip(argnums, tangents, strict=True)]
    return sum(parts[1:], parts[0])


for fun, pullback_of in (
    (anp.add, add_pullback),
    (anp.subtract, subtract_pullback),
    (anp.multiply, multiply_pullback),
    (anp.divide, divide_pullback),  # and ``true_divide``, which is the same
):
    declare(fun, adjoint=arithmetic_rule(fun, pullback_of), tangent=primitive_jvps[fun])
declare(anp.power, adjoint=arithmetic_rule(anp.power, power_pullback), tangent=power_tangent)
