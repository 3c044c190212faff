"""Compares a differentiated function with SciPy's, and its derivatives with differences."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tables import pattern

import daskgrad as dg

STEP = 1e-4


def check_against_scipy(fun, scipys, x, rtol=1e-9, slopes=1e-8):
    """Values as SciPy's; both modes and second order as extrapolated differences.

    Derivatives agree to ``slopes``, which is what differences resolve of SciPy's own errors.
    """
    expected = scipys(x)
    assert_allclose(fun(x), expected, rtol=rtol, atol=1e-12)
    random = np.random.default_rng(0)
    weights, tangent = random.normal(size=np.shape(expected)), random.normal(size=np.shape(x))
    model = dg.delayed(lambda x: np.sum(fun(x) * weights), name="model")

    def along(of):
        wide, narrow = (
            (of(x + step * tangent) - of(x - step * tangent)) / (2.0 * step)
            for step in (STEP, STEP / 2.0)
        )
        return (4.0 * narrow - wide) / 3.0

    slope = along(lambda x: np.sum(scipys(x) * weights))
    gradient = dg.grad(model)(x)
    scale = 1.0 + abs(slope)
    assert_allclose(np.sum(gradient * tangent), slope, rtol=slopes, atol=0.1 * slopes * scale)
    assert_allclose(
        dg.jvp(model, (x,), (tangent,))[1], slope, rtol=slopes, atol=0.1 * slopes * scale
    )
    _, (product,) = dg.hvp(model, (x,), (tangent,))
    scale = 1.0 + np.max(np.abs(product))
    assert_allclose(product, along(dg.grad(model)), rtol=slopes, atol=slopes * scale)


def checking(ours, theirs):
    """The same check of functions of a module, ours or SciPy's, and an array."""

    def check(fun, x, *args, **how):
        check_against_scipy(lambda x: fun(ours, x), lambda x: fun(theirs, x), x, *args, **how)

    return check


def counted(fun):
    """The function, which counts its calls."""

    def call(*args):
        call.count += 1
        return fun(*args)

    call.count = 0
    return call


def check_error(call, error, names, x):
    """The gradient by ``p`` is an error, ``Kind: message``: a row of a table, with its names."""
    kind, _, message = error.partition(": ")
    with pytest.raises(eval(kind, names), match=pattern(message)):
        dg.grad(dg.delayed(eval(f"lambda p: {call}", names)))(x)
