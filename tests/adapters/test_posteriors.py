"""Four posteriors, whose means are known from long runs of another sampler.

Data, models, means and their Monte Carlo errors are from posteriordb (M. Magnusson et al., AISTATS
2025; BSD 3-clause license).
"""

import json
import pathlib

import numpy as np
import pytest

import daskgrad as dg
from daskgrad.scipy.stats import gamma, norm

pytestmark = [pytest.mark.long, pytest.mark.optional, pytest.mark.filterwarnings("ignore")]
arviz, _ = pytest.importorskip("arviz"), pytest.importorskip("nutpie")

KNOWN = json.loads(pathlib.Path(__file__).with_name("posteriors.json").read_text())
ROOM = 6.0  # standard errors between two means of 30: a chance of one in ten million


def schools(p, y, sigma):
    tau, mu = np.exp(p["log_tau"]), p["mu"]
    prior = np.sum(norm.logpdf(p["eta"])) + norm.logpdf(mu, 0, 5) - np.log1p((tau / 5) ** 2)
    return np.sum(norm.logpdf(y, mu + tau * p["eta"], sigma)) + prior + p["log_tau"]


def process(p, x, y):
    rho, alpha, sigma = np.exp(p["logs"])
    covariance = alpha**2 * np.exp(-0.5 * ((x[:, None] - x) / rho) ** 2) + sigma * np.eye(len(x))
    lower = np.linalg.cholesky(covariance)
    likelihood = -0.5 * np.sum(np.linalg.solve(lower, y) ** 2) - np.sum(np.log(np.diag(lower)))
    prior = gamma.logpdf(rho, 25, scale=1 / 4) + norm.logpdf(alpha, 0, 2) + norm.logpdf(sigma)
    return likelihood + prior + np.sum(p["logs"])


def bushes(p, weight, diam1, diam2, canopy_height, total_height, group):
    volume, area, shape = diam1 * diam2 * canopy_height, diam1 * diam2, diam1 / diam2
    columns = [np.ones(len(group)), *map(np.log, [volume, area, shape, total_height]), group]
    expected = np.column_stack(columns) @ p["beta"]
    likelihood = norm.logpdf(np.log(weight), expected, np.exp(p["log_sigma"]))
    return np.sum(likelihood) + p["log_sigma"]


def autoregression(p, y):
    beta, sigma = p["beta"], np.exp(p["log_sigma"])
    expected = p["alpha"]
    for lag in range(1, 6):
        expected = expected + beta[lag - 1] * y[5 - lag : -lag]
    prior = norm.logpdf(p["alpha"], 0, 10) + np.sum(norm.logpdf(beta, 0, 10))
    prior = prior - np.log1p((sigma / 2.5) ** 2)
    return np.sum(norm.logpdf(y[5:], expected, sigma)) + prior + p["log_sigma"]


MODELS = {  # the log density, a start, and the parameters whose means are known
    "eight schools": (
        schools,
        {"eta": np.zeros(8), "mu": 0.0, "log_tau": 0.0},
        lambda eta, mu, log_tau: [*(mu + np.exp(log_tau) * eta), mu, np.exp(log_tau)],
    ),
    "Gaussian process": (process, {"logs": np.array([1.8, 0.5, 0.0])}, lambda logs: np.exp(logs)),
    "mesquite bushes": (
        bushes,
        {"beta": np.zeros(6), "log_sigma": 0.0},
        lambda beta, log_sigma: [*beta, np.exp(log_sigma)],
    ),
    "autoregression": (
        autoregression,
        {"alpha": 0.0, "beta": np.zeros(5), "log_sigma": 0.0},
        lambda alpha, beta, log_sigma: [alpha, *beta, np.exp(log_sigma)],
    ),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MODELS)
def test_means_are_the_known_ones(name):
    log_density, start, parameters = MODELS[name]
    data = {key: np.array(values, float) for key, values in KNOWN[name]["data"].items()}
    model = dg.delayed(lambda p: log_density(p, **data))
    options = {"draws": 1000, "tune": 300, "chains": 2, "seed": 1, "progress_bar": False}
    draws = dg.adapters.sample(model, start, **options).posterior
    drawn = {key: draws[key].transpose(..., "chain", "draw").values for key in start}
    means = KNOWN[name]["means"]
    for values, key in zip(parameters(**drawn), means, strict=True):
        mean, error = means[key]
        bound = ROOM * np.hypot(arviz.mcse(values), error)
        assert abs(values.mean() - mean) < bound, key
        assert bound < 0.5 * values.std(), f"{key}: too few draws to tell"
