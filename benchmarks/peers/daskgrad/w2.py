import dask
import numpy as np

import daskgrad as dg

dask.config.set({"daskgrad.inline.seconds": 60})  # in this thread, however busy the machine is


def term(item, shared):
    z, counts, X = item
    eta = shared[3] + np.exp(shared[4]) * z + np.dot(X, shared[:3])
    return np.sum(counts * eta - np.exp(eta)) - 0.5 * z**2


def partial_sum(rows, shared, z):
    counts, X, group = rows
    eta = shared[3] + np.exp(shared[4]) * z[group] + np.dot(X, shared[:3])
    return np.sum(counts * eta - np.exp(eta))


def set_up(counts, Xs):
    def total(shared, z):
        return dg.map_sum(term, dg.zip(z, counts, Xs), shared)

    sizes = [len(each) for each in Xs]
    rows = dg.zip(np.concatenate(counts), np.concatenate(Xs), np.repeat(np.arange(len(Xs)), sizes))

    def flat(shared, z):
        return dg.reduce_sum(partial_sum, rows, shared, z) - 0.5 * np.sum(z**2)

    def of(fun):
        both = dg.value_and_grad(fun, argnums=(0, 1))
        return lambda x: both(x[:5], x[5:])

    return {"map_sum": of(total), "reduce_sum, flat rows": of(flat)}
