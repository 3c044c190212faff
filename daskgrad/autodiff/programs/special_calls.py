"""Rewrites of SciPy's special functions, imported when a model uses one of them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special
from autograd.scipy import special

from daskgrad.autodiff.programs.calls import OF_ONE, Call
from daskgrad.autodiff.programs.rewrites import axis_of, rule

OF_ONE.add(special.logsumexp.fun)


@rule(special.logsumexp.fun)
def log_of_sum(call: Call, emit: Callable) -> Any:
    axis, x = axis_of(call, "keepdims"), call.args[0]
    if isinstance(axis, str) or not (x.value.flags.c_contiguous and x.value.size):
        return None
    return emit(logsumexp, call.args, call.kwargs, call.value)


def logsumexp(a: np.ndarray, axis: int | None = None, keepdims: bool = False) -> Any:
    """SciPy's formula for real arrays, of finite numbers and without weights."""
    if a.ndim == 1 and not keepdims:
        return logsumexp_of_vector(a)
    given = axis
    axes = tuple(range(a.ndim)) if axis is None else axis
    most = np.maximum.reduce(a, axis=axes, keepdims=True)
    if np.count_nonzero(np.isfinite(most)) < most.size:
        return scipy.special.logsumexp(a, axis=given, keepdims=keepdims)
    is_most = a == most
    rest = a.copy(order="K")
    rest[is_most] = -np.inf
    rest -= most
    total = np.add.reduce(np.exp(rest, rest), axis=axes, keepdims=True)
    if np.count_nonzero(is_most) == most.size:  # one in each sum
        out = np.log1p(total) + most
    else:
        count = np.add.reduce(is_most.astype(np.float64), axis=axes, keepdims=True)
        out = np.log1p(np.where(total == 0, total, total / count)) + np.log(count) + most
    return out if keepdims else out.squeeze(axis=axes)[()]


def logsumexp_of_vector(a: np.ndarray) -> np.float64:
    most = np.maximum.reduce(a)
    if not np.isfinite(most):
        return scipy.special.logsumexp(a)
    is_most = a == most
    rest = a - most
    np.exp(rest, rest)
    rest[is_most] = 0.0
    count = np.float64(np.count_nonzero(is_most))
    return np.log1p(np.add.reduce(rest) / count) + np.log(count) + most


OF_ONE.add(logsumexp)
