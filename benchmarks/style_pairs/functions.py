"""Functions that are made, wrapped, chosen or taken from elsewhere."""

import functools
import itertools
import operator
import pickle
from functools import partial, reduce

import autograd.numpy as anp
import cloudpickle
import numpy as np
from numpy import exp

import daskgrad as dg
from style_pairs.pairs import SERIES, Pair, T, X, Y, misfit, of_model, of_sum, term

SIX = np.array([1.5, 0.9, 0.2, 1.0, 0.1, 2.0])
DATA = [(T, Y + 0.01 * k) for k in range(20)]


def scaled_by(p, t, y, scale):
    return scale * np.sum((y - p[0] * np.exp(-p[1] * t)) ** 2)


# -------------------------------------------------------------------------- functions in functions


def curve(p, t):
    return p[0] * np.exp(-p[1] * t)


def residual(p, t, y):
    return y - curve(p, t)


def of_helpers(item, p):
    return np.sum(residual(p, *item) ** 2)


def by_power(power):
    def model(item, p):
        t, y = item
        return np.sum((y - p[0] * np.exp(-p[1] * t)) ** power)

    return model


def made_inside(p):
    def model(item, q):
        t, y = item
        return np.sum((y - q[0] * np.exp(-q[1] * t)) ** 2)

    return dg.map_sum(model, SERIES, p)


def of_terms(p):
    return sum([dg.delayed(misfit)(p, t, y) for t, y in DATA])


def model_of(t, y):
    def model(p):
        return np.sum((y - p[0] * np.exp(-p[1] * t)) ** 2)

    return dg.delayed(model)


MODELS = [model_of(t, y) for t, y in DATA]


def of_lambdas(p):
    total = 0.0
    for t, y in DATA:
        loss = dg.delayed(lambda q, t=t, y=y: np.sum((y - q[0] * np.exp(-q[1] * t)) ** 2))
        total = total + loss(p)
    return total


def data_first(t, y, scale, p):
    return scale * np.sum((y - p[0] * np.exp(-p[1] * t)) ** 2)


def in_reverse(item, p, power):
    t, y = item
    return np.sum((y - p[0] * np.exp(-p[1] * t)) ** power)


# ----------------------------------------------------------------------------- namespaces of NumPy


def of_namespace(xp, item, p):
    t, y = item
    return xp.sum((y - p[0] * xp.exp(-p[1] * t)) ** 2)


def of_imported(item, p):
    t, y = item
    return ((y - p[0] * exp(-p[1] * t)) ** 2).sum()


def of_autograds(item, p):
    t, y = item
    return anp.sum((y - p[0] * anp.exp(-p[1] * t)) ** 2)


# ----------------------------------------------------------------------------- decorated functions


def checked(*shapes):
    """Compares the shapes of arguments at each call."""

    def decorate(fun):
        @functools.wraps(fun)
        def inner(*args, **kwargs):
            for arg, shape in zip(args, shapes, strict=True):
                if shape is not None and np.shape(arg) != shape:
                    raise TypeError(f"{fun.__name__}: {np.shape(arg)} instead of {shape}")
            return fun(*args, **kwargs)

        return inner

    return decorate


@checked((2,), (50,), (50,))
def of_shapes(p, t, y):
    return np.sum((y - p[0] * np.exp(-p[1] * t)) ** 2)


class Square: ...


class Absolute: ...


@functools.singledispatch
def loss(kind, r):
    raise TypeError(kind)


@loss.register
def _(kind: Square, r):
    return np.sum(r**2)


@loss.register
def _(kind: Absolute, r):
    return np.sum(np.sqrt(r**2 + 1e-6))


def by_type(p, t, y, kind):
    return loss(kind, y - p[0] * np.exp(-p[1] * t))


CURVES = {}


def register(name):
    def add(fun):
        CURVES[name] = fun
        return fun

    return add


@register("exponential")
def exponential(p, t):
    return p[0] * np.exp(-p[1] * t)


@register("hyperbola")
def hyperbola(p, t):
    return p[0] / (1.0 + p[1] * t)


def by_name(p, t, y, name):
    return np.sum((y - CURVES[name](p, t)) ** 2)


def of_hyperbola(p, t, y):
    return np.sum((y - p[0] / (1.0 + p[1] * t)) ** 2)


@functools.cache
def nodes_of(count):
    return np.polynomial.legendre.leggauss(count)


def by_nodes(p):
    z, w = nodes_of(20)
    return np.sum(w * np.exp(-p[0] * (z + 1.0)) * np.cos(p[1] * z))


def of_nodes(p, z, w):
    return np.sum(w * np.exp(-p[0] * (z + 1.0)) * np.cos(p[1] * z))


# ------------------------------------------------------------------------------ loops of functions


def modes(p, t):
    for k in range(3):
        yield p[2 * k] * np.exp(-p[2 * k + 1] * t)


def of_generator(p, t, y):
    return np.sum((y - sum(modes(p, t))) ** 2)


def of_three(p, t, y):
    total = 0 + p[0] * np.exp(-p[1] * t) + p[2] * np.exp(-p[3] * t) + p[4] * np.exp(-p[5] * t)
    return np.sum((y - total) ** 2)


