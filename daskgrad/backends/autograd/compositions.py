"""Compositions: functions of NumPy that stand for others, or take traced values by keyword.

A primitive of autograd's takes traced values by position alone, and returns numbers and arrays
alone. Calls of plain NumPy's functions come here first.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.tracer import isbox

from daskgrad.backends.autograd.plain_calls import TWINS
from daskgrad.backends.autograd.rules.declaration import plain
from daskgrad.backends.autograd.rules.matrices import least_squares


def install() -> None:
    """Tells plain calls of the functions that are composed."""
    TWINS[np.linalg.multi_dot] = multi_dot
    TWINS[np.linalg.lstsq] = least_squares
    TWINS[np.linalg.matrix_rank] = matrix_rank
    names = "average cov corrcoef quantile percentile nanquantile nanpercentile".split()
    for name in names:
        fun = getattr(np, name)
        TWINS[fun] = by_position(inspect.signature(fun), getattr(anp, name))


def by_position(signature: inspect.Signature, twin: Callable) -> Callable:
    """A function with its keywords by position, where a traced value is among them."""

    @functools.wraps(twin)
    def call(*args: Any, **kwargs: Any) -> Any:
        if any(map(isbox, kwargs.values())):
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            args, kwargs = bound.args, bound.kwargs
        return twin(*args, **kwargs)

    return call


def matrix_rank(A: Any, *args: Any, **kwargs: Any) -> Any:
    return np.linalg.matrix_rank(plain(A), *args, **kwargs)


def multi_dot(arrays: Sequence[Any], *, out: Any = None) -> Any:
    """A product of matrices in the order that takes the fewest multiplications."""
    if out is not None:
        raise TypeError("np.linalg.multi_dot does not take out= of traced values; leave it out")
    sizes = [1 if np.ndim(plain(a)) == 1 else np.shape(plain(a))[0] for a in arrays[:1]]
    sizes += [np.shape(plain(a))[-2:][0] for a in arrays[1:]]
    sizes += [1 if np.ndim(plain(a)) == 1 else np.shape(plain(a))[1] for a in arrays[-1:]]

    @functools.cache
    def cheapest(first: int, last: int) -> tuple[int, Any]:
        """The cost of a part of the product, and where it is divided."""
        if first == last:
            return 0, None
        ends = sizes[first] * sizes[last + 1]
        return min(
            (cheapest(first, n)[0] + cheapest(n + 1, last)[0] + ends * sizes[n + 1], n)
            for n in range(first, last)
        )

    def product(first: int, last: int) -> Any:
        if first == last:
            return arrays[first]
        divided = cheapest(first, last)[1]
        return anp.dot(product(first, divided), product(divided + 1, last))

    return product(0, len(arrays) - 1)
