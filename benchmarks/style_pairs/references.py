"""Data that models refer to: globals, attributes of classes, closures, the environment."""

import os

import numpy as np

import daskgrad as dg
from style_pairs.pairs import Pair, T, X, Y, of_model, scaled

random = np.random.default_rng(2)

SCALE = 0.1
SETTINGS = {"scale": 0.1}
SERIES = list(random.standard_normal((70, 10)))
STACKED = np.array(SERIES)
DESIGN, OUTCOMES = random.standard_normal((2000, 50)), random.standard_normal(2000)
COEFFICIENTS = np.linspace(-1.0, 1.0, 50)
os.environ.setdefault("DASKGRAD_BENCHMARK_SCALE", "0.1")


def with_global(p, t, y):
    return np.sum(((y - p[0] * np.exp(-p[1] * t)) / SCALE) ** 2)


def change_scale(call):
    global SCALE
    SCALE = 0.1 + 0.001 * (call // 10)


def of_globals(p):
    return np.sum(((Y - p[0] * np.exp(-p[1] * T)) / 0.1) ** 2)


def with_settings(p, t, y):
    return np.sum(((y - p[0] * np.exp(-p[1] * t)) / SETTINGS["scale"]) ** 2)


class Annealing:
    weight = 1.0

    @classmethod
    def cool(cls, call):
        cls.weight = 1.0 / (1.0 + 0.01 * call)


def of_class(p, t, y):
    return Annealing.weight * np.sum((y - p[0] * np.exp(-p[1] * t)) ** 2)


def weighted(p, t, y, weight):
    return weight * np.sum((y - p[0] * np.exp(-p[1] * t)) ** 2)


def of_series(p):
    total = 0.0
    for values in SERIES:
        total = total + np.sum((values - p[0]) ** 2)
    return total * p[1]


def of_stack(p, stack):
    total = 0.0
    for k in range(70):
        total = total + np.sum((stack[k] - p[0]) ** 2)
    return total * p[1]


def ridge(p, rows, y):
    return np.sum((rows @ p - y) ** 2)


def closed_over(rows, y):
    def model(p):
        return np.sum((rows @ p - y) ** 2)

    return model


LARGE = closed_over(DESIGN, OUTCOMES)


def of_environment(p, t, y):
    scale = float(os.environ["DASKGRAD_BENCHMARK_SCALE"])
    return np.sum(((y - p[0] * np.exp(-p[1] * t)) / scale) ** 2)


SCALED = (scaled, T, Y, 0.1)

PAIRS = [
    of_model("data that are globals", of_globals, plain=SCALED),
    of_model("a global dict", with_settings, T, Y, plain=SCALED),
    Pair(
        "a global that changes now and then",
        lambda p: dg.delayed(scaled)(p, T, Y, np.array(SCALE)),
        lambda p: dg.delayed(with_global)(p, T, Y),
        X,
        (with_global, X, T, Y),
        change=change_scale,
    ),
    Pair(
        "an attribute of a class that changes at each call",
        lambda p: dg.delayed(weighted)(p, T, Y, np.array(Annealing.weight)),
        lambda p: dg.delayed(of_class)(p, T, Y),
        X,
        (of_class, X, T, Y),
        change=Annealing.cool,
    ),
    of_model("a global list of seventy arrays", of_series, plain=(of_stack, STACKED)),
    of_model(
        "a closure with an array of 800 kB",
        LARGE,
        plain=(ridge, DESIGN, OUTCOMES),
        point=COEFFICIENTS,
    ),
    of_model("a variable of the environment", of_environment, T, Y, plain=SCALED),
]
