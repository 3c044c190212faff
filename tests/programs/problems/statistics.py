"""Log likelihoods and losses that are sums over data."""

import math

import autograd.numpy as np
from autograd.scipy.special import gammaln, logsumexp

import daskgrad as dg
from problems.problem import drawn, scalar

# ------------------------------------------------ ADBench's Gaussian mixture, with a Wishart prior

POINTS = list(drawn(20, 7, 2))
GAMMA, M = 0.8, 1


@dg.delayed
def inverse_factors(logs, lower):
    """Triangular factors of the inverse covariances of all components, two-dimensional."""
    zero = 0.0 * lower
    rows = [[np.exp(logs[:, 0]), zero], [lower, np.exp(logs[:, 1])]]
    return np.transpose(np.array(rows), (2, 0, 1))


def mixture_term(point, alphas, means, logs, factors):
    scaled = np.einsum("kij,kj->ki", factors, point - means)
    return logsumexp(alphas + np.sum(logs, axis=1) - 0.5 * np.sum(scaled**2, axis=1))


@dg.delayed
def wishart_prior(logs, lower):
    squares = np.sum(np.exp(2.0 * logs)) + np.sum(lower**2)
    return 0.5 * GAMMA**2 * squares - M * np.sum(logs)


@dg.delayed
def evidence(alphas):
    return len(POINTS) * logsumexp(alphas)


def gaussian_mixture(alphas, means, logs, lower):
    shared = alphas, means, logs, inverse_factors(logs, lower)
    fit = dg.map_sum(mixture_term, POINTS, *shared, grainsize=2)
    return fit - evidence(alphas) + wishart_prior(logs, lower)


# ------------------------------------------------------------------ generalised linear models

ROWS = drawn(21, 9, 3)
LABELS = (drawn(22, 9) > 0.0) * 1.0


def logistic_term(item, weights, intercept):
    row, label = item
    logit = np.dot(row, weights) + intercept
    return np.logaddexp(0.0, logit) - label * logit


@dg.delayed
def ridge(weights):
    return 0.05 * np.sum(weights**2)


def logistic_regression(weights, intercept):
    fit = dg.map_sum(logistic_term, dg.zip(ROWS, LABELS), weights, intercept, grainsize=4)
    return fit / len(ROWS) + ridge(weights)


CLASSES = np.arange(9) % 3


def softmax_loss(rows, classes, layer):
    logits = np.dot(rows, layer["weights"]) + layer["bias"]
    return np.sum(logsumexp(logits, axis=1) - logits[np.arange(len(classes)), classes])


def softmax_slice(slices, layer):
    return softmax_loss(*slices, layer)


def softmax_regression(layer):
    return dg.reduce_sum(softmax_slice, dg.zip(ROWS, CLASSES), layer, grainsize=4)


GROUPS = [
    {"rows": drawn(30 + i, 3, 2), "exposure": 1.0 + np.arange(3.0), "counts": np.arange(3.0) * i}
    for i in range(4)
]


def poisson_group(item, coefficients):
    """The log likelihood of counts with an offset, and an effect that the group has for itself."""
    effect, group = item
    rate = np.dot(group["rows"], coefficients) + effect + np.log(group["exposure"])
    return np.sum(group["counts"] * rate - np.exp(rate))


@dg.delayed
def normal_prior(effects, log_scale):
    return -0.5 * np.sum((effects / np.exp(log_scale)) ** 2) - len(effects) * log_scale


def poisson_multilevel(effects, coefficients, log_scale):
    fit = dg.map_sum(poisson_group, dg.zip(effects, GROUPS), coefficients, grainsize=2)
    return fit + normal_prior(effects, log_scale)


# ------------------------------------------------------------------------------ robust regression

RESPONSES = drawn(23, 9)


def student_term(item, weights, log_scale, log_freedom):
    row, response = item
    freedom = np.exp(log_freedom)
    z = (response - np.dot(row, weights)) / np.exp(log_scale)
    constant = gammaln(0.5 * (freedom + 1.0)) - gammaln(0.5 * freedom)
    constant = constant - 0.5 * np.log(math.pi * freedom) - log_scale
    return constant - 0.5 * (freedom + 1.0) * np.log1p(z**2 / freedom)


def student_regression(weights, log_scale, log_freedom):
    items = dg.zip(ROWS, RESPONSES)
    shared = weights, log_scale, log_freedom
    return dg.map_sum(student_term, items, *shared, grainsize=2, summation="compensated")


# ----------------------------------------------------------- Cox's partial likelihood, without ties


@dg.delayed
def log_risk(weights):
    return np.dot(ROWS, weights)


@dg.delayed
def risk_sets(risk):
    """The rows are in the order of their times: those at risk are the ones from here on."""
    return np.log(np.cumsum(np.exp(risk)[::-1])[::-1])


@dg.delayed
def events(risk, sets):
    return np.sum(LABELS * (risk - sets))


def cox_regression(weights):
    risk = log_risk(weights)
    return events(risk, risk_sets(risk))


# -------------------------------------------------------------------------------- order statistics


@dg.delayed
def ordered(sample):
    return np.sort(sample)


@dg.delayed
def spacings(sample):
    """Log spacings of the sorted sample, and the spread of its middle."""
    return {"log": np.log(np.diff(sample)), "middle": np.std(sample[1:-1]), "top": np.max(sample)}


def order_statistics(sample):
    found = spacings(ordered(sample))
    return dg.sum([found["log"][0], found["log"][2], found["middle"] * found["top"]])


PROBLEMS = (
    scalar(
        gaussian_mixture,
        np.array([0.3, -0.4]),
        np.array([[0.5, 0.1], [-0.8, 0.4]]),
        0.3 * drawn(24, 2, 2),
        np.array([0.2, -0.3]),
        kind="sum",
    ),
    scalar(logistic_regression, 0.5 * drawn(25, 3), 0.2, kind="sum"),
    scalar(
        softmax_regression, {"weights": 0.5 * drawn(26, 3, 3), "bias": drawn(27, 3)}, kind="sum"
    ),
    scalar(poisson_multilevel, 0.3 * drawn(28, 4), np.array([0.4, -0.2]), -0.5, kind="sum"),
    scalar(student_regression, 0.5 * drawn(29, 3), -0.3, 1.1, kind="sum"),
    scalar(cox_regression, 0.5 * drawn(41, 3)),
    scalar(order_statistics, np.array([0.7, -0.2, 1.9, 0.1, -1.4])),
)
