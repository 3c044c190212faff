"""The data of each work, and the point where peers are compared."""

import numpy as np

QUICK = {"w1": (200, 3), "w2": (5,), "w3": (2,), "w4": (5, 10, 6), "w5": (8, 50)}  # sizes


def w1(rows=10_000, columns=20):
    """Logistic regression: answers, covariates; coefficients."""
    random = np.random.default_rng(1)
    X = random.normal(size=(rows, columns))
    beta = random.normal(size=columns) / np.sqrt(columns)
    y = (random.uniform(size=rows) < 1 / (1 + np.exp(-X @ beta))).astype(float)
    return (y, X), 0.1 * random.normal(size=columns)


def w2(groups=1_000):
    """Counts, covariates of groups of rows; coefficients, mean, log deviation, a z a group."""
    random = np.random.default_rng(2)
    Xs = [random.normal(size=(n, 3)) for n in random.integers(5, 51, size=groups)]
    beta, z = np.array([0.3, -0.2, 0.1]), random.normal(size=groups)
    pairs = zip(Xs, z, strict=True)
    counts = [random.poisson(np.exp(0.5 + 0.4 * own + X @ beta)).astype(float) for X, own in pairs]
    point = [0.1, 0.1, 0.1, 0.3, -0.7], 0.5 * random.normal(size=groups)
    return (counts, Xs), np.concatenate(point)


def w3(terms=64):
    """Starts of a food chain of three species, and its ten observed states; six rates."""
    random = np.random.default_rng(3)
    starts = random.uniform(0.5, 1.5, size=(terms, 3))
    observed = random.uniform(0.5, 1.5, size=(terms, 10, 3))
    return (starts, observed), np.array([1.0, 0.6, 0.4, 0.5, 0.3, 0.2])


def w4(layers=5, width=10, n=200, m=5):
    """M, B, C and predecessors of components by layer and place; the first input, a p each."""
    random = np.random.default_rng(4)
    parts = {}
    for layer in range(layers):
        for k in range(width):
            M = 2 * np.eye(n) + random.normal(size=(n, n)) / np.sqrt(n) * 0.5
            before = [(layer - 1, (k + d) % width) for d in range(3)] if layer else []
            B, C = random.normal(size=(n, m)), random.normal(size=(m, n)) / np.sqrt(n)
            parts[layer, k] = M, B, C, before
    point = 0.5 * random.normal(size=m), random.uniform(0.8, 1.2, size=layers * width)
    return (parts,), np.concatenate(point)


def w5(shards=8, rows=100_000, columns=10):
    """Logistic regression of shards of rows; coefficients."""
    random = np.random.default_rng(6)
    beta = random.normal(size=columns) / np.sqrt(columns)
    made = []
    for _ in range(shards):
        X = random.normal(size=(rows, columns))
        made.append(((random.uniform(size=rows) < 1 / (1 + np.exp(-X @ beta))).astype(float), X))
    return (made,), 0.1 * random.normal(size=columns)
