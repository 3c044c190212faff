import casadi as ca
import numpy as np


def set_up(starts, observed):
    u, p, h = ca.SX.sym("u", 3), ca.SX.sym("p", 6), 0.02
    x, y, z = u[0], u[1], u[2]
    slopes = ca.vertcat(
        p[0] * x * (1 - x) - p[1] * x * y,
        p[2] * x * y - p[3] * y * z - p[5] * y,
        p[4] * y * z - p[5] * z,
    )
    slope = ca.Function("slope", [u, p], [slopes])
    a = slope(u, p)
    b = slope(u + 0.5 * h * a, p)
    c = slope(u + 0.5 * h * b, p)
    d = slope(u + h * c, p)
    step = ca.Function("step", [u, p], [u + h / 6 * (a + 2 * b + 2 * c + d)])
    start, seen, q = ca.MX.sym("start", 3), ca.MX.sym("seen", 3, 10), ca.MX.sym("q", 6)
    states = step.mapaccum(200)(start, ca.repmat(q, 1, 200))
    term = ca.Function("term", [start, seen, q], [ca.sumsqr(states[:, 19::20] - seen)])
    S, seen = ca.MX.sym("S", 3, 64), ca.MX.sym("seen", 3, 640)
    total = ca.sum2(term.map(64)(S, seen, ca.repmat(q, 1, 64)))
    both = ca.Function("both", [q, S, seen], [total, ca.gradient(total, q)])
    given = starts.T, np.hstack(list(observed.transpose(0, 2, 1)))
    return {"SX step, mapaccum, map": lambda q: both(q, *given)}
