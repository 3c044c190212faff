"""Distributions with SciPy's methods, made of functions of the standardized number."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special as sc

from daskgrad.autodiff.rules.twins import operand
from daskgrad.autodiff.tape import value
from daskgrad.scipy.dispatch import dispatched
from daskgrad.scipy.linalg import solve_triangular

INFINITE = (-np.inf, np.inf)
TINY, HUGE = float(np.finfo(float).tiny), float(np.finfo(float).max)
POSITIVE = (0.0, HUGE)  # infinity is above it
ABOVE_ZERO = (TINY, HUGE)
FINITE = (-HUGE, HUGE)


def all_positive(*shapes: Any) -> Any:
    """Whether all shapes are positive, entry by entry."""
    return functools.reduce(np.logical_and, [np.greater(shape, 0.0) for shape in shapes], True)


def is_probability(p: Any) -> Any:
    return np.greater_equal(p, 0.0) & np.less_equal(p, 1.0)


def is_count(n: Any) -> Any:
    return np.greater_equal(n, 0.0) & np.equal(n, np.floor(n))


class Frozen:
    """A distribution with its parameters, as SciPy freezes them."""

    def __init__(self, distribution: Any, name: str, args: tuple, kwds: dict):
        self._distribution, self._name = distribution, name
        self.args, self.kwds = args, kwds

    def __getattr__(self, method: str) -> Callable:
        if method.startswith("_"):
            raise AttributeError(method)
        fun = getattr(self._distribution, method, None)
        if not callable(fun):
            names = [name for name in METHODS if hasattr(self._distribution, name)]
            raise AttributeError(
                f"stats.{self._name}(...) has no {method!r} here; it has {', '.join(names)}"
            )
        return lambda x: fun(x, *self.args, **self.kwds)


METHODS = ("logpdf", "pdf", "logpmf", "pmf", "cdf", "sf", "logcdf", "logsf", "ppf")


class Distribution:
    """A distribution with SciPy's parameters: its shapes, ``loc``, and ``scale`` if it has one.

    The functions take the standardized number and the shapes, and are called inside the ``support``
    alone: its ends, or a function of the shapes that returns them. ``inside`` is a number there.
    ``valid`` tells the valid shapes, as a rule positive ones; for others all results are NaN.
    """

    parameters: tuple[str, ...] = ("loc",)

    def __init__(
        self,
        name: str,
        shapes: str = "",
        support: tuple[float, float] | Callable = INFINITE,
        inside: float = 0.5,
        valid: Callable = all_positive,
        **functions: Callable,
    ):
        self.name = name
        self.__module__ = "daskgrad.scipy.stats"  # where pickle finds it by this name
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        defaults = {"loc": 0.0, "scale": 1.0}
        self._signature = inspect.Signature(
            [inspect.Parameter(shape, kind) for shape in shapes.split()]
            + [inspect.Parameter(n, kind, default=defaults[n]) for n in self.parameters]
        )
        self._support = support
        self._inside = inside
        self._valid = valid
        self._functions = functions

    def __repr__(self) -> str:
        return f"daskgrad.scipy.stats.{self.name}"

    def __reduce__(self) -> str:
        return self.name

    def __call__(self, *args: Any, **kwds: Any) -> "Frozen":
        """The distribution with these parameters, whose methods take the number alone."""
        try:
            self._signature.bind(*args, **kwds)
        except TypeError as error:
            raise TypeError(f"stats.{self.name}: {error}") from None
        return Frozen(self, self.name, args, kwds)

    @dispatched
    def cdf(self, x: Any, *args: Any, **kwds: Any) -> Any:
        """The probability of numbers up to ``x``."""
        return self._call("cdf", x, self._bind("cdf", args, kwds), (0.0, 1.0))

    @dispatched
    def sf(self, x: Any, *args: Any, **kwds: Any) -> Any:
        """The probability of numbers above ``x``."""
        return self._call("sf", x, self._bind("sf", args, kwds), (1.0, 0.0))

    @dispatched
    def logcdf(self, x: Any, *args: Any, **kwds: Any) -> Any:
        """The logarithm of ``cdf``."""
        if "logcdf" in self._functions:
            return self._call("logcdf", x, self._bind("logcdf", args, kwds), (-np.inf, 0.0))
        return logarithm(self.cdf(x, *args, **kwds), self.sf(x, *args, **kwds))

    @dispatched
    def logsf(self, x: Any, *args: Any, **kwds: Any) -> Any:
        """The logarithm of ``sf``."""
        if "logsf" in self._functions:
            return self._call("logsf", x, self._bind("logsf", args, kwds), (0.0, -np.inf))
        return logarithm(self.sf(x, *args, **kwds), self.cdf(x, *args, **kwds))

    def _bind(self, method: str, args: tuple, kwds: dict) -> list[Any]:
        """The values of all parameters."""
        try:
            bound = self._signature.bind(*args, **kwds)
        except TypeError as error:
            raise TypeError(f"stats.{self.name}.{method}: {error}") from None
        bound.apply_defaults()
        parameters = list(bound.arguments.values())
        place = len(parameters) - len(self.parameters)  # of loc
        is_valid = self._valid(*map(value, parameters[:place]))
        if not np.all(is_valid):
            parameters[place] = np.where(is_valid, parameters[place], np.nan)
        return parameters

    def _call(
        self, method: str, x: Any, parameters: list[Any], outside: tuple[float, float]
    ) -> Any:
        """A function inside the support; ``outside``: its values below and above."""
        fun = self._function(method)
        y, shapes = self._standardized(x, parameters)
        if self._support is INFINITE:
            return fun(y, *shapes)
        low, high = self._support(*shapes) if callable(self._support) else self._support
        is_below, is_above = np.less(value(y), value(low)), np.greater(value(y), value(high))
        values = fun(np.where(is_below | is_above, self._inside, y), *shapes)
        values = np.where(is_below, outside[0], np.where(is_above, outside[1], values))
        is_nan = np.isnan(value(y))
        return np.where(is_nan, np.nan, values) if np.any(is_nan) else values

    def _standardized(self, x: Any, parameters: list[Any]) -> tuple[Any, list[Any]]:
        raise NotImplementedError

    def _function(self, method: str) -> Callable:
        if method not in self._functions:
            names = ", ".join(self._functions)
            raise NotImplementedError(f"stats.{self.name} has no {method}; it has {names}")
        return self._functions[method]


class Continuous(Distribution):
    """A distribution with a density."""

    parameters = ("loc", "scale")

    @dispatched
    def logpdf(self, x: Any, *args: Any, **kwds: Any) -> Any:
        """The logarithm of the density at ``x``; -inf outside of the support."""
        parameters = self._bind("logpdf", args, kwds)
        logs = self._call("logpdf", x, parameters, (-np.inf, -np.inf))
        return logs - np.log(positive(parameters[-1]))

    @dispatched
    def pdf(self, x: Any, *args: Any, **kwds: Any) -> Any:
        """The density at ``x``."""
        return np.exp(self.logpdf(x, *args, **kwds))

    @dispatched
    def ppf(self, q: Any, *args: Any, **kwds: Any) -> Any:
        """The number up to which the probability is ``q``."""
        fun = self._function("ppf")
        *shapes, loc, scale = self._bind("ppf", args, kwds)
        is_inside = is_probability(value(q))
        if np.all(is_inside):
            return loc + positive(scale) * fun(q, *shapes)
        numbers = loc + positive(scale) * fun(np.where(is_inside, q, 0.5), *shapes)
        return np.where(is_inside, numbers, np.nan)

    def _standardized(self, x: Any, parameters: list[Any]) -> tuple[Any, list[Any]]:
        *shapes, loc, scale = parameters
        return (x - loc) / positive(scale), shapes


class Discrete(Distribution):
    """A distribution of integers; ``x`` has no derivative where it is one."""

    @dispatched
    def logpmf(self, x: Any, *args: Any, **kwds: Any) -> Any:
        """The logarithm of the probability of ``x``; -inf where that is zero."""
        parameters = self._bind("logpmf", args, kwds)
        logs = self._call("logpmf", x, parameters, (-np.inf, -np.inf))
        number = value(x) - value(parameters[-1])
        return np.where((number == np.floor(number)) | np.isnan(number), logs, -np.inf)

    @dispatched
    def pmf(self, x: Any, *args: Any, **kwds: Any) -> Any:
        """The probability of ``x``."""
        return np.exp(self.logpmf(x, *args, **kwds))

    def _standardized(self, x: Any, parameters: list[Any]) -> tuple[Any, list[Any]]:
        *shapes, loc = parameters
        return np.floor(value(x - loc)), shapes


def positive(scale: Any) -> Any:
    """The scale, or NaN if it is not positive, as in SciPy."""
    return np.where(np.greater(value(scale), 0.0), scale, np.nan)


def logarithm(probability: Any, rest: Any) -> Any:
    """The logarithm of a probability; ``rest`` is one minus it."""
    is_large = np.less(value(rest), 0.5)
    with np.errstate(divide="ignore"):
        return exact_near_one(np.log(np.where(is_large, 0.5, probability)), rest)


def exact_near_one(log: Any, rest: Any) -> Any:
    """The logarithm of a probability; near one by the ``rest``, which has more digits."""
    is_large = np.less(value(rest), 0.5)
    return np.where(is_large, np.log1p(-np.where(is_large, rest, 0.0)), log)


# -------------------------------------------------------------------------------------------------
# Distributions of vectors, as in ``scipy.stats``.


class OfVectors:
    """A distribution whose methods take its parameters; called with these it is ``Frozen``."""

    def __new__(cls, *args: Any, **kwds: Any) -> Any:
        return Frozen(cls, cls.__name__, args, kwds)


class multivariate_normal(OfVectors):
    """The normal distribution of vectors; the covariance is a positive definite matrix, a vector,
    its diagonal, or a number for all of this. The mean tells the dimension, or else the matrix; a
    vector of numbers is several points of one dimension. ValueError for other shapes; LinAlgError
    if the covariance is not positive definite."""

    @staticmethod
    @dispatched
    def logpdf(x: Any, mean: Any = None, cov: Any = 1.0) -> Any:
        """The logarithm of the density at each vector along the last axis of ``x``; axes of length
        one are dropped."""
        x, cov = operand(x), operand(cov)
        size = np.shape(cov)[-1] if np.ndim(cov) == 2 else 1
        if mean is not None:
            mean = operand(mean)
            size = np.size(mean)
            mean = np.reshape(mean, (1,)) if size == 1 else mean
        if size == 1:
            cov = np.reshape(cov, (1, 1)) if np.size(cov) == 1 else cov
            x = np.expand_dims(x, -1) if np.ndim(x) < 2 else x
        shapes = [(size, size)] if size == 1 else [(), (size,), (size, size)]
        if np.shape(cov) not in shapes or (mean is not None and np.ndim(mean) != 1):
            raise ValueError(
                f"stats.multivariate_normal takes a vector as mean, and as cov a number, a vector "
                f"or a matrix of its size; they have the shapes {np.shape(mean)} and "
                f"{np.shape(cov)}; for several means write x - means"
            )
        if np.shape(x)[-1:] not in ((), (1,), (size,)):
            raise ValueError(
                f"stats.multivariate_normal of {size} dimensions takes x with {size} numbers along "
                f"the last axis; its shape is {np.shape(x)}"
            )
        centred = x + np.zeros(size) if mean is None else x - mean
        factor = np.linalg.cholesky(cov if np.ndim(cov) == 2 else cov * np.eye(size))
        rows = np.reshape(centred, (-1, size))
        white = solve_triangular(factor, np.transpose(rows), lower=True)
        shape = [n for n in np.shape(centred)[:-1] if n != 1]
        squares = np.reshape(np.sum(white**2, axis=0), shape)
        logs = np.sum(np.log(np.diagonal(factor)))
        return -0.5 * squares - logs - 0.5 * size * np.log(2.0 * np.pi)

    @staticmethod
    @dispatched
    def pdf(x: Any, mean: Any = None, cov: Any = 1.0) -> Any:
        """The density."""
        return np.exp(multivariate_normal.logpdf(x, mean, cov))


SUM_ERROR = 1e-9  # of probabilities, which SciPy takes for rounding


class dirichlet(OfVectors):
    """The Dirichlet distribution of probabilities that add up to one; ValueError for others."""

    @staticmethod
    @dispatched
    def logpdf(x: Any, alpha: Any) -> Any:
        """The logarithm of the density at ``x``, with the parts along its first axis; the last part
        may be left out."""
        x, alpha = operand(x), operand(alpha)
        count = np.size(alpha)
        if np.ndim(alpha) != 1 or not all_positive(value(alpha)).all():
            raise ValueError(f"stats.dirichlet takes a vector of positive alpha; it is {alpha}")
        if not np.ndim(x) or np.shape(x)[0] not in (count, count - 1):
            raise ValueError(
                f"stats.dirichlet of {count} parts takes x with {count} or {count - 1} parts along "
                f"the first axis; its shape is {np.shape(x)}"
            )
        if np.shape(x)[0] < count:
            x = np.concatenate([x, 1.0 - np.sum(x, axis=0, keepdims=True)])
        parts = np.reshape(alpha, (-1,) + (1,) * (np.ndim(x) - 1))
        here = value(x)
        is_pole = (here == 0.0) & (value(parts) < 1.0)
        beyond = np.abs(np.sum(here, axis=0) - 1.0) > SUM_ERROR
        if np.any((here < 0.0) | (here > 1.0) | is_pole) or np.any(beyond):
            raise ValueError(
                f"stats.dirichlet takes parts x from 0 to 1 that add up to 1, and above 0 where "
                f"alpha is below 1; x is {here}; divide it by its sum"
            )
        logs = np.sum(sc.xlogy(parts - 1.0, x), axis=0)
        logs = np.reshape(logs, [n for n in np.shape(logs) if n != 1])
        return logs + sc.gammaln(np.sum(alpha)) - np.sum(sc.gammaln(alpha))

    @staticmethod
    @dispatched
    def pdf(x: Any, alpha: Any) -> Any:
        """The density."""
        return np.exp(dirichlet.logpdf(x, alpha))


class multinomial(OfVectors):
    """The distribution of counts of ``n`` draws with probabilities ``p``."""

    @staticmethod
    @dispatched
    def logpmf(x: Any, n: Any, p: Any) -> Any:
        """The logarithm of the probability of the counts along the last axis of ``x``; -inf where
        they are no counts or do not add up to ``n``, NaN for an ``n`` below zero or a ``p`` that is
        none. ValueError for a broken ``n``, and for ``p`` that do not add up to one."""
        x, n, p = operand(x), operand(n), operand(p)
        counts, number, chances = value(x), value(n), value(p)
        if not np.ndim(x) or np.shape(x)[-1] != np.shape(p)[-1]:
            raise ValueError(
                f"stats.multinomial takes as many counts x as probabilities p along the last axes; "
                f"their shapes are {np.shape(x)} and {np.shape(p)}"
            )
        if np.any(np.abs(np.sum(chances, axis=-1) - 1.0) > SUM_ERROR):
            raise ValueError(
                f"stats.multinomial takes probabilities p that add up to 1; p is {chances}; divide "
                f"it by its sum"
            )
        if np.any(number != np.floor(number)):
            raise ValueError(f"stats.multinomial takes a whole number n of draws; n is {number}")
        are_counts = np.all((counts >= 0.0) & (counts == np.floor(counts)), axis=-1)
        is_inside = are_counts & (np.sum(counts, axis=-1) == number)
        is_valid = np.all(is_probability(chances), axis=-1) & (number >= 0)
        x = np.where(counts < 0.0, 0.0, x)
        logs = sc.gammaln(n + 1.0) + np.sum(sc.xlogy(x, p) - sc.gammaln(x + 1.0), axis=-1)
        return np.where(is_valid, np.where(is_inside, logs, -np.inf), np.nan)

    @staticmethod
    @dispatched
    def pmf(x: Any, n: Any, p: Any) -> Any:
        """The probability."""
        return np.exp(multinomial.logpmf(x, n, p))
