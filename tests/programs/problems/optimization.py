"""From Moré, Garbow and Hillstrom, "Testing Unconstrained Optimization Software" (1981)."""

import math

import autograd.numpy as np

import daskgrad as dg
from problems.problem import scalar, vector

# ------------------------------------------------------------- 1: Rosenbrock, extended to a chain


def rosenbrock_term(i, x):
    return 100.0 * (x[i + 1] - x[i] ** 2) ** 2 + (1.0 - x[i]) ** 2


def rosenbrock_sum(x):
    return dg.map_sum(rosenbrock_term, list(range(5)), x, grainsize=2)


# ------------------------------------------------------------------------ 5: Beale, by operators


def beale(x, y):
    targets = enumerate((1.5, 2.25, 2.625), start=1)
    return dg.sum([(target - x * (1.0 - y**power)) ** 2 for power, target in targets])


# --------------------------------------------------------------------------- 7: the helical valley


@dg.delayed
def turns(x):
    return np.arctan2(x[1], x[0]) / (2.0 * np.pi)


@dg.delayed
def helix_residuals(x, turned):
    radius = np.sqrt(x[0] ** 2 + x[1] ** 2)
    return np.array([10.0 * (x[2] - 10.0 * turned), 10.0 * (radius - 1.0), x[2]])


def helical_valley(x):
    return helix_residuals(x, turns(x))


# --------------------------------------------------------- 13: Powell's singular function, by parts


def powell_singular(x):
    a, b, c, d = [x[i] for i in range(4)]
    return [
        a + 10.0 * b,
        math.sqrt(5.0) * (c - d),
        (b - 2.0 * c) ** 2,
        math.sqrt(10.0) * (a - d) ** 2,
    ]


PROBLEMS = (
    scalar(rosenbrock_sum, np.linspace(-1.2, 1.0, 6), kind="sum"),
    scalar(beale, 1.0, 0.8),
    vector(helical_valley, np.array([-1.0, 0.3, 0.2])),
    vector(powell_singular, np.array([3.0, -1.0, 0.2, 1.0])),
)
