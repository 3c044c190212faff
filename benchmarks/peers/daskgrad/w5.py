import numpy as np
from by_hand import logistic
from distributed import Client

import daskgrad as dg


def partial_sum(rows, beta):
    y, X = rows
    eta = np.dot(X, beta)
    return np.sum(y * eta - np.logaddexp(0.0, eta))


def given(rows, beta):
    value, gradient = logistic(rows, beta)
    return value, (None, gradient)


def set_up(shards):
    Client(n_workers=2, threads_per_worker=1, dashboard_address=None)
    placed, by_hand = dg.place(shards), dg.delayed(given, gradient=True)
    return {
        "map_sum": dg.value_and_grad(lambda beta: dg.map_sum(partial_sum, placed, beta)),
        "gradient by hand": dg.value_and_grad(lambda beta: dg.map_sum(by_hand, placed, beta)),
    }
