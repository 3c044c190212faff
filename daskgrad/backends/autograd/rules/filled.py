"""What puts numbers into arrays of some shape or dtype."""

from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.numpy import numpy_wrapper
from autograd.numpy.numpy_vjps import unbroadcast

from daskgrad.backends.autograd.rules.declaration import declare, equivalent, plain


def full_like_adjoint(
    argnums: tuple, ans: Any, args: tuple, kwargs: dict
) -> Callable[[Any], tuple]:
    """autograd takes it for a constant."""
    fill = anp.metadata(args[1]) if 1 in argnums else None

    def full_like_pullback(g: Any) -> tuple:
        return tuple([unbroadcast(g, fill) if argnum == 1 else None for argnum in argnums])

    return full_like_pullback


declare(anp.full_like, adjoint=full_like_adjoint, keywords="dtype order subok shape device")


def full_adjoint(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
    """autograd adds up the whole cotangent, also of an array that is broadcast."""
    fill = anp.metadata(args[1])

    def full_pullback(g: Any) -> tuple:
        return (unbroadcast(g, fill),)

    return full_pullback


declare(anp.full, adjoint=full_adjoint, keywords="dtype order")


def astype_adjoint(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
    """autograd keeps what is imaginary in the cotangent of a real array."""
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
    """A line between two points at each of the ends' places."""
    shape = np.broadcast_shapes(np.shape(plain(start)), np.shape(plain(stop)))
    places, step = np.linspace(0.0, 1.0, num, endpoint, retstep=True)
    places = places.reshape((num,) + (1,) * len(shape))
    line = anp.moveaxis(start * (1.0 - places) + stop * places, 0, axis)
    return [line, (stop - start) * step] if retstep else line
