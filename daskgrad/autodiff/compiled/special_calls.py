"""Library calls for SciPy's special functions, imported when a model uses one of them."""

from typing import Any

import numpy as np
import scipy.special
from autograd.scipy import special

from daskgrad.autodiff.compiled.adjoints import REPLACED
from daskgrad.autodiff.compiled.forward import BY_SHAPE
from daskgrad.autodiff.compiled.library_calls import axis_of, by_answer, is_array, of_c_order
from daskgrad.autodiff.compiled.lines import value_of
from daskgrad.autodiff.compiled.steps import Step
from daskgrad.autodiff.rules.math_reductions import kept_shape


def pull_logsumexp(g: Any, ans: Any, x: np.ndarray, axis: int | None) -> np.ndarray:
    if x.ndim == 1:
        return (g + 0.0) * np.exp(x - ans)
    shape = kept_shape(x.shape, axis)
    return (g.reshape(shape) + 0.0) * np.exp(x - ans.reshape(shape))


of_c_order(special.logsumexp)(by_answer(pull_logsumexp))


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


def is_sum_of_array(step: Step) -> bool:
    x = value_of(step.args[0])
    return axis_of(step, "keepdims") != "other" and is_array(x) and x.size > 0


REPLACED[special.logsumexp] = is_sum_of_array, logsumexp
BY_SHAPE.add(special.logsumexp)
