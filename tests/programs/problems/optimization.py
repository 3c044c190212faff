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


@dg.delayed
def valley(x):
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def rosenbrock(x):
    return valley(x)


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


# -------------------------------------------------------------------------------------- 14: Wood


@dg.delayed
def saddle(a, b, weight):
    return weight * (b - a**2) ** 2 + (1.0 - a) ** 2


@dg.delayed
def coupling(b, d):
    return 10.0 * (b + d - 2.0) ** 2 + 0.1 * (b - d) ** 2


def wood(x):
    a, b, c, d = [x[i] for i in range(4)]
    return saddle(a, b, 100.0) + saddle(c, d, weight=90.0) + coupling(b, d)


# ------------------------------------------------------------------------- 16: Brown and Dennis


def brown_dennis_term(t, x):
    first = x["line"][0] + t * x["line"][1] - math.exp(t)
    second = x["wave"][0] + math.sin(t) * x["wave"][1] - math.cos(t)
    return (first**2 + second**2) ** 2


def brown_dennis(x):
    return dg.map_sum(brown_dennis_term, [i / 5.0 for i in range(1, 12)], x, grainsize=4)


# ----------------------------------------------------------------------- 26: trigonometric


@dg.delayed
def cosines(x):
    return np.sum(np.cos(x))


@dg.delayed
def trigonometric_residuals(x, total):
    numbers = np.arange(1, len(x) + 1)
    return len(x) - total + numbers * (1.0 - np.cos(x)) - np.sin(x)


def trigonometric(x):
    return trigonometric_residuals(x, cosines(x))


# ------------------------------------------------------------------------ 30: Broyden tridiagonal


@dg.delayed
def tridiagonal(x):
    padded = np.pad(x, 1, mode="constant")
    return (3.0 - 2.0 * x) * x - padded[:-2] - 2.0 * padded[2:] + 1.0


def broyden_tridiagonal(x):
    return tridiagonal(x)


PROBLEMS = (
    scalar(rosenbrock_sum, np.linspace(-1.2, 1.0, 6), kind="sum"),
    scalar(rosenbrock, np.linspace(-1.2, 1.0, 6)),
    scalar(beale, 1.0, 0.8),
    vector(helical_valley, np.array([-1.0, 0.3, 0.2])),
    vector(powell_singular, np.array([3.0, -1.0, 0.2, 1.0])),
    scalar(wood, np.array([-3.0, -1.0, -2.5, -1.5])),
    scalar(
        brown_dennis,
        {"line": np.array([2.5, 0.5]), "wave": (np.float64(-0.5), np.float64(-1.0))},
        kind="sum",
    ),
    vector(trigonometric, np.linspace(0.1, 0.6, 5)),
    vector(broyden_tridiagonal, np.linspace(-1.3, 0.4, 6)),
)
