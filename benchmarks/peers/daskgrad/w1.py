import dask
import numpy as np

import daskgrad as dg

dask.config.set({"daskgrad.inline.seconds": 60})  # in this thread, however busy the machine is


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

    def total(beta, y, X):
        return dg.reduce_sum(partial_sum, dg.zip(y, X), beta)

    summed = dg.value_and_grad(total)
    whole = dg.value_and_grad(lambda beta, y, X: model((y, X), beta))
    return {
        "reduce_sum": lambda beta: summed(beta, y, X),
        "one model": lambda beta: whole(beta, y, X),
        "reduce_sum, data in a closure": dg.value_and_grad(
            lambda beta: dg.reduce_sum(partial_sum, rows, beta)
        ),
        "map_sum, a row each": dg.value_and_grad(lambda beta: dg.map_sum(term, rows, beta)),
    }
