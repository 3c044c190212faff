"""Derivatives other than value and gradient."""

import logging

import numpy as np

import daskgrad as dg
from style_pairs.pairs import (
    HESSIAN,
    HVP,
    JACOBIAN,
    JVP,
    PER_ITEM,
    SERIES,
    Pair,
    T,
    X,
    Y,
    misfit,
    of_model,
    of_sum,
    term,
)

log = logging.getLogger(__name__)
FEW = SERIES[:100]
NAMED = [(f"station {k}", t, y) for k, (t, y) in enumerate(FEW)]
LABELLED = [{"name": name, "t": t, "y": y} for name, t, y in NAMED]


class Decay:
    def __init__(self, t, y):
        self.t, self.y = t, y

    def curve(self, p):
        return p[0] * np.exp(-p[1] * self.t)

    def misfit(self, p):
        if p[0] < 0.0:
            raise ValueError(f"the level {p[0]} is below zero")
        return np.sum((self.y - p[0] * np.exp(-p[1] * self.t)) ** 2)


DECAY = Decay(T, Y)


def of_named(item, p):
    _, t, y = item
    return np.sum((y - p[0] * np.exp(-p[1] * t)) ** 2)


def of_labelled(item, p):
    return np.sum((item["y"] - p[0] * np.exp(-p[1] * item["t"])) ** 2)


def curve(p, t):
    return p[0] * np.exp(-p[1] * t)


def logged_curve(p, t):
    log.info("evaluated at %s", p)
    return p[0] * np.exp(-p[1] * t)


def with_residual(p, t, y):
    r = y - p[0] * np.exp(-p[1] * t)
    return np.sum(r**2), {"residual": r, "count": len(y)}


def value_and_residual(p):
    pair = dg.delayed(with_residual)(p, T, Y)
    return pair[0], pair[1]


PAIRS = [
    Pair(
        "has_aux",
        lambda p: dg.delayed(misfit)(p, T, Y),
        value_and_residual,
        X,
        with_auxiliary=True,
    ),
    of_model("the Hessian of a method", DECAY.misfit, derivative=HESSIAN),
    of_sum("dg.hvp of items with a name", of_named, NAMED, plain=(term, FEW), derivative=HVP),
    of_sum("dg.jvp of items with a name", of_named, NAMED, plain=(term, FEW), derivative=JVP),
    of_model("the Jacobian of a method", DECAY.curve, plain=(curve, T), derivative=JACOBIAN),
    of_model(
        "the Jacobian of a model that logs", logged_curve, T, plain=(curve, T), derivative=JACOBIAN
    ),
    Pair(
        "dg.per_item of items with a name",
        (term, FEW),
        (of_labelled, LABELLED),
        X,
        (of_labelled, LABELLED[0], X),
        derivative=PER_ITEM,
    ),
]
