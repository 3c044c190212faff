import autograd
import autograd.numpy as np


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


def set_up(starts, observed):
    start, seen = starts.T, observed.transpose(1, 2, 0)  # all terms as one

    def total(p):
        u, misfit = start, 0.0
        for each in seen:
            for _ in range(20):
                u = step(u, p)
            misfit = misfit + np.sum((u - each) ** 2)
        return misfit

    return {"all terms as one": autograd.value_and_grad(total)}
