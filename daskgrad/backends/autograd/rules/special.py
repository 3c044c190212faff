"""SciPy's special functions; imported once autograd's module for them is."""

from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.numpy.numpy_vjps import unbroadcast_f
from autograd.scipy import special

from daskgrad.backends.autograd.rules.declaration import Refusal, declare, equivalent, plain
from daskgrad.backends.autograd.rules.reductions import extreme_needed, normal_axes


def bessel(fun: Callable, slope: Callable[[Any, Any, Any], Any]) -> None:
    """The adjoint of a function of an order and an argument, from its derivative by the second."""

    def adjoint(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
        n, x = args
        pullback = unbroadcast_f(x, lambda g: g * slope(ans, n, x))
        return lambda g: (pullback(g),)

    declare(fun, adjoint=adjoint, refused={0: "x1, the order"})


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

declare(special.polygamma, refused={0: "n, the order"})
declare(special.gammainc, special.gammaincc, refused={0: "x1, the parameter a"})
declare(special.betainc, refused={0: "x1, the parameter a", 1: "x2, the parameter b"})


def logsumexp_needed(a: Any, axis: Any = None, b: Any = 1.0, *args: Any, **kwargs: Any) -> bool:
    """autograd wants weights of the array's shape, and axes in order."""
    return extreme_needed(a, axis) or b is None or np.shape(b) not in ((), np.shape(plain(a)))


@equivalent(special.logsumexp, needed=logsumexp_needed, keywords="axis b keepdims")
def logsumexp(a: Any, axis: Any = None, b: Any = 1.0, keepdims: Any = False) -> Any:
    """With weights of the array's shape, and axes in order."""
    b = 1.0 if b is None else b
    if np.ndim(b):
        a = anp.broadcast_to(a, np.broadcast_shapes(np.shape(plain(a)), np.shape(b)))
        b = np.broadcast_to(b, np.shape(plain(a)))
    axis = normal_axes(axis, np.ndim(plain(a)))
    return special.logsumexp(a, axis=axis, b=b, keepdims=keepdims)
