"""SciPy's distributions; imported once autograd's modules for them are."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.core import primitive_vjps
from autograd.numpy.numpy_vjps import unbroadcast_f
from autograd.scipy import special, stats

from daskgrad.autodiff.rules.declaration import declare, plain, shape_of
from daskgrad.autodiff.rules.special_distributions import beta_by, gamma_by_a, t_by_df
from daskgrad.autodiff.rules.special_errors import log_ndtr_slope

Slopes = Mapping[int, Callable]  # by the numbers of the arguments: slope(ans, *args)


def with_slopes(fun: Callable, slopes: Slopes) -> None:
    """Declares slopes by some arguments; autograd's rule holds for the others."""
    autograds = primitive_vjps[fun]

    def adjoint(argnums, ans, args, kwargs):
        pullbacks = [pullback_by(argnum, ans, args, kwargs) for argnum in argnums]
        return lambda g: tuple([pullback(g) for pullback in pullbacks])

    def pullback_by(argnum: int, ans: Any, args: tuple, kwargs: dict) -> Callable:
        if argnum in slopes:
            slope = slopes[argnum]
            return unbroadcast_f(args[argnum], lambda g: g * slope(ans, *args, **kwargs))
        pullback = autograds((argnum,), ans, args, kwargs)
        return lambda g: pullback(g)[0]

    declare(fun, adjoint=adjoint)


# ------------------------------------------------------------------------------------ Student's t


def t_by_shape(ans, x, df, loc=0.0, scale=1.0):
    return t_by_df(ans, df, (x - loc) / scale)


def t_by_scale(ans, x, df, loc=0.0, scale=1.0):
    return -(x - loc) / scale * stats.t.pdf(x, df, loc, scale)


def of_logarithm(slope: Callable) -> Callable:
    return lambda ans, *args, **kwargs: slope(ans, *args, **kwargs) / anp.exp(ans)


with_slopes(stats.t.cdf, {1: t_by_shape, 3: t_by_scale})
with_slopes(stats.t.logcdf, {1: of_logarithm(t_by_shape), 3: of_logarithm(t_by_scale)})

# ----------------------------------------------------------------------------------------- normal


def normal_slopes(sign: float) -> Slopes:
    """Slopes of a tail's logarithm; autograd's lose all digits far out."""

    def slope(ans, x, loc=0.0, scale=1.0):
        return sign * log_ndtr_slope(ans, sign * (x - loc) / scale) / scale

    def by_scale(ans, x, loc=0.0, scale=1.0):
        return -slope(ans, x, loc, scale) * (x - loc) / scale

    return {0: slope, 1: lambda ans, *args, **kwargs: -slope(ans, *args, **kwargs), 2: by_scale}


with_slopes(stats.norm.logcdf, normal_slopes(1.0))
with_slopes(stats.norm.logsf, normal_slopes(-1.0))

# ------------------------------------------------------------------------- beta, gamma and others


def density_of(distribution: Any) -> Callable:
    """Zero outside the support, where autograd's rule is not."""
    return lambda ans, x, *args: distribution.pdf(x, *args)


with_slopes(
    stats.beta.cdf,
    {
        0: density_of(stats.beta),
        1: lambda ans, x, a, b: beta_by(a, b, x, False),
        2: lambda ans, x, a, b: beta_by(a, b, x, True),
    },
)
with_slopes(stats.gamma.cdf, {0: density_of(stats.gamma), 1: lambda ans, x, a: gamma_by_a(a, x)})
declare(stats.poisson.pmf, stats.poisson.logpmf, stats.poisson.cdf, refused={0: "k"})


def log_slope(ans, x, df):
    """At x, for any degrees of freedom; autograd's is zero for halves."""
    return (df - x - 2.0) / (2.0 * x)


def log_slope_by_df(ans, x, df):
    return 0.5 * (anp.log(0.5 * x) - special.psi(0.5 * df))


def of_density(slope: Callable) -> Callable:
    return lambda ans, x, df: slope(ans, x, df) * ans


with_slopes(stats.chi2.logpdf, {0: log_slope, 1: log_slope_by_df})
with_slopes(stats.chi2.pdf, {0: of_density(log_slope), 1: of_density(log_slope_by_df)})
with_slopes(
    stats.chi2.cdf,
    {0: density_of(stats.chi2), 1: lambda ans, x, df: 0.5 * gamma_by_a(0.5 * df, 0.5 * x)},
)


def of_rows(fun, x, *args, **kwargs):
    """autograd's rules hold for points in the rows of a matrix, and for one point."""
    *shape, dimension = shape_of(x)
    return anp.reshape(fun(anp.reshape(x, (-1, dimension)), *args, **kwargs), shape)


for fun in (stats.multivariate_normal.logpdf, stats.multivariate_normal.pdf):
    declare(
        fun,
        program=partial(of_rows, fun),
        needed=lambda x, *args, **kwargs: np.ndim(plain(x)) > 2,
        arrays=3,
        keywords="allow_singular",
    )
