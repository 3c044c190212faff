"""Distributions of vectors, as in ``scipy.stats``."""

from typing import Any

import numpy as np
import scipy.special as sc

from daskgrad.scipy.linalg import solve_triangular


class multivariate_normal:
    """The normal distribution of vectors; the covariance is a positive definite matrix."""

    @staticmethod
    def logpdf(x: Any, mean: Any = None, cov: Any = 1.0) -> Any:
        """The logarithm of the density at each vector along the last axis of ``x``."""
        centred = x if mean is None else x - mean
        size = np.shape(centred)[-1] if np.ndim(centred) else 1
        factor = np.linalg.cholesky(matrix(cov, size))
        rows = np.reshape(centred, (-1, size))
        white = solve_triangular(factor, np.transpose(rows), lower=True)
        squares = np.reshape(np.sum(white**2, axis=0), np.shape(centred)[:-1])
        logs = np.sum(np.log(np.diagonal(factor)))
        return -0.5 * squares - logs - 0.5 * size * np.log(2.0 * np.pi)

    @staticmethod
    def pdf(x: Any, mean: Any = None, cov: Any = 1.0) -> Any:
        """The density."""
        return np.exp(multivariate_normal.logpdf(x, mean, cov))


def matrix(cov: Any, size: int) -> Any:
    """A covariance as a matrix: of a number, or of the diagonal."""
    return cov if np.ndim(cov) == 2 else cov * np.eye(size)


class dirichlet:
    """The Dirichlet distribution of probabilities that add up to one."""

    @staticmethod
    def logpdf(x: Any, alpha: Any) -> Any:
        """The logarithm of the density at ``x``, whose first axis goes over the parts."""
        parts = np.reshape(alpha, (-1,) + (1,) * (np.ndim(x) - 1))
        logs = np.sum(sc.xlogy(parts - 1.0, x), axis=0)
        return logs + sc.gammaln(np.sum(alpha)) - np.sum(sc.gammaln(alpha))

    @staticmethod
    def pdf(x: Any, alpha: Any) -> Any:
        """The density."""
        return np.exp(dirichlet.logpdf(x, alpha))


class multinomial:
    """The distribution of counts of ``n`` draws with probabilities ``p``."""

    @staticmethod
    def logpmf(x: Any, n: Any, p: Any) -> Any:
        """The logarithm of the probability of the counts along the last axis of ``x``."""
        logs = np.sum(sc.xlogy(x, p) - sc.gammaln(x + 1.0), axis=-1)
        return sc.gammaln(n + 1.0) + logs

    @staticmethod
    def pmf(x: Any, n: Any, p: Any) -> Any:
        """The probability."""
        return np.exp(multinomial.logpmf(x, n, p))
