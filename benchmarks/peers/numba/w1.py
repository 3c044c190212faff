import numba
import numpy as np


@numba.njit
def both(beta, y, X):
    total, gradient = 0.0, np.zeros(beta.size)
    for i in range(y.size):
        eta = 0.0
        for k in range(beta.size):
            eta += X[i, k] * beta[k]
        total += y[i] * eta - (max(eta, 0.0) + np.log1p(np.exp(-abs(eta))))
        r = y[i] - 1.0 / (1.0 + np.exp(-eta))
        for k in range(beta.size):
            gradient[k] += r * X[i, k]
    return total, gradient


def set_up(y, X):
    return {"loop by hand": lambda beta: both(beta, y, X)}
