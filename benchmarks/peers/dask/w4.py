import autograd.numpy as np
import dask
from autograd import make_vjp
from distributed import Client


def component(matrices, us, p):
    M, B, C = matrices
    b = np.dot(B, sum(us))
    x = b
    for _ in range(50):
        x = np.tanh(p * np.linalg.solve(M + np.diag(x), b))
    return np.dot(C, x)


def pull(matrices, us, p, cotangents):
    vjp, _ = make_vjp(lambda both: component(matrices, *both))((us, p))
    return vjp(sum(cotangents))


def input_of(pulled, place):
    return pulled[0][place]


def p_of(pulled):
    return pulled[1]


def twice(y):
    return 2 * y


def squares(ys):
    return sum(np.sum(y**2) for y in ys)


def set_up(parts):
    client = Client(n_workers=2, threads_per_worker=1, dashboard_address=None)
    held = {k: client.scatter(part[:3], broadcast=True, hash=False) for k, part in parts.items()}
    forward, backward, piece = map(dask.delayed, (component, pull, input_of))

    def both(x):
        outputs, inputs = {}, {}
        ps = dict(zip(parts, x[5:], strict=True))
        for key, (*_, before) in parts.items():
            inputs[key] = [outputs[b] for b in before] or [x[:5]]
            outputs[key] = forward(held[key], inputs[key], ps[key])
        last = [outputs[4, k] for k in range(10)]
        of = {key: [dask.delayed(twice)(outputs[key])] if key[0] == 4 else [] for key in parts}
        of_u, of_p = [], []
        for key, (*_, before) in reversed(parts.items()):
            pulled = backward(held[key], inputs[key], ps[key], of[key])
            of_p.insert(0, dask.delayed(p_of)(pulled))
            for place, b in enumerate(before):
                of[b].append(piece(pulled, place))
            if not before:
                of_u.append(piece(pulled, 0))
        value, of_u, of_p = dask.compute(dask.delayed(squares)(last), of_u, of_p)
        return value, [sum(of_u), np.array(of_p)]

    return {"dask.delayed, autograd": both}
