"""Library calls for the densities of ``scipy.stats``, imported when a model uses one of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.stats
from autograd.scipy.stats import norm

from daskgrad.compiled.adjoints import REPLACED, Pulled, fit, is_double
from daskgrad.compiled.library_calls import of_c_order
from daskgrad.compiled.lines import value_of
from daskgrad.compiled.steps import Step


@of_c_order(norm.logpdf, free=range(3))
def density(call: Pulled) -> Sequence[Any] | None:
    """Of the logarithm of the normal distribution's density."""
    step = call.step
    if step.kwargs or len(step.args) != 3:
        return None
    g, x, loc, scale = call.full(), *[call.arg(number) for number in range(3)]
    texts = [
        f"-{g} * ({x} - {loc}) / {scale}**2",
        f"{g} * ({x} - {loc}) / {scale}**2",
        f"{g} * (-1.0 / {scale} + ({x} - {loc}) ** 2 / {scale}**3)",
    ]
    shapes = [np.shape(value) for value in map(value_of, step.args)]
    return [fit(call, texts[argnum], shapes[argnum]) for argnum in step.argnums]


LOG_OF_ROOT = np.log(np.sqrt(2.0 * np.pi))


def logpdf(x: Any, loc: Any, scale: Any) -> Any:
    """SciPy's formula, for finite numbers and scales above zero."""
    distance = (x - loc) / scale
    if not (np.isfinite(distance).all() and np.greater(scale, 0.0).all()):
        return scipy.stats.norm.logpdf(x, loc, scale)
    scales = np.empty(distance.shape)
    scales[...] = scale
    return -(distance**2) / 2.0 - LOG_OF_ROOT - np.log(scales)


def are_numbers(step: Step) -> bool:
    """Whether these are three arrays or numbers in double precision, of which one is an array."""
    values = list(map(value_of, step.args))
    are_double = [is_double(value) or type(value) is float for value in values]
    return not step.kwargs and are_double == [True] * 3 and np.ndim(step.value) > 0


REPLACED[norm.logpdf] = are_numbers, logpdf
