"""Signals: convolutions in several dimensions, and recursive filters; for ``daskgrad.scipy``.

Each adjoint is made of the primitives themselves, so that all orders follow. Convolutions are
bilinear, and so is ``lagged``, the sums over a filter's delays.
"""

from collections.abc import Callable

import autograd.numpy as anp
import numpy as np
import scipy.signal
from autograd.extend import primitive

from daskgrad.autodiff.rules.declaration import (
    added,
    declare,
    each_of,
    linear_in_each,
    plain,
    shape_of,
)

METHODS: dict[str, Callable] = {
    **{method: scipy.signal.convolve for method in ("auto", "direct", "fft")},
    "fftconvolve": scipy.signal.fftconvolve,
    "oaconvolve": scipy.signal.oaconvolve,
}


@primitive
def convolution(a, b, mode, by, axes):
    """The convolution along axes, ``full`` or ``valid``, with b the shorter one along each; other
    axes have the same lengths."""
    if METHODS[by] is scipy.signal.convolve:
        return scipy.signal.convolve(a, b, mode=mode, method=by)
    return METHODS[by](a, b, mode=mode, axes=axes)


def flip(array, axes):
    index = [slice(None)] * np.ndim(plain(array))
    for axis in axes:
        index[axis] = slice(None, None, -1)
    return array[tuple(index)]


def convolution_by_a(g, a, b, mode, by, axes):
    return convolution(g, flip(b, axes), "valid" if mode == "full" else "full", by, axes)


def convolution_by_b(g, a, b, mode, by, axes):
    if mode == "full":
        return convolution(g, flip(a, axes), "valid", by, axes)
    return flip(convolution(a, flip(g, axes), "valid", by, axes), axes)


declare(
    convolution,
    adjoint=each_of(convolution_by_a, convolution_by_b),
    tangent=linear_in_each(convolution),
)

# ----------------------------------------------------------------------------------- filters


@primitive
def lfilter(b, poles, x, zi):
    """y with ``y[n] + poles[k-1] y[n-k] = b[k] x[n-k] + zi[n]`` along the last axis."""
    if not np.size(x):  # SciPy has no averages of nothing
        return np.zeros(np.shape(x), np.result_type(b, poles, x, zi))
    return scipy.signal.lfilter(b, np.concatenate([np.ones(1, poles.dtype), poles]), x, zi=zi)[0]


@primitive
def lagged(u, v, count):
    """The sums of ``u[n] v[n-k]`` for k below ``count``, over all rows."""
    size = np.shape(u)[-1]
    products = [np.sum(u[..., k:] * v[..., : max(size - k, 0)]) for k in range(count)]
    return np.array(products)


def start(b, poles, x):
    """The state of a filter at rest."""
    states = max(shape_of(b)[0], shape_of(poles)[0] + 1) - 1
    return np.zeros((*shape_of(x)[:-1], states))


def at_rest(b, poles, x):
    return lfilter(b, poles, x, start(b, poles, x))


def backwards(b, poles, g):
    """The transposed filter."""
    return at_rest(b, poles, g[..., ::-1])[..., ::-1]


ONE, NOTHING = np.ones(1), np.zeros(0)


def lfilter_adjoint(argnums, ans, args, kwargs):
    """From A y = B x + z, with the matrices A and B of the delays: the filter runs backwards."""
    b, poles, x, zi = args
    zeros, order = shape_of(b)[0], shape_of(poles)[0]
    states = shape_of(zi)[-1]

    def lfilter_pullback(g):
        turned = backwards(ONE, poles, g)
        rules = {
            0: lambda: lagged(turned, x, zeros),
            1: lambda: -lagged(turned, ans, order + 1)[1:],
            2: lambda: backwards(b, NOTHING, turned),
            3: lambda: fit(turned, states),
        }
        return tuple([rules[argnum]() for argnum in argnums])

    return lfilter_pullback


def fit(rows, size):
    """The first ``size`` columns, zeros after the last one."""
    *stack, width = shape_of(rows)
    if width >= size:
        return rows[..., :size]
    return anp.concatenate([rows, np.zeros((*stack, size - width))], axis=-1)


def lfilter_tangent(argnums, tangents, ans, args, kwargs):
    b, poles, x, _ = args
    size = shape_of(x)[-1]
    rules = {
        0: lambda t: at_rest(t, NOTHING, x),
        1: lambda t: -at_rest(anp.concatenate([[0.0], t]), NOTHING, ans),
        2: lambda t: at_rest(b, NOTHING, t),
        3: lambda t: fit(t, size),
    }
    parts = [rules[argnum](t) for argnum, t in zip(argnums, tangents, strict=True)]
    return at_rest(ONE, poles, added(parts))


declare(lfilter, adjoint=lfilter_adjoint, tangent=lfilter_tangent)
declare(
    lagged,
    adjoint=each_of(
        lambda g, u, v, count: at_rest(g, NOTHING, v),
        lambda g, u, v, count: backwards(g, NOTHING, u),
    ),
)
