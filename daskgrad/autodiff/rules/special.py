"""SciPy's special functions; imported once autograd's module for them is."""

from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.scipy import special

from daskgrad.autodiff.rules.declaration import Refusal, declare, equivalent, plain, shape_of
from daskgrad.autodiff.rules.math_elementwise import slopes_adjoint
from daskgrad.autodiff.rules.math_reductions import extreme_needed, normal_axes


def ive_slope(ans, n, x):
    if anp.iscomplexobj(x):
        raise Refusal(
            "special.ive has no derivative rule for a complex x2; write special.iv(n, z) * "
            "np.exp(-np.abs(np.real(z)))"
        )
    return (special.ive(n - 1, x) + special.ive(n + 1, x)) / 2.0 - anp.sign(x) * ans


for fun, slope in (
    (special.jn, lambda ans, n, x: (special.jn(n - 1, x) - special.jn(n + 1, x)) / 2.0),
    (special.yn, lambda ans, n, x: (special.yn(n - 1, x) - special.yn(n + 1, x)) / 2.0),
    (special.iv, lambda ans, n, x: (special.iv(n - 1, x) + special.iv(n + 1, x)) / 2.0),
    (special.ive, ive_slope),
):
    declare(fun, adjoint=slopes_adjoint(None, slope), refused={0: "x1, the order"})

declare(  # autograd does not sum over broadcast axes
    special.polygamma,
    adjoint=slopes_adjoint(None, lambda ans, n, x: special.polygamma(n + 1, x)),
    refused={0: "n, the order"},
)


declare(  # autograd's loses all digits where the function is nearly one
    special.expit, adjoint=slopes_adjoint(lambda ans, x: ans * special.expit(-x))
)


def logsumexp_needed(a: Any, axis: Any = None, b: Any = 1.0, *args: Any, **kwargs: Any) -> bool:
    """autograd wants weights of the array's shape, and axes in order."""
    if extreme_needed(a, axis) or b is None:
        return True
    is_number = isinstance(b, int | float)  # in a tenth of the time
    return not is_number and np.shape(b) not in ((), shape_of(a))


@equivalent(special.logsumexp, needed=logsumexp_needed, keywords="axis b keepdims")
def logsumexp(a, axis=None, b=1.0, keepdims=False):
    """With weights of the array's shape, and axes in order."""
    b = 1.0 if b is None else b
    if np.ndim(b):
        a = anp.broadcast_to(a, np.broadcast_shapes(shape_of(a), np.shape(b)))
        b = np.broadcast_to(b, shape_of(a))
    axis = normal_axes(axis, np.ndim(plain(a)))
    return special.logsumexp(a, axis=axis, b=b, keepdims=keepdims)
