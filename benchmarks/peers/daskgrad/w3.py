import dask
import numpy as np

import daskgrad as dg

dask.config.set({"daskgrad.inline.seconds": 60})  # in this thread, however busy the machine is


def slope(u, p):
    x, y, z = u
    return np.stack(
        [
            p[0] * x * (1 - x) - p[1] * x * y,
            p[2] * x * y - p[3] * y * z - p[5] * y,
            p[4] * y * z - p[5] * z,
        ]
    )


def step(u, p, h=0.02):
    a = slope(u, p)
    b = slope(u + 0.5 * h * a, p)
    c = slope(u + 0.5 * h * b, p)
    d = slope(u + h * c, p)
    return u + h / 6 * (a + 2 * b + 2 * c + d)


def term(item, p):
    u, observed = item
    total = 0.0
    for seen in observed:
        for _ in range(20):
            u = step(u, p)
        total = total + np.sum((u - seen) ** 2)
    return total


def until(u, seen, p):
    u = dg.scan(step, u, 20, p)
    return u, np.sum((u - seen) ** 2)


def scanned(item, p):
    start, observed = item
    return dg.scan(until, start, 10, p, xs=observed, outputs="sum")[1]


def set_up(starts, observed):
    items = dg.zip(starts, observed)
    whole = starts.T.copy(), observed.transpose(1, 2, 0).copy()

    def of(model):
        return dg.value_and_grad(lambda p: dg.map_sum(model, items, p))

    return {
        "map_sum": of(term),
        "map_sum, dg.scan": of(scanned),
        "dg.scan, all terms as one": dg.value_and_grad(lambda p: dg.delayed(scanned)(whole, p)),
    }
