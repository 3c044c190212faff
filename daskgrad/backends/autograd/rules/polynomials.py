"""Polynomials: functions of plain NumPy of their coefficients, and of powers."""

from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np

from daskgrad.backends.autograd.rules.declaration import declare, plain
from daskgrad.backends.autograd.rules.twins import (
    TWINS,
    as_array,
    by_position,
    composed,
    recorded,
    shape_of,
)


def vander_adjoint(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
    """The slope of each power from the one below it."""
    increasing = kwargs.get("increasing", args[2] if len(args) > 2 else False)
    rising = slice(None, None, 1 if increasing else -1)
    count = shape_of(ans)[1]

    def vander_pullback(g: Any) -> tuple:
        slopes = ans[:, rising][:, : count - 1] * np.arange(1.0, count)
        return (anp.sum(g[:, rising][:, 1:] * slopes, axis=1),)

    return vander_pullback


declare(anp.vander, adjoint=vander_adjoint, keywords="N increasing")
TWINS[np.vander] = by_position(np.vander, anp.vander, 1)


def polyval_adjoint(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
    p, x = args
    degree = len(plain(p)) - 1

    def by_coefficients(g: Any) -> Any:
        sums, term = [], g
        for _ in range(degree + 1):
            sums.append(anp.sum(term))
            term = term * x
        return anp.stack(sums[::-1])

    def by_place(g: Any) -> Any:
        return g * anp.polyval(polyder(p), x) if degree > 0 else 0.0 * g * x

    return lambda g: tuple([by_place(g) if argnum else by_coefficients(g) for argnum in argnums])


declare(anp.polyval, adjoint=polyval_adjoint)
TWINS[np.polyval] = by_position(np.polyval, anp.polyval, 2)


def without_leading_zeros(p: Any) -> Any:
    p = anp.atleast_1d(as_array(p))
    nonzero = np.flatnonzero(plain(p))
    return p[nonzero[0] :] if len(nonzero) else p[-1:]


@composed(np.polymul)
def polymul(a1: Any, a2: Any) -> Any:
    return anp.convolve(without_leading_zeros(a1), without_leading_zeros(a2))


@composed(np.polydiv)
def polydiv(u: Any, v: Any) -> tuple[Any, Any]:
    """Long division; the remainder begins where NumPy's does."""
    u, v = anp.atleast_1d(as_array(u)) + 0.0, anp.atleast_1d(as_array(v)) + 0.0
    found = np.polydiv(plain(u), plain(v))
    rest, digits, scale = u, [], 1.0 / v[0]
    long = len(plain(v))
    for _ in range(max(len(plain(u)) - long + 1, 1)):
        if len(plain(rest)) < long:
            digits.append(0.0 * rest[0])
            break
        digits.append(scale * rest[0])
        rest = anp.concatenate([rest[1:long] - digits[-1] * v[1:], rest[long:]])
    count = len(found[1])
    rest = anp.concatenate([0.0 * u, rest]) if count > len(plain(rest)) else rest
    return anp.stack(digits), rest[len(plain(rest)) - count :]


@composed(np.polyder)
def polyder(p: Any, m: int = 1) -> Any:
    p = as_array(p)
    for _ in range(m):
        p = p[:-1] * np.arange(len(plain(p)) - 1, 0, -1)
    return p


@composed(np.polyint)
def polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    p, k = as_array(p), anp.atleast_1d(as_array(0.0 if k is None else k))
    constants = k * np.ones(m) if len(plain(k)) == 1 else k
    for place in range(m):
        scaled = p / np.arange(len(plain(p)), 0, -1)
        p = anp.concatenate([scaled, constants[place : place + 1]])
    return p


@recorded(np.geomspace, arrays=2, keywords="num endpoint dtype axis")
def geomspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    shape = np.broadcast_shapes(shape_of(start), shape_of(stop))
    shares = np.linspace(0.0, 1.0, num, endpoint).reshape((num,) + (1,) * len(shape))
    return anp.moveaxis(start * anp.exp(shares * anp.log(stop / start)), 0, axis)
