"""SciPy, and derivatives within a model."""

import autograd
import numpy as np
import scipy.sparse
import scipy.special
from scipy.special import expit, gammaln

import daskgrad.scipy.integrate
from daskgrad.scipy import integrate, linalg, stats
from style_pairs.pairs import ROUNDING, Y, of_model

random = np.random.default_rng(2)

COVARIATE, COUNTS = random.standard_normal(60), random.integers(0, 9, 60)
TWELVE = np.arange(12.0)
DISTANCES, FIELD = np.abs(np.subtract.outer(TWELVE, TWELVE)), random.standard_normal(12)
NODES = np.linspace(0.0, 1.0, 101)
SPARSE = scipy.sparse.random(60, 30, 0.1, format="csr", random_state=1)
RIGHT = np.linspace(0.0, 1.0, 60)
THREE, THIRTY = np.array([0.1, 0.3, 0.2]), np.linspace(-1.0, 1.0, 30)


def negative_binomial(p, x, k):
    mean, a = np.exp(p[0] + p[1] * x), np.exp(p[2])
    logs = gammaln(k + a) - gammaln(a) - gammaln(k + 1.0)
    return expit(p[0]) - np.sum(logs + a * np.log(a / (a + mean)) + k * np.log(mean / (a + mean)))


def by_module(p, x, k):
    special = scipy.special
    mean, a = np.exp(p[0] + p[1] * x), np.exp(p[2])
    logs = special.gammaln(k + a) - special.gammaln(a) - special.gammaln(k + 1.0)
    return special.expit(p[0]) - np.sum(
        logs + a * np.log(a / (a + mean)) + k * np.log(mean / (a + mean))
    )


def by_density(p, y):
    return -np.sum(stats.norm.logpdf(y, loc=p[0], scale=np.exp(p[1])))


def by_hand(p, y):
    scale = np.exp(p[1])
    return np.sum(0.5 * ((y - p[0]) / scale) ** 2 + np.log(scale) + 0.5 * np.log(2.0 * np.pi))


def covariance(p, distances):
    return np.exp(p[0]) * np.exp(-distances / np.exp(p[1])) + 0.1 * np.eye(12)


def by_triangle(p, distances, y):
    root = np.linalg.cholesky(covariance(p, distances))
    white = linalg.solve_triangular(root, y, lower=True)
    return 0.5 * np.sum(white**2) + np.sum(np.log(np.diag(root)))


def by_solve(p, distances, y):
    root = np.linalg.cholesky(covariance(p, distances))
    white = np.linalg.solve(root, y)
    return 0.5 * np.sum(white**2) + np.sum(np.log(np.diag(root)))


def by_trapezoid(p, z):
    f = np.exp(-p[0] * z) * np.cos(p[1] * z)
    return integrate.trapezoid(f, z)


def by_dotted_name(p, z):
    f = np.exp(-p[0] * z) * np.cos(p[1] * z)
    return daskgrad.scipy.integrate.trapezoid(f, z)


def by_slices(p, z):
    f = np.exp(-p[0] * z) * np.cos(p[1] * z)
    return np.sum((z[1:] - z[:-1]) * (f[1:] + f[:-1]) / 2.0)


def by_matrix(p, matrix, right):
    return np.sum((matrix @ p - right) ** 2)


def by_derivative(p, z):
    slope = autograd.elementwise_grad(lambda s: np.sin(p[0] * s) * p[1])(z)
    return np.sum((slope - 1.0) ** 2)


def by_slope(p, z):
    slope = p[0] * np.cos(p[0] * z) * p[1]
    return np.sum((slope - 1.0) ** 2)


PAIRS = [
    of_model(
        "scipy.special by its module",
        *(by_module, COVARIATE, COUNTS),
        plain=(negative_binomial, COVARIATE, COUNTS),
        point=THREE,
    ),
    of_model("stats.norm.logpdf", by_density, Y, plain=(by_hand, Y), rounding=ROUNDING),
    of_model(
        "linalg.solve_triangular",
        *(by_triangle, DISTANCES, FIELD),
        plain=(by_solve, DISTANCES, FIELD),
        rounding=ROUNDING,
    ),
    of_model(
        "integrate.trapezoid", by_trapezoid, NODES, plain=(by_slices, NODES), rounding=ROUNDING
    ),
    of_model(
        "daskgrad.scipy.integrate.trapezoid by its dotted name",
        *(by_dotted_name, NODES),
        plain=(by_slices, NODES),
        rounding=ROUNDING,
    ),
    of_model(
        "a sparse matrix as an argument",
        *(by_matrix, SPARSE, RIGHT),
        plain=(by_matrix, SPARSE.toarray(), RIGHT),
        point=THIRTY,
        rounding=ROUNDING,
    ),
    of_model(
        "autograd within a model", by_derivative, NODES, plain=(by_slope, NODES), rounding=ROUNDING
    ),
]
