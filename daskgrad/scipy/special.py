"""Special functions of arrays, as in ``scipy.special``, whose ufuncs a model calls themselves."""

from typing import Any

import numpy as np
import scipy.special

from daskgrad.backends.autograd import value
from daskgrad.backends.autograd.rules import special as rules

Axes = int | tuple[int, ...] | None


def logsumexp(
    a: Any, axis: Axes = None, b: Any = None, keepdims: bool = False, return_sign: bool = False
) -> Any:
    """The logarithm of a sum of ``b * exp(a)``; with ``return_sign`` of its size, and the sign."""
    if not return_sign:
        return rules.special.logsumexp(a, axis=axis, b=1.0 if b is None else b, keepdims=keepdims)
    peak = np.max(value(a), axis=axis, keepdims=True)
    peak = np.where(np.isfinite(peak), peak, 0.0)
    terms = np.exp(a - peak) if b is None else b * np.exp(a - peak)
    total = np.sum(terms, axis=axis, keepdims=keepdims)
    with np.errstate(divide="ignore"):  # the logarithm of nothing
        logarithm = np.log(np.abs(total))
    return logarithm + np.reshape(peak, np.shape(total)), np.sign(total)


def log_softmax(x: Any, axis: Axes = None) -> Any:
    """The logarithms of ``softmax(x)``."""
    return x - logsumexp(x, axis=axis, keepdims=True)


def softmax(x: Any, axis: Axes = None) -> Any:
    """``exp(x) / sum(exp(x))``, along axes."""
    return np.exp(log_softmax(x, axis))


def multigammaln(a: Any, d: int) -> Any:
    """The logarithm of the multivariate gamma function of dimension ``d`` (DLMF 35.3.4)."""
    logs = scipy.special.gammaln(np.expand_dims(a, -1) - np.arange(d) / 2.0)
    return np.sum(logs, axis=-1) + d * (d - 1) / 4.0 * np.log(np.pi)
