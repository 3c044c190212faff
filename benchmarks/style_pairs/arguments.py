"""Arguments and parameters: by keyword, by default, by name, in trees, and of changing values."""

from collections import OrderedDict, defaultdict, namedtuple

import numpy as np

import daskgrad as dg
from style_pairs.pairs import SERIES, Pair, T, X, Y, misfit, of_model, of_sum, scaled, term

# ----------------------------------------------------------------------------- arguments of models


def half(p, t, y):
    return 0.5 * np.sum((y - p[0] * np.exp(-p[1] * t)) ** 2)


def of_any(*args, **kwargs):
    p, t = args
    return kwargs.get("weight", 1.0) * np.sum((kwargs["y"] - p[0] * np.exp(-p[1] * t)) ** 2)


OPTIONS = {"y": Y, "weight": 0.5}


def by_keyword(p, *, t, y, power: int = 2):
    return np.sum((y - p[0] * np.exp(-p[1] * t)) ** power)


def of_defaults(p, t, y, options={"scale": 0.1, "power": 2}, penalties=[]):  # noqa: B006
    total = np.sum(((y - p[0] * np.exp(-p[1] * t)) / options["scale"]) ** options["power"])
    for penalty in penalties:
        total = total + penalty(p)
    return total


SETTINGS = {
    "noise": {"scale": 0.1, "kind": "normal"},
    "prior": {"level": {"mean": 0.0, "scale": 1.0}, "rate": {"mean": 1.0, "scale": 2.0}},
}


def of_settings(p, settings, t, y):
    r = (y - p["level"] - p["rate"] * t) / settings["noise"]["scale"]
    total = 0.5 * np.sum(r**2)
    for name, prior in settings["prior"].items():
        total = total + 0.5 * ((p[name] - prior["mean"]) / prior["scale"]) ** 2
    return total


def of_two_priors(p, t, y):
    r = (y - p["level"] - p["rate"] * t) / 0.1
    total = 0.5 * np.sum(r**2) + 0.5 * ((p["level"] - 0.0) / 1.0) ** 2
    return total + 0.5 * ((p["rate"] - 1.0) / 2.0) ** 2


LAYOUT = {"w": slice(0, 6), "b": slice(6, 8)}
EIGHT = np.linspace(-1.0, 1.0, 8)
DESIGN, OUTCOMES = np.cos(np.arange(240.0)).reshape(40, 6), np.sin(np.arange(40.0))


def by_slices(p, layout, rows, y):
    return np.sum((y - rows @ p[layout["w"]] - p[layout["b"]][0]) ** 2)


def by_places(p, rows, y):
    return np.sum((y - rows @ p[0:6] - p[6:8][0]) ** 2)


class Clock:
    """A schedule of weights uses the number of a call."""

    step = 0

    @classmethod
    def tick(cls, call):
        cls.step = call


def annealed(p, t, y, step):
    return np.sum((y - p[0] * np.exp(-p[1] * t)) ** 2) / (1 + step)


def with_power(item, p, power):
    t, y = item
    return np.sum((y - p[0] * np.exp(-p[1] * t)) ** power)


def by_default(item, p, power=2):
    return with_power(item, p, power)


# -------------------------------------------------------------------------------------- parameters

NAMES = ("level", "rate", "shift")
NAMED = {"level": np.array(1.5), "rate": np.array(0.9)}
Parameters = namedtuple("Parameters", "level rate")


def unpacked(item, p):
    t, y = item
    level, rate = p
    return np.sum((y - level * np.exp(-rate * t)) ** 2)


def of_names(item, p):
    t, y = item
    return np.sum((y - p["level"] * np.exp(-p["rate"] * t)) ** 2)


def of_fields(x, t, y):
    p = Parameters(*x)
    q = p._replace(level=p.level * 2.0)
    return np.sum((y - q.level * np.exp(-p.rate * t)) ** 2)


def doubled(p, t, y):
    return np.sum((y - p[0] * 2.0 * np.exp(-p[1] * t)) ** 2)


def separate(level, rate, shift, t, y):
    return np.sum((y - level * np.exp(-rate * t) - shift) ** 2)


def together(p, t, y):
    return np.sum((y - p[0] * np.exp(-p[1] * t) - p[2]) ** 2)


def by_names(x):
    parameters = dict(zip(NAMES, x, strict=True))
    return dg.delayed(separate)(t=T, y=Y, **parameters)


DEFAULTS = {"shift": 0.1, "power": 2}


def merged(p, t, y):
    q = dict(DEFAULTS)
    q.update(p)
    q = {**q, "rate": q["rate"] * 1.0}
    q.setdefault("scale", 1.0)
    curve = q["level"] * np.exp(-q["rate"] * t) + q["shift"]
    return q["scale"] * np.sum((y - curve) ** q["power"])


def unmerged(p, t, y):
    curve = p["level"] * np.exp(-(p["rate"] * 1.0) * t) + 0.1
    return 1.0 * np.sum((y - curve) ** 2)


WEIGHTS = np.cos(np.arange(24.0))
NETWORK = {
    "layers": [
        {"w": WEIGHTS[:4].reshape(1, 4), "b": np.zeros(4)},
        {"w": WEIGHTS[4:20].reshape(4, 4), "b": np.zeros(4)},
    ],
    "last": WEIGHTS[20:].reshape(4, 1),
}


