import numba
import numpy as np


@numba.njit
def both(x, counts, X, ends):
    total, gradient, sigma, row = 0.0, np.zeros(x.size), np.exp(x[4]), 0
    for g in range(ends.size):
        z, of_eta = x[5 + g], 0.0
        while row < ends[g]:
            eta = x[3] + sigma * z
            for k in range(3):
                eta += X[row, k] * x[k]
            rate = np.exp(eta)
            r = counts[row] - rate
            total += counts[row] * eta - rate
            for k in range(3):
                gradient[k] += r * X[row, k]
            of_eta += r
            row += 1
        total -= 0.5 * z**2
        gradient[3] += of_eta
        gradient[4] += of_eta * sigma * z
        gradient[5 + g] = of_eta * sigma - z
    return total, gradient


def set_up(counts, Xs):
    rows, X = np.concatenate(counts), np.concatenate(Xs)
    ends = np.cumsum([len(each) for each in Xs])
    return {"loop by hand": lambda x: both(x, rows, X, ends)}
