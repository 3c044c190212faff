"""SciPy's distributions; imported once autograd's modules for them are."""

from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.scipy import stats

from daskgrad.backends.autograd.rules.declaration import declare, plain
from daskgrad.backends.autograd.rules.elementwise import slope_adjoint

declare(stats.t.cdf, stats.t.logcdf, refused={1: "df", 3: "scale"})
declare(stats.beta.cdf, refused={1: "a", 2: "b"})
declare(stats.gamma.cdf, refused={1: "a"})
declare(stats.poisson.pmf, stats.poisson.logpmf, stats.poisson.cdf, refused={0: "k"})


def log_slope(ans: Any, x: Any, df: Any) -> Any:
    """At x, for any degrees of freedom; autograd's is zero for halves."""
    return (df - x - 2.0) / (2.0 * x)


def slope(ans: Any, x: Any, df: Any) -> Any:
    return log_slope(ans, x, df) * ans


declare(stats.chi2.logpdf, adjoint=slope_adjoint(0, log_slope), refused={1: "df"})
declare(stats.chi2.pdf, adjoint=slope_adjoint(0, slope), refused={1: "df"})
declare(stats.chi2.cdf, refused={1: "df"})


def of_rows(fun: Callable) -> None:
    """autograd's rules hold for points in the rows of a matrix, and for one point."""

    def needed(x: Any, *args: Any, **kwargs: Any) -> bool:
        return np.ndim(plain(x)) > 2

    def program(x: Any, *args: Any, **kwargs: Any) -> Any:
        *shape, dimension = np.shape(plain(x))
        return anp.reshape(fun(anp.reshape(x, (-1, dimension)), *args, **kwargs), shape)

    declare(fun, program=program, needed=needed, arrays=3, keywords="allow_singular")


of_rows(stats.multivariate_normal.logpdf)
of_rows(stats.multivariate_normal.pdf)