def of_network(p, t, y):
    h = t[:, None]
    for layer in p["layers"]:
        h = np.tanh(h @ layer["w"] + layer["b"])
    return np.sum((y - (h @ p["last"])[:, 0]) ** 2)


def of_arrays(w1, b1, w2, b2, last, t, y):
    h = np.tanh(t[:, None] @ w1 + b1)
    h = np.tanh(h @ w2 + b2)
    return np.sum((y - (h @ last)[:, 0]) ** 2)


def network_of_arrays(p):
    first, second = p["layers"]
    arrays = (first["w"], first["b"], second["w"], second["b"], p["last"])
    return dg.delayed(of_arrays)(*arrays, T, Y)


SUMMANDS = {"a1": np.array(1.0), "a2": np.array(0.5), "r1": np.array(0.9)}


def of_groups(p, t, y):
    sums = defaultdict(float)
    for name, number in p.items():
        sums[name[0]] += number
    return np.sum((y - sums["a"] * np.exp(-sums["r"] * t)) ** 2)


def ungrouped(p, t, y):
    return np.sum((y - (0.0 + p["a1"] + p["a2"]) * np.exp(-(0.0 + p["r1"]) * t)) ** 2)


def ridge(p, weight):
    return weight * np.sum(p["level"] ** 2) + weight * np.sum(p["rate"] ** 2)


def ridge_by_names(p, options):
    total = 0.0
    for name in sorted(p):
        total = total + options["weight"] * np.sum(p[name] ** 2)
    if options["verbose"]:
        print("penalty", total)
    return total


RIDGE = {"weight": 0.1, "verbose": False, "tag": "first"}


def prior(p):
    return 0.5 * np.sum(p**2)


def in_two_sums(p):
    return dg.map_sum(term, SERIES[:100], p) + dg.map_sum(term, SERIES[100:], p)


OF_NAMES = dict(point=NAMED)

PAIRS = [
    Pair(
        "*args and **kwargs",
        lambda p: dg.delayed(half)(p, T, Y),
        lambda p: dg.delayed(of_any)(p, T, **OPTIONS),
        X,
    ),
    Pair(
        "arguments by keyword alone",
        lambda p: dg.delayed(misfit)(p, T, Y),
        lambda p: dg.delayed(by_keyword)(p, t=T, y=Y),
        X,
    ),
    of_model("a dict and a list as defaults", of_defaults, T, Y, plain=(scaled, T, Y, 0.1)),
    of_model(
        "settings in a dict of dicts",
        of_settings,
        SETTINGS,
        T,
        Y,
        plain=(of_two_priors, T, Y),
        **OF_NAMES,
    ),
    of_model(
        "slices as arguments",
        by_slices,
        LAYOUT,
        DESIGN,
        OUTCOMES,
        plain=(by_places, DESIGN, OUTCOMES),
        point=EIGHT,
    ),
    Pair(
        "the number of the call as an argument",
        lambda p: dg.delayed(annealed)(p, T, Y, float(Clock.step)),
        lambda p: dg.delayed(annealed)(p, T, Y, Clock.step),
        X,
        (annealed, X, T, Y, 3),
        change=Clock.tick,
    ),
    of_sum("an integer for all items", with_power, SERIES, 2),
    of_sum("a default for all items", by_default, SERIES),
    of_sum("parameters that are unpacked", unpacked, SERIES),
    of_sum("a dict of parameters", of_names, SERIES, styled_point=NAMED),
    of_model("a named tuple of parameters", of_fields, T, Y, plain=(doubled, T, Y)),
    Pair(
        "keywords of zipped names",
        lambda p: dg.delayed(together)(p, T, Y),
        by_names,
        np.array([1.5, 0.9, 0.1]),
    ),
    of_model("parameters merged with defaults", merged, T, Y, plain=(unmerged, T, Y), **OF_NAMES),
    Pair(
        "a tree of parameters",
        network_of_arrays,
        lambda p: dg.delayed(of_network)(p, T, Y),
        NETWORK,
        (of_network, NETWORK, T, Y),
    ),
    of_model(
        "parameters grouped by their names",
        *(of_groups, T, Y),
        plain=(ungrouped, T, Y),
        point=SUMMANDS,
    ),
    of_model(
        "an OrderedDict of parameters",
        *(ungrouped, T, Y),
        plain=(ungrouped, T, Y),
        point=SUMMANDS,
        styled_point=OrderedDict(SUMMANDS),
    ),
    of_model(
        "a penalty in a loop over names", ridge_by_names, RIDGE, plain=(ridge, 0.1), **OF_NAMES
    ),
    Pair(
        "a prior as a model beside a sum",
        lambda p: dg.map_sum(term, SERIES, p) + 0.5 * np.sum(p**2),
        lambda p: dg.map_sum(term, SERIES, p) + dg.delayed(prior)(p),
        X,
        (prior, X),
    ),
    Pair("two sums for one", lambda p: dg.map_sum(term, SERIES, p), in_two_sums, X, rounding=1e-10),
]
