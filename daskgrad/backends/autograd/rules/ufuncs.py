"""Ufuncs that autograd has no rule for: of one number, of two, and in two parts."""

from typing import Any

import autograd.numpy as anp
import numpy as np

from daskgrad.backends.autograd.rules.declaration import Refusal, declare, equivalent, plain
from daskgrad.backends.autograd.rules.elementwise import slopes_adjoint

declare(anp.cbrt, adjoint=slopes_adjoint(lambda ans, x: 1.0 / (3.0 * ans**2)))

declare(anp.positive, adjoint=slopes_adjoint(lambda ans, x: 1.0))

# ------------------------------------------------------------------------------- of two numbers


@equivalent(anp.float_power, arrays=2)
def float_power(x1: Any, x2: Any) -> Any:
    one = np.float64(1.0)  # of double precision
    return anp.power(x1 * one, x2 * one)


@equivalent(anp.heaviside, arrays=2)
def heaviside(x1: Any, x2: Any) -> Any:
    """Where x1 is zero it jumps; the derivative with respect to x1 is zero there, too."""
    return anp.where(plain(x1) == 0.0, x2, np.heaviside(plain(x1), 0.0))


@equivalent(anp.copysign, arrays=2)
def copysign(x1: Any, x2: Any) -> Any:
    """Where x1 is zero the derivative is the one on the side of its sign."""
    return x1 * (np.copysign(1.0, plain(x1)) * np.copysign(1.0, plain(x2)))


def multiple(x1: Any, x2: Any, rest: Any) -> np.ndarray:
    """How often x2 is in x1, of which there is a rest; an infinite x2 is not."""
    with np.errstate(all="ignore"):
        return np.where(np.isinf(plain(x2)), 0.0, np.round((plain(x1) - rest) / plain(x2)))


@equivalent(anp.fmod, arrays=2)
def fmod(x1: Any, x2: Any) -> Any:
    return x1 - x2 * multiple(x1, x2, np.fmod(plain(x1), plain(x2)))


@equivalent(anp.nextafter, arrays=2)
def nextafter(x1: Any, x2: Any) -> Any:
    raise Refusal(
        "np.nextafter has no derivative rule for x1 and x2: it differs from x1 by rounding alone; "
        "write x1"
    )


# ---------------------------------------------------------------------------------- in two parts


@equivalent(anp.divmod, arrays=2)
def divmod(x1: Any, x2: Any) -> Any:
    return [np.floor_divide(plain(x1), plain(x2)), anp.remainder(x1, x2)]


@equivalent(anp.modf)
def modf(x: Any) -> Any:
    whole = np.trunc(plain(x))
    return [anp.where(np.isinf(plain(x)), 0.0, x - whole), whole]


@equivalent(anp.frexp)
def frexp(x: Any) -> Any:
    raise Refusal(
        "np.frexp has no derivative rule for x; find the exponent from dg.value(x), and write "
        "np.ldexp(x, -exponent) for the mantissa"
    )


@equivalent(anp.ldexp)
def ldexp(x1: Any, x2: Any) -> Any:
    return x1 * np.ldexp(np.ones((), plain(x1).dtype), x2)


# -------------------------------------------------------------------------- products of vectors


@equivalent(anp.vecdot, arrays=2, keywords="axis keepdims")
def vecdot(x1: Any, x2: Any, *, axis: int = -1, keepdims: bool = False) -> Any:
    x1, x2 = anp.moveaxis(x1, axis, -1), anp.moveaxis(x2, axis, -1)
    total = anp.sum(anp.conj(x1) * x2, axis=-1)
    return anp.moveaxis(total[..., None], -1, axis) if keepdims else total


if hasattr(anp, "matvec"):  # since NumPy 2.2

    @equivalent(anp.matvec, arrays=2)
    def matvec(x1: Any, x2: Any) -> Any:
        return anp.matmul(x1, x2[..., None])[..., 0]

    @equivalent(anp.vecmat, arrays=2)
    def vecmat(x1: Any, x2: Any) -> Any:
        return anp.matmul(anp.conj(x1)[..., None, :], x2)[..., 0, :]