def of_comprehensions(p, t, y):
    curves = [a * np.exp(-b * t) for a, b in zip(p[::2], p[1::2], strict=True)]
    rates = {f"rate {k}": rate for k, rate in enumerate(p[1::2])}
    return np.sum((y - sum(curves)) ** 2) + 0.1 * sum(rate**2 for rate in rates.values())


def with_rates(p, t, y):
    a, b = p[::2], p[1::2]
    total = 0 + a[0] * np.exp(-b[0] * t) + a[1] * np.exp(-b[1] * t) + a[2] * np.exp(-b[2] * t)
    return np.sum((y - total) ** 2) + 0.1 * (0 + b[0] ** 2 + b[1] ** 2 + b[2] ** 2)


SIGNAL = Y[:30] - 1.0


def of_reduce(p, signal):
    states = itertools.accumulate(signal, lambda state, v: p[0] * state + v, initial=0.0)
    return reduce(operator.add, (state**2 for state in states), 0.0) * p[1]


def of_loop(p, signal):
    state, total = 0.0, 0.0 + 0.0**2
    for v in signal:
        state = p[0] * state + v
        total = total + state**2
    return total * p[1]


# -------------------------------------------------------------------- functions that are made anew

SOURCE = """
def edited(p, t, y):
    r = y - p[0] * np.exp(-p[1] * t)
    return np.sum(r ** 2)
"""
exec(SOURCE)


def run_the_cell_again(call):
    """Runs a notebook's cell again now and then."""
    if call % 50 == 0:
        exec(SOURCE, globals())


def loaded(scale):
    def model(p, t, y):
        return scale * np.sum((y - p[0] * np.exp(-p[1] * t)) ** 2)

    return pickle.loads(cloudpickle.dumps(model))


# -------------------------------------------------------------------------------- chains of models


def step(u, p, drift):
    return u + 0.1 * (p[0] * np.sin(u) + drift)


class Step:
    def __init__(self, name, drift):
        self.name, self.drift = name, drift

    def __call__(self, u, p):
        assert u.ndim == 1
        return u + 0.1 * (p[0] * np.sin(u) + self.drift)


STEPS = [Step(f"step {k}", 0.01 * k) for k in range(40)]
START = np.linspace(0.0, 1.0, 10)


def end(u):
    return np.sum(u**2)


def chain(p):
    u = START
    for k in range(40):
        u = dg.delayed(step)(u, p, 0.01 * k)
    return dg.delayed(end)(u)


def chain_of_objects(p):
    u = START
    for stage in STEPS:
        u = dg.delayed(stage, name=stage.name)(u, p)
    return dg.delayed(end)(u)


SCALED_BY = (scaled_by, T, Y, 0.5)

PAIRS = [
    of_sum("helper functions", of_helpers, SERIES),
    of_sum("a lambda", lambda item, p: term(item, p), SERIES),
    of_sum("a closure", by_power(2), SERIES),
    of_sum("a partial function with a keyword", partial(in_reverse, power=2), SERIES),
    Pair("a model made in the objective", lambda p: dg.map_sum(term, SERIES, p), made_inside, X),
    Pair("a list of closures", of_terms, lambda p: sum([model(p) for model in MODELS]), X),
    Pair("lambdas made in the objective", of_terms, of_lambdas, X),
    of_model("a partial function", partial(data_first, T, Y, 0.5), plain=SCALED_BY),
    of_sum("NumPy as an argument", lambda item, p: of_namespace(np, item, p), SERIES),
    of_sum("from numpy import exp", of_imported, SERIES),
    of_sum("autograd's NumPy", of_autograds, SERIES),
    of_model("a decorator that checks", of_shapes, T, Y),
    of_model("functools.singledispatch", by_type, T, Y, Square()),
    Pair(
        "a registry of functions",
        lambda p: dg.delayed(misfit)(p, T, Y) + dg.delayed(of_hyperbola)(p, T, Y),
        lambda p: (
            dg.delayed(by_name)(p, T, Y, "exponential") + dg.delayed(by_name)(p, T, Y, "hyperbola")
        ),
        X,
        (by_name, X, T, Y, "hyperbola"),
    ),
    of_model("functools.cache", by_nodes, plain=(of_nodes, *nodes_of(20))),
    of_model("a generator", of_generator, T, Y, plain=(of_three, T, Y), point=SIX),
    of_model("comprehensions", of_comprehensions, T, Y, plain=(with_rates, T, Y), point=SIX),
    of_model("from functools import reduce", of_reduce, SIGNAL, plain=(of_loop, SIGNAL)),
    Pair(
        "a notebook's cell that is run again",
        lambda p: dg.delayed(misfit)(p, T, Y),
        lambda p: dg.delayed(edited)(p, T, Y),  # noqa: F821
        X,
        change=run_the_cell_again,
    ),
    of_model("an unpickled model", loaded(2.0), T, Y, plain=(scaled_by, T, Y, 2.0)),
    Pair("a chain of forty objects", chain, chain_of_objects, X[:1], (STEPS[0], START, X[:1])),
]
