"""Rewrites and batches of SciPy's special functions, imported when a model uses one of them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special
from autograd.scipy import special

from daskgrad.autodiff.programs.batches import AXES, FORMS, OVER_ALL, along
from daskgrad.autodiff.programs.calls import OF_ONE, NumpyCall
from daskgrad.autodiff.programs.rewrites import axis_of, rule


@rule(special.logsumexp.fun)
def log_of_sum(call: NumpyCall, emit: Callable) -> Any:
    axis, x = axis_of(call, "keepdims"), call.args[0]
    if isinstance(axis, str) or not (x.value.flags.c_contiguous and x.value.size):
        return None
    return emit(logsumexp, call.args, call.kwargs, call.value)


def logsumexp(a: np.ndarray, axis: Any = None, keepdims: bool = False) -> Any:
    """SciPy's formula for real arrays, without weights; SciPy has all that is not finite."""
    is_vector = a.ndim == 1 and not keepdims  # whose sums are numbers, which take less time
    how: Any = {} if is_vector else {"axis": axis, "keepdims": True}
    most = np.maximum.reduce(a, **how)
    if np.count_nonzero(np.isfinite(most)) < most.size:
        return scipy.special.logsumexp(a, axis=axis, keepdims=keepdims)
    is_most = a == most
    rest = a - most
    np.exp(rest, rest)
    rest[is_most] = 0.0
    total = np.add.reduce(rest, **how)
    if np.count_nonzero(is_most) == most.size:  # one in each sum, as nearly always
        result = np.log1p(total) + most
    else:
        count = np.add.reduce(is_most, **how, dtype=np.float64)
        result = np.log1p(total / count) + np.log(count) + most
    return result if is_vector or keepdims else result.squeeze(axis=axis)[()]


OF_ONE.update({special.logsumexp.fun, logsumexp})
OVER_ALL.add(logsumexp)
AXES[logsumexp] = "axis", None
FORMS[logsumexp] = along
