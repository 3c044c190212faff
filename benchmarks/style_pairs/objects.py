"""Objects that hold data and have models for methods, and objects that are made on the way."""

import abc
import dataclasses
import functools

import numpy as np

import daskgrad as dg
from style_pairs.pairs import SERIES, Pair, T, X, Y, of_model, of_sum, scaled


class Decay:
    """The object keeps the data of its model."""

    def __init__(self, t, y, scale):
        self.t, self.y, self.scale = t, y, scale
        self.calls = 0

    def curve(self, p):
        return p[0] * np.exp(-p[1] * self.t)

    def misfit(self, p):
        return np.sum(((self.y - self.curve(p)) / self.scale) ** 2)

    def __call__(self, p):
        return self.misfit(p)

    def counted(self, p):
        """Counts the evaluations of an objective."""
        self.calls += 1
        return dg.delayed(self.misfit)(p) + 0.1 * np.sum(p**2)


DECAY = Decay(T, Y, 0.1)
SCALED = (scaled, T, Y, 0.1)


def penalised(p):
    return dg.delayed(scaled)(p, T, Y, 0.1) + 0.1 * np.sum(p**2)


# ----------------------------------------------------------------------------- classes and members


class Curve(abc.ABC):
    scale = 0.1

    def __init__(self, t, y):
        self.t, self.y = t, y

    @abc.abstractmethod
    def value(self, p): ...

    def loss(self, p):
        return np.sum(((self.y - self.value(p)) / self.scale) ** 2)


class Exponential(Curve):
    def value(self, p):
        return p[0] * np.exp(-p[1] * self.t)


class Shifted(Exponential):
    scale = 0.2

    def value(self, p):
        return super().value(p) + p[2]


SHIFTED_Y = Y + 0.5
CURVES = [Exponential(T, Y), Shifted(T, SHIFTED_Y)]


def shifted(p, t, y, scale):
    return np.sum(((y - (p[0] * np.exp(-p[1] * t) + p[2])) / scale) ** 2)


class Sensor:
    def __init__(self, t, y, gain):
        self._t, self._y, self._gain = t, y, gain

    @property
    def gain(self):
        return self._gain

    @property
    def weight(self):
        return 1.0 / (self._gain * 0.1)

    def cost(self, p):
        return np.sum(((self._y - self.gain * np.exp(-p[0] * self._t)) * self.weight) ** 2)


def cost(p, t, y, gain):
    return np.sum(((y - gain * np.exp(-p[0] * t)) * (1.0 / (gain * 0.1))) ** 2)


class Polynomial:
    def __init__(self, t, y):
        self.t, self.y = t, y

    @functools.cached_property
    def basis(self):
        return np.stack([np.ones_like(self.t), self.t, self.t**2], axis=1)

    def loss(self, p):
        return np.sum((self.y - self.basis @ p) ** 2)


def linear(p, basis, y):
    return np.sum((y - basis @ p) ** 2)


@dataclasses.dataclass(frozen=True)
class Normal:
    mean: float
    spread: float

    def log_density(self, x):
        return -0.5 * ((x - self.mean) / self.spread) ** 2 - np.log(self.spread)


@dataclasses.dataclass(frozen=True)
class Priors:
    level: Normal = Normal(0.0, 1.0)
    slope: Normal = Normal(1.0, 2.0)


PRIORS = Priors()


def of_priors(p, priors, t, y):
    fit = -np.sum((y - p[0] - p[1] * t) ** 2)
    return fit + priors.level.log_density(p[0]) + priors.slope.log_density(p[1])


def of_numbers(p, m1, s1, m2, s2, t, y):
    fit = -np.sum((y - p[0] - p[1] * t) ** 2)
    fit = fit + (-0.5 * ((p[0] - m1) / s1) ** 2 - np.log(s1))
    return fit + (-0.5 * ((p[1] - m2) / s2) ** 2 - np.log(s2))


class Component:
    def __init__(self, name, fun, count):
        self.name, self.fun, self.count = name, fun, count


def trend(p, t):
    return p[0] + p[1] * t


def season(p, t):
    return p[0] * np.sin(2.0 * np.pi * t) + p[1] * np.cos(2.0 * np.pi * t)


COMPONENTS = [Component("trend", trend, 2), Component("season", season, 2)]


def of_components(p, t, y):
    curve, begin = 0.0, 0
    for component in COMPONENTS:
        end = begin + component.count
        curve = curve + component.fun(p[begin:end], t)
        begin = end
    return np.sum((y - curve) ** 2)


def of_two(p, t, y):
    a, b = p[0:2], p[2:4]
    curve = 0.0 + (a[0] + a[1] * t)
    curve = curve + (b[0] * np.sin(2.0 * np.pi * t) + b[1] * np.cos(2.0 * np.pi * t))
    return np.sum((y - curve) ** 2)


# ------------------------------------------------------------------------- objects made on the way


class Gaussian:
    __slots__ = ("mean", "spread")

    def __init__(self, mean, spread):
        self.mean, self.spread = mean, spread

    def misfit(self, y):
        return np.sum(0.5 * ((y - self.mean) / self.spread) ** 2 + np.log(self.spread))


def of_an_object(p, y):
    return Gaussian(p[0], np.exp(p[1])).misfit(y)


