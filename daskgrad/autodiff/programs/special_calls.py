"""Rewrites and batches of SciPy's special functions, imported when a model uses one of them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special
from autograd.scipy import special

from daskgrad.autodiff.programs.batches import Batching, form, shifted
from daskgrad.autodiff.programs.calls import OF_ONE, Call
from daskgrad.autodiff.programs.rewrites import axis_of, rule
from daskgrad.autodiff.rules.declaration import Diverged

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


@form(logsumexp)
def log_of_sums(call: Call, batch: Batching) -> Any:
    x, axis = call.args[0], dict(enumerate(call.args)).get(1, call.kwargs.get("axis"))
    keepdims, ndim = bool(call.kwargs.get("keepdims", False)), np.ndim(call.args[0].value)
    axes = shifted(tuple(range(ndim)) if axis is None else axis, ndim)
    fun = logs_of_vectors if ndim == 1 and not keepdims else logs_of_sums
    return batch.emit(fun, (batch.new(x), axes, keepdims))


def logs_of_vectors(a: np.ndarray, axes: Any, keepdims: bool) -> np.ndarray:
    most = np.maximum.reduce(a, axis=1, keepdims=True)
    if not np.isfinite(most).all():
        raise Diverged
    is_most = a == most
    rest = a - most
    np.exp(rest, rest)
    rest[is_most] = 0.0
    count = np.add.reduce(is_most, axis=1).astype(np.float64)
    return np.log1p(np.add.reduce(rest, axis=1) / count) + np.log(count) + most[:, 0]


def logs_of_sums(a: np.ndarray, axes: Any, keepdims: bool) -> np.ndarray:
    most = np.maximum.reduce(a, axis=axes, keepdims=True)
    if not np.isfinite(most).all():
        raise Diverged
    is_most = a == most
    rest = a.copy(order="K")
    rest[is_most] = -np.inf
    rest -= most
    total = np.add.reduce(np.exp(rest, rest), axis=axes, keepdims=True)
    if np.count_nonzero(is_most) == most.size:
        out = np.log1p(total) + most
    else:  # each item its own way
        count = np.add.reduce(is_most.astype(np.float64), axis=axes, keepdims=True)
        item = tuple(range(1, a.ndim))
        alone = np.count_nonzero(is_most, axis=item, keepdims=True) == most[0].size
        shared = np.log1p(np.where(total == 0, total, total / count)) + np.log(count) + most
        out = np.where(alone, np.log1p(total) + most, shared)
    return out if keepdims else out.squeeze(axis=axes)
