import numpy as np

import daskgrad as dg


def partial_sum(rows, beta):
    y, X = rows
    eta = np.dot(X, beta)
    return np.sum(y * eta - np.logaddexp(0.0, eta))


def term(row, beta):
    y, x = row
    eta = np.dot(x, beta)
    return y * eta - np.logaddexp(0.0, eta)


def set_up(y, X):
    rows, model = dg.zip(y, X), dg.delayed(partial_sum)
    whole = dg.value_and_grad(lambda beta, y, X: model((y, X), beta))
    return {
        "reduce_sum": dg.value_and_grad(lambda beta: dg.reduce_sum(partial_sum, rows, beta)),
        "one model": lambda beta: whole(beta, y, X),
        "map_sum, a row each": dg.value_and_grad(lambda beta: dg.map_sum(term, rows, beta)),
    }
