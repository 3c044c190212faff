"""Library calls for the densities of ``scipy.stats``, imported when a model uses one of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.stats
from autograd.scipy.stats import norm

from daskgrad.autodiff.compiled.adjoints import REPLACED, Pulled, fit_by_axes, is_double
from daskgrad.autodiff.compiled.forward import BY_SHAPES
from daskgrad.autodiff.compiled.library_calls import of_c_order
from daskgrad.autodiff.compiled.lines import value_of
from daskgrad.autodiff.compiled.steps import Step


@of_c_order(norm.logpdf, free=range(3))
def density(call: Pulled) -> Sequence[Any] | None:
    """Of the logarithm of the normal distribution's density."""
    step = call.step
    if step.kwargs or len(step.args) != 3:
        return None
    x, loc, scale = map(call.beside, step.args)
    shapes = [np.shape(value) for value in map(value_of, step.args)]
    are_whole = all([shapes[argnum] == call.shape for argnum in step.argnums])
    is_full = np.broadcast_shapes(*shapes[:2]) == call.shape
    g = call.thin(*step.args) if are_whole and is_full else call.full()
    texts = [
        f"-{g} * ({x} - {loc}) / {scale}**2",
        f"{g} * ({x} - {loc}) / {scale}**2",
        f"{g} * (-1.0 / {scale} + ({x} - {loc}) ** 2 / {scale}**3)",
    ]
    return [fit_by_axes(call, texts[argnum], shapes[argnum]) for argnum in step.argnums]


TWO, LOG_OF_ROOT = np.asarray(2.0), np.asarray(np.log(np.sqrt(2.0 * np.pi)))


def logpdf(x: Any, loc: Any, scale: Any) -> Any:
    """SciPy's formula, for finite numbers and scales above zero."""
    distance = (x - loc) / scale
    are_finite = np.count_nonzero(np.isfinite(distance)) == distance.size
    if not (are_finite and is_positive(scale)):
        return scipy.stats.norm.logpdf(x, loc, scale)
    scales = np.empty(distance.shape)
    scales[...] = scale
    return -(distance**2) / TWO - LOG_OF_ROOT - np.log(scales)


def is_positive(scale: Any) -> Any:
    if isinstance(scale, np.ndarray):
        return np.count_nonzero(scale > 0.0) == scale.size
    return scale > 0.0


def are_numbers(step: Step) -> bool:
    """Whether these are three arrays or numbers in double precision, of which one is an array."""
    values = list(map(value_of, step.args))
    are_double = [is_double(value) or type(value) is float for value in values]
    return not step.kwargs and are_double == [True] * 3 and np.ndim(step.value) > 0


BY_SHAPES.add(norm.logpdf)
REPLACED[norm.logpdf] = are_numbers, logpdf
