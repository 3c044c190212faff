"""Chains of models that hand on a state: recurrent networks, filters, hidden states."""

import autograd.numpy as np
from autograd.scipy.special import logsumexp

import daskgrad as dg
from problems.problem import drawn, scalar

# ----------------------------------------------- an Elman network, a segment of the sequence a node

INPUTS = drawn(1, 8, 2)
TARGETS = np.sin(np.arange(8.0))


def rnn_step(weights, hidden, x):
    return np.tanh(
        np.dot(weights["hidden"], hidden) + np.dot(weights["input"], x) + weights["bias"]
    )


@dg.delayed
def rnn_segment(weights, hidden, inputs, targets):
    loss = 0.0
    for x, target in zip(inputs, targets, strict=True):
        hidden = rnn_step(weights, hidden, x)
        loss = loss + (np.sum(hidden) - target) ** 2
    return hidden, loss


def rnn_scan(weights, hidden):
    losses = []
    for start in range(0, len(INPUTS), 2):
        rows = slice(start, start + 2)
        state = rnn_segment(weights, hidden, INPUTS[rows], TARGETS[rows])
        hidden, loss = state[0], state[1]
        losses.append(loss)
    return dg.sum(losses)


RNN = {"hidden": 0.5 * drawn(2, 2, 2), "input": 0.4 * drawn(3, 2, 2), "bias": np.array([0.1, -0.2])}

# ------------------------------------------------------------ the log likelihood of a Kalman filter

OBSERVED = drawn(5, 4, 1)


@dg.delayed
def kalman_model(angle, logs):
    """A rotation as transition, and covariances from logarithms."""
    cosine, sine = np.cos(angle), np.sin(angle)
    transition = 0.9 * np.array([[cosine, -sine], [sine, cosine]])
    return {"transition": transition, "q": np.diag(np.exp(logs[:2])), "r": np.exp(logs[2:, None])}


@dg.delayed
def kalman_step(model, state, observed):
    seen = np.array([[1.0, 0.5]])
    mean = model["transition"] @ state["mean"]
    cov = model["transition"] @ state["cov"] @ model["transition"].T + model["q"]
    error, spread = observed - seen @ mean, seen @ cov @ seen.T + model["r"]
    gain = np.linalg.solve(spread, seen @ cov).T
    _, logdet = np.linalg.slogdet(2.0 * np.pi * spread)
    fit = -0.5 * (np.dot(error, np.linalg.solve(spread, error)) + logdet)
    return {"mean": mean + gain @ error, "cov": cov - gain @ seen @ cov, "fit": fit}


def kalman_filter(angle, logs, mean):
    model, state, fits = kalman_model(angle, logs), {"mean": mean, "cov": np.eye(2)}, []
    for observed in OBSERVED:
        state = kalman_step(model, state, observed)
        fits.append(state["fit"])
    return dg.sum(fits)


# ------------------------------------------ the forward algorithm of a hidden Markov model, in logs

SYMBOLS = (0, 2, 1, 1, 0)


@dg.delayed
def log_rows(logits):
    return logits - logsumexp(logits, axis=1, keepdims=True)


@dg.delayed
def hmm_step(alpha, transition, emission, symbol):
    return logsumexp(alpha[:, None] + transition, axis=0) + emission[:, symbol]


@dg.delayed
def total_evidence(alpha):
    return logsumexp(alpha)


def hidden_markov(transition, emission):
    transition, emission = log_rows(transition), log_rows(emission)
    alpha = emission[:, SYMBOLS[0]]
    for symbol in SYMBOLS[1:]:
        alpha = hmm_step(alpha, transition, emission, symbol)
    return total_evidence(alpha)


PROBLEMS = (
    scalar(rnn_scan, RNN, np.array([0.3, -0.1])),
    scalar(kalman_filter, 0.4, np.array([-1.0, -1.5, -0.7]), np.array([0.2, -0.3])),
    scalar(hidden_markov, drawn(10, 2, 2), drawn(11, 2, 3)),
)