def of_its_fields(p, y):
    spread = np.exp(p[1])
    return np.sum(0.5 * ((y - p[0]) / spread) ** 2 + np.log(spread))


class Named:
    """The attributes are parameters."""

    def __init__(self, values, names):
        self._values, self._names = values, names

    def __getattr__(self, name):
        try:
            return self._values[self._names.index(name)]
        except ValueError:
            raise AttributeError(name) from None


def of_attributes(x, t, y):
    p = Named(x, ["level", "rate"])
    return np.sum((y - p.level * np.exp(-p.rate * t)) ** 2)


DATA = [(T, Y + 0.01 * k) for k in range(10)]


def of_functions(p):
    return dg.sum([dg.delayed(scaled)(p, t, y, 0.1) for t, y in DATA])


def of_new_objects(p):
    return dg.sum([dg.delayed(Decay(t, y, 0.1).misfit)(p) for t, y in DATA])


# ------------------------------------------------------------------------------------------- trees


class Branch:
    """A branch has a length, and either children or a state at its tip."""

    def __init__(self, length, children=(), state=None):
        self.length, self.children, self.state = length, children, state


def tree_of(length, rest):
    if isinstance(rest, tuple):
        return Branch(length, tuple([tree_of(*child) for child in rest]))
    return Branch(length, state=rest)


NESTED = (0.1, ((0.2, ((0.3, 0), (0.1, 1))), (0.4, ((0.2, 1), (0.5, 1)))))
TREE = tree_of(*NESTED)


def passed_on(likelihood, e):
    first, second = likelihood[0], likelihood[1]
    return 0.5 * np.array([(1 + e) * first + (1 - e) * second, (1 - e) * first + (1 + e) * second])


def of_tuples(node, rate):
    length, rest = node
    if isinstance(rest, tuple):
        likelihood = np.ones(2)
        for child in rest:
            likelihood = likelihood * of_tuples(child, rate)
    else:
        likelihood = np.eye(2)[rest]
    return passed_on(likelihood, np.exp(-2.0 * rate * length))


def of_branches(node, rate):
    if node.state is None:
        likelihood = np.ones(2)
        for child in node.children:
            likelihood = likelihood * of_branches(child, rate)
    else:
        likelihood = np.eye(2)[node.state]
    return passed_on(likelihood, np.exp(-2.0 * rate * node.length))


def pruned(p):
    return -np.log(np.sum(of_tuples(NESTED, p[0])))


def pruned_objects(p, tree):
    return -np.log(np.sum(of_branches(tree, p[0])))


# -------------------------------------------------------------------------------------------- sums


class Misfit:
    """The methods are models of the items of a sum."""

    def __init__(self, power):
        self.power = power

    def of_item(self, item, p):
        t, y = item
        return np.sum((y - p[0] * np.exp(-p[1] * t)) ** self.power)

    def __call__(self, item, p):
        return self.of_item(item, p)


SQUARES = Misfit(2)


class Station:
    def __init__(self, t, y):
        self.t, self.y = t, y

    def away(self, p):
        return self.y - p[0] * np.exp(-p[1] * self.t)


STATIONS = [Station(t, y) for t, y in SERIES]


def of_station(station, p):
    return np.sum(station.away(p) ** 2)


NESTED_FIRST = np.array([0.5])
FOUR = np.array([1.5, 0.9, 0.1, 0.2])
THREE = np.array([1.5, 0.9, 0.3])
BASIS = np.stack([np.ones_like(T), T, T**2], axis=1)

PAIRS = [
    of_model("a method of an object with data", DECAY.misfit, plain=SCALED),
    of_model("an object that is called", DECAY, plain=SCALED),
    Pair(
        "an abstract class, and a subclass of another",
        lambda p: dg.delayed(scaled)(p, T, Y, 0.1) + dg.delayed(shifted)(p, T, SHIFTED_Y, 0.2),
        lambda p: dg.delayed(CURVES[0].loss)(p) + dg.delayed(CURVES[1].loss)(p),
        THREE,
        explained=(CURVES[1].loss, THREE),
    ),
    of_model("properties", Sensor(T, Y, 2.0).cost, plain=(cost, T, Y, 2.0), point=X[1:]),
    of_model("a cached property", Polynomial(T, Y).loss, plain=(linear, BASIS, Y), point=THREE),
    of_model(
        "frozen dataclasses as arguments",
        *(of_priors, PRIORS, T, Y),
        plain=(of_numbers, 0.0, 1.0, 1.0, 2.0, T, Y),
    ),
    of_model("a list of components", of_components, T, Y, plain=(of_two, T, Y), point=FOUR),
    of_model("an object made in the model", of_an_object, Y, plain=(of_its_fields, Y)),
    of_model("parameters as attributes by __getattr__", of_attributes, T, Y),
    Pair("objects made in the objective", of_functions, of_new_objects, X),
    Pair("an objective that counts its calls", penalised, DECAY.counted, X),
    of_model("a tree of objects", pruned_objects, TREE, plain=(pruned,), point=NESTED_FIRST),
    of_sum("a method over items", SQUARES.of_item, SERIES),
    of_sum("an object that is called for items", SQUARES, SERIES),
    of_sum("items with a method", of_station, STATIONS),
]
