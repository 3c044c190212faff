"""SciPy's special functions; imported when autograd's module of them is."""

from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.numpy.numpy_vjps import unbroadcast_f
from autograd.scipy import special

from daskgrad.backends.autograd.rules.declaration import (
    ADJOINTS,
    Refusal,
    equivalent,
    keywords,
    plain,
    refuse,
)
from daskgrad.backends.autograd.rules.reductions import extreme_needed, normal_axes

for fun, arguments in (
    (special.jn, {0: "x1, the order"}),
    (special.yn, {0: "x1, the order"}),
    (special.iv, {0: "x1, the order"}),
    (special.ive, {0: "x1, the order"}),
    (special.gammainc, {0: "x1, the parameter a"}),
    (special.gammaincc, {0: "x1, the parameter a"}),
    (special.betainc, {0: "x1, the parameter a", 1: "x2, the parameter b"}),
    (special.polygamma, {0: "n, the order"}),
):
    for argnum, what in arguments.items():
        refuse(fun, argnum, what)


def bessel(fun: Callable, slope: Callable[[Any, Any, Any], Any]) -> None:
    """The adjoint of a function of an order and an argument, from its derivative by the second."""

    def adjoint(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
        n, x = args
        pullback = unbroadcast_f(x, lambda g: g * slope(ans, n, x))
        return lambda g: (pullback(g),)

    ADJOINTS[fun] = adjoint


def ive_slope(ans: Any, n: Any, x: Any) -> Any:
    if anp.iscomplexobj(x):
        raise Refusal(
            "special.ive has no derivative rule for a complex x2; write special.iv(n, z) * "
            "np.exp(-np.abs(np.real(z)))"
        )
    return (special.ive(n - 1, x) + special.ive(n + 1, x)) / 2.0 - anp.sign(x) * ans


bessel(special.jn, lambda ans, n, x: (special.jn(n - 1, x) - special.jn(n + 1, x)) / 2.0)
bessel(special.yn, lambda ans, n, x: (special.yn(n - 1, x) - special.yn(n + 1, x)) / 2.0)
bessel(special.iv, lambda ans, n, x: (special.iv(n - 1, x) + special.iv(n + 1, x)) / 2.0)
bessel(special.ive, ive_slope)


def logsumexp_needed(a: Any, axis: Any = None, b: Any = 1.0, *args: Any, **kwargs: Any) -> bool:
    return extreme_needed(a, axis) or b is None or np.shape(b) not in ((), np.shape(plain(a)))


@equivalent(special.logsumexp, needed=logsumexp_needed)
def logsumexp(a: Any, axis: Any = None, b: Any = 1.0, keepdims: Any = False) -> Any:
    """With weights of the array's shape, and axes in order."""
    b = 1.0 if b is None else b
    if np.ndim(b):
        a = anp.broadcast_to(a, np.broadcast_shapes(np.shape(plain(a)), np.shape(b)))
        b = np.broadcast_to(b, np.shape(plain(a)))
    axis = normal_axes(axis, np.ndim(plain(a)))
    return special.logsumexp(a, axis=axis, b=b, keepdims=keepdims)


keywords("axis b keepdims", special.logsumexp)
