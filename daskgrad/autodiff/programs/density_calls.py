"""Rewrites and batches of ``scipy.stats``'s densities, imported when a model uses one of them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.stats
from autograd.scipy.stats import norm

from daskgrad.autodiff.programs.batches import FORMS, elementwise
from daskgrad.autodiff.programs.calls import SHAPED, NumpyCall
from daskgrad.autodiff.programs.rewrites import is_double, rule


@rule(norm.logpdf.fun)
def density(call: NumpyCall, emit: Callable) -> Any:
    are_double = [is_double(arg) or type(arg) is float for arg in call.args] == [True] * 3
    if call.kwargs or not are_double or not np.ndim(call.value):
        return None
    return emit(logpdf, call.args, {}, call.value)


TWO, LOG_OF_ROOT = np.asarray(2.0), np.asarray(np.log(np.sqrt(2.0 * np.pi)))


def logpdf(x: Any, loc: Any, scale: Any) -> Any:
    """SciPy's formula, for finite numbers and scales above zero."""
    distance = (x - loc) / scale
    are_finite = np.count_nonzero(np.isfinite(distance)) == distance.size
    if not (are_finite and np.count_nonzero(scale > 0.0) == np.size(scale)):
        return scipy.stats.norm.logpdf(x, loc, scale)
    scales = np.empty(distance.shape)
    scales[...] = scale
    return -(distance**2) / TWO - LOG_OF_ROOT - np.log(scales)


SHAPED |= {norm.logpdf.fun, logpdf}
FORMS[logpdf] = elementwise
