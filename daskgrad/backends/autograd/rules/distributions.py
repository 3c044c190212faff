"""SciPy's distributions; imported when autograd's modules of them are."""

from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.numpy.numpy_vjps import unbroadcast_f
from autograd.scipy import stats

from daskgrad.backends.autograd.rules.declaration import (
    ADJOINTS,
    equivalent,
    keywords,
    plain,
    refuse,
)

for fun, argnum, what in (
    (stats.t.cdf, 1, "df"),
    (stats.t.cdf, 3, "scale"),
    (stats.t.logcdf, 1, "df"),
    (stats.t.logcdf, 3, "scale"),
    (stats.beta.cdf, 1, "a"),
    (stats.beta.cdf, 2, "b"),
    (stats.gamma.cdf, 1, "a"),
    (stats.chi2.pdf, 1, "df"),
    (stats.chi2.logpdf, 1, "df"),
    (stats.chi2.cdf, 1, "df"),
    (stats.poisson.pmf, 0, "k"),
    (stats.poisson.logpmf, 0, "k"),
    (stats.poisson.cdf, 0, "k"),
):
    refuse(fun, argnum, what)


def chi2_adjoint(is_log: bool) -> Callable:
    """Of the density at x, for any number of degrees of freedom: autograd's is zero for halves."""

    def adjoint(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
        x, df = args
        slope = (df - x - 2.0) / (2.0 * x)
        slope = slope if is_log else slope * ans
        pullback = unbroadcast_f(x, lambda g: g * slope)
        return lambda g: (pullback(g),)

    return adjoint


ADJOINTS[stats.chi2.logpdf] = chi2_adjoint(is_log=True)
ADJOINTS[stats.chi2.pdf] = chi2_adjoint(is_log=False)


def of_rows(fun: Callable) -> None:
    """autograd's rules hold for points in the rows of a matrix, and for one point."""

    def needed(x: Any, *args: Any, **kwargs: Any) -> bool:
        return np.ndim(plain(x)) > 2

    def program(x: Any, *args: Any, **kwargs: Any) -> Any:
        *shape, dimension = np.shape(plain(x))
        return anp.reshape(fun(anp.reshape(x, (-1, dimension)), *args, **kwargs), shape)

    equivalent(fun, needed=needed, arrays=3)(program)
    keywords("allow_singular", fun)


of_rows(stats.multivariate_normal.logpdf)
of_rows(stats.multivariate_normal.pdf)
